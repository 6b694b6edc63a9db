"""Reading data of devices from files: CSV, Parquet, npz, and sets that scikit-learn brings."""

from __future__ import annotations

import glob
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.columns import Coding, code_features, code_target
from flmc.data.federated import FederatedData
from flmc.data.table_files import FileTable, read_bundled, read_table_file

Constants = Mapping[str, tuple[float, float]]
"""Centre and scale of features, by name."""


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

    Several files are one device each. A single file is one device, or as many as its
    ``device_column`` names; :meth:`~flmc.data.federated.FederatedData.split` deals them anew.

    Parameters
    ----------
    source
        A file ``.csv``, ``.parquet`` or ``.npz``, a pattern such as ``hospitals/*.csv``, several of
        them, or ``sklearn:NAME`` for a set that scikit-learn brings (``breast_cancer``, ``digits``,
        ``diabetes``, ``iris``, ``wine``). An npz has X (sample, feature) and Y (sample).
    target
        Name of the column to be predicted; an npz and scikit-learn's sets have their own.
    device_column
        Name of the column that says on which device an example is.
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
        Whether a column may be the same in all examples, as it may be on a single device of many.

    Returns
    -------
    FederatedData
        Features, targets, and which device holds what.

    Raises
    ------
    InvalidSetting
        If a file cannot be read, columns do not fit, a value is missing or no number, a category is
        unknown, a device is empty or a column constant; the message names file and column.

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
    y, found = code_target(tables, target, classes or tables[0].classes or None)
    data = _by_device(tables, device_column, x, y)
    if not allow_constant:
        _refuse_constant(data.features, feature_names)
    data = FederatedData(
        data.features,
        data.targets,
        data.device_sizes,
        feature_names,
        target,
        found,
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
    """The tables of all files, sorted by name where a pattern names several."""
    given = [source] if isinstance(source, str | Path) else list(source)
    tables: list[FileTable] = []
    for each in given:
        text = str(each)
        if text.startswith("sklearn:"):
            tables.append(read_bundled(text.partition(":")[2]))
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
    """Examples in device order: a device is a file, or a value of a column."""
    if device_column is None:
        sizes = tuple(len(table) for table in tables)
        return FederatedData(x, y, sizes, device_names=tuple(table.name for table in tables))
    owner = np.concatenate([table.words(device_column) for table in tables])
    names = tuple(dict.fromkeys(owner.tolist()))
    order = np.concatenate([np.flatnonzero(owner == name) for name in names])
    sizes = tuple(int((owner == name).sum()) for name in names)
    return FederatedData(x[order], y[order], sizes, device_names=names)


def _refuse_constant(features: Array, names: Sequence[str]) -> None:
    """Refuse a feature that is the same in all examples of all devices."""
    for name, column in zip(names, features.T, strict=True):
        if len(column) > 1 and (column == column[0]).all():
            raise InvalidSetting(
                f"column {name!r} is constant, {column[0]:g} in all examples: leave it out"
            )
