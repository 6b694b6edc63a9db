r"""An attack on our own uplink: an empirical lower bound on epsilon, beside the accountant's upper
bound.

Two worst-case neighbours transmit many times. In one world a device's gradients are at the clip,
with signs that change over rounds and entries without any period (so that random numbers which
repeat would show); in the other world they are the opposite. Both go through the package's own
roles of a round, with random numbers of the audit's own: the compiled engine and the streams of a
run are not attacked. The adversary knows the other devices' symbols and everything that is public,
and adds up the logarithms of the likelihood ratios. The threshold of the attack is chosen on one
part of the trials; on the rest, the rates of right and false alarms have Clopper-Pearson bounds,
and

.. math:: \epsilon \ge \ln\frac{\text{TPR}_{\text{low}} - \delta}{\text{FPR}_{\text{high}}}

holds with the stated confidence for any (epsilon, delta)-private mechanism, in either direction.
Above the accountant's bound it proves that something is broken; below, it proves nothing. Even if
the worlds can be told apart for certain, n trials prove no more than an epsilon of about ln(n)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.progress import Progress
from flmc.base.tables import Listing, Row, format_up
from flmc.planning.plans import Plan
from flmc.sampling.roles import Transmission, air, device
from flmc.uplink.power import finite_cap
from flmc.uplink.schemes import Digital
from flmc.uplink.uplink import Uplink

CONFIDENCE = 0.999
_TRIALS_AT_ONCE = 20_000
_SHARE_FOR_THRESHOLD = 0.2
_THRESHOLDS = 400


@dataclass(frozen=True)
class Scene:
    """What is attacked: an uplink with one gain for all rounds and entries, among some devices."""

    uplink: Uplink
    gain: float
    dim: int
    num_devices: int
    num_rounds: int

    @classmethod
    def of_plan(cls, plan: Plan, num_rounds: int) -> Scene:
        """A plan's uplink at the loudest cap of its gain; refused for neighbours that differ in an
        example."""
        if plan.limits.neighbouring != "device":
            raise InvalidSetting(
                "the audit attacks whole devices, and the plan's neighbouring is"
                f" {plan.limits.neighbouring!r}; make one with 'device'"
            )
        return cls(
            plan.uplink,
            float(finite_cap(plan.uplink, plan.gain).max()),
            plan.dim,
            plan.num_devices,
            num_rounds,
        )


def transmit(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    """Transmit over the real uplink, with ``gradient`` (round, entry) on the attacked device,
    number 0. Returns what is received (trial, round, entry), and the other devices' part of it
    without noise."""
    uplink = scene.uplink
    sizes = (scene.num_rounds, scene.num_devices, scene.dim)
    local = np.empty(sizes)
    local[:, 0] = gradient
    # The adversary knows the data of the other devices, so any fixed gradients will do for them.
    if scene.num_devices > 1:
        others = np.linspace(-1.0, 1.0, (scene.num_devices - 1) * scene.dim).reshape(-1, scene.dim)
        local[:, 1:] = uplink.clip * others
    # Every trial has the same gradients, but random numbers of its own: what follows from the
    # gradients alone is computed once for all trials.
    uniform = rng.random((trials, *sizes)) if uplink.random_bits else None
    fading = uplink.fading.draw_checked(rng, range(scene.num_rounds), scene.num_devices, scene.dim)
    sent = device(
        local, uniform, uplink, np.full((scene.num_rounds, scene.dim), scene.gain), fading
    )
    noise = np.sqrt(uplink.noise_power) * rng.standard_normal((trials, scene.num_rounds, scene.dim))
    received = air(sent, fading, noise)
    others_sent = Transmission(sent.symbols[..., 1:, :], sent.amplitude[..., 1:, :])
    known = air(others_sent, fading[:, 1:], np.zeros_like(noise))
    return received, known


Transmit = Callable[[Scene, Array, int, np.random.Generator], tuple[Array, Array]]


def canary(scene: Scene) -> Array:
    """The attacked device's gradients (round, entry) in one world; the other has the opposite.
    Their signs are the Thue-Morse sequence, over rounds and over entries, which repeats nowhere for
    long."""
    by_round, by_entry = (_thue_morse(count) for count in (scene.num_rounds, scene.dim))
    return np.asarray(scene.uplink.clip * by_round[:, None] * by_entry)


def _thue_morse(count: int) -> Array:
    """The Thue-Morse sequence: +1 for numbers whose binary digits have an even sum, else -1."""
    return np.array([(-1.0) ** number.bit_count() for number in range(count)])


def log_ratio(scene: Scene, own: Array, gradient: Array) -> Array:
    r"""Logarithm of the likelihood ratio of what was received, one world against the other,
    (trial).

    ``own`` (trial, round, entry) is what was received less the part of the other devices. With
    :math:`u = 2 A y/N_0` every entry adds, with the sign of the gradient, :math:`\ln\frac{p_+ e^u +
    1 - p_+}{p_- e^u + 1 - p_-}` for a bit that is +1 with probability :math:`p_\pm` at plus and
    minus the clip, and :math:`\ell u` for an analog symbol."""
    uplink, sign = scene.uplink, np.sign(gradient)
    u = 2.0 * scene.gain * own / uplink.noise_power
    if isinstance(uplink, Digital):
        # A common factor exp(-(y + A)^2 / (2 N_0)) has cancelled; exp(u) itself could overflow.
        high, low = uplink.link.extremes(uplink.clip)
        plus = np.logaddexp(_log(high) + u, _log(1 - high)) - np.logaddexp(
            _log(low) + u, _log(1 - low)
        )
        return np.asarray((sign * plus).sum(axis=(1, 2)))
    return np.asarray((sign * uplink.clip * u).sum(axis=(1, 2)))


def _log(value: float) -> float:
    """Natural logarithm, minus infinity for 0."""
    return math.log(value) if value > 0 else -math.inf


@dataclass(frozen=True)
class Audit:
    """What an attack found: ``lower`` holds with probability ``confidence``, ``upper`` is the
    accountant's, and ``most`` is the largest lower bound that so many trials could have given."""

    num_rounds: int
    delta: float
    trials: int
    lower: float
    upper: float
    confidence: float
    most: float

    @property
    def broken(self) -> bool:
        """Whether the attack refutes the accountant."""
        return self.lower > self.upper

    def to_document(self) -> dict[str, Any]:
        """The audit as plain values, for JSON; an unbounded value is null."""
        upper = None if math.isinf(self.upper) else self.upper
        return {**vars(self), "upper": upper, "broken": self.broken}

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self) -> Listing:
        """The two bounds and the verdict, in rows."""
        verdict = Row("verdict", "not refuted", severity="good")
        if self.broken:
            verdict = Row(
                "verdict", "REFUTED: the mechanism leaks more than it states", severity="bad"
            )
        elif self.most <= self.upper:
            text = (
                f"cannot decide: {self.trials} trials can refute an epsilon below {self.most:.3g}"
                " only"
            )
            verdict = Row("verdict", text, severity="warning")
        title = (
            f"audit over {self.num_rounds} rounds, delta {self.delta:g}, {self.trials} trials in"
            " each world"
        )
        return Listing(
            title,
            (
                Row(
                    "epsilon is at least",
                    f"{self.lower:.4g} (with confidence {100 * self.confidence:g} %)",
                ),
                Row("epsilon is at most", f"{format_up(self.upper)} (accountant)"),
                verdict,
            ),
        )


def audit(
    scene: Scene,
    delta: float,
    trials: int,
    seed: int,
    *,
    transmit: Transmit = transmit,
    confidence: float = CONFIDENCE,
    progress: Progress | None = None,
) -> Audit:
    """Attack a scene: transmit in both worlds, and bound epsilon from how well they can be told
    apart.

    Parameters
    ----------
    scene, delta
        What is attacked, and the delta in (0, 1) at which epsilon is bounded.
    trials, seed
        Transmissions in each world, at least 1000, and the seed of their random numbers.
    transmit
        What transmits; tests put a broken one in its place.
    confidence, progress
        Probability with which the bound holds, and who is told of the finished fraction.
    """
    checks.between("delta", delta, 0.0, 1.0)
    if checks.at_least("trials", trials, 1) < 1000:
        raise InvalidSetting(
            f"trials must be at least 1000 for any bound worth its name, got {trials}"
        )
    checks.fits("the trials", 16.0 * trials)
    sent = [(scene.gain, scene.dim * scene.num_rounds)]
    upper = scene.uplink.privacy_event(sent).epsilon(delta)
    gradient = canary(scene)
    at_once = max(
        1, _TRIALS_AT_ONCE // max(1, scene.num_rounds * scene.num_devices * scene.dim // 100)
    )
    statistics: list[list[Array]] = [[], []]
    done = 0
    while done < trials:
        count = min(at_once, trials - done)
        for world, sign in enumerate((1.0, -1.0)):
            rng = np.random.default_rng([seed, world, done])
            received, known = transmit(scene, sign * gradient, count, rng)
            statistics[world].append(log_ratio(scene, received - known, gradient))
        done += count
        if progress is not None:
            progress(done / trials)
    first, second = (np.concatenate(parts) for parts in statistics)
    lower = lower_bound(first, second, delta, confidence)
    # Worlds that never overlap give the largest bound that so many trials can prove.
    apart = lower_bound(np.ones(trials), np.zeros(trials), delta, confidence)
    return Audit(scene.num_rounds, delta, trials, lower, upper, confidence, apart)


def lower_bound(first: Array, second: Array, delta: float, confidence: float = CONFIDENCE) -> float:
    """Lower confidence bound of epsilon, at least 0, from the statistic (trial) in two worlds,
    which tends to be larger in the first."""
    # Two directions with two rates each share the error probability (union bound).
    error = (1.0 - confidence) / 4
    split = int(_SHARE_FOR_THRESHOLD * len(first))
    found = 0.0
    for high, low in ((first, second), (-second, -first)):
        # From trials that are not counted: else the best of many thresholds flatters the rates.
        threshold = _best_threshold(high[:split], low[:split], delta, error)
        right, false = (int((part[split:] > threshold).sum()) for part in (high, low))
        count = len(first) - split
        at_least, at_most = _rate_below(right, count, error), _rate_above(false, count, error)
        if at_least > delta:
            found = max(found, math.log((at_least - delta) / at_most))
    return found


def _best_threshold(high: Array, low: Array, delta: float, error: float) -> float:
    """The threshold at which the bound would be about largest on these trials."""
    candidates = np.unique(
        np.quantile(np.concatenate([high, low]), np.linspace(0, 1, _THRESHOLDS + 2)[1:-1])
    )
    count = len(high)
    right = (count - np.searchsorted(np.sort(high), candidates, side="right")) / count
    false = (count - np.searchsorted(np.sort(low), candidates, side="right")) / count
    # About the half width of the confidence bounds; any threshold gives a valid bound.
    wide = math.sqrt(-2 * math.log(error) / count)
    value = np.maximum(right - delta - wide * np.sqrt(right * (1 - right)), 1e-12)
    rate = false + wide * np.sqrt(false * (1 - false)) + wide**2
    return float(candidates[int(np.argmax(np.log(value) - np.log(rate)))])


def _rate_below(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's lower bound of a rate, which fails with probability ``error`` at
    most."""
    from scipy.special import betaincinv  # imported in a tenth of the time of scipy.stats

    return 0.0 if hits == 0 else float(betaincinv(hits, count - hits + 1, error))


def _rate_above(hits: int, count: int, error: float) -> float:
    """Clopper and Pearson's upper bound of a rate, which fails with probability ``error`` at
    most."""
    from scipy.special import betainccinv

    return 1.0 if hits == count else float(betainccinv(hits + 1, count - hits, error))
