"""The predicted answer: closed forms, limits, measured widths, and plans whose aim it is."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import ndtr
from flmc.planning.answer_forecast import forecast_answer, judge_width
from flmc.planning.answer_law import PredictedAnswer, Response, flat_response, predicted_answer
from flmc.planning.requirements import read_requirement
from flmc.planning.step_size import Curvature
from flmc.settings.assembly import assemble
from flmc.settings.questions import solve
from flmc.settings.schema import merge
from support import full

OFF = flmc.Limits(privacy="off")
DIGITAL = flmc.Digital(link=flmc.Sigmoid(0.05), clip=30, snr_db=25)
ANALOG = flmc.Analog(clip=30, snr_db=30)


def isotropic(
    dim: int, q: float, heat: float, rounds: int, prior: float = 0.0, curvature: float = 1000.0
) -> PredictedAnswer:
    """Prediction for equal curvatures, a step of q over the curvature, and a temperature."""
    step = q / curvature
    seen = flat_response(dim, curvature, 2 * heat / step, step)
    assert seen is not None
    answer = predicted_answer(seen, prior * np.eye(dim), rounds)
    assert answer is not None
    return answer


@pytest.mark.parametrize("dim", [1, 5, 20])
@pytest.mark.parametrize("heat", [0.1, 4.0, 70.0])
def test_the_law_is_the_closed_form_to_second_order(dim: int, heat: float) -> None:
    rounds, q = 4000, 0.3
    freedom = rounds * q / (1 - q / 2)
    # Two for its own spread, and half of one for each other direction.
    curvature = (2 + (dim - 1) / 2) / freedom
    variance = (1 + 2 * heat / (rounds * q)) / (1 - curvature)
    answer = isotropic(dim, q, heat, rounds)
    # What the closed form leaves out is of the order of its corrections squared, and 24 quantiles
    # miss some of the small remainder in the tails, below 0.002.
    left_out = (curvature + 2 * heat / (rounds * q)) ** 2
    assert answer.width == pytest.approx(math.sqrt(variance), rel=left_out + 0.002)
    assert answer.mean_width == pytest.approx(answer.width, rel=1e-9)
    assert answer.degrees == pytest.approx(freedom, rel=1e-9)
    assert answer.data + answer.noise + answer.curvature == pytest.approx(1.0, rel=1e-12)


def test_limits() -> None:
    """Many rounds: the exact posterior. Endless noise: the prior, and no wider."""
    assert isotropic(5, 0.3, 1.0, 10**7).width == pytest.approx(1.0, abs=1e-4)
    lost = isotropic(5, 0.3, 1e9, 100, prior=10.0)
    assert lost.of_prior == pytest.approx(1.0, abs=1e-3)
    assert lost.width <= math.sqrt(1000 / 10) * (1 + 1e-9)
    assert flat_response(3, 1000.0, 1.0, 2e-3) is None  # a step at which chains diverge


def test_rotations_change_nothing() -> None:
    rng = np.random.default_rng(1)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    curvature = np.diag([50.0, 100.0, 400.0, 1000.0])
    chain = np.diag(1e-4 / np.diag(curvature))
    seen = Response(curvature, chain, np.full(4, 7e3), np.linalg.inv(curvature))
    one = predicted_answer(seen, 3.0 * np.eye(4), 500)
    turned = Response(
        turn @ curvature @ turn.T, turn @ chain @ turn.T, seen.noise, turn @ seen.posterior @ turn.T
    )
    other = predicted_answer(turned, 3.0 * np.eye(4), 500)
    assert one is not None
    assert other is not None
    assert other.width == pytest.approx(one.width, rel=1e-9)
    assert other.noise == pytest.approx(one.noise, rel=1e-9)


def scaled(rng: np.random.Generator, sets: int, dim: int, condition: float) -> flmc.LinearGaussian:
    """Linear regressions whose curvatures differ by ``condition``, in random directions."""
    own = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    features = rng.standard_normal((sets, 1200, dim)) * np.geomspace(condition**-0.5, 1.0, dim)
    features = features @ own.T
    theta = rng.standard_normal((sets, dim))
    targets = np.einsum("snd,sd->sn", features, theta) + rng.standard_normal((sets, 1200))
    return flmc.LinearGaussian(flmc.LinearData(features, targets, (60,) * 20))


FADED: dict[str, Any] = {"scheduler": flmc.ThresholdDevices(0.03)}
CASES: dict[str, tuple[flmc.Uplink, int, float, int, dict[str, Any]]] = {
    "digital, hot": (DIGITAL, 5, 1.0, 300, {}),
    "analog, 12 entries": (ANALOG, 12, 3.0, 900, {}),
    "linear link": (replace(DIGITAL, link=flmc.Linear(1.0)), 3, 2.0, 500, {}),
    "fading": (
        flmc.Analog(clip=30, snr_db=25, fading=flmc.RayleighFading(0.1)),
        4,
        2.0,
        700,
        FADED,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_predicted_widths_are_measured(case: str) -> None:
    """For plans that aim at an answer: the predicted width is the median of many data sets, and
    intervals of 90 % hold."""
    uplink, dim, condition, rounds, settings = CASES[case]
    model = scaled(np.random.default_rng(2), full(200, 60), dim, condition)
    plan = flmc.plan(model, uplink, OFF, num_rounds=rounds, aim="answer", **settings)
    answer = flmc.run(plan, model, seed=7).posterior()
    exact = model.posterior.covariance
    traces = (np.trace(each, axis1=1, axis2=2) for each in (answer.covariance, exact))
    width = np.sqrt(np.divide(*traces))
    assert plan.answer is not None
    # Five standard errors of a median (1.25 times those of a mean); 2 % for the bias of an
    # autoregression, which the prediction leaves out, and for the first data set, which it is of.
    tolerance = 5 * 1.25 * width.std() / math.sqrt(len(width)) + 0.02
    assert plan.answer.mean_width == pytest.approx(np.median(width), abs=tolerance)
    sd = np.sqrt(np.einsum("eii->ei", exact))
    ends = answer.intervals(0.9) - model.posterior.mean[..., None]
    low, high = np.moveaxis(ends, -1, 0) / sd
    held: Array = (ndtr(high) - ndtr(low)).mean(axis=1)
    # Intervals may hold a little more often where the curvature has few degrees of freedom.
    error = 5 * held.std() / math.sqrt(len(held))
    assert 0.9 - error - 0.01 < held.mean() < 0.9 + error + 0.03


def test_the_convexity_alone_is_the_safe_side() -> None:
    """Without the chain's law all directions are taken for as flat as the smallest curvature, so
    that the answer is not narrower than with it; without a convexity nothing is known."""
    model = scaled(np.random.default_rng(3), 1, 5, 10.0)
    plan = flmc.plan(model, ANALOG, OFF, num_rounds=600, aim="answer")
    curvature = Curvature.of(model, None, None)
    known, flat = plan.answer, forecast_answer(plan, model, curvature, None, None)
    assert known is not None
    assert flat is not None
    assert flat.width > known.width
    assert flat.response is None
    unknown = Curvature(model.smoothness, None, public=True)
    assert forecast_answer(plan, model, unknown, None, None) is None
    assert [each.severity for each in judge_width(None)] == ["unknown"]


@pytest.fixture
def linear() -> flmc.LinearGaussian:
    """A linear regression with 1200 examples, 5 entries and 20 devices."""
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def test_plans_that_aim_at_an_answer(linear: flmc.LinearGaussian) -> None:
    """Full power, a hot chain, a short burn-in; the step is the one with the smallest width."""
    plan = flmc.plan(linear, DIGITAL, OFF, aim="answer")
    assert plan.binding == "power"
    assert plan.typical_gain == pytest.approx(plan.gain_limits.power)
    assert plan.temperature is not None
    assert plan.temperature > 4
    assert plan.num_burn_in < 60
    assert plan.verdict is not None
    assert plan.verdict.good
    assert plan.answer is not None
    assert plan.answer.width < 1.15
    for factor in (0.2, 0.5):
        other = flmc.plan(linear, DIGITAL, OFF, aim="answer", step_size=factor * plan.step_size)
        assert other.answer is not None
        assert other.answer.width > plan.answer.width
    cold = flmc.plan(linear, DIGITAL, OFF)
    assert cold.binding == "langevin"
    assert cold.answer is not None
    assert cold.answer.width > 2 * plan.answer.width


def test_rounds_by_rule(linear: flmc.LinearGaussian) -> None:
    """As many as a width of 1.1 takes; under a tight budget no more than help."""
    plan = flmc.plan(linear, ANALOG, OFF, aim="answer", num_rounds="auto")
    assert plan.answer is not None
    assert plan.num_rounds == 300
    assert plan.answer.width <= 1.1
    weak = flmc.plan(linear, replace(ANALOG, snr_db=10), OFF, aim="answer", num_rounds="auto")
    assert weak.answer is not None
    assert weak.num_rounds > 300
    assert weak.answer.width <= 1.1
    tight = flmc.Limits(epsilon=1.0, scope="run")
    most = flmc.plan(linear, ANALOG, tight, aim="answer", num_rounds="auto")
    note = next(each for each in most.findings if each.code == "chosen-rounds")
    assert "more rounds hardly help" in note.message


def test_a_budget_binds_and_widens(linear: flmc.LinearGaussian) -> None:
    """Less epsilon, wider intervals; in the end nothing is learnt, and the use light says so."""
    widths, states = [], []
    for epsilon in (100.0, 10.0, 0.01):
        limits = flmc.Limits(epsilon=epsilon, scope="run")
        plan = flmc.plan(linear, ANALOG, limits, aim="answer")
        assert plan.binding == "privacy"
        assert plan.answer is not None
        assert plan.verdict is not None
        widths.append(plan.answer.width)
        states.append(plan.verdict.light("use"))
    assert widths == sorted(widths)
    assert states[-1].state == "infeasible"
    assert "nothing will be learnt" in states[-1].words


def test_bent_gradients_are_told(linear: flmc.LinearGaussian) -> None:
    """A clip that cuts most gradients shows too little curvature: the sampling light is not green,
    whatever the temperature; a hot chain with a good clip has a green one."""
    narrow = flmc.plan(linear, flmc.Analog(clip=5, snr_db=30), OFF, aim="answer")
    assert "not-linear" in {each.code for each in narrow.findings}
    assert narrow.verdict is not None
    assert narrow.verdict.light("sampling").state != "good"


def test_documents_keep_aim_and_answer(linear: flmc.LinearGaussian) -> None:
    plan = flmc.plan(linear, DIGITAL, OFF, aim="answer")
    document = json.loads(json.dumps(plan.to_document()))
    again = flmc.Plan.from_document(document)
    assert (again.aim, again.answer, again.digest) == ("answer", plan.answer, plan.digest)
    # Plans of earlier versions have neither.
    old = {name: item for name, item in document.items() if name not in ("aim", "answer")}
    before = flmc.Plan.from_document(old)
    assert (before.aim, before.answer) == ("chain", None)
    assert "answer" in {row.label for row in plan.listing().rows}


def test_requirements_and_solutions() -> None:
    settings = merge({}, {"scheme": "analog", "privacy": "off", "aim": "answer"})
    solution = solve(settings, "rounds", [read_requirement("width<=1.1")])
    assert solution.plan.answer is not None
    assert solution.plan.answer.width <= 1.1
    fewer = solution.settings.model_copy(update={"rounds": int(0.9 * solution.value)})
    narrow = assemble(fewer).plan().answer
    assert narrow is None or narrow.width > 1.1
    broken = read_requirement("width<=1.01").broken(solution.plan)
    assert broken is not None
    assert broken.startswith("width<=1.01 is not met: width is 1.")


def test_what_contradicts_an_answer_is_refused(linear: flmc.LinearGaussian) -> None:
    with pytest.raises(InvalidSetting, match="aim must be one of chain, answer; got 'mean'"):
        flmc.plan(linear, DIGITAL, OFF, aim="mean")
    with pytest.raises(InvalidSetting, match="leave langevin out, got 'paper'"):
        flmc.plan(linear, DIGITAL, flmc.Limits(langevin="paper"), aim="answer")
    with pytest.raises(InvalidSetting, match="needs Langevin's update"):
        flmc.plan(linear, DIGITAL, OFF, aim="answer", update=flmc.Momentum(0.5))
    wide = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=201, num_samples=2000))
    with pytest.raises(InvalidSetting, match="at most 200 entries, got 201"):
        flmc.plan(wide, ANALOG, OFF, aim="answer")


def test_a_run_is_judged_by_its_answer(linear: flmc.LinearGaussian) -> None:
    """The chain is seven times too hot, and its result is good; as draws of a chain it is not."""
    settings: dict[str, Any] = {"num_burn_in": 60, "aim": "answer"}
    plan = flmc.plan(linear, DIGITAL, OFF, **settings)
    verdict = flmc.run(plan, linear, seed=3, chains=2).verdict
    assert verdict is not None
    assert verdict.good
    drawn = flmc.run(replace(plan, aim="chain"), linear, seed=3, chains=2).verdict
    assert drawn is not None
    assert drawn.light("sampling").state == "infeasible"
    without = flmc.run(plan, linear, seed=3, chains=2, keep_draws=False).verdict
    assert without is not None
    assert without.light("sampling").state == "unknown"


def test_squared_width_and_shift_add_up_to_a_score() -> None:
    """The expected interval score of an interval for N(0, 1) whose truth has the mean b, by
    quadrature: that of an interval sqrt(1 + b^2) times as wide, to second order in b."""
    z, alpha = 1.6448536269514722, 0.1
    x = np.linspace(-12, 12, 200_001)
    for b in (0.0, 0.1, 0.3):
        density = np.exp(-np.square(x - b) / 2) / np.sqrt(2 * np.pi)
        missed = np.trapezoid(np.maximum(np.abs(x) - z, 0) * density, x)
        score = 2 * z + 2 / alpha * missed
        own = 4 / alpha * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        # The next term is of order b^4.
        assert abs(score / own - np.sqrt(1 + b * b)) < 1e-6 + b**4
