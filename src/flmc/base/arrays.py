"""Names for the array types that every signature uses, broadcast arrays without their copies, and
linear algebra on one thread.

The order of summation inside a matrix product or a factorisation depends on how many threads share
it. Where a digest covers what is computed (plans), or a run must go on to the same bits on a
machine with fewer cores, it is computed on one thread. The matrices are small there: more threads
would not be faster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Written out: importing numpy.typing takes longer than deciding a plan.
Array = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
"""Real numbers in double precision; the shape is stated where an array is passed."""
ComplexArray = np.ndarray[tuple[Any, ...], np.dtype[np.complex128]]
"""Complex numbers in double precision."""
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
"""Whole numbers of 64 bits, for what must be added without rounding."""
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
"""Yes or no."""
AnyArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""Entries of any kind, as a file has them."""


def without_copies(array: Array) -> Array:
    """View of an array without the axes along which it was broadcast, which have one entry each.

    Parameters
    ----------
    array
        Any array, perhaps made by ``np.broadcast_to``.
    """
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]


def one_of_equals(array: Array) -> Array:
    """View of an array with one row in place of all, where rows, the axis before the last, are
    copies of one: what devices with the same path gains can afford is computed once.

    Parameters
    ----------
    array
        (..., row, entry), perhaps made by ``np.broadcast_to``.
    """
    return array[..., :1, :] if array.strides[-2] == 0 else array


def without_copied_entries(array: Array) -> Array:
    """View of an array without its last axis, but for one entry, if it was broadcast along it.

    Parameters
    ----------
    array
        Any array with an axis of entries at the end, perhaps made by ``np.broadcast_to``.
    """
    return array[..., :1] if array.strides[-1] == 0 else array


def broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Read-only view of an array in a shape, as ``np.broadcast_to`` gives it.

    Parameters
    ----------
    array
        Any array.
    shape
        The shape; an array that has it already is there at once, which short runs notice.
    """
    if array.shape != shape:
        return np.broadcast_to(array, shape)
    view = array.view()
    view.flags.writeable = False
    return view


def mean_over_entries(values: Array, dim: int) -> Array:
    """Mean over ``dim`` entries, to the bits that NumPy's mean has.

    Parameters
    ----------
    values
        One value that all entries share, or one for each, (..., 1 or dim).
    dim
        Number of entries.
    """
    if values.shape[-1] == dim or dim >= 8:
        return np.asarray(np.mean(np.broadcast_to(values, (*values.shape[:-1], dim)), axis=-1))
    # NumPy adds up to seven numbers one after the other. So does this, for all means at once: a
    # sum of so few numbers takes it as long as of a hundred.
    total = np.array(values[..., 0])
    for _ in range(dim - 1):
        total += values[..., 0]
    return np.asarray(total / dim)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """While this lasts, linear algebra of this process runs on one thread.

    It is a decorator as well: ``@one_blas_thread()``."""
    # SciPy has a BLAS of its own, which is found only once it is loaded.
    with _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=2)
def _controller(with_scipy: bool) -> ThreadpoolController:
    """What controls the libraries that are loaded; finding them takes a millisecond."""
    return ThreadpoolController()
