r"""Gradients of many examples, each clipped by itself, at the price of a few of them.

The gradient of example n in entry i is :math:`x_{ni} = u_{ni}(u_n^\top\theta - v_n)/\sigma^2`.
Within a distance R of a point it moves by at most :math:`|u_{ni}|\,\|u_n\| R/\sigma^2`. So where
chains are near the posterior it is known of nearly every example whether it is clipped: those that
surely are not add up to a matrix, those that surely are to a constant, and only the others, *near*
the clip, are looked at in every round. The sums are the same but for rounding."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.clipping import clip

MANY_EXAMPLES = 10_000
"""Examples of a data set from which on it is worth to sort them."""
_RADIUS = 3.5
"""Smallest radius within which examples are sorted, over the root of the posterior's trace: chains
at rest stay within it."""
_WIDER = 4.0
"""Factor from one radius to the next."""
_MOST_NEAR = 0.1
"""Share of gradient entries near the clip beyond which all examples are looked at."""


class Examples(NamedTuple):
    """Examples of one data set.

    Attributes
    ----------
    features, targets
        Features (sample, dim) and targets (sample), in device order.
    device_sizes
        Number of examples of each device.
    variance
        Noise variance, which gradients are divided by.
    """

    features: Array
    targets: Array
    device_sizes: tuple[int, ...]
    variance: float


class _Near(NamedTuple):
    """Examples of one entry that may or may not be clipped; each device has an example of zeros
    before its own, so that none is without."""

    features: Array
    targets: Array
    entry: Array
    starts: npt.NDArray[np.intp]


class _Sorted(NamedTuple):
    """Examples sorted for a ball: what those sum up to that are surely clipped, or surely not, and
    the others by entry."""

    hessian: Array
    constant: Array
    near: tuple[_Near, ...]


class ClippedExamples:
    """Sums of the clipped gradients of a data set's examples, over the examples of each device.

    What is returned depends on the theta that is asked for alone, never on what was asked before.

    Parameters
    ----------
    examples
        The examples.
    bound
        Largest magnitude of an entry of one example's gradient.
    centre, scale
        Where theta is expected, (dim), and about how far from there: the posterior's mean and the
        root of its trace.
    """

    def __init__(self, examples: Examples, bound: float, centre: Array, scale: float) -> None:
        self._examples, self._bound, self._centre = examples, bound, centre
        self._radius = _RADIUS * scale
        self._sorted: dict[int, _Sorted | None] = {}

    def gradient(self, theta: Array) -> Array | None:
        """Sums for every chain and device.

        Parameters
        ----------
        theta
            Where, (chain, dim).

        Returns
        -------
        Array or None
            (chain, device, dim); None where theta is so far away that all examples must be looked
            at.
        """
        distance = float(np.sqrt(np.square(theta - self._centre).sum(axis=1).max()))
        if not np.isfinite(distance):
            return None
        steps = np.log(max(distance / self._radius, 1.0)) / np.log(_WIDER)
        level = int(np.ceil(steps))
        if level not in self._sorted:
            self._sorted[level] = self._sort(self._radius * _WIDER**level)
        found = self._sorted[level]
        if found is None:
            return None
        total = np.einsum("kij,cj->cki", found.hessian, theta) + found.constant
        for i, near in enumerate(found.near):
            residual = (theta @ near.features.T - near.targets) / self._examples.variance
            clipped = clip(residual * near.entry, self._bound)
            total[:, :, i] += np.add.reduceat(clipped, near.starts, axis=1)
        return np.asarray(total)

    def _sort(self, radius: float) -> _Sorted | None:
        """The examples sorted for the ball of a radius; None where too many are near the clip."""
        u, v, sizes, variance = self._examples
        x = u * ((u @ self._centre - v) / variance)[:, None]
        reach = np.abs(u) * (np.linalg.norm(u, axis=1) * (radius / variance))[:, None]
        # A distance that exceeds the radius by rounding moves a gradient by rounding only.
        free, high, low = (
            np.abs(x) + reach <= self._bound,
            x - reach >= self._bound,
            x + reach <= -self._bound,
        )
        near = ~(free | high | low)
        if near.mean() > _MOST_NEAR:
            return None
        ends = np.cumsum(sizes)
        parts = [slice(end - size, end) for end, size in zip(ends, sizes, strict=True)]
        weighted = np.where(free, u, 0.0) / variance
        hessian = np.stack([weighted[part].T @ u[part] for part in parts])
        constant = np.stack(
            [
                self._bound * (high[part].sum(axis=0) - low[part].sum(axis=0, dtype=np.int64))
                - weighted[part].T @ v[part]
                for part in parts
            ]
        )
        each = tuple(self._near(near[:, i], i) for i in range(u.shape[1]))
        return _Sorted(hessian, constant, each)

    def _near(self, chosen: Array, entry: int) -> _Near:
        """Examples of one entry that are near the clip, device by device."""
        u, v, sizes, _ = self._examples
        places = np.flatnonzero(chosen)
        # Before the first of each device one of zeros is put in, whose gradient is 0.
        starts = np.searchsorted(places, np.cumsum(sizes) - sizes)
        features = np.insert(u[places], starts, 0.0, axis=0)
        targets = np.insert(v[places], starts, 0.0)
        column = np.ascontiguousarray(features[:, entry])
        return _Near(
            features, targets, column, np.asarray(starts + np.arange(len(starts)), np.intp)
        )
