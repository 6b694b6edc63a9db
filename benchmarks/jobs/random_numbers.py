"""The random numbers of a problem and nothing else: a limit of any engine that draws them."""

from __future__ import annotations

import ctypes
import os
from concurrent.futures import ThreadPoolExecutor
from functools import cache
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
    from flmc.sampling.compiled.arrangement import LANES
    from flmc.sampling.compiled.instructions import ROUNDS_AT_ONCE

    lanes = -(-problem.experiments * problem.chains // threads)
    half = ROUNDS_AT_ONCE // 2 * problem.dim
    state = np.random.default_rng(0).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    words = np.empty(max(problem.devices * problem.dim, 2 * half) * LANES, np.uint32)
    normals = np.empty(2 * half * LANES, np.float32)
    bits = problem.devices * problem.dim if problem.scheme == "digital" else 0
    call = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 7)(_drawing())
    arrays = (state.ctypes.data, words.ctypes.data, normals.ctypes.data)
    call(*arrays, bits, half, -(-lanes // LANES), problem.rounds)


@cache
def _drawing() -> int:
    """The address of emitted code that draws and stores all words and normals."""
    from flmc.sampling.compiled.arrangement import LANES
    from flmc.sampling.compiled.instructions import (
        NUMBER,
        ROUNDS_AT_ONCE,
        WORDS,
        Code,
        Value,
        emitted,
    )
    from flmc.sampling.compiled.random_numbers import Generator, fill_normals

    def body(code: Code, arguments: list[Value]) -> None:
        state, words, normals, bits, half, blocks, rounds = arguments
        generator = Generator(code, state, WORDS)
        with code.loop(blocks), code.loop(rounds) as r:
            with code.when((r % ROUNDS_AT_ONCE).same(0)):
                fill_normals(code, generator, words, normals, half, half * LANES)
            with code.loop(bits) as n:
                code.store(words, n * LANES, generator())

    return emitted("random numbers alone", body, [NUMBER] * 7)


JOBS = {"random numbers": random_numbers}
