"""The grid of a sweep, that is of runs with many combinations of settings: which settings vary, and
over which values."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.settings.construction import not_taken
from flmc.settings.schema import Settings, merge, unknown_setting

_RANGE = {"start", "stop", "count", "spacing"}
"""Keys of the table that describes a range, the alternative to a list of values for a setting."""
_MOST_POINTS = 1_000_000


@dataclass(frozen=True)
class SweepGrid:
    """The grid of a sweep: settings that all its points share, and the values of those that
    vary."""

    base: dict[str, Any]
    """Settings that all points share, by name."""
    axes: dict[str, list[Any]]
    """Settings that vary, by name, each with its values; the last varies fastest."""

    @property
    def points(self) -> list[Settings]:
        """The checked settings of every point, in the order of the grid; ``InvalidSetting`` for
        more than a million points."""
        count = math.prod(len(values) for values in self.axes.values())
        if count > _MOST_POINTS:
            raise InvalidSetting(f"a sweep must have at most {_MOST_POINTS} points, got {count}")
        return [
            self._point(dict(zip(self.axes, values, strict=True)))
            for values in itertools.product(*self.axes.values())
        ]

    def _point(self, varied: dict[str, Any]) -> Settings:
        """Checked settings of one point. Where the scheme varies, settings that the point's scheme
        does not have are left out: a link is for the digital points of a sweep over both."""
        whole = merge(self.base, varied)
        idle = not_taken(whole) if "scheme" in self.axes else ()
        if not idle:
            return whole
        given = whole.model_dump(exclude_unset=True)
        return merge({}, {name: value for name, value in given.items() if name not in idle})


def read_grid(document: Mapping[str, Any], options: Mapping[str, Any]) -> SweepGrid:
    """The grid of a sweep, from settings with a table ``[sweep]``: each varying setting a list, or
    a range ``{start, stop, count, spacing = "linear" | "log"}``. ``options`` of the command line
    override the document, and may not name a varying setting. ``InvalidSetting`` if a setting is
    unknown, given twice or without effect in a sweep, or nothing varies."""
    base = dict(document)
    varying = base.pop("sweep", None)
    _refuse_without_effect({*base, *options, *(varying if isinstance(varying, Mapping) else ())})
    if not isinstance(varying, Mapping) or not varying:
        raise InvalidSetting(
            "a sweep needs a table [sweep] with at least one setting, a list or a range; got none"
        )
    for name in varying:
        if name not in Settings.model_fields:
            raise InvalidSetting(f"in [sweep]: {unknown_setting(name)}")
        if name in base or name in options:
            raise InvalidSetting(f"{name} must be given once: it is in [sweep] and outside")
    return SweepGrid(
        {**base, **options}, {name: _values(name, value) for name, value in varying.items()}
    )


def _refuse_without_effect(names: set[str]) -> None:
    """Raise ``InvalidSetting`` for settings without effect in a sweep: varying these would compute
    equal points twice."""
    if "require" in names:
        raise InvalidSetting(
            "require must not be given for a sweep, whose table says what speaks against each plan"
        )
    for name in ("threads", "checkpoint_rounds"):
        if name in names:
            raise InvalidSetting(
                f"{name} must not be given for a sweep, where every point runs on one thread"
                " unrecorded"
            )


def _values(name: str, given: Any) -> list[Any]:
    """The values over which the setting ``name`` varies, from a list or a range."""
    if isinstance(given, list) and given:
        if any(isinstance(value, bool) for value in given):
            raise InvalidSetting(f"{name} in [sweep] must hold numbers or words, got {given!r}")
        return given
    if isinstance(given, Mapping) and {"start", "stop", "count"} <= set(given) <= _RANGE:
        start, stop = (checks.number(f"{name}.{end}", given[end]) for end in ("start", "stop"))
        count = checks.at_least(f"{name}.count", given["count"], 1)
        spacing = checks.one_of(
            f"{name}.spacing", given.get("spacing", "linear"), ("linear", "log")
        )
        if count > _MOST_POINTS:
            raise InvalidSetting(f"{name}.count must be at most {_MOST_POINTS}, got {count}")
        if spacing == "log" and not min(start, stop) > 0:
            raise InvalidSetting(
                f"{name} with log spacing must have positive ends, got {start:g} and {stop:g}"
            )
        values = (
            np.geomspace(start, stop, count)
            if spacing == "log"
            else np.linspace(start, stop, count)
        )
        # A range of whole numbers gives whole numbers, as counts of rounds or devices must be; 1e-9
        # is far above the rounding of linspace and far below any step that matters.
        near = np.round(values)
        return [
            int(n) if abs(v - n) <= 1e-9 * max(1.0, abs(n)) else float(v)
            for v, n in zip(values, near, strict=True)
        ]
    raise InvalidSetting(
        f"{name} in [sweep] must be a list that is not empty, or a range {{start, stop, count,"
        f" spacing}}, got {given!r}"
    )
