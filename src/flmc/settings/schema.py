"""The settings of plans and runs: one schema for TOML files, command-line options and JSON. Default
values are those of the experiment in the paper that flmc is based on."""

from __future__ import annotations

import difflib
import json
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args, get_origin

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.settings.columns import scales, vocabularies, word_list
from flmc.settings.registered import (
    ENGINES,
    FADINGS,
    LINKS,
    MODELS,
    NOISE_LAWS,
    SCHEDULERS,
    SCHEMES,
    UPDATES,
)
from flmc.settings.registry import Registry

Finite = Annotated[float, Field(allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, AfterValidator(lambda value: checks.between("it", value, 0.0, 1.0))]
PositiveCount = Annotated[int, Field(ge=1, le=10**15)]
"""A whole number from 1 to 10^15; with larger ones, arithmetic in double precision would not be
exact."""

# Functions read the registry from the annotation: ``choices_of`` finds the built-in names there,
# for help and messages, and ``naming`` the settings that may name a user's own code.
Scheme = Annotated[str, SCHEMES, AfterValidator(SCHEMES.check_name)]
EngineName = Annotated[str, ENGINES, AfterValidator(ENGINES.check_name)]


@dataclass(frozen=True)
class Part:
    """Mark in the annotation of a setting's type, for the one thing that the setting decides: the
    ``uplink``, the ``plan`` for a given uplink, the course of a ``simulation``, or ``nothing`` that
    changes the numbers of a result. A setting without a mark may decide anything, most of all the
    model and its data. By the marks a sweep knows which of its points have the same result, or the
    same data."""

    name: str


UPLINK, PLAN = Part("uplink"), Part("plan")
"""Marks of settings that decide the uplink only, and of settings that only the planner uses."""
SIMULATION, NOTHING = Part("simulation"), Part("nothing")
"""Marks of settings that change a simulation but no plan, and of settings that change no result at
all."""


def names_of(*parts: Part) -> set[str]:
    """Names of the settings that bear one of the marks ``parts``, and so decide nothing but the
    uplink, the plan or the simulation that the mark names."""
    fields = Settings.model_fields.items()
    return {name for name, field in fields if any(part in field.metadata for part in parts)}


def _requirement(text: str) -> str:
    """``text`` unchanged if it is a requirement of a plan, such as ``temperature<=1.05``; else
    ``InvalidSetting``."""
    # Imported here, so that settings without requirements load without the planner.
    from flmc.planning.requirements import read_requirement

    return read_requirement(text).text


def _as_list(value: object) -> object:
    """``value`` in a list if it is a text, because an option that is given once on the command line
    arrives as a text; any other value is returned unchanged."""
    return [value] if isinstance(value, str) else value


Requirements = Annotated[
    list[Annotated[str, AfterValidator(_requirement)]], BeforeValidator(_as_list)
]


def _words_of(name: str) -> BeforeValidator:
    """A validator that turns the raw value of the setting ``name``, such as ``age,dose``, into a
    list of words."""
    return BeforeValidator(lambda value: word_list(name, value))


def _defaults(registry: Registry) -> str:
    """Text for help that lists the default of the first parameter of every entry that has
    parameters, such as ``0.05 (sigmoid)``."""
    with_parameter = [entry for entry in registry if entry.parameters]
    return ", ".join(f"{entry.parameters[0].default:g} ({entry.name})" for entry in with_parameter)


def choices_of(name: str) -> tuple[str, ...]:
    """All words that the setting ``name`` takes, for help and messages; empty for a setting that
    takes other values, such as numbers, or names with parameters."""
    field = Settings.model_fields[name]
    if get_origin(field.annotation) is Literal:
        return get_args(field.annotation)
    registry = _registry_of(name)
    words = registry is not None and not any(entry.parameters for entry in registry)
    return registry.names if registry is not None and words else ()


def _registry_of(name: str) -> Registry | None:
    """The registry of names that the setting ``name`` can take; None for a setting without a
    registry."""
    metadata = Settings.model_fields[name].metadata
    return next((each for each in metadata if isinstance(each, Registry)), None)


_OF_LISTS = ("choose", "features", "classes", "categories", "standardise")
"""Settings whose value may be a text with commas between items, so that a comma does not end it."""


def may_continue(name: str, text: str, more: str) -> bool:
    """Whether the texts ``text`` and ``more``, with a comma between them, may be one value of the
    setting ``name``, such as ``rician:0.04`` and ``2``, rather than two values."""
    if name in _OF_LISTS:
        return True
    registry = _registry_of(name) if name in Settings.model_fields else None
    return registry is not None and registry.may_continue(text, more)


def naming() -> dict[str, Registry]:
    """Names of settings that may refer to a user's own code, ``package.module:object``, each with
    the registry of its built-in names."""
    registries = {name: _registry_of(name) for name in Settings.model_fields}
    return {name: each for name, each in registries.items() if each is not None and each.kind}


class Settings(BaseModel):
    """All settings of a plan and a run; the defaults are those of the paper's experiment."""

    model_config = ConfigDict(extra="forbid", frozen=True, protected_namespaces=())

    scheme: Annotated[Scheme, UPLINK] = Field(
        "digital", description=f"how devices transmit: {SCHEMES.described}"
    )
    snr_db: Annotated[float, UPLINK] = Field(
        25.0, allow_inf_nan=False, description="largest SNR, power limit over noise power, in dB"
    )
    epsilon: Annotated[Positive, PLAN] = Field(5.0, description="privacy budget")
    delta: Annotated[Probability, PLAN] = Field(0.01, description="its delta, for one round")
    run_delta: Annotated[Probability, PLAN] = Field(
        1e-5, description="delta of statements about the whole run"
    )
    scope: Annotated[Literal["round", "run"], PLAN] = Field(
        "round", description="what the budget is for"
    )
    privacy: Annotated[Literal["tight", "tail", "paper", "off"], PLAN] = Field(
        "tight", description="criterion of the privacy limit"
    )
    neighbouring: Annotated[Literal["device", "example"], PLAN] = Field(
        "device", description="unit in which neighbouring data differ"
    )
    relation: Annotated[Literal["replace", "add_remove", "zero_out"], PLAN] = Field(
        "replace",
        description="how it differs: replaced, absent (add_remove) or zero (zero_out)",
    )
    example_clip: Positive | None = Field(
        None, description="bound of one example's gradient entries"
    )
    example_norm: Positive | None = Field(
        None, description="bound of the norm of one example's gradient, in place of example_clip"
    )
    example_shrink: Positive | Literal["auto"] = Field(
        "auto",
        description=(
            "what that leaves of the gradient; auto: for standard normal features and residuals"
        ),
    )
    batch_share: Annotated[float, Field(gt=0, le=1)] = Field(
        1.0, description="share of its examples that a device uses in a round; 1: all"
    )
    allocation: Annotated[Literal["static", "adaptive"], PLAN] = Field(
        "static", description="how a run's budget is spent over rounds"
    )
    langevin: Annotated[Literal["calibrated", "paper", "off"], PLAN] = Field(
        "calibrated", description="limit that keeps enough noise"
    )
    aim: Annotated[Literal["chain", "answer"], PLAN] = Field(
        "chain",
        description=(
            "what the run is for: draws of a chain, whose noise must be the sampler's; or an"
            " answer, what the server knows after it"
        ),
    )
    draw_at: Annotated[Literal["auto", "midpoints", "positions"], PLAN] = Field(
        "auto",
        description=(
            "where draws are taken: midpoints (half way between the positions before and after a"
            " round, free of the error of the discrete step), or positions, as in the paper;"
            " auto: midpoints where the server's update allows it"
        ),
    )
    step_size: Annotated[Positive | Literal["auto"], PLAN] = Field(
        "auto", description="a number or auto"
    )
    effective_step_size: Annotated[Positive | None, PLAN] = Field(
        None,
        description="in place of step_size: step times slope, which the Langevin equation sees",
    )
    link: Annotated[str, LINKS, UPLINK] = Field(
        "sigmoid",
        description=f"probability of a +1 bit: {LINKS.described}; auto (chosen by prediction)",
    )
    slope_parameter: Annotated[Positive | None, UPLINK] = Field(
        None, description=f"of the link; default {_defaults(LINKS)}"
    )
    clip: Annotated[Positive, UPLINK] = Field(30.0, description="bound of a local gradient")
    clipping: Annotated[Literal["entry", "norm"], UPLINK] = Field(
        "entry", description="what the clip bounds: each entry of a local gradient, or its norm"
    )
    modulation: Annotated[Literal["real", "complex"], UPLINK] = Field(
        "real", description="entries of a symbol: one (BPSK), or two (QPSK)"
    )
    average_snr_db: Annotated[Finite | None, UPLINK] = Field(
        None,
        description=(
            "long-term SNR limit in dB: a device's mean power over all rounds, expected over the"
            " channel"
        ),
    )
    csi_error: Annotated[Annotated[float, Field(ge=0, le=0.9)], UPLINK] = Field(
        0.0, description="error of the channel estimates that devices invert, from 0 to 0.9"
    )
    devices: PositiveCount = Field(20, description="number of devices")
    dim: PositiveCount = Field(5, description="number of entries")
    samples: PositiveCount = Field(1200, description="number of examples in all")
    rounds: Annotated[PositiveCount, PLAN] = Field(300, description="number of rounds")
    burn_in: Annotated[Annotated[int, Field(ge=0)] | Literal["auto"], PLAN] = Field(
        200,
        description=(
            "rounds that are not kept; auto: as many as the sampler needs, the default of the aim"
            " answer"
        ),
    )
    burn_in_step_factor: Annotated[Positive | Literal["auto"], PLAN] = Field(
        "auto", description="larger steps in early burn-in"
    )
    start: Annotated[Literal["prior", "zero"], PLAN] = Field(
        "prior", description="where chains start"
    )
    fading: Annotated[str | Finite, FADINGS, UPLINK] = Field(
        0.04, description=f"path gain: a number, or {FADINGS.described}"
    )
    scheduling: Annotated[str, SCHEDULERS, PLAN] = Field(
        "all", description=f"who transmits in a round: {SCHEDULERS.described}"
    )
    update: Annotated[str, UPDATES, PLAN] = Field(
        "langevin",
        description=f"what the server does with its estimate: {UPDATES.described}",
    )
    noise_power: Annotated[Positive, UPLINK] = Field(
        1.0, description="variance of the noise in each real entry"
    )
    noise_law: Annotated[
        Annotated[str, AfterValidator(NOISE_LAWS.check_name)] | None, NOISE_LAWS, UPLINK
    ] = Field(
        None,
        description=f"law of that noise: {NOISE_LAWS.described}; default: that of the scheme",
    )
    gain: Annotated[Positive | list[Positive] | None, PLAN] = Field(
        None, description="override of the planned gain"
    )
    public_smoothness: Annotated[Positive | None, PLAN] = Field(
        None, description="largest curvature, from public knowledge"
    )
    public_convexity: Annotated[Positive | None, PLAN] = Field(
        None, description="smallest curvature, from public knowledge"
    )
    model: Annotated[str, MODELS] = Field(
        "linear", description=f"what is sampled: {MODELS.described}"
    )
    data_file: str | None = Field(
        None,
        description=(
            "data in place of synthetic ones: a CSV, Parquet or npz file, a pattern of files, one a"
            " device, or sklearn:NAME"
        ),
    )
    target: str | None = Field(None, description="column of data_file to be predicted")
    device_column: str | None = Field(
        None, description="column of data_file that names the device of an example"
    )
    deal: str | None = Field(
        None,
        description=(
            "deal the examples of data_file to so many devices anew: iid, label, dirichlet:ALPHA,"
            " size:ALPHA"
        ),
    )
    features: Annotated[list[str] | None, _words_of("features")] = Field(
        None, description="columns of data_file to use, as age,dose; default: all others"
    )
    classes: Annotated[list[str] | None, _words_of("classes")] = Field(
        None,
        description="classes of the target of data_file in the order of their numbers, as no,yes",
    )
    categories: Annotated[dict[str, list[str]] | None, BeforeValidator(vocabularies)] = Field(
        None,
        description=(
            "public vocabularies of the columns of words in data_file, as"
            " ward=eyes:heart:bones,smoker=no:yes, or a table in a file"
        ),
    )
    standardise: Annotated[
        Literal["data"] | dict[str, tuple[float, float]] | None, BeforeValidator(scales)
    ] = Field(
        None,
        description=(
            "public centre and scale of features of data_file, as age=60:10,dose=0:2, or a table in"
            " a file; data: their own mean and spread, for simulation"
        ),
    )
    missing: Literal["refuse", "drop"] = Field(
        "refuse",
        description="examples of data_file with a missing value: refused, or left out and counted",
    )
    precondition: Literal["none", "prior", "pilot"] = Field(
        "none",
        description=(
            "coordinates of the sampler: the model's own (none), the prior's mean and spread, or"
            " those of a pilot's draws, within one budget"
        ),
    )
    pilot_rounds: PositiveCount | None = Field(
        None, description="rounds of the pilot, among all; default: a third"
    )
    choose: str | None = Field(
        None,
        description="what is chosen by rule and explained: some of clip,link,slope,rounds",
    )
    require: Requirements | None = Field(
        None,
        description=(
            "what a plan must meet, else exit 1: temperature<=1.05, run.epsilon<=3, burn-in, good"
        ),
    )
    thin: PositiveCount = Field(1, description="kept rounds for each draw of a record")
    experiments: PositiveCount = Field(1, description="number of data sets")
    chains: Annotated[PositiveCount | None, SIMULATION] = Field(
        None, description="per data set; default 200 in all, at least 1"
    )
    seed: int = Field(0, ge=0, description="of all randomness")
    data: Literal["examples", "sufficient"] = Field(
        "examples",
        description="synthetic data drawn as examples, or straight as sufficient statistics",
    )
    engine: Annotated[EngineName, SIMULATION] = Field(
        "auto", description=f"what simulates: {ENGINES.described}"
    )
    checkpoint_rounds: Annotated[PositiveCount | None, NOTHING] = Field(
        None, description="with --out: rounds between checkpoints; default: what takes 5 seconds"
    )
    threads: Annotated[PositiveCount | None, NOTHING] = Field(
        None, description="of the numba engine; default: all processors"
    )
    answer: Annotated[Literal["auto", "aware", "chain"], NOTHING] = Field(
        "auto",
        description=(
            "what a result says in the end: what the server knows (aware), the draws of the chain"
            " only (chain), or the former where it applies (auto)"
        ),
    )

    @property
    def num_chains(self) -> int:
        """Number of chains per data set: as the user gave it, else 200 divided among the data sets,
        but at least 1."""
        return max(1, 200 // self.experiments) if self.chains is None else self.chains


def read_file(path: Path) -> dict[str, Any]:
    """Settings in a TOML file, by name, as they were read and not yet checked; raises
    ``InvalidSetting`` if the file cannot be read."""
    try:
        with path.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise InvalidSetting(
            f"cannot read the config file {str(path)!r}: {error.strerror}"
        ) from error
    except RecursionError as error:
        raise InvalidSetting(f"the config file {str(path)!r} is nested too deeply") from error
    # A ValueError means invalid TOML, an invalid encoding, or a number with too many digits.
    except ValueError as error:
        raise InvalidSetting(f"the config file {str(path)!r} is not valid TOML: {error}") from error


def merge(file: Mapping[str, Any], options: Mapping[str, Any]) -> Settings:
    """Checked settings from the values in a file and the options of a command, by name. An option
    takes precedence over the file, and the file over the default.

    Text is read as the type of its setting. An unknown name or a value out of bounds raises
    :class:`~flmc.base.errors.InvalidSetting`, whose message gives the bound and the value.
    """
    # Pydantic would accept True for a number, because Python counts it as 1.
    for name, value in file.items():
        if isinstance(value, bool):
            raise InvalidSetting(f"{name} must be a number or a word, got {value}")
    try:
        return Settings.model_validate({**file, **options})
    except ValidationError as error:
        raise InvalidSetting(_one_line(error)) from None


def to_toml(settings: Mapping[str, Any], comments: Mapping[str, str] | None = None) -> str:
    """Text of a TOML file with these settings, and with a comment above each setting that
    ``comments`` names.

    Examples
    --------
    >>> from flmc.settings.schema import to_toml
    >>> print(to_toml({"link": "linear", "clip": 14.5}), end="")
    link = "linear"
    clip = 14.5
    """
    lines = []
    for name, value in settings.items():
        if comments and name in comments:
            lines.append(f"# {comments[name]}")
        lines.append(f"{name} = {_in_toml(value)}")
    return "\n".join(lines) + "\n"


def _in_toml(value: Any) -> str:
    """A value as TOML writes it: words, numbers and lists as in JSON, a mapping as an inline
    table."""
    if not isinstance(value, Mapping):
        return json.dumps(value)
    entries = (f"{json.dumps(name)} = {_in_toml(each)}" for name, each in value.items())
    return "{" + ", ".join(entries) + "}"


OF_COMPARISONS: Mapping[str, str] = {
    "equal": "sweep and compare",
    "across": "sweep",
    "hold_out": "sweep and compare",
}
"""Keys that a file of settings may have although they are no settings: each is an option of the
commands that its text names."""
OF_THE_DATA = (
    *("model", "data_file", "target", "device_column", "deal", "devices", "dim"),
    *("features", "classes", "categories", "standardise", "missing"),
    *("samples", "experiments", "data", "seed"),
)
"""Settings that decide the data sets. Methods of a comparison that agree in all of them have the
same data sets, so that their results can be paired."""


WITHDRAWN: Mapping[str, str] = {
    "split": "synthetic examples are dealt evenly: leave it out; deal is for those of data_file",
}
"""Names of settings that earlier versions had and this one has not, each with advice on what to
write instead."""


def unknown_setting(name: str) -> str:
    """Message about ``name``, which is no setting: advice on what to write instead, the command
    that has it as an option, the most similar names of settings, or all names."""
    if name.replace("-", "_") in WITHDRAWN:
        return f"the setting {name!r} was withdrawn: {WITHDRAWN[name.replace('-', '_')]}"
    if name in OF_COMPARISONS:
        return f"{name} is for the command {OF_COMPARISONS[name]}: leave it out here"
    near = difflib.get_close_matches(name.replace("-", "_"), Settings.model_fields, n=3)
    known = (
        f"is it {' or '.join(near)}?" if near else f"known are {', '.join(Settings.model_fields)}"
    )
    return f"unknown setting {name!r}; {known}"


_IN_OWN_WORDS = ("require", "features", "classes", "categories", "standardise")
"""Settings whose validators write the whole error message themselves."""


def _one_line(error: ValidationError) -> str:
    """Message about the first setting in ``error`` that failed validation: the values that it
    accepts, and the value that it had."""
    problems = error.errors(include_url=False)
    first = problems[0]
    name = str(first["loc"][0])
    if first["type"] == "extra_forbidden":
        return unknown_setting(name)
    refused = first.get("ctx", {}).get("error")
    if name in _IN_OWN_WORDS and refused:
        return str(refused)
    if name == "require":
        bound = "must be a list of texts such as 'temperature<=1.05'"
        return f"{name} {bound}, got {first['input']!r}"
    # Where a setting has several types, pydantic reports a problem for each of them; the message
    # joins their requirements.
    wanted = dict.fromkeys(
        _wanted(name, p["type"], p.get("ctx", {})) for p in problems if p["loc"][0] == name
    )
    return f"{name} must be {' or '.join(wanted)}, got {first['input']!r}"


def _wanted(name: str, kind: str, context: Mapping[str, Any]) -> str:
    """The words after "NAME must be" in a message, for a pydantic error of the type ``kind`` with
    its ``context``."""
    if kind == "greater_than":
        return "positive" if context["gt"] == 0 else f"above {context['gt']:g}"
    if kind == "value_error":
        choices = choices_of(name)
        own = ["package.module:object"] if name in naming() else []
        return f"one of {', '.join([*choices, *own])}" if choices else "strictly between 0 and 1"
    if kind == "less_than_equal":
        return f"at most {context['le']:g}"
    if kind == "greater_than_equal":
        return f"at least {context['ge']:g}"
    words = {
        "literal_error": f"one of {context.get('expected', '')}".replace(" or ", ", "),
        "finite_number": "a finite number",
        "float_parsing": "a number",
        "float_type": "a number",
        "int_parsing": "a whole number",
        "int_type": "a whole number",
        "int_from_float": "a whole number",
        "list_type": "a list of numbers",
        "string_type": "a word",
    }
    return words.get(kind, f"valid ({kind})")
