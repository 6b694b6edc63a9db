"""The planner: from a model, an uplink and limits to a plan."""

from __future__ import annotations

from collections.abc import Sequence

from flmc.base.arrays import Array, one_blas_thread
from flmc.models.model import Model
from flmc.planning.advice.forecast import with_forecast
from flmc.planning.decision import Request, decide
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink


@one_blas_thread()
def plan(
    model: Model,
    uplink: Uplink,
    limits: Limits | None = None,
    *,
    num_rounds: int = 300,
    num_burn_in: int | str = 200,
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
        Rounds in all, and the rounds among them that are not kept; ``"auto"``: as many as the
        sampler needs, but at most nine tenths of all.
    step_size
        Step of the sampler. ``"auto"`` takes :func:`~flmc.planning.step_size.auto_step_size`,
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
    request = Request(
        num_rounds=num_rounds,
        num_burn_in=num_burn_in,
        step_size=step_size,
        gain=gain,
        start=start,
        burn_in_step_factor=burn_in_step_factor,
        num_fast=num_fast,
        scheduler=scheduler,
        active=active,
        public_smoothness=public_smoothness,
        public_convexity=public_convexity,
    )
    decided = decide(model, uplink, limits or Limits(), request)
    return with_forecast(decided, model, request) if forecast else decided
