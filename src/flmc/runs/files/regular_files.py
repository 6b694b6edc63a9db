"""Access to regular files only: symbolic links are not followed, and pipes and devices (of the
operating system) are refused."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from flmc.base.errors import InvalidSetting


@contextmanager
def open_regular(path: Path, flags: int, mode: str = "rb") -> Iterator[IO[bytes]]:
    """Context with the regular file ``path``, opened with the ``flags`` of ``os.open`` and a binary
    ``mode``; a symbolic link, pipe or device of the operating system raises ``OSError``."""
    # O_NONBLOCK, because opening a pipe without it waits for a process that writes into it.
    handle = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, 0o666)
    try:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        stream = os.fdopen(handle, mode)
    except BaseException:
        os.close(handle)
        raise
    with stream:
        yield stream


def read_regular(path: Path) -> bytes:
    """Contents of a regular file; ``OSError`` for anything else, such as a symbolic link or a
    pipe."""
    with open_regular(path, os.O_RDONLY) as stream:
        return stream.read()


def check_regular(directory: Path) -> None:
    """Raise ``InvalidSetting`` if a directory holds anything but regular files, because a
    stranger's record may hold links to private files of the reader, or pipes that never end."""
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a directory",
    }
    with os.scandir(directory) as scanned:
        entries = list(scanned)
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            kind = kinds.get(stat.S_IFMT(mode), "a device")
            raise InvalidSetting(
                f"{entry.path!r} is {kind}, and a record holds files only: it is not used; remove"
                " it, if you trust the rest"
            )


def digest_of_file(path: Path) -> str:
    """SHA-256 of the contents of a regular file."""
    return hashlib.sha256(read_regular(path)).hexdigest()
