"""Results are what they were: draws, metrics, plans, ledgers, a sweep and a reproduction, pinned
before the rebuild.

On the machine that made the pins (same processor, same versions) every bit must agree. Elsewhere
one rounding may flip a random bit, after which a digital chain is another draw from the same law.
So there plans agree to 1e-6 (the searches for a gain end within 1e-9 of it, relatively), and
moments to six standard errors of the difference of two runs."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from contracts import pinned_runs
from support import QUICK

PINNED = json.loads(pinned_runs.PINS.read_text())
MACHINE = pinned_runs.machine()
SAME_MACHINE = PINNED["machine"] == MACHINE
MOST_ERRORS = 6.0


def assert_contains(new: Any, old: Any, tolerance: float, where: str = "") -> None:
    """Everything old is there and equal; a document may gain fields."""
    if isinstance(old, dict):
        assert isinstance(new, dict), where
        for name, value in old.items():
            assert name in new, f"{where}/{name} is gone"
            assert_contains(new[name], value, tolerance, f"{where}/{name}")
    elif isinstance(old, list):
        assert isinstance(new, list), where
        assert len(new) == len(old), where
        for index, (a, b) in enumerate(zip(new, old, strict=True)):
            assert_contains(a, b, tolerance, f"{where}/{index}")
    elif isinstance(old, float) and tolerance and isinstance(new, int | float):
        assert new == pytest.approx(old, rel=tolerance, abs=1e-12), where
    else:
        assert new == old, where


def plain(value: Any) -> Any:
    """As JSON would give it back."""
    return json.loads(json.dumps(value, allow_nan=False))


@pytest.mark.parametrize("name", PINNED["runs"])
def test_plans(name: str) -> None:
    plan, _ = pinned_runs.CASES[name]()
    old = PINNED["runs"][name]
    new = plain(pinned_runs.plan_document(plan))
    if old.get("machine", PINNED["machine"]) == MACHINE:
        assert_contains(new, old["plan"], 0.0)
        assert plan.digest == old["digest"]
    else:  # a digest covers every bit, so it is another one elsewhere
        rest = {key: value for key, value in old["plan"].items() if key != "digest"}
        assert_contains(new, rest, 1e-6)


@pytest.mark.parametrize("engine", ["numpy", "numba"])
@pytest.mark.parametrize("name", PINNED["runs"])
def test_runs(name: str, engine: str) -> None:
    old, new = PINNED["runs"][name]["engines"][engine], pinned_runs.pin_run(name, engine)
    same = PINNED["runs"][name].get("machine", PINNED["machine"]) == MACHINE
    if same or old is None or new is None:
        assert_contains(plain(new), old, 0.0)
        return
    mean, covariance = np.array(old["mean"]), np.array(old["covariance"])
    sd = np.sqrt(np.diagonal(covariance, axis1=1, axis2=2))
    # Where no effective number of draws is known, each of the 5 chains counts as one draw.
    error = sd * np.sqrt(2 / (old["effective_draws"] or 5))
    assert (np.abs(np.array(new["mean"]) - mean) <= MOST_ERRORS * error).all()


def test_sweep(capsys: pytest.CaptureFixture[str]) -> None:
    new = pinned_runs.pin_sweep()
    if SAME_MACHINE:
        assert_contains(new, PINNED["sweep"], 0.0)
    else:
        names = ("gain_used", "temperature")
        planned, before = (
            [{name: row[name] for name in names} for row in rows] for rows in (new, PINNED["sweep"])
        )
        assert_contains(planned, before, 1e-6)


def test_reproduction(capsys: pytest.CaptureFixture[str]) -> None:
    """In a quick run only figure 2, whose points depend on no other figure."""
    new, old = pinned_runs.pin_reproduction("2" if QUICK else "all"), PINNED["reproduction"]
    if QUICK:
        claims = {row["claim"] for row in new["claims"]}
        old = {
            "points": [row for row in old["points"] if row["figure"] == 2],
            "claims": [row for row in old["claims"] if row["claim"] in claims],
        }
    if SAME_MACHINE:
        assert_contains(new, old, 0.0)
        return
    for table in set(new) - {"claims"}:
        planned, before = ([{"gain": row["gain"]} for row in rows[table]] for rows in (new, old))
        assert_contains(planned, before, 1e-6)
