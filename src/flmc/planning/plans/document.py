"""JSON document of a plan, written and read: the form in which plans reach devices and firmware.

A document has two parts: what is *decided*, which the digest covers, and a *forecast*, which
follows from it and decides nothing. Infinite numbers are null, because JSON has none."""

from __future__ import annotations

import dataclasses
import hashlib
import importlib
import json
import pkgutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np

import flmc.uplink
from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.documents import to_document
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.memory import fits
from flmc.base.version import VERSION
from flmc.planning.answer_law import read_answer
from flmc.planning.limits import GainLimits, Limits
from flmc.planning.plans.release import release_of
from flmc.planning.plans.verdict import verdict_of
from flmc.planning.prediction import Prediction
from flmc.planning.privacy_cost import Cost
from flmc.planning.server_update import DRAW_AT, LANGEVIN, ServerUpdate, is_langevin
from flmc.planning.step_size import Curvature
from flmc.uplink.fading import Fading
from flmc.uplink.link import Link
from flmc.uplink.noise import NoiseLaw
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import AllDevices, GivenDevices
from flmc.uplink.uplink import Uplink

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan

SCHEMA_VERSION = 1
"""Version of the documents that are written; documents of other versions are refused."""


def decided(plan: Plan) -> dict[str, Any]:
    """Part of a plan's JSON document that holds what the plan decides (rounds, step, gain, uplink),
    as plain values by field name."""
    gain = plan.gain if plan.gain.size > 1 else float(plan.gain[0, 0])
    # 500 bytes for each gain, as measured: the document together with its JSON text.
    fits("the document of so many gains", 500.0 * plan.gain.size)
    # The array of the scheduler GivenDevices is not repeated: the document has it as `active`.
    given = isinstance(plan.scheduler, GivenDevices)
    return {
        "schema_version": SCHEMA_VERSION,
        "scheme": plan.uplink.scheme,
        "gain": to_document(gain),
        "limits": {name: to_document(limit) for name, limit in vars(plan.gain_limits).items()},
        "binding": plan.binding,
        "step_size": plan.step_size,
        "effective_step_size": plan.effective_step_size,
        "temperature": plan.temperature,
        "data_dependent": plan.data_dependent,
        "num_devices": plan.num_devices,
        "dim": plan.dim,
        "num_rounds": plan.num_rounds,
        "num_burn_in": plan.num_burn_in,
        "burn_in_step_factor": plan.burn_in_step_factor,
        "num_fast": plan.num_fast,
        "start": plan.start,
        "active": to_document(plan.active),
        "scheduler": {"type": "GivenDevices"} if given else to_document(plan.scheduler),
        "uplink": to_document(plan.uplink),
        "asked": to_document(plan.limits),
        # Langevin's update is left out, so that the digests of older documents, which have no
        # update, stay valid.
        **({} if is_langevin(plan.update) else {"update": to_document(plan.update)}),
        # Older documents do not say where draws are taken, and mean the positions of the chain.
        **({"draw_at": plan.draw_at} if plan.midpoints else {}),
        # Older documents do not know of local parameters, and have none.
        **({"num_local": plan.num_local} if plan.num_local else {}),
        # The server's answer uses these bounds of the curvature. They are part of the document's
        # decided part, so that nobody can change them, and with them the answer, unnoticed.
        **_public_curvature(plan.public_curvature),
    }


def forecast(plan: Plan, with_run: bool) -> dict[str, Any]:
    """Part of a plan's JSON document that follows from what is decided: privacy, release,
    prediction, answer and findings. ``with_run`` includes the privacy of the whole run, which takes
    longer."""
    return {
        "rounds_needed": plan.rounds_needed,
        "margins_db": {name: to_document(each) for name, each in plan.margins_db.items()},
        "radio": plan.radio.to_document(),
        "airtime": None if plan.airtime is None else plan.airtime.to_document(),
        "estimates": None if plan.estimates is None else plan.estimates.to_document(),
        "privacy": _privacy(plan, with_run),
        "release": release_of(plan, 1, with_cost=with_run).to_document(),
        "unknown_privacy": plan.unknown_privacy,
        "prediction": to_document(plan.prediction),
        "aim": plan.aim,
        "answer": to_document(plan.answer),
        "warnings": list(plan.warnings),
        "findings": [each.to_document() for each in plan.findings],
        "verdict": verdict_of(plan, with_run=with_run).to_document() if plan.judged else None,
    }


def digest(plan: Plan) -> str:
    """SHA-256, in hexadecimal, of what a plan decides, as JSON with sorted keys and no spaces."""
    text = json.dumps(digested(plan), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def check_digest(document: Mapping[str, Any], computed: str) -> None:
    """Raise ``InvalidSetting`` if a document has a digest other than ``computed``, which is the
    digest of the plan read from the document."""
    if document.get("digest", computed) != computed:
        raise InvalidSetting(
            f"the plan was changed since it was made: its digest is {computed[:12]}, and the"
            f" document says {str(document['digest'])[:12]}; make a new plan"
        )


def digested(plan: Plan) -> dict[str, Any]:
    """Part of a plan's JSON document from which its digest is computed.

    The scheduler is left out where ``active`` says the same (all devices, or an array that was
    given): older documents have no scheduler, and their digests must stay valid.
    """
    document = decided(plan)
    if isinstance(plan.scheduler, AllDevices | GivenDevices):
        del document["scheduler"]
    return document


def _privacy(plan: Plan, with_run: bool) -> dict[str, Any] | None:
    """Privacy statement of a plan for its JSON document: criterion, neighbouring data, cost of the
    worst round, and ``with_run`` of the run; None where the privacy is unknown."""
    if plan.exposure is None:
        return None
    counted = {"rounds": plan.exposure.num_rounds, "schedule": plan.exposure.schedule}
    run = {**_cost(plan.run_cost), **counted} if with_run else None
    risk = plan.run_risk if with_run else None
    return {
        "criterion": plan.limits.privacy,
        "neighbouring": plan.limits.neighbours,
        "stated_by": plan.uplink.privacy_stated_by,
        "round": _cost(plan.round_cost),
        "run": run,
        "risk": None if risk is None else risk.to_document(plan.limits.run_delta),
    }


def _public_curvature(public: Curvature | None) -> dict[str, Any]:
    """Public bounds of the curvature as a field of a plan's JSON document; empty without any."""
    if public is None:
        return {}
    return {"public_curvature": {"smoothness": public.smoothness, "convexity": public.convexity}}


def _read_curvature(value: Mapping[str, Any] | None) -> Curvature | None:
    """Public bounds of the posterior's curvature, as an object in a plan's JSON document describes
    them; None for null."""
    return None if value is None else Curvature(**_settings(value), public=True)


def _cost(cost: Cost | None) -> dict[str, Any]:
    """Epsilon and delta of a privacy cost as values by name, with the delta at epsilon 0 where
    epsilon is 0; empty where the cost is None."""
    if cost is None:
        return {}
    stated = {"epsilon": to_document(cost.epsilon), "delta": cost.delta}
    return stated if cost.delta_at_zero is None else {**stated, "delta_at_zero": cost.delta_at_zero}


def read(
    document: Mapping[str, Any],
    uplink: Uplink | None,
    scheduler: Scheduler | None,
    update: ServerUpdate | None,
) -> dict[str, Any]:
    """Arguments of :class:`~flmc.Plan` by name, read from its JSON document.

    ``uplink``, ``scheduler`` and ``update`` are objects of a user's own classes, which flmc does
    not make from a document; None: the document's, of flmc's own classes. Raises ``InvalidSetting``
    for another version of the schema, or where the settings of such an object are not those in the
    document; other errors for a damaged document."""
    version = document.get("schema_version")
    if version != SCHEMA_VERSION:
        raise InvalidSetting(
            f"a plan must have schema_version {SCHEMA_VERSION}, which this flmc ({VERSION}) reads;"
            f" got {version!r}: use the flmc that made it, or a newer one"
        )
    asked_update = document.get("update") or to_document(LANGEVIN)
    for name, given, asked in (
        ("uplink", uplink, document["uplink"]),
        ("scheduler", scheduler, document.get("scheduler")),
        ("update", update, asked_update),
    ):
        if given is not None and to_document(given) != asked:
            raise InvalidSetting(
                f"the {name} that was given is not the one in the plan: its settings differ"
            )
    return {
        "uplink": uplink if uplink is not None else _object(document["uplink"], "uplink"),
        "limits": Limits(**_settings(document["asked"])),
        "num_devices": document["num_devices"],
        "dim": document["dim"],
        "num_rounds": document["num_rounds"],
        "num_burn_in": document["num_burn_in"],
        "start": document["start"],
        "step_size": document["step_size"],
        "burn_in_step_factor": document["burn_in_step_factor"],
        "num_fast": document["num_fast"],
        "gain": np.atleast_2d(_numbers(document["gain"])),
        "scheduler": _scheduler(document) if scheduler is None else scheduler,
        "gain_limits": GainLimits(**{k: float(_numbers(v)) for k, v in document["limits"].items()}),
        "binding": document["binding"],
        "data_dependent": document["data_dependent"],
        "rounds_needed": document["rounds_needed"],
        # Documents of early versions have no releases, and so no effective draws.
        "effective_draws": document.get("release", {}).get("effective_draws"),
        "prediction": _prediction(document["prediction"]),
        # Documents of earlier versions have neither aim nor answer.
        "aim": document.get("aim", "chain"),
        "answer": read_answer(document.get("answer")),
        "public_curvature": _read_curvature(document.get("public_curvature")),
        "findings": _findings(document),
        # Older documents have no verdict, and their findings are about sampling alone: such a plan
        # counts as not judged.
        "judged": document.get("verdict") is not None,
        "update": _object(asked_update, "update") if update is None else update,
        "draw_at": checks.one_of("draw_at", document.get("draw_at", "positions"), DRAW_AT),
        "num_local": document.get("num_local", 0),
    }


@contextmanager
def refusing_damage() -> Iterator[None]:
    """Context manager that turns any error into ``InvalidSetting``, for reading a document that may
    be damaged."""
    try:
        yield
    except InvalidSetting:
        raise
    except Exception as error:  # a damaged document may raise anything
        raise InvalidSetting(
            f"this is not a whole plan: {type(error).__name__}: {error}"
        ) from error


def _numbers(value: Any) -> Array:
    """Numbers of a JSON document as an array of the same shape, with infinity for null."""
    numbers = np.array(value, dtype=np.float64)
    return np.where(np.isnan(numbers), np.inf, numbers)


def _prediction(value: Mapping[str, Any] | None) -> Prediction | None:
    """Prediction of a chain's law that an object in a plan's JSON document describes; None for
    null."""
    return None if value is None else Prediction(**_settings(value))


def _findings(document: Mapping[str, Any]) -> tuple[Finding, ...]:
    """Findings in a plan's JSON document. A document of an early version has only their sentences,
    which become warnings with the code ``unnamed``."""
    if "findings" in document:
        return tuple(Finding.from_document(each) for each in document["findings"])
    return tuple(Finding("unnamed", "warning", text) for text in document["warnings"])


def _scheduler(document: Mapping[str, Any]) -> Scheduler:
    """Scheduler (the policy that says who transmits in a round) that a plan's JSON document
    describes; a document of an early version has the array ``active`` only."""
    if document["active"] is not None:
        return GivenDevices(np.array(document["active"], dtype=np.float64))
    scheduler: Scheduler = _object(document.get("scheduler") or {"type": "AllDevices"}, "scheduler")
    return scheduler


def _settings(value: Mapping[str, Any]) -> dict[str, Any]:
    """Fields of an object in a JSON document by name, but for ``type``, which names its class."""
    return {name: item for name, item in value.items() if name != "type"}


def _object(value: Mapping[str, Any], setting: str) -> Any:
    """Object of one of flmc's own classes, made from the class name and the settings in a JSON
    document; any other class is refused. ``setting`` names the object in error messages."""
    kind = _own_classes().get(value["type"])
    if kind is None:
        raise InvalidSetting(
            f"the plan's {setting} is {value['type']!r}, which is not one of flmc's own, and code"
            " named in a document is never imported: on the command line name it in a setting"
            " instead, and in Python pass the object to Plan.from_document as uplink=, scheduler="
            " or update="
        )
    # A document also has fields that a class computes itself, which are not arguments of the class.
    fields = {field.name for field in dataclasses.fields(kind) if field.init}
    settings = {
        name: _object(item, name) if isinstance(item, Mapping) else item
        for name, item in _settings(value).items()
        if name in fields
    }
    return kind(**settings)


def foreign_parts(plan: Plan) -> dict[str, str]:
    """Classes, as ``module:Class``, of those parts of a plan that are a user's own and not flmc's,
    by the part, such as ``uplink`` or ``fading``: the plan's document cannot be read without them.
    """
    own, found = set(_own_classes().values()), dict[str, str]()

    def look(part: str, value: object) -> None:
        if isinstance(value, _NAMED):
            kind = type(value)
            if kind not in own:
                found[part] = f"{kind.__module__}:{kind.__qualname__}"
            if dataclasses.is_dataclass(value):
                for each in dataclasses.fields(value):
                    look(each.name, getattr(value, each.name))

    for part in ("uplink", "scheduler", "update"):
        look(part, getattr(plan, part))
    return found


_NAMED = (Uplink, Link, Fading, NoiseLaw, Scheduler, ServerUpdate)
"""Kinds of objects that a plan's document names by their class."""


def _own_classes() -> dict[str, type[Any]]:
    """Classes of flmc's uplinks, links, fadings, noise laws, schedulers and server updates, by
    name: all that a document may name, so that a plan from a stranger imports no code."""
    for module in pkgutil.iter_modules(flmc.uplink.__path__, "flmc.uplink."):
        importlib.import_module(module.name)  # importing the module defines its classes
    classes: dict[str, type[Any]] = {}
    waiting: list[type[Any]] = [*_NAMED]
    while waiting:
        kind = waiting.pop()
        waiting += kind.__subclasses__()
        ours = kind.__module__.startswith(("flmc.uplink.", "flmc.planning."))
        if ours and dataclasses.is_dataclass(kind):
            classes[kind.__name__] = kind
    return classes
