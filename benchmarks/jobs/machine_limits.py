"""The two limits of the machine: multiplications with additions, and reading memory."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path

import numpy as np

from measuring.job import Job
from measuring.machine import last_cache_bytes
from native.building import build, pointer

SOURCE = Path(__file__).parents[1] / "native" / "limits.c"
_STEPS = 5_000_000
_FEWEST_BYTES = 256_000_000
"""Bytes of the array that is read, unless the last cache is so large that it must be more."""


def multiplications(widest: bool = False) -> Job:
    """Independent chains of fused multiplications and additions in single precision, on one core,
    with vectors of 8 floats or the widest that there are."""
    library = build(SOURCE)
    call = library.multiply_widest if widest else library.multiply_8
    call.restype = ctypes.c_float
    lanes = library.widest() if widest else 8
    flops = 2.0 * lanes * library.chains() * _STEPS
    return Job(
        lambda: call(ctypes.c_long(_STEPS), ctypes.c_float(0.5)), {"flops": flops, "lanes": lanes}
    )


def memory(every_thread: bool = True) -> Job:
    """One read of an array that is much larger than the caches, by all threads or by one."""
    call = build(SOURCE).read_all
    call.restype = ctypes.c_float
    values = np.ones(max(_FEWEST_BYTES, 8 * last_cache_bytes()) // 4, np.float32)
    threads = (os.cpu_count() or 1) if every_thread else 1

    def turn() -> None:
        call(pointer(values), ctypes.c_size_t(values.size), ctypes.c_int(threads))

    return Job(turn, {"bytes": float(values.nbytes), "threads": threads})


JOBS = {"multiplications": multiplications, "memory": memory}
