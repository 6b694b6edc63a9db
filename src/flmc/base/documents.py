"""Conversion of objects to plain JSON values in which the class of each object is named."""

from __future__ import annotations

import dataclasses
import math
from typing import Any

import numpy as np

LATER = {"later": True}
"""Mark for the metadata of a dataclass's field that was added when documents (JSON) had already
been written. Such a field is left out of a document while it has its default, so that older
documents and their digests stay the same."""
ANSWER_VERSION = 1
"""``schema_version`` of the JSON that commands print and of the files of a sweep; plans and records
of runs have versions of their own."""


def to_document(value: Any) -> Any:
    """The value as plain JSON values; infinite numbers and NaN become null.

    A dataclass, or the public attributes of another object, becomes a dictionary with its class as
    ``type``: the bare name for a class of flmc, ``module:name`` for a user's. A field marked
    ``LATER`` is left out at its default."""
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, (float, np.floating)):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return to_document(value.tolist())
    if isinstance(value, (list, tuple)):
        return [to_document(item) for item in value]
    if isinstance(value, dict):
        return {str(name): to_document(item) for name, item in value.items()}
    if dataclasses.is_dataclass(value):
        settings = {
            f.name: getattr(value, f.name)
            for f in dataclasses.fields(value)
            if not (f.metadata.get("later") and getattr(value, f.name) == f.default)
        }
    else:
        settings = {
            name: item for name, item in sorted(vars(value).items()) if not name.startswith("_")
        }
    return {
        "type": _class_name(value),
        **{name: to_document(item) for name, item in settings.items()},
    }


def _class_name(value: object) -> str:
    """The name of the value's class in a JSON document: bare for a class of flmc, ``module:name``
    for a user's own."""
    kind = type(value)
    return (
        kind.__qualname__
        if kind.__module__.startswith("flmc.")
        else f"{kind.__module__}:{kind.__qualname__}"
    )
