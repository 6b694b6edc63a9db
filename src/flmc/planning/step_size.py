"""The automatic step of the sampler: the largest that keeps every error small, from the curvature
of the negative log posterior."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TypeVar

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.uplink.csi import bit_noise, response
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink

Number = TypeVar("Number", float, Array)


@dataclass(frozen=True)
class Curvature:
    """Largest (smoothness L) and smallest (convexity mu) curvature of the negative log posterior,
    None where not known, and whether they are public knowledge."""

    smoothness: float | None
    convexity: float | None
    public: bool

    @classmethod
    def of(
        cls, model: Model, public_smoothness: float | None, public_convexity: float | None
    ) -> Curvature:
        """Curvature from the public values where a public smoothness is given, else from the model.
        Raises ``InvalidSetting`` for a public convexity without, or above, a public smoothness."""
        if public_smoothness is None and public_convexity is None:
            return cls(model.smoothness, model.convexity, model.public)
        if public_smoothness is None:
            raise InvalidSetting("public_convexity must come with public_smoothness, got it alone")
        smoothness = checks.positive("public_smoothness", public_smoothness)
        convexity = (
            None
            if public_convexity is None
            else checks.positive("public_convexity", public_convexity)
        )
        if convexity is not None and convexity > smoothness:
            raise InvalidSetting(
                f"public_convexity must not exceed public_smoothness {smoothness:g}, got"
                f" {convexity:g}"
            )
        return cls(smoothness, convexity, True)


_STABLE_SHARE = 0.2
"""Largest ratio of an automatic effective step to 2/(mu + L), where mu and L are the smallest and
the largest curvature, for draws at positions: the discretisation error of the variance is 11 % for
mu = L, and 25 % at most."""
_MIDPOINT_SHARE = 0.4
"""Largest product of an automatic effective step and the largest curvature, for draws at midpoints.
Their variance has no discretisation error where the posterior is normal. For other posteriors
(``docs/sampling.md``, section 3) 0.4 is the largest product at which all measured standard
deviations were right within 3 % plus three standard errors; means move by up to 0.15 standard
deviations."""
QUANTISATION_SHARE = 0.6
"""Largest share of the noise that Langevin sampling needs which the randomness of bits may supply
when the step is automatic; the channel supplies the rest."""

_UNEVEN_HEAT = 0.02
"""Excess of the mean temperature over 1 that an automatic step accepts where rounds with few
devices are hotter than the others; 0.05 would bring a warning."""


BATCH_HEAT = 0.04
"""Largest excess of the temperature that batches of examples may cause with an automatic step, in
the direction of the largest curvature; 0.05 would bring a warning."""


def batch_heat(batch_share: float, effective_step: Number, curvature: float) -> Number:
    r"""Excess of the temperature that batches of examples cause, along a direction in which the
    negative log posterior has the curvature ``curvature``.

    Where the likelihood fits the data, the gradients of N examples have the covariance H, the
    curvature (Fisher's information). A batch has the share q of them (``batch_share``), weighted by
    1/q, which adds the covariance :math:`(1/q - 1) H` to the estimate of the gradient; Langevin's
    step :math:`\eta` (``effective_step``) needs the covariance :math:`2/\eta` in all. The excess is
    an upper bound, because a part of the curvature is the prior's."""
    return 0.5 * effective_step * curvature * (1.0 / batch_share - 1.0)


def stable_step(smoothness: float, convexity: float | None, *, midpoints: bool) -> float:
    """Largest automatic effective step for a posterior whose negative logarithm has curvatures from
    ``convexity`` (None: not known) to ``smoothness``; draws are taken at positions, or at
    ``midpoints``."""
    if midpoints:
        return _MIDPOINT_SHARE / smoothness
    return _STABLE_SHARE * 2.0 / (smoothness + (smoothness if convexity is None else convexity))


def auto_step_size(
    uplink: Uplink,
    num_devices: int,
    largest_gain: Array | float,
    smoothness: float | None,
    convexity: float | None = None,
    num_active: Array | float | None = None,
    policy: Scheduler | None = None,
    *,
    midpoints: bool = False,
) -> float:
    r"""Automatic step: the smallest of the following steps, each of which is the largest that keeps
    one error small.

    * Stability: :math:`0.2 \cdot \frac{2}{\mu + L}/\kappa`, or :math:`0.4/(\kappa L)` where draws
      are ``midpoints``.
    * Quantisation makes at most 0.6 of the Langevin noise: :math:`0.6 \cdot 2\kappa K_a/K^2`.
    * Batches of examples with the share q add at most 0.04 to the temperature:
      :math:`0.04 \cdot 2/(\kappa L (1/q - 1))`.
    * The largest gain attains T = 1: :math:`2\kappa (K_a/K)^2/(V_q + N_0/A_{\max}^2)`.

    Where the number of devices changes from round to round, the bounds are kept on average over
    rounds, because a chain adds up the variances of its rounds, and not in the round with the
    fewest devices: quantisation is averaged over rounds, and the mean temperature at the largest
    step is 1.02. Raises ``InvalidSetting`` if the smoothness is not known.
    """
    if smoothness is None:
        raise InvalidSetting(
            "step_size 'auto' needs the smoothness L of the model, got none: give smoothness or a"
            " step_size"
        )
    active = np.asarray(num_devices if num_active is None else num_active, dtype=np.float64)
    share = np.square(active / num_devices)
    variance = bit_noise(uplink, num_devices, policy) * active
    slope = response(uplink, num_devices, policy)
    # The Langevin equation sees the step times the slope, so its largest stable step is divided by
    # the slope.
    stable = stable_step(smoothness, convexity, midpoints=midpoints) / slope
    if uplink.batched:
        stable = min(stable, BATCH_HEAT / batch_heat(uplink.batch_share, slope, smoothness))
    # At the step ``reached`` the largest allowed gain gives temperature 1. A smaller step needs
    # more noise, and so a smaller gain; a larger step would need a larger gain than is allowed.
    least_noise = variance + uplink.noise_power / largest_gain**2
    with np.errstate(divide="ignore"):
        quantised = QUANTISATION_SHARE * 2.0 * slope * share / variance
        reached = 2.0 * slope * share / least_noise
    return min(stable, _step_for_mean(quantised), _step_for_all(reached))


def _step_for_mean(steps: Array) -> float:
    """Step at which a variance that grows in proportion to the step reaches its bound on average
    over rounds: the harmonic mean of ``steps`` (round), the steps at which single rounds reach the
    bound."""
    if steps.min() == steps.max():
        return float(steps.min())
    return float(1.0 / np.mean(1.0 / steps))


def _step_for_all(steps: Array) -> float:
    r"""Largest step size :math:`\eta` at which the temperature is 1 in every round, given the
    largest such step size of each round, ``steps`` (round); where these differ, the step size at
    which the mean over rounds of :math:`\max(1, \eta/\eta_t)` is 1.02, where :math:`\eta_t` is an
    entry of ``steps``."""
    low = float(steps.min())
    if low == steps.max():
        return low
    high = (1 + _UNEVEN_HEAT) * _step_for_mean(steps)
    # The mean grows with the step, so bisection finds the step; in logarithms it does so to the
    # last bit.
    for _ in range(200):
        middle = math.sqrt(low * high)
        fits = np.mean(np.maximum(1.0, middle / steps)) <= 1.0 + _UNEVEN_HEAT
        low, high = (middle, high) if fits else (low, middle)
    return low
