"""A file that grows by whole entries, each with length and checksum: a ledger is such a file."""

from __future__ import annotations

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

from flmc.runs.files.durable_files import write_atomically
from flmc.runs.files.regular_files import open_regular, read_regular


class Log:
    """A text file that grows by whole entries, one line ``LENGTH CHECKSUM TEXT`` each.

    A crash can leave an incomplete last line: constructing a ``Log`` cuts it off, :meth:`read`
    changes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.entries, whole = read_entries(path)
        self.num_cut = (path.stat().st_size if path.exists() else 0) - whole
        """Number of bytes cut off behind the last whole entry. They stay in a file with the ending
        ``.cut``, in case they are damage rather than an entry that a crash interrupted."""
        self._checksum = zlib.crc32(read_regular(path)[:whole]) if whole else 0
        if self.num_cut:
            with open_regular(path, os.O_RDWR, "r+b") as stream:
                stream.seek(whole)
                tail = stream.read()
                # The incomplete tail is copied to the disk before the log is truncated, so that a
                # power failure does not lose it.
                write_atomically(path.with_name(path.name + ".cut"), lambda copy: copy.write(tail))
                stream.truncate(whole)
                os.fsync(stream.fileno())

    @staticmethod
    def read(path: Path) -> tuple[list[str], bool]:
        """Whole entries of a log that another process may be writing, and whether the log is
        damaged; a missing file has no entries and is not damaged."""
        # An incomplete last line may be an entry that another process is writing. Bytes behind the
        # last whole entry that contain a line end cannot be such a line: they are damage.
        entries, whole = read_entries(path)
        rest = read_regular(path)[whole:] if path.exists() else b""
        return entries, b"\n" in rest

    def append(self, texts: Sequence[str]) -> None:
        """Add entries (without line ends), and return when they are on the disk; after an error the
        file is as before."""
        before = self.path.stat().st_size if self.path.exists() else 0
        lines = b"".join(framed(text) for text in texts)
        try:
            with open_regular(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, "ab") as stream:
                try:
                    stream.write(lines)
                    stream.flush()
                    os.fsync(stream.fileno())
                except OSError:
                    # Some of the new entries' bytes may have been written. If they stayed, the next
                    # entry would follow a broken line and could not be read.
                    os.ftruncate(stream.fileno(), before)
                    raise
        except OSError:
            if self.path.exists() and self.path.stat().st_size > before:
                with open_regular(self.path, os.O_WRONLY, "r+b") as stream:
                    # Closing the stream may have written buffered bytes after the file was cut, so
                    # it is cut again.
                    stream.truncate(before)
            raise
        self.entries += texts
        self._checksum = zlib.crc32(lines, self._checksum)

    @property
    def is_ours(self) -> bool:
        """Whether the file still holds exactly what this object read and appended; False means that
        another process changed it."""
        return not self.entries or (
            self.path.exists() and zlib.crc32(read_regular(self.path)) == self._checksum
        )


def framed(text: str) -> bytes:
    """An entry (without line ends) as a line: length in bytes, CRC-32 in hexadecimal, text."""
    body = text.encode()
    return b"%d %08x %s\n" % (len(body), zlib.crc32(body), body)


def read_entries(path: Path) -> tuple[list[str], int]:
    """Whole entries from the beginning of a log, and the number of bytes that they take; an empty
    list and 0 if there is no file."""
    if not path.exists():
        return [], 0
    data = read_regular(path)
    entries: list[str] = []
    place = 0
    while place < len(data):
        # An entry begins with its length and checksum, less than 32 bytes together; the text behind
        # them may contain spaces.
        head = data[place : place + 32].split(b" ", 2)
        try:
            length, checksum = int(head[0]), int(head[1], 16)
        except (ValueError, IndexError):
            break
        start = place + len(head[0]) + len(head[1]) + 2
        body = data[start : start + length]
        if (
            len(body) < length
            or data[start + length : start + length + 1] != b"\n"
            or zlib.crc32(body) != checksum
        ):
            break
        entries.append(body.decode())
        place = start + length + 1
    return entries, place
