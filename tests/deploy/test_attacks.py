"""Attacks on a federation that once worked, by whoever could make them."""

from __future__ import annotations

import json
import shutil
import stat
import tracemalloc
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from deploy.federations import Counting, Kit, close, make_federation, make_plan
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.configuration import credentials_in
from flmc.deploy.device.consent import Budget
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.server.server_record import ServerRecord, check_same_run
from flmc.wire.mqtt import Mqtt
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, PLAN, ROUND


def joins(kit: Kit, device: DeviceRole) -> bool:
    """Whether a device takes part when it is asked for round 1, which it then answers."""
    device.receive(kit.plan_message(), kit.clock.now)
    device.receive(kit.announce(), kit.clock.now)
    if device.refusal is None:
        device.receive(kit.theta(1), kit.clock.now)
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
        assert second.journal.spent("device")[1] <= 1e-4

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

    def test_the_whole_answer_must_fit_into_half_of_the_slot(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Gradients of less than half a slot overran it, because the disk was not counted."""
        kit = Kit(tmp_path)
        device = kit.device()

        def slow_disk(sealed: bytes) -> None:
            kit.clock.now += 0.6 * kit.federation.slot_ms / 1000

        monkeypatch.setattr(device.journal, "rehearse", slow_disk)
        assert not joins(kit, device)
        assert "journal take more than half of the slot" in str(device.refusal)

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

    def test_gains_by_round_take_no_memory(self, tmp_path: Path) -> None:
        """A plan of 38 kB took 4.6 GB: a number for each round and entry."""
        kit = Kit(tmp_path)
        document = kit.federation.to_document()
        gain = [[0.1 + 1e-6 * number] for number in range(3000)]
        document["plan"] |= {"num_rounds": 3000, "dim": 100_000, "gain": gain}
        device = kit.device()
        tracemalloc.start()
        device.receive(kit.message(PLAN, json.dumps(document).encode()), 0.0)
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert device.drops.to_document() == {"malformed": 1}
        assert peak < 50_000_000
        dear = make_plan(num_rounds=3000, num_burn_in=1000)
        with pytest.raises(InvalidSetting, match="num_rounds times dim must be at most 33554432"):
            make_federation(replace(dear, dim=100_000, gain=np.array(gain)))

    @pytest.mark.parametrize("taken", [False, True])
    def test_no_depth_of_a_name_ends_a_device(self, tmp_path: Path, taken: bool) -> None:
        """A little below the depth at which JSON is refused, its digest failed."""
        kit = Kit(tmp_path)
        device = kit.device()
        if taken:
            device.receive(kit.plan_message(), 0.0)
        text = json.dumps({**kit.federation.to_document(), "model": "@", "digest": "0" * 64})
        for depth in range(1000, 900, -1):
            payload = text.replace('"@"', "[" * depth + "]" * depth).encode()
            assert device.receive(kit.message(PLAN, payload), 0.0) == []
        assert device.drops.counts == {"malformed": 100}
        assert device.refusal is None


class TestJournals:
    def test_a_removed_lock_file_lets_nobody_in(self, tmp_path: Path) -> None:
        """Two processes with one journal answered a round with different bits."""
        first = DeviceJournal(tmp_path / "journal")
        (tmp_path / "journal" / ".lock").unlink()
        with pytest.raises(InvalidSetting, match="another process uses the journal"):
            DeviceJournal(tmp_path / "journal")
        first.close()
        DeviceJournal(tmp_path / "journal").close()

    @pytest.mark.parametrize("replaced", [False, True])
    def test_nothing_is_answered_from_a_journal_that_is_gone(
        self, tmp_path: Path, replaced: bool
    ) -> None:
        """What was answered and spent would be forgotten by the next start."""
        kit = Kit(tmp_path)
        device = kit.device()
        assert joins(kit, device)
        backup = tmp_path / "backup"
        shutil.copytree(tmp_path / "device-0", backup)
        shutil.rmtree(tmp_path / "device-0")
        if replaced:
            shutil.copytree(backup, tmp_path / "device-0")
        device.receive(kit.announce(2), 0.0)
        with pytest.raises(RunFailed, match="nothing was sent"):
            device.receive(kit.theta(2), 0.0)

    def test_others_cannot_look_into_a_new_journal(self, tmp_path: Path) -> None:
        """Whoever can open its lock file can hold the lock, and keep the device from starting."""
        DeviceJournal(tmp_path / "journal").close()
        assert stat.S_IMODE((tmp_path / "journal").stat().st_mode) == 0o700


def test_a_device_that_comes_and_goes_does_not_make_the_air_shout(tmp_path: Path) -> None:
    """Each of its words made the air announce the round to all devices again."""
    kit = Kit(tmp_path)
    air = kit.air()
    air.connected(0.0)
    air.receive(kit.theta(), 0.0)
    said, here = 0, kit.message(ALIVE, Presence("here").to_bytes(), "device-3")
    for now in np.arange(0.0, 0.999, 0.001):
        air.receive(here, now)
        if air.next_wake is not None and now >= air.next_wake:
            said += sum(each.message.topic.endswith(ROUND) for each in air.wake(now))
    assert 1 <= said <= 6


@pytest.mark.parametrize("host", ["broker.example.org", "192.0.2.7", "127.0.0.1.example.org"])
def test_certificates_are_not_left_unused(tmp_path: Path, host: str) -> None:
    """An address with a letter less gave up TLS without a word."""
    with pytest.raises(InvalidSetting, match="use mqtts"):
        Mqtt(f"mqtt://{host}:1883", credentials_in(tmp_path))
    assert Mqtt("mqtt://127.0.0.1:1883", credentials_in(tmp_path)).url


class TestSecondLook:
    def test_an_air_without_its_journal_gets_no_answer_again(self, tmp_path: Path) -> None:
        """Fresh noise on symbols that were published before would be a second look at them."""
        kit = Kit(tmp_path)
        device = kit.device()
        device.receive(kit.plan_message(), kit.clock.now)
        device.receive(kit.announce(), kit.clock.now)
        (answer,) = device.receive(kit.theta(1), kit.clock.now)
        again = device.receive(kit.announce(attempt=1), 1.0)
        assert [each.message for each in again] == [answer.message]
        assert device.receive(kit.announce(journal=b"another!"), 2.0) == []
        assert device.drops.counts == {"stale-journal": 1}
        assert device.journal.runs[kit.federation.run].answers == 1
        # The air that it knows is still answered.
        back = device.receive(kit.announce(attempt=2), 3.0)
        assert [each.message for each in back] == [answer.message]

    def test_the_air_s_journal_has_one_name(self, tmp_path: Path) -> None:
        kit = Kit(tmp_path)
        names = set()
        for _ in range(2):
            air = kit.air()
            names.add(air.journal.name)
            close(air)
        assert len(names) == 1
        shutil.rmtree(tmp_path / "air")
        air = kit.air()
        assert air.journal.name not in names
        close(air)


def test_a_finished_record_of_another_run_is_refused(tmp_path: Path) -> None:
    """Else a server with the record of an old run would say that a new one is over."""
    kit = Kit(tmp_path)
    record = ServerRecord(tmp_path / "record", kit.federation, lambda: np.zeros(3))
    record.close()
    other = kit.federation.of("second", kit.federation.plan, quorum=2)
    check_same_run(tmp_path / "record", kit.federation)
    with pytest.raises(InvalidSetting, match="holds another run"):
        check_same_run(tmp_path / "record", other)
