"""What the accountant keeps or skips to save work changes no answer."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.privacy import composed_event, tilted_loss
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_pairs import REACH
from flmc.privacy.event import Event
from flmc.privacy.root_finding import largest_gain
from flmc.privacy.shifted_bit_event import ShiftedBitEvent
from support import full


@settings(max_examples=full(200, 40), deadline=None)
@given(
    error=st.floats(1e-6, 0.4999),
    number=st.integers(1, 3000),
    epsilon=st.floats(0.01, 30.0),
    delta=st.floats(1e-9, 0.9),
)
def test_a_budget_that_is_surely_broken_is_broken(
    error: float, number: int, epsilon: float, delta: float
) -> None:
    """The quick answer is never yes where the exact delta without noise keeps the budget."""
    event = BitEvent(1.0 - error, error, 1.0, ((1.0, number),))
    if event.surely_limited(epsilon, delta):
        assert event.largest_loss > epsilon
        assert event.delta_without_noise(epsilon, "tight", None) > delta


@pytest.mark.parametrize(
    ("error", "number", "known"), [(0.2, 1500, True), (0.2, 30, True), (0.49, 30, False)]
)
def test_budgets_that_are_clearly_broken_are_told_at_once(
    error: float, number: int, known: bool
) -> None:
    """Few bits are summed up and many are bounded; a budget that is kept is not known as broken."""
    event = BitEvent(1.0 - error, error, 1.0, ((1.0, number),))
    assert event.surely_limited(5.0, 1e-5) is known
    assert math.isinf(event.allowed_gain(5.0, 1e-5)) is not known


def test_nothing_is_known_at_once_of_certain_or_lopsided_bits() -> None:
    """For them the question is asked in full."""
    for high, low in ((1.0, 0.0), (0.9, 0.2)):
        assert not BitEvent(high, low, 1.0, ((1.0, 1500),)).surely_limited(5.0, 1e-5)


@pytest.mark.parametrize(
    "event",
    [
        BitEvent(0.8, 0.2, 1.0, ((1.0, 300),)),
        ShiftedBitEvent(flmc.Sigmoid(0.05), 30.0, 2.0, 1.0, ((1.0, 300),)),
    ],
)
def test_a_gain_and_its_costs_are_the_same_without_what_is_kept(event: Event) -> None:
    """A search begins anew for every trial, and the infinite gain is asked for: the same bits."""
    gain = event.solve_gain(3.0, 1e-5, "tight", None)
    found = event.scaled(gain).solve_epsilon(1e-5)

    def anew(factor: float) -> float:
        composed_event.composed_loss.cache_clear()
        return event.delta_at_gain(factor, epsilon=3.0, criterion="tight", num_devices=None)

    if isinstance(event, BitEvent):
        search = event.gain_search(3.0, 1e-5, "tight")
        assert largest_gain(anew, 1e-5, search.start, bracket=search.first_step) == gain
    assert anew(math.inf) > 1e-5 >= anew(gain)
    composed_event.composed_loss.cache_clear()
    assert event.scaled(gain).solve_epsilon(1e-5) == found


def test_what_another_question_could_not_afford_is_not_held_against_an_epsilon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A sum that is kept remembers tilts for which no grid was affordable; an epsilon that is read
    from other tilts is no looser for them."""
    event = BitEvent(0.8, 0.2, 1.0, ((0.1, 3000),))
    composed_event.composed_loss.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(tilted_loss, "MOST_POINTS", 2)
        far = 0.9 * event.largest_loss
        assert event.tight_delta(far) >= 0.0
        kept = composed_event.composed_loss(event, REACH)
        assert kept.loose
    epsilon, loose = event.solve_epsilon(1e-5)
    composed_event.composed_loss.cache_clear()
    assert not loose
    assert (epsilon, loose) == event.solve_epsilon(1e-5)
