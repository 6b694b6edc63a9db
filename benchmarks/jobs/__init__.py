"""What the cases do: each job prepares its problem once, and does the same at every turn."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

from measuring.job import Job

_PLACES = {
    "kernel": "simulations",
    "run": "simulations",
    "fresh run": "simulations",
    "plan": "simulations",
    "answer": "simulations",
    "plain loop": "plain_loop",
    "random numbers": "random_numbers",
    "C": "c_loop",
    "shared C": "shared_loop",
    "multiplications": "machine_limits",
    "memory": "machine_limits",
    "first start": "starts",
    "cached start": "starts",
    "peer": "peer",
    "peer sampling": "peer",
    "plain numba": "plain_numba",
    "engine rounds": "plain_numba",
    "part": "whole_parts",
}
"""Module of every job. A module is imported where its job is done: a child's memory is that of its
own case, and an old commit need not have what another case uses."""


def _load(name: str) -> Callable[..., Job]:
    def make(**arguments: Any) -> Job:
        module = import_module(f"jobs.{_PLACES[name]}")
        made: Job = module.JOBS[name](**arguments)
        return made

    return make


JOBS: dict[str, Callable[..., Job]] = {name: _load(name) for name in _PLACES}
"""Makers of jobs by name."""
