"""What batches of examples cost and give, as ``docs/sampling.md`` (section 12) states it: processor
time of a device's gradient from a million examples, of a round of the engines, and answers from a
million examples.

    OPENBLAS_NUM_THREADS=1 python benchmarks/batches.py"""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import flmc
from flmc.deploy.device.local_model import local_gradient
from flmc.models.model import Model
from flmc.sampling.engine_choice import choose_engine

EXAMPLES, DIM, DEVICES, NORM = 10**6, 10, 10, 3.0
SHARES = (1.0, 0.1, 0.01, 0.001)


def milliseconds(work: Callable[[], object]) -> float:
    """Least processor time of five calls, after one that compiles."""
    work()
    took = []
    for _ in range(5):
        began = time.process_time()
        work()
        took.append(time.process_time() - began)
    return 1000 * min(took)


def models() -> dict[str, Model]:
    """A linear and a logistic regression on one device."""
    rng = np.random.default_rng(1)
    features, truth = rng.standard_normal((EXAMPLES, DIM)), 0.3 * rng.standard_normal(DIM)
    targets = features @ truth + rng.standard_normal(EXAMPLES)
    chance = 1 / (1 + np.exp(-features @ truth))
    classes = np.where(rng.random(EXAMPLES) < chance, 1.0, -1.0)
    linear = flmc.LinearData(features, targets, (EXAMPLES,))
    return {
        "linear regression": flmc.LinearGaussian(linear),
        "logistic regression": flmc.models.regressions.logistic(
            flmc.data.FederatedData(features, classes, (EXAMPLES,))
        ),
    }


def gradients() -> None:
    """Print a table of the gradient's time by share."""
    for name, model in models().items():
        cells = []
        for share in SHARES:
            uplink = flmc.Analog(example_norm=NORM, batch_share=share)
            # Far from the mode every example is evaluated: sorted ones would not be.
            theta = np.full(model.dim, 30.0 if name.startswith("linear") else 0.3)
            gradient = local_gradient(model, uplink, 1)
            cells.append(f"{milliseconds(lambda g=gradient, t=theta: g(t)):.2f} ms")  # type: ignore[misc]
        print(f"| {name} | {' | '.join(cells)} |")


def rounds() -> None:
    """Print a table of the time of a round of one chain, by engine and share, for a logistic
    regression on one device: from two runs that differ in their number of rounds, so that neither
    the start nor the way of the data to JAX is counted."""
    for examples in (10**5, 10**6):
        rng = np.random.default_rng(1)
        features, truth = rng.standard_normal((examples, DIM)), 0.3 * rng.standard_normal(DIM)
        chance = 1 / (1 + np.exp(-features @ truth))
        classes = np.where(rng.random(examples) < chance, 1.0, -1.0)
        data = flmc.data.FederatedData(features, classes, (examples,))
        model = flmc.models.regressions.logistic(data)
        for name in ("jax", "numpy"):
            cells = []
            for share in (1.0, 0.5, 0.1, 0.01, 0.001):
                work = share * examples
                few, many = (1, 5) if work > 2e5 else (1, 1 + round(min(126, 1e6 / work)))
                took = [_seconds(model, share, name, count) for count in (few, many)]
                cells.append(f"{1000 * (took[1] - took[0]) / (many - few):.2f} ms")
            print(f"| {examples} | {name} | {' | '.join(cells)} |", flush=True)


def _seconds(model: Model, share: float, name: str, count: int) -> float:
    """Least processor time of three calls that advance a chain by ``count`` rounds from its start,
    after one that compiles."""
    uplink = flmc.Analog(example_norm=NORM, clip=1e6, snr_db=60.0, batch_share=share)
    limits = flmc.Limits(privacy="off")
    sizes = {"num_rounds": 128, "num_burn_in": 1, "step_size": 1e-9, "gain": 1e-6}
    plan = flmc.plan(model, uplink, limits, **sizes, forecast=False)  # type: ignore[arg-type]
    engine, took = choose_engine(name, plan, model), []
    for _ in range(4):
        chains = engine.start(plan, model, 1, 1, keep_draws=False)
        began = time.process_time()
        engine.advance(chains, plan, model, 1, count)
        took.append(time.process_time() - began)
    return min(took[1:])


def answers() -> None:
    """Print the width of answers from ten passes over the data, beside the predicted one."""
    rng = np.random.default_rng(1)
    features, truth = rng.standard_normal((EXAMPLES, DIM)), 0.3 * rng.standard_normal(DIM)
    targets = features @ truth + rng.standard_normal(EXAMPLES)
    sizes = (EXAMPLES // DEVICES,) * DEVICES
    model = flmc.LinearGaussian(flmc.LinearData(features, targets, sizes))
    for share in (0.1, 0.01):
        uplink = flmc.Analog(clip=3e5, snr_db=60.0, batch_share=share)
        rounds = round(10 / share) + 200
        limits = flmc.Limits(privacy="off")
        plan = flmc.plan(model, uplink, limits, aim="answer", num_rounds=rounds)
        began = time.process_time()
        answer = flmc.run(plan, model, seed=1).posterior()
        took = time.process_time() - began
        sd = np.sqrt(np.diag(model.posterior.covariance[0]))
        assert plan.answer is not None
        print(
            f"share {share:g}: {rounds} rounds, width {np.mean(answer.sd[0] / sd):.3f}, predicted"
            f" {plan.answer.width:.3f}, {took:.1f} s"
        )


if __name__ == "__main__":
    gradients()
    rounds()
    answers()
