r"""Distributions of the privacy loss on a grid, composed by FFT, as upper bounds.

*Connect the dots*: the hockey-stick divergence as a function of :math:`x = e^\epsilon` is convex,
so the polygon through its values on a grid lies above it; the polygon belongs to a discrete pair,
which therefore dominates the true one, with an error of second order in the grid's step. Dominance
survives composition, so every delta computed here bounds the true one from above (Doroshenko et
al., "Connect the Dots", 2022). What leaves the window of the FFT and the rounding of the FFT itself
are bounded and added."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array
from flmc.privacy.bit_pair import BitPair

FINEST = 200
"""Grid steps per standard deviation of an entry's loss: adds 4e-6 to the relative variance."""
MOST_POINTS = 2**20
"""Length of the FFT, as a rule: the grid is chosen so, and is coarser where a finer one would need
more, which stays an upper bound."""
_LONGEST = 8 * MOST_POINTS
"""Largest length of the FFT, for losses so skewed that the rule fails."""
TRUNCATED = 1e-16
"""Mass that may leave the window of the FFT on either side; it is added to delta."""
_WIDE = 2**14
"""Grid steps up to which a longer FFT takes less time than finding a window for a shorter one."""


@dataclass(frozen=True)
class LossGrid:
    """Distribution of the loss under P on a grid, with some mass at infinity."""

    step: float
    """Distance of two losses."""
    first: int
    """Number of the first loss: the losses are ``step`` times ``first``, ``first`` + 1, ..."""
    mass: Array
    """Mass at each loss, (point)."""
    infinite: float
    """Mass that is counted at infinity."""
    bound: float = math.inf
    """Largest loss there is: what is counted at infinity has at most this."""
    far_log_moment: Callable[[float], float] | None = None
    """Upper bound of ln E[exp(s loss)] of what is counted at infinity, if more is known than the
    largest loss."""

    @property
    def losses(self) -> Array:
        """Losses that the masses belong to, (point)."""
        return _multiples(self.step, self.first, len(self.mass))

    @classmethod
    def of_pair(cls, pair: BitPair, step: float) -> LossGrid:
        """Grid that dominates a pair: connect the dots, interval by interval.

        The masses dP and dQ between the losses :math:`l` and :math:`l + h` are carried by the two
        ends so that both are kept, which puts :math:`(dP - e^l dQ)/(1 - e^{-h})` on the upper one.
        In this form rounding moves mass by one step but never loses any.

        Parameters
        ----------
        pair
            The pair of one entry.
        step
            Distance h of two losses.

        Returns
        -------
        LossGrid
            An upper bound of the loss, in the order of the pair.
        """
        low, high = pair.loss_range
        first, last = math.floor(low / step), math.ceil(high / step)
        edges = _multiples(step, first, last - first + 1)
        p, q = pair.survival(pair.threshold(edges))
        between_p, between_q = p[:-1] - p[1:], q[:-1] - q[1:]
        # Rounding must make a share neither negative nor larger than the mass that is there.
        upper = np.clip(
            (between_p - np.exp(edges[:-1]) * between_q) / -np.expm1(-step), 0.0, between_p
        )
        mass = np.zeros(last - first + 1)
        mass[1:] += upper
        mass[:-1] += between_p - upper
        mass[0] += (
            1.0 - p[0]
        )  # beyond the reach of the noise below: counted at a larger loss than it has
        last_edge = float(edges[-1])
        start = float(pair.threshold(edges[-1:])[0])
        return cls(
            step,
            first,
            mass,
            float(p[-1]),
            pair.bound,
            lambda s: s * last_edge + pair.log_moment_beyond(start, s),
        )

    @classmethod
    def of_profile(
        cls,
        profile: Callable[[Array], Array],
        low: float,
        high: float,
        step: float,
        bound: float = math.inf,
    ) -> LossGrid:
        r"""Grid that dominates a profile :math:`\delta(\epsilon)`: connect the dots.

        With :math:`x_j = e^{l_j}` the mass of Q at :math:`l_j` is the change of the polygon's slope
        there, and P has :math:`x_j` times that.

        Parameters
        ----------
        profile
            Delta as a function of an array of epsilons, convex in :math:`e^\epsilon`.
        low, high
            Range of the losses.
        step
            Distance of two losses.
        bound
            Largest loss there is.

        Returns
        -------
        LossGrid
            An upper bound of the loss.
        """
        low, high = (
            max(low, -600.0),
            min(high, 600.0),
        )  # mass beyond counts as infinite, or as larger than it is
        first = math.floor(low / step)
        losses = _multiples(step, first, math.ceil(high / step) - first + 1)
        x, delta = np.exp(losses), profile(losses)
        slopes = np.concatenate([[(delta[0] - 1.0) / x[0]], np.diff(delta) / np.diff(x), [0.0]])
        mass = x * np.maximum(np.diff(slopes), 0.0)
        missing = (
            1.0 - mass.sum() - delta[-1]
        )  # rounding: what is missing is counted as the largest loss
        return cls(step, first, mass, float(delta[-1] + max(missing, 0.0)), bound)

    def full_cumulant(self, s: float) -> float:
        """Upper bound of ln E[exp(s loss)], the mass at infinity included.

        That mass is taken at the largest loss there is, or by :attr:`far_log_moment` if that is
        smaller.

        Parameters
        ----------
        s
            Exponent, positive.

        Returns
        -------
        float
            The bound; infinite if the mass at infinity has no largest loss.
        """
        if self.infinite == 0.0:
            return self.cumulant(s)
        if math.isinf(self.bound):
            return math.inf
        # exp(s loss) grows with the loss, so the largest one bounds the mass at infinity.
        far = math.log(self.infinite) + s * self.bound
        if self.far_log_moment is not None:
            far = min(far, self.far_log_moment(s))
        return float(np.logaddexp(self.cumulant(s), far))

    def cumulant(self, s: float) -> float:
        """Value of ln E[exp(s loss)] of the finite part.

        Parameters
        ----------
        s
            Exponent.

        Returns
        -------
        float
            The logarithm; minus infinity if there is no finite part.
        """
        losses, log_mass = self._carried
        if not losses.size:
            return -math.inf
        exponent = s * losses + log_mass
        # The largest term is taken out, so that no exponential overflows.
        largest = float(exponent.max())
        exponent -= largest
        return largest + math.log(float(np.exp(exponent, out=exponent).sum()))

    @cached_property
    def _carried(self) -> tuple[Array, Array]:
        """Losses that have mass, and the logarithm of their mass."""
        carried = self.mass > 0
        return self.losses[carried], np.log(self.mass[carried])


@dataclass(frozen=True)
class ComposedLoss:
    """Distribution of the loss of a whole event.

    For a delta that is lost in ``beyond``, Chernoff's bound of the tail takes over: looser, but
    hardly rounded."""

    losses: Array
    """Losses, increasing, (point)."""
    mass: Array
    """Mass at each loss, (point)."""
    beyond: float
    """Mass that counts fully towards every delta: at infinity, outside the window, or lost in
    rounding."""
    tail: ChernoffBound
    """Chernoff's bound of the same loss."""
    step: float
    """Distance of two losses."""
    coarsened: bool = False
    """Whether the grid is coarser than usual, so that bounds are looser."""

    def delta(self, epsilon: float) -> float:
        """Upper bound of the hockey-stick divergence.

        Parameters
        ----------
        epsilon
            Epsilon.

        Returns
        -------
        float
            Delta, at most 1.
        """
        first = int(np.searchsorted(self.losses, epsilon, side="right"))
        # Only losses above epsilon count: each with mass times 1 - exp(epsilon - loss).
        above = self.losses[first:]
        by_grid = float(self.mass[first:] @ -np.expm1(epsilon - above)) + self.beyond
        return min(1.0, by_grid, self.tail.delta(epsilon) if by_grid < 10 * self.beyond else 1.0)

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
        if self.delta(0.0) <= target:
            return 0.0
        # A target near what counts towards every delta is hard to reach on the grid: there
        # Chernoff's bound may be the smaller one.
        found = self._by_grid(target) if self.beyond <= target else math.inf
        if target < 10 * self.beyond:
            found = min(found, self.tail.epsilon(target))
        nudge = 1e-12 * max(found, 1e-300)
        while math.isfinite(found) and self.delta(found) > target:  # the sums are rounded
            found, nudge = found + nudge, 2 * nudge
        return found

    def _by_grid(self, target: float) -> float:
        """Epsilon from the grid alone: the cell in which delta crosses the target, solved
        exactly."""
        first = int(np.searchsorted(self.losses, 0.0, side="right"))
        losses, mass = self.losses[first:], self.mass[first:]
        # delta(eps) = S - exp(eps) R with S, R sums over losses above eps; logarithms, because
        # exp(-loss) underflows.
        with np.errstate(divide="ignore"):
            weighted = np.log(mass) - losses
        over = np.cumsum(mass[::-1])[::-1] + self.beyond
        rest = np.logaddexp.accumulate(weighted[::-1])[::-1]
        before = np.concatenate([[0.0], losses[:-1]])
        at_start = over - np.exp(before + rest)  # delta at the left end of each cell
        over_target = np.flatnonzero(at_start > target)
        if not over_target.size:  # but for rounding, delta(0) is the target
            return float(losses[0])
        cell = int(over_target[-1])
        exact = math.log(over[cell] - target) - rest[cell]
        return float(min(max(exact, before[cell]), losses[cell]))


@dataclass(frozen=True)
class ChernoffBound:
    """Chernoff's bound Pr(X > t) <= exp(K(s) - s t), s > 0, for a sum X of losses.

    Attributes
    ----------
    parts
        Grids of independent losses, each with the number of times that it is added. What a grid
        counts at infinity is taken at the largest loss there is.
    spread
        Standard deviation of the sum, for the size of s.
    """

    parts: tuple[tuple[LossGrid, int], ...]
    spread: float

    @cached_property
    def slopes(self) -> Array:
        """Values of s that are tried."""
        # Every s gives a valid bound; the best one is within some orders of magnitude of one over
        # the spread.
        return np.geomspace(0.05, 500.0, 60) / max(self.spread, 1e-300)

    @cached_property
    def cumulants(self) -> Array:
        """Values of K at all s that are tried: computed when they are needed, which is rare."""
        return np.array(
            [sum(count * grid.full_cumulant(s) for grid, count in self.parts) for s in self.slopes]
        )

    def delta(self, epsilon: float) -> float:
        """Upper bound of the tail's probability, and so of the hockey-stick divergence.

        Parameters
        ----------
        epsilon
            Epsilon.

        Returns
        -------
        float
            Delta, at most 1.
        """
        return math.exp(min(0.0, float(np.min(self.cumulants - self.slopes * epsilon))))

    def epsilon(self, target: float) -> float:
        """Upper bound of the epsilon whose delta is at most ``target``.

        Parameters
        ----------
        target
            Delta that is allowed.

        Returns
        -------
        float
            Epsilon, not negative.
        """
        return max(0.0, float(np.min((self.cumulants - math.log(target)) / self.slopes)))


def _multiples(step: float, first: int, count: int) -> Array:
    """Multiples of a step, ``count`` of them from number ``first`` on."""
    return np.asarray(step * np.arange(first, first + count), dtype=np.float64)


class TooWideError(Exception):
    """The sum of losses needs a coarser grid: so few of them are large, and so large."""


def compose(parts: Sequence[tuple[LossGrid, int]], wide: int = _WIDE) -> ComposedLoss:
    """Distribution of a sum of independent losses.

    Parameters
    ----------
    parts
        Grids, each with the number of times that its loss is added; all have the same step.
    wide
        Sums over more grid steps than this are cut to where they have mass.

    Returns
    -------
    ComposedLoss
        An upper bound.

    Raises
    ------
    TooWideError
        If the FFT would be too long.
    ValueError
        If the steps differ.
    """
    step = parts[0][0].step
    if any(grid.step != step for grid, _ in parts):
        raise ValueError("grids of different steps cannot be composed")
    low, high = _window(parts, wide)
    first = math.floor(low / step)
    # A power of two that holds the window: the FFT is periodic, and must not wrap within it.
    size = 1 << max(1, math.ceil(high / step) - first + 1).bit_length()
    if size > _LONGEST:
        raise TooWideError
    transform = np.ones(size // 2 + 1, dtype=np.complex128)
    offset, total, log_finite = 0, 0, 0.0
    for grid, count in parts:
        # A grid longer than the FFT is wrapped around, as the FFT wraps the sum: only the window of
        # the sum matters in the end.
        folded = np.zeros(-(-len(grid.mass) // size) * size)
        folded[: len(grid.mass)] = grid.mass
        with np.errstate(
            over="ignore", invalid="ignore"
        ):  # where rounding made the mass exceed 1: noticed below
            transform *= np.fft.rfft(folded.reshape(-1, size).sum(axis=0)) ** count
        # A grid's mass begins at index 0 of its array, whatever its first loss: the sum's first
        # loss is the sum of them, and the result is rolled by it into the window.
        offset += grid.first * count
        total += count
        log_finite += count * (math.log1p(-grid.infinite) if grid.infinite < 1 else -math.inf)
    with np.errstate(over="ignore", invalid="ignore"):
        mass = np.maximum(np.roll(np.fft.irfft(transform, size), (offset - first) % size), 0.0)
    # Rounding: each factor has relative error of a few 1e-16, and its power as many times that.
    rounding = 2e-16 * (total + 10 * math.log2(size))
    beyond = -math.expm1(log_finite) + 2 * TRUNCATED + rounding
    if not np.isfinite(mass).all():
        # Nothing is known then; Chernoff's bound is left.
        mass, beyond = np.zeros(size), 1.0
    return ComposedLoss(
        _multiples(step, first, size),
        mass,
        beyond,
        ChernoffBound(tuple(parts), _spread(parts)),
        step,
    )


def unresolved(parts: Sequence[tuple[LossGrid, int]]) -> ComposedLoss:
    """Distribution of a sum for which no grid is affordable: it knows nothing but Chernoff's bound.

    Parameters
    ----------
    parts
        Grids, each with the number of times that its loss is added.

    Returns
    -------
    ComposedLoss
        All mass counts towards every delta.
    """
    return ComposedLoss(
        np.zeros(1), np.zeros(1), 1.0, ChernoffBound(tuple(parts), _spread(parts)), parts[0][0].step
    )


_COARSEST = 30.0
"""Grid step that resolves nothing."""


def compose_affordably(
    parts: Callable[[float], list[tuple[LossGrid, int]]], step: float, coarsened: bool
) -> ComposedLoss:
    """Distribution of a sum of losses, on a grid that is made coarser until the FFT is affordable.

    Parameters
    ----------
    parts
        Makes the grids and their counts for a grid step.
    step
        The step to begin with.
    coarsened
        Whether that step is already coarser than usual.

    Returns
    -------
    ComposedLoss
        An upper bound; where no grid is affordable it knows nothing but Chernoff's bound.
    """
    grids = parts(step)
    while step < _COARSEST:
        try:
            return replace(compose(grids), coarsened=coarsened)
        except TooWideError:
            # A coarser grid stays an upper bound, by connect-the-dots; it is only looser.
            step, coarsened = 4 * step, True
            grids = parts(step)
    return replace(unresolved(grids), coarsened=True)


def _spread(parts: Sequence[tuple[LossGrid, int]]) -> float:
    """Standard deviation of a sum of losses, their finite parts only."""
    return math.sqrt(sum(count * _variance(grid) for grid, count in parts))


def _window(parts: Sequence[tuple[LossGrid, int]], wide: int) -> tuple[float, float]:
    """Range in which the sum lies; if that is wide, all but ``TRUNCATED`` of its mass on either
    side.

    The cut follows Chernoff's bound, Pr(X > t) <= exp(K(s) - s t)."""
    lowest = sum(count * float(grid.losses[0]) for grid, count in parts)
    highest = sum(count * float(grid.losses[-1]) for grid, count in parts)
    if highest - lowest < wide * parts[0][0].step:
        return lowest, highest
    # Chernoff's bound is TRUNCATED at t = (K(s) - ln TRUNCATED)/s; the smallest t over some s is
    # taken.
    reach = -math.log(TRUNCATED)
    slopes = np.geomspace(0.1, 50.0, 12) / max(_spread(parts), 1e-300)
    bounds = []
    for sign, limit in ((-1.0, -lowest), (1.0, highest)):
        values = [
            (sum(count * grid.cumulant(sign * s) for grid, count in parts) + reach) / s
            for s in slopes
        ]
        bounds.append(sign * min(limit, *values))
    return bounds[0], bounds[1]


def _variance(grid: LossGrid) -> float:
    """Variance of the finite part of a loss."""
    total = grid.mass.sum()
    mean = grid.losses @ grid.mass / total
    return float(np.square(grid.losses - mean) @ grid.mass / total)


def choose_step(
    pairs: Sequence[tuple[BitPair, int]], per_spread: int = FINEST, *, typical: bool = False
) -> tuple[float, bool]:
    """One grid step for all pairs, and whether it had to be coarser than usual.

    The window of the sum is about 20 of its standard deviations wide; a single entry's losses must
    fit the grid too.

    Parameters
    ----------
    pairs
        Pairs of one entry, each with the number of entries.
    per_spread
        Grid steps per standard deviation of an entry's loss.
    typical
        Whether the step is fine for the typical entry, which is what the sum is made of; else it is
        fine for the entry with the smallest spread.

    Returns
    -------
    tuple of float and bool
        The step, and whether fewer steps than ``per_spread`` are affordable.
    """
    spreads = [(pair.spread, count) for pair, count in pairs]
    whole = math.sqrt(sum(count * spread**2 for spread, count in spreads))
    widest = max(high - low for low, high in (pair.loss_range for pair, _ in pairs))
    narrow = (
        whole / math.sqrt(sum(count for _, count in spreads))
        if typical
        else min(spread for spread, _ in spreads)
    )
    fine = narrow / per_spread
    # 25 standard deviations of the sum leave a margin to the window of about 20; a single entry's
    # losses may take a sixteenth of the FFT.
    affordable = max(25.0 * whole / MOST_POINTS, 16.0 * widest / MOST_POINTS)
    return max(fine, affordable, 1e-300), affordable > fine
