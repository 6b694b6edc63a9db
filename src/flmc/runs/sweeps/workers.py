"""Where the points of a sweep run: processes of this machine, or a Dask cluster."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from flmc.base.errors import InvalidSetting, MissingExtra, RunFailed
from flmc.runs.sweeps.points import run_point

Task = tuple[str, dict[str, Any]]
Work = Callable[[Sequence[Task]], Iterator[tuple[str, dict[str, Any]]]]
"""What runs tasks somewhere and yields their keys and rows as they finish."""


def on_this_machine(workers: int) -> Work:
    """What runs tasks in ``workers`` processes of this machine, by joblib."""
    try:
        import joblib
    except ImportError as error:
        raise MissingExtra(
            "a sweep on this machine needs joblib: pip install 'flmc[sweep]'"
        ) from error

    def work(tasks: Sequence[Task]) -> Iterator[tuple[str, dict[str, Any]]]:
        if workers == 1:
            yield from map(_run_task, tasks)
            return
        parallel = joblib.Parallel(n_jobs=workers, return_as="generator_unordered")
        yield from parallel(joblib.delayed(_run_task)(task) for task in tasks)

    return work


def _run_task(task: Task) -> tuple[str, dict[str, Any]]:
    key, given = task
    return key, run_point(given)


@contextmanager
def on_dask(address: str, workers: int) -> Iterator[Work]:
    """What runs tasks on the Dask cluster at ``address``, or with `local` in ``workers`` processes
    here; a task whose worker dies runs elsewhere."""
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
                client.submit(_run_task, task, key=task[0], retries=5): task[0] for task in tasks
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
