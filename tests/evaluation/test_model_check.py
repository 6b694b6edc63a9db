"""The check of a model before a run: each wrong gives its finding, and right models give none."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from support import few, full, full_only

WIDE = flmc.Analog(clip=1e9)
"""An uplink that clips nothing."""


def codes(model: flmc.Model, uplink: flmc.Uplink = WIDE) -> list[str]:
    plan = flmc.plan(model, uplink, num_rounds=300, num_burn_in=100)
    return [finding.code for finding in flmc.check_model(model, plan)]


def regression(
    kind: str = "logistic",
    *,
    seed: int = 3,
    devices: int = 20,
    examples: int = 50,
    scales: Array | float = 1.0,
    unlike: float = 0.0,
    noise: float = 1.0,
    dim: int = 3,
    mean: bool = False,
    claim: float = 1.0,
    convexity: float | None = None,
) -> flmc.Model:
    """Logistic or linear regression of one's own, with the smoothness that it has at zero, times
    ``claim``. Features differ in scale, devices by ``unlike`` in what is true for them."""
    rng = np.random.default_rng(seed)
    sizes = np.broadcast_to(scales, (dim,))
    features = rng.normal(size=(devices, examples, dim)) * sizes
    truth = (rng.normal(size=dim) + unlike * rng.normal(size=(devices, 1, dim))) / sizes
    score = (features * truth).sum(axis=2)
    share = 1 / examples if mean else 1.0
    precision = np.square(sizes)  # of the prior

    if kind == "logistic":
        labels = np.where(score + noise * rng.logistic(size=score.shape) > 0, 1.0, -1.0)

        def gradient(theta: Array) -> Array:
            margin = labels * np.einsum("kne,ce->ckn", features, theta)
            weight = labels / (1 + np.exp(margin))
            return np.asarray(-share * np.einsum("ckn,kne->cke", weight, features))
    else:
        targets = score + noise * rng.normal(size=score.shape)

        def gradient(theta: Array) -> Array:
            residual = np.einsum("kne,ce->ckn", features, theta) - targets
            return np.asarray(share * np.einsum("ckn,kne->cke", residual, features))

    quarter = 0.25 if kind == "logistic" else 1.0
    hessian = quarter * np.einsum("kni,knj->ij", features, features) + np.diag(precision)
    return flmc.Model.from_gradient(
        gradient,
        prior=flmc.Normal(0.0, 1 / sizes),
        dim=dim,
        num_devices=devices,
        smoothness=claim * float(np.linalg.eigvalsh(hessian)[-1]),
        convexity=convexity,
    )


@pytest.mark.parametrize("kind", ["logistic", "linear"])
@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"claim": 5.0},
        {"unlike": 3.0},
        {"devices": 1, "examples": 1000},
        {"devices": 200, "examples": 2},
        {"dim": 5, "scales": np.array([1.0, 100.0, 0.01, 1.0, 10.0])},
        {"dim": 60},
        {"noise": 1e-9},
    ],
    ids=[
        "plain",
        "generous",
        "unlike",
        "one device",
        "two examples",
        "scales",
        "many entries",
        "no noise",
    ],
)
def test_right_models_give_no_finding(kind: str, settings: dict[str, Any]) -> None:
    assert codes(regression(kind, **settings)) == []


@pytest.mark.parametrize("kind", few(["logistic", "linear"], 1))
@pytest.mark.parametrize("dim", [3, 60])
def test_a_mean_in_place_of_a_sum(kind: str, dim: int) -> None:
    """With the smoothness of the sum, and with that of the mean itself. The latter is not seen in a
    linear regression with 60 entries: at the prior's mean its residuals are 60 times too large."""
    assert codes(regression(kind, mean=True, dim=dim, examples=200)) == ["mean-not-sum"]
    own = regression(kind, mean=True, dim=dim, examples=200, claim=1 / 150)
    assert codes(own) == ([] if (kind, dim) == ("linear", 60) else ["mean-not-sum"])


@pytest.mark.parametrize("kind", ["logistic", "linear"])
def test_a_smoothness_that_is_wrong(kind: str) -> None:
    model = regression(kind, claim=0.01)
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=300, num_burn_in=100)
    (finding,) = flmc.check_model(model, plan)
    assert (finding.code, finding.severity) == ("smoothness-too-small", "infeasible")
    assert finding.numbers["claimed"] == model.smoothness
    # A logistic regression curves less at the mode than at zero, by less than a factor of 2 here.
    assert 50 < finding.numbers["measured"] / finding.numbers["claimed"] <= 101
    assert f"{finding.numbers['fitting']:.3g} at most" in finding.message
    assert codes(regression(kind, claim=30.0)) == ["smoothness-too-large"]
    assert codes(regression(kind, convexity=500.0, claim=5.0)) == (
        ["convexity-too-large"] if kind == "logistic" else []
    )


def test_a_step_that_is_too_large() -> None:
    model = regression()
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=300, num_burn_in=100, step_size=0.02)
    (finding,) = flmc.check_model(model, plan)
    assert (finding.code, finding.severity) == ("step-too-large", "infeasible")


@pytest.mark.parametrize(
    ("clip", "grade"), few([(2.5, "infeasible"), (6.0, "warning"), (15.0, None)], 1)
)
def test_a_clip_that_is_too_small(clip: float, grade: str | None) -> None:
    """As many entries are clipped as in the run, and the clip that is proposed is enough."""
    model = regression()
    plan = flmc.plan(model, flmc.Analog(clip=clip), num_rounds=700, num_burn_in=400)
    found = flmc.check_model(model, plan)
    assert [each.severity for each in found] == ([] if grade is None else [grade])
    if found:
        result = flmc.run(plan, model, chains=20)
        share = found[0].numbers["clipped_fraction"]
        # The run's chains are wider than the posterior, because gradients are clipped, so more
        # of them are beyond the clip. Both are shares of the same 60 entries, one entry is 0.017.
        assert share - 0.02 < result.clipped_fraction < 2 * share + 0.02
        assert found[0].numbers["fitting"] in [pytest.approx(10, rel=0.3)]
        assert not codes(model, flmc.Analog(clip=1.1 * found[0].numbers["fitting"]))


def test_gradients_that_make_no_sense() -> None:
    def make(function: Any) -> flmc.Model:
        return flmc.Model.from_gradient(
            function, prior=flmc.Normal(), dim=2, num_devices=1, smoothness=3.0
        )

    rng = np.random.default_rng(0)
    turn = np.array([[1.0, 1.0], [-1.0, 1.0]])
    assert codes(make(lambda theta: (theta @ turn)[:, None])) == ["not-a-gradient"]
    assert codes(make(lambda theta: theta[:, None] + rng.normal())) == ["random-gradient"]
    assert codes(make(lambda theta: np.full((len(theta), 1, 2), np.nan))) == [
        "not-finite",
        "mode-not-found",
    ]
    with np.errstate(all="ignore"):
        found = codes(make(lambda theta: np.log(theta)[:, None]))
    assert found[0] == "not-finite"
    # A saddle at the prior's mean, and two modes beside it.
    double = make(lambda theta: 4 * (theta**3 - theta)[:, None])
    assert not set(codes(double)) - {"smoothness-too-small"}
    with pytest.raises(InvalidSetting, match="the plan is for 20 devices"):
        flmc.check_model(double, flmc.plan(regression(), WIDE))


@settings(max_examples=full(200, 40))
@given(
    seed=st.integers(0, 2**31),
    devices=st.integers(1, 30),
    examples=st.integers(2, 60),
    dim=st.integers(1, 6),
    exponent=st.floats(-2, 2),
    unlike=st.floats(0, 5),
    claim=st.floats(0.8, 8),
)
def test_right_quadratic_models_give_no_finding(
    seed: int,
    devices: int,
    examples: int,
    dim: int,
    exponent: float,
    unlike: float,
    claim: float,
) -> None:
    model = regression(
        "linear",
        seed=seed,
        devices=devices,
        examples=examples,
        dim=dim,
        scales=np.geomspace(1.0, 10.0**exponent, dim),
        unlike=unlike,
        claim=claim,
    )
    assert codes(model) == []


def test_a_run_checks_a_model_of_one_s_own_and_changes_no_draw(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is known exactly is not checked; the check draws from a stream of its own."""
    calls = []

    def counted(theta: Array) -> Array:
        calls.append(len(theta))
        both = right.gradient(theta[None])[0]
        return np.asarray(both - right.prior.gradient(theta)[:, None] / 20)

    right = regression(mean=True)
    model = flmc.Model.from_gradient(
        counted, prior=right.prior, dim=3, num_devices=20, smoothness=right.smoothness
    )
    plan = flmc.plan(model, flmc.Analog(), num_rounds=6, num_burn_in=2)
    calls.clear()
    checked = flmc.run(plan, model, chains=2)
    assert [finding.code for finding in checked.model_findings] == ["mean-not-sum"]
    assert checked.findings[: len(plan.findings)] == plan.findings
    assert any("mean over about" in text for text in checked.warnings)
    assert len(calls) <= 100
    monkeypatch.setattr("flmc.runs.job.check_model", lambda model, plan: ())
    np.testing.assert_array_equal(flmc.run(plan, model, chains=2).draws, checked.draws)
    monkeypatch.setattr("flmc.runs.job.check_model", None)
    known = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    flmc.run(flmc.plan(known, flmc.Analog(), num_rounds=6, num_burn_in=2), known, engine="numpy")


def test_a_link_that_moves_the_mean_of_a_model_of_ones_own() -> None:
    """Logistic regression with an intercept, classes sorted over devices: local gradients are large
    and cancel, and a steep sigmoid weighs them unequally. The linear link does not."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1000, 3))
    features[:, 0] = 1.0
    noisy = features @ [1.0, -1.0, 0.5] + rng.logistic(size=1000)
    order = np.argsort(noisy > 0, kind="stable")
    labels = np.where(noisy[order] > 0, 1.0, -1.0).reshape(10, 100)
    dealt = features[order].reshape(10, 100, 3)

    def gradient(theta: Array) -> Array:
        margin = labels * np.einsum("kne,ce->ckn", dealt, theta)
        return np.asarray(-np.einsum("ckn,kn,kne->cke", 1 / (1 + np.exp(margin)), labels, dealt))

    model = flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(0, 3), dim=3, num_devices=10, smoothness=280, convexity=60
    )
    for link, warned in ((flmc.Sigmoid(0.1), True), (flmc.Linear(), False)):
        uplink = flmc.Digital(link=link, clip=80)
        plan = flmc.plan(model, uplink, num_rounds=400, num_burn_in=200, forecast=False)
        found = {each.code: each for each in flmc.check_model(model, plan)}
        assert ("mean-shift" in found) == warned
        if warned:
            assert found["mean-shift"].numbers["mean_shift"] > 1
            assert "linear link" in found["mean-shift"].message


@pytest.mark.parametrize("slope_parameter", few([0.15, 0.2, 0.3, 0.5], 2))
def test_a_steep_link_widens_the_samples(slope_parameter: float) -> None:
    """Against the planner's prediction for linear regression, which averages link and bits over
    the stationary distribution. The pilot draws from the posterior itself, not from what is wider,
    and few draws: it sees three quarters of the prediction at least, and not more than it."""
    data = flmc.data.draw_linear(seed=1, num_samples=2000, dim=3, num_devices=20)
    model = flmc.LinearGaussian(data)
    uplink = flmc.Digital(link=flmc.Sigmoid(slope_parameter), clip=60.0)
    # At midpoints the least of these slopes widens by less than the tolerance.
    draw_at = "positions" if slope_parameter < 0.2 else "midpoints"
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(model, uplink, limits, num_rounds=2000, draw_at=draw_at)
    assert plan.prediction is not None
    expected = plan.prediction.variance_ratio
    (found,) = [each for each in flmc.check_model(model, plan) if each.code == "variance-ratio"]
    assert 0.75 * expected < found.numbers["variance_ratio"] <= 1.02 * expected
    assert found.severity == ("infeasible" if found.numbers["variance_ratio"] > 1.5 else "warning")
    assert "linear link" in found.message
    for straight in (flmc.Sigmoid(0.02), flmc.Linear()):
        flat = flmc.plan(model, flmc.replace(uplink, link=straight), num_rounds=2000)
        assert flmc.check_model(model, flat) == ()


@full_only
def test_what_bounds_of_examples_do_is_predicted() -> None:
    """Examples lose more than half of their response, whatever the uplink states."""
    data = flmc.data.draw_linear(seed=1, num_samples=2000, dim=3, num_devices=20)
    model = flmc.LinearGaussian(data)
    for shrink in (0.5, 1.0):
        uplink = flmc.Digital(
            link=flmc.Linear(), clip=60.0, example_clip=0.6, example_shrink=shrink
        )
        rounds = {"num_rounds": 3500, "num_burn_in": 1500}
        plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), **rounds)  # type: ignore[arg-type]
        assert plan.prediction is not None
        result = flmc.run(plan, model, seed=1, chains=full(40, 16), keep_draws=False)
        assert result.metrics is not None
        measured = result.metrics.variance_ratio
        off = plan.prediction.variance_ratio - measured.mean
        assert abs(off) < 5 * measured.se < 0.5 * measured.mean
