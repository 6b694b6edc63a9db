"""What may be asked of a reproduction, whichever the study, and curves of a user's own."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.settings.schema import Settings, merge, read_file

# Settings of a study that a user changes, and curves of her own beside the published ones.


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
    for each in (*_FROM_THE_STUDY, *((own_axis,) if own_axis else ())):
        if each in file:
            raise InvalidSetting(
                f"{each} of the curve {name!r} comes from the study; leave it out of {str(path)!r}"
            )
    try:
        return merge({**inherited, **file}, {})
    except InvalidSetting as error:
        raise InvalidSetting(f"{str(path)!r}: {error}") from error


Stage = Callable[[str], Callable[[float], None]]
"""Names a stage of the work and returns what reports its progress."""


def _silent(name: str) -> Callable[[float], None]:
    """A stage whose progress nobody asks for."""
    return lambda done: None


@dataclass(frozen=True)
class StudyRequest:
    """What a user asks of a reproduction.

    Attributes
    ----------
    out
        Directory of the report.
    figure
        Which figures; the names are the study's own, ``all`` for all.
    experiments
        How many experiments, as the study counts them; None: as many as the full study has.
    seed
        Of all randomness.
    data
        How synthetic data are drawn: ``sufficient`` statistics, or ``examples``.
    data_file
        Data of the study, where it has its own; None: they are drawn.
    engine
        What simulates.
    changes
        Settings of the base case that are changed, by name, as they were written.
    curves
        Files with the settings of a user's own curves, by the name of the curve.
    stage
        Names a stage and returns what reports its progress.
    """

    out: Path
    figure: str = "all"
    experiments: int | None = None
    seed: int = 0
    data: str = "sufficient"
    data_file: Path | None = None
    engine: str = "auto"
    changes: Mapping[str, str] = field(default_factory=dict)
    curves: Mapping[str, Path] = field(default_factory=dict)
    stage: Stage = _silent

    def command(self, *names: str, **values: object) -> str:
        """The command line that asks for the same.

        Parameters
        ----------
        *names
            What to spell out, by the names of the attributes.
        **values
            What to spell out in place of an attribute, or beside them.
        """
        spelled = {**{name: getattr(self, name) for name in names}, **values}
        words = ["flmc reproduce"]
        words += [f"--{name} {value}" for name, value in spelled.items() if value is not None]
        if self.data_file is not None:
            words.append(f"--data-file {self.data_file.name}")
        words += [f"--set {name}={value}" for name, value in self.changes.items()]
        words += [f"--add-curve {name}={path.name}" for name, path in self.curves.items()]
        return " ".join(words)


def refuse_given(request: StudyRequest, paper: str, **why: str) -> None:
    """Refuse what was asked for but has no meaning for a study.

    Parameters
    ----------
    request, paper
        What was asked, of which study.
    **why
        The reason, by the name of what must be left at its default.
    """
    usual = StudyRequest(request.out)
    for name, reason in why.items():
        if getattr(request, name) != getattr(usual, name):
            option = name.replace("_", "-")
            raise InvalidSetting(f"--{option} is not for the study {paper!r}: {reason}")
