"""What `flmc status` and `flmc deploy` print with ``--json``."""

from __future__ import annotations

from flmc.base.documents import ANSWER_VERSION
from flmc.planning.plans.schema_parts import (
    COUNT,
    NUMBER,
    WORD,
    by_name,
    described,
    list_of,
    or_null,
)
from flmc.wire.presence import STATES
from flmc.wire.status import PHASES

_STATUS = described(
    {
        "run": (WORD, "name of the run"),
        "phase": ({"enum": list(PHASES)}, "where the run stands"),
        "round": (COUNT, "rounds that are done"),
        "num_rounds": (COUNT, "rounds of the plan"),
        "num_devices": (COUNT, "devices of the plan"),
        "active": (COUNT, "devices in the last round"),
        "present": (by_name(COUNT), "devices by state: here, joined, refused, gone"),
        "epsilon": (
            or_null(NUMBER),
            "spent so far by the device that spent most; null: not known yet, or not bounded",
        ),
        "delta": (or_null(NUMBER), "delta that epsilon is stated at; null: not known yet"),
        "epsilon_round": (COUNT, "round up to which epsilon is stated"),
        "temperature": (or_null(NUMBER), "temperature of the last round; null: unknown"),
        "round_seconds": (or_null(NUMBER), "median time of the last rounds; null: none yet"),
        "answer_seconds": (or_null(NUMBER), "of it, from theta at the air to the last answer"),
        "receive_seconds": (or_null(NUMBER), "of it, what the air needs to add up and record"),
        "commit_seconds": (or_null(NUMBER), "of it, what the server needs to step and record"),
        "dropped": (by_name(COUNT), "messages that the server dropped, by reason"),
        "dropped_air": (by_name(COUNT), "messages that the air dropped, by reason"),
        "repeats": (COUNT, "rounds that were announced again because answers were too few"),
        "why": (WORD, "what the run waits for, or why it failed; empty: nothing"),
        "unix_time": (NUMBER, "when this was said, in seconds since 1970, on the server's clock"),
    }
)
_ROLE = described(
    {
        "state": ({"enum": list(STATES)}, "whether it is there, takes part, refused or is gone"),
        "why": (WORD, "reason of a refusal; empty: none"),
        "digest": (WORD, "digest of the federation that it is about; empty: none yet"),
        "version": (WORD, "the flmc that speaks"),
        "wire": ({"type": "integer"}, "version of the wire format that it speaks"),
    }
)
_RUN = described(
    {
        "status": (or_null(_STATUS), "what the server said last; null: nothing yet"),
        "air": (
            or_null({"type": "object"}),
            "what the air said last, in its own words; null: nothing yet",
        ),
        "roles": (by_name(_ROLE), "server, air and devices by identity"),
    }
)
OBSERVED = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "broker": (WORD, "address of the broker"),
        "runs": (by_name(_RUN), "runs by name"),
        "left_out": (COUNT, "messages that were no messages of a run, or too many to be kept"),
    }
)
"""What an observer has heard, as ``flmc status`` prints it."""

DONE = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "action": ({"enum": ["init", "renew", "revoke"]}, "what was asked for"),
        "directory": (WORD, "directory of the federation"),
        "identities": (list_of(WORD), "whose certificates were issued or revoked"),
        "changed": (list_of(WORD), "files and folders that are new, relative to the directory"),
        "steps": (list_of(WORD), "what the operator must do now, in words"),
    }
)
"""What was done in the directory of a federation, and what is left to do."""
PRICE = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "run": (WORD, "name of the run"),
        "digest": (WORD, "digest of the federation"),
        "epsilon": (
            or_null(NUMBER),
            "what the device that transmits most may spend in all rounds; null: not bounded",
        ),
        "delta": (NUMBER, "delta that epsilon is stated at"),
        "neighbouring": ({"enum": ["device", "example"]}, "what epsilon protects"),
    }
)
"""What a whole run may cost a device."""
_JOINED = described(
    {
        "run": (WORD, "name of the run"),
        "digest": (WORD, "digest of the federation that was agreed to"),
        "epsilon": (NUMBER, "what the whole run may cost, which is spent since its first answer"),
        "delta": (NUMBER, "delta that epsilon is stated at"),
        "answers": (COUNT, "rounds that were answered"),
        "last_round": (COUNT, "the last of them; 0: none"),
    }
)
DEVICE_LEDGER = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "runs": (list_of(_JOINED), "runs in the order in which they were joined"),
        "epsilon": (NUMBER, "sum over the runs that were answered"),
        "delta": (NUMBER, "sum over the runs that were answered"),
    }
)
"""What a device's data may have cost, by run."""
