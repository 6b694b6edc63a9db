"""The errors that flmc raises on purpose, one class per meaning.

A user's mistake is :class:`InvalidSetting`, with exit code 2; a run that failed is
:class:`RunFailed`, with exit code 1; an interrupted one :class:`Interrupted`, with 130."""

from __future__ import annotations

__all__ = [
    "FlmcError",
    "Interrupted",
    "InvalidSetting",
    "MissingExtra",
    "RunFailed",
    "UnknownPrivacy",
]


class FlmcError(Exception):
    """Base of every error that flmc raises on purpose."""

    exit_code = 1


class InvalidSetting(FlmcError, ValueError):  # noqa: N818 (the name is part of the interface)
    """A value outside its bounds: the message names the bound, the value given and what to
    change."""

    exit_code = 2


class UnknownPrivacy(InvalidSetting):
    """No privacy guarantee is known for the settings that were asked for; the message says why."""


class RunFailed(FlmcError, RuntimeError):  # noqa: N818 (the name is part of the interface)
    """A run could not go on; the message names the round and the data set."""


class Interrupted(FlmcError, RuntimeError):  # noqa: N818 (not an error, but an end)
    """A run was asked to stop, and did so between two rounds."""

    exit_code = 130


class MissingExtra(FlmcError, ImportError):  # noqa: N818 (the name is part of the interface)
    """An optional dependency is not installed; the message names the installation extra that brings
    it."""

    exit_code = 2
