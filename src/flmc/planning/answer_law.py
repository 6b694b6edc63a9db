r"""The law of an answer (what a server knows of theta after a run), and its prediction for a plan.

A server regresses its estimates of the gradient on theta, which gives the posterior's mode and
curvature. Along a direction of curvature :math:`\lambda`, let :math:`q = \eta\kappa\lambda` be the
effective step times the curvature, V the noise variance of an estimate and S the number of rounds.
The mean of all estimates has the noise variance :math:`V/S`, so that theta has the variance
:math:`1/\lambda + V/(S\lambda^2)` if the curvature is known. The estimated curvature has :math:`\nu
= S q/(1 - q/2)` degrees of freedom, whatever the noise, because a noisier chain spreads wider. Each
of the m directions of theta takes one degree of freedom from the others, of which intervals count
half, and the mean of the inverse of a chi-square law widens the answer once more; together, to
second order,

.. math:: \text{width}^2 = \frac{1 + V/(S\lambda)}{1 - (m + 3)/(2\nu)}

is the variance of the answer over the exact posterior's. ``docs/sampling.md`` derives it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtri
from flmc.planning.step_size import Curvature

MOST_ANSWERED = 200
"""Largest number of entries of theta for which an answer is planned, and whose curvatures are all
estimated: the rounds that this takes, and the cost, grow with this number. Answers of more entries
take the curvature to be nearly the same in all directions."""
NO_ANSWER = (
    "the noise of a round depends on the rounds before, through the devices' local parameters, and"
    " an answer takes it for independent"
)
"""Why no answer is computed where devices have local parameters."""
MOST_WIDE = 20_000
"""Largest number of entries of theta for which an answer is computed at all: it takes the memory of
some copies of the kept draws."""
NODES = 24
"""Number of quantiles that represent the law of an estimated curvature. With 192 in place of 24,
standard deviations of 100 answers of 5 entries change by at most 0.07 % where 300 rounds are
planned, and by 1.1 % where 120 are, whose curvature is hardly known."""
_LEVELS = (np.arange(NODES) + 0.5) / NODES
_NORMAL = ndtri(_LEVELS)
_GRID = 64
"""Number of values of a hardly known curvature at which the density of its law is computed: they
are equidistant in the logarithm, so that neighbours differ by some 15 %."""
_AT_ONCE = 1024
"""Number of directions whose hardly known curvatures are computed together: arrays of all of 1000
answers, some megabytes each, are given back to the system after every operation, and fetching them
again takes longer than the computation."""
WELL_KNOWN, FADING = 16.0, 10.0
"""Degrees of freedom from which on (``WELL_KNOWN``) an estimated curvature has the law of a
covariance matrix. With fewer it may be one that a regression finds in a random walk: in one
dimension one random walk of twenty shows more than 16. With ``FADING`` degrees fewer the curvature
has the law of section 2 of ``docs/answer.md`` alone; in between, one law turns into the other. With
20 in place of 16, intervals of random walks hold theta in 3 % more cases; where several directions
have some ten degrees, intervals are up to half as wide again on average."""
_UNKNOWN, _WALK = 24.0, 9.0
"""Degrees of freedom below which theta may walk at random along a direction, the more so the fewer
they are; and the most degrees that such a direction adds to each direction that has more. Measured
on random walks: the direction with the most degrees had more than 52 of them in one of twenty walks
in 5 dimensions, and more than 16 in 1 dimension."""
_TAKEN = 0.5
"""Share that is counted of the degrees of freedom which the other directions take from a
direction's curvature, and so widen intervals: the noise of the estimated curvature matrix already
makes its inverse larger by as much, and the bias of an autoregression makes it smaller by less.
With 1 in place of 0.5, 90 % intervals of 20 entries hold theta in about 92 %; with 0, those of 5
entries hold it in 0.5 % fewer cases than with 0.5."""
_MOST_PUSHED = 0.5
"""Largest share of an eigenvalue of the curvature by which noise is taken to have pushed its
estimate down from larger eigenvalues: the formula of ``_repulsion`` is of second order in the
noise, and fails where little is left of the eigenvalue."""
_LEAST_OF_PRIOR = 0.01
"""Smallest curvature of the likelihood that is assumed in a direction of which the data may say
nothing, as a share of the prior's curvature: the answer is then 0.995 times the prior's width."""
_OF_PUBLIC = 0.5
"""Share of the public convexity that is taken for the lower bound of a curvature. The law of a
hardly known curvature is uniform in the logarithm, and puts little near its bound: with the whole
convexity as the bound, 90 % intervals would hold theta in 80 % where the curvature equals it."""
LEAST = 1e-6
"""Smallest curvature of the likelihood that is assumed in a direction, as a share of the
posterior's largest curvature: a direction of which the data say nothing keeps the prior's width,
and no matrix is singular."""


_UNCOUPLED = 0.1
"""Largest effect on the mean, in standard deviations, of an off-diagonal entry of the prior's
curvature (between two principal directions of the estimated curvature) up to which the directions
are treated one by one."""


class Evidence(NamedTuple):
    """What the mean of all estimates of the gradient tells of a curvature that is hardly known,
    along the principal directions of the estimated curvature, (..., dim) each.

    Attributes
    ----------
    pull
        Gradient of the negative log prior at the mean of theta over rounds.
    gradient
        Mean of the estimates.
    """

    pull: Array
    gradient: Array


class Bounds(NamedTuple):
    """Bounds of the posterior's curvature that are public knowledge, along the principal directions
    of the estimated curvature, (..., dim) each; 0 and infinite where nothing is known."""

    least: Array
    most: Array

    @classmethod
    def of(cls, public: Curvature, one: Array) -> Bounds:
        """The ``public`` convexity and smoothness as bounds along every principal direction, in
        units in which a curvature of 1 has the value ``one`` (..., dim)."""
        most = np.inf if public.smoothness is None else public.smoothness
        return cls((public.convexity or 0.0) * one, most * one)


def within(public: Curvature, values: Array) -> Array:
    """Curvatures of the posterior, ``values`` of any shape in the sampler's coordinates, moved to
    the nearest ones between half the public convexity and the public smoothness; a bound that is
    not known has no effect."""
    most = np.inf if public.smoothness is None else public.smoothness
    return np.clip(values, _OF_PUBLIC * (public.convexity or 0.0), most)


def curvatures(
    values: Array,
    floor: Array,
    degrees: Array,
    weight: Array,
    evidence: Evidence | None = None,
    bounds: Bounds | None = None,
) -> Array:
    """The likelihood's part of the posterior's curvature along the principal directions of the
    estimated curvature, at each of the ``NODES`` quantiles of its law, (..., dim, node), in units
    in which the noise of a round of weight 1 has variance 1.

    ``values`` are the estimated curvatures along these directions, ``floor`` the prior's part of
    them, ``degrees`` their degrees of freedom, all (..., dim); ``weight`` (...) is the sum of the
    weights of all rounds. ``evidence`` is used in directions whose curvature is hardly known, and
    ``bounds`` are kept in all."""
    share = known_share(degrees)
    # The curvature along one direction follows a chi-square law with fewer degrees of freedom,
    # because estimating the other directions takes some. The quantiles are those of Wilson and
    # Hilferty's approximation.
    free = np.maximum(degrees * share, 1.0)[..., None]
    chi = free * np.maximum(1 - 2 / (9 * free) + _NORMAL * np.sqrt(2 / (9 * free)), 0.0) ** 3
    top = values.max(axis=-1, keepdims=True)
    least = np.where(floor > 0, _LEAST_OF_PRIOR * floor, LEAST * top)
    most = np.broadcast_to(np.inf, least.shape)
    if bounds is not None:
        least = np.maximum(least, _OF_PUBLIC * bounds.least - floor)
        most = np.maximum(bounds.most - floor, least)
    data = np.clip(
        (values / degrees)[..., None] * chi - floor[..., None], least[..., None], most[..., None]
    )
    power = walk_power(degrees)
    unknown = np.argwhere(power > 0)
    if len(unknown):
        weights = np.broadcast_to(np.asarray(weight)[..., None], values.shape)
        # Noise pushes smaller eigenvalues of the estimate down from larger ones: a hardly known
        # curvature is given back the share that it has lost.
        shares = np.maximum(share, -1.0) + np.minimum(_repulsion(degrees), _MOST_PUSHED)
        for begin in range(0, len(unknown), _AT_ONCE):
            few = tuple(unknown[begin : begin + _AT_ONCE].T)
            told = None if evidence is None else Evidence(*(each[few] for each in evidence))
            data[few] = _hardly_known(
                values[few], floor[few], degrees[few], shares[few], weights[few], least[few],
                most[few], power[few], told,
            )  # fmt: skip
    return np.asarray(data)


def variances(data: Array, floor: Array, weight: Array) -> Array:
    """Variances of theta about its mean along the principal directions of the estimated curvature,
    (..., dim, node), where the likelihood has the curvature ``data`` (..., dim, node) along them,
    and the prior ``floor`` (..., dim). ``weight`` (...) is the sum of the weights of all rounds, in
    units in which the noise of a round of weight 1 has variance 1."""
    gain = informed_share(data, np.asarray(weight)[..., None, None])
    return np.asarray(1.0 / (floor[..., None] + gain * data))


def couples(prior: Array, data: Array, weight: Array) -> Array:
    """Whether the curvature of the negative log ``prior`` (..., dim, dim), along the principal
    directions of the estimated curvature, is so far from diagonal that they cannot be treated one
    by one, (...). The likelihood has the curvature ``data`` (..., dim) along them, and ``weight``
    (...) is the sum of the weights of all rounds.

    To first order the entry of the prior's curvature between two directions moves the mean, in
    standard deviations, by at most its ratio to the root of the product of the answer's precisions
    along both, times the larger of the shares of the data's information that noise takes there. So
    the entry counts only where noise hides the data; the result is True from 0.1 on."""
    own = np.diagonal(prior, axis1=-2, axis2=-1)
    gain = informed_share(data, np.asarray(weight)[..., None])
    size, lost = np.sqrt(own + gain * data), 1.0 - gain
    share = np.abs(prior) / (size[..., :, None] * size[..., None, :])
    share = share * np.maximum(lost[..., :, None], lost[..., None, :])
    others = share * (1.0 - np.eye(prior.shape[-1]))
    return np.asarray(others.max(axis=(-2, -1)) > _UNCOUPLED)


def coupled(prior: Array, curvature: Array, weight: Array) -> tuple[Array, Array]:
    """Share of the likelihood's information that noise leaves, and covariance of theta, both
    matrices (..., dim, dim) in principal directions of the estimated curvature. There the
    posterior's ``curvature`` (..., dim) is diagonal, and that of the negative log ``prior``, (...,
    dim, dim), is not. ``weight`` (...) is the sum of the weights of all rounds; the arrays
    broadcast."""
    whole = curvature[..., :, None] * np.eye(curvature.shape[-1])
    data, own = np.linalg.eigh(whole - prior)
    data = np.maximum(data, LEAST**2 * data[..., -1:])
    gain, turned = informed_share(data, np.asarray(weight)[..., None]), np.swapaxes(own, -1, -2)
    share = (own * gain[..., None, :]) @ turned
    precision = prior + (own * (gain * data)[..., None, :]) @ turned
    return share, np.linalg.inv(precision)


def _hardly_known(
    values: Array,
    floor: Array,
    degrees: Array,
    share: Array,
    weight: Array,
    least: Array,
    most: Array,
    power: Array,
    evidence: Evidence | None,
) -> Array:
    """The likelihood's curvature D in directions in which the rounds hardly tell it, at ``NODES``
    quantiles of its law, (direction, node); all arguments are (direction).

    Given the rounds, the whole curvature, D + ``floor``, is normal about the estimate ``values``
    times the ``share`` of it that is taken for true, wherever the chain went. The prior law of D
    between ``least`` and ``most`` has a density in proportion to 1/D to the ``power``, from 0 to 1;
    with 1 no scale of D is preferred, and an estimate that is positive by chance teaches nothing.
    With ``evidence`` the mean of all estimates counts too: it is near the prior's pull if D is
    small."""
    precision = degrees / (2 * np.square(values))
    centre = values * share
    top = np.maximum(centre, 0.0) + 6.0 / np.sqrt(precision) - floor
    top = np.maximum(np.minimum(top, most), least * (1 + 1e-6))
    position = (np.arange(_GRID) + 0.5) / _GRID
    grid = least[:, None] * np.exp(np.log(top / least)[:, None] * position)
    log_law = np.square(grid + (floor - centre)[:, None])
    log_law *= -0.5 * precision[:, None]
    log_grid = np.log(grid)
    log_law += (1.0 - power)[:, None] * log_grid
    if evidence is not None:
        curved = floor > 0
        inverse = 1.0 / np.where(curved, floor, 1.0)
        spread = grid + np.square(grid) * inverse[:, None]
        spread += 1.0 / weight[:, None]
        off = (evidence.gradient - evidence.pull)[:, None]
        off = off - grid * (evidence.pull * inverse)[:, None]
        told = (np.square(off) / spread + np.log(spread)) / 2
        # The limit of a flat prior, up to a constant: its mode may be anywhere, and the density of
        # the mean of the estimates is in proportion to 1/D.
        log_law -= np.where(curved[:, None], told, log_grid)
    law = np.cumsum(np.exp(log_law - log_law.max(axis=1, keepdims=True)), axis=1)
    # ``first`` is the index of the first quantile that each value of the grid is below. Counted,
    # these indices give the number of grid values below each quantile, and so the grid value at it.
    first = np.ceil(law * (NODES / law[:, -1:]) - 0.5).astype(np.intp)
    first += (NODES + 1) * np.arange(len(law))[:, None]
    number = np.bincount(first.ravel(), minlength=len(law) * (NODES + 1)).reshape(len(law), -1)
    below = np.minimum(number[:, :NODES].cumsum(axis=1), _GRID - 1)
    return np.asarray(np.take_along_axis(grid, below, axis=1))


def known_share(degrees: Array) -> Array:
    """Share of an estimated curvature along each principal direction that is taken for true, (...,
    dim), given its ``degrees`` of freedom (..., dim): at most 1, and negative where nothing is
    known.

    Two things make an estimate too large. Estimating each other direction takes a degree of freedom
    (exactly so for equal degrees), of which ``_TAKEN`` (a half) counts. And along a direction of
    little curvature theta walks at random, and a regression finds curvature in a random walk: the
    more, the more such directions there are, as measured in 1, 5 and 20 dimensions."""
    others = (1.0 / joint_degrees(degrees)).sum(axis=-1) - 1.0 / degrees
    return np.asarray(1.0 - _TAKEN * others - _of_walks(degrees) / degrees)


def walk_power(degrees: Array) -> Array:
    """How far the curvature along each principal direction may be one that a regression finds in a
    random walk, (..., dim), from 0 (its law is that of a covariance matrix) to 1, given its
    ``degrees`` of freedom (..., dim). The prior density of the likelihood's curvature D is taken to
    be in proportion to 1/D to this power."""
    return np.asarray(np.clip((WELL_KNOWN - own_degrees(degrees)) / FADING, 0.0, 1.0))


def own_degrees(degrees: Array) -> Array:
    """The ``degrees`` of freedom of the curvature along each principal direction, (..., dim), less
    those that random walks in other directions have added, plus those that were lost because the
    noise of the estimated matrix pushes smaller eigenvalues down."""
    return np.asarray(degrees * np.square(1.0 + _repulsion(degrees)) - _of_walks(degrees))


def _repulsion(degrees: Array) -> Array:
    """Share, (..., dim), by which the noise of an estimated curvature matrix pushes each eigenvalue
    down from those with more ``degrees`` of freedom (..., dim). To second order in the noise it is
    a sum over these larger eigenvalues: the variance of the matrix entry between the two, over the
    product of their distance and the smaller one. Eigenvalues are taken in proportion to their
    degrees of freedom, as in a chain at rest, and no nearer to each other than the noise."""
    own, other = degrees[..., :, None], degrees[..., None, :]
    ratio = np.maximum(other / own, 1.0)
    pushed = 2.0 / (own * (1.0 + 1.0 / ratio) * (ratio - 1.0 + np.sqrt(2.0 / own)))
    return np.asarray(np.where(other > own, pushed, 0.0).sum(axis=-1))


def _of_walks(degrees: Array) -> Array:
    """Degrees of freedom, (..., dim), that random walks in the directions with fewer ``degrees``
    (..., dim) may have added to each direction's."""
    unknown = np.maximum(1.0 - degrees / _UNKNOWN, 0.0)
    if not unknown.any():
        return np.zeros_like(degrees)
    weaker = degrees[..., None, :] < degrees[..., :, None]
    return np.asarray(_WALK * np.where(weaker, unknown[..., None, :], 0.0).sum(axis=-1))


def joint_degrees(degrees: Array) -> Array:
    """Degrees of freedom of the entry of an estimated curvature matrix between each pair of
    principal directions, (..., dim, dim): the mean of the ``degrees`` (..., dim) of the two."""
    return np.asarray((degrees[..., :, None] + degrees[..., None, :]) / 2)


def informed_share(data: Array, weight: Array) -> Array:
    """Share, from 0 to 1, of the likelihood's information on theta that noise leaves:
    ``data``/(``data`` + 1/``weight``). ``data`` are curvatures of the likelihood in units of a
    round's noise, ``weight`` is the sum of the weights of all rounds; the arrays broadcast."""
    return np.asarray(data / (data + 1.0 / weight))


@dataclass(frozen=True)
class PredictedAnswer:
    """Prediction of what a server will know of theta after a run: how wide its intervals will be,
    relative to those of the exact posterior."""

    width: float
    """Standard deviation that the server will state for theta over that of the exact posterior, in
    the direction in which this ratio is largest."""
    mean_width: float
    """Root of the total variance (over all entries of theta) that the server will state, divided by
    the exact posterior's."""
    data: float
    """Share of the total variance of the predicted answer that would remain without noise and with
    a known curvature: the exact posterior's variance, but for what clip and link change in the
    curvature."""
    noise: float
    """Share of the total variance of the predicted answer that noise (of the channel and of random
    bits) adds through the error of the mean."""
    curvature: float
    """Share of the total variance of the predicted answer that the error of the estimated curvature
    adds."""
    of_prior: float
    """Total variance of the predicted answer over the prior's: 1 where nothing is learnt, 0 where
    the prior is flat."""
    degrees: float
    """Degrees of freedom of the estimated curvature in the direction in which they are fewest; few
    mean that the curvature is hardly known."""
    num_rounds: int
    """Number of rounds from which the answer is computed: the kept ones, and those of the burn-in
    after a chain has come near the mode."""
    response: tuple[float, float] | None = None
    """Smallest and largest ratio, over directions, of the curvature that the rounds show to the
    posterior's; (1, 1) where the gradient is linear in theta wherever the chain goes. None where
    that is not known."""
    least_width: float = 1.0
    """Standard deviation that the server will state for theta over that of the exact posterior, in
    the direction in which this ratio is smallest; 1 where a document of an earlier version does not
    have it."""


class Response(NamedTuple):
    """How the server's estimate of the gradient answers to theta, over a chain in its stationary
    law, for one data set: its mean slope (the curvature that rounds show) and its noise, beside the
    laws of the chain and of the posterior.

    Attributes
    ----------
    curvature
        Jacobian, with respect to theta, of the expected estimate of the gradient, averaged over the
        chain's law, (dim, dim).
    chain
        Covariance of theta, (dim, dim).
    noise
        Variance of each entry of the server's estimate of the gradient, (dim).
    posterior
        Covariance of the exact posterior, (dim, dim).
    """

    curvature: Array
    chain: Array
    noise: Array
    posterior: Array

    def over(self, slope: float) -> Response:
        """The response of the estimate divided by ``slope``, by which the link scales small
        gradients, so that it estimates the gradient itself: ``curvature`` is divided by the slope
        and ``noise``, a variance, by its square. The laws of theta, ``chain`` and ``posterior``,
        stay."""
        return self._replace(curvature=self.curvature / slope, noise=self.noise / slope**2)


def flat_response(
    dim: int, curvature: float, noise: float, effective_step_size: float
) -> Response | None:
    """What the server of a chain sees if the curvature is ``curvature`` in every direction, with
    estimates of the gradient itself; None where the step is unstable. ``noise`` is the variance of
    an entry of the server's estimate of the gradient."""
    q, identity = effective_step_size * curvature, np.eye(dim)
    if q >= 2.0:
        return None
    # ``spread`` is the stationary variance of theta, the solution of v = (1 - q)^2 v + step^2
    # noise.
    spread = effective_step_size * noise / (curvature * (2.0 - q))
    return Response(
        curvature * identity, spread * identity, np.full(dim, noise), identity / curvature
    )


def predicted_answer(
    response: Response,
    prior: Array,
    num_rounds: int,
    unevenness: float = 1.0,
    public: Curvature | None = None,
) -> PredictedAnswer | None:
    """Prediction of an answer from ``num_rounds`` rounds of a chain. Its server sees the curvature
    and the noise in ``response``, of estimates that are already divided by the link's slope
    (:meth:`Response.over`); None without rounds, or where the mean Jacobian is not positive
    definite.

    ``prior`` (dim, dim) is the precision matrix of the prior. ``unevenness`` is the harmonic over
    the arithmetic mean of the rounds' noise variances, 1 where rounds are alike: a regression gives
    quiet rounds more weight, where a chain adds up the noise of all. ``public`` is what is publicly
    known of the posterior's curvature."""
    unit = np.sqrt(response.noise * unevenness)
    jacobian = response.curvature
    shown = (jacobian + jacobian.T) / 2
    values, directions = np.linalg.eigh(shown / unit[:, None] / unit)
    if num_rounds < 1 or not np.isfinite(values).all() or values[0] <= 0:
        return None

    def along(matrix: Array) -> Array:
        """Values of the quadratic form of ``matrix`` (dim, dim) at the unit vectors of the
        principal directions, (dim)."""
        return np.asarray(np.einsum("ij,ij->j", directions, matrix @ directions))

    floor = np.minimum(along(prior / unit[:, None] / unit), values)
    degrees = 2 * np.square(values) * num_rounds * along(response.chain * unit[:, None] * unit)
    to_theta = directions / unit[:, None]
    # Factors by which variances along the principal directions count in the total variance of
    # theta.
    scale = np.square(to_theta).sum(axis=0)
    weight = np.asarray(float(num_rounds))
    bounds = None if public is None else Bounds.of(public, scale)
    turned = directions.T @ (prior / unit[:, None] / unit) @ directions
    likely = curvatures(values, floor, degrees, weight, bounds=bounds)
    if couples(turned, likely.min(axis=1), weight):
        spread = coupled(turned, (likely + floor[:, None]).T, weight)[1].mean(axis=0)
        known = coupled(turned, values, weight)[1]
    else:
        spread = np.diag(variances(likely, floor, weight).mean(axis=1))
        known = np.diag(variances((values - floor)[:, None], floor, weight)[:, 0])
    total, noisy = (float(np.sum(to_theta @ each * to_theta)) for each in (spread, known))
    data = float(scale @ (1.0 / values))
    root = np.linalg.cholesky(response.posterior)
    whitened = np.linalg.solve(root, to_theta)
    relative = np.linalg.eigvalsh(whitened @ spread @ whitened.T)
    ratios = np.linalg.eigvalsh(root.T @ shown @ root)
    return PredictedAnswer(
        width=math.sqrt(relative[-1]),
        mean_width=math.sqrt(total / float(np.trace(response.posterior))),
        data=data / total,
        noise=(noisy - data) / total,
        curvature=(total - noisy) / total,
        of_prior=total / float(np.trace(np.linalg.pinv(prior))) if prior.any() else 0.0,
        degrees=float(degrees.min()),
        num_rounds=num_rounds,
        response=(float(ratios[0]), float(ratios[-1])),
        least_width=math.sqrt(max(0.0, relative[0])),
    )


def read_answer(value: Any) -> PredictedAnswer | None:
    """Predicted answer that an object in a plan's JSON document describes; None for null."""
    if value is None:
        return None
    fields = {name: item for name, item in value.items() if name != "type"}
    pair = fields.get("response")
    return PredictedAnswer(**{**fields, "response": None if pair is None else tuple(pair)})
