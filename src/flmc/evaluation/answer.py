r"""The answer: what a server knows of theta after one short, noisy, private chain.

Before round s theta is :math:`\theta_s`; the server receives an estimate of the gradient there,
:math:`g_s = (\theta_s - \theta_{s+1})/(\eta\kappa)`. Near the mode :math:`\hat\theta`

.. math:: g_s = H(\theta_s - \hat\theta) + e_s, \qquad e_s \sim N(0, V_s).

Theta depends on the data, but the noise :math:`e_s` is a martingale difference, so that the
likelihood of all rounds is a product of one factor for each round. Mode and curvature H follow from
a regression of g on theta, in which every round counts. The posterior follows from mode and
curvature; it is widened by the uncertainty that noise leaves about both. ``docs/answer.md`` derives
it. The answer is computed from signals that the server receives anyway: it costs neither privacy
nor rounds.

Computations are in *noise units*, :math:`x = V^{1/2}\theta` with the covariance V of the noise of a
round of weight 1: in these units that covariance is the identity, and the curvature is
:math:`V^{-1/2} H V^{-1/2}`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.special import ndtr, ndtri
from flmc.base.tables import Grid, Listing, Row
from flmc.evaluation import named_draws
from flmc.evaluation.transcript import Transcript
from flmc.models.affine import Coordinates
from flmc.models.distributions import Gaussian, Prior
from flmc.models.model import Model
from flmc.planning import answer_law
from flmc.planning.answer_law import LEAST, informed_share, joint_degrees
from flmc.planning.plans import Plan

PriorGradient = Callable[[Array], Array]
"""A function that returns the gradient of the negative log prior at many values of theta: it takes
theta, (data set, point, dim), and returns an array of the same shape."""
Predict = Callable[[Array], Array | None]
"""A function that takes draws of theta for the first data set, (1, draw, dim), and returns the
model's predictions at each, (1, draw, prediction); None for a model without predictions."""

_FEWEST_DEGREES = 12.0
"""Smallest number of degrees of freedom with which the curvature along an eigenvector counts as
known: with fewer, an answer's intervals are mostly too wide in that direction."""
_WIDE, _OFF = 2.0, 0.25
"""Limits beyond which an answer gets a warning: ``_WIDE`` is that of an entry's standard deviation
over the exact posterior's, ``_OFF`` that of the shift of the mean by a gradient that is not linear
in theta, in posterior standard deviations."""
_NEAR = 4.0
"""Distance from the mode, in standard deviations of theta over the kept rounds. A round of the
burn-in is used for an answer only if its chain is never farther from the mode in that round and
after."""
_FLATTEST = 1e-12
"""Smallest eigenvalue that the correlation matrix of theta's entries over rounds may have: below
it, a regression of gradients on theta would fail in double precision."""
_MOST_ROWS = 12
"""Largest number of entries of theta that are printed with an answer."""
OF_GRADIENTS = frozenset(
    (
        "clipped", "mean-not-sum", "mean-shift", "noise-law", "not-a-gradient", "not-finite",
        "not-linear", "random-gradient", "tails",
    )
)  # fmt: skip
"""Codes of findings that doubt the server's estimates of gradients: these count against an answer,
which is computed from such estimates, as they do against a chain of draws."""
_DOUBTS = OF_GRADIENTS | {"curvature-unknown", "not-quadratic"}
"""Codes of findings because of which an answer may be wrong; findings with other codes say only
that its intervals are wide."""
_LEVEL = 0.01
"""Probability with which an answer wrongly gets the warning that its gradient is not linear in
theta, although the posterior is normal."""


@dataclass(frozen=True)
class RoundSums:
    """Weighted sums over rounds of theta and the gradient estimates, and of their products, for
    every data set: all that a regression of gradients on theta needs to know of the rounds."""

    rounds: Array
    """Number of rounds in the sums, (data set)."""
    weight: Array
    """Sum of the weights of the rounds in the sums, (data set)."""
    first: Array
    """Weighted sums over rounds, (data set, 2 dim): those of theta less a fixed point in the first
    dim columns, those of the estimates of the gradient at theta in the others."""
    second: Array
    """Weighted sums over rounds of the outer product of a vector with itself, (data set, 2 dim, 2
    dim): the vector holds theta less a fixed point, then the estimate of the gradient at theta."""

    def __add__(self, other: RoundSums) -> RoundSums:
        """Sums over the rounds of both objects, which must have no round in common."""
        return RoundSums(
            self.rounds + other.rounds,
            self.weight + other.weight,
            self.first + other.first,
            self.second + other.second,
        )


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
        Weighted sum over rounds of the outer products of theta less its mean with itself,
        (data set, dim, dim).
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

    def pairs(self, rounds: slice) -> Array:
        """Theta less the fixed point ``centre`` of its data set, followed by the server's estimate
        of the gradient at that theta, for the slice ``rounds``: (data set, chain, round, 2 dim)."""
        positions, dim = self.seen.positions, self.seen.positions.shape[3]
        before = positions[:, :, :-1][:, :, rounds]
        both = np.empty((*before.shape[:3], 2 * dim))
        np.subtract(before, self.centre[:, None, None], out=both[..., :dim])
        np.subtract(before, positions[:, :, 1:][:, :, rounds], out=both[..., dim:])
        both[..., dim:] /= self.seen.step_sizes[rounds, None]
        return both

    def sums(self, rounds: slice, used: Array | None = None) -> RoundSums:
        """Weighted sums over the slice ``rounds``, all chains together; ``used`` (data set, chain,
        round) is True for rounds to include, and None includes all."""
        both, weight = self.pairs(rounds), self.weight[:, None, rounds]
        num_sets, chains, count, size = both.shape
        weight = np.broadcast_to(weight, both.shape[:3]) if used is None else used * weight
        flat = both.reshape(num_sets, chains * count, size)
        flat_weight = weight.reshape(num_sets, chains * count, 1)
        weighted = _transposed(flat * flat_weight)
        return RoundSums(
            (flat_weight > 0).sum(axis=(1, 2)),
            flat_weight.sum(axis=(1, 2)),
            weighted.sum(axis=2),
            weighted @ flat,
        )

    def regress(self, sums: RoundSums) -> GradientRegression:
        """Regression of the estimates of the gradient on theta, computed from their ``sums`` over
        rounds."""
        dim, total = sums.first.shape[1] // 2, sums.weight[:, None]
        first = sums.first / total
        centred = sums.second - sums.first[:, :, None] * first[:, None]
        scatter, products = centred[:, :dim, :dim], centred[:, :dim, dim:]
        noise = np.broadcast_to(self.most_noise, (len(first), dim))
        if (self.least_noise < self.most_noise).any():
            # The variance of random symbols depends on the data: it is estimated from the residuals
            # of the regression, and kept between its known bounds.
            squares = np.einsum("eii->ei", centred[:, dim:, dim:])
            explained = np.einsum("eji,eji->ei", products, np.linalg.solve(scatter, products))
            free = sums.rounds[:, None] - dim - 1
            noise = np.clip((squares - explained) / free, self.least_noise, noise)
        unit = np.sqrt(noise)
        scatter = scatter * unit[:, :, None] * unit[:, None, :]
        values, directions = np.linalg.eigh(scatter)
        turned = _turned(products * unit[:, :, None] / unit[:, None, :], directions)
        # The symmetric H that fits best solves H S + S H = P + P' (scatter S of theta, products P
        # of theta and gradient), whose solution is entry by entry in the eigenvectors of S.
        fitted = (turned + _transposed(turned)) / (values[:, :, None] + values[:, None, :])
        curvature = directions @ fitted @ _transposed(directions)
        theta, gradient = self.centre + first[:, :dim], first[:, dim:]
        weight = sums.weight
        return GradientRegression(unit, weight, theta * unit, gradient / unit, scatter, curvature)

    def settled(self, fit: GradientRegression, burn_in: slice) -> Array:
        """Mask of the rounds in the slice ``burn_in`` that an answer may use, (data set, chain,
        round): True once a chain stays within four standard deviations of the mode along every
        eigenvector of the fitted curvature for the rest of the burn-in; the standard deviations are
        those over the rounds of ``fit``. In earlier rounds gradients may be clipped, or the
        posterior may not be quadratic."""
        values, directions = _eigen(fit.curvature)
        mode = fit.theta - _along(directions, _across(directions, fit.gradient) / values)
        spread = np.einsum("eij,eij->ej", directions, fit.scatter @ directions)
        to_sd = directions / np.sqrt(spread / fit.weight[:, None])[:, None] * fit.unit[:, :, None]
        before = self.seen.positions[:, :, :-1][:, :, burn_in]
        away = (before - (mode / fit.unit)[:, None, None]) @ to_sd[:, None]
        outside = (np.abs(away) > _NEAR).any(axis=3)
        return ~np.flip(np.logical_or.accumulate(np.flip(outside, axis=2), axis=2), axis=2)

    def bends(self, used: Array, fit: GradientRegression) -> tuple[Array, Array]:
        """Slopes that reveal a gradient that is not linear in theta, and their standard errors,
        both (data set, dim), for every eigenvector of the fitted curvature. A slope is that of a
        regression: of the received gradients less the linear function in ``fit``, along the
        eigenvector, on the squared distance of theta from its mean, in units in which the posterior
        has standard deviation 1 along it. Only rounds where ``used`` (data set, chain, round) is
        True count. A third derivative of the log posterior moves a slope away from 0; without it, a
        slope is a sum of martingale differences and has mean 0."""
        values, directions = _eigen(fit.curvature)
        root, dim = np.sqrt(values), values.shape[1]
        pairs = self.pairs(slice(None))
        from_centre = fit.theta / fit.unit - self.centre
        to_units = (fit.unit[:, :, None] * directions)[:, None]
        z = ((pairs[..., :dim] - from_centre[:, None, None]) @ to_units) * root[:, None, None]
        to_units = (directions / fit.unit[:, :, None])[:, None]
        seen = (pairs[..., dim:] - (fit.gradient * fit.unit)[:, None, None]) @ to_units
        residual = seen / root[:, None, None] - z
        weight = (used * self.weight[:, None])[..., None]
        square = np.square(z)
        square -= ((weight * square).sum((1, 2)) / weight.sum((1, 2)))[:, None, None]
        power = (weight * np.square(square)).sum(axis=(1, 2))
        slope = (weight * residual * square).sum(axis=(1, 2)) / power
        return slope, 1.0 / (root * np.sqrt(power))


def answer_of(
    seen: Transcript,
    prior: PriorGradient,
    coordinates: Coordinates | None = None,
    layout: named_draws.Layout | None = None,
    exact: Gaussian | None = None,
    predict: Predict | None = None,
) -> Answer:
    """The answer of every data set from its transcript ``seen`` and the gradient of the negative
    log prior. Theta has the sampler's coordinates in all arguments, in the ``exact`` posterior
    (None where it is unknown) and in ``predict``, too; the answer has the model's.
    ``InvalidSetting`` where the rounds are too few."""
    if seen.positions.shape[3] > answer_law.MOST_ANSWERED:
        # imported here, because that module imports this one
        from flmc.evaluation.wide_answer import wide_answer_of

        return wide_answer_of(seen, prior, coordinates, layout, exact, predict)
    rounds, (_, chains, places, dim) = TranscriptRounds.of(seen), seen.positions.shape
    if seen.num_kept * chains < 2 * dim + 4:
        raise InvalidSetting(
            f"an answer needs at least {2 * dim + 4} kept rounds for {dim} entries, got"
            f" {seen.num_kept * chains}: plan more rounds, or a shorter burn-in"
        )
    first = places - 1 - seen.num_kept
    with np.errstate(over="ignore", invalid="ignore"):
        sums = rounds.sums(slice(first, None))
    _check_regressors(sums, dim)
    fit = rounds.regress(sums)
    used = np.ones((len(seen.positions), chains, places - 1), dtype=np.bool_)
    if first:
        used[:, :, :first] = rounds.settled(fit, slice(0, first))
        fit = rounds.regress(sums + rounds.sums(slice(0, first), used[:, :, :first]))
    if exact is not None and coordinates is not None:
        scale = coordinates.scale
        covariance = scale @ exact.covariance @ scale.T
        exact = Gaussian(np.asarray(coordinates.to_model(exact.mean)), covariance)
    return Answer(ThetaLaw.of(fit, prior), rounds, used, coordinates, layout, exact, predict)


def _check_regressors(sums: RoundSums, dim: int) -> None:
    """Raise ``InvalidSetting`` unless gradients can be regressed on theta in every data set:
    devices must transmit in at least 2 dim + 4 of the rounds, and theta must move in every
    direction."""
    heard = int(sums.rounds.min())
    if heard < 2 * dim + 4:
        raise InvalidSetting(
            f"an answer needs at least {2 * dim + 4} kept rounds in which devices transmit, got"
            f" {heard}: plan more rounds, or another policy"
        )
    with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
        theta = sums.first[:, :dim]
        scatter = (
            sums.second[:, :dim, :dim] - theta[:, :, None] * (theta / sums.weight[:, None])[:, None]
        )
        size = np.sqrt(np.einsum("eii->ei", scatter))
        correlation = scatter / size[:, :, None] / size[:, None, :]
    if not np.isfinite(correlation).all() or np.linalg.eigvalsh(correlation).min() < _FLATTEST:
        raise InvalidSetting(
            "an answer needs chains that move in every direction, within the range of numbers: use"
            " a larger step, or more rounds"
        )


def find_answer(
    plan: Plan,
    seed: int,
    model: Model,
    draws: Array,
    burn_in: Array | None = None,
    *,
    by_chain: bool = False,
    sets: int | None = None,
    chains: int | None = None,
) -> Answer:
    """The answer of every data set of a run, from its kept draws, (data set, chain, round, dim),
    and its positions during the burn-in, with the same axes; both are in the sampler's coordinates.
    Only the first ``sets`` data sets and their first ``chains`` chains are used; None: all. With
    ``by_chain`` each chain gives an answer of its own, as if it were a data set. The model
    contributes only prior, coordinates, names, predictions and the exact posterior where it is
    known. ``InvalidSetting`` where the stored draws do not tell what the server saw."""
    kept = draws[:sets, :chains]
    seen = Transcript.of_run(plan, seed, kept, None if burn_in is None else burn_in[:sets, :chains])
    exact = model.posterior
    if exact is not None and (by_chain or len(kept) < len(exact.mean)):
        repeats = kept.shape[1] if by_chain else 1
        mean, covariance = exact.mean[: len(kept)], exact.covariance[: len(kept)]
        exact = Gaussian(np.repeat(mean, repeats, 0), np.repeat(covariance, repeats, 0))

    return _answer_of_model(seen.by_chain if by_chain else seen, model, exact)


def find_federated_answer(
    plan: Plan,
    model: Model | Prior,
    draws: Array,
    burn_in: Array | None,
    num_active: Array,
    gain: Array,
    *,
    by_chain: bool = False,
    sets: int | None = None,
    chains: int | None = None,
) -> Answer:
    """The answer of a federation's chain, from its kept draws, (draw, dim), its positions during
    the burn-in, (round, dim), and two records of every round: the number of devices that answered,
    (round), and the gain with which symbols arrived, (round, 1 or dim). A prior may take the place
    of the model, because the server has no data. The keyword arguments exist because
    :func:`find_answer` has them, and change nothing: there is one data set, and one chain."""
    seen = Transcript.of_rounds(plan, draws, burn_in, num_active, gain)
    if isinstance(model, Prior):
        return answer_of(seen, model.gradient)
    if model.coordinates is not None:
        raise InvalidSetting("a federation samples in the model's own coordinates: give that model")
    return _answer_of_model(seen, model, model.posterior)


def _answer_of_model(seen: Transcript, model: Model, exact: Gaussian | None) -> Answer:
    """The answer of every data set from its transcript ``seen`` and the parts of a model that need
    no data: prior, coordinates, names, and predictions. ``exact`` holds the posteriors of the
    transcript's data sets; None where they are unknown."""

    def prior(theta: Array) -> Array:
        return model.num_devices * model.prior_share(theta)

    def predict(theta: Array) -> Array | None:
        return model.predict(theta, slice(0, 1))

    return answer_of(seen, prior, model.coordinates, model.layout, exact, predict)


class ThetaLaw(NamedTuple):
    r"""Law of theta given a transcript, for every data set, in units in which every entry of an
    estimate of the gradient has noise of variance 1 in a round of weight 1.

    The curvature of the negative log posterior is known with an error: it is :math:`H = \hat
    H^{1/2} W \hat H^{1/2}` with its estimate :math:`\hat H` and a Wishart matrix W, whose degrees
    of freedom differ between the eigenvectors of :math:`\hat H`, because a chain tells more about
    a steep direction than about a flat one. Given H, theta is normal.

    Attributes
    ----------
    fit
        Regression of the estimates of the gradient on theta, which gives :math:`\hat H`.
    values, directions
        Eigenvalues of :math:`\hat H`, (data set, dim), and its eigenvectors as columns, (data set,
        dim, dim).
    degrees
        Degrees of freedom of the curvature along each eigenvector, (data set, dim).
    precision
        Curvature of the negative log prior, (data set, dim, dim).
    pull
        Gradient of the negative log prior at the mean of theta over rounds, (data set, dim).
    """

    fit: GradientRegression
    values: Array
    directions: Array
    degrees: Array
    precision: Array
    pull: Array

    @classmethod
    def of(cls, fit: GradientRegression, prior: PriorGradient) -> ThetaLaw:
        """Law of theta from ``fit``, a regression of the estimates of the gradient on theta, and
        ``prior``, the gradient of the negative log prior."""
        values, directions = _eigen(fit.curvature)
        precision, pull = _quadratic_prior(fit, values, directions, prior)
        # The likelihood is assumed to be log-concave: in no direction is the curvature of the
        # posterior smaller than that of the prior.
        floor = np.einsum("eij,eij->ej", directions, precision @ directions)
        values = np.maximum(values, floor + LEAST * values[:, -1:])
        spread = np.einsum("eij,eij->ej", directions, fit.scatter @ directions)
        return cls(fit, values, directions, 2 * np.square(values) * spread, precision, pull)

    @property
    def floor(self) -> Array:
        """Curvature of the negative log prior along the eigenvectors of the fitted curvature, (data
        set, dim)."""
        floor = np.einsum("eij,eij->ej", self.directions, self.precision @ self.directions)
        return np.asarray(floor)

    @property
    def mean(self) -> Array:
        """Mean of theta, (data set, dim), in the units of the regression ``fit``, computed as if
        the estimated curvature of the log posterior were the true one."""
        prior, seen = (
            _across(self.directions, each) for each in (self.pull, self.fit.gradient - self.pull)
        )
        data = self.values - self.floor
        gain = informed_share(data, self.fit.weight[:, None])
        way = (prior + gain * seen) / (self.floor + gain * data)
        return np.asarray(self.fit.theta - _along(self.directions, way))

    def variances(self) -> Array:
        """Variances of theta along the eigenvectors of the fitted curvature, (data set, dim, node).
        The curvature along an eigenvector is known with an error; each node is a variance at one of
        ``NODES`` equally probable values of it."""
        return answer_law.variances(self.values, self.floor, self.degrees, self.fit.weight)

    def draw(self, e: int, num_draws: int, rng: np.random.Generator) -> Array:
        """Independent draws of theta of the data set with index ``e``, (draw, dim), in the units of
        the regression ``fit``; each has its own random curvature, because the curvature is known
        with an error only."""
        fit, dim = self.fit, self.values.shape[1]
        # Bartlett's decomposition of a Wishart matrix: directions in order of falling degrees of
        # freedom.
        order = np.argsort(-self.degrees[e])
        degrees = self.degrees[e][order]
        joint = joint_degrees(degrees)
        factor = np.zeros((num_draws, dim, dim))
        for i in range(dim):
            factor[:, i, :i] = rng.standard_normal((num_draws, i)) / np.sqrt(joint[i, :i])
            mean = max(1.0 - (1.0 / joint[i, :i]).sum(), 0.1)
            shape = mean**2 * degrees[i] / 2
            factor[:, i, i] = np.sqrt(rng.gamma(shape, mean / shape, num_draws))
        root = (self.directions[e][:, order] * np.sqrt(self.values[e][order])) @ factor
        values, directions = np.linalg.eigh(root @ _transposed(root) - self.precision[e])
        values = np.maximum(values, LEAST * values[:, -1:])
        gain = informed_share(values, fit.weight[e])
        known = (directions * gain[:, None]) @ _transposed(directions)
        data = (directions * (gain * values)[:, None]) @ _transposed(directions)
        precision = self.precision[e] + data
        way = self.pull[e] + known @ (fit.gradient[e] - self.pull[e])
        noise = rng.standard_normal((num_draws, dim, 1))
        spread = np.linalg.solve(_transposed(np.linalg.cholesky(precision)), noise)
        return np.asarray(
            fit.theta[e] - (np.linalg.solve(precision, way[..., None]) - spread)[..., 0]
        )


@dataclass(frozen=True)
class Answer:
    """What the server of each data set knows of theta after a run: mean, covariance, intervals and
    draws, and by how much the noise makes them wider than the exact posterior. Made by
    :meth:`flmc.Result.posterior`."""

    _law: ThetaLaw
    _rounds: TranscriptRounds
    _used: Array
    _coordinates: Coordinates | None = None
    layout: named_draws.Layout | None = None
    """Name and shape of every parameter in theta; None for a model without names."""
    exact: Gaussian | None = None
    """The exact posterior of every data set, in the model's coordinates; None where it is not
    known."""
    _predict: Predict | None = None
    of_gradients: tuple[Finding, ...] = ()
    """Findings of plan and run that doubt the server's estimates of the gradient, for errors that
    no transcript shows: a curved link, or a clip, shifts the mean if the devices' data differ."""

    @property
    def num_rounds(self) -> Array:
        """Number of rounds that the answer uses, of all chains together, (data set)."""
        return np.asarray(self._used.sum(axis=(1, 2)))

    @cached_property
    def mean(self) -> Array:
        """Mean of theta as the server knows it, (data set, dim), in the model's coordinates."""
        return self._to_model(self._law.mean / self._law.fit.unit)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of theta as the server knows it, (data set, dim, dim), in the model's
        coordinates."""
        return self._covariance_of(self._law.variances().mean(axis=2))

    @property
    def sd(self) -> Array:
        """Standard deviation of every entry of theta as the server knows it, (data set, dim)."""
        return np.asarray(np.sqrt(np.einsum("eii->ei", self.covariance)))

    @cached_property
    def width(self) -> Array:
        """Standard deviation of every entry of theta over that of the exact posterior, (data set,
        dim); the latter is computed from the curvature that the run's gradients show."""
        exact = np.einsum("eii->ei", self._covariance_of(1.0 / self._law.values))
        return np.asarray(self.sd / np.sqrt(exact))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Three shares of the total variance of theta, an array (data set) each, that add up to 1:
        ``data`` is the exact posterior's own variance, ``noise`` the part added because channel,
        quantisation and privacy hide where its mean is, ``curvature`` the part added because they
        hide how wide it is."""
        law = self._law
        gain = informed_share(law.values - law.floor, law.fit.weight[:, None])
        known = 1.0 / (law.floor + gain * (law.values - law.floor))
        data, noisy = (
            np.trace(self._covariance_of(each), axis1=1, axis2=2)
            for each in (1.0 / law.values, known)
        )
        total = np.square(self.sd).sum(axis=1)
        return {
            "data": data / total,
            "noise": (noisy - data) / total,
            "curvature": (total - noisy) / total,
        }

    def intervals(self, probability: float = 0.9) -> Array:
        """Central intervals of every entry of theta, as the server knows them.

        Parameters
        ----------
        probability
            Probability that an entry lies in its interval, between 0 and 1.

        Returns
        -------
        Array
            Lower and upper ends, (data set, dim, 2).
        """
        checks.between("probability", probability, 0.0, 1.0)
        to_entries = self._to_entries
        variances = np.square(to_entries) @ self._law.variances()
        half = _half_width(np.sqrt(variances), probability)
        return np.stack([self.mean - half, self.mean + half], axis=-1)

    def held(self, probability: float = 0.9) -> Array | None:
        """Probability that the exact posterior gives to each of the answer's intervals. Its average
        over data sets whose theta is drawn from the prior is the intervals' coverage.

        Parameters
        ----------
        probability
            Probability that the answer states for its intervals, between 0 and 1.

        Returns
        -------
        Array or None
            Probabilities, (data set, dim); None where the exact posterior is not known.
        """
        if self.exact is None:
            return None
        sd = np.sqrt(np.einsum("eii->ei", self.exact.covariance))
        ends = self.intervals(probability) - self.exact.mean[..., None]
        low, high = np.moveaxis(ends, -1, 0) / sd
        return np.asarray(ndtr(high) - ndtr(low))

    def draws(self, num_draws: int = 1000, seed: int = 0) -> Array:
        """Independent draws of theta from the law that the answer states, in the model's
        coordinates.

        Parameters
        ----------
        num_draws
            Number of draws for every data set.
        seed
            Seed of their random numbers.

        Returns
        -------
        Array
            Theta, (data set, draw, dim).
        """
        return self._to_model(self._draw(len(self._used), num_draws, seed))

    def _draw(self, num_sets: int, num_draws: int, seed: int) -> Array:
        """Independent draws of theta from the law that the answer states, for the first
        ``num_sets`` data sets, (data set, draw, dim), in the coordinates in which the chain was
        sampled."""
        checks.at_least("num_draws", num_draws, 1)
        drawn = [
            self._law.draw(e, num_draws, np.random.default_rng([seed, e])) for e in range(num_sets)
        ]
        return np.stack(drawn) / self._law.fit.unit[:num_sets, None]

    def predictions(self, num_draws: int = 1000, seed: int = 0) -> Array | None:
        """Predictions of the model at independent draws of theta from the answer, for the first
        data set.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.

        Returns
        -------
        Array or None
            Predictions, (draw, prediction); None for a model without predictions.
        """
        if self._predict is None:
            return None
        predicted = self._predict(self._draw(1, num_draws, seed))
        return None if predicted is None else np.asarray(predicted[0])

    def parameters(self, num_draws: int = 1000, seed: int = 0) -> dict[str, Array]:
        """Independent draws from the answer of the first data set, as a dictionary with an array
        for each parameter of the model by its name: (draw, ...), with the parameter's own axes
        behind that of draws.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        drawn = named_draws.by_parameter(self._first_draws(num_draws, seed), self.layout)
        return {name: each[0] for name, each in drawn.items()}

    def to_dataframe(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """Independent draws from the answer of the first data set as a pandas data frame: a row
        for each draw, with the draw's number and a column for each entry of theta.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        drawn = self._first_draws(num_draws, seed)
        return named_draws.to_dataframe(drawn, self.layout).drop(columns="chain")

    def to_arviz(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """Independent draws from the answer of the first data set as a DataTree of ArviZ with one
        chain, and the model's predictions at these draws; needs the extra ``arviz``.

        Parameters
        ----------
        num_draws, seed
            Number of draws, and the seed of their random numbers.
        """
        predicted = self.predictions(num_draws, seed)
        predicted = None if predicted is None else predicted[None]
        drawn = self._first_draws(num_draws, seed)
        return named_draws.to_arviz(drawn, self.layout, predicted)

    def _first_draws(self, num_draws: int, seed: int) -> Array:
        """Independent draws from the answer of the first data set, (1, draw, dim), in the model's
        coordinates; the first axis stands for a single chain."""
        return self._to_model(self._draw(1, num_draws, seed))

    def summary(self, probability: float = 0.9) -> Grid:
        """A table with mean, standard deviation, central interval and width of every entry, for the
        first data set.

        Parameters
        ----------
        probability
            Probability of the interval.
        """
        low, high = np.moveaxis(self.intervals(probability)[0], -1, 0)
        columns = (self.mean[0], self.sd[0], low, high, self.width[0])
        names = named_draws.entry_names(self.mean.shape[1], self.layout)
        rows = tuple(
            (name, *(f"{column[i]:.4g}" for column in columns)) for i, name in enumerate(names)
        )
        edges = (f"{50 * (1 - probability):.3g} %", f"{50 * (1 + probability):.3g} %")
        text = f"{self.num_rounds[0]} rounds; width: sd beside that of the exact posterior"
        return Grid(("entry", "mean", "sd", *edges, "width"), rows, text)

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings against the answer of the first data set."""
        return self.findings_of(0)

    def findings_of(self, data_set: int) -> tuple[Finding, ...]:
        """Findings against the answer of one data set: biased estimates of the gradient (from the
        findings of plan and run), a curvature that the rounds do not tell, gradients that are not
        linear in theta, or wide intervals.

        Parameters
        ----------
        data_set
            Number of the data set, from 0.
        """
        findings = list(self.of_gradients)
        degrees = float(self._law.degrees[data_set].min())
        if degrees < _FEWEST_DEGREES:
            short = "the rounds do not tell the curvature in some direction"
            text = (
                f"{short} ({degrees:.2g} degrees of freedom, {_FEWEST_DEGREES:g} are needed):"
                " intervals may be too wide there; plan more rounds, a larger step, or coordinates"
                " in which the posterior is round"
            )
            findings.append(Finding("curvature-unknown", "warning", text, short, {"df": degrees}))
        slope, error = (each[data_set] for each in self._bends)
        # A two-sided test of each slope at the level _LEVEL / dim: Bonferroni's correction for as
        # many slopes as theta has entries.
        limit = float(ndtri(np.array([1 - _LEVEL / (2 * len(slope))]))[0])
        shift = float((np.abs(slope) - limit * error).max())
        if shift > _OFF:
            short = "the gradient is not linear in theta: the posterior is not normal"
            text = (
                f"{short}, and the answer's mean may be off by {shift:.2g} posterior sd or more;"
                " use the draws of a chain at temperature 1, or a smaller step"
            )
            findings.append(Finding("not-quadratic", "warning", text, short, {"shift": shift}))
        width = float(self.width[data_set].max())
        if width > _WIDE:
            short = f"intervals are {width:.2g} times as wide as those of the exact posterior"
            text = f"{short}; more rounds, a higher SNR, or a larger epsilon make them narrower"
            findings.append(Finding("wide", "warning", text, short, {"width": width}, "use"))
        return tuple(findings)

    @cached_property
    def _bends(self) -> tuple[Array, Array]:
        """Slopes that reveal a gradient that is not linear in theta, one for every eigenvector of
        the fitted curvature, and their standard errors, both (data set, dim); a slope is 0 for a
        normal posterior, up to its standard error."""
        return self._rounds.bends(self._used, self._law.fit)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Findings because of which the answer of the first data set may be wrong; the draws of a
        chain at temperature 1 are then the better choice. They are: the rounds do not tell the
        curvature, the posterior is not normal, or estimates of the gradient are biased."""
        return tuple(each for each in self.findings if each.code in _DOUBTS)

    def rows(self, probability: float = 0.9) -> list[Row]:
        """Rows of a listing for the answer of the first data set: one for each of at most 12
        entries of theta, with mean, standard deviation, central interval and width; then the mean
        and the largest width of all entries, and the three parts of the variance.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        names = named_draws.entry_names(self.mean.shape[1], self.layout)
        ends = self.intervals(probability)[0]
        rows = [
            Row(
                name,
                f"{self.mean[0, i]:.4g} ± {self.sd[0, i]:.2g} ({low:.4g} to {high:.4g}),"
                f" width {self.width[0, i]:.3g}",
            )
            for i, (name, (low, high)) in enumerate(zip(names, ends, strict=True))
        ]
        if len(rows) > _MOST_ROWS:
            rest = Row("", f"and {len(rows) - _MOST_ROWS} more entries")
            rows = [*rows[:_MOST_ROWS], rest]
        mean, largest = self.width[0].mean(), self.width[0].max()
        width = f"{mean:.3g} times that of the exact posterior on average, {largest:.3g} at most"
        parts = {name: 100 * float(share[0]) for name, share in self.parts.items()}
        shares = (
            f"{parts['data']:.3g} % data, {parts['noise']:.2g} % channel, quantisation and privacy,"
            f" {parts['curvature']:.2g} % unknown curvature"
        )
        return [*rows, Row("width", width), Row("variance", shares)]

    def listing(self, probability: float = 0.9) -> Listing:
        """The answer of the first data set as rows for printing, with its findings.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        shown = (*self.rows(probability), *(each.row for each in self.findings))
        title = f"mean ± sd, {100 * probability:.3g} % interval"
        return Listing(f"what the server knows, {self.num_rounds[0]} rounds: {title}", shown)

    def to_document(self, probability: float = 0.9) -> dict[str, Any]:
        """The answer of the first data set as numbers, texts and lists by name, for JSON.

        Parameters
        ----------
        probability
            Probability of the intervals.
        """
        return {
            "entries": named_draws.entry_names(self.mean.shape[1], self.layout),
            "mean": self.mean[0].tolist(),
            "sd": self.sd[0].tolist(),
            "covariance": self.covariance[0].tolist(),
            "interval": probability,
            "ends": self.intervals(probability)[0].tolist(),
            "width": self.width[0].tolist(),
            "parts": {name: float(share[0]) for name, share in self.parts.items()},
            "num_rounds": int(self.num_rounds[0]),
            "findings": [each.to_document() for each in self.findings],
        }

    def __str__(self) -> str:
        return str(self.listing())

    @property
    def _to_entries(self) -> Array:
        """Matrices, (data set, dim, dim), that turn deviations of theta along the eigenvectors of
        the fitted curvature, in the regression's units, into deviations in the model's
        coordinates."""
        to_theta = self._law.directions / self._law.fit.unit[:, :, None]
        return to_theta if self._coordinates is None else self._coordinates.scale @ to_theta

    def _covariance_of(self, variances: Array) -> Array:
        """Covariances of theta in the model's coordinates, (data set, dim, dim), given the
        ``variances`` along the eigenvectors of the fitted curvature, (data set, dim), in the
        regression's units."""
        to_entries = self._to_entries
        return np.asarray((to_entries * variances[:, None]) @ _transposed(to_entries))

    def _to_model(self, theta: Array) -> Array:
        """Theta in the model's coordinates, in the shape of ``theta``, which is in the
        sampler's."""
        return theta if self._coordinates is None else np.asarray(self._coordinates.to_model(theta))


def _quadratic_prior(
    fit: GradientRegression, values: Array, directions: Array, prior: PriorGradient
) -> tuple[Array, Array]:
    """Curvature of the negative log prior, (data set, dim, dim), and its gradient, (data set, dim),
    both at the mean of theta over rounds. The curvature is a central difference of ``prior`` over a
    posterior standard deviation of each entry; units are those of the regression ``fit``."""
    dim = values.shape[1]
    theta = fit.theta / fit.unit
    reach = np.sqrt((np.square(directions) @ (1.0 / values)[..., None])[..., 0]) / fit.unit
    steps = reach[:, :, None] * np.eye(dim)
    places = np.concatenate([theta[:, None] + steps, theta[:, None] - steps, theta[:, None]], 1)
    gradient = prior(places)
    hessian = (gradient[:, :dim] - gradient[:, dim:-1]) / (2 * reach[:, :, None])
    hessian = (hessian + _transposed(hessian)) / (2 * fit.unit[:, :, None] * fit.unit[:, None])
    # A prior may have negative curvature in places, which is raised to 0. For independent entries
    # the curvature is diagonal, and no eigenvectors are needed.
    if np.count_nonzero(hessian) > np.count_nonzero(np.einsum("eii->ei", hessian)):
        bent, own = np.linalg.eigh(hessian)
        hessian = (own * np.maximum(bent, 0.0)[:, None]) @ _transposed(own)
    else:
        hessian = np.maximum(hessian, 0.0)
    return hessian, gradient[:, -1] / fit.unit


def _eigen(curvature: Array) -> tuple[Array, Array]:
    """Eigenvalues of symmetric matrices, (data set, dim), in ascending order, and their
    eigenvectors as columns, (data set, dim, dim). Eigenvalues below a small share of the largest
    are raised to it."""
    values, directions = np.linalg.eigh(curvature)
    return np.maximum(values, LEAST * np.abs(values).max(axis=1, keepdims=True)), directions


def _half_width(sd: Array, probability: float) -> Array:
    """Half the length of the central interval of a given ``probability``, (data set, dim), for an
    equal mixture of normal laws with mean 0 and the standard deviations ``sd`` (data set, dim,
    component of the mixture)."""
    low, high = np.zeros(sd.shape[:2]), sd.max(axis=2) * 10
    for _ in range(40):
        middle = (low + high) / 2
        less = 2 * ndtr(middle[..., None] / sd).mean(axis=2) - 1 < probability
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray((low + high) / 2)


def _across(directions: Array, vector: Array) -> Array:
    """Components of each ``vector`` (data set, dim) along the unit vectors in the columns of
    ``directions``, (data set, dim, dim): an array (data set, dim)."""
    return np.asarray(np.einsum("eij,ei->ej", directions, vector))


def _along(directions: Array, components: Array) -> Array:
    """The vectors, (data set, dim), whose ``components`` (data set, dim) belong to the unit vectors
    in the columns of ``directions`` (data set, dim, dim)."""
    return np.asarray(np.einsum("eij,ej->ei", directions, components))


def _turned(matrix: Array, directions: Array) -> Array:
    """Each ``matrix`` (data set, dim, dim) in the coordinates whose axes are the unit vectors in
    the columns of ``directions`` (data set, dim, dim)."""
    return np.asarray(_transposed(directions) @ matrix @ directions)


def _transposed(matrix: Array) -> Array:
    """Matrices with their last two axes exchanged."""
    return np.asarray(np.swapaxes(matrix, -1, -2))
