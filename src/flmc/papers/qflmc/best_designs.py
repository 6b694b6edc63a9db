r"""Search for the best design of the digital and of the analog scheme: the one with the smallest
predicted error of the server's answer, at equal privacy of a whole run.

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
"""Pulls that are tried: a pull is the share of its distance to the posterior mode that a chain
loses in a round."""
_FINER = (1.4, 1.12, 1.04)
"""Largest factors of three finer searches, one after the other: each varies clip and pull of the
best designs so far, up and down, by up to its factor."""
_FINALISTS = 8
"""Number of best designs of the first, coarse search, with different links and numbers of rounds,
whose clip and pull are searched more finely."""
_CURVED_FROM = 0.1
"""Smallest peak (largest mean bit) at which a sigmoid link is tried beside a straight one; for
smaller peaks the two are nearly the same."""
_NEAR = 4.0
"""Distance to the posterior mode, in standard deviations of the chain, at which a chain counts as
arrived; the rounds before that do not count for the answer."""
_FAR = 2.0
"""Assumed distance from a chain's start, zero, to the posterior mode, in standard deviations of the
prior."""
_RATIOS = np.geomspace(0.01, 30.0, 200)
"""Standard deviations of normal gradients, in units of the clip, for which averages of a link's
mean symbol are tabulated."""


class Tried(NamedTuple):
    """Values that a search for designs tries: ``peaks``, the largest mean bits of a link, and
    ``rounds``, the numbers of all rounds of a run, including those in which the chain travels."""

    peaks: tuple[float, ...]
    rounds: tuple[int, ...]


EVERYTHING = Tried(
    (0.003, 0.006, 0.012, 0.025, 0.05, 0.1, 0.18, 0.3, 0.45, 0.6, 0.75, 0.9, 0.98, 1.0),
    (20, 25, 32, 42, 60, 90, 140, 200, 300),
)
"""Peaks of links and numbers of rounds that the full study tries; the paper has 300 rounds."""
A_FEW = Tried((0.1, 0.45, 0.9, 1.0), (30, 100, 300))
"""Peaks of links and numbers of rounds that a preview of the study tries."""


class Place(NamedTuple):
    """Setting in which the best designs of both schemes are compared, a point of the study's map:
    SNR in dB, numbers of devices and of entries of theta, and epsilon of the whole run."""

    snr_db: float
    num_devices: int
    dim: int
    epsilon: float

    @property
    def largest_snr(self) -> float:
        """Squared amplitude at the receiver, over the noise power, of a symbol that is sent with
        all power: the SNR as a ratio times the squared path gain of the paper, 0.04."""
        return float(FADING**2 * 10 ** (self.snr_db / 10))

    @property
    def curvature(self) -> float:
        """Curvature of the negative log posterior of linear regression: 1 for each example of all
        devices, because features and noise have variance 1, plus 1 for the prior."""
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
        """Mean symbols, in the shape of ``gradient``, of gradient entries in units of the clip."""
        inside = np.clip(gradient, -1.0, 1.0)
        return self.peak * inside if self.link == "linear" else np.tanh(self.slope * inside)


@dataclass(frozen=True)
class Design:
    """A design of one scheme (link, clip, amplitude, step, rounds) and the predicted errors of the
    server's answer with it.

    Attributes
    ----------
    link, peak, slope
        The link, its largest mean symbol, and its slope at zero for a gradient in units of the
        clip, as in ``Shape``.
    clip
        Clip of gradient entries, in standard deviations of an entry of a local gradient over draws
        of the data.
    snr
        Squared amplitude of the largest symbol at the receiver over the noise power.
    pull
        Share of its distance to the posterior mode that a chain loses in a round.
    share
        Mean slope of the symbol, averaged over the gradients that the chain meets, as a share of
        the slope at zero.
    rounds, travel
        Number of all rounds, and of the first ones, in which the chain travels to the mode and
        which do not count for the answer.
    width, noise, shift
        In standard deviations of the exact posterior: the standard deviation that the server
        states for an entry of theta, the error of its mean by noise, and that by clip and link.
    error
        Root of ``width`` squared plus ``shift`` squared; infinite if no design gives an answer.
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
    """Best designs of both schemes in one setting, ``place``: a row of the CSV file of the map over
    all settings."""

    place: Place
    digital: Design
    analog: Design

    @property
    def ratio(self) -> float:
        """Predicted error of the best digital design over that of the best analog one: 0 if only
        the digital scheme has an answer, infinite if only the analog one has, NaN if neither."""
        if math.isinf(self.analog.error):
            return 0.0 if math.isfinite(self.digital.error) else math.nan
        return self.digital.error / self.analog.error

    def to_dict(self) -> dict[str, Any]:
        """The cell as a row of a table: values by name of the column. Columns of a scheme without
        an answer, and a ratio that is NaN, are empty texts."""
        designs = {
            f"{scheme}_{name}": value if math.isfinite(design.error) else ""
            for scheme, design in (("digital", self.digital), ("analog", self.analog))
            for name, value in asdict(design).items()
        }
        ratio = "" if math.isnan(self.ratio) else self.ratio
        return {**self.place._asdict(), "ratio": ratio, **designs}


@lru_cache(maxsize=64)
def _averages(shape: Shape) -> tuple[Array, Array]:
    """Mean slope of the symbol, over its slope at zero, and mean square of the mean symbol, both
    (ratio): averages of the link ``shape`` over normal gradients whose standard deviation is each
    of ``_RATIOS`` times the clip."""
    nodes = np.linspace(-8.0, 8.0, 1601)
    weights = np.exp(-0.5 * nodes**2)
    weights /= weights.sum()
    symbol = shape.symbol(_RATIOS[:, None] * nodes)
    # By Stein's identity the mean slope is the mean of symbol x node over the standard deviation.
    share = symbol @ (weights * nodes) / _RATIOS / shape.slope
    return np.asarray(share), np.asarray(np.square(symbol) @ weights)


@lru_cache(maxsize=8192)
def allowed_snr(epsilon: float, peak: float, num_symbols: int) -> float:
    """Largest squared amplitude at the receiver, over the noise power, at which ``num_symbols``
    symbols of a device keep the budget (``epsilon``, ``DELTA``) of a run; infinite if every
    amplitude does. For bits ``peak`` is the largest mean bit; 1 stands for certain bits, and for
    analog symbols, which cost as much."""
    if peak == 1.0:
        return budget_mu(epsilon, DELTA) ** 2 / (4.0 * num_symbols)
    high = (1.0 + peak) / 2.0
    event = BitEvent(
        high=high, low=1.0 - high, noise_power=1.0, transmissions=((1.0, num_symbols),)
    )
    return event.allowed_gain(epsilon, DELTA) ** 2


def best_design(place: Place, scheme: str, tried: Tried = EVERYTHING) -> Design:
    """The design of ``scheme`` (``digital`` or ``analog``) with the smallest predicted error in the
    setting ``place``; its error is infinite if no design that is ``tried`` gives an answer."""
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
    """The best design in the setting ``place`` with the link ``shape`` and a number of ``rounds``,
    over all pairs of one of ``pulls`` (pull) and one of ``clips`` (clip). Its error is infinite if
    no pair gives an answer. ``bits`` says whether symbols are random bits, not analog values."""
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
    # A quick formula for the squared error ranks all designs. The variance that the server states,
    # which takes longer to compute, then decides among the 40 best.
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
    """Predicted numbers about chains in their stationary law, for designs with all pairs of a pull
    and a clip; all arrays are (pull, clip).

    Attributes
    ----------
    share, slope
        Mean slope of the symbol, averaged over the gradients that the chain meets: as a share of
        the slope at zero; and with gradients in standard deviations over draws of the data.
    noise
        Noise variance of the server's estimate of the gradient, over the posterior's curvature.
    heat
        Variance of the chain over the posterior's.
    shift
        Squared distance of the chain's mean from the posterior mean, over the posterior's variance.
    stays
        Whether the chain stays where its gradients are not nearly all clipped.
    """

    share: Array
    slope: Array
    noise: Array
    heat: Array
    shift: Array
    stays: BoolArray


def _steady(place: Place, shape: Shape, bits: bool, snr: float, pull: Array, clip: Array) -> Steady:
    """Predicted numbers about stationary chains in the setting ``place`` with the link ``shape``
    and ``snr``, the squared amplitude of a device over the noise power, for all pairs of ``pull``
    (pull, 1), the share of its distance to the mode that a chain loses in a round, and ``clip``
    (clip), in standard deviations of an entry of a local gradient over data. ``bits`` says whether
    symbols are random bits."""
    devices = place.num_devices
    shares, squares = _averages(shape)
    # ``spread`` is the variance of an entry of a local gradient, over its variance over draws of
    # the data. At the mode the gradients of all K devices add up to zero, which leaves 1 - 1/K. The
    # chain's own variance adds heat/K. The heat depends on the noise, and the noise on the spread,
    # so the three are found by iteration.
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
            # Where local gradients add up to zero, the mean symbols of a curved link need not. The
            # part of them that no straight line in the gradient explains, ``bent``, moves the
            # chain's mean. A larger spread of the chain averages over the curve and reduces this.
            bent = np.maximum(square / (slope**2 * spread) - 1.0, 0.0)
            shift = still * bent * np.square(still / spread)
            return Steady(share, slope, noise, heat, shift, ratio < _RATIOS[-1])
        heat = pull / (2.0 - pull) * noise
    raise AssertionError("the last iteration returns")


def _stated_variance(
    place: Place, share: Array, noise: Array, degrees: Array, counted: Array
) -> Array:
    """Variance that the server states for an entry of theta, over the posterior's, (design), as
    predicted by :mod:`flmc.planning.answer_law`. The other arrays are (design), too: ``share`` and
    ``noise`` as in ``Steady``, ``degrees`` the degrees of freedom with which the server knows the
    curvature from its rounds, and ``counted`` the number of rounds that count."""
    # The unit of variances is the noise variance of an estimate that is scaled with the link's
    # slope at zero, so that this noise has variance 1.
    unit = np.square(share) * noise * place.curvature
    entries = np.ones(place.dim)
    floor = (1.0 / unit)[:, None] * entries
    shown = (share * place.curvature / unit)[:, None] * entries
    likely = curvatures(shown, floor, degrees[:, None] * entries, counted)
    spread = variances(likely, floor, counted)
    return np.asarray(spread.mean(axis=(1, 2)) / unit * place.curvature)


def _travel(place: Place, shape: Shape, pull: Array, clip: Array, chain: Steady) -> Array:
    """Number of rounds, (pull, clip), until a chain that starts at zero is near the posterior mode.
    It moves at a constant speed while the gradients of all devices are clipped; then its distance
    decays exponentially."""
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
    """Best designs of both schemes in every setting of the map: all combinations of an SNR, a
    number of entries, a number of devices and an epsilon of the run. Without ``whole`` it is a
    preview with fewer settings and designs."""
    some = 1 if whole else 4
    tried = EVERYTHING if whole else A_FEW
    cells = []
    # Epsilon varies slowest, because the allowed amplitudes, which are slow to compute, depend only
    # on epsilon and the number of symbols: most are then found in the cache of ``allowed_snr``.
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
