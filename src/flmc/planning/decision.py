"""Decision of a plan: from a model, an uplink and limits to the numbers of rounds, the sampler's
step and the gain, without a prediction of what will be sampled."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits
from flmc.base.special import median
from flmc.models.batches import check_batches
from flmc.models.clipped_examples import check_clipping
from flmc.models.model import Model
from flmc.planning.answer_forecast import rounds_to_arrive
from flmc.planning.answer_law import MOST_ANSWERED, NO_ANSWER
from flmc.planning.burn_in import distance_to_travel
from flmc.planning.constraints import Constraints
from flmc.planning.limits import GainLimits, Limits
from flmc.planning.plans import Plan
from flmc.planning.plans.expectation import slope_of
from flmc.planning.plans.release import effective_draws
from flmc.planning.public_model import PublicModel
from flmc.planning.server_update import DRAW_AT, LANGEVIN, ServerUpdate, is_langevin
from flmc.planning.step_size import Curvature
from flmc.uplink.power import largest_mean_power, power_scale
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import AllDevices, GivenDevices
from flmc.uplink.uplink import Uplink

_MOST_TRIALS = 30
"""Largest number of burn-in lengths, each longer than the one before, that are tried for an
automatic burn-in; the last length is used even if it is too short."""


@dataclass(frozen=True)
class Request:
    """Settings of a plan beside model, uplink and limits; :func:`flmc.plan` describes each."""

    num_rounds: int = 300
    num_burn_in: int | str = 200
    step_size: float | str = "auto"
    effective_step_size: float | None = None
    gain: float | Sequence[float] | Array | None = None
    start: str = "prior"
    burn_in_step_factor: float | str = "auto"
    num_fast: int | None = None
    scheduler: Scheduler | None = None
    active: Array | None = None
    public_smoothness: float | None = None
    public_convexity: float | None = None
    update: ServerUpdate = LANGEVIN
    aim: str = "chain"
    draw_at: str = "auto"

    def curvature(self, model: Model) -> Curvature:
        """Curvature that the plan is made with: from the public values where they are given, else
        the model's own."""
        return Curvature.of(model, self.public_smoothness, self.public_convexity)


def decide(
    model: Model,
    uplink: Uplink,
    limits: Limits,
    request: Request,
    privacy_limit: float | None = None,
) -> Plan:
    """Plan with rounds, step and gain decided under the limits, but without prediction and
    findings.

    ``privacy_limit`` is taken for the largest gain that the budget allows, in place of the privacy
    accountant's; None: the accountant computes it. With a search's estimate as the limit, the plan
    may break the budget and must not be handed out."""
    _check_kinds(model, uplink, limits)
    limits = _limits_for(request, limits, model.dim)
    if request.aim == "answer" and model.num_local:
        raise InvalidSetting(f"aim 'answer' is not known to hold: {NO_ANSWER}; use aim 'chain'")
    _check_update(request, limits)
    checks.one_of("start", request.start, ("prior", "zero"))
    if uplink.clips_examples:
        check_clipping(model, by_norm=uplink.example_norm is not None)
    if uplink.batched:
        _check_batches(model, uplink)
    total = checks.at_least("num_rounds", request.num_rounds, 1)
    policy = _scheduler_of(request, total, model.num_devices)
    if uplink.noise_is_exact and policy.by_channel:
        raise InvalidSetting(
            f"{type(policy).__name__} follows path gains, and the {uplink.scheme} uplink has no"
            " channel: use another scheme, or a policy that does not follow the channel"
        )
    fits(
        "a plan of so many rounds and devices", _bytes_of_plan(model, uplink, limits, policy, total)
    )
    curvature = request.curvature(model)
    task = Constraints(
        model,
        uplink,
        limits,
        curvature,
        total,
        policy,
        privacy_limit,
        request.update,
        _draw_at(request),
    )
    if request.num_burn_in != "auto":
        return _decide(task, request)
    decided = _with_automatic_burn_in(task, request)
    # The length of the burn-in follows from the curvature, as an automatic step does: it reveals
    # something of the data unless the curvature is public.
    return replace(decided, data_dependent=decided.data_dependent or not task.curvature.public)


def _check_batches(model: Model, uplink: Uplink) -> None:
    """Raise ``InvalidSetting`` where devices are to use batches of their examples and the model has
    no gradients of single examples, or wrong ones. A public model, of which only the sizes of the
    data are known, has no gradients to check."""
    if not isinstance(model, PublicModel):
        check_batches(model, uplink.example_rule)


def _with_automatic_burn_in(task: Constraints, request: Request) -> Plan:
    """The plan with a burn-in as long as the sampler needs, found by trying ever longer ones from 1
    round on, but of at most nine tenths of all rounds. Raises ``InvalidSetting`` where the needed
    burn-in is not known."""
    total = checks.at_least("num_rounds with burn_in 'auto'", task.num_rounds, 2)
    most = total - max(1, total // 10)
    burn_in = 1
    plan = _decide(task, replace(request, num_burn_in=burn_in))
    for _ in range(_MOST_TRIALS):
        if plan.rounds_needed is None:
            raise InvalidSetting(
                "burn_in 'auto' needs slope and convexity, which are not known: give public"
                " curvature, or a number of rounds"
            )
        if plan.rounds_needed <= burn_in or burn_in == most:
            break
        # The automatic factor of early steps changes with the burn-in, and the rounds that are
        # needed change with the factor.
        burn_in = min(most, plan.rounds_needed)
        plan = _decide(task, replace(request, num_burn_in=burn_in))
    return plan


def _decide(task: Constraints, request: Request) -> Plan:
    """The plan for a request whose number of rounds of burn-in is fixed."""
    model, uplink, limits, curvature = task.model, task.uplink, task.limits, task.curvature
    rounds = _Rounds.checked(task.num_rounds, request)
    distance = distance_to_travel(model, request.start)
    # The order matters: the step follows from the largest gain, the Langevin limit from the step,
    # and the gain from all limits.
    power, privacy = task.power_limit, task.privacy_limit
    given = None if request.gain is None else _check_gain(task, request.gain)
    # The automatic step is computed for the largest gain that power and privacy allow (or for the
    # gain that was given), so that this gain attains the temperature 1.
    most = min(power, privacy) if given is None else float(given.max())
    asked = _given_step(task, request)
    if asked == "auto" and request.aim == "answer":
        step, computed = task.answer_step_size(rounds.kept, given), True
    else:
        step, computed = task.step_size(asked, most)
    auto_step = step if computed else None
    factor = task.burn_in_factor(
        request.burn_in_step_factor, auto_step, rounds.fast, distance, given
    )
    langevin = task.langevin_limit(step, factor, rounds.fast)
    # The plan states the Langevin limit of one kept round: the median over kept rounds, which may
    # differ in the number of devices.
    gain_limits = GainLimits(power, median(langevin[-rounds.kept :]), privacy)
    cap = given
    if cap is None:
        steps = step * np.where(np.arange(rounds.total) < rounds.fast, factor, 1.0)
        cap = task.cap(langevin, power, privacy, steps, rounds.burn_in)
    # A step that the user gave or the paper prints reveals nothing of the data; a computed step
    # uses the curvature, and so do adaptive gains.
    from_data = computed or (given is None and limits.allocation == "adaptive")
    decided = Plan(
        uplink=uplink,
        limits=limits,
        num_devices=model.num_devices,
        dim=model.dim,
        num_rounds=rounds.total,
        num_burn_in=rounds.burn_in,
        start=request.start,
        step_size=step,
        burn_in_step_factor=factor,
        num_fast=rounds.fast,
        gain=cap,
        scheduler=task.scheduler,
        gain_limits=gain_limits,
        binding="given" if given is not None else gain_limits.binding,
        data_dependent=(from_data and not curvature.public) or model.made_from_data,
        update=task.update,
        aim=request.aim,
        public_curvature=curvature if curvature.public else None,
        draw_at=task.draw_at,
        num_local=model.num_local,
    )
    automatic = computed and request.burn_in_step_factor == "auto"
    if request.aim == "answer":
        needed = rounds_to_arrive(decided, model, curvature)
    else:
        needed = task.burn_in_needed(decided, distance, given, automatic=automatic)
    moved, midpoints = decided.effective_step_size, decided.midpoints
    draws = effective_draws(moved, curvature.convexity, rounds.kept, midpoints=midpoints)
    return replace(decided, rounds_needed=needed, effective_draws=draws)


def _limits_for(request: Request, limits: Limits, dim: int) -> Limits:
    """Limits of a plan for the aim of the request: ``limits`` themselves for a chain; for an
    answer, ``limits`` without the one by the noise that the sampler needs. Raises
    ``InvalidSetting`` for an unknown aim, an aim that contradicts the limits or the server's
    update, or an answer with more entries than can be computed."""
    if checks.one_of("aim", request.aim, ("chain", "answer")) == "chain":
        return limits
    if limits.langevin == "paper":
        raise InvalidSetting(
            "aim 'answer' has no noise that the sampler needs: leave langevin out, got 'paper'"
        )
    if not is_langevin(request.update):
        raise InvalidSetting(
            "aim 'answer' needs Langevin's update, from whose steps a server reads gradients; got"
            f" {type(request.update).__name__}"
        )
    if dim > MOST_ANSWERED:
        raise InvalidSetting(
            f"an answer is planned for at most {MOST_ANSWERED} entries, got {dim}: use aim 'chain'"
        )
    return replace(limits, langevin="off")


def _given_step(task: Constraints, request: Request) -> float | str:
    """Step size that a request asks for: a number, or ``auto``. Where the request gives the
    effective step size, it is divided by the link's slope and by the step factor of the server's
    update. Raises ``InvalidSetting`` where step size and effective step size are both given, or
    where the uplink has no slope or the update declares no step factor."""
    effective = request.effective_step_size
    if effective is None:
        return request.step_size
    if request.step_size != "auto":
        raise InvalidSetting(
            "give step_size or effective_step_size, which is the step times the slope; got both,"
            f" {request.step_size!r} and {effective!r}"
        )
    checks.positive("effective_step_size", effective)
    slope = slope_of(task.uplink, task.model.num_devices, task.scheduler)
    if slope is None:
        raise InvalidSetting(
            "effective_step_size needs an uplink with a slope, and the link"
            f" {getattr(task.uplink.link, 'name', 'of this uplink')} has none: give step_size"
        )
    factor = task.update.step_factor
    if factor is None:
        raise InvalidSetting(
            "effective_step_size needs a server's update that declares its step_factor, and"
            f" {type(task.update).__name__} does not: give step_size"
        )
    return effective / slope / factor


def _bytes_of_plan(
    model: Model, uplink: Uplink, limits: Limits, policy: Scheduler, num_rounds: int
) -> float:
    """Estimate of the memory that planning takes, in bytes, so that a plan too large is refused
    before it starts."""
    # Bytes as measured: 64 or 300 for each round; 40 more for each device in each round, where
    # devices or path gains are drawn for the whole run; and 32 for each entry of each device's
    # gradient, or of its Hessian where the posterior is known.
    each = 300.0 if limits.allocation == "adaptive" else 64.0
    fading = uplink.known_fading
    if not policy.everyone or not (fading.constant or fading.independent):
        each += 40.0 * model.num_devices
    numbers = model.dim if model.posterior is None else model.dim**2
    return each * num_rounds + 32.0 * model.num_devices * numbers


def _check_kinds(model: Model, uplink: Uplink, limits: Limits) -> None:
    """Raise ``InvalidSetting`` unless ``model`` is an instance of ``Model``, ``uplink`` of
    ``Uplink`` and ``limits`` of ``Limits``: users pass them, and may mix them up."""
    kinds = {"model": (model, Model), "uplink": (uplink, Uplink), "limits": (limits, Limits)}
    for name, (value, kind) in kinds.items():
        if not isinstance(value, kind):
            raise InvalidSetting(
                f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}"
            )


def _check_update(request: Request, limits: Limits) -> None:
    """Raise ``InvalidSetting`` for an object that is no server's update, or for an update without a
    known temperature where the gain has to be chosen so that the temperature is right."""
    update = request.update
    if not isinstance(update, ServerUpdate):
        raise InvalidSetting(
            f"update must be a flmc.ServerUpdate, for example Momentum(0.9); got {update!r}"
        )
    update.check()
    if update.step_factor is None and request.gain is None and limits.langevin != "off":
        raise InvalidSetting(
            f"langevin {limits.langevin!r} needs the temperature that the server's update"
            f" {type(update).__name__} samples, which is not known (it declares no step_factor):"
            " use langevin 'off', or give a gain"
        )


def _draw_at(request: Request) -> str:
    """Where draws are taken, ``positions`` or ``midpoints``: as the request says, or if it says
    ``auto``, as the server's update does. Raises ``InvalidSetting`` for midpoints of an update that
    does not declare them to have the posterior's variance."""
    own = request.update.draw_at
    if request.draw_at == "auto":
        return own
    if checks.one_of("draw_at", request.draw_at, ("auto", *DRAW_AT)) == "midpoints" != own:
        raise InvalidSetting(
            "draw_at 'midpoints' needs a server's update whose midpoints are known to have the"
            f" posterior's variance, and {type(request.update).__name__} does not say so: use"
            " 'positions'"
        )
    return request.draw_at


class _Rounds(NamedTuple):
    """Numbers of rounds: in all, of burn-in, and of the first rounds, which have a larger step."""

    total: int
    burn_in: int
    fast: int

    @property
    def kept(self) -> int:
        return self.total - self.burn_in

    @classmethod
    def checked(cls, count: int, request: Request) -> _Rounds:
        """Numbers of rounds for a request with ``count`` rounds in all and a fixed burn-in. If the
        request gives no number of rounds with a larger step, it is half of the burn-in. Raises
        ``InvalidSetting`` if the numbers contradict each other."""
        burn_in = checks.at_least("num_burn_in", request.num_burn_in, 0)
        if burn_in >= count:
            raise InvalidSetting(f"num_burn_in must be below num_rounds = {count}, got {burn_in}")
        given = request.num_fast
        fast = burn_in // 2 if given is None else checks.at_least("num_fast", given, 0)
        if fast > burn_in:
            raise InvalidSetting(f"num_fast must not exceed num_burn_in = {burn_in}, got {fast}")
        return cls(count, burn_in, fast)


def _scheduler_of(request: Request, num_rounds: int, num_devices: int) -> Scheduler:
    """Scheduler (the policy that says who transmits in a round) of a request, checked; an array in
    which every device transmits in every round becomes ``AllDevices``."""
    scheduler, active = request.scheduler, request.active
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


def _check_gain(task: Constraints, given: float | Sequence[float] | Array) -> Array:
    """Gain that the user gave in place of a planned one, as an array (1 or round, 1 or dim). Raises
    ``InvalidSetting`` for the ideal uplink, a wrong shape or sign, and more power than a constant
    channel or the long-term limit allows."""
    cap = np.atleast_2d(checks.finite_array("gain", given))
    dim, uplink = task.model.dim, task.uplink
    if uplink.noise_is_exact:
        raise InvalidSetting(
            "the ideal uplink takes no gain: its noise follows from its step; use analog"
        )
    if (cap <= 0).any():
        raise InvalidSetting(f"gain must be positive, got {cap.min():g}")
    if cap.ndim != 2 or cap.shape[0] not in (1, task.num_rounds) or cap.shape[1] not in (1, dim):
        raise InvalidSetting(
            f"gain must broadcast to (round, dim) = {(task.num_rounds, dim)}, got {cap.shape}"
        )
    for value in (cap.min(), cap.max()):
        checks.positive("gain", float(value))
    if uplink.known_fading.constant and math.isfinite(uplink.power_limit):
        fading = uplink.known_fading.draw_checked(
            np.random.default_rng(0), range(1), task.model.num_devices, dim
        )
        full = np.broadcast_to(cap, (len(cap), dim))
        scale = float(power_scale(uplink, full, fading, task.active).min())
        # The margin lets a gain pass that exceeds the limit only by rounding.
        if scale < 1 - 1e-12:
            raise InvalidSetting(
                f"gain must not exceed the power limit {cap.max() * scale:.6g} at"
                f" {uplink.snr_db:g} dB, got {cap.max():.6g}"
            )
    if uplink.average_snr_db is not None:
        spent = largest_mean_power(uplink, cap, task.rounds_for_power) / uplink.noise_power
        if spent > 10.0 ** (uplink.average_snr_db / 10.0) * (1 + 1e-9):
            raise InvalidSetting(
                f"gain must keep the long-term power limit of {uplink.average_snr_db:g} dB, got"
                f" {cap.max():.6g}, with which a device spends {10 * math.log10(spent):.3g} dB"
            )
    return cap
