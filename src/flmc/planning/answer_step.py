r"""The automatic step of a run for an answer: the one with the smallest predicted intervals.

At a given gain the noise V of an estimate of the gradient is what it is, and the step decides only
how well rounds tell the curvature: :math:`\nu = S q/(1 - q/2)` degrees of freedom for
:math:`q = \eta\kappa\lambda`, which grow with it. But a larger step makes the chain hotter,
:math:`T = \eta\kappa V/2`, and so wider. That costs where the gradient is not linear in theta:
where local gradients reach the clip or the link bends, where the gradients of single examples
reach their bound, and where the posterior itself is not normal. Each makes the intervals wider, or
moves them, by what public numbers tell; the step minimises the product. ``docs/sampling.md``
derives it."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.planning.public_model import PublicModel
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.uplink import Uplink

_USUAL, _MOST = 0.5, 0.9
"""Step times the geometric mean of the smallest and the largest curvature, and the most that the
step times the largest may be: at 1 a chain forgets a place in one round, and nothing is gained
beyond."""
_LEAST_SHARE, _NUM_STEPS = 1e-5, 61
"""Smallest step that is tried, as a share of the largest, and number of steps that are."""
_KNOWN = 0.8
"""Share of a curvature's degrees of freedom that all directions together take, up to which the
formula of the width is used; beyond, its straight continuation."""


def answer_step_size(
    model: Model,
    uplink: Uplink,
    slope: float,
    noise: float,
    smoothness: float,
    convexity: float,
    num_rounds: int,
) -> float:
    """Effective step (step times slope) with the smallest predicted intervals.

    ``noise`` is the variance of an entry of the server's estimate, ``slope`` the factor by which it
    scales a small gradient, ``num_rounds`` the number of rounds that count. The ideal uplink has
    the noise of temperature 1, whatever the step."""
    ratio = math.sqrt(smoothness / convexity)
    top = min(_MOST, _USUAL * ratio) / smoothness
    steps = top * np.geomspace(_LEAST_SHARE, 1.0, _NUM_STEPS)
    heat = np.ones_like(steps) if uplink.noise_is_exact else steps * noise / slope**2 / 2.0
    q = steps * convexity
    # Where estimates show less of the curvature, the mode's error counts for more.
    share = _linear_share(model, uplink, heat / (1.0 - q / 2.0), smoothness)
    known = (1.0 + 2.0 * heat / (q * num_rounds) / share) / share
    taken = (model.dim + 1) * (1.0 - q / 2.0) / (num_rounds * q)
    at_most = np.minimum(taken, _KNOWN)
    curved = 1.0 / (1.0 - at_most) + (taken - at_most) / (1.0 - _KNOWN) ** 2
    score = known * curved
    if not isinstance(model, LinearGaussian | WideLinear | PublicModel):
        # A gradient that bends over a prior's standard deviation l has the third derivative
        # lambda/l: a spread of T/lambda moves the mean by T/(2 l lambda), T/(2 l sqrt(lambda))
        # posterior standard deviations.
        reach = float(np.min(model.prior.sd)) * math.sqrt(convexity)
        score = score + np.square(heat / (2.0 * reach))
    return float(steps[np.argmin(score)])


def _linear_share(model: Model, uplink: Uplink, heat: Array, smoothness: float) -> Array:
    """Share of the curvature that the estimates still show where theta spreads with a temperature
    (step): the mean slope of clip and link over local gradients, times that of bounded examples,
    where devices are alike and features and residuals standard normal."""
    num_devices = model.num_devices
    # Data give an entry of a local gradient the variance L/K, the chain's spread L T/K^2.
    spread = np.sqrt(smoothness / num_devices * (1.0 + heat / num_devices))
    gradient = spread[:, None] * NODES
    if uplink.clips_norm:
        gradient = gradient * np.minimum(1.0, uplink.clip / spread / math.sqrt(model.dim))[:, None]
    share = (uplink.mean_symbol(gradient) @ (WEIGHTS * NODES)) / spread
    if uplink.clips_examples:
        # The residual of an example has the variance 1, and the chain's spread adds m T/L.
        wider = np.sqrt(1.0 + model.dim * heat / smoothness)
        share = share * np.array([_example_share(uplink, model.dim, float(w)) for w in wider])
    return np.asarray(np.maximum(share / share[0], 1e-6))


def _example_share(uplink: Uplink, dim: int, wider: float) -> float:
    """Share of the curvature that bounds of single examples leave where residuals are ``wider`` by
    this factor."""
    bounds = (uplink.example_clip, uplink.example_norm)
    entry, norm = (None if each is None else each / wider for each in bounds)
    return float(typical_shrink(entry, norm, dim))
