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
_BLOCK = 1 << 17
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
        return self.seen.positions[:, 0, -1]

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
        seen = self.seen._replace(
            positions=self.seen.positions[sets], channel_noise=channel, symbol_noise=symbols
        )
        return TranscriptRounds(seen, weight, least, most)

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
            x = self.seen.positions - self.centre[:, None, None]
            sums = self._sums(x, start, first, end)
        heard = int(sums.rounds.min())
        if heard < needed:
            raise InvalidSetting(
                f"an answer needs at least {needed} kept rounds in which devices transmit, got"
                f" {heard}: plan more rounds, or another policy"
            )
        _check_moves(sums)
        # The search ends in the middle of the kept rounds, so that the second half is always used.
        start = self._settled(x[:, :, : first + self.seen.num_kept // 2], sums)
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
        chain before its ``start`` (data set, chain) are left out. ``x`` (data set, chain, round +
        1, dim) is theta less the fixed point ``centre``; in rounds before ``start`` it is set to
        0."""
        weight, steps = self.weight[:, first:end], self.seen.step_sizes[first:end]
        if (start > first).any():
            x[:, :, first:end] *= (np.arange(first, end) >= start[:, :, None])[..., None]
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
        step = float(self.seen.step_sizes[first])
        count = end - np.clip(start, first, end)
        last = x[:, :, end] * (count > 0)[..., None]
        x, y = x[:, :, first:end], x[:, :, first + 1 : end + 1]
        at = np.minimum(end - first - count, end - first - 1)[:, :, None, None]
        begin = np.take_along_axis(x, at, axis=2)[:, :, 0]
        scatter, with_next = x.mT @ x, x.mT @ y
        squares = 2 * (np.linalg.diagonal(scatter) - np.linalg.diagonal(with_next))
        parts = (
            np.ones(end - first) @ x,
            (begin - last) / step,
            (squares - np.square(begin) + np.square(last)) / step**2,
            scatter,
            (scatter - with_next) / step,
        )
        rounds = count.sum(axis=1)
        return RoundSums(rounds, weight * rounds, *(weight * each.sum(axis=1) for each in parts))

    def _weighted_sums(self, x: Array, start: IntArray, first: int, end: int) -> RoundSums:
        """The sums that :meth:`_sums` describes, for rounds that differ in weight or step size."""
        used = np.arange(first, end) >= start[:, :, None]
        x, y = x[:, :, first:end], x[:, :, first + 1 : end + 1]
        weight = used * self.weight[:, None, first:end]
        gradient = (x - y) / self.seen.step_sizes[first:end, None]
        weighted, along = x * weight[..., None], gradient * weight[..., None]
        return RoundSums(
            (weight > 0).sum(axis=(1, 2)),
            weight.sum(axis=(1, 2)),
            weighted.sum(axis=(1, 2)),
            along.sum(axis=(1, 2)),
            np.einsum("ecsi,ecsi->ei", along, gradient),
            (weighted.mT @ x).sum(axis=1),
            (weighted.mT @ gradient).sum(axis=1),
        )

    def _moments(self, sums: RoundSums) -> tuple[Array, Array, Array, Array, Array]:
        """Means over rounds of theta less the fixed point ``centre`` and of the estimates, (data
        set, dim) each; sums over rounds of the outer products of theta's deviations from its mean
        with themselves and with the estimates, (data set, dim, dim) each; and the noise variance of
        an estimate in a round of weight 1, (data set, dim)."""
        dim, total = sums.theta.shape[1], sums.weight[:, None]
        theta, gradient = sums.theta / total, sums.gradient / total
        scatter = sums.scatter - sums.theta[:, :, None] * theta[:, None]
        products = sums.products - sums.theta[:, :, None] * gradient[:, None]
        noise = np.broadcast_to(self.most_noise, (len(theta), dim))
        if (self.least_noise < self.most_noise).any():
            # The variance of random symbols depends on the data: it is estimated from the residuals
            # of the regression, and kept between its known bounds.
            squares = sums.squares - sums.gradient * gradient
            explained = (products * np.linalg.solve(scatter, products)).sum(axis=1)
            free = sums.rounds[:, None] - dim - 1
            noise = np.clip((squares - explained) / free, self.least_noise, noise)
        return theta, gradient, scatter, products, noise

    def _settled(self, x: Array, sums: RoundSums) -> IntArray:
        """Index of the first round from which on a chain stays near its mean over the kept rounds,
        (data set, chain); the number of rounds in ``x`` where it never does. ``x`` (data set,
        chain, round, dim) is theta less the fixed point ``centre``; ``sums`` are those over the
        kept rounds."""
        theta, _, scatter, products, noise = self._moments(sums)
        step = self.seen.step_sizes[-1]
        with np.errstate(divide="ignore"):
            of_round = 1.0 / self.weight
        noise = noise * np.where(self.weight > 0, of_round, 0.0).mean(axis=1)[:, None]
        # Along a direction with curvature h, a chain with step s and an estimate of noise variance
        # v has the stationary variance s v/(h (2 - s h)). The fitted curvature is not made
        # symmetric: only quadratic forms of it are taken.
        slopes = np.linalg.solve(scatter, products).mT
        # A copy in C's order: matrices in another order are multiplied without BLAS.
        metric = np.ascontiguousarray((2 / step * slopes - slopes @ slopes) / noise[:, :, None])
        away = x - theta[:, None, None]
        distance = ((away @ metric[:, None]) * away) @ np.ones(x.shape[3])
        near = (distance <= (np.sqrt(x.shape[3]) + _NEAR) ** 2)[:, :, ::-1]
        return np.asarray(np.where(near.all(axis=2), 0, x.shape[2] - near.argmin(axis=2)))

    def _regress(self, sums: RoundSums) -> GradientRegression:
        """Regression of the estimates of the gradient on theta, computed from their ``sums`` over
        rounds."""
        theta, gradient, scatter, products, noise = self._moments(sums)
        unit = np.sqrt(noise)
        scatter = scatter * unit[:, :, None] * unit[:, None, :]
        values, directions = np.linalg.eigh(scatter)
        products = products * unit[:, :, None] / unit[:, None, :]
        turned = directions.mT @ products @ directions
        # The symmetric H that fits best solves H S + S H = P + P' (scatter S of theta, products P
        # of theta and gradient), whose solution is entry by entry in the eigenvectors of S.
        fitted = (turned + turned.mT) / (values[:, :, None] + values[:, None, :])
        curvature = directions @ fitted @ directions.mT
        theta = (self.centre + theta) * unit
        return GradientRegression(unit, sums.weight, theta, gradient / unit, scatter, curvature)

    def bends(self, start: IntArray, fit: GradientRegression) -> tuple[Array, Array]:
        """Slopes that reveal a gradient that is not linear in theta, and their standard errors,
        both (data set, dim), for every eigenvector of the fitted curvature. A slope is that of a
        regression: of the received gradients less the linear function in ``fit``, along the
        eigenvector, on the squared distance of theta from its mean, in units in which the posterior
        has standard deviation 1 along it. Rounds before ``start`` (data set, chain) do not count. A
        third derivative of the log posterior moves a slope away from 0; without it, a slope is a
        sum of martingale differences and has mean 0."""
        values, directions = eigen(fit.curvature)
        root, positions = np.sqrt(values), self.seen.positions
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


def _check_moves(sums: RoundSums) -> None:
    """Raise ``InvalidSetting`` unless theta moved in every direction, by amounts that double
    precision can tell from 0 and from infinity."""
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        theta = sums.theta / sums.weight[:, None]
        covariance = sums.scatter / sums.weight[:, None, None] - theta[:, :, None] * theta[:, None]
        size = np.sqrt(np.linalg.diagonal(covariance))
        correlation = covariance / size[:, :, None] / size[:, None, :]
    root = np.zeros_like(correlation)
    with suppress(np.linalg.LinAlgError):  # not positive definite
        root[:] = np.linalg.cholesky(correlation)
    if not float(np.square(np.linalg.diagonal(root)).min()) >= _FLATTEST:
        raise InvalidSetting(
            "an answer needs chains that move in every direction, within the range of numbers: use"
            " a larger step, or more rounds"
        )
