"""Settings from public knowledge alone: sizes, and the scale of the features.

Every suggestion is tried: many plans are made with a quick estimate of the privacy limit, the best
is made again with the accountant, and it is returned only if nothing speaks against it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import ndtr
from flmc.models.model import Model
from flmc.planning import judgement
from flmc.planning.decision import Request, decide
from flmc.planning.judgement import clip_in_words
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.planning.privacy_cost import has_budget, privacy_limited_gain
from flmc.planning.search.privacy_estimate import estimate_gain, gain_estimator
from flmc.uplink.example_clipping import norm_shrink_factor, typical_shift_variance
from flmc.uplink.link import Link
from flmc.uplink.links import Linear, Probit, Sigmoid
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

# What is publicly known of a linear regression before anybody has seen its data.
#
# With N examples on K devices and standard normal features and residuals, the curvature of the
# negative log posterior is about N in every direction, and an entry of a device's gradient near the
# mode is normal with variance N/K: it is a sum of N/K products of a feature and a residual.


_WIDEST, _MOST_CLIPPED = 1.15, 0.015
"""Variance ratio and clipped share up to which a candidate counts, by public knowledge."""
_LARGEST_SHIFT = 0.17
"""Typical shift of the mean up to which a candidate counts: two thirds of what is warned of,
because data differ."""


class PublicLaw(NamedTuple):
    """What a chain samples, as far as public knowledge tells.

    Attributes
    ----------
    variance_ratio
        Variance of the samples over the posterior's.
    mean_shift
        Typical distance of the samples' mean from the posterior mean in the worst direction, in
        posterior standard deviations.
    clipped_fraction
        Share of a device's gradient entries beyond the clip.
    """

    variance_ratio: float
    mean_shift: float
    clipped_fraction: float

    @property
    def fits(self) -> bool:
        """Whether nothing speaks against it."""
        return (
            1 / _WIDEST <= self.variance_ratio <= _WIDEST
            and self.mean_shift <= _LARGEST_SHIFT
            and self.clipped_fraction <= _MOST_CLIPPED
        )

    @property
    def may_fit(self) -> bool:
        """Whether that of another number of rounds could fit: the shift of the mean and the clipped
        share are those of the uplink, however many rounds there are."""
        # An infinite shift says that the step was too large, which does depend on the rounds.
        shifted = _LARGEST_SHIFT < self.mean_shift < math.inf
        return not shifted and self.clipped_fraction <= _MOST_CLIPPED


class PublicModel(Model):
    """Linear regression of which only sizes are known: it can be planned for, not sampled.

    Parameters
    ----------
    num_samples, num_devices, dim
        Number of examples in all, of devices, and of entries.
    """

    public = True

    def __init__(self, num_samples: int, num_devices: int, dim: int) -> None:
        self.num_samples, self.num_devices, self.dim = num_samples, num_devices, dim
        # Of the Gram matrix of standard normal features, with a margin (Marchenko and Pastur).
        ratio = math.sqrt(dim / num_samples)
        self.smoothness = max(1.3, 1.1 * (1 + ratio) ** 2) * num_samples
        self.convexity = min(0.7, max(0.05, 0.9 * (1 - ratio) ** 2)) * num_samples

    @property
    def spread(self) -> float:
        """Standard deviation of an entry of a device's gradient near the mode."""
        return math.sqrt(self.num_samples / self.num_devices)

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        experiments
            Not used: there is one data set.
        """
        return np.zeros((*theta.shape[:-1], self.num_devices, self.dim))

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_clip, experiments
            Not used.
        """
        return self.gradient(theta, experiments)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Zero: nothing is known of the data.

        Parameters
        ----------
        theta
            Where, (experiment, chain, dim).
        example_norm, experiments
            Not used.
        """
        return self.gradient(theta, experiments)

    def law(self, plan: Plan) -> PublicLaw:
        r"""What the chain of a plan samples, from the link averaged over local gradients.

        With the averaged slope :math:`\bar\kappa` and the averaged variance :math:`\bar V` of the
        server's estimate the variance ratio is :math:`\eta\bar V/(\bar\kappa(2 - \eta\bar\kappa
        N))`. Local gradients cancel at the mode, mean symbols do not quite: what is left of their
        sum has in each of m entries the variance :math:`K r^2`, where :math:`r^2` is the variance
        of the mean symbol that no straight line explains. It moves the mean by :math:`\sqrt{m K
        r^2/N}/\bar\kappa` posterior standard deviations in the worst direction. Clipped examples
        move it as well.

        Parameters
        ----------
        plan
            A plan for this model.
        """
        uplink = plan.uplink
        gradient = self.spread * NODES
        symbol = uplink.mean_symbol(gradient)
        straight = float(symbol @ (WEIGHTS * NODES))
        bent = max(0.0, float(np.square(symbol) @ WEIGHTS) - straight**2)
        slope = straight / self.spread * uplink.example_shrink
        variance = self._estimate_variance(plan, uplink, gradient)
        step = plan.step_size
        outside = 2.0 * float(ndtr(np.array(-uplink.clip / self.spread)))
        rest = 2.0 - step * slope * self.num_samples
        if slope <= 0 or rest <= 0:
            return PublicLaw(math.inf, math.inf, outside)
        squared = self.num_devices * bent / self.num_samples / slope**2
        squared += typical_shift_variance(uplink.example_clip, uplink.example_norm, self.dim)
        shift = math.sqrt(self.dim * squared)
        return PublicLaw(step * variance / (slope * rest), shift, outside)

    def _estimate_variance(self, plan: Plan, uplink: Uplink, gradient: Array) -> float:
        """Variance of the server's estimate in kept rounds, over rounds and entries."""
        active = plan.expected.num_active
        each = float(uplink.symbol_variance(gradient) @ WEIGHTS)
        noise = uplink.noise_power / np.square(plan.planned_gain) + each * active
        return float(np.mean(np.square(plan.num_devices / active) * noise))


MOST_ROUNDS = 100_000
"""Rounds beyond which nothing is suggested."""
_KEPT = 60
"""Number of kept rounds that is suggested."""
_FEWEST_BURN_IN = 40
"""Rounds of burn-in that are suggested at least."""
_STEEPNESS = (0.07, 0.1, 0.14, 0.2, 0.28, 0.4)
"""Slope times the spread of local gradients that is tried: steeper links hide more and bend
more."""
_CLIPS = (3.0, 3.5, 4.5)
"""Clips that are tried, in standard deviations of a local gradient."""
_WIDE_CLIPS = (3.5, 6.0)
"""The same where single examples are hidden, which the device's clip has no part in."""
_EXAMPLE_NORMS = (2.1, 2.5, 3.0, 3.5)
"""Bounds of an example's norm that are tried, over the root of the number of entries plus 2."""
_MOST_SUGGESTIONS = 4
"""Candidates that are made again with the accountant."""
_MARGIN = 1.05
"""Rounds of burn-in over those needed, because what is needed is a rough estimate."""


@dataclass(frozen=True)
class Suggestion:
    """Settings that fit, with the plan that they give.

    Attributes
    ----------
    uplink, request
        The uplink, and the other settings of the plan, public curvature among them.
    plan
        The plan that they give, within the exact budget.
    model
        What is publicly known.
    """

    uplink: Uplink
    request: Request
    plan: Plan
    model: PublicModel

    @property
    def reasons(self) -> list[tuple[str, str]]:
        """A line of reason for each setting, by its name in words."""
        plan, uplink, spread = self.plan, self.uplink, self.model.spread
        law = self.model.law(plan)
        found = [
            (
                "clip",
                f"{uplink.clip:.4g}, {uplink.clip / spread:.3g} standard deviations of a local"
                " gradient near the mode",
            ),
            (
                "step size",
                f"{plan.step_size:.4g}, by itself: as large as stability, power and privacy allow"
                " with the right noise",
            ),
            (
                "rounds",
                f"{plan.num_rounds}, of which {plan.num_burn_in} burn-in, of which"
                f" {plan.rounds_needed} are needed",
            ),
            (
                "expected",
                f"variance ratio {law.variance_ratio:.3g}, mean off by {law.mean_shift:.2g}"
                f" posterior sd, {100 * law.clipped_fraction:.2g} % of entries clipped",
            ),
        ]
        if isinstance(uplink, Digital):
            text = f"slope {uplink.slope * spread:.2g} over the spread of local gradients"
            found.insert(0, ("link", f"{type(uplink.link).__name__.lower()}: {text}"))
        if uplink.clips_examples:
            text = f"{clip_in_words(uplink)}: leaves {uplink.example_shrink:.3f} of the gradient"
            found.append(("example clip", text))
        return found


@dataclass(frozen=True)
class Search:
    """What settings are looked for.

    Attributes
    ----------
    uplink, limits
        The uplink with what is fixed of it, and the limits.
    num_samples, num_devices, dim
        Number of examples in all, of devices, and of entries.
    request
        The other settings, with what is fixed of them.
    fixed
        Names of what is fixed: ``link``, ``slope_parameter``, ``clip``, ``example_bound``,
        ``num_rounds``, ``num_burn_in``. A step, a gain, a start and a factor of early steps are
        fixed by the request itself.
    """

    uplink: Uplink
    limits: Limits
    num_samples: int
    num_devices: int
    dim: int
    request: Request = field(default_factory=Request)
    fixed: frozenset[str] = frozenset()
    correction: float = 1.0
    """Factor of the estimated privacy limit: what the accountant allowed over what was estimated,
    where that is known."""

    @cached_property
    def model(self) -> PublicModel:
        """What is publicly known."""
        return PublicModel(self.num_samples, self.num_devices, self.dim)

    def suggestions(self) -> Iterator[Suggestion]:
        """Settings that fit, those that need the fewest rounds first; none where none are found."""
        for trial in self.calibrated.ranked[:_MOST_SUGGESTIONS]:
            found = self.calibrated._verified(trial)
            if found is not None:
                yield found

    @cached_property
    def calibrated(self) -> Search:
        """The search with its estimate corrected by what the accountant allows the best trial."""
        best = self.ranked[:1]
        if not best or not has_budget(self.uplink, self.limits):
            return self
        uplink, rounds = best[0].uplink, best[0].num_rounds
        sizes = (self.num_devices, self.dim, rounds)
        guess = estimate_gain(uplink, self.limits, *sizes)
        if best[0].binding == "power" and self.correction * guess > 1.3 * best[0].gain_limits.power:
            return self  # the accountant would not change what decides
        exact = privacy_limited_gain(uplink, self.limits, *sizes)
        return replace(self, correction=0.999 * exact / guess)

    @cached_property
    def ranked(self) -> list[Plan]:
        """Plans that fit by the estimate of the privacy limit, those with the fewest rounds
        first."""
        tried = (self.settle(uplink) for uplink in self.uplinks())
        fitting = [plan for plan in tried if plan is not None]
        return sorted(fitting, key=lambda plan: (plan.num_rounds, plan.rounds_needed))

    def uplinks(self) -> Iterator[Uplink]:
        """Uplinks that are tried: what is fixed stays as it is."""
        spread, example = self.model.spread, self.limits.neighbouring == "example"
        clips = [factor * spread for factor in (_WIDE_CLIPS if example else _CLIPS)]
        clips = [self.uplink.clip] if "clip" in self.fixed else clips
        examples = self._examples_bounded() if example else [self.uplink]
        for clip, bounded in itertools.product(clips, examples):
            chosen = replace(bounded, clip=clip)
            if isinstance(chosen, Digital):
                yield from (replace(chosen, link=link) for link in self._links(chosen.link, clip))
            else:
                yield chosen

    def _examples_bounded(self) -> list[Uplink]:
        """Uplinks with the bounds of single examples that are tried, unless one is given: of their
        norms, which costs less than bounds of their entries."""
        if "example_bound" in self.fixed:
            return [self.uplink]
        norms = [factor * math.sqrt(self.dim + 2.0) for factor in _EXAMPLE_NORMS]
        left = [norm_shrink_factor(norm, self.dim) for norm in norms]
        return [
            replace(self.uplink, example_clip=None, example_norm=norm, example_shrink=share)
            for norm, share in zip(norms, left, strict=True)
        ]

    def _links(self, given: Link, clip: float) -> Iterator[Link]:
        """Links that are tried at a clip: of the family that is fixed, else sigmoid and linear."""
        family = isinstance(given, Sigmoid | Probit | Linear)
        if "slope_parameter" in self.fixed or ("link" in self.fixed and not family):
            yield given
            return
        kinds = [type(given)] if "link" in self.fixed else [Sigmoid, Linear]
        for steepness in _STEEPNESS:
            slope = steepness / self.model.spread
            for kind in kinds:
                if kind is Sigmoid:
                    yield Sigmoid(2.0 * slope)
                elif kind is Probit:
                    yield Probit(slope * math.sqrt(math.pi / 2))
                elif slope * clip <= 1.0:
                    yield Linear(slope * clip)
        if Linear in kinds:
            yield Linear()

    def settle(self, uplink: Uplink) -> Plan | None:
        """Plan with as many rounds as it needs itself, by the estimate of the privacy limit; None
        where nothing fits.

        Under a budget of the run more rounds leave a smaller gain, which needs a smaller step,
        which needs more rounds: the fixed point, if there is one.

        Parameters
        ----------
        uplink
            What is tried.
        """
        rounds = self.request.num_rounds if "num_rounds" in self.fixed else _FEWEST_BURN_IN + _KEPT
        try:
            estimate = gain_estimator(uplink, self.limits, self.num_devices, self.dim)
        except InvalidSetting:
            return None
        for _ in range(40):
            plan = self._plan(uplink, rounds, estimate)
            if plan is None:
                return None
            law = self.model.law(plan)
            if self._fits(plan, law):
                return plan
            if not law.may_fit:
                return None
            wanted = self._rounds_for(plan)
            if "num_rounds" in self.fixed or wanted <= rounds or wanted > MOST_ROUNDS:
                return None
            rounds = wanted
        return None

    def _rounds_for(self, plan: Plan) -> int:
        """Rounds that a plan needs, kept ones included, with a margin."""
        needed = max(_FEWEST_BURN_IN, math.ceil(_MARGIN * (plan.rounds_needed or 0)))
        if "num_burn_in" in self.fixed:
            needed = max(needed, int(self.request.num_burn_in))
        return needed + _KEPT

    def _fits(self, plan: Plan, law: PublicLaw) -> bool:
        """Whether nothing speaks against a plan, as far as public knowledge tells."""
        heat, needed = plan.temperature, plan.rounds_needed
        if heat is None or needed is None or abs(heat - 1.0) > judgement.HEAT_TOLERANCE:
            return False
        return needed <= plan.num_burn_in and law.fits

    def _asked(self, rounds: int, burn_in: int | str) -> Request:
        """The request with so many rounds, and with public curvature."""
        smoothness = self.request.public_smoothness or self.model.smoothness or 0.0
        convexity = self.request.public_convexity or self.model.convexity or 0.0
        return replace(
            self.request,
            num_rounds=rounds,
            num_burn_in=burn_in,
            public_smoothness=max(smoothness, convexity),
            public_convexity=min(smoothness, convexity),
        )

    def _plan(
        self, uplink: Uplink, rounds: int, estimate: Callable[[int], float] | None = None
    ) -> Plan | None:
        """Plan with this uplink and so many rounds, with an estimate of the privacy limit in place
        of the accountant's where one is given; None where no plan can be made."""
        burn_in = self.request.num_burn_in
        if "num_burn_in" not in self.fixed:
            burn_in = "auto" if "num_rounds" in self.fixed else rounds - _KEPT
        asked = self._asked(rounds, burn_in)
        try:
            guess = None if estimate is None else self.correction * estimate(rounds)
            return decide(self.model, uplink, self.limits, asked, guess)
        except InvalidSetting:
            return None

    def _verified(self, trial: Plan) -> Suggestion | None:
        """The plan made again with the accountant, with a few more rounds if it needs them."""
        rounds = trial.num_rounds
        for _ in range(3):
            plan = self._plan(trial.uplink, rounds)
            if plan is not None and self._fits(plan, self.model.law(plan)):
                asked = self._asked(rounds, plan.num_burn_in)
                return Suggestion(trial.uplink, asked, plan, self.model)
            if plan is None or "num_rounds" in self.fixed:
                return None
            rounds = max(math.ceil(1.05 * rounds), self._rounds_for(plan))
        return None
