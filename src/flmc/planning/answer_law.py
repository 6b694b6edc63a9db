r"""The law of an answer (what a server knows of theta after a run), and its prediction for a plan.

A server regresses the estimates of the gradient on theta. Along a direction of curvature
:math:`\lambda` a chain whose step is :math:`q = \eta\kappa\lambda` in units of the curvature, and
whose estimates have the noise V, tells mode and curvature by S rounds as follows. The mean of all
estimates has the noise :math:`V/S`, so that a known curvature leaves the variance
:math:`1/\lambda + V/(S\lambda^2)`. The estimated curvature has :math:`\nu = S q/(1 - q/2)` degrees
of freedom, whatever the noise, because a noisier chain spreads wider. Of m directions each takes
one degree from the others, and the mean of the inverse of a chi-square law widens the answer once
more; together, to second order,

.. math:: \text{width}^2 = \frac{1 + V/(S\lambda)}{1 - (m + 1)/\nu}

is the variance of the answer over the exact posterior's. ``docs/sampling.md`` derives it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtri

MOST_ANSWERED = 200
"""Largest number of entries for which an answer is computed: its cost grows with the cube of the
entries."""
NODES = 24
"""Number of quantiles that stand for the law of a curvature that is known with an error only. With
192 in place of 24, standard deviations of 100 answers of 5 entries change by at most 0.07 % where
300 rounds are planned, and by 1.1 % where 120 are, whose curvature is hardly known."""
LEAST = 1e-6
"""Least curvature of the likelihood in a direction, as a share of the largest: a direction of which
the data say nothing keeps the prior's width, and no matrix is singular."""


def variances(values: Array, floor: Array, degrees: Array, weight: Array) -> Array:
    """Variances of theta along principal directions, at ``NODES`` quantiles of each curvature,
    (..., dim, node), in units in which the noise of a round of weight 1 has variance 1.

    ``values`` are the curvatures, ``floor`` those of the prior alone, ``degrees`` the degrees of
    freedom of the curvatures, all (..., dim); ``weight`` (...) is the weight of all rounds."""
    others = (1.0 / joint_degrees(degrees)).sum(axis=-1) - 1.0 / degrees
    # A marginal variance follows a chi-square law with fewer degrees of freedom: those that other
    # directions take (exactly so for equal degrees). Its quantiles are Wilson and Hilferty's.
    free = (degrees * np.maximum(1.0 - others, 0.1))[..., None]
    normal = ndtri((np.arange(NODES) + 0.5) / NODES)
    chi = free * np.maximum(1 - 2 / (9 * free) + normal * np.sqrt(2 / (9 * free)), 0.0) ** 3
    curvature = values[..., None] * chi / degrees[..., None]
    least = LEAST * values.max(axis=-1)[..., None, None]
    data = np.maximum(curvature - floor[..., None], least)
    gain = informed_share(data, np.asarray(weight)[..., None, None])
    return np.asarray(1.0 / (floor[..., None] + gain * data))


def joint_degrees(degrees: Array) -> Array:
    """Degrees of freedom of the product of two principal directions, (..., dim, dim)."""
    return np.asarray((degrees[..., :, None] + degrees[..., None, :]) / 2)


def informed_share(data: Array, weight: Array) -> Array:
    """Share of what the data tell of theta that noise leaves, for curvatures ``data`` of the
    likelihood in noise units and rounds of a total ``weight``; the arrays broadcast."""
    return np.asarray(data / (data + 1.0 / weight))


@dataclass(frozen=True)
class PredictedAnswer:
    """Prediction of what a server will know after a run: how wide its intervals will be beside
    those of the exact posterior."""

    width: float
    """Standard deviation that the server will have to state for theta over that of the exact
    posterior, in the direction in which this ratio is largest."""
    mean_width: float
    """Root of a ratio: the total variance of theta that the server will have to state, over the
    exact posterior's."""
    data: float
    """Share of the total variance of the predicted answer that is the exact posterior's, seen
    through the link."""
    noise: float
    """Share of the total variance of the predicted answer that comes from the mean, as far as
    channel, quantisation and privacy leave it unknown."""
    curvature: float
    """Share of the total variance of the predicted answer that comes from the posterior's
    curvature, as far as the rounds leave it unknown."""
    of_prior: float
    """Total variance of the predicted answer over the prior's: 1 where nothing is learnt."""
    degrees: float
    """Degrees of freedom of the curvature in the direction in which they are fewest."""
    num_rounds: int
    """Rounds that count: those that are kept, and those of the burn-in after a chain's arrival."""
    response: tuple[float, float] | None = None
    """Smallest and largest ratio, over directions, of the curvature that the rounds show to the
    posterior's; (1, 1) where the gradient is linear in theta wherever the chain goes. None where
    that is not known."""


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
        """The response where the estimate is divided by ``slope``, as that of a gradient is."""
        return self._replace(curvature=self.curvature / slope, noise=self.noise / slope**2)


def flat_response(
    dim: int, curvature: float, noise: float, effective_step_size: float
) -> Response | None:
    """Response of a chain of which only one curvature is known, taken for that of all directions;
    None where the step is unstable."""
    q, identity = effective_step_size * curvature, np.eye(dim)
    if q >= 2.0:
        return None
    # The stationary variance of theta, v = (1 - q)^2 v + step^2 noise.
    spread = effective_step_size * noise / (curvature * (2.0 - q))
    return Response(
        curvature * identity, spread * identity, np.full(dim, noise), identity / curvature
    )


def predicted_answer(
    response: Response, prior: Array, num_rounds: int, unevenness: float = 1.0
) -> PredictedAnswer | None:
    """Prediction of an answer from ``num_rounds`` rounds of a chain with this response; None where
    the mean Jacobian is not positive.

    ``prior`` (dim, dim) is the precision of the prior; ``unevenness`` the harmonic over the
    arithmetic mean of the noise of rounds: a chain adds up the noise of all, and a regression gives
    quiet rounds more weight."""
    unit = np.sqrt(response.noise * unevenness)
    jacobian = response.curvature
    shown = (jacobian + jacobian.T) / 2
    values, directions = np.linalg.eigh(shown / unit[:, None] / unit)
    if num_rounds < 1 or not np.isfinite(values).all() or values[0] <= 0:
        return None

    def along(matrix: Array) -> Array:
        """Values of the quadratic form of a ``matrix`` along the principal directions, (dim)."""
        return np.asarray(np.einsum("ij,ij->j", directions, matrix @ directions))

    floor = np.minimum(along(prior / unit[:, None] / unit), values)
    degrees = 2 * np.square(values) * num_rounds * along(response.chain * unit[:, None] * unit)
    to_theta = directions / unit[:, None]
    # Total variance of theta where its principal directions have these variances.
    scale = np.square(to_theta).sum(axis=0)
    spread = variances(values, floor, degrees, np.asarray(float(num_rounds))).mean(axis=1)
    known = 1.0 / (floor + informed_share(values - floor, np.asarray(float(num_rounds)))
                   * (values - floor))  # fmt: skip
    total, noisy, data = (float(scale @ each) for each in (spread, known, 1.0 / values))
    root = np.linalg.cholesky(response.posterior)
    whitened = np.linalg.solve(root, to_theta)
    widest = float(np.linalg.eigvalsh((whitened * spread) @ whitened.T)[-1])
    ratios = np.linalg.eigvalsh(root.T @ shown @ root)
    return PredictedAnswer(
        width=math.sqrt(widest),
        mean_width=math.sqrt(total / float(np.trace(response.posterior))),
        data=data / total,
        noise=(noisy - data) / total,
        curvature=(total - noisy) / total,
        of_prior=total / float(np.trace(np.linalg.pinv(prior))) if prior.any() else 0.0,
        degrees=float(degrees.min()),
        num_rounds=num_rounds,
        response=(float(ratios[0]), float(ratios[-1])),
    )


def read_answer(value: Any) -> PredictedAnswer | None:
    """The prediction that an object in a plan's JSON document describes; None for null."""
    if value is None:
        return None
    fields = {name: item for name, item in value.items() if name != "type"}
    pair = fields.get("response")
    return PredictedAnswer(**{**fields, "response": None if pair is None else tuple(pair)})
