r"""What is publicly known of a linear regression before anybody has seen its data.

With N examples on K devices and standard normal features and residuals, the curvature of the
negative log posterior is about N in every direction, and an entry of a device's gradient near the
mode is normal with variance N/K: it is a sum of N/K products of a feature and a residual."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.numerics.special import ndtr
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.uplink.example_clipping import typical_shift_variance
from flmc.uplink.uplink import Uplink

_WIDEST, _MOST_CLIPPED = 1.15, 0.015
"""Variance ratio and clipped share up to which a candidate counts, by public knowledge."""
_LARGEST_SHIFT = 0.17
"""Typical shift of the mean up to which a candidate counts: two thirds of what is warned of,
because data differ."""


class PublicLaw(NamedTuple):
    """What a chain samples, as far as public knowledge tells.

    Attributes
    ----------
    variance_ratio
        Variance of the samples over the posterior's.
    mean_shift
        Typical distance of the samples' mean from the posterior mean in the worst direction, in
        posterior standard deviations.
    clipped_fraction
        Share of a device's gradient entries beyond the clip.
    """

    variance_ratio: float
    mean_shift: float
    clipped_fraction: float

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against it."""
        return (
            1 / _WIDEST <= self.variance_ratio <= _WIDEST
            and self.mean_shift <= _LARGEST_SHIFT
            and self.clipped_fraction <= _MOST_CLIPPED
        )

    @property
    def may_fit(self) -> bool:
        """Whether that of another number of rounds could fit: the shift of the mean and the clipped
        share are those of the uplink, however many rounds there are."""
        # An infinite shift says that the step was too large, which does depend on the rounds.
        shifted = _LARGEST_SHIFT < self.mean_shift < math.inf
        return not shifted and self.clipped_fraction <= _MOST_CLIPPED


class PublicModel(Model):
    """Linear regression of which only sizes are known: it can be planned for, not sampled.

    Parameters
    ----------
    num_samples, num_devices, dim
        Number of examples in all, of devices, and of entries.
    """

    public = True

    def __init__(self, num_samples: int, num_devices: int, dim: int) -> None:
        self.num_samples, self.num_devices, self.dim = num_samples, num_devices, dim
        # Of the Gram matrix of standard normal features, with a margin (Marchenko and Pastur).
        ratio = math.sqrt(dim / num_samples)
        self.smoothness = max(1.3, 1.1 * (1 + ratio) ** 2) * num_samples
        self.convexity = min(0.7, max(0.05, 0.9 * (1 - ratio) ** 2)) * num_samples

    @property
    def spread(self) -> float:
        """Standard deviation of an entry of a device's gradient near the mode."""
        return math.sqrt(self.num_samples / self.num_devices)

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        experiments
            Not used: there is one data set.
        """
        return np.zeros((*theta.shape[:-1], self.num_devices, self.dim))

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_clip, experiments
            Not used.
        """
        return self.gradient(theta, experiments)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_norm, experiments
            Not used.
        """
        return self.gradient(theta, experiments)

    def law(self, plan: Plan) -> PublicLaw:
        r"""What the chain of a plan samples, from the link averaged over local gradients.

        With the averaged slope :math:`\bar\kappa` and the averaged variance :math:`\bar V` of the
        server's estimate the variance ratio is :math:`\eta\bar V/(\bar\kappa(2 - \eta\bar\kappa
        N))`. Local gradients cancel at the mode, mean symbols do not quite: what is left of their
        sum has in each of m entries the variance :math:`K r^2`, where :math:`r^2` is the variance
        of the mean symbol that no straight line explains. It moves the mean by :math:`\sqrt{m K
        r^2/N}/\bar\kappa` posterior standard deviations in the worst direction. Clipped examples
        move it as well.

        Parameters
        ----------
        plan
            A plan for this model.
        """
        uplink = plan.uplink
        gradient = self.spread * NODES
        symbol = uplink.mean_symbol(gradient)
        straight = float(symbol @ (WEIGHTS * NODES))
        bent = max(0.0, float(np.square(symbol) @ WEIGHTS) - straight**2)
        slope = straight / self.spread * uplink.example_shrink
        variance = self._estimate_variance(plan, uplink, gradient)
        step = plan.step_size
        outside = 2.0 * float(ndtr(np.array(-uplink.clip / self.spread)))
        rest = 2.0 - step * slope * self.num_samples
        if slope <= 0 or rest <= 0:
            return PublicLaw(math.inf, math.inf, outside)
        squared = self.num_devices * bent / self.num_samples / slope**2
        squared += typical_shift_variance(uplink.example_clip, uplink.example_norm, self.dim)
        shift = math.sqrt(self.dim * squared)
        return PublicLaw(step * variance / (slope * rest), shift, outside)

    def _estimate_variance(self, plan: Plan, uplink: Uplink, gradient: Array) -> float:
        """Variance of the server's estimate in kept rounds, over rounds and entries."""
        active = plan.expected.num_active
        each = float(uplink.symbol_variance(gradient) @ WEIGHTS)
        noise = uplink.noise_power / np.square(plan.planned_gain) + each * active
        return float(np.mean(np.square(plan.num_devices / active) * noise))
