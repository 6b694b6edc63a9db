"""Evidence of a server without data: wrong chains that it sees, right ones that it does not accuse,
and what it says it does not know."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearData
from flmc.deploy.server.federation_result import result_without_data
from flmc.evaluation.server_evidence import judge_without_data, server_evidence
from flmc.planning.plans import Plan
from flmc.uplink.report import FINENESS, ReportingModel, question, scale_of, with_report
from flmc.uplink.uplink import Uplink
from support import full, full_only

DEVICES, EXAMPLES, DIM = 10, 30, 2
STEEP = flmc.Digital(clip=300.0, link=flmc.Sigmoid(0.5), snr_db=60)
GENTLE = flmc.Digital(clip=300.0, link=flmc.Sigmoid(0.05), snr_db=60)
MIDDLE = flmc.Digital(clip=60.0, link=flmc.Sigmoid(0.1), snr_db=60)
WIDE, NARROW = flmc.Analog(clip=60.0, snr_db=60), flmc.Analog(clip=6.0, snr_db=60)
TIGHT = flmc.Analog(clip=15.0, snr_db=60)


def regression(seed: int, unlike: float) -> flmc.LinearGaussian:
    """A linear regression whose devices have their own coefficients, ``unlike`` apart and skewed,
    so that their pulls do not cancel behind a clip."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(DEVICES, EXAMPLES, DIM))
    skewed = rng.standard_exponential((DEVICES, DIM)) ** 2
    targets = np.einsum("kni,ki->kn", features, unlike * skewed)
    targets = targets + rng.normal(size=targets.shape)
    sizes = (EXAMPLES,) * DEVICES
    return flmc.LinearGaussian(LinearData(features.reshape(-1, DIM), targets.ravel(), sizes))


def planned(model: flmc.Model, uplink: Uplink, share: float, **given: Any) -> Plan:
    """A plan whose chain goes about ``share`` of its way in a round, from public knowledge."""
    step = share / (uplink.slope * DEVICES * EXAMPLES)
    settings = {"num_rounds": 1400, "num_burn_in": 400, "start": "zero", "forecast": False}
    return flmc.plan(model, uplink, step_size=step, **{**settings, **given})


def chain(plan: Plan, model: flmc.Model, seed: int) -> Array:
    """Positions of one chain after kept rounds, (round, dim)."""
    result = flmc.run(plan, model, seed=seed, keep_draws=True, engine="numpy")
    assert result.path is not None
    return np.asarray(result.path.kept[0, 0])


def off(model: flmc.LinearGaussian, draws: Array) -> tuple[float, Array]:
    """Distance of the draws' mean from the posterior's in standard deviations, and the variance
    ratios along the axes of the posterior."""
    assert model.posterior is not None
    root = np.linalg.cholesky(np.linalg.inv(np.asarray(model.posterior.covariance)[0]))
    white = (draws - np.asarray(model.posterior.mean)[0]) @ root
    return float(np.linalg.norm(white.mean(axis=0))), np.linalg.eigvalsh(np.cov(white.T))


def codes(plan: Plan, draws: Array, **given: Any) -> dict[str, str]:
    return {each.code: each.severity for each in judge_without_data(plan, draws, **given)}


def test_a_server_sees_bits_that_are_saturated() -> None:
    # Quantisation is most of the noise here, so that what is missing of it shows.
    model = regression(1, unlike=1.0)
    plan = planned(model, STEEP, 0.5, public_smoothness=400.0)
    draws = chain(plan, model, 1)
    shift, _ = off(model, draws)
    assert shift > 5.0
    result = result_without_data(plan, draws, 1.0)
    assert "saturated-bits" in [each.code for each in result.findings]
    assert any("saturated" in text for text in result.warnings)
    assert "bits are saturated" in str(result)


def test_the_noise_tells_the_mean_square_of_the_mean_bits() -> None:
    model = regression(2, unlike=0.3)
    plan = planned(model, MIDDLE, 0.3)
    draws = chain(plan, model, 2)
    evidence = server_evidence(plan, draws)
    assert evidence is not None
    assert evidence.saturation is not None
    bits = plan.uplink.mean_symbol(model.gradient(draws[None]))
    truth = np.square(bits).mean(axis=(0, 1, 2))
    assert truth.max() > 0.05
    # 5 standard errors, as the evidence states them.
    error = evidence.saturation.square_error
    assert np.abs(evidence.saturation.square - truth).max() < 5 * error < 0.5


def test_a_weak_response_shows_where_curvature_is_public() -> None:
    model = regression(3, unlike=1.0)
    plan = planned(model, NARROW, 0.3, public_convexity=240.0, public_smoothness=400.0)
    draws = chain(plan, model, 3)
    assert off(model, draws)[0] > 5.0
    assert codes(plan, draws) == {"weak-response": "warning"}


@pytest.mark.parametrize(("draw_at", "widened"), [("positions", 1 / 0.9), ("midpoints", 1.0)])
def test_noise_that_was_not_planned_shows_as_variance(draw_at: str, widened: float) -> None:
    model = regression(4, unlike=0.0)
    plan = planned(model, WIDE, 0.2, draw_at=draw_at)
    louder = planned(model, flmc.replace(WIDE, noise_power=2.0), 0.2, gain=plan.typical_gain)
    draws = chain(louder, model, 4)
    findings = judge_without_data(plan, draws)
    assert [each.code for each in findings] == ["measured-variance"]
    ratio = findings[0].numbers["variance_ratio"]
    # Twice the noise; at positions the step of 0.2 adds 1/(1 - 0.1). 5 standard errors.
    assert ratio == pytest.approx(2 * widened, abs=5 * findings[0].numbers["standard_error"])


def test_devices_clipped_against_each_other_are_not_known() -> None:
    model = regression(5, unlike=0.15)
    plan = planned(model, TIGHT, 0.1)
    draws = chain(plan, model, 5)
    assert off(model, draws)[0] > 2.0
    # Nothing in the sum of what devices send differs from a right chain.
    assert codes(plan, draws) == {"not-judged": "unknown"}
    result = result_without_data(plan, draws, 1.0)
    assert any("not known whether" in text for text in result.warnings)


def test_few_rounds_are_not_judged() -> None:
    model = regression(5, unlike=0.0)
    plan = planned(model, WIDE, 0.3, num_rounds=12, num_burn_in=2)
    assert codes(plan, chain(plan, model, 5)) == {"not-judged": "unknown"}


@pytest.mark.parametrize("uplink", [MIDDLE, WIDE], ids=lambda each: each.scheme)
def test_right_chains_are_not_accused(uplink: Uplink) -> None:
    # Each of at most five comparisons goes wrong with probability 2.3e-4 (3.5 standard errors): of
    # 40 chains one is accused with probability 0.05 over the choice of seeds, which are fixed.
    for seed in range(full(20, 4)):
        model = regression(100 + seed, unlike=0.0)
        share = 0.05 + 0.05 * (seed % 2)
        plan = planned(model, uplink, share, public_convexity=200.0, public_smoothness=400.0)
        assert set(codes(plan, chain(plan, model, seed)).values()) <= {"unknown", "note"}


@pytest.mark.parametrize("uplink", [STEEP, TIGHT], ids=lambda each: each.scheme)
def test_reports_show_what_the_sum_hides(uplink: Uplink) -> None:
    model = regression(6, unlike=0.3)
    reporting = ReportingModel(model, uplink)
    plan = planned(reporting, uplink, 0.3)
    draws = chain(plan, reporting, 6)
    assert off(model, draws[:, :-1])[0] > 1.0
    found = codes(plan, draws, reports=True)
    assert found.keys() & {"reported-shift", "reported-loss"}


@full_only
@pytest.mark.parametrize(
    ("uplink", "share"), [(GENTLE, 0.03), (WIDE, 0.15)], ids=["digital", "analog"]
)
def test_reports_earn_that_a_chain_is_right(uplink: Uplink, share: float) -> None:
    model = regression(7, unlike=0.0)
    reporting = ReportingModel(model, uplink)
    plan = planned(reporting, uplink, share, num_rounds=4400)
    draws = chain(plan, reporting, 7)
    findings = judge_without_data(plan, draws, reports=True)
    assert [each.code for each in findings] == ["judged-by-reports"]
    assert findings[0].severity == "note"
    # What it says is true: the bound covers the measured distance, up to the chance of one chain.
    shift, ratios = off(model, draws[:, :-1])
    assert shift < 0.25
    assert abs(ratios.mean() - findings[0].numbers["variance_ratio"]) < 0.25


def test_reported_remainders_are_those_of_the_devices() -> None:
    model = regression(8, unlike=0.05)
    reporting = ReportingModel(model, MIDDLE)
    plan = planned(reporting, MIDDLE, 0.1)
    draws = chain(plan, reporting, 8)
    evidence = server_evidence(plan, draws, reports=True)
    assert evidence is not None
    assert evidence.reported is not None
    local = model.gradient(draws[None, :, :-1])[0]
    rest = (local - MIDDLE.mean_symbol(local) / MIDDLE.slope).sum(axis=1)  # (draw, dim)
    assert np.abs(rest).max() > 0
    covariance = np.cov(draws[:, :-1].T)
    bias = rest.mean(axis=0)
    truth = math.sqrt(bias @ covariance @ bias)
    lost = np.mean(rest * (draws[:, :-1] - draws[:, :-1].mean(axis=0)))
    told = evidence.reported
    # 5 standard errors, as the evidence states them; the shift is a norm of two entries.
    assert abs(told.shift - truth) < 5 * math.sqrt(2) * told.shift_error < 2.0
    assert abs(told.lost - lost) < 5 * told.lost_error < 1.0


@pytest.mark.parametrize("uplink", [STEEP, NARROW], ids=lambda each: each.scheme)
def test_a_report_is_proportional_to_the_remainder_and_bounded(uplink: Uplink) -> None:
    rng = np.random.default_rng(9)
    theta, scale = rng.normal(size=(500, DIM)), scale_of(uplink)
    gradient = rng.normal(size=(500, DEVICES, DIM)) * uplink.clip
    sent = with_report(gradient, theta, uplink)
    assert np.array_equal(sent[..., :-1], gradient)
    assert np.abs(sent[..., -1]).max() <= uplink.clip * (1 + 1e-12)
    share = (gradient - uplink.mean_symbol(gradient) / scale.slope) / scale.reach
    asked = question(theta)
    wanted = np.stack([np.clip(share[t, :, min(i, DIM - 1)], -1, 1) for t, i in enumerate(asked)])
    largest = np.abs(share).max(axis=-1)
    sizes = np.where(largest > 1, np.minimum(largest / FINENESS, 1), 0)
    wanted = np.where((asked == DIM)[:, None], sizes, wanted)
    # The table of the link's inverse has 4001 points, between which it is straight.
    symbol = uplink.mean_symbol(sent[..., -1]) / scale.peak
    assert np.abs(symbol - wanted).max() < 2e-3


def test_which_number_is_reported_follows_from_the_bits_of_theta() -> None:
    # Pinned: devices in other languages must agree with the server on it.
    thetas = np.array([[0.0, 0.0, 0.0], [-0.0, 0.0, 0.0], [1.0, -1.5, 0.1], [0.1, 0.001, 3.25]])
    assert question(thetas).tolist() == [0, 3, 2, 3]
    many = question(np.random.default_rng(1).normal(size=(40_000, 3)))
    shares = np.bincount(many, minlength=4) / len(many)
    # Half of the rounds ask for sizes, the others for one of 3 entries: 5 standard errors.
    assert np.abs(shares - [1 / 6, 1 / 6, 1 / 6, 1 / 2]).max() < 5 * math.sqrt(0.25 / len(many))


def test_a_report_costs_what_one_more_entry_costs() -> None:
    model = regression(10, unlike=0.0)
    limits = flmc.Limits(epsilon=5.0, delta=0.01)
    uplink = flmc.Digital()
    known: dict[str, Any] = {"public_smoothness": 400.0, "public_convexity": 200.0, "gain": 0.05}
    without = flmc.plan(model, uplink, limits, **known)
    plan = flmc.plan(ReportingModel(model, uplink), uplink, limits, **known)
    assert plan.dim == without.dim + 1
    wider = flmc.plan(
        flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=DIM + 1, num_devices=DEVICES)),
        uplink,
        limits,
        **known,
    )
    assert plan.run_cost is not None
    assert wider.run_cost is not None
    assert without.run_cost is not None
    assert plan.run_cost.epsilon == wider.run_cost.epsilon > without.run_cost.epsilon


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"example_clip": 1.0}, "one example"),
        ({"example_norm": 1.0}, "one example"),
        ({"clipping": "norm"}, "clipping='entry'"),
    ],
)
def test_reports_without_a_proof_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidSetting, match=words):
        ReportingModel(regression(1, 0.0), flmc.replace(WIDE, **changes))


def test_reports_are_read_as_draws_are() -> None:
    """A midpoint of the same chain has the same share of the variance less, whether clipping takes
    something from the gradients or not: half of what theta is pulled back in a round."""
    model = regression(6, unlike=0.3)
    reporting = ReportingModel(model, TIGHT)
    plans = [planned(reporting, TIGHT, 0.3, draw_at=each) for each in ("positions", "midpoints")]
    draws = chain(plans[0], reporting, 6)
    ratios, pull = [], 0.0
    for plan in plans:
        evidence = server_evidence(plan, draws, reports=True)
        assert evidence is not None
        assert evidence.reported is not None
        assert abs(evidence.reported.lost) > 1e-3
        ratios.append(evidence._ratio[0])
        pull = evidence.line.pull
    assert ratios[1] / ratios[0] == pytest.approx(1 - pull / 2, rel=1e-12)
