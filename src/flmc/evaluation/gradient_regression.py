r"""The regression of a server's estimates of the gradient on theta, from the transcript of a run.

Before round s theta is :math:`\theta_s`; the server receives an estimate of the gradient there,
:math:`g_s = (\theta_s - \theta_{s+1})/(\eta\kappa)`. Near the mode of a posterior with curvature H

.. math:: g_s = H(\theta_s - \hat\theta) + e_s, \qquad e_s \sim N(0, V_s).

Sums over rounds of theta, the estimates and their products tell mode and curvature. The weight of a
round is 1 over the variance of its noise, averaged over entries. Results are kept in *noise units*,
:math:`x = V^{1/2}\theta` with the covariance V of the noise of a round of weight 1: in these units
that covariance is the identity, and the curvature is :math:`V^{-1/2} H V^{-1/2}`."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.evaluation.transcript import Transcript
from flmc.planning.answer_law import LEAST

_NEAR = 4.0
"""Largest distance of a chain from its mean over the kept rounds, above the square root of dim,
with which it counts as near the mode; in standard deviations of the stationary law of a chain with
the fitted curvature. An answer uses only the rounds from which on a chain stays near, because
gradients may be clipped in earlier ones, or the posterior may not be quadratic there. The length of
a vector of dim standard normal numbers is about the square root of dim, with a standard deviation
below 1, so a chain at rest for thousands of rounds is not cut."""
_BLOCK = 1 << 18
"""Number of entries of theta, over all rounds, of the data sets that are fitted together: arrays of
that size stay in a processor's cache."""
_MOST_STRETCHES = 4
"""Largest number of changes of the step size in a run with which sums are computed separately for
each stretch of rounds of equal steps; with more, a weighted copy of all rounds is summed."""
_FLATTEST = 1e-12
"""Smallest pivot that the correlation matrix of theta's entries over rounds may have: below it, a
regression of gradients on theta would fail in double precision, and ``InvalidSetting`` is
raised."""


class RoundSums(NamedTuple):
    """Weighted sums over rounds of theta and the gradient estimates, and of their products, for
    every data set: all that a regression of gradients on theta needs to know of the rounds. Below,
    x is theta less a fixed point.

    Attributes
    ----------
    rounds
        Number of rounds in the sums, (data set).
    weight
        Sum of the weights of these rounds, (data set).
    theta, gradient, squares
        Sums of x, of the estimates, and of their squares, (data set, dim) each.
    scatter, products
        Sums of the outer products of x with itself, and of x with the estimate, (data set, dim,
        dim) each.
    """

    rounds: Array
    weight: Array
    theta: Array
    gradient: Array
    squares: Array
    scatter: Array
    products: Array

    def plus(self, other: RoundSums) -> RoundSums:
        """Sums over the rounds of both objects, which must have no round in common."""
        return RoundSums(*(a + b for a, b in zip(self, other, strict=True)))

    @property
    def moments(self) -> RoundMoments:
        """Means and sums about them."""
        total = self.weight[:, None]
        theta, gradient = self.theta / total, self.gradient / total
        return RoundMoments(
            theta,
            gradient,
            self.squares - self.gradient * gradient,
            self.scatter - self.theta[:, :, None] * theta[:, None],
            self.products - self.theta[:, :, None] * gradient[:, None],
        )


class RoundMoments(NamedTuple):
    """Weighted means over rounds of theta and the gradient estimates, and weighted sums over rounds
    of the products of their deviations from these means, for every data set. Below, x is theta less
    a fixed point.

    Attributes
    ----------
    theta, gradient
        Means of x and of the estimates, (data set, dim) each.
    squares
        Sums of squares of the estimates' deviations, (data set, dim).
    scatter, products
        Sums of the outer products of x's deviations with themselves, and with those of the
        estimates, (data set, dim, dim) each.
    """

    theta: Array
    gradient: Array
    squares: Array
    scatter: Array
    products: Array

    @property
    def slopes(self) -> Array:
        """Slopes of the estimates by least squares, (data set, dim of theta, dim of the estimate);
        not made symmetric."""
        return np.asarray(np.linalg.solve(self.scatter, self.products))


class GradientRegression(NamedTuple):
    """Regression of the estimates of the gradient on theta, for every data set, in units in which
    every entry of an estimate has noise of variance 1 in a round of weight 1.

    Attributes
    ----------
    unit
        Standard deviation of that noise in the sampler's units, (data set, dim): theta in the
        regression's units is theta times ``unit``, a gradient is divided by it.
    weight
        Sum of the weights of all rounds, (data set); the mean of the estimates has noise of
        variance 1/weight.
    theta, gradient
        Weighted means over rounds of theta and of the estimates, (data set, dim).
    scatter
        Weighted sum over rounds of the outer products with themselves of theta's deviations from
        its mean, (data set, dim, dim).
    curvature
        Symmetric matrix H for which H (theta - mean of theta) fits the estimates best, (data set,
        dim, dim): the curvature of the negative log posterior.
    """

    unit: Array
    weight: Array
    theta: Array
    gradient: Array
    scatter: Array
    curvature: Array


@dataclass(frozen=True)
class TranscriptRounds:
    """The rounds of a transcript with their weights in the regression of the estimates of the
    gradient on theta."""

    seen: Transcript
    """The transcript: what the server of each data set saw."""
    weight: Array
    """Weight of each round, (data set or 1, round): 1 over the variance of the noise in the
    estimate of the gradient, averaged over entries; 0 where nobody transmitted."""
    least_noise: Array
    """Smallest variance that the noise of an estimate may have in a round of weight 1, that of the
    channel alone, (data set or 1, dim)."""
    most_noise: Array
    """Largest variance that the noise may have in a round of weight 1, that of the channel and of
    random symbols, (data set or 1, dim); infinite where nothing bounds it."""

    @classmethod
    def of(cls, seen: Transcript) -> TranscriptRounds:
        """The rounds of a transcript with their weights. All entries of a round share one weight: 1
        over the variance of the noise in the estimate of the gradient, averaged over entries."""
        noise = seen.channel_noise + seen.symbol_noise
        weight = 1.0 / noise.mean(axis=2)  # 0 where nobody transmitted
        heard = (weight > 0)[..., None]
        count = heard.sum(axis=1)
        with np.errstate(invalid="ignore"):
            least, most = (
                np.where(heard, weight[..., None] * each, 0.0).sum(axis=1) / count
                for each in (seen.channel_noise, noise)
            )
        if not seen.bounded:
            most = np.full_like(most, np.inf)
        return cls(seen, weight, least, most)

    @property
    def centre(self) -> Array:
        """A point near the mode, from which deviations of theta are taken: the last position of the
        first chain, (data set, dim)."""
        last = self.seen.positions[:, 0, -1]
        return last if self.seen.origin is None else last + self.seen.origin

    def fit(self) -> tuple[GradientRegression, IntArray]:
        """The regression over all rounds that an answer may use, and the first of these rounds of
        every chain, (data set, chain). ``InvalidSetting`` where the rounds are too few, or do not
        tell a regression."""
        sets = len(self.seen.positions)
        each = max(1, _BLOCK * sets // self.seen.positions.size)
        fits = [self._of_sets(slice(e, e + each))._fit() for e in range(0, sets, each)]
        if len(fits) == 1:
            return fits[0]
        regressions, starts = zip(*fits, strict=True)
        joined = (np.concatenate(parts) for parts in zip(*regressions, strict=True))
        return GradientRegression(*joined), np.concatenate(starts)

    def _of_sets(self, sets: slice) -> TranscriptRounds:
        """A copy of this object with the data sets in the slice ``sets`` only."""
        weight, least, most, channel, symbols = (
            each if len(each) == 1 else each[sets]
            for each in (
                self.weight, self.least_noise, self.most_noise, self.seen.channel_noise,
                self.seen.symbol_noise,
            )
        )  # fmt: skip
        origin = None if self.seen.origin is None else self.seen.origin[sets]
        seen = self.seen._replace(
            positions=self.seen.positions[sets],
            channel_noise=channel,
            symbol_noise=symbols,
            origin=origin,
        )
        return TranscriptRounds(seen, weight, least, most)

    @property
    def _deviations(self) -> Array:
        """Theta less the fixed point ``centre``, with a row of ones below, (data set, chain, dim +
        1, round + 1). Products with that row are sums. Rounds are contiguous, because NumPy is slow
        at loops over as few numbers as theta has entries."""
        sets, chains, places, dim = self.seen.positions.shape
        x = np.empty((sets, chains, dim + 1, places))
        theta = x[:, :, :dim]
        x[:, :, dim] = 1.0
        theta[...] = self.seen.positions.mT
        # Rounded as the theta of a record is, so that its answer has the same bits.
        if self.seen.origin is not None:
            theta += self.seen.origin[:, None, :, None]
        theta -= self.centre[:, None, :, None]
        return x

    def _fit(self) -> tuple[GradientRegression, IntArray]:
        """The result of :meth:`fit`, computed for all data sets at once, with temporary arrays as
        large as the positions of all rounds."""
        _, chains, places, dim = self.seen.positions.shape
        kept, needed = self.seen.num_kept * chains, 2 * dim + 4
        if kept < needed:
            raise InvalidSetting(
                f"an answer needs at least {needed} kept rounds for {dim} entries, got {kept}: plan"
                " more rounds, or a shorter burn-in"
            )
        first, end = places - 1 - self.seen.num_kept, places - 1
        start: IntArray = np.zeros(self.seen.positions.shape[:2], dtype=np.int64)
        with np.errstate(over="ignore", invalid="ignore"):
            x = self._deviations
            sums = self._sums(x, start, first, end)
        heard = int(sums.rounds.min())
        if heard < needed:
            raise InvalidSetting(
                f"an answer needs at least {needed} kept rounds in which devices transmit, got"
                f" {heard}: plan more rounds, or another policy"
            )
        with np.errstate(over="ignore", invalid="ignore"):
            moments = sums.moments
        _check_moves(moments.scatter)
        # The search ends in the middle of the kept rounds, so that the second half is always used.
        start = self._settled(x[..., : first + self.seen.num_kept // 2], sums.rounds, moments)
        if (start > first).any():
            # Where chains come near so late that too few rounds would be left, all kept rounds are
            # used.
            late = end * chains - start.sum(axis=1) < needed
            start = np.where(late[:, None], np.minimum(start, first), start)
            sums = self._sums(x, start, 0, end)
        elif first:
            sums = sums.plus(self._sums(x, start, 0, first))
        return self._regress(sums), start

    def _sums(self, x: Array, start: IntArray, first: int, end: int) -> RoundSums:
        """Sums over the rounds ``first`` to ``end`` - 1 of all chains of a data set; rounds of a
        chain before its ``start`` (data set, chain) are left out. ``x`` are :attr:`_deviations`; in
        rounds before ``start`` they are set to 0."""
        weight, steps = self.weight[:, first:end], self.seen.step_sizes[first:end]
        latest = min(int(start.max()), end)
        if latest > first:
            used = np.arange(first, latest) >= start[:, :, None]
            x[..., first:latest] *= used.astype(np.float64)[:, :, None]
        changes = np.flatnonzero(np.diff(steps) != 0) + 1
        alike = 0 < weight.min() == weight.max()
        if not alike or len(changes) > _MOST_STRETCHES:
            return self._weighted_sums(x, start, first, end)
        # With equal weights, rounds of equal steps need no weighted copy of theta.
        cuts = [first, *(first + changes).tolist(), end]
        parts = [self._plain_sums(x, start, *cut, float(weight.flat[0])) for cut in pairwise(cuts)]
        return reduce(RoundSums.plus, parts)

    def _plain_sums(
        self, x: Array, start: IntArray, first: int, end: int, weight: float
    ) -> RoundSums:
        """The sums that :meth:`_sums` describes, for rounds that have the same ``weight`` and step
        size. An estimate is (x - y)/step, with the position y one round after x. So two products
        suffice, of x with itself and of x with y: sums over y are sums over x but for the first and
        the last position."""
        step, rounds = float(self.seen.step_sizes[first]), x[..., first:end]
        count = end - np.clip(start, first, end)
        last = x[:, :, :-1, end] * (count > 0)[..., None]
        x, y = rounds[:, :, :-1], x[:, :, :-1, first + 1 : end + 1]
        at = np.minimum(end - first - count, end - first - 1)[:, :, None, None]
        begin = np.take_along_axis(x, at, axis=3)[..., 0]
        # With the row of ones on one side only: products of an array with itself take NumPy three
        # times as long, because BLAS has another function for these.
        products, with_next = rounds @ x.mT, x @ y.mT
        scatter, theta = products[:, :, :-1], products[:, :, -1]
        squares = 2 * (np.linalg.diagonal(scatter) - np.linalg.diagonal(with_next))
        parts = (
            theta,
            (begin - last) / step,
            (squares - np.square(begin) + np.square(last)) / step**2,
            scatter,
            (scatter - with_next) / step,
        )
        number = count.sum(axis=1)
        return RoundSums(number, weight * number, *(weight * each.sum(axis=1) for each in parts))

    def _weighted_sums(self, x: Array, start: IntArray, first: int, end: int) -> RoundSums:
        """The sums that :meth:`_sums` describes, for rounds that differ in weight or step size."""
        used = np.arange(first, end) >= start[:, :, None]
        x, y = x[:, :, :-1, first:end], x[:, :, :-1, first + 1 : end + 1]
        weight = used * self.weight[:, None, first:end]
        gradient = (x - y) / self.seen.step_sizes[first:end]
        weighted, along = x * weight[:, :, None], gradient * weight[:, :, None]
        return RoundSums(
            (weight > 0).sum(axis=(1, 2)),
            weight.sum(axis=(1, 2)),
            weighted.sum(axis=(1, 3)),
            along.sum(axis=(1, 3)),
            np.einsum("ecis,ecis->ei", along, gradient),
            (weighted @ x.mT).sum(axis=1),
            (weighted @ gradient.mT).sum(axis=1),
        )

    def _noise(self, rounds: Array, moments: RoundMoments, slopes: Array | None = None) -> Array:
        """Noise variance of an estimate in a round of weight 1, (data set, dim), from the number of
        ``rounds`` (data set) and their ``moments``. ``slopes`` (data set, dim, dim) are those of
        the estimates by least squares; None: they are computed where they are needed."""
        if not (self.least_noise < self.most_noise).any():
            return np.broadcast_to(self.most_noise, moments.theta.shape)
        # The variance of random symbols depends on the data: it is estimated from the residuals of
        # the regression, and kept between its known bounds.
        if slopes is None:
            slopes = moments.slopes
        left = moments.squares - (moments.products * slopes).sum(axis=1)
        free = rounds[:, None] - moments.theta.shape[1] - 1
        return np.asarray(np.clip(left / free, self.least_noise, self.most_noise))

    def _settled(self, x: Array, rounds: Array, moments: RoundMoments) -> IntArray:
        """Index of the first round from which on a chain stays near its mean over the kept rounds,
        (data set, chain); the number of rounds in ``x`` where it never does. ``x`` (data set,
        chain, dim + 1, round) are :attr:`_deviations` of the rounds that are searched; ``rounds``
        (data set) is the number of the kept rounds, and ``moments`` are theirs."""
        step, theta = self.seen.step_sizes[-1], moments.theta
        slopes = moments.slopes
        noise = self._noise(rounds, moments, slopes)
        with np.errstate(divide="ignore"):
            of_round = 1.0 / self.weight
        noise = noise * np.where(self.weight > 0, of_round, 0.0).mean(axis=1)[:, None]
        # Along a direction with curvature h, a chain with step s and an estimate of noise variance
        # v has the stationary variance s v/(h (2 - s h)). The fitted curvature is not made
        # symmetric: only quadratic forms of it are taken.
        curvature = slopes.mT
        metric = (2 / step * curvature - curvature @ curvature) / noise[:, :, None]
        # The squared distance from ``theta`` in this metric is a quadratic form of x with its row
        # of ones: theta's deviation from ``theta`` is ``away`` times that.
        dim = theta.shape[1]
        away = np.concatenate([np.tile(np.eye(dim), (len(theta), 1, 1)), -theta[:, :, None]], 2)
        form = away.mT @ metric @ away
        distance = np.einsum("ecis,ecis->ecs", form[:, None] @ x, x)
        near = (distance <= (np.sqrt(dim) + _NEAR) ** 2)[:, :, ::-1]
        return np.asarray(np.where(near.all(axis=2), 0, x.shape[3] - near.argmin(axis=2)))

    def _regress(self, sums: RoundSums) -> GradientRegression:
        """Regression of the estimates of the gradient on theta, computed from their ``sums`` over
        rounds."""
        moments = sums.moments
        unit = np.sqrt(self._noise(sums.rounds, moments))
        scatter = moments.scatter * unit[:, :, None] * unit[:, None, :]
        values, directions = np.linalg.eigh(scatter)
        products = moments.products * unit[:, :, None] / unit[:, None, :]
        turned = directions.mT @ products @ directions
        # The symmetric H that fits best solves H S + S H = P + P' (scatter S of theta, products P
        # of theta and gradient), whose solution is entry by entry in the eigenvectors of S.
        fitted = (turned + turned.mT) / (values[:, :, None] + values[:, None, :])
        curvature = directions @ fitted @ directions.mT
        theta, gradient = (self.centre + moments.theta) * unit, moments.gradient / unit
        return GradientRegression(unit, sums.weight, theta, gradient, scatter, curvature)

    def bends(self, start: IntArray, fit: GradientRegression) -> tuple[Array, Array]:
        """Slopes that reveal a gradient that is not linear in theta, and their standard errors,
        both (data set, dim), for every eigenvector of the fitted curvature. A slope is that of a
        regression: of the received gradients less the linear function in ``fit``, along the
        eigenvector, on the squared distance of theta from its mean, in units in which the posterior
        has standard deviation 1 along it. Rounds before ``start`` (data set, chain) do not count. A
        third derivative of the log posterior moves a slope away from 0; without it, a slope is a
        sum of martingale differences and has mean 0."""
        values, directions = eigen(fit.curvature)
        root, positions = np.sqrt(values), self.seen.theta(slice(None))
        before, after = positions[:, :, :-1], positions[:, :, 1:]
        to_units = (fit.unit[:, :, None] * directions)[:, None]
        z = ((before - (fit.theta / fit.unit)[:, None, None]) @ to_units) * root[:, None, None]
        to_units = (directions / fit.unit[:, :, None])[:, None]
        estimates = (before - after) / self.seen.step_sizes[:, None]
        received = (estimates - (fit.gradient * fit.unit)[:, None, None]) @ to_units
        residual = received / root[:, None, None] - z
        used = np.arange(before.shape[2]) >= start[:, :, None]
        weight = (used * self.weight[:, None])[..., None]
        square = np.square(z)
        square -= ((weight * square).sum((1, 2)) / weight.sum((1, 2)))[:, None, None]
        power = (weight * np.square(square)).sum(axis=(1, 2))
        slope = (weight * residual * square).sum(axis=(1, 2)) / power
        return slope, 1.0 / (root * np.sqrt(power))


def eigen(curvature: Array) -> tuple[Array, Array]:
    """Eigenvalues of symmetric matrices, (data set, dim), in ascending order, and their
    eigenvectors as columns, (data set, dim, dim). Eigenvalues below ``LEAST`` (a millionth) times
    the largest are raised to that value."""
    values, directions = np.linalg.eigh(curvature)
    return np.maximum(values, LEAST * np.abs(values).max(axis=1, keepdims=True)), directions


def _check_moves(scatter: Array) -> None:
    """Raise ``InvalidSetting`` unless theta moved in every direction, by amounts that double
    precision can tell from 0 and from infinity. ``scatter`` (data set, dim, dim) are sums over
    rounds of the outer products of theta's deviations from its mean."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        size = np.sqrt(np.linalg.diagonal(scatter))
        correlation = scatter / size[:, :, None] / size[:, None, :]
    root = np.zeros_like(correlation)
    with suppress(np.linalg.LinAlgError):  # not positive definite
        root[:] = np.linalg.cholesky(correlation)
    if not float(np.square(np.linalg.diagonal(root)).min()) >= _FLATTEST:
        raise InvalidSetting(
            "an answer needs chains that move in every direction, within the range of numbers: use"
            " a larger step, or more rounds"
        )
