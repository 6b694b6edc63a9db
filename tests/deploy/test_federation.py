"""A federation of real processes over a real broker: what it samples, how long a round takes, what
it leaves behind."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import flmc
from deploy.echo import echo_floor
from evidence import State
from flmc.cli.schemas import ANSWERS
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.demo.demonstration import public_curvature, watch
from flmc.deploy.demo.local_federation import LocalFederation, Processes, find_mosquitto
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.server.federation_result import result_of_record
from flmc.wire.federation import Federation
from flmc.wire.status import Status
from flmc.wire.topics import AIR, SERVER, device_name
from support import EVIDENCE, full, in_own_loop, many_repetitions

DEVICES = full(20, 4)
ROUNDS, BURN_IN = full(100, 30), full(20, 5)
SLOT_MS = 60
BROKER = "mosquitto" if find_mosquitto() else "embedded"
"""CI installs mosquitto; without it the embedded broker is tested, without TLS."""

_log = logging.getLogger(__name__)


def problem(
    devices: int, rounds: int, burn_in: int
) -> tuple[flmc.data.LinearData, flmc.LinearGaussian, flmc.Plan]:
    """Linear regression on some devices, with a plan that looked at no data."""
    data = flmc.data.draw_linear(seed=11, num_devices=devices)
    largest, smallest = public_curvature(len(data.targets), 5)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(
        model,
        flmc.Digital(),
        num_rounds=rounds,
        num_burn_in=burn_in,
        start="zero",
        public_smoothness=largest,
        public_convexity=smallest,
    )
    return data, model, plan


@dataclass
class Finished:
    """A run that is over, with what was measured."""

    federation: LocalFederation
    model: flmc.LinearGaussian
    plan: flmc.Plan
    status: Status
    echo: float
    codes: dict[str, int]


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """A whole run, which all tests look at."""
    return whole_run(tmp_path_factory.mktemp("federation") / "here")


def whole_run(directory: Path) -> Finished:
    """A whole run over 20 device processes, and the echo floor of the same broker after it."""
    data, model, plan = problem(DEVICES, ROUNDS, BURN_IN)
    federation = LocalFederation.prepare(directory, plan, data, broker=BROKER, slot_ms=SLOT_MS)
    with Processes(directory / "logs") as processes:
        roles = (AIR, SERVER, *map(device_name, range(DEVICES)))
        for role in ("broker", *roles):
            federation.start(processes, role)
        status = in_own_loop(watch(federation, processes, lambda _: None))
        assert status is not None
        codes = {role: processes.wait(role, 120) for role in roles}
        echo = echo_floor(federation, processes, repeats=full(60, 20))
    return Finished(federation, model, plan, status, echo, codes)


def test_everybody_ends_well(finished: Finished) -> None:
    assert set(finished.codes.values()) == {0}
    assert finished.status.phase == "finished"
    assert finished.status.round == ROUNDS
    assert finished.status.active == DEVICES
    assert finished.status.dropped == finished.status.dropped_air == {}


def test_the_posterior_mean_is_that_of_the_simulation(finished: Finished) -> None:
    """The mean over kept rounds of one chain, beside those of many simulated chains of the same
    plan: within 5 of their standard deviations in every entry, and so the mean of the squared
    deviations, whose law is about chi-squared with 5 degrees of freedom, of which 40 is exceeded
    with probability 1.5e-7."""
    record = flmc.load(finished.federation.record)
    mean = record.draws.mean(axis=(0, 1))
    simulated = flmc.run(finished.plan, finished.model, seed=5, chains=full(400, 100))
    means = simulated.draws.mean(axis=1)
    deviation = mean - means.mean(axis=0)
    assert (np.abs(deviation) < 5 * means.std(axis=0)).all()
    inverse = np.linalg.inv(np.cov(means.T))
    assert deviation @ inverse @ deviation < 40


@many_repetitions
def test_a_round_costs_little_more_than_the_echo(
    finished: Finished, tmp_path: Path, evidence: State
) -> None:
    """No round is shorter than the public slot. For the evidence: what it takes beyond the slot is
    at most three times a question to as many processes and back, with one line on the disk each,
    on the same broker.

    The two are measured one after the other, because an identity has one connection, and this
    machine has other work, which may come during one of them. So there are three attempts."""
    attempts = [cost_of_round(finished)]
    assert attempts[0]["beyond_ms"] >= 0
    if not EVIDENCE:  # how fast it is depends on what else the machine does
        return
    while attempts[-1]["beyond_ms"] > 3 * attempts[-1]["echo_ms"] and len(attempts) < 3:
        attempts.append(cost_of_round(whole_run(tmp_path / str(len(attempts)))))
    assert attempts[-1]["beyond_ms"] <= 3 * attempts[-1]["echo_ms"], attempts
    outcome = "beyond its slot at most three echoes of the same processes, in the median"
    evidence("Rounds", f"a round of {DEVICES} processes over {BROKER}", ROUNDS, outcome)


def cost_of_round(finished: Finished) -> dict[str, float]:
    """Median milliseconds of a round, its parts, and those of an echo."""
    status = finished.status
    assert status.round_seconds is not None
    beyond = status.round_seconds - SLOT_MS / 1000
    parts = {
        "round_ms": round(1000 * status.round_seconds, 1),
        "slot_ms": SLOT_MS,
        "beyond_ms": round(1000 * beyond, 1),
        "answers_ms": round(1000 * (status.answer_seconds or 0), 1),
        "air_ms": round(1000 * (status.receive_seconds or 0), 1),
        "server_ms": round(1000 * (status.commit_seconds or 0), 1),
        "echo_ms": round(1000 * finished.echo, 1),
    }
    _log.info("round with %s: %s", finished.federation.broker, json.dumps(parts))
    return parts


def test_the_record_is_like_that_of_a_simulation(finished: Finished) -> None:
    record = flmc.load(finished.federation.record)
    assert record.draws.shape == (1, ROUNDS - BURN_IN, 5)
    assert len(record.ledger) == record.round == ROUNDS
    printed = json.loads(json.dumps(result_of_record(finished.federation.record).to_document()))
    jsonschema.Draft202012Validator(ANSWERS["run"].schema()).validate(printed)
    curve = flmc.spent(record, finished.plan)
    assert finished.plan.run_cost is not None
    assert curve.epsilon == pytest.approx(finished.plan.run_cost.epsilon, rel=1e-6)
    assert curve.transmitted == [ROUNDS] * DEVICES
    assert sorted(path.name for path in finished.federation.record.iterdir()) == [
        ".lock",
        "draws.npz",
        "ledger.txt",
        "result.json",
        "run.json",
    ]


def test_every_device_charged_itself_for_the_whole_run(finished: Finished) -> None:
    federation = Federation.of("demo", finished.plan, slot_ms=SLOT_MS)
    for device in range(DEVICES):
        journal = DeviceJournal(finished.federation.directory / device_name(device) / "journal")
        (joined,) = journal.runs.values()
        journal.close()
        assert joined.digest == federation.digest.hex()
        assert joined.answers == joined.round == ROUNDS
        assert joined.price.device == cost_of_run(federation, joined.price.delta)


def test_keys_and_symbols_stay_where_they_belong(finished: Finished) -> None:
    """Only the air's folder holds its secret key, and no log holds a sealed answer."""
    secret = (finished.federation.directory / AIR / "air.key").read_text().strip()
    for path in finished.federation.directory.rglob("*"):
        if path.is_file() and path.parent.name != AIR:
            assert secret not in path.read_text(errors="replace")


def test_logs_are_json_without_payloads(finished: Finished) -> None:
    logs: Path = finished.federation.directory / "logs"
    for role in (AIR, device_name(0)):
        for line in (logs / f"{role}.log").read_text().splitlines():
            assert {"time", "level", "role", "message"} <= json.loads(line).keys()
