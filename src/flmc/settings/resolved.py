"""The settings that describe a finished plan or run: with defaults and automatic choices written
out, and without settings that had no effect."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

from flmc.base.documents import to_document
from flmc.base.errors import FlmcError, InvalidSetting
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.settings.assembly import OF_THE_RUN
from flmc.settings.construction import OF_DATA_FILES, idle_settings, make_model, spell_link
from flmc.settings.schema import Settings


def effective(settings: Settings) -> dict[str, Any]:
    """The settings that have an effect, as plain values for JSON with defaults written out, by
    name; `auto` stays where flmc chooses. Sizes are left out where they come from a data file or
    from a model of the user's own."""
    idle = idle_settings(settings)
    dumped = settings.model_dump(mode="json")
    return {
        **{name: value for name, value in dumped.items() if name not in idle},
        "chains": settings.num_chains,
    }


def sizes_of(model: Model) -> dict[str, int]:
    """The sizes of a model as settings of these names: ``devices``, ``dim`` (entries of theta),
    ``experiments`` (data sets) and, if known, ``samples`` (examples)."""
    samples = {} if model.num_examples is None else {"samples": model.num_examples}
    known = {"devices": model.num_devices, "dim": model.dim, "experiments": model.num_experiments}
    return {**known, **samples}


def resolved(
    settings: Settings, plan: Plan, model: Model, engine: str, *, given_plan: bool = False
) -> dict[str, Any]:
    """The settings of a run that had an effect, as plain values for JSON by name: defaults are
    written out, ``auto`` is replaced by the value that was chosen, and sizes are those of
    ``model``. ``given_plan`` says that the plan came from a file; the settings that the plan
    decides are then left out."""
    held = {**effective(settings), **sizes_of(model), "engine": engine}
    if given_plan:
        return {name: value for name, value in held.items() if name in OF_THE_RUN}
    held |= {
        "draw_at": plan.draw_at,
        "step_size": plan.step_size,
        "burn_in": plan.num_burn_in,
        "burn_in_step_factor": plan.burn_in_step_factor,
    }
    uplink = plan.uplink
    if "example_shrink" in held:
        held["example_shrink"] = uplink.example_shrink
    if uplink.link is not None and "link" in held:
        with suppress(InvalidSetting):  # raised for a link of the user's own
            held["link"] = spell_link(uplink.link)
            held["slope_parameter"] = None  # the link's text already has it, behind the name
    return {name: to_document(value) for name, value in held.items()}


def shared(points: Sequence[Settings], axes: Mapping[str, Sequence[Any]]) -> dict[str, Any]:
    """Settings with the same value at all those points of a sweep at which they have an effect, by
    name; the varying settings, which are the keys of ``axes``, are left out. If the points use a
    data file, sizes are those of its data."""
    held = [effective(point) for point in points]
    names = dict.fromkeys(name for each in held for name in each if name not in axes)
    same: dict[str, Any] = {}
    for name in names:
        first, *others = [each[name] for each in held if name in each]
        if all(value == first for value in others):
            same[name] = first
    if points[0].data_file is not None and not _OF_FILES & axes.keys():
        with suppress(FlmcError):  # every point failed with this error, which its row states
            same |= sizes_of(make_model(points[0]))
    return same


_OF_FILES = {"model", "data_file", "devices", *OF_DATA_FILES} - {"standardise"}
"""Settings that decide how many devices, examples and entries a model on a data file has."""
