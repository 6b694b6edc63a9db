"""The JSON Schema of a plan: what every field means, for whoever reads plans without flmc."""

from __future__ import annotations

from typing import Any

from flmc.planning.plans.document import SCHEMA_VERSION
from flmc.planning.plans.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    PARTS,
    WORD,
    Fields,
    by_name,
    described,
    document_schema,
    list_of,
    or_null,
    part,
)

_SETTINGS: dict[str, Any] = {"type": "object", "properties": {"type": WORD}, "required": ["type"]}
_PRIVACY = described(
    {
        "criterion": (WORD, "how a round is judged: tight, tail, paper or off"),
        "neighbouring": (WORD, "what neighbouring data replace, in words"),
        "round": (part("cost"), "what the worst round costs"),
        "run": (or_null(part("cost")), "what the whole run costs; null: it was left out"),
    }
)
_RELEASE = described(
    {
        "num_chains": (COUNT, "chains that are given out, and that epsilon covers: always 1"),
        "kept_rounds": (COUNT, "rounds of the chain that are given out"),
        "effective_draws": (
            or_null(NUMBER),
            "independent draws whose mean would vary as little, in the worst direction; null where"
            " the curvature is not known",
        ),
        "epsilon": (
            or_null(NUMBER),
            "upper bound of what the release costs, burn-in included; null: unknown, unbounded, or"
            " left out",
        ),
        "delta": (or_null(NUMBER), "delta that epsilon is stated at; null: epsilon is not stated"),
        "mu_squared": (
            or_null(NUMBER),
            "mu squared of the Gaussian mechanism with the same epsilon and delta, which adds up"
            " over chains; null where there is no epsilon",
        ),
        "price": (or_null(NUMBER), "mu_squared per effective draw; null where either is unknown"),
    }
)
_RADIO = described(
    {
        "snr_db": (or_null(NUMBER), "largest SNR at the transmitter; null: there is no noise"),
        "path_gain": (NUMBER, "root mean square of the path gains"),
        "path_gain_db": (NUMBER, "the same in decibels"),
        "received_snr_db": (or_null(NUMBER), "SNR at the receiver; null: there is no noise"),
        "varies": (FLAG, "whether path gains differ over rounds, devices or entries"),
    }
)
_AIRTIME = described(
    {
        "channel_uses": (COUNT, "symbols of one device in all rounds"),
        "energy": (NUMBER, "energy of a device in the run over the noise power, mean over devices"),
        "energy_is_bound": (FLAG, "whether that is what the clip allows at most, not a mean"),
        "devices": (NUMBER, "devices that transmit in a round, on average"),
        "skipped": (NUMBER, "share of rounds in which nobody transmits"),
    }
)
_PREDICTION = described(
    {
        "type": (WORD, "always Prediction"),
        "variance_ratio": (NUMBER, "variance of the chain over that of the posterior; 1 is right"),
        "variance_ratio_smallest": (NUMBER, "the smallest along the posterior's principal axes"),
        "variance_ratio_largest": (NUMBER, "the largest along the posterior's principal axes"),
        "mean_error_squared": (NUMBER, "squared distance of the chain's mean from the posterior's"),
        "relative_mean_error": (NUMBER, "the same over the trace of the posterior's covariance"),
        "clipped_fraction": (NUMBER, "expected fraction of the gradient entries beyond the clip"),
        "mean_shift": (
            or_null(NUMBER),
            "largest distance of the chain's mean from the posterior's, in posterior standard"
            " deviations; null in plans that are older than it",
        ),
        "distance_squared": (
            or_null(NUMBER),
            "squared W2 distance of the chain's law from the posterior, where the posterior's"
            " covariance is made the identity; null in plans that are older than it",
        ),
    }
)
_ESTIMATES = described(
    {
        "error": (NUMBER, "csi_error"),
        "mean": (NUMBER, "mean factor with which symbols arrive, over devices"),
        "mean_smallest": (NUMBER, "the same of the device with the smallest"),
        "mean_largest": (NUMBER, "the same of the device with the largest"),
        "spread": (NUMBER, "standard deviation of the factor, which heats"),
        "stated_gain": (
            or_null(NUMBER),
            "gain that the privacy statement is made at; null without a statement",
        ),
        "exceeded": (
            or_null(NUMBER),
            "probability that it is exceeded in the run, a part of delta; null without a statement",
        ),
    }
)
_FIELDS: Fields = {
    "schema_version": ({"const": SCHEMA_VERSION}, "version of this schema"),
    "digest": (
        WORD,
        "SHA-256, in hexadecimal, of this object as JSON with sorted keys, no spaces and numbers as"
        " they stand, without digest, rounds_needed, margins_db, radio, airtime, estimates,"
        " privacy, release, unknown_privacy, prediction, warnings and findings; and without"
        " scheduler where its type is AllDevices or GivenDevices",
    ),
    "scheme": (WORD, "how devices transmit"),
    "gain": (
        {"anyOf": [NUMBER, {"type": "array"}, {"type": "null"}]},
        "cap of the amplitude at the receiver: a number, or (round, entry); null: power alone"
        " limits it",
    ),
    "limits": (
        by_name(or_null(NUMBER)),
        "largest gain by each constraint; null: it does not bind at all",
    ),
    "binding": (WORD, "which limit decides: power, langevin, privacy, none; or given"),
    "step_size": (NUMBER, "step of the sampler"),
    "effective_step_size": (or_null(NUMBER), "step times slope; null for a link without slope"),
    "temperature": (
        or_null(NUMBER),
        "sampled variance over the posterior's, to leading order; 1 is right",
    ),
    "rounds_needed": (or_null(COUNT), "burn-in that the sampler needs; null where it is unknown"),
    "data_dependent": (FLAG, "whether the plan was computed from the devices' data"),
    "margins_db": (
        by_name(or_null(NUMBER)),
        "how far every limit is above the gain, in decibels; null: it does not limit the gain",
    ),
    "radio": (
        _RADIO,
        "SNR at the transmitter and at the receiver and the path gain, of one device at full power",
    ),
    "airtime": (
        or_null(_AIRTIME),
        "channel uses and transmit energy of the run; null for an uplink without a channel",
    ),
    "estimates": (
        or_null(_ESTIMATES),
        "what channel estimates that are not exact do; null where csi_error is 0",
    ),
    "privacy": (
        or_null(_PRIVACY),
        "upper bounds of what a round and the run cost; null where nothing is known",
    ),
    "release": (_RELEASE, "what is given out, one chain: what it is worth and what it costs"),
    "unknown_privacy": (
        or_null(WORD),
        "why nothing is known of the privacy; null if it is known",
    ),
    "num_devices": (COUNT, "devices"),
    "dim": (COUNT, "entries of theta"),
    "num_rounds": (COUNT, "rounds"),
    "num_burn_in": (COUNT, "rounds that are not kept"),
    "burn_in_step_factor": (NUMBER, "factor of the step in the first num_fast rounds"),
    "num_fast": (COUNT, "rounds with a larger step"),
    "start": ({"enum": ["prior", "zero"]}, "where chains start"),
    "active": (
        or_null({"type": "array"}),
        "who transmits, (round, device) with 1 and 0, if it was given",
    ),
    "scheduler": (_SETTINGS, "the policy that says who transmits"),
    "uplink": (
        _SETTINGS,
        "the uplink with its link and fading; type is the class, module:class for a user's own",
    ),
    "asked": (_SETTINGS, "the limits that were asked for"),
    "prediction": (or_null(_PREDICTION), "what the chain will sample, where it can be computed"),
    "warnings": (list_of(WORD), "what speaks against the plan, in sentences"),
    "findings": (
        list_of(part("finding")),
        "the same with code, severity and numbers, and with notes",
    ),
}


CONTENT = described(_FIELDS)
"""The object that a plan's document is, with references to the shared parts."""


def schema() -> dict[str, Any]:
    """JSON Schema of a plan's document."""
    return document_schema("flmc plan", CONTENT, PARTS)
