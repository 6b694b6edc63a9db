"""Entrywise clipping: what bounds the influence of one device."""

from __future__ import annotations

import numpy as np

from flmc.checks import Array


def clip(gradient: Array, bound: float) -> Array:
    r"""Entry :math:`g` becomes :math:`\max(-\ell, \min(\ell, g))` with :math:`\ell` = ``bound``.

    NaN becomes 0 and :math:`\pm\infty` becomes :math:`\pm\ell`: a comparison with NaN is false, so without this a NaN
    would turn a random bit into a certain one, and a device would leak without bound.
    """
    clipped = np.clip(gradient, -bound, bound)
    undefined = np.isnan(clipped)
    if undefined.any():
        clipped[undefined] = 0.0
    return clipped


def clipped_fraction(gradient: Array, bound: float) -> float:
    r"""Fraction of entries that clipping changes, :math:`|g| > \ell`; entries that are not numbers count as changed."""
    return 1.0 - np.count_nonzero(np.abs(gradient) <= bound) / gradient.size
