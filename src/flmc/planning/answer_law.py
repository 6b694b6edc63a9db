r"""The law of an answer (what a server knows of theta after a run), and its prediction for a plan.

A server regresses its estimates of the gradient on theta, which gives the posterior's mode and
curvature. Along a direction of curvature :math:`\lambda`, let :math:`q = \eta\kappa\lambda` be the
effective step times the curvature, V the noise variance of an estimate and S the number of rounds.
The mean of all estimates has the noise variance :math:`V/S`, so that theta has the variance
:math:`1/\lambda + V/(S\lambda^2)` if the curvature is known. The estimated curvature has :math:`\nu
= S q/(1 - q/2)` degrees of freedom, whatever the noise, because a noisier chain spreads wider. Each
of the m directions takes one degree of freedom from the others, half of which counts, and the mean
of the inverse of a chi-square law widens the answer once more; together, to second order,

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
"""Number of curvatures at which the law of one that is hardly known is computed: equidistant in
their logarithms, so that neighbours differ by some 15 %."""
WELL_KNOWN, FADING = 16.0, 10.0
"""Degrees of freedom from which on the law of a curvature is taken for that of a covariance matrix:
with fewer, it may be the curvature that a regression finds in a random walk, which has more in one
of twenty (in one dimension). By so many fewer (``FADING``) nothing is taken to be known but what
the law of section 2 of ``docs/answer.md`` says; in between, one law turns into the other. With 20
in place of 16 intervals of random walks hold 3 points more often, and where there are some ten
degrees of freedom in several directions, they are up to half as wide again on average."""
_UNKNOWN, _WALK = 24.0, 9.0
"""Degrees of freedom below which a direction may be that of a random walk, the more so the fewer;
and those that such a direction adds to each direction with more. Measured on random walks: in 5
dimensions 52 were found in the direction in which they are most, exceeded in one of twenty, in 1
dimension 16."""
_TAKEN = 0.5
"""Share of the degrees of freedom that other directions take which counts: the noise of the other
directions makes the inverse of the estimate itself larger by as much as theirs, and the bias of an
autoregression makes it smaller by less. With 1 intervals of 20 entries hold 2 points too often,
with 0 those of 5 entries half a point less than with 0.5."""
_MOST_PUSHED = 0.5
"""Largest share of an eigenvalue that it is taken to have lost to others: the formula is of second
order, and fails where little is left."""
_LEAST_OF_PRIOR = 0.01
"""Smallest curvature of the likelihood that is assumed in a direction of which the data may say
nothing, as a share of the prior's curvature: the answer is then 0.995 times the prior's width."""
_OF_PUBLIC = 0.5
"""Share of the public convexity above which a curvature that is hardly known is taken to be: a law
that is uniform in the logarithm above a bound puts little near it, and where the bound is the
curvature itself, 90 % intervals would hold 80 %."""
LEAST = 1e-6
"""Smallest curvature of the likelihood that is assumed in a direction, as a share of the
posterior's largest curvature: a direction of which the data say nothing keeps the prior's width,
and no matrix is singular."""


_UNCOUPLED = 0.1
"""Largest effect of the prior's curvature between two principal directions with which these are
treated one by one: on the mean, in standard deviations."""


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
        """The bounds in units in which a curvature of 1 is ``one`` (..., dim) along the
        directions."""
        most = np.inf if public.smoothness is None else public.smoothness
        return cls((public.convexity or 0.0) * one, most * one)


def within(public: Curvature, values: Array) -> Array:
    """Curvatures of the posterior in the sampler's units, of any shape, moved to the nearest ones
    that lie within what is publicly known of them."""
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
    """The likelihood's share of the curvature along the principal directions of the estimated
    curvature, at each of the ``NODES`` quantiles of its law, (..., dim, node), in units in which
    the noise of a round of weight 1 has variance 1.

    ``values`` are the curvatures along these directions, ``floor`` the prior's share of them,
    ``degrees`` the degrees of freedom of the curvatures, all (..., dim); ``weight`` (...) is the
    sum of the weights of all rounds."""
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
    few = power > 0
    if few.any():
        told = None if evidence is None else Evidence(*(each[few] for each in evidence))
        weights = np.broadcast_to(np.asarray(weight)[..., None], values.shape)
        # An eigenvalue that others push down is given that back.
        shares = np.maximum(share, -1.0) + np.minimum(_repulsion(degrees), _MOST_PUSHED)
        data[few] = _hardly_known(
            values[few], floor[few], degrees[few], shares[few], weights[few], least[few],
            most[few], power[few], told,
        )  # fmt: skip
    return np.asarray(data)


def variances(data: Array, floor: Array, weight: Array) -> Array:
    """Variances of theta about its mean along the principal directions of the estimated curvature,
    (..., dim, node), where the likelihood has the curvature ``data`` (..., dim, node) along them;
    units and arguments are those of :func:`curvatures`."""
    gain = informed_share(data, np.asarray(weight)[..., None, None])
    return np.asarray(1.0 / (floor[..., None] + gain * data))


def couples(prior: Array, data: Array, weight: Array) -> Array:
    """Whether the curvature of the negative log ``prior`` (..., dim, dim), along the principal
    directions of the estimated curvature, is so far from diagonal that they cannot be treated one
    by one, (...), where the likelihood has the curvature ``data`` (..., dim) along them, and rounds
    the sum of weights ``weight`` (...).

    To first order an entry of the prior's curvature between two directions adds its product with
    the shares of the data's information that noise takes there to the answer's precision; and it
    moves the mean by at most the larger of these shares, times the same ratio to the precision, in
    standard deviations. So it counts only where noise hides the data."""
    own = np.diagonal(prior, axis1=-2, axis2=-1)
    gain = informed_share(data, np.asarray(weight)[..., None])
    size, lost = np.sqrt(own + gain * data), 1.0 - gain
    share = np.abs(prior) / (size[..., :, None] * size[..., None, :])
    share = share * np.maximum(lost[..., :, None], lost[..., None, :])
    others = share * (1.0 - np.eye(prior.shape[-1]))
    return np.asarray(others.max(axis=(-2, -1)) > _UNCOUPLED)


def coupled(prior: Array, curvature: Array, weight: Array) -> tuple[Array, Array]:
    """Share of the likelihood's information that noise leaves, and covariance of theta, (..., dim,
    dim) each, where the posterior's ``curvature`` has the values (..., dim) along the principal
    directions, and the prior's, (..., dim, dim), is not diagonal there. ``weight`` (...) is the sum
    of the weights of all rounds; the arrays broadcast."""
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
    """The likelihood's curvature in directions in which the rounds hardly tell it, at ``NODES``
    quantiles, (direction, node); all arguments are (direction).

    Given the rounds, the estimated curvature is normal about the true one, whatever chose the
    places of measurement; the prior law of the likelihood's share D of it has a density in
    proportion to 1/D to the ``power``, from 0 to 1, above ``least``, where the prior decides in any
    case. With 1 it is uniform in the logarithm: a curvature that is positive by chance leaves the
    prior, and no scale is preferred. The mean of all estimates is normal too: about the prior's
    pull if the likelihood's curvature is small."""
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
    # Number of places of the grid below each quantile, from the first quantile that a place is
    # below.
    first = np.ceil(law * (NODES / law[:, -1:]) - 0.5).astype(np.intp)
    first += (NODES + 1) * np.arange(len(law))[:, None]
    number = np.bincount(first.ravel(), minlength=len(law) * (NODES + 1)).reshape(len(law), -1)
    below = np.minimum(number[:, :NODES].cumsum(axis=1), _GRID - 1)
    return np.asarray(np.take_along_axis(grid, below, axis=1))


def known_share(degrees: Array) -> Array:
    """Share of an estimated curvature along each principal direction that is taken for true, (...,
    dim), given its ``degrees`` of freedom (..., dim): at most 1, and negative where nothing is
    known.

    Two things make an estimate too large. Estimating the other directions takes a degree of freedom
    each (exactly so for equal degrees), of which ``_TAKEN`` counts. And theta that hardly feels a
    curvature walks at random, and a regression finds curvature in a random walk: the more, the more
    directions there are without any. How much more was measured on random walks in 1, 5 and 20
    dimensions."""
    others = (1.0 / joint_degrees(degrees)).sum(axis=-1) - 1.0 / degrees
    return np.asarray(1.0 - _TAKEN * others - _of_walks(degrees) / degrees)


def walk_power(degrees: Array) -> Array:
    """How far the curvature along each principal direction may be one that a regression finds in a
    random walk, (..., dim), from 0 (its law is that of a covariance matrix) to 1, given its
    ``degrees`` of freedom (..., dim): the power of 1/D in the law of ``_hardly_known``."""
    return np.asarray(np.clip((WELL_KNOWN - own_degrees(degrees)) / FADING, 0.0, 1.0))


def own_degrees(degrees: Array) -> Array:
    """The ``degrees`` of freedom of the curvature along each principal direction, (..., dim), less
    those that random walks in other directions add, and with those that the noise of the estimated
    matrix takes."""
    return np.asarray(degrees * np.square(1.0 + _repulsion(degrees)) - _of_walks(degrees))


def _repulsion(degrees: Array) -> Array:
    """Share, (..., dim), by which the noise of an estimated matrix pushes an eigenvalue down from
    those with more ``degrees`` of freedom (..., dim): to second order in the noise, the sum over
    these of the variance of the entry between the two, over the distance of both eigenvalues and
    the eigenvalue itself. Eigenvalues are taken in proportion to their degrees of freedom, as they
    are in a chain at rest, and no nearer to each other than the noise."""
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
    """What a chain in its stationary law lets its server see, for one data set.

    Attributes
    ----------
    curvature
        Mean Jacobian of the expected estimate of the gradient, (dim, dim).
    chain
        Covariance of theta, (dim, dim).
    noise
        Variance of an estimate, (dim).
    posterior
        Covariance of the exact posterior, (dim, dim).
    """

    curvature: Array
    chain: Array
    noise: Array
    posterior: Array

    def over(self, slope: float) -> Response:
        """The response where the estimate is divided by ``slope``, which makes it an estimate of
        the gradient itself."""
        return self._replace(curvature=self.curvature / slope, noise=self.noise / slope**2)


def flat_response(
    dim: int, curvature: float, noise: float, effective_step_size: float
) -> Response | None:
    """Response of a chain whose curvature is taken to be ``curvature`` in every direction; None
    where the step is unstable. ``noise`` is the variance of an entry of the server's estimate of
    the gradient."""
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
    """Prediction of an answer from ``num_rounds`` rounds of a chain with this response; None
    without rounds, or where the mean Jacobian is not positive definite.

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
