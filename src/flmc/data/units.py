"""Doubts about units: a finding for a feature whose values are far larger or smaller on one device
than on the others."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.findings import Finding

_FACTOR = 50.0
"""Ratio of a feature's typical magnitude on one device to that on the other devices, or its
inverse, from which the device's units are doubted: metres and centimetres differ by 100, kilograms
and grams by 1000."""
_FEWEST, _MOST_ROWS = 5, 200
"""``_FEWEST`` is the smallest number of examples with which the units of a device are judged,
``_MOST_ROWS`` the largest number of a device's examples that are looked at."""
_MOST_NUMBERS = 1_000_000
"""Largest number of feature values that are looked at over all devices, because making a plan must
not wait for the check of units."""


def doubt_units(
    features: Array, sizes: Sequence[int], names: Sequence[str], devices: Sequence[str]
) -> tuple[Finding, ...]:
    """At most one finding, on the feature and device that differ most: the feature's values are 50
    times or more larger or smaller on that device than on the others. ``features`` are (sample,
    feature) in the order of the ``devices``, whose numbers of examples are ``sizes``; ``names`` are
    those of the features."""
    count = np.asarray(sizes, dtype=np.intp)
    kept = np.flatnonzero(count >= _FEWEST)
    rows = min(_MOST_ROWS, _MOST_NUMBERS // max(1, len(kept) * features.shape[1]))
    if len(kept) < 2 or rows < _FEWEST:
        return ()
    # Evenly spaced examples of each device, (device, row); ``used`` is False in the last rows of a
    # device that has fewer examples.
    rows = int(min(rows, count.max()))
    taken = np.minimum(count[kept], rows)
    spaced = np.arange(rows) * count[kept, None] // taken[:, None]
    begin = (np.cumsum(count) - count)[kept, None]
    used = np.arange(rows) < taken[:, None]
    values = np.abs(features[np.where(used, begin + spaced, 0)])
    # Zeros are left out, because they have no units: a column of zeros and ones raises no doubt.
    values = np.where(used[:, :, None] & (values > 0), values, np.nan)
    number: IntArray = np.isfinite(values).sum(axis=1)  # shape (device, feature)
    ordered = np.sort(values, axis=1)  # NaN, which stands for a missing value, sorts last
    place = np.maximum(number - 1, 0)[:, None] // 2
    middle = np.where(number >= _FEWEST, np.take_along_axis(ordered, place, axis=1)[:, 0], np.nan)
    root = np.sqrt(np.nansum(np.square(values), axis=1) / np.maximum(number, 1))
    root = np.where(number >= _FEWEST, root, np.nan)
    usual = _median_of_others(middle)
    # A feature that looks larger on a device is judged by its median there, which a few large
    # values do not move, and one that looks smaller by its root mean square, which a few small
    # values do not move: neither a heavy tail nor values near zero by chance raise a doubt.
    ratio = np.where(middle > usual, middle / usual, np.minimum(root / usual, 1.0))
    off = np.where(np.isfinite(ratio), np.maximum(ratio, 1 / ratio), 1.0)
    device, feature = divmod(int(np.argmax(off)), off.shape[1])
    worst = float(off[device, feature])
    if worst < _FACTOR:
        return ()
    name, who = names[feature], devices[kept[device]]
    size = "larger" if ratio[device, feature] > 1 else "smaller"
    text = (
        f"the feature {name!r} is some {worst:.0f} times {size} on device {who!r} than on the"
        " others: is it in other units there?"
    )
    short = f"{name!r} may be in other units on device {who!r}"
    return (Finding("units", "warning", text, short, {"ratio": float(ratio[device, feature])}),)


def _median_of_others(middle: Array) -> Array:
    """For each device and feature, the median of ``middle`` (device, feature) over all other
    devices; for an even number of these the geometric mean of the middle two. A NaN in ``middle``
    marks a device that is left out, and the result is NaN where no other device is left."""
    ordered = np.sort(middle, axis=0)
    rank = np.argsort(np.argsort(middle, axis=0), axis=0)
    others = np.isfinite(middle).sum(axis=0) - 1
    two = []
    for half in (others - 1) // 2, others // 2:
        place = np.broadcast_to(np.maximum(half, 0), middle.shape)
        # ``place`` counts the other devices only: in the order of all devices, places from the
        # device's own rank on lie one further.
        place = np.minimum(place + (place >= rank), len(middle) - 1)
        two.append(np.take_along_axis(ordered, place, axis=0))
    return np.where(others > 0, np.sqrt(two[0] * two[1]), np.nan)
