"""The server's step, its record and ledger, what it says of itself, and how it goes on."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import flmc
from deploy.federations import (
    DATA,
    DEVICES,
    DIM,
    ROUNDS,
    Kit,
    close,
    make_federation,
    make_plan,
    run_whole,
)
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli import main
from flmc.cli.schemas import ANSWERS
from flmc.deploy.journal_file import JournalFile
from flmc.deploy.role import Outgoing
from flmc.deploy.role_assembly import EndedServer
from flmc.deploy.server.federation_result import result_of_record, result_with_model
from flmc.deploy.server.server_role import ServerRole, verdict_on
from flmc.evaluation.server_evidence import server_evidence
from flmc.planning.temperature import temperature
from flmc.runs.files.append_log import Log
from flmc.sampling.roles import server as server_role
from flmc.uplink.report import FINENESS, ReportingModel, question, scale_of
from flmc.wire.messages import Received, Theta
from flmc.wire.presence import Presence
from flmc.wire.status import Status
from flmc.wire.transport import Message
from support import full_only

ALL = np.ones(DEVICES, dtype=bool)
THREE = np.array([True, False, True, True])


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(tmp_path)


def joined(kit: Kit, number: int) -> Message:
    """A device says that it has joined."""
    digest = kit.federation.digest.hex()
    return kit.message("alive", Presence("joined", "", digest).to_bytes(), f"device-{number}")


def running(kit: Kit, **given: Any) -> ServerRole:
    """A server that waits for the next round."""
    server = kit.server(**given)
    server.connected(0.0)
    for device in range(kit.federation.plan.num_devices):
        server.receive(joined(kit, device), 0.0)
    return server


def heard(kit: Kit, server: ServerRole, **changed: Any) -> Received:
    """What the air might receive in the server's current round."""
    number = server.record.round + 1
    rng = np.random.default_rng(number)
    usual = Received(
        number,
        kit.federation.binding(number, server.record.theta),
        ALL,
        np.asarray(kit.federation.cap(number)),
        steps=rng.integers(-(2**20), 2**20, kit.federation.plan.dim),
    )
    return replace(usual, **changed)


def said(found: Sequence[Outgoing], what: str) -> list[bytes]:
    """Payloads to a topic among what the server says."""
    return [each.message.payload for each in found if each.message.topic.endswith(f"test/{what}")]


def give(kit: Kit, server: ServerRole, now: float = 0.1, **changed: Any) -> list[Outgoing]:
    """Give the server what was received."""
    return server.receive(kit.message("y", heard(kit, server, **changed).to_bytes()), now)


def test_the_update_is_that_of_a_simulation_with_the_active_devices(kit: Kit) -> None:
    server = running(kit, start=[0.5, -0.25, 1.0])
    plan, grid = kit.federation.plan, kit.federation.grid
    for active in (ALL, THREE, THREE & ALL):
        before, made = server.record.theta, heard(kit, server, active=active)
        assert made.steps is not None
        gain = grid.gain(made.gain, plan.uplink.peak)
        expected = server_role(
            before, grid.values(made.steps), 1e-3, gain, DEVICES, float(active.sum())
        )
        found = server.receive(kit.message("y", made.to_bytes()), 0.1)
        assert (server.record.theta == expected.theta).all()
        (payload,) = said(found, "theta")
        asked = Theta.from_bytes(payload, DIM)
        assert asked.round == server.record.round + 1
        assert (asked.theta == expected.theta).all()
        assert asked.digest == kit.federation.digest
    entries = [json.loads(line) for line in server.record.ledger]
    assert [entry["round"] for entry in entries] == [1, 2, 3]
    assert [entry["silent"] for entry in entries] == [[], [1], [1]]
    gain = grid.gain(plan.gain[0], plan.uplink.peak)
    for entry, count in zip(entries, (4.0, 3.0, 3.0), strict=True):
        heat = temperature(plan.uplink, 1e-3, gain, DEVICES, count, plan.scheduler)
        assert entry["temperature"] == pytest.approx(heat, abs=1e-6)
        assert entry["gain"] == plan.gain[0].tolist()
    assert entries[1]["temperature"] > entries[0]["temperature"]


def test_a_round_without_devices_moves_nothing_and_costs_nothing(kit: Kit) -> None:
    server = running(kit, start=[0.5, -0.25, 1.0])
    give(kit, server, active=~ALL, gain=np.array([1e-12]))
    assert server.record.round == 1
    assert server.record.theta.tolist() == [0.5, -0.25, 1.0]
    entry = json.loads(server.record.ledger[0])
    assert entry["silent"] == [0, 1, 2, 3]
    assert entry["temperature"] is None


def test_what_is_dropped_and_why(kit: Kit) -> None:
    server = running(kit)
    good = heard(kit, server)
    other = kit.federation.binding(1, np.ones(DIM))
    cases = [
        ("other-theta", replace(good, binding=other)),
        ("wrong-round", replace(good, round=2)),
        ("wrong-round", replace(good, round=0)),
        ("over-cap", replace(good, gain=good.gain * 1.001)),
        ("out-of-range", replace(good, gain=np.array([1e-12]))),
        ("malformed", replace(good, active=np.ones(5, dtype=bool))),
        ("malformed", replace(good, gain=np.array([-1.0]))),
    ]
    for place, (reason, wrong) in enumerate(cases, start=1):
        before = server.drops.counts[reason]
        assert server.receive(kit.message("y", wrong.to_bytes()), 0.0) == []
        assert server.drops.counts[reason] == before + 1
        assert sum(server.drops.counts.values()) == place
    for topic in ("uplink", "theta", "round"):
        assert server.receive(kit.message(topic, b"", None), 0.0) == []
    assert server.drops.counts["unknown-topic"] == 3
    assert server.record.round == 0
    payload = good.to_bytes()
    assert server.receive(kit.message("y", payload), 0.0) != []
    assert server.receive(kit.message("y", payload), 0.0) == []
    assert server.drops.counts["repeated"] == 1
    assert server.record.round == 1


def test_round_1_waits_for_all_devices_or_for_a_quorum_and_patience(kit: Kit) -> None:
    server = kit.server(patience=10.0)
    assert said(server.connected(0.0), "theta") == []
    assert give(kit, server) == []
    assert server.drops.counts == {"wrong-round": 1}  # before it has begun
    for device in (0, 1, 2):
        assert server.receive(joined(kit, device), 1.0) == []
    other = kit.message("alive", Presence("joined", "", "00" * 32).to_bytes(), "device-3")
    assert server.receive(other, 1.0) == []  # it has joined something else
    status = Status.from_bytes(said(server.wake(2.0), "status")[0])
    assert (status.phase, status.why) == ("waiting", "3 of 4 devices have joined, a quorum is 2")
    assert said(server.wake(9.9), "theta") == []
    assert len(said(server.wake(10.1), "theta")) == 1
    assert said(server.wake(11.0), "theta") == []
    assert len(said(server.wake(13.2), "theta")) == 1  # three deadlines without an answer
    alone = Kit(kit.folder / "alone", kit.federation).server(patience=1.0)
    alone.connected(0.0)
    alone.receive(joined(kit, 0), 0.0)
    assert said(alone.wake(100.0), "theta") == []  # below the quorum patience does not help
    late = Kit(kit.folder / "late", kit.federation).server()
    late.connected(0.0)
    found = [each for k in range(4) for each in late.receive(joined(kit, k), 0.5)]
    assert len(said(found, "theta")) == 1


class _Crash(Exception):  # noqa: N818
    """The process ends here."""


def stop_at(monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *, after: bool) -> None:
    """End the process before or after something is written."""
    real = getattr(owner, name)

    def crash(self: Any, *given: Any) -> None:
        if after:
            real(self, *given)
        raise _Crash

    monkeypatch.setattr(owner, name, crash)


@pytest.mark.parametrize("after", [False, True], ids=["before", "after"])
@pytest.mark.parametrize(
    ("owner", "name"), [(Log, "append"), (JournalFile, "append")], ids=["ledger", "theta"]
)
def test_after_a_crash_the_server_goes_on_with_the_same_theta(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, after: bool
) -> None:
    """Before and after each of the two things that a round writes."""
    straight, kit = Kit(tmp_path / "straight"), Kit(tmp_path / "crash")
    one, other = running(straight), running(kit)
    for _ in range(2):
        give(straight, one)
        give(kit, other)
    lost = heard(kit, other)
    assert lost.to_bytes() == heard(straight, one).to_bytes()
    with monkeypatch.context() as patch:
        stop_at(patch, owner, name, after=after)
        with pytest.raises(_Crash):
            other.receive(kit.message("y", lost.to_bytes()), 0.0)
    close(other)
    give(straight, one)
    again = kit.server(start=[9.0, 9.0, 9.0])  # a start is not drawn again
    found = again.connected(1.0)
    committed = owner is JournalFile and after
    assert again.record.round == (3 if committed else 2)
    (payload,) = said(found, "theta")
    asked = Theta.from_bytes(payload, DIM)
    assert asked.round == again.record.round + 1
    assert (
        asked.to_bytes()
        == Theta(asked.round, kit.federation.digest, one.record.thetas[asked.round - 1]).to_bytes()
    )
    again.receive(kit.message("y", lost.to_bytes()), 1.0)  # as the air says it again
    assert again.record.round == 3
    while one.record.round < ROUNDS:
        give(straight, one)
        give(kit, again)
    assert np.array_equal(np.stack(again.record.thetas), np.stack(one.record.thetas))
    assert again.record.ledger == one.record.ledger
    assert again.finished
    assert flmc.load(tmp_path / "crash" / "record").result is not None


def test_a_crash_at_the_end_is_mended(kit: Kit, monkeypatch: pytest.MonkeyPatch) -> None:
    server = running(kit)
    with monkeypatch.context() as patch:
        stop_at(patch, type(server.record), "finish", after=False)
        for _ in range(ROUNDS - 1):
            give(kit, server)
        with pytest.raises(_Crash):
            give(kit, server)
    close(server)
    again = kit.server()
    found = again.connected(0.0)
    assert said(found, "end") == [b"", b'{"why":"finished"}']
    assert again.finished
    assert flmc.load(kit.folder / "record").result is not None
    close(again)
    # A finished run is not begun again; whoever asks is told that it is over.
    with pytest.raises(InvalidSetting, match="finished"):
        kit.server()
    ended = EndedServer(kit.federation.run)
    assert said(ended.connected(0.0), "end") == [b'{"why":"finished"}']
    assert ended.finished


def test_another_federation_or_a_cut_ledger_is_refused(kit: Kit) -> None:
    server = running(kit)
    give(kit, server)
    give(kit, server)
    close(server)
    with pytest.raises(InvalidSetting, match="another run"):
        Kit(kit.folder, make_federation(quorum=3)).server()
    ledger = kit.folder / "record" / "ledger.txt"
    ledger.write_bytes(ledger.read_bytes().splitlines(keepends=True)[0])
    with pytest.raises(RunFailed, match="cut off"):
        kit.server()


def test_the_run_stops_at_the_budget(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A gain that was given may cost more than the budget affords for all rounds."""
    limits = flmc.Limits(epsilon=3.0, scope="run")
    plan = make_plan(limits=limits, gain=0.2, num_rounds=30)
    assert 1 < plan.affordable_rounds < 30
    kit = Kit(tmp_path, make_federation(plan))
    _, _, server, devices = run_whole(kit)
    assert server.record.round == plan.affordable_rounds
    assert server.failure is not None
    assert "overspend" in server.failure
    assert "epsilon 3 " in server.failure
    assert all(device.finished for device in devices)
    curve = flmc.spent(flmc.load(tmp_path / "record"), plan)
    assert curve.at == plan.affordable_rounds
    assert curve.epsilon <= 3.0
    close(server)
    again = kit.server()
    assert said(again.connected(0.0), "theta") == []  # no further round after a restart either
    assert again.failure is not None
    close(again)
    assert main(["ledger", str(tmp_path / "record"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["unfinished"] == 30


def test_the_record_is_like_that_of_a_simulation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kit = Kit(tmp_path)
    _, _, server, _ = run_whole(kit, start=[0.5, 0.5, 0.5])
    thetas = np.stack(server.record.thetas)
    close(server)
    record = flmc.load(tmp_path / "record")
    assert np.array_equal(record.draws[0], (thetas[2:-1] + thetas[3:]) / 2)
    assert len(record.ledger) == ROUNDS
    assert record.asked["federation"]["digest"] == kit.federation.digest.hex()
    curve = flmc.spent(record, kit.federation.plan)
    cost = kit.federation.plan.run_cost
    assert cost is not None
    assert curve.epsilon == pytest.approx(cost.epsilon, rel=1e-9)
    assert curve.transmitted == [ROUNDS] * DEVICES
    # The plan is whole in the record, so that the command needs no settings.
    assert main(["ledger", str(tmp_path / "record"), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed == curve.to_document()
    jsonschema.Draft202012Validator(ANSWERS["ledger"].schema()).validate(printed)
    assert main(["ledger", str(tmp_path / "record"), "--at", "2"]) == 0
    assert "epsilon" in capsys.readouterr().out
    result = json.loads((tmp_path / "record" / "result.json").read_text())
    assert result["engine"] == "federation"
    for each in (
        result_of_record(tmp_path / "record"),
        result_with_model(
            kit.federation.plan, flmc.LinearGaussian(DATA), thetas[3:], 1.0, before=thetas[:3]
        ),
    ):
        document = json.loads(json.dumps(each.to_document(), allow_nan=False))
        jsonschema.Draft202012Validator(ANSWERS["run"].schema()).validate(document)
        assert each.draws.shape == (1, ROUNDS - 2, DIM)
        assert math.isfinite(float(each.moments.mean.sum()))
    assert main(["resume", str(tmp_path / "record"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["engine"] == "federation"


def test_an_unfinished_run_is_resumed_by_its_server(
    kit: Kit, capsys: pytest.CaptureFixture[str]
) -> None:
    server = running(kit)
    give(kit, server)
    close(server)
    assert main(["resume", str(kit.folder / "record")]) == 2
    assert "flmc serve" in capsys.readouterr().err
    assert main(["ledger", str(kit.folder / "record")]) == 0
    assert "not finished: 1 of 6" in " ".join(capsys.readouterr().out.split())


def test_the_status_says_how_the_run_stands(kit: Kit) -> None:
    server = running(kit)
    server.receive(kit.message("alive", Presence("gone").to_bytes(), "device-3"), 0.0)
    server.receive(kit.message("alive", Presence("gone").to_bytes(), "device-99"), 0.0)
    server.receive(kit.message("alive", b"{}", "device-2"), 0.0)
    air = {"run": "test", "round": 1, "repeats": 7, "dropped": {"late": 2, "repeated": 5}}
    server.receive(kit.message("air", json.dumps(air).encode()), 0.0)
    server.receive(kit.message("air", b'{"dropped": {"late": -1}, "repeats": 0}'), 0.0)
    give(kit, server, 1.0, active=THREE)
    found = Status.from_bytes(said(give(kit, server, 3.0, active=THREE), "status")[0])
    assert (found.run, found.phase, found.round, found.num_rounds) == ("test", "running", 2, ROUNDS)
    assert (found.num_devices, found.active) == (DEVICES, 3)
    assert found.present == {"joined": 3, "gone": 1}
    assert found.dropped == {"malformed": 2}
    assert (found.dropped_air, found.repeats) == ({"late": 2, "repeated": 5}, 7)
    assert found.round_seconds == pytest.approx(1.5)  # the median of 1 s and 2 s
    assert found.temperature == pytest.approx(
        json.loads(server.record.ledger[-1])["temperature"], abs=1e-6
    )
    assert found.unix_time == 1e9
    assert found.epsilon is not None
    last = Status.from_bytes(said(server._fail("why", 4.0), "status")[0])
    curve = flmc.spent(flmc.load(kit.folder / "record"), kit.federation.plan)
    assert last.epsilon == pytest.approx(curve.epsilon)
    assert (last.epsilon_round, last.delta) == (2, 1e-5)
    # The whole planned run is what a run that was stopped after looking has spent.
    gain = float(kit.federation.plan.gain[0, 0])
    rounds = {n: flmc.Digital().privacy_event([(gain, DIM * n)]).epsilon(1e-5) for n in (2, ROUNDS)}
    assert (last.epsilon, last.epsilon_so_far) == pytest.approx((rounds[ROUNDS], rounds[2]))
    assert "valid if the round to stop at was fixed beforehand" in str(last.listing())
    assert (last.phase, last.why) == ("failed", "why")


def test_theta_that_is_not_finite_ends_the_run(kit: Kit) -> None:
    server = running(kit)
    found = give(kit, server, steps=None, values=np.full(DIM, 1.7e308))
    assert server.failure is not None
    assert "not finite after round 1" in server.failure
    assert json.loads(said(found, "end")[0])["why"] == server.failure
    assert server.record.round == 0
    assert Status.from_bytes(said(found, "status")[0]).phase == "failed"


def test_a_full_disk_stops_the_server_before_it_asks_again(
    kit: Kit, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = running(kit)

    def refuse(number: int) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("flmc.runs.files.append_log.os.fsync", refuse)
        with pytest.raises(RunFailed, match="No space left"):
            give(kit, server)
    assert server.record.round == 0
    assert server.record.ledger == []


@full_only
def test_devices_report_and_the_server_judges(tmp_path: Path) -> None:
    # Gradients are clipped in most rounds. The gain is so large that the noise hides no report, and
    # leaves the chain far too narrow, which the server must see whatever the noise is.
    uplink = flmc.Analog(clip=2.0, snr_db=60.0)
    reporting = ReportingModel(flmc.LinearGaussian(DATA), uplink)
    given: dict[str, Any] = {"num_rounds": 160, "num_burn_in": 40, "step_size": 1e-3}
    given |= {"public_smoothness": 120.0, "start": "zero", "forecast": False, "gain": 1.0}
    plan = flmc.plan(reporting, uplink, **given)
    kit = Kit(tmp_path, make_federation(plan, model="linear+report"))
    # What a device computes is its row of the model of all, its report included.
    theta = np.array([0.3, -0.2, 0.9, 5.0])
    for number, row in enumerate(reporting.gradient(theta[None, None])[0, 0]):
        assert kit.gradient(number)(theta) == pytest.approx(row, rel=1e-9)
    network, _, server, _ = run_whole(kit, start=[0.0] * plan.dim)
    thetas = np.stack(server.record.thetas)
    close(server)
    record = flmc.load(tmp_path / "record")
    assert np.array_equal(record.draws[0], (thetas[40:-1, :-1] + thetas[41:, :-1]) / 2)
    assert np.array_equal(record.arrays["report"], thetas[41:, -1])
    result = result_of_record(tmp_path / "record")
    assert result.draws.shape == (1, 120, DIM)
    written = json.loads((tmp_path / "record" / "result.json").read_text())
    assert written["findings"] == result.to_document()["findings"]
    assert "measured-variance" in [each.code for each in result.findings]
    last = [message for _, message in network.said if message.topic.endswith("/status")][-1]
    status = Status.from_bytes(last.payload)
    assert status.verdict == verdict_on(result.findings) != ""
    assert ("draws", status.verdict) in [(row.label, row.text) for row in status.listing().rows]
    evidence = server_evidence(plan, thetas[41:], reports=True)
    assert evidence is not None
    assert evidence.reported is not None
    # In every second round devices said how large remainders beyond the report's reach are.
    at = thetas[41:-1, :-1]
    share = reporting.model.gradient(at[None])[0] / scale_of(uplink).reach
    rest = np.abs(share - np.clip(share, -FINENESS, FINENESS)).max(axis=2)
    sizes = np.where(rest > 1, np.minimum(rest / FINENESS, 1), 0).sum(axis=1)
    truth = sizes[question(at) == DIM].mean()
    assert truth > 0.5
    assert abs(evidence.reported.beyond - truth) < 5 * evidence.reported.beyond_error < 0.5
