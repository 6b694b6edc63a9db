r"""Refined prediction of what the chain will sample, for quadratic local costs.

The temperature is computed with the link's slope at 0 and the largest quantisation variance. The
prediction averages both over the local gradients that occur. Let :math:`\theta \sim N(\bar\theta,
C)` be stationary. Device k's gradient entries are normal with mean :math:`(H_k\bar\theta - b_k)_i`
and variance :math:`s_{ki}^2 = (H_k C H_k)_{ii}`, where :math:`H_k` is the Hessian of its cost and
:math:`-b_k` the gradient at 0. With the mean symbol :math:`\psi`, Stein's identity gives the
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
from flmc.planning.answer_law import Response
from flmc.uplink.csi import arrival_of
from flmc.uplink.uplink import Uplink

EXPERIMENTS_PREDICTED = 8
"""Largest number of data sets (experiments of a model) that a prediction averages over: the first
ones, or only the very first of a large problem."""

# Trapezoidal rule for the standard normal: exact to rounding for smooth functions, 1e-3 of the jump
# in slope at a kink (the clip).
NODES = np.linspace(-8.0, 8.0, 161)
"""Nodes of the quadrature by which means over the standard normal distribution are computed,
(node)."""
WEIGHTS = np.exp(-0.5 * NODES**2) / np.exp(-0.5 * NODES**2).sum()
"""Weights of the nodes in a mean over the standard normal distribution, (node); they add up to 1.
"""
_MOST_ITERATIONS = 200
"""Largest number of iterations of the search for the stationary law; if it has not converged by
then, there is no prediction."""
_NUMBERS_AT_ONCE = 2_000_000
"""Largest number of entries, over data sets, devices, entries of theta and nodes of the quadrature,
of an array that is held in memory at a time: 16 MB."""
_MOST_WORK = 5e8
"""Number of multiplications in one iteration (devices x dim cubed) above which a problem counts as
too large to be predicted."""
_MOST_DOUBLINGS = 100
"""Largest number of times that the number of rounds is doubled until a chain has forgotten its
start: 1e30 rounds."""
_TOLERANCE = 1e-9
"""Relative change in one iteration below which the search for the stationary law ends: change of
the covariance plus the squared change of the mean, over the trace of the covariance."""


@dataclass(frozen=True)
class Prediction:
    """Predicted stationary law of a plan's chain, compared with the exact posterior; every number
    is a mean over data sets unless it says otherwise."""

    variance_ratio: float
    """Trace of the covariance of the chain's predicted stationary law over that of the
    posterior's."""
    variance_ratio_smallest: float
    """Smallest ratio of the chain's predicted variance to the posterior's, over all directions of
    theta."""
    variance_ratio_largest: float
    """Largest ratio of the chain's predicted variance to the posterior's, over all directions of
    theta."""
    mean_error_squared: float
    """Squared Euclidean distance of the chain's mean from the posterior mean."""
    relative_mean_error: float
    """Squared distance of the chain's mean from the posterior mean, over the trace of the
    posterior's covariance."""
    clipped_fraction: float
    """Expected fraction of the devices' gradient entries beyond the clip."""
    mean_shift: float | None = None
    """Distance of the chain's mean from the posterior mean in the direction in which it is largest,
    in posterior standard deviations, in the data set in which it is largest; None in a plan from
    before this number was computed."""
    distance_squared: float | None = None
    """Squared 2-Wasserstein distance of the chain's law from the posterior, in coordinates in which
    the posterior's covariance is the identity; None in a plan from before this number was computed.
    """
    memory: float | None = None
    """Correlation of successive rounds of the chain in the direction in which it forgets most
    slowly; None in a plan from before this number was computed."""
    rounds_to_arrive: int | None = None
    """Rounds after which chains from several starts, moved by the expected gradient estimates
    without noise, are within a quarter of a standard deviation of the mean of their stationary law;
    None where that was not computed."""
    left_shift: float | None = None
    """Error that the worst of several starts leaves in the mean of a chain's kept rounds, in
    standard deviations of the chain; where noise carries a chain away from its mean in the burn-in,
    its distance from the mean after it. None where chains were not followed from their starts."""
    left_variance: float | None = None
    """Excess that the worst of several starts leaves in the variance of a chain's kept rounds, over
    the chain's stationary variance; None where chains were not followed from their starts."""


def predict(
    model: LinearGaussian,
    uplink: Uplink,
    step_size: float,
    noise_variance: float | Array,
    *,
    midpoints: bool = False,
) -> Prediction | None:
    """Prediction of what the chain will sample when all devices transmit in every round, averaged
    over at most 8 of the model's data sets. ``noise_variance``, a number or (dim), is the variance
    of the channel's noise in the server's estimate: the noise power over the squared gain. Draws
    are taken at the chain's positions, or half way between them, at ``midpoints``.

    None where the linearised chain is unstable, nearly every gradient is clipped, or the problem is
    too large.
    """
    solved = predict_with_response(model, uplink, step_size, noise_variance, midpoints=midpoints)
    return None if solved is None else solved[0]


def predict_with_response(
    model: LinearGaussian,
    uplink: Uplink,
    step_size: float,
    noise_variance: float | Array,
    *,
    midpoints: bool = False,
) -> tuple[Prediction, Response] | None:
    """The prediction that :func:`predict` returns, and the curvature and noise that the server of
    the first data set sees in its gradient estimates. From these its answer is predicted; they are
    not yet divided by the link's slope. None where :func:`predict` returns None."""
    solved = _solve(model, uplink, step_size, noise_variance)
    if solved is None:
        return None
    stationary, chain_mean, chain_covariance = solved
    experiments = slice(0, len(chain_mean))
    _, jacobian, variance = stationary.averages(chain_mean, chain_covariance)
    drawn = chain_covariance
    if midpoints:
        drawn = midpoint_covariance(chain_covariance, jacobian, step_size)
    prediction = compare_laws(
        chain_mean,
        drawn,
        model.posterior.mean[experiments],
        model.posterior.covariance[experiments],
        clipped_fraction=stationary.clipped_fraction(chain_mean, chain_covariance),
        memory=slowest_memory(jacobian, step_size),
    )
    posterior = np.asarray(model.posterior.covariance[0])
    return prediction, Response(jacobian[0], chain_covariance[0], variance[0], posterior)


def compare_laws(
    chain_mean: Array,
    chain_covariance: Array,
    mean: Array,
    covariance: Array,
    *,
    clipped_fraction: float,
    memory: float,
    travel: tuple[int, float, float] | None = None,
) -> Prediction:
    """Prediction that compares the normal law of a chain, ``chain_mean`` and ``chain_covariance``,
    with that of the posterior, ``mean`` and ``covariance``, for several data sets: means are
    (experiment, dim), covariances (experiment, dim, dim). ``travel`` holds the prediction's
    ``rounds_to_arrive``, ``left_shift`` and ``left_variance``; None where chains were not followed
    from their starts."""
    trace = np.trace(covariance, axis1=1, axis2=2)
    shift = np.square(chain_mean - mean).sum(axis=1)
    root = np.linalg.cholesky(covariance)
    away = np.linalg.solve(root, (chain_mean - mean)[..., None])[..., 0]
    half = np.linalg.solve(root, chain_covariance)
    # The eigenvalues are the chain's variances along its principal axes, in coordinates in which
    # the posterior is standard normal. The variance ratio of any direction, so of any entry, lies
    # between the smallest and the largest of them.
    spread = np.linalg.eigvalsh(np.linalg.solve(root, np.swapaxes(half, 1, 2)))
    squared = np.square(away).sum(axis=1)
    return Prediction(
        variance_ratio=float(np.mean(np.trace(chain_covariance, axis1=1, axis2=2) / trace)),
        variance_ratio_smallest=float(np.mean(spread[:, 0])),
        variance_ratio_largest=float(np.mean(spread[:, -1])),
        mean_error_squared=float(np.mean(shift)),
        relative_mean_error=float(np.mean(shift / trace)),
        clipped_fraction=clipped_fraction,
        mean_shift=float(np.max(np.sqrt(squared))),
        # 2-Wasserstein distance of two normal laws whose covariances commute, as any covariance
        # does with the identity.
        distance_squared=float(np.mean(squared + np.square(np.sqrt(spread) - 1).sum(axis=1))),
        memory=memory,
        rounds_to_arrive=None if travel is None else travel[0],
        left_shift=None if travel is None else travel[1],
        left_variance=None if travel is None else travel[2],
    )


def midpoint_covariance(covariance: Array, jacobian: Array, step_size: float) -> Array:
    r"""Covariance of the points half way between successive positions of a stationary chain, from
    the covariance C of its positions and the mean Jacobian J of the received gradient, all
    (experiment, dim, dim).

    By Stein's identity successive positions have the cross covariance :math:`(I - \eta J) C`, with
    the step size :math:`\eta`, so that the midpoints have the covariance :math:`C - \eta(JC +
    CJ^\top)/4`."""
    turned = jacobian @ covariance
    return np.asarray(covariance - 0.25 * step_size * (turned + np.swapaxes(turned, 1, 2)))


def slowest_memory(jacobian: Array, step_size: float) -> float:
    """Largest correlation of a chain's successive rounds over all directions: one minus the step
    times the smallest real part of the eigenvalues of the received gradient's mean Jacobian.
    ``jacobian`` is (experiment, dim, dim); the result is averaged over data sets."""
    return float(1.0 - step_size * np.linalg.eigvals(jacobian).real.min(axis=1).mean())


def predict_law(
    model: LinearGaussian,
    uplink: Uplink,
    step_size: float,
    noise_variance: float | Array,
    *,
    midpoints: bool = False,
) -> Gaussian | None:
    """Predicted stationary law of the draws for the first data set, with mean (1, dim) and
    covariance (1, dim, dim). The arguments, and the cases in which it is None, are those of
    :func:`predict`."""
    solved = _solve(model, uplink, step_size, noise_variance)
    if solved is None:
        return None
    stationary, mean, covariance = solved
    if midpoints:
        jacobian = stationary.averages(mean, covariance)[1]
        covariance = midpoint_covariance(covariance, jacobian, step_size)
    return Gaussian(mean[:1], covariance[:1])


def _solve(
    model: LinearGaussian, uplink: Uplink, step_size: float, noise_variance: float | Array
) -> tuple[_Stationary, Array, Array] | None:
    """The equations for the stationary law of a chain on the first data sets (at most 8), and their
    solution: mean (experiment, dim) and covariance (experiment, dim, dim). None where no solution
    is found, or the problem is too large."""
    work = model.num_devices * model.dim**3
    if work > _MOST_WORK:
        return None
    # One data set gives a prediction already, and more of them only refine it, so large problems
    # are predicted for one data set to save time.
    experiments = slice(0, EXPERIMENTS_PREDICTED if work < _MOST_WORK / 100 else 1)
    mean, covariance = model.posterior.mean[experiments], model.posterior.covariance[experiments]
    stationary = _Stationary(*model.quadratic(experiments), uplink, step_size, noise_variance)
    solved = stationary.solve(mean, covariance)
    return None if solved is None else (stationary, *solved)


@dataclass(frozen=True)
class _Stationary:
    """Equations for the mean and the covariance of a chain's stationary law, for several data sets
    (leading axis) at once.

    The gradient of the cost of device k at theta is ``hessian[:, k] @ theta - offset[:, k]``."""

    hessian: Array
    """Hessians of the devices' costs, (experiment, device, dim, dim)."""
    offset: Array
    """Negative gradients of the devices' costs at theta = 0, (experiment, device, dim)."""
    uplink: Uplink
    step_size: float
    noise_variance: float | Array
    """Variance of the channel's noise in the server's estimate, a number or (dim)."""

    def gradient_law(self, mean: Array, covariance: Array) -> tuple[Array, Array]:
        """Mean and standard deviation of every entry of every device's gradient, each (experiment,
        device, dim), where theta is normal with the given mean (experiment, dim) and covariance
        (experiment, dim, dim)."""
        centre = np.einsum("ekij,ej->eki", self.hessian, mean) - self.offset
        variance = np.einsum(
            "ekij,ejl,ekil->eki", self.hessian, covariance, self.hessian, optimize=True
        )
        # Callers divide by the standard deviation, so a variance that vanishes, or is rounded below
        # 0, is replaced by the smallest positive number.
        return centre, np.sqrt(np.maximum(variance, np.finfo(float).tiny))

    def averages(self, mean: Array, covariance: Array) -> tuple[Array, Array, Array]:
        """Sum of the devices' expected symbols (experiment, dim), its Jacobian with respect to the
        mean of theta (experiment, dim, dim), and the variance of the server's estimate (experiment,
        dim), where theta is normal with the given mean (experiment, dim) and covariance
        (experiment, dim, dim)."""
        centre, spread = self.gradient_law(mean, covariance)
        drift, variance = np.zeros(mean.shape), np.zeros(mean.shape)
        jacobian = np.zeros(covariance.shape)
        at_once = max(1, _NUMBERS_AT_ONCE // (mean.size * len(NODES)))
        for first in range(0, centre.shape[1], at_once):
            some = slice(first, first + at_once)
            gradient = centre[:, some, :, None] + spread[:, some, :, None] * NODES
            symbol, variance_of_symbol = _symbol_law(self.uplink, gradient)
            # A gradient is centre + spread x node, so that means over the nodes are expectations.
            # By Stein's identity the averaged slope is the mean of symbol x node over the spread,
            # which needs no derivative of the link.
            mean_factor, square = self._arrival(some)
            drift += (mean_factor * (symbol @ WEIGHTS)).sum(axis=1)
            slope = mean_factor * (symbol @ (WEIGHTS * NODES)) / spread[:, some]
            jacobian += np.einsum("eki,ekij->eij", slope, self.hessian[:, some])
            noise = variance_of_symbol @ WEIGHTS
            # With inexact channel estimates the amplitude of a received symbol is random, which
            # turns a part of the mean symbol into noise.
            scatter = (square - np.square(mean_factor)) * (np.square(symbol) @ WEIGHTS)
            variance += (square * noise + scatter).sum(axis=1)
        return drift, jacobian, variance + self.noise_variance

    def _arrival(self, devices: slice) -> tuple[Array, Array]:
        """Mean and mean square of the factor of the gain with which the symbols of ``devices``
        arrive (1 with exact channel estimates), each (1 or device, 1)."""
        arrival = arrival_of(self.uplink, self.hessian.shape[1])
        if arrival is None:
            return np.ones((1, 1)), np.ones((1, 1))
        return arrival.mean[devices, None], arrival.mean_square[devices, None]

    def solve(self, mean: Array, covariance: Array) -> tuple[Array, Array] | None:
        """Stationary mean (experiment, dim) and covariance (experiment, dim, dim), by iteration
        that starts at the given ones; None where the iteration fails.

        In each iteration the mean takes a Newton step towards a drift of 0, and the covariance
        solves its equation with the mean Jacobian and the noise at the present mean and covariance.
        """
        identity = np.eye(mean.shape[-1])
        for _ in range(_MOST_ITERATIONS):
            drift, jacobian, variance = self.averages(mean, covariance)
            try:
                # This is Newton's step for a ``drift`` of 0: gradients are linear in theta, so
                # ``jacobian`` is the derivative of ``drift`` with respect to the mean.
                shift = np.linalg.solve(jacobian, drift[..., None])[..., 0]
            except np.linalg.LinAlgError:  # every gradient is clipped, so that J is singular
                return None
            new = solve_stationary(
                self.step_size * jacobian,
                self.step_size**2 * identity * variance[:, None, :],
            )
            if new is None:
                return None
            scale = np.trace(new, axis1=1, axis2=2)
            # A shift of the mean is squared, which gives it the unit of a covariance.
            change = np.abs(new - covariance).max(axis=(1, 2)) + np.square(shift).max(axis=1)
            mean, covariance = mean - shift, new
            if (change < _TOLERANCE * scale).all():
                return mean, covariance
        return None

    def clipped_fraction(self, mean: Array, covariance: Array) -> float:
        """Expected fraction of gradient entries beyond the clip, over devices, entries and data
        sets, where theta is normal with the given mean (experiment, dim) and covariance
        (experiment, dim, dim)."""
        centre, spread = self.gradient_law(mean, covariance)
        inside = ndtr_once((self.uplink.clip - centre) / spread) - ndtr_once(
            (-self.uplink.clip - centre) / spread
        )
        return float(1.0 - np.mean(inside))


def _symbol_law(uplink: Uplink, gradient: Array) -> tuple[Array, Array]:
    """Mean and variance of the symbols that devices send for given entries of local gradients, each
    in the shape of ``gradient``."""
    symbol = uplink.mean_symbol(gradient)
    # A bit's variance follows from its mean, so the mean symbol is not computed again.
    if uplink.symbol_format.kind == "bits":
        return symbol, np.asarray(1.0 - np.square(symbol))
    return symbol, uplink.symbol_variance(gradient)


def solve_stationary(decay: Array, noise: Array) -> Array | None:
    r"""Stationary covariance, the solution of :math:`C = M C M^\top + Q` with :math:`M = I - X`,
    where ``decay`` is X and ``noise`` is Q, all (experiment, dim, dim), by doubling; None if M is
    unstable for some data set.

    It iterates :math:`C_{2n} = C_n + M^n C_n (M^n)^\top` from :math:`C_1 = Q`.
    """
    covariance, identity = noise, np.eye(decay.shape[-1])
    # ``decay`` is X_n with M^n = I - X_n, because M^n itself would round away the small X of a
    # short step; it is doubled by X_2n = 2 X_n - X_n^2. Once no entry of M^n is above 1e-10, what
    # is left of the sum is of the order of 1e-20, and is left out.
    for _ in range(_MOST_DOUBLINGS):
        power = identity - decay
        # The powers of M vanish if the chain is stable, so an entry above 1e6 shows that it is not.
        if not np.isfinite(power).all() or np.abs(power).max() > 1e6:
            return None
        if np.abs(power).max() < 1e-10:
            return covariance
        covariance = covariance + power @ covariance @ np.swapaxes(power, 1, 2)
        decay = 2.0 * decay - decay @ decay
    return None
