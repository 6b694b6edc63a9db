"""The neighbouring relation as a setting of plans: what it costs, what is written, what is
refused."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import flmc
from contracts.registered import model
from deploy.federations import make_federation
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.audit.scene import Scene
from flmc.privacy.neighbours import RELATIONS
from flmc.privacy.one_sided_bits import AbsentBitEvent, ZeroedBitEvent

ONE_SIDED = ("add_remove", "zero_out")


def one_round(relation: str) -> float:
    """Epsilon at delta 1e-5 of one entry of a bit with the slope parameter 0.01 at full power."""
    uplink = flmc.Digital(link=flmc.Sigmoid(0.01))
    gain = np.full((1, 1), 0.71131)
    return uplink.event_of_rounds(gain, 1, "device", 1, relation).epsilon(1e-5)


def test_a_bit_shows_presence_more_than_its_data() -> None:
    """Delta of one entry by the trapezoidal rule, from the densities alone."""
    high = 1.0 / (1.0 + math.exp(-0.01 * 30.0))
    w = np.linspace(-15.0, 15.0, 300_001)

    def mixture(p: float) -> Array:
        return np.asarray(p * norm.pdf(w - 0.71131) + (1 - p) * norm.pdf(w + 0.71131))

    worlds = {
        "replace": (mixture(high), mixture(1 - high)),
        "zero_out": (mixture(high), mixture(0.5)),
        "add_remove": (mixture(high), norm.pdf(w)),
    }

    def delta(relation: str, epsilon: float) -> float:
        first, second = worlds[relation]
        return max(
            float(np.trapezoid(np.maximum(p - math.exp(epsilon) * q, 0.0), w))
            for p, q in ((first, second), (second, first))
        )

    for relation in RELATIONS:
        stated = one_round(relation)
        # The steps of 1e-4 lose 1e-9 of an integral; delta is 1e-5.
        assert delta(relation, stated) <= 1e-5 * (1 + 1e-3)
        assert delta(relation, stated * (1 - 1e-2)) > 1e-5
    assert one_round("replace") == pytest.approx(0.293, abs=1e-3)
    assert one_round("add_remove") == pytest.approx(2.335, abs=1e-3)


@pytest.mark.parametrize("relation", ONE_SIDED)
@pytest.mark.parametrize("bound", ["example_norm", "example_clip"])
@pytest.mark.parametrize("uplink", [flmc.Analog(), flmc.Digital()], ids=["analog", "digital"])
def test_an_example_moves_by_its_bound_once(relation: str, bound: str, uplink: flmc.Uplink) -> None:
    rounds = np.full((7, 1), 0.1)
    whole, half = (flmc.replace(uplink, **{bound: size}) for size in (2.0, 1.0))
    one = whole.event_of_rounds(rounds, 5, "example", 1, relation)
    assert one == half.event_of_rounds(rounds, 5, "example")


def test_two_steps_by_removal_are_a_replacement() -> None:
    """With epsilon and delta of add_remove: 2 epsilon and (1 + e^epsilon) delta of replace."""
    uplink, rounds = flmc.Digital(), np.full((3, 1), 0.3)
    for unit, bounded in (("device", uplink), ("example", flmc.replace(uplink, example_norm=6.0))):
        replaced = bounded.event_of_rounds(rounds, 5, unit)
        for relation in ONE_SIDED:
            step = bounded.event_of_rounds(rounds, 5, unit, 1, relation)
            for epsilon in (0.1, 0.5, 1.0):
                twice = (1 + math.exp(epsilon)) * step.delta(epsilon)
                assert replaced.delta(2 * epsilon) <= twice * (1 + 1e-9)


@pytest.mark.parametrize("event", [AbsentBitEvent, ZeroedBitEvent])
def test_events_of_one_side_grow_with_gain_and_rounds(event: type) -> None:
    """Also beyond the amplitudes at which a silent device counts as seen."""
    zero = (0.5,) if event is ZeroedBitEvent else ()
    spent = []
    for gain in (1e-6, 1e-3, 0.1, 1.0, 10.0, 19.0, 21.0, 1e5):
        each = event(0.9, 0.1, *zero, 1.0, ((gain, 3),))
        spent.append(each.delta(0.5))
        assert each.repeated(2).delta(0.5) >= spent[-1]
        assert each.averaged_delta(0.5, 4, 0.5) <= each.repeated(4).delta(0.5) * (1 + 1e-9) + 1e-20
    assert spent == sorted(spent)
    allowed = event(0.9, 0.1, *zero, 1.0, ((1.0, 3),)).allowed_gain(0.5, 1e-5)
    assert event(0.9, 0.1, *zero, 1.0, ((allowed, 3),)).delta(0.5) <= 1e-5 * (1 + 1e-9)


def test_a_plan_of_replacement_does_not_name_the_relation() -> None:
    problem = model()
    plain = flmc.plan(problem, flmc.Digital(), num_rounds=300)
    assert "relation" not in plain.to_document()["asked"]
    digests = {plain.digest}
    for relation in ONE_SIDED:
        limits = flmc.Limits(relation=relation)
        plan = flmc.plan(problem, flmc.Digital(), limits, num_rounds=300)
        document = plan.to_document()
        assert document["asked"]["relation"] == relation
        assert document["privacy"]["neighbouring"] == limits.neighbours
        assert limits.neighbours.split()[1] in str(plan)
        assert flmc.Plan.from_document(document).digest == plan.digest
        digests.add(plan.digest)
    assert len(digests) == 3


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("unit", ["device", "example"])
def test_a_budget_is_kept_and_a_ledger_states_the_relation(
    relation: str, unit: str, tmp_path: Path
) -> None:
    problem = model()
    limits = flmc.Limits(epsilon=3.0, scope="run", neighbouring=unit, relation=relation)
    uplink = flmc.Analog(example_norm=2.0)
    plan = flmc.plan(problem, uplink, limits, num_rounds=60, num_burn_in=20)
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 3.0 * (1 + 1e-9)
    flmc.run(plan, problem, seed=1, chains=1, out=tmp_path / "record")
    spent = flmc.spent(flmc.load(tmp_path / "record"), plan)
    assert spent.neighbouring == limits.neighbours
    assert spent.epsilon <= plan.run_cost.epsilon * (1 + 1e-9)


def test_an_unknown_relation_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="relation must be one of"):
        flmc.Limits(relation="swap")


@pytest.mark.parametrize("relation", ONE_SIDED)
def test_what_is_not_carried_is_refused_by_name(relation: str) -> None:
    limits = flmc.Limits(relation=relation)
    plan = flmc.plan(model(), flmc.Digital(), limits, num_rounds=300)
    if relation == "add_remove":
        with pytest.raises(InvalidSetting, match="shows which devices are there"):
            make_federation(plan)
    with pytest.raises(InvalidSetting, match=f"audit.*{relation}"):
        Scene.of_plan(plan, 5)
    bits = flmc.Digital().event_of_rounds(np.ones((1, 1)), 1, "device", 1, relation)
    with pytest.raises(InvalidSetting, match=r"relation other than 'replace' needs privacy"):
        bits.delta(1.0, "tail")
