"""Settings of a study that a user changes, and curves of her own beside the published ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.settings.schema import Settings, merge, read_file

_FROM_THE_STUDY = ("devices", "dim", "samples", "model", "experiments", "chains", "seed", "data")
"""What a curve cannot choose: it is measured on the study's data, as often as the others."""


def change_base_case(
    paper: str, base: Mapping[str, Any], changes: Mapping[str, str], changeable: Sequence[str]
) -> Settings:
    """The settings of a study's base case, with those that a user changes.

    Parameters
    ----------
    paper
        Name of the study.
    base
        Its settings, where they are not flmc's defaults.
    changes
        Settings as they were written, by name.
    changeable
        Names that may be changed.

    Raises
    ------
    InvalidSetting
        If a setting is not one of the base case, or its value is out of bounds.
    """
    for name in changes:
        if name not in changeable:
            raise InvalidSetting(
                f"--set of the study {paper!r} takes {', '.join(changeable)}; got {name!r}"
            )
    return merge(base, changes)


def read_own_curve(
    name: str, path: Path, inherited: Mapping[str, Any], own_axis: str | None = None
) -> Settings:
    """Settings of a user's own curve from a TOML file.

    Parameters
    ----------
    name
        Of the curve.
    path
        The file.
    inherited
        Settings of the study, which hold where the file says nothing.
    own_axis
        Setting that the study itself varies, if it is the same in all figures.

    Raises
    ------
    InvalidSetting
        If the file sets what comes from the study, or cannot be read.
    """
    file = read_file(path)
    for each in (*_FROM_THE_STUDY, "split", *((own_axis,) if own_axis else ())):
        if each in file:
            raise InvalidSetting(
                f"{each} of the curve {name!r} comes from the study; leave it out of {str(path)!r}"
            )
    try:
        return merge({**inherited, **file}, {})
    except InvalidSetting as error:
        raise InvalidSetting(f"{str(path)!r}: {error}") from error
