r"""The answer: what a server knows of theta after one short, noisy, private chain.

In round s the server stands at :math:`\theta_s` and receives an estimate of the gradient there,
:math:`g_s = (\theta_s - \theta_{s+1})/(\eta\kappa)`. Near the mode :math:`\hat\theta`

.. math:: g_s = H(\theta_s - \hat\theta) + e_s, \qquad e_s \sim N(0, V_s).

Theta follows the data, but the noise is a martingale difference, so that the likelihood of all
rounds is a product. Mode and curvature H follow from a regression of g on theta, in which every
round counts, and the posterior follows from them, widened by what noise leaves unknown.
``docs/answer.md`` derives it. It is computed from what was received anyway: it costs neither
privacy nor rounds.

Computations are in *noise units*, :math:`x = V^{1/2}\theta`, in which the noise of a round of
weight 1 has the identity as covariance, and the curvature is :math:`V^{-1/2} H V^{-1/2}`."""

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
"""Gradient of the negative log prior, (data set, place, dim), at theta of the same shape."""
Predict = Callable[[Array], Array | None]
"""Predictions of a model for its first data set, (1, draw, prediction), at theta (1, draw, dim);
None for a model that predicts nothing."""

_FEWEST_DEGREES = 12.0
"""Degrees of freedom of a principal curvature below which the intervals were not found to be
calibrated."""
_WIDE, _OFF = 2.0, 0.25
"""Largest width of an entry, relative to the exact posterior's, that brings no warning; and largest
shift of the mean by a gradient that is not linear, in posterior standard deviations, that brings
none."""
_NEAR = 4.0
"""Distance from the mode, in standard deviations of the kept rounds, that a chain must not exceed
any more for its rounds of the burn-in to count."""
_FLATTEST = 1e-12
"""Smallest eigenvalue of the correlation of theta's entries over rounds with which gradients can
still be regressed on it in double precision."""
_MOST_ROWS = 12
"""Largest number of entries of theta that are printed with an answer."""
OF_GRADIENTS = frozenset(
    (
        "clipped", "mean-not-sum", "mean-shift", "noise-law", "not-a-gradient", "not-finite",
        "not-linear", "random-gradient", "tails",
    )
)  # fmt: skip
"""Codes of findings about a plan or a run that speak of the estimates of gradients themselves, and
so against an answer as much as against a chain."""
_DOUBTS = OF_GRADIENTS | {"curvature-unknown", "not-quadratic"}
"""Codes of findings that say why an answer may not be right, where others only say it is wide."""
_LEVEL = 0.01
"""Probability with which a quadratic posterior gets the warning that its gradient is not linear."""


@dataclass(frozen=True)
class RoundSums:
    """Weighted sums over rounds, for every data set: all numbers of the rounds that a regression
    needs, and few enough to be kept while rounds go on."""

    rounds: Array
    """Number of rounds in the sums, (data set)."""
    weight: Array
    """Sum of the weights of the rounds in the sums, (data set)."""
    first: Array
    """Weighted sums over rounds of theta's deviations from a fixed point, followed by those of the
    gradient estimates, (data set, 2 dim)."""
    second: Array
    """Weighted sums over rounds of all products of two of the 2 dim numbers of a round, theta's
    deviations from a fixed point and the gradient estimates, (data set, 2 dim, 2 dim)."""

    def __add__(self, other: RoundSums) -> RoundSums:
        """Sums over the rounds of this object and of ``other``."""
        return RoundSums(
            self.rounds + other.rounds,
            self.weight + other.weight,
            self.first + other.first,
            self.second + other.second,
        )


class GradientRegression(NamedTuple):
    """Regression of gradients on theta, in noise units, for every data set.

    Attributes
    ----------
    unit
        Standard deviation of the noise of an entry in a round of weight 1, (data set, dim).
    weight
        Sum of all weights (data set): the mean gradient has the noise 1/weight.
    theta, gradient
        Weighted means, (data set, dim).
    scatter
        Weighted sum of products of deviations of theta, (data set, dim, dim).
    curvature
        Symmetric curvature that fits best, (data set, dim, dim).
    """

    unit: Array
    weight: Array
    theta: Array
    gradient: Array
    scatter: Array
    curvature: Array


@dataclass(frozen=True)
class TranscriptRounds:
    """Rounds of a transcript as a regression needs them: weights (data set or 1, round), and the
    least and the largest noise of a round of weight 1, (data set or 1, dim)."""

    seen: Transcript
    weight: Array
    least_noise: Array
    most_noise: Array

    @classmethod
    def of(cls, seen: Transcript) -> TranscriptRounds:
        """The rounds of a transcript. All entries of a round share one weight, 1 over their mean
        noise."""
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
        """Deviations of theta from the fixed point ``centre`` of its data set, followed by the
        server's estimates of the gradient at that theta, of some ``rounds``: (data set, chain,
        round, 2 dim)."""
        positions, dim = self.seen.positions, self.seen.positions.shape[3]
        before = positions[:, :, :-1][:, :, rounds]
        both = np.empty((*before.shape[:3], 2 * dim))
        np.subtract(before, self.centre[:, None, None], out=both[..., :dim])
        np.subtract(before, positions[:, :, 1:][:, :, rounds], out=both[..., dim:])
        both[..., dim:] /= self.seen.step_sizes[rounds, None]
        return both

    def sums(self, rounds: slice, used: Array | None = None) -> RoundSums:
        """Weighted sums over some ``rounds``; ``used`` (data set, chain, round) is True for those
        that count (None: all)."""
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
        """Regression of gradients on theta from ``sums`` over rounds."""
        dim, total = sums.first.shape[1] // 2, sums.weight[:, None]
        first = sums.first / total
        centred = sums.second - sums.first[:, :, None] * first[:, None]
        scatter, products = centred[:, :dim, :dim], centred[:, :dim, dim:]
        noise = np.broadcast_to(self.most_noise, (len(first), dim))
        if (self.least_noise < self.most_noise).any():
            # How noisy random symbols are depends on data; the residuals tell it, between bounds.
            squares = np.einsum("eii->ei", centred[:, dim:, dim:])
            explained = np.einsum("eji,eji->ei", products, np.linalg.solve(scatter, products))
            free = sums.rounds[:, None] - dim - 1
            noise = np.clip((squares - explained) / free, self.least_noise, noise)
        unit = np.sqrt(noise)
        scatter = scatter * unit[:, :, None] * unit[:, None, :]
        values, directions = np.linalg.eigh(scatter)
        turned = _turned(products * unit[:, :, None] / unit[:, None, :], directions)
        # The best symmetric fit solves H S + S H = P + P', which is diagonal along S.
        fitted = (turned + _transposed(turned)) / (values[:, :, None] + values[:, None, :])
        curvature = directions @ fitted @ _transposed(directions)
        theta, gradient = self.centre + first[:, :dim], first[:, dim:]
        weight = sums.weight
        return GradientRegression(unit, weight, theta * unit, gradient / unit, scatter, curvature)

    def settled(self, fit: GradientRegression, burn_in: slice) -> Array:
        """Whether each round of the burn-in counts, (data set, chain, round): it does if the chain
        is never again farther from the mode than four standard deviations of the kept rounds.
        Before, gradients may be clipped, or the posterior not quadratic."""
        values, directions = _eigen(fit.curvature)
        mode = fit.theta - _along(directions, _across(directions, fit.gradient) / values)
        spread = np.einsum("eij,eij->ej", directions, fit.scatter @ directions)
        to_sd = directions / np.sqrt(spread / fit.weight[:, None])[:, None] * fit.unit[:, :, None]
        before = self.seen.positions[:, :, :-1][:, :, burn_in]
        away = (before - (mode / fit.unit)[:, None, None]) @ to_sd[:, None]
        outside = (np.abs(away) > _NEAR).any(axis=3)
        return ~np.flip(np.logical_or.accumulate(np.flip(outside, axis=2), axis=2), axis=2)

    def bends(self, used: Array, fit: GradientRegression) -> tuple[Array, Array]:
        """Statistics that reveal a gradient that is not linear: slopes and their standard errors,
        both (data set, dim), one for every eigenvector of the fitted curvature. The received
        gradients less the linear function in ``fit`` are regressed, along the eigenvector, on the
        squared distance of theta from its mean, in units in which the posterior has standard
        deviation 1 along it. Only the rounds in ``used`` (data set, chain, round) count. A third
        derivative of the log posterior moves a slope away from 0; under a linear gradient a slope
        is a sum of martingale differences."""
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
    """The answer of every data set from its transcript and the gradient of the negative log prior,
    both in the sampler's coordinates, as are the ``exact`` posterior, where it is known, and what
    the model can ``predict``; ``InvalidSetting`` where the rounds are too few."""
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
    """Raise ``InvalidSetting`` unless gradients can be regressed on theta in every data set: enough
    rounds count, and theta moved in every direction."""
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
    """The answer of every data set of a run from its kept draws, (data set, chain, round, dim), and
    its positions during the burn-in, both in the sampler's coordinates; only the first ``sets`` and
    their first ``chains`` are used, all by default. With ``by_chain`` every chain is answered by
    itself, as a data set of its own. Of the model only prior, coordinates, names, predictions and
    the known posterior are used; ``InvalidSetting`` where the draws do not tell what the server
    saw."""
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
    """The answer of a federation's chain from its kept draws, (draw, dim), its positions during the
    burn-in, (round, dim), and what was recorded of every round: the number of devices that
    answered, (round), and the gain with which symbols arrived, (round, 1 or dim). The server has no
    data, so that a prior may take the place of the model. The other arguments are those of
    :func:`find_answer`: there is one data set, and one chain."""
    seen = Transcript.of_rounds(plan, draws, burn_in, num_active, gain)
    if isinstance(model, Prior):
        return answer_of(seen, model.gradient)
    if model.coordinates is not None:
        raise InvalidSetting("a federation samples in the model's own coordinates: give that model")
    return _answer_of_model(seen, model, model.posterior)


def _answer_of_model(seen: Transcript, model: Model, exact: Gaussian | None) -> Answer:
    """The answer with what a model tells beside its data: prior, coordinates, names, and how it
    predicts; ``exact`` are the posteriors of the data sets of the transcript."""

    def prior(theta: Array) -> Array:
        return model.num_devices * model.prior_share(theta)

    def predict(theta: Array) -> Array | None:
        return model.predict(theta, slice(0, 1))

    return answer_of(seen, prior, model.coordinates, model.layout, exact, predict)


class ThetaLaw(NamedTuple):
    r"""Law of theta given a transcript, in noise units, for every data set.

    The curvature is :math:`H = \hat H^{1/2} W \hat H^{1/2}` with a Wishart matrix W whose degrees
    of freedom differ between principal directions, because a chain tells more about a steep
    direction than about a flat one. Given H, theta is normal.

    Attributes
    ----------
    fit
        The regression.
    values, directions
        Principal curvatures (data set, dim), and their directions as columns.
    degrees
        Degrees of freedom of each principal curvature, (data set, dim).
    precision
        Curvature of the negative log prior, (data set, dim, dim).
    pull
        Its gradient at the mean of theta, (data set, dim).
    """

    fit: GradientRegression
    values: Array
    directions: Array
    degrees: Array
    precision: Array
    pull: Array

    @classmethod
    def of(cls, fit: GradientRegression, prior: PriorGradient) -> ThetaLaw:
        """Law of theta from a regression ``fit`` of received gradients on theta, and ``prior``, the
        gradient of the negative log prior."""
        values, directions = _eigen(fit.curvature)
        precision, pull = _quadratic_prior(fit, values, directions, prior)
        # The likelihood is taken to be log-concave: no direction is flatter than the prior.
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
        """Mean of theta if the curvature of the log posterior were the most likely one, (data set,
        dim), in the regression's units."""
        prior, seen = (
            _across(self.directions, each) for each in (self.pull, self.fit.gradient - self.pull)
        )
        data = self.values - self.floor
        gain = informed_share(data, self.fit.weight[:, None])
        way = (prior + gain * seen) / (self.floor + gain * data)
        return np.asarray(self.fit.theta - _along(self.directions, way))

    def variances(self) -> Array:
        """Variances of theta along the eigenvectors of the fitted curvature, (data set, dim, node):
        one for each of the ``NODES`` quantiles that stand for the law of a curvature, which is
        known with an error only."""
        return answer_law.variances(self.values, self.floor, self.degrees, self.fit.weight)

    def draw(self, e: int, num_draws: int, rng: np.random.Generator) -> Array:
        """Draws of theta of data set ``e``, (draw, dim), each with a curvature of its own."""
        fit, dim = self.fit, self.values.shape[1]
        # Bartlett's decomposition, from the best known direction to the least.
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
    """What the server of each data set knows of theta: mean, covariance, intervals and draws, with
    what widens them beside the exact posterior. Made by :meth:`flmc.Result.posterior`."""

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
    """Findings of plan and run that speak against estimates of the gradient, which no transcript
    can show: a shift of the mean by a curved link, or by a clip, over unlike devices."""

    @property
    def num_rounds(self) -> Array:
        """Number of rounds that the answer uses, of all chains together, (data set)."""
        return np.asarray(self._used.sum(axis=(1, 2)))

    @cached_property
    def mean(self) -> Array:
        """Mean of theta, (data set, dim)."""
        return self._to_model(self._law.mean / self._law.fit.unit)

    @cached_property
    def covariance(self) -> Array:
        """Covariance of theta, (data set, dim, dim)."""
        return self._covariance_of(self._law.variances().mean(axis=2))

    @property
    def sd(self) -> Array:
        """Standard deviation of every entry, (data set, dim)."""
        return np.asarray(np.sqrt(np.einsum("eii->ei", self.covariance)))

    @cached_property
    def width(self) -> Array:
        """Standard deviation of every entry over that of the posterior that a server without any
        noise would know, (data set, dim), by what the run itself tells of the curvature."""
        exact = np.einsum("eii->ei", self._covariance_of(1.0 / self._law.values))
        return np.asarray(self.sd / np.sqrt(exact))

    @cached_property
    def parts(self) -> dict[str, Array]:
        """Shares of the variance, all entries together, (data set) each: ``data`` is that of the
        exact posterior, ``noise`` what channel, quantisation and privacy leave unknown of its mean,
        ``curvature`` what they leave unknown of its width."""
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
        """Central intervals of all entries.

        Parameters
        ----------
        probability
            Probability of an interval, between 0 and 1.

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
        """Probability with which the exact posterior puts theta into the intervals. Averaged over
        data sets that are drawn from the prior, it is their coverage.

        Parameters
        ----------
        probability
            As for :meth:`intervals`.

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
        """Independent draws of theta.

        Parameters
        ----------
        num_draws
            Draws of every data set.
        seed
            Seed of their random numbers.

        Returns
        -------
        Array
            Theta, (data set, draw, dim).
        """
        return self._to_model(self._draw(len(self._used), num_draws, seed))

    def _draw(self, num_sets: int, num_draws: int, seed: int) -> Array:
        """Draws of theta of the first data sets, in the sampler's coordinates, (data set, draw,
        dim)."""
        checks.at_least("num_draws", num_draws, 1)
        drawn = [
            self._law.draw(e, num_draws, np.random.default_rng([seed, e])) for e in range(num_sets)
        ]
        return np.stack(drawn) / self._law.fit.unit[:num_sets, None]

    def predictions(self, num_draws: int = 1000, seed: int = 0) -> Array | None:
        """Predictions of the model at :meth:`draws` of the first data set.

        Parameters
        ----------
        num_draws, seed
            As for :meth:`draws`.

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
        """:meth:`draws` of the first data set by the names of parameters, (draw, ...).

        Parameters
        ----------
        num_draws, seed
            As for :meth:`draws`.
        """
        drawn = named_draws.by_parameter(self._first_draws(num_draws, seed), self.layout)
        return {name: each[0] for name, each in drawn.items()}

    def to_dataframe(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """:meth:`draws` of the first data set as a pandas data frame: draw, and every entry.

        Parameters
        ----------
        num_draws, seed
            As for :meth:`draws`.
        """
        drawn = self._first_draws(num_draws, seed)
        return named_draws.to_dataframe(drawn, self.layout).drop(columns="chain")

    def to_arviz(self, num_draws: int = 1000, seed: int = 0) -> Any:
        """:meth:`draws` of the first data set as a DataTree of ArviZ, one chain, with the model's
        predictions at them; needs the extra ``arviz``.

        Parameters
        ----------
        num_draws, seed
            As for :meth:`draws`.
        """
        predicted = self.predictions(num_draws, seed)
        predicted = None if predicted is None else predicted[None]
        drawn = self._first_draws(num_draws, seed)
        return named_draws.to_arviz(drawn, self.layout, predicted)

    def _first_draws(self, num_draws: int, seed: int) -> Array:
        """Draws of the first data set as one chain, (1, draw, dim), in the model's coordinates."""
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
        """Findings against the answer of a data set: what plan and run say against estimates of
        the gradient, curvature that the rounds do not tell, gradients that are not linear in theta,
        intervals that are wide.

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
        # Bonferroni over the principal directions, two-sided.
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
        """Slopes by which the gradient bends, and their standard errors, (data set, dim)."""
        return self._rounds.bends(self._used, self._law.fit)

    @property
    def doubts(self) -> tuple[Finding, ...]:
        """Findings because of which the answer of the first data set may not be right, so that the
        draws of a chain at temperature 1 should be used: the rounds do not tell the curvature, the
        posterior is not normal, or estimates of the gradient are biased."""
        return tuple(each for each in self.findings if each.code in _DOUBTS)

    def rows(self, probability: float = 0.9) -> list[Row]:
        """Rows of the answer of the first data set: entries with mean, standard deviation, central
        interval and width, at most 12, then the width of all and its parts.

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
        """The answer of the first data set as plain values, for JSON.

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
        """Matrices that take deviations along principal directions to deviations of theta in the
        model's coordinates, (data set, dim, dim)."""
        to_theta = self._law.directions / self._law.fit.unit[:, :, None]
        return to_theta if self._coordinates is None else self._coordinates.scale @ to_theta

    def _covariance_of(self, variances: Array) -> Array:
        """Covariances of theta, (data set, dim, dim), with these variances along principal
        directions, (data set, dim)."""
        to_entries = self._to_entries
        return np.asarray((to_entries * variances[:, None]) @ _transposed(to_entries))

    def _to_model(self, theta: Array) -> Array:
        """Theta in the model's coordinates, given ``theta`` in the sampler's."""
        return theta if self._coordinates is None else np.asarray(self._coordinates.to_model(theta))


def _quadratic_prior(
    fit: GradientRegression, values: Array, directions: Array, prior: PriorGradient
) -> tuple[Array, Array]:
    """Curvature of the negative log prior, (data set, dim, dim), and its gradient, (data set, dim),
    at the mean of theta, in noise units, by differences over a posterior standard deviation."""
    dim = values.shape[1]
    theta = fit.theta / fit.unit
    reach = np.sqrt((np.square(directions) @ (1.0 / values)[..., None])[..., 0]) / fit.unit
    steps = reach[:, :, None] * np.eye(dim)
    places = np.concatenate([theta[:, None] + steps, theta[:, None] - steps, theta[:, None]], 1)
    gradient = prior(places)
    hessian = (gradient[:, :dim] - gradient[:, dim:-1]) / (2 * reach[:, :, None])
    hessian = (hessian + _transposed(hessian)) / (2 * fit.unit[:, :, None] * fit.unit[:, None])
    # A prior may be flat or bent the wrong way somewhere; independent entries need no eigenvectors.
    if np.count_nonzero(hessian) > np.count_nonzero(np.einsum("eii->ei", hessian)):
        bent, own = np.linalg.eigh(hessian)
        hessian = (own * np.maximum(bent, 0.0)[:, None]) @ _transposed(own)
    else:
        hessian = np.maximum(hessian, 0.0)
    return hessian, gradient[:, -1] / fit.unit


def _eigen(curvature: Array) -> tuple[Array, Array]:
    """Principal curvatures, in rising order, none smaller than a small share of the largest, and
    their directions as columns."""
    values, directions = np.linalg.eigh(curvature)
    return np.maximum(values, LEAST * np.abs(values).max(axis=1, keepdims=True)), directions


def _half_width(sd: Array, probability: float) -> Array:
    """Half the length of the central interval that holds a probability under an equal mixture of
    normal laws with mean 0 and the standard deviations ``sd`` (data set, dim, node), mixed over the
    last axis: (data set, dim), by bisection."""
    low, high = np.zeros(sd.shape[:2]), sd.max(axis=2) * 10
    for _ in range(40):
        middle = (low + high) / 2
        less = 2 * ndtr(middle[..., None] / sd).mean(axis=2) - 1 < probability
        low, high = np.where(less, middle, low), np.where(less, high, middle)
    return np.asarray((low + high) / 2)


def _across(directions: Array, vector: Array) -> Array:
    """Components of vectors, (data set, dim), along ``directions``, whose columns are unit vectors,
    (data set, dim, dim)."""
    return np.asarray(np.einsum("eij,ei->ej", directions, vector))


def _along(directions: Array, components: Array) -> Array:
    """Vectors, (data set, dim), with given components along ``directions``, whose columns are unit
    vectors, (data set, dim, dim)."""
    return np.asarray(np.einsum("eij,ej->ei", directions, components))


def _turned(matrix: Array, directions: Array) -> Array:
    """Matrices, (data set, dim, dim), in the coordinates of ``directions``, whose columns are unit
    vectors."""
    return np.asarray(_transposed(directions) @ matrix @ directions)


def _transposed(matrix: Array) -> Array:
    """Matrices with their last two axes exchanged."""
    return np.asarray(np.swapaxes(matrix, -1, -2))
