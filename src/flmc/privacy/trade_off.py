r"""Trade-off curve of a privacy event: what an attacker can decide after all, in plain numbers.

Somebody who knows everything else decides which of two neighbouring data sets was used. He raises a
*false alarm* with probability :math:`\alpha`: he names the second where it was the first. The
second he *catches* with some probability, or misses. The trade-off function :math:`f(\alpha)` is
the least probability of a miss. Differential privacy at :math:`(\epsilon, \delta)`, in both orders
of the two data sets, leaves him no less than (Dong, Roth and Su, 2022)

.. math:: f(\alpha) \ge \max(0,\; 1 - \delta - e^\epsilon \alpha,\;
          e^{-\epsilon}(1 - \delta - \alpha)).

That holds for every :math:`\epsilon \ge 0` with its :math:`\delta(\epsilon)`, so the largest of
these lines is a bound too, and with all :math:`\epsilon` it is everything that the profile
:math:`\delta(\epsilon)` says: the second line is the first of :math:`-\epsilon`, by
:math:`\delta(-\epsilon) = 1 - e^{-\epsilon}(1 - \delta(\epsilon))`. A finite number of lines stays
below f. ``docs/privacy.md`` has the proofs."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from flmc.base import checks
from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.tables import format_up
from flmc.privacy.event import Event

SHOWN = (0.01, 0.001)
"""Probabilities of a false alarm at which a statement in words says what is caught."""
_CURVE = (1e-5, 1e-4, 0.001, 0.01, 0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)
"""Probabilities of a false alarm of the points of a curve in JSON."""
_SMALLEST_DELTA = 1e-5
"""Delta down to which the profile is followed, even if a statement's delta is larger: with the
delta at the largest epsilon the curve ends at no false alarms."""
_RESOLVED, _FEW = 1.5e-3, 0.05
"""Share of the probability of a catch, or of ``_FEW`` where it is smaller, by which the curve may
still be too high: where it may be by more, the interval between two lines is divided."""
_STEEPEST = 18.4
"""Epsilon beyond which the curve is not made finer: it belongs to a probability of a false alarm
below 1e-8."""
_MOST_LINES = 250
"""Largest number of divisions; a profile that asks for more is bounded more loosely."""
_WIDEST = 3.0
"""Largest exponent x for which the curve between two lines is taken to lie up to 1 + e^x times as
low as one line between them."""
_TAIL_STEP, _GOLDEN, _TAIL_DIVISIONS = 1e-9, (math.sqrt(5.0) - 1.0) / 2.0, 10
"""The search for the best bound of a belief: its first step in epsilon where epsilon is 0, the
ratio of a golden section, and the number of sections."""
_UP = 1.0 + 1e-12
"""Factor that is more than the rounding errors of the few operations that bound a probability."""


@dataclass(frozen=True)
class TradeOff:
    """Upper bounds of what an attacker achieves who decides between two neighbouring data sets, and
    knows everything else."""

    profile: tuple[tuple[float, float], ...]
    """Pairs of an epsilon, increasing from 0, and an upper bound of the delta that goes with it,
    whichever of the two data sets is the first."""

    @classmethod
    def of(cls, event: Event, delta: float, beyond: float = 0.0) -> TradeOff | None:
        """Trade-off curve of an ``event``; None where no finite epsilon is known at ``delta``, so
        that nothing of use can be said.

        ``beyond`` is the probability of a failure that the event leaves out, and that is added to
        every delta. The profile is made fine where the curve bends, and at the epsilons that bound
        a belief at ``delta``."""
        return _trade_off(event, delta, beyond)

    def caught(self, false_alarms: float) -> float:
        """Upper bound of the probability that an attacker catches the second data set, with a
        probability of a false alarm of at most ``false_alarms``: the true-positive rate for a
        false-positive rate."""
        if not 0.0 <= false_alarms <= 1.0:
            raise InvalidSetting(f"false_alarms must be between 0 and 1, got {false_alarms!r}")
        steep = min(delta + _grown(false_alarms, epsilon) for epsilon, delta in self.profile)
        flat = max(
            math.exp(-epsilon) * (1.0 - delta - false_alarms) for epsilon, delta in self.profile
        )
        # The flat lines are subtracted from 1, which is rounded by half a unit in the last place.
        return max(0.0, min(1.0, steep * _UP, 1.0 - max(0.0, flat) + (_UP - 1.0)))

    def missed(self, false_alarms: float) -> float:
        """Lower bound of the trade-off function: of the probability that an attacker misses the
        second data set, with a probability of a false alarm of at most ``false_alarms``."""
        return 1.0 - self.caught(false_alarms)

    @property
    def accuracy(self) -> float:
        r"""Upper bound of the probability that the attacker decides rightly if both data sets are
        equally likely: (1 + delta)/2 with the delta of epsilon 0, the largest value of
        :math:`1 - \alpha - f(\alpha)`. Guessing has 1/2."""
        return min(1.0, (1.0 + self.profile[0][1]) / 2.0 * _UP)

    def loss_exceeded(self, chance: float) -> float:
        r"""Upper bound of the privacy loss that is exceeded with probability ``chance`` at most;
        infinite where the profile does not reach so small a probability.

        A loss above l has a probability of at most :math:`\delta(\epsilon)/(1 - e^{\epsilon - l})`
        for every :math:`\epsilon < l`. Solved for l, with c = ``chance``, that is
        :math:`\epsilon - \ln(1 - \delta(\epsilon)/c)`, of which the smallest is taken."""
        found = (_tail_loss(epsilon, delta, chance) for epsilon, delta in self.profile)
        return min(found) * _UP

    def belief(self, chance: float, prior: float = 0.5) -> float:
        """Upper bound of the attacker's belief in the data set that was really used, after he saw
        everything; it is exceeded with probability ``chance`` at most. ``prior`` is his belief in
        it beforehand."""
        checks.between("prior", prior, 0.0, 1.0)
        odds = math.log(prior) - math.log1p(-prior) + self.loss_exceeded(chance)
        return min(1.0, _UP / (1.0 + math.exp(-odds)) if odds > -700.0 else 1e-300)

    def in_words(self, what: str, chance: float) -> str:
        """The bounds as a sentence. ``what`` says what the attacker tells apart, such as "which of
        two values an example has"; his belief is stated at ``chance``."""
        rare, rarer = (_percent_up(self.caught(share)) for share in SHOWN)
        if rarer == "100 %":
            return f"nothing keeps an attacker who knows all else from telling {what}"
        belief = _percent_up(self.belief(chance))
        ends = "may become certain" if belief == "100 %" else f"exceeds {belief}"
        return (
            f"an attacker who knows all else tells {what} in at most {_percent_up(self.accuracy)}"
            f" of the cases (50 % is guessing); at 1 % false alarms he catches at most {rare}, at"
            f" 0.1 % at most {rarer}; from even odds his belief in the true one {ends} with a"
            f" probability of at most {chance:g}"
        )

    def to_document(self, chance: float) -> dict[str, Any]:
        """The bounds as plain values, for JSON; the belief is stated from even odds, at
        ``chance``."""
        rare, rarer = (self.caught(share) for share in SHOWN)
        return {
            "accuracy": self.accuracy,
            "caught_at_1_percent": rare,
            "caught_at_0_1_percent": rarer,
            "prior": 0.5,
            "belief": self.belief(chance),
            "belief_exceeded": chance,
            "curve": [[share, self.caught(share)] for share in _CURVE],
        }


def _percent_up(share: float) -> str:
    """A share as text in per cent with three digits, rounded up."""
    return f"{format_up(100.0 * share, 3)} %"


def _grown(share: float, epsilon: float) -> float:
    """``share`` times exp(``epsilon``), which may be infinite, or 0 for a share of 0."""
    if share == 0.0:
        return 0.0
    return math.exp(epsilon) * share if epsilon < 700.0 else math.inf


def _tail_loss(epsilon: float, delta: float, chance: float) -> float:
    """Upper bound of the privacy loss that is exceeded with probability ``chance`` at most, from
    one ``epsilon`` and its ``delta``; infinite if delta is not below ``chance``."""
    return epsilon - math.log1p(-delta / chance) if delta < chance else math.inf


# Cached, as epsilon is: plan, verdict, terminal and document ask for the same curve.
@lru_cache(maxsize=64)
@one_blas_thread()
def _trade_off(event: Event, delta: float, beyond: float) -> TradeOff | None:
    """Trade-off curve of an event, as :meth:`TradeOff.of` says."""
    left = delta - beyond
    if left <= 0.0:
        return None
    if event.silent:
        return TradeOff(((0.0, beyond),))
    end, _ = event.tight_epsilon(left)
    if math.isinf(end):
        return None
    known: dict[float, float] = {}

    def profile(epsilon: float) -> float:
        """Upper bound of the delta of ``epsilon``; what it returned is kept in ``known``."""
        if epsilon not in known:
            known[epsilon] = min(1.0, event.curve_delta(epsilon) + beyond)
        return known[epsilon]

    _follow_tail(profile, end, delta)
    ends = {0.0, end}
    if left > _SMALLEST_DELTA:
        further, _ = event.tight_epsilon(_SMALLEST_DELTA)
        ends |= {further} if math.isfinite(further) else set()
    _divide(profile, sorted(ends))
    # Nothing exceeds the largest loss, which bounds a belief at any chance.
    if math.isfinite(event.largest_loss):
        profile(event.largest_loss)
    return TradeOff(tuple(sorted(known.items())))


def _follow_tail(profile: Callable[[float], float], end: float, chance: float) -> None:
    """Evaluate ``profile`` at epsilons beyond ``end``, whose delta is about ``chance``, until the
    bound of the loss that is exceeded with this probability is as good as it gets."""

    def bound(step: float) -> float:
        return _tail_loss(end + step, profile(end + step), chance)

    step = max(end / 64.0, _TAIL_STEP)
    best = bound(step)
    # The bound falls with a step that is too small, and rises with one that is too large.
    while step < 1e6 and (math.isinf(best) or bound(2.0 * step) < best):
        step, best = 2.0 * step, min(best, bound(2.0 * step))
    low, high = step / 2.0, 2.0 * step
    first, second = high - _GOLDEN * (high - low), low + _GOLDEN * (high - low)
    for _ in range(_TAIL_DIVISIONS):
        if bound(first) < bound(second):
            high, second = second, first
            first = high - _GOLDEN * (high - low)
        else:
            low, first = first, second
            second = low + _GOLDEN * (high - low)


def _divide(profile: Callable[[float], float], epsilons: Sequence[float]) -> None:
    """Evaluate ``profile`` between the increasing ``epsilons`` until one more line would hardly
    change the curve.

    The curve is convex and touches each line, so between two of them it is above the point where
    they meet, and a line between them shows how far: this is where intervals are divided."""
    # The interval that promises most is divided first, so that the largest number of lines is spent
    # where it matters.
    waiting = [(-math.inf, low, high) for low, high in itertools.pairwise(epsilons)]
    for _ in range(_MOST_LINES):
        if not waiting:
            return
        _, low, high = heapq.heappop(waiting)
        middle = (low + high) / 2.0
        if not low < middle < high:
            continue
        # Catches where the lines of both ends say the same: by either, and by the line between.
        fall = profile(low) - profile(high)
        meeting = min(1.0, profile(low) + fall / math.expm1(min(high - low, 700.0)))
        share = fall * math.exp(middle - high) / -math.expm1(low - high)
        between = min(1.0, profile(middle) + share)
        gain = (meeting - between) * (1.0 + math.exp(min((high - low) / 2.0, _WIDEST)))
        if gain > _RESOLVED * max(between, _FEW):
            heapq.heappush(waiting, (-gain, low, middle))
            # A line of this slope touches the curve at e^-middle false alarms at most.
            if middle < _STEEPEST:
                heapq.heappush(waiting, (-gain, middle, high))
