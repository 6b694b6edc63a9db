r"""Refined prediction of what the chain will sample, for quadratic local costs.

The temperature takes the slope at 0 and the largest quantisation variance. The prediction averages
both over the local gradients that occur. Let :math:`\theta \sim N(\bar\theta, C)` be stationary.
Device k's gradient entries are normal with mean :math:`(H_k\bar\theta - b_k)_i` and variance
:math:`s_{ki}^2 = (H_k C H_k)_{ii}`. With the mean symbol :math:`\psi`, Stein's identity gives the
averaged slope :math:`E[\psi'] = E[\psi(g)(g - E g)]/s^2`, and

.. math:: \sum_k E[\psi(g_k)] = 0, \qquad
          C = (I - \eta J) C (I - \eta J)^\top + \eta^2 (N_0/A^2 + E[V_q]), \qquad
          J = \sum_k \operatorname{diag}(E[\psi'(g_k)]) H_k .

Both equations are solved together by iteration. ``docs/sampling.md`` derives this and says what is
neglected."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr_once
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.uplink.csi import arrival_of
from flmc.uplink.uplink import Uplink

EXPERIMENTS_PREDICTED = 8
"""Largest number of data sets (experiments of a model) that a prediction averages over."""

# Trapezoidal rule for the standard normal: exact to rounding for smooth functions, 1e-3 of the jump
# in slope at a kink (the clip).
NODES = np.linspace(-8.0, 8.0, 161)
"""Nodes of the quadrature by which means over the standard normal distribution are computed,
(node)."""
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
"""Weights of the nodes in a mean over the standard normal distribution, (node); they add up to 1.
"""
_MOST_ITERATIONS = 200
"""Largest number of iterations of the search for the stationary law."""
_NUMBERS_AT_ONCE = 2_000_000
"""Numbers of an array of devices, entries and nodes that is held at once: 16 MB."""
_MOST_WORK = 5e8
"""Number of multiplications in one iteration beyond which a problem is too large to be predicted.
"""
_TOLERANCE = 1e-9
"""Change of covariance and squared mean at which the iteration ends, over the trace."""


@dataclass(frozen=True)
class Prediction:
    """Predicted stationary law of a plan's chain, compared with the exact posterior; every number
    is a mean over data sets unless it says otherwise."""

    variance_ratio: float
    """Trace of the chain's covariance over that of the posterior's."""
    variance_ratio_smallest: float
    """Smallest ratio of the variances along the posterior's principal axes."""
    variance_ratio_largest: float
    """Largest ratio of the variances along the posterior's principal axes."""
    mean_error_squared: float
    """Squared distance of the chain's mean from the posterior mean."""
    relative_mean_error: float
    """Squared distance of the chain's mean from the posterior mean, over the posterior's trace."""
    clipped_fraction: float
    """Expected fraction of the devices' gradient entries beyond the clip."""
    mean_shift: float | None = None
    """Distance of the chain's mean from the posterior mean in the direction in which it is largest,
    in posterior standard deviations, in the data set in which it is largest; None in documents that
    are older than it."""
    distance_squared: float | None = None
    """Squared W2 distance of the chain's law from the posterior, both in coordinates in which the
    posterior's covariance is the identity; None in documents that are older than it."""


def predict(
    model: LinearGaussian, uplink: Uplink, step_size: float, noise_variance: float | Array
) -> Prediction | None:
    """Prediction of what the chain will sample when all devices transmit in every round, from at
    most 8 data sets; ``noise_variance`` is :math:`N_0/A^2`, a number or (dim).

    None where the linearised chain is unstable, nearly every gradient is clipped, or the problem is
    too large.
    """
    solved = _solve(model, uplink, step_size, noise_variance)
    if solved is None:
        return None
    stationary, chain_mean, chain_covariance = solved
    experiments = slice(0, len(chain_mean))
    mean, covariance = model.posterior.mean[experiments], model.posterior.covariance[experiments]
    # Variance of the chain along the posterior's principal axes, over the posterior's own.
    values, directions = (part[experiments] for part in model.posterior.eigen)
    along = np.einsum("edj,edf,efj->ej", directions, chain_covariance, directions) / values
    trace = np.trace(covariance, axis1=1, axis2=2)
    shift = np.square(chain_mean - mean).sum(axis=1)
    whitened, spread = _whiten(directions, values, chain_mean - mean, chain_covariance)
    return Prediction(
        variance_ratio=float(np.mean(np.trace(chain_covariance, axis1=1, axis2=2) / trace)),
        variance_ratio_smallest=float(np.mean(along.min(axis=1))),
        variance_ratio_largest=float(np.mean(along.max(axis=1))),
        mean_error_squared=float(np.mean(shift)),
        relative_mean_error=float(np.mean(shift / trace)),
        clipped_fraction=stationary.clipped_fraction(chain_mean, chain_covariance),
        mean_shift=float(np.max(np.sqrt(whitened))),
        # W2 of two normal laws whose covariances commute, as any does with the identity.
        distance_squared=float(np.mean(whitened + np.square(np.sqrt(spread) - 1).sum(axis=1))),
    )


def predict_law(
    model: LinearGaussian, uplink: Uplink, step_size: float, noise_variance: float | Array
) -> Gaussian | None:
    """Stationary law for the first data set, mean (1, dim) and covariance (1, dim, dim), which
    :func:`predict` sums up; None where no law is found."""
    solved = _solve(model, uplink, step_size, noise_variance)
    return None if solved is None else Gaussian(solved[1][:1], solved[2][:1])


def _solve(
    model: LinearGaussian, uplink: Uplink, step_size: float, noise_variance: float | Array
) -> tuple[_Stationary, Array, Array] | None:
    """The equations for the first data sets, with mean (experiment, dim) and covariance
    (experiment, dim, dim) that solve them; None where none do."""
    work = model.num_devices * model.dim**3
    if work > _MOST_WORK:
        return None
    # The mean over data sets is a refinement: large problems have to do with one of them.
    experiments = slice(0, EXPERIMENTS_PREDICTED if work < _MOST_WORK / 100 else 1)
    mean, covariance = model.posterior.mean[experiments], model.posterior.covariance[experiments]
    stationary = _Stationary(*model.quadratic(experiments), uplink, step_size, noise_variance)
    solved = stationary.solve(mean, covariance)
    return None if solved is None else (stationary, *solved)


def _whiten(
    directions: Array, values: Array, shift: Array, covariance: Array
) -> tuple[Array, Array]:
    r"""Squared shift (experiment) and variances (experiment, dim) of the chain where the posterior
    is standard normal.

    With :math:`\Sigma = Q \operatorname{diag}(v) Q^\top` the first is :math:`d^\top \Sigma^{-1}
    d`, the square of the largest :math:`|u^\top d|/\sqrt{u^\top \Sigma u}` over directions u; the
    second are the eigenvalues of :math:`v^{-1/2} Q^\top C Q v^{-1/2}`."""
    scaled = directions / np.sqrt(values)[:, None, :]
    squared = np.square(np.einsum("edj,ed->ej", scaled, shift)).sum(axis=1)
    spread = np.linalg.eigvalsh(np.swapaxes(scaled, 1, 2) @ covariance @ scaled)
    return np.asarray(squared), np.asarray(spread, dtype=np.float64)


@dataclass(frozen=True)
class _Stationary:
    """The two equations of the stationary law, for several data sets (the leading axis) at once.

    The gradient of device k at theta is ``hessian[:, k] @ theta - offset[:, k]``."""

    hessian: Array
    """(experiment, device, dim, dim)"""
    offset: Array
    """(experiment, device, dim)"""
    uplink: Uplink
    step_size: float
    noise_variance: float | Array
    """Variance of the channel's noise in the server's estimate, a number or (dim)."""

    def gradient_law(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of every device's gradient entries, each (experiment, device,
        dim), when theta is normal with the given mean and covariance."""
        centre = np.einsum("ekij,ej->eki", self.hessian, mean) - self.offset
        variance = np.einsum(
            "ekij,ejl,ekil->eki", self.hessian, covariance, self.hessian, optimize=True
        )
        # The spread is divided by: a variance that vanishes, or is rounded below 0, must not fail.
        return centre, np.sqrt(np.maximum(variance, np.finfo(float).tiny))

    def averages(self, mean: Array, covariance: Array) -> tuple[Array, Array, Array]:
        """Sum of the devices' expected symbols (experiment, dim), its Jacobian in the mean
        (experiment, dim, dim), and the variance of the server's estimate (experiment, dim), for a
        normal theta with the given mean and covariance."""
        centre, spread = self.gradient_law(mean, covariance)
        drift, variance = np.zeros(mean.shape), np.zeros(mean.shape)
        jacobian = np.zeros(covariance.shape)
        at_once = max(1, _NUMBERS_AT_ONCE // (mean.size * len(NODES)))
        for first in range(0, centre.shape[1], at_once):
            some = slice(first, first + at_once)
            gradient = centre[:, some, :, None] + spread[:, some, :, None] * NODES
            symbol, variance_of_symbol = _symbol_law(self.uplink, gradient)
            # Gradient = centre + spread x node, so that means over the nodes are expectations; the
            # mean of symbol x node over the spread is the averaged slope, by Stein's identity, and
            # needs no derivative of the link.
            mean_factor, square = self._arrival(some)
            drift += (mean_factor * (symbol @ WEIGHTS)).sum(axis=1)
            slope = mean_factor * (symbol @ (WEIGHTS * NODES)) / spread[:, some]
            jacobian += np.einsum("eki,ekij->eij", slope, self.hessian[:, some])
            noise = variance_of_symbol @ WEIGHTS
            # A factor of arrival that scatters makes noise of the mean symbol as well.
            scatter = (square - np.square(mean_factor)) * (np.square(symbol) @ WEIGHTS)
            variance += (square * noise + scatter).sum(axis=1)
        return drift, jacobian, variance + self.noise_variance

    def _arrival(self, devices: slice) -> tuple[Array, Array]:
        """Mean and mean square of the factor with which the symbols of some devices arrive, to be
        multiplied with (experiment, device, dim)."""
        arrival = arrival_of(self.uplink, self.hessian.shape[1])
        if arrival is None:
            return np.ones((1, 1)), np.ones((1, 1))
        return arrival.mean[devices, None], arrival.mean_square[devices, None]

    def solve(self, mean: Array, covariance: Array) -> tuple[Array, Array] | None:
        """Stationary mean and covariance by iteration from the posterior's; None where there is
        none.

        The mean takes a Newton step, the covariance solves its equation for the slopes at hand."""
        identity = np.eye(mean.shape[-1])
        for _ in range(_MOST_ITERATIONS):
            drift, jacobian, variance = self.averages(mean, covariance)
            try:
                # Newton's step: the drift's Jacobian in the mean is J, because gradients are linear
                # in theta.
                shift = np.linalg.solve(jacobian, drift[..., None])[..., 0]
            except np.linalg.LinAlgError:  # every gradient is clipped: no slope at all
                return None
            new = solve_stationary(
                identity - self.step_size * jacobian,
                self.step_size**2 * identity * variance[:, None, :],
            )
            if new is None:
                return None
            scale = np.trace(new, axis1=1, axis2=2)
            # A shift of the mean counts by its square, which has the unit of a covariance.
            change = np.abs(new - covariance).max(axis=(1, 2)) + np.square(shift).max(axis=1)
            mean, covariance = mean - shift, new
            if (change < _TOLERANCE * scale).all():
                return mean, covariance
        return None

    def clipped_fraction(self, mean: Array, covariance: Array) -> float:
        """Expected fraction of gradient entries beyond the clip, over devices, entries and data
        sets."""
        centre, spread = self.gradient_law(mean, covariance)
        inside = ndtr_once((self.uplink.clip - centre) / spread) - ndtr_once(
            (-self.uplink.clip - centre) / spread
        )
        return float(1.0 - np.mean(inside))


def _symbol_law(uplink: Uplink, gradient: Array) -> tuple[Array, Array]:
    """Mean and variance of the symbols that devices send for given gradients, both in the shape of
    ``gradient``. A bit's variance follows from its mean, which need not be computed twice."""
    symbol = uplink.mean_symbol(gradient)
    if uplink.symbol_format.kind == "bits":
        return symbol, np.asarray(1.0 - np.square(symbol))
    return symbol, uplink.symbol_variance(gradient)


def solve_stationary(transition: Array, noise: Array) -> Array | None:
    r"""Stationary covariance, the solution of :math:`C = M C M^\top + Q`, by doubling; all are
    (experiment, dim, dim). None if M is unstable for some data set.

    It iterates :math:`C_{2n} = C_n + M^n C_n (M^n)^\top` from :math:`C_1 = Q`.
    """
    covariance, power = noise, transition
    # Powers of M double in exponent, so 64 rounds reach every M whose spectral radius can be told
    # from 1. What is left of the sum is of the order of the square of the power: nothing at 1e-20.
    for _ in range(64):
        # Powers that have grown so far are taken for those of an unstable chain.
        if not np.isfinite(power).all() or np.abs(power).max() > 1e6:
            return None
        if np.abs(power).max() < 1e-20:
            return covariance
        covariance = covariance + power @ covariance @ np.swapaxes(power, 1, 2)
        power = power @ power
    return None
