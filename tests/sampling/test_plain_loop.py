"""An independent implementation: plain loops over devices and entries, its own data, gradients and
random numbers."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest

import flmc
from support import full

DEVICES, DIM, SAMPLES, ROUNDS, BURN_IN = 4, 2, 40, 60, 20


def plain_loop(
    features: list[list[float]],
    targets: list[float],
    mean: list[float],
    gain: float,
    step: float,
    digital: bool,
    seed: int,
) -> float:
    """Mean over kept rounds of the squared distance to the posterior mean, for one chain."""
    rng = random.Random(seed)
    share = SAMPLES // DEVICES
    theta = [rng.gauss(0, 1) for _ in range(DIM)]
    total = 0.0
    for s in range(ROUNDS):
        received = [0.0] * DIM
        for k in range(DEVICES):
            for i in range(DIM):
                g = theta[i] / DEVICES
                for n in range(k * share, (k + 1) * share):
                    residual = targets[n] - sum(features[n][j] * theta[j] for j in range(DIM))
                    g -= residual * features[n][i]
                g = max(-8.0, min(8.0, g))
                if digital:
                    g = 1.0 if rng.random() < 1 / (1 + math.exp(-0.2 * g)) else -1.0
                received[i] += gain * g
        theta = [
            theta[i] - step * (received[i] + rng.gauss(0, math.sqrt(0.5))) / gain
            for i in range(DIM)
        ]
        if s >= BURN_IN:
            total += sum((theta[i] - mean[i]) ** 2 for i in range(DIM))
    return total / (ROUNDS - BURN_IN)


@pytest.mark.parametrize("digital", [True, False], ids=["digital", "analog"])
def test_agrees_with_the_engine(digital: bool) -> None:
    data = flmc.data.draw_linear(seed=9, num_samples=SAMPLES, dim=DIM, num_devices=DEVICES)
    model = flmc.LinearGaussian(data)
    step = 0.02 if digital else 0.004
    radio = {"clip": 8.0, "fading": flmc.ConstantFading(0.3), "snr_db": 20.0, "noise_power": 0.5}
    uplink = flmc.Digital(link=flmc.Sigmoid(0.2), **radio) if digital else flmc.Analog(**radio)  # type: ignore[arg-type]
    gain = 0.15
    plan = flmc.plan(
        model,
        uplink,
        flmc.Limits(langevin="off"),
        num_rounds=ROUNDS,
        num_burn_in=BURN_IN,
        step_size=step,
        gain=gain,
    )
    fast = flmc.run(plan, model, seed=1, chains=full(4000, 1000), keep_draws=False).metrics
    assert fast is not None
    mean = model.posterior.mean[0].tolist()
    features, targets = data.features.tolist(), data.targets.tolist()
    slow = [
        plain_loop(features, targets, mean, gain, step, digital, seed)
        for seed in range(full(400, 60))
    ]
    error = np.hypot(np.std(slow, ddof=1) / np.sqrt(len(slow)), fast.mse.se)
    assert abs(np.mean(slow) - fast.mse.mean) < 5 * error
