"""Devices with local parameters in a federation: they are journalled with the answer that they were
made for, so that a restart repeats the same bytes and goes on from there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import Kit, answers_of, close, make_federation
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearData
from flmc.deploy.configuration import read_device
from flmc.deploy.demo.demonstration import watch
from flmc.deploy.demo.local_federation import LocalFederation, Processes, find_mosquitto
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.local_model import LocalMoves, local_gradient
from flmc.deploy.role_assembly import make_device
from flmc.planning.plans import Plan
from flmc.wire.topics import AIR, SERVER, device_name
from support import full, full_only, in_own_loop

pytest.importorskip("jax.numpy", reason="needs the extra jax")
from deploy import own_models

SIZES = (1, 2, 5, 10)
ROUNDS, BURN_IN = full(200, 60), 10
PRIOR_SD = own_models.PRIOR**-0.5
BROKER = "mosquitto" if find_mosquitto() else "embedded"


def draw_data() -> LinearData:
    rng = np.random.default_rng(0)
    levels = np.repeat(own_models.BETWEEN * rng.standard_normal(len(SIZES)), SIZES)
    count = sum(SIZES)
    return LinearData(np.ones((count, 1)), levels + rng.standard_normal(count), SIZES)


DATA = draw_data()
PARTS = np.split(DATA.targets, np.cumsum(SIZES)[:-1])


def make_plan(rounds: int = ROUNDS) -> Plan:
    """A plan from public knowledge: the curvature is at most that of levels that are known."""
    return flmc.plan(
        own_models.of_devices([{"y": each} for each in PARTS]),
        flmc.Digital(clip=10.0, link=flmc.Linear(), snr_db=50.0),
        num_rounds=rounds,
        num_burn_in=BURN_IN,
        start="zero",
        public_smoothness=8.3,
        public_convexity=2.0,
    )


def moves_of(device: int, plan: Plan) -> LocalMoves:
    model = own_models.of_devices([{"y": PARTS[device]}])
    moves = local_gradient(model, plan.uplink, plan.num_devices, shares_prior=False, dim=1)
    assert isinstance(moves, LocalMoves)
    return moves


def ask(kit: Kit, device: Any, number: int, theta: float, **changed: Any) -> Any:
    said = device.receive(kit.announce(number, **changed), 0.0)
    said += device.receive(kit.theta(number, [theta]), 0.0)
    (answer,) = answers_of(said)
    return answer.message


@full_only
def test_a_restart_repeats_the_bytes_and_goes_on_from_the_local_parameters(tmp_path: Path) -> None:
    plan = make_plan()
    kit = Kit(tmp_path, make_federation(plan))
    device = kit.device(gradient=moves_of(0, plan))
    device.connected(0.0)
    device.receive(kit.plan_message(), 0.0)
    first = ask(kit, device, 1, 0.3)
    after_first = device.journal.runs["test"].own
    assert len(after_first) == 1
    second = ask(kit, device, 2, 0.4)
    own = device.journal.runs["test"].own
    assert own != after_first
    close(device)
    lines = (tmp_path / "device-0" / "journal.txt").read_text()
    assert lines.count('"own"') == 2
    again = kit.device(gradient=moves_of(0, plan), entropy=np.random.default_rng(77))
    again.connected(1.0)
    again.receive(kit.plan_message(), 1.0)
    assert again.journal.runs["test"].own == own
    assert ask(kit, again, 2, 0.4, attempt=1) == second
    assert again.journal.runs["test"].own == own
    assert first != second
    # What it does next is what it would have done with the same randomness, had it not died.
    third = ask(kit, again, 3, 0.5)
    entropy = np.random.default_rng(77)
    gradient, expected = moves_of(0, plan).moved(np.array([0.5]), own, entropy)
    assert again.journal.runs["test"].own == expected
    assert np.isfinite(gradient).all()
    assert third != second


@full_only
def test_what_a_device_sends_is_the_marginal_gradient_on_average() -> None:
    """Over 4000 rounds at one theta, whose steps are independent draws as all is normal; and the
    devices' shares of the prior add up to one prior."""
    plan, theta, entropy = make_plan(), np.array([0.6]), np.random.default_rng(4)
    total = 0.0
    for device, part in enumerate(PARTS):
        moves, sent = moves_of(device, plan), []
        own: tuple[float, ...] = ()
        for _ in range(full(4000, 200)):
            gradient, own = moves.moved(theta, own, entropy)
            sent.append(gradient[0])
        variance = own_models.BETWEEN**2 + 1 / len(part)
        expected = (theta[0] - part.mean()) / variance
        share = own_models.PRIOR * theta[0] / own_models.DEVICES
        error = np.std(sent, ddof=1) / np.sqrt(len(sent))
        assert abs(np.mean(sent) - expected - share) < 5 * error
        total += share
    assert total == pytest.approx(own_models.PRIOR * theta[0])


@full_only
def test_plan_and_device_agree_on_local_parameters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device with local parameters does not join a plan that knows of none, nor the other way."""
    plan = make_plan()
    with pytest.raises(InvalidSetting, match="sends no report"):
        local_gradient(
            own_models.of_devices([{"y": PARTS[0]}]), plan.uplink, 4, shares_prior=False,
            reports=True,
        )  # fmt: skip
    directory = tmp_path / "there"
    federation = prepared(directory, plan)
    folder = directory / device_name(0)
    monkeypatch.chdir(folder)
    device = make_device(read_device(folder / "config.toml", federation.url, None), "demo")
    try:
        agreed = make_federation(plan)
        assert isinstance(device._make_gradient(agreed), LocalMoves)
        for wrong in (replace(plan, num_local=0), replace(plan, num_local=2)):
            with pytest.raises(InvalidSetting, match="local entries of a device"):
                device._make_gradient(make_federation(wrong))
    finally:
        close(device)


def prepared(directory: Path, plan: Plan) -> LocalFederation:
    """A federation on this machine, whose devices have a model of their own."""
    name = "own_models:here"
    federation = LocalFederation.prepare(
        directory, plan, DATA, broker=BROKER, slot_ms=100, deadline_ms=20_000, model=name
    )
    for device in range(len(SIZES)):
        folder = directory / device_name(device)
        shutil.copy(Path(own_models.__file__), folder / "own_models.py")
        config = folder / "config.toml"
        config.write_text(f'model = "{name}"\n' + config.read_text())
    return federation


@full_only
def test_a_federation_of_processes_with_local_parameters(tmp_path: Path) -> None:
    """Over a real broker; a device is killed and started again. Its journal has every round once,
    each with local parameters, and the chain is that of the simulation: the mean over kept rounds
    within 5 of its standard deviations over simulated chains."""
    plan = make_plan()
    federation = prepared(tmp_path / "here", plan)
    roles = (AIR, SERVER, *map(device_name, range(len(SIZES))))
    with Processes(tmp_path / "here" / "logs") as processes:
        for role in ("broker", *roles):
            federation.start(processes, role)
        killed: list[int] = []

        def kill_once(status: Any) -> None:
            if status.round and status.round >= ROUNDS // 3 and not killed:
                killed.append(status.round)
                processes.kill(device_name(1))
                federation.start(processes, device_name(1))

        status = in_own_loop(watch(federation, processes, kill_once))
        assert status is not None, {role: processes.log(role)[-800:] for role in roles}
        codes = {role: processes.wait(role, 120) for role in roles}
    assert killed
    assert set(codes.values()) == {0}
    assert status.round == ROUNDS
    for device in range(len(SIZES)):
        journal = DeviceJournal(federation.directory / device_name(device) / "journal")
        joined = journal.runs["demo"]
        journal.close()
        path = federation.directory / device_name(device) / "journal" / "journal.txt"
        answers = [
            json.loads(line[line.index("{") : line.rindex("}") + 1])
            for line in path.read_text().splitlines()
            if '"sealed"' in line
        ]
        rounds = [each["round"] for each in answers]
        assert rounds == sorted(set(rounds))
        assert all(len(each["own"]) == 1 for each in answers)
        assert tuple(answers[-1]["own"]) == joined.own
        assert len({each["own"][0] for each in answers}) == len(answers)
    record = flmc.load(federation.record)
    with pytest.raises(InvalidSetting, match=r"local parameters.*use the chain's draws"):
        record.posterior(flmc.Normal(0.0, PRIOR_SD))
    model = own_models.of_devices([{"y": each} for each in PARTS])
    simulated = flmc.run(plan, model, seed=5, chains=100)
    means = simulated.draws.mean(axis=1)
    deviation = record.draws.mean(axis=(0, 1)) - means.mean(axis=0)
    assert (np.abs(deviation) < 5 * means.std(axis=0)).all()
