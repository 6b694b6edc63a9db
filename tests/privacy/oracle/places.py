"""Profile of an entry that one example moves from an unknown place: the supremum over places.

All links here are odd, so the exchanged pair at one place is the pair at the opposite place, and
the supremum over places covers both orders."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from privacy.oracle.bits import Array, Bits, Profile, log_excess, of_line, of_logits, of_normal

_PLACES = 601
"""Places spread evenly over the interval; others crowd towards its ends."""
_GOLDEN = (np.sqrt(5.0) - 1) / 2


@dataclass(frozen=True)
class Moved:
    """A bit whose argument moves by ``shift`` within [-reach, reach], in units of the link's slope.

    Attributes
    ----------
    link
        ``sigmoid``, ``probit`` or ``linear``; the last has probability (1 + u)/2.
    reach, shift
        Slope times clip (the ratio, if linear), and slope times the move.
    """

    link: str
    reach: float
    shift: float

    def at(self, place: Array) -> Bits:
        """Bits if the argument moves from ``place`` upwards."""
        high = np.minimum(place + self.shift, self.reach)
        if self.link == "probit":
            return of_normal(high, place)
        return (of_logits if self.link == "sigmoid" else of_line)(high, place, self.shift)

    @property
    def places(self) -> Array:
        """Places that are tried first, (place)."""
        low, high = -self.reach, self.reach - self.shift
        if high <= low:
            return np.array([low])
        ends = (high - low) * np.geomspace(1e-12, 0.1, 60)
        even = np.linspace(low, high, _PLACES)
        return np.unique(np.concatenate([even, low + ends, high - ends]))


def worst_place(moved: Moved, amplitude: float) -> Profile:
    """Profile that is the supremum over places, at each epsilon."""

    def supremum(e: Array) -> Array:
        return _supremum(moved, amplitude, e)

    top = float(np.max(moved.at(moved.places).top))
    return Profile(supremum, supremum, top, top)


def _supremum(moved: Moved, amplitude: float, e: Array) -> Array:
    """ln of the supremum at increasing ``e``: a table of places at some of them, then a golden
    section at each, from the best places of both neighbours in the table."""
    places = moved.places
    if len(places) == 1:
        return log_excess(moved.at(places), amplitude, e)
    chosen = np.unique(np.linspace(0, len(e) - 1, min(len(e), 100)).astype(int))
    bits = moved.at(places[:, None])
    table = log_excess(bits, amplitude, e[None, chosen])
    best = np.argmax(table, axis=0)
    after = np.minimum(np.searchsorted(chosen, np.arange(len(e))), len(chosen) - 1)
    found = np.full(len(e), -np.inf)
    for index in (best[after], best[np.maximum(after - 1, 0)]):
        low = places[np.maximum(index - 2, 0)]
        high = places[np.minimum(index + 2, len(places) - 1)]
        found = np.maximum(found, _golden(moved, amplitude, e, low, high))
    # The ends of the interval are where a golden section never arrives.
    for end in (places[0], places[-1]):
        found = np.maximum(found, log_excess(moved.at(end), amplitude, e))
    return found


def _golden(moved: Moved, amplitude: float, e: Array, low: Array, high: Array) -> Array:
    """Largest value of the profile over places between ``low`` and ``high``, (point)."""

    def value(place: Array) -> Array:
        return log_excess(moved.at(place), amplitude, e)

    left, right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    at_left, at_right = value(left), value(right)
    for _ in range(24):
        up = at_right > at_left
        low, high = np.where(up, left, low), np.where(up, high, right)
        new_left, new_right = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
        fresh = value(np.where(up, new_right, new_left))
        at_left, at_right = np.where(up, at_right, fresh), np.where(up, fresh, at_left)
        left, right = new_left, new_right
    return np.maximum(at_left, at_right)
