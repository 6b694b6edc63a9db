"""The page Federation in a real browser, with a real broker."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, expect

from flmc.cli import main
from flmc.wire.transport import Message
from studio.conftest import ARTEFACTS, Studio, Tab, new_tab, start_studio
from studio.small_broker import (
    SmallBroker,
    demo_messages,
    presence_of,
    small_broker,
    status_of,
)
from support import full, full_only


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SmallBroker]:
    with small_broker(tmp_path_factory.mktemp("broker")) as started:
        yield started


@pytest.fixture(scope="module")
def watching(broker: SmallBroker) -> Iterator[Studio]:
    started = start_studio("--broker", broker.url)
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture
def page(window: BrowserContext, watching: Studio) -> Iterator[Tab]:
    """A tab of the studio that watches; its console must stay silent."""
    opened = new_tab(window, watching)
    yield opened
    opened.page.close()
    assert opened.errors == []


def test_without_a_broker_the_page_says_how_to_give_one(tab: Tab) -> None:
    tab.open("/federation")
    expect(tab.page.get_by_text("flmc studio --broker")).to_be_visible()
    expect(tab.page.get_by_text("flmc deploy demo")).to_be_visible()
    # The page must not be able to make the studio connect anywhere.
    assert tab.page.locator("input, textarea").count() == 0
    tab.open("/federation?broker=mqtt://127.0.0.1:1")
    expect(tab.page.locator("[data-unknown]")).to_contain_text("broker")


@full_only
def test_a_run_is_watched(page: Tab, broker: SmallBroker) -> None:
    page.open("/federation")
    status = page.page.locator("[data-status]")
    expect(status).to_contain_text(f"Connected to {broker.url}. No run has been heard of.")
    broker.publish(demo_messages())
    expect(page.page.locator("[data-verdict]")).to_contain_text("RUNNING")
    assert (page.tile("round"), page.tile("active"), page.tile("epsilon")) == (7, 18, 1.25)
    assert (page.tile("round_ms"), page.tile("dropped")) == (61, 5)
    devices = page.page.locator("[data-devices]")
    expect(devices.locator("tr", has_text="device-11")).to_contain_text("gone")
    refused = devices.locator("tr.warning", has_text="device-4")
    expect(refused).to_contain_text("its budget is [1], and the plan needs 5")
    expect(devices).to_contain_text("2 here, 18 joined, 1 refused, 1 gone")
    expect(page.page.locator("[data-dropped]")).to_contain_text("after its round was closed")
    for number in range(8, 20):
        broker.publish([status_of(round=number, active=number)])
    expect(page.page.locator('[data-tile="round"]')).to_contain_text("19")
    seen = page.page.get_by_text("8 to 19 of 20 devices in the rounds seen.")
    expect(seen).to_be_visible()
    expect(page.page.locator("[data-command]")).to_have_text(
        f"flmc status --broker {broker.url} --run demo"
    )
    # A last will.
    broker.publish([presence_of("device-2", "gone")])
    expect(devices.locator("tr", has_text=re.compile("^device-2gone"))).to_be_visible()
    broker.publish([presence_of("server", "gone")])
    expect(page.page.locator("[data-verdict].warning")).to_contain_text("its server is gone")
    why = "device-3 saw <b>another</b> plan"
    broker.publish([status_of(phase="failed", why=why, round=19)])
    verdict = page.page.locator("[data-verdict]")
    expect(verdict).to_contain_text(f"FAILED{why}")
    expect(verdict).to_have_class(re.compile("bad"))


@full_only
def test_runs_are_chosen(page: Tab, broker: SmallBroker) -> None:
    early = status_of("early", phase="waiting", round=0, unix_time=1.0, why="0 of 10 joined")
    broker.publish([*demo_messages(), early])
    page.open("/federation?run=early")
    expect(page.page.locator("[data-verdict]")).to_contain_text("WAITING0 of 10 joined")
    expect(page.page.get_by_text("No round is done yet.").first).to_be_visible()
    page.page.get_by_label("Run").click()
    page.page.get_by_role("option", name="demo").click()
    expect(page.page.locator("[data-verdict]")).to_contain_text("RUNNING")
    page.page.wait_for_function("location.search.includes('run=demo')")
    page.open("/federation?run=nobody%3Cb%3E")
    expect(page.page.locator("[data-verdict]")).to_contain_text("Nothing was heard")
    broker.publish([Message("flmc/1/early/status", b"", retain=True)])


@full_only
def test_the_connection_comes_back(window: BrowserContext, tmp_path: Path) -> None:
    """The studio is started before its broker, loses it, and finds it again."""
    with small_broker(tmp_path) as first:
        port = first.port
    studio = start_studio("--broker", first.url)
    tab = new_tab(window, studio)
    try:
        tab.open("/federation")
        status = tab.page.locator("[data-status]")
        expect(status).to_contain_text("Not connected")
        for number in range(full(2, 1)):
            with small_broker(tmp_path, port) as again:
                expect(status).to_contain_text(f"Connected to {again.url}")
                again.publish([status_of(round=40 + number)])
                expect(tab.page.locator('[data-tile="round"]')).to_contain_text(f"{40 + number}")
            expect(status).to_contain_text("Not connected")
        assert tab.errors == []
    finally:
        tab.page.close()
        studio.stop()
    assert studio.process.returncode == 0


@full_only
def test_the_page_is_saved(page: Tab, broker: SmallBroker, tmp_path: Path) -> None:
    broker.publish(demo_messages())
    page.open("/federation?run=demo")
    expect(page.page.locator("[data-verdict]")).to_contain_text("RUNNING")
    with page.page.expect_download() as download:
        page.page.keyboard.press("e")
    download.value.save_as(tmp_path / "page.html")
    text = (tmp_path / "page.html").read_text()
    assert f"flmc status --broker {broker.url} --run demo" in text
    assert text.count("<svg") == 3


@full_only
@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_the_page_fits_its_width(
    browser: Browser, watching: Studio, broker: SmallBroker, width: int, theme: str
) -> None:
    """What the page looks like is kept, to be looked at."""
    broker.publish(demo_messages())
    for number in range(1, 61):
        seconds, active = 0.055 + 0.01 * (number % 7 == 0), 20 - (number * 7919) % 4
        spent = 0.3 * number**0.5
        broker.publish(
            [status_of(round=number, active=active, epsilon=spent, round_seconds=seconds)]
        )
    tab = new_tab(browser, watching, width)
    tab.open(f"/federation?run=demo&theme={theme}")
    expect(tab.page.locator('[data-tile="round"]')).to_contain_text("60")
    tab.page.wait_for_timeout(1500)  # the charts are drawn
    assert tab.page.evaluate("document.documentElement.scrollWidth") <= width
    ARTEFACTS.mkdir(parents=True, exist_ok=True)
    tab.page.screenshot(path=ARTEFACTS / f"federation-live-{width}-{theme}.png", full_page=True)
    assert tab.errors == []
    tab.page.close()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--broker", "mqtts://127.0.0.1"), "--broker-tls DIR"),
        (("--broker", "ftp://127.0.0.1"), "mqtt://HOST:PORT"),
        (("--broker-tls", "."), "needs --broker"),
    ],
)
def test_brokers_are_checked_at_the_start(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    assert main(["studio", "--no-browser", "--port", "0", *words]) == 2
    assert said in capsys.readouterr().err
