"""The eight hospitals of the examples against NUTS, another sampler by other people (NumPyro).

Both sample a logistic regression with 31 parameters: flmc over eight unlike devices and a noisy
channel, one random bit an entry, NUTS with all data in one place and an acceptance step."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.models.log_density import LogDensityModel
from support import QUICK, computed_once, full, full_only

jax = pytest.importorskip("jax", reason="needs the extra jax")
numpyro = pytest.importorskip("numpyro", reason="needs NumPyro, of the group test")

MEAN_BAR, SD_BAR = 0.1, 0.1
"""Largest difference of a mean, in posterior standard deviations, and of a standard deviation,
relative to it."""
ERRORS = 5.0
"""Standard errors of the difference that must fit into a bar: 31 means stay within them with a
probability of 1 - 2e-5, so what is beyond the bar is no accident."""
CLIP = 1.5
RecordProperty = Callable[[str, object], None]


@pytest.fixture(scope="module")
def example() -> Any:
    """The example's own densities and files."""
    path = Path(__file__).parents[2] / "examples" / "hospitals.py"
    spec = importlib.util.spec_from_file_location("hospitals", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def plain(example: Any, tmp_path_factory: pytest.TempPathFactory) -> LogDensityModel:
    """The example's model in its own coordinates."""
    place = tmp_path_factory.mktemp("hospitals")
    example.write_hospitals(place)
    data = flmc.data.read(str(place / "*.csv"), target="diagnosis", standardise="data")
    start = {"slope": np.zeros(30), "intercept": 0.0}
    model = flmc.Model.from_log_density(example.log_prior, example.log_likelihood, data, start)
    assert isinstance(model, LogDensityModel)
    return model


@pytest.fixture(scope="module")
def hospitals(plain: LogDensityModel) -> LogDensityModel:
    """The same in coordinates in which its posterior is round."""
    return plain.whitened()


@pytest.fixture(scope="module")
def reference(
    hospitals: LogDensityModel, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Array, float]:
    """Draws of NUTS, (chain, draw, dim), in the order of theta, and the seconds that they took."""
    draws = computed_once(tmp_path_factory, "nuts", lambda: draw_reference(hospitals))
    return draws["theta"], float(draws["seconds"])


def draw_reference(hospitals: LogDensityModel) -> dict[str, Array]:
    import numpyro.distributions as law
    from numpyro.infer import MCMC, NUTS

    rows = hospitals.data.rows()
    x, y = rows["x"], (rows["y"] > 0).astype(int)

    def model() -> None:
        intercept = numpyro.sample("intercept", law.Normal(0.0, 5.0))
        slope = numpyro.sample("slope", law.Normal(np.zeros(30), 1.0).to_event(1))
        numpyro.sample("y", law.Bernoulli(logits=intercept + x @ slope), obs=y)

    began = time.perf_counter()
    with jax.enable_x64():
        sampler = MCMC(
            NUTS(model),
            num_warmup=full(500, 300),
            num_samples=full(3000, 600),
            num_chains=2,
            chain_method="vectorized",
            progress_bar=False,
        )
        sampler.run(jax.random.PRNGKey(0))
        draws = sampler.get_samples(group_by_chain=True)
        assert not sampler.get_extra_fields()["diverging"].any()
        parts = [np.array(draws["intercept"])[..., None], np.array(draws["slope"])]
    seconds = np.array(time.perf_counter() - began)
    return {"theta": np.concatenate(parts, axis=2), "seconds": seconds}


def plan_with(model: flmc.Model, link: flmc.Link, num_rounds: int) -> flmc.Plan:
    uplink = flmc.Digital(link=link, clip=CLIP, snr_db=25)
    limits = flmc.Limits(privacy="off")
    return flmc.plan(model, uplink, limits, num_rounds=num_rounds, num_burn_in=500)


def effective_draws(draws: Array) -> Array:
    """Effective sample size of every entry's mean, by ArviZ."""
    from arviz_stats import base

    size: Any = base.array_stats.ess  # type: ignore[attr-defined]
    each = [
        size(entry, chain_axis=-2, draw_axis=-1, method="mean")
        for entry in np.moveaxis(draws, 2, 0)
    ]
    return np.array(each, dtype=np.float64)


def compare(found: Array, expected: Array) -> tuple[Array, Array, Array]:
    """Difference of means over the standard deviation, ratio of standard deviations less 1, and
    the standard error of the former, each (dim).

    The relative error of a standard deviation is about that error over sqrt(2)."""
    sd = expected.std(axis=(0, 1))
    away = (found.mean(axis=(0, 1)) - expected.mean(axis=(0, 1))) / sd
    error = np.sqrt(1 / effective_draws(found) + 1 / effective_draws(expected))
    return away, found.std(axis=(0, 1)) / sd - 1, error


@full_only
def test_posterior_is_that_of_nuts(
    plain: LogDensityModel,
    reference: tuple[Array, float],
    record_property: RecordProperty,
) -> None:
    """In two stages, as the example has it: its rounds, with twice its chains."""
    plan = flmc.plan_two_stages(
        plain,
        flmc.Digital(link=flmc.Linear(), clip=4, snr_db=25),
        flmc.Limits(privacy="off"),
        num_rounds=120_000,
        pilot_rounds=60_000,
        public_smoothness=100,
        public_convexity=1,
    )
    began = time.perf_counter()
    result = flmc.run_two_stages(plan, plain, seed=7, chains=8, thin=5).main
    seconds = time.perf_counter() - began
    expected, reference_seconds = reference
    away, wider, error = compare(result.draws, expected)
    for name, draws, took in (
        ("flmc", result.draws, seconds),
        ("NUTS", expected, reference_seconds),
    ):
        # Plain numbers: what is recorded travels between the processes of a test run.
        least = float(effective_draws(draws).min())
        told = f"{name}: {least:.0f} effective draws in {took:.1f} s, {least / took:.0f} a second"
        logging.getLogger(__name__).info(told)
        record_property(f"effective draws of {name} a second", round(least / took, 1))
    logging.getLogger(__name__).info(
        "means differ by %.3f sd at most, standard deviations by %.3f",
        np.abs(away).max(),
        np.abs(wider).max(),
    )
    # In full the error fits into the bars; a quick run is judged by its error instead.
    assert QUICK or ERRORS * error.max() <= MEAN_BAR
    assert (np.abs(away) <= np.maximum(MEAN_BAR, ERRORS * error)).all()
    # The step's own error is below 2 %.
    assert (np.abs(wider) <= np.maximum(SD_BAR, 0.02 + ERRORS * error / np.sqrt(2))).all()
    assert not [f for f in result.findings if f.code in ("mean-shift", "variance-ratio")]


@full_only
def test_a_steep_sigmoid_fails_and_is_warned_of_before(
    hospitals: LogDensityModel, reference: tuple[Array, float]
) -> None:
    """On devices this unlike a curved link moves means and widens draws. The check of the model,
    which every plan and run makes, tells it before."""
    plan = plan_with(hospitals, flmc.Sigmoid(5.0), full(4_000, 2_500))
    found = {finding.code: finding for finding in flmc.check_model(hospitals, plan)}
    assert set(found) == {"mean-shift", "variance-ratio"}
    assert all("the linear link" in finding.message for finding in found.values())
    straight = plan_with(hospitals, flmc.Linear(), 2_500)
    assert flmc.check_model(hospitals, straight) == ()
    result = flmc.run(plan, hospitals, seed=7, chains=16)
    away, wider, error = compare(result.draws, reference[0])
    # Beyond the bars by more than chance explains.
    assert np.max(np.abs(away) - ERRORS * error) > MEAN_BAR
    assert np.max(wider - ERRORS * error / np.sqrt(2)) > SD_BAR
    # What was told is of the worst direction: in these coordinates, where the posterior is round,
    # the length of the whole shift; a normal law and a nearly flat link are rough.
    told = found["mean-shift"].numbers["mean_shift"]
    assert 0.5 * told < np.linalg.norm(away) < 2.0 * told
    assert {f.code for f in result.model_findings} == set(found)
