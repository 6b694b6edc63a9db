"""Addresses and commands: what a page shows, as a link that can be shared, and as a command."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from urllib.parse import urlencode

from flmc.studio.controls import CONTROLS, Given, default_text, read_given

VIEW_KEYS = ("theme",)
"""Keys of addresses that say how a page looks, not what it is about."""


def given_of(query: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Settings in the query of an address, as text by name.

    Parameters
    ----------
    query
        Keys and values of the query.
    """
    return {name: text for name, text in query if name in CONTROLS}


def unknown_keys(query: Iterable[tuple[str, str]], known: Iterable[str] = ()) -> list[str]:
    """Keys of an address that no control and no page knows.

    Parameters
    ----------
    query
        Keys and values of the query.
    known
        Keys that the page knows beside settings.
    """
    every = {*CONTROLS, *VIEW_KEYS, *known}
    return [name for name, _ in query if name not in every]


def address(path: str, given: Given, more: Mapping[str, str] | None = None) -> str:
    """Address of a page with these settings; settings at their defaults are left out.

    Parameters
    ----------
    path
        Path of the page.
    given
        Settings as text by name.
    more
        Further keys.
    """
    query = [*changed(given).items(), *(more or {}).items()]
    return f"{path}?{urlencode(query)}" if query else path


def changed(given: Given) -> dict[str, str]:
    """Settings that are not at their defaults, in the order of the controls.

    Parameters
    ----------
    given
        Settings as text by name.
    """
    return {
        name: given[name]
        for name in CONTROLS
        if name in given and given[name] not in ("", default_text(name))
    }


def command_line(given: Given, command: str = "plan") -> str:
    """The command that computes what a page shows.

    Parameters
    ----------
    given
        Settings as text by name; those without an effect are left out.
    command
        Name of the command.
    """
    kept = changed(given)
    settings = read_given(kept)
    words = ["flmc", command]
    for name, text in kept.items():
        if CONTROLS[name].applies(settings):
            words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)
