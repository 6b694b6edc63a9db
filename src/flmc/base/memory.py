"""Checks of memory: work that would not fit is refused before anything is allocated, with the
number of bytes that it needs.

The caller states the largest number of bytes, as measured, that its work will hold at one time,
copies of arrays included."""

from __future__ import annotations

import os
from pathlib import Path

from flmc.base.errors import InvalidSetting

_VARIABLE = "FLMC_MEMORY"
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MEMORY = Path("/proc/meminfo")


def fits(what: str, num_bytes: float) -> None:
    """Raise ``InvalidSetting`` if ``num_bytes`` exceed :func:`available_bytes`; the message calls
    the work that needs them ``what``. Less than 100 MB are never refused."""
    # Less than 100 MB is never refused, even if a strange system reports less free memory.
    if num_bytes < 1e8:
        return
    memory = available_bytes()
    if num_bytes > memory:
        raise InvalidSetting(
            f"{what} would take {num_bytes / 1e9:.3g} GB of memory, and {memory / 1e9:.3g} GB may"
            " be used; use less"
        )


def available_bytes() -> float:
    """Number of bytes that may be used: the environment variable ``FLMC_MEMORY``, in GB, if it is
    set; else what this machine can give without swapping, or a container's limit if that is
    less."""
    asked = os.environ.get(_VARIABLE)
    if asked is not None:
        try:
            given = float(asked)
        except ValueError:
            given = 0.0
        if not given > 0:
            raise InvalidSetting(f"{_VARIABLE} must be a positive number of GB, got {asked!r}")
        return given * 1e9
    return min(_of_machine(), _of_container())


def _of_machine() -> float:
    """Number of bytes that the operating system can give without swapping; all physical memory on
    systems other than Linux."""
    try:
        for line in _MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    # A system other than Linux: /proc/meminfo is missing or has another form.
    except (OSError, ValueError, IndexError):
        pass
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _of_container() -> float:
    """Memory limit in bytes of the container (control group of Linux) in which this process runs;
    infinity if there is no limit."""
    try:
        return float(_CGROUP.read_text())
    except (OSError, ValueError):  # no limit: the file does not exist, or it says "max"
        return float("inf")
