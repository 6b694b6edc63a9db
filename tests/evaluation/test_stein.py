"""Stein's identity: draws that are right, too wide, too narrow or off, judged by gradients
alone."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.stein import examine
from support import against_sampling, full, full_only

PRECISION = np.array([[2.0, 0.5], [0.5, 1.0]])
WIDE = flmc.Normal(0.0, 1e6)  # no prior to speak of
DRAWS = full(200, 50)


def normal() -> flmc.Model:
    return flmc.Model.from_gradient(
        lambda theta: (theta @ PRECISION)[:, None], prior=WIDE, dim=2, num_devices=1
    )


def draws_of(temperature: float, shift: float, seed: int = 0) -> Array:
    root = np.linalg.cholesky(np.linalg.inv(PRECISION) * temperature)
    return np.asarray(shift + np.random.default_rng(seed).standard_normal((20, DRAWS, 2)) @ root.T)


@pytest.mark.parametrize("temperature", [0.3, 1.0, 2.5])
def test_the_temperature_of_exact_draws(temperature: float) -> None:
    found = examine(normal(), draws_of(temperature, 0.0))
    assert abs(found.stein_ratio - temperature) < 5 * found.stein_ratio_se
    assert bool(found.warnings) == (temperature != 1.0)


def test_the_shift_of_the_mean() -> None:
    """By 0.8 in both entries; the worst is where the standard deviation is smaller."""
    found = examine(normal(), draws_of(1.0, 0.8))
    exact = 0.8 / math.sqrt(np.linalg.inv(PRECISION)[0, 0])
    assert abs(found.mean_shift - exact) < 5 * found.mean_shift_se
    assert any("standard deviations off" in text for text in found.warnings)


def test_a_posterior_that_is_not_normal() -> None:
    """Stein's identity holds for any posterior: here the logistic distribution, U' =
    tanh(theta/2)."""
    model = flmc.Model.from_gradient(
        lambda theta: np.tanh(theta / 2)[:, None], prior=WIDE, dim=1, num_devices=1
    )
    found = examine(model, np.random.default_rng(1).logistic(size=(20, DRAWS, 1)))
    assert abs(found.stein_ratio - 1) < 5 * found.stein_ratio_se
    assert not found.warnings


def logistic() -> flmc.Model:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(20, 50, 3))
    labels = np.where(features @ [1.0, -1.0, 0.5] + rng.logistic(size=(20, 50)) > 0, 1.0, -1.0)

    def gradient(theta: Array) -> Array:
        margin = labels * np.einsum("kne,ce->ckn", features, theta)
        return np.asarray(
            -np.einsum("ckn,kn,kne->cke", 1 / (1 + np.exp(margin)), labels, features, optimize=True)
        )

    return flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(), dim=3, num_devices=20, smoothness=350.0, convexity=80
    )


@full_only
@pytest.mark.parametrize(
    ("uplink", "warned"),
    [
        (flmc.Ideal(), ""),
        (flmc.Digital(link=flmc.Sigmoid(0.2), clip=10.0), ""),
        (flmc.Digital(link=flmc.Sigmoid(2.0), clip=15.0), "too wide"),
        (flmc.Analog(clip=2.0), "too wide"),
    ],
    ids=["ideal", "fitting", "steep", "clipped"],
)
@pytest.mark.parametrize("keep_draws", [True, False])
def test_runs(uplink: flmc.Uplink, warned: str, keep_draws: bool) -> None:
    """A link that is too steep for a model's gradients, or a clip that is too small, is told by the
    plan, which asks a pilot; the run finds out as well."""
    model = logistic()
    plan = flmc.plan(model, uplink, num_rounds=700, num_burn_in=400)
    assert bool(against_sampling(plan)) == bool(warned)
    result = flmc.run(plan, model, chains=60, keep_draws=keep_draws)
    assert ("too wide" in str(result)) == bool(warned)
    assert result.evidence is not None
    assert result.to_document()["evidence"]["stein_ratio"] == result.evidence.stein_ratio
    assert result.evidence.num_judged == 1 + 4 * 3  # all, and ratio and shift of each entry, axis


def test_what_a_user_s_function_may_do_wrong() -> None:
    def edits(theta: Array) -> Array:
        theta *= 2.0
        return theta[:, None]

    def empty(theta: Array) -> Array:
        return np.full((len(theta), 1, 2), np.nan)

    def make(function: Any, **settings: Any) -> flmc.Model:
        usual: dict[str, Any] = {
            "prior": flmc.Normal(),
            "dim": 2,
            "num_devices": 1,
            "smoothness": 3.0,
        }
        return flmc.Model.from_gradient(function, **{**usual, **settings})

    good = normal()
    plan = flmc.plan(make(empty), flmc.Digital(), num_rounds=10, num_burn_in=5)
    with pytest.raises(ValueError, match="read-only"):
        flmc.run(plan, make(edits))
    with pytest.raises(flmc.errors.RunFailed, match="not one gradient was finite"):
        flmc.run(plan, make(empty))
    for settings, message in (
        ({"prior": 1.0}, "prior must be a flmc.Normal"),
        ({"prior": flmc.Normal(0.0, np.ones(3))}, "prior sd must be a number or 2 numbers"),
        ({"posterior": flmc.Gaussian(np.zeros(3), np.eye(3))}, "posterior must have dim 2, got 3"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            make(good.gradient, **settings)
    lazy = make(
        lambda theta: theta[:, None] + 1.0,
        clipped_gradient=lambda theta, clip: theta[:, None] + 1.0,
    )
    with pytest.raises(InvalidSetting, match="clipped_gradient does not clip"):
        flmc.plan(
            lazy,
            flmc.Digital(example_clip=1.0),
            flmc.Limits(epsilon=1, scope="run", neighbouring="example"),
        )


def test_early_steps_that_are_unstable_are_warned_of() -> None:
    plan = flmc.plan(
        logistic(), flmc.Ideal(), num_rounds=700, num_burn_in=400, burn_in_step_factor=100.0
    )
    assert any("early steps unstable" in text for text in plan.warnings)
