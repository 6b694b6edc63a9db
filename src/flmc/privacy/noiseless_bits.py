r"""Privacy event of bits that are hidden by their own randomness alone, whatever noise the channel
adds.

The server is assumed to see the bits themselves: the channel's noise does not depend on the data,
so adding it is post-processing, which reveals no more. Let the probability of a +1 bit lie in
[e, 1 - e] for all data. A bit can then be made from a *randomised response*, the answer to a
yes-or-no question that is wrong with probability e, without looking at the data again. A response
has the privacy loss :math:`\pm a` with :math:`a = \ln((1-e)/e)`. So n bits, even if each depends on
the bits before it, reveal no more than n responses. The number k of right responses is binomial,
and the sum of the n losses is :math:`(2k - n) a`:

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
"""Factor r that ends the sum for delta over the number of right randomised responses: the sum stops
at the mean of this number plus r times (its standard deviation + 1). By Bernstein's inequality a
larger number has a probability below ``_BEYOND``."""
_BEYOND = 1e-25
"""Probability that is added to delta for the numbers of right randomised responses beyond the end
of the sum over these numbers."""


@dataclass(frozen=True)
class NoiselessBitEvent(Event):
    """Privacy event of bits whose cost is computed as if they were received without noise. The cost
    depends only on the number of bits sent with a positive gain, not on the size of the gain."""

    error: float
    """Lower bound e of the probability of a +1 bit and of a -1 bit, for any data; above 0 and at
    most 1/2."""
    noise_power: float
    transmissions: Transmissions

    @property
    def _loss(self) -> float:
        """Largest privacy loss of one bit, a = ln((1 - e)/e) with e = ``error``."""
        # ln((1 - e)/e), written so that no digits are lost for e near 1/2.
        return math.log1p((1.0 - 2.0 * self.error) / self.error)

    @property
    def _number(self) -> int:
        """Number of bits that were sent with a positive gain."""
        return sum(count for gain, count in self.transmissions if gain > 0)

    @property
    def largest_loss(self) -> float:
        """Largest privacy loss of all bits together: the number of bits that were sent times the
        largest loss of one bit."""
        return self._number * self._loss

    @property
    def mu(self) -> float:
        """Distance of the means of the received bits under two neighbouring data sets, in standard
        deviations of the channel's noise. The contract of an event asks for it; this event's cost
        does not depend on it."""
        return total_mu(2.0 * (1.0 - 2.0 * self.error), self.noise_power, self.transmissions)

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy: a
        sum over the binomial number of right randomised responses (formula in the module's
        docstring), raised for rounding errors and for the numbers that the sum leaves out."""
        n, wrong, loss = self._number, self.error, self._loss
        right = 1.0 - wrong
        first = math.floor((n + epsilon / loss) / 2.0)
        last = n * right + _REACH * (math.sqrt(n * right * wrong) + 1.0)
        first, top = max(0, first), min(n, math.ceil(last))
        if first > top:
            return min(1.0, _BEYOND)
        # Logarithms of the binomial probabilities of k = first, ..., top: that of ``first`` in
        # closed form, each later one by adding the logarithm of the ratio to its predecessor.
        start = math.lgamma(n + 1) - math.lgamma(first + 1) - math.lgamma(n - first + 1)
        start += first * math.log1p(-wrong) + (n - first) * math.log(wrong)
        k = np.arange(first, top + 1, dtype=np.float64)
        ratios = np.log((n - k[:-1]) / (k[:-1] + 1.0)) + loss
        chances = np.exp(start + np.concatenate(([0.0], np.cumsum(ratios))))
        kept = -np.expm1(np.minimum(0.0, epsilon - (2.0 * k - n) * loss))
        # The logarithm of n! is rounded by about 1e-16 n ln(n), which is a relative error of every
        # probability; ``rounding`` is larger.
        rounding = 1e-9 + 1e-13 * n
        return min(1.0, float(chances @ kept) * (1.0 + rounding) + _BEYOND)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the delta that goes with ``epsilon`` at an infinite gain: the same as at
        any gain, because this event never counts the channel's noise."""
        return self.tight_delta(epsilon)

    def allowed_gain(
        self, epsilon: float, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Infinity, because the cost does not depend on the gain. Raises ``InvalidSetting`` if the
        randomness of the bits alone does not keep the budget (``epsilon``, ``delta``), which no
        gain could change."""
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
