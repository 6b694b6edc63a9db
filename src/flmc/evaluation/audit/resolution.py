r"""The resolution of an audit: the smallest understatement of epsilon by the accountant that the
attack will detect, stated before it starts.

If every gain were larger by a factor g than the accountant assumes, the two neighbouring data sets
would have the epsilon :math:`f\epsilon` with some f > 1, and the claimed epsilon would be
understated by f. The law of the privacy loss gives the rates of right and false alarms at a
threshold; the number of trials gives the confidence bounds of both rates, and how these scatter.
From both follows the probability that the attack's lower bound exceeds the claim. The threshold at
which the smallest understatement is detected is stated with it: the attack tries this threshold
beside one that it finds by itself."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import ndtr
from flmc.evaluation.audit.bounds import CONFIDENCE, error_of_a_rate, rates_above, rates_below
from flmc.evaluation.audit.likelihood_ratio import loss_law
from flmc.evaluation.audit.scene import Scene, canary, neighbour

SEEN_WITH = 0.95
"""Probability with which an audit must detect an understatement of epsilon that it claims to
detect."""
_LOUDEST = 100.0
"""Upper end of the search for the factor of all gains with which the audit detects that the
accountant understates epsilon."""
_SHOWN = (1.02, 1.05, 1.1, 1.2, 1.5, 2.0, 4.0)
"""Factors of all gains for which the audit's probability of detection is reported."""
_THRESHOLDS = 200
"""Number of thresholds of the privacy loss that are compared, at rates of false alarms from 1e-6 to
0.9."""


class Power(NamedTuple):
    """Probability that an audit notices when all gains are louder by some factor than the
    accountant assumes.

    Attributes
    ----------
    gain_factor
        Factor of all gains.
    epsilon_factor
        Epsilon of the attacked neighbours at those gains, over the epsilon that is claimed.
    probability
        Probability that the audit shows that the claimed epsilon is too small.
    """

    gain_factor: float
    epsilon_factor: float
    probability: float


@dataclass(frozen=True)
class Resolution:
    """The smallest understatement of epsilon that an audit detects with probability ``seen_with``:
    ``epsilon_factor`` is the true epsilon over the claimed one, ``gain_factor`` the factor of all
    gains that raises epsilon that much; both are NaN where the audit detects no understatement.
    ``powers`` has the probabilities of detection for some factors of the gains."""

    epsilon_factor: float
    gain_factor: float
    powers: tuple[Power, ...]
    threshold: float
    """Log likelihood ratio above which the attack guesses that it sees the first of two
    neighbouring worlds."""
    seen_with: float = SEEN_WITH

    def to_document(self) -> dict[str, Any]:
        """The fields but ``threshold`` by name, as plain values for JSON; both factors are null
        where the audit detects no understatement of epsilon."""
        known = not math.isnan(self.epsilon_factor)
        return {
            "epsilon_factor": self.epsilon_factor if known else None,
            "gain_factor": self.gain_factor if known else None,
            "seen_with": self.seen_with,
            "powers": [each._asdict() for each in self.powers],
        }

    def __str__(self) -> str:
        if math.isnan(self.epsilon_factor):
            return f"no louder gains will be seen with {100 * self.seen_with:g} %"
        return (
            f"an epsilon understated by more than {_percent(self.epsilon_factor)} (gains louder by"
            f" {_percent(self.gain_factor)}) will be seen with {100 * self.seen_with:g} %"
        )


def _percent(factor: float) -> str:
    return f"{math.ceil(1000 * (factor - 1)) / 10:.3g} %"


def expected_resolution(
    scene: Scene, delta: float, trials: int, claimed: float, confidence: float = CONFIDENCE
) -> Resolution:
    """The smallest understatement of epsilon that an audit of a scene will detect with ``trials``
    transmissions in each world, where the accountant claims the epsilon ``claimed`` at ``delta``
    (infinite: it claims none); the audit's lower bound holds with probability ``confidence``."""
    test = _AuditTest(scene, delta, trials, claimed, error_of_a_rate(confidence, thresholds=2))
    _, threshold = test.best(1.0)
    if not 0 < claimed < math.inf:
        return Resolution(math.nan, math.nan, (), threshold)
    low, high = (
        1.0,
        next((each for each in (*_SHOWN, _LOUDEST) if test.best(each)[0] >= SEEN_WITH), math.inf),
    )
    # Bisection in the logarithm of the gain's factor: the probability of detection grows with the
    # factor.
    while math.isfinite(high) and high / low > 1.001:
        middle = math.sqrt(low * high)
        low, high = (low, middle) if test.best(middle)[0] >= SEEN_WITH else (middle, high)
    if math.isfinite(high):
        threshold = test.best(high)[1]
    powers = tuple(
        Power(factor, test.epsilon(factor) / claimed, test.power(factor, threshold))
        for factor in _SHOWN
    )
    if math.isinf(high):
        return Resolution(math.nan, math.nan, powers, threshold)
    return Resolution(test.epsilon(high) / claimed, high, powers, threshold)


@dataclass(frozen=True)
class _AuditTest:
    """The statistical test of an audit: does the attack's lower bound of epsilon exceed the
    ``claimed`` one? It makes ``trials`` transmissions in each world, and the confidence bound of
    each rate of alarms may fail with probability ``error``."""

    scene: Scene
    delta: float
    trials: int
    claimed: float
    error: float

    def epsilon(self, factor: float) -> float:
        """Epsilon that the two neighbouring worlds really have if all gains are ``factor`` times
        what the accountant assumes."""
        scene = self.scene.louder(factor)
        return loss_law(scene, canary(scene), neighbour(scene)).epsilon(self.delta)

    def best(self, factor: float) -> tuple[float, float]:
        """Largest probability with which the audit shows that the claimed epsilon is too small, if
        all gains are ``factor`` times what the accountant assumes; and the threshold of the privacy
        loss, above which the attack guesses the first world, that reaches this probability. Where
        the claimed epsilon is infinite, the threshold is that of the largest expected lower bound
        of epsilon."""
        losses, right, false = self._rates(factor)
        places = np.searchsorted(-false, -np.geomspace(1e-6, 0.9, _THRESHOLDS))
        chosen = np.unique(places.clip(0, len(losses) - 1))
        bounds, scores = self._bounds(right[chosen], false[chosen])
        best = int(np.argmax(scores if math.isfinite(self.claimed) else bounds))
        return float(ndtr(scores[best : best + 1])[0]), float(losses[chosen[best]])

    def power(self, factor: float, threshold: float) -> float:
        """Probability with which the audit shows that the claimed epsilon is too small, if all
        gains are ``factor`` times what the accountant assumes, and the attack guesses the first
        world where the privacy loss is above ``threshold``."""
        losses, right, false = self._rates(factor)
        place = min(int(np.searchsorted(losses, threshold)), len(losses) - 1)
        _, scores = self._bounds(right[place : place + 1], false[place : place + 1])
        return float(ndtr(scores)[0])

    def _rates(self, factor: float) -> tuple[Array, Array, Array]:
        """Three arrays (loss), if all gains are ``factor`` times what the accountant assumes: all
        values of the privacy loss, in ascending order, and for an alarm at losses of at least each
        value the rates of right alarms (in the first world) and of false alarms (in the second)."""
        law = loss_law(self.scene, canary(self.scene), neighbour(self.scene), factor)
        return law.losses, law.above_first, law.above_second

    def _bounds(self, right: Array, false: Array) -> tuple[Array, Array]:
        """Expected lower bounds of epsilon, and by how many standard deviations each exceeds the
        claimed epsilon, (threshold) each, for the rates of ``right`` and ``false`` alarms,
        (threshold) each."""
        at_least = rates_below(right * self.trials, self.trials, self.error) - self.delta
        at_most = rates_above(false * self.trials, self.trials, self.error)
        useful = at_least > 0
        at_least = np.where(useful, at_least, 1.0)
        bounds = np.where(useful, np.log(at_least / at_most), -np.inf)
        # Delta method: the counts of both rates scatter independently, and the bound is the
        # logarithm of a ratio.
        variance = right * (1 - right) / np.square(at_least)
        variance = variance + false * (1 - false) / np.square(at_most)
        spread = np.sqrt(np.maximum(variance, 1e-12) / self.trials)
        return bounds, np.asarray((bounds - self.claimed) / spread)
