"""Examples with any number of named arrays, made from data frames: an array is one column or
several side by side, and words become their indices in a public vocabulary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import AnyArray, Array
from flmc.base.errors import InvalidSetting
from flmc.data.columns import DataTable, Missing, complete
from flmc.data.examples import Examples, held_by
from flmc.data.frame_tables import tables_of_frames
from flmc.data.reading import Coding, Constants, code_features


def from_frames(
    frames: Any,
    *,
    device_column: str | None = None,
    arrays: Mapping[str, str | Sequence[str]] | Sequence[str] | None = None,
    categories: Mapping[str, Sequence[Any]] | None = None,
    standardise: Constants | None = None,
    missing: Missing = "refuse",
) -> Examples:
    """Examples from data frames of pandas or polars, with any number of named arrays;
    ``flmc.data.read`` makes features and one target of them instead.

    Parameters
    ----------
    frames
        One data frame, whose ``device_column`` says on which device an example is; or a frame for
        each device, as a sequence or as a mapping from the devices' names.
    device_column
        Name of the column that holds the device of each example.
    arrays
        A mapping from the name of each array to its column, or to a list of columns that are put
        side by side; or a list of columns, each of which becomes an array of its own name. None:
        each column but ``device_column``. Cells that hold arrays, such as images, are stacked.
    categories
        Vocabulary of every column of words, by its name, from public knowledge. Where such a column
        is an array by itself, words become their numbers in the vocabulary, from 0; where it is one
        of several columns of an array, it becomes a column of zeros and ones for each category but
        the first.
    standardise
        Centre and scale of columns from public knowledge, by name: x becomes (x - centre)/scale.
        Numbers that were computed from the data of all devices reveal them: no privacy statement
        covers that.
    missing
        ``refuse``: a missing value is an error; ``drop``: examples with a missing value among the
        columns in use are left out, and counted for each device (``Examples.dropped``).

    Raises
    ------
    InvalidSetting
        If a column is not there, holds words without a vocabulary, or something other than numbers
        and words; or if a value is missing, infinite, or not in its vocabulary.

    Examples
    --------
    >>> import pandas
    >>> frame = pandas.DataFrame(
    ...     {
    ...         "hospital": ["north", "south", "north"],
    ...         "ward": ["eyes", "heart", "heart"],
    ...         "age": [60.0, 40.0, None],
    ...         "stay": [3, 1, 2],
    ...     }
    ... )
    >>> data = flmc.data.from_frames(
    ...     frame,
    ...     device_column="hospital",
    ...     categories={"ward": ["eyes", "heart"]},
    ...     standardise={"age": (50.0, 10.0)},
    ...     missing="drop",
    ... )
    >>> {name: values.tolist() for name, values in data.rows().items()}
    {'ward': [0, 1], 'age': [1.0, -1.0], 'stay': [3, 1]}
    >>> data.device_names, data.device_sizes, data.dropped
    (('north', 'south'), (1, 1), (1, 0))
    """
    if isinstance(arrays, str) or (arrays is not None and not arrays):
        raise InvalidSetting(
            f"arrays must be a mapping or a list of names, one at least, got {arrays!r}"
        )
    named = None if arrays is None else _by_name(arrays)
    wanted = None if named is None else [*(c for each in named.values() for c in each.columns)]
    tables = tables_of_frames(frames, None if wanted is None else [*wanted, device_column])
    if named is None:
        named = _by_name(tables[0].names_but(device_column))
    used = tuple(dict.fromkeys(c for each in named.values() for c in each.columns))
    if not used:
        raise InvalidSetting(f"{tables[0].name} has no column beside {device_column!r}")
    for table in tables:
        table.check_columns((*used, *((device_column,) if device_column else ())))
    coding, constants = Coding.of(used, categories), _checked_constants(standardise or {}, used)
    vocabularies = {name: coding.categories.get(name, ()) for name in used}
    tables, holders = complete(tables, device_column, vocabularies, missing)
    if not sum(holders.sizes):
        raise InvalidSetting("there must be at least 1 example without a missing value, got 0")
    whole, labels = {}, {}
    for name, each in named.items():
        values, names = each.values(tables, coding, constants)
        whole[name] = values[holders.order]
        if names:
            labels[name] = names
    return held_by(whole, holders, labels)


@dataclass(frozen=True)
class _ArrayOfColumns:
    """An array of examples that is made of one column of a table, or of several side by side."""

    columns: tuple[str, ...]
    alone: bool
    """Whether the array is one column by itself, so that it has no axis of columns, and words
    become numbers instead of columns of zeros and ones."""

    def values(
        self,
        tables: Sequence[DataTable],
        coding: Coding,
        constants: Mapping[str, tuple[float, float]],
    ) -> tuple[Array, tuple[str, ...]]:
        """The array for the rows of all tables, one table after the other, (sample, ...), and its
        labels: the vocabulary of a column of words, the names along the last axis of several
        columns, or none."""
        if not self.alone:
            some = {name: coding.categories[name] for name in self.columns if name in coding}
            values, names = code_features(tables, Coding(self.columns, some))
            for place, name in enumerate(names):
                centre, scale = constants.get(name, (0.0, 1.0))
                values[:, place] = (values[:, place] - centre) / scale
            return values, names
        (name,) = self.columns
        if name in coding:
            vocabulary = coding.categories[name]
            parts: list[AnyArray] = [each.coded(name, vocabulary) for each in tables]
            return np.concatenate(parts), vocabulary
        parts = []
        for table in tables:
            table.refuse_words(name)
            column = table.columns[name]
            parts.append(column if column.dtype.kind == "i" else table.numbers(name))
        # A frame without rows does not tell the shape of one example, so it is left out of the
        # comparison.
        parts = [part for part in parts if len(part)] or parts
        shapes = {part.shape[1:] for part in parts}
        if len(shapes) > 1:
            raise InvalidSetting(
                f"one example of {name!r} must have the same shape on all devices, got"
                f" {' and '.join(map(str, sorted(shapes)))}"
            )
        joined = np.concatenate(parts)
        if name in constants:
            centre, scale = constants[name]
            joined = (joined - centre) / scale
        return joined, ()


def _by_name(
    arrays: Mapping[str, str | Sequence[str]] | Sequence[str],
) -> dict[str, _ArrayOfColumns]:
    """The columns of every array, by the array's name, from the argument ``arrays`` of
    :func:`from_frames`."""
    given = arrays if isinstance(arrays, Mapping) else {name: name for name in arrays}
    return {
        name: _ArrayOfColumns(
            (each,) if isinstance(each, str) else tuple(each), isinstance(each, str)
        )
        for name, each in given.items()
    }


def _checked_constants(
    constants: Mapping[str, tuple[float, float]], used: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Centre and scale of columns, by name. Raises ``InvalidSetting`` for a name that is not in
    ``used``, or a scale that is not positive."""
    if isinstance(constants, str):
        raise InvalidSetting(
            "standardise must be centre and scale by name, from public knowledge, got"
            f" {constants!r}"
        )
    for name in constants:
        if name not in used:
            raise InvalidSetting(
                f"standardise names {name!r}, which is no column in use: they are {', '.join(used)}"
            )
    return {
        name: (
            checks.number(f"the centre of {name!r}", centre),
            checks.positive(f"the scale of {name!r}", scale),
        )
        for name, (centre, scale) in constants.items()
    }
