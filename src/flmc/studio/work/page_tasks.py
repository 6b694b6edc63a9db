"""Tasks of one page: only the newest request counts, and tasks end with the page."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from flmc.base.errors import FlmcError

_log = logging.getLogger(__name__)
_POOL = ThreadPoolExecutor(max_workers=8, thread_name_prefix="studio")
"""Pool of threads in which pages compute, so that the event loop stays responsive."""
_PAUSE = 0.05
"""Shortest time between the starts of two computations of one page, in seconds."""


class Superseded(Exception):  # noqa: N818 - no error: somebody moved on
    """Raised in a computation of a page that is no longer wanted: a newer request came, or the page
    was closed."""


class Turn:
    """One request of a page to compute its content; it is over when a newer request of the page
    comes or the page is closed."""

    def __init__(self, owner: Latest) -> None:
        self._owner = owner

    @property
    def over(self) -> bool:
        """Whether this request was replaced by a newer one of its page, or the page was closed."""
        # Threads read the page's current turn without a lock. If a thread sees a change too late,
        # it computes one result in vain, which the event loop then drops.
        return self._owner.turn is not self

    async def compute(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The value of a function that takes milliseconds, computed in a thread. Raises
        ``Superseded`` if the request is over before the computation begins, or once it has
        ended."""
        value = await asyncio.get_running_loop().run_in_executor(
            _POOL, self._call, function, arguments
        )
        # Whether the request is over is checked again, now in the event loop: nothing else runs
        # between this check and the caller's next await, so the caller may draw the value.
        if self.over:
            raise Superseded
        return value

    async def compute_slowly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The value of a function that may take seconds, computed in a thread, one at a time for
        each page. Raises ``Superseded`` if the request is over before the computation begins, or
        once it has ended."""
        # A superseded computation cannot be stopped: without this lock such computations would fill
        # the pool of threads.
        async with self._owner.slow:
            return await self.compute(function, *arguments)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """The function's value, computed in the present thread of the pool; raises ``Superseded``
        if the request is over by the time that the thread is free."""
        if self.over:
            raise Superseded
        return function(*arguments)


class Latest:
    """The requests of one page, of which only the newest counts. For it the coroutine function
    ``work`` runs in the page's event loop, at most once in 50 ms; its argument, a :class:`Turn`,
    hands computations to threads, and gives them up, with what they return, once a newer request
    has come. If ``work`` raises an exception, ``on_error`` is called with it and with a sentence
    about it."""

    def __init__(
        self,
        work: Callable[[Turn], Awaitable[None]],
        on_error: Callable[[Exception, str], None] = lambda error, words: None,
    ) -> None:
        self._work, self._on_error = work, on_error
        self._last = -_PAUSE
        # The task is kept in an attribute, because the event loop holds only weak references to its
        # tasks.
        self._task: asyncio.Task[None] | None = None
        self._waiting = self._closed = False
        self.turn: Turn | None = None
        self.slow = asyncio.Lock()

    def ask(self) -> None:
        """Request a new computation, because the page's inputs changed; a computation that is under
        way is given up."""
        # The computation under way notices at its next step that its turn is over; cancelling its
        # task would not stop its thread.
        self.turn = None
        if not self._waiting and not self._closed:
            self._waiting = True
            self._task = asyncio.get_running_loop().create_task(self._begin())

    def close(self) -> None:
        """Give up the current and all later requests, because the page is closed."""
        self.turn, self._closed = None, True

    async def _begin(self) -> None:
        """Call the page's ``work`` for the newest request, after a pause if the last call began
        less than 50 ms ago."""
        await asyncio.sleep(max(0.0, self._last + _PAUSE - time.monotonic()))
        # ``_waiting`` is cleared before the work reads its inputs, so that a request from now on
        # starts another task.
        self._last, self._waiting = time.monotonic(), False
        if self._closed:  # the page may have been closed during the pause
            return
        self.turn = mine = Turn(self)
        try:
            await self._work(mine)
        except Superseded:
            return
        except Exception as error:
            if not mine.over:
                self._on_error(error, in_words(error))


def in_words(error: Exception) -> str:
    """A sentence about ``error`` to show to the user. An exception of an unexpected class is a
    defect of flmc: it is logged, and the sentence says so."""
    if isinstance(error, FlmcError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; use smaller sizes"
    _log.error("a defect of the studio", exc_info=error)
    return f"a defect of flmc: {type(error).__name__}: {error}"
