"""From a model, an uplink and limits to a plan."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from flmc import checks
from flmc.allocation import allocate, noise_weights
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.limits import GainLimits, Limits
from flmc.linear import LinearGaussian
from flmc.model import Model
from flmc.plan import Plan
from flmc.power import draw_planned_fading, planned_power_limit, power_scale, realised_gain
from flmc.prediction import Prediction, predict
from flmc.privacy.account import epsilon_of, nothing_allowed
from flmc.privacy.event import count_gains, event_of
from flmc.shrink import shrink_factor
from flmc.spending import privacy_limited_gain
from flmc.temperature import auto_burn_in_factor, auto_step_size, calibrated_gain, paper_gain, rounds_needed
from flmc.uplink import Ideal, Uplink

PAPER_STEP_SIZES = {"digital": 8.28e-3, "analog": 1.28e-4, "ideal": 1.28e-4}
"""The paper's step sizes, section IV; the ideal sampler takes the analog one."""


_MOST_TRIALS = 100


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
    active: Array | None = None,
    public_smoothness: float | None = None,
    public_convexity: float | None = None,
    forecast: bool = True,
) -> Plan:
    """Decide gain and step before round 1, under the limits of power, Langevin noise and privacy.

    ``step_size="auto"`` takes :func:`~flmc.temperature.auto_step_size`, with ``langevin="paper"`` the paper's step.
    ``gain`` overrides the limits of Langevin noise and privacy, never the power limit; it broadcasts to (round, dim).
    ``burn_in_step_factor`` enlarges the step of the first ``num_fast`` rounds, half of the burn-in if not given;
    ``"auto"`` is as much as a distant start needs where the step is automatic too, else 1. It costs no privacy, which
    depends on the gain only. ``forecast=False`` leaves out predictions and warnings, to save time. ``active`` (round,
    device) says who transmits. ``public_smoothness`` and ``public_convexity`` replace the model's own values, so that
    the plan does not depend on the devices' data."""
    limits = limits or Limits()
    for name, value, kind in (("model", model, Model), ("uplink", uplink, Uplink), ("limits", limits, Limits)):
        if not isinstance(value, kind):
            raise InvalidSetting(f"{name} must be a flmc.{kind.__name__}, got {type(value).__name__}")
    num_rounds, num_burn_in = (
        checks.at_least("num_rounds", num_rounds, 1),
        checks.at_least("num_burn_in", num_burn_in, 0),
    )
    checks.fits("a plan of so many rounds", 64.0 * num_rounds)
    if num_burn_in >= num_rounds:
        raise InvalidSetting(f"num_burn_in must be below num_rounds = {num_rounds}, got {num_burn_in}")
    checks.one_of("start", start, ("prior", "zero"))
    num_fast = num_burn_in // 2 if num_fast is None else checks.at_least("num_fast", num_fast, 0)
    if num_fast > num_burn_in:
        raise InvalidSetting(f"num_fast must not exceed num_burn_in = {num_burn_in}, got {num_fast}")

    if uplink.example_clip is not None:
        _check_examples(model)
    curvature = _Curvature.of(model, public_smoothness, public_convexity)
    task = _Task(model, uplink, limits, curvature, num_rounds, _check_active(active, num_rounds, model.num_devices))
    distance = _distance(model, start)
    power, privacy = task.power_limit(), task.privacy_limit()
    given = None if gain is None else task.check_gain(gain)
    step, computed = task.step_size(step_size, min(power, privacy) if given is None else float(given.max()))
    factor = task.burn_in_factor(burn_in_step_factor, step if computed else None, num_fast, distance)
    langevin = task.langevin_limit(step, factor, num_fast)
    gain_limits = GainLimits(power, float(np.median(langevin[-(num_rounds - num_burn_in) :])), privacy)
    if given is not None:
        cap = given
    elif limits.allocation == "adaptive":
        cap = task.adaptive_gain(step, factor, num_fast, num_burn_in, np.minimum(langevin, power), privacy)
    else:
        cap = np.minimum(langevin, min(privacy, power) if uplink.fading.constant else privacy)
    if not np.isfinite(np.minimum(cap, power)).all():
        raise InvalidSetting("nothing limits the gain, neither power nor Langevin noise nor privacy: give a gain")
    decided = Plan(
        uplink=uplink,
        limits=limits,
        num_devices=model.num_devices,
        dim=model.dim,
        num_rounds=num_rounds,
        num_burn_in=num_burn_in,
        start=start,
        step_size=step,
        burn_in_step_factor=factor,
        num_fast=num_fast,
        gain=cap,
        active=task.active,
        gain_limits=gain_limits,
        planned_gain=task.planned_gain(cap, num_burn_in),
        binding="given" if gain is not None else gain_limits.binding,
        data_dependent=(computed or (gain is None and limits.allocation == "adaptive")) and not curvature.public,
    )
    needed = task.burn_in_needed(decided, distance, automatic=computed and burn_in_step_factor == "auto")
    decided = replace(decided, rounds_needed=needed)
    return _with_forecast(decided, model) if forecast else decided


def _check_examples(model: Model) -> None:
    """Refuse a model that cannot clip its examples, or does not: with a tiny clip hardly anything may be left."""
    theta = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (1, 1, model.dim)) + 0.0
    left = np.nan_to_num(model.clipped_gradient(theta, 1e-15, slice(0, 1)))
    whole = np.nan_to_num(model.gradient(theta, slice(0, 1)))
    if np.abs(left).max() > 1e-3 * np.abs(whole).max() > 0:
        raise InvalidSetting(
            "clipped_gradient does not clip: with a clip of 1e-15 it still returns"
            f" {np.abs(left).max():.3g} in an entry; clip every example's gradient before they are summed"
        )


def _distance(model: Model, start: str) -> float:
    """How far a start may be from the posterior in an entry: two standard deviations, when both the start and the truth
    come from the prior, or the start is zero."""
    sd, mean = np.asarray(model.prior.sd), np.asarray(model.prior.mean)
    variance = 2 * sd**2 if start == "prior" else sd**2 + mean**2
    return float(2 * np.sqrt(np.max(variance)))


def _with_forecast(decided: Plan, model: Model) -> Plan:
    """The plan with what can be said beforehand of the run: predicted law and warnings."""
    heat, needed = decided.temperature, decided.rounds_needed
    if heat is None:
        return replace(decided, warnings=("the link has no slope: temperature and rounds needed are unknown",))
    warnings = _over_budget(decided)
    prediction = None
    if needed is None:
        warnings.append("whether the burn-in is long enough cannot be judged without the convexity of the model")
    elif needed > 1.05 * decided.num_burn_in:
        cure = "use more rounds" + (" or start 'zero'" if decided.start == "prior" else "")
        if (model.smoothness or 0.0) > 100.0 * (model.convexity or math.inf):
            cure += ", or rescale theta: its scales differ much (condition number above 100)"
        if decided.limits.scope == "run" and decided.binding == "privacy":
            cure = "under a run budget more rounds shrink the steps: use more data, a larger epsilon, a smaller clip"
            if decided.limits.neighbouring == "device":
                cure += " or neighbouring = 'example', if single examples are what is to be hidden"
        warnings.append(
            f"burn-in of {decided.num_burn_in} rounds is short: about {needed} are needed, and a chain that still"
            f" travels can have any variance; {cure}"
        )
    warnings += _forgotten_shrink(decided.uplink, isinstance(model, LinearGaussian))
    early = decided.burn_in_step_factor * (decided.effective_step_size or 0.0) * (model.smoothness or 0.0)
    if decided.num_fast and early > 1.0:
        warnings.append(
            f"burn_in_step_factor {decided.burn_in_step_factor:.3g} makes the early steps unstable: the effective step"
            f" times the smoothness is {early:.3g}, and should stay below 1"
        )
    if abs(heat - 1.0) > 0.05:
        meaning = "too wide" if heat > 1 else "too narrow, collapsing towards the mode"
        warnings.append(f"temperature {heat:.3g} instead of 1: the samples' variance will be {meaning}")
    if decided.active is not None:
        warnings.append("devices come and go: what the absent would have said is noise that the temperature leaves out")
    elif isinstance(model, LinearGaussian) and decided.uplink.example_clip is not None:
        warnings.append(_shift_in_words(model, decided.uplink.example_clip))
        unclipped = replace(decided.uplink, example_clip=None, example_shrink=1.0)
        warnings += _judge_roughly(predict(model, unclipped, decided.step_size, _noise_of(decided)))
    elif isinstance(model, LinearGaussian):
        prediction = predict(model, decided.uplink, decided.step_size, _noise_of(decided))
        warnings += _judge(prediction, heat)
    return replace(decided, prediction=prediction, warnings=tuple(warnings))


def _forgotten_shrink(uplink: Uplink, linear: bool) -> list[str]:
    """Clipping examples shrinks gradients, which the temperature must know."""
    if uplink.example_clip is None or uplink.example_shrink != 1.0:
        return []
    if not linear:
        return [
            "example_shrink is 1, as if clipping examples took nothing from the gradient: if it does, the samples are"
            " too wide; give the share of the curvature that it leaves"
        ]
    typical = shrink_factor(uplink.example_clip)
    if typical > 0.999:
        return []
    return [
        f"example_shrink is 1, as if clipping examples at {uplink.example_clip:g} left their gradients as they are: it"
        f" leaves {typical:.3f} where features and residuals are standard normal (flmc.shrink.shrink_factor)"
    ]


def _noise_of(decided: Plan) -> Array:
    """Mean variance of the received sum's noise, in units of the gain, by entry."""
    return np.asarray(decided.uplink.noise_power * np.mean(decided.planned_gain**-2.0, axis=0))


def _over_budget(decided: Plan) -> list[str]:
    """What a gain that was given spends too much."""
    limits = decided.limits
    if decided.binding != "given" or limits.epsilon is None or limits.privacy == "off":
        return []
    if limits.scope == "round":
        once = decided.round_cost
        if once is None or once.epsilon <= limits.epsilon * (1 + 1e-9):
            return []
        return [f"the given gain spends epsilon {once.epsilon:.4g} in a round, and the budget is {limits.epsilon:g}"]
    if decided.affordable_rounds >= decided.num_rounds:
        return []
    return [
        f"the given gain has spent the run's budget of epsilon {limits.epsilon:g} after {decided.affordable_rounds} of"
        f" {decided.num_rounds} rounds: a run stops there"
    ]


def _judge_roughly(prediction: Prediction | None) -> list[str]:
    """Warnings where examples are clipped too, which the prediction does not know of."""
    share = 1.0 if prediction is None else prediction.clipped_fraction
    if prediction is None or share <= 0.02:
        return []
    return [
        f"about {100 * share:.2g} % of a device's gradient entries will be clipped, beside its examples: the samples"
        f" are wider than the temperature says, {prediction.variance_ratio:.3g} times the posterior's variance if"
        " examples were not clipped; use a larger clip or a smaller slope parameter"
    ]


def _shift_in_words(model: LinearGaussian, example_clip: float) -> str:
    """How far clipping examples moves the mean: the point where the clipped gradients cancel, from the data."""
    theta = model.posterior.mean[:1, None].copy()
    for _ in range(100):
        pull = model.clipped_gradient(theta, example_clip, slice(0, 1)).sum(axis=2)
        theta = theta - (model.posterior.covariance[0] @ pull[0].T).T[None]
        if np.abs(pull).max() < 1e-6 * example_clip:
            break
    shift = float(np.square(theta[0, 0] - model.posterior.mean[0]).sum())
    share = 100 * shift / float(np.trace(model.posterior.covariance[0]))
    return f"clipping examples at {example_clip:g} shifts the mean by {share:.2g} % of trace(Sigma), squared"


def _judge(prediction: Prediction | None, heat: float) -> list[str]:
    """Warnings where the prediction says more than the temperature does."""
    if prediction is None:
        return [
            "no prediction of the spread: the step or the problem is too large, or nearly every gradient is clipped"
        ]
    warnings = []
    if prediction.variance_ratio < 0.95 * min(heat, 1.0) or prediction.variance_ratio > 1.25 * max(heat, 1.0):
        warnings.append(
            f"predicted variance ratio {prediction.variance_ratio:.3g}, unlike the temperature {heat:.3g}: the step is"
            " too large, or local gradients are for this link; use a smaller step or slope parameter, or a larger clip"
        )
    if prediction.clipped_fraction > 0.02:
        share = 100 * prediction.clipped_fraction
        warnings.append(f"{share:.2g} % of gradient entries will be clipped: predictions are rough")
    return warnings


@dataclass(frozen=True)
class _Curvature:
    """What is known of the negative log posterior, and whether it is public."""

    smoothness: float | None
    convexity: float | None
    public: bool

    @classmethod
    def of(cls, model: Model, public_smoothness: float | None, public_convexity: float | None) -> _Curvature:
        """The model's curvature, or the public values in its place; public only if every value used is."""
        if public_smoothness is None and public_convexity is None:
            return cls(model.smoothness, model.convexity, model.public)
        if public_smoothness is None:
            raise InvalidSetting("public_convexity must come with public_smoothness, got it alone")
        smoothness = checks.positive("public_smoothness", public_smoothness)
        convexity = None if public_convexity is None else checks.positive("public_convexity", public_convexity)
        if convexity is not None and convexity > smoothness:
            raise InvalidSetting(
                f"public_convexity must not exceed public_smoothness {smoothness:g}, got {convexity:g}"
            )
        return cls(smoothness, convexity, True)


@dataclass(frozen=True)
class _Task:
    """What is given; each method answers one question about it."""

    model: Model
    uplink: Uplink
    limits: Limits
    curvature: _Curvature
    num_rounds: int
    active: Array | None

    def power_limit(self) -> float:
        """The gain that power allows."""
        return planned_power_limit(self.uplink, self.model.num_devices, self.model.dim, self.active)

    def privacy_limit(self) -> float:
        """The gain that the privacy budget allows."""
        often = self.num_rounds if self.active is None else int(self.active.sum(axis=0).max())
        return privacy_limited_gain(self.uplink, self.limits, self.model.num_devices, self.model.dim, often)

    def step_size(self, given: float | str, largest_gain: float) -> tuple[float, bool]:
        """The step, and whether it was computed from the curvature."""
        if given != "auto":
            return checks.positive("step_size", given), False
        if self.limits.langevin == "paper":
            return PAPER_STEP_SIZES[self.uplink.scheme], False
        num_devices = self.model.num_devices
        fewest = num_devices if self.active is None else int(self.active.sum(axis=1).min())
        smoothness, convexity = self.curvature.smoothness, self.curvature.convexity
        return auto_step_size(self.uplink, num_devices, largest_gain, smoothness, convexity, fewest), True

    def burn_in_factor(self, given: float | str, auto_step: float | None, num_fast: int, distance: float) -> float:
        """How much larger the first steps are; 1 unless asked for, or step and factor are both automatic."""
        if given != "auto":
            return checks.positive("burn_in_step_factor", given)
        if auto_step is None or self.curvature.smoothness is None:
            return 1.0
        num_devices = self.model.num_devices
        return auto_burn_in_factor(self.uplink, auto_step, num_fast, num_devices, distance, self.curvature.smoothness)

    def langevin_limit(self, step: float, factor: float, num_fast: int) -> Array:
        """Largest gain (1 or round, 1) that leaves enough noise; the same for all rounds unless devices come and go.

        Only the ideal uplink, whose noise is exact by definition, follows the larger steps of burn-in and cannot be
        switched off.
        """
        ideal = isinstance(self.uplink, Ideal)
        if self.limits.langevin == "off" and not ideal:
            return np.full((1, 1), np.inf)
        steps = np.full((1, 1), step)
        if ideal and factor != 1.0:
            steps = step * np.where(np.arange(self.num_rounds)[:, None] < num_fast, factor, 1.0)
        num_devices = self.model.num_devices
        num_active = np.full((1, 1), num_devices) if self.active is None else self.active.sum(axis=1, keepdims=True)
        limit = paper_gain if self.limits.langevin == "paper" else calibrated_gain
        return np.asarray(limit(self.uplink, steps, num_devices, num_active))

    def adaptive_gain(
        self, step: float, factor: float, num_fast: int, num_burn_in: int, caps: Array, static_gain: float
    ) -> Array:
        """Gains (round, 1) that spend the run's budget where the noise matters most."""
        if self.active is not None:
            raise InvalidSetting("allocation 'adaptive' needs all devices in all rounds; use 'static'")
        if self.curvature.smoothness is None:
            raise InvalidSetting("allocation 'adaptive' needs the smoothness of the model; give public_smoothness")
        limit = np.broadcast_to(caps, (self.num_rounds, 1))[:, 0]
        if np.isinf(static_gain):
            return np.asarray(limit[:, None])
        steps = step * np.where(np.arange(self.num_rounds) < num_fast, factor, 1.0)
        curvature = self.curvature.convexity or self.curvature.smoothness
        contraction = np.clip(1.0 - steps * self.uplink.slope * curvature, 0.0, 1.0)
        weights = noise_weights(steps, contraction, num_burn_in)

        budget, delta = self.limits.epsilon or 0.0, self.limits.run_delta

        def spent(gains: Array, scale: float) -> float:
            sent = [(scale * value, count * self.model.dim) for value, count in count_gains(gains)]
            return epsilon_of(event_of(self.uplink, sent, self.limits.neighbouring), delta)

        def allowed_scale(gains: Array) -> float:
            """By how much the gains may be multiplied: within the budget, and within 1 % of it, in few trials."""
            scale, safe = 1.0, 0.0
            for _ in range(8):
                epsilon = spent(gains, scale)
                if epsilon <= budget:
                    safe = max(safe, scale)
                    if epsilon > 0.99 * budget:
                        break
                scale *= min(4.0, (0.997 * budget / epsilon) ** 0.9) if epsilon > 0 else 4.0
            for _ in range(_MOST_TRIALS):  # not yet within the budget: down until it is
                if safe:
                    return safe
                scale *= 0.7
                safe = scale if spent(gains, scale) <= budget else 0.0
            raise nothing_allowed(budget, delta)

        return allocate(weights, limit, static_gain, allowed_scale)[:, None]

    def planned_gain(self, cap: Array, num_burn_in: int) -> Array:
        """What kept rounds are expected to use, (1 or round, dim)."""
        kept = self.num_rounds - num_burn_in
        varies = self.active is not None or len(cap) > 1
        fading = draw_planned_fading(self.uplink, kept if varies else 1, self.model.num_devices, self.model.dim)
        rounds = num_burn_in + np.arange(len(fading)) % kept
        active = None if self.active is None else self.active[rounds]
        caps = np.broadcast_to(cap if len(cap) == 1 else cap[rounds], (len(fading), self.model.dim))
        return realised_gain(self.uplink, caps, fading, active)

    def burn_in_needed(self, decided: Plan, distance: float, automatic: bool) -> int | None:
        """Burn-in that the sampler needs; with an automatic factor, at the factor that this very burn-in would have."""
        smoothness, convexity = self.curvature.smoothness, self.curvature.convexity
        if decided.slope is None or convexity is None:
            return None
        step, factor, num_fast = decided.step_size, decided.burn_in_step_factor, decided.num_fast
        num_devices, uplink = self.model.num_devices, self.uplink
        needed = rounds_needed(uplink, step, factor, num_fast, num_devices, distance, convexity)
        if automatic and smoothness is not None and needed > decided.num_burn_in:
            for _ in range(20):
                num_fast = needed // 2
                factor = auto_burn_in_factor(uplink, step, num_fast, num_devices, distance, smoothness)
                needed = rounds_needed(uplink, step, factor, num_fast, num_devices, distance, convexity)
        return needed

    def check_gain(self, given: float | Sequence[float] | Array) -> Array:
        """A gain in place of the planned one, (1 or round, 1 or dim), refused if power does not allow it."""
        cap = np.atleast_2d(checks.finite_array("gain", given))
        dim, uplink = self.model.dim, self.uplink
        if isinstance(uplink, Ideal):
            raise InvalidSetting("the ideal uplink takes no gain: its noise follows from its step; use analog")
        if (cap <= 0).any():
            raise InvalidSetting(f"gain must be positive, got {cap.min():g}")
        if cap.ndim != 2 or cap.shape[0] not in (1, self.num_rounds) or cap.shape[1] not in (1, dim):
            raise InvalidSetting(f"gain must broadcast to (round, dim) = {(self.num_rounds, dim)}, got {cap.shape}")
        if uplink.fading.constant and math.isfinite(uplink.power_limit):
            fading = uplink.fading.draw_checked(np.random.default_rng(0), 1, self.model.num_devices, dim)
            room = float(power_scale(uplink, np.broadcast_to(cap, (len(cap), dim)), fading, self.active).min())
            if room < 1 - 1e-12:
                raise InvalidSetting(
                    f"gain must not exceed the power limit {cap.max() * room:.6g} at {uplink.snr_db:g} dB,"
                    f" got {cap.max():.6g}"
                )
        return cap


def _check_active(active: Array | None, num_rounds: int, num_devices: int) -> Array | None:
    """Who transmits, as 0 and 1; None where all do, always."""
    if active is None:
        return None
    active = np.asarray(active, dtype=np.float64)
    if active.shape != (num_rounds, num_devices) or not np.isin(active, (0.0, 1.0)).all():
        shape = (num_rounds, num_devices)
        raise InvalidSetting(f"active must hold 0 and 1, (round, device) = {shape}; got shape {active.shape}")
    silent = np.flatnonzero(active.sum(axis=1) == 0)
    if silent.size:
        raise InvalidSetting(f"active must have at least one device in every round, got none in round {silent[0] + 1}")
    return None if active.all() else active
