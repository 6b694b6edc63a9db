"""What a server says of devices that do not come, go away, or were never there."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np

from deploy.federations import Kit, close, make_federation
from flmc.deploy.device.consent import Budget
from flmc.deploy.server.federation_result import absences
from flmc.wire.presence import Presence
from flmc.wire.status import Status
from flmc.wire.topics import ALIVE, STATUS, device_name


def status_of(said: list[object]) -> Status:
    """The last status among messages."""
    found = [each for each in said if str(each.message.topic).endswith(f"/{STATUS}")]  # type: ignore[attr-defined]
    return Status.from_bytes(found[-1].message.payload)  # type: ignore[attr-defined]


def test_round_1_does_not_wait_long_for_who_has_refused(tmp_path: Path) -> None:
    kit = Kit(tmp_path, make_federation())
    server = kit.server()
    devices, digest = kit.federation.plan.num_devices, kit.federation.digest.hex()
    first = status_of(list(server.connected(0.0)))
    assert (first.phase, first.epsilon) == ("waiting", 0.0)
    assert f"0 of {devices} devices have joined" in first.why
    said = []
    for device in range(devices):
        presence = Presence("refused", "no") if device == 0 else Presence("joined", "", digest)
        topic_said = server.receive(
            kit.message(ALIVE, presence.to_bytes(), device_name(device)), 0.1
        )
        said.append([each.message.topic.rpartition("/")[2] for each in topic_said])
    assert all("theta" not in each for each in said)
    soon = [each.message.topic.rpartition("/")[2] for each in server.wake(20.0)]
    assert "theta" in soon  # patience would be 60 s
    close(server)


def test_a_round_that_stands_still_is_named(tmp_path: Path) -> None:
    kit = Kit(tmp_path, make_federation())
    server = kit.server()
    server.connected(0.0)
    digest = kit.federation.digest.hex()
    for device in range(kit.federation.plan.num_devices):
        presence = Presence("joined", "", digest)
        server.receive(kit.message(ALIVE, presence.to_bytes(), device_name(device)), 0.0)
    soon = kit.federation.deadline_ms / 1000
    assert status_of(list(server.wake(soon))).why == ""
    late = status_of(list(server.wake(10 * soon)))
    assert late.phase == "running"
    assert "round 1 has had too few answers" in late.why
    close(server)


def test_missing_devices_are_in_the_result(tmp_path: Path) -> None:
    plan = make_federation().plan
    assert plan.temperature is not None
    whole = json.dumps({"round": 1, "gain": [0.1], "silent": [], "temperature": plan.temperature})
    part = json.dumps(
        {"round": 1, "gain": [0.1], "silent": [0, 1], "temperature": 4 * plan.temperature}
    )
    assert absences(plan, [whole] * plan.num_rounds) == ()
    (found,) = absences(plan, [part] * plan.num_rounds)
    assert found.severity == "warning"
    assert found.numbers["num_active"] == plan.num_devices - 2
    assert np.isclose(found.numbers["temperature"], 4 * plan.temperature)


def test_a_run_without_an_answer_has_cost_nothing(tmp_path: Path) -> None:
    kit = Kit(tmp_path)
    budget = Budget(epsilon=1e9, delta=1e-5, runs=1)
    for name in ("dead", "alive"):
        kit.federation = kit.federation.of(name, kit.federation.plan, quorum=2)
        device = kit.device(budget=budget)
        device.receive(kit.plan_message(), 0.0)
        device.receive(kit.announce(), 0.0)
        assert device.refusal is None
        assert device.journal.spent("device") == (0, 0)
        if name == "alive":
            device.receive(kit.theta(1), 0.0)
            assert device.journal.spent("device")[0] > 0
        close(device)
    kit.federation = kit.federation.of("third", kit.federation.plan, quorum=2)
    device = kit.device(budget=budget)
    device.receive(kit.plan_message(), 0.0)
    device.receive(kit.announce(), 0.0)
    assert "as many were answered" in str(device.refusal)
    close(device)
