"""What decides the row of a point: points that agree in it are computed once.

Settings are compared by what is made of them, not by how they are written: a default that was
written out is the default, ``sigmoid`` with slope 0.05 is ``sigmoid:0.05``, and the SNR of an ideal
uplink has no effect."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from flmc.base.documents import to_document
from flmc.base.errors import FlmcError
from flmc.base.version import VERSION
from flmc.settings.assembly import make_limits, planner_arguments
from flmc.settings.own_code import named_code
from flmc.settings.schema import Settings, merge
from flmc.settings.uplinks import make_uplink

_DATA = (
    "model",
    "devices",
    "dim",
    "samples",
    "split",
    "experiments",
    "data",
    "example_clip",
    "example_norm",
    "seed",
)
"""Settings that decide the model."""
_IDLE = ("threads", "checkpoint_rounds", "chains")
"""Settings that change nothing in a sweep, and the one that counts as what it amounts to."""


def key_of(settings: Settings, *, plan_only: bool = False) -> str:
    """Digest of all that decides the row of a point, with the version of flmc: the name of the
    point's file.

    Parameters
    ----------
    settings
        The point.
    plan_only
        Whether the point is planned only; its row has another key than that of a run.
    """
    decides = {"flmc": VERSION, "plan_only": plan_only, **_deciding(settings)}
    if plan_only:  # nothing is simulated
        decides = {name: part for name, part in decides.items() if name not in ("chains", "engine")}
    text = json.dumps(decides, sort_keys=True, allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()[:24]


def data_key(settings: Settings) -> str:
    """What decides the model of a point, as text: equal texts, equal models.

    Parameters
    ----------
    settings
        The point.
    """
    return json.dumps([getattr(settings, name) for name in _DATA])


def given_in(settings: Settings) -> dict[str, Any]:
    """Settings that are not at their defaults, as plain values; :func:`flmc.settings.schema.merge`
    gives the point back.

    Parameters
    ----------
    settings
        The point.
    """
    return settings.model_dump(mode="json", exclude_defaults=True)


def _deciding(settings: Settings) -> dict[str, Any]:
    """All that decides the row of a point, in plain values."""
    given = given_in(settings)
    common = {"chains": settings.num_chains, "engine": settings.engine}
    written = {"settings": {name: v for name, v in given.items() if name not in _IDLE}, **common}
    # What a user's own object does is not in its attributes alone, and its import is left to the
    # worker: such points are compared as they are written.
    if settings.model != "linear" or named_code(given):
        return written
    try:
        point = merge({}, given)
        made = {"uplink": make_uplink(point), "limits": make_limits(point)}
        planner = planner_arguments(point)
    except FlmcError:  # the point will fail, and its row say why
        return written
    return {
        **{name: to_document(each) for name, each in made.items()},
        "planner": {name: to_document(each) for name, each in planner.items()},
        "data": data_key(point),
        **common,
    }
