"""Law of the privacy loss of an attack: of the logarithm of the likelihood of the received signal
in the first world over that in the second, where the worlds are two neighbouring data sets.

A received entry y follows a mixture of normal distributions, and its loss is a function of y. The
law of the loss is put on a grid, and the laws of all entries are composed by Fourier transform. The
result is not a bound, as the accountant's are, but exact up to the grid: it predicts the epsilon
that an attack can show, and shares no code with the accountant."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.audit.scene import Scene, canary, example_reach, level_law, neighbour
from flmc.planning.plans import Plan
from flmc.uplink.power import finite_cap

_POINTS = 2**14
"""Number of values of the privacy loss in the grid on which its probabilities are computed."""
_SPREADS = 10.0
"""Distance of the ends of the grid of privacy losses from the nearer of the mean losses in the two
neighbouring worlds, in standard deviations of the loss."""
_NODES = np.linspace(-8.5, 8.5, 2001)
_WEIGHTS = np.exp(-0.5 * np.square(_NODES)) / np.exp(-0.5 * np.square(_NODES)).sum()
"""``_NODES`` are the points at which a standard normal distribution is discretised, ``_WEIGHTS``
their probabilities, which add up to 1."""


class AttackLossLaw(NamedTuple):
    """Law of the privacy loss, the log likelihood ratio of what is received between two
    neighbouring worlds (two data sets that differ in one device or one example), on a grid of
    values of the loss.

    Attributes
    ----------
    losses
        Values of the loss, in ascending order.
    first, second
        Probability of each loss, in the first world and in the second, (loss) each.
    """

    losses: Array
    first: Array
    second: Array

    @property
    def above_first(self) -> Array:
        """Probability that the privacy loss is at least ``losses[i]``, for every index i, when the
        adversary observes the first of the two neighbouring worlds, (loss)."""
        return _sums_from(self.first)

    @property
    def above_second(self) -> Array:
        """Probability that the privacy loss is at least ``losses[i]``, for every index i, when the
        adversary observes the second of the two neighbouring worlds, (loss)."""
        return _sums_from(self.second)

    def epsilon(self, delta: float) -> float:
        r"""Smallest epsilon >= 0 for which the two worlds are (epsilon,
        ``delta``)-indistinguishable, exact up to a step of the grid. It holds if the adversary
        knows the true gains, so that the loss L is the true log likelihood ratio.

        It solves :math:`\delta = E_1[(1 - e^{\epsilon - L})_+]`, a mean in the first world, which
        avoids the tiny probabilities of the second. Results above 600, which no number of trials
        can show, are too small."""
        positive = self.losses >= 0
        losses, masses = self.losses[positive], self.first[positive]
        if not losses.size:
            return 0.0
        scaled = np.exp(losses[0] - losses)
        deltas = _sums_from(masses) - _sums_from(masses * scaled) / np.maximum(scaled, 1e-300)
        beyond = np.flatnonzero((deltas > delta) & (scaled > 1e-290))
        return float(losses[beyond[-1]]) if beyond.size else 0.0


def _sums_from(masses: Array) -> Array:
    """For each index, the sum of ``masses`` (point) from that index to the last, as an array
    (point)."""
    return np.cumsum(masses[::-1])[::-1]


class _Entry(NamedTuple):
    """Law of the privacy loss of one transmitted entry: its possible losses, with the probability
    of each in the first and in the second of two neighbouring worlds."""

    losses: Array
    first: Array
    second: Array

    @property
    def moments(self) -> tuple[float, float, float]:
        """Mean of the privacy loss of the entry in the first of two neighbouring worlds, its mean
        in the second, and the larger of its two variances."""
        one, two = float(self.first @ self.losses), float(self.second @ self.losses)
        variances = (
            weights @ np.square(self.losses - mean)
            for weights, mean in ((self.first, one), (self.second, two))
        )
        return one, two, float(max(variances))


def loss_law(scene: Scene, first: Array, second: Array, louder: float = 1.0) -> AttackLossLaw:
    """Law of the privacy loss summed over all rounds and entries of a scene, if the attacked device
    has the gradients ``first`` in one world and ``second`` in the other, (round, entry) each. The
    device's symbols arrive with ``louder`` times the gains of the scene, while the adversary
    computes the loss with the scene's gains."""
    uplink = scene.uplink
    gains = scene.gains / math.sqrt(uplink.noise_power)
    one, two = uplink.clipped(first), uplink.clipped(second)
    levels = uplink.symbol_format.levels
    make: Callable[..., _Entry] = _value
    if levels is not None:
        make = _bit if uplink.symbol_format.kind == "bits" else partial(_level, levels)
    worlds = [row for each in (one, two) for row in _rows(level_law(uplink, each), each)]
    # Entries with equal gains and symbol laws are computed once. They are compared after rounding
    # to 12 digits, because equal ones may differ in the last bits.
    kinds = np.stack([gains.ravel(), *worlds])
    kinds, counts = np.unique(kinds.round(12), axis=1, return_counts=True)
    return _composed(
        [(make(louder, *kind), int(count)) for kind, count in zip(kinds.T, counts, strict=True)]
    )


def _rows(law: Array | None, clipped: Array) -> list[Array]:
    """Numbers that fix the law of each entry's symbol in one of two neighbouring worlds, as flat
    arrays with a value for each entry. For unquantised symbols (``law`` is None) it is one array,
    the clipped values; else the probabilities of all levels but the first, which follows from the
    rest."""
    if law is None:
        return [clipped.ravel()]
    return [law[..., level].ravel() for level in range(1, law.shape[-1])]


def _bit(louder: float, gain: float, high: float, low: float) -> _Entry:
    """Law of the privacy loss of an entry that sends one bit under noise of variance 1; the bit is
    +1 with probability ``high`` in the first of two neighbouring worlds and ``low`` in the second.
    The adversary assumes the amplitude ``gain``, and the bit arrives ``louder`` times as large."""
    received = np.concatenate([louder * gain + _NODES, -louder * gain + _NODES])
    u = 2 * gain * received
    losses = np.logaddexp(_log(high) + u, _log(1 - high))
    losses -= np.logaddexp(_log(low) + u, _log(1 - low))
    return _Entry(
        losses, *(np.concatenate([p * _WEIGHTS, (1 - p) * _WEIGHTS]) for p in (high, low))
    )


def _level(levels: tuple[float, ...], louder: float, gain: float, *chances: float) -> _Entry:
    """Law of the privacy loss of an entry that sends one of several ``levels`` under noise of
    variance 1. ``chances`` are the probabilities of all levels but the first, in the first of two
    neighbouring worlds and then in the second. The adversary assumes the amplitude ``gain``, and
    the symbol arrives ``louder`` times as large."""
    half = len(levels) - 1
    one, two = (np.array([1.0 - sum(p), *p]) for p in (chances[:half], chances[half:]))
    means = gain * np.array(levels)
    received = (louder * means[:, None] + _NODES).ravel()
    # log(0) = -inf is right here: one of the worlds may never send a level.
    with np.errstate(divide="ignore"):
        seen = -0.5 * np.square(received[:, None] - means)
        losses = np.logaddexp.reduce(seen + np.log(np.maximum(one, 0.0)), axis=1)
        losses -= np.logaddexp.reduce(seen + np.log(np.maximum(two, 0.0)), axis=1)
    return _Entry(losses, *((np.maximum(p, 0.0)[:, None] * _WEIGHTS).ravel() for p in (one, two)))


def _value(louder: float, gain: float, one: float, two: float) -> _Entry:
    """Law of the privacy loss of an entry that sends the value ``one`` in the first of two
    neighbouring worlds and ``two`` in the second, under noise of variance 1. The adversary assumes
    the amplitude ``gain``, and the value arrives ``louder`` times as large."""
    received = np.concatenate([louder * gain * each + _NODES for each in (one, two)])
    losses = gain * (one - two) * (received - gain * (one + two) / 2)
    none = np.zeros_like(_WEIGHTS)
    return _Entry(losses, np.concatenate([_WEIGHTS, none]), np.concatenate([none, _WEIGHTS]))


def _log(value: float) -> float:
    """Natural logarithm, minus infinity for 0."""
    return math.log(value) if value > 0 else -math.inf


def _composed(entries: list[tuple[_Entry, int]]) -> AttackLossLaw:
    """Law of the sum of independent privacy losses over entries; each pair in ``entries`` holds the
    law of one entry's loss, and the number of entries with this law."""
    moments = np.array([entry.moments for entry, _ in entries])
    counts = np.array([count for _, count in entries])
    one, two, variance = counts @ moments
    reach = _SPREADS * math.sqrt(variance) + 1e-12
    start, end = min(one, two) - reach, max(one, two) + reach
    step = (end - start) / _POINTS
    worlds = []
    for world in ("first", "second"):
        spectrum = np.ones(_POINTS // 2 + 1, dtype=complex)
        for entry, count in entries:
            spectrum = spectrum * np.fft.rfft(_on_grid(entry, world, step)) ** count
        law = np.maximum(np.fft.irfft(spectrum, _POINTS), 0.0)
        # The Fourier transform treats the grid of losses as a circle: roll the probabilities so
        # that index 0 stands for the loss ``start``.
        worlds.append(np.roll(law, -math.floor(start / step)))
    losses = step * (math.floor(start / step) + np.arange(_POINTS))
    return AttackLossLaw(losses, *worlds)


def _on_grid(entry: _Entry, world: str, step: float) -> Array:
    """Probabilities of one entry's privacy losses in a ``world`` (``first`` or ``second`` of two
    neighbouring ones) on a circular grid of losses ``step`` apart, (point); a loss between two
    points is shared by both so that the mean is kept."""
    places = entry.losses / step
    below = np.floor(places)
    share = places - below
    weights = getattr(entry, world)
    place = below.astype(np.int64)
    masses = np.bincount(place % _POINTS, weights * (1.0 - share), _POINTS)
    masses = masses + np.bincount((place + 1) % _POINTS, weights * share, _POINTS)
    return np.asarray(masses, dtype=np.float64)


_CENTRES = 49
"""Number of values that are tried for the ``centre`` of a scene (the value of a gradient entry half
way between its values in the two neighbouring worlds), evenly over the range that clipping
allows."""


def at_worst_centre(scene: Scene, delta: float) -> Scene:
    """The scene with its ``centre``, the gradient entry half way between the two worlds, moved to
    where replacing one example reveals most at ``delta``; the same for all entries. It is unchanged
    where the worlds differ in a whole device, or where unquantised values are sent."""
    uplink = scene.uplink
    if scene.whole_device or uplink.symbol_format.levels is None:
        return scene
    most = uplink.clip - min(uplink.clip, example_reach(scene))

    def revealed(centre: float) -> tuple[float, float]:
        there = replace(scene, centre=centre)
        law = loss_law(there, canary(there), neighbour(there))
        # Centres are compared by epsilon and, where epsilon is 0 at every centre, by the largest
        # difference of the probabilities of an alarm in the two worlds.
        return law.epsilon(delta), float((law.above_first - law.above_second).max())

    # Both signs are tried: a centre and its negative have the same two worlds in opposite order,
    # and ``epsilon`` compares them in one order only.
    return replace(scene, centre=float(max(np.linspace(-most, most, _CENTRES), key=revealed)))


def loss_of_round(plan: Plan) -> AttackLossLaw | None:
    """Law of the privacy loss of one round in which every entry is sent at the largest gain that
    the plan allows in any round and entry; exact up to the grid, not a bound.

    None where it is unknown: for a relation other than ``replace``, without a privacy statement, on
    an ideal uplink, with inexact channel estimates, or for bits of gradients whose norm is clipped,
    because the most revealing pair of data sets is then another one."""
    uplink = plan.uplink
    if plan.exposure is None or uplink.noise_is_exact or uplink.estimated is not None:
        return None
    if uplink.clips_norm and uplink.symbol_format.levels is not None:
        return None
    if plan.limits.relation != "replace":
        return None
    caps = np.broadcast_to(finite_cap(plan.uplink, plan.gain), (len(plan.gain), plan.dim))
    loudest = float(caps.max())
    scene = Scene(plan.uplink, loudest, plan.dim, plan.num_devices, 1, plan.limits.neighbouring)
    return loss_law(scene, canary(scene), neighbour(scene))
