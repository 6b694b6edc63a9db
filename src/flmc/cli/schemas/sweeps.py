"""What `flmc sweep` prints with ``--json``, with and without ``--plan-only``."""

from __future__ import annotations

from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.cli.schemas.runs import BESIDE_METRICS, METRICS, ONE_CHAIN
from flmc.planning.plans.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    WORD,
    Fields,
    described,
    list_of,
    or_null,
)
from flmc.settings.schema import Settings

_LIMITS = ("power", "langevin", "privacy")
_DECIDED: Fields = {
    "gain_used": (NUMBER, "constant gain with the same noise as the planned gains"),
    "binding": (WORD, "which limit decides: power, langevin, privacy, none; or given"),
    "temperature": (
        or_null(NUMBER),
        "sampled variance over the posterior's, to leading order; 1 is right",
    ),
    "step_size_used": (NUMBER, "step of the sampler"),
    "effective_step_size": (or_null(NUMBER), "step times slope; null for a link without slope"),
    "rounds_needed": (or_null(COUNT), "burn-in that the sampler needs; null where it is unknown"),
    "epsilon_round": (or_null(NUMBER), "upper bound for a round; null: not known or not bounded"),
    "delta_round": (or_null(NUMBER), "delta that it is stated at"),
    "epsilon_run": (
        or_null(NUMBER),
        "upper bound for the run; null with --plan-only where the budget is for a round",
    ),
    "delta_run": (or_null(NUMBER), "delta that it is stated at"),
    **{
        f"limit_{name}": (or_null(NUMBER), f"largest gain by {name}; null: it does not bind")
        for name in _LIMITS
    },
    **{
        f"margin_{name}_db": (
            or_null(NUMBER),
            "how far that limit is above the gain, in decibels; null: it does not limit the gain",
        )
        for name in _LIMITS
    },
    "channel_uses": (or_null(COUNT), "symbols of one device in all rounds; null: no channel"),
    "energy": (
        or_null(NUMBER),
        "energy that a device transmits over the noise power, mean over devices (digital) or at"
        " most (analog); null: no channel",
    ),
    "effective_draws": (
        or_null(NUMBER),
        "independent draws that one chain is worth, in the worst direction; null: not known",
    ),
    "price": (or_null(NUMBER), "mu squared per effective draw; null: not known or left out"),
    "data_dependent": (FLAG, "whether the plan was computed from the devices' data"),
    "predicted_variance_ratio": (
        or_null(NUMBER),
        "predicted variance over the posterior's; null: cannot be computed",
    ),
    "predicted_mean_shift": (
        or_null(NUMBER),
        "predicted distance of the means, in posterior standard deviations",
    ),
}
_MEASURED: Fields = {
    "clipped_fraction": (NUMBER, "measured: fraction of the gradient entries that were clipped"),
    "engine_used": (WORD, "measured: name of the engine that ran it"),
    "chains": (COUNT, "measured: chains of every data set"),
    **{
        name + end: (or_null(NUMBER), "measured: " + words)
        for name, what in METRICS.items()
        for end, words in (("", what), ("_se", f"standard error of {name}"))
    },
    **{name: (kind, "measured: " + words) for name, (kind, words) in BESIDE_METRICS.items()},
    **{
        f"one_chain_{name}{end}": (or_null(NUMBER), "measured, of one chain: " + words)
        for name, what in ONE_CHAIN.items()
        for end, words in (("", what), ("_sd", f"standard deviation of {name} over chains"))
    },
    "chains_covered": (or_null(COUNT), "chains that epsilon_run covers; null: it is unknown"),
    "epsilon_all_chains": (
        or_null(NUMBER),
        "upper bound for all chains, if every one is given out; null: not known or not bounded",
    ),
    "notes": (
        or_null(WORD),
        "measured: what is not given, or counted in, for lack of chains; null: nothing",
    ),
}
_SAID: Fields = {
    "plan_digest": (WORD, "digest of the plan"),
    "headline": (or_null(WORD), "code of the gravest finding; null: none speaks against it"),
    "findings": (or_null(WORD), "codes of all findings, with semicolons; null: there are none"),
    "warnings": (or_null(WORD), "sentences that speak against the plan; null: there are none"),
}
_ERROR: Fields = {
    "error": (or_null(WORD), "why the point failed; null: it is done"),
}
_COLUMNS: Fields = {**_DECIDED, **_MEASURED, **_SAID, **_ERROR}


def _row() -> dict[str, Any]:
    """A row: columns that are described, after settings that vary, which may have any value."""
    # A failed point has its error only, and a planned one has nothing that is measured.
    row = described(_COLUMNS, optional=tuple(name for name in _COLUMNS if name != "error"))
    setting = {"description": "value of a setting that varies, by its name, first in the row"}
    names = "|".join(name for name in Settings.model_fields if name not in _COLUMNS)
    return {**row, "patternProperties": {f"^({names})$": setting}}


SWEEP = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "plan_only": (FLAG, "whether points were planned only: then nothing is measured"),
        "rows": (
            list_of(_row()),
            "a row for each point of the grid, in its order; a point that failed has its settings"
            " and its error only",
        ),
        "failed": (COUNT, "rows with an error"),
        "distinct": (COUNT, "points that differ in what decides their rows; each computed once"),
        "out": (or_null(WORD), "directory of the table; null: nothing was written"),
    }
)
"""A sweep, as ``Sweep.to_document`` writes it, and where its table is."""
