"""What `flmc plan` and `flmc run` print with ``--precondition pilot --json``."""

from __future__ import annotations

from flmc.base.documents import ANSWER_VERSION
from flmc.planning.plans.schema_parts import COUNT, NUMBER, Fields, Kind, described, or_null, part

_COST: Fields = {
    "epsilon": (
        or_null(NUMBER),
        "upper bound of epsilon of the pilot and one chain of the second stage; null: unknown",
    ),
    "delta": (or_null(NUMBER), "delta that it is stated at; null: unknown"),
}

_ANSWER: Kind = {"type": "object"}

PLANNED = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "pilot": (part("plan"), "the plan of the pilot"),
        "main_rounds": (COUNT, "rounds of the second stage"),
        "most_gain": (NUMBER, "largest gain of any round of both stages"),
        **_COST,
    }
)
"""A plan of two stages."""

RESULTS = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "pilot": (_ANSWER, "the result of the pilot, one chain, as `flmc schema run` says"),
        "main": (
            _ANSWER,
            "the result of the second stage, as `flmc schema run` says; its own epsilon leaves out"
            " the pilot",
        ),
        "effective_draws_of_pilot": (NUMBER, "independent draws that the pilot's are worth"),
        **_COST,
    }
)
"""Both stages of a run."""
