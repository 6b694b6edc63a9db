"""Work of one page: only the newest wish counts, and it ends with the page."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

_POOL = ThreadPoolExecutor(max_workers=4, thread_name_prefix="studio")
"""Where everything is computed that takes longer than a moment."""
_PAUSE = 0.05
"""Seconds between the starts of two computations of one page."""


class Superseded(Exception):  # noqa: N818 - no error: somebody moved on
    """A newer wish came, or the page was closed."""


class Turn:
    """One wish: it may compute until a newer one comes."""

    def __init__(self, owner: Latest) -> None:
        self._owner = owner

    @property
    def over(self) -> bool:
        """Whether a newer wish came, or the page was closed."""
        return self._owner.turn is not self

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """What a function returns, computed outside the event loop.

        Parameters
        ----------
        function, *arguments
            What is called, with what.

        Raises
        ------
        Superseded
            If the answer is no longer wanted, before or after.
        """
        if self.over:
            raise Superseded
        loop = asyncio.get_running_loop()
        found = await loop.run_in_executor(_POOL, partial(function, *arguments))
        if self.over:
            raise Superseded
        return found


class Latest:
    """Calls an asynchronous function for the newest wish, at most once in 50 ms.

    Parameters
    ----------
    work
        Called with a :class:`Turn`; it reads what is wished for when it begins.
    """

    def __init__(self, work: Callable[[Turn], Awaitable[None]]) -> None:
        self._work = work
        self._last = -_PAUSE
        self._task: asyncio.Task[None] | None = None
        self._waiting = self._closed = False
        self.turn: Turn | None = None

    def ask(self) -> None:
        """Say that something changed: whatever is being computed is given up."""
        self.turn = None
        if not self._waiting and not self._closed:
            self._waiting = True
            self._task = asyncio.get_running_loop().create_task(self._begin())

    def close(self) -> None:
        """Give up everything, for good."""
        self.turn, self._closed = None, True

    async def _begin(self) -> None:
        await asyncio.sleep(max(0.0, self._last + _PAUSE - time.monotonic()))
        self._last, self._waiting = time.monotonic(), False
        if self._closed:
            return
        self.turn = mine = Turn(self)
        try:
            await self._work(mine)
        except Superseded:
            return
