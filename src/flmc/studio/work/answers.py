"""What pages ask for: plans, curves and maps of settings, kept for the settings that come again.

Every function may take long and is called outside the event loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flmc.evaluation.audit.likelihood_ratio import RoundLossLaw, loss_of_round
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.judgement import noise_of
from flmc.planning.plans import Plan
from flmc.planning.prediction import predict_law
from flmc.planning.privacy_curve import SpentAfter, privacy_over_rounds, rounds_to_show
from flmc.settings.assembly import Problem, assemble
from flmc.settings.construction import make_model
from flmc.settings.regimes import plan_other_scheme
from flmc.settings.schema import Settings, merge

_KEPT = 128
"""Answers of each kind that are kept; none of them holds a model."""
_MODELS_KEPT = 3
"""Models that are kept: large ones take hundreds of megabytes."""
_OF_DATA = ("devices", "dim", "samples", "seed", "split", "experiments", "data", "example_clip")
"""Settings that decide the model."""


@lru_cache(maxsize=_MODELS_KEPT)
def _model(of_data: tuple[Any, ...]) -> Model:
    """The model of these settings of the data."""
    given = {
        name: value for name, value in zip(_OF_DATA, of_data, strict=True) if value is not None
    }
    return make_model(merge({}, given))


def of_data(settings: Settings) -> tuple[Any, ...]:
    """What decides the data of settings: where it is equal, they have the same model.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return tuple(getattr(settings, name) for name in _OF_DATA)


@lru_cache(maxsize=_MODELS_KEPT)
def problem_of(settings: Settings) -> Problem:
    """Model, uplink and limits of settings.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return assemble(settings, _model(of_data(settings)))


@lru_cache(maxsize=_KEPT)
def quick_plan(settings: Settings) -> Plan:
    """The plan without prediction and findings: what is decided is decided, within milliseconds.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return problem_of(settings).plan(forecast=False)


@lru_cache(maxsize=_KEPT)
def whole_plan(settings: Settings) -> Plan:
    """The plan with prediction and findings.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return problem_of(settings).plan()


@lru_cache(maxsize=_KEPT)
def document(settings: Settings) -> dict[str, Any]:
    """What ``flmc plan --json`` prints for these settings.

    Parameters
    ----------
    settings
        Checked settings.
    """
    return whole_plan(settings).to_document()


@lru_cache(maxsize=_KEPT)
def spending(settings: Settings) -> tuple[SpentAfter, ...]:
    """Epsilon over the rounds of the run; empty where it is unknown.

    Parameters
    ----------
    settings
        Checked settings.
    """
    plan = quick_plan(settings)
    return tuple(privacy_over_rounds(plan, rounds_to_show(plan.num_rounds)))


@lru_cache(maxsize=_KEPT)
def predicted_law(settings: Settings) -> Gaussian | None:
    """Law that the chain is predicted to sample; None where nothing is predicted.

    Parameters
    ----------
    settings
        Checked settings.
    """
    plan, model = whole_plan(settings), problem_of(settings).model
    if plan.prediction is None or not isinstance(model, LinearGaussian):
        return None
    return predict_law(model, plan.uplink, plan.step_size, noise_of(plan))


@lru_cache(maxsize=_KEPT)
def round_losses(settings: Settings) -> dict[str, RoundLossLaw]:
    """Laws of the privacy loss of a round, of the scheme of the settings and of the other one with
    the same effective step, by scheme; those that are unknown are left out.

    Parameters
    ----------
    settings
        Checked settings.
    """
    plan = quick_plan(settings)
    found = {plan.uplink.scheme: loss_of_round(plan)}
    other = plan_other_scheme(settings, plan, problem_of(settings).model)
    if other is not None:
        found[other.uplink.scheme] = loss_of_round(other)
    return {name: law for name, law in found.items() if law is not None}
