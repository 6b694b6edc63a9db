r"""The Gaussian mechanism in closed form: two normal distributions whose means are :math:`\mu`
standard deviations apart.

The privacy loss is :math:`N(x, 2x)` with :math:`x = \mu^2/2`. Composition adds :math:`\mu^2`. One
round of the analog uplink, m entries clipped at :math:`\ell` and sent with gain A in noise of
variance :math:`N_0`, has :math:`\mu^2 = 4 m \ell^2 A^2/N_0`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base.special import log_ndtr, ndtr
from flmc.privacy.event import CRITERIA, Event
from flmc.privacy.root_finding import largest_argument
from flmc.privacy.transmissions import Transmissions, binomial_counts, total_mu

_SMALL, _HUGE = 1e-2, 1e10
"""Two distances mu of the means, in standard deviations: below ``_SMALL`` delta is a difference of
nearly equal numbers; above ``_HUGE`` epsilon is mu^2/2 to within a relative 1e-8 for every delta
above 1e-300."""


def delta(epsilon: float, mu: float) -> float:
    r"""Delta that goes with ``epsilon`` for two normal distributions whose means are ``mu``
    standard deviations apart: :math:`\Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 -
    \epsilon/\mu)`, an upper bound up to a relative rounding of 1e-13; below 1e-200 only its size is
    right."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    # Both terms of delta are computed as logarithms, because for a large epsilon the factor
    # exp(epsilon) overflows and the probability that it multiplies underflows.
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    # Bound of the rounding error of the difference of these two logarithms.
    rounding = 4e-16 * (1.0 + 2 * epsilon + abs(first))
    if mu < _SMALL:
        # The logarithms of the two terms of delta are nearly equal, so rounding of their arguments,
        # multiplied by the slope of the logarithm, is no longer small against their difference.
        slope = abs(epsilon / mu) + mu / 2
        rounding += 1e-15 * (1.0 + slope * min(slope, 1e100))
    return math.exp(first) * -math.expm1(min(second - first, 0.0) - rounding)


def epsilon(target: float, mu: float) -> float:
    """Smallest epsilon >= 0 whose delta is at most ``target``, rounded up, for two normal
    distributions whose means are ``mu`` standard deviations apart."""
    if delta(0.0, mu) <= target:
        return 0.0
    if math.isinf(mu):
        return math.inf
    # Upper end of the search: at this epsilon delta is below 1e-300.
    high = mu * mu / 2 + mu * 40.0
    if mu > _HUGE:
        return high * (1 + 1e-9)
    return -largest_argument(lambda minus: delta(-minus, mu) - target, -high, 0.0)


def tail_delta(epsilon: float, mu: float) -> float:
    r"""Probability that the magnitude of the privacy loss exceeds ``epsilon``, which the paper's
    criterion bounds, for two normal distributions whose means are ``mu`` standard deviations apart.

    It is :math:`1 - T(x)` with :math:`T(x) = \frac12[\operatorname{erf}(\frac{\epsilon-x}{2\sqrt
    x}) - \operatorname{erf}(\frac{-\epsilon-x}{2\sqrt x})]` and :math:`x = \mu^2/2`; the paper
    omits the factor 1/2, without which T is no probability."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    # The loss is N(x, 2 x), and 2 x is mu^2: both tails are values of the normal distribution
    # function.
    x = mu * mu / 2
    return float(ndtr(np.array([(x - epsilon) / mu, (-epsilon - x) / mu])).sum())


def tail_epsilon(target: float, mu: float) -> float:
    """Smallest epsilon >= 0 that the magnitude of the privacy loss exceeds with probability
    ``target`` at most, rounded up, for two normal distributions whose means are ``mu`` standard
    deviations apart."""
    if math.isinf(mu):
        return math.inf
    if tail_delta(0.0, mu) <= target:
        return 0.0
    high = mu * mu / 2 + mu * 40.0
    return -largest_argument(lambda minus: tail_delta(-minus, mu) - target, -high, 0.0)


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Privacy event of values that are received in Gaussian noise: neighbouring data move each
    received value by at most ``sensitivity`` times its gain."""

    sensitivity: float
    """Largest distance by which neighbouring data move a transmitted value before the gain
    multiplies it."""
    noise_power: float
    transmissions: Transmissions

    @property
    def largest_loss(self) -> float:
        """Infinity: without noise the value itself is received, which hides nothing."""
        return math.inf

    @property
    def mu(self) -> float:
        r"""Distance :math:`\mu` of the means that neighbouring data give to the received values, in
        standard deviations of the noise: :math:`\mu^2 = \sum (\Delta A)^2/N_0` over all transmitted
        entries, with the ``sensitivity`` :math:`\Delta`, the gain A of each entry in
        ``transmissions``, and the ``noise_power`` :math:`N_0`."""
        return total_mu(self.sensitivity, self.noise_power, self.transmissions)

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of the privacy criteria that are proven for this event: ``tight`` (standard
        differential privacy), ``tail`` and ``paper`` (of the paper); the last two are the same
        here."""
        return CRITERIA

    def tight_delta(self, epsilon: float) -> float:
        """Delta that goes with ``epsilon`` in standard differential privacy, in closed form."""
        return delta(epsilon, self.mu)

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` if this event happens in each of
        ``rounds`` rounds with probability ``chance``, and everybody sees in which: in closed form
        for each number of rounds."""
        counts, beyond = binomial_counts(rounds, chance)
        mu = self.mu
        each = (share * delta(epsilon, math.sqrt(count) * mu) for count, share in counts)
        return min(1.0, math.fsum(each) + beyond)

    def tail_delta(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Probability that the magnitude of the privacy loss exceeds ``epsilon``, in closed form;
        the same for the criteria ``tail`` and ``paper``."""
        return tail_delta(epsilon, self.mu)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Epsilon that goes with ``delta`` in standard differential privacy, rounded up; and False,
        because no grid is used that could make the epsilon looser than usual."""
        return epsilon(delta, self.mu), False

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """Smallest epsilon, rounded up, that the magnitude of the privacy loss exceeds with
        probability ``delta`` at most; the same for the criteria ``tail`` and ``paper``."""
        return tail_epsilon(delta, self.mu)
