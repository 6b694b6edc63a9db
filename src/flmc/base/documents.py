"""Values to plain JSON values, without losing which class they were."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np


def to_document(value: Any) -> Any:
    """Numbers, strings, lists and dictionaries only; infinite and undefined numbers become null.

    An object becomes its settings with its class as ``type``: the bare name for flmc's own,
    ``module:name`` for a user's."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return to_document(value.tolist())
    if isinstance(value, (list, tuple)):
        return [to_document(item) for item in value]
    if dataclasses.is_dataclass(value):
        settings = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
    else:
        settings = {
            name: item for name, item in sorted(vars(value).items()) if not name.startswith("_")
        }
    return {
        "type": _class_name(value),
        **{name: to_document(item) for name, item in settings.items()},
    }


def _class_name(value: object) -> str:
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__.startswith("flmc.")
        else f"{kind.__module__}:{kind.__qualname__}"
    )
