"""What limits the privacy statements of a sweep's points: who states them, and whether the plans
were computed from the devices' data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def reservations_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Numbers of points with a privacy statement in the rows of a sweep's table: of all of them,
    of those stated by a user's own class, by its name, and of those whose plan was computed from
    the devices' data. In plain values, for JSON."""
    private = [
        row
        for row in rows
        if row.get("epsilon_run") is not None or row.get("epsilon_round") is not None
    ]
    names = Counter(row["privacy_stated_by"] for row in private if row.get("privacy_stated_by"))
    dependent = sum(bool(row.get("data_dependent")) for row in private)
    return {"points": len(private), "stated_by": dict(names), "data_dependent": dependent}


def reservations_in_words(counted: Mapping[str, Any]) -> list[str]:
    """Sentences, without full stops, about the numbers of :func:`reservations_of`; none where flmc
    states all epsilons and no plan looked at data."""
    points = counted["points"]
    sentences = [
        f"epsilon of {count} of {points} points is as stated by {name}, which flmc has not proven"
        for name, count in counted["stated_by"].items()
    ]
    if counted["data_dependent"]:
        sentences.append(
            f"{counted['data_dependent']} of {points} plans with an epsilon were computed from the"
            " devices' data: a simulation, and no privacy statement for a deployment"
        )
    return sentences
