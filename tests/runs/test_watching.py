"""Watching a run: what is seen is what the run has, and seeing changes nothing."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.runs.snapshots import Snapshot


@pytest.mark.parametrize("recorded", [False, True])
def test_a_watched_run_is_the_same_run(
    model: flmc.LinearGaussian, tmp_path: Path, recorded: bool
) -> None:
    plan = flmc.plan(model, flmc.Digital(), num_rounds=400, num_burn_in=100)
    seen: list[Snapshot] = []
    draws: list[np.ndarray] = []

    def watch(now: Snapshot) -> None:
        seen.append(now)
        assert now.draws is not None
        draws.append(now.draws.copy())

    record = {"out": tmp_path / "record", "checkpoint_rounds": 50} if recorded else {}
    result = flmc.run(plan, model, seed=3, chains=4, watch=watch, **record)  # type: ignore[arg-type]
    alone = flmc.run(plan, model, seed=3, chains=4)
    assert result.kept_draws is not None
    assert alone.kept_draws is not None
    np.testing.assert_array_equal(result.kept_draws, alone.kept_draws)
    assert seen[-1].round == 400
    assert seen[-1].metrics is not None
    np.testing.assert_array_equal(draws[-1], alone.kept_draws[0])
    if recorded:
        assert [now.round for now in seen] == list(range(50, 401, 50))
        assert [part.shape[1] for part in draws] == [0, 0, 50, 100, 150, 200, 250, 300]
        assert seen[0].metrics is None
        for part in draws:
            np.testing.assert_array_equal(part, alone.kept_draws[0][:, : part.shape[1]])
