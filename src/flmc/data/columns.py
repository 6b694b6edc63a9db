"""Columns of tables as numbers: features, words by a vocabulary, and the target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.table_files import FileTable


@dataclass(frozen=True)
class Coding:
    """How features become numbers.

    Attributes
    ----------
    names
        Columns to use, in order.
    categories
        Vocabulary of columns of words, by name.
    """

    names: tuple[str, ...]
    categories: Mapping[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        for name, words in self.categories.items():
            if name not in self.names:
                raise InvalidSetting(
                    f"categories names {name!r}, which is no feature; features are"
                    f" {', '.join(self.names)}"
                )
            if len(words) < 2 or len(set(words)) < len(words):
                raise InvalidSetting(
                    f"categories of {name!r} must be two words at least, each once; got"
                    f" {', '.join(words)}"
                )


def code_features(tables: Sequence[FileTable], coding: Coding) -> tuple[Array, tuple[str, ...]]:
    """Features of all tables below each other, (sample, feature), and their names.

    Parameters
    ----------
    tables
        The files.
    coding
        Columns and vocabularies. A column of words becomes one for each category but the first.
    """
    parts, names = [], []
    for name in coding.names:
        if name in coding.categories:
            words = coding.categories[name]
            column = np.concatenate([_category_numbers(each, name, words) for each in tables])
            parts += [(column == number).astype(np.float64) for number in range(1, len(words))]
            names += [f"{name}={word}" for word in words[1:]]
            continue
        for table in tables:
            if not table.is_number(name):
                some = ", ".join(repr(each) for each in sorted(set(table.words(name)))[:3])
                raise InvalidSetting(
                    f"column {name!r} of {table.name} holds words ({some}): give its vocabulary,"
                    f" categories={{{name!r}: [...]}}, or leave it out of the features"
                )
        parts.append(np.concatenate([table.numbers(name) for table in tables]))
        names.append(name)
    return np.stack(parts, axis=1), tuple(names)


def _category_numbers(table: FileTable, name: str, words: Sequence[str]) -> Array:
    """Numbers of the categories of a column, (row)."""
    known = {word: float(number) for number, word in enumerate(words)}
    column = table.words(name)
    for row, word in enumerate(column):
        if word not in known:
            raise InvalidSetting(
                f"column {name!r} of {table.name} has {word!r} in line {row + table.first_line},"
                f" which is not in its vocabulary: {', '.join(words)}"
            )
    return np.array([known[word] for word in column])


def code_target(
    tables: Sequence[FileTable], name: str, classes: Sequence[str] | None
) -> tuple[Array, tuple[str, ...]]:
    """Targets of all tables, (sample), and the names of the classes if they are classes.

    Parameters
    ----------
    tables
        The files.
    name
        Column of the target.
    classes
        Classes in the order of their numbers; None: found from the column.
    """
    if classes is None and all(table.is_number(name) for table in tables):
        return np.concatenate([table.numbers(name) for table in tables]), ()
    if classes is None:
        classes = sorted({word for table in tables for word in table.words(name)})
    classes = [str(each) for each in classes]
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InvalidSetting(
            f"the target {name!r} must have two classes at least, each once; got"
            f" {', '.join(classes)}"
        )
    numbers = np.concatenate([_category_numbers(table, name, classes) for table in tables])
    return (2.0 * numbers - 1.0 if len(classes) == 2 else numbers), tuple(classes)
