"""Pydantic models of what `flmc sweep` prints with ``--json``: the rows of its table, measured, or
only planned with ``--plan-only``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ConfigDict, create_model
from pydantic.fields import FieldInfo

from flmc.cli.schemas.run_answers import (
    AnswerDocument,
    MetricsDocument,
    OneChainDocument,
    PairedDocument,
    RunDocument,
)
from flmc.planning.plans.plan_schema import Count, Document, PlanDocument, words
from flmc.planning.plans.verdict import State
from flmc.settings.schema import Settings

_MARGIN = "how far that limit is above the gain, in decibels; null: it does not limit the gain"
_AS_IN_PLAN = (
    "binding",
    "temperature",
    "effective_step_size",
    "rounds_needed",
    "data_dependent",
)
"""Columns of a sweep's table whose name, type and description are those of a field in the JSON
answer of `flmc plan`."""
_AS_IN_RUN = ("posterior_trace", "independent_draws", "wasserstein2_floor", "shift_from")
"""Columns of a sweep's table whose name, type and description are those of a field in the JSON
answer of `flmc run`."""


def _settings_first(schema: dict[str, Any]) -> None:
    """Change the JSON Schema of a row in place so that it admits the settings that vary in the
    sweep, whose names and values are not known beforehand."""
    # Other fields may be missing: a failed point has its error only, and a point that was only
    # planned has no measurements.
    schema["required"] = [name for name in schema.get("required", ()) if name in _ALWAYS]
    names = "|".join(name for name in Settings.model_fields if name not in schema["properties"])
    setting = {"description": "value of a setting that varies, by its name, first in the row"}
    schema["patternProperties"] = {f"^({names})$": setting}


_ALWAYS = ("error", "against", "metric")
"""Fields that stay required in the JSON Schema of a row; all others may be missing."""


class _Columns(Document):
    """Columns of a sweep's table that are not fields of a plan's or a run's answer; those that are,
    and the settings that vary, are added to them."""

    model_config = ConfigDict(json_schema_extra=_settings_first)

    temperature_of_runs: float | None = words(
        "median over single runs of their temperatures on a random channel, where temperature is"
        " the mean over drawn rounds, which few deep fades may decide; null: all runs have the same"
    )
    temperature_of_runs_low: float | None = words("what one run of twenty stays below")
    temperature_of_runs_high: float | None = words("what one run of twenty exceeds")
    gain_used: float = words("constant gain with the same noise as the planned gains")
    step_size_used: float = words("step of the sampler")
    burn_in_used: int = words("rounds that were not kept")
    rounds_to_arrive: Count | None = words(
        "burn-in by which the plan is judged and warned of, of chains that were followed from"
        " likely starts, where rounds_needed is the rule for any start; null: judged by the rule,"
        " and long enough"
    )
    epsilon_round: float | None = words("upper bound for a round; null: not known or not bounded")
    delta_round: float | None = words("delta that it is stated at")
    epsilon_run: float | None = words(
        "upper bound for the run; null with --plan-only where the budget is for a round"
    )
    delta_run: float | None = words("delta that it is stated at")
    privacy_stated_by: str | None = words(
        "the user's class that states these epsilons, which flmc has not proven; null: flmc states"
        " them, or there are none"
    )
    limit_power: float | None = words("largest gain by power; null: it does not bind")
    limit_langevin: float | None = words("largest gain by langevin; null: it does not bind")
    limit_privacy: float | None = words("largest gain by privacy; null: it does not bind")
    margin_power_db: float | None = words(_MARGIN)
    margin_langevin_db: float | None = words(_MARGIN)
    margin_privacy_db: float | None = words(_MARGIN)
    channel_uses: Count | None = words("symbols of one device in all rounds; null: no channel")
    energy: float | None = words(
        "energy that a device transmits over the noise power, mean over devices; null: no channel"
    )
    energy_is_bound: bool | None = words(
        "whether that is what the clip allows at most, not a mean; null: no channel"
    )
    effective_draws: float | None = words(
        "independent draws that one chain is worth, in the worst direction; 0: its burn-in is"
        " hopelessly short; null: not known"
    )
    price: float | None = words(
        "mu squared per effective draw; null: not known, left out, or of no draw"
    )
    predicted_variance_ratio: float | None = words(
        "predicted variance over the posterior's; null: cannot be computed, or the chain does not"
        " arrive"
    )
    predicted_mean_shift: float | None = words(
        "predicted distance of the means, in posterior standard deviations"
    )
    plan_digest: str = words("digest of the plan")
    verdict: State | None = words("worst state of the plan's lights; null: it was not judged")
    verdict_sampling: State | None = words(
        "whether the samples are predicted to be the posterior's"
    )
    verdict_privacy: State | None = words("whether the budget of the whole run is kept")
    verdict_use: State | None = words("whether one chain is worth enough independent draws")
    headline: str | None = words(
        "code of the gravest finding, those about sampling first; null: none speaks against it"
    )
    findings: str | None = words("codes of all findings, with semicolons; null: there are none")
    warnings: str | None = words("sentences that speak against the plan; null: there are none")
    equal_to: float = words("with equal: the value that all methods share")
    equal_by: str | None = words(
        "with equal: the settings that were changed to reach it; null: the point has it by itself"
    )
    error: str | None = words("why the point failed; null: it is done")
    clipped_fraction: float = words("measured: fraction of the gradient entries that were clipped")
    engine_used: str = words("measured: name of the engine that ran it")
    chains: Count = words("measured: chains of every data set")
    chains_covered: Count | None = words("chains that epsilon_run covers; null: it is unknown")
    epsilon_all_chains: float | None = words(
        "upper bound for all chains, if every one is released; null: not known or not bounded"
    )
    heavy_tails: str | None = words(
        "measured: metrics with heavy tails over data sets, with semicolons; null: none. Their mean"
        " lies outside the middle half of 10 data sets or more, so that the median counts"
    )
    r_hat: float | None = words(
        "measured, without a known posterior: largest R-hat; null: cannot be told"
    )
    ess_bulk: float | None = words(
        "measured, without a known posterior: effective draws of all chains for the middle, in the"
        " worst entry; null: cannot be told"
    )
    ess_tail: float | None = words("the same for 5 % and 95 %")
    stein_ratio: float | None = words(
        "measured, without a known posterior: mean Stein ratio over entries; 1 is right; null: not"
        " known"
    )
    stein_ratio_se: float | None = words("its standard error; null: not known, as notes say")
    mean_shift: float | None = words(
        "measured, without a known posterior: largest shift of the mean over entries, in posterior"
        " standard deviations; null: not known"
    )
    mean_shift_se: float | None = words("its standard error; null: not known, as notes say")
    held_out: Count = words("with hold_out: examples that were predicted")
    verdict_of_run: State | None = words(
        "measured: worst state of the lights after the run; null: the plan was not judged"
    )
    findings_of_run: str | None = words(
        "measured: codes of all findings after the run, with semicolons; null: there are none"
    )
    notes: str | None = words(
        "measured: what is not given, or counted in, for lack of chains; null: nothing"
    )


def _shared_columns() -> Iterator[tuple[str, Any, str]]:
    """Columns of a sweep's table that are fields of a plan's or a run's answer too: name, type and
    description of each."""
    for name, field in _some(PlanDocument, _AS_IN_PLAN):
        yield name, field.rebuild_annotation(), f"{field.description}"
    for name, field in MetricsDocument.model_fields.items():
        yield name, float | None, f"measured: {field.description}"
        yield f"{name}_se", float | None, f"measured: standard error of {name}"
    for name, field in _some(RunDocument, _AS_IN_RUN):
        yield name, field.rebuild_annotation(), f"measured: {field.description}"
    for name, field in OneChainDocument.model_fields.items():
        column, whose = f"one_chain_{name}", "measured, of one chain:"
        yield column, float | None, f"{whose} {field.description}"
        yield f"{column}_sd", float | None, f"{whose} standard deviation of {name} over chains"

    one_chain = [name for name in OneChainDocument.model_fields if name != "common_error"]
    of_data_sets = ("mse", "variance_ratio", "wasserstein2_squared", "mean_error_squared")
    for name in (*of_data_sets, *(f"one_chain_{name}" for name in one_chain)):
        for end, which in (
            ("median", "median"),
            ("q25", "25 % quantile"),
            ("q75", "75 % quantile"),
            ("median_low", "lower end of the 95 % interval of the median"),
            ("median_high", "upper end of the 95 % interval of the median"),
        ):
            yield f"{name}_{end}", float | None, f"measured: {which} of {name} over data sets"
    for name in ("accuracy", "log_loss", "brier", "ece", "squared_error"):
        said = f"with hold_out: {name.replace('_', ' ')} of a chain's predictions, mean over chains"
        yield name, float | None, said
        yield f"{name}_se", float | None, f"standard error of {name}; null: one chain"


def _some(model: type[Document], names: tuple[str, ...]) -> Iterator[tuple[str, FieldInfo]]:
    """Name and ``FieldInfo`` of those fields of a pydantic model that ``names`` lists."""
    return ((name, model.model_fields[name]) for name in names)


_SHARED: dict[str, Any] = {name: (kind, words(text)) for name, kind, text in _shared_columns()}
RowDocument: Any = create_model("RowDocument", __base__=_Columns, **_SHARED)


class PairedRowDocument(PairedDocument):
    """A metric of a point less that of the first method, on the same data sets."""

    model_config = ConfigDict(json_schema_extra=_settings_first)

    against: Any = words("the first method, as a value of the setting methods")
    metric: str = words("the column that is compared")


class SweepDocument(AnswerDocument):
    """A sweep, as ``Sweep.to_document`` writes it, and where its table is."""

    plan_only: bool = words("whether points were planned only: then nothing is measured")
    rows: list[RowDocument] = words(
        "a row for each point of the grid, in its order; a point that failed has its settings and"
        " its error only"
    )
    equal: str | None = words("what methods were made equal in; null: planned by themselves")
    methods: str | None = words("the varying setting whose values are compared; null: none")
    paired: list[PairedRowDocument] = words(
        "differences to the first method on the same data sets, by point and metric; empty for one"
        " data set"
    )
    provenance: dict[str, dict[str, Any]] = words(
        "what computed the points (flmc, its commit and sources, libraries, processor), by its"
        " digest; points of earlier versions have none"
    )
    failed: Count = words("rows with an error")
    distinct: Count = words("points that differ in what decides their rows; each computed once")
    out: str | None = words("directory of the table; null: nothing was written")
