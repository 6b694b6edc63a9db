"""What the losses of all entries of an event add up to: delta of an epsilon, epsilon of a delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.losses.addition import TRUNCATED, TooWideError
from flmc.privacy.losses.composition import FINE, MOST_DOUBLINGS, compose
from flmc.privacy.losses.grids import RESOLUTION, EntryLoss, make_grids
from flmc.privacy.losses.loss_grid import LossGrid
from flmc.privacy.losses.tilted import TiltedLoss

_LOWEST, _RATIO, _RUNGS = 0.01, 2.0 ** (1 / 3), 48
"""Smallest tilt over one over the spread of the sum, ratio of two tilts, and their number."""
_CLEAR = 1e-6
"""Share of delta that may be uncertain before the sum is tilted anew."""


@dataclass(frozen=True)
class ComposedLoss:
    """Sum of the losses of all entries.

    Attributes
    ----------
    parts
        Law of one entry's loss on its grid, and the number of such entries.
    doublings
        For each law how often its step must be doubled to reach the step of the sum.
    coarsened
        Whether grids are so coarse that bounds are looser than usual.
    truncated
        Minus the logarithm of the tilted mass that may leave the window of an FFT.
    """

    parts: tuple[tuple[LossGrid, int], ...]
    doublings: tuple[int, ...]
    coarsened: bool
    truncated: float = TRUNCATED
    _sums: dict[float, TiltedLoss | None] = field(default_factory=dict, repr=False)
    _asked: set[float] = field(default_factory=set, repr=False)

    @classmethod
    def of(
        cls,
        entries: Sequence[EntryLoss],
        fine: float = FINE,
        resolution: float = RESOLUTION,
        truncated: float = TRUNCATED,
    ) -> ComposedLoss:
        """Sum of the losses of some entries, on grids whose size is bounded.

        Parameters
        ----------
        entries
            At least one kind of entry.
        fine
            Grid steps per standard deviation of an entry's loss, where so many are affordable.
        resolution
            Steps of the sum's grid per standard deviation of the sum, likewise.
        truncated
            Minus the logarithm of the tilted mass that may leave the window of an FFT.

        Returns
        -------
        ComposedLoss
            An upper bound.
        """
        return cls(*make_grids(entries, fine, resolution), truncated)

    @property
    def loose(self) -> bool:
        """Whether what was asked so far is looser than usual: a grid was coarsened, or none was
        affordable."""
        return self.coarsened or any(self._sums[theta] is None for theta in self._asked)

    def afresh(self) -> ComposedLoss:
        """The same sum, of which nothing was asked so far; what was added up already is kept."""
        return replace(self, _asked=set())

    def delta(self, epsilon: float) -> float:
        """Upper bound of delta.

        Parameters
        ----------
        epsilon
            Epsilon.
        """
        theta = self._tilt_to(epsilon)
        found = self._sum(theta)
        return self._chernoff_delta(theta, epsilon) if found is None else found.delta(epsilon)

    def epsilon(self, target: float) -> float:
        """Smallest epsilon >= 0 whose delta is at most ``target``, rounded up.

        Parameters
        ----------
        target
            Delta that is allowed.

        Returns
        -------
        float
            Epsilon; infinite where there is none.
        """
        theta = self._tilt_for(target)
        found = self._sum(theta)
        if found is None:
            return self._chernoff_epsilon(theta, target)
        epsilon = found.epsilon(target)
        # Far from where the tilt was meant for, rounding may hide more than delta.
        if math.isinf(epsilon) or found.uncertain(epsilon) > _CLEAR * target:
            again = self._sum(self._tilt_to(min(epsilon, self._chernoff_epsilon(theta, target))))
            epsilon = min(epsilon, again.epsilon(target) if again is not None else math.inf)
        nudge = 1e-13 * max(epsilon, self._widest_step)
        while math.isfinite(epsilon) and self.delta(epsilon) > target:  # another tilt, or rounding
            epsilon, nudge = epsilon + nudge, 4 * nudge
        return epsilon

    def exceedance(self, epsilon: float, *, both: bool, rounded_up: bool) -> float:
        r"""Upper bound of Pr(X > epsilon) for the sum X of the losses before they were rounded.

        Either every loss was rounded up to the grid: then the rounded sum exceeds X. Or it was
        rounded at random to one of two neighbours, upwards on average, and so were the sums of a
        stage. By Hoeffding's inequality all rounding together falls below
        -t with probability at most :math:`\eta = e^{-t^2/(2 v)}`, v being the sum of the squared
        steps, whatever X is. So :math:`\Pr(X > \epsilon)(1 - 2\eta)` is at most the probability
        that the rounded sum exceeds :math:`\epsilon - t`.

        Parameters
        ----------
        epsilon
            Value that the sum exceeds.
        both
            Whether to bound :math:`E[1 + e^{-X}; X > \epsilon]` instead.
        rounded_up
            Whether losses were rounded up, and nothing was added in stages.

        Returns
        -------
        float
            A probability; 1 where no grid is affordable.
        """
        found = self._sum(self._tilt_to(epsilon))
        if found is None:
            return 1.0
        unlikely = 0.0 if rounded_up else 1e-3
        below = (
            0.0
            if rounded_up
            else math.sqrt(-2.0 * self._squared_steps(found.step) * math.log(unlikely))
        )
        # By how much the rounded sum may exceed X.
        above = found.step * sum(count for _, count in self.parts) if rounded_up else below

        def weight(x: Array) -> Array:
            return 1.0 + np.exp(-np.maximum(x - above, epsilon)) if both else np.ones_like(x)

        return min(1.0, found.mean_above(epsilon - below, weight) / (1.0 - 2.0 * unlikely))

    def _squared_steps(self, widest: float) -> float:
        """Sum of the squares of the steps to which losses, and sums of a stage, were rounded."""
        stages = [-(-times // MOST_DOUBLINGS) for times in self.doublings]
        return sum(
            count * grid.step**2 * (1 + stage) + 2 * stage * widest**2
            for (grid, count), stage in zip(self.parts, stages, strict=True)
        )

    def _sum(self, theta: float) -> TiltedLoss | None:
        """Law of the sum with a tilt; None where no grid is affordable."""
        self._asked.add(theta)
        if theta not in self._sums:
            try:
                self._sums[theta] = compose(self.parts, theta, self.doublings, self.truncated)
            except TooWideError:
                self._sums[theta] = None
        return self._sums[theta]

    @property
    def _widest_step(self) -> float:
        """Step of the sum's grid."""
        return self.parts[0][0].step * 2.0 ** self.doublings[0]

    @cached_property
    def _untilted(self) -> tuple[float, float, float]:
        """K(0), mean and variance of the sum's finite part; the variance is not 0."""
        k, mean, variance = self._cumulant(0.0)
        return k, mean, max(variance, 1e-300)

    def _cumulant(self, s: float) -> tuple[float, float, float]:
        """K(s) of the sum's finite part, its slope and its curvature."""
        values = [(grid.cumulant(s), count) for grid, count in self.parts]
        first, second, third = (sum(count * found[i] for found, count in values) for i in range(3))
        return first, second, third

    def _tilt_to(self, epsilon: float) -> float:
        """Tilt that moves the mean of the sum to about ``epsilon``."""
        _, mean, variance = self._untilted
        return self._tilt(lambda s, k, m, v: m - epsilon, (epsilon - mean) / variance)

    def _tilt_for(self, target: float) -> float:
        """Tilt whose mean has about the delta ``target``, by the saddle-point approximation."""
        goal = math.log(target)
        return self._tilt(
            lambda s, k, m, v: (
                goal - (k - s * m - math.log1p(s) - math.log1p(s * math.sqrt(2 * math.pi * v)))
            ),
            math.sqrt(max(-2.0 * goal, 0.0) / self._untilted[2]),
        )

    def _tilt(self, gauge: Callable[[float, float, float, float], float], guess: float) -> float:
        """Tilt at which a gauge of it, of K, of the mean and of the variance vanishes, about; the
        gauge increases.

        It is never far below one over the spread of the sum: delta is of the order of the spread,
        which may be far below the rounding of what is not tilted."""
        # On a ladder, so that an epsilon and its delta are mostly read from the same sum.
        lowest: float = _LOWEST / math.sqrt(self._untilted[2])

        def enough(rung: int) -> bool:
            s = lowest * _RATIO**rung
            return gauge(s, *self._cumulant(s)) >= 0

        # From the rung where it would be, were the sum normal: one or two more are tried.
        guess = min(max(guess, lowest), lowest * _RATIO**_RUNGS)
        rung = round(math.log(guess / lowest) / math.log(_RATIO))
        if enough(rung):
            while rung and enough(rung - 1):
                rung -= 1
        else:
            while rung < _RUNGS and not enough(rung + 1):
                rung += 1
            rung = min(rung + 1, _RUNGS)
        # A tilt that changes by more than exp(200) from one grid point to the next says nothing.
        return float(min(lowest * _RATIO**rung, 200.0 / self._widest_step))

    def _infinite(self) -> float:
        """Mass of the sum that is counted at infinity."""
        return -math.expm1(sum(count * math.log1p(-grid.infinite) for grid, count in self.parts))

    def _chernoff_delta(self, s: float, epsilon: float) -> float:
        r"""Chernoff's bound :math:`e^{K - s\epsilon} s^s/(1+s)^{1+s}` of the divergence, s > 0."""
        if s <= 0:
            return 1.0
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        exponent = self._cumulant(s)[0] - s * epsilon + peak
        return min(1.0, math.exp(min(exponent, 0.0)) * (1 + 1e-9) + self._infinite())

    def _chernoff_epsilon(self, s: float, target: float) -> float:
        """Epsilon at which Chernoff's bound is ``target``."""
        left = target - self._infinite()
        if s <= 0 or left <= 0:
            return math.inf
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        return max(0.0, (self._cumulant(s)[0] + peak - math.log(left)) / s * (1 + 1e-12))
