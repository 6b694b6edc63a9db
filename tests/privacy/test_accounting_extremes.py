"""Accountants at the edges: links that are all but certain, gains below rounding, and the memory
that extremes take."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st
from scipy import special

import flmc
from flmc.base.errors import InvalidSetting
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.shifted_bit_event import ShiftedBitEvent
from flmc.privacy.tilted_loss import MOST_POINTS
from privacy.oracle.asking import answers, ask
from privacy.oracle.battery import Case, know
from support import full

STEEP = [20.0, 24.0, 25.5, 28.0, 31.0, 34.0, 35.5, 36.3, 36.7, 37.2, 38.0, 40.0]
"""Slopes times clips of a sigmoid: the larger probability is rounded more and more, to 1."""
ENTRIES, DELTA = 5, 1e-5


def steep_event(logit: float, gain: float) -> Event:
    return flmc.Digital(link=flmc.Sigmoid(1.0), clip=logit).privacy_event([(gain, ENTRIES)])


@pytest.mark.parametrize("logit", STEEP)
def test_a_link_that_is_all_but_certain_without_noise(logit: float) -> None:
    """At gain 30 no bit is received wrongly, and all losses are ``logit`` but with a probability of
    about e^-logit: delta = p^n (1 - e^(epsilon - n logit)) near the largest loss."""
    certain = ENTRIES * math.log(special.expit(logit))
    true = ENTRIES * logit + math.log1p(-DELTA / math.exp(certain))
    found = steep_event(logit, 30.0).epsilon(DELTA)
    assert found >= true * (1 - 1e-9)
    if logit < 36.5:  # beyond, the larger probability itself is rounded to 1 or next to it
        assert found <= 1.02 * true


@pytest.mark.parametrize("logit", STEEP[:: full(1, 4)])
@pytest.mark.parametrize("gain", [0.05, 0.5])
def test_a_link_that_is_all_but_certain_in_noise(logit: float, gain: float) -> None:
    true = know(Case("device", ((gain, ENTRIES),), DELTA, reach=logit))
    found = steep_event(logit, gain).epsilon(DELTA)
    assert found >= true.epsilon * (1 - 1e-6) - true.error
    assert found <= 1.02 * true.epsilon + true.error


def test_the_stated_delta_of_a_link_that_is_all_but_certain() -> None:
    """At 180.22 the true delta is 0.72: 1 - e^(180.22 - 5 x 36.3)."""
    assert steep_event(36.3, 30.0).delta(180.22) >= -math.expm1(180.22 - 5 * 36.3) * (1 - 1e-9)


def faint_epsilon(mu: float, delta: float) -> float:
    """Epsilon of a Gaussian mechanism to first order in mu: delta = mu (phi(a) - a tail(a)) at
    epsilon = a mu."""
    low, high = 0.0, 40.0
    for _ in range(100):
        a = (low + high) / 2
        value = math.exp(-a * a / 2) / math.sqrt(2 * math.pi) - a * float(special.ndtr(-a))
        low, high = (a, high) if mu * value > delta else (low, a)
    return low * mu


@pytest.mark.parametrize("gain", [1e-15, 1e-16, 3e-18])
@pytest.mark.parametrize("count", [1, 1000])
@pytest.mark.parametrize("kind", ["symmetric", "asymmetric", "example", "analog"])
def test_faint_gains_are_not_free(kind: str, count: int, gain: float) -> None:
    """What is sent with a gain below rounding costs little, not nothing."""
    sent = ((gain, count),)
    event, moved = {
        "symmetric": (BitEvent(0.8, 0.2, 1.0, sent), 1.2),
        "asymmetric": (BitEvent(0.7, 0.1, 1.0, sent), 1.2),
        "example": (ShiftedBitEvent(flmc.Sigmoid(1.0), 1.5, 0.4, 1.0, sent), None),
        "analog": (GaussianEvent(1.2, 1.0, sent), 1.2),
    }[kind]
    if moved is None:  # the middle is one of the places
        moved = 2 * math.tanh(0.1)
    mu = moved * gain * math.sqrt(count)
    delta = 0.02 * mu / math.sqrt(2 * math.pi)
    assert delta < 1e-15
    # A bit in so much noise is a Gaussian mechanism whose means differ as much.
    true = faint_epsilon(mu, delta)
    assert true > 0
    assert event.epsilon(delta) >= 0.99 * true
    assert event.delta(0.0) >= 0.99 * mu / math.sqrt(2 * math.pi)


def gains() -> st.SearchStrategy[tuple[tuple[float, int], ...]]:
    """One gain, or some, each very soft or very loud, sent once or very often."""
    gain = st.sampled_from([1e-12, 1e-6, 1e-3, 0.03, 0.5, 3.0, 30.0, 1e6])
    count = st.sampled_from([1, 5, 300, 10_000, 1_000_000, 100_000_000])
    some = st.lists(st.tuples(gain, count), min_size=1, max_size=3, unique_by=lambda pair: pair[0])
    return some.map(lambda pairs: tuple(sorted(pairs)))


@st.composite
def extreme_cases(draw: st.DrawFn) -> Case:
    """A case whose numbers are at the ends of what is accepted."""
    accountant = draw(st.sampled_from(["device", "asymmetric", "example", "example", "analog"]))
    delta = draw(st.sampled_from([0.5, 1e-2, 1e-5, 1e-12, 1e-30]))
    link = draw(st.sampled_from(["sigmoid", "probit", "linear"]))
    reach = draw(st.sampled_from([0.01, 1.0, 5.0, 30.0]))
    reach = min(reach, draw(st.sampled_from([0.5, 0.999, 1.0]))) if link == "linear" else reach
    reach = min(reach, 8.0) if link == "probit" else reach
    shift = 2 * reach * draw(st.sampled_from([1e-6, 1e-3, 0.1, 0.9]))
    high, low = draw(st.sampled_from([(0.9, 0.5), (1 - 1e-9, 0.5), (0.6, 1e-12), (0.501, 0.5)]))
    epsilon = draw(st.sampled_from([0.0, 0.0, 0.0, 1e-3, 1.0, 50.0]))
    sent = draw(gains())
    return Case(accountant, sent, delta, link, reach, shift, high, low, epsilon)


@settings(max_examples=full(4, 1), phases=(Phase.explicit, Phase.generate))
@given(cases=st.lists(extreme_cases(), min_size=6, max_size=6))
def test_extremes_take_little_memory(cases: list[Case]) -> None:
    """1 GB above a process that only imports the package, whatever is asked; a case that cannot be
    answered must say so in words, not by running out of memory or time."""
    found = list(answers(cases, seconds=60.0))
    assert [a.failure for a in found if a.failure and "InvalidSetting" not in a.failure] == []
    assert max(answer.peak for answer in found) < 1000


MOST_POINTS_IN_ALL = 2**27
"""Points of all transforms of one question: 256 transforms of the largest length."""


@settings(max_examples=full(60, 6), deadline=None, phases=(Phase.explicit, Phase.generate))
@given(case=extreme_cases())
@example(
    Case("example", ((1e-12, 10**6), (1e-6, 10**4), (1e-3, 1)), 1e-2, "linear", 0.999, 0.001998)
)
@example(Case("device", ((1e-12, 1), (0.5, 1)), 1e-5, "sigmoid", 1.0))
@example(Case("asymmetric", ((1e-12, 1), (1e6, 10**6)), 0.5, high=0.9, low=0.5, epsilon=1.0))
@example(
    Case(
        "example", ((1e-3, 10**6), (0.03, 10**6), (1e6, 300)), 0.5, "linear", 1.0, 2e-3, epsilon=1.0
    )
)
def test_extremes_take_bounded_work(case: Case) -> None:
    """Points that are transformed, one by one and in all, whatever is asked: time is bounded by
    them, and a slow machine changes nothing."""
    lengths: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        plain = np.fft.rfft

        def counted(values: Any, size: int) -> Any:
            lengths.append(max(len(values), size))
            return plain(values, size)

        patch.setattr(np.fft, "rfft", counted)
        with contextlib.suppress(InvalidSetting):
            ask(case)
    assert max(lengths, default=0) <= MOST_POINTS
    assert sum(lengths) <= MOST_POINTS_IN_ALL
