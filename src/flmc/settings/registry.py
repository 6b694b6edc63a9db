"""Registries of what settings can name, such as links and fadings: each has a name on the command
line, parameters with defaults, and one line of help.

Options, help, messages, tables of the documentation and the contract tests are made from
registries, so that an addition is complete or fails a test. A user's own object is not registered:
it is written ``package.module:object``."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Literal

from flmc.base import checks
from flmc.base.errors import InvalidSetting

CURRENT_DIRECTORY: ContextVar[bool] = ContextVar("current directory", default=True)
"""Whether a user's own code that settings name is also searched for in the current directory."""


def _imported(path: str) -> Any:
    """The object of flmc at ``path``, a text ``module:object``. The module is imported only now."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(module), name)


@dataclass(frozen=True)
class Parameter:
    """Parameter of a link, fading or other entry of a registry, as in ``rayleigh:0.04``: a number,
    or all of the text behind the colon."""

    name: str
    """Name of the parameter, which is also the keyword argument of the class or function that makes
    the entry's object."""
    default: float | int | None
    """Value of the parameter where none is given; None: the parameter must be given."""
    help: str
    """Meaning of the parameter in a few words, for help."""
    text: bool = False
    """Whether the value is a text, such as a file name, which may hold commas; an entry with such a
    parameter takes no other."""

    def read(self, what: str, text: str) -> float | int | str:
        """Value of the parameter from its text: an int, a float, or the text itself; ``what`` names
        the registry's entry in messages."""
        if self.text:
            return text
        try:
            return int(text) if text.lstrip("+-").isdigit() else float(text)
        except ValueError:
            raise InvalidSetting(
                f"{what} needs a number as its {self.name}, got {text!r}"
            ) from None


@dataclass(frozen=True)
class Entry:
    """One choice of a setting, such as a link or a fading: its name, and the class or function that
    makes its object."""

    name: str
    """Name of the entry, as it is written in settings."""
    make: Callable[..., Any] | str
    """Class or function that makes the object from the parameters, or a text ``module:object`` from
    which it is imported when needed."""
    help: str
    """One line about the entry, for help and tables."""
    parameters: tuple[Parameter, ...] = ()
    """Parameters of the entry, in the order in which they are written in settings."""
    classes: Literal["two", "several"] | None = None
    """Whether the targets of a model are classes, and how many; None for numbers, and for entries
    that are no models."""

    @property
    def spelling(self) -> str:
        """Pattern that shows how to write the entry in settings, with the names of its parameters:
        ``random:COUNT``, or ``rayleigh[:SCALE]`` if all have defaults."""
        names = ",".join(parameter.name.upper() for parameter in self.parameters)
        if not names:
            return self.name
        optional = all(parameter.default is not None for parameter in self.parameters)
        return f"{self.name}[:{names}]" if optional else f"{self.name}:{names}"

    @property
    def maker(self) -> Any:
        """Class or function that makes the entry's object; it is imported here if ``make`` is a
        text."""
        if not isinstance(self.make, str):
            return self.make
        return _imported(self.make)

    def values(self, *given: float | int | str | None, what: str = "") -> dict[str, Any]:
        """Values of all parameters by name. ``given`` has values in the order of the parameters;
        where a value is None, or missing at the end, the default is taken. ``what`` replaces the
        entry's name in error messages."""
        if len(given) > len(self.parameters):
            raise InvalidSetting(
                f"{what or self.name} must be {self.spelling}, got {len(given)} parameters"
            )
        values = list(given) + [None] * (len(self.parameters) - len(given))
        chosen = {
            parameter.name: parameter.default if value is None else value
            for parameter, value in zip(self.parameters, values, strict=True)
        }
        missing = [name for name, value in chosen.items() if value is None]
        if missing:
            raise InvalidSetting(
                f"{what or self.name} must be written {self.spelling}: {missing[0]} is missing"
            )
        return chosen

    def build(self, *given: float | int | str | None) -> Any:
        """The entry's object, made with the parameter values ``given`` (in order), and with
        defaults for the other parameters."""
        return self.maker(**self.values(*given))

    def spell(self, made: Any) -> str:
        """Text that stands in settings for ``made``, an object of this entry, with its parameters
        in full precision."""
        values = [repr(getattr(made, parameter.name)) for parameter in self.parameters]
        return f"{self.name}:{','.join(values)}" if values else self.name


@dataclass(frozen=True)
class Registry:
    """The built-in choices of one setting, such as all links or all fadings, by name."""

    setting: str
    """Name of the setting whose values the registry lists."""
    kind: type[Any] | str | None
    """Class of which a user's own objects must be instances, or a text ``module:class`` from which
    it is imported; None: the setting takes registered names only."""
    entries: dict[str, Entry] = field(default_factory=dict)
    """Entries of the registry, by name."""
    of_classes: bool = False
    """Whether the setting names a class, from which an object is made with values of other
    settings; False: it names the object."""

    def __iter__(self) -> Iterator[Entry]:
        return iter(self.entries.values())

    def __getitem__(self, name: str) -> Entry:
        return self.entries[name]

    def add(self, entry: Entry) -> None:
        """Add an entry; raises ``ValueError`` if its name is registered already."""
        if entry.name in self.entries:
            raise ValueError(f"{entry.name} is registered already")
        self.entries[entry.name] = entry

    @property
    def names(self) -> tuple[str, ...]:
        """All names of entries, in the order in which they were registered."""
        return tuple(self.entries)

    @property
    def choices(self) -> str:
        """Text that lists everything that can be written for the setting: registered names with
        patterns of their parameters, and ``package.module:object`` if users may name their own."""
        own = ["package.module:object"] if self.kind is not None else []
        return ", ".join([*(entry.spelling for entry in self), *own])

    @property
    def described(self) -> str:
        """Text that lists everything that can be written for the setting, each choice with its line
        of help."""
        own = ["package.module:object (your own)"] if self.kind is not None else []
        return "; ".join([*(f"{entry.spelling} ({entry.help})" for entry in self), *own])

    def check_name(self, text: str) -> str:
        """Return ``text`` unchanged if it begins with a registered name, or may be a user's own
        object; else raise ``InvalidSetting``. Nothing is imported."""
        if not self.is_own(text):
            self.entry_of(text)
        return text

    def is_own(self, text: str) -> bool:
        """Whether ``text`` has the form of a user's own object, ``package.module:object``, and does
        not begin with a registered name; nothing is imported."""
        name, colon, rest = text.partition(":")
        return bool(self.kind and colon and name and rest) and name not in self.entries

    def entry_of(self, text: str) -> Entry:
        """Entry that a text ``name`` or ``name:PARAMETER,...`` names; raises ``InvalidSetting`` for
        an unknown name, or for parameters of an entry that takes none."""
        name, colon, _ = text.partition(":")
        entry = self.entries.get(name)
        if entry is None or (colon and not entry.parameters):
            raise InvalidSetting(f"{self.setting} must be one of {self.choices}; got {text!r}")
        return entry

    def may_continue(self, text: str, more: str) -> bool:
        """Whether ``text``, a comma and ``more`` may be one value rather than two: ``text`` must
        name an entry and its first parameter, and ``more`` must be a further number, or part of a
        parameter that is a text."""
        name, colon, _ = text.partition(":")
        entry = self.entries.get(name)
        if entry is None or not colon or ":" in more or more in self.entries:
            return False
        if any(parameter.text for parameter in entry.parameters):
            return True
        return checks.is_number(more) and len(entry.parameters) > 1

    def made_of(self, text: str) -> tuple[Any, dict[str, Any]]:
        """The class that ``text`` names, registered or a user's own, and the parameters written
        behind the name, as values by name. For a registry with ``of_classes`` only."""
        if self.is_own(text):
            return self.load(text), {}
        entry, values = self.read(text)
        return entry.maker, values

    def maker_of(self, made: Any) -> Entry | None:
        """Entry whose class is that of the object ``made``; None for a user's own object."""
        entries: dict[Any, Entry] = {entry.make: entry for entry in self}
        return entries.get(type(made))

    def read(self, text: str) -> tuple[Entry, dict[str, Any]]:
        """Entry, and values of its parameters by name, from a text ``name`` or
        ``name:PARAMETER,...``; ``InvalidSetting`` if the name is not registered or the parameters
        do not fit."""
        _, colon, rest = text.partition(":")
        entry = self.entry_of(text)
        what = f"{self.setting} {entry.spelling!r}"
        takes_text = any(parameter.text for parameter in entry.parameters)
        texts = ([rest] if takes_text else rest.split(",")) if colon else []
        numbers = [
            parameter.read(what, each)
            for parameter, each in zip(entry.parameters, texts, strict=False)
        ]
        if len(texts) > len(numbers):
            raise InvalidSetting(
                f"{what} takes {len(numbers)} parameters, got {len(texts)}: {text!r}"
            )
        return entry, entry.values(*numbers, what=what)

    def build(self, text: str) -> Any:
        """Object from a text ``name``, ``name:PARAMETER,...`` or ``package.module:object``; any
        other text raises ``InvalidSetting``, whose message lists what may be written."""
        if text.partition(":")[0] in self.entries:
            entry, values = self.read(text)
            return entry.maker(**values)
        if self.kind is None:
            self.check_name(text)
        return self.load(text)

    @property
    def _kind_in_words(self) -> str:
        """Public name of the class of this registry's objects, such as ``flmc.Link``, for
        messages."""
        if isinstance(self.kind, str):
            return self.kind.replace(":", ".")
        return f"flmc.{self.kind.__name__}" if self.kind else ""

    def load(self, path: str) -> Any:
        """User's own object at ``package.module:object``. If that is a class or a function, the
        result is the object that it makes without arguments; in a registry of classes it is the
        class itself. Modules are also searched for in the current directory, unless
        ``CURRENT_DIRECTORY`` is False. Raises ``InvalidSetting`` if there is no such object."""
        module_name, colon, name = path.partition(":")
        if not colon or not module_name or not name or self.kind is None:
            raise InvalidSetting(f"{self.setting} must be one of {self.choices}; got {path!r}")
        if ":" in name:
            shorter = path.rpartition(":")[0]
            raise InvalidSetting(
                f"{self.setting} {path!r}: an object of your own takes no parameters behind its"
                f" name; make it in the module with them, and name that, or {shorter!r} alone"
            )
        kind: type[Any] = _imported(self.kind) if isinstance(self.kind, str) else self.kind
        if CURRENT_DIRECTORY.get() and "" not in sys.path:
            sys.path.insert(0, "")
        try:
            loaded: Any = importlib.import_module(module_name)
            for part in name.split("."):
                loaded = getattr(loaded, part)
            # If the text names a class, or a function that makes an object, call it to get the
            # object.
            if not self.of_classes and not isinstance(loaded, kind):
                loaded = loaded()
        # Most often a TypeError means that the class needs arguments, so the message gets a hint.
        except TypeError as error:
            hint = (
                "it is called without arguments; name an object instead, made in the module (mine"
                f" = {name}(...))"
            )
            raise InvalidSetting(
                f"{self.setting} {path!r} cannot be made: {error}; {hint}"
            ) from error
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            if isinstance(error, ModuleNotFoundError) and not CURRENT_DIRECTORY.get():
                reason += " (this directory is not searched: name its place, --code-from DIR)"
            raise InvalidSetting(
                f"{self.setting} {path!r} cannot be loaded: {reason}; known are {self.choices}"
            ) from error
        if self.of_classes:
            if isinstance(loaded, type) and issubclass(loaded, kind):
                return loaded
            raise InvalidSetting(
                f"{self.setting} {path!r} must name a subclass of {self._kind_in_words}, which"
                f" other settings make the object from; got {loaded!r}"
            )
        if not isinstance(loaded, kind):
            raise InvalidSetting(
                f"{self.setting} {path!r} must give a {self._kind_in_words}, got"
                f" {type(loaded).__name__}"
            )
        return loaded
