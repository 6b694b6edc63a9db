"""What an attacker achieves at most: the trade-off curve against closed forms, riskcal, and
likelihood-ratio tests of what is really received."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_distribution as loss_distribution
from hypothesis import given, settings
from hypothesis import strategies as st
from riskcal.analysis import get_advantage_from_pld, get_beta_from_pld
from scipy.stats import binom, norm

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.audit.attack import draw_statistics
from flmc.evaluation.audit.scene import Scene
from flmc.planning.plans.plan_schema import RiskDocument
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.noiseless_bits import NoiselessBitEvent
from flmc.privacy.scheduled_event import ScheduledEvent
from flmc.privacy.trade_off import TradeOff
from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from support import few, full

CLOSE = 1e-3
"""How far the curve may be above the truth anywhere: what its finite number of lines leaves."""
SHARES = np.concatenate([np.geomspace(1e-7, 0.5, 60), 1.0 - np.geomspace(1e-7, 0.5, 60)])
"""Probabilities of a false alarm, from rare to nearly certain."""
MODEL = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=80, num_devices=4))


def gaussian(mu: float) -> GaussianEvent:
    return GaussianEvent(mu, 1.0, ((1.0, 1),))


def bits(high: float, *sent: tuple[float, int]) -> BitEvent:
    return BitEvent(high, 1.0 - high, 1.0, tuple(sent))


def curve(event: Event, delta: float = 1e-5) -> TradeOff:
    found = TradeOff.of(event, delta)
    assert found is not None
    return found


def caught(found: TradeOff, shares: Array = SHARES) -> Array:
    return np.array([found.caught(float(share)) for share in shares])


# Second sources: the Gaussian mechanism and randomised response in closed form, and riskcal.


@pytest.mark.parametrize("mu", [1e-3, 0.05, 0.3, 1.0, 2.0, 3.5, 6.0, 20.0])
def test_the_gaussian_mechanism_in_closed_form(mu: float) -> None:
    found = curve(gaussian(mu))
    above = caught(found) - norm.sf(norm.isf(SHARES) - mu)
    # The closed form itself is rounded by some 1e-15.
    assert above.min() >= -1e-14
    assert above.max() < CLOSE
    assert 0 <= found.accuracy - norm.cdf(mu / 2) < 1e-9


@pytest.mark.parametrize("number", few([1, 2, 20, 300], 3))
def test_randomised_responses_in_closed_form(number: int) -> None:
    """Bits without noise that are wrong with some probability: the best tests are thresholds of the
    number of +1 bits, and the curve is the polygon through these."""
    error = 0.5 - 0.4 / math.sqrt(number)
    counts = np.arange(number + 1, -1, -1)  # thresholds: so many +1 bits or more
    corners = [binom.sf(counts - 1, number, share) for share in (error, 1.0 - error)]
    truth = np.interp(SHARES, corners[0], corners[1])
    loss = math.log((1.0 - error) / error)
    loud = bits(1.0 - error, (1e3, number))
    for event in (NoiselessBitEvent(error, 1.0, ((1.0, number),)), loud):
        found = curve(event)
        above = caught(found) - truth
        assert above.min() >= -1e-14
        assert above.max() < CLOSE
        best = float(np.max(corners[1] - corners[0]))
        # The grid on which the losses of 300 bits are added costs some 3e-5.
        assert found.accuracy == pytest.approx((1.0 + best) / 2.0, abs=1e-4)
        # No loss is above that of all bits.
        assert found.loss_exceeded(1e-5) <= number * loss * (1.0 + 1e-6)


def against_riskcal(event: Event, truth: Any) -> None:
    """The curve of an event is close to that of riskcal, which bounds the truth from the same side
    with a grid of its own: below it by no more than the errors of this grid."""
    found, shares = curve(event), np.array([1e-3, 1e-2, 0.05, 0.2, 0.5, 0.8])
    above = caught(found, shares) - (1.0 - get_beta_from_pld(truth, shares))
    assert above.min() > -2e-4
    assert above.max() < CLOSE
    advantage = 2.0 * found.accuracy - 1.0
    assert advantage == pytest.approx(get_advantage_from_pld(truth), abs=2e-4)


@pytest.mark.parametrize("mu", few([0.1, 1.0, 2.5], 2))
def test_riskcal_on_rounds_of_the_gaussian_mechanism(mu: float) -> None:
    """Sixteen rounds with a quarter of mu."""
    once = loss_distribution.from_gaussian_mechanism(4.0 / mu, value_discretization_interval=1e-3)
    event = GaussianEvent(mu / 4.0, 1.0, ((1.0, 16),))
    against_riskcal(event, once.self_compose(16))


@pytest.mark.parametrize("number", few([1, 12], 1))
def test_riskcal_on_bits_in_noise(number: int) -> None:
    """What is received, in cells of a fine grid, under the two worst data sets."""
    edges, gain, high = np.linspace(-9.0, 9.0, 60_001), 0.8, 0.85
    edges[[0, -1]] = -np.inf, np.inf
    cells = [np.diff(norm.cdf(edges, loc=sign * gain)) for sign in (1, -1)]
    first, second = (high * cells[world] + (1.0 - high) * cells[1 - world] for world in (0, 1))
    laws = [dict(enumerate(np.log(np.maximum(law, 1e-300)).tolist())) for law in (second, first)]
    once = loss_distribution.from_two_probability_mass_functions(
        *laws, value_discretization_interval=1e-5
    )
    # It rounds losses up to its grid, and tells apart by whole cells of it.
    against_riskcal(bits(high, (gain, number)), once.self_compose(number))


# What attackers really achieve: likelihood-ratio tests of received signals.


def drawn_plan(index: int) -> flmc.Plan:
    """A random plan: its scheme, link, gain and neighbouring data follow from ``index``."""
    rng = np.random.default_rng([6, index])
    links: list[flmc.Link] = [
        flmc.Sigmoid(float(rng.uniform(0.1, 1.0))),
        flmc.Probit(float(rng.uniform(0.1, 0.5))),
        flmc.Linear(float(rng.uniform(0.3, 0.9))),
    ]
    example = index % 4 >= 2
    part = float(rng.uniform(0.5, 3.0)) if example else None
    bound: Any = {"clip": 3.0, "example_clip": part, "snr_db": 60.0}
    uplink: flmc.Uplink = flmc.Analog(**bound)
    if index % 2:
        uplink = flmc.Digital(link=links[int(rng.integers(3))], **bound)
    moved = uplink.example_part / 3.0 if example else 1.0
    rounds = int(rng.integers(1, 5))
    # Gains at which the whole short run is neither free nor without any privacy.
    gain = float(rng.uniform(0.1, 1.2)) / (2.0 * uplink.peak * moved * math.sqrt(rounds))
    limits = flmc.Limits(neighbouring="example" if example else "device")
    return flmc.plan(MODEL, uplink, limits, num_rounds=rounds, num_burn_in=0, gain=gain)


@pytest.mark.parametrize("index", few(list(range(20)), 4))
def test_no_likelihood_ratio_test_does_better(index: int) -> None:
    """Thresholds are fixed by draws of their own; then both rates are counted. The bound at a rate
    of false alarms that is 5 standard errors higher is not exceeded by 5 standard errors. Where one
    pair of data sets is the worst at every threshold, the attack comes as close."""
    plan, trials = drawn_plan(index), full(40_000, 10_000)
    scene = Scene.of_plan(plan, plan.num_rounds, seed=index)
    found = curve(scene.event)
    # The device's data are the extreme ones in both worlds: the second world is "no alarm".
    _, quiet = draw_statistics(scene, trials, seed=2 * index + 1)
    loud, calm = draw_statistics(scene, trials, seed=2 * index + 2)
    for share in (0.5, 0.1, 0.01):
        threshold = np.quantile(quiet, 1.0 - share)
        alarms, hits = np.mean(calm > threshold), np.mean(loud > threshold)
        # Agresti and Coull's shrunk rates keep the standard errors of small counts from being 0.
        errors = [
            5.0 * math.sqrt((rate * trials + 2) * ((1 - rate) * trials + 2)) / trials**1.5
            for rate in (alarms, hits)
        ]
        assert hits - errors[1] <= found.caught(min(1.0, float(alarms) + errors[0]))
        # The worst centre of an example's move differs from threshold to threshold for bits; a
        # device's worst pair (docs/privacy.md, section 3) and an analog move do not.
        one_pair = plan.limits.neighbouring == "device" or not plan.uplink.randomised
        assert (
            not one_pair
            or hits + errors[1] >= found.caught(max(0.0, float(alarms) - errors[0])) - CLOSE
        )


# The curve as a function.

_GAINS = st.floats(1e-3, 3.0)
_EVENTS = st.one_of(
    st.floats(1e-3, 12.0).map(gaussian),
    st.builds(
        lambda high, gain, count: bits(high, (gain, count)),
        st.floats(0.51, 0.999),
        _GAINS,
        st.integers(1, 40),
    ),
    st.builds(
        lambda error, count: NoiselessBitEvent(error, 1.0, ((1.0, count),)),
        st.floats(0.01, 0.49),
        st.integers(1, 60),
    ),
    st.builds(
        lambda gain, rounds, chance: ScheduledEvent(bits(0.8, (gain, 3)), rounds, chance),
        _GAINS,
        st.integers(1, 12),
        st.floats(0.05, 0.9),
    ),
)
_EVEN = np.linspace(0.0, 1.0, 101)


@settings(max_examples=full(60, 15), deadline=None)
@given(_EVENTS)
def test_the_shape_of_the_curve(event: Event) -> None:
    """Convex, decreasing, below guessing, and its own inverse: the relation is symmetric."""
    found = curve(event)
    missed = np.array([found.missed(float(share)) for share in _EVEN])
    assert (missed <= 1.0 - _EVEN).all()
    assert (missed >= 0.0).all()
    rounding = 1e-11  # what ``TradeOff`` adds for rounding, with room
    assert (np.diff(missed) <= rounding).all()
    assert (np.diff(missed, 2) >= -rounding).all()
    for share, back in zip(_EVEN, missed, strict=True):
        # The slope of f at f(share), which magnifies rounding, is 1/f(share) at most.
        if back > 1e-3:
            assert found.missed(float(back)) == pytest.approx(share, abs=1e-8)
    # Accuracy at even odds is the best of all thresholds.
    best = np.max(1.0 - _EVEN - missed)
    assert best <= 2.0 * found.accuracy - 1.0 + rounding


@settings(max_examples=full(40, 10), deadline=None)
@given(st.floats(0.55, 0.99), st.floats(0.02, 1.5), st.floats(1.0, 3.0), st.integers(1, 12))
def test_louder_and_longer_runs_reveal_more(
    high: float, gain: float, louder: float, rounds: int
) -> None:
    for event in (bits(high, (gain, rounds)), GaussianEvent(2.0, 1.0, ((gain, rounds),))):
        found = caught(curve(event))
        for more in (event.scaled(louder), event.repeated(2)):
            # Either curve is up to CLOSE above its truth.
            assert (caught(curve(more)) >= found - CLOSE).all()
            assert curve(more).accuracy >= curve(event).accuracy - 1e-6


@settings(max_examples=full(60, 15), deadline=None)
@given(_EVENTS, st.floats(0.0, 1.0))
def test_the_deltas_of_a_curve_are_those_of_the_event(event: Event, share: float) -> None:
    epsilon = share * event.epsilon(1e-9)
    delta, found = event.delta(epsilon), event.curve_delta(epsilon)
    # Both are upper bounds on the same grids, and differ by what rounding may hide.
    assert found == pytest.approx(delta, rel=3e-6, abs=1e-15)


@pytest.mark.parametrize("bound", ["example_clip", "example_norm"])
def test_the_deltas_of_a_curve_where_an_example_moves(bound: str) -> None:
    """Gains on either side of the one where both bounds of a norm are computed."""
    uplink = flmc.Digital(**{bound: 4.0})  # type: ignore[arg-type]
    for gain in (0.05, 0.8):
        once = uplink.event_of_rounds(np.full((1, 1), gain), 2, "example")
        for event in (once.repeated(6), ScheduledEvent(once, 6, 0.4)):
            for epsilon in (0.0, 0.01, 0.1, 0.5):
                delta = event.delta(epsilon)
                assert event.curve_delta(epsilon) == pytest.approx(delta, rel=3e-6, abs=1e-15)


def test_an_average_of_gaussian_rounds_is_the_mean_of_its_deltas() -> None:
    event = gaussian(0.7)
    mean = sum(binom.pmf(n, 9, 0.3) * event.repeated(n).delta(0.4) for n in range(1, 10))
    assert event.averaged_delta(0.4, 9, 0.3) == pytest.approx(mean, rel=1e-7)


# The belief afterwards.


@pytest.mark.parametrize("mu", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("chance", [1e-2, 1e-5])
def test_a_belief_is_exceeded_as_seldom_as_stated(mu: float, chance: float) -> None:
    """The loss of the Gaussian mechanism is N(mu^2/2, mu^2): the exact quantile is below the
    bound, and that is the quantile of a chance that is 5 times smaller or less."""
    found = curve(gaussian(mu), chance)
    exact = mu * mu / 2 + mu * norm.isf(chance)
    assert exact <= found.loss_exceeded(chance) <= mu * mu / 2 + mu * norm.isf(chance / 5)
    odds = found.loss_exceeded(chance)
    assert found.belief(chance) == pytest.approx(1 / (1 + math.exp(-odds)))
    # From a prior of 1 % the odds begin at 1 to 99.
    assert found.belief(chance, 0.01) == pytest.approx(1 / (1 + 99 * math.exp(-odds)))


@settings(max_examples=full(40, 10), deadline=None)
@given(st.floats(0.02, 0.45), st.integers(1, 60), st.floats(1e-6, 0.1))
def test_a_belief_in_randomised_responses(error: float, number: int, chance: float) -> None:
    """By the binomial law: the loss exceeds the bound with the stated probability at most, and so
    does the loss of somebody who cannot be told apart so well."""
    found = curve(NoiselessBitEvent(error, 1.0, ((1.0, number),)), chance)
    for worse in (error, 0.5 * (error + 0.5)):
        right = np.arange(number + 1)
        losses = (2 * right - number) * math.log((1 - worse) / worse)
        beyond = losses > found.loss_exceeded(chance) * (1 + 1e-9)
        assert binom.pmf(right, number, 1 - worse)[beyond].sum() <= chance


# What cannot be said, and what is stated.


def test_what_is_not_known() -> None:
    event = UncertainGainEvent(gaussian(0.5), extra=0.01, correlation=0.99, exceeded=1e-6)
    found, certain = curve(event), curve(event.loud)
    assert found.caught(0.01) == pytest.approx(certain.caught(0.01) + 1e-6, abs=1e-4)
    # The gain may be exceeded more often than delta allows, and then no loss bounds anything.
    assert TradeOff.of(event, 1e-7) is None
    assert TradeOff.of(gaussian(0.5), 1e-5, beyond=1e-5) is None
    with pytest.raises(InvalidSetting, match=r"false_alarms must be between 0 and 1, got 1.5"):
        found.caught(1.5)


def test_silence_reveals_nothing() -> None:
    found = curve(GaussianEvent(2.0, 1.0, ((0.0, 5),)))
    assert found.accuracy == pytest.approx(0.5, abs=1e-11)
    assert found.caught(0.01) == pytest.approx(0.01, abs=1e-11)
    assert found.belief(1e-5) == pytest.approx(0.5, abs=1e-11)


def test_words_and_documents_round_up() -> None:
    found = curve(gaussian(1.0))
    words = found.in_words("which", 1e-5)
    assert "at most 69.2 % of the cases (50 % is guessing)" in words  # 0.691462
    assert "at 1 % false alarms he catches at most 9.24 %, at 0.1 % at most 1.84 %" in words
    assert "exceeds 99.4 % with a probability of at most 1e-05" in words
    document = RiskDocument.model_validate(found.to_document(1e-5))
    assert document.caught_at_1_percent == found.caught(0.01)
    assert document.model_dump(mode="json")["curve"][3] == [0.01, found.caught(0.01)]
    assert "nothing keeps an attacker" in curve(gaussian(30.0)).in_words("which", 1e-5)


@pytest.mark.parametrize("relation", ["device", "example"])
def test_plans_state_it(relation: str) -> None:
    uplink = flmc.Digital(example_clip=4.0) if relation == "example" else flmc.Digital()
    limits = flmc.Limits(epsilon=2.0, scope="run", neighbouring=relation)
    plan = flmc.plan(MODEL, uplink, limits, num_rounds=40, num_burn_in=10)
    assert plan.run_risk is not None
    document = plan.to_document()
    assert document["privacy"]["risk"] == plan.run_risk.to_document(1e-5)
    assert plan.to_document(with_run=False)["privacy"]["risk"] is None
    again = flmc.Plan.from_document(document)
    assert again.to_document()["privacy"] == document["privacy"]
    what = "which of two " + ("data sets a device" if relation == "device" else "values an example")
    assert f"tells {what} has in at most" in str(plan).replace("\n", " ")
    # An accuracy from epsilon and delta alone would be worse: (e^eps + delta)/(e^eps + 1).
    assert plan.run_risk.accuracy < math.exp(2.0) / (1.0 + math.exp(2.0)) - 0.1
