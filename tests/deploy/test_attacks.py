"""Attacks on a federation that once worked, by whoever could make them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from deploy.federations import Counting, Kit, close
from flmc.base.arrays import Array
from flmc.deploy.device.consent import Budget
from flmc.deploy.device.device_role import DeviceRole
from flmc.wire.topics import PLAN


def joins(kit: Kit, device: DeviceRole) -> bool:
    """Whether a device takes part when it is asked for round 1."""
    device.receive(kit.plan_message(), kit.clock.now)
    device.receive(kit.announce(), kit.clock.now)
    return device.refusal is None


class TestConsent:
    def test_delta_of_a_changed_budget_is_not_overspent(self, tmp_path: Path) -> None:
        """Two runs of the whole delta, because the second one is a small share of a new budget."""
        kit = Kit(tmp_path)
        first = kit.device(budget=Budget(epsilon=1e6, delta=1e-4, runs=1))
        assert joins(kit, first)
        close(first)
        kit.federation = kit.federation.of("second", kit.federation.plan, quorum=2)
        second = kit.device(budget=Budget(epsilon=1e6, delta=1e-4, runs=100))
        assert not joins(kit, second)
        assert "lifetime budget of this device is delta 0.0001" in str(second.refusal)
        assert second.journal.spent[1] <= 1e-4

    def test_all_runs_of_a_budget_can_be_joined(self, tmp_path: Path) -> None:
        """Shares of delta that add up to the budget but for rounding are within it."""
        kit = Kit(tmp_path)
        budget = Budget(epsilon=1e9, delta=1e-5, runs=6)
        for number in range(budget.runs):
            kit.federation = kit.federation.of(f"run{number}", kit.federation.plan, quorum=2)
            device = kit.device(budget=budget)
            assert joins(kit, device), device.refusal
            close(device)

    def test_a_budget_refuses_before_data_are_touched(self, tmp_path: Path) -> None:
        """Else slots of refused runs would measure how long a gradient takes."""
        kit, gradient = Kit(tmp_path), Counting()
        device = kit.device(gradient=gradient, budget=Budget(epsilon=1e-3))
        assert not joins(kit, device)
        assert gradient.calls == []

    def test_a_refusal_does_not_tell_how_long_a_gradient_takes(self, tmp_path: Path) -> None:
        kit = Kit(tmp_path)
        refusals = set()
        for seconds in (0.031, 0.077):

            def slow(theta: Array, seconds: float = seconds) -> Array:
                kit.clock.now += seconds
                return np.zeros_like(theta)

            device = kit.device(gradient=slow)
            assert not joins(kit, device)
            refusals.add(device.refusal)
            assert device.journal.runs == {}  # a device that is too slow keeps its budget
            close(device)
        assert len(refusals) == 1


class TestPlans:
    @pytest.mark.parametrize(
        ("name", "value"),
        [("num_rounds", 50_000_000), ("dim", 20_000_000), ("num_devices", 2**70), ("dim", 2.5)],
    )
    def test_a_short_plan_takes_no_memory(self, tmp_path: Path, name: str, value: float) -> None:
        """A plan of two thousand bytes took eight bytes for each of its rounds."""
        kit = Kit(tmp_path)
        document = kit.federation.to_document()
        document["plan"][name] = value
        device, payload = kit.device(), json.dumps(document).encode()
        assert len(payload) < 10_000
        tracemalloc.start()
        device.receive(kit.message(PLAN, payload), 0.0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert device.federation is None
        assert device.drops.to_document() == {"malformed": 1}
        assert peak < 50_000_000
