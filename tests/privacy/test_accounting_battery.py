"""Every accountant against an oracle that shares no code with it: never below the truth, and within
2 % (or 0.001) of epsilon above it; `tail` and `paper` within 2 % of the gain.

``make accounting-check`` prints the same as a table, with all truths computed anew."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
import pytest
from scipy import integrate, special, stats

from privacy.oracle import normal, plans
from privacy.oracle.battery import (
    ACCOUNTANTS,
    Case,
    Known,
    extremes,
    fixed_neighbours,
    know,
    stored,
)
from privacy.oracle.bits import of_logits, one_order
from privacy.oracle.check import battery_verdicts
from privacy.oracle.inversion import Sum
from privacy.oracle.relations import relation_verdicts
from privacy.oracle.tail_gains import ReceivedSum
from privacy.oracle.truth import true_epsilon
from privacy.oracle.verdicts import Verdict
from support import QUICK, full, full_only

KNOWN = stored()


def some_of(known: list[Known], count: int) -> list[Known]:
    """``count`` cases spread evenly over those of each accountant, or all."""
    return [known[i] for i in np.unique(np.linspace(0, len(known) - 1, count).astype(int))]


def test_there_are_enough_cases() -> None:
    assert len(KNOWN) >= 200
    assert {known.case.accountant for known in KNOWN} == set(ACCOUNTANTS)
    assert all(known.truth.converged for known in KNOWN)
    assert max(known.case.number for known in KNOWN) >= 1e8
    assert min(known.case.delta for known in KNOWN) <= 1e-11


@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_the_stored_truths_are_what_the_oracle_finds(accountant: str) -> None:
    """Up to what it says of its own error, and rounding that differs between machines."""
    known = [each for each in KNOWN if each.case.accountant == accountant]
    for each in some_of(known, full(5, 1)):
        found = know(each.case)
        margin = 2 * (found.error + each.truth.error) + 1e-7 * each.truth.epsilon
        assert found.epsilon == pytest.approx(each.truth.epsilon, abs=margin, rel=0)


@pytest.mark.parametrize(
    ("case", "expected"),
    [
        (Case("example", ((0.5, 1_000_000),), 1e-5, "sigmoid", 2.0, 0.001), 0.869),
        (Case("device", ((0.27386, 1500),), 1e-5, reach=1.5), 142.06),
    ],
    ids=["example", "device"],
)
def test_values_that_others_found(case: Case, expected: float) -> None:
    """By an independent computation (tilted transforms and Laplace inversion), to its digits."""
    assert know(case).epsilon == pytest.approx(expected, rel=6e-4)
    if case.accountant == "example":
        assert fixed_neighbours(case) == pytest.approx(0.829, rel=6e-4)


@pytest.mark.parametrize(("gain", "count", "delta"), [(0.05, 300, 1e-6), (2.0, 4, 1e-9)])
def test_the_oracle_on_certain_bits(gain: float, count: int, delta: float) -> None:
    """Certain bits are the Gaussian mechanism."""
    found = know(Case("device", ((gain, count),), delta, "linear", 1.0))
    exact = normal.epsilon_of(delta, 2 * gain * math.sqrt(count))
    assert found.epsilon == pytest.approx(exact, rel=1e-6)


@pytest.mark.parametrize(("count", "delta"), [(12, 1e-2), (200, 1e-9)])
def test_the_oracle_without_noise(count: int, delta: float) -> None:
    """Bits that are received as they were sent: a binomial sum of losses of plus and minus the
    same size. At gain 9 one bit in 1e18 is received wrongly."""
    logit = 0.7
    found = know(Case("device", ((9.0, count),), delta, reach=logit)).epsilon
    k = np.arange(count + 1)
    mass = stats.binom.pmf(k, count, special.expit(logit))
    loss = (2 * k - count) * logit
    above = float(mass @ np.maximum(0.0, -np.expm1(found - loss)))
    assert above == pytest.approx(delta, rel=1e-4)


def test_the_oracle_on_two_entries() -> None:
    """One integral over the loss of the first entry, of the divergence at what is left."""
    bits, amplitude, delta = extremes("sigmoid", 2.0), 0.8, 1e-4
    found = true_epsilon(partial(one_order, bits), ((amplitude, 2),), delta).epsilon
    p, q = float(bits.p), float(bits.q)

    def density(share: float, w: float) -> float:
        plus, minus = (math.exp(-0.5 * (w - c) ** 2) for c in (amplitude, -amplitude))
        return float(share * plus + (1 - share) * minus) / math.sqrt(2 * math.pi)

    def inner(w: float) -> float:
        x = math.exp(found) * density(q, w) / density(p, w)
        # The second entry: the divergence as a plain integral.
        grid = np.linspace(-10.0, 10.0, 4001)
        plus, minus = (stats.norm.pdf(grid - c) for c in (amplitude, -amplitude))
        gap = (p - x * q) * plus + (1 - p - x * (1 - q)) * minus
        return density(p, w) * float(np.maximum(gap, 0).sum() * (grid[1] - grid[0]))

    value = integrate.quad(inner, -9, 9, epsrel=1e-6, limit=200)[0]
    assert value == pytest.approx(delta, rel=1e-3)


def test_two_ways_to_the_moments() -> None:
    """From the profile, and as a sum over received values."""
    bits, amplitude = of_logits(1.5, -1.5), 0.6
    profiles = Sum([(one_order(bits, amplitude), 3)])
    centres = ((amplitude, float(bits.p)), (-amplitude, float(bits.p_not)))
    received = ReceivedSum(bits, amplitude, centres, 3)
    for c in (0.3, 1.0, 4.0):
        assert profiles.cumulant(c) == pytest.approx(received.cumulant(c), rel=1e-10)


def faults(verdicts: list[Verdict]) -> list[str]:
    """What is wrong, in words."""
    wrong = [f"below the truth: {v}" for v in verdicts if v.violates]
    return wrong + [f"loose: {v}" for v in verdicts if v.loose and not v.structural]


@full_only
@pytest.mark.parametrize("accountant", ACCOUNTANTS)
def test_never_below_the_truth_and_close_to_it(accountant: str) -> None:
    known = [each for each in KNOWN if each.case.accountant == accountant]
    verdicts = battery_verdicts(some_of(known, full(len(known), 6)))
    assert faults(verdicts) == []


SCENARIOS = (plans.constant, plans.come_and_go, plans.changing) if QUICK else plans.SCENARIOS


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: str(scenario.__name__))
def test_plans_and_ledgers_say_what_a_run_costs(scenario: plans.Scenario) -> None:
    """Also where a statement may be looser for a reason that has a name: never below the truth."""
    settings = plans.SETTINGS[::2] if QUICK else plans.SETTINGS
    assert faults(plans.plan_verdicts((scenario,), settings)) == []


def test_a_silent_or_zeroed_device_is_never_below_the_truth_and_hardly_above() -> None:
    for verdict in relation_verdicts(full(16, 4)):
        assert verdict.converged, verdict
        assert not verdict.violates, verdict
        assert not verdict.loose, verdict
