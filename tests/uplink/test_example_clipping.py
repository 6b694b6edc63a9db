"""What clipping single examples leaves of a gradient."""

from __future__ import annotations

import math

import numpy as np
import pytest

from flmc.uplink.example_clipping import shrink_factor
from support import full


def test_shrink_factor() -> None:
    """Against Monte Carlo, five standard errors, and close to the design's values."""
    rng = np.random.default_rng(1)
    u, e = rng.standard_normal((2, full(4_000_000, 400_000)))
    for c, stated in ((3.0, 0.913), (4.0, 0.964), (5.0, 0.985)):
        sample = u**2 * (np.abs(u * e) <= c)
        assert abs(shrink_factor(c) - sample.mean()) < 5 * sample.std() / math.sqrt(len(u))
        assert shrink_factor(c) == pytest.approx(stated, abs=0.002)
