"""Sweeps: a grid of settings, its points, where they run, and the table that they make."""

from flmc.runs.sweeps.grid import SweepGrid, read_grid
from flmc.runs.sweeps.points import key_of, run_point
from flmc.runs.sweeps.sweeping import differs, sweep
from flmc.runs.sweeps.table import Sweep
from flmc.runs.sweeps.workers import on_dask, on_this_machine

__all__ = [
    "Sweep",
    "SweepGrid",
    "differs",
    "key_of",
    "on_dask",
    "on_this_machine",
    "read_grid",
    "run_point",
    "sweep",
]
