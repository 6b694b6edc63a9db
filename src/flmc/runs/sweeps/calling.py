"""``flmc.sweep``: a grid of settings from Python.

Settings are checked by a library that ``import flmc`` does not load, so this module imports the
rest of the package when it is called."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.progress import Progress
from flmc.runs.sweeps.table import Sweep


def sweep(
    settings: Mapping[str, Any] | str | Path,
    *,
    vary: Mapping[str, Iterable[Any] | Mapping[str, Any]] | None = None,
    out: str | Path | None = None,
    workers: int | None = None,
    plan_only: bool = False,
    progress: Progress | None = None,
) -> Sweep:
    """Plan and run every point of a grid of settings, each on one thread, and return a table.

    Parameters
    ----------
    settings
        Settings that all points share, by the names of the command line (``snr_db``, ``rounds``);
        or the path of a TOML file with them, which may have a table ``[sweep]``.
    vary
        Settings that vary, by name: each a list of values, or a range ``{"start", "stop", "count",
        "spacing"}``. They come beside those of a table ``[sweep]``, and beat them.
    out
        Directory where the table and finished points are kept, so that a second call computes only
        what is missing; None: nothing is written.
    workers
        Processes. None: all processors, and this process for ``plan_only``, where a point takes
        milliseconds.
    plan_only
        Whether to plan only: the table then has the columns of plans, and nothing is simulated.
    progress
        Called with the finished fraction now and then.

    Returns
    -------
    Sweep
        ``rows`` has a dict for each point, ``print`` shows the main columns. A point that failed is
        a row with its ``error``.

    Raises
    ------
    InvalidSetting
        If a setting is unknown, out of bounds or given twice, or nothing varies.
    RunFailed
        If ``out`` cannot be written.

    Examples
    --------
    >>> planned = flmc.sweep(
    ...     {"devices": 4, "samples": 80}, vary={"snr_db": [0, 30]}, plan_only=True
    ... )
    >>> [row["binding"] for row in planned.rows]
    ['power', 'langevin']
    >>> small = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "engine": "numpy"}
    >>> done = flmc.sweep(small, vary={"scheme": ["digital", "analog"]}, workers=1)
    >>> [row["scheme"] for row in done.rows], done.num_failed
    (['digital', 'analog'], 0)
    """
    from flmc.runs.sweeps.grid import read_grid
    from flmc.runs.sweeps.sweeping import run_grid
    from flmc.runs.sweeps.workers import on_this_machine
    from flmc.settings.schema import read_file

    if isinstance(settings, Mapping):
        document = dict(settings)
    elif isinstance(settings, (str, Path)):
        document = read_file(Path(settings))
    else:
        raise InvalidSetting(
            f"settings must be a mapping, or the path of a TOML file; got {type(settings).__name__}"
        )
    if vary is not None:
        document["sweep"] = {**document.get("sweep", {}), **_axes(vary)}
    if workers is None:
        workers = 1 if plan_only else os.cpu_count() or 1
    work = on_this_machine(checks.at_least("workers", workers, 1), plan_only=plan_only)
    place = None if out is None else Path(out)
    return run_grid(read_grid(document, {}), place, work, progress, plan_only=plan_only)


def _axes(vary: Mapping[str, Any]) -> dict[str, Any]:
    """What varies, with tuples, ranges and arrays as the lists that a file would have."""
    if not isinstance(vary, Mapping):
        raise InvalidSetting(
            f"vary must be a dict of lists or ranges by setting, got {type(vary).__name__}"
        )
    axes: dict[str, Any] = {}
    for name, values in vary.items():
        if hasattr(values, "tolist"):  # an array of NumPy
            axes[name] = values.tolist()
        elif isinstance(values, (str, Mapping)) or not isinstance(values, Iterable):
            axes[name] = values
        else:
            axes[name] = [each.item() if hasattr(each, "item") else each for each in values]
    return axes
