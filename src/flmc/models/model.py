r"""What the devices know: a model gives, for a batch of thetas, the gradient of every device's
local cost.

The local cost of device k is :math:`f_k(\theta) = -\ln p(D_k \mid \theta) - \tfrac1K \ln
p(\theta)`: a *sum* over its examples, plus its share 1/K of the prior. The sum of all :math:`f_k`
is the negative log posterior, up to a constant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.distributions import Gaussian, Normal


class Quadratic(NamedTuple):
    """Local costs that are quadratic: the gradient of device k is H_k theta - b_k, with ``hessian``
    (experiment, device, dim, dim) and ``offset`` (experiment, device, dim)."""

    hessian: Array
    offset: Array


class Model(ABC):
    """Per-device gradients and what is known of the posterior.

    A model may hold several data sets ("experiments") of the same shape; all are simulated at once.
    """

    dim: int
    num_devices: int
    num_experiments: int = 1
    prior: Normal = Normal()
    smoothness: float | None = None
    """Largest curvature L of the sum of all local costs, if known."""
    convexity: float | None = None
    """Smallest curvature mu of the sum of all local costs, if known."""
    public: bool = False
    """Whether smoothness and convexity are public knowledge, not computed from the devices'
    data."""

    posterior: Gaussian | None = None
    """The exact posterior, where it is known."""

    @abstractmethod
    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Local gradients: theta (experiment, chain, dim) gives (experiment, chain, device,
        dim)."""

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """The same with the gradient entries of every example clipped at ``example_clip`` before
        they are summed; the prior's share is public and is not clipped. An entry that is not a
        number counts as 0 for its example alone: else one example could silence a whole device,
        which is more than it may change."""
        raise InvalidSetting(
            "example_clip needs the gradients of single examples, which this model does not give:"
            " pass clipped_gradient to flmc.Model.from_gradient, or override it in a class of your"
            " own"
        )

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic | None:
        """The local costs of some data sets, if they are quadratic: then the fast engine can run
        them."""
        return None

    @staticmethod
    def from_gradient(
        gradient: Callable[[Array], Array],
        *,
        prior: Normal,
        dim: int,
        num_devices: int,
        smoothness: float | None = None,
        convexity: float | None = None,
        posterior: Gaussian | None = None,
        clipped_gradient: Callable[[Array, float], Array] | None = None,
    ) -> Model:
        """A model from a function: ``gradient(theta)`` takes (chain, dim) and returns (chain,
        device, dim), the gradient of each device's negative log *likelihood*, summed over its
        examples. The prior is added here.

        ``smoothness`` and ``convexity`` bound the curvature of the whole negative log posterior and
        are taken as public knowledge: they must not be computed from the devices' data if the plan
        is to carry a privacy statement.

        ``clipped_gradient(theta, clip)`` returns the same as ``gradient`` with every entry of every
        example's gradient clipped to [-clip, clip] before the examples are summed, and 0 for what
        is not a number: it is what hides single examples (``example_clip``,
        ``neighbouring="example"``), and the privacy statement relies on it."""
        if not isinstance(prior, Normal):
            raise InvalidSetting(f"prior must be a flmc.Normal, got {type(prior).__name__}")
        return GradientModel(
            gradient, prior, dim, num_devices, smoothness, convexity, posterior, clipped_gradient
        )


class GradientModel(Model):
    """See :meth:`Model.from_gradient`."""

    public = True

    def __init__(
        self,
        gradient: Callable[[Array], Array],
        prior: Normal,
        dim: int,
        num_devices: int,
        smoothness: float | None,
        convexity: float | None,
        posterior: Gaussian | None,
        clipped_gradient: Callable[[Array, float], Array] | None = None,
    ) -> None:
        self._gradient, self._clipped_gradient = gradient, clipped_gradient
        self.posterior = posterior
        self.prior = prior
        self.dim = checks.at_least("dim", dim, 1)
        self.num_devices = checks.at_least("num_devices", num_devices, 1)
        for name, value in (("mean", prior.mean), ("sd", prior.sd)):
            if np.shape(value) not in ((), (self.dim,)):
                raise InvalidSetting(
                    f"prior {name} must be a number or {dim} numbers, got the shape"
                    f" {np.shape(value)}"
                )
        if posterior is not None and posterior.mean.shape[1] != self.dim:
            raise InvalidSetting(f"posterior must have dim {dim}, got {posterior.mean.shape[1]}")
        self.smoothness = None if smoothness is None else checks.positive("smoothness", smoothness)
        self.convexity = None if convexity is None else checks.positive("convexity", convexity)
        if (
            self.smoothness is not None
            and self.convexity is not None
            and self.convexity > self.smoothness
        ):
            raise InvalidSetting(
                f"convexity must not exceed smoothness {smoothness}, got {convexity}"
            )

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Gradient of the likelihood from the user's function, plus the prior's 1/K."""
        return self._with_prior("gradient", self._gradient, theta)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """The same, with the examples clipped by the user's function."""
        clipped = self._clipped_gradient
        if clipped is None:
            return super().clipped_gradient(theta, example_clip, experiments)
        return self._with_prior(
            "clipped_gradient", lambda batch: clipped(batch, example_clip), theta
        )

    def _with_prior(self, name: str, likelihood: Callable[[Array], Array], theta: Array) -> Array:
        batch = theta.reshape(-1, self.dim).view()
        batch.flags.writeable = False  # these are the chains themselves
        local = np.asarray(likelihood(batch), dtype=np.float64)
        expected = (len(batch), self.num_devices, self.dim)
        if local.shape != expected:
            raise InvalidSetting(
                f"{name} must return (chain, device, dim) = {expected}, got {local.shape}"
            )
        local = local + self.prior.gradient(batch)[:, None, :] / self.num_devices
        return local.reshape(*theta.shape[:-1], self.num_devices, self.dim)
