"""Draws of plans and runs that are called GOOD are those of the reference, within bars that no plan
knows: posteriors of posteriordb, and hierarchies with a group on each device.

`make references` makes the whole table; here are some of its rows, with fewer chains."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from judged_rows import in_a_line
from judging import MEAN_BAR, SD_BAR, Distance
from posteriors import FOLDER
from references import hierarchy_rows, holds, misses, posterior_rows
from support import few, full_only

pytest.importorskip("jax", reason="needs the extra jax")

CASES = [
    ("mesquite-logmesquite_logvash", "sorted", "analog"),
    ("kidiq-kidscore_momiq", "iid", "analog"),
    ("earnings-logearn_height", "sorted", "analog"),
    ("low_dim_gauss_mix-low_dim_gauss_mix", "iid", "analog"),
]
"""Rows that are cheap and called GOOD; the first has the farthest mean of those that are."""
CHAINS = 8
GROUPS = ("eight_schools-eight_schools_noncentered", "radon_mn-hierarchical")


def judged(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """The only row, which is right and within the bars where plan or run call it GOOD."""
    (row,) = rows
    assert not misses(rows, "plan"), in_a_line(row)
    assert not misses(rows, "run"), in_a_line(row)
    assert not row["distance"]["wrong"], in_a_line(row)
    return row


def skip_without_data(name: str) -> None:
    if not FOLDER.exists():
        pytest.skip(f"{name}: the data of posteriordb are not beside the repository")


@pytest.mark.parametrize(("name", "deal", "scheme"), few(CASES, 1))
def test_good_draws_are_within_the_bars(name: str, deal: str, scheme: str) -> None:
    skip_without_data(name)
    row = judged(posterior_rows(name, deal, scheme, CHAINS))
    # Else nothing above could fail.
    assert row["plan"] == "good", in_a_line(row)


@full_only
@pytest.mark.parametrize("name", GROUPS)
def test_hierarchies_with_levels_at_home_are_right(name: str) -> None:
    """Analog, with county levels or effects of schools as local parameters: two or five entries
    travel, whatever the number of groups."""
    skip_without_data(name)
    pytest.importorskip("numpyro", reason="needs the extra numpyro")
    row = judged(hierarchy_rows(name, "local", "analog", CHAINS))
    assert row["dim"] == {"eight_schools": 2, "radon_mn": 5}[name.split("-")[0]]
    assert row["plan"] == "good", in_a_line(row)
    # Chains of 2000 rounds and more: R-hat of a chain at rest is 1.00 to 1.01.
    assert row["distance"]["r_hat"] <= 1.01, in_a_line(row)


def row_of(draws: Any) -> dict[str, Any]:
    """A row of draws that were called good, against a standard normal posterior."""
    distance = Distance.measured(draws, np.zeros(3), np.ones(3))
    return {"plan": "good", "distance": vars(distance)}


def test_a_good_row_beyond_a_bar_is_told() -> None:
    """Draws of the posterior hold; moved by 0.25 sd or 11 % wider they are not wrong, and beyond
    one bar. Errors of 16 chains of 400 draws are 0.013 sd and 0.9 %, three of them below what is
    beyond the bars."""
    exact = np.random.default_rng(1).standard_normal((16, 400, 3))
    assert holds(row_of(exact))
    moved = row_of(exact + np.array([0.0, MEAN_BAR + 0.1, 0.0]))
    wide = row_of(exact * np.array([1.0, 1.0, 1 + SD_BAR + 0.06]))
    for row, missed in ((moved, "mean"), (wide, "sd")):
        assert not row["distance"]["wrong"]
        assert misses([row], "plan") == [row]
        others = {"mean": "sd", "sd": "mean"}
        assert not row["distance"][f"{missed}_holds"]
        assert row["distance"][f"{others[missed]}_holds"]
    assert not misses([{**moved, "plan": "warning"}], "plan")
