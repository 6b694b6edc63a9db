"""Readers of settings about the columns of a data file: lists of words, public vocabularies, and
public centres and scales.

An option is one text, such as ``ward=eyes:heart,smoker=no:yes``; a TOML file may have tables
instead, in which words may hold commas, colons and equals signs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from flmc.base import checks
from flmc.base.errors import InvalidSetting

_LIST = "words with commas between them, or a list of texts"
_WORDS = "as 'ward=eyes:heart:bones,smoker=no:yes', or a table with a list of words for each column"
_SCALES = (
    "'data', or as 'age=60:10,dose=0:2' (centre:scale), or a table with [centre, scale] for each"
)


def word_list(name: str, value: Any) -> list[str] | None:
    """The words in ``value``, the raw value of the setting ``name``: a text with commas between
    words, or a list of texts or numbers. None stays None."""
    if value is None:
        return None
    words = value.split(",") if isinstance(value, str) else value
    if not isinstance(words, list | tuple) or not words or not all(map(_is_word, words)):
        raise InvalidSetting(f"{name} must be {_LIST}, got {value!r}")
    return [str(word).strip() for word in words]


def vocabularies(value: Any) -> dict[str, list[str]] | None:
    """The public vocabulary (all words that may occur) of each column of words, by name of the
    column, from ``value``, the raw value of the setting ``categories``. None stays None."""
    if value is None:
        return None
    given = _table("categories", value, _WORDS)
    if not all(
        isinstance(words, list | tuple) and all(map(_is_word, words)) for words in given.values()
    ):
        raise InvalidSetting(f"categories must be {_WORDS}, got {value!r}")
    return {name: [str(word).strip() for word in words] for name, words in given.items()}


def scales(value: Any) -> Literal["data"] | dict[str, tuple[float, float]] | None:
    """Public centre and scale of each column, as a pair by name of the column, from ``value``, the
    raw value of the setting ``standardise``. The word ``data`` and None are returned unchanged."""
    if value is None:
        return None
    if value == "data":
        return "data"
    chosen = {}
    for name, pair in _table("standardise", value, _SCALES).items():
        if not isinstance(pair, list | tuple) or len(pair) != 2 or not all(map(_is_number, pair)):
            raise InvalidSetting(f"standardise must be {_SCALES}, got {pair!r} for {name!r}")
        centre, scale = map(float, pair)
        chosen[name] = (
            checks.number(f"the centre of {name!r}", centre),
            checks.positive(f"the scale of {name!r}", scale),
        )
    return chosen


def _table(setting: str, value: Any, form: str) -> dict[str, Any]:
    """The entries of ``value``, the raw value of ``setting``, by name of the column: a mapping, or
    a text ``COLUMN=VALUE:VALUE,COLUMN=...``. ``form`` is the expected form in words, for the
    message of ``InvalidSetting``."""
    if isinstance(value, Mapping) and value:
        return {str(name): each for name, each in value.items()}
    if not isinstance(value, str) or not value:
        raise InvalidSetting(f"{setting} must be {form}, got {value!r}")
    entries = {}
    for text in value.split(","):
        # The name of a coded column, such as ward=heart, contains an equals sign, so only the last
        # one separates name and values.
        name, equals, values = text.rpartition("=")
        if not (name and equals and values):
            raise InvalidSetting(f"{setting} must be {form}, got {text!r}")
        entries[name.strip()] = values.split(":")
    return entries


def _is_word(value: Any) -> bool:
    return isinstance(value, str | int | float) and not isinstance(value, bool)


def _is_number(value: Any) -> bool:
    return _is_word(value) and checks.is_number(str(value))
