"""The random numbers of a problem and nothing else: a limit of any engine that draws them."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from jobs.problem import Problem
from measuring.job import Job, need


def random_numbers(**sizes: Any) -> Job:
    """Words and normals of all rounds, by as many threads as the engine has."""
    need("numba")
    problem, threads = Problem(**sizes), os.cpu_count() or 1

    def turn() -> None:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(_draw, [problem] * threads, [threads] * threads))

    return Job(turn, {})


def _draw(problem: Problem, threads: int) -> None:
    """The share of one thread."""
    from flmc.sampling.compiled import kernel
    from flmc.sampling.compiled.kernel import LANES

    lanes = -(-problem.experiments * problem.chains // threads)
    state = np.random.default_rng(0).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    words = np.empty(max(problem.devices, 8) * problem.dim * LANES, np.uint32)
    normals = np.empty(8 * problem.dim * LANES, np.float32)
    bits = problem.devices * problem.dim if problem.scheme == "digital" else 0
    kernel.draw_alone(
        state,
        words,
        normals,
        np.uint64(bits),
        np.uint64(8 * problem.dim),
        -(-lanes // LANES),
        problem.rounds,
    )


JOBS = {"random numbers": random_numbers}
