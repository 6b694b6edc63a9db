"""Records that earlier versions wrote open and go on, or are refused with a clear word.

The records of schema 2 were written by flmc 0.1.0 before the rebuild, those of schema 3 when every
file had got a digest: two that finished, and two that were interrupted after 192 of 300 rounds, of
the same runs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import flmc
from contracts.pinned_runs import machine
from flmc.cli import main

RECORDS = Path(__file__).parents[1] / "records"
MACHINES = {
    schema: json.loads((RECORDS / f"schema-{schema}" / "machine.json").read_text())
    for schema in (2, 3)
}
"""Machines on which the records of each schema were made."""
EVERY = pytest.mark.parametrize(
    ("schema", "engine"), [(2, "numpy"), (2, "numba"), (3, "numpy"), (3, "numba")]
)


def record_of(schema: int, name: str) -> Path:
    return RECORDS / f"schema-{schema}" / name


@EVERY
def test_opens(schema: int, engine: str) -> None:
    finished = flmc.load(record_of(schema, f"finished-{engine}"))
    assert finished.draws.shape == (4, 200, 2)
    assert len(finished.ledger) == 300
    unfinished = flmc.load(record_of(schema, f"interrupted-{engine}"))
    assert unfinished.result is None


@EVERY
def test_has_an_answer(schema: int, engine: str, capsys: pytest.CaptureFixture[str]) -> None:
    """From the kept draws alone, because the burn-in was not kept."""
    assert main(["answer", str(record_of(schema, f"finished-{engine}")), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["posterior"]["num_rounds"] == 199
    assert document["held"]["answers"] == 4


@EVERY
def test_goes_on_to_the_same_draws(
    schema: int, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "record"
    shutil.copytree(record_of(schema, f"interrupted-{engine}"), copy)
    same_machine = machine() == MACHINES[schema]
    code = main(["resume", str(copy)])
    if not same_machine and code == 2:
        # On another processor the data may differ in their last bits: then the record is refused by
        # name.
        said = capsys.readouterr().err
        assert "was made with other data" in said or "has another plan" in said
        return
    assert code == 0
    new, old = flmc.load(copy).draws, flmc.load(record_of(schema, f"finished-{engine}")).draws
    # Elsewhere one rounding may flip a bit after the interruption, as test_pins explains. Before it
    # 92 rounds were kept.
    compared = slice(None) if same_machine else slice(92)
    assert new.shape == old.shape
    assert np.array_equal(new[:, compared], old[:, compared])


@EVERY
def test_the_ledger_is_read(
    schema: int, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "record"
    shutil.copytree(record_of(schema, f"interrupted-{engine}"), copy)
    assert main(["ledger", str(copy)]) == 0
    assert "192 of 300 rounds" in capsys.readouterr().out


@EVERY
def test_a_finished_record_is_shown_with_its_version(
    schema: int, engine: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Results of schema 2 had no version of their own: it is that of their record."""
    copy = tmp_path / "record"
    shutil.copytree(record_of(schema, f"finished-{engine}"), copy)
    own = json.loads((copy / "result.json").read_text())
    assert own.get("schema_version", 2) == schema
    assert main(["resume", str(copy), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] == schema
