"""URLs and command lines: the settings of a page as a link to share, and as a command to run."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from flmc.studio.controls import CONTROLS, Given, default_text, read_given

VIEW_KEYS = ("theme",)
"""Keys of a URL that change the look of a page, but not its content."""


def given_of(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings in the query of a URL, as text by name; other keys are left out."""
    return {name: text for name, text in query if name in CONTROLS}


def unknown_keys(query: Iterable[tuple[str, str]], known: Iterable[str] = ()) -> list[str]:
    """Keys in the ``query`` of a URL that mean nothing on a page: neither settings with a control,
    nor in ``VIEW_KEYS``, nor in ``known``, the keys that only this page takes."""
    every = {*CONTROLS, *VIEW_KEYS, *known}
    return [name for name, _ in query if name not in every]


def address(path: str, given: Given, more: Mapping[str, str] | None = None) -> str:
    """URL, path and query, of a page with these settings and the further keys ``more``; settings at
    their defaults are left out."""
    query = [*changed(given).items(), *(more or {}).items()]
    return f"{path}?{urlencode(query)}" if query else path


def changed(given: Given) -> dict[str, str]:
    """Settings in ``given`` that differ from their defaults, as text by name, in the order of the
    panel's controls."""
    return {
        name: given[name]
        for name in CONTROLS
        if name in given and given[name] not in ("", default_text(name))
    }


def command_line(given: Given, command: str = "plan") -> str:
    """The command line ``flmc <command> ...`` that computes what a page shows for the given
    settings; settings at their defaults or without an effect are left out."""
    kept = changed(given)
    settings = read_given(kept)
    words = ["flmc", command]
    for name, text in kept.items():
        if CONTROLS[name].applies(settings):
            words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)
