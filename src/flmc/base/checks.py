"""Checks of single values. Each returns the value it was given, or raises
:class:`~flmc.base.errors.InvalidSetting` with the bound and the value."""

from __future__ import annotations

import math
import numbers
import os
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


def number(name: str, value: Any) -> float:
    """A finite real number."""
    try:
        result = float(value)
    except (TypeError, ValueError):
        raise InvalidSetting(f"{name} must be a number, got {value!r}") from None
    if isinstance(value, (bool, str)):
        raise InvalidSetting(f"{name} must be a number, got {value!r}")
    if not math.isfinite(result):
        raise InvalidSetting(f"{name} must be a finite number, got {value!r}")
    return result


def positive(name: str, value: Any, *, extreme: float = math.inf) -> float:
    """A finite number above zero; neither above ``extreme`` nor below its inverse, if given."""
    result = number(name, value)
    if result <= 0:
        raise InvalidSetting(f"{name} must be positive, got {value!r}")
    if not 1 / extreme <= result <= extreme:
        raise InvalidSetting(
            f"{name} must lie between {1 / extreme:g} and {extreme:g}, got {value!r}"
        )
    return result


def fits(what: str, num_bytes: float) -> None:
    """Refuse what this machine's memory cannot hold, before it is tried."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if num_bytes > memory:
        raise InvalidSetting(
            f"{what} would take {num_bytes / 1e9:.3g} GB of memory, and this machine has"
            f" {memory / 1e9:.3g}; use less"
        )


def at_least(name: str, value: Any, lowest: int) -> int:
    """A whole number not below ``lowest``."""
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
    return whole


def between(name: str, value: Any, low: float, high: float) -> float:
    """A number strictly between ``low`` and ``high``."""
    result = number(name, value)
    if not low < result < high:
        raise InvalidSetting(
            f"{name} must lie strictly between {low:g} and {high:g}, got {value!r}"
        )
    return result


def one_of(name: str, value: Any, choices: tuple[str, ...]) -> str:
    """One of a few words."""
    if value not in choices:
        raise InvalidSetting(f"{name} must be one of {', '.join(choices)}; got {value!r}")
    return str(value)


def finite_array(name: str, value: Any) -> Array:
    """An array of finite numbers, as float64."""
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
