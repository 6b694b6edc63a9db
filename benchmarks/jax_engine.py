"""What a round of the JAX engine costs beside its gradients, and beside the other engines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import flmc
from flmc.models.networks import mlp
from flmc.models.regressions import logistic
from flmc.sampling.jax_engine import JaxEngine
from flmc.sampling.simulation import simulate
from measuring.timing import interleaved

_HIDDEN = 282
"""Units of both hidden layers of the network: some 100 000 parameters."""
ROUNDS = 20
"""Rounds of one job with a network."""


def network_rounds(repeats: int, hidden: int) -> list[dict[str, Any]]:
    """A digital and an analog round of one chain of a network on digits over 20 devices, full
    batches, single precision, beside the local gradients alone."""
    data = flmc.data.read("sklearn:digits").split(20, "iid", seed=1)
    model = mlp(data, (hidden, hidden), smoothness=4e4)
    costs = model.traced()
    assert costs is not None
    with jax.enable_x64():
        rows = jax.tree.map(lambda leaf: jax.numpy.asarray(leaf, np.float32), costs.data(0))
        theta = jax.numpy.asarray(model.start_point, np.float32)
        # Each round's gradients depend on those before, as in a run, so that none is left out.
        alone = jax.jit(
            lambda at, rows: jax.lax.fori_loop(
                0, ROUNDS, lambda _, at: at - 1e-9 * costs.gradients(at, rows)[0], at
            )
        )
    engine = JaxEngine()
    jobs: dict[str, Callable[[], Any]] = {
        "gradients": lambda: alone(theta, rows).block_until_ready()
    }
    uplinks = {
        "digital, linear link": flmc.Digital(link=flmc.Linear(), clip=5.0),
        "digital, sigmoid": flmc.Digital(clip=5.0),
        "analog": flmc.Analog(),
    }
    for name, uplink in uplinks.items():
        limits = flmc.Limits(privacy="off")
        plan = flmc.plan(
            model, uplink, limits, num_rounds=10**6, num_burn_in=10, step_size=1e-4, forecast=False
        )
        chains = engine.start(plan, model, 0, 1, keep_draws=False)

        def advance(chains: Any = chains, plan: flmc.Plan = plan) -> None:
            engine.advance(chains, plan, model, 0, chains.round + ROUNDS)

        jobs[name] = advance
    found = interleaved(jobs, repeats)
    return _rows(
        f"round, {model.dim:_} parameters".replace("_", " "), found, "gradients", 1 / ROUNDS
    )


def logistic_run(repeats: int) -> list[dict[str, Any]]:
    """A run of a small logistic regression, 8 chains, 1000 rounds, by JAX and by NumPy."""
    rng = np.random.default_rng(1)
    x, y = rng.standard_normal((600, 10)), np.where(rng.random(600) < 0.5, 1.0, -1.0)
    model = logistic(flmc.data.FederatedData(x, y, (60,) * 10), feature_norm=8.0)
    plan = flmc.plan(model, flmc.Digital(clip=20.0), num_rounds=1000, forecast=False)
    jobs = {
        name: lambda name=name: simulate(plan, model, 0, 8, engine=name)
        for name in ("jax", "numpy")
    }
    found = interleaved(jobs, repeats)
    return _rows("logistic regression, 11 parameters, 8 chains", found, "numpy")


def linear_run(repeats: int) -> list[dict[str, Any]]:
    """The standard point with 1000 chains of one data set, by all three engines."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), forecast=False)
    names = ("numba", "jax", "numpy")
    jobs = {name: lambda name=name: simulate(plan, model, 0, 1000, engine=name) for name in names}
    found = interleaved(jobs, repeats)
    return _rows("standard point, 1000 chains of one data set", found, "numba")


def _rows(
    what: str, found: dict[str, float], unit: str, scale: float = 1.0
) -> list[dict[str, Any]]:
    """A row for each job, with its time in units of another job's."""
    return [
        {"what": what, "job": name, "seconds": scale * seconds, "beside": unit,
         "times": seconds / found[unit]}
        for name, seconds in found.items()
    ]  # fmt: skip


def measure_jax(repeats: int) -> list[dict[str, Any]]:
    """A round of a network, a small logistic regression, and the standard point."""
    rows = network_rounds(repeats, _HIDDEN)
    return rows + logistic_run(repeats) + linear_run(repeats)
