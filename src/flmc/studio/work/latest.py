"""Work of one page: only the newest wish counts, and it ends with the page."""

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
        """What a function returns that takes milliseconds, computed outside the event loop.

        Parameters
        ----------
        function, *arguments
            What is called, with what.

        Raises
        ------
        Superseded
            If the answer is no longer wanted, before or after.
        """
        found = await asyncio.get_running_loop().run_in_executor(
            _POOL, self._call, function, arguments
        )
        if self.over:
            raise Superseded
        return found

    async def compute_slowly(self, function: Callable[..., Any], *arguments: Any) -> Any:
        """The same of a function that may take seconds: one at a time for every page, because what
        was superseded cannot be stopped, and must not fill the pool.

        Parameters
        ----------
        function, *arguments
            What is called, with what.
        """
        async with self._owner.slow:
            return await self.compute(function, *arguments)

    def _call(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
        """Called in a thread, perhaps long after it was asked for."""
        if self.over:
            raise Superseded
        return function(*arguments)


class Latest:
    """Calls an asynchronous function for the newest wish, at most once in 50 ms.

    Parameters
    ----------
    work
        Called with a :class:`Turn`; it reads what is wished for when it begins.
    on_error
        Called with the error where the work fails, and with a sentence for people.
    """

    def __init__(
        self,
        work: Callable[[Turn], Awaitable[None]],
        on_error: Callable[[Exception, str], None] = lambda error, words: None,
    ) -> None:
        self._work, self._on_error = work, on_error
        self._last = -_PAUSE
        self._task: asyncio.Task[None] | None = None
        self._waiting = self._closed = False
        self.turn: Turn | None = None
        self.slow = asyncio.Lock()

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
        except Exception as error:
            if not mine.over:
                self._on_error(error, in_words(error))


def in_words(error: Exception) -> str:
    """What a person is told of an error; one that is no mistake of the user's is logged.

    Parameters
    ----------
    error
        Any error.
    """
    if isinstance(error, FlmcError):
        return str(error)
    if isinstance(error, MemoryError):
        return "there is not enough memory for this; use smaller sizes"
    _log.error("a defect of the studio", exc_info=error)
    return f"a defect of flmc: {type(error).__name__}: {error}"
