"""What the losses of all entries of an event add up to: delta of an epsilon, epsilon of a delta."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from typing import Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy import gaussian
from flmc.privacy.bit_pairs import FAR_REACH, REACH, PairHull
from flmc.privacy.loss_grid import RESOLUTION, EntryLoss, LossGrid, make_grids
from flmc.privacy.tilted_loss import TRUNCATED, TiltedLoss, TooWideError, total
from flmc.privacy.transmissions import Transmissions, mu_of, round_up

# Sum of the losses of very many entries, brought to one grid in stages.
#
# A few losses are added on a fine grid, the result is brought to a coarser one (connect the dots
# again, which stays an upper bound), and so on: the work grows with the logarithm of their
# number.


FINE = 220.0
"""Grid steps per standard deviation of a loss that is added, about: adds 4e-6 to the relative
variance."""
MOST_DOUBLINGS = 2
"""Largest number of doublings of the grid's step in one stage, in which 4 to this power losses are
added."""


def compose(
    parts: Sequence[tuple[LossGrid, int]],
    theta: float,
    doublings: Sequence[int],
    truncated: float,
) -> TiltedLoss:
    """Tilted law of a sum of losses whose grids have different steps.

    Parameters
    ----------
    parts
        Laws of one loss, each with the number of times that it is added.
    theta
        The tilt.
    doublings
        For each law how often its step must be doubled to reach the step of the sum.
    truncated
        Minus the logarithm of the tilted mass that may leave the window of an FFT.

    Returns
    -------
    TiltedLoss
        Upper bound of the sum.

    Raises
    ------
    TooWideError
        If an FFT would be too long.
    """
    terms: list[tuple[TiltedLoss, int]] = []
    for (grid, count), times in zip(parts, doublings, strict=True):
        terms += _brought_to_step(TiltedLoss.of(grid, theta), count, times, truncated)
    return total(terms, truncated)


def _brought_to_step(
    law: TiltedLoss, count: int, doublings: int, truncated: float
) -> list[tuple[TiltedLoss, int]]:
    """Laws whose sum is that of ``count`` losses, on a grid whose step is doubled so often.

    In each stage losses are added in groups of 4 or 16, which doubles their spread once or twice,
    and so may the step be; those left over are added apart."""
    rest: TiltedLoss | None = None
    while doublings:
        times = min(doublings, MOST_DOUBLINGS)
        groups, left = divmod(count, 4**times)
        if left:
            terms = [(law, left)] if rest is None else [(law, left), (rest, 1)]
            rest = total(terms, truncated)
        if rest is not None:
            rest = rest.coarser(2**times)
        doublings -= times
        if not groups:
            # Nothing but the rest is left: too few losses to fill the coarse grid.
            return [(rest.coarser(2**doublings), 1)] if rest is not None else []
        law = total([(law, 4**times)], truncated).coarser(2**times)
        count = groups
    return [(law, count)] if rest is None else [(law, count), (rest, 1)]


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


# Composition of bits: from the pairs of one entry and the gains of all to epsilon and delta.


MOST_GAINS = 64
"""Largest number of distinct gains whose losses are composed one by one; more are rounded up."""

_TINY = 1e-24
"""Delta below which mass beyond the usual reach of the noise may matter."""
_FAR = 600.0
"""Minus the logarithm of the mass that may leave a window then."""
_FEW, _FINE_FOR_MANY = 4, 40.0
"""Number of gains up to which grids are as fine as usual, and grid steps per standard deviation of
a loss where there are more, or many pairs are compared at every point."""
_SUMMED = 64
"""Number of bits up to which the probability of a sum is summed up."""


def compose_bits(
    hull: PairHull, noise_power: float, transmissions: Transmissions, reach: float = REACH
) -> ComposedLoss:
    """Distribution of the loss of all entries, as an upper bound.

    Parameters
    ----------
    hull
        All pairs of bit probabilities that neighbours can make in an entry.
    noise_power
        Variance N_0 of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    reach
        How far the noise reaches, in its standard deviations.

    Returns
    -------
    ComposedLoss
        The sum of the losses.
    """
    scale = math.sqrt(noise_power)
    # Losses of a symmetric pair are plus or minus the largest one where bits are received without
    # error.
    bound = hull.largest_loss
    lattice = bound if len(hull.low) == 1 and math.isfinite(bound) else None
    entries = []
    for gain, count in round_up(transmissions, MOST_GAINS):
        low, high = hull.loss_range(gain / scale, reach)
        grid = partial(_grid, hull, gain / scale, low, high)
        entries.append(EntryLoss(grid, low, high, hull.spread(gain / scale), count, lattice))
    fine = FINE if lattice and len(entries) <= _FEW else _FINE_FOR_MANY
    return ComposedLoss.of(entries, fine, truncated=TRUNCATED if reach <= REACH else _FAR)


def _grid(hull: PairHull, amplitude: float, low: float, high: float, step: float) -> LossGrid:
    """Law of the loss of one entry on a grid."""
    return LossGrid.of_excess(partial(hull.excess, amplitude=amplitude), low, high, step)


class ComposableEvent(Hashable, Protocol):
    """Event of bits whose losses are composed on a grid."""

    @property
    def noise_power(self) -> float:
        """Variance N_0 of the noise in an entry."""

    @property
    def transmissions(self) -> Transmissions:
        """Gains, each with the number of entries that were sent with it."""

    @property
    def hull(self) -> PairHull:
        """All pairs of bit probabilities that neighbours can make in an entry."""

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio."""


@lru_cache(maxsize=16)
def composed_loss(event: ComposableEvent, reach: float) -> ComposedLoss:
    """Sum of the losses of an event, kept: a search for a gain ends with the event whose epsilon is
    asked for next, and mostly by the same sum.

    Parameters
    ----------
    event
        The event of bits.
    reach
        How far the noise reaches, in its standard deviations.
    """
    return compose_bits(event.hull, event.noise_power, event.transmissions, reach)


def composed_delta(event: ComposableEvent, epsilon: float) -> float:
    """Upper bound of delta, from the composed losses of all entries.

    Parameters
    ----------
    event
        The event of bits.
    epsilon
        Epsilon below the largest loss.
    """
    found = composed_loss(event, REACH).delta(epsilon)
    return found if found > _TINY else composed_loss(event, FAR_REACH).delta(epsilon)


def composed_epsilon(event: ComposableEvent, delta: float) -> tuple[float, bool]:
    """Upper bound of epsilon, and whether it is looser than usual.

    Three bounds hold: the composed loss; the largest loss; and the Gaussian mechanism of bits that
    are certain, which reveal more than any others.

    Parameters
    ----------
    event
        The event of bits.
    delta
        Probability with which the loss may be larger.
    """
    reach = REACH if delta > _TINY else FAR_REACH
    composed = composed_loss(event, reach).afresh()
    found = composed.epsilon(delta)
    if composed.loose or math.isinf(found):
        certain = mu_of(2.0, event.noise_power, event.transmissions)
        return min(found, event.largest_loss, gaussian.epsilon(delta, certain)), True
    return min(found, event.largest_loss), False


def delta_of_loud_bits(event: ComposableEvent, epsilon: float) -> float:
    """Upper bound of delta where the noise changes no bit, whatever the gains are.

    Parameters
    ----------
    event
        The event of bits.
    epsilon
        Epsilon below the largest loss.
    """
    number = sum(count for gain, count in event.transmissions if gain > 0)
    loud = 1e6 * math.sqrt(event.noise_power)
    return compose_bits(event.hull, event.noise_power, ((loud, number),)).delta(epsilon)


def limited_without_noise(error: float, number: int, epsilon: float, delta: float) -> bool:
    r"""Whether symmetric bits that are received as they were sent surely break a budget.

    Of n losses of plus or minus :math:`a = \ln(p/(1-p))`, k are positive. Delta is at least
    :math:`1 - 1/e` times the probability that their sum, (2 k - n) a, is :math:`\epsilon + 1` or
    more: summed up for few losses, and by Hoeffding's inequality for many. It spares the exact
    answer, which is costly.

    Parameters
    ----------
    error
        Probability 1 - p of a bit that speaks for the wrong data set, above 0.
    number
        Number n of bits.
    epsilon, delta
        The budget.

    Returns
    -------
    bool
        False where it is not known.
    """
    each, right = math.log1p((1.0 - 2.0 * error) / error), 1.0 - error
    if not each > 0:
        return False
    wanted = (number + (epsilon + 1.0) / each) / 2.0 * (1 + 1e-12)  # of the n, at least
    if number > _SUMMED:
        short = number * right - wanted
        likely = -math.expm1(-2.0 * short * short / number) if short > 0 else 0.0
    else:
        likely = math.fsum(
            math.comb(number, k) * right**k * error ** (number - k)
            for k in range(math.ceil(wanted), number + 1)
        )
    return likely * -math.expm1(-1.0) > delta * (1 + 1e-6)
