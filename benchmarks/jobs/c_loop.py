"""The C reference ``native/loop.c`` on a problem: what the engine's kernel computes, from the same
data, with random numbers of its own."""

from __future__ import annotations

import ctypes
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

import flmc
from jobs.problem import Problem
from measuring.job import Absent, Job
from native.building import Floats, build, pointer

SOURCE = Path(__file__).parents[1] / "native" / "loop.c"
LANES, TERMS = 8, 5


class Inputs(NamedTuple):
    """A problem in the form that C takes, single precision, gradients in units of the clip.

    Attributes
    ----------
    offset, hessian
        Constant parts (block, device, dim, lane) and lower triangles (block, device, product,
        lane) of the gradients, as functions of the deviation from the posterior mean.
    pull, noise
        Factors of the sum of symbols and of the normals in every round.
    curve
        2^31 times the mean bit, as coefficients of an odd polynomial, highest first.
    start
        Mean of the first deviation, (block, dim, lane).
    """

    offset: Floats
    hessian: Floats
    pull: Floats
    noise: Floats
    curve: Floats
    start: Floats


class Outputs(NamedTuple):
    """Sums over kept rounds of every experiment, as the kernel gives them.

    Attributes
    ----------
    sums
        Of deviations, (experiment, dim).
    products
        Of two entries of them, (experiment, product), lower triangle row by row.
    num_clipped
        Clipped entries of all experiments.
    """

    sums: Floats
    products: Floats
    num_clipped: int


def to_blocks(values: npt.NDArray[np.float64]) -> Floats:
    """Experiments as the lanes of blocks: (experiment, ...) becomes (block, ..., lane)."""
    blocks = values.reshape(-1, LANES, *values.shape[1:])
    return np.ascontiguousarray(np.moveaxis(blocks, 1, -1), np.float32)


def make_inputs(problem: Problem) -> Inputs:
    """The problem's model and plan for C."""
    if problem.experiments % LANES or problem.chains != 1:
        raise Absent(f"the C reference takes one chain, and a multiple of {LANES} experiments")
    model, plan = problem.model, problem.plan
    clip, mean = float(plan.uplink.clip), model.posterior.mean
    hessian = model.hessian / clip
    offset = model.offset / clip - np.einsum("ekij,ej->eki", hessian, mean)
    rows, columns = np.tril_indices(model.dim)
    pull = np.asarray(plan.step_sizes) * np.ones(plan.num_rounds)
    noise = pull * np.sqrt(plan.uplink.noise_power) / plan.typical_gain
    digital = isinstance(plan.uplink, flmc.Digital)
    return Inputs(
        to_blocks(offset),
        to_blocks(hessian[..., rows, columns]),
        np.asarray(pull * (1.0 if digital else clip), np.float32),
        np.asarray(noise, np.float32),
        mean_bit(plan.uplink) if isinstance(plan.uplink, flmc.Digital) else np.zeros(1, np.float32),
        to_blocks(model.prior.mean - mean),
    )


def mean_bit(uplink: flmc.Digital) -> Floats:
    """2^31 times the mean bit of a gradient in units of the clip: an odd polynomial through
    Chebyshev's points."""
    points = np.polynomial.chebyshev.chebpts1(2 * TERMS)
    mean = 2.0 * np.asarray(uplink.link.probability(uplink.clip * points)) - 1.0
    powers = points[:, None] ** np.arange(2 * TERMS - 1, 0, -2)
    found, *_ = np.linalg.lstsq(powers, mean, rcond=None)
    return np.asarray(2.0**31 * found, np.float32)


class Reference:
    """The built reference for one problem."""

    def __init__(self, problem: Problem) -> None:
        self._inputs, self._problem = make_inputs(problem), problem
        dim, blocks = problem.dim, problem.experiments // LANES
        library = build(SOURCE, f"-DDIM={dim}", f"-DTERMS={TERMS}")
        self._call = library.run_rounds
        self._call.restype = ctypes.c_long
        self._data = np.concatenate([self._inputs.offset, self._inputs.hessian], axis=2)
        self._sums = np.empty((blocks, dim, LANES), np.float32)
        self._products = np.empty((blocks, dim * (dim + 1) // 2, LANES), np.float32)

    def run(self) -> Outputs:
        """All rounds of all experiments."""
        problem, plan, inputs = self._problem, self._problem.plan, self._inputs
        num_clipped = self._call(
            ctypes.c_int(problem.scheme == "digital"),
            pointer(self._data),
            ctypes.c_long(len(self._data)),
            ctypes.c_long(problem.devices),
            ctypes.c_long(plan.num_rounds),
            ctypes.c_long(plan.num_burn_in),
            pointer(inputs.pull),
            pointer(inputs.noise),
            pointer(inputs.curve),
            pointer(inputs.start),
            ctypes.c_float(float(np.max(problem.model.prior.sd))),
            ctypes.c_uint32(1),
            pointer(self._sums),
            pointer(self._products),
        )
        sums, products = (
            np.moveaxis(array, -1, 1).reshape(problem.experiments, -1)
            for array in (self._sums, self._products)
        )
        return Outputs(sums, products, num_clipped)


def c_loop(**sizes: Any) -> Job:
    """The C reference on a problem."""
    return Job(Reference(Problem(**sizes)).run, {})


JOBS = {"C": c_loop}
