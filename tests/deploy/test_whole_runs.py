"""Whole federations without a broker: channels, schedulers, receivers, and roles that die."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import (
    DEVICES,
    DIM,
    ROUNDS,
    Kit,
    Network,
    close,
    make_federation,
    make_plan,
    run_whole,
)
from flmc.base.errors import InvalidSetting
from flmc.deploy.air.air_channel import RecordedReceiver, least_noise_power
from flmc.deploy.loop import run_role
from flmc.deploy.role import Role
from flmc.wire.messages import Announcement, Received, Theta
from flmc.wire.transport import MemoryHub, Message
from support import full

RNG = np.random.default_rng(2)
FADED = np.full((ROUNDS, DEVICES), 0.04)
FADED[2] = 0.001  # a round in which nobody's channel suffices
DEEP = np.full((ROUNDS, DEVICES), 0.04)
DEEP[3, 1] = 1e-9  # so deep that what all can afford is below the grid

CASES: dict[str, dict[str, Any]] = {
    "usual": {},
    "rayleigh": {"uplink": flmc.Digital(fading=flmc.RayleighFading())},
    "trace": {"uplink": flmc.Digital(fading=flmc.TraceFading(RNG.uniform(0.02, 0.08, (6, 4))))},
    "trace of entries": {
        "uplink": flmc.Digital(fading=flmc.TraceFading(RNG.uniform(0.02, 0.08, (6, 4, 3))))
    },
    "random devices": {"scheduler": flmc.RandomDevices(2)},
    "by channel": {
        "uplink": flmc.Digital(fading=flmc.RayleighFading()),
        "scheduler": flmc.StrongestDevices(2),
    },
    "nobody in a round": {
        "uplink": flmc.Digital(fading=flmc.TraceFading(FADED)),
        "scheduler": flmc.ThresholdDevices(0.02),
    },
    "a deep fade": {"uplink": flmc.Digital(fading=flmc.TraceFading(DEEP))},
    "csi_error": {"uplink": flmc.Digital(csi_error=0.2)},
    "analog": {"uplink": flmc.Analog()},
    "analog by norm": {"uplink": flmc.Analog(clipping="norm")},
    "analog, csi_error": {"uplink": flmc.Analog(csi_error=0.2)},
    "complex": {"uplink": flmc.Digital(modulation="complex", fading=flmc.RayleighFading())},
    "gains of rounds": {"gain": np.geomspace(0.01, 0.5, ROUNDS)[:, None]},
    "gains of entries": {"gain": np.array([[0.1, 0.2, 0.3]])},
}


def payloads(network: Network, what: str) -> list[bytes]:
    """Everything that was said on a topic, in order."""
    return [m.payload for _, m in network.said if m.topic.endswith(f"test/{what}") and m.payload]


def check_run(network: Network, kit: Kit) -> list[Received]:
    """What holds of every run: announcements within the caps, y bound to theta, answers that count
    are of those who were scheduled."""
    federation, plan = kit.federation, kit.federation.plan
    sizes = (plan.num_devices, plan.dim)
    announced = [Announcement.from_bytes(p, *sizes) for p in payloads(network, "round")]
    thetas = [Theta.from_bytes(p, plan.dim) for p in payloads(network, "theta")]
    heard = [Received.from_bytes(p, *sizes) for p in payloads(network, "y")]
    scheduled = {each.round: each.scheduled for each in announced}
    at = {each.round: each.theta for each in thetas}
    for each in announced:
        assert (each.gain <= federation.cap(each.round) * (1 + 1e-12)).all()
    by_round: dict[int, set[bytes]] = {}
    for y in heard:
        assert y.binding == federation.binding(y.round, at[y.round])
        assert not (y.active & ~scheduled[y.round]).any()
        by_round.setdefault(y.round, set()).add(y.to_bytes())
    assert all(len(different) == 1 for different in by_round.values())
    return heard


@pytest.mark.parametrize("name", CASES)
def test_a_federation_runs_over_every_channel(tmp_path: Path, name: str) -> None:
    kit = Kit(tmp_path, make_federation(make_plan(**CASES[name])))
    network, air, server, devices = run_whole(kit, start=[0.5, -0.5, 0.25])
    assert server.failure is None
    assert server.record.round == ROUNDS
    heard = check_run(network, kit)
    assert [each.round for each in heard] == list(range(1, ROUNDS + 1))
    assert kit.clock.now == pytest.approx(0.05 * ROUNDS, abs=0.06)  # nobody waited for a deadline
    counts = [int(each.active.sum()) for each in heard]
    silent = {"nobody in a round": 3, "a deep fade": 4}.get(name)
    for number, count in enumerate(counts, start=1):
        expected = 2 if name in ("random devices", "by channel") else DEVICES
        assert count == (0 if number == silent else expected)
    # Nothing moves in a round without devices.
    thetas = np.stack(server.record.thetas)
    for number in range(1, ROUNDS + 1):
        assert (thetas[number] == thetas[number - 1]).all() == (number == silent)
    answered = sum(device.journal.runs["test"].answers for device in devices)
    assert answered == sum(counts)
    assert not any(role.drops.counts for role in (air, server, *devices))


@pytest.mark.parametrize("name", ["usual", "nobody in a round"])
def test_a_federation_runs_over_the_transport_in_memory(tmp_path: Path, name: str) -> None:
    """The same roles with the loop that runs them as processes, and a real clock."""
    plan = make_plan(**CASES[name])
    kit = Kit(tmp_path, make_federation(plan, slot_ms=20, deadline_ms=5000))
    roles: list[Role] = [kit.server(), kit.air(), *(kit.device(k) for k in range(DEVICES))]
    hub = MemoryHub()

    async def run() -> None:
        await asyncio.wait_for(asyncio.gather(*(run_role(role, hub) for role in roles)), 60)

    asyncio.run(run())
    assert (tmp_path / "record" / "result.json").exists()
    assert all(role.finished for role in roles)


def test_a_device_that_dies_is_inactive_and_may_come_back(tmp_path: Path) -> None:
    plan = make_plan(num_rounds=12)
    kit = Kit(tmp_path, make_federation(plan))
    network = Network(kit.clock)
    server, air = kit.server(), kit.air()
    devices = [kit.device(k) for k in range(DEVICES)]
    network.connect(server, air, *devices)
    network.run(lambda: server.record.round == 3)
    network.kill(devices[1])
    close(devices[1])
    network.run(lambda: server.record.round == 7)
    again = kit.device(1, entropy=np.random.default_rng(50))
    network.connect(again)
    network.run()
    heard = check_run(network, kit)
    active = {each.round: bool(each.active[1]) for each in heard}
    assert [number for number in active if not active[number]] == [4, 5, 6, 7]
    assert kit.clock.now < 1.0  # the dead are not waited for


@pytest.mark.parametrize("who", ["air", "server", "both"])
def test_air_and_server_may_be_started_again_at_any_time(tmp_path: Path, who: str) -> None:
    """Also between an answer and what follows from it; no round is published with two y."""
    kit = Kit(tmp_path, make_federation(make_plan(num_rounds=12)))
    network = Network(kit.clock)
    server, air = kit.server(), kit.air()
    devices = [kit.device(k) for k in range(DEVICES)]
    network.connect(server, air, *devices)
    rng, restarts = np.random.default_rng(6), 0
    for _ in range(full(40, 15)):
        for _ in range(int(rng.integers(1, 12))):
            network.step()
        if server.finished:
            break
        restarts += 1
        if who in ("air", "both"):
            network.kill(air)
            close(air)
            air = kit.air(seed=1000 + restarts)
            network.connect(air)
        if who in ("server", "both"):
            network.kill(server)
            close(server)
            server = kit.server()
            network.connect(server)
    network.run(lambda: server.finished)
    assert restarts >= 10
    assert server.failure is None
    heard = check_run(network, kit)
    assert {each.round for each in heard} == set(range(1, 13))
    published = sum(int(each.active.sum()) for each in {h.round: h for h in heard}.values())
    answered = sum(device.journal.runs["test"].answers for device in devices)
    assert answered >= published
    distinct = {m.payload for _, m in network.said if "/uplink/" in m.topic}
    assert len(distinct) <= 12 * DEVICES  # one answer for each device and round, however often


def test_an_air_that_was_started_again_does_not_wait_for_a_deadline(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    network = Network(kit.clock)
    server, air = kit.server(), kit.air()
    network.connect(server, air, *(kit.device(k) for k in range(DEVICES)))
    lost = [False]

    def carries(role: Role, message: Message) -> bool:
        lost[0] |= "/uplink/" in message.topic
        return "/uplink/" not in message.topic

    network.carries = carries
    network.run(lambda: lost[0])
    for _ in range(DEVICES - 1):
        network.step()
    network.carries = lambda role, message: True
    network.kill(air)
    close(air)
    network.connect(kit.air())
    network.run(lambda: server.record.round == 1)
    assert kit.clock.now < 1.0  # which is when the deadline of the first air would have been


def test_the_noise_power_of_a_receiver_is_bounded_from_below() -> None:
    """The bound fails as often as it says: within five standard errors of its alpha."""
    rng, alpha, trials = np.random.default_rng(8), 0.05, full(4000, 800)
    for offset in (0.0, 7.0):
        above = sum(
            least_noise_power(rng.normal(offset, 2.0, 150), alpha) > 4.0 for _ in range(trials)
        )
        error = math.sqrt(alpha * (1 - alpha) / trials)
        assert abs(above / trials - alpha) < 5 * error
    samples = rng.normal(0.0, 2.0, 100_000)
    assert 3.8 < least_noise_power(samples) < 4.0
    assert least_noise_power(samples, 0.5) == pytest.approx(4.0, rel=0.03)
    for bad in (np.zeros(99), np.array([np.nan] * 200)):
        with pytest.raises(InvalidSetting):
            least_noise_power(bad)
    for alpha in (0.0, 1.0):
        with pytest.raises(InvalidSetting):
            least_noise_power(samples, alpha)


def test_a_federation_is_fed_by_a_recorded_receiver(tmp_path: Path) -> None:
    """What a channel made of software received is recorded, and replayed as a receiver's: the same
    thetas, but for the gain on the grid, by which the server of a receiver does not normalise."""
    # A gain that the grid holds exactly.
    kit = Kit(tmp_path / "software", make_federation(make_plan(gain=0.25)))
    network, _, server, _ = run_whole(kit)
    heard = check_run(network, kit)
    y = np.stack(
        [kit.federation.grid.values(each.steps) for each in heard if each.steps is not None]
    )
    noise = np.random.default_rng(3).normal(0.0, 1.1, 20_000)
    path = tmp_path / "measured.npz"
    np.savez(path, y=y, noise=noise)
    receiver = RecordedReceiver(path)
    assert 1.0 < receiver.noise_power < 1.21
    again = Kit(tmp_path / "receiver", kit.federation)
    network = Network(again.clock)
    replayed, air = again.server(), again.air(channel=receiver)
    network.connect(replayed, air, *(again.device(k) for k in range(DEVICES)))
    network.run()
    assert np.array_equal(np.stack(replayed.record.thetas), np.stack(server.record.thetas))
    for each in check_run(network, again):
        assert each.steps is None
        assert each.values is not None
        assert (each.values == y[each.round - 1]).all()


def test_a_device_that_missed_a_receiver_s_round_takes_part_in_the_next(tmp_path: Path) -> None:
    """Every scheduled device counts as active there; only those whose answer came have answered."""
    kit = Kit(tmp_path, make_federation(make_plan(gain=0.25)))
    path = tmp_path / "measured.npz"
    rng = np.random.default_rng(3)
    np.savez(path, y=np.zeros((ROUNDS, DIM)), noise=rng.normal(0.0, 1.1, 20_000))
    air = kit.air(channel=RecordedReceiver(path))
    network = Network(kit.clock)
    devices = [kit.device(k) for k in range(DEVICES)]
    network.connect(air, *devices)
    server, absent = kit.server(), devices[-1]
    network.connect(server)
    network.run(until=lambda: "test" in absent.journal.runs)
    network.kill(absent)
    network.run(until=lambda: air.journal.round >= 1)
    assert air.journal.answered[-1] == 0
    network.connect(absent)
    network.run()
    assert absent.refusal is None
    assert air.journal.answered[-1] > 1


def test_a_receiver_with_too_little_noise_or_too_few_rounds_is_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    rng, path = np.random.default_rng(3), tmp_path / "measured.npz"
    quiet, loud = rng.normal(0.0, 0.99, 20_000), rng.normal(0.0, 1.1, 20_000)
    for noise, y, words in (
        (quiet, np.zeros((ROUNDS, DIM)), "noise_power is 1.*plan with noise_power 0.9"),
        (loud, np.zeros((ROUNDS - 1, DIM)), "measured"),
        (loud, np.zeros((ROUNDS, DIM + 1)), "measured"),
    ):
        np.savez(path, noise=noise, y=y)
        with pytest.raises(InvalidSetting, match=words):
            kit.air(channel=RecordedReceiver(path))
        close_journal(kit)
    np.savez(path, noise=loud, y=np.zeros((ROUNDS, DIM)))
    with pytest.raises(InvalidSetting, match="added to delta; got 1e-06"):
        kit.air(channel=RecordedReceiver(path, 1e-6))  # run_delta is 1e-5
    RecordedReceiver(path, 1e-7).check(kit.federation)
    for arrays in ({"noise": loud}, {"y": np.zeros((6, 3))}, {"noise": loud, "y": np.zeros(3)}):
        np.savez(path, **arrays)
        with pytest.raises(InvalidSetting, match="must hold the arrays"):
            RecordedReceiver(path)
    np.savez(path, noise=loud, y=np.full((6, 3), np.nan))
    with pytest.raises(InvalidSetting):
        RecordedReceiver(path)
    path.write_bytes(b"no file of arrays")
    with pytest.raises(InvalidSetting):
        RecordedReceiver(path)


def close_journal(kit: Kit) -> None:
    """Forget the journal of an air that was refused: each refusal opens one."""
    kit.folder = kit.folder / "next"
    kit.federation = replace(kit.federation)
