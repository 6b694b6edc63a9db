"""Files that survive: whole or not at all, locked, and checked when they are read."""

from __future__ import annotations

import csv
import fcntl
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from flmc.base.errors import InvalidSetting, RunFailed


def write_atomically(path: Path, write: Callable[[IO[bytes]], Any]) -> None:
    """Write a temporary file beside ``path``, sync it and rename it: the old file or the new one,
    never a part."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            stream.flush()
            os.fsync(stream.fileno())
        os.chmod(temporary, 0o666 & ~_UMASK)  # a temporary file is for its owner only
        os.replace(temporary, path)
        _sync_directory(path.parent)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


_UMASK = os.umask(0o022)
os.umask(_UMASK)


def _sync_directory(directory: Path) -> None:
    """A rename is on the disk when its directory is."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """As readable text."""
    text = json.dumps(document, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """As npz, whose members carry checksums; the same arrays make the same bytes, so there is no
    date in it."""

    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    whole = np.ascontiguousarray(array).reshape(np.shape(array))
                    np.lib.format.write_array_header_1_0(member, np.lib.format.header_data_from_array_1_0(whole))
                    member.write(whole.reshape(-1).view(np.uint8).data)  # as it lies in memory, not as a copy

    write_atomically(path, write)


def read_json(path: Path) -> dict[str, Any]:
    """An object; anything else in the file is a :class:`~flmc.base.errors.RunFailed`."""
    try:
        document = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise RunFailed(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise RunFailed(f"{str(path)!r} must hold a JSON object, got {type(document).__name__}")
    return document


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an npz; a damaged one is a :class:`~flmc.base.errors.RunFailed`."""
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    except Exception as error:  # a damaged file fails in many ways: as a zip, as an array, as a header
        raise RunFailed(f"{str(path)!r} cannot be read: {error}") from error


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Rows of equal keys as CSV."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda stream: stream.write(text.getvalue().encode()))


def read_table(path: Path) -> list[dict[str, str]]:
    """What :func:`write_table` wrote."""
    with path.open(newline="") as stream:
        return list(csv.DictReader(stream))


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Nobody else works in the directory meanwhile; a second process is refused. The lock ends with
    the process."""
    path = directory / ".lock"
    with path.open("a+") as stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            who = stream.read().strip() or "unknown"
            raise InvalidSetting(
                f"another process (number {who}) works in {str(directory)!r}; wait for it, or use another directory"
            ) from None
        stream.truncate(0)
        stream.write(str(os.getpid()))
        stream.flush()
        yield


class Log:
    """A file that grows by whole entries: one line each, its length and checksum before it.

    The line is ``LENGTH CHECKSUM TEXT``, so that the file can be read without this package. A tail
    that is not whole was being written when the process or the machine stopped: it is cut off when
    the log is opened to be written. A reader (:meth:`read`) changes nothing. """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries, whole = _read_entries(path)
        self.num_cut = (path.stat().st_size if path.exists() else 0) - whole
        """Bytes that were not whole entries, and were cut off; they are kept beside it, in case it
        was damage."""
        self._checksum = zlib.crc32(path.read_bytes()[:whole]) if whole else 0
        if self.num_cut:
            with path.open("r+b") as stream:
                stream.seek(whole)
                path.with_name(path.name + ".cut").write_bytes(stream.read())
                stream.truncate(whole)
                os.fsync(stream.fileno())

    @staticmethod
    def read(path: Path) -> tuple[list[str], bool]:
        """The whole entries of a log that somebody else may be writing; and whether it is damaged:
        what follows them is more than an entry that is not yet whole."""
        entries, whole = _read_entries(path)
        rest = path.read_bytes()[whole:] if path.exists() else b""
        return entries, b"\n" in rest

    def append(self, texts: Sequence[str]) -> None:
        """Add entries, and return when they are on the disk. If that fails, the file is as
        before."""
        before = self.path.stat().st_size if self.path.exists() else 0
        lines = b"".join(_framed(text) for text in texts)
        try:
            with self.path.open("ab") as stream:
                stream.write(lines)
                stream.flush()
                os.fsync(stream.fileno())
        except OSError:
            if self.path.exists():
                os.truncate(self.path, before)
            raise
        self.entries += texts
        self._checksum = zlib.crc32(lines, self._checksum)

    @property
    def is_ours(self) -> bool:
        """Whether the file still is what was read and appended here."""
        return not self.entries or (self.path.exists() and zlib.crc32(self.path.read_bytes()) == self._checksum)


def _framed(text: str) -> bytes:
    body = text.encode()
    return b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)


def _read_entries(path: Path) -> tuple[list[str], int]:
    """Whole entries from the beginning, and the bytes they take."""
    if not path.exists():
        return [], 0
    data = path.read_bytes()
    entries: list[str] = []
    place = 0
    while place < len(data):
        head = data[place : place + 32].split(b" ", 2)
        try:
            length, checksum = int(head[0]), int(head[1], 16)
        except (ValueError, IndexError):
            break
        start = place + len(head[0]) + len(head[1]) + 2
        body = data[start : start + length]
        if len(body) < length or data[start + length : start + length + 1] != b"\n" or zlib.crc32(body) != checksum:
            break
        entries.append(body.decode())
        place = start + length + 1
    return entries, place
