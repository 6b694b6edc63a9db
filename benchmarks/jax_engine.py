"""What a round of the JAX engine costs beside its gradients, and beside the other engines.

CPU time of all threads, medians of interleaved repeats. Writes a table, and the same as JSON with
``--json FILE``. Usage: jax_engine.py [--repeats N] [--hidden UNITS] [--json FILE]."""

from __future__ import annotations

import argparse
import json
import resource
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
from engines import interleaved, table

import flmc
from flmc.models.networks import mlp
from flmc.models.regressions import logistic
from flmc.sampling.simulation import simulate
from flmc.sampling.traced.jax_engine import JaxEngine

ROUNDS = 20
"""Rounds of one job with a network."""


def network_round(repeats: int, hidden: int) -> dict[str, Any]:
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
        "gradients": lambda: jax.block_until_ready(alone(theta, rows))
    }
    for uplink in (
        flmc.Digital(link=flmc.Linear(), clip=5.0),
        flmc.Digital(clip=5.0),
        flmc.Analog(),
    ):
        limits = flmc.Limits(privacy="off")
        plan = flmc.plan(
            model, uplink, limits, num_rounds=10**6, num_burn_in=10, step_size=1e-4, forecast=False
        )
        chains = engine.start(plan, model, 0, 1, keep_draws=False)

        def advance(chains: Any = chains, plan: flmc.Plan = plan) -> None:
            engine.advance(chains, plan, model, 0, chains.round + ROUNDS)

        digital = isinstance(uplink, flmc.Digital)
        link = f" {type(uplink.link).__name__.lower()}" if digital else ""
        jobs[f"{uplink.scheme}{link}"] = advance
    found = interleaved(jobs, repeats)
    each = {f"{name} ms a round": 1e3 * value / ROUNDS for name, value in found.items()}
    ratios = {
        f"{name} over gradients": value / found["gradients"]
        for name, value in found.items()
        if name != "gradients"
    }
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {"parameters": model.dim, **each, **ratios, "peak MB": peak}


def logistic_run(repeats: int) -> dict[str, Any]:
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
    return {
        "jax seconds": found["jax"],
        "numpy seconds": found["numpy"],
        "numpy over jax": found["numpy"] / found["jax"],
    }


def linear_run(repeats: int) -> dict[str, Any]:
    """The standard point with 1000 chains of one data set, by all three engines."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), forecast=False)
    names = ("numba", "jax", "numpy")
    jobs = {name: lambda name=name: simulate(plan, model, 0, 1000, engine=name) for name in names}
    found = interleaved(jobs, repeats)
    return {
        **{f"{name} seconds": found[name] for name in names},
        "jax over numba": found["jax"] / found["numba"],
        "numpy over jax": found["numpy"] / found["jax"],
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--hidden", type=int, default=282, help="units of both hidden layers")
    parser.add_argument("--json", type=Path, metavar="FILE")
    options = parser.parse_args()
    document = {
        "network": network_round(options.repeats, options.hidden),
        "logistic": logistic_run(options.repeats),
        "linear": linear_run(options.repeats),
    }
    for name, row in document.items():
        print(f"{name}\n\n{table([row])}\n")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(document, indent=1) + "\n")


if __name__ == "__main__":
    main()
