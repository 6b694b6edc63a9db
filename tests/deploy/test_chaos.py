"""Chaos: devices, air, server and broker are killed at random times and started again; what must
never happen is looked for in their journals."""

from __future__ import annotations

import base64
import itertools
import json
import logging
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.test_federation import BROKER, problem
from flmc.deploy.air import air_journal
from flmc.deploy.demo.local_federation import LocalFederation, Processes
from flmc.deploy.device import device_journal
from flmc.deploy.sealing import Opener, read_key
from flmc.runs.files.append_log import read_entries
from flmc.sampling.roles import server
from flmc.uplink.symbol_format import BITS
from flmc.wire.federation import Federation
from flmc.wire.messages import DeviceAnswer, Received
from flmc.wire.topics import AIR, SERVER, device_name
from support import full, full_only

pytestmark = full_only

_log = logging.getLogger(__name__)

DEVICES = full(6, 3)
ROUNDS, BURN_IN = full(200, 60), 5
DIM = 5
_LATE_TURNS = 5
"""Turns of killing after the last round."""


@dataclass
class Survived:
    """A run that was disturbed, with what is in its journals."""

    federation: LocalFederation
    plan: flmc.Plan
    kills: dict[str, int]

    def entries(self, role: str, name: str) -> list[dict[str, Any]]:
        """Entries of a role's journal."""
        texts, _ = read_entries(self.federation.directory / role / "journal" / name)
        return [json.loads(text) for text in texts]

    def answers(self, device: int) -> list[dict[str, Any]]:
        """Answers that a device has journaled, and so may have sent."""
        entries = self.entries(device_name(device), device_journal.FILE)
        return [entry for entry in entries if "round" in entry]

    def received(self) -> list[Received]:
        """What the air has journaled, and so may have published."""
        entries = self.entries(AIR, air_journal.FILE)
        payloads = [base64.b64decode(each["payload"]) for each in entries if "payload" in each]
        return [Received.from_bytes(payload, DEVICES, DIM) for payload in payloads]


@pytest.fixture(scope="module")
def survived(tmp_path_factory: pytest.TempPathFactory) -> Survived:
    """A run during which every role and the broker is killed, again and again."""
    data, _, plan = problem(DEVICES, ROUNDS, BURN_IN)
    directory: Path = tmp_path_factory.mktemp("chaos") / "here"
    federation = LocalFederation.prepare(
        directory, plan, data, broker=BROKER, slot_ms=15, deadline_ms=600, quorum=DEVICES // 2
    )
    roles = (AIR, SERVER, *map(device_name, range(DEVICES)))
    chance, kills = random.Random(3), dict.fromkeys(("broker", *roles), 0)
    victims = _in_turns(chance, roles)
    with Processes(directory / "logs") as processes:
        for role in ("broker", *roles):
            federation.start(processes, role)
        _wait_for_rounds(federation, processes, 1)  # who dies before has not joined for good
        late = 0
        while processes.code(SERVER) is None:
            # At a random time within the rounds to come, one or two of them.
            done = _rounds(federation)
            late += done >= ROUNDS
            # After the last round the server is killed a few times more, and then may end: on a
            # busy machine it would else die before it has started, for ever.
            if late > _LATE_TURNS:
                processes.wait(SERVER, 120)
                break
            _wait_for_rounds(federation, processes, done + chance.randint(1, 12))
            time.sleep(chance.uniform(0.0, 0.1))
            for victim in itertools.islice(victims, chance.choice((1, 1, 2))):
                if processes.code(victim) is None:
                    processes.kill(victim)
                    kills[victim] += 1
            time.sleep(chance.choice((0.0, 0.3)))  # some stay away for some rounds
            for role in ("broker", *roles):
                if processes.code(role) not in (None, 0):
                    federation.start(processes, role)
        assert processes.code(SERVER) == 0, processes.log(SERVER)[-2000:]
    _log.info("killed: %s", kills)
    return Survived(federation, plan, kills)


def _in_turns(chance: random.Random, roles: tuple[str, ...]) -> Iterator[str]:
    """Whom to kill: the broker, air, server and two devices in every turn, in a random order."""
    while True:
        turn = ["broker", AIR, SERVER, *chance.sample(roles[2:], 2)]
        chance.shuffle(turn)
        yield from turn


def _rounds(federation: LocalFederation) -> int:
    """Rounds that the server has written into its ledger."""
    return len(read_entries(federation.record / "ledger.txt")[0])


def _wait_for_rounds(federation: LocalFederation, processes: Processes, rounds: int) -> None:
    """Return when so many rounds are done, or the server has ended; a run that stands still for
    two minutes has lost something."""
    until = time.monotonic() + 120
    while _rounds(federation) < min(rounds, ROUNDS) and processes.code(SERVER) is None:
        logs = {role: processes.log(role)[-800:] for role in ("broker", AIR, SERVER)}
        assert time.monotonic() < until, logs
        time.sleep(0.02)


def test_the_run_completes_with_a_finite_theta(survived: Survived) -> None:
    record = flmc.load(survived.federation.record)
    assert record.result is not None
    assert np.isfinite(record.draws).all()
    assert record.draws.shape == (1, ROUNDS - BURN_IN, DIM)
    assert min(survived.kills["broker"], survived.kills[AIR], survived.kills[SERVER]) >= 1
    assert sum(survived.kills[device_name(k)] for k in range(DEVICES)) >= 1


def test_no_round_was_answered_with_two_different_bit_vectors(survived: Survived) -> None:
    opener = Opener(read_key(survived.federation.directory / AIR / "air.key"))
    for device in range(DEVICES):
        bits: dict[int, bytes] = {}
        last = 0
        for entry in survived.answers(device):
            number = entry["round"]
            assert number > last, "rounds strictly increase"
            last = number
            opened = opener.open(base64.b64decode(entry["sealed"]))
            answer = DeviceAnswer.from_bytes(opened, DIM, BITS)
            assert (answer.round, answer.device) == (number, device)
            assert bits.setdefault(number, answer.symbols.tobytes()) == answer.symbols.tobytes()


def test_no_round_was_published_with_two_different_signals(survived: Survived) -> None:
    received = survived.received()
    assert [each.round for each in received] == list(range(1, ROUNDS + 1))


def test_the_signals_are_those_that_the_server_used(survived: Survived) -> None:
    """Theta follows from what the air has journaled, by the roles of the simulation."""
    plan = survived.plan
    theta = np.zeros(DIM)
    positions = flmc.load(survived.federation.record).arrays["positions"][0, 0]
    kept = positions[-(ROUNDS - BURN_IN) :]
    grid = Federation.of("demo", plan).grid
    for each in survived.received():
        assert each.steps is not None
        gain = grid.gain(np.broadcast_to(each.gain, (DIM,)), plan.uplink.peak)
        step = float(plan.step_sizes[each.round - 1])
        count = float(each.active.sum())
        theta = server(theta, grid.values(each.steps), step, gain, DEVICES, count).theta
        if each.round > BURN_IN:
            np.testing.assert_array_equal(theta, kept[each.round - BURN_IN - 1])


def test_every_device_charges_itself_for_what_it_answered(survived: Survived) -> None:
    """A device's ledger is at least the server's, and what it has beyond it are exactly the rounds
    that it answered and that were published without it."""
    record = flmc.load(survived.federation.record)
    rounds = [json.loads(line) for line in record.ledger]
    active = {each.round: each.active for each in survived.received()}
    assert [each["round"] for each in rounds] == list(range(1, ROUNDS + 1))
    missed = 0
    for device in range(DEVICES):
        own = {entry["round"] for entry in survived.answers(device)}
        charged = {each["round"] for each in rounds if device not in each["silent"]}
        assert charged <= own
        assert own - charged == {number for number in own if not active[number][device]}
        missed += ROUNDS - len(charged)
    assert missed > 0, "nobody was ever away: the chaos was none"
