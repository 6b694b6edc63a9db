"""What the air takes, adds up, writes down and publishes; and what it drops."""

from __future__ import annotations

import base64
import errno
import itertools
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import DEVICES, DIM, KEYS, ROUNDS, Kit, close, make_federation, make_plan
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.air.air_channel import RoundOnAir, SoftwareChannel
from flmc.deploy.air.air_journal import FILE
from flmc.deploy.air.air_role import AirRole
from flmc.deploy.role import Outgoing
from flmc.deploy.sealing import Seal, new_keys
from flmc.sampling.roles import Transmission, air_on_grid
from flmc.uplink.symbol_format import BITS
from flmc.wire.messages import Announcement, DeviceAnswer, Received
from flmc.wire.presence import Presence
from flmc.wire.transport import Message

SIGNS = np.array([[1, 1, -1], [-1, 1, 1], [1, -1, -1], [-1, -1, 1]], dtype=float)
NAMES = [bytes([k]) * 8 for k in range(DEVICES)]


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def answer(kit: Kit, device: int, number: int = 1, **changed: Any) -> DeviceAnswer:
    """A device's answer to a round whose theta is 0."""
    gain = float(kit.federation.plan.gain[0, 0])
    usual = DeviceAnswer(
        number,
        device,
        NAMES[device],
        number + 2,
        kit.federation.binding(number, np.zeros(kit.federation.plan.dim)),
        SIGNS[device],
        np.array([gain / 0.04]),
    )
    return replace(usual, **changed)


def sealed(kit: Kit, made: DeviceAnswer, who: str | None = None, key: bytes = KEYS[1]) -> Message:
    """The same as a message on a device's topic."""
    data = made.to_bytes(kit.federation.plan.uplink.symbol_format)
    return kit.message("uplink", Seal(key).close(data), who or f"device-{made.device}")


def started(kit: Kit, number: int = 1, **given: Any) -> AirRole:
    """An air that waits for answers to a round."""
    air = kit.air(**given)
    air.connected(0.0)
    said = air.receive(kit.theta(number), 0.0)
    assert published(said, "y") == []
    following = [Announcement.from_bytes(each, DEVICES, DIM) for each in published(said, "round")]
    assert [each.round for each in following] == [number + 1]
    return air


def all_answer(kit: Kit, air: AirRole) -> list[Outgoing]:
    """What the air says to answers of all devices to round 1."""
    messages = [sealed(kit, answer(kit, device)) for device in range(DEVICES)]
    return [each for message in messages for each in air.receive(message, 0.0)]


def published(said: Sequence[Outgoing], what: str) -> list[bytes]:
    """Payloads to a topic among what the air says."""
    return [each.message.payload for each in said if each.message.topic.endswith(f"/{what}")]


def received(said: Sequence[Outgoing]) -> Received:
    """What was received, as it is published."""
    (payload,) = published(said, "y")
    return Received.from_bytes(payload, DEVICES, DIM)


def expected_steps(kit: Kit, symbols: Array, seed: int = 99) -> list[int]:
    """Steps that the roles of a simulation receive, from the same entropy."""
    grid, uplink = kit.federation.grid, kit.federation.plan.uplink
    gain = np.full(DIM, float(kit.federation.plan.gain[0, 0]))
    steps = grid.symbol_steps(symbols, gain, uplink.peak)
    found: list[int] = air_on_grid(steps, grid, np.random.default_rng(seed)).tolist()
    return found


def presence(kit: Kit, device: int, state: str) -> Message:
    return kit.message("alive", Presence(state).to_bytes(), f"device-{device}")


def test_symbols_add_up_as_in_a_simulation_whatever_their_order(tmp_path: Path) -> None:
    orders = [(0, 1, 2, 3), (3, 1, 0, 2), (2, 3, 1, 0)]
    found = []
    for place, order in enumerate(orders):
        kit = Kit(tmp_path / str(place), make_federation())
        air = started(kit)
        for device in order[:-1]:
            assert air.receive(sealed(kit, answer(kit, device)), 0.1) == []
        said = air.receive(sealed(kit, answer(kit, order[-1])), 0.1)
        heard = received(said)
        assert heard.steps is not None
        assert heard.active.all()
        assert heard.steps.tolist() == expected_steps(kit, SIGNS)
        assert heard.gain.tolist() == kit.federation.plan.gain[0].tolist()
        assert heard.binding == kit.federation.binding(1, np.zeros(DIM))
        assert all(each.message.retain for each in said)
        found.append(heard.to_bytes())
    assert len(set(found)) == 1


def test_one_answer_of_a_device_counts_in_a_round(kit: Kit) -> None:
    air = started(kit)
    air.receive(sealed(kit, answer(kit, 0)), 0.0)
    for _ in range(3):
        air.receive(sealed(kit, answer(kit, 0, symbols=-SIGNS[0])), 0.0)
    assert air.drops.counts == {"repeated": 3}
    for device in (1, 2):
        air.receive(sealed(kit, answer(kit, device)), 0.0)
    heard = received(air.receive(sealed(kit, answer(kit, 3)), 0.0))
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, SIGNS)
    air.receive(sealed(kit, answer(kit, 0)), 0.0)
    assert air.drops.counts == {"repeated": 3, "late": 1}


def test_what_is_dropped_and_why(kit: Kit) -> None:
    air = started(kit)
    gain = float(kit.federation.plan.gain[0, 0])
    good = answer(kit, 0)
    cases: list[tuple[str, Message]] = [
        ("wrong-identity", sealed(kit, good, "device-1")),
        ("wrong-identity", sealed(kit, good, "device-4")),
        ("wrong-identity", sealed(kit, good, "air")),
        ("wrong-identity", sealed(kit, good, "device-00")),
        ("wrong-round", sealed(kit, answer(kit, 0, 2))),
        ("late", sealed(kit, answer(kit, 0, 0))),
        ("other-theta", sealed(kit, answer(kit, 0, binding=bytes(32)))),
        ("over-cap", sealed(kit, answer(kit, 0, amplitude=np.array([gain / 0.04 * 1.001])))),
        ("over-cap", sealed(kit, answer(kit, 0, amplitude=np.array([1.0, 1e308, 1.0])))),
        ("not-sealed", sealed(kit, good, key=new_keys()[1])),
        ("not-sealed", kit.message("uplink", good.to_bytes(BITS), "device-0")),
        ("not-sealed", kit.message("uplink", b"", "device-0")),
        ("oversized", kit.message("uplink", bytes(1000), "device-0")),
        ("malformed", kit.message("uplink", Seal(KEYS[1]).close(b"FL"), "device-0")),
        ("malformed", sealed(kit, answer(kit, 0, amplitude=np.array([-1.0])))),
        ("malformed", sealed(kit, answer(kit, 0, symbols=np.ones(DIM + 1)))),
        ("malformed", kit.message("theta", b"")),
        ("malformed", kit.message("alive", b"{}", "device-0")),
        ("other-theta", kit.theta(1, [1.0, 0.0, 0.0])),
        ("out-of-range", kit.theta(1, [np.nan, 0.0, 0.0])),
        ("wrong-round", kit.theta(2)),
        ("unknown-topic", kit.message("y", b"")),
        ("unknown-topic", kit.message("plan", b"", "device-0")),
        ("unknown-topic", Message("elsewhere", b"")),
        ("wrong-run", Message("flmc/1/other/theta", b"")),
    ]
    for reason, message in cases:
        before = dict(air.drops.counts)
        assert air.receive(message, 0.0) == []
        changed = {k: n - before.get(k, 0) for k, n in air.drops.counts.items()}
        assert {k: n for k, n in changed.items() if n} == {reason: 1}
    assert sum(air.drops.counts.values()) == len(cases)
    assert received(all_answer(kit, air)).active.all()
    # A device that comes with another journal than the one of its first answer.
    air.receive(kit.theta(2), 0.0)
    air.receive(sealed(kit, answer(kit, 0, 2, journal=b"lostlost")), 0.0)
    assert air.drops.counts["stale-journal"] == 1
    assert air.receive(sealed(kit, answer(kit, 0, 1)), 0.0) == []
    assert air.drops.counts["late"] == 2
    status = json.loads(published(air.connected(9.0), "air")[-1])
    assert status["dropped"] == air.drops.to_document()


def test_answers_before_theta_are_not_taken(kit: Kit) -> None:
    air = kit.air()
    air.connected(0.0)
    air.receive(sealed(kit, answer(kit, 0)), 0.0)
    assert air.drops.counts == {"wrong-round": 1}
    assert air.next_wake is None


def test_who_is_not_scheduled_is_dropped(tmp_path: Path) -> None:
    active = np.ones((ROUNDS, DEVICES))
    active[0, 2] = 0
    kit = Kit(tmp_path, make_federation(make_plan(active=active)))
    air = started(kit)
    air.receive(sealed(kit, answer(kit, 2)), 0.0)
    assert air.drops.counts == {"not-scheduled": 1}
    for device in (0, 1):
        air.receive(sealed(kit, answer(kit, device)), 0.0)
    heard = received(air.receive(sealed(kit, answer(kit, 3)), 0.0))
    assert heard.active.tolist() == [True, True, False, True]
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, SIGNS[[0, 1, 3]])


def test_below_quorum_nothing_is_published_and_the_round_repeats(kit: Kit) -> None:
    air = started(kit)
    air.receive(sealed(kit, answer(kit, 0)), 0.0)
    assert air.next_wake == 1.0
    assert air.wake(0.999) == []
    for attempt in (1, 2):
        said = air.wake(float(attempt))
        assert published(said, "y") == []
        (payload,) = published(said, "round")
        again = Announcement.from_bytes(payload, DEVICES, DIM)
        assert (again.round, again.attempt, again.answered.tolist()) == (1, attempt, [0] * 4)
    assert air.numbers["repeats_total"] == 2
    assert (kit.folder / "air" / FILE).read_bytes().count(b"\n") == 1
    # What was taken stays taken: the device repeats the same bits, and they count once.
    air.receive(sealed(kit, answer(kit, 0)), 2.5)
    assert air.drops.counts == {"repeated": 1}
    air.receive(sealed(kit, answer(kit, 2)), 2.6)
    heard = received(air.wake(3.0))
    assert heard.active.tolist() == [True, False, True, False]
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, SIGNS[[0, 2]])
    assert air.receive(sealed(kit, answer(kit, 1)), 3.1) == []
    assert air.drops.counts["late"] == 1
    (payload,) = published(air.connected(3.2), "round")
    assert Announcement.from_bytes(payload, DEVICES, DIM).answered.tolist() == [1, 0, 1, 0]


@pytest.mark.parametrize("state", ["gone", "refused"])
def test_the_dead_are_not_waited_for_and_may_come_back(kit: Kit, state: str) -> None:
    air = started(kit)
    assert air.receive(presence(kit, 1, state), 0.0) == []
    for device in (0, 2):
        assert air.receive(sealed(kit, answer(kit, device)), 0.1) == []
    said = air.receive(sealed(kit, answer(kit, 3)), 0.1)
    assert received(said).active.tolist() == [True, False, True, True]
    # In the next round it is there again, and dies while it is waited for.
    air.receive(kit.theta(2), 0.2)
    air.receive(presence(kit, 1, "joined"), 0.2)
    for device in (0, 2, 3):
        assert air.receive(sealed(kit, answer(kit, device, 2)), 0.3) == []
    assert received(air.receive(presence(kit, 1, state), 0.4)).round == 2
    # All dead: below the quorum nothing is published at once.
    air.receive(kit.theta(3), 0.5)
    said = list(itertools.chain(*(air.receive(presence(kit, k, state), 0.5) for k in range(4))))
    assert said == []


def test_whoever_is_silent_for_long_is_not_waited_for(kit: Kit) -> None:
    """A device whose certificate was revoked cannot even say that it is gone."""
    air, late = started(kit), kit.federation.deadline_ms / 1000
    now = 0.0
    for number in range(1, 6):
        if number > 1:
            air.receive(kit.theta(number), now)
        said = [
            each
            for device in (0, 2, 3)
            for each in air.receive(sealed(kit, answer(kit, device, number)), now + 0.1)
        ]
        if number in (1, 2, 3, 5):  # it is waited for until the deadline
            assert said == []
            said = air.wake(now + late)
            now += late
        assert received(said).round == number
        if number == 4:  # its answer comes too late, and yet it is there
            assert air.receive(sealed(kit, answer(kit, 1, 4)), now + 0.2) == []
            assert air.drops.counts == {"late": 1}
        now += 1.0


def test_y_is_on_the_disk_before_it_is_published(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    air = started(kit)
    for device in (0, 1, 2):
        air.receive(sealed(kit, answer(kit, device)), 0.0)

    def refuse(number: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with monkeypatch.context() as patch:
        patch.setattr("flmc.deploy.journal_file.os.fsync", refuse)
        with pytest.raises(RunFailed, match="nothing was sent"):
            air.receive(sealed(kit, answer(kit, 3)), 0.0)
    assert air.journal.round == 0
    # It must not draw noise again for symbols that may be on the disk with other noise.
    with pytest.raises(RunFailed, match="start again"):
        air.wake(1.0)
    close(air)
    again = kit.air(seed=1)
    (payload,) = published(again.connected(2.0), "y")
    heard = Received.from_bytes(payload, DEVICES, DIM)
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, SIGNS)


def test_after_a_restart_the_same_y_is_published(kit: Kit) -> None:
    air = started(kit)
    first = published(all_answer(kit, air), "y")
    close(air)
    again = kit.air(seed=12345)
    assert published(again.connected(5.0), "y") == first
    # A server that asks for the round again gets the same bytes; another theta gets nothing.
    assert published(again.receive(kit.theta(1), 5.0), "y") == first
    assert again.receive(kit.theta(1, [1.0, 0.0, 0.0]), 5.0) == []
    assert again.drops.counts == {"other-theta": 1}
    for device, name in enumerate(NAMES):
        assert again.journal.follows(device, name, 1000)
        assert not again.journal.follows(device, name, 1)
        assert not again.journal.follows(device, b"otherone", 1000)
    close(again)
    with pytest.raises(InvalidSetting, match="use a directory of its own"):
        Kit(kit.folder, make_federation(run="next")).air()


@pytest.mark.parametrize(
    "uplink",
    [
        flmc.Digital(fading=flmc.RayleighFading()),
        flmc.Digital(fading=flmc.RayleighFading(), modulation="complex"),
        flmc.Digital(csi_error=0.2),
    ],
    ids=["rayleigh", "complex", "csi"],
)
def test_path_gains_and_schedule_are_the_same_after_a_restart(tmp_path: Path, uplink: Any) -> None:
    plan = make_plan(uplink, scheduler=flmc.RandomDevices(2))
    kit = Kit(tmp_path, make_federation(plan))
    air = kit.air()
    (first,) = published(air.connected(0.0), "round")
    close(air)
    (second,) = published(kit.air().connected(1.0), "round")
    assert first == second
    (other,) = published(Kit(tmp_path / "b", kit.federation).air().connected(0.0), "round")
    assert other != first  # the seed is the operating system's
    found = Announcement.from_bytes(first, DEVICES, DIM)
    assert found.scheduled.sum() == 2
    assert (found.gain <= kit.federation.cap(1) * (1 + 1e-12)).all()


def test_symbols_are_nowhere_in_the_journal(tmp_path: Path) -> None:
    """Neither in the clear nor sealed, in bytes, hexadecimal or base64."""
    rng, dim = np.random.default_rng(1), 96
    kit = Kit(tmp_path, make_federation(replace(make_plan(), dim=dim)))
    air = started(kit)
    traces = []
    for device in range(DEVICES):
        symbols = rng.choice([-1.0, 1.0], dim)
        made = answer(kit, device, symbols=symbols)
        message = sealed(kit, made)
        packed = np.packbits(symbols > 0, bitorder="little").tobytes()
        for data in (packed, message.payload[48:80], symbols.astype("<f8").tobytes()[:32]):
            traces += [data, data.hex().encode(), base64.b64encode(data)[:12]]
            traces += [base64.b64encode(bytes(shift) + data)[4:16] for shift in (1, 2)]
        air.receive(message, 0.0)
    written = b"".join(path.read_bytes() for path in (tmp_path / "air").iterdir())
    assert air.journal.round == 1
    assert not any(trace in written for trace in traces)
    # The search would find them: what was received is there.
    assert air.journal.last is not None
    assert base64.b64encode(air.journal.last.to_bytes()) in written
    assert not air._taken


def test_a_whisper_is_silence_and_not_the_end_of_the_air(kit: Kit) -> None:
    """An amplitude below a step of the grid, of a device that can do no better or is malicious."""
    air = started(kit)
    for device, amplitude in enumerate(([0.0], [1e-300], [1e-9, 0.0, 1e-12])):
        air.receive(sealed(kit, answer(kit, device, amplitude=np.array(amplitude))), 0.0)
    heard = received(air.receive(sealed(kit, answer(kit, 3)), 0.0))
    assert heard.active.all()
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, SIGNS[[3]])


def test_a_malicious_analog_value_counts_as_the_clip(tmp_path: Path) -> None:
    kit = Kit(tmp_path, make_federation(make_plan(flmc.Analog(), gain=0.01)))
    air = started(kit)
    values = np.array([1e30, -1e30, 5.0])
    for device in range(3):
        air.receive(sealed(kit, answer(kit, device, symbols=np.zeros(DIM))), 0.0)
    heard = received(air.receive(sealed(kit, answer(kit, 3, symbols=values)), 0.0))
    assert heard.steps is not None
    assert heard.steps.tolist() == expected_steps(kit, np.array([[30.0, -30.0, 5.0]]))


def test_a_channel_of_another_grid_is_refused(kit: Kit) -> None:
    other = make_federation(grid_bits=10)
    with pytest.raises(InvalidSetting, match="another grid"):
        kit.air(channel=SoftwareChannel(other))


def test_a_symbol_that_arrives_too_loud_is_not_the_end_of_the_air(tmp_path: Path) -> None:
    """An estimate that was far too small: the grid ends at 2^40 steps, and so does the symbol."""
    uplink = flmc.Digital(csi_error=0.3, snr_db=120.0)
    kit = Kit(tmp_path, make_federation(make_plan(uplink, gain=900.0), grid_bits=30))
    channel = SoftwareChannel(kit.federation)
    dim, gain = kit.federation.plan.dim, 900.0
    fading = np.full((4, dim), 0.04)
    this = RoundOnAir(1, np.full(dim, gain), fading, 2 * fading)
    sent = {0: Transmission(np.ones(dim), np.full(dim, gain / 0.04))}
    steps = channel.receive(this, sent).steps
    assert steps is not None
    noise = 10 * 2**30  # ten standard deviations
    assert (np.abs(steps - 2**40) < noise).all()
