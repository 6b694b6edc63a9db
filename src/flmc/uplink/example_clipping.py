r"""Clipping of single examples: the bounds that an uplink sets, and the share of the curvature that
is left, from public knowledge.

For linear regression with standard normal features u and residuals e the gradient of an example is
u e, entry by entry. Clipped at c it still answers a change of theta, but only where it is not
clipped: :math:`\rho(c) = E[u^2\,1(|u e| \le c)]` of the curvature remains. Where the norm of u e
over m entries is bounded by C, it is :math:`\rho = \Pr(|e| R \le C)`, with :math:`R^2` a
chi-squared variable of m + 2 degrees of freedom: :math:`E[u_i^2 h(\|u\|)] = E[h(R)]` for every
h."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import ndtr_once
from flmc.models.batches import Batch, sample_batches, sizes_of
from flmc.models.local_costs import ExampleBound
from flmc.models.model import Model
from flmc.privacy.neighbours import moves


class ExampleBounds:
    """The part of an uplink that bounds the gradients of single examples before a device sums them;
    :class:`flmc.Uplink` declares and describes the fields."""

    clip: float
    example_clip: float | None
    example_norm: float | None
    example_shrink: float
    batch_share: float

    @property
    def clips_norm(self) -> bool:
        """Whether the clip bounds the norm of a local gradient."""
        raise NotImplementedError

    def check_examples(self) -> None:
        """Raise ``InvalidSetting`` if ``example_clip`` or ``example_norm`` is not positive, both
        are given, or ``example_shrink`` or ``batch_share`` is outside (0, 1]."""
        for name in ("example_clip", "example_norm"):
            if getattr(self, name) is not None:
                checks.positive(name, getattr(self, name))
        if self.example_clip is not None and self.example_norm is not None:
            raise InvalidSetting(
                "example_clip bounds entries and example_norm the norm of an example's gradient:"
                f" give one of them, got {self.example_clip!r} and {self.example_norm!r}"
            )
        if checks.positive("example_shrink", self.example_shrink) > 1:
            raise InvalidSetting(f"example_shrink must lie in (0, 1], got {self.example_shrink!r}")
        if checks.positive("batch_share", self.batch_share) > 1:
            raise InvalidSetting(
                f"batch_share must lie in (0, 1], the share of a device's examples that it uses in"
                f" a round, got {self.batch_share!r}"
            )

    @property
    def clips_examples(self) -> bool:
        """Whether the gradients of single examples are bounded, by entry or by norm."""
        return self.example_clip is not None or self.example_norm is not None

    @property
    def example_bound(self) -> float:
        """Largest magnitude of an entry of one example's gradient: the bound of its entries, or of
        its norm; ``InvalidSetting`` if there is neither."""
        bound = self.example_clip if self.example_norm is None else self.example_norm
        if bound is None:
            raise InvalidSetting(
                "neighbouring 'example' needs example_clip, the bound of one example's gradient"
                " entries, or example_norm, that of its norm; got none"
            )
        return bound

    @property
    def batched(self) -> bool:
        """Whether devices use a random part of their examples in a round."""
        return self.batch_share < 1.0

    @property
    def example_part(self) -> float:
        """Largest magnitude of what one example adds to an entry of a local gradient or, with
        ``example_norm``, largest norm of what it adds to the gradient: the bound of the example's
        gradient over ``batch_share``, because an example in a batch has a weight of up to
        1/``batch_share``. Raises ``InvalidSetting`` if single examples are not bounded."""
        return self.example_bound / self.batch_share

    @property
    def example_rule(self) -> ExampleBound | None:
        """Bound of single examples' gradients, by entry or by norm, as the object that a model's
        gradient methods take; None: single examples are not bounded."""
        if not self.clips_examples:
            return None
        return ExampleBound(self.example_bound, by_norm=self.example_norm is not None)

    def local_gradients(
        self, model: Model, theta: Array, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients of a model, with single examples bounded as this uplink asks for. They
        are from all examples, whatever ``batch_share`` says, and so the mean over batches.

        Parameters
        ----------
        model
            Model whose gradients are taken.
        theta
            Points at which they are taken, (experiment, chain, dim).
        experiments
            The data sets that the first axis of ``theta`` is about; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).
        """
        if self.example_norm is not None:
            return model.norm_clipped_gradient(theta, self.example_norm, experiments)
        if self.example_clip is not None:
            return model.clipped_gradient(theta, self.example_clip, experiments)
        return model.gradient(theta, experiments)

    def batch_gradients(
        self, model: Model, theta: Array, batch: Batch, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients of a model from the devices' batches of examples, single examples bounded
        as this uplink asks for.

        Parameters
        ----------
        model
            Model whose gradients are taken.
        theta
            Points at which they are taken, (experiment, chain, dim).
        batch
            The examples that each device uses.
        experiments
            The data sets that the first axis of ``theta`` is about; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).

        Raises
        ------
        InvalidSetting
            If a class overrides ``local_gradients`` and not ``batch_gradients``.
        """
        own = type(self)
        taken = own.local_gradients is not ExampleBounds.local_gradients
        if taken and own.batch_gradients is ExampleBounds.batch_gradients:
            raise InvalidSetting(
                f"batch_share needs batch_gradients of {own.__name__}, which takes gradients in its"
                " own way (local_gradients): override both"
            )
        return model.batch_gradient(theta, batch, self.example_rule, experiments)

    def drawn_gradients(self, model: Model, theta: Array) -> Array:
        """Local gradients of the first data set as devices may compute them in a round. If
        ``batch_share`` is below 1, every device draws a batch of its examples for each point.

        Parameters
        ----------
        model
            Model whose gradients are taken.
        theta
            Points at which they are taken, (point, dim).

        Returns
        -------
        Array
            Local gradients, (point, device, dim).
        """
        if not self.batched:
            return np.asarray(self.local_gradients(model, theta[None], slice(0, 1))[0])
        batch = sample_batches(sizes_of(model), self.batch_share, (1, len(theta)))
        return np.asarray(self.batch_gradients(model, theta[None], batch, slice(0, 1))[0])

    @property
    def example_moves_like_device(self) -> bool:
        """Whether one example can move an entry of a gradient as far as a whole device can.

        It can if what an example adds is not bounded below the device's clip, or if the norm of the
        local gradient is clipped: scaling a gradient down to a norm can change a single entry by
        more than the example changes it."""
        return self.example_part >= self.clip or self.clips_norm

    def moves_like_device(self, relation: str) -> bool:
        """Whether one example can move an entry of a gradient by the whole clipping interval under
        a relation; true where :attr:`example_moves_like_device` is, unless the example's part,
        counted once, is shorter than the interval.

        Parameters
        ----------
        relation
            How the example differs in neighbouring data, one of
            :data:`flmc.privacy.neighbours.RELATIONS`.
        """
        own = type(self).example_moves_like_device is not ExampleBounds.example_moves_like_device
        # A user's class may say that its examples move more than their bound tells.
        if relation == "replace" or self.clips_norm or own:
            return self.example_moves_like_device
        return moves(relation) * self.example_part >= 2.0 * self.clip


@lru_cache(maxsize=64)
def shrink_factor(
    example_clip: float, feature_scale: float = 1.0, residual_scale: float = 1.0
) -> float:
    r"""Share :math:`\rho(c)`, in (0, 1], that is left of the curvature of linear regression when
    the gradient entries of single examples are clipped at c = ``example_clip``.

    Features are normal with the standard deviation ``feature_scale``, residuals with that of the
    noise, ``residual_scale``; an entry of an example's gradient is feature times residual over
    ``residual_scale`` squared.

    With standard normal features and residuals it is 0.914, 0.965 and 0.986 at c = 3, 4 and 5.

    Examples
    --------
    >>> from flmc.uplink.example_clipping import shrink_factor
    >>> round(shrink_factor(4.0), 3)
    0.965
    """
    checks.positive("feature_scale", feature_scale)
    checks.positive("residual_scale", residual_scale)
    # An example's gradient entry is feature x residual / residual_scale^2: for a standard normal
    # feature and residual the clip is c residual_scale / feature_scale.
    scaled = checks.positive("example_clip", example_clip) * residual_scale / feature_scale
    # Beyond 10 standard deviations a normal variable has less than 1e-22 of its mass.
    u = np.linspace(1e-6, 10.0, 20_001)
    # Given the feature u, the probability that a normal residual e keeps |u e| <= c. The nodes
    # leave out u = 0, where c / u cannot be computed and the integrand vanishes.
    density = np.square(u) * np.exp(-0.5 * u * u) * (2 * ndtr_once(scaled / u) - 1)
    return float(2 * np.trapezoid(density, u) / np.sqrt(2 * np.pi))


@lru_cache(maxsize=64)
def mean_shift_variance(example_clip: float) -> float:
    r"""Variance, over the posterior's, of the shift of the posterior mean that clipping the
    gradient entries of single examples causes in each entry of a linear regression.

    With standard normal features u and residuals e an example adds :math:`x = u e` to an entry of
    the gradient. Clipped, and divided by the share :math:`\rho` of the curvature that is left
    (:func:`shrink_factor`), it adds :math:`\operatorname{clip}(x)/\rho(c)`. The mean square of the
    difference of the two, over :math:`E[x^2] = 1`, is the variance of the shift in each entry. It
    does not depend on how many examples there are.

    Examples
    --------
    >>> from flmc.uplink.example_clipping import mean_shift_variance
    >>> round(mean_shift_variance(4.0), 3)
    0.011
    """
    left = shrink_factor(example_clip)
    grid = np.linspace(-10.0, 10.0, 801)
    weight = np.exp(-0.5 * grid**2)
    weight /= weight.sum()
    product = grid[:, None] * grid
    apart = np.clip(product, -example_clip, example_clip) / left - product
    # Summed without BLAS, whose order of summation depends on the number of threads.
    return float((weight[:, None] * np.square(apart) * weight).sum())


@lru_cache(maxsize=64)
def norm_shrink_factor(
    example_norm: float, dim: int, feature_scale: float = 1.0, residual_scale: float = 1.0
) -> float:
    r"""Share :math:`\rho`, in (0, 1], that is left of the curvature of linear regression with
    ``dim`` entries when the gradient norms of single examples are bounded by ``example_norm``; the
    scales of features and residuals are those of :func:`shrink_factor`.

    Examples
    --------
    >>> from flmc.uplink.example_clipping import norm_shrink_factor
    >>> round(norm_shrink_factor(6.0, dim=5), 3)
    0.969
    """
    checks.positive("feature_scale", feature_scale)
    checks.positive("residual_scale", residual_scale)
    scaled = checks.positive("example_norm", example_norm) * residual_scale / feature_scale
    radius, weight = _radii(checks.at_least("dim", dim, 1))
    return float((weight * (2 * ndtr_once(scaled / radius) - 1)).sum())


@lru_cache(maxsize=64)
def norm_mean_shift_variance(example_norm: float, dim: int) -> float:
    r"""Variance, over the posterior's, of the shift of the posterior mean that bounding the norms
    of examples' gradients by C causes in each entry of a linear regression.

    As for :func:`mean_shift_variance`, it is the mean square of :math:`\operatorname{clip}(e,
    C/R)/\rho - e`, with C = ``example_norm``, a standard normal residual e, the share :math:`\rho`
    of :func:`norm_shrink_factor`, and :math:`R^2` chi-squared with ``dim + 2`` degrees of freedom.
    """
    left = norm_shrink_factor(example_norm, dim)
    radius, weight = _radii(dim)
    residual = np.linspace(-10.0, 10.0, 801)
    density = np.exp(-0.5 * residual**2)
    # The integrand is smooth in the radius R, so every 40th of its nodes is enough.
    limit = (example_norm / radius)[::40, None]
    apart = np.square(np.clip(residual, -limit, limit) / left - residual)
    few = weight[::40]
    return float((few[:, None] * apart * density).sum() / (few.sum() * density.sum()))


def typical_shrink(example_clip: float | None, example_norm: float | None, dim: int) -> float:
    """Share of the curvature of a linear regression with standard normal features and residuals
    that is left after single examples' gradients are bounded, by entry or by norm; 1 where they are
    not bounded."""
    if example_norm is not None:
        return norm_shrink_factor(example_norm, dim)
    return 1.0 if example_clip is None else shrink_factor(example_clip)


def typical_shift_variance(
    example_clip: float | None, example_norm: float | None, dim: int
) -> float:
    """Variance, over the posterior's, of the shift of the posterior mean that bounding single
    examples' gradients causes in a linear regression with standard normal features and residuals;
    0 where they are not bounded."""
    if example_norm is not None:
        return norm_mean_shift_variance(example_norm, dim)
    return 0.0 if example_clip is None else mean_shift_variance(example_clip)


def _radii(dim: int) -> tuple[Array, Array]:
    """Nodes and weights, (node) each, for means over the root R of a chi-squared variable with
    ``dim + 2`` degrees of freedom; the weights add up to 1. The nodes cover the root of ``dim + 2``
    and 10 on either side of it, beyond which less than 1e-20 of the mass lies."""
    middle = np.sqrt(dim + 2.0)
    radius = np.linspace(max(1e-6, middle - 10.0), middle + 10.0, 20_001)
    # The density of the root R is computed by its logarithm, less that at the root of dim + 2:
    # R^(dim + 1) alone overflows at large dim.
    log_density = (dim + 1) * np.log(radius / middle) - 0.5 * (radius**2 - middle**2)
    weight = np.exp(log_density - log_density.max())
    return radius, weight / weight.sum()
