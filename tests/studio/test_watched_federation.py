"""What the studio keeps of federations, and the charts of it."""

from __future__ import annotations

import asyncio
import math
from dataclasses import replace

import pytest

from flmc.studio.work import watched_federation
from flmc.studio.work.watched_federation import History, WatchedFederations
from flmc.views.charts.chart import Line, Mark
from flmc.views.charts.run_charts import RoundSeen, active_chart, spent_chart, time_chart
from flmc.wire.transport import MemoryHub, Message
from studio.small_broker import STATUS, presence_of, status_of


def test_rounds_are_kept_in_order() -> None:
    history = History()
    for number in (0, 1, 2, 2, 3):
        history.add(replace(STATUS, round=number, active=number))
    assert [seen.round for seen in history.of("demo")] == [1, 2, 3]
    # After a restart the server goes on at an earlier round.
    history.add(replace(STATUS, round=2, active=9))
    history.add(replace(STATUS, round=3, active=9))
    assert [seen.active for seen in history.of("demo")] == [1, 2, 9]
    history.add(replace(STATUS, round=0))
    assert history.of("demo") == ()
    assert history.of("another") == ()


def test_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watched_federation, "_MOST_ROUNDS", 100)
    monkeypatch.setattr(watched_federation, "_MOST_RUNS", 3)
    history = History()
    for number in range(1, 1001):
        history.add(replace(STATUS, round=number))
    seen = [each.round for each in history.of("demo")]
    assert len(seen) <= 100
    assert (seen[0], seen[-1]) == (1, 1000)
    assert seen == sorted(set(seen))
    for run in ("a", "b", "demo", "c"):
        history.add(replace(STATUS, run=run, round=1001))
    assert history.of("a") == ()
    assert history.of("demo") != ()


def test_what_is_not_known_is_a_gap() -> None:
    history = History()
    history.add(replace(STATUS, epsilon_so_far=None, round_seconds=None))
    (seen,) = history.of("demo")
    assert math.isnan(seen.epsilon)
    assert math.isnan(seen.seconds)


def test_charts_show_what_was_seen() -> None:
    seen = [RoundSeen(1, 20, 0.5, 0.01), RoundSeen(2, 17, 0.7, 0.02), RoundSeen(4, 19, 0.9, 0.03)]
    active, spent, times = active_chart(seen, 20), spent_chart(seen), time_chart(seen)
    lines = [chart.each(Line)[0] for chart in (active, spent, times)]
    assert [line.y for line in lines if isinstance(line, Line)] == [
        (20, 17, 19),
        (0.5, 0.7, 0.9),
        pytest.approx((10, 20, 30)),
    ]
    (every,) = active.each(Mark)
    assert isinstance(every, Mark)
    assert every.value == 20
    assert "17 to 20 of 20" in active.caption
    assert "0.9" in spent.caption
    assert "30 ms" in times.caption
    assert "not bounded" in spent_chart([RoundSeen(1, 2, math.nan, math.nan)]).caption


def test_runs_are_heard_of_through_one_connection() -> None:
    async def story() -> None:
        hub, watched = MemoryHub(), WatchedFederations()
        watched.begin()  # without a broker nothing happens
        watched.offer("mqtt://broker", hub)
        watched.begin()
        while watched.trouble is not None:
            await asyncio.sleep(0.01)
        hub.deliver(status_of("old", unix_time=1.0))
        hub.deliver(presence_of("device-0", run="silent"))
        hub.deliver(status_of("new", unix_time=2.0, round=9))
        hub.deliver(Message("flmc/1/new/status", b"nonsense"))
        while len(watched.observed.runs) < 3:
            await asyncio.sleep(0.01)
        assert watched.newest == "new"
        assert [seen.round for seen in watched.history.of("new")] == [9]
        hub.deliver(Message("flmc/1/new/status", b"", retain=True))
        while "new" in watched.observed.runs:
            await asyncio.sleep(0.01)
        assert watched.newest == "old"
        await watched.end()
        await watched.end()

    asyncio.run(asyncio.wait_for(story(), 60))
