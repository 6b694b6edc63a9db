"""The three lights of a plan, in JSON and in rows, and what is said of a pilot."""

from __future__ import annotations

import json

import numpy as np
import pytest

import flmc
from flmc.planning.plans.plan_schema import PlanDocument
from flmc.planning.plans.verdict import verdict_of


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def states(plan: flmc.Plan) -> list[str]:
    """States of sampling, privacy and use in a plan's JSON document, which the schema describes."""
    document = json.loads(json.dumps(plan.to_document(with_run=False), allow_nan=False))
    PlanDocument.model_validate(document)
    return [each["state"] for each in document["verdict"]["lights"].values()]


def test_lights_in_the_document(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, delta=0.01))
    assert states(plan) == ["good", "warning", "infeasible"]
    assert plan.to_document(with_run=False)["verdict"]["state"] == "infeasible"
    free = flmc.plan(model, flmc.Digital(), flmc.Limits(privacy="off"), num_rounds=3000)
    assert states(free) == ["good", "not asked", "good"]
    assert free.to_document()["verdict"]["state"] == "good"


def test_a_budget_of_a_round_says_what_the_run_costs(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, delta=0.01))
    said = verdict_of(plan, with_run=True).light("privacy").words
    assert said.endswith("the run costs epsilon 142.06 at delta 1e-05")
    rows = {row.label: row.text for row in plan.listing().rows[:3]}
    assert rows["privacy"] == f"warning: {said}"
    # Where the run's cost is not to be computed, nothing is.
    fresh = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, delta=0.01))
    assert "142" not in str(fresh.listing(with_run=False))
    assert "142" not in json.dumps(fresh.to_document(with_run=False)["verdict"])
    assert "run_cost" not in vars(fresh)


def test_a_budget_of_the_run_in_a_simulation(model: flmc.LinearGaussian) -> None:
    limits = flmc.Limits(epsilon=10, scope="run")
    looked = flmc.plan(model, flmc.Digital(), limits)
    public = flmc.plan(model, flmc.Digital(), limits, public_smoothness=1500, public_convexity=900)
    words = [plan.verdict.light("privacy").words for plan in (looked, public) if plan.verdict]
    assert words[0] == f"{words[1]}, in a simulation: the plan looked at the data"


def test_a_plan_without_verdict_opens_and_is_called_nothing(model: flmc.LinearGaussian) -> None:
    """As plans from before there were lights: 2.7 draws and a budget of a round were no finding."""
    plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, delta=0.01))
    document = plan.to_document(with_run=False)
    again = flmc.Plan.from_document(document)
    assert again.verdict == plan.verdict
    old = {name: value for name, value in document.items() if name != "verdict"}
    old["findings"] = []
    opened = flmc.Plan.from_document(old)
    assert opened.digest == plan.digest
    assert opened.verdict is None
    assert opened.listing(with_run=False).headline is None
    bare = flmc.plan(model, flmc.Digital(), forecast=False)
    assert bare.to_document(with_run=False)["verdict"] is None


def test_a_measured_miss_is_no_good_result(model: flmc.LinearGaussian) -> None:
    """Chains that start far away, and are kept from round 1."""
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(model, flmc.Digital(), limits, num_rounds=3000, num_burn_in=0)
    result = flmc.run(plan, model, seed=1, chains=20, keep_draws=False)
    codes = [each.code for each in result.findings]
    assert "measured-variance" in codes
    assert result.verdict is not None
    assert result.verdict.light("sampling").state == "infeasible"
    right = flmc.plan(model, flmc.Digital(), limits, num_rounds=3000)
    assert flmc.run(right, model, seed=1, chains=20, keep_draws=False).verdict.good  # type: ignore[union-attr]


def from_gradient(broken: bool = False) -> flmc.Model:
    """Twenty devices that observe a value of unit variance fifty times each."""
    seen = np.random.default_rng(1).normal(size=(20, 50, 2)).sum(axis=1)

    def gradient(theta: np.ndarray) -> np.ndarray:
        if broken:
            raise RuntimeError("no data here")
        return np.asarray(50 * theta[:, None] - seen)

    return flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(), dim=2, num_devices=20, smoothness=1001.0, convexity=1001.0
    )


def test_a_plan_says_that_a_pilot_ran(model: flmc.LinearGaussian) -> None:
    own = from_gradient()
    plans = [flmc.plan(own, flmc.Ideal()) for _ in range(2)]
    notes = [[each for each in plan.findings if each.code == "pilot"] for plan in plans]
    assert notes[0] == notes[1]  # the same, though the second asks a pilot that ran
    assert 5 < notes[0][0].numbers["batches"] < 100
    known = flmc.plan(model, flmc.Ideal())
    assert "pilot" not in [each.code for each in known.findings]


def test_a_model_that_raises_can_be_planned_and_is_not_good() -> None:
    plan = flmc.plan(from_gradient(broken=True), flmc.Ideal(), num_rounds=3000)
    assert plan.verdict is not None
    assert plan.verdict.light("sampling").state == "warning"
    assert "RuntimeError: no data here" in plan.verdict.headline.text
