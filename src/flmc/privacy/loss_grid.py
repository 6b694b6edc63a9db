r"""Distribution of one entry's privacy loss on a grid, as an upper bound.

*Connect the dots*: the hockey-stick divergence as a function of :math:`x = e^\epsilon` is convex,
so the polygon through its values on a grid lies above it; the polygon belongs to a discrete pair,
which therefore dominates the true one, with an error of second order in the grid's step. Dominance
survives composition, so every delta computed from the grid bounds the true one from above
(Doroshenko et al., "Connect the Dots", 2022)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array


@dataclass(frozen=True)
class LossGrid:
    """Law of one entry's privacy loss on an even grid, under the first (P) of two data sets; part
    of the probability may be at an infinite loss."""

    step: float
    """Distance of two neighbouring privacy losses of the grid."""
    first: int
    """Index of the smallest privacy loss: the losses are ``step`` times ``first``, ``first`` + 1,
    ..."""
    mass: Array
    """Probability of each privacy loss of the grid, (point)."""
    infinite: float
    """Probability that is counted at an infinite privacy loss."""

    @classmethod
    def of_excess(
        cls, excess: Callable[[Array], Array], low: float, high: float, step: float
    ) -> LossGrid:
        r"""Law of a privacy loss on a grid whose delta is nowhere below a given one, by connecting
        the dots.

        ``excess`` is :math:`D(\epsilon) = \delta(\epsilon) - (1 - e^\epsilon)_+` as a function of
        epsilons (point), for a privacy profile :math:`\delta` that is convex in :math:`x =
        e^\epsilon`; the range [low, high] of the losses holds 0.

        Between grid points epsilon = j h, D is replaced by straight lines in x. The probability of
        the loss :math:`l_j = j h` under the first of the two laws is then :math:`x_j = e^{l_j}`
        times the change of the lines' slope there, which is :math:`[(D_{j+1} - D_j) - e^h (D_j -
        D_{j-1})]/(e^h - 1)`, plus 1 at the loss 0. Losses below ``low`` count as ``low``; what D
        has left at ``high`` is the probability of an infinite loss."""
        first, last = min(math.floor(low / step), -1), max(math.ceil(high / step), 1)
        values = excess(np.asarray(step * np.arange(first, last + 1), dtype=np.float64))
        rise = np.diff(values)
        mass = np.empty_like(values)
        growth = math.expm1(step)
        mass[1:-1] = (rise[1:] - rise[:-1]) / growth - rise[:-1]
        # The polygon starts with a straight line from an excess of 0 at exp(epsilon) = 0 to the
        # first point. Beyond the last point it stays level: the excess there is the probability of
        # an infinite loss.
        mass[0] = rise[0] / growth - values[0]
        mass[-1] = -rise[-1] * (1.0 + 1.0 / growth)
        mass[-first] += 1.0
        return cls(step, first, np.maximum(mass, 0.0), float(values[-1]))

    @property
    def losses(self) -> Array:
        """Privacy losses of the grid, to which the probabilities in ``mass`` belong, (point)."""
        return np.asarray(self.step * np.arange(self.first, self.first + len(self.mass)))

    @cached_property
    def _carried(self) -> tuple[Array, Array]:
        """Privacy losses of the grid whose probability is positive, and the natural logarithms of
        these probabilities, both (carried point)."""
        carried = self.mass > 0
        return self.losses[carried], np.log(self.mass[carried])

    def cumulant(self, s: float) -> tuple[float, float, float]:
        """Values of K(s) = ln E[exp(s loss); loss finite] of the privacy loss on this grid, of
        K'(s) and of K''(s). The derivatives are mean and variance of the loss when its law is
        multiplied by exp(s loss)."""
        losses, log_mass = self._carried
        exponent = s * losses + log_mass
        # All terms are divided by the largest one, so that no exponential overflows.
        largest = float(exponent.max())
        weight = np.exp(exponent - largest)
        total = float(weight.sum())
        mean = dot(weight, losses) / total
        return (
            largest + math.log(total),
            mean,
            dot(weight, np.square(losses - mean)) / total,
        )


def dot(first: Array, second: Array) -> float:
    """Sum of the products of two arrays (point), computed without BLAS: waking its threads costs
    more than so short a sum."""
    return float(np.einsum("i,i->", first, second))
