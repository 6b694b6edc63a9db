"""One example whose norm is bounded, against the worst of some ways to share its move.

The truth is a supremum over all ways to share a move among the entries of a round, round by round:
nobody computes that. What is compared is the best of a search: the move is shared evenly by 1, 2 or
all entries, the same in all rounds, from the place where that reveals most. The accountant must not
be below it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from time import process_time

import numpy as np

from flmc.privacy.shifted_bit_event import SharedShiftEvent
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid
from privacy.oracle.battery import Case, fixed_neighbours
from privacy.oracle.verdicts import Verdict

SEARCHED = "a search that tries a few of all ways to share a move"
_LINKS = ("sigmoid", "probit", "linear")


@dataclass(frozen=True)
class Shared:
    """A case: link, slope times clip and times the norm of a move, entries, rounds, gain, delta."""

    link: str
    reach: float
    shift: float
    dim: int
    rounds: int
    gain: float
    delta: float

    @property
    def event(self) -> SharedShiftEvent:
        """The case as the package accounts it."""
        straight = Linear(min(self.reach, 1.0)).bound_to(self.reach)
        links: dict[str, Link] = {"sigmoid": Sigmoid(1.0), "probit": Probit(1.0)}
        link, sent = links.get(self.link, straight), ((self.gain, self.rounds),)
        return SharedShiftEvent(link, self.reach, self.shift, self.dim, 1.0, sent)

    def searched(self) -> float:
        """Largest epsilon of the ways to share that are tried."""
        ways = sorted({1, min(2, self.dim), self.dim})
        return max(
            fixed_neighbours(
                Case(
                    "example",
                    ((self.gain, self.rounds * many),),
                    self.delta,
                    self.link,
                    self.reach,
                    min(self.shift / math.sqrt(many), 2 * self.reach),
                )
            )
            for many in ways
        )


def draw_cases(count: int, seed: int = 14) -> Iterator[Shared]:
    """Random cases whose epsilon by the small-signal formula is between 0.1 and 20."""
    rng = np.random.default_rng(seed)
    while count:
        link = _LINKS[count % 3]
        reach = float(rng.uniform(0.2, 0.8) if link == "linear" else rng.uniform(0.5, 4.0))
        case = Shared(
            link,
            reach,
            float(10 ** rng.uniform(-3, 0)) * reach,
            int(rng.integers(2, 40)),
            int(10 ** rng.uniform(0, 5)),
            float(10 ** rng.uniform(-2, 0.3)),
            float(10 ** rng.uniform(-9, -3)),
        )
        if 0.1 <= case.event.epsilon(case.delta) <= 20:
            count -= 1
            yield case


def share_verdicts(count: int = 24) -> list[Verdict]:
    """Answers of the package against the search, links apart."""
    verdicts = []
    for case in draw_cases(count):
        started = process_time()
        value = case.event.epsilon(case.delta)
        cpu = process_time() - started
        verdicts.append(
            Verdict(
                f"shared move, {case.link}",
                str(case),
                case.searched(),
                0.0,
                value,
                cpu,
                structural=SEARCHED,
            )
        )
    return verdicts
