"""The first run on a machine, and one from the cache, each in a new process."""

from __future__ import annotations

from typing import Any

from measuring.cases import Case, measure


def measure_starts(repeats: int, quick: bool = False) -> list[dict[str, Any]]:
    """Two rows; nothing of one process is left for the next but the cache of the second."""
    cases = {
        "first on a machine": Case("first start", {}),
        "from the cache": Case("cached start", {}),
    }
    return [{"start": name, **found.row} for name, found in measure(cases, repeats).items()]
