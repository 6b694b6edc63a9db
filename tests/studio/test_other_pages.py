"""The pages Run, Solve, Compare and Figures in a real browser."""

from __future__ import annotations

import json
import re
import tomllib
import zipfile
from pathlib import Path

import pytest
from playwright.sync_api import expect

import flmc
from flmc.runs.records import is_finished
from flmc.settings.assembly import assemble
from flmc.settings.schema import merge
from studio.conftest import Tab
from support import full_only


def save(tab: Tab, button: str, path: Path) -> Path:
    with tab.page.expect_download() as download:
        tab.page.get_by_role("button", name=button).click()
    download.value.save_as(path)
    return path


def test_a_run_from_start_to_record(tab: Tab, tmp_path: Path) -> None:
    """The record that is taken away is what the command on the page would have made."""
    tab.open("/run?rounds=600&chains=8&seed=5")
    expect(tab.page.locator("[data-status]")).to_have_text("Not started.")
    tab.page.get_by_role("button", name="Start").click()
    expect(tab.page.locator("[data-status]")).to_contain_text(
        "Finished: 600 rounds", timeout=60_000
    )
    assert 0.5 < tab.tile("variance_ratio") < 2
    assert tab.tile("r_hat") < 1.5
    archive = save(tab, "Record (zip)", tmp_path / "record.zip")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path)
    record = flmc.load(tmp_path / "record")
    problem = assemble(merge({}, {"rounds": 600, "seed": 5}))
    again = flmc.run(problem.plan(), problem.model, seed=5, chains=8)
    assert record.kept_draws is not None
    assert (record.kept_draws == again.kept_draws).all()
    expect(tab.page.locator("[data-command]")).to_have_text(
        "flmc run --rounds 600 --chains 8 --seed 5"
    )


@full_only
def test_settings_and_plan_are_taken_away(tab: Tab, tmp_path: Path) -> None:
    tab.open("/run?rounds=600&snr_db=12")
    settings = save(tab, "Settings (TOML)", tmp_path / "settings.toml")
    assert tomllib.loads(settings.read_text()) == {"rounds": 600, "snr_db": 12.0}
    plan = save(tab, "Plan (JSON)", tmp_path / "plan.json")
    assert flmc.Plan.from_document(json.loads(plan.read_text())).num_rounds == 600


@full_only
def test_a_run_is_stopped(tab: Tab, tmp_path: Path) -> None:
    """Then another can be started."""
    tab.open("/run?rounds=100000&burn_in=1000&chains=400&devices=100")
    tab.page.get_by_role("button", name="Start").click()
    stop = tab.page.get_by_role("button", name="Stop")
    expect(stop).to_be_enabled(timeout=30_000)
    stop.click()
    expect(tab.page.locator("[data-status]")).to_contain_text("interrupted", timeout=60_000)
    expect(tab.page.get_by_role("button", name="Start")).to_be_enabled()
    archive = save(tab, "Record (zip)", tmp_path / "record.zip")
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(tmp_path)
    assert not is_finished(tmp_path / "record")


@full_only
def test_a_run_keeps_its_own_settings(tab: Tab, tmp_path: Path) -> None:
    """Settings that were changed since are neither its command nor its file."""
    tab.open("/run?rounds=600&chains=4&snr_db=12")
    tab.page.get_by_role("button", name="Start").click()
    status = tab.page.locator("[data-status]")
    expect(status).to_contain_text("Finished", timeout=60_000)
    expect(tab.page.locator("[data-changed]")).to_be_hidden()
    tab.type("snr_db", "30")
    expect(tab.page.locator("[data-changed]")).to_be_visible()
    expect(tab.page.locator("[data-command]")).to_contain_text("--snr-db 12")
    settings = save(tab, "Settings (TOML)", tmp_path / "settings.toml")
    assert tomllib.loads(settings.read_text())["snr_db"] == 12.0
    tab.type("snr_db", "12")
    expect(tab.page.locator("[data-changed]")).to_be_hidden()


@full_only
def test_a_run_that_cannot_be_planned(tab: Tab) -> None:
    tab.open("/run?rounds=100")
    tab.page.get_by_role("button", name="Start").click()
    field = tab.page.locator('[data-control="burn_in"] .q-field__bottom')
    expect(field).to_contain_text("burn_in")
    expect(tab.page.get_by_role("button", name="Start")).to_be_enabled()


def test_an_inverse_question(tab: Tab) -> None:
    """The smallest SNR: the plan that it leads to samples rightly."""
    tab.open("/solve?ask=snr_db")
    answer = tab.page.locator("[data-answer]")
    expect(answer).to_contain_text("is the smallest value", timeout=60_000)
    expect(tab.page.locator("[data-command]")).to_have_text("flmc plan --solve snr_db")
    tab.page.get_by_role("button", name="Open in Plan").click()
    # This page has such a light too, so that the address comes first.
    expect(tab.page).to_have_url(re.compile(r"snr_db=9\.0"))
    light = tab.page.locator('[data-light="sampling"]')
    expect(light).to_have_class(re.compile("good"), timeout=60_000)


@full_only
def test_a_question_without_an_answer(tab: Tab) -> None:
    tab.open("/solve?ask=slope_parameter&scheme=analog")
    expect(tab.page.locator("[data-answer]")).to_contain_text("has no effect", timeout=60_000)


@full_only
def test_nothing_is_left_of_an_earlier_answer(tab: Tab) -> None:
    """A requirement is quoted in the command, so that copying it runs nothing else."""
    tab.open("/solve?ask=snr_db")
    answer = tab.page.locator("[data-answer]")
    expect(answer).to_contain_text("is the smallest value", timeout=60_000)
    tab.page.get_by_label("Must hold").fill("run.epsilon<=0.001; touch x")
    expect(answer).to_contain_text("must be", timeout=60_000)
    assert tab.page.locator("table.cells").count() == 0
    tab.page.get_by_label("Must hold").fill("run.epsilon<=100000")
    expect(answer).to_contain_text("is the smallest value", timeout=60_000)
    expect(tab.page.locator("[data-command]")).to_contain_text("--require 'run.epsilon<=100000'")


@full_only
def test_columns_are_compared(tab: Tab) -> None:
    """Both schemes of the settings that the page was opened with, then one that is edited."""
    tab.open("/compare?snr_db=12")
    numbers = tab.page.locator("[data-numbers]")
    expect(numbers).to_contain_text("analog", timeout=60_000)
    field = tab.page.get_by_label("Options of C")
    field.fill("--link linear --snr-db 12")
    expect(numbers.locator("th", has_text="C")).to_be_visible(timeout=60_000)
    field.fill("--link linear --loudness 12")
    wrong = tab.page.locator('[data-column="C"] .q-field__bottom')
    expect(wrong).to_contain_text("unknown option '--loudness'", timeout=30_000)
    expect(tab.page).to_have_url(re.compile("[?&]c="))


@full_only
def test_a_reproduction_is_made_and_shown(tab: Tab) -> None:
    tab.open("/figures?paper=wflmc")
    expect(tab.page.get_by_text("There is no report yet")).to_be_visible()
    tab.page.get_by_role("button", name="Make the report").click()
    expect(tab.page.locator("[data-status]")).to_have_text("Finished.", timeout=240_000)
    tab.page.get_by_label("Enlarge figure_snr").click()
    expect(tab.page.get_by_role("slider", name="Zoom")).to_be_visible()


@full_only
@pytest.mark.parametrize(("key", "path"), [("2", "/solve"), ("3", "/run"), ("4", "/compare")])
def test_keys_lead_to_pages(tab: Tab, key: str, path: str) -> None:
    """The settings come along."""
    tab.open("/federation?snr_db=12&theme=dark")
    tab.page.keyboard.press(key)
    tab.page.wait_for_url(lambda url: path in url)
    assert "theme=dark" in tab.page.url
    assert "12" in tab.page.url
