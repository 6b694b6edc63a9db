"""A plan from a file, in place of one made from settings: settings then give the model only."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.planning.advice.judgement import judge_prediction, judge_shift
from flmc.planning.advice.plan_prediction import predict_plan
from flmc.planning.plans import Plan
from flmc.settings.assembly import Problem
from flmc.settings.making.models import make_model
from flmc.settings.schema import Settings, merge

_OF_THE_RUN = {
    "model",
    "devices",
    "dim",
    "samples",
    "split",
    "experiments",
    "data",
    "chains",
    "seed",
    "engine",
    "checkpoint_rounds",
    "threads",
}
"""Settings that a plan does not decide."""


def read_plan(path: Path) -> Plan:
    """The plan in a file that ``flmc plan --out`` or ``--json`` wrote.

    Parameters
    ----------
    path
        The file.

    Raises
    ------
    InvalidSetting
        If the file cannot be read, holds no plan, or the plan was changed.
    """
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InvalidSetting(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except ValueError as error:
        raise InvalidSetting(f"the plan {str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise InvalidSetting(f"the plan {str(path)!r} must be a JSON object")
    return Plan.from_document(document)


def assemble_for(plan: Plan, settings: Settings) -> Problem:
    """The problem of a plan that is given, with the model that settings describe.

    Parameters
    ----------
    plan
        The plan.
    settings
        Model, data, seed and chains; the numbers of devices and entries are the plan's if they are
        not given.

    Raises
    ------
    InvalidSetting
        If a setting is given that the plan decides.
    """
    given = settings.model_dump(exclude_unset=True)
    decided = sorted(given.keys() - _OF_THE_RUN)
    if decided:
        raise InvalidSetting(
            f"{decided[0]} is decided by the plan that was given: leave it out, or make a new plan"
        )
    sizes: dict[str, Any] = {}
    if settings.model == "linear":
        sizes = {"devices": plan.num_devices, "dim": plan.dim}
    chosen = merge({}, {**sizes, **given})
    data = chosen
    if plan.uplink.clips_examples and chosen.model == "linear":
        bounds = {name: getattr(plan.uplink, name) for name in ("example_clip", "example_norm")}
        data = chosen.model_copy(update=bounds)
    model = make_model(data)
    return Problem(model, plan.uplink, plan.limits, chosen, _forecast_anew(plan, model))


def _forecast_anew(plan: Plan, model: Model) -> Plan:
    """The plan with what is predicted for this model: it may have been made for other data."""
    law, heat = predict_plan(plan, model), plan.temperature
    if heat is None or (law is None and plan.prediction is None):
        return plan
    codes = {"mean-shift", "variance-ratio", "clipped", "no-prediction"}
    cure = "the plan was made for other data, or for other reasons: make a new one"
    found = (
        *(each for each in plan.findings if each.code not in codes),
        *judge_shift((law.mean_shift if law else None) or 0.0, lambda: cure),
        *judge_prediction(law, heat),
    )
    return replace(plan, prediction=law, findings=found)
