"""Sum of the privacy losses of all entries of an event: delta for an epsilon, epsilon for a delta.

Each kind of entry has its loss on a grid of its own, which dominates it
(:mod:`flmc.privacy.loss_grid`). A few losses are added on a fine grid, the result is brought to a
coarser one (connect the dots again, which stays an upper bound), and so on: the work grows with the
logarithm of the number of entries. Every sum is tilted (:mod:`flmc.privacy.tilted_loss`) towards
the epsilon or delta in question, so that the smallest delta keeps its digits."""

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
"""Approximate number of grid steps per standard deviation of an entry's loss: the grid adds 4e-6 to
the relative variance."""
MOST_DOUBLINGS = 2
"""Largest number of times that one stage of the addition doubles the grid's step; n doublings go
with groups of 4^n losses, whose spread is 2^n times as large."""
RESOLUTION = 400.0
"""Number of grid steps per standard deviation of the sum of all entries' privacy losses, on the
grid on which the sum lies."""
_MOST_CELLS = 2**14
"""Largest number of cells of the grid on which one entry's privacy loss lies."""
_COARSE = 8.0
"""Grid steps per standard deviation of an entry's loss below which bounds are noticeably looser."""
_LOWEST, _RATIO, _RUNGS = 0.01, 2.0 ** (1 / 3), 48
"""Ladder of tilts: the smallest one, in units of one over the standard deviation of the sum, the
ratio of two neighbours, and their number."""
_CLEAR = 1e-6
"""Share of delta that rounding may leave uncertain before the sum is computed again with another
tilt."""


@dataclass(frozen=True)
class EntryLoss:
    """Privacy loss of one kind of entry, and the number of such entries."""

    grid: Callable[[float], LossGrid]
    """Function from the step of a grid to the law of an entry's privacy loss on that grid."""
    low: float
    """Smallest privacy loss of an entry that its grid covers."""
    high: float
    """Largest privacy loss of an entry that its grid covers."""
    spread: float
    """Approximate standard deviation of an entry's privacy loss."""
    count: int
    """Number of entries whose privacy losses have this law."""
    lattice: float | None = None
    """Value of which all privacy losses of an entry are nearly whole multiples where the noise
    hardly matters; None if no such value exists."""


@dataclass(frozen=True)
class ComposedLoss:
    """Sum of the privacy losses of all entries of an event, as laws on grids that bound it from
    above."""

    parts: tuple[tuple[LossGrid, int], ...]
    """Law of one entry's loss on its grid, and the number of such entries, for each kind of
    entry."""
    doublings: tuple[int, ...]
    """For each kind of entry in ``parts``, how often the step of its grid must be doubled to reach
    that of the sum's grid."""
    coarsened: bool
    """Whether the grids of entries' privacy losses are so coarse that bounds are looser than
    usual."""
    truncated: float = TRUNCATED
    """Minus the logarithm of the tilted mass that may leave the window of an FFT."""
    rounds: int = 1
    """Number of rounds, in each of which all of the entries in ``parts`` are transmitted, or
    none."""
    chance: float = 1.0
    """Probability with which a round transmits the entries in ``parts``, independently of other
    rounds and for all to see."""
    _sums: dict[float, TiltedLoss | None] = field(default_factory=dict, repr=False)
    """Laws of the sum of all privacy losses that were computed so far, each tilted by exp(theta
    loss), by theta; None where no grid is affordable."""
    _asked: set[float] = field(default_factory=set, repr=False)
    """Tilts theta whose laws of the sum were used since the object was made, for :attr:`loose`."""

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
        """Sum of the losses of at least one kind of entry, on grids of bounded size.

        ``fine`` is the wanted number of grid steps per standard deviation of an entry's loss,
        ``resolution`` that of the sum's grid per standard deviation of the sum; both are fewer if
        grids would be too long. ``truncated`` is minus the logarithm of the tilted mass that may
        leave the window of an FFT. The entries are those of one round, and each of ``rounds``
        rounds is sent with probability ``chance``."""
        once = sum(entry.count * entry.spread**2 for entry in entries)
        # The mean of a privacy loss is about half its variance; where chance decides whether a
        # round is sent, that adds to the spread of the sum.
        whole = math.sqrt(rounds * chance * (once + (1.0 - chance) * (once / 2) ** 2))
        widest = max(entry.high - entry.low for entry in entries)
        step = max(whole / resolution, widest / _MOST_CELLS, 1e-300)
        doublings, coarsened = [], False
        for entry in entries:
            ratio = fine * step / max(entry.spread, 1e-300)
            # the grid of an entry's loss may be coarser than wanted by up to 2^0.3
            wanted = max(0, math.ceil(math.log2(ratio) - 0.3))
            most = math.floor(math.log2(_MOST_CELLS * step / (entry.high - entry.low)))
            times = min(wanted, most)
            # A coarse grid loosens bounds noticeably only where its losses are more than a
            # thousandth of the variance of the sum.
            matters = rounds * chance * entry.count * entry.spread**2 > 1e-3 * whole**2
            coarsened |= matters and entry.spread * 2.0**times < _COARSE * step
            doublings.append(times)
        # The finest step divides the lattice, near whose multiples losses lie where noise hardly
        # matters; all other steps are that one times powers of two.
        finest = 2.0 ** max(doublings)
        step = _aligned(step / finest, entries[0].lattice) * finest
        parts = []
        for entry, times in zip(entries, doublings, strict=True):
            parts.append((entry.grid(step / 2.0**times), entry.count))
        return cls(tuple(parts), tuple(doublings), coarsened, truncated, rounds, chance)

    @property
    def loose(self) -> bool:
        """Whether any delta or epsilon computed so far is a looser upper bound than usual: the grid
        of values on which an entry's privacy loss lies was made coarser to limit the work, or no
        grid was affordable, so that Chernoff's bound took its place."""
        return self.coarsened or any(self._sums[theta] is None for theta in self._asked)

    def afresh(self) -> ComposedLoss:
        """The same sum with the laws that are computed already, but with :attr:`loose` judging only
        what is computed from now on."""
        return replace(self, _asked=set())

    def delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``; Chernoff's bound if no grid is
        affordable."""
        theta = self._tilt_to(epsilon)
        tilted = self._sum(theta)
        return self._chernoff_delta(theta, epsilon) if tilted is None else tilted.delta(epsilon)

    def epsilon(self, target: float) -> float:
        """Smallest epsilon >= 0 whose upper bound of delta is at most ``target``, rounded up;
        infinite if no finite epsilon is found."""
        theta = self._tilt_for(target)
        tilted = self._sum(theta)
        if tilted is None:
            return self._chernoff_epsilon(theta, target)
        epsilon = tilted.epsilon(target)
        # The tilted sum resolves delta best near the epsilon for which its tilt was chosen: far
        # from it rounding may hide too much of delta.
        if math.isinf(epsilon) or tilted.uncertain(epsilon) > _CLEAR * target:
            again = self._sum(self._tilt_to(min(epsilon, self._chernoff_epsilon(theta, target))))
            epsilon = min(epsilon, again.epsilon(target) if again is not None else math.inf)
        nudge = 1e-13 * max(epsilon, self._widest_step)
        # The method ``delta`` may tilt the sum otherwise than it was tilted here, and so return
        # more than ``target``.
        while math.isfinite(epsilon) and self.delta(epsilon) > target:
            epsilon, nudge = epsilon + nudge, 4 * nudge
        return epsilon

    def exceedance(self, epsilon: float, *, both: bool, rounded_up: bool) -> float:
        r"""Upper bound of Pr(X > epsilon) for the sum X of the losses before they were rounded;
        with ``both``, of :math:`E[1 + e^{-X}; X > \epsilon]`, which is Pr(abs(X) > epsilon) for
        symmetric losses. 1 if no grid is affordable.

        If ``rounded_up``, every loss was rounded up to the grid, so the rounded sum exceeds X.
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
        """Law of the sum of all losses, tilted by ``theta``, cached; None if no grid is
        affordable."""
        self._asked.add(theta)
        if theta not in self._sums:
            try:
                self._sums[theta] = self._composed(theta)
            except TooWideError:
                self._sums[theta] = None
        return self._sums[theta]

    def _composed(self, theta: float) -> TiltedLoss:
        """Law of the sum of all losses, tilted by ``theta``: the losses of one round are added and
        mixed with the loss 0 of a silent round, and then rounds are added; raises ``TooWideError``
        if an FFT would be too long."""
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
        """Step of the grid on which the sum of all privacy losses lies, the widest step of all
        grids."""
        return self.parts[0][0].step * 2.0 ** self.doublings[0]

    @cached_property
    def _untilted(self) -> tuple[float, float, float]:
        """K(0), mean and variance of the sum of the losses, an infinite one left out, without a
        tilt, K being its cumulant generating function; a variance of 0 is replaced by 1e-300."""
        k, mean, variance = self._cumulant(0.0)
        return k, mean, max(variance, 1e-300)

    def _cumulant(self, s: float) -> tuple[float, float, float]:
        """Cumulant generating function K(s) = ln E[exp(s X)] of the sum X of the losses, an
        infinite one left out, with its first and second derivative, which are mean and variance of
        the sum tilted by s."""
        values = [(grid.cumulant(s), count) for grid, count in self.parts]
        k, mean, variance = (sum(count * each[i] for each, count in values) for i in range(3))
        # the generating function of a round that is sent with probability ``chance``, and else has
        # the loss 0
        if self.chance < 1.0:
            sent = k + math.log(self.chance)
            k = float(np.logaddexp(sent, math.log1p(-self.chance)))
            # The law of a round, tilted, mixes rounds that are sent with silent ones of loss 0: the
            # share of the former, and its two moments by the laws of total mean and variance.
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
        """Tilt theta for which the mean of the tilted sum is about the epsilon that goes with the
        delta ``target``, by the saddle-point approximation."""
        goal = math.log(target)
        return self._tilt(
            lambda s, k, m, v: (
                goal - (k - s * m - math.log1p(s) - math.log1p(s * math.sqrt(2 * math.pi * v)))
            ),
            math.sqrt(max(-2.0 * goal, 0.0) / self._untilted[2]),
        )

    def _tilt(self, gauge: Callable[[float, float, float, float], float], guess: float) -> float:
        """Approximate tilt s at which an increasing ``gauge`` of s, K(s), K'(s) and K''(s)
        vanishes, searched for from ``guess``; K is the cumulant generating function of the sum of
        the losses.

        It is never far below one over the spread of the sum: delta may be of the order of the
        spread, which may be far below the rounding of untilted masses."""
        # Tilts are taken from a ladder of few values, so that an epsilon and its delta are mostly
        # read from the same tilted sum.
        lowest: float = _LOWEST / math.sqrt(self._untilted[2])

        def enough(rung: int) -> bool:
            s = lowest * _RATIO**rung
            return gauge(s, *self._cumulant(s)) >= 0

        # The guess is exact for a normal sum, so that it suffices to look one or two rungs of the
        # ladder further.
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
        :math:`e^{K(s) - s\epsilon} s^s/(1+s)^{1+s}` with the cumulant generating function K and any
        s > 0."""
        if s <= 0:
            return 1.0
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        exponent = self._cumulant(s)[0] - s * epsilon + peak
        return min(1.0, math.exp(min(exponent, 0.0)) * (1 + 1e-9) + self._infinite())

    def _chernoff_epsilon(self, s: float, target: float) -> float:
        """Epsilon at which Chernoff's bound of delta with the parameter ``s`` is ``target``;
        infinite if no finite epsilon is."""
        left = target - self._infinite()
        if s <= 0 or left <= 0:
            return math.inf
        peak = s * math.log(s / (1 + s)) - math.log1p(s)
        return max(0.0, (self._cumulant(s)[0] + peak - math.log(left)) / s * (1 + 1e-12))


def _aligned(step: float, lattice: float | None) -> float:
    """The grid step ``step``, or a slightly smaller one of which ``lattice`` is a whole multiple,
    so that the privacy losses with nearly all mass, which are multiples of ``lattice``, lie on the
    grid."""
    if lattice is None or not lattice / step < 1e6:
        return step
    return lattice / math.ceil(lattice / step)


def compose(
    parts: Sequence[tuple[LossGrid, int]],
    theta: float,
    doublings: Sequence[int],
    truncated: float,
) -> TiltedLoss:
    """Upper bound of the law of a sum of losses whose grids have different steps, tilted by
    ``theta``; the step of each part is doubled as often as ``doublings`` says, to reach that of the
    sum. Raises ``TooWideError`` if an FFT would be too long."""
    terms: list[tuple[TiltedLoss, int]] = []
    for (grid, count), times in zip(parts, doublings, strict=True):
        terms += _brought_to_step(TiltedLoss.of(grid, theta), count, times, truncated)
    return total(terms, truncated)


def _brought_to_step(
    law: TiltedLoss, count: int, doublings: int, truncated: float
) -> list[tuple[TiltedLoss, int]]:
    """Laws, with their counts, whose sum is that of ``count`` losses of the given law, on a grid
    whose step has been doubled ``doublings`` times.

    In each stage losses are added in groups of 4 or 16, which doubles their spread once or twice,
    so the step may be doubled as often; those left over are added apart."""
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
            # There were fewer than 4**times losses to add, so all of them are in the rest.
            return [(rest.coarser(2**doublings), 1)] if rest is not None else []
        law = total([(law, 4**times)], truncated).coarser(2**times)
        count = groups
    return [(law, count)] if rest is None else [(law, count), (rest, 1)]
