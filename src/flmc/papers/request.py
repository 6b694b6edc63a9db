"""A user's request to reproduce a published study, in the same form for every study: the figures to
draw, changed settings, and curves that the user adds."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting
from flmc.base.version import VERSION
from flmc.runs.files.durable_files import write_json
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.provenance import provenance
from flmc.settings.resolved import effective
from flmc.settings.schema import NOTHING, Settings, merge, names_of, read_file

_FROM_THE_STUDY = (
    *("devices", "dim", "samples", "model", "experiments", "chains", "seed", "data", "engine"),
)
"""Settings that the file of a user's own curve must not contain: they come from the study, because
all curves share its data and experiments."""


_OF_PAPERS = {"draw_at": "positions"}
"""Settings, by name, that published studies share and that are not flmc's defaults: their samples
are the positions of a chain."""


def change_base_case(
    paper: str, base: Mapping[str, Any], changes: Mapping[str, str], changeable: Sequence[str]
) -> Settings:
    """The settings ``base``, which all points of the study ``paper`` share, with those in
    ``changes`` replaced: values by name, as the user wrote them. ``InvalidSetting`` for a name that
    is not in ``changeable``."""
    for name in changes:
        if name not in changeable:
            raise InvalidSetting(
                f"--set of the study {paper!r} takes {', '.join(changeable)}; got {name!r}"
            )
    return merge({**_OF_PAPERS, **base}, changes)


def read_own_curve(
    name: str, path: Path, inherited: Mapping[str, Any], own_axis: str | None = None
) -> Settings:
    """Settings of the curve ``name`` that a user adds to a study: those in the TOML file at
    ``path``, and those in ``inherited`` where the file does not set them. ``InvalidSetting`` if the
    file has a setting that must come from the study: sizes, data, seed and engine, or the setting
    named ``own_axis``, which is on the x axis of all figures of the study (None: figures
    differ)."""
    file = read_file(path)
    for each in (*_FROM_THE_STUDY, *((own_axis,) if own_axis else ())):
        if each in file:
            raise InvalidSetting(
                f"{each} of the curve {name!r} comes from the study; leave it out of {str(path)!r}"
            )
    try:
        return merge({**_OF_PAPERS, **inherited, **file}, {})
    except InvalidSetting as error:
        raise InvalidSetting(f"{str(path)!r}: {error}") from error


def settings_in_words(settings: Settings, notes: Mapping[str, str] | None = None) -> str:
    """Text that lists the ``settings`` of a user's own curve that have an effect, as ``name =
    value``, including defaults, and the digests of the user's own code and data. Sizes, data and
    seed are left out, because they are the study's. ``notes`` maps the name of a setting to words
    that follow its value, or replace ``= value`` if they begin with ``=``; an empty text leaves the
    setting out."""
    idle = {*_FROM_THE_STUDY, *names_of(NOTHING), "thin", "require"}
    notes, words = notes or {}, []
    for name, value in effective(settings).items():
        note = notes.get(name, " ")
        if name not in idle and value is not None and note:
            words.append(f"{name} {note}" if note[0] == "=" else f"{name} = {value}{note.rstrip()}")
    code = Fingerprints().of_settings(settings.model_dump(mode="json"))
    listed = ", ".join(f"{name} {digest[:12]}" for name, digest in sorted(code.items()))
    return ", ".join(words) + (f"; SHA-256 of own code and data: {listed}" if listed else "")


def made_by() -> str:
    """The versions that compute a study, in words, with the commit of flmc if it is known."""
    commit = provenance()["commit"]
    of_flmc = f"flmc {VERSION}" + ("" if commit is None else f" (commit {commit})")
    return f"{of_flmc}, NumPy {np.__version__}, Python {platform.python_version()}"


Stage = Callable[[str], Callable[[float], None]]
"""Type of a function that reports progress: called with the name of a stage of the work when the
stage begins, it returns a function to be called with the stage's finished fraction, from 0 to 1."""


def _silent(name: str) -> Callable[[float], None]:
    """Default for reporting the progress of the stage ``name``: returns a function that ignores the
    finished fraction."""
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
        Number of experiments, in the sense of the study (data sets, or groups of 100 runs); None:
        the number of the full study.
    seed
        Seed of all random numbers.
    data
        Form in which synthetic data are drawn: ``sufficient`` statistics, or ``examples``.
    data_file
        File with the published data of the study; None: synthetic data are drawn.
    engine
        Name of the engine that runs the chains.
    changes
        Changed settings of the base case (the settings that all points share): values by name, as
        the user wrote them.
    curves
        Files with the settings of curves that the user adds, by the name of the curve.
    stage
        Function that reports progress: called with the name of a stage of the work, it returns a
        function to be called with the stage's finished fraction.
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

    def describe(
        self, paper: str, command: str, experiments: int, curves: Mapping[str, str]
    ) -> None:
        """Write ``study.json`` beside the report, from which `flmc cite` takes its facts: the
        command, the settings of the user's own curves in words (``curves``, by name), and the
        software and processor that computed the study."""
        document = {
            "schema_version": ANSWER_VERSION,
            "paper": paper,
            "command": command,
            "experiments": experiments,
            "seed": self.seed,
            "changes": dict(self.changes),
            "curves": dict(curves),
            "provenance": provenance(self.engine),
        }
        write_json(self.out / "study.json", document)

    def command(self, *names: str, **values: object) -> str:
        """The command line that repeats this request. Its options are the attributes named in
        ``names``, the given ``values`` by name, and data file, changed settings and added curves
        where there are any."""
        spelled = {**{name: getattr(self, name) for name in names}, **values}
        words = ["flmc reproduce"]
        words += [f"--{name} {value}" for name, value in spelled.items() if value is not None]
        if self.data_file is not None:
            words.append(f"--data-file {self.data_file.name}")
        words += [f"--set {name}={value}" for name, value in self.changes.items()]
        words += [f"--add-curve {name}={path.name}" for name, path in self.curves.items()]
        return " ".join(words)


def refuse_given(request: StudyRequest, paper: str, **why: str) -> None:
    """Raise ``InvalidSetting`` if the request sets an option that the study ``paper`` does not
    have. ``why`` maps the name of each such option to the reason, which the message quotes."""
    usual = StudyRequest(request.out)
    for name, reason in why.items():
        if getattr(request, name) != getattr(usual, name):
            option = name.replace("_", "-")
            raise InvalidSetting(f"--{option} is not for the study {paper!r}: {reason}")
