"""Tables of named columns, from a file or a data frame: their numbers, words and missing values,
and which device holds which row."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple

import numpy as np

from flmc.base.arrays import AnyArray, Array, BoolArray, IntArray
from flmc.base.checks import one_of
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding

Missing = Literal["refuse", "drop"]
"""What becomes of examples with a missing value: ``refuse`` refuses the data, ``drop`` leaves these
examples out, and counts them."""
_CURE = "leave such examples out (missing='drop', on the command line --missing drop), or fill them"
"""What to do about missing values, as the end of a message."""
_MISSING = ("", "na", "n/a", "nan", "none", "null", "?")
"""Words that stand for a missing value, in lower case; upper case counts as the same."""
MISSING_DROPPED = "missing-dropped"
"""Code of the finding that examples with missing values were left out."""
_MOST_NAMED = 5
"""Largest number of devices that a finding about missing values names."""
Words = np.ndarray[tuple[Any, ...], np.dtype[np.object_]]
"""Array of text, with the data type object."""


@dataclass(frozen=True)
class DataTable:
    """Columns of one file or data frame, each of numbers or of words."""

    name: str
    """Name of the file, without its ending, or of the data frame's device."""
    columns: Mapping[str, AnyArray]
    """Columns by name, all of the same length, (row, ...): arrays of numbers, or of text with the
    data type object. A number that is missing is NaN."""
    target: str | None = None
    """Name of the column that is to be predicted, if the kind of file determines it; else None."""
    numbering: tuple[str, int] = ("line", 1)
    """Word for a row in error messages, and the number of the table's first row."""
    classes: tuple[str, ...] = ()
    """Names of the target's classes in the order of their numbers, if the data set determines it;
    else empty."""
    rows: IntArray | None = None
    """Index of each row in the file or frame, if some were left out; None: they are all there."""

    def __len__(self) -> int:
        """Number of rows of the table."""
        return len(next(iter(self.columns.values())))

    def names_but(self, *left_out: str | None) -> tuple[str, ...]:
        """Names of all columns except ``left_out``, in the order of the table."""
        return tuple(name for name in self.columns if name not in left_out)

    def check_columns(self, wanted: Sequence[str]) -> None:
        """Raise ``InvalidSetting`` if the table lacks one of the columns ``wanted``."""
        for name in wanted:
            if name not in self.columns:
                raise InvalidSetting(
                    f"{self.name} has no column {name!r}; it has {', '.join(self.columns)}"
                )

    def missing(self, name: str, known: Sequence[str] = ()) -> BoolArray:
        """Whether each value of the column ``name`` is missing, (row). A word in the vocabulary
        ``known`` is not missing, even if it is ``none`` or ``?``."""
        column = self.columns[name]
        if column.dtype == object:
            return np.array([_is_missing(value, known) for value in column], dtype=bool)
        if column.dtype.kind != "f":
            return np.zeros(len(column), dtype=bool)
        return np.asarray(np.isnan(column).any(axis=tuple(range(1, column.ndim))))

    def only(self, kept: BoolArray) -> DataTable:
        """The table with those rows alone that are marked in ``kept``, (row)."""
        if kept.all():
            return self
        rows = np.arange(len(self)) if self.rows is None else self.rows
        columns = {name: column[kept] for name, column in self.columns.items()}
        return replace(self, columns=columns, rows=rows[kept])

    def words(self, name: str, known: Sequence[str] = ()) -> Words:
        """The values of a column as text, (row), where a whole number has no decimal point; raises
        ``InvalidSetting`` if a value is missing. A word in the vocabulary ``known`` is not missing,
        even if it is ``none`` or ``?``."""
        column = self.columns[name]
        if column.dtype != object:
            self._refuse_cells(name)
            self.numbers(name)  # raises InvalidSetting for missing or infinite numbers
            return np.array([_plain(value) for value in column.tolist()], dtype=object)
        self._refuse(name, self.missing(name, known), "a word")
        return np.array([str(value).strip() for value in column], dtype=object)

    def numbers(self, name: str) -> Array:
        """The values of a column as numbers in double precision, (row, ...); raises
        ``InvalidSetting`` if a value is missing or is not a finite number."""
        column = self.columns[name]
        if column.dtype == object:
            column = np.array([_number(str(value)) for value in column], dtype=np.float64)
        rest = tuple(range(1, column.ndim))
        wrong: BoolArray = np.asarray(~np.isfinite(column).all(axis=rest))
        self._refuse(name, wrong, "a number" if column.ndim == 1 else "finite numbers")
        return np.asarray(column, dtype=np.float64)

    def is_number(self, name: str) -> bool:
        """Whether every value of a column is a number or missing."""
        column = self.columns[name]
        if column.dtype != object:
            return True
        there = [str(value) for value in column if not _is_missing(value)]
        return not np.isnan([_number(text) for text in there]).any()

    def refuse_words(self, name: str) -> None:
        """Raise ``InvalidSetting`` if a column holds words, for which a vocabulary is needed."""
        if self.is_number(name):
            return
        some = sorted({str(each).strip() for each in self.columns[name] if not _is_missing(each)})
        raise InvalidSetting(
            f"column {name!r} of {self.name} holds words ({', '.join(map(repr, some[:3]))}): give"
            f" its vocabulary, categories={{{name!r}: [...]}}, or leave it out"
        )

    def coded(self, name: str, vocabulary: Sequence[str]) -> IntArray:
        """For each row of a column, the index of its word in the ``vocabulary``, (row); raises
        ``InvalidSetting`` if a word is not in it, or missing."""
        known = {word: number for number, word in enumerate(vocabulary)}
        column = self.words(name, vocabulary)
        for row, word in enumerate(column):
            if word not in known:
                raise InvalidSetting(
                    f"column {name!r} of {self.name} has {word!r} in {self._place(row)}, which is"
                    f" not in its vocabulary: {', '.join(vocabulary)}"
                )
        return np.array([known[word] for word in column], dtype=np.intp)

    def _refuse_cells(self, name: str) -> None:
        """Raise ``InvalidSetting`` if the cells of a column are arrays, which are no words."""
        if self.columns[name].ndim > 1:
            raise InvalidSetting(
                f"column {name!r} of {self.name} holds an array in each row: only words and whole"
                " numbers name a category or a device"
            )

    def _place(self, row: int) -> str:
        """Words for a row of the table in messages, such as ``line 3``."""
        word, first = self.numbering
        return f"{word} {(row if self.rows is None else int(self.rows[row])) + first}"

    def _refuse(self, name: str, wrong: BoolArray, kind: str) -> None:
        """Raise ``InvalidSetting`` if any row of a column is marked in ``wrong`` (row). The message
        names the first such row, how many there are, and what the column must hold, ``kind``, such
        as ``a number``; for missing values it says what to do."""
        if not wrong.any():
            return
        row = int(np.flatnonzero(wrong)[0])
        value = self.columns[name][row]
        gone = self.missing(name)
        what = "is missing" if gone[row] else f"is {str(value).strip()!r}"
        more = f" and {int(wrong.sum()) - 1} more" if wrong.sum() > 1 else ""
        text = f"column {name!r} of {self.name} must be {kind}, and {what} in {self._place(row)}"
        raise InvalidSetting(text + more + (f": {_CURE}" if gone[row] else ""))


class Holders(NamedTuple):
    """The devices that hold the rows of some tables, if these rows are counted from the first table
    to the last.

    Attributes
    ----------
    names
        Names of the devices, in the order of their first rows.
    sizes
        Number of rows of each device.
    order
        Indices of the rows in device order, (row).
    dropped
        Number of rows of each device that were left out, because a value is missing.
    """

    names: tuple[str, ...]
    sizes: tuple[int, ...]
    order: IntArray
    dropped: tuple[int, ...]


def complete(
    tables: Sequence[DataTable],
    device_column: str | None,
    columns: Mapping[str, Sequence[str]],
    missing: Missing,
) -> tuple[list[DataTable], Holders]:
    """Tables whose rows have all values in ``columns``, and the devices that hold the rows: the
    words in ``device_column`` name them, or, where that is None, each table is a device.
    ``columns`` maps names of columns to their vocabularies, empty for numbers. With ``missing``
    ``drop`` rows that lack a value are left out; else they stay, and reading their values raises an
    error."""
    one_of("missing", missing, ("refuse", "drop"))
    kept = [np.ones(len(table), dtype=bool) for table in tables]
    if missing == "drop":
        for table, rows in zip(tables, kept, strict=True):
            for name, vocabulary in columns.items():
                rows &= ~table.missing(name, vocabulary)
    if device_column is None:
        names = tuple(table.name for table in tables)
        owner = np.repeat(np.arange(len(tables)), [len(table) for table in tables])
    else:
        # A row without a device cannot be counted as left out by one: ``words`` raises an error.
        words = np.concatenate([table.words(device_column) for table in tables])
        names = tuple(dict.fromkeys(words.tolist()))
        number = {name: index for index, name in enumerate(names)}
        owner = np.array([number[word] for word in words], dtype=np.intp)
    there = np.concatenate(kept)
    sizes, dropped = (np.bincount(owner[mask], minlength=len(names)) for mask in (there, ~there))
    holders = Holders(
        names,
        tuple(map(int, sizes)),
        np.argsort(owner[there], kind="stable"),
        tuple(map(int, dropped)),
    )
    return [table.only(rows) for table, rows in zip(tables, kept, strict=True)], holders


def findings_of_dropped(holders: Holders) -> tuple[Finding, ...]:
    """A tuple with one note, that examples with missing values were left out, with their number on
    each device; empty if none were left out."""
    dropped = dict(zip(holders.names, holders.dropped, strict=True))
    total, kept = sum(holders.dropped), sum(holders.sizes)
    if not total:
        return ()
    most = sorted((name for name in dropped if dropped[name]), key=lambda each: -dropped[each])
    named = ", ".join(f"{dropped[name]} of {name}" for name in most[:_MOST_NAMED])
    if len(most) > _MOST_NAMED:
        named += f", and {len(most) - _MOST_NAMED} more devices"
    text = (
        f"{total} of {total + kept} examples have missing values and were left out ({named}): the"
        " posterior is that of the complete ones, which is right where what is missing depends on"
        " the features alone, not on what is to be predicted"
    )
    numbers = {"dropped": float(total), "share": total / (total + kept)}
    return (Finding(MISSING_DROPPED, "note", text, f"{total} examples left out", numbers),)


def _is_missing(value: Any, known: Sequence[str] = ()) -> bool:
    """Whether ``value``, from a column of text, stands for a missing value (such as ``NA``) and is
    not a word of the vocabulary ``known``."""
    text = str(value).strip()
    return text not in known and text.lower() in _MISSING


def _plain(value: float | int) -> str:
    """The shortest text that stands for a number; that of a whole number has no decimal point."""
    return str(value) if isinstance(value, int) else np.format_float_positional(value, trim="-")


def _number(text: str) -> float:
    """The number that a text stands for; NaN for any other text."""
    try:
        return float(text)
    except ValueError:
        return float("nan")
