"""Regressions that are ready, and how good their predictions are."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn import metrics

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData
from flmc.evaluation.predictive import (
    NUM_BINS,
    class_numbers,
    class_probabilities,
    score_probabilities,
)
from flmc.models import regressions
from support import full, full_only

pytest.importorskip("jax", reason="needs the extra jax")


def classes_of(count: int, classes: int, seed: int = 1) -> FederatedData:
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((count, 2))
    scores = features @ rng.standard_normal((2, classes)) + rng.gumbel(size=(count, classes))
    targets = scores.argmax(axis=1).astype(float)
    names = tuple("abcdefgh"[:classes])
    if classes == 2:
        targets = 2 * targets - 1
    return FederatedData(features, targets, (count - 10, 10), classes=names)


def numeric_hessian(model: flmc.Model, theta: Array) -> Array:
    """Derivative of the sum of all local gradients, by differences."""
    step, columns = 1e-5, []
    for direction in np.eye(model.dim):
        ends = [model.gradient((theta + sign * step * direction)[None, None]) for sign in (1, -1)]
        columns.append((ends[0] - ends[1])[0, 0].sum(axis=0) / (2 * step))
    return np.array(columns)


@pytest.mark.parametrize("classes", [2, 4])
def test_public_bounds_hold_everywhere(classes: int) -> None:
    data = classes_of(60, classes)
    make = regressions.logistic if classes == 2 else regressions.softmax
    norm = float(np.linalg.norm(data.features, axis=1).max())
    model = make(data, prior_sd=2.0, feature_norm=norm * 1.001)
    assert model.public
    assert model.smoothness is not None
    assert model.convexity is not None
    rng = np.random.default_rng(3)
    for scale in (0.0, 0.3, 3.0):
        values = np.linalg.eigvalsh(numeric_hessian(model, scale * rng.standard_normal(model.dim)))
        assert values[-1] <= model.smoothness
        assert values[0] >= model.convexity * (1 - 1e-3)
    with pytest.raises(InvalidSetting, match="feature_norm must bound"):
        make(data, feature_norm=0.9 * norm)


def test_poisson_against_a_plain_loop() -> None:
    rng = np.random.default_rng(4)
    features = rng.standard_normal((30, 2))
    counts = rng.poisson(np.exp(0.5 + features @ [0.3, -0.2])).astype(float)
    data = FederatedData(features, counts, (10, 20))
    model = regressions.poisson(data)
    theta = np.array([0.4, 0.1, -0.3])
    rate = np.exp(theta[0] + features @ theta[1:])
    design = np.column_stack([np.ones(30), features])
    each = design * (rate - counts)[:, None]
    prior = theta / np.array([25.0, 1, 1])
    expected = [each[:10].sum(axis=0) + prior / 2, each[10:].sum(axis=0) + prior / 2]
    np.testing.assert_allclose(model.gradient(theta[None, None])[0, 0], expected, rtol=1e-9)
    assert not model.public
    with pytest.raises(InvalidSetting, match="must hold counts"):
        regressions.poisson(FederatedData(features, counts - 0.5, (10, 20)))


@pytest.mark.parametrize(
    ("make", "targets", "message"),
    [
        (regressions.logistic, [0.0, 1.0], "must hold -1 and"),
        (regressions.softmax, [0.5, 1.0], "must hold 0 to 1"),
    ],
    ids=["logistic", "softmax"],
)
def test_targets_are_checked(make: Any, targets: list[float], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make(FederatedData(np.eye(2), np.array(targets), (2,)))


@full_only
def test_predictions_of_a_run() -> None:
    """Digits of two pixels' worth would be too easy: three classes in two dimensions. Predictive
    probabilities are the mean over draws, and score better than guessing."""
    learn, predict = classes_of(400, 3).hold_out(0.25, seed=1)
    model = regressions.softmax(learn)
    plan = flmc.plan(
        model,
        flmc.Analog(snr_db=35.0),
        flmc.Limits(privacy="off"),
        num_rounds=full(1500, 600),
        num_burn_in=300,
    )
    result = flmc.run(plan, model, seed=2, chains=4)
    draws = result.draws[:, ::50].reshape(-1, model.dim)
    found = class_probabilities(model, draws, predict)
    expected = np.zeros_like(found)
    for theta in draws:
        scores = theta[:3] + predict.features @ theta[3:].reshape(2, 3)
        weights = np.exp(scores - scores.max(axis=1, keepdims=True))
        expected += weights / weights.sum(axis=1, keepdims=True) / len(draws)
    np.testing.assert_allclose(found, expected, rtol=1e-9)
    judged = score_probabilities(found, class_numbers(predict))
    share = np.bincount(class_numbers(learn)).max() / learn.num_samples
    assert judged.accuracy > share
    assert judged.log_loss < np.log(3)
    assert "calibration error" in str(judged)


def test_scores_are_scikit_learn_s() -> None:
    rng = np.random.default_rng(6)
    probabilities = rng.dirichlet(np.ones(4), 500)
    classes = np.array([rng.choice(4, p=row) for row in probabilities])
    found = score_probabilities(probabilities, classes)
    assert found.accuracy == pytest.approx(metrics.accuracy_score(classes, probabilities.argmax(1)))
    assert found.log_loss == pytest.approx(metrics.log_loss(classes, probabilities))
    # A plain loop over the bins.
    confidence, error = probabilities.max(axis=1), 0.0
    right = probabilities.argmax(axis=1) == classes
    for index in range(NUM_BINS):
        low, high = index / NUM_BINS, (index + 1) / NUM_BINS
        inside = (confidence >= low) & (confidence < high)
        if inside.any():
            error += inside.mean() * abs(right[inside].mean() - confidence[inside].mean())
    assert found.ece == pytest.approx(error)
    # Probabilities that are drawn from are calibrated: what is left is the scatter of the bins.
    assert found.ece < 0.1
    assert found.examples.sum() == 500
    two = probabilities[:, :2] / probabilities[:, :2].sum(axis=1, keepdims=True)
    labels = (rng.random(500) < two[:, 1]).astype(np.intp)
    brier = metrics.brier_score_loss(labels, two[:, 1])
    assert score_probabilities(two, labels).brier == pytest.approx(2 * brier)


def test_scores_at_the_edges() -> None:
    certain = score_probabilities(np.eye(3), np.array([0, 1, 2]))
    assert (certain.accuracy, certain.log_loss, certain.brier, certain.ece) == (1, 0, 0, 0)
    wrong = score_probabilities(np.eye(2), np.array([1, 0]))
    assert (wrong.accuracy, wrong.brier, wrong.ece) == (0, 2, 1)
    assert wrong.log_loss == np.inf
    with pytest.raises(InvalidSetting, match="must fit"):
        score_probabilities(np.eye(3), np.array([0, 1]))
    with pytest.raises(InvalidSetting, match="it is a number"):
        class_numbers(FederatedData(np.eye(2), np.ones(2), (2,)))
    number = FederatedData(np.eye(2), np.array([-1.0, 1.0]), (2,))
    with pytest.raises(InvalidSetting, match="no classes to predict"):
        class_probabilities(
            regressions.logistic(number, feature_norm=2.0), np.zeros((1, 3)), number
        )
