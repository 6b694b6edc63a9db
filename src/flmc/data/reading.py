"""Reading of devices' data from files, and coding of table columns as numbers: numeric features,
words that become columns of zeros and ones, and the target."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.data.table_files import BUNDLED_PREFIX, FileTable, read_bundled, read_table_file

Constants = Mapping[str, tuple[float, float]]
"""Centre and scale of each feature, by its name: a feature x becomes (x - centre)/scale."""


def read(
    source: str | Path | Sequence[str | Path],
    *,
    target: str | None = None,
    device_column: str | None = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    standardise: Constants | str | None = None,
    allow_constant: bool = False,
) -> FederatedData:
    """Data of devices from files.

    Each file is one device, unless ``device_column`` assigns the examples of all files to devices;
    :meth:`~flmc.data.federated.FederatedData.split` deals them anew.

    Parameters
    ----------
    source
        A file ``.csv``, ``.parquet`` or ``.npz``, a pattern such as ``hospitals/*.csv``, several of
        them, or ``sklearn:NAME`` for a set that scikit-learn brings (``breast_cancer``, ``digits``,
        ``diabetes``, ``iris``, ``wine``). An npz has X (sample, feature) and Y (sample).
    target
        Name of the column to be predicted; an npz and scikit-learn's sets have their own.
    device_column
        Name of the column that holds the device of each example.
    features
        Names of the columns to use; None: all others, in the order of the first file.
    categories
        Vocabulary of every column of words, by its name, from public knowledge. A column becomes
        one of zeros and ones for each category but the first, which is the reference.
    classes
        Classes of the target in the order of their numbers; None: its distinct words, sorted, or a
        number if it holds numbers. Two classes become -1 and +1.
    standardise
        Centre and scale of features from public knowledge, by name; ``data``: mean and standard
        deviation of the data themselves, which makes the result ``data_dependent``.
    allow_constant
        Whether a column may be the same in all examples, as can happen on one device of many.

    Returns
    -------
    FederatedData
        Examples in device order.

    Raises
    ------
    InvalidSetting
        If a file cannot be read, columns do not fit, a value is missing or no number, a category is
        unknown, a device is empty or a column constant; the message names file and column.
    MissingExtra
        If pyarrow or scikit-learn is needed and not installed.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> with tempfile.TemporaryDirectory() as place:
    ...     path = pathlib.Path(place) / "north.csv"
    ...     _ = path.write_text("dose,cured\\n1.5,no\\n2.5,yes\\n0.5,no\\n")
    ...     data = flmc.data.read(path, target="cured")
    >>> data.classes, data.targets.tolist(), data.features.ravel().tolist()
    (('no', 'yes'), [-1.0, 1.0, -1.0], [1.5, 2.5, 0.5])
    """
    tables = _tables(source)
    target = target or tables[0].target
    if target is None:
        raise InvalidSetting(f"target must name the column to be predicted, got none of {source!r}")
    names = tuple(features) if features is not None else tables[0].names_but(target, device_column)
    if not names:
        raise InvalidSetting(f"{tables[0].name} has no feature beside {target!r}")
    for table in tables:
        table.check_columns((*names, target, *((device_column,) if device_column else ())))
    coding = Coding(names, {name: tuple(words) for name, words in (categories or {}).items()})
    x, feature_names = code_features(tables, coding)
    y, class_names = code_target(tables, target, classes or tables[0].classes or None)
    data = _by_device(tables, device_column, x, y)
    if not allow_constant:
        _refuse_constant(data.features, feature_names)
    data = FederatedData(
        data.features,
        data.targets,
        data.device_sizes,
        feature_names,
        target,
        class_names,
        data.device_names,
    )
    if standardise is None:
        return data
    if isinstance(standardise, str):
        if standardise != "data":
            raise InvalidSetting(
                f"standardise must be 'data', or centre and scale by name; got {standardise!r}"
            )
        return data.standardised(None)
    return data.standardised(standardise)


def _tables(source: str | Path | Sequence[str | Path]) -> list[FileTable]:
    """The table of every file that ``source`` names, one per file; files that a pattern matches are
    sorted by name. Raises ``InvalidSetting`` if no file is found."""
    given = [source] if isinstance(source, str | Path) else list(source)
    tables: list[FileTable] = []
    for each in given:
        text = str(each)
        if text.startswith(BUNDLED_PREFIX):
            tables.append(read_bundled(text.removeprefix(BUNDLED_PREFIX)))
            continue
        paths = sorted(glob.glob(text)) if glob.has_magic(text) else [text]
        if not paths:
            raise InvalidSetting(f"no file fits {text!r}")
        tables += [read_table_file(Path(path)) for path in paths]
    if not tables:
        raise InvalidSetting("no file was given to read")
    return tables


def _by_device(
    tables: Sequence[FileTable], device_column: str | None, x: Array, y: Array
) -> FederatedData:
    """Data with the examples ``x`` (sample, feature) and ``y`` (sample) sorted by device: each file
    is a device, or each distinct value of the column ``device_column`` if that is not None."""
    if device_column is None:
        sizes = tuple(len(table) for table in tables)
        return FederatedData(x, y, sizes, device_names=tuple(table.name for table in tables))
    owner = np.concatenate([table.words(device_column) for table in tables])
    names = tuple(dict.fromkeys(owner.tolist()))
    order = np.concatenate([np.flatnonzero(owner == name) for name in names])
    sizes = tuple(int((owner == name).sum()) for name in names)
    return FederatedData(x[order], y[order], sizes, device_names=names)


def _refuse_constant(features: Array, names: Sequence[str]) -> None:
    """Raise ``InvalidSetting`` if one of the features (sample, feature) has the same value in all
    examples of all devices."""
    for name, column in zip(names, features.T, strict=True):
        if len(column) > 1 and (column == column[0]).all():
            raise InvalidSetting(
                f"column {name!r} is constant, {column[0]:g} in all examples: leave it out"
            )


@dataclass(frozen=True)
class Coding:
    """Coding of the columns of a table as features: ``names`` are the columns to use, in order, and
    ``categories`` has the vocabulary of each column that holds words, by its name."""

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
    """Features of all tables, one table's rows after the other's, (sample, feature), and their
    names. A column of words becomes one column of zeros and ones for each category but the first.
    Raises ``InvalidSetting`` for words without a vocabulary."""
    parts, names = [], []
    for name in coding.names:
        if name in coding.categories:
            words = coding.categories[name]
            column = np.concatenate([_category_numbers(each, name, words) for each in tables])
            # The first category gets no column: the columns of all categories would add up to 1, as
            # an intercept does.
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
    """For each row of the column ``name``, the index of its word in the vocabulary ``words``,
    (row); raises ``InvalidSetting`` if a word is not in it."""
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
    """Targets of all tables, (sample), and the names of their classes: ``classes``, or the distinct
    words in alphabetical order if that is None. Two classes become -1 and +1, more become 0, 1, 2,
    ... A column of numbers stays as it is if ``classes`` is None, without names. Raises
    ``InvalidSetting`` for fewer than two classes."""
    if classes is None and all(table.is_number(name) for table in tables):
        return np.concatenate([table.numbers(name) for table in tables]), ()
    if classes is None:
        classes = sorted({word for table in tables for word in table.words(name)})
        _refuse_alike(name, classes)
    classes = [str(each) for each in classes]
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InvalidSetting(
            f"the target {name!r} must have two classes at least, each once; got"
            f" {', '.join(classes)}"
        )
    numbers = np.concatenate([_category_numbers(table, name, classes) for table in tables])
    return (2.0 * numbers - 1.0 if len(classes) == 2 else numbers), tuple(classes)


def _refuse_alike(name: str, classes: Sequence[str]) -> None:
    """Raise ``InvalidSetting`` if two classes of the target ``name`` differ in case or spaces
    alone, as ``Yes`` and ``yes``, which would count as two classes."""
    written: dict[str, str] = {}
    for word in classes:
        plain = " ".join(word.casefold().split())
        if plain in written:
            raise InvalidSetting(
                f"the target {name!r} has the classes {written[plain]!r} and {word!r}, which differ"
                " in case or spaces alone: write them alike in the file (if they are two classes,"
                " name all in flmc.data.read, classes=[...])"
            )
        written[plain] = word
