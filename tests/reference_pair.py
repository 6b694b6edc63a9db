"""Exact formulas of one pair of bits, which the accountant does not use: references for tests."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.privacy.bit_tails import REACH, BitPair


class ReferencePair(BitPair):
    """Pair of bits with its survival functions and its hockey-stick divergence."""

    @property
    def reversed(self) -> ReferencePair:
        """The pair (Q, P) seen in a mirror: w becomes -w, so that the loss increases with w
        again."""
        return ReferencePair(1.0 - self.low, 1.0 - self.high, self.amplitude)

    def survival(self, w: Array) -> tuple[Array, Array]:
        """Probabilities P(W > w) and Q(W > w).

        Parameters
        ----------
        w
            Thresholds, in standard deviations of the noise, in any shape.

        Returns
        -------
        tuple of Array
            The probability under the first and under the second data set.
        """
        plus, minus = ndtr(self.amplitude - w), ndtr(-self.amplitude - w)
        return self.high * plus + (1.0 - self.high) * minus, self.low * plus + (
            1.0 - self.low
        ) * minus

    def delta(self, epsilon: Array) -> Array:
        """Hockey-stick divergence of one entry, exact.

        Parameters
        ----------
        epsilon
            Epsilons, in any shape.

        Returns
        -------
        Array
            The smallest delta of each epsilon, for this order of the pair.
        """
        p, q = self.survival(self.threshold(epsilon))
        return np.asarray(np.maximum(p - np.exp(epsilon) * q, 0.0))

    @property
    def loss_range(self) -> tuple[float, float]:
        """Smallest and largest loss within reach of the noise."""
        low, high = self.loss(np.array([-self.amplitude - REACH, self.amplitude + REACH]))
        return float(low), float(high)

    @property
    def spread(self) -> float:
        """Standard deviation of the loss under P."""
        nodes, weights = self._quadrature
        loss = self.loss(nodes)
        mean = loss @ weights
        return float(np.sqrt(np.square(loss - mean) @ weights))

    @property
    def _quadrature(self) -> tuple[Array, Array]:
        """Nodes of w and their weights under P."""
        z = np.linspace(-REACH, REACH, 801)
        density = np.exp(-0.5 * z * z)
        # The sum in place of the integral's constant: weights add up to 1.
        density /= density.sum()
        nodes = np.concatenate([self.amplitude + z, -self.amplitude + z])
        return nodes, np.concatenate([self.high * density, (1.0 - self.high) * density])
