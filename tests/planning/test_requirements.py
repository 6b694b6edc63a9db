"""Requirements of a plan, and findings with their codes and numbers."""

from __future__ import annotations

import json

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, gravest
from flmc.cli import main
from flmc.planning.requirements import read_requirement


def test_what_may_be_required(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5))
    for text in (
        "temperature<=1.05",
        " temperature >= 0.95 ",
        "run.epsilon<200",
        "round.epsilon > 1",
        "margin.power>=8",
        "mean_shift<0.25",
        "burn-in",
        "sampling",
    ):
        assert read_requirement(text).broken(plan) is None, text
    for text, words in (
        ("temperature<=0.9", "temperature is 1"),
        ("run.epsilon<=3", "run.epsilon is 142"),
        ("margin.power>=9", "margin.power is 8.2"),
        ("good", "one chain is worth 2.6 independent draws"),
        ("feasible", "one chain is worth 2.6 independent draws"),
        ("use", "one chain is worth 2.6 independent draws"),
        ("privacy", "the budget is for a round only"),
    ):
        broken = read_requirement(text).broken(plan)
        assert broken is not None
        assert broken.startswith(text)
        assert words in broken


def test_what_is_unknown_is_not_met() -> None:
    own = flmc.Model.from_gradient(
        lambda theta: theta[:, None] + 0 * theta[:, None],
        prior=flmc.Normal(),
        dim=2,
        num_devices=1,
        smoothness=3.0,
        convexity=1.0,
    )
    plan = flmc.plan(own, flmc.Analog(), forecast=False)
    assert read_requirement("mean_shift<=1").broken(plan) is not None
    for name in ("good", "feasible", "sampling", "privacy", "use"):
        assert "was not judged" in str(read_requirement(name).broken(plan))


@pytest.mark.parametrize(
    "text",
    ["", "temprature<=1", "temperature<=", "temperature<=x", "gain<=nan", "<=3", "=="],
)
def test_requirements_that_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match="requirement"):
        read_requirement(text)


def test_one_line_for_every_broken_requirement(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--require", "temperature<=1.05", "--require", "run.epsilon<=3"]
    assert main(["plan", "--snr-db", "0", "--json", *options, "--require", "burn-in"]) == 1
    captured = capsys.readouterr()
    document = json.loads(captured.out)  # printed all the same
    lines = captured.err.strip().splitlines()
    assert [line.split(" is not met")[0] for line in lines] == [
        "flmc: run.epsilon<=3",
        "flmc: burn-in",
    ]
    found = {each["code"]: each for each in document["findings"]}
    assert found["burn-in"]["severity"] == "infeasible"
    assert found["burn-in"]["numbers"] == {
        "needed": document["rounds_needed"],
        "planned": document["num_burn_in"],
    }
    assert document["warnings"] == [
        each["message"] for each in document["findings"] if each["severity"] != "note"
    ]
    assert main(["plan", "--json", "--require", "sampling"]) == 0
    assert main(["plan", "--json", "--require", "good"]) == 1
    good = ["--privacy", "off", "--rounds", "1500"]
    assert main(["plan", "--json", *good, "--require", "good"]) == 0
    # A light that was not asked for does not stand in the way of GOOD, but is not green.
    assert main(["plan", "--json", *good, "--require", "privacy"]) == 1
    assert main(["plan", "--require", "best"]) == 2


def test_a_plan_that_cannot_work_says_so_in_its_first_line(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(snr_db=0), num_rounds=550, num_burn_in=500)
    first = str(plan).splitlines()[0]
    assert first.startswith(f"INFEASIBLE: {plan.rounds_needed} rounds of burn-in needed, 500")
    long = flmc.plan(model, flmc.Digital(), num_rounds=1500)
    assert str(long).splitlines()[0].startswith("GOOD: ")
    warm = flmc.plan(model, flmc.Digital(), step_size=2.8e-3, num_rounds=1500)
    assert str(warm).splitlines()[0].startswith("WARNING: temperature 1.")


def test_findings_travel_with_a_plan(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(snr_db=0))
    document = json.loads(json.dumps(plan.to_document(with_run=False)))
    again = flmc.Plan.from_document(document)
    assert again.findings == plan.findings
    # Documents that are older than findings have sentences only.
    del document["findings"]
    old = flmc.Plan.from_document(document)
    assert old.warnings == plan.warnings


def test_gravest() -> None:
    note, warning = Finding("a", "note", "a"), Finding("b", "warning", "b")
    grave = Finding("c", "infeasible", "c", numbers={"n": float("inf")})
    assert gravest([note]) == []
    assert gravest([note, warning]) == [warning]
    assert gravest([warning, grave, note]) == [grave]
    assert grave.to_document()["numbers"] == {"n": None}


def test_an_epsilon_of_zero_never_stands_alone(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Analog(snr_db=-20), flmc.Limits(epsilon=5))
    assert plan.round_cost is not None
    assert plan.round_cost.epsilon == 0
    assert plan.round_cost.delta_at_zero is not None
    assert 0 < plan.round_cost.delta_at_zero <= plan.limits.delta
    text = str(plan)
    assert "epsilon 0 has delta" in text
    assert "delta 1e-05 has epsilon" in text
    document = plan.to_document(with_run=False)
    assert document["privacy"]["round"]["delta_at_zero"] == plan.round_cost.delta_at_zero


def test_the_radio_is_shown_at_both_ends(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(snr_db=25))
    assert "SNR 25 dB at the transmitter, path gain 0.04 (-28 dB): -2.96 dB" in str(plan)
    radio = plan.to_document(with_run=False)["radio"]
    assert radio["received_snr_db"] == pytest.approx(25 - 27.9588, abs=1e-4)
    fades = flmc.plan(model, flmc.Digital(fading=flmc.RayleighFading(0.5))).radio
    # The root mean square of 1024 x 20 drawn path gains is 0.5 to 0.35 % (one standard error).
    assert fades.path_gain == pytest.approx(0.5, rel=0.02)
    assert fades.varies


def test_margins(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5))
    assert plan.margins_db["langevin"] == pytest.approx(0, abs=1e-9)
    # 0.71131 over 0.27386, in decibels of power.
    assert plan.margins_db["power"] == pytest.approx(8.29, abs=0.01)
    loud = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=1), gain=0.5)
    assert loud.margins_db["privacy"] < 0


def test_a_budget_is_met_to_rounding(model: flmc.LinearGaussian) -> None:
    """The gain is found to 1e-9, so what it spends may exceed the budget in the twelfth digit."""
    limits = flmc.Limits(epsilon=1)
    plan = flmc.plan(model, flmc.Digital(), limits, step_size=2e-3)
    assert plan.binding == "privacy"
    assert read_requirement("round.epsilon<=1").broken(plan) is None
    assert read_requirement("round.epsilon<=0.99999").broken(plan) is not None
    assert "epsilon 1 at delta 0.01" in str(plan)


def test_every_plan_that_was_judged_has_a_verdict() -> None:
    own = flmc.Model.from_gradient(
        lambda theta: 9.0 * theta[:, None] - np.zeros((4, 2)),
        prior=flmc.Normal(),
        dim=2,
        num_devices=4,
        smoothness=37.0,
        convexity=37.0,
    )
    settings = {"num_rounds": 4000, "num_burn_in": 600}
    plan = flmc.plan(own, flmc.Analog(), **settings)  # type: ignore[arg-type]
    assert str(plan).startswith("GOOD: by prediction the samples' variance is ")
    silent = flmc.plan(own, flmc.Analog(), forecast=False, **settings)  # type: ignore[arg-type]
    assert not str(silent).startswith("GOOD")


def test_a_direction_that_is_too_wide_is_not_averaged_away() -> None:
    """A step near 2/L makes the steepest direction 20 times too wide, and the others are right."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(1000, 3)) * [1.0, 1.0, 0.03]
    data = flmc.LinearData(features, features @ np.ones(3) + rng.normal(size=1000), (100,) * 10)
    model = flmc.LinearGaussian(data, prior_precision=0.1)
    plan = flmc.plan(
        model,
        flmc.Analog(clip=1000.0, snr_db=120.0),
        step_size=1.9 / (model.smoothness or 1.0),
        num_fast=0,
        num_rounds=6000,
        num_burn_in=4000,
        start="zero",
        draw_at="positions",
    )
    assert plan.prediction is not None
    assert plan.prediction.variance_ratio_largest > 10
    assert [each.severity for each in plan.findings if each.code == "variance-ratio"] == [
        "infeasible"
    ]


def test_the_worst_data_set_is_judged() -> None:
    """One of four data sets has devices that differ; the mean over data sets would hide it."""
    rng = np.random.default_rng(1)
    features = rng.normal(size=(4, 800, 3))
    truth = np.zeros((4, 8, 3))
    truth[0, :2] += 2.1
    targets = np.einsum("end,end->en", features, np.repeat(truth, 100, axis=1))
    targets += rng.normal(size=(4, 800))
    model = flmc.LinearGaussian(flmc.LinearData(features, targets, (100,) * 8))
    uplink = flmc.Digital(link=flmc.Sigmoid(0.007), clip=380.0)
    plan = flmc.plan(model, uplink, num_rounds=9000, num_burn_in=7000)
    assert "mean-shift" in [each.code for each in plan.findings]
