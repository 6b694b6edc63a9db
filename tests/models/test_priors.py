"""Priors with correlated entries, and priors of two functions: posteriors in closed form, starts,
the check of a model, and records."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.models.distributions import Prior
from support import full

MEAN = np.array([1.0, -1.0, 0.5])
COVARIANCE = np.array([[1.0, 0.9, 0.0], [0.9, 1.0, -0.3], [0.0, -0.3, 0.5]])
FEATURES = np.random.default_rng(4).normal(size=(6, 5, 3))  # device, example, entry
TARGETS = FEATURES @ [0.5, 0.3, -0.2] + np.random.default_rng(5).normal(size=(6, 5))
GRAM = np.einsum("kni,knj->kij", FEATURES, FEATURES)


def gradient(theta: Array) -> Array:
    pull = np.einsum("kni,kn->ki", FEATURES, TARGETS)
    return np.asarray(np.einsum("kij,cj->cki", GRAM, theta) - pull)


def clipped(theta: Array, clip: float) -> Array:
    away = np.einsum("kni,ci->ckn", FEATURES, theta) - TARGETS
    return np.asarray(np.clip(away[..., None] * FEATURES, -clip, clip).sum(axis=2))


def posterior() -> flmc.Gaussian:
    """The textbook's: precisions add up."""
    precision = GRAM.sum(axis=0) + np.linalg.inv(COVARIANCE)
    pull = np.einsum("kni,kn->i", FEATURES, TARGETS) + np.linalg.solve(COVARIANCE, MEAN)
    return flmc.Gaussian(np.linalg.solve(precision, pull), np.linalg.inv(precision))


def regression(prior: Prior, *, known: bool = True) -> flmc.Model:
    values = np.linalg.eigvalsh(np.linalg.inv(posterior().covariance[0]))
    return flmc.Model.from_gradient(
        gradient,
        prior=prior,
        dim=3,
        num_devices=6,
        smoothness=float(values[-1]),
        convexity=float(values[0]),
        posterior=posterior() if known else None,
        clipped_gradient=clipped,
    )


def as_functions() -> flmc.FunctionPrior:
    """The correlated prior once more, from a gradient and a draw of one's own."""
    precision, root = np.linalg.inv(COVARIANCE), np.linalg.cholesky(COVARIANCE)
    return flmc.FunctionPrior(
        lambda theta: (theta - MEAN) @ precision, lambda rng: MEAN + root @ rng.standard_normal(3)
    )


CORRELATED: dict[str, Callable[[], Prior]] = {
    "covariance": lambda: flmc.CorrelatedNormal(MEAN, covariance=COVARIANCE),
    "precision": lambda: flmc.CorrelatedNormal(MEAN, precision=np.linalg.inv(COVARIANCE)),
    "functions": as_functions,
}
EVERY = pytest.mark.parametrize("make", CORRELATED.values(), ids=CORRELATED)


@EVERY
def test_gradients_vanish_at_the_textbook_s_mean(make: Callable[[], Prior]) -> None:
    model = regression(make())
    local = model.gradient(posterior().mean[None])[0, 0]
    np.testing.assert_allclose(local.sum(axis=0), 0.0, atol=1e-12 * np.abs(local).max())
    # Each device has its likelihood and a sixth of the prior.
    theta = np.array([0.2, 0.4, -0.1])
    share = np.linalg.solve(COVARIANCE, theta - MEAN) / 6
    np.testing.assert_allclose(
        model.gradient(theta[None, None])[0, 0], gradient(theta[None])[0] + share, rtol=1e-10
    )


@EVERY
def test_starts_and_curvature(make: Callable[[], Prior]) -> None:
    """Chains start from draws with the prior's moments: 5 standard errors of each."""
    prior = make()
    count = full(40_000, 4_000)
    rng = np.random.default_rng(1)
    draws = np.stack([prior.draw(rng, 3) for _ in range(count)])
    sd = np.sqrt(np.diag(COVARIANCE))
    assert (np.abs(draws.mean(axis=0) - MEAN) < 5 * sd / np.sqrt(count)).all()
    # Of a covariance of normal entries the variance is at most 2 (sd_i sd_j)^2 / n.
    off = np.abs(np.cov(draws.T) - COVARIANCE)
    assert (off < 5 * np.sqrt(2 / count) * np.outer(sd, sd)).all()
    found = prior.curvature(np.zeros(3), np.eye(3))
    np.testing.assert_allclose(found, np.linalg.inv(COVARIANCE), rtol=1e-6, atol=1e-9)
    # 2000 draws place a quantile to 4 % of a standard deviation; four of these.
    assert np.abs(prior.mean - MEAN).max() < 0.16
    np.testing.assert_allclose(prior.sd, sd, rtol=0.16)
    model = regression(prior)
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=3, num_burn_in=1)
    chains = flmc.run(plan, model, seed=3, chains=2).draws
    assert np.isfinite(chains).all()
    first = prior.draw(generator(3, Purpose.INIT, 0, 0), 3)
    moved = chains[0, 0] - first
    assert 0 < np.abs(moved).max() < 6 * sd.max()


@EVERY
def test_samples_have_the_posterior_in_closed_form(make: Callable[[], Prior]) -> None:
    """Exact gradients and Gaussian noise widen the variance of a direction of curvature c by
    1/(1 - eta c/2); but for that, mean and variance are the textbook's, within 5 standard errors.
    What is left of the start after burn-in is below e^-10."""
    model = regression(make())
    step = 0.4 / (model.smoothness or 1.0)
    assert step * (model.convexity or 0.0) * 800 > 5.0
    plan = flmc.plan(
        model,
        flmc.Ideal(),
        flmc.Limits(privacy="off"),
        num_rounds=full(2500, 1200),
        num_burn_in=800,
        step_size=step,
    )
    result = flmc.run(plan, model, seed=2, chains=full(200, 60))
    metrics = result.metrics
    assert metrics is not None
    values = np.linalg.eigvalsh(np.linalg.inv(posterior().covariance[0]))
    heat = 1 / (1 - step * values / 2)  # of exact Langevin steps, direction by direction
    expected = float((heat / values).sum() / (1 / values).sum())
    assert abs(metrics.variance_ratio.mean - expected) < 5 * metrics.variance_ratio.se
    # The posterior without the correlations of the prior would be far away.
    plain = np.linalg.inv(GRAM.sum(axis=0) + np.diag(1 / np.diag(COVARIANCE)))
    assert np.abs(plain / posterior().covariance[0] - 1).max() > 0.2
    draws = result.draws
    each = draws.mean(axis=1)
    error = each.std(axis=0, ddof=1) / np.sqrt(len(each))
    assert (np.abs(each.mean(axis=0) - posterior().mean[0]) < 5 * error).all()


@EVERY
def test_the_check_of_a_model_sees_nothing_wrong(make: Callable[[], Prior]) -> None:
    model = regression(make(), known=False)
    uplink = flmc.Analog(clip=1e3, snr_db=60.0)
    plan = flmc.plan(model, uplink, num_rounds=400, num_burn_in=200)
    assert flmc.check_model(model, plan) == ()
    # Single examples are clipped: at the prior's place, not the prior's share.
    hiding = flmc.Analog(clip=30.0, example_clip=5.0, example_shrink=0.9)
    limits = flmc.Limits(neighbouring="example")
    assert flmc.plan(model, hiding, limits, num_rounds=40, num_burn_in=20).num_rounds


def test_a_prior_that_is_not_flat_anywhere_can_have_its_examples_clipped() -> None:
    """Gamma entries: at their median the prior's gradient does not vanish, and is not clipped."""
    prior = flmc.FunctionPrior(
        lambda theta: 1 - 2 / np.maximum(theta, 1e-3), lambda rng: rng.gamma(3.0, size=3)
    )
    assert np.abs(prior.gradient(prior.mean)).min() > 0.1
    model = flmc.Model.from_gradient(
        lambda theta: 0.01 * gradient(theta),
        prior=prior,
        dim=3,
        num_devices=6,
        smoothness=10.0,
        clipped_gradient=lambda theta, clip: 0.01 * clipped(theta, 100 * clip),
    )
    uplink = flmc.Analog(clip=30.0, example_clip=5.0, example_shrink=0.9)
    assert flmc.plan(model, uplink, num_rounds=40, num_burn_in=20).num_rounds == 40


def test_records_go_on_with_the_same_prior_only(tmp_path: Path) -> None:
    """The gradient is the same, the starts are others: another run."""
    precision = np.linalg.inv(COVARIANCE)

    def prior(width: float) -> Prior:
        return flmc.FunctionPrior(
            lambda theta: (theta - MEAN) @ precision,
            lambda rng: MEAN + width * rng.standard_normal(3),
            mean=MEAN,
            sd=np.ones(3),
        )

    narrow, wide = regression(prior(1.0)), regression(prior(2.0))
    plan = flmc.plan(narrow, flmc.Analog(), num_rounds=300, num_burn_in=20)
    assert plan.digest == flmc.plan(wide, flmc.Analog(), num_rounds=300, num_burn_in=20).digest
    whole = flmc.run(plan, narrow, seed=1, chains=2)
    asked = iter([False, True])
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            plan,
            narrow,
            seed=1,
            chains=2,
            out=tmp_path / "record",
            checkpoint_rounds=50,
            stop=lambda: next(asked, True),
        )
    with pytest.raises(InvalidSetting, match="other data, or another prior, link or channel"):
        flmc.resume(tmp_path / "record", plan, wide)
    again = flmc.resume(tmp_path / "record", plan, narrow)
    np.testing.assert_array_equal(again.draws, whole.draws)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flmc.CorrelatedNormal(MEAN), "covariance or precision of the prior, got none"),
        (
            lambda: flmc.CorrelatedNormal(MEAN, covariance=COVARIANCE, precision=COVARIANCE),
            "got both",
        ),
        (lambda: flmc.CorrelatedNormal(MEAN, covariance=-COVARIANCE), "must be positive definite"),
        (lambda: flmc.CorrelatedNormal(MEAN, precision=np.triu(COVARIANCE)), "a symmetric matrix"),
        (lambda: flmc.CorrelatedNormal(np.zeros(()), precision=COVARIANCE), r"must be \(dim\)"),
        (
            lambda: flmc.FunctionPrior(np.sign, lambda rng: np.zeros((2, 2))),
            r"must be \(dim\), got the shape \(2, 2\)",
        ),
        (lambda: flmc.FunctionPrior(np.sign, lambda rng: np.zeros(3)), "must vary in every entry"),
        (
            lambda: flmc.FunctionPrior(np.sum, lambda rng: rng.normal(size=3)).gradient(MEAN),
            r"must return \(place, dim\) = \(1, 3\), got \(\)",
        ),
        (
            lambda: regression(flmc.CorrelatedNormal(np.zeros(2), covariance=np.eye(2))),
            r"prior mean must be a number or 3 numbers, got the shape \(2,\)",
        ),
        (lambda: regression(np.eye(3)), "prior must be a flmc.Normal, CorrelatedNormal"),  # type: ignore[arg-type]
    ],
)
def test_what_is_refused(make: Callable[[], object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()
