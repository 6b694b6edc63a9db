"""Processor time of jobs that take turns.

The machine is shared and noisy: ratios of medians inside one run mean something, seconds hardly.
Hence CPU time of all threads, and jobs that are compared alternate."""

from __future__ import annotations

import resource
import statistics
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


def cpu_seconds() -> float:
    """CPU seconds of all threads of this process so far, and of its finished child processes."""
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return time.process_time() + children.ru_utime + children.ru_stime


def peak_megabytes() -> float:
    """Largest resident memory of this process so far.

    Linux's own count, because that of ``getrusage`` begins with the peak of the process which
    started this one."""
    status = Path("/proc/self/status").read_text()
    [kilobytes] = [line.split()[1] for line in status.splitlines() if line.startswith("VmHWM")]
    return int(kilobytes) / 1024


def interleaved(jobs: Mapping[str, Callable[[], Any]], repeats: int) -> dict[str, float]:
    """Median CPU seconds of every job of this process; jobs take turns, after one warm-up each."""
    times: dict[str, list[float]] = {name: [] for name in jobs}
    for job in jobs.values():
        job()  # compile, warm the caches
    for _ in range(repeats):
        for name, job in jobs.items():
            began = cpu_seconds()
            job()
            times[name].append(cpu_seconds() - began)
    return {name: statistics.median(values) for name, values in times.items()}
