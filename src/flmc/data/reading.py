"""Reading of devices' examples with features and a target, from files and data frames, and coding
of columns as numbers: numeric features, words that become columns of zeros and ones, the target."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.columns import DataTable, Missing, complete, findings_of_dropped
from flmc.data.federated import FederatedData
from flmc.data.frame_tables import is_frame, tables_of_frames
from flmc.data.table_files import BUNDLED_PREFIX, read_bundled, read_table_file

Constants = Mapping[str, tuple[float, float]]
"""Centre and scale of each feature, by its name: a feature x becomes (x - centre)/scale."""


def read(
    source: Any,
    *,
    target: str | None = None,
    device_column: str | None = None,
    features: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    classes: Sequence[str] | None = None,
    standardise: Constants | str | None = None,
    missing: Missing = "refuse",
    allow_constant: bool = False,
) -> FederatedData:
    """Examples of devices with features and one target, from files or data frames;
    ``flmc.data.from_frames`` has any number of named arrays instead.

    Each file or frame is one device, unless ``device_column`` assigns the examples of all to
    devices; :meth:`~flmc.data.federated.FederatedData.split` deals them anew.

    Parameters
    ----------
    source
        A file ``.csv``, ``.parquet`` or ``.npz``, a pattern such as ``hospitals/*.csv``, several of
        them, or ``sklearn:NAME`` for a set that scikit-learn brings (``breast_cancer``, ``digits``,
        ``diabetes``, ``iris``, ``wine``). An npz has X (sample, feature) and Y (sample). Or a data
        frame of pandas or polars, or several: a sequence, or a mapping from the devices' names.
    target
        Name of the column to be predicted; an npz and scikit-learn's sets have their own.
    device_column
        Name of the column that holds the device of each example.
    features
        Names of the columns to use; None: all but the target's and ``device_column``, in the order
        of the first file.
    categories
        Vocabulary of every column of words, by its name, from public knowledge. A column becomes
        one of zeros and ones for each category but the first, which is the reference.
    classes
        Classes of the target in the order of their numbers; two classes become -1 and +1. None: the
        target's distinct words, sorted; but a target that holds only numbers has no classes.
    standardise
        Centre and scale of features from public knowledge, by name; ``data``: mean and standard
        deviation of the data themselves, which makes the result ``data_dependent``.
    missing
        ``refuse``: a missing value is an error; ``drop``: examples with a missing value among the
        columns in use are left out, and counted for each device (attribute ``dropped``).
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
    tables = _tables(source, (target, device_column, *features) if features is not None else None)
    target = target or tables[0].target
    if target is None:
        raise InvalidSetting(f"target must name the column to be predicted, got none of {source!r}")
    names = tuple(features) if features is not None else tables[0].names_but(target, device_column)
    if not names:
        raise InvalidSetting(f"{tables[0].name} has no feature beside {target!r}")
    for table in tables:
        table.check_columns((*names, target, *((device_column,) if device_column else ())))
        if not len(table):
            raise InvalidSetting(f"{table.name} has no examples: an empty device cannot take part")
    coding = Coding.of(names, categories)
    classes = [str(each) for each in classes or tables[0].classes] or None
    needed = {name: coding.categories.get(name, ()) for name in names} | {target: classes or ()}
    tables, holders = complete(tables, device_column, needed, missing)
    for device, size in zip(holders.names, holders.sizes, strict=True):
        if not size:
            raise InvalidSetting(
                f"{device} has no example without a missing value: an empty device cannot take part"
            )
    x, feature_names = code_features(tables, coding)
    y, class_names = code_target(tables, target, classes)
    if not allow_constant:
        _refuse_constant(x, feature_names)
    data = FederatedData(
        x[holders.order],
        y[holders.order],
        holders.sizes,
        feature_names,
        target,
        class_names,
        holders.names,
        dropped=holders.dropped,
    )
    data = replace(data, findings=(*(data.findings or ()), *findings_of_dropped(holders)))
    if standardise is None:
        return data
    if isinstance(standardise, str):
        if standardise != "data":
            raise InvalidSetting(
                f"standardise must be 'data', or centre and scale by name; got {standardise!r}"
            )
        return data.standardised(None)
    return data.standardised(standardise)


def _tables(source: Any, wanted: Sequence[str | None] | None) -> list[DataTable]:
    """The table of every file or data frame that ``source`` names, one each; files that a pattern
    matches are sorted by name. Of frames only the columns ``wanted`` are taken, None: all. Raises
    ``InvalidSetting`` if there is none."""
    if is_frame(source) or isinstance(source, Mapping):
        return tables_of_frames(source, wanted)
    given = [source] if isinstance(source, str | Path) else list(source)
    if given and all(map(is_frame, given)):
        return tables_of_frames(given, wanted)
    tables: list[DataTable] = []
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

    @classmethod
    def of(cls, names: Sequence[str], categories: Mapping[str, Sequence[Any]] | None) -> Coding:
        """The coding of the columns ``names`` with the vocabularies ``categories`` (None: no column
        holds words); words that are numbers are turned into text."""
        given = {name: tuple(map(str, words)) for name, words in (categories or {}).items()}
        return cls(tuple(names), given)

    def __contains__(self, name: str) -> bool:
        """Whether the column ``name`` holds words, that is, has a vocabulary."""
        return name in self.categories

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


def code_features(tables: Sequence[DataTable], coding: Coding) -> tuple[Array, tuple[str, ...]]:
    """Features of all tables, one table's rows after the other's, (sample, feature), and their
    names. A column of words becomes one column of zeros and ones for each category but the first.
    Raises ``InvalidSetting`` for words without a vocabulary."""
    parts, names = [], []
    for name in coding.names:
        if name in coding:
            words = coding.categories[name]
            column = np.concatenate([each.coded(name, words) for each in tables])
            # The first category gets no column: the columns of all categories would add up to 1, as
            # an intercept does.
            parts += [(column == number).astype(np.float64) for number in range(1, len(words))]
            names += [f"{name}={word}" for word in words[1:]]
            continue
        for table in tables:
            table.refuse_words(name)
        parts.append(np.concatenate([table.numbers(name) for table in tables]))
        if parts[-1].ndim > 1:
            raise InvalidSetting(
                f"column {name!r} holds an array in each row: a feature is one number"
            )
        names.append(name)
    return np.stack(parts, axis=1), tuple(names)


def code_target(
    tables: Sequence[DataTable], name: str, classes: Sequence[str] | None
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
    if len(classes) < 2 or len(set(classes)) < len(classes):
        raise InvalidSetting(
            f"the target {name!r} must have two classes at least, each once; got"
            f" {', '.join(classes)}"
        )
    numbers = np.concatenate([table.coded(name, classes) for table in tables]).astype(np.float64)
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
