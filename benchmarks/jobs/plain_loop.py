"""The standard point as a researcher would write it first."""

from __future__ import annotations

from typing import Any

import numpy as np

import flmc
from jobs.problem import Problem
from measuring.job import Job


def loop(model: flmc.LinearGaussian, plan: flmc.Plan) -> None:
    """One experiment, one round, one device after the other."""
    rng = np.random.default_rng(0)
    gain, step, slope = plan.typical_gain, plan.step_size, 0.05
    for experiment in range(model.num_experiments):
        hessian, offset = model.hessian[experiment], model.offset[experiment]
        theta = rng.standard_normal(model.dim)
        kept = []
        for r in range(plan.num_rounds):
            received = rng.standard_normal(model.dim)
            for k in range(model.num_devices):
                gradient = np.clip(hessian[k] @ theta - offset[k], -30.0, 30.0)
                if plan.uplink.scheme == "digital":
                    probability = 1 / (1 + np.exp(-slope * gradient))
                    received += gain * np.where(rng.random(model.dim) < probability, 1.0, -1.0)
                else:
                    received += gain * gradient
            theta = theta - step * received / gain
            if r >= plan.num_burn_in:
                kept.append(theta)


def plain_loop(**sizes: Any) -> Job:
    """The loop over a problem; it is so slow that callers give it few experiments."""
    problem = Problem(**sizes)
    return Job(lambda: loop(problem.model, problem.plan), {})


JOBS = {"plain loop": plain_loop}
