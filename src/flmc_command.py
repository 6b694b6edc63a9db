"""The script ``flmc``, and how Ctrl-C or SIGTERM ends it.

One mechanism serves every command for the life of the process. The moment a signal comes, Python's
handler in C writes its number into a pipe, whatever the main thread is doing; a thread reads the
pipe and decides:

- Work that saves itself is in hand (a recorded run): it is asked to save and stop. The process
  leaves at once if that takes longer than ``PATIENCE`` seconds, or at a second signal.
- No such work is in hand (imports, plans, sweeps, studies): the process leaves at once. Files are
  whole at any time, because they are renamed into place.

No exception is raised, because one may be lost in a callback of foreign code, and no handler is
exchanged, because a signal may come in between. Programs with an event loop (the roles of a
federation, the studio) install handlers of their own; the thread sees that and keeps quiet.

This module imports nothing of flmc, so that a signal is heard before the package is imported."""

from __future__ import annotations

# Not ``signal`` and ``threading``, which import further modules: a Ctrl-C meanwhile would end in a
# traceback. All of these are part of the interpreter or loaded by its start.
import _signal  # type: ignore[import-not-found]
import _thread
import os
import sys
import time

EXIT_CODE = 130
"""Exit code after an interruption, by SIGINT or by SIGTERM: 128 + 2, as a shell has it."""
PATIENCE = 5.0
"""Seconds that a recorded run has to save and stop. Its stretches of rounds take half a second; if
one takes much longer, code is being compiled or a round is costly, and the last checkpoint is as
good as another one would be."""

_SHOW_CURSOR = b"\x1b[?25h"
"""Undoes what a progress bar did to the terminal."""


class WorkInHand:
    """Context of work for which an interruption is more than the end of the process.

    ``hint`` is printed behind "interrupted" if the process ends at once: what is kept, how to go
    on. ``saves`` says that the work calls :meth:`interrupted` now and then, and saves itself and
    stops once that returns True."""

    def __init__(self, hint: str, *, saves: bool) -> None:
        self.hint = hint
        self.saves = saves

    def __enter__(self) -> WorkInHand:
        _works.append(self)
        return self

    def __exit__(self, *exception: object) -> None:
        _works.remove(self)

    @staticmethod
    def interrupted() -> bool:
        """Whether a signal has asked the work to stop; always False outside the command
        ``flmc``."""
        return bool(_heard)


_works: list[WorkInHand] = []
"""Open contexts, the innermost last; the thread that decides reads copies, because the main thread
changes the list."""
_heard: list[int] = []
"""Numbers of the signals that asked the work to stop."""


def main() -> int:
    """Run the command ``flmc`` and return its exit code; see :func:`flmc.cli.main`."""
    _listen()
    from flmc.base.start_up import collecting_later, spare_threads

    spare_threads(sys.argv[1:])
    with collecting_later():
        from flmc.cli import main as command

    return command()


def _listen() -> None:
    """Install the handling of SIGINT and SIGTERM: handlers, pipe and thread."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)  # the interpreter insists
    _signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    _thread.start_new_thread(_decide, (reading,))
    for number in (_signal.SIGINT, _signal.SIGTERM):
        # Also where a shell had them ignored, as for jobs in the background.
        _signal.signal(number, _ours)


def _ours(number: int, frame: object) -> None:
    """Handle a signal in the main thread: nothing is left to do there. The function only makes the
    interpreter write to the pipe, and says that nobody else has taken the signal over."""


def _decide(pipe: int) -> None:
    """Read the numbers of signals from the pipe for ever, and act on each."""
    while True:
        number = os.read(pipe, 1)[0]
        # An event loop or uvicorn may have installed a handler of its own.
        if _signal.getsignal(number) is not _ours:
            continue
        if _heard or not any(work.saves for work in [*_works]):
            _leave()
        _heard.append(number)
        _say(b"\nstopping after the rounds in hand; once more stops at once\n")
        _thread.start_new_thread(_leave_later, ())


def _leave_later() -> None:
    """End the process after ``PATIENCE`` seconds, unless it has ended before."""
    time.sleep(PATIENCE)
    _leave()


def _leave() -> None:
    """End the process at once with exit code ``EXIT_CODE`` and one line on standard error."""
    hint = "".join(work.hint for work in [*_works][-1:])
    if os.isatty(2):
        _say(_SHOW_CURSOR)
    _say(f"flmc: interrupted{hint and '; '}{hint}\n".encode("utf-8", "backslashreplace"))
    os._exit(EXIT_CODE)


def _say(text: bytes) -> None:
    """Write to standard error past Python's stream, whose lock the main thread may hold."""
    try:  # noqa: SIM105 (contextlib is not loaded yet)
        os.write(2, text)
    except OSError:  # standard error is closed: nobody listens
        pass
