"""Entrywise clipping: what bounds the influence of one device."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array


def clip(gradient: Array, bound: float) -> Array:
    r"""Entry :math:`g` becomes :math:`\max(-\ell, \min(\ell, g))` with :math:`\ell` = ``bound``.

    NaN becomes 0 and :math:`\pm\infty` becomes :math:`\pm\ell`: a comparison with NaN is false, so
    without this a NaN would turn a random bit into a certain one, and a device would leak without
    bound."""
    clipped = np.clip(gradient, -bound, bound)
    undefined = np.isnan(clipped)
    if undefined.any():
        clipped[undefined] = 0.0
    return clipped


def count_clipped(gradient: Array, bound: float, active: Array | None = None) -> int:
    r"""Entries of active devices that clipping changes, :math:`|g| > \ell`; those that are not
    numbers count. The gradient is (..., device, dim), ``active`` (..., device) with 1 or 0."""
    changed = ~(np.abs(gradient) <= bound)
    return count_marked(changed, active)


def clip_norm(gradient: Array, bound: float) -> Array:
    r"""Each device's gradient (..., dim) becomes :math:`g \min(1, \ell/\|g\|)`."""
    norm = np.sqrt(np.square(gradient).sum(axis=-1, keepdims=True))
    return np.asarray(gradient * np.minimum(1.0, bound / np.maximum(norm, 1e-300)))


def count_marked(marked: npt.NDArray[np.bool_], active: Array | None = None) -> int:
    """Number of marked entries of active devices.

    Parameters
    ----------
    marked
        Which entries count, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all.
    """
    return int(np.count_nonzero(marked if active is None else marked & (active[..., None] > 0)))
