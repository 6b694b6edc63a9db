"""Plans of flmc's own in the study's setting: the digital scheme, which nobody has published there,
and analog with a step that suits its noise.

Rounds, burn-in, channel, rule of who transmits and budget of the run are the study's. The planner
chooses gain and step, with the exact accountant and noise of the right size, from the curvature of
the data, as the study's step is."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.papers.own_curves import read_own_curve
from flmc.papers.wflmc.base_case import BaseCase
from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble
from flmc.settings.schema import Settings, merge

DIGITAL_SLOPES = (0.05, 0.2)
"""Slopes of the sigmoid link: that of the quantised scheme's paper, and one that suits this study's
30 devices."""
_INHERITED = ("clip", "fading", "noise_power", "scope", "epsilon", "run_delta", "rounds", "burn_in")


@dataclass(frozen=True)
class Design:
    """Settings that are planned and run at every SNR of the study.

    Attributes
    ----------
    name
        Of the curve.
    settings
        What is planned, but for the SNR.
    own_rule
        Whether the settings say who transmits; else it is the study's rule.
    """

    name: str
    settings: Settings
    own_rule: bool = False

    @property
    def described(self) -> str:
        """The settings in words, those of the study that it has included."""
        given = self.settings.model_dump(exclude_unset=True, mode="json")
        words = [f"{name} = {value}" for name, value in given.items()]
        rule = "" if self.own_rule else "; who transmits: the study's rule"
        return ", ".join(words) + rule

    def has_channel_of(self, case: BaseCase) -> bool:
        """Whether its channels and its active devices are those of the study.

        Parameters
        ----------
        case
            The base case.
        """
        names = ("fading", "rounds", "csi_error", "modulation")
        same = all(getattr(self.settings, name) == getattr(case.settings, name) for name in names)
        return same and not self.own_rule

    def plan(self, case: BaseCase, snr_db: float) -> Plan:
        """The plan at an SNR.

        Parameters
        ----------
        case
            The base case.
        snr_db
            Largest SNR.
        """
        changed: dict[str, object] = {"snr_db": snr_db}
        if not self.own_rule:
            changed["scheduling"] = f"wflmc:{snr_db}"
        settings = self.settings.model_copy(update=changed)
        try:
            return assemble(settings, case.model).plan(forecast=False)
        except InvalidSetting as error:
            raise InvalidSetting(f"curve {self.name!r} at {snr_db:g} dB: {error}") from error


def flmc_designs(case: BaseCase, changes: dict[str, str]) -> list[Design]:
    """The digital scheme at two slopes, or with the link that was asked for, and analog.

    Parameters
    ----------
    case
        The base case.
    changes
        Settings that were changed, of which ``link`` and ``slope_parameter`` count.
    """
    link: dict[str, Any] = {
        name: changes[name] for name in ("link", "slope_parameter") if name in changes
    }
    base = {name: getattr(case.settings, name) for name in _INHERITED}
    if link:
        chosen = merge({**base, "scheme": "digital"}, link)
        digital = [Design(f"digital, {chosen.link}", chosen)]
    else:
        digital = [
            Design(f"digital, a = {a:g}", merge({**base, "slope_parameter": a}, {}))
            for a in DIGITAL_SLOPES
        ]
    analog = {**base, "scheme": "analog", "clipping": case.settings.clipping}
    return [*digital, Design("analog, own step", merge(analog, {}))]


def read_design(name: str, path: Path, case: BaseCase) -> Design:
    """A user's own curve, from a file of settings.

    Parameters
    ----------
    name
        Of the curve.
    path
        TOML file with settings; the study's budget, channel and rounds hold where it says nothing,
        its clipping by norm if the scheme is analog, and its rule of who transmits.
    case
        The base case.
    """
    base = {each: getattr(case.settings, each) for each in _INHERITED}
    settings = read_own_curve(name, path, base, own_axis="snr_db")
    if settings.scheme == "analog" and "clipping" not in settings.model_fields_set:
        settings = settings.model_copy(update={"clipping": case.settings.clipping})
    return Design(name, settings, own_rule="scheduling" in settings.model_fields_set)
