"""Checks of memory: work that would not fit is refused before anything is allocated, with the
number of bytes that it needs.

Callers state the bytes that are held at the same time, copies included, as measured."""

from __future__ import annotations

import os
from pathlib import Path

from flmc.base.errors import InvalidSetting

_VARIABLE = "FLMC_MEMORY"
_CGROUP = Path("/sys/fs/cgroup/memory.max")
_MEMORY = Path("/proc/meminfo")


def fits(what: str, num_bytes: float) -> None:
    """Raise ``InvalidSetting`` if ``num_bytes`` exceed :func:`available_bytes`; ``what`` names in
    the message what was to be allocated. Less than 100 MB always fit."""
    # Less than 100 MB is never refused, whatever a strange system says of its memory.
    if num_bytes < 1e8:
        return
    memory = available_bytes()
    if num_bytes > memory:
        raise InvalidSetting(
            f"{what} would take {num_bytes / 1e9:.3g} GB of memory, and {memory / 1e9:.3g} GB may"
            " be used; use less"
        )


def available_bytes() -> float:
    """Bytes that may be used: what ``FLMC_MEMORY`` says, in GB; else what this machine has to give
    without swapping, or a container's limit if that is less."""
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
    """Bytes that the operating system can give without swapping; all physical memory on systems
    other than Linux."""
    try:
        for line in _MEMORY.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return 1024.0 * int(line.split()[1])
    # /proc/meminfo is missing or has another form: a system other than Linux
    except (OSError, ValueError, IndexError):
        pass
    return float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _of_container() -> float:
    """Bytes that a container (control group of Linux) may use by its memory limit; infinity if
    there is no limit."""
    try:
        return float(_CGROUP.read_text())
    except (OSError, ValueError):  # no limit: the file does not exist, or it says "max"
        return float("inf")
