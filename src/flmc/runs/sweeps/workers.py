"""Where the points of a sweep run: processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.runs.sweeps.points import plan_point, run_point

Task = tuple[str, dict[str, Any]]
Work = Callable[[Sequence[Task]], Iterator[tuple[str, dict[str, Any]]]]
"""What runs tasks somewhere and yields their keys and rows as they finish."""


def on_this_machine(workers: int, *, plan_only: bool = False) -> Work:
    """What computes tasks in some processes of this machine.

    Parameters
    ----------
    workers
        Processes, by joblib; one is this process.
    plan_only
        Whether to plan only.
    """
    task_done = partial(_do, plan_only=plan_only)

    def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        if workers == 1 or len(tasks) <= 1:
            with one_blas_thread():
                yield from map(task_done, tasks)
            return
        parallel = _joblib().Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from parallel(_joblib().delayed(task_done)(task) for task in tasks)

    if workers > 1:
        _joblib()  # a message now, before anything is computed
    return work


def _joblib() -> Any:
    """The module joblib."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra(
            "a sweep on several processors needs joblib: pip install 'flmc[sweep]', or use one"
            " worker"
        ) from error
    return joblib


def _do(task: Task, *, plan_only: bool) -> tuple[str, dict[str, Any]]:
    """Key and row of one task."""
    key, given = task
    return key, plan_point(given) if plan_only else run_point(given)


@contextmanager
def on_dask(address: str, workers: int, *, plan_only: bool = False) -> Iterator[Work]:
    """What computes tasks on a Dask cluster; a task whose worker dies runs elsewhere.

    Parameters
    ----------
    address
        Where its scheduler is, or `local` for processes of this machine.
    workers
        Number of these processes.
    plan_only
        Whether to plan only.
    """
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
    with client:

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
            yield work
        finally:
            if cluster is not None:
                cluster.close()
