"""Workers that compute the points of a sweep (runs with different settings): processes of this
machine, or a Dask cluster."""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any

from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.runs.provenance import provenance
from flmc.runs.sweeps.points import plan_point, run_point
from flmc.runs.sweeps.table import PROVENANCE

_log = logging.getLogger(__name__)

Task = tuple[str, dict[str, Any]]
"""One point of a sweep as a worker receives it: the point's key, and its settings that differ from
the defaults, together with options of the sweep."""
Work = Callable[[Sequence[Task]], Iterator[tuple[str, dict[str, Any]]]]
"""A function that computes tasks (points of a sweep), and yields the key and the row of each as it
finishes."""


def on_this_machine(workers: int, *, plan_only: bool = False) -> Work:
    """A function that computes the points of a sweep in ``workers`` processes of this machine, by
    joblib; with 1 worker in this process. ``MissingExtra`` if joblib is needed and missing."""
    task_done = partial(_do, plan_only=plan_only)

    def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        if workers == 1 or len(tasks) <= 1:
            with one_blas_thread():
                yield from map(task_done, tasks)
            return
        in_worker = partial(_do_for, os.getpid(), plan_only=plan_only)
        yield from _in_processes(workers, in_worker, tasks)

    if workers > 1:
        _joblib()  # imported now, so that a missing joblib is reported before anything is computed
    return work


def _in_processes(
    workers: int, do: Callable[[Task], tuple[str, dict[str, Any]]], tasks: Sequence[Task]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield key and row of each task, computed by ``do`` in one of several processes, as processes
    finish them. If a process dies, all unfinished tasks run again; in the last attempt each runs by
    itself, and a task whose process dies then gets a row with an error."""
    # The kernel kills a process if memory is short, and joblib cannot tell which task that process
    # had. So all unfinished tasks run together in two attempts, and one by one in the third, in
    # which the task that fails is known.
    left = dict(tasks)
    for together in (True, True, False):
        for part in [list(left.items())] if together else [[task] for task in left.items()]:
            try:
                with _children_without_ctrl_c():
                    rows = _pool(workers)(_joblib().delayed(do)(task) for task in part)
                for key, row in rows:
                    del left[key]
                    yield key, row
            except BrokenProcessPool:
                if together:
                    _log.warning(
                        "a worker process died; %d points that were not finished run again",
                        len(left),
                    )
                else:
                    key = part[0][0]
                    del left[key]
                    yield key, {"error": _DIED}
        if not left:
            return


_DIED = "the worker process died, also when the point ran alone: is memory short?"


def _pool(workers: int) -> Any:
    """A joblib pool of at least two processes that yields rows in the order in which they
    finish."""
    # joblib runs tasks in this process if n_jobs is 1. A task whose process is killed would then
    # end the sweep, so there are at least two processes.
    return _joblib().Parallel(n_jobs=max(2, workers), return_as="generator_unordered")


@contextmanager
def _children_without_ctrl_c() -> Iterator[None]:
    """Context in which this process and the children that it starts ignore Ctrl-C, which a terminal
    sends to all of them. This process receives it when the context ends; the children never do."""
    from multiprocessing import resource_tracker as tracker_of_python

    from joblib.externals.loky.backend import resource_tracker

    # The resource trackers of joblib and of Python are processes. They are started before the mask
    # of signals is set below, because the start of Python's tracker clears that mask. joblib's
    # warning that an interrupted sweep has left files to clean up is silenced.
    filters = os.environ.get(_WARNINGS)
    os.environ[_WARNINGS] = ",".join(filter(None, (filters, _NO_WARNING)))
    try:
        tracker_of_python.ensure_running()
        resource_tracker.ensure_running()
    finally:
        os.environ.pop(_WARNINGS)
        if filters is not None:
            os.environ[_WARNINGS] = filters
    # Child processes inherit the mask of signals, so Ctrl-C does not reach those that are started
    # within the context.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


_WARNINGS = "PYTHONWARNINGS"
_NO_WARNING = "ignore::UserWarning:joblib.externals.loky.backend.resource_tracker"


def _joblib() -> Any:
    """The module joblib; ``MissingExtra`` if it is not installed."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra(
            "a sweep on several processors needs joblib: pip install 'flmc[sweep]', or use one"
            " worker"
        ) from error
    return joblib


def _do(task: Task, *, plan_only: bool) -> tuple[str, dict[str, Any]]:
    """Key and row of one task, a point of a sweep. The row says which software and processor
    computed it."""
    key, given = task
    row = plan_point(given) if plan_only else run_point(given)
    return key, {**row, PROVENANCE: provenance(row.get("engine_used"))}


def _do_for(parent: int, task: Task, *, plan_only: bool) -> tuple[str, dict[str, Any]]:
    """Key and row of one task, a point of a sweep, computed in a worker process, which ends itself
    soon after the process with the id ``parent`` has ended."""
    _follow(parent)
    return _do(task, plan_only=plan_only)


@lru_cache(maxsize=1)
def _follow(parent: int) -> None:
    """Start a thread that ends this worker process within about half a second after the process
    with the id ``parent``, which started it, has ended for whatever reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.5)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


_PATIENCE = 15.0
"""Seconds without any worker of the cluster after which a warning is logged."""


@contextmanager
def _warning_without_workers(client: Any, address: str) -> Iterator[None]:
    """Context in which a warning is logged if the Dask cluster at ``address`` has no workers for 15
    seconds, and another when it has workers again, because without workers a sweep waits in
    silence."""
    over = threading.Event()

    def watch() -> None:
        since = None
        warned = False
        while not over.wait(1.0):
            try:
                workers = len(client.scheduler_info()["workers"])
            except Exception:  # as_completed reports that the scheduler is gone
                continue
            now = time.monotonic()
            if workers:
                since = None
                if warned:
                    _log.warning("the Dask cluster at %s has workers again", address)
                    warned = False
            elif since is None:
                since = now
            elif not warned and now - since >= _PATIENCE:
                warned = True
                _log.warning("the Dask cluster at %s has no workers: waiting for some", address)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def _quiet() -> Iterator[None]:
    """Context in which the loggers of Dask are silent, because their tracebacks repeat what flmc's
    own errors and warnings say."""
    names = [name for name in logging.root.manager.loggerDict if name.startswith("distributed")]
    before = {name: logging.getLogger(name).level for name in names}
    for name in names:
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        for name, level in before.items():
            logging.getLogger(name).setLevel(level)


@contextmanager
def on_dask(address: str, workers: int, *, plan_only: bool = False) -> Iterator[Work]:
    """Context with a function that computes the points of a sweep on the Dask cluster at an
    address, or on ``workers`` processes of this machine (address `local`); a point whose worker
    dies runs elsewhere. ``MissingExtra`` without Dask, ``InvalidSetting`` if no scheduler
    answers."""
    try:
        from distributed import Client, LocalCluster, as_completed
    except ImportError as error:
        raise MissingExtra(
            "a sweep on a Dask cluster needs the extra 'dask': pip install 'flmc[dask]'"
        ) from error
    cluster = None
    if address == "local":
        cluster = LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=workers,
            threads_per_worker=1,
            dashboard_address=None,
            host="127.0.0.1",
            silence_logs=50,
        )
    try:
        client = Client(cluster or address, timeout=5)  # type: ignore[no-untyped-call]
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidSetting(f"no Dask scheduler answers at {address!r}: {error}") from error
    with _quiet(), client:

        def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
            futures = {
                client.submit(_do, task, plan_only=plan_only, key=task[0], retries=5): task[0]
                for task in tasks
            }
            for future in as_completed(futures):  # type: ignore[no-untyped-call]
                if future.status == "finished":
                    yield future.result()
                elif future.status in ("cancelled", "lost"):
                    raise RunFailed(
                        f"the Dask scheduler at {address!r} is gone; finished points are kept"
                    )
                else:
                    yield futures[future], {"error": f"the worker failed: {future.exception()}"}

        try:
            with _warning_without_workers(client, address):
                yield work
        finally:
            if cluster is not None:
                cluster.close()
