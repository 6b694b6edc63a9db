r"""Privacy event of bits that are hidden by their own randomness alone, whatever the channel adds.

What the server receives is then counted as if it were the bits themselves: noise that does not
depend on the data is post-processing, which reveals no more. Where the probability of a +1 bit lies
in [e, 1 - e] for all data, a bit is a function, random but free of the data, of a randomised
response: the answer to a yes-or-no question that is false with probability e. It has the privacy
loss :math:`\pm a` with :math:`a = \ln((1-e)/e)`. So n bits, each asked for after the answers before
it are known, reveal no more than n such responses, k of which are right with the probability of a
binomial law:

.. math::
    \delta(\epsilon) = \sum_k \binom{n}{k} (1-e)^k e^{n-k} \max(0, 1 - e^{\epsilon - (2k-n) a}).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.tables import format_up
from flmc.privacy.event import Event
from flmc.privacy.transmissions import Transmissions, total_mu

_REACH = 60.0
"""Standard deviations, and counts beside them, above the mean number of right responses up to which
the sum goes. By Bernstein's inequality what is beyond has a probability below ``_BEYOND``."""
_BEYOND = 1e-25
"""Probability that is added to delta for the responses that the sum leaves out."""


@dataclass(frozen=True)
class NoiselessBitEvent(Event):
    """Privacy event of bits that are counted as if they were received without noise. Its cost does
    not depend on the gains, but for those of 0, which send nothing."""

    error: float
    """Smallest probability e, above 0, of either bit for any data; at most 1/2."""
    noise_power: float
    transmissions: Transmissions

    @property
    def _loss(self) -> float:
        """Largest privacy loss of one bit, a."""
        # ln((1 - e)/e), written so that no digits are lost for e near 1/2.
        return math.log1p((1.0 - 2.0 * self.error) / self.error)

    @property
    def _number(self) -> int:
        """Number of bits that were sent."""
        return sum(count for gain, count in self.transmissions if gain > 0)

    @property
    def largest_loss(self) -> float:
        """Privacy loss of bits that are all right."""
        return self._number * self._loss

    @property
    def mu(self) -> float:
        """Distance of the means of the bits in units of a noise of ``noise_power``; it has no part
        in the cost."""
        return total_mu(2.0 * (1.0 - 2.0 * self.error), self.noise_power, self.transmissions)

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``: the sum above, raised for rounding
        and for what it leaves out."""
        n, wrong, loss = self._number, self.error, self._loss
        right = 1.0 - wrong
        first = math.floor((n + epsilon / loss) / 2.0)
        last = n * right + _REACH * (math.sqrt(n * right * wrong) + 1.0)
        first, top = max(0, first), min(n, math.ceil(last))
        if first > top:
            return min(1.0, _BEYOND)
        # Each logarithm of a probability is that of the one before it, plus that of their ratio.
        start = math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
        start += first * math.log1p(-wrong) + (n - first) * math.log(wrong)
        k = np.arange(first, top + 1, dtype=np.float64)
        ratios = np.log((n - k[:-1]) / (k[:-1] + 1.0)) + loss
        chances = np.exp(start + np.concatenate(([0.0], np.cumsum(ratios))))
        kept = -np.expm1(np.minimum(0.0, epsilon - (2.0 * k - n) * loss))
        # Logarithms of factorials of n are rounded by about 1e-16 n ln(n).
        rounding = 1e-9 + 1e-13 * n
        return min(1.0, float(chances @ kept) * (1.0 + rounding) + _BEYOND)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """The delta of any gain."""
        return self.tight_delta(epsilon)

    def allowed_gain(
        self, epsilon: float, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Infinity, because the gain has no part in the cost; ``InvalidSetting`` where the bits
        alone do not keep the budget."""
        checks.positive("epsilon", epsilon, extreme=math.inf)
        checks.positive("delta", delta, extreme=math.inf)
        if self.delta(epsilon, criterion) <= delta:
            return math.inf
        raise InvalidSetting(
            f"no gain is known to stay within epsilon {epsilon:g} at delta {delta:g}: where noise"
            " is not normal only the randomness of the bits is counted, which costs epsilon"
            f" {format_up(self.epsilon(delta))} whatever the gain; use a flatter link, fewer"
            " entries or rounds, or a larger epsilon"
        )
