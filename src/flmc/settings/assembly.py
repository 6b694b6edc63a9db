"""From settings to models, uplinks and plans."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from flmc import data
from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.data.linear import LinearData
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.models.wide_linear import WIDE, WideLinear
from flmc.planning.advice.forecast import with_forecast
from flmc.planning.advice.link_choice import choose_link
from flmc.planning.advice.privacy_estimate import estimate_limit
from flmc.planning.advice.what_if import WhatIf, what_if
from flmc.planning.decision import Request, decide
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.settings.registered import MODELS, SCHEDULERS, SPLITS
from flmc.settings.schema import Settings
from flmc.settings.uplinks import make_uplink, refuse, spell_link
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Problem:
    """A model, an uplink and limits, ready to be planned."""

    model: Model
    uplink: Uplink
    limits: Limits
    settings: Settings
    """What it was assembled from, with a link that was chosen in place of ``auto``."""
    given_plan: Plan | None = None
    """A plan that was given in place of one made from the settings."""

    def plan(self, *, forecast: bool = True) -> Plan:
        """The plan that the settings ask for, or the one that was given.

        Parameters
        ----------
        forecast
            Whether to predict what the chain will sample, and to look for findings.
        """
        if self.given_plan is not None:
            return self.given_plan
        arguments = planner_arguments(self.settings)
        return plan(self.model, self.uplink, self.limits, forecast=forecast, **arguments)

    def try_plan(self) -> Plan:
        """The plan for a search: with a quick estimate of what a budget of the run allows, and
        without a search for cures. It must not be handed out."""
        request = Request(**planner_arguments(self.settings))
        limit = estimate_limit(self.model, self.uplink, self.limits, request)
        decided = decide(self.model, self.uplink, self.limits, request, limit)
        return with_forecast(decided, self.model, request, cures=False)

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
    refuse(settings, ("slope_parameter",), "is chosen where the link is 'auto'")
    without = make_uplink(settings.model_copy(update={"link": "linear"}))
    if not isinstance(without, Digital):
        raise InvalidSetting(f"link 'auto' is for the digital scheme, got {settings.scheme!r}")
    chosen = choose_link(model, without, limits, **planner_arguments(settings)).link
    return settings.model_copy(update={"link": spell_link(chosen)})


def assemble_with_held_out(
    settings: Settings, share: float, seed: int
) -> tuple[Problem, FederatedData]:
    """The problem that settings describe without some examples of every device, and those examples.

    Parameters
    ----------
    settings
        Checked settings of one data set, of a file or synthetic; those that would have no effect
        are refused.
    share
        Share of every device's examples to hold out, between 0 and 1.
    seed
        Of the choice.

    Raises
    ------
    InvalidSetting
        If there are no examples to hold out: several data sets, sufficient statistics, or a model
        of the user's own.
    """
    checks.between("the share to hold out", share, 0.0, 1.0)
    if settings.data_file is not None:
        found = _data_of_file(settings, settings.data_file)
    else:
        make_model(settings)  # refuses what does not fit
        if settings.model != "linear" or settings.experiments != 1 or settings.data != "examples":
            raise InvalidSetting(
                "examples to hold out come from data_file, or from synthetic ones of one data set"
                f" (model 'linear', data 'examples'); got model {settings.model!r},"
                f" {settings.experiments} data sets, data {settings.data!r}"
            )
        drawn = _draw_examples(settings, None)
        found = FederatedData(drawn.features, drawn.targets, drawn.device_sizes)
    learn, test = found.hold_out(share, seed)
    return assemble(settings, _model_of(settings, learn)), test


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
    if settings.data_file is not None:
        return _model_of(settings, _data_of_file(settings, settings.data_file))
    refuse(settings, ("target", "device_column", "deal", "standardise"), "are for data_file")
    if settings.model in MODELS.names and settings.model != "linear":
        raise InvalidSetting(f"model {settings.model!r} needs data: give data_file")
    if settings.model != "linear":
        refuse(
            settings,
            ("devices", "dim", "samples", "experiments", "data", "split"),
            "come from the model that was given",
        )
        model: Model = MODELS.build(settings.model)
        return model
    sizes = SPLITS[settings.split].maker(settings.samples, settings.devices)
    if settings.example_clip is not None or settings.example_norm is not None:
        if settings.data != "examples":
            name = "example_clip" if settings.example_norm is None else "example_norm"
            raise InvalidSetting(
                f"{name} needs data = 'examples', got 'sufficient': there are no examples to clip"
            )
        return LinearGaussian(_draw_examples(settings, settings.experiments))
    if settings.dim > WIDE:
        # Statistics would take dim^2 numbers of every device.
        return WideLinear(_draw_examples(settings, settings.experiments))
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


def _draw_examples(settings: Settings, num_experiments: int | None) -> LinearData:
    """Synthetic examples, of one data set without an axis for it (None), or of several."""
    return data.draw_linear(
        settings.seed,
        num_experiments=num_experiments,
        num_samples=settings.samples,
        dim=settings.dim,
        num_devices=settings.devices,
        device_sizes=SPLITS[settings.split].maker(settings.samples, settings.devices),
    )


def _data_of_file(settings: Settings, source: str) -> FederatedData:
    """The examples of a file for a registered model, dealt anew if that is asked for."""
    refuse(settings, ("dim", "samples", "experiments", "data", "split"), "come from data_file")
    if settings.deal is None:
        refuse(settings, ("devices",), "are those of data_file unless deal says how to deal anew")
    if settings.model not in MODELS.names:
        raise InvalidSetting(
            f"data_file is for the models {', '.join(MODELS.names)}; got {settings.model!r}"
        )
    found = data.read(
        source,
        target=settings.target,
        device_column=settings.device_column,
        standardise=settings.standardise,
    )
    if settings.deal is not None:
        found = found.split(settings.devices, settings.deal, settings.seed)
    return found


def _model_of(settings: Settings, found: FederatedData) -> Model:
    """A registered model on given examples."""
    made: Model = MODELS[settings.model].maker(
        found.to_linear() if settings.model == "linear" else found
    )
    made.made_from_data = found.data_dependent
    return made
