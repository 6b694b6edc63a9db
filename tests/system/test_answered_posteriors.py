"""Answers against posteriors that nobody here wrote: `make answered` makes the whole table; here
are four of its rows, with fewer rounds and chains."""

from __future__ import annotations

import numpy as np
import pytest

from posteriors import FOLDER
from support import full

pytest.importorskip("jax", reason="needs the extra jax")

from answered_posteriors import answered

ROWS = [
    ("kidiq-kidscore_momiq", "iid"),
    ("kidiq-kidscore_momhsiq", "sorted"),
    ("earnings-logearn_height", "iid"),
    ("nes1980-nes", "iid"),
]
ROUNDS, CHAINS = 1500, 8
_BIAS = 0.25
"""Largest error of the mean, in reference standard deviations, that an answer may have without a
doubt: the limit of its own finding."""


@pytest.mark.parametrize(("name", "deal"), ROWS[: full(4, 1)])
def test_answers_without_a_doubt_are_those_of_the_reference(name: str, deal: str) -> None:
    if not FOLDER.exists():
        pytest.skip(f"{name}: the data of posteriordb are not beside the repository")
    row = answered(name, deal, "analog", ROUNDS, CHAINS)
    assert not row.refused
    assert not row.doubts
    # The entry that is farthest off is named after the fact: five standard errors cover that.
    assert abs(row.mean) < _BIAS + 5 * row.error
    # Medians over chains of sd from 2000 draws each: 5 errors are 5/sqrt(2 * 2000 * chains), and
    # the reference's sd, of 10 000 draws, has 5/sqrt(2 * 10 000). The answer is wider by what the
    # plan predicts, and may be 5 % narrower where the posterior is not quite normal.
    chance = 5 / np.sqrt(4000 * CHAINS) + 5 / np.sqrt(20_000)
    assert row.predicted is not None
    assert 0.95 - chance < row.narrowest
    assert row.widest < 1.05 * row.predicted + chance
    # Draws of the reference inside 90 % intervals: each chain's interval moves with its mean.
    assert abs(row.held - 0.9) < 0.03 + 5 * row.error
