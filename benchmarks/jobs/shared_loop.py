"""A second C reference that may lie beside the repository (``../shared``, or FLMC_SHARED), as a row
of its own. It gives the mean squared error of every experiment only."""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

import numpy as np

from jobs.c_loop import LANES, make_inputs, to_blocks
from jobs.problem import Problem
from measuring.job import Absent, Job
from native.building import build, pointer

_TERMS = 6


def shared_loop(**sizes: Any) -> Job:
    """That reference on a problem; it has its own generators and no clipping counts."""
    beside = Path(__file__).parents[2].parent / "shared"
    source = Path(os.environ.get("FLMC_SHARED", beside)) / "reference" / "loop.c"
    if not source.exists():
        raise Absent("there is no shared reference")
    problem = Problem(**sizes)
    if problem.dim != 5:
        raise Absent("the shared reference has 5 entries")
    inputs, model, plan = make_inputs(problem), problem.model, problem.plan
    library = build(source, "-ffast-math")
    call = library.run_dig if problem.scheme == "digital" else library.run_ana
    clip = float(plan.uplink.clip)
    rows, columns = np.triu_indices(5)
    data = np.concatenate(
        [to_blocks(model.hessian[..., rows, columns]), to_blocks(model.offset)], axis=2
    )
    mean = to_blocks(model.posterior.mean)
    # Its polynomial is one of the gradient itself, lowest coefficient first.
    degrees = np.arange(1, 2 * _TERMS, 2)
    terms = np.zeros(_TERMS)
    terms[: len(inputs.curve)] = inputs.curve[::-1]
    curve = np.asarray(terms / clip**degrees, np.float32)
    out = np.empty((len(data), LANES), np.float32)

    def turn() -> None:
        call(
            pointer(data),
            pointer(mean),
            ctypes.c_long(len(data)),
            ctypes.c_long(problem.devices),
            ctypes.c_uint64(1),
            ctypes.c_long(plan.num_rounds),
            ctypes.c_long(plan.num_burn_in),
            ctypes.c_float(float(plan.step_size)),
            ctypes.c_float(float(plan.uplink.noise_power**0.5 / plan.typical_gain)),
            ctypes.c_float(clip),
            pointer(curve),
            pointer(out),
            None,
        )

    # Whoever reads the JSON can hold it against the other engines.
    turn()
    return Job(turn, {"mean_squared_error": float(out.mean())})


JOBS = {"shared C": shared_loop}
