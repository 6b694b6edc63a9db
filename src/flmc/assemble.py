"""From settings to models, uplinks and plans."""

from __future__ import annotations

import importlib
import sys
from dataclasses import dataclass
from typing import Any

from flmc import data
from flmc.config import Settings
from flmc.errors import InvalidSetting
from flmc.fading import ConstantFading, Fading, RayleighFading
from flmc.limits import Limits
from flmc.linear import LinearGaussian
from flmc.model import Model
from flmc.plan import Plan
from flmc.planning import plan
from flmc.quantise import Linear, Link, Probit, Sigmoid, Sign
from flmc.shrink import shrink_factor
from flmc.uplink import Analog, Digital, Ideal, Uplink


@dataclass(frozen=True)
class Problem:
    """A model and an uplink, ready to be planned."""

    model: Model
    uplink: Uplink
    limits: Limits

    def plan(self, settings: Settings, *, forecast: bool = True) -> Plan:
        """The plan that the settings ask for."""
        return plan(
            self.model,
            self.uplink,
            self.limits,
            num_rounds=settings.rounds,
            num_burn_in=settings.burn_in,
            step_size=settings.step_size,
            gain=settings.gain,
            start=settings.start,
            burn_in_step_factor=settings.burn_in_step_factor,
            public_smoothness=settings.public_smoothness,
            public_convexity=settings.public_convexity,
            forecast=forecast,
        )


def assemble(settings: Settings, model: Model | None = None) -> Problem:
    """Build what the settings describe; a model that was built before may be used again."""
    model = make_model(settings) if model is None else model
    return Problem(model, make_uplink(settings), make_limits(settings))


def make_limits(settings: Settings) -> Limits:
    """What limits the gain besides power."""
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
    """The paper's linear regression on synthetic data, or a model of the user's."""
    if settings.model != "linear":
        _refuse(settings, ("devices", "dim", "samples", "experiments", "data"), "come from the model that was given")
        model: Model = load_object("model", settings.model, Model, "linear")
        return model
    if settings.example_clip is not None:
        if settings.data != "examples":
            raise InvalidSetting(
                "example_clip needs data = 'examples', got 'sufficient': there are no examples to clip"
            )
        return LinearGaussian(
            data.draw_linear(
                settings.seed,
                num_experiments=settings.experiments,
                num_samples=settings.samples,
                dim=settings.dim,
                num_devices=settings.devices,
            )
        )
    statistics = data.draw_linear_statistics(
        settings.seed,
        num_experiments=settings.experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        kind=settings.data,
    )
    return LinearGaussian(statistics)


def make_uplink(settings: Settings) -> Uplink:
    """Digital, analog or ideal."""
    if settings.scheme != "digital":
        _refuse(settings, ("link", "slope_parameter"), f"are for the digital scheme, not {settings.scheme}")
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
    return Analog(**radio) if settings.scheme == "analog" else Digital(link=make_link(settings), **radio)


def _example_shrink(settings: Settings) -> float:
    if settings.example_clip is None:
        _refuse(settings, ("example_shrink",), "is for example_clip")
        return 1.0
    if settings.example_shrink != "auto":
        return settings.example_shrink
    if settings.model != "linear":
        raise InvalidSetting(
            "example_shrink 'auto' is for linear regression: give a number in (0, 1] for your own model, what clipping"
            " examples leaves of its gradients"
        )
    return shrink_factor(settings.example_clip)


def _refuse(settings: Settings, names: tuple[str, ...], why: str) -> None:
    """A setting that would be ignored is refused."""
    given = [name for name in names if name in settings.model_fields_set]
    if given:
        raise InvalidSetting(f"{' and '.join(names)} {why}, got {given[0]} = {getattr(settings, given[0])!r}")


def make_link(settings: Settings) -> Link:
    """A link by name."""
    parameter, name = settings.slope_parameter, settings.link
    if name == "sigmoid":
        return Sigmoid(0.05 if parameter is None else parameter)
    if name == "probit":
        return Probit(0.03 if parameter is None else parameter)
    if name == "linear":
        return Linear(1.0 if parameter is None else parameter)
    if parameter is not None:
        raise InvalidSetting(
            f"slope_parameter is for the links sigmoid, probit and linear; {name!r} takes none, got {parameter}"
        )
    if name == "sign":
        return Sign()
    link: Link = load_object("link", name, Link, "sigmoid, probit, linear, sign")
    return link


def make_fading(value: str | float) -> Fading:
    """A number is a constant gain; ``rayleigh:SCALE``; or an object of the user's."""
    try:
        return ConstantFading(float(value))
    except ValueError as error:
        if isinstance(error, InvalidSetting) or not isinstance(value, str):
            raise
    name, _, scale = value.partition(":")
    if name == "rayleigh":
        try:
            return RayleighFading(float(scale))
        except ValueError as error:
            if isinstance(error, InvalidSetting):
                raise
            raise InvalidSetting(f"fading 'rayleigh:SCALE' needs a number as its scale, got {value!r}") from None
    fading: Fading = load_object("fading", value, Fading, "a number, rayleigh:SCALE")
    return fading


def load_object(setting: str, path: str, kind: type[Any], known: str | None = None) -> Any:
    """The object at ``package.module:object``, which must be a ``kind``; a class or function is called without
    arguments."""
    module_name, colon, name = path.partition(":")
    choices = f"{known}, " if known else ""
    if not colon or not module_name or not name:
        raise InvalidSetting(f"{setting} must be one of {choices}package.module:object; got {path!r}")
    if "" not in sys.path:
        sys.path.insert(0, "")  # a user's module lies where she stands
    try:
        found: Any = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
        if not isinstance(found, kind):
            found = found()
    except TypeError as error:
        hint = f"it is called without arguments; name an object instead, made in the module (mine = {name}(...))"
        raise InvalidSetting(f"{setting} {path!r} cannot be made: {error}; {hint}") from error
    except Exception as error:
        reason = f"{type(error).__name__}: {error}"
        raise InvalidSetting(
            f"{setting} {path!r} cannot be loaded: {reason}; known are {choices}package.module:object"
        ) from error
    if not isinstance(found, kind):
        raise InvalidSetting(f"{setting} {path!r} must give a flmc.{kind.__name__}, got {type(found).__name__}")
    return found
