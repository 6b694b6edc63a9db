"""Counts of the tests. ``FLMC_TEST_QUICK=1`` runs the same tests with small ones."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pytest

_Found = TypeVar("_Found")

QUICK = os.environ.get("FLMC_TEST_QUICK") == "1"


def full(count: int, quick: int) -> int:
    """The full count of a test, or a small one in a quick run."""
    return quick if QUICK else count


full_only = pytest.mark.skipif(QUICK, reason="long even with small counts: in the full run only")
"""For tests whose cost is not their counts: compiling, many processes, whole examples."""


def in_own_loop(story: Coroutine[Any, Any, _Found]) -> _Found:
    """What a coroutine returns, run in a thread of its own: fixtures of a module may be set up
    while Playwright's loop still runs in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, story).result()
