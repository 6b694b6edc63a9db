"""No plan that is called GOOD gives a wrong posterior: those of others, and random regressions.

`make references` and `make verdicts` make the whole tables; here are some of their rows."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

import flmc
import judging
from evidence import State
from judged_rows import false_goods, in_a_line
from judging import Distance
from posteriors import FOLDER
from references import posterior_rows
from support import EVIDENCE, full, many_repetitions, repeated
from verdicts import regression_rows

pytest.importorskip("jax", reason="needs the extra jax")

NAMES = ("kidiq-kidscore_momiq", "earnings-logearn_height", "kilpisjarvi_mod-kilpisjarvi",
         "mesquite-logmesquite_logvash", "nes1980-nes")  # fmt: skip
"""Posteriors whose rows are cheap; each was called GOOD and was wrong, on sorted devices or from a
distant start, or is right."""
FEW = [
    ("kidiq-kidscore_momiq", "sorted", "analog"),
    ("kilpisjarvi_mod-kilpisjarvi", "sorted", "analog"),  # wrong; the burn-in alone is warned of
    ("kidiq-kidscore_momiq", "sorted", "digital"),
    ("earnings-logearn_height", "sorted", "analog"),
    ("mesquite-logmesquite_logvash", "iid", "digital"),
    ("nes1980-nes", "sorted", "analog"),
]
"""A row of each, most of those that are called GOOD and are nearest to the limits."""
CASES = list(product(NAMES, ("sorted", "iid"), ("digital", "analog"))) if EVIDENCE else FEW
WRONG = (2, 12, 18)
"""Random regressions that are wrong, by far, and that one finding alone keeps from being called
GOOD: few-draws, mean-shift and variance-ratio."""
SEEDS = (*WRONG, 0, 4, 6, 7, 10, 11)
"""Beside them three that are wrong with several findings (4, 6, 10), and three that are called
GOOD; twelve chains show all that."""


def state(evidence: State, rows: list[dict[str, Any]], tried: str) -> None:
    """Refuse rows that were called GOOD and are wrong, and state the others."""
    assert not [in_a_line(row) for row in false_goods(rows)]
    made = [row for row in rows if "refused" not in row]
    evidence("Verdicts", f"{tried}, called GOOD", sum(row["plan"] == "good" for row in made),
             "right, every one")  # fmt: skip
    wrong = sum(row["distance"]["wrong"] for row in made)
    evidence("Verdicts", f"{tried}, wrong draws", wrong, "not called GOOD, none of them")


@many_repetitions
@pytest.mark.parametrize(("name", "deal", "scheme"), CASES[: repeated(20, 6, 1)])
def test_no_false_good_on_posteriordb(name: str, deal: str, scheme: str, evidence: State) -> None:
    if not FOLDER.exists():
        pytest.skip(f"{name}: the data of posteriordb are not beside the repository")
    rows = posterior_rows(name, deal, scheme, full(16, 8))
    state(evidence, rows, "plans of a posterior of posteriordb")


@many_repetitions
@pytest.mark.parametrize("seed", range(40) if EVIDENCE else SEEDS[: full(9, 3)])
def test_no_false_good_on_random_regressions(seed: int, evidence: State) -> None:
    rows = regression_rows(seed, repeated(24, 12, 12))
    # Else the test could not fail whatever the plan says.
    assert seed not in WRONG or rows[0]["distance"]["wrong"], in_a_line(rows[0])
    state(evidence, rows, "plans of a random regression")


def test_wrong_draws_are_seen_and_right_ones_pass() -> None:
    """Draws of the posterior itself are right; moved by 0.5 sd, or twice as wide, they are wrong,
    and so are those where a few chains are lost."""
    exact = np.random.default_rng(1).standard_normal((16, 400, 3))
    mean, sd = np.zeros(3), np.ones(3)
    assert not Distance.measured(exact, mean, sd).wrong
    moved = exact + np.array([0.0, 0.5, 0.0])
    assert Distance.measured(moved, mean, sd).wrong
    assert Distance.measured(exact * np.array([1.0, 1.0, 2**0.5]), mean, sd).wrong
    lost = exact + 100.0 * (np.arange(16) < 2)[:, None, None]
    assert Distance.measured(lost, mean, sd).wrong


def test_a_warning_is_borne_out_by_what_it_warned_of() -> None:
    """Wide in a direction that no entry shows, or few effective draws, is not wrong by entries."""
    rng = np.random.default_rng(2)
    exact, reference = rng.standard_normal((16, 400, 2)), rng.standard_normal((4000, 2))
    mean, sd = np.zeros(2), np.ones(2)
    turn = np.array([[1.0, 1.0], [1.0, -1.0]]) / 2**0.5
    uneven = exact * np.array([1.4, 0.5]) ** 0.5 @ turn
    measured = Distance.measured(uneven, mean, sd, reference=reference)
    assert not measured.wrong
    # The error of a variance from half of the draws, and of the reference, is below 0.06.
    assert measured.direction == pytest.approx(0.5, abs=0.06)
    assert measured.bears_out(["variance-ratio"])
    assert not measured.bears_out(["few-draws"])
    right = Distance.measured(exact, mean, sd, reference=reference)
    assert 300 < right.draws < 500
    assert not right.bears_out(["variance-ratio", "few-draws", "burn-in"])
    slow = np.repeat(exact[:, :10], 40, axis=1)  # ten values of 40 rounds each
    assert Distance.measured(slow, mean, sd).bears_out(["few-draws"])


def test_a_predicted_direction_is_looked_at_where_draws_alone_show_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A step that widens one of two oblique directions by two thirds, and the other hardly: the
    ratio that is measured there is the one that the plan predicts."""
    monkeypatch.setattr(judging, "MOST_ROUNDS", full(8000, 2000))
    turn = np.array([[0.8, 0.6], [0.6, -0.8]])
    curvature = turn @ np.diag([100.0, 20.0]) @ turn.T
    model = flmc.Model.from_gradient(
        lambda theta: np.repeat((theta @ curvature)[:, None] / 4, 4, axis=1),
        prior=flmc.Normal(),
        dim=2,
        num_devices=4,
        smoothness=100.0,
        convexity=20.0,
    )
    limits, count = flmc.Limits(privacy="off"), full(9000, 3000)
    # At positions: a step does not widen midpoints.
    plan = flmc.plan(
        model, flmc.Analog(snr_db=40), limits, step_size=8e-3, num_rounds=count, num_burn_in=500,
        draw_at="positions",
    )  # fmt: skip
    draws = flmc.run(plan, model, seed=1, chains=8).draws
    measured = judging._in_predicted_directions(plan, model, draws)
    assert plan.prediction is not None
    # A step of 0.8 over the curvature widens by 1/(1 - 0.4).
    assert plan.prediction.variance_ratio_largest == pytest.approx(1 / 0.6, rel=0.02)
    # The reference has a tenth of the step, and midpoints, which it does not widen. It forgets
    # within 25 rounds: 8 chains of 12 000 (3000) rounds are 3800 (960) draws, most of the error; 5
    # errors of the ratio.
    error = 5 * 1.6 * (2 / full(3800, 960)) ** 0.5
    assert measured == pytest.approx(1 / 0.6, abs=error)
