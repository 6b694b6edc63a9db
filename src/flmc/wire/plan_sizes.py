"""Plans that are too large, or name a file, are refused before anything is computed of them.

A short message must not take gigabytes of a device's memory."""

from __future__ import annotations

import json

from flmc.base.errors import InvalidSetting
from flmc.planning.plans import Plan
from flmc.uplink.fadings.constant import ConstantFading
from flmc.uplink.fadings.trace import TraceFile
from flmc.uplink.schedulers.simple import AllDevices
from flmc.wire.frames import MOST_BYTES

_MOST = {"num_devices": 10**6, "dim": MOST_BYTES // 8, "num_rounds": 10**7}
"""Largest sizes of a plan: devices have numbers of six digits, and theta is one payload."""
_MOST_VARYING = 2**25
"""Rounds times entries, and rounds times devices, of a plan in which gains, path gains or devices
change from round to round: whoever reads it computes arrays of that size, before it can tell
whether the digest is right."""


def refuse_large_document(document: object) -> None:
    """Refuse a plan of sizes that no federation has, before anything is computed of it.

    Parameters
    ----------
    document
        What is said to be a plan.

    Raises
    ------
    InvalidSetting
        If it is too large, or no plan.
    """
    if not isinstance(document, dict):
        raise InvalidSetting("this is not a federation: it has no plan")
    for name, most in _MOST.items():
        size = document.get(name)
        if type(size) is not int or not 1 <= size <= most:
            raise InvalidSetting(f"{name} of a plan must be a whole number from 1 to {most}")
    uplink, scheduler = document.get("uplink"), document.get("scheduler")
    fading = uplink.get("fading") if isinstance(uplink, dict) else None
    varies = (
        isinstance(document.get("gain"), list)
        or _type_of(fading) != ConstantFading.__name__
        or _type_of(scheduler) not in (AllDevices.__name__, None)
    )
    _refuse_sizes(document["num_rounds"], document["dim"], document["num_devices"], varies)


def _type_of(value: object) -> object:
    """What kind of object a document describes; None: none."""
    return value.get("type") if isinstance(value, dict) else None


def refuse_large(plan: Plan) -> None:
    """Refuse a plan that nobody else would read because of its size.

    Parameters
    ----------
    plan
        The plan.

    Raises
    ------
    InvalidSetting
        If it is too large.
    """
    still = isinstance(plan.uplink.fading, ConstantFading) and plan.gain.size == 1
    varies = not (still and isinstance(plan.scheduler, AllDevices))
    _refuse_sizes(plan.num_rounds, plan.dim, plan.num_devices, varies)


def _refuse_sizes(num_rounds: int, dim: int, num_devices: int, varies: bool) -> None:
    """Refuse a plan that takes too much memory to read."""
    for name, size in (("dim", dim), ("num_devices", num_devices)):
        if varies and num_rounds * size > _MOST_VARYING:
            raise InvalidSetting(
                f"num_rounds times {name} must be at most {_MOST_VARYING} in a federation whose"
                " gains, path gains or devices change from round to round; got"
                f" {num_rounds} times {size}"
            )


def refuse_files(document: object) -> None:
    """Refuse a plan that names a file: nobody opens a file because a message says so.

    Parameters
    ----------
    document
        What is said to be a plan.

    Raises
    ------
    InvalidSetting
        If it names a file.
    """
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == TraceFile.__name__:
                raise InvalidSetting(
                    "the plan names a file of path gains, which only its maker has: Federation.of"
                    " puts them into the plan"
                )
            waiting += value.values()
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            waiting += value


def stated_digest(payload: bytes) -> str | None:
    """The digest that a payload says to have, which proves nothing; None: it says none.

    Parameters
    ----------
    payload
        What is said to be a federation.
    """
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    stated = document.get("digest") if isinstance(document, dict) else None
    return stated if isinstance(stated, str) else None
