"""The page Plan in a real browser: its numbers are those of `flmc plan --json`."""

from __future__ import annotations

import io
import json
import re
import shlex
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from flmc.cli import main
from studio.conftest import ARTEFACTS, Studio, Tab, new_tab
from support import QUICK, full, full_only

# A value for every control, which the plan can be made with.
MOVES = {
    "scheme": "analog", "snr_db": "12", "fading": "rayleigh", "scheduling": "random:10",
    "epsilon": "2", "scope": "run", "delta": "0.001", "run_delta": "1e-06",
    "neighbouring": "example", "privacy": "tail", "devices": "50", "dim": "3", "samples": "2000",
    "clip": "10", "link": "probit", "slope_parameter": "0.02", "rounds": "1000",
    "burn_in": "auto", "step_size": "0.001", "chains": "8", "seed": "3",
}  # fmt: skip
FEW = ("snr_db",)


def planned(command: str) -> dict[str, Any]:
    """What the command on the page prints with --json, in this process."""
    name, *words = shlex.split(command)
    assert name == "flmc"
    with redirect_stdout(io.StringIO()) as printed:
        assert main([*words, "--json"]) == 0
    document: dict[str, Any] = json.loads(printed.getvalue())
    return document


def compare(tab: Tab) -> None:
    """The tiles of a page against the command that it shows, in another process than the
    studio's."""
    tab.settle()
    document = planned(tab.page.locator("[data-command]").inner_text())
    shown = {key: tab.tile(key) for key in ("temperature", "round_epsilon", "run_epsilon")}
    assert shown["temperature"] == document["temperature"]
    assert shown["round_epsilon"] == document["privacy"]["round"]["epsilon"]
    assert shown["run_epsilon"] == document["privacy"]["run"]["epsilon"]
    # Margins are of the gain that rounds are expected to use, which a random channel lowers.
    name, margin = next((n, m) for n, m in document["margins_db"].items() if m is not None)
    expected = document["limits"][name] / 10 ** (margin / 20)
    assert tab.tile("gain") == pytest.approx(expected, rel=1e-12)
    law = document["prediction"]
    if law is not None:
        assert tab.tile("variance_ratio") == law["variance_ratio"]
        assert tab.tile("mean_shift") == law["mean_shift"]


def move(tab: Tab, name: str, value: str) -> None:
    """Move a control as a person does."""
    box = tab.page.locator(f'[data-control="{name}"]')
    choice = box.locator(".q-btn-toggle")
    if choice.count():
        choice.get_by_role("button", name=value, exact=True).click()
    else:
        box.locator("input").fill(value)


def test_defaults(tab: Tab) -> None:
    tab.open("/")
    compare(tab)
    expect(tab.page.locator("[data-verdict]")).to_contain_text("INFEASIBLE")
    lights = {
        name: tab.page.locator(f'[data-light="{name}"]') for name in ("sampling", "privacy", "use")
    }
    expect(lights["sampling"]).to_have_class(re.compile("good"))
    expect(lights["privacy"]).to_have_class(re.compile("warning"))
    expect(lights["privacy"]).to_contain_text("the run costs epsilon 142.06")
    expect(lights["use"]).to_have_class(re.compile("bad"))


@full_only
def test_a_good_plan_and_one_that_nobody_could_judge(tab: Tab) -> None:
    """Each has a colour of its own. The law of 130 entries is not predicted where 19 of 20
    devices take turns."""
    many = "&scheme=analog&dim=130&samples=30000&clip=300&snr_db=40&scheduling=random:19"
    edges = []
    for sizes, word in (("", "GOOD"), (many, "NOT KNOWN")):
        tab.open(f"/?rounds=6000&burn_in=2000&privacy=off{sizes}")
        verdict = tab.page.locator("[data-verdict]")
        expect(verdict).to_contain_text(word, timeout=60_000)
        edges.append(verdict.evaluate("each => getComputedStyle(each).borderLeftColor"))
    assert edges[0] != edges[1]


@pytest.mark.parametrize("name", FEW if QUICK else MOVES)
def test_each_control(tab: Tab, name: str) -> None:
    tab.open("/?neighbouring=device")
    tab.settle()
    move(tab, name, MOVES[name])
    tab.page.wait_for_function(f"location.search.includes('{name}=')", timeout=60_000)
    compare(tab)


@full_only
def test_a_suggestion_is_taken(tab: Tab) -> None:
    """Of settings whose clip and link do not suit: what is proposed is good."""
    tab.open("/?snr_db=12&devices=50&dim=30&samples=6000")
    tab.settle()
    tab.page.get_by_role("button", name="Suggest").click()
    take = tab.page.get_by_role("button", name="Take these")
    take.wait_for(timeout=60_000)
    take.click()
    light = tab.page.locator('[data-light="sampling"]')
    expect(light).to_have_class(re.compile("good"), timeout=60_000)
    expect(tab.page.locator('[data-light="use"]')).to_have_class(re.compile("good"))
    compare(tab)


@full_only
def test_sliders_by_keyboard(tab: Tab) -> None:
    tab.open("/")
    tab.settle()
    before = tab.tile("gain")
    thumb = tab.page.locator('[data-control="snr_db"] .q-slider [tabindex="0"]').first
    thumb.focus()
    for _ in range(20):
        thumb.press("ArrowLeft")
    expect(tab.page.locator('[data-control="snr_db"] input')).to_have_value("15")
    compare(tab)
    assert tab.tile("gain") < before


@full_only
def test_a_shared_address(tab: Tab) -> None:
    tab.open("/?snr_db=12&devices=50&dim=30&clip=10&burn_in=auto&rounds=1000&theme=dark")
    compare(tab)
    assert tab.page.locator("body.body--dark").count() == 1
    expect(tab.page.locator('[data-control="devices"] input')).to_have_value("50")


@full_only
@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("snr_db", "loud", "snr_db must be a number"),
        ("epsilon", "-3", "epsilon must be positive"),
        ("rounds", "100", "burn_in"),
        ("fading", "os:getcwd", "fading must be one of"),
        ("link", "nonsense", "link must be one of"),
    ][: full(5, 1)],
)
def test_bad_values_are_told_at_their_field(tab: Tab, name: str, text: str, message: str) -> None:
    tab.open("/")
    tab.settle()
    tab.type(name, text)
    told = "burn_in" if message == "burn_in" else name
    expect(tab.page.locator(f'[data-control="{told}"] .q-field__bottom')).to_contain_text(message)
    tab.type(name, {"snr_db": "20", "epsilon": "4", "rounds": "400"}.get(name, ""))
    compare(tab)


@full_only
def test_unknown_keys_are_told(tab: Tab) -> None:
    tab.open("/?data_file=/etc/passwd&snr_db=12")
    expect(tab.page.locator("[data-unknown]")).to_contain_text("data_file")
    compare(tab)


@full_only
def test_the_map_leads_to_its_points(tab: Tab) -> None:
    tab.open("/")
    tab.settle()
    card = tab.page.locator(".card.whole")
    tab.page.wait_for_function(
        "document.querySelectorAll('.card.whole.stale').length === 0", timeout=120_000
    )
    card.locator(".chart").scroll_into_view_if_needed()
    box = card.locator(".chart").bounding_box()
    assert box is not None
    tab.page.mouse.click(box["x"] + 0.3 * box["width"], box["y"] + 0.6 * box["height"])
    tab.page.wait_for_function("location.search.includes('snr_db=')", timeout=60_000)
    compare(tab)
    assert "epsilon=" in tab.page.url


@full_only
def test_two_tabs_are_independent(browser: Browser, studio: Studio, tab: Tab) -> None:
    other = new_tab(browser, studio)
    tab.open("/?snr_db=5")
    other.open("/?scheme=analog")
    for each, value in ((tab, "8"), (other, "30")):
        each.type("snr_db", value)
        # Only then the page knows that it is stale.
        each.page.wait_for_function(f"location.search.includes('snr_db={value}')")
    compare(tab)
    compare(other)
    assert tab.tile("gain") != other.tile("gain")
    other.page.close()


@full_only
@pytest.mark.parametrize("kind", ["PNG", "SVG", "PDF"])
def test_pictures_are_saved(tab: Tab, kind: str, tmp_path: Path) -> None:
    tab.open("/")
    tab.settle()
    with tab.page.expect_download() as download:
        tab.page.get_by_label("Save this picture").first.click()
        tab.page.locator(".q-menu .q-item", has_text=kind).click()
    path = tmp_path / download.value.suggested_filename
    download.value.save_as(path)
    assert path.name == f"flmc-limits.{kind.lower()}"
    assert {"PNG": b"\x89PNG", "PDF": b"%PDF", "SVG": b"<svg"}[kind] in path.read_bytes()[:1000]


@full_only
def test_the_page_is_saved_as_one_file(tab: Tab, tmp_path: Path) -> None:
    tab.open("/?snr_db=12&burn_in=auto")
    tab.settle()
    with tab.page.expect_download() as download:
        tab.page.keyboard.press("e")
    path = tmp_path / "page.html"
    download.value.save_as(path)
    text = path.read_text()
    assert "flmc plan --snr-db 12 --burn-in auto" in text
    assert text.count("<svg") >= 4
    assert "<script" not in text
    assert 'src="http' not in text


READY = {
    "/": "[data-verdict]:not(.stale)",
    "/solve": "[data-answer]:has-text('is the smallest value')",
    "/run": "[data-status]:has-text('Not started.')",
    "/compare": "[data-numbers]:has-text('analog')",
    "/figures": "text=There is no report yet",
    "/federation": "text=flmc studio --broker",
}
"""What is on a page when all of it is there."""


@full_only
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("path", READY)
def test_pages_fit_their_width(
    window: BrowserContext, studio: Studio, path: str, width: int, theme: str
) -> None:
    """No page is wider than its window; what it looks like is kept, to be looked at."""
    tab = new_tab(window, studio, width)
    tab.open(f"{path}?theme={theme}")
    tab.page.locator(READY[path]).first.wait_for(timeout=120_000)
    if path == "/":
        tab.settle()  # all but the map
    tab.page.wait_for_timeout(500)  # charts move to their places
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    name = path.strip("/") or "plan"
    tab.page.screenshot(path=ARTEFACTS / f"{name}-{width}-{theme}.png", full_page=True)
    assert tab.errors == []
    tab.page.close()
