"""Fair comparison: plans brought to one effective step, epsilon, energy or airtime."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.planning.decision import Request, decide
from flmc.planning.fairness import QUANTITIES, Equality, with_changes
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.search import Candidate
from flmc.uplink.uplink import Uplink

RAYLEIGH = flmc.RayleighFading(0.04)
UPLINKS: dict[str, list[Uplink]] = {
    "power binds": [flmc.Digital(snr_db=5), flmc.Analog(snr_db=5)],
    "langevin binds": [flmc.Digital(), flmc.Analog(), flmc.Digital(link=flmc.Linear())],
    "fading": [flmc.Digital(fading=RAYLEIGH), flmc.Analog(fading=RAYLEIGH)],
    "modulation": [flmc.Digital(), flmc.Digital(modulation="complex")],
}


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


def planned(each: Candidate) -> Plan:
    return decide(each.model, each.uplink, each.limits, each.request)


def made_equal(name: str, candidates: list[Candidate]) -> tuple[Equality, list[Plan], list[Plan]]:
    """What is shared, and the plans before and after."""
    before = [planned(each) for each in candidates]
    shared = Equality.among(name, before)
    after = [
        planned(with_changes(each, shared.changes(each, plan)))
        for each, plan in zip(candidates, before, strict=True)
    ]
    return shared, before, after


@pytest.mark.parametrize("case", UPLINKS)
@pytest.mark.parametrize("name", QUANTITIES)
def test_plans_are_made_equal(name: str, case: str, model: flmc.LinearGaussian) -> None:
    candidates = [Candidate(model, each, Limits(epsilon=1e3)) for each in UPLINKS[case]]
    shared, before, after = made_equal(name, candidates)
    values: dict[str, Callable[[Any], Any]] = {
        "step": lambda plan: plan.effective_step_size,
        "privacy": lambda plan: plan.run_cost.epsilon,
        "energy": lambda plan: plan.airtime.energy * plan.uplink.noise_power,
        "airtime": lambda plan: plan.num_rounds * plan.uplink.symbols_per_round(plan.dim),
    }
    of = values[name]
    pick = max if name == "airtime" else min
    assert shared.value == pick(map(of, before))
    assert shared.setter in before
    for plan in after:
        shared.check(plan)
        # Rounds are whole: an airtime is reached but for less than a round of the longest symbols.
        most = plan.uplink.symbols_per_round(plan.dim) - 1
        off = most if name == "airtime" else 2e-3 * shared.value
        assert abs(of(plan) - shared.value) <= off
        assert plan.num_burn_in == 200
    # A method that has the value already is left as it is.
    own = before.index(shared.setter)
    assert after[own] == before[own]


def test_an_equal_step_is_equal_in_every_round(model: flmc.LinearGaussian) -> None:
    candidates = [Candidate(model, each, Limits()) for each in (flmc.Digital(), flmc.Analog())]
    _, before, after = made_equal("step", candidates)
    assert before[0].burn_in_step_factor > 1  # else nothing is shown
    first, second = (plan.step_sizes * (plan.slope or 0.0) for plan in after)
    np.testing.assert_allclose(first, second, rtol=1e-12)
    for plan in after:
        assert plan.temperature == pytest.approx(1.0, rel=1e-6)


def test_energies_are_compared_without_the_noise_of_the_receiver(
    model: flmc.LinearGaussian,
) -> None:
    quiet = flmc.Digital(snr_db=5)
    loud = flmc.replace(quiet, noise_power=4.0)  # the same SNR: four times the power
    candidates = [Candidate(model, each, Limits()) for each in (quiet, loud)]
    shared, _, after = made_equal("energy", candidates)
    assert shared.setter.uplink == quiet
    assert after[1].uplink.snr_db == pytest.approx(5 - 10 * np.log10(4), abs=1e-3)


@pytest.mark.parametrize("snr_db", [5.0, 15.0, 25.0])
def test_no_method_exceeds_the_shared_energy(model: flmc.LinearGaussian, snr_db: float) -> None:
    """The smallest energy is that of one method, and the others come up to it from below."""
    candidates = [
        Candidate(model, kind(snr_db=snr_db), Limits()) for kind in (flmc.Digital, flmc.Analog)
    ]
    shared, _, after = made_equal("energy", candidates)
    energies = [plan.airtime.energy * plan.uplink.noise_power for plan in after if plan.airtime]
    assert len(energies) == 2
    assert max(energies) == pytest.approx(shared.value, rel=1e-12)  # but for rounding
    # Twice the resolution of the search, of 0.0001 dB.
    assert min(energies) > shared.value * 10 ** (-2e-5)


@pytest.mark.parametrize(
    ("name", "uplinks", "request_", "message"),
    [
        ("privacy", [flmc.Digital(), flmc.Ideal()], {}, "ideal uplink has no epsilon of the run"),
        ("energy", [flmc.Digital(), flmc.Ideal()], {}, "ideal uplink has no energy"),
        ("airtime", [flmc.Ideal(), flmc.Ideal()], {}, "none has one"),
        (
            "step",
            [flmc.Digital(), flmc.Digital(link=flmc.uplink.links.Sign())],
            {"step_size": 1e-5, "gain": 0.01},
            "the digital uplink has no effective step",
        ),
        ("power", [flmc.Digital()], {}, "equal must be one of step, privacy, energy, airtime"),
        (
            "privacy",
            [flmc.Digital(), flmc.Analog()],
            {"gain": 0.02},
            r"cannot be reached: the epsilon of the run must be .* has .* with a gain that was",
        ),
    ],
)
def test_what_cannot_be_made_equal_is_refused(
    name: str,
    uplinks: list[Uplink],
    request_: dict[str, Any],
    message: str,
    model: flmc.LinearGaussian,
) -> None:
    limits = Limits(langevin="off")
    candidates = [Candidate(model, each, limits, Request(**request_)) for each in uplinks]

    def check() -> None:
        shared, _, after = made_equal(name, candidates)
        for plan in after:
            shared.check(plan)

    with pytest.raises(InvalidSetting, match=message):
        check()


def test_epsilons_of_different_statements_are_not_compared(model: flmc.LinearGaussian) -> None:
    plans = [flmc.plan(model, flmc.Analog(), flmc.Limits(run_delta=d)) for d in (1e-5, 1e-6)]
    with pytest.raises(InvalidSetting, match="one run_delta for all methods, got 1e-06, 1e-05"):
        Equality.among("privacy", plans)
