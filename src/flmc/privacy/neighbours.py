"""Neighbouring relations: in which unit two data sets differ, and how.

The unit is all data of a *device*, or one *example* of it. It is

* replaced by any other one (``replace``);
* absent (``add_remove``): an example is not in the sum over examples; a device is silent;
* put to zero (``zero_out``): the example's gradient, or the device's whole local gradient with its
  share of the prior, is 0, and the device transmits all the same.

A unit whose contribution lies within a bound of 0 moves by twice the bound if it is replaced, and
by the bound alone if it is absent or 0. The plan, its numbers of devices and of examples included,
is public and the same in both data sets."""

from __future__ import annotations

RELATIONS = ("replace", "add_remove", "zero_out")
"""Names of the ways in which the unit may differ between two neighbouring data sets."""
UNITS = ("device", "example")
"""Names of the units in which two neighbouring data sets may differ."""

_WORDS = {
    ("device", "replace"): "device (all data of one device are replaced)",
    ("example", "replace"): "example (one example of one device is replaced)",
    ("device", "add_remove"): "device (one device is silent, in a slot that is its own)",
    ("example", "add_remove"): "example (one example of one device is added or removed)",
    ("device", "zero_out"): "device (the local gradient of one device is put to zero)",
    ("example", "zero_out"): "example (the gradient of one example is put to zero)",
}


def neighbours_in_words(unit: str, relation: str) -> str:
    """The unit in which neighbouring data sets differ, and how, as printed beside an epsilon."""
    return _WORDS[unit, relation]


_TOLD_APART = {
    ("device", "replace"): "which of two data sets a device has",
    ("example", "replace"): "which of two values an example has",
    ("device", "add_remove"): "whether a device transmits or is silent",
    ("example", "add_remove"): "whether an example is there or not",
    ("device", "zero_out"): "whether the gradient of a device is put to zero",
    ("example", "zero_out"): "whether the gradient of an example is put to zero",
}


def told_apart(unit: str, relation: str = "replace") -> str:
    """What an attacker decides who tells neighbouring data sets apart, in words."""
    return _TOLD_APART[unit, relation]


def relation_argument(relation: str) -> dict[str, str]:
    """The relation as an argument by name, for a method that a user's own class may have written
    without it: none for ``replace``."""
    return {} if relation == "replace" else {"relation": relation}


def moves(relation: str) -> float:
    """How far the contribution of a unit, bounded by 1, moves between neighbouring data sets: 2 if
    it is replaced, 1 if it is absent or 0 in one of them."""
    return {"replace": 2.0, "add_remove": 1.0, "zero_out": 1.0}[relation]
