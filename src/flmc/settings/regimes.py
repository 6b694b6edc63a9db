"""The map of regimes: for every SNR and every epsilon, which constraint decides the gain (power,
privacy, or the noise that the sampler needs), and whether analog transmission in place of digital,
or the other way round, would come closer to the posterior with the same effective step.

Many points of the map have plans with the same gain: where power decides, the gain does not depend
on epsilon; where privacy decides, not on the SNR; where the sampler's noise decides, on neither.
Predictions and privacy costs are computed once for each gain."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.errors import FlmcError
from flmc.models.model import Model
from flmc.planning.judgement import law_of
from flmc.planning.plans import Plan
from flmc.planning.prediction import Prediction
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_model, scheme_of
from flmc.settings.registered import SCHEMES
from flmc.settings.schema import Settings, merge

BINDING = ("power", "langevin", "privacy")
"""Names of the constraints that may decide the gain, in the order of the legend of the map of
regimes."""
LEVELS = (4, 8, 16, 32)
"""Numbers of cells along each axis (SNR and epsilon) of the maps of regimes that are computed one
after the other, from coarse to fine."""


@dataclass(frozen=True)
class Regime:
    """A plan at one SNR and one epsilon, in four values: the constraint that decides its gain,
    predicted variance, privacy cost, and whether analog transmission would be better."""

    binding: str
    """Name of the constraint that decides the gain; empty where no plan can be made."""
    variance_ratio: float
    """Predicted variance of the samples over the posterior's; NaN where nothing is predicted."""
    run_epsilon: float
    """Upper bound of the whole run's epsilon; NaN where it is not known."""
    analog_is_better: bool | None
    """Whether analog transmission with the same effective step is predicted to come closer to the
    posterior than digital; None where either is not predicted."""


UNKNOWN = Regime("", math.nan, math.nan, None)
"""The regime at an SNR and epsilon for which no plan can be made."""


@dataclass(frozen=True)
class RegimeMap:
    """A map of regimes: a grid with a column for each SNR, a row for each epsilon, and a regime in
    each cell."""

    snr_db: tuple[float, ...]
    """SNR in dB in the middle of every column."""
    epsilon: tuple[float, ...]
    """Privacy budget epsilon in the middle of every row."""
    regimes: tuple[tuple[Regime, ...], ...]
    """Regimes by row and column: a row for each epsilon, with a regime for each SNR."""

    def values(self, name: str) -> np.ndarray:
        """Values of the attribute ``name`` of all regimes of the map, as an array of floats with
        axes (epsilon, SNR). True is 1, False 0, and None NaN."""
        values = [[getattr(regime, name) for regime in row] for row in self.regimes]
        return np.array([[math.nan if v is None else float(v) for v in row] for row in values])


def regime_maps(
    settings: Settings,
    *,
    levels: tuple[int, ...] = LEVELS,
    stop: Callable[[], bool] = lambda: False,
) -> Iterator[RegimeMap]:
    """Maps of regimes, each finer than the one before, until ``stop`` returns True. They reach from
    -10 to 40 dB and from epsilon 0.1 to 100, or farther to include the SNR and epsilon of the
    settings; ``levels`` are the numbers of cells along each axis.

    A gain in the settings is ignored, because with it no constraint would decide the gain."""
    points = _Points(settings)
    low, high = min(-10.0, settings.snr_db - 5), max(40.0, settings.snr_db + 5)
    least, most = min(0.1, settings.epsilon / 2), max(100.0, settings.epsilon * 2)
    for level in levels:
        # Middles of the cells, evenly spaced in decibels and in the logarithm of epsilon.
        shares = (np.arange(level) + 0.5) / level
        columns = [float(low + share * (high - low)) for share in shares]
        rows = [float(least * (most / least) ** share) for share in shares]
        regimes = []
        for epsilon in rows:
            row = []
            for snr_db in columns:
                if stop():
                    return
                row.append(points.at(snr_db, epsilon))
            regimes.append(tuple(row))
        yield RegimeMap(tuple(columns), tuple(rows), tuple(regimes))


def plan_other_scheme(settings: Settings, plan: Plan, model: Model) -> Plan | None:
    """Analog plan with the same effective step if ``plan`` is digital, or a digital one if it is
    analog, without prediction and findings. None where no such plan can be made, or where ``plan``
    has no effective step or a scheme without a channel.

    Examples
    --------
    >>> from flmc.settings.assembly import assemble
    >>> from flmc.settings.regimes import plan_other_scheme
    >>> from flmc.settings.schema import merge
    >>> problem = assemble(merge({}, {}))
    >>> digital = problem.plan(forecast=False)
    >>> analog = plan_other_scheme(problem.settings, digital, problem.model)
    >>> analog.uplink.scheme, analog.step_size == digital.effective_step_size
    ('analog', True)
    """
    step, name = plan.effective_step_size, _other_scheme(settings)
    if name is None or step is None:
        return None
    left_out = {"gain", "link", "slope_parameter", "step_size"}
    given = settings.model_dump(exclude_unset=True, exclude=left_out)
    given |= {"scheme": name, "effective_step_size": step}
    try:
        return assemble(merge({}, given), model).plan(forecast=False)
    except FlmcError:  # no plan can be made with the other scheme
        return None


def _other_scheme(settings: Settings) -> str | None:
    """Name of the first registered scheme with random symbols if the settings' scheme has none, or
    without them if it has; None if the settings' scheme has no channel."""
    this = scheme_of(settings)
    others = (each for each in SCHEMES if not each.maker.noise_is_exact)
    names = (each.name for each in others if each.maker.randomised != this.randomised)
    return None if this.noise_is_exact else next(names, None)


class _Points:
    """Computes the regime at single points (SNR, epsilon) of the map; predictions and privacy costs
    are cached and shared by points whose plans have the same step and gain."""

    def __init__(self, settings: Settings) -> None:
        given = settings.model_dump(exclude_unset=True)
        given.pop("gain", None)
        self.given = given
        self.model: Model = make_model(merge({}, given))
        self.costs: dict[Any, float] = {}
        self.predictions: dict[Any, Prediction | None] = {}

    def at(self, snr_db: float, epsilon: float) -> Regime:
        """The regime at one SNR and epsilon; ``UNKNOWN`` where no plan can be made."""
        try:
            settings = merge({}, {**self.given, "snr_db": snr_db, "epsilon": epsilon})
            plan = assemble(settings, self.model).plan(forecast=False)
        except FlmcError:  # no plan can be made at this SNR and epsilon
            return UNKNOWN
        law = self._prediction(plan)
        return Regime(
            plan.binding,
            math.nan if law is None else law.variance_ratio,
            self._run_epsilon(plan),
            self._analog_is_better(settings, plan),
        )

    def _key(self, plan: Plan) -> Any:
        """Cache key of a plan: scheme, step and gains, on which its prediction and its privacy cost
        depend. With inexact channel estimates the power limit is part of the key, because it bounds
        the effect of their error."""
        uplink = plan.uplink
        gains = plan.planned_gain.tobytes(), plan.gain.tobytes()
        power = uplink.power_limit if uplink.estimated is not None else 0.0
        return uplink.scheme, plan.step_size, *gains, power

    def _prediction(self, plan: Plan) -> Prediction | None:
        """Predicted law of a plan's samples; None where it cannot be predicted. The result is
        cached."""
        key = self._key(plan)
        if key not in self.predictions:
            law = None if plan.temperature is None else law_of(plan, self.model)
            self.predictions[key] = law if isinstance(law, Prediction) else None
        return self.predictions[key]

    def _run_epsilon(self, plan: Plan) -> float:
        """Upper bound of the epsilon of a plan's whole run; NaN where it is not known. The result
        is cached."""
        key = self._key(plan)
        if key not in self.costs:
            cost = plan.run_cost
            self.costs[key] = math.nan if cost is None else cost.epsilon
        return self.costs[key]

    def _analog_is_better(self, settings: Settings, plan: Plan) -> bool | None:
        """Whether analog transmission is predicted to come closer to the posterior than digital
        with the same effective step; None where either is not predicted."""
        law = self._prediction(plan)
        other = None if law is None else plan_other_scheme(settings, plan, self.model)
        other_law = None if other is None else self._prediction(other)
        if law is None or other_law is None:
            return None
        if law.distance_squared is None or other_law.distance_squared is None:
            return None
        closer = other_law.distance_squared < law.distance_squared
        return closer if plan.uplink.randomised else not closer
