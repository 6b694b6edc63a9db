"""Inverse questions for answers: the smallest value, against brute force over a grid."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from flmc.planning.judgement import all_objections
from flmc.planning.requirements import read_requirement
from flmc.settings.assembly import assemble
from flmc.settings.questions import AXES, Unsolved, solve
from flmc.settings.schema import merge
from support import full, many_repetitions, repeated

NAMES = ("rounds", "snr_db", "epsilon", "samples")
CASES = repeated(20, 6, 2)
"""Random cases that nobody tuned, five of each kind of question."""


def drawn(case: int) -> tuple[str, dict[str, Any], float]:
    """A random case: what is solved for, settings, and the largest width."""
    rng = np.random.default_rng([34, case])
    name, width = NAMES[case % len(NAMES)], float(rng.choice([1.1, 1.2, 1.5, 1.8]))
    private = name in ("epsilon", "samples") or rng.random() < 0.5
    settings: dict[str, Any] = {
        "aim": "answer",
        "scheme": str(rng.choice(["analog", "digital"])),
        "dim": int(rng.integers(2, 7)),
        "devices": int(rng.choice([10, 20])),
        "samples": int(rng.integers(5, 20)) * 200,
        "rounds": int(rng.integers(300, 1500)),
        "snr_db": float(rng.uniform(15, 30)),
        "seed": int(rng.integers(1, 1000)),
        "privacy": "tight" if private else "off",
        "start": "zero",
    }
    spread = math.sqrt(settings["samples"] / settings["devices"])
    settings["clip"] = float(rng.uniform(5.0, 9.0)) * spread
    if settings["scheme"] == "digital":
        settings |= {"link": "sigmoid", "slope_parameter": float(rng.uniform(0.15, 0.5)) / spread}
    if private:
        # A bound that moves the mean by a tenth of a posterior standard deviation.
        norm = float(rng.uniform(2.9, 3.5)) * math.sqrt(settings["dim"] + 2.0)
        settings |= {
            "scope": "run",
            # Below a thousand examples chance decides whether the drawn data suit a plan.
            "epsilon": float(rng.uniform(0.5, 1.5) if name == "samples" else rng.uniform(2.0, 8.0)),
            "neighbouring": "example",
            "example_norm": norm,
        }
    return name, settings, width


@many_repetitions
@pytest.mark.parametrize("case", range(CASES))
def test_the_smallest_value_against_brute_force(case: int) -> None:
    """The value meets the requirement with the exact accountant, and no value of a grid below it
    does with the estimate; where there is none, no value of a grid does. The grid ends 7 per cent
    (0.6 decibels) below the value: the search has a resolution of 1 per cent, and every number of
    examples has data of its own, whose smallest curvature differs by some per cent from the next
    one's."""
    name, settings, width = drawn(case)
    required = read_requirement(f"width<={width}")

    def meets(value: float, *, exactly: bool = False) -> bool:
        changed = int(value) if AXES[name].whole else value
        problem = assemble(merge({}, {**settings, "burn_in": "auto", name: changed}))
        plan = problem.plan() if exactly else problem.try_plan()
        return required.broken(plan) is None and not all_objections(plan)

    def at(centre: float, share: float) -> float:
        return centre + 20 * math.log10(share) if name == "snr_db" else share * centre

    given = merge({}, settings)
    try:
        solution = solve(given, name, [required])
    except Unsolved:
        shares = np.geomspace(0.1, 10.0, full(12, 4))
        tried = [at(getattr(given, name), share) for share in shares]
    else:
        assert meets(solution.value, exactly=True)
        # What binds: an objection to the largest value that is too small.
        assert "meets the requirements; at " in solution.words
        assert required.text in solution.words or ": " in solution.words
        tried = [at(solution.value, share) for share in np.geomspace(0.3, 0.93, full(8, 4))]
    for value in tried:
        if name != "samples" or value >= settings["devices"]:
            assert not meets(value), value
