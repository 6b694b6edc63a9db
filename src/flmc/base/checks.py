"""Checks of single values. Each returns the value it was given, or raises
:class:`~flmc.base.errors.InvalidSetting` with the bound and the value."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

EXTREME = 1e30
"""Positive settings lie between 1/``EXTREME`` and ``EXTREME``: squares and products of some of them
are then still numbers, in double precision."""


def number(name: str, value: Any) -> float:
    """The value as a float, refused unless it is a finite real number.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check. Booleans and strings are refused although ``float`` would take them.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidSetting
        If the value is no number, infinite or NaN.
    """
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise InvalidSetting(f"{name} must be a number, got {value!r}") from None
    if isinstance(value, (bool, str)):
        raise InvalidSetting(f"{name} must be a number, got {value!r}")
    if not math.isfinite(result):
        raise InvalidSetting(f"{name} must be a finite number, got {value!r}")
    return result


def positive(name: str, value: Any, *, extreme: float = EXTREME) -> float:
    """The value as a float, refused unless it is finite and above zero.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check.
    extreme
        The value must lie between 1/``extreme`` and ``extreme``.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidSetting
        If the value is no finite number, not positive, or beyond ``extreme``.
    """
    result = number(name, value)
    if result <= 0:
        raise InvalidSetting(f"{name} must be positive, got {value!r}")
    if not 1 / extreme <= result <= extreme:
        raise InvalidSetting(
            f"{name} must lie between {1 / extreme:g} and {extreme:g}, got {value!r}"
        )
    return result


def not_negative(name: str, value: Any) -> float:
    """The value as a float, refused unless it is finite and at least zero.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check.

    Raises
    ------
    InvalidSetting
        If the value is no finite number, or is negative.
    """
    result = number(name, value)
    if result < 0:
        raise InvalidSetting(f"{name} must not be negative, got {value!r}")
    return result


def at_least(name: str, value: Any, lowest: int, *, highest: int | None = None) -> int:
    """The value as an int, refused unless it is a whole number of at least ``lowest``.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check; a float such as 3.0 counts as a whole number.
    lowest
        Smallest number that is accepted.
    highest
        Largest number that is accepted; None: any.

    Returns
    -------
    int
        The value.

    Raises
    ------
    InvalidSetting
        If the value is not a whole number, or is out of its bounds.
    """
    if isinstance(value, numbers.Integral) and not isinstance(value, bool):
        whole = int(value)  # not by way of a float, which would round a large seed
    else:
        result = number(name, value)
        whole = int(result)
        if result != whole:
            raise InvalidSetting(
                f"{name} must be a whole number of at least {lowest}, got {value!r}"
            )
    if whole < lowest:
        raise InvalidSetting(f"{name} must be a whole number of at least {lowest}, got {value!r}")
    if highest is not None and whole > highest:
        raise InvalidSetting(f"{name} must be at most {highest}, got {value!r}")
    return whole


def between(name: str, value: Any, low: float, high: float) -> float:
    """The value as a float, refused unless it lies strictly between ``low`` and ``high``.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check.
    low, high
        Ends of the open interval; neither is accepted.

    Returns
    -------
    float
        The value.

    Raises
    ------
    InvalidSetting
        If the value is no finite number, or lies outside the interval.
    """
    result = number(name, value)
    if not low < result < high:
        raise InvalidSetting(
            f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}"
        )
    return result


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """The value as a string, refused unless it is one of a few words.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        What to check.
    choices
        The words that are accepted.

    Returns
    -------
    str
        The value.

    Raises
    ------
    InvalidSetting
        If the value is none of the words; the message lists them.
    """
    if value not in choices:
        raise InvalidSetting(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)


def finite_array(name: str, value: Any) -> Array:
    """The value as a float64 array, refused unless all its entries are finite numbers.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        A number, a nested sequence of numbers or an array, of any shape.

    Returns
    -------
    Array
        The value, of the shape that it has. It is not copied if it is a float64 array already.

    Raises
    ------
    InvalidSetting
        If the value is no array of numbers, or an entry is infinite or NaN.
    """
    try:
        result = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidSetting(
            f"{name} must be an array of numbers, got {type(value).__name__}"
        ) from None
    if not np.isfinite(result).all():
        raise InvalidSetting(
            f"{name} must hold finite numbers only, got {int((~np.isfinite(result)).sum())} that"
            " are not"
        )
    return result


def precision(name: str, value: Any, dim: int) -> Array:
    """The value as a symmetric positive definite matrix, refused if it is none.

    Parameters
    ----------
    name
        What the value is called in the error message.
    value
        A number, ``dim`` numbers for a diagonal, or a matrix.
    dim
        Rows and columns.

    Returns
    -------
    Array
        The matrix, (dim, dim).

    Raises
    ------
    InvalidSetting
        If the shape is another one, or the matrix is not symmetric or not positive definite.
    """
    matrix = finite_array(name, value)
    diagonal = matrix.shape in ((), (dim,))
    smallest = float(matrix.min()) if diagonal else 0.0
    if diagonal:
        matrix = np.diag(np.broadcast_to(matrix, (dim,)))
    elif matrix.shape != (dim, dim) or not np.allclose(matrix, matrix.T):
        raise InvalidSetting(
            f"{name} must be a number, {dim} numbers or a symmetric matrix, got {matrix.shape}"
        )
    if (smallest if diagonal else np.linalg.eigvalsh(matrix).min()) <= 0:
        raise InvalidSetting(
            f"{name} must be positive definite, got an eigenvalue that is not positive"
        )
    return matrix
