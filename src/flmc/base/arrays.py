"""Names of array types for signatures, views of broadcast arrays without copies, and linear algebra
on one thread.

The order of summation inside a matrix product or a factorisation depends on the number of threads
that share it. What a digest covers (plans), and what a resumed run must repeat to the same bits on
a machine with fewer cores, is therefore computed on one thread. The matrices are small there: more
threads would not be faster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# Written out, because importing numpy.typing takes longer than deciding a plan.
Array = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
"""Real numbers in double precision; the shape is stated where an array is passed."""
ComplexArray = np.ndarray[tuple[Any, ...], np.dtype[np.complex128]]
"""Complex numbers in double precision."""
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
"""Whole numbers of 64 bits, for what must be added without rounding."""
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
"""Truth values."""
AnyArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""Arrays of any kind of entries, as files hold them."""


def without_copies(array: Array) -> Array:
    """View of an array that holds each number once: every axis that broadcasting made (its entries
    are the same memory) has length 1."""
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]


def one_of_equals(array: Array) -> Array:
    """View (..., 1, entry) of an array (..., row, entry) whose rows are broadcast copies of one;
    any other array as it is. Devices with the same path gains are computed once in this way."""
    return array[..., :1, :] if array.strides[-2] == 0 else array


def without_copied_entries(array: Array) -> Array:
    """View (..., 1) of an array (..., entry) that was broadcast along its last axis; any other
    array as it is."""
    return array[..., :1] if array.strides[-1] == 0 else array


def broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Read-only view of an array in a shape, as ``np.broadcast_to`` gives it, but faster where the
    array has that shape already, which short runs notice."""
    if array.shape != shape:
        return np.broadcast_to(array, shape)
    view = array.view()
    view.flags.writeable = False
    return view


def mean_over_entries(values: Array, dim: int) -> Array:
    """Mean over ``dim`` entries, to the bits of NumPy's mean, of (..., dim) or of (..., 1) where
    all entries share one value."""
    if values.shape[-1] == dim or dim >= 8:
        return np.asarray(np.mean(np.broadcast_to(values, (*values.shape[:-1], dim)), axis=-1))
    # NumPy adds up to seven numbers one after the other. So does this, for all means at once,
    # because NumPy takes as long for a sum of so few numbers as for one of a hundred.
    total = np.array(values[..., 0])
    for _ in range(dim - 1):
        total += values[..., 0]
    return np.asarray(total / dim)


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """Context, or decorator ``@one_blas_thread()``, in which linear algebra of this process runs on
    one thread."""
    # SciPy has its own BLAS library, which the controller finds only after SciPy is loaded.
    with _controller("scipy.linalg" in sys.modules).limit(limits=1, user_api="blas"):
        yield


@lru_cache(maxsize=2)
def _controller(with_scipy: bool) -> ThreadpoolController:
    """The object that sets the number of threads of the linear algebra libraries loaded so far. It
    is kept, because finding the libraries takes a millisecond; ``with_scipy`` tells apart the state
    before and after SciPy, which loads another library."""
    return ThreadpoolController()
