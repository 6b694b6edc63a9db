"""Which machine, versions and commit a measurement belongs to."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path
from typing import Any

PACKAGES = ("numpy", "scipy", "numba", "jax")


def last_cache_bytes() -> int:
    """Size of the last level of cache that the first processor sees; 0 where Linux does not say."""
    levels = Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")
    sizes = [(level / "size").read_text().strip() for level in levels if (level / "size").exists()]
    units = {"K": 1 << 10, "M": 1 << 20}
    return max((int(size[:-1]) * units[size[-1]] for size in sizes if size[-1] in units), default=0)


def describe() -> dict[str, Any]:
    """Date, processor, memory, versions and commit. Neither a host nor a path is named."""
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": _processor(),
        "processors": os.cpu_count(),
        "last_cache_megabytes": last_cache_bytes() / (1 << 20),
        "memory_gigabytes": round(
            os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / (1 << 30), 1
        ),
        "python": platform.python_version(),
        "versions": {name: _version(name) for name in PACKAGES},
        "commit": _commit(),
    }


def _processor() -> str:
    """The processor's own name, with the widest vectors that it has."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    lines = {
        line.partition(":")[0].strip(): line.partition(":")[2].strip() for line in text.splitlines()
    }
    flags = lines.get("flags", "").split()
    widest = next((flag for flag in ("avx512f", "avx2", "avx") if flag in flags), "")
    name = lines.get("model name") or platform.processor() or platform.machine()
    return f"{name} ({widest.upper()})" if widest else name


def _version(package: str) -> str | None:
    """The installed version of a package; None if it is not there."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _commit() -> str | None:
    """The commit of these sources, with a plus sign if files differ from it; None outside git."""
    words = ("git", "describe", "--always", "--dirty=+", "--abbrev=10", "--exclude=*")
    done = subprocess.run(words, cwd=Path(__file__).parent, capture_output=True, text=True)
    return done.stdout.strip() or None
