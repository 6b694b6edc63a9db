"""The one search: candidates, longer runs and axes, on functions whose answers are known."""

from __future__ import annotations

import math

import pytest

import flmc
from flmc.planning.decision import Request
from flmc.planning.search import (
    Axis,
    Candidate,
    Sloped,
    Trial,
    bends,
    bisect,
    lengthen,
    smallest,
    variants,
)
from flmc.uplink.links import Linear, Probit, Sigmoid


def _held(model: flmc.LinearGaussian) -> Candidate:
    return Candidate(model, flmc.Digital(clip=20.0), flmc.Limits(epsilon=5.0), Request())


@pytest.mark.parametrize("start", [-7.0, 0.0, 2.9, 3.1, 11.0])
def test_the_smallest_place_that_meets(start: float) -> None:
    """Everything from 3 upwards meets: the answer is within a resolution above 3, from anywhere."""
    place = smallest(lambda x: x >= 3.0, start, Axis(1.0, 60.0, 0.1))
    assert place is not None
    assert 3.0 <= place <= 3.1
    assert smallest(lambda x: x >= 300.0, start, Axis(1.0, 60.0, 0.1)) is None


def test_less_may_be_what_helps() -> None:
    """Only a window below the start meets: the search goes up, finds nothing, and then down."""
    place = smallest(lambda x: -9.0 <= x <= -2.0, 0.0, Axis(1.0, 60.0, 0.01))
    assert place is not None
    assert place == pytest.approx(-9.0, abs=0.01)


def test_halving_counts_no_place_twice() -> None:
    asked: list[float] = []

    def meets(place: float) -> bool:
        asked.append(place)
        return place > 0.3

    assert bisect(meets, 0.0, 1.0, 1 / 64) == pytest.approx(0.3125)
    assert len(asked) == len(set(asked)) == 6


def test_every_combination_is_tried_once_in_order(model: flmc.LinearGaussian) -> None:
    """The last setting changes fastest; a link that cannot be so steep is left out."""
    links = [Sloped(Linear()), Sloped(Linear(), 0.1), Sloped(Sigmoid(), 0.1)]
    tried = list(variants(_held(model), {"clip": [5.0, 15.0], "link": links}))
    assert [(each.uplink.clip, type(each.uplink.link)) for each in tried] == [
        (5.0, Linear),
        (5.0, Linear),
        (5.0, Sigmoid),
        (15.0, Linear),
        (15.0, Sigmoid),
    ]
    assert tried[1].uplink.slope == pytest.approx(0.1)
    assert {each.limits.epsilon for each in tried} == {5.0}


def test_values_are_set_where_they_belong(model: flmc.LinearGaussian) -> None:
    held = _held(model)
    for name, value in (("snr_db", 3.0), ("epsilon", 9.0), ("step_size", 1e-3), ("clip", 4.0)):
        changed = held.with_value(name, value)
        assert changed is not None
        owners = (changed.uplink, changed.limits, changed.request)
        assert [getattr(owner, name) for owner in owners if hasattr(owner, name)] == [value]
    bounded = held.with_value("example_norm", 6.0)
    assert bounded is not None
    assert bounded.uplink.example_norm == 6.0
    assert bounded.uplink.example_shrink < 1.0


def test_a_run_grows_until_it_wants_no_more(model: flmc.LinearGaussian) -> None:
    held, counts = _held(model), []

    def at(rounds: int) -> Trial:
        counts.append(rounds)
        changed = held.with_value("num_rounds", rounds)
        assert changed is not None
        return changed.try_out()

    trial = lengthen(at, 300, lambda each: 900 if len(counts) < 3 else 0, 10)
    assert trial.plan is not None
    assert trial.plan.num_rounds == 900
    # Growth ends at a count that is not larger, and before a run that is not worth it.
    assert counts == [300, 900]
    counts.clear()
    kept = lengthen(at, 300, lambda _: 301, 10, worthwhile=1.5).plan
    assert kept is not None
    assert kept.num_rounds == 300


def test_a_candidate_without_a_plan_says_why(model: flmc.LinearGaussian) -> None:
    changed = _held(model).with_value("num_burn_in", 300)
    assert changed is not None
    trial = changed.try_out()
    assert trial.plan is None
    assert not trial.good
    assert "num_burn_in must be below" in trial.refusal
    assert trial.closeness == trial.length == (math.inf, math.inf)


def test_which_links_bend() -> None:
    assert not bends(Linear(0.7), 20.0)
    assert bends(Sigmoid(), 20.0)
    assert bends(Probit(), 20.0)
