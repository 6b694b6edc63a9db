"""Burn-in (the first rounds, whose draws are not kept): the factor by which early steps should be
larger, and the number of rounds that the sampler needs to reach the posterior."""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.models.model import Model
from flmc.uplink.csi import response
from flmc.uplink.uplink import Uplink

_NEGLIGIBLE_NOISE = 0.01
"""Share of the mean square distance from the mode at the start. The largest factor of the first
steps is chosen with which chains end up at most this much further away (in mean square) than with
the best factor."""
_NUMBERS_TO_199 = np.arange(200.0)
"""The numbers 0 to 199, from which the grid of factors that are tried is made."""


def distance_to_travel(model: Model, start: str) -> float:
    """Distance in one entry that a chain may have to travel from its start to the posterior.

    The distance is twice the root mean square of start minus truth, in the entry in which it is
    largest. The truth is taken for a draw from the prior; the start is another draw from it
    (``start`` is ``prior``) or zero.
    """
    sd, mean = np.asarray(model.prior.sd), np.asarray(model.prior.mean)
    variance = 2 * sd**2 if start == "prior" else sd**2 + mean**2
    return float(2 * np.sqrt(np.max(variance)))


def auto_burn_in_factor(
    uplink: Uplink,
    step_size: float,
    num_fast: int,
    num_devices: int,
    distance: float,
    smoothness: float,
    noise: float,
) -> float:
    r"""Factor by which the first ``num_fast`` steps should be larger, so that a chain from a
    distant start reaches the posterior.

    With this factor a chain from 1.5 times ``distance`` arrives within these rounds when every
    device sends its largest mean symbol towards the mode. The factor is not below 1, and never so
    large that the fast step comes near instability (:math:`\eta_{\text{eff}} L` at most 1/2, with
    the effective step :math:`\eta_{\text{eff}}` and the ``smoothness`` L).

    A larger step also adds more noise. With f times the step :math:`\eta`, n rounds move a chain of
    K devices with the largest mean symbol :math:`\psi` by :math:`x = n c`, :math:`c = f \eta K
    \psi`, and add the variance :math:`w = n q`, :math:`q = (f\eta)^2 V`, where V is ``noise``, the
    variance of an entry of the server's estimate in a round. The gradient pulls the chain back,
    which bounds w by :math:`q/(2 f\eta\kappa L)`, the stationary variance near the mode, or, where
    the chain is so wide that gradients are clipped, by :math:`q^2/(2c^2)`, the variance under a
    constant pull. Where the factor above adds so much noise that chains end up further away, the
    result is the largest factor whose mean square distance from the mode after the n rounds,
    :math:`E[(|d| - x)_+^2] + w`, is near the smallest. The distance d at the start is taken for
    normal, with half of ``distance`` as its standard deviation.
    """
    if num_fast == 0:
        return 1.0
    # Far from the mode gradients are clipped, so a chain moves at a constant speed, not
    # exponentially.
    speed = step_size * num_devices * _largest_pull(uplink)
    wanted = 1.5 * distance / (num_fast * speed)
    wanted = float(
        max(1.0, min(wanted, 0.5 / (step_size * response(uplink, num_devices) * smoothness)))
    )
    if noise == 0.0 or wanted == 1.0:
        return wanted
    start = distance / 2.0

    def error(factors: Array) -> Array:
        """Mean square distance from the mode after the fast rounds, over that at the start, for
        each factor of the step, (factor)."""
        # With d = start Z, Z standard normal, and t = x/start for the distance x that is covered,
        # E[(|Z| - t)_+^2] = 2 ((1 + t^2) Phi(-t) - t phi(t)).
        t = num_fast * factors * speed / start
        left = 2.0 * ((1 + t**2) * ndtr(-t) - t * np.exp(-(t**2) / 2) / math.sqrt(2 * math.pi))
        steps = factors * step_size
        injected = injected_variance(uplink, steps, num_fast, num_devices, smoothness, noise)
        return np.asarray(left + injected / start**2)

    # Among the factors whose error is near the smallest, the largest is chosen: it also serves
    # starts further away. Errors are not below 0, so where the error of the largest factor is
    # negligible, no other need be computed.
    if error(np.array([wanted]))[0] <= _NEGLIGIBLE_NOISE:
        return wanted
    factors = _factors_up_to(wanted)
    errors = error(factors)
    return float(factors[np.flatnonzero(errors <= errors.min() + _NEGLIGIBLE_NOISE)[-1]])


def _factors_up_to(highest: float) -> Array:
    """The 200 factors (factor) from 1 to ``highest``, evenly spaced in logarithms. They equal
    ``np.geomspace`` to the last bit, but that function takes longer than all that is computed from
    them."""
    top = np.log10(highest)
    exponents = _NUMBERS_TO_199 * (top / (len(_NUMBERS_TO_199) - 1))
    factors = np.power(10.0, exponents)
    # np.geomspace also sets its last value to the end point, which 10**log10 may miss by a bit.
    factors[-1] = highest
    return np.asarray(factors)


def injected_variance(
    uplink: Uplink, steps: Array, num_rounds: int, num_devices: int, curvature: float, noise: float
) -> Array:
    r"""Variance that noise brings in n = ``num_rounds`` rounds into an entry of a chain that begins
    at the mode, in the shape of ``steps``: :math:`\min(n q, \max(q/(2 \eta\kappa L), q^2/(2c^2)))`.

    Here :math:`\eta` is an entry of ``steps``, :math:`\kappa` the slope of the link, L the
    ``curvature``, :math:`q = \eta^2 V` with the variance V (``noise``) of the server's gradient
    estimate in a round, and :math:`c = \eta K\psi` the speed of the chain under the largest mean
    symbol :math:`\psi` of K devices.
    """
    each = np.square(steps) * noise
    relaxing = each / (2.0 * steps * response(uplink, num_devices) * curvature)
    pulled = np.square(each / (steps * num_devices * _largest_pull(uplink))) / 2.0
    return np.asarray(np.minimum(num_rounds * each, np.maximum(relaxing, pulled)))


def rounds_needed(
    uplink: Uplink,
    step_size: float,
    fast: float,
    num_fast: int,
    num_devices: int,
    distance: float,
    convexity: float,
) -> int:
    r"""Number of rounds of burn-in that the sampler needs: to travel to the mode, then to relax
    there.

    Travel covers ``distance`` in one entry at full speed, when every device pulls with its largest
    mean symbol :math:`\psi`: :math:`\eta K \psi` a round, ``fast`` times that in the first
    ``num_fast`` rounds. Then what is left of the distance, at most :math:`K\ell/\mu` where
    gradients are no longer clipped, shrinks like :math:`e^{-\eta\kappa\mu}` a round until it is a
    tenth of the posterior's standard deviation, :math:`1/\sqrt\mu`; this takes at least five times
    :math:`1/(\eta\kappa\mu)` rounds.
    """
    travel = _rounds_at_full_speed(uplink, step_size, fast, num_fast, num_devices, distance)
    left = min(distance, num_devices * uplink.clip / convexity)
    # Number of relaxation times, of 1/(effective step x convexity) rounds each, until the distance
    # left is a tenth of the posterior's standard deviation.
    times = max(5.0, np.log(10.0 * left * np.sqrt(convexity)))
    return int(np.ceil(travel + times / (step_size * response(uplink, num_devices) * convexity)))


def rounds_to_near(
    uplink: Uplink,
    step_size: float,
    fast: float,
    num_fast: int,
    num_devices: int,
    distance: float,
    convexity: float,
    near: float,
) -> int:
    """Number of rounds until a chain is within ``near`` of the mode in an entry. It travels 1.5
    times ``distance`` while every device sends its largest mean symbol, with ``fast`` times the
    step in the first ``num_fast`` rounds; then the rest of the distance shrinks to ``near`` in the
    direction of least curvature, ``convexity``."""
    distance = 1.5 * distance
    travel = _rounds_at_full_speed(uplink, step_size, fast, num_fast, num_devices, distance)
    left = min(distance, num_devices * uplink.clip / convexity)
    decay = -np.log1p(-min(0.9, step_size * response(uplink, num_devices) * convexity))
    return int(np.ceil(travel + max(0.0, np.log(left / near)) / decay))


def _rounds_at_full_speed(
    uplink: Uplink,
    step_size: float,
    fast: float,
    num_fast: int,
    num_devices: int,
    distance: float,
) -> float:
    """Rounds that a chain takes to cover ``distance`` in one entry while every device sends its
    largest mean symbol; in the first ``num_fast`` rounds it is ``fast`` times as quick."""
    speed = step_size * num_devices * _largest_pull(uplink)
    # Without fast rounds, 0 rounds times the ideal uplink's infinite speed would be nan.
    covered = num_fast * fast * speed if num_fast else 0.0
    if covered >= distance:
        return float(distance / (fast * speed))
    return float(num_fast + (distance - covered) / speed)


def _largest_pull(uplink: Uplink) -> float:
    """Mean symbol, in magnitude, of a device whose gradient is at the clip: the largest that it
    sends. Where a link treats positive and negative gradients differently, the smaller of the two
    values."""
    try:
        return _remembered_pull(uplink)
    except TypeError:  # an uplink that holds an array cannot be a key of the cache
        return _remembered_pull.__wrapped__(uplink)


@lru_cache(maxsize=64)
def _remembered_pull(uplink: Uplink) -> float:
    """Largest mean symbol that a device sends, in magnitude: at a gradient of plus or minus the
    clip, whichever gives the smaller one. Cached, because a plan asks for it many times."""
    # A link may pull less for gradients of one sign than for those of the other, and a chain may
    # have to travel in the direction in which it pulls less.
    down, up = uplink.mean_symbol(np.array([-uplink.clip, uplink.clip]))
    return float(min(up, -down))
