"""What an observer learns, from honest federations and from a hostile broker."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from typing import Any

import numpy as np
import pytest

from flmc.base.errors import InvalidSetting
from flmc.wire import observation
from flmc.wire.encoding import Malformed
from flmc.wire.observation import Observed, observe_for, observe_forever, subscriptions
from flmc.wire.presence import Presence
from flmc.wire.status import Status
from flmc.wire.topics import OBSERVER, RIGHTS, Topic
from flmc.wire.transport import Disconnected, MemoryHub, Message
from support import full

STATUS = Status("demo", "running", 7, 100, 20, active=18, epsilon=1.5, delta=1e-5, unix_time=1.0)


def status_message(status: Status = STATUS, run: str = "demo") -> Message:
    return Message(str(Topic(run, "status")), status.to_bytes(), True)


def alive(who: str, presence: Presence, run: str = "demo") -> Message:
    return Message(str(Topic(run, "alive", who)), presence.to_bytes(), True)


def changed(**values: Any) -> bytes:
    """A status with some of its values replaced by any others."""
    return json.dumps({**STATUS.to_document(), **values}).encode()


def test_statuses_and_presences_are_kept_by_run() -> None:
    observed = Observed()
    assert observed.take(status_message()) == Topic("demo", "status")
    observed.take(alive("device-10", Presence("joined", version="9.9")))
    observed.take(alive("device-2", Presence("refused", why="over its budget")))
    observed.take(alive("server", Presence("here")))
    observed.take(alive("air", Presence("gone"), run="other"))
    assert set(observed.runs) == {"demo", "other"}
    run = observed.runs["demo"]
    assert run.status == STATUS
    assert run.identities == ["server", "device-2", "device-10"]
    assert observed.runs["other"].status is None
    text = str(run.grid())
    assert "device-2: refused: over its budget" in text
    assert "9.9" in text
    document = json.loads(json.dumps(run.to_document(), allow_nan=False))
    assert document["status"]["round"] == 7
    assert list(document["roles"]) == ["server", "device-2", "device-10"]
    assert document["roles"]["device-2"]["why"] == "over its budget"


def test_the_last_word_counts() -> None:
    observed = Observed()
    for state in ("here", "joined", "gone"):
        observed.take(alive("device-0", Presence(state)))
    assert observed.runs["demo"].presences["device-0"].state == "gone"


def test_an_empty_message_removes_what_was_known() -> None:
    observed = Observed()
    observed.take(status_message())
    observed.take(alive("device-0", Presence("here")))
    observed.take(Message("flmc/1/demo/air", b'{"repeats": 3}'))
    assert observed.runs["demo"].air == {"repeats": 3}
    observed.take(Message("flmc/1/demo/status", b""))
    assert observed.runs["demo"].status is None
    observed.take(Message("flmc/1/demo/alive/device-0", b""))
    assert observed.runs["demo"].presences == {}
    observed.take(Message("flmc/1/demo/air", b""))
    assert observed.runs == {}
    assert observed.left_out == 0


def test_those_in_trouble_are_shown_first_where_not_all_are() -> None:
    observed = Observed()
    for device in range(30):
        observed.take(alive(f"device-{device}", Presence("joined")))
    observed.take(alive("device-25", Presence("refused", why="no")))
    observed.take(alive("device-29", Presence("gone")))
    grid = observed.runs["demo"].grid(most=4)
    assert [row[0] for row in grid.rows] == ["device-0", "device-1", "device-25", "device-29"]
    assert grid.notes[-1].text == "and 26 more"
    assert len(observed.runs["demo"].grid().rows) == 30


@pytest.mark.parametrize(
    "message",
    [
        Message("flmc/1/demo/status", b"{}"),
        Message("flmc/1/demo/status", b"\xff"),
        Message("flmc/1/demo/status", b"[" * 100_000),
        Message("flmc/1/demo/status", STATUS.to_bytes() + b" " * 20_000),
        Message("flmc/1/demo/status", changed(run="another")),
        Message("flmc/1/demo/status", changed(round=-1)),
        Message("flmc/1/demo/status", changed(round=True)),
        Message("flmc/1/demo/status", changed(round=10**400)),
        Message("flmc/1/demo/status", changed(epsilon=10**400)),
        Message("flmc/1/demo/status", changed(epsilon=float("nan"))),
        Message("flmc/1/demo/status", changed(epsilon=[1])),
        Message("flmc/1/demo/status", changed(phase="dancing")),
        Message("flmc/1/demo/status", changed(present={"here": -2})),
        Message("flmc/1/demo/status", changed(dropped={"late": 0.5})),
        Message("flmc/1/demo/status/device-0", STATUS.to_bytes()),
        Message("flmc/2/demo/status", STATUS.to_bytes()),
        Message("flmc/1/de mo/status", changed(run="de mo")),
        Message("flmc/1/demo/alive", Presence("here").to_bytes()),
        Message("flmc/1/demo/alive/device-007", Presence("here").to_bytes()),
        Message("flmc/1/demo/alive/nobody", Presence("here").to_bytes()),
        Message("flmc/1/demo/alive/device-1", b"here"),
        Message("flmc/1/demo/alive/device-1", Presence("asleep").to_bytes()),
        Message("flmc/1/demo/uplink/device-1", b"FL"),
        Message("flmc/1/demo/air", b"[1]"),
        Message("", b""),
    ],
)
def test_what_is_no_message_is_left_out(message: Message) -> None:
    observed = Observed()
    assert observed.take(message) is None
    assert (observed.runs, observed.left_out) == ({}, 1)


def test_a_status_of_whole_numbers_is_one() -> None:
    """JSON does not tell 1 from 1.0."""
    assert Status.from_bytes(changed(epsilon=2, unix_time=3)).epsilon == 2
    with pytest.raises(Malformed, match="delta"):
        Status.from_bytes(changed(delta="small"))


def test_texts_cannot_speak_to_a_terminal() -> None:
    observed = Observed()
    evil = "a\x1b[2Jb\nc\u202ed"
    observed.take(alive("device-0", Presence("refused", why=evil, version=evil)))
    observed.take(Message("flmc/1/demo/status", changed(why=evil, verdict=evil, dropped={evil: 1})))
    observed.take(
        Message("flmc/1/demo/air", json.dumps({evil: {evil: 1}, "deep": [[]], "b": evil}).encode())
    )
    run = observed.runs["demo"]
    assert run.status is not None
    assert run.status.why == "a [2Jb c d"
    shown = repr(run.to_document()) + str(run.grid()) + str(run.status.listing())
    assert "\\x1b" not in shown
    assert "\x1b" not in shown
    assert "\u202e" not in shown
    assert run.air == {"a [2Jb c d": {"a [2Jb c d": 1}, "b": "a [2Jb c d"}


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observation, "MOST_RUNS", 5)
    monkeypatch.setattr(observation, "MOST_IDENTITIES", 12)
    observed = Observed()
    for run in range(10):
        for device in range(10):
            observed.take(alive(f"device-{device}", Presence("here"), run=f"run-{run}"))
            observed.take(Message(f"flmc/1/run-{run}/status", changed(run=f"run-{run}")))
    assert len(observed.runs) == 5
    assert sum(len(run.presences) for run in observed.runs.values()) == 12
    assert observed.left_out == (100 - 12) + (100 - 50)
    # What is known already still changes, and what is removed makes room.
    observed.take(alive("device-3", Presence("gone"), run="run-0"))
    assert observed.runs["run-0"].presences["device-3"].state == "gone"
    observed.take(Message("flmc/1/run-0/alive/device-3", b""))
    assert observed.take(alive("device-7", Presence("here"), run="run-4")) is not None
    assert observed.take(alive("device-8", Presence("here"), run="run-4")) is None


def test_noise_never_crashes_an_observer() -> None:
    """Messages with some bytes changed, and bytes that were never a message."""
    rng = np.random.default_rng(3)
    observed = Observed()
    honest = [status_message(), alive("device-3", Presence("joined", "why"))]
    honest.append(Message("flmc/1/demo/air", b'{"dropped": {"late": 3}, "repeats": 1}'))
    for index in range(full(10_000, 1000)):
        topic, payload, _ = honest[index % len(honest)]
        data = bytearray(payload)
        for place in rng.integers(0, len(data), size=int(rng.integers(0, 4))):
            data[place] = int(rng.integers(0, 256))
        observed.take(Message(topic, bytes(data[: int(rng.integers(0, 2 * len(data)))])))
        observed.take(Message(topic, rng.bytes(30)))
    assert observed.left_out > 100
    assert set(observed.runs) <= {"demo"}


def test_an_observer_asks_for_what_it_may_read_only() -> None:
    allowed = {str(Topic("+", what)) for what in RIGHTS[OBSERVER].read}
    assert set(subscriptions()) <= allowed
    assert all("/demo/" in pattern for pattern in subscriptions("demo"))
    with pytest.raises(InvalidSetting, match="run must be"):
        subscriptions("a/#")


def played(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_retained_messages_are_collected_from_a_hub() -> None:
    async def story() -> None:
        hub, observed = MemoryHub(), Observed()
        hub.deliver(status_message())
        hub.deliver(alive("device-0", Presence("here")))
        hub.deliver(Message(str(Topic("demo", "theta")), b"secret", True))
        await observe_for(hub, observed.take, 0.05, "demo")
        assert observed.runs["demo"].status == STATUS
        assert list(observed.runs["demo"].presences) == ["device-0"]
        assert observed.left_out == 0

    played(story())


class Flaky:
    """A hub that cannot be reached at first."""

    def __init__(self, hub: MemoryHub, failures: int) -> None:
        self.hub, self.failures = hub, failures

    def connect(self, identity: str, subscriptions: Any, will: Message | None) -> Any:
        self.failures -= 1
        if self.failures >= 0:
            raise Disconnected("nobody answers")
        return self.hub.connect(identity, subscriptions, will)


def test_a_lost_broker_is_tried_again() -> None:
    async def story() -> None:
        hub, observed, said = MemoryHub(), Observed(), list[str | None]()
        came = asyncio.Event()

        def say(trouble: str | None) -> None:
            said.append(trouble)
            if trouble is None:
                came.set()

        hub.deliver(status_message())
        task = asyncio.create_task(observe_forever(Flaky(hub, 2), observed.take, say=say))
        await came.wait()
        while not observed.runs:
            await asyncio.sleep(0.01)
        task.cancel()
        assert said == ["nobody answers", "nobody answers", None]
        with pytest.raises(Disconnected, match="nobody"):
            await observe_for(Flaky(hub, 1), observed.take, 0.05)

    played(story())
