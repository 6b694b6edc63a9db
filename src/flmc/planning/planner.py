"""The planner: it makes a plan from a model, an uplink and limits, and the plans that would result
if one constraint were relaxed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, format_short, format_up
from flmc.models.model import Model
from flmc.planning.choice import choose, cure_of_shift
from flmc.planning.decision import Request, decide
from flmc.planning.judgement import with_forecast
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.planning.search import Candidate
from flmc.planning.server_update import LANGEVIN, ServerUpdate
from flmc.uplink.link import Link
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink
from flmc.uplink.uplink import replace as replace_uplink


@one_blas_thread()
def plan(
    model: Model,
    uplink: Uplink,
    limits: Limits | None = None,
    *,
    num_rounds: int | str = 300,
    num_burn_in: int | str | None = None,
    step_size: float | str = "auto",
    effective_step_size: float | None = None,
    clip: float | str | None = None,
    link: Link | str | None = None,
    slope: str | None = None,
    gain: float | Sequence[float] | Array | None = None,
    start: str = "prior",
    burn_in_step_factor: float | str = "auto",
    num_fast: int | None = None,
    scheduler: Scheduler | None = None,
    active: Array | None = None,
    public_smoothness: float | None = None,
    public_convexity: float | None = None,
    update: ServerUpdate | None = None,
    aim: str = "chain",
    draw_at: str = "auto",
    forecast: bool = True,
) -> Plan:
    """Plan of a run: gain and step, decided before round 1 under the limits of power, noise and
    privacy.

    Parameters
    ----------
    model
        What is sampled.
    uplink
        How devices transmit, and over which channel.
    limits
        Privacy budget and Langevin limit; None: no budget, calibrated noise.
    num_rounds, num_burn_in
        Rounds in all, and the rounds among them that are not kept. ``num_rounds="auto"`` chooses
        both: a burn-in as long as the sampler needs, and 400 independent draws of a chain, or an
        answer 1.1 times as wide as the exact posterior.
        ``num_burn_in="auto"``: as long as the sampler needs, but at most nine tenths of all. None:
        200, or ``"auto"`` where the aim is an answer.
    step_size
        Step of the sampler. ``"auto"`` takes :func:`~flmc.planning.step_size.auto_step_size`,
        with ``langevin="paper"`` the paper's.
    effective_step_size
        In place of ``step_size``, the step times the slope of the uplink, which the Langevin
        equation sees: uplinks with the same one are equally fast.
    clip, link, slope
        Clip and link in place of the uplink's own, or ``"auto"``: a clip that leaves gradients near
        the posterior as they are, a link that suits the devices, a slope of the uplink's link that
        fits the clip. Each automatic choice is explained in a note among the plan's findings.
    gain
        Gain at the receiver, which broadcasts to (round, dim). It overrides the limits of Langevin
        noise and privacy, never the power limit. None: the largest that all limits allow.
    start
        Where chains start: ``prior`` (a draw from it) or ``zero``.
    burn_in_step_factor, num_fast
        The step of the first ``num_fast`` rounds (None: half of the burn-in) is larger by this
        factor. ``"auto"`` is as much as a chain from a distant start needs where the step is
        automatic too, else 1. Larger steps cost no privacy, which depends on the gain only.
    scheduler, active
        Who transmits; ``active`` (round, device) with 1 and 0 is short for
        ``GivenDevices(active)``. None: every device in every round.
    public_smoothness, public_convexity
        Curvature from public knowledge, in place of the model's own, so that the plan does not
        depend on the devices' data.
    update
        What the server does with its estimate in a round, such as
        :class:`flmc.Momentum`; None: Langevin's step. It costs no privacy.
        An update that declares no ``step_factor`` needs a step, and a gain or ``langevin="off"``.
    aim
        What the run is for. ``chain``: draws of the posterior, so the noise must be that of the
        sampler. ``answer``: what the server knows after the run
        (:meth:`flmc.Result.posterior`), so the gain is the largest that power and privacy allow,
        and an automatic step is the one with the smallest predicted intervals.
    draw_at
        Where draws are taken: at the ``positions`` of the chain after rounds, as in the paper, or
        at ``midpoints``, half way between the positions before and after a round, whose variance is
        free of the error of the discrete step. ``"auto"``: midpoints, or positions with a server's
        update whose midpoints are not known to be.
    forecast
        Whether to predict what the chain will sample and to look for warnings.

    Returns
    -------
    Plan
        Everything that is fixed before round 1, with the privacy event that it implies.

    Raises
    ------
    InvalidSetting
        If a setting is out of its bounds, two of them contradict each other, or no gain is known to
        keep the budget.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> plan = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5))
    >>> plan.binding, round(plan.typical_gain, 5)
    ('langevin', 0.27386)

    A budget for the whole run, and curvature from public knowledge:

    >>> limits = flmc.Limits(epsilon=10, scope="run")
    >>> plan = flmc.plan(
    ...     model, flmc.Digital(), limits, public_smoothness=1500, public_convexity=900
    ... )
    >>> plan.binding, plan.data_dependent, plan.run_cost.epsilon <= 10
    ('privacy', False, True)

    Clip, link and rounds by rule, each with its reason:

    >>> plan = flmc.plan(model, flmc.Digital(), clip="auto", link="auto", num_rounds="auto")
    >>> plan.uplink.clip, [each.code for each in plan.findings if each.code.startswith("chosen")]
    (33.9, ['chosen-clip', 'chosen-link', 'chosen-rounds'])
    """
    if num_burn_in is None:
        num_burn_in = "auto" if aim == "answer" else 200
    choosable = {"clip": clip, "link": link, "slope": slope, "rounds": num_rounds}
    names = {"rounds": "num_rounds"}
    free = {name for name, value in choosable.items() if _is_auto(names.get(name, name), value)}
    uplink = _with_given(uplink, clip, link)
    request = Request(
        num_rounds=300 if isinstance(num_rounds, str) else num_rounds,
        num_burn_in=num_burn_in,
        step_size=step_size,
        effective_step_size=effective_step_size,
        gain=gain,
        start=start,
        burn_in_step_factor=burn_in_step_factor,
        num_fast=num_fast,
        scheduler=scheduler,
        active=active,
        public_smoothness=public_smoothness,
        public_convexity=public_convexity,
        update=LANGEVIN if update is None else update,
        aim=aim,
        draw_at=draw_at,
    )
    held = Candidate(model, uplink, limits or Limits(), request)
    if not free:
        return _planned(held, forecast=forecast)
    choice = choose(held, free)
    held = replace(held, uplink=choice.uplink, request=choice.request)
    planned = _planned(held, forecast=forecast, from_data=choice.from_data)
    return replace(planned, findings=(*planned.findings, *choice.notes))


def _planned(held: Candidate, *, forecast: bool, from_data: bool = False) -> Plan:
    """The plan of a candidate with the privacy accountant's exact limit; with prediction and
    findings if ``forecast``. ``from_data`` marks the plan as computed from the devices' data."""
    decided = decide(held.model, held.uplink, held.limits, held.request)
    if from_data:
        decided = replace(decided, data_dependent=True)
    if not forecast:
        return decided
    made = with_forecast(decided, held.model, held.request, partial(cure_of_shift, held))
    of_input = (*held.uplink.fading.findings, *held.model.data_findings)
    return replace(made, findings=(*made.findings, *of_input))


def _is_auto(name: str, value: object) -> bool:
    """Whether the setting ``name`` has the value ``"auto"``. Raises ``InvalidSetting`` for any
    other string."""
    if isinstance(value, str) and value != "auto":
        raise InvalidSetting(f"{name} must be a value or 'auto', got {value!r}")
    return value == "auto" if isinstance(value, str) else False


def _with_given(uplink: Uplink, clip: float | str | None, link: Link | str | None) -> Uplink:
    """The uplink with the given clip and link; None and ``"auto"`` keep its own. Raises
    ``InvalidSetting`` for a link where the uplink has none."""
    if clip is not None and not isinstance(clip, str):
        uplink = replace(uplink, clip=clip)
    if link is not None and not isinstance(link, str):
        if uplink.link is None:
            raise InvalidSetting(f"a link is for the digital scheme, got {uplink.scheme!r}")
        uplink = replace_uplink(uplink, link=link)
    return uplink


@dataclass(frozen=True)
class WhatIf:
    """A plan, together with the plans that result when a single constraint or the step is changed;
    ``what_if`` makes it."""

    plans: dict[str, Plan]
    """Plans by what is changed, in words such as ``+ 3 dB``; the first is the unchanged plan."""

    def grid(self, *, with_run: bool = True) -> Grid:
        """Table with a row for each plan and columns for gain, binding constraint, step,
        temperature (for an answer: width), burn-in needed, and epsilon of a round; ``with_run``
        adds the epsilon of the whole run, which may take a second to compute."""
        first = next(iter(self.plans.values()))
        answers = first.aim == "answer"
        header = [
            "if",
            "gain",
            "binds",
            "step",
            "width" if answers else "temper-\nature",
            "burn-in\nneeded",
            "epsilon\nround",
        ]
        header += ["epsilon\nrun"] if with_run else []
        rows = []
        for name, each in self.plans.items():
            costs = [each.round_cost, *([each.run_cost] if with_run else [])]
            wide = None if each.answer is None else each.answer.width
            heat = wide if answers else each.temperature
            numbers = map(format_short, (heat, each.rounds_needed))
            gain, step = format_short(each.typical_gain), format_short(each.step_size)
            rows.append((name, gain, each.binding, step, *numbers, *map(_epsilon, costs)))
        limits = first.limits
        of_run = f", {limits.run_delta:g} for the run" if with_run else ""
        title = (
            "what relaxing would bring, one thing at a time (delta"
            f" {limits.delta:g} for a round{of_run})"
        )
        return Grid(tuple(header), tuple(rows), title)


def _epsilon(cost: Cost | None) -> str:
    """Text of a cost's epsilon, rounded up like every bound; ``-`` for None. Where epsilon is 0,
    the text adds the delta at epsilon 0, which is not 0."""
    if cost is None:
        return "-"
    if cost.delta_at_zero is not None:
        return f"0 (delta {format_up(cost.delta_at_zero, 1)})"
    return "inf" if math.isinf(cost.epsilon) else format_up(cost.epsilon, 3)


def what_if(planned: Plan, model: Model, settings: Mapping[str, Any]) -> WhatIf:
    """The plan ``planned`` and, for comparison, plans with one change each: 3 dB more power, twice
    the privacy budget, half the step, twice the step.

    ``settings`` are the keyword arguments of :func:`flmc.plan` that made the plan. For the ideal
    uplink neither power nor budget is changed, and a budget is changed only if one was given.
    Changes with which no plan can be made are left out.
    """
    uplink, limits = planned.uplink, planned.limits
    relaxed: dict[str, tuple[str, float]] = {}
    if not uplink.noise_is_exact:
        relaxed["+ 3 dB"] = "snr_db", uplink.snr_db + 3
        if limits.privacy != "off" and limits.epsilon is not None:
            relaxed["epsilon x 2"] = "epsilon", 2 * limits.epsilon
    relaxed["step / 2"] = "step_size", planned.step_size / 2
    relaxed["step x 2"] = "step_size", planned.step_size * 2
    plans = {"as planned": planned}
    for words, (name, value) in relaxed.items():
        changed = Candidate(model, uplink, limits).with_value(name, value)
        given = {"step_size": value, "effective_step_size": None}
        step = given if name == "step_size" else {}
        # A change that breaks another constraint raises ``InvalidSetting``: there is no plan for
        # it, and no row.
        with suppress(InvalidSetting):
            assert changed is not None
            # The width of an answer is part of the forecast.
            forecast = planned.aim == "answer"
            arguments: dict[str, Any] = {**settings, **step, "forecast": forecast}
            plans[words] = plan(model, changed.uplink, changed.limits, **arguments)
    return WhatIf(plans)
