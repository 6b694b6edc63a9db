"""Settings that flmc chooses, beside each other and in records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import flmc
from flmc.cli import main


def test_an_automatic_link_beside_other_choices(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    small = ["--devices", "4", "--samples", "80", "--rounds", "40", "--burn-in", "20"]

    def planned(*given: str) -> dict[str, Any]:
        assert main(["plan", *small, *given, "--json"]) == 0
        document: dict[str, Any] = json.loads(capsys.readouterr().out)
        return document

    assert planned("--link", "auto", "--choose", "clip") == planned("--choose", "clip,link")
    out = tmp_path / "out"
    given = [*small, "--link", "auto", "--choose", "clip", "--chains", "2", "--answer", "chain"]
    assert main(["run", *given, "--out", str(out)]) == 0
    asked = flmc.load(out).asked
    assert (asked["settings"]["link"], asked["settings"]["choose"]) == ("auto", "clip")
    assert asked["resolved"]["link"] != "auto"
    assert asked["resolved"]["choose"] is None
    capsys.readouterr()
    refused = [*small, "--link", "auto", "--choose", "clip", "--slope-parameter", "0.1"]
    assert main(["plan", *refused]) == 2
    assert "slope_parameter is chosen where the link is 'auto'" in capsys.readouterr().err
