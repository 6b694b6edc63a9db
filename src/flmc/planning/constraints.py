"""The constraints of a plan: the largest gain (amplitude of a symbol at the receiver) by transmit
power, by the noise that the sampler needs and by the privacy budget; and what follows from these
for the sampler's step and the burn-in."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.planning.allocation import RunBudget, allocate, noise_weights
from flmc.planning.answer_step import answer_step_size
from flmc.planning.burn_in import auto_burn_in_factor, rounds_needed
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import chance_of, privacy_limited_gain
from flmc.planning.server_update import LANGEVIN, ServerUpdate
from flmc.planning.step_size import Curvature, auto_step_size
from flmc.planning.temperature import langevin_gain
from flmc.uplink.csi import bit_noise, response
from flmc.uplink.planned_channels import PlannedRounds, draw_planned_rounds
from flmc.uplink.power import (
    DrawnRounds,
    average_limited_gain,
    draw_rounds_for_power,
    planned_gain,
    planned_power_limit,
    power_limited_gain,
)
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import GivenDevices
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Constraints:
    """Model, uplink and limits that a plan is made for, with methods for the largest gain that each
    constraint allows and for the step and the burn-in that follow; costly values are cached."""

    model: Model
    uplink: Uplink
    limits: Limits
    curvature: Curvature
    num_rounds: int
    scheduler: Scheduler
    assumed_privacy_limit: float | None = None
    """Gain assumed for the largest that the privacy budget allows: a search's quick estimate, or
    the cap that both stages of a two-stage plan share; None: the privacy accountant computes it."""
    update: ServerUpdate = LANGEVIN
    """Server's update: what the server does with its estimate of the gradient in each round."""
    draw_at: str = "positions"
    """Where draws are taken: at ``positions`` of the chain or at ``midpoints``, with which an
    automatic step may be larger."""

    @property
    def step_factor(self) -> float:
        """Factor c such that chains move under the server's update as under Langevin's update with
        c times the step; 1 where the update declares none, so that the true factor is not known."""
        return self.update.step_factor or 1.0

    @cached_property
    def rounds(self) -> PlannedRounds | None:
        """Rounds drawn with a fixed seed, whose path gains and devices the plan is made for, where
        path gains decide which devices transmit; else None."""
        if not self.scheduler.by_channel:
            return None
        sizes = (self.num_rounds, self.model.num_devices, self.model.dim)
        return draw_planned_rounds(self.scheduler, self.uplink.known_fading, *sizes)

    @cached_property
    def active(self) -> Array | None:
        """Which devices are expected to transmit, (round, device) with 1 or 0; None: every device
        in every round. Where path gains decide who transmits, the rows are rounds drawn at random.
        """
        if self.rounds is not None:
            return self.rounds.active
        return self.scheduler.draw_planned(self.num_rounds, self.model.num_devices)

    @cached_property
    def num_active(self) -> Array:
        """Number of devices expected to transmit in each round, (round, 1); (1, 1) where every
        device transmits in every round."""
        if self.active is None:
            return np.full((1, 1), self.model.num_devices)
        return np.asarray(self.active.sum(axis=1, keepdims=True))

    @property
    def _published_step_size(self) -> float:
        """Step size that the paper behind the uplink's scheme prints; raises ``InvalidSetting``
        where there is none."""
        if self.uplink.published_step_size is None:
            raise InvalidSetting(
                f"langevin 'paper' has no step for the {self.uplink.scheme} scheme: give step_size"
            )
        return self.uplink.published_step_size

    @cached_property
    def power_limit(self) -> float:
        """Largest gain that the transmit power allows; where path gains vary from round to round,
        the gain that it allows in nine of ten drawn rounds."""
        # With "lower" the quantile is the limit of a round that was drawn, not an interpolation
        # between two of them.
        if self.rounds is not None:
            return float(np.quantile(self.power_gains, 0.1, method="lower"))
        sizes = (self.model.num_devices, self.model.dim)
        each = planned_power_limit(self.uplink, *sizes, self.active, num_rounds=self.num_rounds)
        return min(each, self.average_limit)

    @cached_property
    def average_limit(self) -> float:
        """Largest gain at which every device keeps its limit of the mean power over all rounds, on
        drawn channels; infinite without such a limit."""
        if self.uplink.average_snr_db is None:
            return math.inf
        return average_limited_gain(self.uplink, self.rounds_for_power)

    @cached_property
    def rounds_for_power(self) -> DrawnRounds:
        """Rounds drawn at random (path gains and transmitting devices), over which a device's power
        is averaged for the long-term power limit."""
        if self.rounds is None:
            sizes = (self.model.num_devices, self.model.dim)
            return draw_rounds_for_power(self.uplink, *sizes, self.active, self.num_rounds)
        drawn, independent = self.rounds, self.uplink.known_fading.independent
        # Skipped rounds count in the mean power too. Where rounds are independent, all drawn rounds
        # together stand for one run.
        length = drawn.num_drawn if independent else self.num_rounds
        return DrawnRounds(drawn.fading, drawn.active, drawn.numbers, length)

    @cached_property
    def power_gains(self) -> Array:
        """Largest gain that the transmit power allows in each drawn round, (round, 1), where path
        gains decide who transmits; else ``power_limit`` as an array (1, 1)."""
        if self.rounds is None:
            return np.full((1, 1), self.power_limit)
        each = power_limited_gain(self.uplink, self.rounds.fading, self.rounds.active)[:, None]
        return np.asarray(np.minimum(each, self.average_limit))

    @cached_property
    def privacy_limit(self) -> float:
        """Largest gain, the same in all rounds, that the privacy budget allows; infinite without a
        budget."""
        if self.assumed_privacy_limit is not None:
            return self.assumed_privacy_limit
        num_devices = self.model.num_devices
        chance = chance_of(self.uplink, self.scheduler, num_devices)
        often = self.scheduler.most_rounds(self.num_rounds, num_devices)
        return privacy_limited_gain(
            self.uplink, self.limits, num_devices, self.model.dim, often, chance
        )

    @cached_property
    def _variances(self) -> dict[float, float]:
        """Cache of :meth:`estimate_variance`, the noise variance of the server's gradient
        estimate, by step size: the searches for the burn-in factor and for the length of the
        burn-in ask for the same values."""
        return {}

    def step_size(self, given: float | str, largest_gain: float) -> tuple[float, bool]:
        """Step of the sampler, and whether it was computed from the curvature.

        ``given`` is a step, or ``"auto"`` for the automatic one (the paper's if the Langevin limit
        is the paper's). ``largest_gain`` is what power and privacy allow, or the gain that the user
        gave; where rounds are drawn, each round's own limit takes its place."""
        if given != "auto":
            return checks.positive("step_size", given), False
        heat = self.update.heat
        if heat is None:
            raise InvalidSetting(
                "step_size must be given, because nothing is known of what the server's update"
                f" {type(self.update).__name__} samples (it declares no step_factor); got 'auto'"
            )
        if self.limits.langevin == "paper":
            return self._published_step_size, False
        num_devices = self.model.num_devices
        smoothness, convexity = self.curvature.smoothness, self.curvature.convexity
        gain: Array | float = largest_gain
        # Where rounds are drawn, the largest gain of each round replaces the single largest gain.
        if self.rounds is not None:
            gain = np.minimum(self.power_gains, self.privacy_limit)
        langevin = auto_step_size(
            self.uplink,
            num_devices,
            gain,
            smoothness,
            convexity,
            self.num_active,
            self.scheduler,
            midpoints=self.draw_at == "midpoints",
        )
        return langevin / heat, True

    def answer_step_size(self, num_kept: int, given: Array | None) -> float:
        """Automatic step of a run for an answer, of which ``num_kept`` rounds are kept; ``given``
        is the gain that the user gave, None: the plan decides it. Raises ``InvalidSetting`` if the
        smoothness is not known."""
        smoothness, convexity = self.curvature.smoothness, self.curvature.convexity
        if smoothness is None:
            raise InvalidSetting(
                "step_size 'auto' needs the smoothness L of the model, got none: give smoothness or"
                " a step_size"
            )
        convexity = smoothness if convexity is None else convexity
        slope = response(self.uplink, self.model.num_devices, self.scheduler)
        # Without a Langevin limit the noise of an estimate does not depend on the step, so any
        # step, such as 1, will do.
        noise = self.estimate_variance(1.0, given)
        effective = answer_step_size(
            self.model, self.uplink, slope, noise, smoothness, convexity, num_kept
        )
        return effective / slope

    def estimate_variance(self, step: float, given: Array | None) -> float:
        """Variance of the noise in an entry of the server's gradient estimate, averaged over rounds
        and drawn channels; 0 for the ideal uplink, whose noise is always the one that the step
        calls for.

        ``given`` is a gain that the user gave; None: the gain that the constraints allow at this
        ``step``. A budget that is spent unevenly over rounds counts as if it were spent evenly."""
        uplink, num_devices = self.uplink, self.model.num_devices
        if uplink.noise_is_exact:
            return 0.0
        if given is None and step in self._variances:
            return self._variances[step]
        cap = given
        if cap is None:
            cap = np.minimum(self.langevin_limit(step, 1.0, 0), self.privacy_limit)
        rounds = range(self.num_rounds)
        if self.rounds is not None:
            hot, policy = step * (self.update.heat or 1.0), self.scheduler
            calibrated = langevin_gain(
                self.limits.langevin, uplink, hot, num_devices, self.num_active, policy
            )
            gains = np.minimum(np.minimum(cap, calibrated), self.power_gains)
        else:
            gains = planned_gain(uplink, cap, self.active, rounds, num_devices, self.model.dim)
        # On a random channel ``planned_gain`` may draw more channels than the plan has rounds, and
        # goes through these rounds several times: so do the numbers of active devices here.
        active = self.num_active[np.arange(len(gains)) % len(self.num_active)]
        noise = (
            uplink.noise_power / np.square(gains)
            + bit_noise(uplink, num_devices, self.scheduler) * active
        )
        # The estimate is scaled by K/K_a for absent devices, so its variance by the square.
        variance = float(np.mean(np.square(num_devices / active) * noise))
        return self._variances.setdefault(step, variance) if given is None else variance

    def burn_in_factor(
        self,
        given: float | str,
        auto_step: float | None,
        num_fast: int,
        distance: float,
        gain: Array | None,
    ) -> float:
        """Factor by which the steps of the first ``num_fast`` rounds are larger than those of later
        rounds.

        It is ``given`` if that is a number. If both the factor and the step are automatic, it is
        chosen for the ``distance`` that chains have to travel in an entry; else it is 1.
        ``auto_step`` is the automatic step (None: the user gave a step), ``gain`` a gain that the
        user gave."""
        if given != "auto":
            return checks.positive("burn_in_step_factor", given)
        if auto_step is None or self.curvature.smoothness is None:
            return 1.0
        noise = self.estimate_variance(auto_step, gain)
        num_devices, smoothness = self.model.num_devices, self.curvature.smoothness
        return auto_burn_in_factor(
            self.uplink,
            auto_step * self.step_factor,
            num_fast,
            num_devices,
            distance,
            smoothness,
            noise,
        )

    def langevin_limit(self, step: float, factor: float, num_fast: int) -> Array:
        """Largest gain (1 or round, 1) at which the received signal still has as much noise as the
        sampler needs; infinite where the Langevin limit is off. Where path gains decide who
        transmits, every drawn round has a gain that noise and power allow, and the limit is the
        largest of these.

        The ideal uplink's noise is exact by definition: for it the limit is never off, and follows
        the larger steps of burn-in (``factor`` times ``step`` in ``num_fast`` rounds)."""
        ideal = self.uplink.noise_is_exact
        if self.limits.langevin == "off" and not ideal:
            return np.full((1, 1), np.inf)
        heat = self.update.heat
        if heat is None:
            if ideal:
                raise InvalidSetting(
                    "the ideal uplink has exactly the noise that the sampler needs, and of the"
                    f" server's update {type(self.update).__name__} that is not known: use another"
                    " scheme"
                )
            return np.full((1, 1), np.inf)
        step = step * heat
        steps = np.full((1, 1), step)
        if ideal and factor != 1.0:
            steps = step * np.where(np.arange(self.num_rounds)[:, None] < num_fast, factor, 1.0)
        num_devices = self.model.num_devices
        num_active = self.num_active
        if not isinstance(self.scheduler, GivenDevices) and (num_active == num_active[0]).all():
            # With the same number of active devices in every round, one gain suits all rounds.
            num_active = num_active[:1]
        mode = "calibrated" if ideal and self.limits.langevin == "off" else self.limits.langevin
        gain = langevin_gain(mode, self.uplink, steps, num_devices, num_active, self.scheduler)
        if self.rounds is None:
            return gain
        # During a run each round has the gain that suits its own devices, and the limit must not
        # lower any of these gains: it is the largest of them over the drawn rounds.
        return np.full((1, 1), np.minimum(gain, self.power_gains).max())

    def cap(
        self, langevin: Array, power: float, privacy: float, steps: Array, num_burn_in: int
    ) -> Array:
        """Cap of the gain, (1 or round, 1): the smallest of the gains ``langevin``, ``power`` and
        ``privacy`` that the constraints allow; an adaptive allocation of the budget sets it for
        each round, by the steps ``steps`` (round). Raises ``InvalidSetting`` if nothing limits the
        gain.

        With a static allocation over a random channel every round has a power limit of its own, so
        only the long-term power limit enters the cap.
        """
        if self.limits.allocation == "adaptive":
            cap = self.adaptive_gain(steps, num_burn_in, np.minimum(langevin, power), privacy)
        else:
            constant = self.uplink.known_fading.constant
            cap = np.minimum(langevin, min(privacy, power if constant else self.average_limit))
        if not np.isfinite(np.minimum(cap, power)).all():
            raise InvalidSetting(
                "nothing limits the gain, neither power nor Langevin noise nor privacy: give a gain"
            )
        return cap

    def adaptive_gain(
        self, steps: Array, num_burn_in: int, caps: Array, static_gain: float
    ) -> Array:
        """Gains (round, 1) that spend the run's privacy budget unevenly: they are larger in rounds
        whose noise lasts longer in the kept rounds.

        ``static_gain`` is the constant gain that spends the budget (infinite: the gains are the
        caps), ``caps`` (1 or round, 1) holds the gains that the other constraints allow, and
        ``steps`` (round) the step of every round. Raises ``InvalidSetting`` unless all devices
        transmit in all rounds and the smoothness is known."""
        if not self.scheduler.everyone:
            raise InvalidSetting(
                "allocation 'adaptive' needs all devices in all rounds; use 'static'"
            )
        if self.curvature.smoothness is None:
            raise InvalidSetting(
                "allocation 'adaptive' needs the smoothness of the model; give public_smoothness"
            )
        limit = np.broadcast_to(caps, (self.num_rounds, 1))[:, 0]
        if np.isinf(static_gain):
            return np.asarray(limit[:, None])
        # The direction of least curvature forgets noise most slowly, so the weights are computed
        # for it.
        curvature = self.curvature.convexity or self.curvature.smoothness
        steps = steps * self.step_factor
        contraction = np.clip(
            1.0 - steps * response(self.uplink, self.model.num_devices, self.scheduler) * curvature,
            0.0,
            1.0,
        )
        weights = noise_weights(steps, contraction, num_burn_in)
        budget = RunBudget(self.uplink, self.limits, self.model.dim)
        return allocate(weights, limit, static_gain, budget.allowed_scale)[:, None]

    def burn_in_needed(
        self, decided: Plan, distance: float, given: Array | None, *, automatic: bool
    ) -> int | None:
        """Rounds of burn-in that the sampler needs; None where convexity or slope are not known.

        ``distance`` is the distance that chains have to travel in an entry, ``given`` a gain that
        the user gave. An ``automatic`` factor of early steps depends on the length of the burn-in:
        where the planned burn-in is too short, factor and length are solved for together."""
        smoothness, convexity = self.curvature.smoothness, self.curvature.convexity
        if decided.effective_step_size is None or convexity is None:
            return None
        factor, num_fast = decided.burn_in_step_factor, decided.num_fast
        step = decided.step_size * self.step_factor
        num_devices, uplink = self.model.num_devices, self.uplink
        needed = rounds_needed(uplink, step, factor, num_fast, num_devices, distance, convexity)
        if automatic and smoothness is not None and needed > decided.num_burn_in:
            # The factor depends on the length of the burn-in, and the length on the factor: the two
            # are iterated.
            noise = self.estimate_variance(decided.step_size, given)
            for _ in range(20):
                # Half of the burn-in has the larger step: the default of a plan.
                num_fast = needed // 2
                factor = auto_burn_in_factor(
                    uplink, step, num_fast, num_devices, distance, smoothness, noise
                )
                last, needed = (
                    needed,
                    rounds_needed(uplink, step, factor, num_fast, num_devices, distance, convexity),
                )
                if needed == last:
                    break
        return needed
