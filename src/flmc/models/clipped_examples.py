r"""Sums of the clipped gradients of many examples, at the cost of evaluating a few of them.

The gradient of example n is :math:`u_n r_n` with features :math:`u_n` and residual :math:`r_n =
(u_n^\top\theta - v_n)/\sigma^2`. To clip it is to clip the residual: for entry i at
:math:`c/|u_{ni}|` if entries are bounded by c, for all entries at :math:`C/\|u_n\|` if the norm is
bounded by C. While theta moves by a distance R, the residual moves by at most :math:`\|u_n\|
R/\sigma^2`. So for all theta within R of the posterior mean, most examples are either surely
clipped or surely not clipped. Surely clipped gradients add up to a constant, and surely unclipped
ones to a matrix times theta plus a constant. Only the remaining examples, *near* the clip, are
evaluated in every round. The sums are the same but for rounding."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model

MANY_EXAMPLES = 10_000
"""Number of examples of a data set from which on it saves time to sort the examples by whether they
are clipped."""
_RADIUS = 3.5
"""Smallest radius of a ball of theta about the posterior mean for which examples are sorted by
whether they are clipped, over the root of the trace of the posterior's covariance. Chains that have
converged stay within this radius."""
_WIDER = 4.0
"""Ratio of successive radii of balls about the posterior mean, for each of which examples are
sorted by whether they are clipped."""
_SUM_ROUNDING, _SMALL = 1e-14, 1e-6
"""Relative rounding error of a sum of gradients over examples, and the largest ratio of this error
to the bound of one example's gradient."""
_MOST_NEAR = 0.1
"""Largest share of the entries of all examples' gradients that may be *near* the clip: clipped at
some theta in a ball and not at others. Above it, sorting the examples saves no time, and every
round evaluates all of them."""
_checked: WeakKeyDictionary[Model, set[str]] = WeakKeyDictionary()
"""For each model, the names of the clipping methods that :func:`check_clipping` has accepted. They
are remembered, because a gradient of all examples may take longer than the rest of planning."""


@dataclass(frozen=True)
class EntryClip:
    """Rule that bounds the influence of one example: every entry of the example's gradient is
    clipped to [-size, size]. ``setting`` is the name of the uplink's setting with this rule."""

    setting: ClassVar[str] = "example_clip"
    """Name of the uplink's setting, for messages."""

    size: float

    def limits(self, features: Array) -> Array:
        """Largest magnitude of an example's residual that leaves an entry of its gradient
        unclipped, (sample, dim): ``size`` over the magnitude of the feature."""
        with np.errstate(divide="ignore"):
            return np.asarray(self.size / np.abs(features))

    def at_limit(self, features: Array) -> Array:
        """Gradients, (sample, dim), of examples whose residual is positive and so large that every
        entry is clipped: ``size`` times the signs of the features."""
        return self.size * np.sign(features)

    def held(self, residual: Array, features: Array) -> Array:
        """The residuals (chain, sample) unchanged: this rule does not clip residuals; the method
        ``entry`` clips the entries of the gradient."""
        return residual

    def entry(self, held: Array, feature: Array) -> Array:
        """One entry of every example's clipped gradient, (chain, sample), from the residuals
        ``held`` (chain, sample) and the feature of that entry, (sample)."""
        # Every example is clipped before the sum. This also turns NaN into 0, so that one example
        # cannot make the sum of all NaN.
        return clip(held * feature, self.size)


@dataclass(frozen=True)
class NormClip:
    """Rule that bounds the influence of one example: the example's gradient is scaled down to a
    Euclidean norm of at most ``size``. ``setting`` is the name of the uplink's setting with this
    rule."""

    setting: ClassVar[str] = "example_norm"
    """Name of the uplink's setting, for messages."""

    size: float

    def limits(self, features: Array) -> Array:
        """Largest magnitude of an example's residual that leaves its gradient unclipped, (sample,
        1): ``size`` over the norm of the features; 0 if all features are 0, because the gradient is
        then 0 at any residual."""
        # Features are divided by the largest of them before they are squared: the squares of tiny
        # features would underflow, and the norm would come out too small.
        largest = np.abs(features).max(axis=1, keepdims=True)
        scale = np.where(largest > 0, largest, 1.0)
        norm = np.sqrt(np.square(features / scale).sum(axis=1, keepdims=True))
        with np.errstate(over="ignore", divide="ignore"):
            limit = np.minimum(self.size / scale / norm, np.finfo(np.float64).max)
        return np.asarray(np.where(largest > 0, limit, 0.0))

    def at_limit(self, features: Array) -> Array:
        """Clipped gradients, (sample, dim), that the examples would have if their residuals were
        positive and so large that the bound acts: the features, scaled to the norm ``size``."""
        return np.asarray(self.limits(features) * features)

    def held(self, residual: Array, features: Array) -> Array:
        """The residuals (chain, sample), clipped to the limits of their examples, which bounds the
        norm of the gradients; NaN becomes 0."""
        limit = self.limits(features)[:, 0]
        return np.nan_to_num(np.clip(residual, -limit, limit))

    def entry(self, held: Array, feature: Array) -> Array:
        """One entry of every example's gradient, (chain, sample): the clipped residuals ``held``
        (chain, sample) times the feature of that entry, (sample)."""
        return np.asarray(held * feature)


class Examples(NamedTuple):
    """Examples of one data set: features (sample, dim) and targets (sample) in device order, the
    number of examples of each device, and the variance of the targets' noise, which divides
    gradients."""

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]
    variance: float


class _Near(NamedTuple):
    """Examples that are clipped at some theta and not at others: ``features`` (sample, dim) and
    ``targets`` (sample) in the order of the devices. The block of device k begins at the index
    ``starts[k]`` with an example of zeros that is added to it: without it the block could be empty,
    and ``np.add.reduceat`` does not return 0 for an empty block."""

    features: Array
    targets: Array
    starts: IntArray


class _Sorted(NamedTuple):
    """Sums over a data set's examples that hold for all theta in a ball about the posterior mean.
    For device k, ``hessian[k] @ theta + constant[k]``, with ``hessian`` (device, dim, dim) and
    ``constant`` (device, dim), is the sum of the gradients of the examples that are clipped
    everywhere in the ball, or nowhere in it. All other examples are kept one by one in ``near``:
    one set for all entries of theta, or a set for each entry."""

    hessian: Array
    constant: Array
    near: tuple[_Near, ...]


class ClippedExamples:
    """Sums of the clipped gradients of a data set's examples, over the examples of each device.

    The arguments ``centre``, the posterior mean (dim), and ``scale``, the root of the trace of the
    posterior's covariance, affect computing time only, which is short for theta near the posterior
    mean. Results depend on theta alone, never on earlier calls."""

    def __init__(
        self, examples: Examples, rule: EntryClip | NormClip, centre: Array, scale: float
    ) -> None:
        self._examples, self._rule, self._centre = examples, rule, centre
        self._radius = _RADIUS * scale
        self._sorted: dict[int, _Sorted | None] = {}

    def gradient(self, theta: Array) -> Array:
        """Sums of clipped gradients, (chain, device, dim), at theta (chain, dim)."""
        quick = self.quick_gradient(theta) if len(self._examples.targets) >= MANY_EXAMPLES else None
        return self._whole_gradient(theta) if quick is None else quick

    def quick_gradient(self, theta: Array) -> Array | None:
        """Sums of clipped gradients, (chain, device, dim), at theta (chain, dim). Only the examples
        near the clip are evaluated one by one. None if theta is not finite, if too many examples
        are near the clip because theta is far from the posterior mean, or if sums would be rounded
        too much."""
        distance = float(np.sqrt(np.square(theta - self._centre).sum(axis=1).max()))
        if not np.isfinite(distance):
            return None
        steps = np.log(max(distance / self._radius, 1.0)) / np.log(_WIDER)
        # Examples are sorted for radii of which each is a fixed multiple of the one before, not for
        # the distance of this theta: so the sorted examples serve many calls, and results do not
        # depend on which theta came first.
        level = int(np.ceil(steps))
        if level not in self._sorted:
            self._sorted[level] = self._sort(self._radius * _WIDER**level)
        split = self._sorted[level]
        if split is None:
            return None
        total = np.einsum("kij,cj->cki", split.hessian, theta) + split.constant
        every = range(theta.shape[1])
        # There is one set of examples near the clip for all entries of theta, if norms are clipped,
        # or a set for each entry.
        entries = [every] if len(split.near) == 1 else [range(i, i + 1) for i in every]
        for near, some in zip(split.near, entries, strict=True):
            held = self._held(theta, near.features, near.targets)
            for i in some:
                clipped = self._rule.entry(held, near.features[:, i])
                total[:, :, i] += np.add.reduceat(clipped, near.starts, axis=1)
        return np.asarray(total)

    def _whole_gradient(self, theta: Array) -> Array:
        """Sums of the clipped gradients, (chain, device, dim), at theta (chain, dim), computed from
        every single example."""
        u, v, sizes, _ = self._examples
        total = np.empty((len(theta), len(sizes), theta.shape[1]))
        for k, (end, size) in enumerate(zip(np.cumsum(sizes), sizes, strict=True)):
            features, targets = u[end - size : end], v[end - size : end]
            with np.errstate(over="ignore", invalid="ignore"):
                held = self._held(theta, features, targets)
                for i in range(theta.shape[1]):
                    total[:, k, i] = self._rule.entry(held, features[:, i]).sum(axis=1)
        return total

    def _held(self, theta: Array, features: Array, targets: Array) -> Array:
        r"""Residuals of examples over the noise variance :math:`\sigma^2`, :math:`(u_n^\top\theta -
        v_n)/\sigma^2` with the ``features`` :math:`u_n` and the ``targets`` :math:`v_n`, (chain,
        sample), at theta (chain, dim); clipped already if the rule bounds norms by clipping
        residuals, else unclipped."""
        residual = (theta @ features.T - targets) / self._examples.variance
        return self._rule.held(residual, features)

    def _sort(self, radius: float) -> _Sorted | None:
        """The examples, sorted by whether their gradients are clipped at all theta within
        ``radius`` of the posterior mean, at none, or at some of them. None if too many examples are
        clipped at some of these theta and not at others, or if the rounding of sums would be more
        than an example's bound allows."""
        u, v, sizes, variance = self._examples
        residual = ((u @ self._centre - v) / variance)[:, None]
        norm = np.linalg.norm(u, axis=1)
        # Bound of the magnitudes of a residual's terms: the terms may cancel, and the rounding
        # error is relative to this bound.
        size = (norm * (np.linalg.norm(self._centre) + radius) + np.abs(v)) / variance
        # A single outlier can move the posterior mean so far that sums over all examples would be
        # rounded by more than the bound of one example's gradient. Nothing is sorted then: every
        # example's gradient is computed and clipped by itself.
        if not _SUM_ROUNDING * float((norm * size).sum()) <= _SMALL * self._rule.size:
            return None
        # How far each residual may move while theta stays within ``radius`` of the posterior mean,
        # with room for the rounding of distances and residuals, so that no example is sorted
        # wrongly.
        reach = (norm * (radius * (1 + 1e-9) / variance) + 1e-12 * size)[:, None]
        limit = self._rule.limits(u)
        free, high, low = (
            np.abs(residual) + reach <= limit,
            residual - reach >= limit,
            residual + reach <= -limit,
        )
        near = ~(free | high | low)
        if near.mean() > _MOST_NEAR:
            return None
        ends = np.cumsum(sizes)
        parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        weighted = np.where(free, u, 0.0) / variance
        held = (high.astype(np.float64) - low) * self._rule.at_limit(u)
        hessian = np.stack([weighted[part].T @ u[part] for part in parts])
        constant = np.stack([held[part].sum(axis=0) - weighted[part].T @ v[part] for part in parts])
        return _Sorted(hessian, constant, tuple(self._near(chosen) for chosen in near.T))

    def _near(self, chosen: Array) -> _Near:
        """The examples that the mask ``chosen`` (sample) marks as near the clip, in the order of
        the devices."""
        u, v, sizes, _ = self._examples
        places = np.flatnonzero(chosen)
        # An example of zeros, whose gradient is 0, is inserted before the first example of each
        # device.
        starts = np.searchsorted(places, np.cumsum(sizes) - sizes)
        features = np.insert(u[places], starts, 0.0, axis=0)
        targets = np.insert(v[places], starts, 0.0)
        return _Near(features, targets, np.asarray(starts + np.arange(len(starts)), np.intp))


def check_clipping(model: Model, *, by_norm: bool) -> None:
    """Raise ``InvalidSetting`` unless the model can clip the gradients of single examples, by entry
    or by norm, and really does so: the method is tried at the prior's mean with the first data
    set."""
    name = "norm_clipped_gradient" if by_norm else "clipped_gradient"
    # Only models that are compared by identity are remembered: a model with a hash of its own may
    # equal another one that does not clip.
    kept = type(model).__hash__ is object.__hash__
    if kept and name in _checked.get(model, ()):
        return
    theta = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (1, 1, model.dim)) + 0.0
    # the prior's part of the gradient, which is never clipped: it is subtracted, to see that of the
    # examples alone
    share = model.prior_share(theta)[:, :, None]
    # A bound of 1e-15 leaves next to nothing of the likelihood's part in a method that clips.
    left = np.nan_to_num(getattr(model, name)(theta, 1e-15, slice(0, 1)) - share)
    whole = np.nan_to_num(model.gradient(theta, slice(0, 1)) - share)
    if np.abs(left).max() > 1e-3 * np.abs(whole).max() > 0:
        raise InvalidSetting(
            f"{name} does not clip: with a bound of 1e-15 it still returns"
            f" {np.abs(left).max():.3g} in an entry; clip every example's gradient before they are"
            " summed"
        )
    if kept:
        _checked.setdefault(model, set()).add(name)
