"""The map of regimes against plans that are made one by one."""

from __future__ import annotations

import math

import pytest

from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble
from flmc.settings.regimes import RegimeMap, plan_other_scheme, regime_maps
from flmc.settings.schema import merge


def made(snr_db: float, epsilon: float, **given: str) -> Plan:
    return assemble(merge({}, {**given, "snr_db": snr_db, "epsilon": epsilon})).plan()


@pytest.fixture(scope="module")
def found() -> RegimeMap:
    (only,) = regime_maps(merge({}, {"step_size": "0.0015"}), levels=(4,))
    return only


def test_points_are_those_of_plans(found: RegimeMap) -> None:
    for row, epsilon in zip(found.regimes, found.epsilon, strict=True):
        for regime, snr_db in zip(row, found.snr_db, strict=True):
            plan = made(snr_db, epsilon, step_size="0.0015")
            assert regime.binding == plan.binding
            assert plan.run_cost is not None
            assert regime.run_epsilon == plan.run_cost.epsilon
            assert plan.prediction is not None
            assert regime.variance_ratio == plan.prediction.variance_ratio


def test_every_constraint_decides_somewhere(found: RegimeMap) -> None:
    assert {regime.binding for row in found.regimes for regime in row} == {
        "power",
        "langevin",
        "privacy",
    }


def test_more_power_and_more_epsilon_never_narrow(found: RegimeMap) -> None:
    """With one step the gain grows with either, and noise falls with the gain."""
    ratios = found.values("variance_ratio")
    assert (ratios[1:] <= ratios[:-1] * (1 + 1e-9)).all()
    assert (ratios[:, 1:] <= ratios[:, :-1] * (1 + 1e-9)).all()


def test_the_better_scheme_is_the_same_from_either_side() -> None:
    """Whether analog is better does not depend on which scheme the settings name."""
    digital, analog = (
        next(iter(regime_maps(merge({}, {"scheme": scheme, "step_size": step}), levels=(3,))))
        for scheme, step in (("digital", "0.0015"), ("analog", "3.75e-05"))
    )
    one, other = digital.values("analog_is_better"), analog.values("analog_is_better")
    assert (one == other).all()


def test_a_map_that_nobody_wants_any_more_ends() -> None:
    asked = 0

    def stop() -> bool:
        nonlocal asked
        asked += 1
        return asked > 20

    maps = list(regime_maps(merge({}, {}), levels=(4, 8), stop=stop))
    assert len(maps) == 1
    assert asked == 21


def test_where_nothing_can_be_planned() -> None:
    (found,) = regime_maps(merge({}, {"link": "sign"}), levels=(2,))
    assert {regime.binding for row in found.regimes for regime in row} == {""}
    assert math.isnan(found.values("run_epsilon")[0, 0])


@pytest.mark.parametrize("scheme", ["digital", "analog"])
def test_the_other_scheme_has_the_same_effective_step(scheme: str) -> None:
    problem = assemble(merge({}, {"scheme": scheme}))
    plan = problem.plan(forecast=False)
    other = plan_other_scheme(problem.settings, plan, problem.model)
    assert other is not None
    assert other.uplink.scheme != scheme
    assert other.effective_step_size == pytest.approx(plan.effective_step_size, rel=1e-12)
