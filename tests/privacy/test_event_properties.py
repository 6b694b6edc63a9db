"""Privacy: dominance, monotonicity, bounds, refusals."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import binom

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_tails import BitLossLaw, exceedance
from flmc.privacy.event import CRITERIA, Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.root_finding import largest_argument, largest_gain
from flmc.privacy.transmissions import count_gains
from reference_pair import ReferencePair
from support import full

EXAMPLES = full(100, 20)
gains = st.floats(0.01, 3.0)
probabilities = st.floats(0.51, 0.99)
slack = 1 + 1e-6  # of the grid: bounds are upper bounds with an error of this order


def bits(p: float, gain: float, count: int, noise_power: float = 1.0) -> BitEvent:
    return BitEvent(p, 1 - p, noise_power, ((gain, count),))


@settings(max_examples=EXAMPLES, deadline=None)
@given(probabilities, gains, st.integers(1, 400), st.floats(1.0, 3.0), st.floats(1e-8, 0.1))
def test_more_noise_and_fewer_rounds_never_cost_more(
    p: float, gain: float, count: int, factor: float, delta: float
) -> None:
    here = bits(p, gain, count).epsilon(delta)
    assert bits(p, gain, count, noise_power=factor).epsilon(delta) <= here * (1 + 1e-4) + 1e-9
    assert bits(p, gain, max(1, int(count / factor))).epsilon(delta) <= here * (1 + 1e-4) + 1e-9
    assert bits(p, gain, count).epsilon(min(delta * factor, 0.5)) <= here * slack


@settings(max_examples=EXAMPLES, deadline=None)
@given(
    st.floats(0.01, 0.2),
    st.floats(1.0, 60.0),
    st.floats(0.1, 1.0),
    gains,
    st.sampled_from(["tight", "tail"]),
)
def test_a_smaller_clip_never_costs_more(
    slope: float, clip: float, factor: float, gain: float, criterion: str
) -> None:
    link = flmc.Sigmoid(slope)
    wide, narrow = (
        flmc.Digital(link=link, clip=c).privacy_event([(gain, 4)]) for c in (clip, clip * factor)
    )
    epsilon = 0.4 * wide.largest_loss
    assert (
        narrow.delta(epsilon, criterion, 20)
        <= wide.delta(epsilon, criterion, 20) * (1 + 1e-3) + 1e-9
    )
    analog = [flmc.Analog(clip=c).privacy_event([(gain / clip, 4)]) for c in (clip, clip * factor)]
    assert analog[1].epsilon(1e-4, criterion) <= analog[0].epsilon(1e-4, criterion) * slack


@settings(max_examples=full(400, 60), deadline=None)
@given(probabilities, gains, st.data(), st.floats(0.0, 4.0))
def test_the_extreme_pair_dominates_every_pair_of_clipped_gradients(
    p: float, gain: float, data: st.DataObject, epsilon: float
) -> None:
    """One entry, exact: any two bit probabilities within [1 - p, p] are no easier to tell apart."""
    inside = st.floats(1 - p, p)
    one, two = data.draw(inside), data.draw(inside)
    extreme = ReferencePair(p, 1 - p, gain).delta(np.array([epsilon]))[0]
    if abs(one - two) > 1e-9:
        pair = ReferencePair(max(one, two), min(one, two), gain)
        for order in (pair, pair.reversed):
            assert order.delta(np.array([epsilon]))[0] <= extreme + 1e-12


@settings(max_examples=EXAMPLES, deadline=None)
@given(probabilities, gains, st.integers(1, 30))
def test_epsilon_and_delta_are_inverse(p: float, gain: float, count: int) -> None:
    event = bits(p, gain, count)
    epsilon = event.epsilon(1e-3)
    if epsilon > 0:
        assert event.delta(epsilon) == pytest.approx(1e-3, rel=1e-6)
    assert epsilon <= event.largest_loss


@pytest.mark.parametrize("criterion", CRITERIA)
@pytest.mark.parametrize(
    "uplink",
    [
        flmc.Digital(),
        flmc.Analog(),
        flmc.Digital(link=flmc.Linear(1.0)),
        flmc.Digital(link=flmc.Sign()),
    ],
    ids=["sigmoid", "analog", "linear", "sign"],
)
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
def test_the_allowed_gain_is_the_largest(
    uplink: flmc.Uplink, criterion: str, epsilon: float
) -> None:
    def event(gain: float) -> Event:
        return uplink.privacy_event([(gain, 5)])

    gain = event(1.0).allowed_gain(epsilon, 0.01, criterion, 20)
    assert 0 < gain < math.inf
    assert event(gain).delta(epsilon, criterion, 20) <= 0.01
    assert event(1.001 * gain).delta(epsilon, criterion, 20) > 0.01
    again = event(gain).epsilon(0.01, criterion, 20)
    assert again == pytest.approx(epsilon, rel=1e-5)


def test_criteria_are_ordered() -> None:
    """What the paper allows, tail allows; what tail allows, tight allows."""
    for epsilon in (0.3, 1, 3, 6):
        allowed = [
            flmc.Digital().privacy_event([(1.0, 5)]).allowed_gain(epsilon, 0.01, c, 20)
            for c in CRITERIA
        ]
        assert allowed[0] >= allowed[1] >= allowed[2]


def test_digital_loss_is_bounded_and_analog_loss_is_not() -> None:
    bound = 5 * 0.05 * 30
    previous = 0.0
    for snr_db in range(-10, 81, 10):
        gain = 10 ** (snr_db / 20)
        digital = flmc.Digital().privacy_event([(gain, 5)]).epsilon(1e-9)
        analog = flmc.Analog().privacy_event([(gain, 5)]).epsilon(1e-9)
        assert previous <= digital <= bound
        assert analog > gain**2 * 9000
        previous = digital
    assert previous == pytest.approx(bound, rel=1e-6)


def test_links_that_reveal_the_sign_for_certain_are_gaussian() -> None:
    """Phi(clip) = 1: two normal distributions 2 A apart in every entry."""
    for link in (flmc.Sign(), flmc.Linear(1.0)):
        event = flmc.Digital(link=link).privacy_event([(0.2, 5)])
        assert math.isinf(event.largest_loss)
        assert event.delta(1.0) == pytest.approx(GaussianEvent(2.0, 1.0, ((0.2, 5),)).delta(1.0))
        assert event.epsilon(1e-3, "tail", 20) == pytest.approx(
            GaussianEvent(2.0, 1.0, ((0.2, 5),)).epsilon(1e-3, "tail")
        )
        loud = flmc.Digital(link=link).privacy_event([(1e6, 5)]).epsilon(1e-3)
        assert loud > 1e12
    nearly = flmc.Digital(link=flmc.Sigmoid(1.2), clip=30.0).privacy_event(
        [(0.2, 5)]
    )  # 1 - p = 2e-16
    assert nearly.epsilon(1e-3) == pytest.approx(
        GaussianEvent(2.0, 1.0, ((0.2, 5),)).epsilon(1e-3), rel=1e-3
    )


class Lopsided(flmc.Link):
    """A link that is not symmetric: Phi(30) = 0.6, Phi(-30) = 0.05."""

    def probability(self, g: Array) -> Array:
        return np.asarray(np.interp(g, [-30.0, 0.0, 30.0], [0.05, 0.5, 0.6]))


def mixed_delta(high: float, low: float, entries: int, swapped: int, epsilon: float) -> float:
    """Without noise: hockey-stick divergence when ``swapped`` entries have the two data sets' roles
    exchanged."""
    kept = np.arange(entries - swapped + 1)
    turned = np.arange(swapped + 1)
    p = np.outer(binom.pmf(kept, entries - swapped, high), binom.pmf(turned, swapped, low))
    q = np.outer(binom.pmf(kept, entries - swapped, low), binom.pmf(turned, swapped, high))
    return float(np.maximum(p - math.exp(epsilon) * q, 0.0).sum())


def test_naive_composition_of_an_asymmetric_link_is_wrong() -> None:
    """Composing each order and taking the larger misses neighbours that mix the orders over
    entries."""
    high, low, entries = 0.6, 0.05, 8
    event = flmc.Digital(link=Lopsided()).privacy_event([(1e4, entries)])
    assert isinstance(event, BitEvent)
    assert (event.high, event.low) == (0.6, 0.05)
    beaten = False
    for epsilon in np.linspace(0.5, 18, 36):
        pure = max(mixed_delta(high, low, entries, s, epsilon) for s in (0, entries))
        mixed = max(mixed_delta(high, low, entries, s, epsilon) for s in range(entries + 1))
        beaten = beaten or mixed > 1.05 * pure + 1e-12
        assert event.delta(float(epsilon)) >= mixed - 1e-12
    assert beaten


def test_asymmetric_links_are_planned_tight_and_refused_otherwise(
    model: flmc.LinearGaussian,
) -> None:
    uplink = flmc.Digital(link=Lopsided())
    plan = flmc.plan(model, uplink, flmc.Limits(epsilon=5, langevin="off"), step_size=1e-3)
    assert plan.gain_limits.privacy > 0
    assert plan.round_cost is not None
    assert plan.round_cost.epsilon <= 5 * (1 + 1e-6)
    for criterion in ("tail", "paper"):
        with pytest.raises(InvalidSetting, match="mix the two orders"):
            flmc.plan(model, uplink, flmc.Limits(epsilon=5, privacy=criterion), step_size=1e-3)


def test_what_is_not_proven_is_refused_by_name() -> None:
    class Ternary(flmc.Analog):
        scheme = "ternary"

        def symbols(self, gradient: Array, uniform: Array | None) -> Array:
            return np.sign(gradient) * (np.abs(gradient) > 1.0)

    with pytest.raises(
        InvalidSetting, match=r"ternary uplink \(Ternary\): its worst-case pair is not proven"
    ):
        Ternary().privacy_event([(1.0, 5)])
    with pytest.raises(
        InvalidSetting, match="privacy must be one of tight, tail, paper, off; got 'loose'"
    ):
        bits(0.7, 0.1, 5).delta(1.0, "loose")


@pytest.mark.parametrize("privacy", ["tail", "paper"])
def test_criteria_that_do_not_compose_are_refused_for_a_run(privacy: str) -> None:
    with pytest.raises(InvalidSetting, match="does not compose"):
        flmc.Limits(epsilon=5, scope="run", privacy=privacy)


@pytest.mark.parametrize(
    ("settings_", "message"),
    [
        ({"epsilon": 0}, "epsilon must be positive, got 0"),
        ({"epsilon": -1}, "epsilon must be positive, got -1"),
        ({"delta": 1.0}, "delta must lie strictly between 0 and 1, got 1.0"),
        ({"run_delta": 0}, "run_delta must lie strictly between 0 and 1, got 0"),
        ({"scope": "day"}, "scope must be one of round, run; got 'day'"),
    ],
)
def test_impossible_limits(settings_: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.Limits(**settings_)  # type: ignore[arg-type]


def test_run_budget(model: flmc.LinearGaussian) -> None:
    for uplink in (flmc.Digital(), flmc.Analog()):
        plan = flmc.plan(model, uplink, flmc.Limits(epsilon=20, scope="run"))
        assert plan.binding == "privacy"
        assert plan.run_cost is not None
        assert 19.9 < plan.run_cost.epsilon <= 20 * (1 + 1e-9)
        assert plan.temperature == pytest.approx(1.0)  # the automatic step follows


def test_devices_that_transmit_less_spend_less(model: flmc.LinearGaussian) -> None:
    active = np.zeros((300, 20))
    active[np.arange(300), np.arange(300) % 20] = 1
    active[:, :10] = np.maximum(active[:, :10], np.arange(300)[:, None] % 2)
    uplink, gain = flmc.Digital(), 0.1
    plans = [flmc.plan(model, uplink, gain=gain, step_size=1e-4, active=a) for a in (active, None)]
    costs = [p.run_cost.epsilon for p in plans if p.run_cost is not None]
    assert plans[0].exposure is not None
    assert plans[0].exposure.num_rounds == int(active.sum(axis=0).max()) < 300
    assert costs[0] < costs[1]


def test_gains_that_change_are_composed_one_by_one(model: flmc.LinearGaussian) -> None:
    gain = np.repeat([[0.05], [0.2], [0.1]], 100, axis=0)
    plan = flmc.plan(model, flmc.Analog(), gain=gain / 100, step_size=1e-6)
    assert plan.run_cost is not None
    mu2 = sum(500 * (60 * g / 100) ** 2 for g in (0.05, 0.2, 0.1))
    expected = GaussianEvent(1.0, 1.0, ((math.sqrt(mu2), 1),)).epsilon(1e-5)
    assert plan.run_cost.epsilon == pytest.approx(expected, rel=1e-9)
    digital = flmc.plan(model, flmc.Digital(), gain=gain, step_size=1e-3)
    louder = flmc.plan(model, flmc.Digital(), gain=0.2, step_size=1e-3)
    assert digital.run_cost is not None
    assert louder.run_cost is not None
    assert digital.run_cost.epsilon < louder.run_cost.epsilon
    assert digital.round_cost == louder.round_cost


@given(st.lists(st.floats(1e-3, 1.0), min_size=1, max_size=200))
def test_counting_gains_never_rounds_down(values: list[float]) -> None:
    counted = count_gains(np.array(values))
    assert sum(count for _, count in counted) == len(values)
    spread = np.sort(np.repeat([value for value, _ in counted], [count for _, count in counted]))
    assert (spread >= np.sort(values) * (1 - 1e-11)).all()


@given(st.floats(0.1, 10), st.floats(-3, 3))
def test_root_finding_ends_on_the_safe_side(scale: float, root: float) -> None:
    found = largest_argument(lambda x: math.expm1(scale * (x - root)), -20.0, 20.0)
    assert math.expm1(scale * (found - root)) <= 0
    assert found == pytest.approx(root, abs=1e-8)


@given(st.floats(-3, 3), st.integers(1, 5))
def test_roots_of_steps(edge: float, steps: int) -> None:
    """A function that is flat but for jumps: interpolation is of no use, and the answer the
    same."""
    found = largest_argument(
        lambda x: float(np.ceil((x - edge) * steps)), -20.0, 20.0, tolerance=1e-9
    )
    assert found <= edge
    assert found == pytest.approx(edge, abs=1e-7)


@pytest.mark.parametrize("count", [5, 20, 1000])
def test_a_root_takes_few_steps(count: int) -> None:
    """Every step is an accounting of its own."""
    asked: list[float] = []

    def spent(gain: float) -> float:
        asked.append(gain)
        return bits(0.7, gain, count).delta(1.0) if math.isfinite(gain) else 1.0

    found = largest_gain(spent, 1e-3, 1.0)
    assert spent(found) <= 1e-3 < spent(found * (1 + 1e-8))
    assert len(set(asked)) <= 15


@settings(max_examples=EXAMPLES, deadline=None)
@given(probabilities, st.floats(0.01, 1.5), st.integers(1, 50), st.floats(0.2, 5.0))
def test_the_quick_bound_of_the_tail_is_a_bound(
    p: float, gain: float, count: int, epsilon: float
) -> None:
    parts = [(BitLossLaw.under_first(ReferencePair(p, 1 - p, gain)), count)]
    exact, quick = (exceedance(parts, epsilon, both=True, quick=quick) for quick in (False, True))
    assert exact <= quick


def test_asymmetric_links_with_mixed_gains_cost_at_least_their_loudest_part() -> None:
    loud = BitEvent(0.6, 0.05, 1.0, ((3.0, 8),))
    mixed = BitEvent(0.6, 0.05, 1.0, ((0.01, 1), (3.0, 8)))
    assert mixed.epsilon(1e-5) >= loud.epsilon(1e-5) * (1 - 1e-3)
    assert mixed.delta(2.0) >= loud.delta(2.0) * (1 - 1e-3)


def test_an_uplink_that_transmits_something_else_has_no_proof() -> None:
    class Louder(flmc.Analog):
        def symbols(self, gradient: Array, uniform: Array | None) -> Array:
            return gradient * 1e6

    with pytest.raises(InvalidSetting, match="Louder"):
        Louder().privacy_event([(1.0, 5)])


def test_tail_is_not_monotone_and_the_gain_respects_that() -> None:
    """p = 0.6, ten entries: at infinite gain the criterion holds, at gain 2 it does not."""
    event, epsilon, delta = bits(0.6, 1.0, 10), 3.26399, 0.0062724
    assert (
        bits(0.6, 1e4, 10).delta(epsilon, "tail", 20)
        <= delta
        < bits(0.6, 2.0, 10).delta(epsilon, "tail", 20)
    )
    gain = event.allowed_gain(epsilon, delta, "tail", 20)
    assert gain < 2.0
    for smaller in np.linspace(0.1, 1.0, 10) * gain:
        assert bits(0.6, float(smaller), 10).delta(epsilon, "tail", 20) <= delta * (1 + 1e-6)


@pytest.mark.parametrize(
    ("p", "gain", "count", "epsilon", "least"),
    [
        (0.5406742152665066, 3.8240389792640506, 400, 16.582915064442858, 2.689e-4),
        (0.7343, 3.8654, 300, 166.43, 0.0692),
    ],
)
def test_nearly_discrete_losses(
    p: float, gain: float, count: int, epsilon: float, least: float
) -> None:
    """Where the characteristic function comes back again and again; the least values are from
    losses rounded down."""
    assert bits(p, gain, count).delta(epsilon, "tail", 20) >= least


@settings(max_examples=full(300, 60), deadline=None)
@given(
    st.floats(0.52, 0.999),
    st.sampled_from([0.0, 1e-12, 1e-3, 0.5, 2.0, 4.0, 10.0, 100.0, 1e4, 1e9]),
    st.integers(1, 60),
)
def test_no_crash_and_monotone_anywhere(p: float, gain: float, count: int) -> None:
    """Never below the noiseless binomial where the gain is huge, never above the bound, never
    falling with the gain."""
    event = bits(p, gain, count)
    epsilon = event.epsilon(1e-5)
    assert 0 <= epsilon <= event.largest_loss * (1 + 1e-12)
    if 0 < gain < 1e8:
        assert bits(p, 2 * gain, count).epsilon(1e-5) >= epsilon * (1 - 1e-3) - 1e-9
    if gain >= 1e4:
        ones = np.arange(count + 1)
        loss = (2 * ones - count) * math.log(p / (1 - p))
        exact = float(
            binom.pmf(ones, count, p)
            @ np.maximum(-np.expm1(np.minimum(0.7 * epsilon - loss, 0)), 0)
        )
        assert event.delta(0.7 * epsilon) >= exact * (1 - 1e-9) - 1e-15


@pytest.mark.parametrize("low", [0.0, 0.3])
@pytest.mark.parametrize("gain", [0.1, 5.0, 50.0, 1e4])
def test_one_sided_certainty(low: float, gain: float) -> None:
    """Links that are certain on one side only: finite answers, no warnings."""
    event = BitEvent(1.0 if low else 0.9, low, 1.0, ((gain, 5),))
    assert event.epsilon(1e-3) > 0
    assert 0 <= event.delta(2.0) <= 1


@pytest.mark.parametrize("gain", [0.4, 0.5, 0.7, 30.0])
def test_the_papers_bound_saturates(gain: float) -> None:
    event = flmc.Digital().privacy_event([(gain, 5)])
    assert event.delta(5.0, "paper", 20) == pytest.approx(1.0)
    assert event.epsilon(0.01, "paper", 20) == pytest.approx(7.5, rel=5e-3)


def test_probabilities_near_one_with_a_loud_gain() -> None:
    for p, gain in ((1 - 1e-10, 10.0), (1 - 1.2e-16, 10.0), (1 - 1e-12, 3.0)):
        event = bits(p, gain, 5)
        assert 0 < event.epsilon(1e-5) <= event.largest_loss
        assert event.delta(20.0, "tail", 20) <= 1.0


def test_transmissions_may_be_any_pairs() -> None:
    """A user's ``privacy_event`` passes on what it was given: a tuple, a list or an iterator."""
    pairs = ((0.1, 500), (0.2, 20))
    made = [
        GaussianEvent(2.0, 1.0, given)  # type: ignore[arg-type]  # what a user may write
        for given in (pairs, list(pairs), (pair for pair in pairs), [list(pair) for pair in pairs])
    ]
    assert len({(each, each.epsilon(1e-5)) for each in made}) == 1
    assert BitEvent(0.9, 0.1, 1.0, list(pairs)).transmissions == pairs  # type: ignore[arg-type]
    for wrong in (None, 0.1, [0.1, 0.2], [("loud", 3)]):
        with pytest.raises(InvalidSetting, match="must be pairs of a gain and a number of entries"):
            GaussianEvent(2.0, 1.0, wrong)  # type: ignore[arg-type]
