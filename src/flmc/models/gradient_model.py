"""A model from a user's function for the gradients of the likelihood."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.distributions import Gaussian, Prior
from flmc.models.model import Model
from flmc.models.parameters import Layout


class GradientModel(Model):
    """Model of one data set whose gradients a user's function gives; made by
    :meth:`flmc.Model.from_gradient`.

    Its curvatures are the user's statement, so they count as public."""

    public = True

    def __init__(
        self,
        gradient: Callable[[Array], Array],
        prior: Prior,
        dim: int,
        num_devices: int,
        smoothness: float | None,
        convexity: float | None,
        posterior: Gaussian | None,
        clipped_gradient: Callable[[Array, float], Array] | None = None,
        predict: Callable[[Array], Array] | None = None,
        norm_clipped_gradient: Callable[[Array, float], Array] | None = None,
        names: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(prior, Prior):
            raise InvalidSetting(
                "prior must be a flmc.Normal, CorrelatedNormal or FunctionPrior, got"
                f" {type(prior).__name__}"
            )
        self._gradient, self._clipped_gradient = gradient, clipped_gradient
        self._norm_clipped_gradient = norm_clipped_gradient
        self._predict = predict
        self.layout = None if names is None else Layout.of_names(names, dim)
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
        """Gradients of the devices' local costs, (experiment, chain, device, dim): what the user's
        function gives for the likelihood, plus 1/K of the prior's gradient for K devices. There is
        one data set, so the first axis has length 1."""
        return self._with_prior("gradient", self._gradient, theta)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), for which the
        user's function clips every entry of each example's gradient; 1/K of the prior's gradient is
        added unclipped. Raises ``InvalidSetting`` if the user gave no such function."""
        clipped = self._clipped_gradient
        if clipped is None:
            return super().clipped_gradient(theta, example_clip, experiments)
        return self._with_prior(
            "clipped_gradient", lambda batch: clipped(batch, example_clip), theta
        )

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), for which the
        user's function bounds the norm of each example's gradient; 1/K of the prior's gradient is
        added as it is. Raises ``InvalidSetting`` if the user gave no such function."""
        clipped = self._norm_clipped_gradient
        if clipped is None:
            return super().norm_clipped_gradient(theta, example_norm, experiments)
        return self._with_prior(
            "norm_clipped_gradient", lambda batch: clipped(batch, example_norm), theta
        )

    def predict(self, theta: Array, experiments: slice = slice(None)) -> Array | None:
        """Predictions of the user's function, (experiment, chain, prediction), at theta
        (experiment, chain, dim); None if the user gave no such function."""
        if self._predict is None:
            return None
        batch = theta.reshape(-1, self.dim).view()
        batch.flags.writeable = False
        predicted = np.asarray(self._predict(batch), dtype=np.float64)
        if predicted.ndim != 2 or len(predicted) != len(batch):
            raise InvalidSetting(
                f"predict must return (chain, prediction) for {len(batch)} chains, got"
                f" {predicted.shape}"
            )
        return predicted.reshape(*theta.shape[:-1], -1)

    def _with_prior(self, name: str, likelihood: Callable[[Array], Array], theta: Array) -> Array:
        """Local gradients, (experiment, chain, device, dim): those of the user's function
        ``likelihood`` plus 1/K of the prior's. Raises ``InvalidSetting``, which names the function
        ``name``, if it returns a wrong shape."""
        batch = theta.reshape(-1, self.dim).view()
        # The array is read-only, because the user's function must not change the state of chains.
        batch.flags.writeable = False
        local = np.asarray(likelihood(batch), dtype=np.float64)
        expected = (len(batch), self.num_devices, self.dim)
        if local.shape != expected:
            raise InvalidSetting(
                f"{name} must return (chain, device, dim) = {expected}, got {local.shape}"
            )
        local = local + self.prior.gradient(batch)[:, None, :] / self.num_devices
        return local.reshape(*theta.shape[:-1], self.num_devices, self.dim)
