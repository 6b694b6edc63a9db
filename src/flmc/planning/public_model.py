r"""A linear regression of which only the sizes of its data are known, and are public.

With N examples on K devices and standard normal features and residuals, the curvature of the
negative log posterior is about N in every direction, and an entry of a device's gradient near the
mode is normal with variance N/K: it is a sum of N/K products of a feature and a residual."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.uplink.example_clipping import typical_shift_variance
from flmc.uplink.uplink import Uplink


class PublicLaw(NamedTuple):
    """Predicted law of a plan's chain, compared with the posterior, as computed from public sizes
    of the data alone."""

    variance_ratio: float
    """Variance of the samples over the posterior's; infinite where the step is too large."""
    mean_shift: float
    """Typical distance of the samples' mean from the posterior mean in the worst direction, in
    posterior standard deviations; infinite where the step is too large."""
    clipped_fraction: float
    """Share of the entries of a device's gradients that lie beyond the clip."""

    @property
    def variance_ratio_smallest(self) -> float:
        """Smallest variance ratio over directions, under the name that ``Prediction`` has for it:
        equal to ``variance_ratio``, because all directions are taken to be alike."""
        return self.variance_ratio

    @property
    def variance_ratio_largest(self) -> float:
        """Largest variance ratio over directions, under the name that ``Prediction`` has for it:
        equal to ``variance_ratio``, because all directions are taken to be alike."""
        return self.variance_ratio


class PublicModel(Model):
    """Linear regression of which only the numbers of examples, devices and entries are known: it
    can be planned for, not sampled."""

    public = True

    def __init__(self, num_samples: int, num_devices: int, dim: int) -> None:
        self.num_samples, self.num_devices, self.dim = num_samples, num_devices, dim
        each, more = divmod(num_samples, num_devices)
        self.device_sizes = tuple(each + (k < more) for k in range(num_devices))
        # The bounds are the extreme eigenvalues of the Gram matrix of standard normal features
        # (Marchenko and Pastur), with a margin.
        ratio = math.sqrt(dim / num_samples)
        self.smoothness = max(1.3, 1.1 * (1 + ratio) ** 2) * num_samples
        self.convexity = min(0.7, max(0.05, 0.9 * (1 - ratio) ** 2)) * num_samples

    @property
    def typical_convexity(self) -> float:
        """Smallest curvature that is likely: the lower edge of Marchenko and Pastur's law, and at
        least a twentieth of the number of examples. The width of an answer is predicted with it;
        the sampler's step follows from ``convexity``, a bound that is never larger."""
        ratio = math.sqrt(self.dim / self.num_samples)
        return max(0.05, (1 - ratio) ** 2) * self.num_samples

    @property
    def spread(self) -> float:
        """Standard deviation of an entry of a device's gradient near the mode, over draws of the
        data."""
        return math.sqrt(self.num_samples / self.num_devices)

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Zeros, (..., device, dim), for ``theta`` (..., dim), in place of gradients, which cannot
        be computed without data."""
        return np.zeros((*theta.shape[:-1], self.num_devices, self.dim))

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Zeros, (..., device, dim), for ``theta`` (..., dim), in place of gradients, which cannot
        be computed without data."""
        return self.gradient(theta, experiments)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Zeros, (..., device, dim), for ``theta`` (..., dim), in place of gradients, which cannot
        be computed without data."""
        return self.gradient(theta, experiments)

    def law(self, plan: Plan) -> PublicLaw:
        r"""Predicted law of a plan's chain, from the link averaged over local gradients.

        With the step :math:`\eta`, N examples, the averaged slope :math:`\bar\kappa` and the
        averaged variance :math:`\bar V` of the server's estimate, the variance ratio is
        :math:`\eta\bar V/(\bar\kappa(2 - \eta\bar\kappa N))` at positions and :math:`\eta\bar
        V/(2\bar\kappa)` at midpoints. Where local gradients sum to zero, mean symbols need not:
        their sum over K devices has in each of m entries the variance :math:`K r^2`, where
        :math:`r^2` is the part of a mean symbol's variance that a straight line in the gradient
        does not explain. This moves the mean by :math:`\sqrt{m K r^2/N}/\bar\kappa` posterior
        standard deviations in the worst direction. The shift that clipping single examples causes
        is added to it in squares.
        """
        uplink = plan.uplink
        gradient = self.spread * NODES
        symbol, scatter = self._over_batches(uplink, gradient)
        # In the regression of the mean symbol on the gradient, the slope is the averaged slope (by
        # Stein's identity), and r^2 is the mean square that the straight line leaves unexplained.
        straight = float(symbol @ (WEIGHTS * NODES))
        bent = max(0.0, float(np.square(symbol) @ WEIGHTS) - straight**2)
        slope = straight / self.spread * uplink.example_shrink
        variance = self._estimate_variance(plan, uplink, float(scatter @ WEIGHTS))
        step = plan.step_size
        outside = 2.0 * float(
            ndtr(np.array(-uplink.clip / self.spread * math.sqrt(uplink.batch_share)))
        )
        # ``rest`` is 0 or less where the effective step times the curvature N is 2 or more: chains
        # then diverge.
        rest = 2.0 - step * slope * self.num_samples
        if slope <= 0 or rest <= 0:
            return PublicLaw(math.inf, math.inf, outside)
        squared = self.num_devices * bent / self.num_samples / slope**2
        squared += typical_shift_variance(uplink.example_clip, uplink.example_norm, self.dim)
        shift = math.sqrt(self.dim * squared)
        # Successive positions have the correlation rest - 1, so the variance of their midpoints is
        # rest/2 times that of positions.
        ratio = step * variance / (slope * rest)
        return PublicLaw(ratio * rest / 2.0 if plan.midpoints else ratio, shift, outside)

    def _over_batches(self, uplink: Uplink, gradient: Array) -> tuple[Array, Array]:
        """Mean and variance of a symbol, (node) each, over random bits and batches of examples,
        where ``gradient`` (node) holds values of an entry of a local gradient from all examples."""
        if not uplink.batched:
            return uplink.mean_symbol(gradient), uplink.symbol_variance(gradient)
        # With residuals and features of unit variance, drawing a batch, the share q of a device's
        # N/K examples, adds the variance (1/q - 1) N/K to an entry of its gradient.
        noise = self.spread * math.sqrt(1.0 / uplink.batch_share - 1.0)
        drawn = gradient[:, None] + noise * NODES
        symbol = uplink.mean_symbol(drawn)
        mean = symbol @ WEIGHTS
        inside = uplink.symbol_variance(drawn) + np.square(symbol)
        return mean, inside @ WEIGHTS - np.square(mean)

    def _estimate_variance(self, plan: Plan, uplink: Uplink, each: float) -> float:
        """Variance of an entry of the server's gradient estimate, averaged over a plan's kept
        rounds and entries, if one device's symbol has the variance ``each``."""
        active = plan.expected.num_active
        noise = uplink.noise_power / np.square(plan.planned_gain) + each * active
        return float(np.mean(np.square(plan.num_devices / active) * noise))
