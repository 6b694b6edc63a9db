r"""Bayesian linear regression, :math:`v = u^\top\theta + \text{noise}`, held as sufficient
statistics of each device."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearData, StatisticsSource
from flmc.models.batches import Batch
from flmc.models.clipped_examples import ClippedExamples, EntryClip, Examples, NormClip
from flmc.models.distributions import Gaussian, Normal, marginal_variances
from flmc.models.linear_costs import LinearCosts
from flmc.models.local_costs import ExampleBound, Quadratic
from flmc.models.model import Model
from flmc.models.parameters import Layout
from flmc.models.pointwise import Pointwise

_MOST_PREDICTED = 10
"""Largest number of examples of a data set whose targets are predicted; of more examples, so many
are chosen at even distances."""


class LinearGaussian(Model):
    r"""Linear regression with known noise variance and a Gaussian prior.

    The local cost of device k is :math:`f_k(\theta) = \frac{1}{2\sigma^2}\sum_{n \in D_k}(v_n -
    u_n^\top\theta)^2 + \frac{1}{2K}(\theta-\theta_0)^\top\Lambda(\theta-\theta_0)`, so
    :math:`\nabla f_k = H_k\theta - b_k` with :math:`H_k = G_k/\sigma^2 + \Lambda/K` and
    :math:`G_k = \sum_{n \in D_k} u_n u_n^\top`. The posterior is normal with precision
    :math:`\sum_k H_k`.

    Parameters
    ----------
    data
        Examples, or sufficient statistics, with which single examples cannot be clipped.
    prior_precision
        :math:`\Lambda`: a number, (dim) for a diagonal, or a positive definite matrix (dim, dim).
    prior_mean
        :math:`\theta_0`: a number, or (dim).
    noise_variance
        :math:`\sigma^2`, the variance of a target given its features.

    Attributes
    ----------
    posterior
        The exact posterior of every data set.
    smoothness, convexity
        Largest and smallest curvature of the negative log posterior, over all data sets, computed
        from the data and so not public.
    noise_variance, prior_precision
        The noise variance as given, and the prior's precision as a matrix (dim, dim).

    Raises
    ------
    InvalidSetting
        If a shape does not fit, the prior precision is not positive definite, or the noise variance
        is not positive.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> model.num_devices, model.dim, model.posterior.covariance.shape
    (20, 5, (1, 5, 5))
    >>> theta = model.posterior.mean[:, None]  # (experiment, chain, dim)
    >>> bool(np.abs(model.gradient(theta).sum(axis=2)).max() < 1e-9)
    True
    """

    posterior: Gaussian
    smoothness: float
    convexity: float

    @one_blas_thread()
    def __init__(
        self,
        data: LinearData | StatisticsSource,
        *,
        prior_precision: float | Array = 1.0,
        prior_mean: float | Array = 0.0,
        noise_variance: float = 1.0,
    ) -> None:
        self._examples = data if isinstance(data, LinearData) else None
        if isinstance(data, LinearData):
            self.made_from_data, self.data_findings = data.data_dependent, data.findings or ()
            self.num_examples = data.targets.shape[-1]
            if data.feature_names:
                self.layout = Layout.of_axis("theta", "feature", data.feature_names)
            self.device_sizes = data.device_sizes
        self._source: StatisticsSource = (
            data.to_statistics() if isinstance(data, LinearData) else data
        )
        source = self._source
        self.num_experiments, self.num_devices, self.dim = (
            source.num_experiments,
            source.num_devices,
            source.dim,
        )
        self.noise_variance = checks.positive("noise_variance", noise_variance)
        self.prior_precision = checks.precision("prior_precision", prior_precision, self.dim)
        mean = checks.finite_array("prior_mean", prior_mean)
        if mean.shape not in ((), (self.dim,)):
            raise InvalidSetting(
                f"prior_mean must be a number or {self.dim} numbers, got the shape {mean.shape}"
            )
        mean = np.broadcast_to(mean, (self.dim,))
        self._pull = self.prior_precision @ mean
        # The start of a chain is drawn entry by entry, with the marginal standard deviations.
        self.prior = Normal(mean, np.sqrt(marginal_variances(self.prior_precision)))
        self._sorted: dict[tuple[int, EntryClip | NormClip], ClippedExamples] = {}
        self._stacked: tuple[slice, Array, Array] | None = None
        self._costs = LinearCosts(source, self.noise_variance, self.prior_precision, self._pull)
        self._find_posterior()

    def _find_posterior(self) -> None:
        """Set ``posterior``, ``smoothness`` and ``convexity``: the exact posterior of every data
        set, and the largest and smallest curvature of all negative log posteriors."""
        mean = np.empty((self.num_experiments, self.dim))
        covariance = np.empty((*mean.shape, self.dim))
        extremes = []
        for part, costs in self._costs.parts():
            precision = costs.hessian.sum(axis=1)
            mean[part] = np.linalg.solve(precision, costs.offset.sum(axis=1)[..., None])[..., 0]
            inverse = np.linalg.inv(precision)
            # The computed inverse is symmetric only up to rounding. Its mean with its transpose is
            # exactly symmetric.
            covariance[part] = (inverse + np.swapaxes(inverse, 1, 2)) / 2
            eigenvalues = np.linalg.eigvalsh(precision)
            extremes.append((eigenvalues.min(), eigenvalues.max()))
        self.posterior = Gaussian(mean, covariance)
        self.convexity, self.smoothness = float(np.min(extremes)), float(np.max(extremes))

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic:
        r"""The quadratic local costs of some data sets: Hessians :math:`H_k` (experiment, device,
        dim, dim) and constant parts :math:`b_k` (experiment, device, dim) of the gradients
        :math:`H_k\theta - b_k`."""
        return self._costs.rows(experiments)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        r"""Local gradients in which every example's contribution is clipped entry by entry.

        Device k gets :math:`\sum_n \mathrm{clip}(u_n (u_n^\top\theta - v_n)/\sigma^2) +
        \Lambda(\theta - \theta_0)/K`: the sum over its examples n, with features :math:`u_n`,
        target :math:`v_n` and noise variance :math:`\sigma^2`, and its share of the prior, which
        has mean :math:`\theta_0` and precision :math:`\Lambda`. The prior's share is public and is
        not clipped. Theta is (experiment, chain, dim); the result is (experiment, chain, device,
        dim).
        """
        return self._bounded_gradient(theta, EntryClip(example_clip), experiments)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        r"""Local gradients in which every example's contribution has a bounded norm.

        The gradient of an example is its features times its residual, so its norm is bounded by a
        clip of the residual. Device k gets :math:`\sum_n u_n \mathrm{clip}((u_n^\top\theta -
        v_n)/\sigma^2, C/\|u_n\|) + \Lambda(\theta - \theta_0)/K`: the sum over its examples n, with
        features :math:`u_n`, target :math:`v_n`, noise variance :math:`\sigma^2` and C =
        ``example_norm``, and its share of the prior, which has mean :math:`\theta_0` and precision
        :math:`\Lambda`. Theta is (experiment, chain, dim); the result is (experiment, chain,
        device, dim).
        """
        return self._bounded_gradient(theta, NormClip(example_norm), experiments)

    def batch_gradient(
        self,
        theta: Array,
        batch: Batch,
        example_bound: ExampleBound | None = None,
        experiments: slice = slice(None),
    ) -> Array:
        """Local gradients from the examples in ``batch``, (experiment, chain, device, dim), at
        theta (experiment, chain, dim). For each device: the sum of these examples' gradients, each
        clipped as ``example_bound`` says (None: not clipped), times the device's weight, plus its
        share of the prior's gradient."""
        held = self._examples
        if held is None:
            return super().batch_gradient(theta, batch, example_bound, experiments)
        features = held.features.reshape(self.num_experiments, -1, self.dim)[experiments]
        targets = held.targets.reshape(self.num_experiments, -1)[experiments]
        rule: EntryClip | NormClip | None = None
        if example_bound is not None:
            rule = (NormClip if example_bound.by_norm else EntryClip)(example_bound.bound)
        first = np.cumsum(held.device_sizes) - held.device_sizes
        local = np.zeros((*theta.shape[:2], self.num_devices, self.dim))
        for e, c, k in np.ndindex(local.shape[:3]):
            some = first[k] + batch.chosen[e, c, k, : batch.sizes[k]]
            u, v = features[e, some], targets[e, some]
            residual = (u @ theta[e, c] - v) / self.noise_variance
            if rule is None:
                total = residual @ u
            else:
                held_back = rule.held(residual[None], u)
                total = np.array([rule.entry(held_back, u[:, i]).sum() for i in range(self.dim)])
            local[e, c, k] = batch.weights[k] * total
        prior = (theta @ self.prior_precision - self._pull) / self.num_devices
        return local + prior[:, :, None]

    def _bounded_gradient(
        self, theta: Array, rule: EntryClip | NormClip, experiments: slice
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), where ``rule``
        clips each example's gradient; the prior's share is added unclipped. Raises
        ``InvalidSetting`` if the model holds sufficient statistics only."""
        if self._examples is None:
            raise InvalidSetting(
                f"{rule.setting} needs examples, and this model has sufficient statistics only:"
                " make it from flmc.data.draw_linear, or LinearData of your own"
            )
        prior = (theta @ self.prior_precision - self._pull) / self.num_devices
        local = np.empty((*theta.shape[:2], self.num_devices, self.dim))
        for e, row in enumerate(range(*experiments.indices(self.num_experiments))):
            local[e] = self._clipped(row, rule).gradient(theta[e])
        return local + prior[:, :, None]

    def _clipped(self, experiment: int, rule: EntryClip | NormClip) -> ClippedExamples:
        """Object that sums the gradients of one data set's examples, each clipped by ``rule``; it
        is cached, because sorting the examples takes long."""
        key, held = (experiment, rule), self._examples
        if key not in self._sorted and held is not None:
            examples = Examples(
                held.features.reshape(self.num_experiments, -1, self.dim)[experiment],
                held.targets.reshape(self.num_experiments, -1)[experiment],
                held.device_sizes,
                self.noise_variance,
            )
            scale = float(np.sqrt(np.trace(self.posterior.covariance[experiment])))
            centre = self.posterior.mean[experiment]
            self._sorted[key] = ClippedExamples(examples, rule, centre, scale)
        return self._sorted[key]

    def predict(self, theta: Array, experiments: slice = slice(None)) -> Array | None:
        r"""Predicted targets :math:`u^\top\theta` of at most ten examples, evenly chosen from the
        data, (experiment, chain, prediction); None if the model holds sufficient statistics, not
        examples."""
        if self._examples is None:
            return None
        features = self._examples.features.reshape(self.num_experiments, -1, self.dim)[experiments]
        every = max(1, features.shape[1] // _MOST_PREDICTED)
        chosen = features[:, ::every][:, :_MOST_PREDICTED]
        return np.asarray(theta @ np.swapaxes(chosen, 1, 2))

    def pointwise(self) -> Pointwise | None:
        """Functions that compute log likelihoods and simulated targets of single examples at draws
        of theta; None if the model holds sufficient statistics or several data sets."""
        held = self._examples
        if held is None or self.num_experiments != 1:
            return None
        features, targets = held.features.reshape(-1, self.dim), held.targets.reshape(-1)
        variance, precision, pull = self.noise_variance, self.prior_precision, self._pull

        def log_likelihood(theta: Array) -> dict[str, Array]:
            away = targets - theta @ features.T
            each = -0.5 * np.square(away) / variance - 0.5 * np.log(2 * np.pi * variance)
            return {held.target_name: each}

        def log_posterior(theta: Array) -> Array:
            prior = theta @ pull - 0.5 * np.einsum("ci,ij,cj->c", theta, precision, theta)
            return np.asarray(log_likelihood(theta)[held.target_name].sum(axis=1) + prior)

        def simulate(theta: Array, seed: int) -> dict[str, Array]:
            mean = theta @ features.T
            noise = np.random.default_rng(seed).standard_normal(mean.shape)
            return {held.target_name: mean + np.sqrt(variance) * noise}

        names = held.device_names or tuple(map(str, range(self.num_devices)))
        devices = tuple(np.repeat(names, held.device_sizes).tolist())
        observed = {held.target_name: targets}
        return Pointwise(observed, devices, log_likelihood, log_posterior, simulate)

    @property
    def hessian(self) -> Array:
        """Hessian :math:`H_k` of each device's local cost, (experiment, device, dim, dim)."""
        return self.quadratic().hessian

    @property
    def offset(self) -> Array:
        r"""Constant part :math:`b_k` of each device's local gradient :math:`H_k\theta - b_k`,
        (experiment, device, dim)."""
        return self.quadratic().offset

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        r"""Gradients :math:`H_k\theta - b_k` of all devices' local costs, (experiment, chain,
        device, dim), at theta (experiment, chain, dim)."""
        held = self._stacked
        if held is None or held[0] != experiments:
            # One matrix product gives the gradients of all devices. The Hessians are kept in the
            # layout that it needs, because engines ask for gradients in every round.
            hessian, offset = self.quadratic(experiments)
            side = np.moveaxis(hessian, 3, 1).reshape(len(hessian), self.dim, -1)
            held = self._stacked = (experiments, np.ascontiguousarray(side), offset[:, None])
        _, stacked, shift = held
        local: Array = (theta @ stacked).reshape(*theta.shape[:2], self.num_devices, self.dim)
        local -= shift
        return local
