"""From settings to uplinks: scheme, link and fading by their names."""

from __future__ import annotations

from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.settings.registered import FADINGS, LINKS
from flmc.settings.schema import Settings
from flmc.uplink.example_clipping import typical_shrink
from flmc.uplink.fading import Fading
from flmc.uplink.link import Link
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink


def make_uplink(settings: Settings) -> Uplink:
    """The digital, analog or ideal uplink that settings describe.

    Parameters
    ----------
    settings
        Checked settings; a link is refused for a scheme without bits.
    """
    if settings.scheme != "digital":
        refuse(
            settings,
            ("link", "slope_parameter"),
            f"are for the digital scheme, not {settings.scheme}",
        )
    if settings.scheme == "ideal":
        refuse(settings, ("csi_error", "average_snr_db"), "are for a channel, and ideal has none")
        return Ideal()
    radio: dict[str, Any] = {
        "clip": settings.clip,
        "clipping": settings.clipping,
        "modulation": settings.modulation,
        "csi_error": settings.csi_error,
        "average_snr_db": settings.average_snr_db,
        "fading": make_fading(settings.fading),
        "snr_db": settings.snr_db,
        "noise_power": settings.noise_power,
        "example_clip": settings.example_clip,
        "example_norm": settings.example_norm,
        "example_shrink": _example_shrink(settings),
    }
    return (
        Analog(**radio)
        if settings.scheme == "analog"
        else Digital(link=make_link(settings), **radio)
    )


def _example_shrink(settings: Settings) -> float:
    """What clipping examples leaves of the gradient: 1 without, a given number, or that of linear
    regression."""
    if settings.example_clip is None and settings.example_norm is None:
        refuse(settings, ("example_shrink",), "is for example_clip or example_norm")
        return 1.0
    if settings.example_shrink != "auto":
        return settings.example_shrink
    if settings.model != "linear":
        raise InvalidSetting(
            f"example_shrink 'auto' is for linear regression: give a number in (0, 1] for"
            f" {settings.model!r}, what clipping examples leaves of its gradients (1: hardly any"
            " example is clipped)"
        )
    return typical_shrink(settings.example_clip, settings.example_norm, settings.dim)


def refuse(settings: Settings, names: tuple[str, ...], why: str) -> None:
    """Refuse settings that were given but would be ignored.

    Parameters
    ----------
    settings, names, why
        The settings, those that must not be given, and the reason in words.
    """
    given = [name for name in names if name in settings.model_fields_set]
    if given:
        raise InvalidSetting(
            f"{' and '.join(names)} {why}, got {given[0]} = {getattr(settings, given[0])!r}"
        )


def make_link(settings: Settings) -> Link:
    """The link by its name and ``slope_parameter``, or with its parameter in its name
    (``sigmoid:0.05``).

    Parameters
    ----------
    settings
        Checked settings; a slope parameter is refused for a link that takes none.
    """
    parameter, name = settings.slope_parameter, settings.link
    link: Link
    if parameter is None:
        link = LINKS.build(name)
        return link
    if name not in LINKS.names or not LINKS[name].parameters:
        with_parameter = " and ".join(entry.name for entry in LINKS if entry.parameters)
        raise InvalidSetting(
            f"slope_parameter is for the links {with_parameter}; {name!r} takes none, got"
            f" {parameter}"
        )
    link = LINKS[name].build(parameter)
    return link


def make_fading(value: str | float) -> Fading:
    """The fading: a number is a constant path gain; a word is a registered name or an object of the
    user's own.

    Parameters
    ----------
    value
        A number, or text such as ``rayleigh:0.04`` or ``package.module:object``.
    """
    fading: Fading
    # From the command line a number arrives as text.
    if isinstance(value, str) and not _is_number(value):
        fading = FADINGS.build(value)
    else:
        fading = FADINGS["constant"].build(float(value))
    return fading


def _is_number(text: str) -> bool:
    """Whether a text can be read as a number."""
    try:
        float(text)
    except ValueError:
        return False
    return True


def spell_link(link: Link) -> str:
    """A registered link as settings write it, with its parameters to the last digit.

    Parameters
    ----------
    link
        One of flmc's own links.
    """
    entry = next(each for each in LINKS if each.maker is type(link))
    values = [repr(getattr(link, parameter.name)) for parameter in entry.parameters]
    return f"{entry.name}:{','.join(values)}" if values else entry.name
