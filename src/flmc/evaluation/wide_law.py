r"""The law of an answer of many entries: what a server knows of theta where the rounds are too few
to tell the curvature of every direction.

With hundreds of entries, a regression of gradients on theta has more unknowns than rounds. So the
curvature D of the likelihood gets a prior of its own: it is a number c, the same in every
direction, plus a random symmetric matrix whose entries have the standard deviation :math:`\tau`
(:math:`\sqrt2\,\tau` on the diagonal). Both numbers follow from all rounds: c by least squares,
:math:`\tau` as the most likely value. Given them, D is normal, and its mean is :math:`c` plus a
matrix of low rank, of as many directions as there are rounds at most. What is not known of D makes
the data's part of the gradient uncertain at the mode, and is added to the noise there.

The eigenvalues of such a matrix fill the interval :math:`c \pm 2\tau\sqrt m` for m entries. Where
this interval is not well within the positive numbers, the assumption fails: a few directions may be
much steeper than all others without the rounds showing it. Such answers are refused, because their
intervals were found not to hold. ``docs/answer.md`` derives all this.

The memory needed is proportional to entries times rank."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.special import ndtri
from flmc.evaluation.theta_law import PriorGradient
from flmc.evaluation.transcript import Transcript
from flmc.models.affine import Coordinates
from flmc.planning.answer_law import MOST_ANSWERED
from flmc.planning.step_size import Curvature

_MOST_UNLIKE = 0.5
"""Half the range of the curvatures, as a share of their mean, above which an answer is refused: up
to 0.5 intervals of 90 % were found to hold 86 to 91 %, from 0.55 on as little as 77 %."""
_LIKELY = 2.0
"""Log likelihood by which a value of tau may fall short of the most likely one and still count as
possible (95 % of the true values): answers are judged by the largest such value, so that rounds
which tell nothing of tau do not pass for a round posterior."""
_MOST_BIAS = 0.2
"""Largest share of the mean curvature by least squares that may be bias; answers with more are
refused. The share is (2 - q)/(n q) for n rounds, if q is the step size times the curvature. With
more bias, chains have crossed the posterior less than five times, and intervals were found to hold
too little where curvatures differ."""
_FLATTEST = 1e-10
"""Smallest sum of squares along a direction, as a share of the largest, with which the direction
counts as present: rounding errors are smaller."""
_LEAST = 1e-3
"""Smallest eigenvalue of the estimated curvature, as a share of the mean curvature; smaller ones
are raised to it."""
_SPREADS = np.geomspace(1e-4, 1.0, 61)
"""Values of tau/c, the spread of the curvature's entries over its mean, that are tried; the most
likely one is taken."""
_COUPLED = 1e-6
"""Largest change of the prior's gradient in the other entries when every second entry of theta is
moved, as a share of its change in the moved entries, with which entries count as independent under
the prior; with a larger one, an answer is refused."""
_MOST_WORK = 4e9
"""Largest product of the number of entries of theta and the squared rank of the kept positions (at
most their number, or the number of entries) for which an answer is computed, in some twenty times
as many operations, up to a minute; with more, an answer is refused."""
_MOST_ITERATIONS = 200
"""Largest number of fixed-point iterations for the mean curvature c; five are usual."""
_STEPS = 4
"""Number of times that the error of the curvature and the law of theta are computed in turn,
because each depends on the other. The second time changes the widths by a few per cent, the fourth
by less than one in a thousand."""


class LowRankNormal(NamedTuple):
    """A normal law whose covariance is diagonal but for few directions: S (I + B (F - I) B') S with
    the diagonal S = ``scale``, the orthonormal columns of B = ``basis`` and the diagonal F =
    ``factors``.

    Attributes
    ----------
    mean, scale
        Mean, and standard deviations without the directions of ``basis``, (dim).
    basis
        Orthonormal columns, (dim, rank).
    factors
        Factor of the variance along each column, relative to directions orthogonal to all columns,
        (rank), all positive.
    """

    mean: Array
    scale: Array
    basis: Array
    factors: Array

    def variances_along(self, rows: Array) -> Array:
        """Variances, (function), of linear functions of theta, whose coefficients are ``rows``
        (function, dim)."""
        scaled = rows * self.scale
        inner = np.square(scaled @ self.basis) @ (self.factors - 1.0)
        return np.asarray(np.square(scaled).sum(axis=1) + inner)

    @property
    def variances(self) -> Array:
        """Variance of every entry of theta, (dim)."""
        inner = np.square(self.basis) @ (self.factors - 1.0)
        return np.asarray(np.square(self.scale) * (1.0 + inner))

    @property
    def covariance(self) -> Array:
        """The whole covariance matrix, (dim, dim)."""
        scaled = self.scale[:, None] * self.basis
        return np.diag(np.square(self.scale)) + (scaled * (self.factors - 1.0)) @ scaled.T

    def times(self, vector: Array) -> Array:
        """Product of the covariance and a ``vector`` (dim), as an array (dim)."""
        scaled = self.scale * vector
        inner = self.basis @ ((self.factors - 1.0) * (self.basis.T @ scaled))
        return np.asarray(self.scale * (scaled + inner))

    def draw(self, num_draws: int, rng: np.random.Generator) -> Array:
        """Independent draws of theta from this law, (draw, dim)."""
        normal = rng.standard_normal((num_draws, len(self.mean)))
        inner = ((normal @ self.basis) * (np.sqrt(self.factors) - 1.0)) @ self.basis.T
        return np.asarray(self.mean + self.scale * (normal + inner))


class ShrunkCurvature(NamedTuple):
    """What the rounds of one data set tell about the curvature D of its likelihood, in units in
    which every entry of an estimate of the gradient has noise of variance 1 in a round of weight 1.

    Attributes
    ----------
    basis
        Orthonormal columns, (dim, rank): the directions in which theta or the gradients moved.
    scatter
        Sum of squares of theta about its mean along each column, weighted by rounds, (rank).
    mean, deviation
        The numbers c and tau of the prior of D.
    largest
        The largest tau that the rounds do not contradict.
    matrix
        Conditional mean of D in the coordinates of the columns, (rank, rank); along directions
        orthogonal to them it is c.
    """

    basis: Array
    scatter: Array
    mean: float
    deviation: float
    largest: float
    matrix: Array

    @classmethod
    def of(cls, theta: Array, gradient: Array, precision: Array, weight: float) -> ShrunkCurvature:
        """Curvature from theta and the likelihood's gradients, both (round, dim), less their means
        over rounds and times the root of the round's weight; ``weight`` is the sum of these
        weights, and ``precision`` the prior's curvature, (dim). ``InvalidSetting`` where even the
        mean of the curvature is not known."""
        basis, scatter = _directions(theta)
        if basis.shape[1] < theta.shape[1]:
            # Gradients lie in the span of theta but for that of the last round, and where the
            # prior's precision or the noise differs between entries: missing directions are added.
            more, size = _directions(gradient - (gradient @ basis) @ basis.T)
            more = more[:, size > _FLATTEST * np.square(gradient).sum()]
            basis = np.hstack([basis, more])
            scatter = np.concatenate([scatter, np.zeros(more.shape[1])])
        products = (theta @ basis).T @ (gradient @ basis)
        total = scatter.sum()
        mean = _mean_curvature(float(np.trace(products)), float(total), precision)
        if not mean * total > (1.0 - _MOST_BIAS) * np.trace(products):
            raise InvalidSetting(
                f"the rounds do not tell the mean curvature of {theta.shape[1]} entries: chains"
                " cross the posterior too rarely; plan more rounds or a larger step, or use the"
                " draws of the chain"
            )
        pairs = scatter[:, None] + scatter
        seen = products + products.T - 2 * mean * np.diag(scatter)
        outside = theta.shape[1] - basis.shape[1]
        chance = [_evidence(pairs, seen, np.square(mean * share), outside) for share in _SPREADS]
        deviation = mean * float(_SPREADS[int(np.argmax(chance))])
        possible = np.array(chance) > max(chance) - _LIKELY
        largest = mean * float(_SPREADS[possible][-1])
        fitted = mean * np.eye(len(scatter)) + seen / (pairs + deviation**-2.0)
        values, turned = np.linalg.eigh(fitted)
        matrix = (turned * np.maximum(values, _LEAST * mean)) @ turned.T
        return cls(basis, scatter, mean, deviation, largest, matrix)

    @property
    def half_range(self) -> float:
        """Half the range of D's eigenvalues by the semicircle law of random symmetric matrices, as
        a share of their mean, for the largest tau that the rounds allow: 0 where all directions are
        alike; at 1 the range reaches zero."""
        return 2.0 * self.largest / self.mean * float(np.sqrt(len(self.basis)))

    def errors(self, square: Array, outside: float) -> tuple[Array, float]:
        """Variances of the error of D times a vector: along every column of the basis, (rank), and
        along any direction orthogonal to them. ``square`` (rank) are the squares of the vector's
        components along the columns, ``outside`` is the sum of its other squares."""
        law = self.deviation**-2.0
        pairs = 1.0 / (self.scatter[:, None] + self.scatter + law)
        np.fill_diagonal(pairs, 1.0 / (self.scatter + law / 2.0))
        alone = 1.0 / (self.scatter + law)
        return pairs @ square + alone * outside, float(alone @ square + outside / law)


def _mean_curvature(product: float, scatter: float, precision: Array) -> float:
    """Mean curvature c of the likelihood, or 0 where the rounds show none. ``product`` is the sum
    over rounds and entries of theta times gradient, ``scatter`` that of squares of theta, both
    about the means over rounds.

    Least squares, ``product``/``scatter``, overestimates c: the means are estimated for every
    entry, and theta follows the noise (Nickell's bias of panels). A chain rests at the posterior's
    mode: the mean of theta is off by the mean noise over the posterior's curvature, the sum of c
    and the prior's ``precision`` (dim). So ``product`` is too large by one over that curvature for
    every entry, however large the noise."""
    mean = product / scatter if scatter > 0 else 0.0
    for _ in range(_MOST_ITERATIONS):
        if not mean > 0:
            return 0.0
        taken = float((1.0 / (precision + mean)).sum())
        mean, before = (product - taken) / scatter, mean
        if abs(mean - before) < 1e-9 * before:
            return mean
    return 0.0


def _directions(rows: Array) -> tuple[Array, Array]:
    """Orthonormal directions in which ``rows`` (row, dim) have an extent, as columns (dim, rank),
    and the sum of squares of the rows along each."""
    count, dim = rows.shape
    if count >= dim:
        size, basis = np.linalg.eigh(rows.T @ rows)
    else:
        size, left = np.linalg.eigh(rows @ rows.T)
        kept = size > _FLATTEST * max(size[-1], 1e-300)
        size = size[kept]
        basis = (rows.T @ left[:, kept]) / np.sqrt(size)
    return np.asarray(basis), np.maximum(size, 0.0)


def _evidence(pairs: Array, seen: Array, variance: float, outside: int) -> float:
    """Log likelihood of all rounds, up to a constant, if the deviations of the curvature from its
    mean have this ``variance``. ``pairs`` (rank, rank) are the sums of scatter of two directions,
    ``seen`` (rank, rank) the sums of products, made symmetric, of theta and that part of gradients
    that the mean curvature does not explain; ``outside`` is the number of directions without
    scatter."""
    known = np.log1p(variance * pairs)
    gain = variance * np.square(seen) / (1.0 + variance * pairs)
    # The curvature is symmetric: its entries off the diagonal occur twice in the sums, and count
    # once. An entry on the diagonal has twice the variance, and half of the scatter and of the
    # product that ``pairs`` and ``seen`` hold.
    total = gain.sum() - known.sum()
    diagonal = np.diag(known).sum()
    alone = np.log1p(variance * np.diag(pairs) / 2.0).sum()
    return float((total - diagonal) / 4.0 - outside * alone / 2.0)


class WideLaw(NamedTuple):
    """Law of theta of one data set, in the sampler's coordinates.

    Attributes
    ----------
    curvature
        What the rounds tell about the likelihood's curvature.
    law
        Law of theta given the transcript.
    known
        Law of theta given the transcript, as if the estimated curvature were known to be true.
    exact
        Law of theta as if the gradients had no noise: the exact posterior, as far as the rounds
        show it.
    """

    curvature: ShrunkCurvature
    law: LowRankNormal
    known: LowRankNormal
    exact: LowRankNormal


def _law_of(
    theta: Array, gradient: Array, weight: Array, unit: Array, prior: Callable[[Array], Array]
) -> WideLaw:
    """Law of theta from its values and the estimates of the gradient there, (round, dim), the
    rounds' weights, (round), the standard deviation of the noise of an estimate of weight 1, (dim),
    and ``prior``, a function from many theta, (point, dim), to the gradients of the negative log
    prior there."""
    total, root = float(weight.sum()), np.sqrt(weight)[:, None]
    place = weight @ theta / total
    data = gradient - prior(theta)
    slope = weight @ data / total / unit
    precision = _prior_precision(prior, place, unit)
    curvature = ShrunkCurvature.of(
        (theta - place) * unit * root, (data / unit - slope) * root, precision, total
    )
    if curvature.half_range > _MOST_UNLIKE:
        raise InvalidSetting(
            f"curvatures differ too much between directions for an answer of {len(unit)} entries"
            f" from {len(theta)} rounds (by {curvature.half_range:.2g} of their mean to each side,"
            f" {_MOST_UNLIKE:g} is the limit): use the draws of the chain, or coordinates in which"
            " the posterior is round"
        )
    pull = prior(place[None])[0] / unit

    def law(noise: Array, outside: float) -> LowRankNormal:
        return _given(curvature, precision, pull, slope, noise, outside)

    rank = len(curvature.scatter)
    known = found = law(np.full(rank, 1.0 / total), 1.0 / total)
    for _ in range(_STEPS):
        # The error of D times the distance of theta from its mean over rounds is further noise of
        # the gradient. Its variance follows from that distance's mean square, in the basis and
        # outside.
        inside = curvature.basis.T @ found.mean
        rows = found.variances_along(curvature.basis.T)
        square = np.square(inside) + rows
        rest = np.square(found.mean).sum() + found.variances.sum() - square.sum()
        errors, other = curvature.errors(square, max(float(rest), 0.0))
        found = law(1.0 / total + errors, 1.0 / total + other)
    laws = (found, known, law(np.zeros(rank), 0.0))
    return WideLaw(curvature, *(_moved(each, place, unit) for each in laws))


def _given(
    curvature: ShrunkCurvature,
    precision: Array,
    pull: Array,
    slope: Array,
    noise: Array,
    outside: float,
) -> LowRankNormal:
    """Law of theta less its mean over rounds, if the mean of the likelihood's gradient has the
    noise variances ``noise`` (rank) along the columns of the curvature's basis, and ``outside``
    along any other direction. ``precision`` (dim) is the prior's curvature, ``pull`` (dim) its
    gradient and ``slope`` (dim) the likelihood's, at the mean of theta."""
    basis, matrix, mean = curvature.basis, curvature.matrix, curvature.mean
    share = np.linalg.solve(matrix + np.diag(noise), matrix).T  # D (D + noise)^-1
    information, other = share @ matrix, mean / (mean + outside)
    diagonal = precision + other * mean
    # The precision is diagonal, plus a matrix in the span of the basis: its inverse root follows
    # from an orthonormal basis of the span in units of the diagonal.
    frame, triangle = np.linalg.qr(basis / np.sqrt(diagonal)[:, None])
    inner = information - other * mean * np.eye(len(matrix))
    values, turned = np.linalg.eigh(triangle @ ((inner + inner.T) / 2) @ triangle.T)
    factors = 1.0 / np.maximum(1.0 + values, 1e-12)
    law = LowRankNormal(pull, 1.0 / np.sqrt(diagonal), frame @ turned, factors)
    along = basis.T @ slope
    informed = other * slope + basis @ (share @ along - other * along)
    return law._replace(mean=-law.times(pull + informed))


def _moved(law: LowRankNormal, place: Array, unit: Array) -> LowRankNormal:
    """Law of theta, from the ``law`` of its deviations from ``place`` (dim) in noise units; a noise
    unit is 1/``unit`` (dim) of theta's units."""
    return law._replace(mean=place + law.mean / unit, scale=law.scale / unit)


def _prior_precision(prior: Callable[[Array], Array], place: Array, unit: Array) -> Array:
    """Curvature of the negative log prior at the theta ``place``, in noise units, (dim), from
    differences of its gradient ``prior``; ``unit`` (dim) times theta is theta in noise units.
    ``InvalidSetting`` for a prior whose entries are not independent."""
    size = 1e-3 * (1.0 + np.abs(place))
    odd = np.arange(len(place)) % 2
    curved = np.zeros_like(place)
    for still in (odd == 0, odd == 1):
        moves = np.where(still, 0.0, size)
        change = prior(np.stack([place + moves, place - moves]))
        difference = change[0] - change[1]
        if np.abs(difference[still]).max() > _COUPLED * np.abs(difference).max():
            raise InvalidSetting(
                f"an answer of more than {MOST_ANSWERED} entries needs a prior with independent"
                " entries: use the draws of the chain"
            )
        curved[~still] = difference[~still] / (2 * size[~still])
    return np.asarray(np.maximum(curved, 0.0) / np.square(unit))


@dataclass(frozen=True)
class WideLaws:
    """Law of theta of many entries, for every data set: normal, with a covariance that is kept as a
    diagonal and a matrix of low rank. Mean and draws are in the sampler's coordinates, covariance,
    variances and intervals in the model's. It has the methods of
    :class:`flmc.evaluation.theta_law.ThetaLaw` that an answer uses.

    Attributes
    ----------
    of_sets
        The law of each data set, in the sampler's coordinates.
    num_rounds
        Number of rounds that a law uses, of all chains together, (data set).
    coordinates
        The sampler's coordinates; None where they are the model's.
    said
        Findings against the law of every data set: what is not tested or not used for so many
        entries.
    """

    of_sets: tuple[WideLaw, ...]
    num_rounds: Array
    coordinates: Coordinates | None
    said: tuple[Finding, ...]

    @classmethod
    def of(
        cls,
        seen: Transcript,
        prior: PriorGradient,
        coordinates: Coordinates | None,
        public: Curvature | None,
        *,
        known: bool,
    ) -> WideLaws:
        """Laws of theta from the kept rounds of the transcript ``seen`` and the gradient of the
        negative log ``prior`` in the sampler's ``coordinates``. What is ``public`` of the
        posterior's curvature is not used, and a finding says so; another says that nothing tells
        whether the gradient is linear in theta, unless the posterior is ``known``.
        ``InvalidSetting`` where a law of many entries cannot be given."""
        if not seen.bounded:
            raise InvalidSetting(
                f"an answer of more than {MOST_ANSWERED} entries needs noise of known size: some"
                " devices are absent, use batches of their examples or wrong estimates of the"
                " channel, or the channel is real; use the draws of the chain"
            )
        chains, dim = seen.positions.shape[1], seen.positions.shape[3]
        if dim * min(chains * seen.num_kept, dim) ** 2 > _MOST_WORK:
            raise InvalidSetting(
                f"an answer of {dim} entries from {chains * seen.num_kept} kept rounds takes too"
                " long: use fewer rounds, or the draws of the chain"
            )
        noise = seen.channel_noise + seen.symbol_noise
        first = seen.positions.shape[2] - 1 - seen.num_kept

        def at(points: Array) -> Array:
            return np.asarray(prior(points[None])[0])

        laws = []
        for e in range(len(seen.positions)):
            [positions] = seen.theta(slice(e, e + 1))
            of_round = noise[min(e, len(noise) - 1), first:]
            weight = 1.0 / of_round.mean(axis=1)  # 0 where nobody transmitted
            heard = weight > 0
            if not heard.any() or not np.isfinite(positions).all():
                raise InvalidSetting(
                    "an answer needs rounds in which devices transmit, and chains within the range"
                    " of numbers: use another policy, or a smaller step"
                )
            unit = np.sqrt((weight[heard, None] * of_round[heard]).mean(axis=0))
            before, after = positions[:, first:-1][:, heard], positions[:, first + 1 :][:, heard]
            theta = before.reshape(-1, len(unit))
            gradient = ((before - after) / seen.step_sizes[first:][heard, None]).reshape(
                theta.shape
            )
            weights = np.tile(weight[heard], len(positions))
            laws.append(_law_of(theta, gradient, weights, unit, at))
        said = []
        if not known:
            short = "whether the gradient is linear in theta is not tested"
            text = f"{short} for more than {MOST_ANSWERED} entries"
            said.append(Finding("linearity-unknown", "unknown", text, short))
        if public is not None:
            short = f"public bounds of the curvature are not used for over {MOST_ANSWERED} entries"
            text = f"{short}: rounds alone tell the mean curvature"
            said.append(Finding("bounds-not-used", "note", text, short))
        num_rounds = np.full(len(laws), seen.num_kept * chains)
        return cls(tuple(laws), num_rounds, coordinates, tuple(said))

    @property
    def mean(self) -> Array:
        """Mean of theta, (data set, dim), in the sampler's coordinates."""
        return np.stack([each.law.mean for each in self.of_sets])

    @property
    def covariance(self) -> Array:
        """Covariance of theta, (data set, dim, dim), in the model's coordinates: computed at every
        use, because it is large."""
        whole = np.stack([each.law.covariance for each in self.of_sets])
        if self.coordinates is None:
            return whole
        return np.asarray(self.coordinates.scale @ whole @ self.coordinates.scale.T)

    @cached_property
    def variances(self) -> tuple[Array, Array, Array]:
        """Variance of every entry of theta, (data set, dim) each, under three laws, in this order:
        the exact posterior, if its curvature is the estimated one; the law of theta as if the
        estimated curvature were known to be true; the law of theta with the error of the
        curvature."""
        scale = None if self.coordinates is None else self.coordinates.scale
        each = [
            [law.variances if scale is None else law.variances_along(scale) for law in laws]
            for laws in ((one.exact, one.known, one.law) for one in self.of_sets)
        ]
        exact, known, stated = (np.stack(parts) for parts in zip(*each, strict=True))
        return exact, known, stated

    def half_widths(self, probability: float) -> Array:
        """Half the length of every entry's central interval of this ``probability``, (data set,
        dim)."""
        sd = np.sqrt(self.variances[2])
        return np.asarray(sd * float(ndtri(np.array([(1.0 + probability) / 2.0]))[0]))

    def draw(self, data_set: int, num_draws: int, rng: np.random.Generator) -> Array:
        """Independent draws of theta of one data set, (draw, dim), in the sampler's coordinates."""
        return self.of_sets[data_set].law.draw(num_draws, rng)

    def findings(
        self,
        data_set: int,
        of_gradients: Sequence[Finding],
        planned_degrees: float,
        names: Sequence[str],
    ) -> list[Finding]:
        """Findings against the law, the same for every data set: the findings ``of_gradients``, and
        those about what is not tested or not used for so many entries. The other arguments change
        nothing."""
        return [*of_gradients, *self.said]
