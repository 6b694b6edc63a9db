"""Files that survive crashes: written whole or not at all, locked, and checked when they are
read."""

from __future__ import annotations

import csv
import fcntl
import hashlib
import io
import json
import os
import tempfile
import zipfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.runs.files.regular_files import open_regular, read_regular

DIGEST = "sha256"
"""Key under which a JSON file holds the digest of its other keys."""


def write_atomically(
    path: Path, write: Callable[[IO[bytes]], Any], *, mode: int | None = None
) -> None:
    """Replace the file ``path`` by the bytes that ``write`` puts into a binary stream. Other
    processes, and a machine that restarts after a crash, find the old file or the new one, never a
    part. ``mode`` has the permissions of the new file, such as 0o600 for a secret; None: the usual
    ones of the process (umask)."""
    # The temporary file lies in the same directory, because a rename is atomic only within one file
    # system.
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as stream:
            write(stream)
            # The contents reach the disk before the file gets its name, so that after a power
            # failure the name does not lead to an empty file.
            stream.flush()
            os.fsync(stream.fileno())
        # mkstemp makes a file that only its owner can read: a secret (mode 0o600) is never readable
        # for others, not even before this line.
        os.chmod(temporary, 0o666 & ~_UMASK if mode is None else mode)
        os.replace(temporary, path)
        sync_directory(path.parent)
    except BaseException:  # BaseException: an interrupt must not leave the temporary file either
        Path(temporary).unlink(missing_ok=True)
        raise


# Reading the umask is possible only by setting it; the next line puts it back.
_UMASK = os.umask(0o022)
os.umask(_UMASK)


def sync_directory(directory: Path) -> None:
    """Flush a directory to the disk, because until then a power failure can undo the renaming of a
    file in it."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def write_new_text(path: Path, text: str) -> None:
    """Write a text file, whole or not at all; ``InvalidSetting`` if it exists or cannot be
    written."""
    if path.exists():
        raise InvalidSetting(f"{str(path)!r} exists: name a new file")
    try:
        write_atomically(path, lambda stream: stream.write(text.encode()))
    except OSError as error:
        raise InvalidSetting(f"cannot write {str(path)!r}: {error.strerror}") from error


def write_json(path: Path, document: Mapping[str, Any]) -> None:
    """Write a document as readable JSON, atomically, with the key ``sha256``: the digest of the
    other keys as canonical JSON. NaN and infinity are a ``ValueError``, because JSON has none."""
    signed = {**document, DIGEST: _digest_of(document)}
    text = json.dumps(signed, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))


def write_arrays(path: Path, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
    """Write arrays as npz, atomically; the same arrays make the same bytes."""

    # A plain ZipInfo has a fixed date, where np.savez would write the time of day. Members carry
    # checksums, by which a damaged file is noticed when it is read.
    def write(stream: IO[bytes]) -> None:
        with zipfile.ZipFile(stream, "w") as archive:
            for name, array in arrays.items():
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as member:
                    whole = np.ascontiguousarray(array).reshape(np.shape(array))
                    np.lib.format.write_array_header_1_0(
                        member, np.lib.format.header_data_from_array_1_0(whole)
                    )
                    # Written from the memory of the array itself, because draws may be too large
                    # for a copy.
                    member.write(whole.reshape(-1).view(np.uint8).data)

    write_atomically(path, write)


def _digest_of(document: Mapping[str, Any]) -> str:
    """SHA-256 of a document as canonical JSON (sorted keys, no spaces), in hexadecimal."""
    # json.dumps turns keys into strings and tuples into lists, as they are when the file is read
    # back, so the digest is the same at writing and at reading.
    text = json.dumps(document, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def read_json(path: Path, *, signed: bool = False) -> dict[str, Any]:
    """The object in a JSON file, without its digest. ``RunFailed`` if the file cannot be read, does
    not match its digest or, with ``signed``, has none (files of early versions have none)."""
    try:
        document = json.loads(read_regular(path).decode())
    except (OSError, ValueError, RecursionError) as error:
        raise RunFailed(f"{str(path)!r} cannot be read: {error}") from error
    if not isinstance(document, dict):
        raise RunFailed(f"{str(path)!r} must hold a JSON object, got {type(document).__name__}")
    stated = document.pop(DIGEST, None)
    try:
        kept = stated == _digest_of(document) if stated is not None else not signed
    except ValueError:  # NaN, or another number that JSON does not have
        kept = False
    if not kept:
        raise RunFailed(f"{str(path)!r} is damaged: its contents do not have its digest")
    return document


def read_arrays(path: Path) -> dict[str, npt.NDArray[Any]]:
    """All arrays of an npz file, by name; a damaged file raises ``RunFailed``."""
    try:
        with (
            open_regular(path, os.O_RDONLY) as stream,
            np.load(stream, allow_pickle=False) as file,
        ):
            return {name: file[name] for name in file.files}
    # A damaged file may raise almost any error, because it may be damaged as a zip archive, in a
    # header or in an array.
    except Exception as error:
        raise RunFailed(f"{str(path)!r} cannot be read: {error}") from error


def write_table(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write rows as CSV, atomically; the keys of the first row are the header."""
    text = io.StringIO()
    writer = csv.DictWriter(text, fieldnames=list(rows[0]), lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    write_atomically(path, lambda stream: stream.write(text.getvalue().encode()))


def read_table(path: Path) -> list[dict[str, str]]:
    """The rows of a CSV file that :func:`write_table` wrote, each a dict from the names in the
    header to values, which are all text."""
    return list(csv.DictReader(io.StringIO(read_regular(path).decode(), newline="")))


@contextmanager
def shared(directory: Path, *leftovers: str) -> Iterator[None]:
    """Context in which a shared lock on a directory is held, into which several processes may
    write. If no other process holds it, files that match the glob patterns ``leftovers``, which are
    temporary files of killed processes, are removed first."""
    with open_regular(directory / ".lock", os.O_RDWR | os.O_CREAT, "r+b") as stream:
        # A process that gets the exclusive lock is the only one that uses the directory, so every
        # temporary file in it is left over from a killed process.
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            pass
        else:
            for path in chain.from_iterable(directory.glob(pattern) for pattern in leftovers):
                path.unlink(missing_ok=True)
        fcntl.flock(stream, fcntl.LOCK_SH)
        yield


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Context in which the exclusive lock of a directory is held, on its file ``.lock``;
    ``InvalidSetting`` if another process holds it."""
    path = directory / ".lock"
    with open_regular(path, os.O_RDWR | os.O_CREAT, "r+b") as stream:
        try:
            # The kernel releases this lock when the process ends, however it ends, so that a
            # leftover file ``.lock`` blocks nobody.
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            stream.seek(0)
            who = stream.read(32).decode(errors="replace").strip() or "unknown"
            raise InvalidSetting(
                f"another process (number {who}) works in {str(directory)!r}; wait for it, or use"
                " another directory"
            ) from None
        stream.truncate(0)
        stream.write(str(os.getpid()).encode())
        stream.flush()
        yield
