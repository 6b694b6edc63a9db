"""Data frames of pandas or polars as tables of columns. Neither library is imported: a frame is
whatever has ``columns`` and gives a column by its name."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from flmc.base.arrays import AnyArray
from flmc.base.errors import InvalidSetting
from flmc.data.columns import DataTable

_ROW = ("row", 0)
"""Word for a row of a data frame in messages, and the number of the first row."""


def is_frame(value: Any) -> bool:
    """Whether an object is a data frame of pandas or polars, or behaves as one."""
    return (
        hasattr(value, "columns")
        and hasattr(value, "__getitem__")
        and not isinstance(value, Mapping)
    )


def tables_of_frames(frames: Any, wanted: Sequence[str | None] | None = None) -> list[DataTable]:
    """The table of every data frame: ``frames`` is one, a sequence of frames, or a mapping from
    names of devices to frames. Only the columns ``wanted`` are taken; None: all. Raises
    ``InvalidSetting`` for anything else, and for columns that are not there, or are not numbers,
    words or arrays."""
    if is_frame(frames):
        frames = {"the data frame": frames}
    elif not isinstance(frames, Mapping):
        if isinstance(frames, str | bytes) or not isinstance(frames, Iterable):
            raise InvalidSetting(f"data frames are needed, one a device, got {frames!r}")
        frames = {str(number): each for number, each in enumerate(frames)}
    if not frames:
        raise InvalidSetting("there must be at least 1 data frame, got none")
    return [_table(str(name), frame, wanted) for name, frame in frames.items()]


def _table(name: str, frame: Any, wanted: Sequence[str | None] | None) -> DataTable:
    """The table of one data ``frame`` with the columns ``wanted`` (None: all). ``name`` stands for
    the frame in messages, and for its device."""
    if not is_frame(frame):
        raise InvalidSetting(
            f"the data of {name} must be a data frame, got {type(frame).__name__};"
            " flmc.data.from_arrays takes named arrays"
        )
    keys = {str(key): key for key in frame.columns}
    if len(keys) < len(list(frame.columns)):
        raise InvalidSetting(f"{name} names a column twice: {', '.join(map(str, frame.columns))}")
    if wanted is not None:
        chosen = dict.fromkeys(column for column in wanted if column is not None)
        for column in chosen:
            if column not in keys:
                in_index = column in getattr(getattr(frame, "index", None), "names", ())
                cure = " (it is in the index: use frame.reset_index())" if in_index else ""
                raise InvalidSetting(
                    f"{name} has no column {column!r}{cure}; it has {', '.join(keys)}"
                )
        keys = {column: keys[column] for column in chosen}
    columns = {column: column_values(name, column, frame[key]) for column, key in keys.items()}
    if not columns:
        raise InvalidSetting(f"{name} has no column")
    return DataTable(name, columns, numbering=_ROW)


def column_values(name: str, column: str, values: Any) -> AnyArray:
    """The values of one ``column`` of a data frame, (row, ...): whole numbers, numbers in double
    precision where NaN is missing, or words, with the data type object, where an empty one is
    missing. Cells that are arrays are stacked."""
    gone = np.asarray(values.isna() if hasattr(values, "isna") else values.is_null(), dtype=bool)
    array = np.asarray(values.to_numpy())
    if array.dtype.kind in "iub" and not gone.any():
        return array.astype(np.int64)
    if array.dtype.kind == "f":
        return array.astype(np.float64)
    # The library gives objects for words, and for whole numbers or truth values in a column with
    # missing values.
    there = [value for value, missing in zip(array.tolist(), gone, strict=True) if not missing]
    if there and all(isinstance(value, str) for value in there):
        words = np.full(len(array), "", dtype=object)
        words[~gone] = there
        return words
    try:
        numbers = np.asarray([_plain(value) for value in there])
    except ValueError:
        numbers = np.empty(0, dtype=object)
    if there and numbers.dtype.kind not in "iubf":
        kind = getattr(values, "dtype", array.dtype)
        raise InvalidSetting(
            f"column {column!r} of {name} must hold numbers, words, or arrays of one shape, got"
            f" {kind}: turn it into one of these, or leave it out"
        )
    if not gone.any():
        return numbers.astype(np.float64 if numbers.dtype.kind == "f" else np.int64)
    whole = np.full((len(array), *numbers.shape[1:]), np.nan)
    whole[~gone] = numbers
    return whole


def _plain(value: Any) -> Any:
    """The content of one cell of a column: a number as it is, anything else as an array."""
    return value if isinstance(value, bool | int | float) else np.asarray(value)
