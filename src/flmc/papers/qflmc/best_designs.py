r"""Digital against analog, each at its best, by the width of the answer at equal privacy of a run.

For every number of devices, entries, SNR and budget, both schemes get the clip, link, slope, gain,
step and rounds with the smallest predicted *error*: the root of the variance that the server states
for an entry of theta (:mod:`flmc.planning.answer_law`) plus the squared shift of its mean, over the
exact posterior's standard deviation. Devices are alike: linear regression, 60 examples each, as in
the paper. Then an entry of a local gradient near the mode is normal, and what clip and link make of
it are averages over the normal law. Chains start at zero, and travel costs rounds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.papers.qflmc.design_search import FADING
from flmc.papers.qflmc.information import budget_mu
from flmc.planning.answer_law import variances
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.privacy.bit_event import BitEvent

EXAMPLES = 60
"""Number of examples of a device, as in the paper."""
DELTA = 1e-5
"""Delta of the budget of a run."""
ROUNDS = (20, 30, 45, 70, 100, 150, 220, 300)
"""Numbers of rounds, those of travel included, that a design may have; the paper has 300."""
_CLIPS = np.geomspace(0.35, 5.0, 14)
"""Clips that are tried, in standard deviations of an entry of a local gradient at the mode."""
_PEAKS = (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.18, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98, 1.0)
"""Largest mean bits that are tried."""
_PULLS = np.array([0.02, 0.04, 0.07, 0.1, 0.15, 0.22, 0.3, 0.4, 0.5, 0.65, 0.8])
"""Shares of its distance to the mode that a chain loses in a round, as tried."""
_FEWEST_DEGREES = 12.0
"""Degrees of freedom of the estimated curvature that a design must have: with fewer, intervals were
not found to hold."""
_NEAR = 4.0
"""Distance to the mode, in the chain's standard deviations, from which on rounds count."""
_RATIOS = np.geomspace(0.02, 30.0, 160)
"""Standard deviations of a gradient over the clip, at which averages over a link are tabulated."""


class Shape(NamedTuple):
    """A map from a gradient over its clip, in [-1, 1], to the mean symbol over the peak, and its
    averages over normal gradients.

    Attributes
    ----------
    family
        ``linear``, or ``sigmoid`` for a curved link.
    peak
        Largest mean symbol, 1 for analog.
    slope
        Slope at zero of the mean symbol, for a gradient in units of the clip.
    """

    family: str
    peak: float
    slope: float

    def symbol(self, gradient: Array) -> Array:
        """Mean symbol of a gradient in units of the clip."""
        inside = np.clip(gradient, -1.0, 1.0)
        return self.peak * inside if self.family == "linear" else np.tanh(self.slope * inside)


@lru_cache(maxsize=64)
def _averages(shape: Shape) -> tuple[Array, Array]:
    """Mean slope over the slope at zero, and mean square symbol, of normal gradients with the
    standard deviations ``_RATIOS`` over the clip, both (ratio)."""
    nodes = np.linspace(-8.0, 8.0, 1601)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    symbol = shape.symbol(_RATIOS[:, None] * nodes)
    # By Stein's identity the mean slope is the mean of symbol x node over the standard deviation.
    share = symbol @ (weights * nodes) / _RATIOS / shape.slope
    return np.asarray(share), np.asarray(np.square(symbol) @ weights)


@dataclass(frozen=True)
class Place:
    """A cell of the map: what both schemes have in common."""

    snr_db: float
    num_devices: int
    dim: int
    epsilon: float

    @property
    def largest_snr(self) -> float:
        """Largest squared amplitude of a symbol at the receiver over the noise power."""
        return FADING**2 * 10 ** (self.snr_db / 10)

    @property
    def curvature(self) -> float:
        """Curvature of the negative log posterior: the number of examples, and 1 of the prior."""
        return EXAMPLES * self.num_devices + 1.0


@dataclass(frozen=True)
class Design:
    """The design of a scheme with the smallest predicted error, and what is predicted of it.

    ``clip`` is in standard deviations of an entry of a local gradient at the mode, ``snr`` the
    squared amplitude of a symbol at the receiver over the noise power. ``pull`` is the share of its
    distance to the mode that a chain loses in a round, ``travel`` the rounds that do not count.
    """

    link: str
    peak: float
    slope: float
    clip: float
    snr: float
    pull: float
    rounds: int
    travel: int
    width: float
    shift: float
    error: float
    temperature: float

    @property
    def found(self) -> bool:
        """Whether any design makes an answer whose curvature is known well enough."""
        return math.isfinite(self.error)


NOTHING = Design("", *(math.nan,) * 5, 0, 0, math.inf, math.inf, math.inf, math.nan)
"""The design where none was found."""


@lru_cache(maxsize=8192)
def allowed_snr(epsilon: float, peak: float, num_bits: int) -> float:
    """Largest squared gain over the noise power at which ``num_bits`` bits with this largest mean
    keep the budget, by the accountant; infinite if any does."""
    if peak == 1.0:
        return budget_mu(epsilon, DELTA) ** 2 / (4.0 * num_bits)
    high = (1.0 + peak) / 2.0
    event = BitEvent(high, 1.0 - high, 1.0, ((1.0, num_bits),))
    return event.allowed_gain(epsilon, DELTA) ** 2


def shapes(scheme: str) -> Iterator[Shape]:
    """Shapes that are tried: for digital each peak with a straight and, where it is not nearly
    straight, a sigmoid link; for analog the clip alone."""
    if scheme == "analog":
        yield Shape("linear", 1.0, 1.0)
        return
    for peak in _PEAKS:
        yield Shape("linear", peak, peak)
        if 0.1 <= peak < 1.0:
            yield Shape("sigmoid", peak, math.atanh(peak))


def best_design(place: Place, scheme: str) -> Design:
    """The design of ``scheme`` (``digital`` or ``analog``) with the smallest predicted error."""
    found = [
        each
        for shape in shapes(scheme)
        for each in [_best_of_shape(place, shape, scheme == "digital")]
        if each is not None
    ]
    return min(found, key=lambda design: design.error, default=NOTHING)


def _best_of_shape(place: Place, shape: Shape, bits: bool) -> Design | None:
    """The best design with one shape; None where no design makes an answer."""
    devices, curvature = place.num_devices, place.curvature
    rounds = np.array(ROUNDS)
    allowed = [allowed_snr(place.epsilon, shape.peak if bits else 1.0, place.dim * n) for n in ROUNDS]
    snr = np.minimum(allowed, place.largest_snr)[:, None, None]
    pull, clip = _PULLS[:, None], _CLIPS
    share_of, square_of = _averages(shape)
    # Variance of an entry of a local gradient, in units of L/K: at the mode, where all add up to
    # zero, and what the spread of the chain adds, which depends on the noise, which depends on it.
    still = 1.0 - 1.0 / devices
    spread = np.full(np.broadcast_shapes(snr.shape, pull.shape, clip.shape), max(still, 1e-3))
    for _ in range(40):
        ratio = np.sqrt(spread) / clip
        share = np.interp(ratio, _RATIOS, share_of)
        square = np.interp(ratio, _RATIOS, square_of)
        slope = share * shape.slope / clip
        random = devices * (1.0 - square) if bits else 0.0
        # Noise variance of an estimate of the gradient over the posterior's curvature.
        noise = (1.0 / snr + random) / (devices * slope**2)
        heat = pull / (2.0 - pull) * noise
        spread = np.minimum(still + heat / devices, 1e6)
    steady = (ratio > _RATIOS[0]) & (ratio < _RATIOS[-1]) & (spread < 1e5)
    # Where local gradients sum to zero, bent mean symbols need not; the chain's spread straightens.
    bent = np.maximum(square / (slope**2 * spread) - 1.0, 0.0)
    shift = still * bent * np.square(still / spread)
    travel = _travel(place, shape, clip, slope, share, pull, heat)
    counted = rounds[:, None, None] - travel
    degrees = counted * pull / (1.0 - pull / 2.0)
    taken = (place.dim + 1) / degrees
    useful = steady & (counted >= 2 * place.dim + 4) & (degrees >= _FEWEST_DEGREES) & (taken < 0.8)
    if not useful.any():
        return None
    with np.errstate(divide="ignore", invalid="ignore"):
        guess = (1.0 + share * noise / counted) / share / (1.0 - taken) + shift
    order = np.argsort(np.where(useful, guess, np.inf), axis=None)[:40]
    at = tuple(index[useful[np.unravel_index(order, guess.shape)]] for index in np.unravel_index(order, guess.shape))
    width2 = _stated(place, share[at], noise[at], degrees[at], counted[at])
    error2 = width2 + shift[at]
    best = int(np.argmin(error2))
    cell = tuple(int(index[best]) for index in at)
    n, p, c = cell
    return Design(
        shape.family,
        shape.peak,
        shape.slope,
        float(_CLIPS[c]),
        float(snr[n, 0, 0]),
        float(_PULLS[p]),
        ROUNDS[n],
        int(travel[cell]),
        math.sqrt(float(width2[best])),
        math.sqrt(float(shift[cell])),
        math.sqrt(float(error2[best])),
        float(heat[cell]),
    )


def _stated(place: Place, share: Array, noise: Array, degrees: Array, counted: Array) -> Array:
    """Variance that the server states for an entry of theta over the posterior's, (design), by the
    law of an answer: rounds show the curvature times ``share``."""
    shown = share * place.curvature
    # In units in which the noise of an estimate, before it is corrected for the share, has variance
    # 1 in every entry.
    unit = np.square(share) * noise * place.curvature
    ones = np.ones(place.dim)
    spread = variances(
        (shown / unit)[:, None] * ones, (1.0 / unit)[:, None] * ones, degrees[:, None] * ones, counted
    )
    return np.asarray(spread.mean(axis=(1, 2)) / unit * place.curvature)


def _travel(
    place: Place, shape: Shape, clip: Array, slope: Array, share: Array, pull: Array, heat: Array
) -> Array:
    """Rounds until a chain that starts at zero is near the mode, by the planner's rule: at the
    largest pull of all devices while gradients are clipped, then exponentially."""
    devices, root = place.num_devices, math.sqrt(place.curvature)
    # Three standard deviations of the prior, in standard deviations of the posterior.
    distance = 3.0 * root
    speed = pull * math.sqrt(devices) * shape.peak / slope
    left = np.minimum(distance, math.sqrt(devices) * clip)
    near = _NEAR * np.sqrt(np.maximum(heat, 1e-12))
    decay = -np.log1p(-np.minimum(0.9, pull / share))
    rounds = distance / speed + np.maximum(0.0, np.log(left / near)) / decay
    # Noise lengthens the way by up to a quarter, and by a few rounds where it is short.
    return np.asarray(np.ceil(1.25 * np.minimum(rounds, 1e6)) + 4.0)
