"""Terminals of any width: no number is cut off."""

from __future__ import annotations

import re

import pytest

import flmc
from flmc.base.tables import Grid, Listing, Row
from flmc.views.terminal import show


@pytest.mark.parametrize("width", [20, 40, 59, 60, 80, 200])
def test_every_number_of_a_plan_is_shown(
    width: int,
    model: flmc.LinearGaussian,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    listing = flmc.plan(model, flmc.Digital()).listing()
    table = Grid(("gain", "step\nsize", "epsilon"), (("0.27386", "0.0015", "142.06"),) * 2)
    show(listing, Grid(table.header, table.rows, notes=(Row("", "a note"),)))
    said = " ".join(capsys.readouterr().out.split())
    assert "…" not in said
    for row in listing.rows:
        for number in re.findall(r"\d+\.\d+", row.text):
            assert number in said, (number, width)
    for number in table.rows[0]:
        assert said.count(number) >= 2


@pytest.mark.parametrize("width", [40, 100])
@pytest.mark.parametrize("cell", ["[/b]", "[red]x", "[/b]" + "x" * 200])
def test_words_in_brackets_are_words(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, width: int, cell: str
) -> None:
    """Cells may hold what somebody else wrote, which must not be read as markup."""
    monkeypatch.setenv("COLUMNS", str(width))
    show(Grid(("who", "said"), (("one", cell),), notes=(Row("note", "[/i]"),)))
    shown = capsys.readouterr().out
    assert cell[:4] in shown
    assert "[/i]" in shown


def test_names_in_brackets_are_printed_whole(capsys: pytest.CaptureFixture[str]) -> None:
    """Entries of theta have such names; in rich's markup a word in brackets is a style."""
    rows = (Row("slope[bold]", "[red] 1"),)
    show(Listing("answer of slope[dim]", rows), Grid(("[b] who",), (("slope[i]",),), "of [u]"))
    printed = capsys.readouterr().out
    for name in ("slope[bold]", "[red] 1", "slope[dim]", "[b] who", "slope[i]", "of [u]"):
        assert name in printed
