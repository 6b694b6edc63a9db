"""The other scheme with the same effective step: what digital is compared with in analog, and the
other way round."""

from __future__ import annotations

from flmc.base.errors import FlmcError
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.settings.assembly import assemble
from flmc.settings.schema import Settings, merge

_OTHER = {"digital": "analog", "analog": "digital"}
_OF_DIGITAL = ("link", "slope_parameter")
"""Settings that the analog scheme refuses."""


def plan_other_scheme(settings: Settings, plan: Plan, model: Model) -> Plan | None:
    """The plan of the other scheme whose effective step is that of a plan, without a forecast.

    Parameters
    ----------
    settings
        What the plan was made from; a link that was given is kept for the digital scheme only.
    plan
        The plan of either scheme.
    model
        The model of both.

    Returns
    -------
    Plan or None
        None where there is no other scheme, no effective step, or no such plan.

    Examples
    --------
    >>> from flmc.settings.assembly import assemble
    >>> from flmc.settings.questions.other_scheme import plan_other_scheme
    >>> from flmc.settings.schema import merge
    >>> problem = assemble(merge({}, {}))
    >>> digital = problem.plan(forecast=False)
    >>> analog = plan_other_scheme(problem.settings, digital, problem.model)
    >>> analog.uplink.scheme, analog.step_size == digital.effective_step_size
    ('analog', True)
    """
    step = plan.effective_step_size
    if settings.scheme not in _OTHER or step is None:
        return None
    given = settings.model_dump(exclude_unset=True)
    for name in ("gain", *(_OF_DIGITAL if settings.scheme == "digital" else ())):
        given.pop(name, None)
    given |= {"scheme": _OTHER[settings.scheme], "step_size": step}
    try:
        other = assemble(merge({}, given), model).plan(forecast=False)
        if other.slope in (None, 1.0):
            return other
        # The slope of a link does not depend on the step.
        given["step_size"] = step / (other.slope or 1.0)
        return assemble(merge({}, given), model).plan(forecast=False)
    except FlmcError:  # the other scheme cannot do it
        return None
