"""What an event costs, by three criteria.

* ``tight``: standard (epsilon, delta)-differential privacy of the worst-case pair. The guarantee.
* ``tail``: the paper's criterion, Pr(|loss| <= epsilon) >= 1 - delta, at that pair and gain. It implies the guarantee,
  and is stricter.
* ``paper``: the paper's bound of the loss, as if the other devices' known symbols did not cancel. Valid for two or more
  devices, very loose.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import TypeVar

import numpy as np

from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.privacy import gaussian
from flmc.privacy.event import BitEvent, Event, GaussianEvent, MovingBitEvent
from flmc.privacy.lossgrid import ComposedLoss, LossGrid, TooWideError, choose_step, compose, unresolved
from flmc.privacy.moving import worst_profile
from flmc.privacy.pair import BitPair
from flmc.privacy.solve import largest_argument, largest_gain
from flmc.privacy.tails import LossLaw, exceedance
from flmc.special import log_ndtr

_AnyEvent = TypeVar("_AnyEvent", bound=Event)

CRITERIA = ("tight", "tail", "paper")
_COARSEST = 30.0
"""Grid step that resolves nothing."""
_SMALLEST_TAIL = 1e-13
"""Tail probabilities near 1e-15 are not resolved."""


def delta_of(event: Event, epsilon: float, criterion: str = "tight", num_devices: int | None = None) -> float:
    """Upper bound of the delta that goes with ``epsilon``."""
    _check(event, criterion, num_devices)
    if epsilon >= event.largest_loss * (1 - 1e-14) or event.silent:  # the bound itself is rounded
        return 0.0
    if isinstance(event, GaussianEvent):
        return (gaussian.delta if criterion == "tight" else gaussian.tail_delta)(epsilon, event.mu)
    if isinstance(event, MovingBitEvent):
        return composed_loss(event).delta(epsilon)
    if criterion == "paper":
        return _paper_delta(event, epsilon, num_devices or 2)
    if event.deterministic:
        return (gaussian.delta if criterion == "tight" else gaussian.tail_delta)(epsilon, event.mu)
    if criterion == "tail":
        return exceedance(_losses(event), epsilon, both=True)
    return composed_loss(event).delta(epsilon)


def epsilon_of(event: Event, delta: float, criterion: str = "tight", num_devices: int | None = None) -> float:
    """Upper bound of the epsilon that goes with ``delta``; infinite where there is none."""
    _check(event, criterion, num_devices)
    if event.silent:
        return 0.0
    if criterion == "tight":
        return tight_epsilon(event, delta)[0]
    if isinstance(event, GaussianEvent):
        return gaussian.tail_epsilon(delta, event.mu)

    def excess(minus: float) -> float:
        return delta_of(event, -minus, criterion, num_devices) - delta

    highest = event.largest_loss
    if math.isinf(highest):
        highest = 1.0
        while excess(-highest) > 0:
            highest *= 2
    return -largest_argument(excess, -highest, 0.0, tolerance=1e-8)


def tight_epsilon(event: Event, delta: float) -> tuple[float, bool]:
    """Upper bound of epsilon, and whether the grid of the composition was coarsened, which makes it looser than
    usual."""
    if event.silent:
        return 0.0, False
    if isinstance(event, GaussianEvent) or event.deterministic:
        return gaussian.epsilon(delta, event.mu), False
    composed = composed_loss(event)
    return min(composed.epsilon(delta), event.largest_loss), composed.coarsened


@lru_cache(maxsize=4096)
def allowed_gain(
    unit: Event, epsilon: float, delta: float, criterion: str = "tight", num_devices: int | None = None
) -> float:
    """Largest gain that keeps within (epsilon, delta), from below; infinite if every gain does.

    ``unit`` is the event at gain 1; other gains scale its transmissions.
    """
    if criterion != "tight" and delta < _SMALLEST_TAIL:
        raise InvalidSetting(
            f"delta must be at least {_SMALLEST_TAIL:g} for privacy {criterion!r}, got {delta:g}; use 'tight'"
        )

    if unit.silent:
        return math.inf
    found = _solve_gain(unit, epsilon, delta, criterion, num_devices)
    if found == 0:
        raise nothing_allowed(epsilon, delta)
    return found


def nothing_allowed(epsilon: float, delta: float) -> InvalidSetting:
    """What is said where not even the smallest gain is known to keep a budget."""
    return InvalidSetting(
        f"no gain is known to stay within epsilon {epsilon:g} at delta {delta:g}: such a small delta is lost in the"
        " rounding of the accountant; use a larger delta (1e-12 or more) or a larger epsilon"
    )


def _solve_gain(unit: Event, epsilon: float, delta: float, criterion: str, num_devices: int | None) -> float:
    def spent(gain: float) -> float:
        if math.isinf(gain):
            return _delta_without_noise(unit, epsilon, criterion, num_devices)
        return delta_of(_scaled(unit, gain), epsilon, criterion, num_devices)

    # Near the gain at which epsilon would be spent on average, were the loss Gaussian.
    scale = min(1.0, epsilon) / unit.mu
    if isinstance(unit, MovingBitEvent):
        # Every trial is costly: begin near the answer, at what a pair in the middle would allow, and stop early.
        x = np.array([unit.shift / 2, -unit.shift / 2])
        high, low = (float(value) for value in unit.link.probability(x))
        near = BitEvent(high, low, unit.noise_power, unit.transmissions)
        guess = allowed_gain(near, epsilon, delta)
        if math.isinf(guess):  # in the middle every gain is allowed
            return largest_gain(spent, delta, math.sqrt(unit.noise_power) / _softest(unit), tolerance=1e-4)
        return largest_gain(spent, delta, guess * 0.98, bracket=0.02, tolerance=1e-4)
    found = largest_gain(spent, delta, scale)
    if criterion != "tail" or not isinstance(unit, BitEvent) or unit.deterministic or found == 0:
        return found
    if epsilon >= unit.largest_loss:
        return found
    return _below_first_violation(unit, spent, epsilon, delta, found, scale)


def _below_first_violation(
    unit: BitEvent, spent: Callable[[float], float], epsilon: float, delta: float, found: float, scale: float
) -> float:
    """`tail` may fall again as the gain grows, where bits are received nearly without error: so every gain below the
    one that is returned is tried too, on a ladder of 10 % steps; by a quick bound first."""

    def breaks(gain: float) -> bool:
        return exceedance(_losses(_scaled(unit, gain)), epsilon, both=True, quick=True) > delta and spent(gain) > delta

    top = min(found, 12.0 * math.sqrt(unit.noise_power) / _softest(unit))  # beyond, the noise changes no bit
    first = min(scale, top) / 2
    while breaks(first):
        first /= 2
    ladder = np.geomspace(first, top, 2 + int(math.log(top / first) / 0.1)).tolist()
    for low, high in itertools.pairwise(ladder):
        if breaks(high):
            return largest_argument(lambda gain: spent(gain) - delta, low, high, tolerance=1e-9)
    return found


def _softest(event: BitEvent | MovingBitEvent) -> float:
    """Smallest gain that is not zero."""
    return min(value for value, count in event.transmissions if count and value > 0)


def _scaled(event: _AnyEvent, gain: float) -> _AnyEvent:
    return replace(event, transmissions=tuple((gain * value, count) for value, count in event.transmissions))


def composed_loss(event: BitEvent | MovingBitEvent) -> ComposedLoss:
    """Distribution of the loss of a bit event, as an upper bound (connect the dots, FFT)."""
    if isinstance(event, MovingBitEvent):
        return _composed_moving_loss(event)
    pairs = _pairs(event)
    if event.symmetric:
        step, coarsened = choose_step(pairs)
        step = _aligned(step, pairs[0][0])
        return _on_a_grid(lambda h: [(LossGrid.of_pair(pair, h), count) for pair, count in pairs], step, coarsened)
    # A profile is known by its values only, whose rounding a very fine grid would amplify.
    step, coarsened = choose_step(pairs, per_spread=20)
    return _on_a_grid(lambda h: [(_dominating_grid(pair, h), count) for pair, count in pairs], step, coarsened)


def _on_a_grid(parts: Callable[[float], list[tuple[LossGrid, int]]], step: float, coarsened: bool) -> ComposedLoss:
    """Compose on a grid that is made coarser until the FFT is affordable. Where that does not help, nothing is known
    but Chernoff's bound."""
    grids = parts(step)
    while step < _COARSEST:
        try:
            return replace(compose(grids), coarsened=coarsened)
        except TooWideError:
            step, coarsened = 4 * step, True
            grids = parts(step)
    return replace(unresolved(grids), coarsened=True)


def _composed_moving_loss(event: MovingBitEvent) -> ComposedLoss:
    """The same where one example moves the entry: the profile is that of the worst place, for every epsilon."""
    (high, low), step, coarsened = _grid_of_moving(event)
    sent = [(gain / math.sqrt(event.noise_power), count) for gain, count in event.transmissions if count and gain > 0]
    bound = event.largest_loss / event.num_transmissions

    def part(amplitude: float, step: float) -> LossGrid:
        reach = min(bound, _loss_within_reach(high, low, amplitude)) * 1.05 + step

        def profile(epsilon: Array) -> Array:
            return worst_profile(event.link, event.clip, event.shift, amplitude, epsilon)

        return LossGrid.of_profile(profile, -reach, reach, step, bound)

    return _on_a_grid(lambda h: [(part(amplitude, h), count) for amplitude, count in sent], step, coarsened)


def _grid_of_moving(event: MovingBitEvent) -> tuple[tuple[Array, Array], float, bool]:
    """Probabilities at some places, with and without the example; and the step of the grid, and whether it is coarse,
    by the place where they differ most."""
    x = np.linspace(-event.clip, event.clip - event.shift, 201)
    high, low = event.link.probability(np.minimum(x + event.shift, event.clip)), event.link.probability(x)
    widest = int(np.argmax(high - low))
    at_worst = BitEvent(float(high[widest]), float(low[widest]), event.noise_power, event.transmissions)
    return (high, low), *choose_step(_pairs(at_worst), per_spread=12, typical=True)


def _loss_within_reach(high: Array, low: Array, amplitude: float) -> float:
    """Largest loss within reach of the noise, over some places and both orders."""
    pairs = [BitPair(float(p), float(q), amplitude) for p, q in zip(high, low, strict=True)]
    return max(max(abs(end) for end in pair.loss_range) for pair in pairs)


def _aligned(step: float, pair: BitPair) -> float:
    """A slightly smaller step that divides the largest loss, on which nearly all mass sits at high SNR."""
    bound = pair.bound
    return bound / math.ceil(bound / step) if bound / step < 1e6 else step


def _dominating_grid(pair: BitPair, step: float) -> LossGrid:
    """One pair that dominates an asymmetric pair in both orders: neighbours may mix the orders over entries, so the
    larger profile is taken entry by entry, before composition."""
    other = pair.reversed

    def profile(epsilon: Array) -> Array:
        return np.maximum(pair.delta(epsilon), other.delta(epsilon))

    ranges = (pair.loss_range, other.loss_range)
    bound = max(pair.bound, other.bound)
    return LossGrid.of_profile(profile, min(low for low, _ in ranges), max(high for _, high in ranges), step, bound)


def _pairs(event: BitEvent) -> list[tuple[BitPair, int]]:
    scale = math.sqrt(event.noise_power)
    high, low = (event.probability, 1.0 - event.probability) if event.symmetric else (event.high, event.low)
    return [(BitPair(high, low, gain / scale), count) for gain, count in event.transmissions if count and gain > 0]


def _losses(event: BitEvent) -> list[tuple[LossLaw, int]]:
    """Of the worst-case pair as it is."""
    return [(LossLaw.under_first(pair), count) for pair, count in _pairs(event)]


def _paper_delta(event: BitEvent, epsilon: float, num_devices: int) -> float:
    """Pr(X > epsilon or Y < -epsilon) <= 2 Pr(X > epsilon) with w = z + A (K - 1) in X; Y mirrors it."""
    if event.deterministic:  # the loss is linear in the noise
        mean = (num_devices - 1) * event.mu**2 / 2
        return min(1.0, 2 * math.exp(log_ndtr((mean - epsilon) / event.mu)))
    return min(
        1.0, 2 * exceedance([(LossLaw.of_paper(pair, num_devices), count) for pair, count in _pairs(event)], epsilon)
    )


def _delta_without_noise(event: Event, epsilon: float, criterion: str, num_devices: int | None) -> float:
    """The limit of an infinite gain."""
    if epsilon >= event.largest_loss * (1 - 1e-14):
        return 0.0
    if isinstance(event, GaussianEvent) or event.deterministic:
        return 1.0
    if criterion == "paper":
        return 1.0
    if isinstance(event, BitEvent) and event.symmetric:
        return _delta_of_bits(event, epsilon, criterion)
    loud = 1e6 * math.sqrt(event.noise_power) / _softest(event)
    return delta_of(_scaled(event, loud), epsilon, criterion, num_devices)


def _delta_of_bits(event: BitEvent, epsilon: float, criterion: str) -> float:
    """Of symmetric bits that are received without error: of n losses of plus or minus the same size, k are positive."""
    n, p = event.num_transmissions, event.probability
    each = math.log1p((2.0 * p - 1.0) / (1.0 - p))
    k = np.arange(n + 1)
    ways = math.lgamma(n + 1) - np.array([math.lgamma(i + 1) + math.lgamma(n - i + 1) for i in range(n + 1)])
    mass = np.exp(ways + k * math.log(p) + (n - k) * math.log1p(-p))
    loss = (2 * k - n) * each
    if criterion == "tail":
        found = mass[np.abs(loss) > epsilon * (1 - 1e-12)].sum()
    else:
        found = (mass * -np.expm1(np.minimum(epsilon - loss, 0.0))).sum()
    return float(found) * (1 + 1e-8)  # rounded up, logarithms of large factorials too


def _check(event: Event, criterion: str, num_devices: int | None) -> None:
    if criterion not in CRITERIA:
        raise InvalidSetting(f"privacy must be one of {', '.join(CRITERIA)}, off; got {criterion!r}")
    if isinstance(event, MovingBitEvent) and criterion != "tight":
        raise InvalidSetting(
            f"neighbouring 'example' needs privacy 'tight', got {criterion!r}: the worst case is not one pair"
        )
    if not isinstance(event, BitEvent) or criterion == "tight":
        return
    if criterion == "paper" and (num_devices is None or num_devices < 2):
        raise InvalidSetting(
            "privacy 'paper' is not valid for one device: its bound leaves out the device's own symbol (at epsilon 5"
            " it would allow a true delta of 0.145 instead of 0.01); use 'tight'"
        )
    if not event.symmetric:
        raise InvalidSetting(
            f"privacy {criterion!r} is proven only for links with Phi(-clip) = 1 - Phi(clip), got {event.low:g} and"
            f" {event.high:g}: neighbours may mix the two orders over entries; use 'tight'"
        )
