"""A link that biases is found, and the cure that is named works: devices whose data differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.planning import judgement
from flmc.uplink.links import Linear
from support import against_sampling, full, full_only


@pytest.fixture(scope="module")
def unlike() -> flmc.LinearGaussian:
    """The diabetes data of scikit-learn, sorted by target over 8 devices, features rotated by QR.

    Targets are in half standard deviations, so that local gradients are as large as the clip."""
    datasets = pytest.importorskip("sklearn.datasets")
    features, targets = datasets.load_diabetes(return_X_y=True)
    order = np.argsort(targets, kind="stable")
    rotated = np.linalg.qr(features[order])[0] * np.sqrt(len(targets))
    scaled = 2.0 * (targets[order] - targets.mean()) / targets.std()
    sizes = tuple(len(part) for part in np.array_split(scaled, 8))
    return flmc.LinearGaussian(flmc.LinearData(rotated, scaled, device_sizes=sizes))


def _worst_shift(result: flmc.Result, model: flmc.LinearGaussian) -> float:
    """Distance of the draws' mean from the posterior mean, in posterior sd, worst direction."""
    away = result.mean[0] - model.posterior.mean[0]
    return float(np.sqrt(away @ np.linalg.solve(model.posterior.covariance[0], away)))


def _plan(model: flmc.LinearGaussian, uplink: flmc.Digital) -> flmc.Plan:
    return flmc.plan(model, uplink, num_rounds=full(20_000, 6_000), num_burn_in=2_000)


def test_a_biased_mean_is_in_the_headline(unlike: flmc.LinearGaussian) -> None:
    plan = _plan(unlike, flmc.Digital(link=flmc.Sigmoid(0.03), clip=150))
    assert plan.temperature == pytest.approx(1)
    found = next(each for each in plan.findings if each.code == "mean-shift")
    assert found.severity == "infeasible"
    assert found.numbers["mean_shift"] > 1
    assert str(plan).startswith("INFEASIBLE: the mean will be off by")
    assert "right: samples spread like the posterior" not in str(plan)
    assert "the linear link with a clip of 90" in found.message


@full_only
def test_the_bias_that_is_predicted_and_the_cure_that_is_named(
    unlike: flmc.LinearGaussian,
) -> None:
    """16 chains have some 16 x 200 independent draws (effective step times kept rounds), so the
    mean's noise in the worst of 10 directions is about sqrt(10/3000) = 0.06 sd; 0.3 is five of
    these."""
    biased = _plan(unlike, flmc.Digital(link=flmc.Sigmoid(0.03), clip=150))
    measured = _worst_shift(flmc.run(biased, unlike, seed=3, chains=16), unlike)
    assert biased.prediction is not None
    assert biased.prediction.mean_shift == pytest.approx(measured, abs=0.3)
    cured = _plan(unlike, flmc.Digital(link=flmc.Linear(), clip=90))
    assert not against_sampling(cured)
    measured = _worst_shift(flmc.run(cured, unlike, seed=3, chains=16), unlike)
    assert measured < 0.3 < judgement.HOPELESS_SHIFT


def test_a_clip_that_biases_a_straight_link_is_found_too(unlike: flmc.LinearGaussian) -> None:
    plan = _plan(unlike, flmc.Digital(link=flmc.Linear(), clip=40))
    found = next(each for each in plan.findings if each.code == "mean-shift")
    assert "a clip of" in found.message


def test_the_chosen_link_suits_unlike_devices(unlike: flmc.LinearGaussian) -> None:
    settings: dict[str, Any] = {"num_rounds": 20_000, "num_burn_in": 5_000}
    uplink = flmc.choose_link(unlike, flmc.Digital(clip=90), **settings)
    assert isinstance(uplink.link, Linear)
    assert not against_sampling(flmc.plan(unlike, uplink, **settings))


def test_a_link_is_chosen_by_prediction_only(model: flmc.LinearGaussian) -> None:
    """For devices that are alike a curved link does as well and is faster; a model whose chain
    cannot be predicted is refused."""
    chosen = flmc.choose_link(model, flmc.Digital())
    assert not against_sampling(flmc.plan(model, chosen))
    own = flmc.Model.from_gradient(
        lambda theta: theta[:, None] - np.zeros((2, 2)), prior=flmc.Normal(), dim=2, num_devices=2
    )
    with pytest.raises(InvalidSetting, match="linear regression"):
        flmc.choose_link(own, flmc.Digital())


def test_the_shift_is_the_largest_over_directions(unlike: flmc.LinearGaussian) -> None:
    """No direction has a larger shift in its own posterior standard deviations, and one has it."""
    plan = _plan(unlike, flmc.Digital(link=flmc.Sigmoid(0.02), clip=150))
    prediction = plan.prediction
    assert prediction is not None
    assert prediction.mean_shift is not None
    assert prediction.distance_squared is not None
    # In posterior units the squared distance has the squared shift as a part.
    assert prediction.distance_squared >= prediction.mean_shift**2
    trace = np.trace(unlike.posterior.covariance[0])
    smallest = np.linalg.eigvalsh(unlike.posterior.covariance[0])[0]
    assert prediction.mean_error_squared <= prediction.mean_shift**2 * trace
    assert prediction.mean_error_squared >= prediction.mean_shift**2 * smallest
