"""Whether local gradients are sums over examples, from how much they differ between devices.

For a sum over n examples both the variance of a local gradient and its curvature grow like n: in a
likelihood that fits they are the same (Fisher's information), and devices that differ only add to
the variance. For a mean over n examples the variance is n times less than that."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding
from flmc.evaluation.pilot import Curve, Pilot
from flmc.models.model import Model

TOO_LARGE = 10.0
"""Claimed over measured smoothness from which on it is told: generous bounds are within that."""
_ALIKE = 0.2
"""Spread of local gradients over what curvature implies, below which they are too much alike."""
_FEWEST_DEVICES = 4
"""Devices below which their spread is not judged."""


def mean_not_sum(model: Model, pilot: Pilot, excess: float | None) -> list[Finding]:
    """Finding where local gradients are as alike as means of many examples are.

    Parameters
    ----------
    model, pilot
        The model, and a pilot that has travelled; nothing is said unless it arrived.
    excess
        Claimed smoothness over the largest curvature that was found; None without a claim.
    """
    if model.num_devices < _FEWEST_DEVICES or not pilot.arrived:
        return []
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
    # Labels without noise make gradients too much alike as well, but at the mode only: so the
    # prior's mean is looked at too, unless the claimed smoothness speaks for a mean already.
    spreads = [_spread(model, pilot.curves[-1], pilot.theta)]
    if excess is None or excess < TOO_LARGE:
        spreads.append(_spread(model, pilot.curves[0], mean))
    if any(spread is None for spread in spreads):
        return []
    spread = max(each for each in spreads if each is not None)
    freedom = (model.num_devices - 1) * len(pilot.curves[-1].basis)
    # Chernoff's bound of the chance that a chi-squared number is so small; where devices agree to
    # the last digit there are no data, and nothing can be said.
    if not 1e-9 < spread < _ALIKE or freedom / 2 * (spread - 1 - math.log(spread)) < math.log(1e6):
        return []
    text = (
        f"local gradients differ {1 / spread:.2g} times less (in variance) than their curvature"
        f" implies, as if each were the mean over about {1 / spread:.2g} examples: is the gradient"
        " a mean? It must be the sum over all examples of a device (or the likelihood assumes that"
        " much more noise than the data have)"
    )
    if excess is not None and excess >= TOO_LARGE:
        text += f"; the claimed smoothness, too, is {excess:.2g} times the curvature"
    short = "the gradient looks like a mean over examples, not a sum"
    return [Finding("mean-not-sum", "warning", text, short, {"spread": spread})]


def _spread(model: Model, curve: Curve, theta: Array) -> float | None:
    """Variance of local gradients of the likelihood over devices, relative to their curvature; None
    where the likelihood has no positive curvature."""
    prior = model.prior.curvature(theta, curve.basis) @ curve.basis.T
    matrix = (curve.matrix + curve.matrix.T) / 2 - prior
    scale = np.sqrt(np.maximum(np.diag(matrix), 1e-300))
    scaled = matrix / np.outer(scale, scale)
    if not np.isfinite(scaled).all() or np.linalg.eigvalsh(scaled)[0] <= 1e-6:
        return None
    local = model.gradient(theta[None, None], slice(0, 1))[0, 0]  # the prior's share is a constant
    away = ((local - local.mean(axis=0)) @ curve.basis.T) / scale
    covariance = away.T @ away / (len(away) - 1) * len(away)
    return float(np.trace(np.linalg.solve(scaled, covariance)) / len(scaled))
