"""How a command starts: threads and garbage collection."""

from __future__ import annotations

import gc
import os

import pytest

from flmc.base.start_up import collecting_later, spare_threads

THREADS = "OPENBLAS_NUM_THREADS"


@pytest.mark.parametrize(
    ("words", "before", "after"),
    [
        (["plan", "--dim", "3"], None, "1"),
        (["plan"], "3", "3"),
        (["run"], None, None),
        ([], None, None),
    ],
)
def test_only_a_plan_goes_without_threads(
    words: list[str], before: str | None, after: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(THREADS, raising=False)
    if before is not None:
        monkeypatch.setenv(THREADS, before)
    spare_threads(words)
    assert os.environ.get(THREADS) == after


def test_garbage_is_collected_again_afterwards() -> None:
    frozen = gc.get_freeze_count()
    try:
        with collecting_later():
            assert not gc.isenabled()
        assert gc.isenabled()
        assert gc.get_freeze_count() > frozen
    finally:
        gc.unfreeze()
