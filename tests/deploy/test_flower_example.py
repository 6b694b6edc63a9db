"""The Flower example without Flower: its round is that of the roles, its bytes are the symbols, and
its chain finds the posterior."""

from __future__ import annotations

import importlib
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.privacy.safe_noise.noise_grid import NoiseGrid
from flmc.sampling.roles import air_on_grid, device_on_grid, server
from support import full, full_only

FOLDER = Path(__file__).parents[2] / "examples" / "flower"


@pytest.fixture(scope="module")
def task() -> Any:
    """The example's ``task.py``, in which all is computed."""
    return _imported("task")


@pytest.fixture(scope="module")
def report() -> Any:
    """The example's ``report.py``."""
    return _imported("report")


def _imported(name: str) -> Any:
    """A module of the example, which is not installed."""
    sys.path.insert(0, str(FOLDER))
    try:
        return importlib.import_module(f"flmc_flower.{name}")
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def settings(task: Any) -> Any:
    """The example's settings, as its pyproject has them."""
    document = tomllib.loads((FOLDER / "pyproject.toml").read_text())
    return task.Settings.from_run_config(document["tool"]["flwr"]["app"]["config"])


def test_the_file_is_the_default(task: Any, settings: Any) -> None:
    assert settings == task.Settings()
    with pytest.raises(InvalidSetting, match="num_round"):
        task.Settings.from_run_config({"num-round": 3})


def test_the_pure_part_does_not_need_flower() -> None:
    code = "import sys; sys.modules['flwr'] = None; import flmc_flower.task, flmc_flower.report"
    subprocess.run([sys.executable, "-c", code], cwd=FOLDER, check=True)


def test_the_plan_knows_no_data_and_keeps_the_budget(task: Any, settings: Any) -> None:
    plan = task.make_plan(settings)
    assert not plan.data_dependent
    assert plan.run_cost.epsilon <= settings.epsilon
    assert plan.temperature == pytest.approx(1.0, abs=1e-9)
    assert plan.rounds_needed <= settings.num_burn_in
    assert plan.gain.shape[0] == 1  # aggregate() takes the first row for every round


def test_a_round_is_that_of_the_roles(task: Any, settings: Any) -> None:
    """All devices at once by the roles, from the model of all data: the same numbers of the same
    source of entropy, in the same order, lead to the same theta. One step is the largest of the
    fast rounds, the other that of the kept ones."""
    plan = task.make_plan(settings)
    model = flmc.LinearGaussian(task.draw_data(settings))
    grid = NoiseGrid(plan.uplink.noise_power)
    theta = np.array([0.4, -0.25, 0.41, 0.8, 0.5])
    for number in (1, settings.num_fast, settings.num_fast + 1, settings.num_rounds):
        one, other = np.random.default_rng(number), np.random.default_rng(number)
        answers = [task.answer(theta, k, settings, one) for k in range(settings.num_devices)]
        found = task.aggregate(theta, answers, number, settings, one)

        gradient = plan.uplink.local_gradients(model, theta[None, None])[0, 0]
        sent = np.concatenate(
            [
                device_on_grid(each[None], plan.uplink, grid, plan.gain[0], other)
                for each in gradient
            ]
        )
        received = grid.values(air_on_grid(sent, grid, other))
        gain = grid.gain(plan.gain[0], plan.uplink.peak)
        step = plan.step_sizes[number - 1]
        devices = settings.num_devices
        expected = server(theta, received, step, gain, devices, devices)
        np.testing.assert_array_equal(found.theta, expected.theta)
        np.testing.assert_array_equal(found.estimate, expected.estimate)
        # In any order of the answers, from the same noise.
        again = np.random.default_rng(9), np.random.default_rng(9)
        in_order = task.aggregate(theta, answers, number, settings, again[0])
        reverse = task.aggregate(theta, answers[::-1], number, settings, again[1])
        np.testing.assert_array_equal(in_order.theta, reverse.theta)


def test_devices_have_the_gradients_of_the_whole(task: Any, settings: Any) -> None:
    """A device's own model, with its share of the prior, has its row of the whole model's gradient,
    up to the rounding of a sum over 6000 examples."""
    uplink = task.make_plan(settings).uplink
    whole = flmc.LinearGaussian(task.draw_data(settings))
    for theta in np.random.default_rng(1).normal(size=(3, settings.dim)):
        expected = uplink.local_gradients(whole, theta[None, None])[0, 0]
        found = [
            uplink.local_gradients(task.local_model(settings, k), theta[None, None])[0, 0, 0]
            for k in range(settings.num_devices)
        ]
        np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-8)


@pytest.mark.parametrize("dim", [1, 5, 8, 9, 16])
def test_packed_bits_are_the_symbols(task: Any, dim: int) -> None:
    rng = np.random.default_rng(dim)
    for symbols in rng.choice([-1.0, 1.0], size=(50, dim)):
        packed = task.pack(symbols)
        assert packed.dtype == np.uint8
        assert packed.shape == (-(-dim // 8),)
        np.testing.assert_array_equal(task.unpack(packed, dim), symbols)


def test_a_client_sends_the_symbols_of_its_gradient(task: Any, settings: Any) -> None:
    plan = task.make_plan(settings)
    theta = np.array([0.4, -0.25, 0.41, 0.8, 0.5])
    model = task.local_model(settings, 3)
    gradient = plan.uplink.local_gradients(model, theta[None, None])[0, 0]
    grid = NoiseGrid(plan.uplink.noise_power)
    seen = set()
    for seed in range(20):
        packed = task.answer(theta, 3, settings, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        steps = device_on_grid(gradient, plan.uplink, grid, plan.gain[0], rng)[0]
        np.testing.assert_array_equal(task.unpack(packed, settings.dim), np.sign(steps))
        seen.add(packed.tobytes())
    assert len(seen) > 1  # the bits are random


def test_what_is_no_answer_is_refused(task: Any, settings: Any) -> None:
    rng = np.random.default_rng(1)
    good = np.array([0b10110000], dtype=np.uint8)
    task.unpack(good, 5)
    for bad in (good.astype(np.int64), np.zeros(2, dtype=np.uint8), good | 0b00000100):
        with pytest.raises(RunFailed):
            task.unpack(bad, 5)
    with pytest.raises(RunFailed, match="must have 10 answers, got 9"):
        task.aggregate(np.zeros(5), [good] * 9, 1, settings, rng)
    for bad_theta in (np.zeros(4), np.array([0.0, np.nan, 0.0, 0.0, 0.0])):
        with pytest.raises(InvalidSetting, match="5 finite numbers"):
            task.answer(bad_theta, 0, settings, rng)
    with pytest.raises(InvalidSetting, match="from 0 to 9, got 10"):
        task.answer(np.zeros(5), 10, settings, rng)


@full_only
def test_the_chain_finds_the_posterior(task: Any, report: Any, settings: Any) -> None:
    """A few hundred rounds through the example's functions, several times.

    The mean of one chain has the standard error of ``compare``, 0.29 posterior standard deviations,
    so that of the mean over chains is smaller by the root of their number: 5 of those are allowed.
    Clipping single examples shifts the mean by a variance of 0.6 per cent of the posterior's over
    data sets (examples/private_posterior.py): a shift has a standard deviation of 0.08, of which 3
    are added. A chain that ignored the data would be 70 standard deviations away."""
    chains = full(6, 2)
    found = []
    for seed in range(chains):
        rng = np.random.default_rng(seed)
        theta, draws = np.zeros(settings.dim), []
        for number in range(1, settings.num_rounds + 1):
            answers = [task.answer(theta, k, settings, rng) for k in range(settings.num_devices)]
            theta = task.aggregate(theta, answers, number, settings, rng).theta
            if number > settings.num_burn_in:
                draws.append(theta)
        found.append(report.compare(np.array(draws), settings))
    error = found[0].error
    assert error == pytest.approx(np.sqrt(1.9 / (0.1 * 220)), rel=1e-6)
    differences = np.array([each.difference for each in found])
    assert (np.abs(differences.mean(axis=0)) < 5 * error / np.sqrt(chains) + 3 * 0.08).all()
    # The variance around the exact mean: 1 where the noise is right. A chain has about as many
    # effective draws n of the square as of the mean (more, because squares forget faster), and the
    # relative error of a variance of n draws is the root of 2/n; all entries are one average.
    effective = chains * settings.dim / error**2
    ratio = np.mean([(each.sd / each.exact_sd) ** 2 + each.difference**2 for each in found])
    assert abs(ratio - 1) < 5 * np.sqrt(2 / effective)
    assert f"{found[0].difference[0]:.2f}" in str(found[0])
