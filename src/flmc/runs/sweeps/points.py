"""One point of a sweep: its name, and its row.

A point is a set of settings. It runs on one thread and depends on its settings alone, so its
numbers are the same to the bit wherever it runs."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from flmc.base.errors import FlmcError
from flmc.base.version import VERSION
from flmc.runs.execution import run
from flmc.settings.assembly import assemble
from flmc.settings.schema import Settings, merge


def key_of(settings: Settings) -> str:
    """Digest of the settings and the version of flmc: the name of the point's file."""
    text = json.dumps({"flmc": VERSION, **settings.model_dump(mode="json")}, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def run_point(given: Mapping[str, Any]) -> dict[str, Any]:
    """The row of one point, planned and run on one thread: plain values without times; the column
    ``error`` says what went wrong, or is None."""
    try:
        settings = merge({}, given)
        problem = assemble(settings)
        plan = problem.plan()
        result = run(
            plan,
            problem.model,
            settings.seed,
            settings.num_chains,
            keep_draws=False,
            engine=settings.engine,
            threads=1,
        )
    except FlmcError as error:
        return {"error": str(error)}
    except Exception as error:  # a user's model or link: the other points shall go on
        return {"error": f"{type(error).__name__}: {error}"}
    document = result.to_document()
    privacy = document["plan"]["privacy"] or {}
    row: dict[str, Any] = {
        "gain_used": plan.typical_gain,
        "binding": plan.binding,
        "temperature": plan.temperature,
        "step_size_used": plan.step_size,
        "effective_step_size": plan.effective_step_size,
        "rounds_needed": plan.rounds_needed,
        "epsilon_round": (privacy.get("round") or {}).get("epsilon"),
        "epsilon_run": (privacy.get("run") or {}).get("epsilon"),
        "clipped_fraction": result.clipped_fraction,
        "engine_used": result.engine,
    }
    for name, estimate in (document["metrics"] or {}).items():
        row[name], row[f"{name}_se"] = estimate["mean"], estimate["se"]
    return {
        **row,
        "plan_digest": plan.digest,
        "warnings": "; ".join(plan.warnings) or None,
        "error": None,
    }
