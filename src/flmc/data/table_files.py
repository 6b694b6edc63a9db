"""Files as tables of columns: CSV, Parquet, npz, and data sets bundled with scikit-learn."""

from __future__ import annotations

import csv
import hashlib
import math
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from flmc.base.arrays import AnyArray
from flmc.base.errors import FlmcError, InvalidSetting, MissingExtra
from flmc.base.memory import fits
from flmc.data.columns import DataTable

BUNDLED = ("breast_cancer", "diabetes", "digits", "iris", "wine")
"""Names of data sets that are bundled with scikit-learn."""
BUNDLED_PREFIX = "sklearn:"
"""Prefix of the name of a data set bundled with scikit-learn, where it is given in place of a
file's path: ``sklearn:iris``."""
_MOST_RATIO, _SMALL_BYTES = 100.0, 100_000_000
"""Limits against files that unpack to fill the memory: an npz whose arrays take more than
``_SMALL_BYTES`` bytes must not be compressed by more than a factor of ``_MOST_RATIO``. Measured
data hardly compress."""
_COPIES = 3.0
"""Number of arrays as large as all features together that reading a file holds at the same time:
the file's content, its columns, and the columns side by side."""


def read_table_file(path: Path) -> DataTable:
    """The table of a file, read according to its ending ``.csv``, ``.parquet`` or ``.npz``. Raises
    ``InvalidSetting`` for another ending, or if the file cannot be read."""
    readers = {".csv": _read_csv, ".parquet": _read_parquet, ".npz": _read_npz}
    reader = readers.get(path.suffix.lower())
    if reader is None:
        raise InvalidSetting(f"a data file must be {', '.join(readers)}; got {str(path)!r}")
    try:
        check_is_file(path)
        return reader(path)
    except InvalidSetting:
        raise
    except OSError as error:
        missing = isinstance(error, FileNotFoundError) and not path.is_absolute()
        where = f" in {str(Path.cwd())!r}, from which the name is looked up" if missing else ""
        raise InvalidSetting(
            f"cannot read {str(path)!r}: {error.strerror or error}{where}"
        ) from error
    except (ValueError, KeyError, csv.Error, zipfile.BadZipFile, EOFError) as error:
        raise InvalidSetting(f"{str(path)!r} is not such a file: {error}") from error


def check_is_file(path: Path) -> None:
    """Raise ``InvalidSetting`` if ``path`` leads to a pipe, a device or a folder. A missing file
    passes: opening it raises the error."""
    # Opening a pipe waits for its writer, and a device may never end.
    if path.exists() and not path.is_file():
        raise InvalidSetting(
            f"{str(path)!r} must be a regular file, got a pipe, a device or a folder: write the"
            " data into a file first"
        )


def read_npz(source: Path | IO[bytes], what: str) -> dict[str, AnyArray]:
    """All arrays of an npz file by name, after a check that they fit into memory; ``what`` names
    the file in messages."""
    with zipfile.ZipFile(source) as archive:
        packed = sum(member.compress_size for member in archive.infolist())
        # No more can be read than the sizes of members that the zip states. A header that claims a
        # larger array than its member holds would have that array allocated before reading fails.
        unpacked = sum(member.file_size for member in archive.infolist())
        claimed = sum(_claimed_bytes(archive, member) for member in archive.infolist())
    if claimed > unpacked:
        raise InvalidSetting(
            f"{what} is damaged: its arrays claim {claimed} bytes, and it holds {unpacked}"
        )
    if unpacked > max(_SMALL_BYTES, _MOST_RATIO * packed):
        raise InvalidSetting(
            f"{what} must unpack to at most {_MOST_RATIO:g} times its size, got"
            f" {unpacked / 1e9:.3g} GB from {packed / 1e6:.3g} MB: if these are data, write them"
            " with numpy.savez, which does not pack"
        )
    fits(f"reading {what}", _COPIES * unpacked)
    if not isinstance(source, Path):
        source.seek(0)
    with np.load(source, allow_pickle=False) as arrays:
        return {name: np.asarray(arrays[name]) for name in arrays.files}


def _claimed_bytes(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> int:
    """Size in bytes of the array in one member of an npz archive, as the header of the member
    claims; 0 if the member is no array."""
    with archive.open(member) as stream:
        try:
            version = np.lib.format.read_magic(stream)
            read = (
                np.lib.format.read_array_header_1_0
                if version == (1, 0)
                else np.lib.format.read_array_header_2_0
            )
            shape, _, dtype = read(stream)
        except ValueError:
            return 0
    return math.prod(shape) * dtype.itemsize


def read_bundled(name: str) -> DataTable:
    """The table of a data set that comes with scikit-learn, without its constant features; ``name``
    is one of ``BUNDLED``."""
    if name not in BUNDLED:
        raise InvalidSetting(f"sklearn:NAME must be one of {', '.join(BUNDLED)}; got {name!r}")
    try:
        from sklearn import datasets
    except ImportError as error:
        raise MissingExtra("sets by name need scikit-learn: pip install scikit-learn") from error
    bunch = getattr(datasets, f"load_{name}")()
    feature_names = [str(each) for each in getattr(bunch, "feature_names", ())]
    words = [str(each) for each in getattr(bunch, "target_names", ())]
    targets = np.asarray(bunch.target)
    if words:
        targets = np.array([words[int(each)] for each in targets], dtype=object)
    features = np.asarray(bunch.data, dtype=np.float64)
    # Constant features are left out here, because they would be refused later: the handwritten
    # digits have pixels that are dark in all images.
    varies = features.std(axis=0) > 0
    if feature_names:
        feature_names = [each for each, kept in zip(feature_names, varies, strict=True) if kept]
    table = _from_arrays(name, features[:, varies], targets, feature_names)
    return replace(table, classes=tuple(words) if len(words) > 2 else ())


@cache
def digest_of_bundled(name: str) -> str | None:
    """SHA-256 of the column names and values of the data set ``name`` that comes with scikit-learn,
    because versions of scikit-learn may differ in the values; None if the set cannot be read, as
    without scikit-learn."""
    try:
        table = read_bundled(name)
    except FlmcError:
        return None
    digest = hashlib.sha256()
    for column, values in table.columns.items():
        digest.update(f"{column}\0".encode())
        digest.update(repr(values.tolist()).encode())
    return digest.hexdigest()


def _read_csv(path: Path) -> DataTable:
    """The table of a CSV file, whose first line names the columns."""
    # "utf-8-sig": spreadsheets put a byte order mark before the name of the first column.
    with path.open(newline="", encoding="utf-8-sig") as stream:
        lines = [line for line in csv.reader(stream) if line]
    if not lines:
        raise InvalidSetting(f"{str(path)!r} is empty: its first line must name the columns")
    header = [name.strip() for name in lines[0]]
    if len(set(header)) < len(header):
        raise InvalidSetting(f"{str(path)!r} names a column twice: {', '.join(header)}")
    for number, line in enumerate(lines[1:], start=2):
        if len(line) != len(header):
            raise InvalidSetting(
                f"line {number} of {str(path)!r} has {len(line)} values, and there are"
                f" {len(header)} columns"
            )
    columns = {
        name: np.array([line[index] for line in lines[1:]], dtype=object)
        for index, name in enumerate(header)
    }
    return DataTable(path.stem, columns, numbering=("line", 2))


def _read_parquet(path: Path) -> DataTable:
    """The table of a Parquet file, which pyarrow reads."""
    try:
        from pyarrow import ArrowInvalid, parquet
    except ImportError as error:
        raise MissingExtra("Parquet files need pyarrow: pip install 'flmc[sweep]'") from error
    try:
        sizes = parquet.ParquetFile(path).metadata
        # Checked before reading, because a small file can hold large columns: runs of one value
        # take hardly any space.
        fits(f"reading {str(path)!r}", 8.0 * _COPIES * sizes.num_rows * sizes.num_columns)
        table = parquet.read_table(path)
    except ArrowInvalid as error:
        raise InvalidSetting(f"{str(path)!r} is not a Parquet file: {error}") from error
    columns: dict[str, Any] = {}
    for name in table.column_names:
        values = table.column(name).to_pylist()
        plain = all(isinstance(value, int | float) or value is None for value in values)
        columns[name] = (
            np.array([np.nan if value is None else float(value) for value in values])
            if plain
            else np.array(["" if value is None else str(value) for value in values], dtype=object)
        )
    return DataTable(path.stem, columns)


def _read_npz(path: Path) -> DataTable:
    """The table of an npz file with the arrays X (sample, feature) and Y (sample), and optionally
    the names of the features."""
    arrays = read_npz(path, repr(str(path)))
    by_name = {name.lower(): array for name, array in arrays.items()}
    if "x" not in by_name or "y" not in by_name:
        raise InvalidSetting(f"{str(path)!r} must have arrays X and Y, got {', '.join(arrays)}")
    features, targets = by_name["x"], by_name["y"]
    feature_names = [str(name) for name in by_name.get("names", ())]
    return _from_arrays(path.stem, features, targets, feature_names)


def _from_arrays(
    name: str, features: AnyArray, targets: AnyArray, feature_names: Sequence[str]
) -> DataTable:
    """Table ``name`` of features (sample, feature) and targets (sample), which become the column
    ``y``; without ``feature_names`` the features are called ``x0``, ``x1``, ..."""
    if features.ndim != 2 or targets.shape != features.shape[:1]:
        raise InvalidSetting(
            f"X (sample, feature) and Y (sample) of {name} must fit, got {features.shape} and"
            f" {targets.shape}"
        )
    names = list(feature_names) or [f"x{i}" for i in range(features.shape[1])]
    columns: dict[str, Any] = {
        each: np.asarray(features[:, i], dtype=np.float64) for i, each in enumerate(names)
    }
    numeric = np.issubdtype(targets.dtype, np.number)
    columns["y"] = targets.astype(np.float64) if numeric else targets.astype(object)
    return DataTable(name, columns, target="y")
