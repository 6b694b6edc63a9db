"""The loop over rounds: where its stretches end."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.sampling.chains import Chains
from flmc.sampling.compiled import numba_engine as fast
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.simulation import _Pace, never, simulate


def test_stretches_end_with_blocks() -> None:
    """Going on inside a block draws its numbers again, so a large run must not be cut there."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=1000, forecast=False)
    pace = _Pace(fast.NumbaEngine(), plan, model, 60_000, 0.5)
    done, stops = 0, []
    while done < 1000:
        until = pace.next_stop(done, 1000, None)
        pace.took(until - done, 3.0 * (until - done))
        stops.append(until)
        done = until
    assert all(stop % 128 == 0 for stop in stops[:-1])
    own = flmc.Model.from_gradient(
        lambda t: t[:, None] + np.zeros((20, 1)), prior=flmc.Normal(), dim=5, num_devices=20
    )
    slow = _Pace(NumpyEngine(), plan, own, 10, 0.5)
    slow.took(1, 3.0)
    assert slow.next_stop(5, 1000, None) == 6
    # A wish to stop is heard between checkpoints, however far apart they are.
    assert slow.next_stop(5, 1000, 40) == 6
    quick = _Pace(NumpyEngine(), plan, own, 10, 0.5)
    for _ in range(20):  # the estimate falls to a quarter each time
        quick.took(1000, 0.001)
    assert [quick.next_stop(done, 1000, 40) for done in (0, 40, 45)] == [40, 80, 80]
    clipped = replace(
        plan, uplink=flmc.Digital(example_clip=4.0)
    )  # nobody knows how many examples there are
    assert _Pace(NumpyEngine(), clipped, model, 200, 5.0).next_stop(0, 1000, None) == 1


def test_a_run_that_nobody_may_stop_is_one_stretch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every stretch draws the data sets again that are not kept."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=300, num_burn_in=200, forecast=False)
    stops: list[int] = []

    class Slow(NumpyEngine):
        def seconds_per_round(self, plan: flmc.Plan, model: flmc.Model, num_chains: int) -> float:
            return 1000.0

        def advance(self, chains: Chains, *given: Any, **named: Any) -> None:
            super().advance(chains, *given, **named)
            stops.append(chains.round)

    monkeypatch.setattr(_Pace, "took", lambda *given: None)
    simulate(plan, model, 0, engine=Slow(), stop=never)
    assert stops == [300]
    simulate(plan, model, 0, engine=Slow(), stop=lambda: False)
    assert stops == [300, 128, 256, 300]
