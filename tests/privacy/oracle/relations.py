"""Bits of a device that is silent, or put to zero, in one of two worlds: the package's events
against the inverse of the moment generating function (:mod:`privacy.oracle.received`), which knows
the two densities of an entry alone."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np
from scipy import optimize

from flmc.privacy.event import Event
from flmc.privacy.one_sided_bits import AbsentBitEvent, ZeroedBitEvent
from privacy.oracle.received import Law, NotConvergedError, Pair, composed_delta
from privacy.oracle.verdicts import Verdict

ZERO = "put to zero"
SILENT = "silent"
_SIGNS = np.array([-1.0, 1.0])


def bits(chance: float) -> Law:
    """A bit that is +1 with that probability."""
    return Law(_SIGNS, np.array([1.0 - chance, chance]))


@dataclass(frozen=True)
class OneSided:
    """Entries of a device whose bits are +1 with probability ``high``, and in the other world fair
    or not there."""

    other: str
    high: float
    amplitude: float
    count: int
    delta: float

    def __str__(self) -> str:
        return (
            f"{self.other}, {self.high:.4g}, {self.count} entries at {self.amplitude:.3g}, delta"
            f" {self.delta:.2g}"
        )

    @property
    def event(self) -> Event:
        """What the package states."""
        sent = ((self.amplitude, self.count),)
        if self.other == SILENT:
            return AbsentBitEvent(self.high, 1.0 - self.high, 1.0, sent)
        return ZeroedBitEvent(self.high, 1.0 - self.high, 0.5, 1.0, sent)

    def true_delta(self, epsilon: float) -> float:
        """The larger delta of both orders."""
        silence = Law(np.zeros(1), np.ones(1))
        other = silence if self.other == SILENT else bits(0.5)
        pair = Pair(bits(self.high), other, self.amplitude, self.count)
        return max(composed_delta([each], epsilon) for each in (pair, pair.exchanged))

    def true_epsilon(self, near: float) -> float:
        """Epsilon at ``delta``, searched for around a value; to 1e-7 of delta and so of it."""

        def excess(epsilon: float) -> float:
            return math.log(self.true_delta(epsilon) / self.delta)

        return float(optimize.brentq(excess, 0.9 * near, 1.05 * near, rtol=1e-8))


def draw_cases(count: int, seed: int = 3) -> Iterator[OneSided]:
    """Random cases whose stated epsilon is between 0.1 and 20. Bits are quiet and many: the loss of
    a silent device has a turning point, where its density is infinite, so that the moment
    generating function of a few entries decays too slowly. The contract test has single ones."""
    rng = np.random.default_rng(seed)
    while count:
        case = OneSided(
            (ZERO, SILENT)[count % 2],
            1.0 / (1.0 + math.exp(-float(rng.uniform(0.1, 3.0)))),
            float(10 ** rng.uniform(-2, -0.5)),
            int(10 ** rng.uniform(1.5, 4)),
            float(10 ** rng.uniform(-9, -3)),
        )
        if 0.1 <= case.event.epsilon(case.delta) <= 20:
            count -= 1
            yield case


def relation_verdicts(count: int = 16) -> list[Verdict]:
    """Answers of the package against the oracle."""
    verdicts = []
    for case in draw_cases(count):
        started = process_time()
        value = case.event.epsilon(case.delta)
        cpu = process_time() - started
        try:
            truth, known = case.true_epsilon(value), True
        except (NotConvergedError, ValueError):
            truth, known = math.nan, False
        group = f"device {case.other}"
        verdicts.append(Verdict(group, str(case), truth, 1e-7 * value, value, cpu, known))
    return verdicts
