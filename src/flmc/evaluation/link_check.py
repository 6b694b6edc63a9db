r"""What a link does to a model's own gradients, from a pilot: is the mean moved, are draws widened?

A plan takes the link for a straight line of slope :math:`\kappa`. Where devices are unlike, their
gradients do not vanish at the mode, and a curved link weighs the large ones too little."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding
from flmc.evaluation.pilot import Pilot
from flmc.planning.advice.judgement import judge_shift, judge_width
from flmc.planning.plans import Plan

_CURE = "use the linear link with a clip that is rarely reached, or a flatter link"


def judge_link(plan: Plan, pilot: Pilot) -> list[Finding]:
    """Findings where the link or the clip moves the mean of the samples, or widens them.

    Parameters
    ----------
    plan, pilot
        Gives link, clip and step; and a pilot that has arrived at the mode.
    """
    if plan.slope is None:
        return []
    there = pilot.local_gradients(pilot.theta[None])[0]
    places = pilot.draw(1.0)
    around = pilot.local_gradients(places)
    if not np.isfinite(there).all() or not np.isfinite(around).all():
        return []
    found = []
    if (shift := _shift(plan, pilot, there, around)) is not None:
        found += judge_shift(shift, lambda: _CURE)
    if (width := _width(plan, places - pilot.theta, there, around)) is not None:
        found += judge_width(width, _CURE)
    return found


def _shift(plan: Plan, pilot: Pilot, there: Array, around: Array) -> float | None:
    r"""By how many posterior standard deviations the mean moves, in the worst direction; None where
    the curvature is not known in every direction.

    At the mode local gradients cancel; their mean symbols leave the sum r. With the averaged slopes
    :math:`\bar\kappa` of the entries and the curvature H the mean moves by about :math:`d =
    (\operatorname{diag}(\bar\kappa) H)^{-1} r`, which is :math:`\sqrt{d^\top H d}` posterior
    standard deviations in the worst direction."""
    curve = pilot.curves[-1]
    if len(curve.basis) < len(pilot.theta):
        return None
    reach = 1e-3 * plan.uplink.clip if math.isfinite(plan.uplink.clip) else 1.0
    symbol = plan.uplink.mean_symbol
    slope = ((symbol(around + reach) - symbol(around - reach)) / (2 * reach)).mean(axis=(0, 1))
    if not (slope > 0).all():
        return None
    # The pilot is not quite at the mode: what is left of the gradient is no shift.
    rest = symbol(there).sum(axis=0) - slope * there.sum(axis=0)
    hessian = curve.basis.T @ ((curve.matrix + curve.matrix.T) / 2) @ curve.basis
    moved = np.linalg.solve(hessian, rest / slope)
    return math.sqrt(max(0.0, float(moved @ hessian @ moved)))


def _width(plan: Plan, away: Array, there: Array, around: Array) -> float | None:
    r"""Variance of the samples over that of the plan's temperature, the mean over directions.

    Draws at the distance :math:`\delta` from the mode are pulled back by the summed symbols
    :math:`D - D_0` in place of :math:`\kappa(G - G_0)`. With the relative pull :math:`\rho =
    \langle\delta^\top(D - D_0)\rangle/(\kappa\langle\delta^\top(G - G_0)\rangle)` the
    variance is :math:`1/\rho` of what it should be. The bits of large gradients are less random,
    which is taken off the noise. Wider draws meet a flatter link, so the true width is larger. What
    bounds of single examples take away is not the link's, and is left out on both sides."""
    uplink, heat = plan.uplink, plan.temperature
    if plan.slope is None or heat is None or not heat > 0:
        return None
    symbols, slope = uplink.mean_symbol(around), uplink.slope / uplink.example_shrink
    wanted = slope * float((away * (around - there).sum(axis=1)).sum())
    pull = float((away * (symbols - uplink.mean_symbol(there)).sum(axis=1)).sum())
    if not wanted > 0 or not pull > 0:
        return None
    bits = plan.step_size * uplink.bit_variance * plan.num_devices / (2.0 * plan.slope)
    noise = 1.0 - min(bits / heat, 1.0) * float(np.square(symbols).mean()) if bits else 1.0
    return noise * wanted / pull
