"""The battery: what is asked of each accountant, and the truth of it.

A case is a row of plain numbers, so that it can be stored with its truth in ``battery.json``.
:func:`ask` puts it to the package, :func:`know` to the oracle; they share nothing but the row.
``python -m privacy.oracle.battery`` in ``tests`` draws the cases anew and writes the file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path

import numpy as np

from privacy.oracle import normal
from privacy.oracle.bits import (
    Bits,
    Profile,
    either_order,
    of_line,
    of_logits,
    of_normal,
    of_numbers,
    one_order,
)
from privacy.oracle.places import Moved, worst_place
from privacy.oracle.tail_gains import Tail, largest_gain
from privacy.oracle.truth import Truth, line_epsilon, true_epsilon

STORED = Path(__file__).with_name("battery.json")
ACCOUNTANTS = ("device", "gains", "asymmetric", "example", "analog", "tail", "paper")
SMALLEST, LARGEST = 1e-3, 50.0
"""Epsilons that count."""


@dataclass(frozen=True)
class Case:
    """One question to an accountant.

    Attributes
    ----------
    accountant
        One of ``ACCOUNTANTS``.
    gains
        Gains in standard deviations of the noise, each with the number of entries sent with it.
    delta
        Delta that an epsilon is asked for; of ``tail`` and ``paper`` part of the budget.
    link, reach, shift
        ``sigmoid``, ``probit`` or ``linear``; slope times clip (the ratio, if linear), and slope
        times the move of one example. Of ``analog`` the shift is the sensitivity.
    high, low
        Probabilities of an asymmetric pair.
    epsilon, num_devices
        The rest of a budget, for which a gain is asked, always by ``tail`` and ``paper``; else 0.
    """

    accountant: str
    gains: tuple[tuple[float, int], ...]
    delta: float
    link: str = "sigmoid"
    reach: float = 0.0
    shift: float = 0.0
    high: float = 0.0
    low: float = 0.0
    epsilon: float = 0.0
    num_devices: int = 2

    @property
    def solves_gain(self) -> bool:
        """Whether a gain is asked for in place of an epsilon."""
        return self.epsilon > 0

    @property
    def number(self) -> int:
        """Entries sent in all."""
        return sum(count for _, count in self.gains)


def extremes(link: str, reach: float) -> Bits:
    """Bits of a link at both ends of the clip."""
    of: dict[str, Callable[[float, float], Bits]] = {
        "sigmoid": of_logits,
        "probit": of_normal,
        "linear": of_line,
    }
    return of[link](reach, -reach)


def profile_of(case: Case) -> Callable[[float], Profile]:
    """Profile of an entry of a case, by its gain."""
    if case.accountant in ("device", "gains"):
        return lambda gain: one_order(extremes(case.link, case.reach), gain)
    if case.accountant == "asymmetric":
        return lambda gain: either_order(of_numbers(case.high, case.low), gain)
    return lambda gain: worst_place(Moved(case.link, case.reach, case.shift), gain)


def know(case: Case) -> Truth:
    """The true epsilon, or the true gain of ``tail`` and ``paper``."""
    if case.accountant == "analog":
        mu = case.shift * math.sqrt(math.fsum(count * gain**2 for gain, count in case.gains))
        return Truth(normal.epsilon_of(case.delta, mu), 0.0, "closed form")
    if case.solves_gain:
        asked = Tail(case.accountant, case.reach, case.number, case.epsilon, case.num_devices)
        return Truth(*largest_gain(asked, case.delta), "gain")
    return true_epsilon(profile_of(case), case.gains, case.delta)


def fixed_neighbours(case: Case) -> float:
    """Epsilon of the best fixed neighbours of an example: one place for all entries, both
    orders. It is 0 where losses are nearly discrete: no bar hangs on it, and it would take
    long."""
    moved = Moved(case.link, case.reach, case.shift)

    def at(place: float) -> float:
        bits = moved.at(np.float64(place))  # type: ignore[arg-type]
        # So far out that the bit is all but certain: delta is enough for epsilon 0, by the distance
        # in total variation of all entries.
        if sum(n * bits.apart * min(1.0, 0.8 * gain) for gain, n in case.gains) <= case.delta:
            return 0.0
        with np.errstate(all="ignore"):  # places far from the worst need no care
            found = line_epsilon(partial(one_order, bits), case.gains, case.delta)
        return 0.0 if found is None else found.epsilon

    low, high = -case.reach, case.reach - case.shift
    places = np.linspace(low, high, 9).tolist() if high > low else [low]
    values = [at(place) for place in places]
    best = int(np.argmax(values))
    if len(places) == 1:
        return values[0]
    near = np.linspace(places[max(best - 1, 0)], places[min(best + 1, 8)], 7)[1:-1]
    return max(values[best], *(at(float(place)) for place in near))


@dataclass(frozen=True)
class Known:
    """A case with its truth; of an example also the epsilon of the best fixed neighbours, else
    0."""

    case: Case
    truth: Truth
    fixed: float = 0.0


def stored() -> list[Known]:
    """Cases and truths of the file."""
    rows = json.loads(STORED.read_text())
    return [Known(case_of(row["case"]), Truth(**row["truth"]), row["fixed"]) for row in rows]


def case_of(row: dict[str, object]) -> Case:
    """Case of a row of plain numbers."""
    gains = tuple((float(g), int(n)) for g, n in row.pop("gains"))  # type: ignore[attr-defined]
    return Case(gains=gains, **row)  # type: ignore[arg-type]


def write(rows: list[Known]) -> None:
    """Write cases and truths, a line for each; what has its default value is left out."""
    default = asdict(Case("", (), 0.0))
    lines = []
    for known in rows:
        case = {k: v for k, v in asdict(known.case).items() if default[k] != v}
        truth = asdict(known.truth)
        lines.append(json.dumps({"case": case, "truth": truth, "fixed": known.fixed}))
    STORED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main() -> None:
    """Draw all cases, compute their truths and write them."""
    from privacy.oracle.drawing import chosen, draw

    rows = [_known(case, know(case)) for case in chosen()]
    for accountant, wanted in COUNTS.items():
        found = 0
        for case in draw(accountant):
            truth = know(case)
            if math.isfinite(truth.epsilon) and (
                case.solves_gain or SMALLEST <= truth.epsilon <= LARGEST
            ):
                rows.append(_known(case, truth))
                found += 1
                sys.stderr.write(f"{accountant} {found}/{wanted} {truth}\n")
            if found == wanted:
                break
        write(rows)


def _known(case: Case, truth: Truth) -> Known:
    return Known(case, truth, fixed_neighbours(case) if case.accountant == "example" else 0.0)


COUNTS = {
    "device": 40,
    "gains": 25,
    "asymmetric": 30,
    "example": 60,
    "analog": 20,
    "tail": 24,
    "paper": 16,
}
"""Random cases of each accountant."""


if __name__ == "__main__":
    main()
