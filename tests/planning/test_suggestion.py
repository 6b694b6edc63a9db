"""Settings from public knowledge."""

from __future__ import annotations

import json

import pytest

from flmc.cli import main


def test_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    public = [
        "--samples",
        "20000",
        "--devices",
        "20",
        "--scope",
        "run",
        "--epsilon",
        "3",
        "--neighbouring",
        "example",
    ]
    assert main(["plan", "--suggest", *public, "--json"]) == 0
    captured = capsys.readouterr()
    plan = json.loads(captured.out)
    assert plan["data_dependent"] is False
    assert plan["temperature"] == pytest.approx(1, abs=0.05)
    assert plan["privacy"]["run"]["epsilon"] <= 3
    assert "--example-clip 4" in captured.err
    assert main(["plan", "--suggest", "--scheme", "analog"]) == 2
