"""Counts of the tests: those of `make test`, small ones with ``FLMC_TEST_QUICK=1``, and the large
ones of `make evidence` with ``FLMC_TEST_EVIDENCE=1``."""

from __future__ import annotations

import asyncio
import fcntl
import os
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array

_Found = TypeVar("_Found")

QUICK = os.environ.get("FLMC_TEST_QUICK") == "1"
EVIDENCE = os.environ.get("FLMC_TEST_EVIDENCE") == "1"


def full(count: int, quick: int) -> int:
    """The full count of a test, or a small one in a quick run."""
    return quick if QUICK else count


def few(cases: Iterable[_Found], quick: int) -> list[_Found]:
    """All cases of a test, or the first ones in a quick run."""
    return list(cases)[: quick if QUICK else None]


def repeated(evidence: int, usual: int, quick: int) -> int:
    """How often something is repeated: for `make evidence`, for `make test`, and in a quick run.

    The usual count must still fail when the thing is broken as it once was, or as a mutation in the
    test shows; the count of the evidence is for rare failures."""
    return evidence if EVIDENCE else full(usual, quick)


many_repetitions = pytest.mark.evidence
"""For tests that `make evidence` runs, with the counts of :func:`repeated`."""

full_only = pytest.mark.skipif(QUICK, reason="long even with small counts: in the full run only")
"""For tests whose cost is not their counts: compiling, many processes, whole examples."""


def computed_once(
    folder: pytest.TempPathFactory, name: str, make: Callable[[], dict[str, Array]]
) -> dict[str, Array]:
    """Arrays that take long to compute, once for all workers of a session: the first to ask makes
    them, the others wait for its file."""
    base = folder.getbasetemp()
    # Workers have folders beside each other; a session without workers has one of its own.
    place = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    path = place / f"{name}.npz"
    with (place / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not path.exists():
            np.savez(path, allow_pickle=False, **make())
    with np.load(path) as arrays:
        return dict(arrays)


def in_own_loop(story: Coroutine[Any, Any, _Found]) -> _Found:
    """What a coroutine returns, run in a thread of its own: fixtures of a module may be set up
    while Playwright's loop still runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story).result()


def against_sampling(plan: flmc.Plan) -> list[str]:
    """Codes of the findings, graver than notes, against what a plan's chain will sample; those
    about privacy and use are other lights of its verdict."""
    return [
        each.code for each in plan.findings if each.light == "sampling" and each.severity != "note"
    ]
