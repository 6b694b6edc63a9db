"""The planner: from a model, an uplink and limits to a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.planning.advice import with_forecast
from flmc.planning.constraints import Constraints, Curvature, check_examples, distance_to_travel
from flmc.planning.limits import GainLimits, Limits
from flmc.planning.plans import Plan
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import AllDevices, GivenDevices
from flmc.uplink.uplink import Uplink


def plan(
    model: Model,
    uplink: Uplink,
    limits: Limits | None = None,
    *,
    num_rounds: int = 300,
    num_burn_in: int = 200,
    step_size: float | str = "auto",
    gain: float | Sequence[float] | Array | None = None,
    start: str = "prior",
    burn_in_step_factor: float | str = "auto",
    num_fast: int | None = None,
    scheduler: Scheduler | None = None,
    active: Array | None = None,
    public_smoothness: float | None = None,
    public_convexity: float | None = None,
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
        Rounds in all, and the rounds among them that are not kept.
    step_size
        Step of the sampler. ``"auto"`` takes :func:`~flmc.planning.temperature.auto_step_size`,
        with ``langevin="paper"`` the paper's.
    gain
        Gain at the receiver, which broadcasts to (round, dim). It overrides the limits of Langevin
        noise and privacy, never the power limit. None: the largest that all limits allow.
    start
        Where chains start: ``prior`` (a draw from it) or ``zero``.
    burn_in_step_factor, num_fast
        The step of the first ``num_fast`` rounds (None: half of the burn-in) is larger by this
        factor. ``"auto"`` is as much as a distant start needs where the step is automatic too, else
        1. Larger steps cost no privacy, which depends on the gain only.
    scheduler, active
        Who transmits; ``active`` (round, device) with 1 and 0 is short for
        ``GivenDevices(active)``. None: every device in every round.
    public_smoothness, public_convexity
        Curvature from public knowledge, in place of the model's own, so that the plan does not
        depend on the devices' data.
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
    """
    limits = limits or Limits()
    _check_kinds(model, uplink, limits)
    rounds = _Rounds.checked(num_rounds, num_burn_in, num_fast)
    checks.one_of("start", start, ("prior", "zero"))
    if uplink.example_clip is not None:
        check_examples(model)
    curvature = Curvature.of(model, public_smoothness, public_convexity)
    policy = _scheduler_of(scheduler, active, rounds.total, model.num_devices)
    task = Constraints(model, uplink, limits, curvature, rounds.total, policy)
    distance = distance_to_travel(model, start)
    power, privacy = task.power_limit(), task.privacy_limit()
    given = None if gain is None else task.check_gain(gain)
    # The automatic step is made for the largest gain, so that T = 1 is within reach of it.
    most = min(power, privacy) if given is None else float(given.max())
    step, computed = task.step_size(step_size, most)
    auto_step = step if computed else None
    factor = task.burn_in_factor(burn_in_step_factor, auto_step, rounds.fast, distance)
    langevin = task.langevin_limit(step, factor, rounds.fast)
    # The Langevin limit of a kept round; the median, where devices come and go.
    gain_limits = GainLimits(power, float(np.median(langevin[-rounds.kept :])), privacy)
    cap = given
    if cap is None:
        steps = step * np.where(np.arange(rounds.total) < rounds.fast, factor, 1.0)
        cap = task.cap(langevin, power, privacy, steps, rounds.burn_in)
    # A step that was given, or the paper's, reveals nothing; adaptive gains use the curvature too.
    from_data = computed or (gain is None and limits.allocation == "adaptive")
    decided = Plan(
        uplink=uplink,
        limits=limits,
        num_devices=model.num_devices,
        dim=model.dim,
        num_rounds=rounds.total,
        num_burn_in=rounds.burn_in,
        start=start,
        step_size=step,
        burn_in_step_factor=factor,
        num_fast=rounds.fast,
        gain=cap,
        scheduler=policy,
        gain_limits=gain_limits,
        binding="given" if gain is not None else gain_limits.binding,
        data_dependent=from_data and not curvature.public,
    )
    automatic = computed and burn_in_step_factor == "auto"
    needed = task.burn_in_needed(decided, distance, automatic=automatic)
    decided = replace(decided, rounds_needed=needed)
    return with_forecast(decided, model, curvature) if forecast else decided


def _check_kinds(model: Model, uplink: Uplink, limits: Limits) -> None:
    """Refuse a model, an uplink or limits of another class."""
    kinds = {"model": (model, Model), "uplink": (uplink, Uplink), "limits": (limits, Limits)}
    for name, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise InvalidSetting(
                f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}"
            )


class _Rounds(NamedTuple):
    """Number of rounds in all, of those that are not kept, and of those with a larger step."""

    total: int
    burn_in: int
    fast: int

    @property
    def kept(self) -> int:
        return self.total - self.burn_in

    @classmethod
    def checked(cls, num_rounds: int, num_burn_in: int, num_fast: int | None) -> _Rounds:
        count = checks.at_least("num_rounds", num_rounds, 1)
        burn_in = checks.at_least("num_burn_in", num_burn_in, 0)
        checks.fits("a plan of so many rounds", 64.0 * count)
        if burn_in >= count:
            raise InvalidSetting(f"num_burn_in must be below num_rounds = {count}, got {burn_in}")
        fast = burn_in // 2 if num_fast is None else checks.at_least("num_fast", num_fast, 0)
        if fast > burn_in:
            raise InvalidSetting(f"num_fast must not exceed num_burn_in = {burn_in}, got {fast}")
        return cls(count, burn_in, fast)


def _scheduler_of(
    scheduler: Scheduler | None, active: Array | None, num_rounds: int, num_devices: int
) -> Scheduler:
    """The policy that was asked for, checked; an array in which everybody transmits becomes
    AllDevices."""
    if scheduler is not None and active is not None:
        raise InvalidSetting(
            "give scheduler or active, not both: active is short for GivenDevices(active)"
        )
    chosen = GivenDevices(active) if active is not None else scheduler or AllDevices()
    if not isinstance(chosen, Scheduler):
        raise InvalidSetting(
            f"scheduler must be a flmc.Scheduler, for example RandomDevices(5); got {chosen!r}"
        )
    chosen.check(num_rounds, num_devices)
    return AllDevices() if isinstance(chosen, GivenDevices) and chosen.active.all() else chosen
