r"""What the chain will really sample, for quadratic local costs: a refined prediction.

The temperature takes the slope at 0 and the largest quantisation variance. Here both are averaged
over the local gradients that occur. Let :math:`\theta \sim N(\bar\theta, C)` be stationary. Device
k's gradient entries are normal with mean :math:`(H_k\bar\theta - b_k)_i` and variance
:math:`s_{ki}^2 = (H_k C H_k)_{ii}`. With the mean symbol :math:`\psi`, Stein's identity gives the
averaged slope :math:`E[\psi'] = E[\psi(g)(g - E g)]/s^2`, and

.. math:: \sum_k E[\psi(g_k)] = 0, \qquad
          C = (I - \eta J) C (I - \eta J)^\top + \eta^2 (N_0/A^2 + E[V_q]), \qquad
          J = \sum_k \operatorname{diag}(E[\psi'(g_k)]) H_k .

Both are solved together by iteration. ``docs/sampling.md`` derives this and says what is neglected.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.models.linear import LinearGaussian
from flmc.uplink.uplink import Uplink

EXPERIMENTS_PREDICTED = 8
"""A prediction averages over at most this many data sets."""

# Trapezoidal rule for the standard normal: exact to rounding for smooth functions, 1e-3 of the jump
# in slope at a kink (the clip).
_NODES = np.linspace(-8.0, 8.0, 161)
_WEIGHTS = np.exp(-0.5 * _NODES**2) / np.exp(-0.5 * _NODES**2).sum()
_MOST_ITERATIONS = 200
_MOST_WORK = 5e8
"""Multiplications of an iteration beyond which no prediction is made."""
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Prediction:
    """Stationary values; ratios are to the exact posterior, averaged over data sets."""

    variance_ratio: float
    variance_ratio_smallest: float
    variance_ratio_largest: float
    mean_error_squared: float
    """Squared distance of the chain's mean from the posterior mean."""
    relative_mean_error: float
    """The same over trace(Sigma)."""
    clipped_fraction: float


def predict(
    model: LinearGaussian, uplink: Uplink, step_size: float, noise_variance: float | Array
) -> Prediction | None:
    """Prediction for all devices active. ``noise_variance`` is N_0/A^2, a number or one per entry.
    None where there is none to be found: the linearised chain is unstable, or nearly every gradient
    is clipped."""
    work = model.num_devices * model.dim**3
    if work > _MOST_WORK:
        return None
    experiments = slice(0, EXPERIMENTS_PREDICTED if work < _MOST_WORK / 100 else 1)
    mean, covariance = model.posterior.mean[experiments], model.posterior.covariance[experiments]
    stationary = _Stationary(*model.quadratic(experiments), uplink, step_size, noise_variance)
    solved = stationary.solve(mean, covariance)
    if solved is None:
        return None
    chain_mean, chain_covariance = solved
    values, directions = np.linalg.eigh(covariance)
    along = np.einsum("edj,edf,efj->ej", directions, chain_covariance, directions) / values
    trace = np.trace(covariance, axis1=1, axis2=2)
    shift = np.square(chain_mean - mean).sum(axis=1)
    return Prediction(
        variance_ratio=float(np.mean(np.trace(chain_covariance, axis1=1, axis2=2) / trace)),
        variance_ratio_smallest=float(np.mean(along.min(axis=1))),
        variance_ratio_largest=float(np.mean(along.max(axis=1))),
        mean_error_squared=float(np.mean(shift)),
        relative_mean_error=float(np.mean(shift / trace)),
        clipped_fraction=stationary.clipped_fraction(chain_mean, chain_covariance),
    )


@dataclass(frozen=True)
class _Stationary:
    """The two equations above; leading axis: data sets."""

    hessian: Array
    offset: Array
    uplink: Uplink
    step_size: float
    noise_variance: float | Array

    def gradient_law(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of every device's gradient entries, (experiment, device,
        dim)."""
        centre = np.einsum("ekij,ej->eki", self.hessian, mean) - self.offset
        variance = np.einsum(
            "ekij,ejl,ekil->eki", self.hessian, covariance, self.hessian, optimize=True
        )
        return centre, np.sqrt(np.maximum(variance, np.finfo(float).tiny))

    def averages(self, mean: Array, covariance: Array) -> tuple[Array, Array, Array]:
        """Drift (experiment, dim), its Jacobian, and the noise variance per entry."""
        centre, spread = self.gradient_law(mean, covariance)
        gradient = centre[..., None] + spread[..., None] * _NODES
        symbol = self.uplink.mean_symbol(gradient)
        drift = (symbol @ _WEIGHTS).sum(axis=1)
        slope = symbol @ (_WEIGHTS * _NODES) / spread
        jacobian = np.einsum("eki,ekij->eij", slope, self.hessian)
        variance = (self.uplink.symbol_variance(gradient) @ _WEIGHTS).sum(
            axis=1
        ) + self.noise_variance
        return drift, jacobian, variance

    def solve(self, mean: Array, covariance: Array) -> tuple[Array, Array] | None:
        """Fixed-point iteration from the posterior: Newton for the mean, doubling for the
        covariance."""
        identity = np.eye(mean.shape[-1])
        for _ in range(_MOST_ITERATIONS):
            drift, jacobian, variance = self.averages(mean, covariance)
            try:
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
            change = np.abs(new - covariance).max(axis=(1, 2)) + np.square(shift).max(axis=1)
            mean, covariance = mean - shift, new
            if (change < _TOLERANCE * scale).all():
                return mean, covariance
        return None

    def clipped_fraction(self, mean: Array, covariance: Array) -> float:
        """Expected fraction of gradient entries beyond the clip."""
        centre, spread = self.gradient_law(mean, covariance)
        inside = ndtr((self.uplink.clip - centre) / spread) - ndtr(
            (-self.uplink.clip - centre) / spread
        )
        return float(1.0 - np.mean(inside))


def solve_stationary(transition: Array, noise: Array) -> Array | None:
    r"""The covariance :math:`C = M C M^\top + Q` by doubling: :math:`C_{2n} = C_n + M^n C_n
    (M^n)^\top`. None if M is not stable."""
    covariance, power = noise, transition
    for _ in range(64):
        if not np.isfinite(power).all() or np.abs(power).max() > 1e6:
            return None
        if np.abs(power).max() < 1e-20:
            return covariance
        covariance = covariance + power @ covariance @ np.swapaxes(power, 1, 2)
        power = power @ power
    return None
