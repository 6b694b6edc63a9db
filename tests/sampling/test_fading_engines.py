"""Both engines sample the same over every fading, with exact and with wrong channel estimates."""

from __future__ import annotations

import numpy as np
import pytest

import flmc
from contracts.registered import fadings
from sampling.problems import engine_differences
from support import full

SELECTIVE = ("selective", "tdl")
"""Fadings whose entries have path gains of their own: with wrong estimates numba refuses them."""
CASES = [(name, e) for name in fadings() for e in (0.0, 0.1) if e == 0 or name not in SELECTIVE]


@pytest.mark.parametrize(("name", "csi_error"), CASES)
def test_both_engines_agree(name: str, csi_error: float) -> None:
    """Mean and variance of theta in kept rounds over ten seeds, two data sets: |z| < 4 with the
    standard error of the difference."""
    data = flmc.data.draw_linear(seed=5, num_samples=80, dim=2, num_devices=4, num_experiments=2)
    model = flmc.LinearGaussian(data)
    uplink = flmc.Digital(fading=fadings()[name], snr_db=30, csi_error=csi_error)
    # Deep fades are rare and heavy: without them means of few rounds are nearly normal.
    policy = flmc.ThresholdDevices(0.01)
    plan = flmc.plan(model, uplink, num_rounds=300, num_burn_in=100, scheduler=policy)
    difference = engine_differences(plan, model, full(10, 4))
    # Data sets and entries are alike: their variances are pooled, for few seeds know little of it.
    variance = difference.var(axis=0, ddof=1).mean(axis=(1, 2), keepdims=True)
    z = difference.mean(axis=0) / np.sqrt(variance / len(difference))
    assert (np.abs(z) < (4 if len(difference) >= 10 else 6)).all()
