"""Regular files, and nothing else: links are not followed, pipes and devices not waited for."""

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
    """Open a regular file, and nothing else: what a link points to is never read or written, and
    a pipe or device never waited for.

    Parameters
    ----------
    path
        The file.
    flags
        Those of ``os.open``, such as ``os.O_RDONLY``.
    mode
        Mode of the stream that fits them, binary.

    Raises
    ------
    OSError
        If the file cannot be opened, or is not a regular file.
    """
    # Without waiting, because opening a pipe waits for whoever writes into it.
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
    """Contents of a regular file; anything else is an ``OSError``.

    Parameters
    ----------
    path
        The file.
    """
    with open_regular(path, os.O_RDONLY) as stream:
        return stream.read()


def check_regular(directory: Path) -> None:
    """Refuse a directory in which anything is not a regular file.

    Somebody else's record may hold links to files of the reader's, and pipes that never end.

    Parameters
    ----------
    directory
        The directory of a record, or of the points of a sweep.

    Raises
    ------
    InvalidSetting
        If there is a link, a directory, a device, a pipe or a socket; the message names it.
    """
    kinds = {
        stat.S_IFLNK: "a symbolic link",
        stat.S_IFIFO: "a pipe",
        stat.S_IFSOCK: "a socket",
        stat.S_IFDIR: "a directory",
    }
    with os.scandir(directory) as found:
        entries = list(found)
    for entry in entries:
        mode = entry.stat(follow_symlinks=False).st_mode
        if not stat.S_ISREG(mode):
            kind = kinds.get(stat.S_IFMT(mode), "a device")
            raise InvalidSetting(
                f"{entry.path!r} is {kind}, and a record holds files only: it is not used; remove"
                " it, if you trust the rest"
            )


def digest_of_file(path: Path) -> str:
    """SHA-256 of the contents of a regular file.

    Parameters
    ----------
    path
        The file.
    """
    return hashlib.sha256(read_regular(path)).hexdigest()
