"""Which run a device joins when it was told none."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from flmc.base.errors import InvalidSetting
from flmc.deploy import run_discovery
from flmc.deploy.run_discovery import Offered, find_run
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, END, PLAN, SERVER, Topic
from flmc.wire.transport import MemoryHub, Message


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    """The hub delivers at once: nothing needs to settle."""
    monkeypatch.setattr(run_discovery, "_SETTLE", 0.05)


def plan(run: str) -> Message:
    """The plan of a run, of which only its being there counts."""
    return Message(str(Topic(run, PLAN)), b"{}", retain=True)


def over(run: str, payload: bytes = b"{}") -> Message:
    """The end of a run; an empty payload takes it back."""
    return Message(str(Topic(run, END)), payload, retain=True)


def server(run: str, state: str) -> Message:
    """The state of a run's server."""
    return Message(str(Topic(run, ALIVE, SERVER)), Presence(state).to_bytes(), retain=True)


def find(*retained: Message, then: Callable[[MemoryHub], None] | None = None) -> str:
    """The run that is found: after something that happens then, if it is given."""

    async def story() -> str:
        hub = MemoryHub()
        for message in retained:
            hub.deliver(message)
        looking = asyncio.create_task(find_run("device-0", hub))
        if then is not None:
            await asyncio.sleep(0.1)
            assert not looking.done()
            then(hub)
        return await asyncio.wait_for(looking, 30)

    return asyncio.run(story())


def test_the_run_that_is_going_on() -> None:
    dead = (plan("dead"), server("dead", "gone"), plan("done"), over("done"))
    junk = Message("flmc/1/live/alive/server", b"\xff", retain=True)
    other = Message("flmc/1/live/alive/device-0", Presence("gone").to_bytes(), retain=True)
    assert find(*dead, plan("live"), server("live", "here"), other) == "live"
    assert find(*dead, plan("live"), junk) == "live"
    assert find(*dead, plan("live")) == "live"


def test_names_that_no_run_can_have_are_not_kept() -> None:
    offered = Offered()
    for number in range(5000):
        offered.take(plan(f"run{number}"))
        offered.take(plan(f"\x1b[31m{number}"))
    assert len(offered.going) == 1000
    assert all(name.startswith("run") for name in offered.going)
    offered.take(over("run7"))  # what is known is still heard of
    assert len(offered.going) == 999


def test_a_run_whose_server_has_left_is_waited_for() -> None:
    dead = (plan("run"), server("run", "gone"))
    assert find(*dead, then=lambda hub: hub.deliver(server("run", "here"))) == "run"
    assert find(*dead, then=lambda hub: hub.deliver(plan("new"))) == "new"


def test_a_run_is_waited_for() -> None:
    assert find(then=lambda hub: hub.deliver(plan("run"))) == "run"
    again = over("run", b"")
    assert find(plan("run"), over("run"), then=lambda hub: hub.deliver(again)) == "run"


def test_several_runs_need_a_word() -> None:
    with pytest.raises(InvalidSetting, match="several runs, one, two: choose one with --run"):
        find(plan("two"), plan("one"), plan("dead"), server("dead", "gone"))
