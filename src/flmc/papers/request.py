"""What may be asked of a reproduction, whichever the study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from flmc.base.errors import InvalidSetting

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
