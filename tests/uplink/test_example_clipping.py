"""What clipping single examples leaves of a gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flmc.uplink.example_clipping import (
    mean_shift_variance,
    norm_mean_shift_variance,
    norm_shrink_factor,
    shrink_factor,
)
from support import full


def test_shrink_factor() -> None:
    """Against Monte Carlo, five standard errors, and close to the design's values."""
    rng = np.random.default_rng(1)
    u, e = rng.standard_normal((2, full(4_000_000, 400_000)))
    for c, stated in ((3.0, 0.913), (4.0, 0.964), (5.0, 0.985)):
        sample = u**2 * (np.abs(u * e) <= c)
        assert abs(shrink_factor(c) - sample.mean()) < 5 * sample.std() / math.sqrt(len(u))
        assert shrink_factor(c) == pytest.approx(stated, abs=0.002)


@pytest.mark.parametrize(("dim", "bound"), [(1, 3.0), (5, 6.0), (40, 10.0)])
def test_bounded_norms(dim: int, bound: float) -> None:
    """Share of the curvature and variance of the shift, against Monte Carlo, five standard
    errors."""
    rng = np.random.default_rng(2)
    u = rng.standard_normal((full(400_000, 40_000), dim))
    e = rng.standard_normal(len(u))
    norm = np.linalg.norm(u, axis=1)
    rho = norm_shrink_factor(bound, dim)
    kept = u[:, 0] ** 2 * (np.abs(e) * norm <= bound)
    assert abs(rho - kept.mean()) < 5 * kept.std() / math.sqrt(len(u))
    apart = np.square(u[:, 0] * (np.clip(e, -bound / norm, bound / norm) / rho - e))
    found = norm_mean_shift_variance(bound, dim)
    assert abs(found - apart.mean()) < 5 * apart.std() / math.sqrt(len(u))
    if dim == 1:  # a norm of one entry is its magnitude
        assert rho == pytest.approx(shrink_factor(bound), rel=1e-4)
        assert found == pytest.approx(mean_shift_variance(bound), rel=2e-3)
