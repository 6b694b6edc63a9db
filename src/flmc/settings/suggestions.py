"""Suggested settings: what was left open, from public knowledge and what was fixed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.findings import gravest
from flmc.base.tables import Listing, Row
from flmc.planning.decision import Request
from flmc.planning.search.obstacles import find_obstacles
from flmc.planning.search.suggestion import Search, Suggestion
from flmc.settings.assembly import assemble, make_limits, planner_arguments
from flmc.settings.construction import make_uplink
from flmc.settings.registered import LINKS
from flmc.settings.schema import Settings, merge
from flmc.uplink.links import Linear, Probit, Sigmoid
from flmc.uplink.schemes import Digital

INCURABLE = {"missing-devices", "burn-in-unknown"}
"""Findings that no value of a setting can cure, so that they do not count."""
_FIXABLE = {
    "link": "link",
    "slope_parameter": "slope_parameter",
    "clip": "clip",
    "example_clip": "example_bound",
    "example_norm": "example_bound",
    "rounds": "num_rounds",
    "burn_in": "num_burn_in",
}
"""Settings that a search leaves as they are if they were given, and their names there."""


@dataclass(frozen=True)
class SuggestedSettings:
    """Settings that fit, and why.

    Attributes
    ----------
    settings
        What was left open, by the names that settings have in files and on the command line.
    found
        The suggestion that they come from.
    """

    settings: dict[str, Any]
    found: Suggestion

    def listing(self) -> Listing:
        """Rows of the suggested settings with their reasons, and the options of the command
        line."""
        rows = tuple(Row(name, reason) for name, reason in self.found.reasons)
        title = "suggested, from public knowledge (standard normal features and residuals)"
        return Listing(title, (*rows, Row("options", self.options)))

    @property
    def options(self) -> str:
        """The settings as options of the command line."""
        return " ".join(
            f"--{name.replace('_', '-')} {value:.6g}"
            if isinstance(value, float)
            else f"--{name.replace('_', '-')} {value}"
            for name, value in self.settings.items()
        )


def make_search(settings: Settings) -> Search:
    """Search for what settings leave open.

    Parameters
    ----------
    settings
        Settings of linear regression over the digital or the analog uplink; what is given in them
        stays as it is.

    Raises
    ------
    InvalidSetting
        If nothing can be suggested for the model or the scheme.
    """
    if settings.model != "linear":
        raise InvalidSetting(
            f"suggestions are for linear regression, got the model {settings.model!r}"
        )
    if settings.scheme == "ideal":
        raise InvalidSetting("suggestions are for digital and analog uplinks, got 'ideal'")
    if settings.devices > settings.samples:
        raise InvalidSetting(
            f"devices must not exceed samples = {settings.samples}, got {settings.devices}"
        )
    given = settings.model_fields_set
    fixed = {_FIXABLE[name] for name in given & _FIXABLE.keys()}
    if settings.link == "auto":
        fixed -= {"link"}
    if ":" in settings.link:  # a link with its parameter in its name
        fixed |= {"slope_parameter"}
    if settings.burn_in == "auto":
        fixed -= {"num_burn_in"}
    changes: dict[str, Any] = {}
    if settings.link == "auto":
        changes["link"] = "sigmoid"
    bounded = settings.example_clip is not None or settings.example_norm is not None
    if settings.neighbouring == "example" and not bounded:
        changes["example_norm"] = 1.0  # the search replaces it
    arguments = planner_arguments(settings)
    arguments["scheduler"].check(settings.rounds, settings.devices)
    if "start" not in given:
        arguments["start"] = "zero"
    return Search(
        make_uplink(settings.model_copy(update=changes)),
        make_limits(settings),
        settings.samples,
        settings.devices,
        settings.dim,
        Request(**arguments),
        frozenset(fixed),
    )


def suggest_settings(settings: Settings) -> SuggestedSettings:
    """Settings for what was left open, with a plan that nothing speaks against.

    Parameters
    ----------
    settings
        What is given in them stays as it is.

    Raises
    ------
    InvalidSetting
        If nothing can be suggested for the model or the scheme.
    RunFailed
        If nothing fits; the message says which single requirement stands in the way, and by how
        much.
    """
    search = make_search(settings)
    against = ""
    for found in search.suggestions():
        chosen = _as_settings(found, settings)
        plan = assemble(merge({}, {**settings.model_dump(exclude_unset=True), **chosen})).plan()
        worst = gravest([each for each in plan.findings if each.code not in INCURABLE])
        if not worst:
            return SuggestedSettings(chosen, found)
        against = worst[0].short or worst[0].message
    if against:
        raise RunFailed(
            "settings fit as far as public knowledge tells, but not the data that were drawn:"
            f" {against}; use more examples, or other values"
        )
    obstacles = find_obstacles(search.calibrated)
    if not obstacles:
        raise RunFailed(
            "no settings fit, and relaxing a single number does not help: relax several, or what"
            " has no number (langevin, privacy, gain, scheduling, fading)"
        )
    ways = "; or ".join(each.words for each in obstacles)
    raise RunFailed(f"no settings fit. With all else as it is, this alone would do: {ways}")


def _as_settings(found: Suggestion, given: Settings) -> dict[str, Any]:
    """The suggestion by the names of settings, without what was given."""
    uplink, asked = found.uplink, found.request
    chosen: dict[str, Any] = {}
    if isinstance(uplink, Digital):
        if isinstance(uplink.link, Sigmoid | Probit):
            chosen["link"] = next(each.name for each in LINKS if each.maker is type(uplink.link))
            chosen["slope_parameter"] = uplink.link.slope_parameter
        elif isinstance(uplink.link, Linear):
            chosen["link"], chosen["slope_parameter"] = "linear", uplink.link.ratio
    chosen |= {
        "clip": uplink.clip,
        "rounds": asked.num_rounds,
        "burn_in": found.plan.num_burn_in,
        "start": asked.start,
        "public_smoothness": asked.public_smoothness,
        "public_convexity": asked.public_convexity,
    }
    for name in ("example_clip", "example_norm"):
        if getattr(uplink, name) is not None:
            chosen[name] = getattr(uplink, name)
    left_open = {"auto"}
    return {
        name: value
        for name, value in chosen.items()
        if name not in given.model_fields_set or getattr(given, name) in left_open
    }
