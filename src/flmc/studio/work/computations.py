"""Plans, curves of privacy and predicted laws for the pages, cached by settings.

A value that is not cached yet may take seconds: pages compute it in threads, outside the event
loop."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from flmc.evaluation.audit.likelihood_ratio import AttackLossLaw, loss_of_round
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning.forecast import noise_of
from flmc.planning.plans import Plan
from flmc.planning.prediction import predict_law
from flmc.planning.privacy_curve import SpentAfter, privacy_over_rounds, rounds_to_show
from flmc.settings.assembly import Problem, assemble
from flmc.settings.construction import make_model
from flmc.settings.regimes import plan_other_scheme
from flmc.settings.schema import Settings, merge

_KEPT = 128
"""Largest number of values that each cache of plans, curves and laws keeps; none of them holds a
model."""
_MODELS_KEPT = 3
"""Largest number of cached models; large models take hundreds of megabytes."""
_OF_DATA = ("devices", "dim", "samples", "seed", "experiments", "data", "example_clip")
"""Names of the settings on which the cached model, with its data, depends; all other settings can
change without making it anew."""


@lru_cache(maxsize=_MODELS_KEPT)
def _model(of_data: tuple[Any, ...]) -> Model:
    """The model with its data, made from the values of the settings ``_OF_DATA`` in their order;
    None means the default."""
    given = {
        name: value for name, value in zip(_OF_DATA, of_data, strict=True) if value is not None
    }
    return make_model(merge({}, given))


def of_data(settings: Settings) -> tuple[Any, ...]:
    """Values in ``settings`` that determine the model with its data, in the order of ``_OF_DATA``.
    Settings with equal values share one cached model."""
    return tuple(getattr(settings, name) for name in _OF_DATA)


@lru_cache(maxsize=_MODELS_KEPT)
def problem_of(settings: Settings) -> Problem:
    """The problem to plan for (model with data, uplink, and limits of privacy and power), made from
    settings."""
    return assemble(settings, _model(of_data(settings)))


@lru_cache(maxsize=_KEPT)
def quick_plan(settings: Settings) -> Plan:
    """The plan for these settings without the prediction of the sampled law and without findings,
    which takes milliseconds."""
    return problem_of(settings).plan(forecast=False)


@lru_cache(maxsize=_KEPT)
def whole_plan(settings: Settings) -> Plan:
    """The plan for these settings with the prediction of the sampled law and with findings, which
    may take seconds."""
    return problem_of(settings).plan()


@lru_cache(maxsize=_KEPT)
def document(settings: Settings) -> dict[str, Any]:
    """The output of ``flmc plan --json`` for these settings."""
    return whole_plan(settings).to_document()


@lru_cache(maxsize=_KEPT)
def spending(settings: Settings) -> tuple[SpentAfter, ...]:
    """Epsilon spent up to some of the rounds of the planned run, from early to late; empty if its
    privacy is not known."""
    plan = quick_plan(settings)
    return tuple(privacy_over_rounds(plan, rounds_to_show(plan.num_rounds)))


@lru_cache(maxsize=_KEPT)
def predicted_law(settings: Settings) -> Gaussian | None:
    """Gaussian law that the chain is predicted to sample; None if nothing is predicted, or the
    model is not linear regression."""
    plan, model = whole_plan(settings), problem_of(settings).model
    if plan.prediction is None or not isinstance(model, LinearGaussian):
        return None
    law = (model, plan.uplink, plan.step_size, noise_of(plan))
    return predict_law(*law, midpoints=plan.midpoints)


@lru_cache(maxsize=_KEPT)
def round_losses(settings: Settings) -> dict[str, AttackLossLaw]:
    """Laws of the privacy loss of one round by the name of the scheme: for the plan of these
    settings, and for a plan with the other of the schemes digital and analog at the same effective
    step. A scheme whose law is not known is left out."""
    plan = quick_plan(settings)
    laws = {plan.uplink.scheme: loss_of_round(plan)}
    other = plan_other_scheme(settings, plan, problem_of(settings).model)
    if other is not None:
        laws[other.uplink.scheme] = loss_of_round(other)
    return {name: law for name, law in laws.items() if law is not None}
