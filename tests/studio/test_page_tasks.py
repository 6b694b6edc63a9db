"""Work of a page: the newest wish wins, and a closed page computes nothing more."""

from __future__ import annotations

import asyncio
import threading
import time

from flmc.studio.work.page_tasks import Latest, Turn


def test_the_newest_wish_wins() -> None:
    begun: list[int] = []
    done: list[int] = []

    async def story() -> None:
        wishes: list[int] = []

        async def work(turn: Turn) -> None:
            mine = wishes[-1]
            begun.append(mine)
            await turn.compute(time.sleep, 0.15)
            done.append(mine)

        page = Latest(work)
        for wish in range(40):
            wishes.append(wish)
            page.ask()
            await asyncio.sleep(0.005)
        for _ in range(600):  # as long as a busy machine takes
            await asyncio.sleep(0.05)
            if done[-1:] == [39]:
                return

    asyncio.run(story())
    assert done[-1] == 39
    # Wishes come every 5 ms and more, and work begins every 50 ms at most.
    assert len(begun) < 40


def test_a_closed_page_computes_nothing_more() -> None:
    seen = threading.Event()
    done: list[str] = []

    async def story() -> None:
        async def work(turn: Turn) -> None:
            await turn.compute(seen.set)
            while not turn.over:
                await asyncio.sleep(0.01)
            done.append("given up")
            await turn.compute(done.append, "computed after the end")

        page = Latest(work)
        page.ask()
        while not seen.is_set():
            await asyncio.sleep(0.01)
        page.close()
        page.ask()
        await asyncio.sleep(0.2)

    asyncio.run(story())
    assert done == ["given up"]
