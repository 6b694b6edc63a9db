"""From settings to models, uplinks and plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flmc import data
from flmc.base.errors import InvalidSetting
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.advice.link_choice import choose_link
from flmc.planning.advice.suggestion import Suggestion, suggest
from flmc.planning.advice.what_if import WhatIf, what_if
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.settings.registered import FADINGS, LINKS, MODELS, SCHEDULERS, SPLITS
from flmc.settings.schema import Settings
from flmc.uplink.example_clipping import shrink_factor
from flmc.uplink.fading import Fading
from flmc.uplink.link import Link
from flmc.uplink.schemes import Analog, Digital, Ideal
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Problem:
    """A model, an uplink and limits, ready to be planned."""

    model: Model
    uplink: Uplink
    limits: Limits
    settings: Settings
    """What it was assembled from, with a link that was chosen in place of ``auto``."""

    def plan(self, *, forecast: bool = True) -> Plan:
        """The plan that the settings ask for.

        Parameters
        ----------
        forecast
            Whether to predict what the chain will sample, and to look for findings.
        """
        arguments = planner_arguments(self.settings)
        return plan(self.model, self.uplink, self.limits, forecast=forecast, **arguments)

    def what_if(self, planned: Plan) -> WhatIf:
        """What relaxing one constraint of a plan would bring.

        Parameters
        ----------
        planned
            The plan that the settings gave.
        """
        return what_if(planned, self.model, planner_arguments(self.settings))


def planner_arguments(settings: Settings) -> dict[str, Any]:
    """The keyword arguments of :func:`flmc.plan` that settings decide, by name.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return {
        "num_rounds": settings.rounds,
        "num_burn_in": settings.burn_in,
        "step_size": settings.step_size,
        "gain": settings.gain,
        "start": settings.start,
        "burn_in_step_factor": settings.burn_in_step_factor,
        "scheduler": SCHEDULERS.build(settings.scheduling),
        "public_smoothness": settings.public_smoothness,
        "public_convexity": settings.public_convexity,
    }


def assemble(settings: Settings, model: Model | None = None) -> Problem:
    """The model, uplink and limits that settings describe.

    Parameters
    ----------
    settings
        Checked settings; those that would have no effect are refused.
    model
        A model that was built before, to be used again; None: one is built.
    """
    model = make_model(settings) if model is None else model
    limits = make_limits(settings)
    if settings.link == "auto":
        settings = _with_link(settings, model, limits)
    return Problem(model, make_uplink(settings), limits, settings)


def _with_link(settings: Settings, model: Model, limits: Limits) -> Settings:
    """The settings with the link that is predicted to suit the model, in place of ``auto``."""
    _refuse(settings, ("slope_parameter",), "is chosen where the link is 'auto'")
    without = make_uplink(settings.model_copy(update={"link": "linear"}))
    if not isinstance(without, Digital):
        raise InvalidSetting(f"link 'auto' is for the digital scheme, got {settings.scheme!r}")
    chosen = choose_link(model, without, limits, **planner_arguments(settings)).link
    return settings.model_copy(update={"link": spell_link(chosen)})


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


def make_limits(settings: Settings) -> Limits:
    """What limits the gain besides power, from settings.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return Limits(
        epsilon=settings.epsilon,
        delta=settings.delta,
        privacy=settings.privacy,
        scope=settings.scope,
        run_delta=settings.run_delta,
        neighbouring=settings.neighbouring,
        allocation=settings.allocation,
        langevin=settings.langevin,
    )


def make_model(settings: Settings) -> Model:
    """The paper's linear regression on synthetic data, or a model of the user's own.

    Parameters
    ----------
    settings
        Checked settings; ``model`` is `linear` or ``package.module:object``. What describes
        synthetic data is refused beside a user's own model.
    """
    if settings.model != "linear":
        _refuse(
            settings,
            ("devices", "dim", "samples", "experiments", "data", "split"),
            "come from the model that was given",
        )
        model: Model = MODELS.build(settings.model)
        return model
    sizes = SPLITS[settings.split].maker(settings.samples, settings.devices)
    if settings.example_clip is not None:
        if settings.data != "examples":
            raise InvalidSetting(
                "example_clip needs data = 'examples', got 'sufficient': there are no examples to"
                " clip"
            )
        return LinearGaussian(
            data.draw_linear(
                settings.seed,
                num_experiments=settings.experiments,
                num_samples=settings.samples,
                dim=settings.dim,
                num_devices=settings.devices,
                device_sizes=sizes,
            )
        )
    statistics = data.draw_linear_statistics(
        settings.seed,
        num_experiments=settings.experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        device_sizes=sizes,
        kind=settings.data,
    )
    return LinearGaussian(statistics)


def make_uplink(settings: Settings) -> Uplink:
    """The digital, analog or ideal uplink that settings describe.

    Parameters
    ----------
    settings
        Checked settings; a link is refused for a scheme without bits.
    """
    if settings.scheme != "digital":
        _refuse(
            settings,
            ("link", "slope_parameter"),
            f"are for the digital scheme, not {settings.scheme}",
        )
    if settings.scheme == "ideal":
        return Ideal()
    radio: dict[str, Any] = {
        "clip": settings.clip,
        "fading": make_fading(settings.fading),
        "snr_db": settings.snr_db,
        "noise_power": settings.noise_power,
        "example_clip": settings.example_clip,
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
    if settings.example_clip is None:
        _refuse(settings, ("example_shrink",), "is for example_clip")
        return 1.0
    if settings.example_shrink != "auto":
        return settings.example_shrink
    if settings.model != "linear":
        raise InvalidSetting(
            "example_shrink 'auto' is for linear regression: give a number in (0, 1] for your own"
            " model, what clipping examples leaves of its gradients"
        )
    return shrink_factor(settings.example_clip)


def _refuse(settings: Settings, names: tuple[str, ...], why: str) -> None:
    """Refuse settings that were given but would be ignored."""
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


def suggest_settings(settings: Settings) -> Suggestion:
    """Settings from public knowledge, for what was left open.

    Parameters
    ----------
    settings
        Settings of linear regression over the digital uplink with a sigmoid; others, and values for
        what is to be suggested, are refused.
    """
    if settings.scheme != "digital" or settings.link != "sigmoid":
        raise InvalidSetting(
            f"suggestions are for the digital scheme with a sigmoid, got {settings.scheme},"
            f" {settings.link}"
        )
    if settings.model != "linear":
        raise InvalidSetting(
            f"suggestions are for linear regression, got the model {settings.model!r}"
        )
    suggestion = suggest(
        settings.samples,
        settings.devices,
        settings.dim,
        scope=settings.scope,
        neighbouring=settings.neighbouring,
    )
    given = sorted(settings.model_fields_set & suggestion.settings.keys())
    if given:
        raise InvalidSetting(
            f"--suggest chooses {', '.join(given)}: leave out what it is to choose"
        )
    return suggestion
