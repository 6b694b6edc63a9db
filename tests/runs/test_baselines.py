"""Baselines against computations of their own: closed forms, plain loops, another accountant."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.stats import norm

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.data.federated import FederatedData
from flmc.models.single_device import local_models
from flmc.runs import baselines
from flmc.runs.scores import make_scorers
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.simulation import simulate
from support import full, full_only

DEVICES, DIM = 4, 3


@pytest.fixture(scope="module")
def data() -> tuple[FederatedData, FederatedData]:
    drawn = flmc.data.draw_linear(seed=2, num_samples=200, dim=DIM, num_devices=DEVICES)
    whole = FederatedData(drawn.features, drawn.targets, drawn.device_sizes)
    return whole.hold_out(0.2, seed=1)


@pytest.fixture(scope="module")
def model(data: tuple[FederatedData, FederatedData]) -> flmc.LinearGaussian:
    return flmc.LinearGaussian(data[0].to_linear())


def planned(model: flmc.Model, **settings: object) -> flmc.Plan:
    limits = flmc.Limits(epsilon=30.0, scope="run")
    return flmc.plan(
        model,
        flmc.Analog(),
        limits,
        **{"num_rounds": 60, "num_burn_in": 30, "forecast": False, **settings},  # type: ignore[arg-type]
    )


def compared(
    plan: flmc.Plan, model: flmc.Model, test: FederatedData, **settings: object
) -> flmc.Comparison:
    """The plan and all its baselines, one chain unless told otherwise."""
    settings = {"engine": "numpy", "chains": 1, **settings}
    return flmc.compare(plan, model, baselines=True, test=test, **settings)  # type: ignore[arg-type]


def test_noiseless_sampling_has_the_exact_posterior(model: flmc.LinearGaussian) -> None:
    """Mean and variance of many chains after burn-in. The chain of a normal posterior is linear:
    along an eigenvalue h its stationary variance is 2 eta/(1 - (1 - eta h)^2) = (1/h)/(1 - eta
    h/2), and its mean is exact."""
    plan = baselines.noiseless_sampler(planned(model), model)
    # The last round only, so that chains are independent draws.
    long = flmc.plan(
        model,
        plan.uplink,
        num_rounds=400,
        num_burn_in=399,
        step_size=plan.step_size,
        forecast=False,
        draw_at="positions",
    )
    count = full(4000, 1000)
    done = simulate(long, model, 3, count, engine=NumpyEngine(), keep_draws=True)
    assert done.draws is not None
    draws = done.draws[0, :, 0]
    precision = np.linalg.inv(model.posterior.covariance[0])
    values, vectors = np.linalg.eigh(precision)
    along = (draws - model.posterior.mean[0]) @ vectors
    expected = 1.0 / values / (1.0 - plan.step_size * values / 2.0)
    # Five standard errors of a mean, sd/sqrt(n), and of a variance, var sqrt(2/n).
    assert (np.abs(along.mean(axis=0)) < 5 * np.sqrt(expected / count)).all()
    assert (np.abs(along.var(axis=0) / expected - 1) < 5 * math.sqrt(2 / count)).all()


def test_the_majority_vote_is_a_plain_loop(model: flmc.LinearGaussian) -> None:
    plan = baselines.majority_vote(planned(model), model)
    done = simulate(plan, model, 5, 1, keep_draws=True)
    assert done.draws is not None
    # All signs arrive with the gain, whatever the path: inversion takes it out.
    gain, theta, kept = float(plan.gain[0, 0]), np.zeros(DIM), []
    noise = generator(5, Purpose.CHANNEL, 0, 0, 0)
    costs = model.quadratic()
    for number in range(plan.num_rounds):
        votes = np.zeros(DIM)
        for hessian, offset in zip(costs.hessian[0], costs.offset[0], strict=True):
            votes += np.where(hessian @ theta - offset > 0, 1.0, -1.0)
        received = gain * votes + math.sqrt(plan.uplink.noise_power) * noise.standard_normal(DIM)
        theta = theta - plan.step_size * np.sign(received)
        if number >= plan.num_burn_in:
            kept.append(theta)
    # Steps are all alike, so sums differ by rounding only.
    np.testing.assert_allclose(done.draws[0, 0], kept, atol=1e-12)
    # The prior's standard deviation is 1 in every entry: twice as far in 30 rounds of burn-in.
    assert plan.step_size == pytest.approx(2.0 / 30)


def gaussian_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism, from its exact curve, by SciPy alone."""

    def excess(epsilon: float) -> float:
        first = norm.cdf(mu / 2 - epsilon / mu)
        second = math.exp(epsilon + norm.logcdf(-mu / 2 - epsilon / mu))
        return float(first - second - delta)

    return float(brentq(excess, 0.0, 500.0, xtol=1e-12))


@pytest.mark.parametrize("clipping", ["entry", "norm"])
def test_the_noise_of_private_descent_is_that_of_the_accountant(
    model: flmc.LinearGaussian, clipping: str
) -> None:
    """A device's clipped gradient moves by 2 clip sqrt(m), or 2 clip where its norm is clipped, in
    each of 60 rounds; mu^2 adds up."""
    uplink = flmc.Analog(clipping=clipping)
    limits = flmc.Limits(epsilon=20.0, scope="run")
    plan = flmc.plan(model, uplink, limits, num_rounds=60, num_burn_in=30, forecast=False)
    assert plan.run_cost is not None
    made = baselines.private_descent(plan, model)
    assert made.run_cost is not None
    assert made.run_cost.epsilon == pytest.approx(plan.run_cost.epsilon, rel=1e-6)
    move = 2 * uplink.clip * (math.sqrt(DIM) if clipping == "entry" else 1.0)
    sigma = 1.0 / float(made.gain[0, 0])
    mu = move * math.sqrt(60) / sigma
    assert gaussian_epsilon(mu, 1e-5) == pytest.approx(plan.run_cost.epsilon, rel=1e-5)
    assert made.uplink.noise_power == 1.0
    assert baselines.estimate_variance(made) == pytest.approx(sigma**2, rel=1e-9)


def test_descent_is_a_plain_loop_and_its_step_the_rule(model: flmc.LinearGaussian) -> None:
    asked = planned(model)
    plan = baselines.analog_descent(asked, model)
    gain = float(plan.gain[0, 0])
    noise_variance = 1.0 / gain**2
    # The prior is standard normal: the optimum is sqrt(DIM) away.
    rule = min(
        max(1 / model.smoothness, asked.step_size),
        math.sqrt(DIM) / math.sqrt(60 * DIM * noise_variance),
    )
    assert plan.step_size == pytest.approx(rule)
    done = simulate(plan, model, 5, 1, engine=NumpyEngine(), keep_draws=True)
    assert done.draws is not None
    theta, stream, costs, kept = (
        np.zeros(DIM),
        generator(5, Purpose.CHANNEL, 0, 0, 0),
        model.quadratic(),
        [],
    )
    for number in range(60):
        pulls = [h @ theta - b for h, b in zip(costs.hessian[0], costs.offset[0], strict=True)]
        total = np.clip(pulls, -30.0, 30.0).sum(axis=0)
        theta = theta - plan.step_size * (total + stream.standard_normal(DIM) / gain)
        if number >= 30:
            kept.append(theta)
    np.testing.assert_allclose(done.draws[0, 0], kept, rtol=1e-9, atol=1e-12)


def test_a_local_posterior_is_that_of_its_own_examples(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian
) -> None:
    each = list(local_models(model))
    assert len(each) == DEVICES
    for device, own in enumerate(each):
        examples = data[0].of_device(device)
        x, y = examples.features, examples.targets
        precision = x.T @ x + np.eye(DIM)
        assert isinstance(own, flmc.LinearGaussian)
        np.testing.assert_allclose(
            own.posterior.covariance[0], np.linalg.inv(precision), rtol=1e-9, atol=1e-12
        )
        np.testing.assert_allclose(own.posterior.mean[0], np.linalg.solve(precision, x.T @ y))


def test_scores_of_a_linear_regression(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian
) -> None:
    """A point estimate has the log loss of one normal density; many exact draws that of the
    predictive distribution, N(u mu, 1 + u Sigma u)."""
    test = data[1]
    scorer, against_posterior = make_scorers(model, test)
    mean, covariance = model.posterior.mean[0], model.posterior.covariance[0]
    point = scorer.score(mean[None, None])
    expected = -norm.logpdf(test.targets, test.features @ mean).mean()
    assert point["log_loss"][0] == pytest.approx(expected)
    assert point["squared_error"][0] == pytest.approx(
        np.square(test.targets - test.features @ mean).mean()
    )
    assert against_posterior.score(mean[None, None])["mean_error"][0] == 0
    count = 20_000
    draws = np.random.default_rng(1).multivariate_normal(mean, covariance, count)
    found = scorer.score(draws[None])
    spread = np.sqrt(1 + np.einsum("ni,ij,nj->n", test.features, covariance, test.features))
    exact = -norm.logpdf(test.targets, test.features @ mean, spread).mean()
    # The relative spread of a density over draws is below 1 here (the posterior is narrow beside
    # the noise), so that the error of its logarithm is below 1/sqrt(count).
    assert found["log_loss"][0] == pytest.approx(exact, abs=5 / math.sqrt(count))
    # The squared distance of the mean of n exact draws is trace/n on average, chi-squared.
    assert against_posterior.score(draws[None])["mean_error"][0] < 10 / count


def test_all_methods_side_by_side(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian
) -> None:
    plan = planned(model)
    found = compared(plan, model, data[1], seed=4, chains=3, engine="numpy")
    names = [each.name for each in found.methods]
    assert names == ["flmc", *(each.name for each in baselines.baselines_of(plan, model))]
    assert found.missing == {}
    own, text = found["flmc"], str(found)
    result = flmc.run(plan, model, seed=4, chains=3, engine="numpy")
    for scorer in make_scorers(model, data[1]):
        for name, values in scorer.score(result.draws).items():
            assert own.scores[name].mean == pytest.approx(values.mean())
    assert own.result is not None
    np.testing.assert_array_equal(own.result.draws, result.draws)
    assert found["noiseless LMC"].privacy == found["local posteriors"].privacy == "no statement"
    assert plan.run_cost is not None
    for name in ("flmc", "FedSGD", "majority vote", "DP-FedSGD"):
        cost = found[name].cost
        assert cost is not None
        assert cost.epsilon <= 30.0 * (1 + 1e-9)
    assert all(name in text for name in names)
    assert "mean of the last 30 rounds" in text
    assert found.to_document()["methods"][4]["epsilon"] is None


def test_a_part_of_the_methods_and_a_plan_without_a_channel(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian
) -> None:
    some = compared(planned(model), model, data[1], only=("flmc", "FedSGD"))
    assert [each.name for each in some.methods] == ["flmc", "FedSGD"]
    ideal = flmc.plan(model, flmc.Ideal(), num_rounds=20, num_burn_in=10, forecast=False)
    found = compared(ideal, model, data[1], engine="numpy")
    assert set(found.missing) == {"FedSGD", "majority vote", "DP-FedSGD"}
    assert "there is no channel" in str(found)
    with pytest.raises(InvalidSetting, match="no method could be run"):
        compared(ideal, model, data[1], only=("FedSGD",))


def test_uplinks_and_baselines_are_one_comparison(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian
) -> None:
    uplinks: dict[str, flmc.Uplink | flmc.Plan] = {
        "digital": flmc.Digital(),
        "mine": planned(model),
    }
    both = flmc.compare(
        uplinks,
        model,
        baselines=True,
        test=data[1],
        only=("digital", "mine", "FedSGD"),
        chains=2,
        engine="numpy",
        num_rounds=60,
        num_burn_in=30,
        forecast=False,
    )
    assert [each.name for each in both.methods] == ["digital", "mine", "FedSGD"]
    assert list(both.results) == ["digital", "mine"]
    # Baselines have the channel and rounds of the first uplink.
    assert both.plan is both["digital"].plan
    alone = compared(planned(model), model, data[1], chains=2, only=("flmc",))
    assert alone["flmc"].scores == both["mine"].scores
    for grid in (both.plans(), both.scores()):
        assert [row[0] for row in grid.rows] == ["digital", "mine", "FedSGD"]
        assert all(len(row) == len(grid.header) for row in grid.rows)
    assert {"log loss", "variance ratio"} <= set(both.scores().header)


def test_baselines_against_the_posteriors_of_several_data_sets(small: flmc.Model) -> None:
    """Without held-out examples the error of a chain's mean is the score."""
    both = flmc.compare(
        flmc.Analog(), small, baselines=True, chains=2, num_rounds=40, num_burn_in=20
    )
    assert both.num_test == 0
    assert set(both["FedSGD"].scores) == {"mean_error"}
    assert "local posteriors" in both.missing
    own = both["flmc"]
    assert own.result is not None
    assert own.result.one_chain is not None
    assert own.scores["mean_error"].mean == own.result.one_chain.mean_error.mean
    unknown = flmc.Model.from_gradient(
        lambda theta: np.stack([theta, 3 * theta], axis=1),
        prior=flmc.Normal(),
        dim=3,
        num_devices=2,
        smoothness=5.0,
    )
    with pytest.raises(InvalidSetting, match="need something to be judged by"):
        flmc.compare(flmc.Analog(), unknown, baselines=True)
    with pytest.raises(InvalidSetting, match="'FedSGD' is the name of a baseline"):
        flmc.compare({"FedSGD": flmc.Analog()}, small, baselines=True)
    with pytest.raises(InvalidSetting, match="limits, num_rounds: a plan has its own"):
        flmc.compare(planned(small), small, flmc.Limits(), num_rounds=30)


def test_what_is_refused(
    data: tuple[FederatedData, FederatedData], model: flmc.LinearGaussian, small: flmc.Model
) -> None:
    plan, test = planned(model), data[1]
    with pytest.raises(InvalidSetting, match="a method must be one of flmc, FedSGD"):
        compared(plan, model, test, only=("SGD",))
    with pytest.raises(InvalidSetting, match="chains must be a whole number of at least 1, got 0"):
        compared(plan, model, test, chains=0)
    with pytest.raises(InvalidSetting, match="seed must be a whole number"):
        compared(plan, model, test, seed=-1)
    with pytest.raises(InvalidSetting, match="the plan is for 4 devices and dim 3"):
        compared(plan, flmc.LinearGaussian(flmc.data.draw_linear(1)), test)
    with pytest.raises(InvalidSetting, match="one data set"):  # there are three
        compared(planned(small), small, test)
    narrow = FederatedData(test.features[:, :2], test.targets, test.device_sizes)
    with pytest.raises(InvalidSetting, match="must have 3 features, got 2"):
        compared(plan, model, narrow)
    none = FederatedData(np.zeros((0, DIM)), np.zeros(0), (0,) * DEVICES)
    with pytest.raises(InvalidSetting, match="at least 1 held-out example, got 0"):
        compared(plan, model, none)
    with pytest.raises(InvalidSetting, match="local posteriors need"):
        list(local_models(small))
    loud = flmc.plan(
        model,
        flmc.Analog(),
        flmc.Limits(epsilon=1.0, scope="run"),
        gain=0.01,
        num_rounds=60,
        num_burn_in=30,
        forecast=False,
    )
    with pytest.raises(InvalidSetting, match="keeps its budget for"):
        compared(loud, model, test)


def classes(seed: int) -> FederatedData:
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((120, 2))
    y = np.where(rng.random(120) < 1 / (1 + np.exp(-x.sum(axis=1))), 1.0, -1.0)
    return FederatedData(x, y, (60, 40, 20), classes=("no", "yes"))


@full_only
def test_classifiers_are_scored_by_their_probabilities() -> None:
    pytest.importorskip("jax", reason="needs the extra jax")
    from flmc.evaluation.predictive import (
        class_numbers,
        class_probabilities,
        probabilities_of_groups,
        score_probabilities,
    )
    from flmc.models import regressions

    learn, test = classes(1).hold_out(0.3, seed=1)
    model = regressions.logistic(learn, feature_norm=5.0)
    plan = planned(model)
    found = compared(plan, model, test, seed=4, chains=2, engine="numpy")
    assert found.missing == {}
    assert list(found.methods[0].scores) == ["accuracy", "log_loss", "brier", "ece"]
    assert not found["FedSGD"].data_dependent  # the curvature is public
    draws = flmc.run(plan, model, seed=4, chains=2, engine="numpy").draws
    each = [class_probabilities(model, chain, test) for chain in draws]
    scores = [score_probabilities(one, class_numbers(test)) for one in each]
    for name, estimate in found["flmc"].scores.items():
        expected = np.mean([getattr(one, name) for one in scores])
        assert estimate.mean == pytest.approx(expected)
    np.testing.assert_allclose(probabilities_of_groups(model, draws, test), each)


@full_only
def test_local_posteriors_of_log_densities_have_the_whole_prior() -> None:
    """The gradient of a device alone is that of its likelihood plus all of the prior's."""
    pytest.importorskip("jax", reason="needs the extra jax")
    from flmc.models import regressions

    learn = classes(2)
    model = regressions.logistic(learn, prior_sd=2.0, intercept_sd=3.0, feature_norm=5.0)
    theta: Array = np.array([[[0.3, -0.5, 0.8]]])  # intercept, then slopes
    together = model.gradient(theta)[0, 0]
    prior = theta[0, 0] / np.array([9.0, 4.0, 4.0])
    for device, own in enumerate(local_models(model)):
        alone = own.gradient(theta)[0, 0, 0]
        np.testing.assert_allclose(alone, together[device] + prior * (1 - 1 / 3), rtol=1e-9)
