"""No plan that is called GOOD gives a wrong posterior: those of others, and random regressions.

`make verdicts` makes the whole tables; here are some of their rows."""

from __future__ import annotations

import numpy as np
import pytest

from judging import Distance
from posteriors import FOLDER
from support import QUICK, full
from verdicts import false_goods, in_a_line, posterior_rows, regression_rows

pytest.importorskip("jax", reason="needs the extra jax")

NAMES = ("kidiq-kidscore_momiq", "earnings-logearn_height", "kilpisjarvi_mod-kilpisjarvi",
         "mesquite-logmesquite_logvash", "nes1980-nes")  # fmt: skip
"""Posteriors whose rows are cheap; each was called GOOD and was wrong, on sorted devices or from a
distant start, or is right."""


@pytest.mark.parametrize("deal", ["sorted", "iid"][: full(2, 1)])
@pytest.mark.parametrize("name", NAMES[: full(5, 1)])
def test_no_false_good_on_posteriordb(name: str, deal: str) -> None:
    if not FOLDER.exists():
        pytest.skip(f"{name}: the data of posteriordb are not beside the repository")
    schemes = ("analog",) if QUICK else ("digital", "analog")
    rows = posterior_rows(name, deal, schemes, full(16, 8))
    assert not [in_a_line(row) for row in false_goods(rows)]


def test_no_false_good_on_random_regressions() -> None:
    rows = [row for seed in range(full(20, 3)) for row in regression_rows(seed, full(24, 12))]
    assert not [in_a_line(row) for row in false_goods(rows)]


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
