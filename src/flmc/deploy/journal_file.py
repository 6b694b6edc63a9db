"""A journal file, to which a role writes every entry before it sends the message that the entry
describes."""

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
    """The append-only file ``name`` of JSON entries in a directory, one entry on each line with its
    length and checksum; a missing directory is made, readable for its owner only.

    ``lock=False`` is for callers that hold the directory's lock already. The constructor raises
    ``InvalidSetting`` if another process uses the journal or its file cannot be used, and
    ``RunFailed`` if it is damaged before its last line.
    """

    def __init__(self, directory: Path, name: str, *, lock: bool = True) -> None:
        self.path = directory / name
        self._held = ExitStack()
        self._failed = False
        try:
            if not directory.is_dir():
                directory.mkdir(mode=0o700, parents=True, exist_ok=True)
                sync_directory(directory.parent)
            # Two processes with one journal would both answer, so the directory is locked. The
            # journal's file is locked too, because a lock file that somebody removed locks nobody
            # out.
            if lock:
                self._held.enter_context(locked(directory))
            flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
            self._stream = self._held.enter_context(open_regular(self.path, flags, "ab"))
            self._lock_file()
            self._unread, whole = read_entries(self.path)
            self._refuse_damage(whole)
            # An incomplete last line was being written when the process or the machine stopped. No
            # message was sent that depends on it, so it is cut off.
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
        """Lock the journal's file for as long as it is open; raises ``InvalidSetting`` if another
        process holds the lock."""
        try:
            fcntl.flock(self._stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InvalidSetting(
                f"another process uses the journal {str(self.path)!r}; wait for it"
            ) from None

    def _refuse_damage(self, whole: int) -> None:
        """Raise ``RunFailed`` if the file has a complete line after its readable entries, which
        take the first ``whole`` bytes: entries behind the damage are lost, and the role has sent
        what they recorded."""
        with open_regular(self.path, os.O_RDONLY) as stream:
            stream.seek(whole)
            if b"\n" in stream.read():
                raise RunFailed(
                    f"the journal {str(self.path)!r} is damaged behind {whole} bytes: what was"
                    " answered is not known any more; keep the file, and take part in no run that"
                    " it may tell of"
                )

    def entries(self) -> Iterator[dict[str, Any]]:
        """Iterate over the entries that the file held when it was opened, as plain values; each
        entry can be read once, because it is then released from memory."""
        unread, self._unread = self._unread, []
        for text in unread:
            yield json.loads(text)

    def append(self, entry: Mapping[str, Any]) -> None:
        """Append an entry of plain values, and return when it is on the disk; raises ``RunFailed``
        if this or an earlier write failed, after which the role must send nothing that the entry
        describes."""
        if self._failed:
            raise RunFailed(f"{str(self.path)!r} could not be written before: start again")
        # The journal counts as failed until this write has succeeded: a failed write may leave a
        # partial entry, or one that is not on the disk, and no entry after it could be trusted.
        self._failed = True
        try:
            # A file that was removed or replaced can still be written to, but the entry would be
            # missing when the journal is opened again.
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
        """Release the journal's file and its lock."""
        self._held.close()
