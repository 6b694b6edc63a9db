r"""The automatic step of a run for an answer: the one with the best predicted interval score.

At a given gain the noise variance V of an estimate of the gradient does not depend on the step, and
the step decides only how well rounds tell the curvature: :math:`\nu = S q/(1 - q/2)` degrees of
freedom for S rounds and :math:`q = \eta\kappa\lambda`, which grow with the step. But a larger step
makes the chain hotter, :math:`T = \eta\kappa V/2`, and so wider. That costs where the gradient is
not linear in theta: where local gradients reach the clip or the link bends, where the gradients of
single examples reach their bound, and where the posterior itself is not normal. Each of these
widens or moves the intervals by an amount that public numbers tell (of devices, entries and rounds,
and the curvature); the step is the one with the smallest squared width, squared shift included. To
second order in the shift, that is the square of the expected interval score (the width plus
2/alpha times the distance by which intervals miss theta, which they should do with the probability
alpha): width alone would reward overconfidence. ``docs/sampling.md`` derives
it."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from flmc.base.arrays import Array
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.planning.public_model import PublicModel
from flmc.planning.step_size import batch_heat
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.uplink import Uplink

_USUAL, _MOST = 0.5, 0.9
"""Largest product of the effective step with the geometric mean of the smallest and the largest
curvature, and with the largest curvature itself: at 1 a chain forgets its position along that
direction in one round, and larger steps gain nothing."""
_LEAST_SHARE, _NUM_STEPS = 1e-5, 61
"""Smallest step that is tried, as a share of the largest, and number of steps that are tried."""
_WIDER = tuple(float(each) for each in np.geomspace(1.0, 30.0, 48))
"""Standard deviations of examples' residuals at which the share of the curvature that bounds of
single examples' gradients leave is computed, by an integral each; between them the share is
interpolated, with an error below 0.0002."""
_KNOWN = 0.8
"""Largest share of a curvature's degrees of freedom, taken by all directions together, for which
the formula of an answer's width is used: it grows without bound as the share nears 1, so beyond 0.8
its tangent there replaces it."""


def answer_step_size(
    model: Model,
    uplink: Uplink,
    slope: float,
    noise: float,
    smoothness: float,
    convexity: float,
    num_rounds: int,
) -> float:
    """Effective step (step times slope) with the best predicted interval score.

    ``noise`` is the variance of an entry of the server's estimate, ``slope`` the factor by which
    the estimate scales a small gradient, ``num_rounds`` the number of rounds from which the answer
    is computed. For the ideal uplink, whose chain has the temperature 1 at any step, ``noise`` is
    ignored."""
    ratio = math.sqrt(smoothness / convexity)
    top = min(_MOST, _USUAL * ratio) / smoothness
    steps = top * np.geomspace(_LEAST_SHARE, 1.0, _NUM_STEPS)
    heat = np.ones_like(steps) if uplink.noise_is_exact else steps * noise / slope**2 / 2.0
    heat = heat + batch_heat(uplink.batch_share, steps, smoothness)
    q = steps * convexity
    # The mode is estimated from gradients over curvature: the less of the curvature the estimates
    # show (``share``), the more their noise moves the mode.
    share = linear_share(model, uplink, heat / (1.0 - q / 2.0), smoothness)
    known = (1.0 + 2.0 * heat / (q * num_rounds) / share) / share
    # Each direction takes a whole degree of freedom from the others, as where draws are made from
    # an answer; the answer's intervals count only half of one.
    taken = (model.dim + 1) * (1.0 - q / 2.0) / (num_rounds * q)
    at_most = np.minimum(taken, _KNOWN)
    curved = 1.0 / (1.0 - at_most) + (taken - at_most) / (1.0 - _KNOWN) ** 2
    score = known * curved
    if not isinstance(model, LinearGaussian | WideLinear | PublicModel):
        # If the curvature lambda changes by as much as itself over a prior's standard deviation l,
        # the third derivative of the cost is lambda/l. The chain's variance T/lambda, at the
        # temperature T (``heat``), then moves the mean by T/(2 l lambda), that is by T/(2 l
        # sqrt(lambda)) posterior standard deviations.
        reach = float(np.min(model.prior.sd)) * math.sqrt(convexity)
        score = score + np.square(heat / (2.0 * reach))
    return float(steps[np.argmin(score)])


def linear_share(model: Model, uplink: Uplink, heat: Array, smoothness: float) -> Array:
    """Share of the posterior's curvature that the server's estimates still show when the chain has
    the temperature ``heat`` (step), one for each step that is tried, relative to the share at the
    first of these, (step). It is the mean slope of clip and link over local gradients, times the
    share that bounds of single examples' gradients leave, for devices with like data and standard
    normal features and residuals."""
    num_devices = model.num_devices
    # The variance of an entry of a local gradient is L/K from the data, plus L T/K^2 from the
    # spread of the chain. Where the gradient comes from a batch with the share q of a device's
    # examples, L/(K q) takes the place of L/K.
    spread = np.sqrt(smoothness / num_devices * (1.0 / uplink.batch_share + heat / num_devices))
    gradient = spread[:, None] * NODES
    if uplink.clips_norm:
        gradient = gradient * np.minimum(1.0, uplink.clip / spread / math.sqrt(model.dim))[:, None]
    share = (uplink.mean_symbol(gradient) @ (WEIGHTS * NODES)) / spread
    if uplink.clips_examples:
        # The residual of an example has the variance 1 from the data, plus m T/L from the spread of
        # the chain.
        share = share * _example_share(
            uplink, model.dim, np.sqrt(1.0 + model.dim * heat / smoothness)
        )
    return np.asarray(np.maximum(share / share[0], 1e-6))


def _example_share(uplink: Uplink, dim: int, wider: Array) -> Array:
    """Share of the curvature, from 0 to 1, that the bounds of single examples' gradients leave
    where residuals are ``wider`` (step) times as large as standard normal ones."""
    shares = _shares_by_width(uplink.example_clip, uplink.example_norm, dim)
    return np.asarray(np.interp(np.log(wider), np.log(_WIDER), shares))


@lru_cache(maxsize=256)
def _shares_by_width(entry: float | None, norm: float | None, dim: int) -> tuple[float, ...]:
    """Share of the curvature, from 0 to 1, that a bound of examples' gradients (of each ``entry``,
    or of the ``norm``) leaves where residuals have each of the standard deviations ``_WIDER``;
    ``dim`` is the number of entries of a gradient."""
    return tuple(typical_shrink(entry and entry / at, norm and norm / at, dim) for at in _WIDER)
