"""Checks of single values. Each takes the name for the error message and the value, and returns the
value or raises :class:`~flmc.base.errors.InvalidSetting` with the bound and the value."""

from __future__ import annotations

import math
import numbers
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

EXTREME = 1e30
"""Largest value of a positive setting; the smallest is 1/``EXTREME``. With these bounds, squares
and products of some settings do not overflow in double precision."""
LONGEST_NAME = 100
"""Longest name of an entry of theta, in characters, that a federation may have."""


def number(name: str, value: Any) -> float:
    """The value as a finite float; booleans and strings, which ``float`` would take, are refused
    with ``InvalidSetting``."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise InvalidSetting(f"{name} must be a number, got {value!r}") from None
    if isinstance(value, (bool, str)):
        raise InvalidSetting(f"{name} must be a number, got {value!r}")
    if not math.isfinite(result):
        raise InvalidSetting(f"{name} must be a finite number, got {value!r}")
    return result


def plain_names(name: str, value: Any) -> tuple[str, ...]:
    """The value as a tuple of different names of 1 to ``LONGEST_NAME`` characters, all printable:
    names that somebody else wrote reach terminals, which control characters would command."""
    if not isinstance(value, list | tuple):
        raise InvalidSetting(f"{name} must be a list of names, got {type(value).__name__}")
    for each in value:
        if (
            not isinstance(each, str)
            or not 1 <= len(each) <= LONGEST_NAME
            or not each.isprintable()
        ):
            # ascii, because the message reaches a terminal, too
            shown = ascii(each)[:40]
            raise InvalidSetting(
                f"{name} must be texts of 1 to {LONGEST_NAME} printable characters, got {shown}"
            )
    if len(set(value)) < len(value):
        twice = next(each for each in value if value.count(each) > 1)
        raise InvalidSetting(f"{name} must differ from each other, and {twice!r} is there twice")
    return tuple(value)


def is_number(text: str) -> bool:
    """Whether a text can be read as a number, of which ``inf`` and ``nan`` are two."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def number_in(text: str) -> float:
    """The number in a text, of which ``inf`` is one; a text such as ``1e400``, which is too large
    for a double and would silently become infinite, is a ``ValueError``."""
    value = float(text)
    if math.isinf(value) and "inf" not in text.lower():
        raise ValueError(f"{text} is too large: a number must be at most 1.79e308 (or inf)")
    return value


def positive(name: str, value: Any, *, extreme: float = EXTREME) -> float:
    """The value as a positive float between 1/``extreme`` and ``extreme``."""
    result = number(name, value)
    if result <= 0:
        raise InvalidSetting(f"{name} must be positive, got {value!r}")
    if not 1 / extreme <= result <= extreme:
        raise InvalidSetting(
            f"{name} must lie between {1 / extreme:g} and {extreme:g}, got {value!r}"
        )
    return result


def not_negative(name: str, value: Any) -> float:
    """The value as a finite float of at least zero."""
    result = number(name, value)
    if result < 0:
        raise InvalidSetting(f"{name} must not be negative, got {value!r}")
    return result


def at_least(name: str, value: Any, lowest: int, *, highest: int | None = None) -> int:
    """The value as an int from ``lowest`` to ``highest`` (None: without an upper bound); a float
    such as 3.0 counts as whole."""
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
    """The value as a float strictly between ``low`` and ``high``."""
    result = number(name, value)
    if not low < result < high:
        raise InvalidSetting(
            f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}"
        )
    return result


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """The value, if it is one of the words ``choices``; else ``InvalidSetting`` is raised, with a
    message that lists them."""
    if value not in choices:
        raise InvalidSetting(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)


def finite_array(name: str, value: Any) -> Array:
    """The value as a float64 array of its own shape with finite entries only; an array that is one
    already is not copied."""
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
    """The symmetric positive definite matrix (dim, dim) that the value stands for: the value times
    the identity for a number, a diagonal matrix for ``dim`` numbers, or the matrix itself."""
    matrix = finite_array(name, value)
    diagonal = matrix.shape in ((), (dim,))
    smallest = float(matrix.min()) if diagonal else 0.0
    if diagonal:
        matrix = np.diag(np.broadcast_to(matrix, (dim,)))
    # A matrix need be symmetric up to rounding only, because one that the user has computed by
    # inversion is not exactly symmetric.
    elif matrix.shape != (dim, dim) or not np.allclose(matrix, matrix.T):
        raise InvalidSetting(
            f"{name} must be a number, {dim} numbers or a symmetric matrix, got {matrix.shape}"
        )
    if (smallest if diagonal else np.linalg.eigvalsh(matrix).min()) <= 0:
        raise InvalidSetting(
            f"{name} must be positive definite, got an eigenvalue that is not positive"
        )
    return matrix
