r"""The worst-case pair of one entry of the digital uplink.

Given every other device's bits, the received entry is :math:`w = A b + z` up to a known constant,
with the device's bit b and noise z. Under two data sets the bit is +1 with probability
:math:`\Phi(\ell)` and :math:`\Phi(-\ell)`:

.. math:: P = p_1 N(A, N_0) + (1-p_1) N(-A, N_0), \qquad Q = p_0 N(A, N_0) + (1-p_0) N(-A, N_0).

The loss :math:`\ln\frac{p_1 v + 1 - p_1}{p_0 v + 1 - p_0}`, :math:`v = e^{2 A w/N_0}`, increases
with w for :math:`p_1 > p_0`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array

REACH = 10.0
"""Standard deviations of noise beyond which mass (1e-23) is counted as lost."""
_LARGE = 1e9
"""Largest amplitude that is computed with: the noise changes no bit long before."""
_SMALL = 1e-4
"""Size of losses below which the difference of two logarithms would be rounded too much."""
_LARGEST_LOSS = 700.0
"""Largest loss of a pair that is certain on one side: beyond it exponentials overflow. A grid ends
before it, and counts what is beyond as infinite."""


@dataclass(frozen=True)
class BitPair:
    """Worst-case pair of one entry: a bit in noise of variance 1, under two data sets.

    Attributes
    ----------
    high, low
        Probability of +1 under the first and the second data set, ``high`` > ``low``.
    amplitude
        A/sqrt(N_0), the amplitude of the bit in standard deviations of the noise.
    """

    high: float
    low: float
    amplitude: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "amplitude", min(self.amplitude, _LARGE))

    def loss(self, w: Array) -> Array:
        """Privacy loss at received values.

        Parameters
        ----------
        w
            Received values, in standard deviations of the noise, in any shape.

        Returns
        -------
        Array
            Losses, in the shape of ``w``.
        """
        u = 2.0 * self.amplitude * np.asarray(w)
        fade = np.exp(-np.abs(u))  # the smaller of v and 1/v, so that nothing overflows or cancels
        plus, minus = np.where(u > 0, 1.0, fade), np.where(u > 0, fade, 1.0)
        above, below = (p * plus + (1.0 - p) * minus for p in (self.high, self.low))
        with np.errstate(divide="ignore"):
            # The difference of logarithms loses digits where both are nearly equal: there the
            # logarithm of 1 plus the relative excess is accurate, unless the excess is near -1.
            values = np.log(above) - np.log(below)
            if min(2.0 * self.amplitude, 1.0) * (self.high - self.low) < _SMALL:
                excess = np.copysign((self.high - self.low) * -np.expm1(-np.abs(u)), u) / below
                values = np.where(excess > -0.5, np.log1p(np.maximum(excess, -0.5)), values)
        return np.asarray(np.clip(values, -_LARGEST_LOSS, _LARGEST_LOSS))

    def threshold(self, loss: Array) -> Array:
        """Received value at which the loss has a given value.

        Parameters
        ----------
        loss
            Losses, in any shape.

        Returns
        -------
        Array
            Values w in standard deviations of the noise; infinite at and beyond the bounds of the
            loss.
        """
        loss = np.minimum(loss, _LARGEST_LOSS)
        # The loss l is attained where exp(2 A w) = above/below; both are written with the distance
        # of l from its bounds, so that nothing cancels near them.
        above = (
            (1.0 - self.high) * np.expm1(loss - self.lower_bound)
            if self.high < 1
            else np.exp(loss) * (1.0 - self.low)
        )
        below = (
            -self.high * np.expm1(loss - self.bound)
            if self.low > 0
            else np.full_like(loss, self.high)
        )
        # Bounds are rounded: a grid point that is meant to lie on one must not fall short of it.
        above = np.where(loss <= self.lower_bound + 1e-12 * abs(self.lower_bound), 0.0, above)
        below = np.where(loss >= self.bound - 1e-12 * abs(self.bound), 0.0, below)
        with np.errstate(divide="ignore", invalid="ignore"):
            w = (np.log(np.maximum(above, 0.0)) - np.log(np.maximum(below, 0.0))) / (
                2.0 * self.amplitude
            )
        return np.where(above <= 0, -np.inf, np.where(below <= 0, np.inf, w))

    @property
    def bound(self) -> float:
        """Largest loss at any w."""
        return math.log1p((self.high - self.low) / self.low) if self.low > 0 else math.inf

    @property
    def lower_bound(self) -> float:
        """Smallest loss at any w."""
        return (
            -math.log1p((self.high - self.low) / (1.0 - self.high)) if self.high < 1 else -math.inf
        )
