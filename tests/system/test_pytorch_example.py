"""The example with PyTorch: its gradients are JAX's, and other seeds find the same posterior."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.evaluation.chain_statistics import effective_size_of_mean
from support import full

pytest.importorskip("torch", reason="PyTorch is large and in no extra: install it to run this")
pytest.importorskip("jax", reason="needs the extra jax")


@pytest.fixture(scope="module")
def example() -> Any:
    path = Path(__file__).parents[2] / "examples" / "pytorch_model.py"
    spec = importlib.util.spec_from_file_location("pytorch_model", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_gradients_are_those_of_jax(example: Any) -> None:
    """Both in double precision: an error of single precision would be 1e-7."""
    theta = np.random.default_rng(2).standard_normal((1, 20, 4))
    found, expected = example.with_torch().gradient(theta), example.with_jax().gradient(theta)
    assert found.dtype == np.float64
    np.testing.assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_another_seed_finds_the_same_posterior(example: Any) -> None:
    """Means and standard deviations within 5 standard errors of their difference."""
    mine, other = example.with_torch(), example.with_jax()
    uplink = flmc.Digital(link=flmc.Linear(), clip=8.0, snr_db=25)
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(mine, uplink, limits, num_rounds=full(4000, 2000), num_burn_in=800)
    assert flmc.check_model(mine, plan) == ()
    draws = [
        flmc.run(plan, model, seed=seed, chains=4).draws for model, seed in ((mine, 1), (other, 2))
    ]
    sizes = [effective_size_of_mean(np.moveaxis(each, 2, 0)) for each in draws]
    error = np.sqrt(1 / sizes[0] + 1 / sizes[1])
    means, sds = ([f(each, axis=(0, 1)) for each in draws] for f in (np.mean, np.std))
    assert (np.abs(means[0] - means[1]) < 5 * error * sds[1]).all()
    # The relative error of a normal standard deviation is 1/sqrt(2 n).
    assert (np.abs(sds[0] / sds[1] - 1) < 5 * error / np.sqrt(2)).all()
