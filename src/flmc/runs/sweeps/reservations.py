"""Reservations about the privacy statements of a sweep's points: who states them, if not flmc, and
whether plans were computed from the devices' data."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any


def reservations_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """Counts over the ``rows`` of a sweep's table, in plain values for JSON: ``points``, points
    with a privacy statement; ``stated_by``, how many of these a user's own class states, by name of
    the class; ``data_dependent``, how many of these have a plan that was computed from the devices'
    data."""
    private = [
        row
        for row in rows
        if row.get("epsilon_run") is not None or row.get("epsilon_round") is not None
    ]
    names = Counter(row["privacy_stated_by"] for row in private if row.get("privacy_stated_by"))
    dependent = sum(bool(row.get("data_dependent")) for row in private)
    return {"points": len(private), "stated_by": dict(names), "data_dependent": dependent}


def reservations_in_words(counted: Mapping[str, Any]) -> list[str]:
    """Sentences, without full stops, about ``counted``, the counts that :func:`reservations_of`
    returns; none where flmc itself states all epsilons and no plan was computed from data."""
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
