"""Local costs that are kept without the lower triangles of their Hessians."""

from __future__ import annotations

import numpy as np

from flmc.models.linear_costs import KeptCosts
from flmc.models.local_costs import Quadratic


def drawn(count: int) -> Quadratic:
    """Costs of three devices with four entries; the Hessians are symmetric to the bit."""
    rng = np.random.default_rng(count)
    root = rng.standard_normal((count, 3, 4, 4))
    return Quadratic(root + np.swapaxes(root, 2, 3), rng.standard_normal((count, 3, 4)))


def test_what_fits_is_kept_to_the_bit() -> None:
    costs = drawn(10)
    kept = KeptCosts(7 * 3 * (10 + 4) + 5, 10, 3, 4)
    for part in (slice(0, 4), slice(4, 8), slice(8, 10)):  # the second fits in part, the third not
        kept.add(Quadratic(*(array[part] for array in costs)))
    assert kept.count == 7
    for found, expected in zip(kept.rows(range(2, 7)), costs, strict=True):
        np.testing.assert_array_equal(found, expected[2:7])


def test_what_is_not_symmetric_is_not_kept() -> None:
    costs = drawn(6)
    costs.hessian[3, 1, 0, 2] = np.nextafter(costs.hessian[3, 1, 0, 2], np.inf)
    kept = KeptCosts(10**6, 6, 3, 4)
    for part in (slice(0, 2), slice(2, 4), slice(4, 6)):
        kept.add(Quadratic(*(array[part] for array in costs)))
    assert kept.count == 2


def test_what_is_handed_out_may_be_changed() -> None:
    costs = drawn(2)
    kept = KeptCosts(10**6, 2, 3, 4)
    kept.add(costs)
    for array in kept.rows(range(2)):
        array[:] = 0.0
    for found, expected in zip(kept.rows(range(2)), costs, strict=True):
        np.testing.assert_array_equal(found, expected)
