"""Bayesian linear regression with many features, held as examples and not as a Hessian (dim, dim)
of each device, which would take too much memory."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearData
from flmc.data.synthetic import DrawnExamples
from flmc.models.distributions import Normal
from flmc.models.local_costs import ExampleBound, TracedCosts
from flmc.models.model import Model
from flmc.models.parameters import Layout

WIDE = 2048
"""Smallest number of features with which a synthetic linear regression is held as examples, not as
sufficient statistics."""
_ROWS_AT_ONCE = 10
"""Number of examples whose gradients are added up at a time: few enough for the processor's
cache."""
_LARGE_GRAM = 3000
"""Number of rows of a Gram matrix above which only its largest eigenvalue is computed, by Lanczos'
method."""


class WideLinear(Model):
    r"""Linear regression with many features, known noise variance and independent normal prior.

    The local cost of device k is that of :class:`flmc.LinearGaussian`, and its gradient is
    :math:`U_k^\top(U_k\theta - v_k)/\sigma^2 + \lambda\theta/K` with the features :math:`U_k` (a
    row for each example) and the targets :math:`v_k` of one of K devices. The posterior is not
    computed.

    Parameters
    ----------
    data
        Examples of one data set or several. Examples of ``DrawnExamples`` are drawn only when the
        first gradient needs them; their largest curvature is a bound that needs no examples.
    prior_precision
        :math:`\lambda`, the same for all entries.
    noise_variance
        :math:`\sigma^2`, the variance of a target given its features.

    Examples
    --------
    >>> data = flmc.data.draw_linear(seed=1, num_samples=40, dim=30, num_devices=4)
    >>> wide = flmc.models.wide_linear.WideLinear(data)
    >>> narrow = flmc.LinearGaussian(data)
    >>> at = np.ones((1, 1, 30))
    >>> bool(np.allclose(wide.gradient(at), narrow.gradient(at)))
    True
    >>> round(wide.smoothness / narrow.smoothness, 9)
    1.0
    """

    smoothness: float
    convexity: float

    def __init__(
        self,
        data: LinearData | DrawnExamples,
        *,
        prior_precision: float = 1.0,
        noise_variance: float = 1.0,
    ) -> None:
        self._precision = checks.positive("prior_precision", prior_precision)
        self._variance = checks.positive("noise_variance", noise_variance)
        self._source = data
        self._gram: Array | None = None
        self.num_devices = len(data.device_sizes)
        if isinstance(data, DrawnExamples):
            self.num_experiments, self.dim = data.num_experiments, data.dim
            top = data.largest_curvature
        else:
            self.made_from_data, self.data_findings = data.data_dependent, data.findings or ()
            if data.feature_names:
                self.layout = Layout.of_axis("theta", "feature", data.feature_names)
            features = np.reshape(data.features, (-1, *data.features.shape[-2:]))
            self.num_experiments, _, self.dim = features.shape
            tops = [_largest_eigenvalue(each) for each in features]
            top, self._gram = max(top for top, _ in tops), tops[0][1]
        self.prior = Normal(np.zeros(self.dim), np.full(self.dim, self._precision**-0.5))
        self.smoothness = top / self._variance + self._precision
        # The prior's curvature, which is the smallest curvature of the negative log posterior if
        # there are fewer examples than features, else a lower bound of it.
        self.convexity = self._precision

    @property
    def undrawn(self) -> bool:
        """Whether the examples have not been drawn yet, so that the first gradient will take
        long."""
        return isinstance(self._source, DrawnExamples) and "_examples" not in self.__dict__

    @cached_property
    def _examples(self) -> tuple[Array, Array]:
        """Features (experiment, device, example, dim) and targets (experiment, device, example).
        Devices with fewer examples than the largest one are padded with zeros, which do not change
        gradients."""
        source = self._source
        return _padded(source.draw() if isinstance(source, DrawnExamples) else source)

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), at theta
        (experiment, chain, dim)."""

        def summed(rows: Array, residual: Array) -> Array:
            return np.asarray(residual @ rows)

        return self._local(theta, experiments, summed)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), where every
        entry of each example's gradient is clipped to [-example_clip, example_clip] before the
        sum."""

        def summed(rows: Array, residual: Array) -> Array:
            bound = example_clip * self._variance
            return np.stack([clip(each[:, None] * rows, bound).sum(axis=0) for each in residual])

        return self._local(theta, experiments, summed)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), where each
        example's gradient is scaled down to a norm of at most ``example_norm`` before the sum."""

        def summed(rows: Array, residual: Array) -> Array:
            # An example's gradient is its features times its residual, so its norm is bounded by
            # clipping the residual.
            with np.errstate(divide="ignore", over="ignore"):  # a norm of 0 gives an infinite limit
                most = example_norm * self._variance / np.linalg.norm(rows, axis=1)
            return np.asarray(np.nan_to_num(np.clip(residual, -most, most)) @ rows)

        return self._local(theta, experiments, summed)

    def _local(
        self, theta: Array, experiments: slice, summed: Callable[[Array, Array], Array]
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim). The function
        ``summed(rows, residual)`` combines a device's features (example, dim) and residuals (chain,
        example) into (chain, dim), which is then divided by the noise variance; the prior's share
        is added."""
        features, targets = self._examples
        local = np.empty((*theta.shape[:2], self.num_devices, self.dim))
        # Devices are computed one after the other: in one product over all of them NumPy would copy
        # the transposed matrices of their features.
        for e, experiment in enumerate(range(*experiments.indices(self.num_experiments))):
            for device in range(self.num_devices):
                rows = features[experiment, device]
                residual = theta[e] @ rows.T - targets[experiment, device]
                local[e, :, device] = summed(rows, residual) / self._variance
        local += theta[:, :, None] * (self._precision / self.num_devices)
        return local

    def summed_gradient(self, theta: Array) -> Array:
        """Gradient of the sum of all local costs of the first data set, (chain, dim), at theta
        (chain, dim), computed without the local gradients, which take more memory than the
        examples."""
        features, targets = (each[0] for each in self._examples)
        rows, wanted = features.reshape(-1, self.dim), targets.reshape(-1)
        total = theta * self._precision
        # A few rows at a time, so that they are still in the cache when they are needed again.
        for first in range(0, len(rows), _ROWS_AT_ONCE):
            part = slice(first, first + _ROWS_AT_ONCE)
            total += (theta @ rows[part].T - wanted[part]) @ rows[part] / self._variance
        return np.asarray(total)

    def after_steps(self, theta: Array, step: float, noise: Array) -> Array:
        r"""Theta (chain, dim) after the steps :math:`\theta \leftarrow \theta - \eta\nabla
        f(\theta) + \xi` from ``theta`` (chain, dim), with the sum f of all local costs of the first
        data set, :math:`\eta` = ``step`` and the :math:`\xi` in ``noise`` (step, chain, dim).

        Where the Gram matrix :math:`U U^\top` of the examples' features U (example, dim) is held,
        because the examples are at most 3000 and no more than features, the residuals of all steps
        are computed without theta. The examples are then read three times in all, not twice in each
        step."""
        # The steps below need the Gram matrix, which is of the examples alone. It does not fit
        # arrays with padding, which there is where a device has fewer examples than others.
        if self._gram is None or sum(self._source.device_sizes) != self._examples[1][0].size:
            for each in noise:
                theta = theta - step * self.summed_gradient(theta) + each
            return theta
        features, targets = (each[0] for each in self._examples)
        rows, wanted = features.reshape(-1, self.dim), targets.reshape(-1)
        kept, pull = 1.0 - step * self._precision, step / self._variance
        residual = theta @ rows.T - wanted
        moved = (noise.reshape(-1, self.dim) @ rows.T).reshape(*noise.shape[:2], -1)
        pulled = np.zeros_like(residual)
        # The theta of a step is ``theta - pull * (pulled @ rows)``. Both ``theta`` and ``pulled``
        # shrink by the factor ``kept`` of the prior in a step, and the product with the examples is
        # formed only once, after the last step.
        for each, seen in zip(noise, moved, strict=True):
            theta, pulled = kept * theta + each, kept * pulled + residual
            residual = kept * (residual + wanted) - pull * residual @ self._gram + seen - wanted
        return np.asarray(theta - pull * (pulled @ rows))

    def traced(self, example_bound: ExampleBound | None = None) -> TracedCosts | None:
        """The devices' local gradients as a function that JAX can compile; None if single examples
        are to be clipped, which this model only does in NumPy."""
        if example_bound is not None:
            return None
        share, variance = self._precision / self.num_devices, self._variance

        def gradients(theta: Any, data: Any) -> Any:
            residual = (data["features"] @ theta - data["targets"]) / variance
            return (residual[:, None] @ data["features"])[:, 0] + share * theta

        def data(experiment: int) -> dict[str, Array]:
            features, targets = self._examples
            return {"features": features[experiment], "targets": targets[experiment]}

        return TracedCosts(gradients, data)


def _padded(data: LinearData) -> tuple[Array, Array]:
    """Features (experiment, device, example, dim) and targets (experiment, device, example).
    Devices with fewer examples than the largest one are padded with zeros, which do not change
    gradients."""
    sizes, largest = data.device_sizes, max(1, *data.device_sizes)
    features = np.reshape(data.features, (-1, *data.features.shape[-2:]))
    targets = data.targets.reshape(len(features), -1)
    shape = (len(features), len(sizes), largest)
    if min(sizes) == largest:  # no padding is needed, so nothing is copied
        return features.reshape(*shape, -1), targets.reshape(shape)
    rows, wanted = np.zeros((*shape, features.shape[2])), np.zeros(shape)
    first = 0
    for device, size in enumerate(sizes):
        part = slice(first, first + size)
        rows[:, device, :size], wanted[:, device, :size] = features[:, part], targets[:, part]
        first += size
    return rows, wanted


@one_blas_thread()
def _largest_eigenvalue(rows: Array) -> tuple[float, Array | None]:
    r"""Largest eigenvalue of :math:`U^\top U`, where U = ``rows`` has the features of an example in
    each row; and :math:`U U^\top`, (example, example), if the examples are few, else None. Raises
    ``InvalidSetting`` if a product is not finite."""
    if not len(rows):
        return 0.0, None
    # U U^T and U^T U have the same nonzero eigenvalues: the smaller of the two is formed.
    gram = rows @ rows.T if len(rows) <= rows.shape[1] else rows.T @ rows
    if not np.isfinite(gram).all():
        raise InvalidSetting("the features are too large: their products are not finite")
    if len(gram) <= _LARGE_GRAM:
        top = float(np.linalg.eigvalsh(gram)[-1])
        return top, gram if len(rows) <= rows.shape[1] else None
    from scipy.sparse.linalg import eigsh  # imported here, because importing it takes long

    start = np.random.default_rng(0).standard_normal(len(gram))
    return float(eigsh(gram, k=1, v0=start, return_eigenvectors=False)[0]), None
