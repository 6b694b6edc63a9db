"""A user's request to reproduce a study, in the same form for every study: figures, changed
settings, and the user's own curves."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.settings.schema import Settings, merge, read_file

_FROM_THE_STUDY = (
    *("devices", "dim", "samples", "model", "experiments", "chains", "seed", "data", "engine"),
)
"""Settings that a user's own curve takes from the study, because all curves share its data and
experiments."""


def change_base_case(
    paper: str, base: Mapping[str, Any], changes: Mapping[str, str], changeable: Sequence[str]
) -> Settings:
    """The settings ``base``, which all points of a study share, with those in ``changes`` replaced
    (values as the user wrote them, by name); ``InvalidSetting`` if a name is not
    ``changeable``."""
    for name in changes:
        if name not in changeable:
            raise InvalidSetting(
                f"--set of the study {paper!r} takes {', '.join(changeable)}; got {name!r}"
            )
    return merge(base, changes)


def read_own_curve(
    name: str, path: Path, inherited: Mapping[str, Any], own_axis: str | None = None
) -> Settings:
    """Settings of a curve that a user adds to a study: those in the TOML file at ``path``, and
    those ``inherited`` from the study where the file is silent. ``InvalidSetting`` if the file has
    a setting that comes from the study: sizes, data and seed, or ``own_axis``, the setting along
    the x axis if it is the same in all figures."""
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


def settings_in_words(settings: Settings) -> str:
    """The settings of a user's own curve as ``name = value``, with those that it inherits from the
    study; all others have their defaults."""
    given = settings.model_dump(exclude_unset=True, mode="json")
    return ", ".join(f"{name} = {value}" for name, value in given.items())


Stage = Callable[[str], Callable[[float], None]]
"""A function that begins a named stage of the work and returns one that takes its finished
fraction."""


def _silent(name: str) -> Callable[[float], None]:
    """A stage of the work whose progress is not shown: the function that it returns takes the
    finished fraction and does nothing."""
    return lambda done: None


@dataclass(frozen=True)
class StudyRequest:
    """A user's request to reproduce a study.

    Attributes
    ----------
    out
        Directory of the report.
    figure
        Name of a figure of the study, or ``all``.
    experiments
        Number of experiments, as the study counts them; None: that of the full study.
    data
        Form in which synthetic data are drawn: ``sufficient`` statistics, or ``examples``.
    data_file
        File with the study's own data; None: data are drawn.
    engine
        Name of the engine that runs the chains.
    changes
        Changed settings of the base case (the settings that all points share), by name, as the user
        wrote them.
    curves
        Files with the settings of a user's own curves, by the name of the curve.
    stage
        Function that begins a named stage of the work, and returns one that takes its finished
        fraction.
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
        """The command line that repeats this request: its options are the attributes ``names``, and
        ``values`` by name."""
        spelled = {**{name: getattr(self, name) for name in names}, **values}
        words = ["flmc reproduce"]
        words += [f"--{name} {value}" for name, value in spelled.items() if value is not None]
        if self.data_file is not None:
            words.append(f"--data-file {self.data_file.name}")
        words += [f"--set {name}={value}" for name, value in self.changes.items()]
        words += [f"--add-curve {name}={path.name}" for name, path in self.curves.items()]
        return " ".join(words)


def refuse_given(request: StudyRequest, paper: str, **why: str) -> None:
    """Raise ``InvalidSetting`` if the request sets an option without meaning for this study;
    ``why`` has the reason for each such option, by name."""
    usual = StudyRequest(request.out)
    for name, reason in why.items():
        if getattr(request, name) != getattr(usual, name):
            option = name.replace("_", "-")
            raise InvalidSetting(f"--{option} is not for the study {paper!r}: {reason}")
