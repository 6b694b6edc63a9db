r"""The best design of the digital and of the analog scheme, by the width of the answer that the
server can give at equal privacy of a whole run.

For a number of devices and of entries, an SNR and a budget of the run, a scheme gets the clip, the
link with its slope, the gain, the step and the rounds with the smallest predicted *error*: the root
of the variance that the server states for an entry of theta (:mod:`flmc.planning.answer_law`) plus
the squared shift of its mean, over the exact posterior's standard deviation. Devices are alike and
have 60 examples each of a linear regression, as in the paper: an entry of a local gradient near the
mode is then nearly normal, and what clip and link make of it are averages over the normal law.
Chains start at zero; the rounds in which they travel count for the budget, and not for the answer.
"""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array, BoolArray
from flmc.base.progress import Progress
from flmc.papers.qflmc.design_search import FADING
from flmc.papers.qflmc.information import budget_mu
from flmc.planning.answer_law import WELL_KNOWN, curvatures, variances
from flmc.planning.limits import Limits
from flmc.privacy.bit_event import BitEvent

EXAMPLES = 60
"""Number of examples of a device, as in the paper."""
DELTA = Limits().run_delta
"""Delta of the budget of a run."""
_CLIPS = np.geomspace(0.1, 16.0, 18)
"""Clips that are tried, in standard deviations of an entry of a local gradient over draws of the
data."""
_PULLS = np.geomspace(0.01, 0.8, 12)
"""Shares of its distance to the mode that a chain loses in a round, as tried."""
_FINER = (1.4, 1.12, 1.04)
"""Factors by which clip and pull are then varied, up and down, about the best of those."""
_FINALISTS = 8
"""Number of best designs, with different links and rounds, that are refined so."""
_CURVED_FROM = 0.1
"""Largest mean bit from which on a sigmoid is tried beside a straight link."""
_NEAR = 4.0
"""Distance to the mode, in the chain's standard deviations, from which on rounds count."""
_FAR = 2.0
"""Distance from the start to the mode, in standard deviations of the prior."""
_RATIOS = np.geomspace(0.01, 30.0, 200)
"""Standard deviations of a gradient over the clip at which averages over a link are tabulated."""


class Tried(NamedTuple):
    """The largest mean bits, and the numbers of rounds (travel included), that a search tries."""

    peaks: tuple[float, ...]
    rounds: tuple[int, ...]


EVERYTHING = Tried(
    (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.18, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98, 1.0),
    (20, 25, 32, 42, 60, 90, 140, 200, 300),
)
"""What the full study tries; the paper has 300 rounds."""
A_FEW = Tried((0.1, 0.45, 0.9, 1.0), (30, 100, 300))
"""What a preview tries."""


class Place(NamedTuple):
    """What both schemes have in common at one place of the map: SNR in dB, numbers of devices and
    of entries, and epsilon of the run."""

    snr_db: float
    num_devices: int
    dim: int
    epsilon: float

    @property
    def largest_snr(self) -> float:
        """Largest squared amplitude of a symbol at the receiver over the noise power."""
        return float(FADING**2 * 10 ** (self.snr_db / 10))

    @property
    def curvature(self) -> float:
        """Curvature of the negative log posterior: the number of examples, and 1 of the prior."""
        return EXAMPLES * self.num_devices + 1.0


class Shape(NamedTuple):
    """A map from a gradient, in units of its clip, to the mean symbol.

    Attributes
    ----------
    link
        ``linear``, or ``sigmoid`` for a curved link.
    peak
        Largest mean symbol; 1 for analog, whose unit of symbols is the clip.
    slope
        Slope of the mean symbol at zero.
    """

    link: str
    peak: float
    slope: float

    def symbol(self, gradient: Array) -> Array:
        """Mean symbol of a gradient in units of the clip."""
        inside = np.clip(gradient, -1.0, 1.0)
        return self.peak * inside if self.link == "linear" else np.tanh(self.slope * inside)


@dataclass(frozen=True)
class Design:
    """A design of one scheme and what is predicted of its answer.

    Attributes
    ----------
    link, peak, slope
        The link, its largest mean symbol, and its slope at zero for a gradient in units of the
        clip, as in ``Shape``.
    clip
        In standard deviations of an entry of a local gradient over draws of the data.
    snr
        Squared amplitude of the largest symbol at the receiver over the noise power.
    pull
        Share of its distance to the mode that a chain loses in a round.
    share
        Mean slope over the chain's gradients over the slope at zero.
    rounds, travel
        All rounds, and the first of them, which do not count.
    width, noise, shift
        Standard deviation that the server states, over the exact posterior's; and, in its standard
        deviations too, the errors of the mean by noise, and by clip and link.
    error
        Root of ``width`` squared plus ``shift`` squared; infinite where no design was found.
    temperature
        Variance of the chain over the posterior's.
    """

    link: str = ""
    peak: float = math.nan
    slope: float = math.nan
    clip: float = math.nan
    snr: float = math.nan
    pull: float = math.nan
    share: float = math.nan
    rounds: int = 0
    travel: int = 0
    width: float = math.inf
    noise: float = math.inf
    shift: float = math.inf
    error: float = math.inf
    temperature: float = math.nan


@dataclass(frozen=True)
class Cell:
    """A place of the map, with the best designs of both schemes: a row of the CSV of the map."""

    place: Place
    digital: Design
    analog: Design

    @property
    def ratio(self) -> float:
        """Error of the best digital over that of the best analog design; not a number where
        neither scheme can answer."""
        if math.isinf(self.analog.error):
            return 0.0 if math.isfinite(self.digital.error) else math.nan
        return self.digital.error / self.analog.error

    def to_dict(self) -> dict[str, Any]:
        """The cell by the names of its columns, for a table; empty where no design was found."""
        designs = {
            f"{scheme}_{name}": value if math.isfinite(design.error) else ""
            for scheme, design in (("digital", self.digital), ("analog", self.analog))
            for name, value in asdict(design).items()
        }
        ratio = "" if math.isnan(self.ratio) else self.ratio
        return {**self.place._asdict(), "ratio": ratio, **designs}


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


@lru_cache(maxsize=8192)
def allowed_snr(epsilon: float, peak: float, num_symbols: int) -> float:
    """Largest squared amplitude over the noise power at which ``num_symbols`` symbols of a device
    keep the budget of a run, by the accountant; infinite if any does. For bits ``peak`` is the
    largest mean bit; 1 stands for certain bits, and for analog symbols, which cost the same."""
    if peak == 1.0:
        return budget_mu(epsilon, DELTA) ** 2 / (4.0 * num_symbols)
    high = (1.0 + peak) / 2.0
    event = BitEvent(
        high=high, low=1.0 - high, noise_power=1.0, transmissions=((1.0, num_symbols),)
    )
    return event.allowed_gain(epsilon, DELTA) ** 2


def best_design(place: Place, scheme: str, tried: Tried = EVERYTHING) -> Design:
    """The design of ``scheme`` (``digital`` or ``analog``) with the smallest predicted error."""
    if scheme == "analog":
        shapes = [Shape("linear", 1.0, 1.0)]
    else:
        shapes = [Shape("linear", peak, peak) for peak in tried.peaks]
        curved = [peak for peak in tried.peaks if _CURVED_FROM <= peak < 1.0]
        shapes += [Shape("sigmoid", peak, math.atanh(peak)) for peak in curved]
    bits = scheme == "digital"

    def best(shape: Shape, rounds: int, pulls: Array, clips: Array) -> Design:
        return _best_of(place, shape, bits, rounds, pulls, clips)

    found = [
        (best(shape, rounds, _PULLS, _CLIPS), shape) for shape in shapes for rounds in tried.rounds
    ]
    # Ranked by the error, which is infinite where there is no answer.
    found = sorted(found, key=lambda each: each[0].error)[:_FINALISTS]
    for factor in _FINER:
        about = np.geomspace(1.0 / factor, factor, 7)
        found = [
            (
                best(shape, one.rounds, np.minimum(one.pull * about, _PULLS[-1]), one.clip * about),
                shape,
            )
            for one, shape in found
            if math.isfinite(one.error)
        ]
    return min((one for one, _ in found), key=lambda each: each.error, default=Design())


def _best_of(
    place: Place,
    shape: Shape,
    bits: bool,
    rounds: int,
    pulls: Array,
    clips: Array,
) -> Design:
    """The best design with a shape, a number of rounds, and one of the given pulls and clips; its
    error is infinite where none makes an answer. ``bits``: whether symbols are random bits."""
    snr = min(allowed_snr(place.epsilon, shape.peak, place.dim * rounds), place.largest_snr)
    # All that follows are arrays (pull, clip).
    pull, clip = pulls[:, None], clips
    chain = _steady(place, shape, bits, snr, pull, clip)
    share, noise, heat, shift = chain.share, chain.noise, chain.heat, chain.shift
    travel = _travel(place, shape, pull, clip, chain)
    counted = rounds - travel
    degrees = np.maximum(counted, 1.0) * pull / (1.0 - pull / 2.0)
    taken = (place.dim + 1) / degrees
    useful = chain.stays & (counted >= 2 * place.dim + 4)
    useful &= (degrees >= WELL_KNOWN) & (taken < 0.8)
    if not useful.any():
        return Design()
    # The formula of an answer's width ranks all designs; the law itself, which takes longer, then
    # decides among the best.
    with np.errstate(divide="ignore", invalid="ignore"):
        formula = (1.0 + share * noise / counted) / share / (1.0 - taken) + shift
    ranked = np.argsort(np.where(useful, formula, np.inf), axis=None)[: min(40, useful.sum())]
    at = np.unravel_index(ranked, formula.shape)
    stated = _stated_variance(place, share[at], noise[at], degrees[at], counted[at])
    best = int(np.argmin(stated + shift[at]))
    p, c = cell = tuple(int(index[best]) for index in at)
    return Design(
        shape.link,
        shape.peak,
        shape.slope,
        float(clips[c]),
        snr,
        float(pulls[p]),
        float(share[cell]),
        rounds,
        int(travel[cell]),
        math.sqrt(stated[best]),
        math.sqrt(noise[cell] / counted[cell]),
        math.sqrt(shift[cell]),
        math.sqrt(stated[best] + shift[cell]),
        float(heat[cell]),
    )


class Steady(NamedTuple):
    """Chains in their stationary law, one for each design, (pull, clip).

    Attributes
    ----------
    share, slope
        Mean slope of the symbols over the chain's gradients: over the slope at zero, and for a
        gradient in standard deviations over draws of the data.
    noise
        Noise variance of an estimate of the gradient, over the posterior's curvature.
    heat
        Variance of the chain over the posterior's.
    shift
        Squared distance of its mean from the posterior's, over the posterior's variance.
    stays
        Whether the chain stays where its gradients are not all clipped.
    """

    share: Array
    slope: Array
    noise: Array
    heat: Array
    shift: Array
    stays: BoolArray


def _steady(place: Place, shape: Shape, bits: bool, snr: float, pull: Array, clip: Array) -> Steady:
    """Chains of all designs with one shape and one squared amplitude over the noise power."""
    devices = place.num_devices
    shares, squares = _averages(shape)
    # Variance of an entry of a local gradient over its variance over draws of the data. At the mode
    # the gradients of all devices add up to zero, which takes a share of 1/K; the chain's spread
    # adds to it, by an amount that depends on the noise, which depends on it.
    still = 1.0 - 1.0 / devices
    heat = np.full(np.broadcast_shapes(pull.shape, clip.shape), 1e-3)
    for last in (*[False] * 40, True):
        spread = np.minimum(still + heat / devices, 1e6)
        ratio = np.sqrt(spread) / clip
        share = np.interp(ratio, _RATIOS, shares)
        square = np.interp(ratio, _RATIOS, squares)
        slope = share * shape.slope / clip
        random = devices * (1.0 - square) if bits else np.zeros_like(square)
        noise = (1.0 / snr + random) / (devices * slope**2)
        if last:
            # Where local gradients sum to zero, bent mean symbols need not: their part that a
            # straight line does not explain moves the mean. The chain's spread straightens them.
            bent = np.maximum(square / (slope**2 * spread) - 1.0, 0.0)
            shift = still * bent * np.square(still / spread)
            return Steady(share, slope, noise, heat, shift, ratio < _RATIOS[-1])
        heat = pull / (2.0 - pull) * noise
    raise AssertionError("the last iteration returns")


def _stated_variance(
    place: Place, share: Array, noise: Array, degrees: Array, counted: Array
) -> Array:
    """Variance that the server states for an entry of theta, over the posterior's, (design), by the
    law of an answer. Its rounds show the curvature times ``share``."""
    # In units in which the noise of an estimate with the slope at zero has the variance 1.
    unit = np.square(share) * noise * place.curvature
    entries = np.ones(place.dim)
    floor = (1.0 / unit)[:, None] * entries
    shown = (share * place.curvature / unit)[:, None] * entries
    likely = curvatures(shown, floor, degrees[:, None] * entries, counted)
    spread = variances(likely, floor, counted)
    return np.asarray(spread.mean(axis=(1, 2)) / unit * place.curvature)


def _travel(place: Place, shape: Shape, pull: Array, clip: Array, chain: Steady) -> Array:
    """Rounds until a chain that starts at zero is near the mode: under the largest pull of all
    devices while gradients are clipped, then exponentially."""
    root = math.sqrt(place.num_devices)
    # All distances are in standard deviations of the posterior.
    distance = _FAR * math.sqrt(place.curvature)
    speed = pull * root * shape.peak / chain.slope
    straight = np.minimum(root * clip, distance)
    near = np.maximum(_NEAR * np.sqrt(chain.heat), 1e-9)
    decay = -np.log1p(-np.minimum(0.9, pull / chain.share))
    rounds = np.maximum(distance - np.maximum(straight, near), 0.0) / speed
    rounds = rounds + np.maximum(np.log(straight / near), 0.0) / decay
    return np.asarray(np.ceil(np.minimum(rounds, 1e6)))


SNR_DB = (10.0, 15.0, 25.0, 40.0)
DIMS = (1, 5)
DEVICES = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)
EPSILONS = (0.3, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0, 1000.0)


def best_cells(whole: bool, progress: Progress | None = None) -> list[Cell]:
    """The map: both schemes' best designs over SNR, entries, devices and epsilon; without ``whole``
    a preview with fewer places and designs."""
    some = 1 if whole else 4
    tried = EVERYTHING if whole else A_FEW
    cells = []
    # Budgets vary slowest: what the accountant finds depends on them and the number of symbols.
    places = [
        Place(snr_db, devices, dim, epsilon)
        for epsilon in (EPSILONS if whole else EPSILONS[1::3])
        for snr_db in (SNR_DB if whole else SNR_DB[2:])
        for dim in DIMS
        for devices in DEVICES[::some]
    ]
    for index, place in enumerate(places):
        cells.append(
            Cell(place, best_design(place, "digital", tried), best_design(place, "analog", tried))
        )
        if progress is not None:
            progress((index + 1) / len(places))
    return cells
