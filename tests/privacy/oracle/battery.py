"""The battery: what is asked of each accountant, and the truth of it.

A case is a row of plain numbers, so that it can be stored with its truth in ``battery.json``.
:func:`ask` puts it to the package, :func:`know` to the oracle; they share nothing but the row.
``python -m privacy.oracle.battery`` in ``tests`` draws the cases anew and writes the file."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
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
from privacy.oracle.truth import Truth, true_epsilon

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
        Of ``tail`` and ``paper``: the rest of the budget, for which a gain is asked.
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
        return self.accountant in ("tail", "paper")

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
    orders."""
    moved = Moved(case.link, case.reach, case.shift)

    def at(place: float) -> float:
        bits = moved.at(np.float64(place))  # type: ignore[arg-type]
        return true_epsilon(lambda gain: one_order(bits, gain), case.gains, case.delta).epsilon

    low, high = -case.reach, case.reach - case.shift
    places = np.linspace(low, high, 9).tolist() if high > low else [low]
    values = [at(place) for place in places]
    best = int(np.argmax(values))
    if len(places) == 1:
        return values[0]
    near = np.linspace(places[max(best - 1, 0)], places[min(best + 1, 8)], 7)[1:-1]
    return max(values[best], *(at(float(place)) for place in near))


def stored() -> list[tuple[Case, Truth]]:
    """Cases and truths of the file."""
    rows = json.loads(STORED.read_text())
    return [(_case(row["case"]), Truth(**row["truth"])) for row in rows]


def _case(row: dict[str, object]) -> Case:
    gains = tuple((float(g), int(n)) for g, n in row.pop("gains"))  # type: ignore[attr-defined]
    return Case(gains=gains, **row)  # type: ignore[arg-type]


def write(rows: list[tuple[Case, Truth]]) -> None:
    """Write cases and truths, a line for each."""
    plain = {f: v for f, v in asdict(Case("", (), 0.0)).items() if f not in ("accountant",)}
    lines = []
    for case, truth in rows:
        row = {k: v for k, v in asdict(case).items() if plain.get(k) != v}
        lines.append(json.dumps({"case": row, "truth": asdict(truth)}))
    STORED.write_text("[\n" + ",\n".join(lines) + "\n]\n")


def main() -> None:
    """Draw all cases, compute their truths and write them."""
    from privacy.oracle.drawing import chosen, draw

    rows: list[tuple[Case, Truth]] = []
    for case in chosen():
        rows.append((case, know(case)))
    for accountant, wanted in COUNTS.items():
        found = 0
        for case in draw(accountant):
            truth = know(case)
            fits = math.isfinite(truth.epsilon) and (
                case.solves_gain or SMALLEST <= truth.epsilon <= LARGEST
            )
            if fits:
                rows.append((case, truth))
                found += 1
                sys.stderr.write(f"{accountant} {found}/{wanted} {truth}\n")
            if found == wanted:
                break
    write(rows)


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


def events(cases: list[Case]) -> Iterator[Case]:
    """The cases that ask for an epsilon."""
    return (case for case in cases if not case.solves_gain)


if __name__ == "__main__":
    main()
