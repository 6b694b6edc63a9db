"""Code that settings name as ``package.module:object``: what it is, and where it is looked for.

Naming it on the command line is asking for it. A record or a file may come from somebody else:
commands that read one find out here what it names, without importing anything."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from flmc.settings.registered import FADINGS, LINKS, MODELS, SCHEDULERS
from flmc.settings.registry import CURRENT_DIRECTORY, Registry

_NAMING: dict[str, Registry] = {
    "link": LINKS,
    "fading": FADINGS,
    "scheduling": SCHEDULERS,
    "model": MODELS,
}
"""Settings that may name code, and what is built in."""


def named_code(settings: Mapping[str, Any]) -> dict[str, str]:
    """Code that settings name, by the name of the setting; nothing is imported.

    Parameters
    ----------
    settings
        Plain values, by the names of settings; defaults may be missing.

    Returns
    -------
    dict of str to str
        For example ``{"link": "mine.links:Steep"}``; empty where all is built in.
    """
    return {
        name: text
        for name, registry in _NAMING.items()
        if isinstance(text := settings.get(name), str)
        and ":" in text
        and text.partition(":")[0] not in registry.names
    }


def in_words(named: Mapping[str, str]) -> str:
    """What would be imported, in words.

    Parameters
    ----------
    named
        What :func:`named_code` found; not empty.
    """
    return ", ".join(f"{name} {text!r}" for name, text in named.items())


@contextmanager
def searching_only(directory: Path | None) -> Iterator[None]:
    """While this lasts, modules are found where Python installs them, and in one directory if it is
    named: not in the current directory, in which a stranger's files may lie.

    Parameters
    ----------
    directory
        Where else to look; None: nowhere.
    """
    before = list(sys.path)
    here = os.path.realpath(os.getcwd())
    sys.path[:] = [path for path in before if path and os.path.realpath(path) != here]
    if directory is not None:
        sys.path.insert(0, str(directory.resolve()))
    token = CURRENT_DIRECTORY.set(False)
    try:
        yield
    finally:
        CURRENT_DIRECTORY.reset(token)
        sys.path[:] = before
