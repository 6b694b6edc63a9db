"""Sum of the privacy losses of all entries of an event, from which follow delta for an epsilon and
epsilon for a delta.

The law of one entry's loss is replaced by a law on a grid that is nowhere cheaper in privacy
(:mod:`flmc.privacy.loss_grid`). A few losses are added on a fine grid, their sum is brought to a
coarser grid, again as an upper bound, and so on: the work grows with the logarithm of the number of
entries. All laws are tilted, that is multiplied by exp(theta loss)
(:mod:`flmc.privacy.tilted_loss`), so that the mean of the sum is near the epsilon in question and
even the smallest delta keeps its digits."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.loss_grid import LossGrid
from flmc.privacy.tilted_loss import TRUNCATED, TiltedLoss, TooWideError, total

FINE = 220.0
"""Approximate number of grid steps per standard deviation of one entry's privacy loss: so fine a
grid raises the variance of the loss by a share of 4e-6."""
MOST_DOUBLINGS = 2
"""Largest number of times that one stage of the addition doubles the grid's step; n doublings go
with groups of 4^n losses, whose spread is 2^n times as large."""
RESOLUTION = 400.0
"""Number of grid steps per standard deviation of the sum of all entries' privacy losses, for the
grid of this sum."""
_MOST_CELLS = 2**14
"""Largest number of steps (cells) of the grid of one entry's privacy loss. Where the range of
losses would take more, the step is made larger: bounds stay bounds, and are looser."""
_COARSE = 8.0
"""Number of grid steps per standard deviation of one entry's privacy loss below which bounds of
delta are noticeably looser; a statement of privacy then says so."""
_LOWEST, _RATIO, _RUNGS = 0.01, 2.0 ** (1 / 3), 48
"""The tilts theta in use form a geometric sequence: its smallest value times the standard deviation
of the summed privacy loss, the ratio of two neighbours, and the number of ratios."""
_CURVE_TILTS = (1.0, 4.0, 7.0)
"""Tilts that all epsilons of a curve share, in units of one over the standard deviation of the
summed privacy loss: between them rounding hides some hundred times as much as at the best tilt."""
_CLEAR = 1e-6
"""Share of delta that rounding errors may contribute before the sum of privacy losses is computed
again with another tilt theta."""


@dataclass(frozen=True)
class EntryLoss:
    """Law of the privacy loss of all entries that are sent with the same gain, and their number."""

    grid: Callable[[float], LossGrid]
    """Function from the step of a grid to the law of one entry's privacy loss on that grid."""
    low: float
    """Smallest privacy loss of one entry that the grid of its law must cover."""
    high: float
    """Largest privacy loss of one entry that the grid of its law must cover."""
    spread: float
    """Approximate standard deviation of an entry's privacy loss."""
    count: int
    """Number of entries whose privacy losses have this law."""
    lattice: float | None = None
    """Number of which all privacy losses of an entry are nearly whole multiples if the noise hardly
    changes a bit; None if there is no such number."""


@dataclass(frozen=True)
class ComposedLoss:
    """Sum of the privacy losses of all entries of an event, made of laws on grids whose deltas are
    upper bounds."""

    parts: tuple[tuple[LossGrid, int], ...]
    """Law of one entry's privacy loss on a grid, and the number of entries with this law, for each
    gain."""
    doublings: tuple[int, ...]
    """Number of times, for each law in ``parts``, that the step of its grid must be doubled to
    reach the step of the sum's grid."""
    coarsened: bool
    """Whether the grids of entries' privacy losses are so coarse, to limit the work, that the
    bounds of delta and epsilon are looser than usual."""
    truncated: float = TRUNCATED
    """Minus the natural logarithm of the probability, under the law tilted by exp(theta loss), that
    an FFT may cut off on either side of a sum."""
    rounds: int = 1
    """Number of rounds, each of which transmits either all of the entries in ``parts`` or none."""
    chance: float = 1.0
    """Probability with which a round transmits the entries in ``parts``, independently of other
    rounds; everybody sees which rounds do."""
    _sums: dict[float, TiltedLoss | None] = field(default_factory=dict, repr=False)
    """Laws of the sum of all privacy losses that were computed so far, tilted by exp(theta loss),
    with theta as the key; None where the FFT would be too long."""
    _asked: set[float] = field(default_factory=set, repr=False)
    """Values of theta for which the tilted law of the sum was asked for since this object was made;
    :attr:`loose` looks at these."""

    @classmethod
    def of(
        cls,
        entries: Sequence[EntryLoss],
        fine: float = FINE,
        resolution: float = RESOLUTION,
        truncated: float = TRUNCATED,
        rounds: int = 1,
        chance: float = 1.0,
    ) -> ComposedLoss:
        """Sum of the privacy losses of all ``entries`` (one or more gains) on grids of bounded
        size.

        ``fine`` is the wanted number of grid steps per standard deviation of an entry's loss,
        ``resolution`` that of the sum's grid per standard deviation of the sum; both are fewer if
        grids would be too long. ``truncated`` is minus the natural logarithm of the probability,
        under the tilted law, that an FFT may cut off on either side. The entries are those of one
        round, and each of ``rounds`` rounds is sent with probability ``chance``."""
        once = sum(entry.count * entry.spread**2 for entry in entries)
        # Standard deviation of the sum over all rounds. The loss of a round that is sent has a mean
        # of about half its variance. If chance decides whether the round is sent, this mean adds to
        # the variance.
        whole = math.sqrt(rounds * chance * (once + (1.0 - chance) * (once / 2) ** 2))
        widest = max(entry.high - entry.low for entry in entries)
        step = max(whole / resolution, widest / _MOST_CELLS, 1e-300)
        doublings, coarsened = [], False
        for entry in entries:
            ratio = fine * step / max(entry.spread, 1e-300)
            # The grid of an entry's loss may be coarser than wanted, by a factor of up to 2^0.3.
            wanted = max(0, math.ceil(math.log2(ratio) - 0.3))
            most = math.floor(math.log2(_MOST_CELLS * step / (entry.high - entry.low)))
            times = min(wanted, most)
            # A coarse grid loosens bounds noticeably only if its losses have more than a thousandth
            # of the variance of the sum.
            matters = rounds * chance * entry.count * entry.spread**2 > 1e-3 * whole**2
            coarsened |= matters and entry.spread * 2.0**times < _COARSE * step
            doublings.append(times)
        # The finest step is chosen so that the lattice is a whole multiple of it, because losses
        # lie near multiples of the lattice if the noise hardly changes a bit. All other steps are
        # the finest one times powers of two.
        finest = 2.0 ** max(doublings)
        step = _aligned(step / finest, entries[0].lattice) * finest
        parts = []
        for entry, times in zip(entries, doublings, strict=True):
            parts.append((entry.grid(step / 2.0**times), entry.count))
        return cls(tuple(parts), tuple(doublings), coarsened, truncated, rounds, chance)

    @property
    def loose(self) -> bool:
        """Whether any delta or epsilon computed so far is a looser upper bound than usual: the grid
        of an entry's privacy loss was made coarser to limit the work, or the FFT for the law of the
        sum would be too long, so that Chernoff's bound took its place."""
        return self.coarsened or any(self._sums[theta] is None for theta in self._asked)

    def afresh(self) -> ComposedLoss:
        """The same sum with the laws that are computed already; its :attr:`loose` regards only
        deltas and epsilons that are computed from now on."""
        return replace(self, _asked=set())

    def delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``; Chernoff's bound if the FFT for the
        exact law of the sum would be too long."""
        theta = self._tilt_to(epsilon)
        tilted = self._sum(theta)
        return self._chernoff_delta(theta, epsilon) if tilted is None else tilted.delta(epsilon)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``, for a curve of many epsilons: a few
        laws of the sum, whose tilts are fixed and far apart, do for all of them. Where rounding may
        hide more than a millionth of delta in each of them, it is :meth:`delta`."""
        spread = math.sqrt(self._untilted[2])
        for tilt in _CURVE_TILTS:
            tilted = self._sum(min(tilt / spread, 200.0 / self._widest_step))
            if tilted is None:
                break
            delta = tilted.delta(epsilon)
            if tilted.uncertain(epsilon) - tilted.infinite <= _CLEAR * delta:
                return delta
        return self.delta(epsilon)

    def epsilon(self, target: float) -> float:
        """Smallest epsilon >= 0 whose upper bound of delta is at most ``target``, rounded up;
        infinite if no finite epsilon is found."""
        theta = self._tilt_for(target)
        tilted = self._sum(theta)
        if tilted is None:
            return self._chernoff_epsilon(theta, target)
        epsilon = tilted.epsilon(target)
        # A tilted law resolves delta best near the epsilon for which its tilt was chosen: far from
        # it rounding errors may hide too much of delta.
        if math.isinf(epsilon) or tilted.uncertain(epsilon) > _CLEAR * target:
            again = self._sum(self._tilt_to(min(epsilon, self._chernoff_epsilon(theta, target))))
            epsilon = min(epsilon, again.epsilon(target) if again is not None else math.inf)
        nudge = 1e-13 * max(epsilon, self._widest_step)
        # The method ``delta`` chooses a tilt of its own, with which the result may slightly exceed
        # ``target``: epsilon is raised until it does not.
        while math.isfinite(epsilon) and self.delta(epsilon) > target:
            epsilon, nudge = epsilon + nudge, 4 * nudge
        return epsilon

    def exceedance(self, epsilon: float, *, both: bool, rounded_up: bool) -> float:
        r"""Upper bound of Pr(X > epsilon) for the sum X of the privacy losses before they were
        rounded to grids; with ``both``, of :math:`E[1 + e^{-X}; X > \epsilon]`, which is Pr(abs(X)
        > epsilon) for symmetric losses. It is 1 if the FFT would be too long.

        If ``rounded_up``, every loss was rounded up to the grid, so the rounded sum is X or more.
        Otherwise losses, and the sums of each stage, were rounded at random to one of two
        neighbours, upwards on average. By Hoeffding's inequality all rounding together falls below
        -t with probability at most :math:`\eta = e^{-t^2/(2 v)}`, v being the sum of the squared
        steps, whatever X is. So :math:`\Pr(X > \epsilon)(1 - 2\eta)` is at most the probability
        that the rounded sum exceeds :math:`\epsilon - t`."""
        tilted = self._sum(self._tilt_to(epsilon))
        if tilted is None:
            return 1.0
        unlikely = 0.0 if rounded_up else 1e-3
        below = (
            0.0
            if rounded_up
            else math.sqrt(-2.0 * self._squared_steps(tilted.step) * math.log(unlikely))
        )
        # Largest amount by which the sum of rounded losses may exceed the sum of the losses
        # themselves.
        above = tilted.step * sum(count for _, count in self.parts) if rounded_up else below

        def weight(x: Array) -> Array:
            return 1.0 + np.exp(-np.maximum(x - above, epsilon)) if both else np.ones_like(x)

        return min(1.0, tilted.mean_above(epsilon - below, weight) / (1.0 - 2.0 * unlikely))

    def _squared_steps(self, widest: float) -> float:
        """Sum of the squared grid steps of all roundings, those of single losses and those of the
        sums in each stage of their addition; ``widest`` is the step of the final sum."""
        stages = [-(-times // MOST_DOUBLINGS) for times in self.doublings]
        return sum(
            count * grid.step**2 * (1 + stage) + 2 * stage * widest**2
            for (grid, count), stage in zip(self.parts, stages, strict=True)
        )

    def _sum(self, theta: float) -> TiltedLoss | None:
        """Law of the sum of all privacy losses, tilted by exp(theta loss), cached; None if the FFT
        would be too long."""
        self._asked.add(theta)
        if theta not in self._sums:
            try:
                self._sums[theta] = self._composed(theta)
            except TooWideError:
                self._sums[theta] = None
        return self._sums[theta]

    def _composed(self, theta: float) -> TiltedLoss:
        """Law of the sum of all privacy losses, tilted by exp(theta loss). The losses of one round
        are added and mixed with the loss 0 of a silent round, and then the losses of all rounds are
        added. Raises ``TooWideError`` if an FFT would be too long."""
        if self.rounds == 1 and self.chance >= 1.0:
            return compose(self.parts, theta, self.doublings, self.truncated)
        # Each doubling of the grid's step needs a sum of four times as many losses. So as many
        # doublings are left for the addition of rounds as the number of rounds allows.
        often = max(1.0, self.rounds * self.chance)
        left = min(min(self.doublings), math.floor(math.log(often, 4)))
        once = [times - left for times in self.doublings]
        law = compose(self.parts, theta, once, self.truncated).mixed(self.chance)
        return total(_brought_to_step(law, self.rounds, left, self.truncated), self.truncated)

    @property
    def _widest_step(self) -> float:
        """Step of the grid on which the sum of all privacy losses lies; it is at least as wide as
        those of the grids of single entries' losses."""
        return self.parts[0][0].step * 2.0 ** self.doublings[0]

    @cached_property
    def _untilted(self) -> tuple[float, float, float]:
        """K(0), K'(0) and K''(0) of the cumulant generating function K of the summed finite privacy
        losses; the last two are their mean and variance. A variance of 0 is replaced by 1e-300."""
        k, mean, variance = self._cumulant(0.0)
        return k, mean, max(variance, 1e-300)

    def _cumulant(self, s: float) -> tuple[float, float, float]:
        """Cumulant generating function K(s) = ln E[exp(s X); X finite] of the sum X of all privacy
        losses, K'(s) and K''(s). The derivatives are mean and variance of X when its law is
        multiplied by exp(s X)."""
        values = [(grid.cumulant(s), count) for grid, count in self.parts]
        k, mean, variance = (sum(count * each[i] for each, count in values) for i in range(3))
        # A round is sent with probability ``chance``, and has the loss 0 otherwise: its generating
        # function is the mixture of both.
        if self.chance < 1.0:
            sent = k + math.log(self.chance)
            k = float(np.logaddexp(sent, math.log1p(-self.chance)))
            # The tilted law of a round is a mixture too: its mean and variance follow from the
            # share of rounds that are sent, by the laws of total mean and variance.
            share = math.exp(sent - k)
            variance = share * (variance + (1.0 - share) * mean**2)
            mean *= share
        return self.rounds * k, self.rounds * mean, self.rounds * variance

    def _tilt_to(self, epsilon: float) -> float:
        """Tilt theta for which the sum of all privacy losses, its law multiplied by exp(theta
        loss), has a mean of about ``epsilon``."""
        _, mean, variance = self._untilted
        return self._tilt(lambda s, k, m, v: m - epsilon, (epsilon - mean) / variance)

    def _tilt_for(self, target: float) -> float:
        """Tilt theta at which the mean of the sum of privacy losses, its law multiplied by
        exp(theta loss), is about the epsilon that goes with the delta ``target``, by the
        saddle-point approximation."""
        goal = math.log(target)
        return self._tilt(
            lambda s, k, m, v: (
                goal - (k - s * m - math.log1p(s) - math.log1p(s * math.sqrt(2 * math.pi * v)))
            ),
            math.sqrt(max(-2.0 * goal, 0.0) / self._untilted[2]),
        )

    def _tilt(self, gauge: Callable[[float, float, float, float], float], guess: float) -> float:
        """Approximate root s, a tilt, of the increasing function ``gauge`` of s, K(s), K'(s) and
        K''(s), searched for from ``guess``; K is the cumulant generating function of the sum of all
        privacy losses.

        The result is at most 200 over the grid's step, and otherwise at least 0.01 over the
        standard deviation of the sum: delta may be of the order of this deviation, and would be
        lost in the rounding of laws that are tilted less."""
        # Tilts are taken from a geometric sequence of few values, so that an epsilon and its delta
        # are mostly read from the same tilted law.
        lowest: float = _LOWEST / math.sqrt(self._untilted[2])

        def enough(rung: int) -> bool:
            s = lowest * _RATIO**rung
            return gauge(s, *self._cumulant(s)) >= 0

        # The guess is exact for a normal sum, so the search rarely leaves its neighbours in the
        # sequence.
        guess = min(max(guess, lowest), lowest * _RATIO**_RUNGS)
        rung = round(math.log(guess / lowest) / math.log(_RATIO))
        if enough(rung):
            while rung and enough(rung - 1):
                rung -= 1
        else:
            while rung < _RUNGS and not enough(rung + 1):
                rung += 1
            rung = min(rung + 1, _RUNGS)
        # With a larger tilt the factor exp(tilt times loss) would change by more than exp(200) from
        # one grid point to the next.
        return float(min(lowest * _RATIO**rung, 200.0 / self._widest_step))

    def _infinite(self) -> float:
        """Probability that the sum of all privacy losses is counted as infinite."""
        once = sum(count * math.log1p(-grid.infinite) for grid, count in self.parts)
        return -math.expm1(self.rounds * math.log1p(self.chance * math.expm1(once)))

    def _chernoff_delta(self, s: float, epsilon: float) -> float:
        r"""Upper bound of the delta that goes with ``epsilon`` by Chernoff's bound, which is
        :math:`e^{K(s) - s\epsilon} s^s/(1+s)^{1+s}` for any s > 0, plus the probability of an
        infinite loss. K is the cumulant generating function of the sum of all privacy losses."""
        if s <= 0:
            return 1.0
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        exponent = self._cumulant(s)[0] - s * epsilon + peak
        return min(1.0, math.exp(min(exponent, 0.0)) * (1 + 1e-9) + self._infinite())

    def _chernoff_epsilon(self, s: float, target: float) -> float:
        """Epsilon >= 0, rounded up, at which the Chernoff bound of delta with the parameter ``s``
        is at most ``target``; infinite if ``s`` is not positive or infinite privacy losses alone
        use up ``target``."""
        left = target - self._infinite()
        if s <= 0 or left <= 0:
            return math.inf
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        return max(0.0, (self._cumulant(s)[0] + peak - math.log(left)) / s * (1 + 1e-12))


def _aligned(step: float, lattice: float | None) -> float:
    """Largest grid step, at most ``step``, of which ``lattice`` is a whole multiple, so that
    privacy losses near multiples of ``lattice``, which have nearly all probability, lie on the
    grid. The result is ``step`` itself if ``lattice`` is None, or at least a million times as
    large."""
    if lattice is None or not lattice / step < 1e6:
        return step
    return lattice / math.ceil(lattice / step)


def compose(
    parts: Sequence[tuple[LossGrid, int]],
    theta: float,
    doublings: Sequence[int],
    truncated: float,
) -> TiltedLoss:
    """Tilted law of a sum of independent privacy losses, whose laws on grids and counts are
    ``parts``; its deltas are upper bounds. All laws are multiplied by exp(theta loss). The step of
    part i is doubled ``doublings[i]`` times, to reach that of the sum. Raises ``TooWideError`` if
    an FFT would be too long."""
    terms: list[tuple[TiltedLoss, int]] = []
    for (grid, count), times in zip(parts, doublings, strict=True):
        terms += _brought_to_step(TiltedLoss.of(grid, theta), count, times, truncated)
    return total(terms, truncated)


def _brought_to_step(
    law: TiltedLoss, count: int, doublings: int, truncated: float
) -> list[tuple[TiltedLoss, int]]:
    """Laws, each with a count, whose sum is that of ``count`` losses of the given ``law``, on a
    grid whose step is that of ``law`` doubled ``doublings`` times. All laws of the result are on
    this grid.

    In each stage losses are added in groups of 4 or 16, which doubles their standard deviation once
    or twice, so the step may be doubled as often. Losses that fill no group are added to one law of
    their own, ``rest``, whose step is doubled as often in the same stage; ``doublings`` then counts
    those that are still to come."""
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
            # The losses filled no group of this stage, so all of them are in ``rest`` by now. Its
            # step is doubled as often as the stages to come would have done, to reach that of the
            # result.
            return [(rest.coarser(2**doublings), 1)] if rest is not None else []
        law = total([(law, 4**times)], truncated).coarser(2**times)
        count = groups
    return [(law, count)] if rest is None else [(law, count), (rest, 1)]
