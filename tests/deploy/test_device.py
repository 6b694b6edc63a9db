"""What a device answers, once, in a fixed time, and what it writes down before."""

from __future__ import annotations

import base64
import errno
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import (
    DATA,
    DIM,
    ROUNDS,
    Counting,
    Kit,
    answers_of,
    close,
    make_federation,
    make_plan,
)
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.device.device_journal import FILE, DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.device.local_model import local_gradient
from flmc.deploy.role import Outgoing
from flmc.privacy.safe_noise.entropy import draw_uniform
from flmc.sampling.roles import device as device_role
from flmc.wire.presence import Presence
from flmc.wire.transport import Message
from support import full

SLOT = 0.05


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def joined(kit: Kit, **given: Any) -> DeviceRole:
    """A device that has joined at round 1, and not answered yet."""
    device = kit.device(**given)
    device.connected(kit.clock.now)
    device.receive(kit.plan_message(), kit.clock.now)
    device.receive(kit.announce(1), kit.clock.now)
    assert device.refusal is None
    assert kit.federation.run in device.journal.runs
    return device


def ask(
    kit: Kit, device: DeviceRole, number: int, theta: Any = None, **changed: Any
) -> list[Outgoing]:
    """Announce a round, and give theta; the answers."""
    now = kit.clock.now
    said = device.receive(kit.announce(number, **changed), now)
    return answers_of([*said, *device.receive(kit.theta(number, theta), now)])


@pytest.mark.parametrize(
    "bad", [np.nan, np.inf, -np.inf, 1e6 * (1 + 1e-15), -1e300], ids=lambda value: f"{value:g}"
)
def test_a_bad_theta_is_refused_before_data_are_touched(kit: Kit, bad: float) -> None:
    gradient = Counting()
    device = joined(kit, gradient=gradient)
    gradient.calls.clear()
    assert ask(kit, device, 1, [0.0, bad, 0.0]) == []
    assert gradient.calls == []
    assert device.drops.counts == {"out-of-range": 1}
    assert device.journal.runs["test"].round == 0
    (answer,) = ask(kit, device, 1, [0.0, 1e6, -1e6])
    assert len(gradient.calls) == 1
    assert kit.opened(answer).round == 1


def test_the_order_of_plan_announcement_and_theta_does_not_matter(tmp_path: Path) -> None:
    for place, order in enumerate(("par", "pra", "apr", "arp", "rap", "rpa")):
        kit = Kit(tmp_path / order)
        messages = {"p": kit.plan_message(), "a": kit.announce(1), "r": kit.theta(1)}
        device = kit.device()
        device.connected(0.0)
        said = [out for each in order for out in device.receive(messages[each], float(place))]
        (answer,) = answers_of(said)
        assert answer.at == place + SLOT
        assert not answer.message.retain
        close(device)


@pytest.mark.parametrize(
    ("found", "counts_as"),
    [
        ([np.nan] * 3, [0.0] * 3),
        ([np.inf, -np.inf, np.nan], [30.0, -30.0, 0.0]),
        ([1e308] * 3, [30.0] * 3),
    ],
    ids=["nan", "inf", "huge"],
)
def test_gradients_that_are_no_numbers_are_answered_in_time(
    tmp_path: Path, found: list[float], counts_as: list[float]
) -> None:
    kit = Kit(tmp_path / "bits")
    device = joined(kit, gradient=lambda theta: np.array(found), entropy=np.random.default_rng(4))
    kit.clock.now = 7.0
    (answer,) = ask(kit, device, 1)
    assert answer.at == 7.0 + SLOT
    uniform = draw_uniform((1, DIM), np.random.default_rng(4))
    uplink = kit.federation.plan.uplink
    expected = uplink.symbols(np.array([counts_as]), uniform)
    assert (kit.opened(answer).symbols == expected[0]).all()

    analog = Kit(tmp_path / "values", make_federation(make_plan(flmc.Analog(), gain=0.01)))
    device = joined(analog, gradient=lambda theta: np.array(found))
    (answer,) = ask(analog, device, 1)
    assert analog.opened(answer).symbols.tolist() == counts_as


def test_a_model_that_fails_is_answered_like_one_without_gradient(kit: Kit) -> None:
    def fails(theta: Array, experiments: slice = slice(None)) -> Array:
        raise ZeroDivisionError("depends on data")

    prior = flmc.LinearGaussian(DATA).prior
    model = flmc.Model.from_gradient(fails, dim=DIM, num_devices=1, prior=prior)
    gradient = local_gradient(model, kit.federation.plan.uplink, 4, shares_prior=False)
    assert np.isnan(gradient(np.zeros(DIM))).all()
    device = joined(kit, gradient=gradient, entropy=np.random.default_rng(4))
    (answer,) = ask(kit, device, 1)
    assert answer.at == SLOT
    uniform = draw_uniform((1, DIM), np.random.default_rng(4))
    expected = kit.federation.plan.uplink.symbols(np.zeros((1, DIM)), uniform)
    assert (kit.opened(answer).symbols == expected[0]).all()


def test_who_asks_again_gets_the_same_bytes(kit: Kit) -> None:
    """A repeated round, an air that was started again, a new connection, a new process."""
    device = joined(kit)
    (first,) = ask(kit, device, 1, [0.1, 0.2, 0.3])
    assert device.receive(kit.theta(1, [0.1, 0.2, 0.3]), 0.0) == []  # theta again is no question
    assert device.receive(kit.announce(2), 0.0) == []  # nor is the next round
    assert device.drops.counts == {}
    again = device.receive(kit.announce(1, attempt=1), 1.0)
    for _ in range(100):  # one answer waits at a time, however often it is asked for
        assert device.receive(kit.announce(1, attempt=1), 1.0 + SLOT / 2) == []
    restarted = device.receive(kit.announce(1, attempt=0), 2.0)
    device.connected(3.0)
    connected = ask(kit, device, 1, [0.1, 0.2, 0.3])
    close(device)
    other = kit.device(entropy=np.random.default_rng(77))
    other.connected(4.0)
    other.receive(kit.plan_message(), 4.0)
    process = ask(kit, other, 1, [0.1, 0.2, 0.3])
    for answers in (again, restarted, connected, process):
        (answer,) = answers
        assert answer.message == first.message
    assert again[0].at == 1.0 + SLOT
    assert other.journal.runs["test"].answers == 1


def test_another_theta_for_an_answered_round_is_refused(kit: Kit) -> None:
    gradient = Counting()
    device = joined(kit, gradient=gradient)
    (first,) = ask(kit, device, 1)
    gradient.calls.clear()
    device.connected(0.0)
    assert ask(kit, device, 1, [0.0, 0.0, 5e-324], attempt=1) == []
    assert device.drops.counts == {"other-theta": 1}
    assert gradient.calls == []
    device.connected(0.0)
    (again,) = ask(kit, device, 1, attempt=2)
    assert again.message == first.message


def test_rounds_strictly_increase(kit: Kit) -> None:
    device = joined(kit)
    assert len(ask(kit, device, 1)) == 1
    assert len(ask(kit, device, 3)) == 1
    assert ask(kit, device, 2) == []
    assert device.drops.counts["wrong-round"] == 1
    for number in (0, ROUNDS + 1, 2**32 - 1):
        assert ask(kit, device, number) == []
    assert device.drops.counts["wrong-round"] == 1 + 2 * 3
    assert [run.round for run in device.journal.runs.values()] == [3]


def test_the_answer_is_on_the_disk_before_it_is_returned(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = joined(kit)
    synced: list[bytes] = []
    path = kit.folder / "device-0" / FILE
    real = os.fsync

    def watch(number: int) -> None:
        real(number)
        synced.append(path.read_bytes())

    monkeypatch.setattr("flmc.deploy.journal_file.os.fsync", watch)
    (answer,) = ask(kit, device, 1)
    assert base64.b64encode(answer.message.payload) in synced[-1]

    def refuse(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("flmc.deploy.journal_file.os.fsync", refuse)
    said = device.receive(kit.announce(2), 1.0)
    assert said == []
    with pytest.raises(RunFailed, match="nothing was sent"):
        device.receive(kit.theta(2), 1.0)
    assert device.journal.runs["test"].round == 1
    # The disk is well again, but what it holds is not known: nothing is answered with new bits.
    monkeypatch.setattr("flmc.deploy.journal_file.os.fsync", real)
    with pytest.raises(RunFailed, match="start again"):
        device.receive(kit.theta(2), 1.0)
    close(device)
    again = kit.device(entropy=np.random.default_rng(8))
    again.connected(2.0)
    again.receive(kit.plan_message(), 2.0)
    assert len(ask(kit, again, 2)) == 1


def test_an_older_copy_of_the_journal_is_found_out(kit: Kit) -> None:
    device = joined(kit)
    ask(kit, device, 1)
    shutil.copytree(kit.folder / "device-0", kit.folder / "copy")
    ask(kit, device, 2)
    close(device)
    older = kit.device(journal="copy", entropy=np.random.default_rng(8))
    older.connected(0.0)
    older.receive(kit.plan_message(), 0.0)
    answered = np.array([2, 2, 2, 2])
    said = older.receive(kit.announce(3, answered=answered), 0.0)
    said += older.receive(kit.theta(3), 0.0)
    assert answers_of(said) == []
    assert older.refusal is not None
    assert "older copy" in older.refusal
    assert older.finished
    refused = Presence.from_bytes(said[-1].message.payload)
    assert (refused.state, refused.why) == ("refused", older.refusal)
    assert older.farewell.state == "refused"
    # With the journal that it answered with, it goes on.
    whole = kit.device()
    whole.connected(0.0)
    whole.receive(kit.plan_message(), 0.0)
    assert len(ask(kit, whole, 3, answered=answered)) == 1


def test_who_is_not_scheduled_is_silent(kit: Kit) -> None:
    gradient = Counting()
    device = joined(kit, gradient=gradient)
    gradient.calls.clear()
    scheduled = np.array([False, True, True, True])
    assert ask(kit, device, 1, scheduled=scheduled) == []
    assert gradient.calls == []


def test_only_rounds_that_were_accounted_are_answered(tmp_path: Path) -> None:
    """Whatever is announced: the accountant counts on the rounds that the plan gives a device."""
    active = np.ones((ROUNDS, 4))
    active[2:, 0] = 0.0  # no device is active in more than all rounds, so all others rest as well
    active[2:, 1:3] = 0.0
    active[:2, 3] = 0.0
    active[5, 3] = 0.0
    active[5, 0] = 1.0
    kit = Kit(tmp_path, make_federation(make_plan(active=active)))
    most = kit.federation.plan.scheduler.most_rounds(ROUNDS, 4)
    assert most == 3
    device = joined(kit)
    given = [len(ask(kit, device, number)) for number in range(1, ROUNDS + 1)]
    assert given == [1, 1, 0, 0, 0, 1]
    assert device.drops.counts["not-scheduled"] >= 3


def test_an_announced_gain_above_the_plans_is_dropped(kit: Kit) -> None:
    device = joined(kit)
    gain = kit.federation.plan.gain[0]
    assert ask(kit, device, 2, gain=gain * (1 + 1e-9)) == []
    assert device.drops.counts["over-cap"] == 1
    assert len(ask(kit, device, 2, gain=gain * 0.5)) == 1


def test_a_device_caps_its_channel_inversion(tmp_path: Path) -> None:
    """A deep fade would ask for more power than the plan has, or than the device wants to give."""
    kit = Kit(tmp_path)
    device = joined(kit)
    uplink = kit.federation.plan.uplink
    gain = float(kit.federation.plan.gain[0, 0])
    weak = np.array([[4e-5]] + [[0.04]] * 3)
    sent = kit.opened(ask(kit, device, 1, fading=weak)[0])
    assert sent.amplitude.max() < gain / 4e-5
    assert np.mean(np.square(sent.amplitude * uplink.peak)) <= uplink.power_limit * (1 + 1e-9)
    assert sent.amplitude.max() == pytest.approx(math.sqrt(uplink.power_limit), rel=1e-9)
    usual = kit.opened(ask(kit, device, 2)[0])
    assert usual.amplitude == pytest.approx(gain / 0.04, rel=1e-15)
    own = joined(Kit(tmp_path / "own"), largest_amplitude=2.5)
    assert kit.opened(ask(kit, own, 1)[0]).amplitude.tolist() == [2.5]


def test_path_gains_that_no_number_inverts_are_dropped(kit: Kit) -> None:
    device = joined(kit)
    for bad in (5e-324, 1e-300, 1e300):
        assert ask(kit, device, 2, fading=np.array([[bad]] + [[0.04]] * 3)) == []
    assert device.drops.counts["out-of-range"] == 3
    # Those of others do not matter.
    assert len(ask(kit, device, 2, fading=np.array([[0.04], [1e-300], [1e300], [1.0]]))) == 1


def test_an_answer_that_takes_longer_leaves_at_the_end_of_a_whole_slot(kit: Kit) -> None:
    took = [0.0]

    def slow(theta: Array) -> Array:
        kit.clock.now += took[0]
        return np.zeros(DIM)

    device = joined(kit, gradient=slow)
    for number, (seconds, slots) in enumerate(
        [(0.0, 1), (0.049, 1), (0.051, 2), (0.12, 3), (0.001, 1)], start=1
    ):
        took[0], began = seconds, kit.clock.now
        device.receive(kit.announce(number), began)
        (answer,) = answers_of(device.receive(kit.theta(number), began))
        assert answer.at == pytest.approx(began + slots * SLOT, abs=1e-12)
    assert device.numbers["overran_total"] == 2


def test_bits_have_the_probability_of_the_link(tmp_path: Path) -> None:
    dim, rounds = 400, full(60, 20)
    plan = replace(make_plan(num_rounds=rounds, num_burn_in=2), dim=dim)
    kit = Kit(tmp_path, make_federation(plan))
    gradient = np.linspace(-60.0, 60.0, dim)
    device = joined(kit, gradient=lambda theta: gradient, entropy=np.random.default_rng(11))
    again = np.random.default_rng(11)
    total = np.zeros(dim)
    for number in range(1, rounds + 1):
        sent = kit.opened(ask(kit, device, number)[0]).symbols
        # The same as the role of a simulation, from the same entropy.
        uniform, gain = draw_uniform((1, dim), again), np.full(dim, float(plan.gain[0, 0]))
        expected = device_role(gradient[None], uniform, plan.uplink, gain, np.full((1, dim), 0.04))
        assert (sent == expected.symbols[0]).all()
        total += sent
    clipped = np.clip(gradient, -30.0, 30.0)
    chance = 1.0 / (1.0 + np.exp(-0.05 * clipped))  # the sigmoid link, written again
    for part in np.array_split(np.arange(dim), 8):
        mean = rounds * (2 * chance[part] - 1).sum()
        deviation = math.sqrt(rounds * (4 * chance[part] * (1 - chance[part])).sum())
        assert abs(total[part].sum() - mean) < 5 * deviation  # five standard errors


def test_two_processes_cannot_share_a_journal(kit: Kit) -> None:
    device = joined(kit)
    with pytest.raises(InvalidSetting, match="another process"):
        DeviceJournal(kit.folder / "device-0")
    close(device)
    DeviceJournal(kit.folder / "device-0").close()


def test_a_cut_tail_is_healed_and_damage_is_refused(kit: Kit) -> None:
    device = joined(kit)
    for number in (1, 2, 3):
        ask(kit, device, number)
    name = device.journal.name
    close(device)
    path = kit.folder / "device-0" / FILE
    whole = path.read_bytes()
    last = whole[:-1].rindex(b"\n") + 1
    for cut in (last + 1, last + 20, len(whole) - 1):
        path.write_bytes(whole[:cut])
        journal = DeviceJournal(path.parent)
        assert (journal.runs["test"].round, journal.epoch, journal.name) == (2, 4, name)
        journal.close()
        assert path.read_bytes() == whole[:last]
    for place in (5, len(whole) // 2, len(whole) - 10):
        damaged = bytearray(whole)
        damaged[place] ^= 1
        path.write_bytes(damaged)
        with pytest.raises(RunFailed, match="damaged"):
            DeviceJournal(path.parent)
        assert path.read_bytes() == bytes(damaged)  # it is kept as it is


def test_messages_of_other_runs_and_topics_are_dropped(kit: Kit) -> None:
    device = joined(kit)
    other = make_federation(run="test", quorum=3)
    wrong = replace(kit.announcement(1), digest=other.digest).to_bytes()
    device.receive(kit.message("round", wrong), 0.0)
    device.receive(Message("flmc/1/another/round", kit.announcement(1).to_bytes()), 0.0)
    assert device.drops.counts == {"wrong-run": 2}
    device.receive(kit.message("y", b""), 0.0)
    device.receive(kit.message("round", b"", "device-0"), 0.0)
    assert device.drops.counts["unknown-topic"] == 2
    assert device.receive(kit.message("end", b""), 0.0) == []
    assert not device.finished  # an empty end is none
    device.receive(kit.message("end", b"{}"), 0.0)
    assert device.finished
