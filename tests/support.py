"""Counts of the tests. ``FLMC_TEST_QUICK=1`` runs the same tests with small ones."""

from __future__ import annotations

import os

import pytest

QUICK = os.environ.get("FLMC_TEST_QUICK") == "1"


def full(count: int, quick: int) -> int:
    """The full count of a test, or a small one in a quick run."""
    return quick if QUICK else count


full_only = pytest.mark.skipif(QUICK, reason="long even with small counts: in the full run only")
"""For tests whose cost is not their counts: compiling, many processes, whole examples."""
