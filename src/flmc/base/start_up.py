"""Savings at the start of a command: importing modules takes most of the time of `flmc plan`.

This file imports nothing of flmc, because it is used before NumPy is loaded."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_THREADS = "OPENBLAS_NUM_THREADS"


def spare_threads(words: Sequence[str]) -> None:
    """Keep the linear algebra library from starting threads if the command does not need them.
    ``words`` are those of the command line; the function must be called before NumPy is loaded.

    A plan is computed on one thread (:mod:`flmc.base.arrays` says why). OpenBLAS starts one thread
    per processor when it is loaded, which then wait busily for a while: 4 % of the CPU time of
    `flmc plan` on two processors. A number of threads that the user has set is kept."""
    if words[:1] == ["plan"]:
        os.environ.setdefault(_THREADS, "1")


@contextmanager
def collecting_later() -> Iterator[None]:
    """Context in which Python's garbage collector is off, meant for imports; objects that exist at
    its end are never searched for garbage later.

    Imported modules stay for good, and searching them again and again takes 0.18 of the 0.77 s of
    CPU time of `flmc plan`."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()
