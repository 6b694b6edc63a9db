"""A journal: a file of whole entries that is on the disk before anything follows from it."""

from __future__ import annotations

import errno
import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.runs.files.append_log import framed, read_entries
from flmc.runs.files.durable_files import locked, sync_directory
from flmc.runs.files.regular_files import open_regular


class JournalFile:
    """A file that grows by entries of JSON, one line each with length and checksum.

    The directory is locked while the journal is open: two processes with one journal would both
    answer. The file itself is locked, too, because a lock file that somebody removed locks nobody
    out. A new directory is its owner's only. A tail that is not whole was being written when the
    process or the machine stopped, before anything followed from it: it is cut off.

    Parameters
    ----------
    directory, name
        Where the journal is, which is made if it does not exist, and the name of the file.
    lock
        Whether to lock the directory; else whoever opens the journal holds its lock.

    Raises
    ------
    InvalidSetting
        If another process uses the journal, or it cannot be written.
    RunFailed
        If the journal is damaged before its end.
    """

    def __init__(self, directory: Path, name: str, *, lock: bool = True) -> None:
        self.path = directory / name
        self._held = ExitStack()
        self._failed = False
        try:
            if not directory.is_dir():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_directory(directory.parent)
            if lock:
                self._held.enter_context(locked(directory))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._stream = self._held.enter_context(open_regular(self.path, flags, "ab"))
            self._lock_file()
            self._found, whole = read_entries(self.path)
            self._refuse_damage(whole)
            os.ftruncate(self._stream.fileno(), whole)
            os.fsync(self._stream.fileno())
            sync_directory(directory)
        except OSError as error:
            self._held.close()
            raise InvalidSetting(
                f"cannot use the journal {str(self.path)!r}: {error.strerror}"
            ) from error
        except BaseException:
            self._held.close()
            raise

    def _lock_file(self) -> None:
        """Hold the lock of the file for as long as it is open."""
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSetting(
                f"another process uses the journal {str(self.path)!r}; wait for it"
            ) from None

    def _refuse_damage(self, whole: int) -> None:
        """Refuse a journal of which whole lines cannot be read: more was answered than it says."""
        with open_regular(self.path, os.O_RDONLY) as stream:
            stream.seek(whole)
            if b"\n" in stream.read():
                raise RunFailed(
                    f"the journal {str(self.path)!r} is damaged behind {whole} bytes: what was"
                    " answered is not known any more; keep the file, and take part in no run that"
                    " it may tell of"
                )

    def entries(self) -> Iterator[dict[str, Any]]:
        """Entries that were there when the journal was opened; once, they are then forgotten."""
        found, self._found = self._found, []
        for text in found:
            yield json.loads(text)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Add an entry, and return when it is on the disk.

        Parameters
        ----------
        entry
            Plain values.

        Raises
        ------
        RunFailed
            If the disk refuses, now or before, or the file was removed or replaced while it was
            open; nothing may follow from the entry then.
        """
        if self._failed:
            raise RunFailed(f"{str(self.path)!r} could not be written before: start again")
        # Until it is there: behind a part of an entry, or one that the disk may not hold, no other
        # could be trusted.
        self._failed = True
        try:
            # What is written to a file without a name is forgotten by the next start.
            if not os.path.samestat(os.stat(self.path), os.fstat(self._stream.fileno())):
                raise FileNotFoundError(errno.ENOENT, "it was replaced while it was open")
            self._stream.write(framed(json.dumps(entry, separators=(",", ":"), allow_nan=False)))
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise RunFailed(
                f"cannot write to {str(self.path)!r}: {error.strerror}; nothing was sent"
            ) from error
        self._failed = False

    def close(self) -> None:
        """Release the file and the lock."""
        self._held.close()
