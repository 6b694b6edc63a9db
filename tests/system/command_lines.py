"""Random command lines, made from the schema and the registries: right and wrong ones mixed."""

from __future__ import annotations

import json
import random
from typing import Any

from flmc.settings.construction import OF_DATA_FILES
from flmc.settings.registered import FADINGS, LINKS, SCHEDULERS, UPDATES
from flmc.settings.registry import Entry, Registry
from flmc.settings.schema import Settings, choices_of

REGISTRIES = {"link": LINKS, "fading": FADINGS, "scheduling": SCHEDULERS, "update": UPDATES}
SIZES = {
    "rounds": ("1", "2", "7", "60", "300", "5000", "1000000000000"),
    "burn_in": ("0", "1", "5", "40", "auto", "1000000000000"),
    "devices": ("1", "2", "7", "20", "300", "1000000000"),
    "dim": ("1", "2", "5", "12", "1000000"),
    "samples": ("1", "20", "400", "1200", "99999999999999999999999"),
    "experiments": ("1", "3", "20", "1000000000"),
    "chains": ("1", "8", "30", "1000000000"),
    "threads": ("1", "2"),
}
"""Sizes that run in no time, and one each that no machine has room for."""
NUMBERS = (
    "1e-300",
    "1e-9",
    "1e-3",
    "0.01",
    "0.3",
    "0.9",
    "1",
    "2",
    "5",
    "25",
    "60",
    "1e4",
    "1e200",
)
WRONG = (
    "0",
    "-1",
    "-0.0",
    "nan",
    "inf",
    "-inf",
    "1e999",
    "",
    " ",
    "x",
    "1,2",
    "0.1,0.2,0.3,0.4,0.5",
    "true",
    "1_000",
    "٣",
    "1e5",
    "0x10",
    "ä:1",
    ":",
    "os:sep",
    "no.such:thing",
    "..:x",
    "rayleigh:",
    "random:0",
    "a\nb",
    "9" * 5000,
)


def spelling(entry: Entry, rng: random.Random) -> str:
    """One way to write a registered object, with some of its parameters."""
    count = rng.randint(0, len(entry.parameters))
    values = [rng.choice((*NUMBERS, "1", "2", "3")) for _ in range(count)]
    return ":".join([entry.name, ",".join(values)]) if values else entry.name


def value_of(name: str, rng: random.Random) -> str:
    """A value for a setting, right as a rule."""
    if rng.random() < 0.06:
        return rng.choice(WRONG)
    if name in REGISTRIES:
        registry: Registry = REGISTRIES[name]
        return spelling(rng.choice(list(registry)), rng)
    if choices_of(name):
        return rng.choice(choices_of(name))
    if name in SIZES:
        ordinary, impossible = SIZES[name][:-1], SIZES[name][-1]
        return impossible if rng.random() < 0.03 else rng.choice(ordinary)
    if name == "seed":
        return str(rng.choice((0, 1, 2**31, 2**64, 2**200)))
    if name == "require":
        return rng.choice(("sampling", "feasible", "temperature<=2", "run.epsilon<=1e9"))
    if name == "checkpoint_rounds":
        return str(rng.choice((1, 7, 10**9)))
    return rng.choice((*NUMBERS, "auto"))


_OF_FILES = ("data_file", *OF_DATA_FILES)


def random_settings(rng: random.Random) -> dict[str, str]:
    """Some settings, each written as text."""
    names = [name for name in Settings.model_fields if name not in ("model", "threads")]
    # Those of data files are refused without one: else next to nothing would be accepted.
    if rng.random() < 0.8:
        names = [name for name in names if name not in _OF_FILES]
    chosen = rng.sample(names, rng.randint(0, 8))
    return {name: value_of(name, rng) for name in chosen}


def as_options(given: dict[str, str]) -> list[str]:
    """Settings as options of a command."""
    return [word for name, text in given.items() for word in ("--" + name.replace("_", "-"), text)]


def as_toml(given: dict[str, Any]) -> str:
    """Settings as the lines of a TOML file, in quotes: the schema reads text as numbers."""

    return "".join(f"{name} = {json.dumps(text)}\n" for name, text in given.items())


def random_words(rng: random.Random, kind: str) -> list[str]:
    """A whole command line of one kind, but for files; sometimes a word is lost or comes twice."""
    words = [kind, *as_options(random_settings(rng))]
    if kind == "run":
        # Otherwise defaults would simulate two hundred chains each time.
        words += ["--experiments", "2", "--chains", "3"] if rng.random() < 0.8 else []
    if kind == "plan":
        words += rng.choice(([], [], ["--no-run"], ["--require", "temperature<=1.1"]))
    if rng.random() < 0.5:
        words.append("--json")
    if rng.random() < 0.05 and len(words) > 1:
        del words[rng.randrange(1, len(words))]
    if rng.random() < 0.03:
        words.append(rng.choice(words))
    if rng.random() < 0.03:
        words.append(rng.choice(("--nosuch", "--", "-", "--json=1", "--help", "\udcff", "plan")))
    return words
