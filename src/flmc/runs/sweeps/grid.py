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
from flmc.planning.fairness import QUANTITIES
from flmc.settings.construction import not_taken
from flmc.settings.schema import (
    OF_COMPARISONS,
    OF_THE_DATA,
    Settings,
    may_continue,
    merge,
    unknown_setting,
)

_RANGE = {"start", "stop", "count", "spacing"}
"""Keys of the table that describes a range, the alternative to a list of values for a setting."""
_MOST_POINTS = 1_000_000
OF_SINGLE_RUNS = ("threads", "checkpoint_rounds")
"""Settings of how a single run is computed, which change no row of a sweep's table. A sweep refuses
them, but a settings file that is shared with a run may have them: there they are ignored."""


@dataclass(frozen=True)
class SweepGrid:
    """The grid of a sweep: ``base`` has the settings that all its points share, ``axes`` the values
    of those that vary. Points may be compared as methods: ``across`` names the setting that tells
    methods apart, ``equal`` the quantity in which they are made equal."""

    base: dict[str, Any]
    """Settings that all points share, by name."""
    axes: dict[str, list[Any]]
    """Settings that vary, by name, each with its values; the last varies fastest."""
    equal: str | None = None
    """Quantity in which methods are made equal, a name of
    :data:`flmc.planning.fairness.QUANTITIES`. Methods are points that differ only in the setting
    that ``methods`` names. None: each point is planned by itself."""
    across: str | None = None
    """Name of the varying setting whose values are compared, if the user gave one; None: the
    property ``methods`` chooses the setting."""
    hold_out: float | None = None
    """Share of every device's examples that is held out of the data and predicted; None: no
    examples are held out."""

    @property
    def methods(self) -> str | None:
        """Name of the varying setting whose values are the methods to compare: ``across`` if it is
        given, else the scheme, else the first setting whose values are all words. Settings with a
        single value, or that change the data, are passed over; None if no setting is left."""
        worded = (
            name for name, values in self.axes.items() if all(isinstance(v, str) for v in values)
        )
        candidates = [self.across] if self.across is not None else ["scheme", *worded]
        return next(
            (
                name
                for name in candidates
                if len(self.axes.get(name, ())) > 1 and name not in OF_THE_DATA
            ),
            None,
        )

    def compared_with(self, index: int) -> list[int]:
        """Indices of the point ``index`` and of all points that differ from it only in the setting
        ``methods``, in the order of this setting's values; all of these points have the same data.
        Only ``index`` if there are no methods."""
        name = self.methods
        if name is None:
            return [index]
        names = list(self.axes)
        after = math.prod(len(self.axes[each]) for each in names[names.index(name) + 1 :])
        count = len(self.axes[name])
        first = index - (index // after % count) * after
        return [first + place * after for place in range(count)]

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
        """Checked settings of one point, from ``base`` and the values in ``varied``. If the scheme
        varies, settings that have no meaning for the point's scheme are left out, such as the link
        of an analog point."""
        whole = merge(self.base, varied)
        idle = not_taken(whole) if "scheme" in self.axes else ()
        if not idle:
            return whole
        given = whole.model_dump(exclude_unset=True)
        return merge({}, {name: value for name, value in given.items() if name not in idle})


def read_grid(document: Mapping[str, Any], options: Mapping[str, Any]) -> SweepGrid:
    """The grid of a sweep, from settings with a table ``[sweep]``, in which each varying setting
    has a list of values or a range ``{start, stop, count, spacing = "linear" | "log"}``. The
    document may also have ``equal``, ``across`` and ``hold_out``, which say how points are
    compared. ``options`` of the command line override the document, and may not name a varying
    setting. ``InvalidSetting`` if a setting is unknown, given twice or without effect in a sweep,
    or nothing varies."""
    base = dict(document)
    compared = {name: base.pop(name, None) for name in OF_COMPARISONS}
    varying = base.pop("sweep", None)
    _refuse_without_effect({*base, *options, *(varying if isinstance(varying, Mapping) else ())})
    if not isinstance(varying, Mapping) or not varying:
        raise InvalidSetting(
            "a sweep needs a table [sweep] with at least one setting, a list or a range; got none"
        )
    for name in varying:
        if name not in Settings.model_fields:
            raise InvalidSetting(f"in [sweep]: {unknown_setting(name)}")
    twice = [name for name in varying if name in base or name in options]
    if twice:
        named = f"{twice[0]} must be given once: it is"
        if len(twice) > 1:
            named = f"{', '.join(twice)} must be given once each: they are"
        raise InvalidSetting(f"{named} in [sweep] and outside")
    axes = {name: _values(name, value) for name, value in varying.items()}
    grid = SweepGrid({**base, **options}, axes, **compared)
    _check_comparison(grid)
    return grid


def read_variation(text: str) -> tuple[str, Any]:
    """Name and values of a setting that varies, from the text of one option ``--vary``:
    ``NAME=VALUE,VALUE``, with semicolons between values that have commas themselves, or
    ``NAME=START:STOP:COUNT`` with ``:log`` at the end for a range with constant ratios.
    ``InvalidSetting`` for other texts, and where a comma may stand between two values or within
    one."""
    name, equals, words = text.partition("=")
    if not (name and equals and words):
        raise InvalidSetting(
            f"--vary takes NAME=VALUE,VALUE or NAME=START:STOP:COUNT[:log], got {text!r}"
        )
    parts = words.split(":")
    numbers = len(parts) in (3, 4) and all(checks.is_number(part) for part in parts[:3])
    if numbers and parts[3:] in ([], ["log"], ["linear"]):
        start, stop, count = map(float, parts[:3])
        ends = {"start": start, "stop": stop, "count": int(count) if count % 1 == 0 else count}
        return name.replace("-", "_"), {**ends, "spacing": (parts[3:] or ["linear"])[0]}
    name = name.replace("-", "_")
    if ";" in words:
        texts = words.removesuffix(";").split(";")
    else:
        texts = words.split(",")
        for text_before, text_after in itertools.pairwise(texts):
            if may_continue(name, text_before.strip(), text_after.strip()):
                raise InvalidSetting(
                    f"--vary {text!r} can be read in two ways, because one value of {name} may have"
                    " commas itself: put ';' between the values, and at the end of a single one"
                    f" ('{name}={text_before.strip()},{text_after.strip()};')"
                )
    return name, [_value(each.strip()) for each in texts]


def _value(text: str) -> int | float | str:
    """The text as a number if it is one (whole if it is written without point and exponent), else
    the text itself."""
    if not checks.is_number(text):
        return text
    number = float(text)
    return int(number) if number % 1 == 0 and "." not in text and "e" not in text else number


def _check_comparison(grid: SweepGrid) -> None:
    """Raise ``InvalidSetting`` if ``equal``, ``across`` or ``hold_out`` is not valid, or if methods
    are to be compared and no varying setting can tell them apart."""
    if grid.equal is not None:
        checks.one_of("equal", grid.equal, tuple(QUANTITIES))
    if grid.hold_out is not None:
        checks.between("hold_out", grid.hold_out, 0.0, 1.0)
    if grid.across is not None:
        checks.one_of("across", grid.across, tuple(grid.axes))
        if grid.across in OF_THE_DATA:
            raise InvalidSetting(
                f"across must be a setting that leaves the data as they are, got {grid.across!r}:"
                " other data have other posteriors, so that nothing can be paired"
            )
    if grid.methods is None and (grid.equal is not None or grid.across is not None):
        raise InvalidSetting(
            f"{'equal' if grid.across is None else 'across'} needs a varying setting with two"
            " values or more to compare: name it with across"
        )


def _refuse_without_effect(names: set[str]) -> None:
    """Raise ``InvalidSetting`` if ``names`` has a setting that changes no row of a sweep's table,
    such as ``threads``: points that differ in it would be computed twice."""
    if "require" in names:
        raise InvalidSetting(
            "require must not be given for a sweep, whose table says what speaks against each plan"
        )
    if "answer" in names:
        raise InvalidSetting("answer must not be given for a sweep, whose table is of draws")
    for name in OF_SINGLE_RUNS:
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
