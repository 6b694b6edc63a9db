"""Controls of the studio's pages: which settings can be changed there, in which ranges, and the
check of the values that a user or a URL gives."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from flmc.base.errors import InvalidSetting
from flmc.settings.construction import scheme_of
from flmc.settings.registered import FADINGS, LINKS, SCHEDULERS, SCHEMES
from flmc.settings.schema import Settings, merge, naming

Given = Mapping[str, str]
"""Settings that differ from their defaults, as text by name."""


@dataclass(frozen=True)
class Control:
    """Appearance and range of the control of one setting on the studio's pages.

    Attributes
    ----------
    name
        Name of the setting.
    label, unit
        Label on the page, and unit of the value.
    kind
        ``slider`` for numbers, ``choice`` for a few words, ``text`` for words with parameters.
    low, high, step
        Lowest and highest value of a slider, and distance of neighbouring positions: a difference
        of values or, on a logarithmic slider, of their decimal logarithms. The field beside the
        slider takes any number.
    logarithmic, whole
        Whether the slider's scale is logarithmic, and whether values are whole numbers.
    words
        Words to choose from or, for the kind ``text``, words that a menu offers.
    applies
        Function of all settings that returns whether this setting has an effect among them.
    """

    name: str
    label: str
    kind: Literal["slider", "choice", "text"]
    unit: str = ""
    low: float = 0.0
    high: float = 1.0
    step: float = 0.01
    logarithmic: bool = False
    whole: bool = False
    words: tuple[str, ...] = ()
    applies: Callable[[Settings], bool] = lambda settings: True

    @property
    def help(self) -> str:
        """Description of the control's setting, taken from the schema of the settings; shown as a
        tooltip."""
        return Settings.model_fields[self.name].description or ""

    def place_of(self, value: float) -> float:
        """Position of a value on the slider: the value or, on a logarithmic slider, its decimal
        logarithm. A value outside the range gets the nearer end."""
        low, high = self.places
        place = math.log10(max(value, 1e-300)) if self.logarithmic else value
        return min(max(place, low), high)

    def value_at(self, place: float) -> float:
        """Value at a position of the slider (the inverse of ``place_of``), rounded to three
        significant digits and, if ``whole``, to a whole number."""
        value = 10.0**place if self.logarithmic else place
        rounded = float(f"{value:.3g}")
        return float(round(value)) if self.whole and value < 1000 else rounded

    @property
    def places(self) -> tuple[float, float]:
        """Positions of the two ends of the slider, the lower one first: values or, on a logarithmic
        slider, their decimal logarithms."""
        if not self.logarithmic:
            return self.low, self.high
        return math.log10(self.low), math.log10(self.high)


def _spellings(registry: Any) -> tuple[str, ...]:
    """Names in a registry (of links, fadings or schedulers) that a menu can offer by themselves,
    because all their parameters have defaults and none is a text, such as the name of a file."""
    names = []
    for entry in registry:
        if any(parameter.text or parameter.default is None for parameter in entry.parameters):
            continue
        names.append(entry.name)
    return tuple(names)


def _has_link(settings: Settings) -> bool:
    """Whether the settings' scheme has a link, the function from a gradient to the probability of a
    bit."""
    return "link" in scheme_of(settings).setting_names()


def _has_slope(settings: Settings) -> bool:
    """Whether the settings' link, the function from a gradient to the probability of a bit, has the
    parameter ``slope_parameter``."""
    if not _has_link(settings) or settings.link not in LINKS.names:
        return False
    return any(each.name == "slope_parameter" for each in LINKS[settings.link].parameters)


def _has_channel(settings: Settings) -> bool:
    """Whether the settings' scheme depends on the channel's noise and power. The scheme ``ideal``
    does not: it adds exactly the noise that it needs."""
    return not scheme_of(settings).noise_is_exact


def _has_budget(settings: Settings) -> bool:
    """Whether the settings have a privacy budget that limits the gain."""
    return _has_channel(settings) and settings.privacy != "off"


def _hides_examples(settings: Settings) -> bool:
    """Whether the settings ask for the privacy of single examples, not of all data of a device."""
    return settings.neighbouring == "example"


GROUPS: dict[str, tuple[Control, ...]] = {
    "Radio": (
        Control("scheme", "Scheme", "choice", words=SCHEMES.names),
        Control("snr_db", "SNR", "slider", "dB", -10, 50, 0.5, applies=_has_channel),
        Control("fading", "Fading", "text", words=_spellings(FADINGS), applies=_has_channel),
        Control("scheduling", "Scheduler", "text", words=_spellings(SCHEDULERS)),
    ),
    "Privacy": (
        Control(
            "epsilon", "Epsilon", "slider", low=0.05, high=1000, logarithmic=True,
            applies=_has_budget,
        ),
        Control(
            "scope", "Epsilon is for", "choice", words=("round", "run"), applies=_has_budget
        ),
        Control(
            "delta", "Delta of a round", "slider", low=1e-6, high=0.1, logarithmic=True,
            applies=_has_budget,
        ),
        Control(
            "run_delta", "Delta of the run", "slider", low=1e-9, high=0.01, logarithmic=True,
            applies=_has_budget,
        ),
        Control("neighbouring", "What is hidden", "choice", words=("device", "example")),
        Control(
            "relation", "How data differ", "choice", words=("replace", "add_remove", "zero_out")
        ),
        Control(
            "example_clip", "Clip of an example", "slider", low=0.1, high=100, logarithmic=True,
            applies=_hides_examples,
        ),
        Control("privacy", "Criterion", "choice", words=("tight", "tail", "paper", "off")),
    ),
    "Devices and data": (
        Control("devices", "Devices", "slider", "", 1, 1000, 0.01, True, True),
        Control("dim", "Entries", "slider", "", 1, 300, 0.01, True, True),
        Control("samples", "Examples in all", "slider", "", 10, 1e6, 0.01, True, True),
        Control(
            "clip", "Clip", "slider", low=0.1, high=1000, logarithmic=True, applies=_has_channel
        ),
        Control("link", "Link", "text", words=(*_spellings(LINKS), "auto"), applies=_has_link),
        Control(
            "slope_parameter", "Slope", "slider", low=0.001, high=1, logarithmic=True,
            applies=_has_slope,
        ),
    ),
    "Sampler": (
        Control("rounds", "Rounds", "slider", "", 10, 100_000, 0.01, True, True),
        Control("burn_in", "Burn-in", "text", words=("auto",)),
        Control("step_size", "Step size", "text", words=("auto",)),
        Control("chains", "Chains of a run", "text"),
        Control("seed", "Seed", "text"),
    ),
}  # fmt: skip
"""Controls of the panel of settings, in the order in which they are shown, by the heading of their
group."""
CONTROLS = {control.name: control for group in GROUPS.values() for control in group}
"""All controls by the name of their setting. URLs of the studio's pages may name only these
settings: others could read files or import code."""


def read_given(given: Given) -> Settings:
    """Checked settings from the texts that a page or a URL gives; settings that have no effect
    beside the others are left out. Raises ``InvalidSetting`` for a setting without a control, a
    text that names code or a file, and an impossible value."""
    for name, text in given.items():
        if name not in CONTROLS:
            raise InvalidSetting(
                f"{name} cannot be set in the studio; it has {', '.join(CONTROLS)}"
            )
        _refuse_code(name, text)
    # Texts become settings in two passes: only checked settings tell which of the texts have an
    # effect, and the second pass leaves out those without.
    settings = merge({}, dict(given))
    idle = [name for name in given if not CONTROLS[name].applies(settings)]
    kept = {name: text for name, text in given.items() if name not in idle}
    return merge({}, kept) if idle else settings


def _refuse_code(name: str, text: str) -> None:
    """Raise ``InvalidSetting`` if the text of a setting would import code or read a file: the
    sender of a link to the studio must not do either."""
    # Settings that may name code have a registry in the schema. It is asked here, so that no list
    # of them can be out of date.
    registry = naming().get(name)
    # The whole text is compared with "auto", because "auto:thing" would import a module named auto.
    if registry is None or text == "auto" or is_number(text):
        return
    word = text.partition(":")[0]
    if word not in registry.names:
        raise InvalidSetting(
            f"{name} must be one of {', '.join(_spellings(registry))} in the studio, got {text!r};"
            " code of your own is for the command line"
        )
    if any(parameter.text for parameter in registry[word].parameters):
        raise InvalidSetting(
            f"{name} must not name a file in the studio, got {text!r}; use the command line"
        )


def is_number(text: str) -> bool:
    """Whether ``text`` can be read as a floating-point number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def default_text(name: str) -> str:
    """Default of the setting ``name`` as text; empty if it has none."""
    default = Settings.model_fields[name].default
    return "" if default is None else format_value(default)


def format_value(value: Any) -> str:
    """The text of a number or word, as URLs of pages and command lines of flmc write it."""
    if isinstance(value, float):
        return f"{value:.12g}"
    return str(value)


def field_of(message: str) -> str | None:
    """Name of the control that an error message is about: the first control that it names; None if
    it names none.

    Examples
    --------
    >>> from flmc.studio.controls import field_of
    >>> field_of("num_rounds must be at least 1, got 0")
    'rounds'
    """
    named = [word for word in re.findall(r"\w+", message.replace("num_", "")) if word in CONTROLS]
    # Controls with a field come first: a choice of a few words has no field at which to show the
    # message.
    with_room = [name for name in named if CONTROLS[name].kind != "choice"]
    return next(iter(with_room or named), None)
