"""Clipping of gradients, entry by entry or by norm: it bounds how much one device, or one example,
can influence what is transmitted."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array, BoolArray


def clip(gradient: Array, bound: float) -> Array:
    r"""Gradient with every entry limited to the interval from -bound to bound.

    Entry :math:`g` becomes :math:`\max(-\ell, \min(\ell, g))` with :math:`\ell` = ``bound``; NaN
    becomes 0 and :math:`\pm\infty` becomes :math:`\pm\ell`. Without the replacement of NaN a device
    would leak without bound: a comparison with NaN is false, so its random bit would be a certain
    one.
    """
    clipped = np.clip(gradient, -bound, bound)
    # np.clip passes NaN on, so it is replaced here.
    undefined = np.isnan(clipped)
    if undefined.any():
        clipped[undefined] = 0.0
    return clipped


def clip_norm(gradient: Array, bound: float) -> Array:
    r"""Gradients (..., dim) scaled down to a Euclidean norm of at most :math:`\ell` = ``bound``:
    :math:`g \min(1, \ell/\|g\|)`.

    The result is the nearest point of the ball of radius :math:`\ell`, so clipping never moves two
    gradients further apart. An entry that is NaN counts as 0; beside infinite entries the finite
    ones count as 0.
    """
    with np.errstate(over="ignore"):  # a square may overflow, which is dealt with below
        norm = np.sqrt(np.square(gradient).sum(axis=-1, keepdims=True))
    if not np.isfinite(norm).all():
        return clip_norm(_comparable(gradient), bound)
    # The floor of 1e-300 keeps a gradient of exactly 0 from dividing by 0: it stays 0.
    return np.asarray(gradient * np.minimum(1.0, bound / np.maximum(norm, 1e-300)))


def count_clipped(
    gradient: Array, bound: float, active: Array | None = None, *, by_norm: bool = False
) -> int:
    r"""Number of entries of gradients (..., device, dim) that clipping to the bound :math:`\ell` =
    ``bound`` changes: entries with :math:`|g| > \ell`, and NaN. Only devices whose ``active`` (...,
    device) is 1 count; None: all. With ``by_norm`` the norm is clipped, which changes all entries
    of a gradient or none."""
    size = np.linalg.norm(gradient, axis=-1, keepdims=True) if by_norm else np.abs(gradient)
    # Not written with ">", because NaN must count as changed: every comparison with it is false.
    changed = np.broadcast_to(~(size <= bound), gradient.shape)
    return count_marked(changed, active)


def count_marked(marked: BoolArray, active: Array | None = None) -> int:
    """Number of True entries of ``marked`` (..., device, dim) on active devices, whose value in
    ``active`` (..., device) is 1 and not 0; None: on all devices."""
    return int(np.count_nonzero(marked if active is None else marked & (active[..., None] > 0)))


def _comparable(gradient: Array) -> Array:
    """The gradients (..., dim), scaled down where needed so that their norms are finite. NaN
    becomes 0. In a gradient with infinite entries the finite ones become 0. Gradients that are
    finite and not huge stay as they are."""
    known = np.where(np.isnan(gradient), 0.0, gradient)
    endless = np.isinf(known)
    # Infinite entries become plus or minus 1e140, and the finite entries of the same gradient 0.
    # 1e140 leaves room for the sum of many squares: below 1e308 for up to 1e28 entries.
    known = np.where(endless.any(axis=-1, keepdims=True), np.sign(known) * endless * 1e140, known)
    largest = np.abs(known).max(axis=-1, keepdims=True)
    return np.asarray(np.where(largest > 1e140, known / (largest / 1e140), known))
