"""Settings as the text of a TOML file."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def to_toml(settings: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Text of a TOML file with these settings, which :func:`flmc.settings.schema.read_file` reads.

    Parameters
    ----------
    settings
        Numbers, words and lists of numbers, by name.
    comments
        A line above a setting, by its name.

    Examples
    --------
    >>> from flmc.settings.toml import to_toml
    >>> print(to_toml({"link": "linear", "clip": 14.5}), end="")
    link = "linear"
    clip = 14.5
    """
    lines = []
    for name, value in settings.items():
        if comments and name in comments:
            lines.append(f"# {comments[name]}")
        # Words, numbers and lists of numbers are written alike in JSON and in TOML.
        lines.append(f"{name} = {json.dumps(value)}")
    return "\n".join(lines) + "\n"
