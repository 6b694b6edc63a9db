"""The JSON Schema of a plan: what every field means, for whoever reads plans without flmc."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from flmc.base.findings import Grade
from flmc.planning.plans.document import SCHEMA_VERSION

_NUMBER: dict[str, Any] = {"type": "number"}
_COUNT: dict[str, Any] = {"type": "integer", "minimum": 0}
_WORD: dict[str, Any] = {"type": "string"}
_SETTINGS: dict[str, Any] = {"type": "object", "properties": {"type": _WORD}, "required": ["type"]}
_COST: dict[str, Any] = {
    "type": "object",
    "properties": {
        "epsilon": {"type": ["number", "null"]},
        "delta": _NUMBER,
        "rounds": _COUNT,
        "delta_at_zero": _NUMBER,
    },
}
_FINDING: dict[str, Any] = {
    "type": "object",
    "properties": {
        "code": _WORD,
        "severity": {"enum": list(get_args(Grade))},
        "message": _WORD,
        "short": _WORD,
        "numbers": {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
    },
    "required": ["code", "severity", "message", "short", "numbers"],
}


def _or_null(kind: Mapping[str, Any]) -> dict[str, Any]:
    return {"anyOf": [kind, {"type": "null"}]}


_FIELDS: dict[str, tuple[Mapping[str, Any], str]] = {
    "schema_version": ({"const": SCHEMA_VERSION}, "version of this schema"),
    "digest": (
        _WORD,
        "SHA-256, in hexadecimal, of this object as JSON with sorted keys, no spaces and numbers as"
        " they stand, without digest, rounds_needed, margins_db, radio, privacy, unknown_privacy,"
        " prediction, warnings and findings; and without scheduler where its type is AllDevices or"
        " GivenDevices",
    ),
    "scheme": (_WORD, "how devices transmit"),
    "gain": (
        {"anyOf": [_NUMBER, {"type": "array"}, {"type": "null"}]},
        "cap of the amplitude at the receiver: a number, or (round, entry); null: power alone"
        " limits it",
    ),
    "limits": (
        {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "largest gain by each constraint; null: it does not bind at all",
    ),
    "binding": (_WORD, "which limit decides: power, langevin, privacy, none; or given"),
    "step_size": (_NUMBER, "step of the sampler"),
    "effective_step_size": (_or_null(_NUMBER), "step times slope; null for a link without slope"),
    "temperature": (
        _or_null(_NUMBER),
        "sampled variance over the posterior's, to leading order; 1 is right",
    ),
    "rounds_needed": (_or_null(_COUNT), "burn-in that the sampler needs; null where it is unknown"),
    "data_dependent": ({"type": "boolean"}, "whether the plan was computed from the devices' data"),
    "margins_db": (
        {"type": "object", "additionalProperties": {"type": ["number", "null"]}},
        "how far every limit is above the gain, in decibels; null: it does not limit the gain",
    ),
    "radio": (
        {"type": "object"},
        "SNR at the transmitter and at the receiver and the path gain, of one device at full power",
    ),
    "privacy": (
        _or_null({"type": "object", "properties": {"round": _COST, "run": _or_null(_COST)}}),
        "upper bounds of what a round and the run cost; null where nothing is known",
    ),
    "unknown_privacy": (
        _or_null(_WORD),
        "why nothing is known of the privacy; null if it is known",
    ),
    "num_devices": (_COUNT, "devices"),
    "dim": (_COUNT, "entries of theta"),
    "num_rounds": (_COUNT, "rounds"),
    "num_burn_in": (_COUNT, "rounds that are not kept"),
    "burn_in_step_factor": (_NUMBER, "factor of the step in the first num_fast rounds"),
    "num_fast": (_COUNT, "rounds with a larger step"),
    "start": ({"enum": ["prior", "zero"]}, "where chains start"),
    "active": (
        _or_null({"type": "array"}),
        "who transmits, (round, device) with 1 and 0, if it was given",
    ),
    "scheduler": (_SETTINGS, "the policy that says who transmits"),
    "uplink": (
        _SETTINGS,
        "the uplink with its link and fading; type is the class, module:class for a user's own",
    ),
    "asked": (_SETTINGS, "the limits that were asked for"),
    "prediction": (_or_null(_SETTINGS), "what the chain will sample, where it can be computed"),
    "warnings": ({"type": "array", "items": _WORD}, "what speaks against the plan, in sentences"),
    "findings": (
        {"type": "array", "items": _FINDING},
        "the same with code, severity and numbers, and with notes",
    ),
}


def schema() -> dict[str, Any]:
    """JSON Schema of a plan's document."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "flmc plan",
        "type": "object",
        "properties": {
            name: {**kind, "description": words} for name, (kind, words) in _FIELDS.items()
        },
        "required": list(_FIELDS),
        "additionalProperties": False,
    }
