"""Names of array types for signatures, views of broadcast arrays without copies, and linear algebra
on one thread.

The order of summation inside a matrix product or a factorisation depends on the number of threads
that share it. Plans are covered by a digest, and a resumed run must repeat the same bits on a
machine with fewer cores, so both are computed on one thread. Their matrices are small: more threads
would not be faster."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
from threadpoolctl import ThreadpoolController

# The types are written out, because importing numpy.typing takes longer than making a plan.
Array = np.ndarray[tuple[Any, ...], np.dtype[np.float64]]
"""Array of real numbers in double precision; its axes are stated wherever one is passed."""
ComplexArray = np.ndarray[tuple[Any, ...], np.dtype[np.complex128]]
"""Array of complex numbers in double precision."""
IntArray = np.ndarray[tuple[Any, ...], np.dtype[np.int64]]
"""Array of whole numbers of 64 bits, for sums that must not be rounded."""
BoolArray = np.ndarray[tuple[Any, ...], np.dtype[np.bool_]]
"""Array of truth values."""
AnyArray = np.ndarray[tuple[Any, ...], np.dtype[Any]]
"""Array of entries of any data type, as read from files."""


def without_copies(array: Array) -> Array:
    """View of an array that holds each number once: every axis along which broadcasting repeats the
    same memory has length 1."""
    return array[tuple(slice(0, 1) if stride == 0 else slice(None) for stride in array.strides)]


def one_of_equals(array: Array) -> Array:
    """View (..., 1, entry) of an array (..., row, entry) whose rows were made by broadcasting one
    row, so that numbers shared by all rows are computed once; any other array as it is."""
    return array[..., :1, :] if array.strides[-2] == 0 else array


def without_copied_entries(array: Array) -> Array:
    """View (..., 1) of an array (..., entry) that was broadcast along its last axis; any other
    array as it is."""
    return array[..., :1] if array.strides[-1] == 0 else array


def broadcast(array: Array, shape: tuple[int, ...]) -> Array:
    """Read-only view of an array in the given shape, as ``np.broadcast_to`` gives it, but faster
    for an array that has this shape already."""
    if array.shape != shape:
        return np.broadcast_to(array, shape)
    view = array.view()
    view.flags.writeable = False
    return view


def mean_over_entries(values: Array, dim: int) -> Array:
    """Means (...) over the last axis of ``values``, which is (..., dim), or (..., 1) if all ``dim``
    entries share one value; equal to NumPy's mean to the last bit."""
    if values.shape[-1] == dim or dim >= 8:
        return np.asarray(np.mean(np.broadcast_to(values, (*values.shape[:-1], dim)), axis=-1))
    # For up to seven numbers NumPy's sum adds one after the other. This loop does the same, so it
    # gives the same bits, but for all means at once: NumPy takes as long for a sum of a few numbers
    # as for one of a hundred.
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
    """The object that sets the number of threads of the linear algebra libraries that are loaded.
    It is kept for later calls, because finding the libraries takes a millisecond; ``with_scipy``
    says whether SciPy, which loads a library of its own, is among them, so that a new object is
    made after SciPy is imported."""
    return ThreadpoolController()
