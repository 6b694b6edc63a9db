r"""Effects of inexact channel estimates on the drift, the noise and privacy.

A device knows its path gain h only by an estimate :math:`\hat h = \rho h + e n`, with the error e,
:math:`\rho = \sqrt{1-e^2}` and complex normal n. It inverts the estimate, so a symbol arrives at
the gain A times the factor :math:`r = \operatorname{Re}(h/\hat h)`.

* Drift: the mean symbol is scaled by :math:`E[r_k]`. It is :math:`\rho` for Rayleigh fading under
  every policy that follows the estimates, because :math:`h = \rho\hat h + e w` with w independent
  of :math:`\hat h`; and :math:`(1 - e^{-\rho^2/e^2})/\rho` for a constant channel. Where the
  devices' path gains have unlike laws, the means :math:`E[r_k]` differ between devices, and the
  chain's mean misses the posterior mean.
* Noise: the variance of a received entry, over :math:`A^2`, grows by :math:`E[r^2]` in place of 1
  for each device's bit, and by :math:`\operatorname{Var}(r) s^2` for an analog symbol s.
* Privacy: :math:`h/\hat h = (1 - e n/\hat h)/\rho`, and the power limit bounds the amplitude of
  a device, :math:`A/|\hat h| \le c = \sqrt{P_0}/\text{peak}`. So symbols arrive with :math:`A|r|
  \le (A + c\,e |n|)/\rho` whatever the law of h, and :math:`|n|^2/E[h^2] \le \ln(1/p)` except
  with probability p."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.privacy.event import Event
from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from flmc.uplink.fadings import EstimatedFading
from flmc.uplink.fadings.estimated import Estimates
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink

EXCEEDED = 1e-12
"""Upper bound of the probability with which one entry, sent by a device that inverts an inexact
channel estimate, arrives with more than the gain for which privacy is proven."""
_NUMBERS, _ROUNDS = 2**20, 4096
"""Largest number of path gains, over all rounds and devices, and largest number of rounds that are
drawn to estimate mean and mean square of the factor Re(h/ĥ) with which symbols arrive; with many
devices fewer rounds are drawn, but at least 16."""


class Arrival(NamedTuple):
    """Mean and mean square, (device) each, of the factor r = Re(h/ĥ): the symbols of a device that
    inverts an inexact estimate ĥ of its path gain h arrive with r times the gain. With exact
    estimates r is 1."""

    mean: Array
    mean_square: Array


def arrival_of(uplink: Uplink, num_devices: int, policy: Scheduler | None = None) -> Arrival | None:
    """Mean and mean square of the factor Re(h/ĥ) of the gain with which the symbols of each device
    arrive; None with exact estimates, where the factor is 1. A ``policy`` by channel says who
    transmits; under any other policy, and None, all rounds count.

    They are estimated from channels that are drawn with a fixed seed. A policy that silences
    devices with weak channels makes the mean square much smaller; without one, under Rayleigh
    fading, its estimate grows with the logarithm of the number of draws."""
    if uplink.estimated is None:
        return None
    chooses = policy if policy is not None and policy.by_channel else None
    try:
        return _moments(uplink.estimated, num_devices, chooses)
    except TypeError:  # a law that holds an array cannot be a key of the cache
        return _moments.__wrapped__(uplink.estimated, num_devices, chooses)


@lru_cache(maxsize=64)
def _moments(estimated: EstimatedFading, num_devices: int, policy: Scheduler | None) -> Arrival:
    """Mean and mean square, (device) each, of the factor Re(h/ĥ) with which a device's symbols
    arrive, over those drawn rounds in which the ``policy`` lets the device transmit; None: over
    all. If all devices have the same law of path gains, they share one average."""
    rounds = max(16, min(_ROUNDS, _NUMBERS // num_devices))
    known, arrival = _draw_estimates(estimated, rounds, num_devices)
    factor, weight = arrival[:, :, 0], np.ones(arrival.shape[:2])
    if policy is not None:
        rng = generator(0, Purpose.PLANNING, 3)
        weight = policy.draw_checked(rng, range(len(known)), known)
        if not weight.any(axis=0).all():  # some device transmits in none of the drawn rounds
            # A device without any round would have the mean 0/0. The small weight gives it the mean
            # over all rounds, and hardly changes the means of other devices.
            weight = weight + 1e-9
    total = weight.sum(axis=0)
    mean = (weight * factor).sum(axis=0) / total
    mean_square = (weight * np.square(factor)).sum(axis=0) / total
    if estimated.fading.alike:
        mean, mean_square = (np.full(num_devices, each.mean()) for each in (mean, mean_square))
    return Arrival(mean, mean_square)


def _draw_estimates(estimated: EstimatedFading, rounds: int, num_devices: int) -> Estimates:
    """Estimated path gains, and the factors with which symbols arrive, for ``rounds`` drawn rounds
    and one entry, (round, device, 1). Where a trace has fewer rounds, their number is halved until
    the trace is long enough."""
    rng = generator(0, Purpose.PLANNING, 2)
    try:
        return estimated.draw_estimates(rng, range(rounds), num_devices, 1)
    except InvalidSetting:
        if rounds == 1:
            raise
        return _draw_estimates(estimated, rounds // 2, num_devices)


def response(uplink: Uplink, num_devices: int, policy: Scheduler | None = None) -> float:
    r"""Factor by which the expected received symbol scales a small gradient, averaged over devices:
    the slope of the link, times the mean factor with which a symbol arrives if its device inverts
    an inexact channel estimate. ``InvalidSetting`` for a link without a slope. ``policy`` says who
    transmits; None: all."""
    arrival = arrival_of(uplink, num_devices, policy)
    return uplink.slope if arrival is None else uplink.slope * float(arrival.mean.mean())


def bit_noise(uplink: Uplink, num_devices: int, policy: Scheduler | None = None) -> float:
    """Largest variance that a device's random symbol adds to a received entry, over the squared
    gain, averaged over devices; ``policy`` says who transmits, None: all."""
    arrival = arrival_of(uplink, num_devices, policy)
    if arrival is None:
        return uplink.bit_variance
    return uplink.bit_variance * float(arrival.mean_square.mean())


def silent_exceedance(uplink: Uplink, num_entries: int) -> float:
    """Part of delta that ``num_entries`` entries of a device's silent rounds use up if channel
    estimates are inexact: for each, the probability ``EXCEEDED`` of an error so large that the
    entry would have arrived with more than the gain of the privacy proof. 0 where channels are
    known exactly.

    Whether a device is silent may depend on the error of its channel estimate, so large errors
    count in silent rounds as well."""
    return 0.0 if uplink.estimated is None else EXCEEDED * num_entries


def as_received(uplink: Uplink, event: Event, dim: int = 1) -> Event:
    """Privacy event at the gains with which symbols arrive, made from ``event``, the privacy event
    at the planned gains; ``event`` itself with exact channel estimates. ``dim`` is the number of
    entries in one of the event's transmissions: 1, or the entries of a round where the event counts
    rounds."""
    estimated = uplink.estimated
    if estimated is None:
        return event
    extra, correlation = arrival_bound(uplink, dim)
    return UncertainGainEvent(event, extra, correlation, dim * EXCEEDED)


def arrival_bound(uplink: Uplink, dim: int) -> tuple[float, float]:
    r"""Numbers a and :math:`\rho` of the bound :math:`(A + a)/\rho` for the gain with which symbols
    of a round of ``dim`` entries arrive that were sent for a gain A. An entry exceeds the bound
    with probability ``EXCEEDED`` at most. With exact channel estimates a is 0 and :math:`\rho` is
    1."""
    estimated = uplink.estimated
    if estimated is None:
        return 0.0, 1.0
    # Where only the norm of a round's symbols is bounded, one entry may have the power of all
    # ``dim`` entries.
    together = dim if uplink.shares_power else 1
    loudest = math.sqrt(together * uplink.power_limit) / uplink.peak
    extra = loudest * estimated.error_scale * math.sqrt(-math.log(EXCEEDED))
    return extra, estimated.correlation
