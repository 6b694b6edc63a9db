"""Settings of `make coverage` with fewer data sets: intervals hold, or the answer says beforehand
that they may not."""

from __future__ import annotations

import pytest

import interval_coverage
from support import full, full_only

HOLD = (
    "linear, condition 30, analog, 1000 rounds",
    "linear, 10 of 20 devices, digital",
    "linear, sorted devices, linear link",
    "logistic, 2 entries, 500 examples, analog",
    "poisson, 1 entries, 500 examples, analog",
    "linear, epsilon 1, 1000 examples, analog, norm 6.5",
)


def cell(name: str) -> interval_coverage.Cell:
    """The setting of this name."""
    return next(each for each in interval_coverage.cells() if each.name == name)


@full_only
@pytest.mark.parametrize("name", HOLD)
def test_what_is_stated_holds(name: str) -> None:
    row = interval_coverage.measure(cell(name), full(100, 40))
    for level, (share, error) in zip(interval_coverage.LEVELS, row.held, strict=True):
        # Five standard errors over data sets, and 0.02 for the approximate law of the curvature.
        assert abs(share - level) < 5 * error + 0.02, level


def test_a_bias_that_no_transcript_shows_is_doubted() -> None:
    """Sorted devices under a curved link with a narrow clip: intervals hold half as often as they
    say, as the plan's findings foretold, and the answer repeats them."""
    row = interval_coverage.measure(cell("linear, sorted devices, sigmoid, clip 30"), full(60, 20))
    assert row.held[2][0] < 0.8
    assert row.doubted == 1.0


def test_settings_are_listed_once() -> None:
    names = [each.name for each in interval_coverage.cells()]
    assert len(set(names)) == len(names) == 40
