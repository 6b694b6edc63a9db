"""A search over ambiguities and possible misprints of the paper's text: is there a combination that
gives the published numbers?

The error of a scheme depends only on its gain, step, slope and kind of clipping. So the error is
measured once on a grid of gains for each of these, with common random numbers, and every
combination only computes gains and interpolates, experiment by experiment.

The conjecture `by entry` is a rule by which the authors' program may have computed gains. It is no
sound privacy rule: every entry gets epsilon/m, and delta is spent anew in each of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from statistics import NormalDist

import numpy as np

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.evaluation.metrics import squared_errors
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc import readings
from flmc.papers.qflmc.claims import CLAIMS, Claim
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.privacy import gaussian
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.root_finding import largest_gain
from flmc.sampling.engine import Engine
from flmc.sampling.simulation import simulate
from flmc.uplink.links import Sigmoid
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink

_below = NormalDist().cdf
"""Standard normal distribution function."""

_STEP_SIZES = {each.scheme: each.published_step_size or math.nan for each in (Digital, Analog)}
"""The paper's step sizes by scheme."""


def entry_gain(uplink: Uplink, epsilon: float, delta: float, dim: int) -> float:
    r"""Largest gain that the privacy rule of the conjecture `by entry` allows for the budget of a
    round; infinite if it allows every gain. Limits by power and Langevin noise are left out.

    Digital: the largest A with :math:`\Pr(|\text{loss of one entry}| > \epsilon/m) \le \delta` for
    the exact worst-case pair. Analog: :math:`A = \sqrt{N_0 x/(2 m \ell^2)}` as printed, where
    :math:`T(x) = 1 - \delta` has :math:`\epsilon/m` in place of :math:`\epsilon`, and m stays in
    the root. T(x), with the factor 1/2 that print leaves out, is the probability that a loss with
    the law :math:`N(x, 2x)` has at most the magnitude :math:`\epsilon`.

    Examples
    --------
    >>> from flmc.papers.qflmc.design_search import entry_gain
    >>> f"{entry_gain(flmc.Digital(), 5.0, 0.01, dim=5):.5g}"
    '0.34057'
    >>> f"{entry_gain(flmc.Analog(), 5.0, 0.01, dim=5):.5g}"
    '0.0028435'
    """
    share = epsilon / dim
    if uplink.link is not None:
        high = float(uplink.link.probability(np.array([uplink.clip]))[0])
        scale = math.sqrt(uplink.noise_power)
        return scale * largest_gain(lambda gain: exceedance(gain, high, share), delta, 0.1)
    # The printed formula with epsilon/m in place of epsilon, which occurs in its tail function T
    # alone; the number of entries in the formula stays m.
    return uplink.privacy_event([(1.0, dim)]).allowed_gain(share, delta, "tail")


def exceedance(gain: float, high: float, epsilon: float) -> float:
    r"""Probability that the loss of one entry exceeds epsilon > 0 in magnitude, at a gain in
    standard deviations of the noise, where +1 has the probability ``high`` under one data set and
    one minus that under its neighbour.

    The received :math:`y` is :math:`\pm A` plus unit noise, A being the gain. With p = ``high`` and
    q = 1 - p the loss :math:`\ln\frac{p e^{2Ay} + q}{q e^{2Ay} + p}` increases with :math:`y`, and
    is odd. So its magnitude exceeds epsilon where that of y is above the value at which
    :math:`e^{2Ay} = (p e^\epsilon - q)/(p - q e^\epsilon)`.
    """
    low = 1.0 - high
    if low == 0.0 or epsilon < math.log(high / low):
        if math.isinf(gain):
            return 1.0
        grown = math.exp(epsilon)
        reached = math.log((high * grown - low) / (high - low * grown)) / (2 * gain)
        # The probability of both tails, |y| > reached; it is the same for N(A, 1) and for N(-A, 1),
        # so it is that of their mixture.
        return _below(gain - reached) + _below(-gain - reached)
    return 0.0


def limited(planned: Plan, gain: float) -> Plan:
    """The plan with ``gain`` as the largest gain that privacy allows; the given plan has no such
    limit. The result states no privacy budget, because the rule that the gain comes from is only a
    conjecture about the authors' program."""
    limits = replace(planned.gain_limits, privacy=gain)
    return replace(
        planned,
        gain=np.minimum(planned.gain, gain),
        gain_limits=limits,
        binding=limits.binding,
    )


DEVICES, DIM, CLIP, FADING = 20, 5, 30.0, 0.04


@dataclass(frozen=True)
class Combination:
    """One interpretation of the paper's text: a choice for each of its ambiguities. The first value
    of each list in ``CHOICES`` is the printed one, except for the half in the tail function T(x),
    which print leaves out."""

    power: str
    langevin: str
    accountant: str
    half: str
    digital_step: float
    analog_step: float
    clipping: str

    def limits_noise(self, scheme: str) -> bool:
        """Whether, under this interpretation, the gain of ``scheme`` is limited so that the
        channel's noise is at least what Langevin sampling needs."""
        return self.langevin in ("both", f"{scheme} only")


CHOICES: dict[str, tuple[str | float, ...]] = {
    "power": ("per symbol", "per block", "off"),
    "langevin": ("both", "analog only", "digital only", "neither"),
    "accountant": ("paper, K - 1", "paper, 1", "tail", "tight", "by entry"),
    "half": ("with 1/2", "without"),
    "digital_step": (1.0, 0.1, 10.0),
    "analog_step": (1.0, 0.1, 10.0),
    "clipping": ("entry", "norm"),
}


def combinations() -> Iterator[Combination]:
    """Iterate over all interpretations: every combination of the values in ``CHOICES``."""
    for values in itertools.product(*CHOICES.values()):
        yield Combination(*values)  # type: ignore[arg-type]


def gain_of(
    combination: Combination, scheme: str, slope: float, snr_db: float, epsilon: float | None
) -> float:
    """The largest gain that all limits allow under one interpretation of the paper. ``slope`` is
    the parameter of the digital scheme's sigmoid link, and ``epsilon`` the privacy budget of a
    round (None: without privacy)."""
    power = 10.0 ** (snr_db / 10) / (DIM if combination.power == "per block" else 1)
    norm = combination.clipping == "norm"
    # A gradient whose norm is the clip ell has the mean square ell^2/m over its m entries; where
    # entries are clipped, it may have the mean square ell^2.
    peak = 1.0 if scheme == "digital" else CLIP / (math.sqrt(DIM) if norm else 1.0)
    limits = [FADING * math.sqrt(power) / peak if combination.power != "off" else math.inf]
    step = _STEP_SIZES[scheme] * (
        combination.digital_step if scheme == "digital" else combination.analog_step
    )
    if combination.limits_noise(scheme):
        limits.append(math.sqrt(step / 2))
    if epsilon is not None:
        if scheme == "digital":
            # Norm clipping does not change the worst case of one entry, and the paper takes the
            # worst case in every entry.
            limits.append(_digital_gain(slope, epsilon, combination.accountant))
        else:
            limits.append(_analog_gain(epsilon, combination.accountant, combination.half, norm))
    return min(*limits, LOUDEST[scheme])


LOUDEST = {"digital": 30.0, "analog": 1.0}
"""Gain of each scheme, by its name, where nothing limits the gain; the channel's noise is
negligible at this gain."""


@lru_cache(maxsize=4096)
def _digital_gain(slope: float, epsilon: float, accountant: str) -> float:
    """Largest gain of the digital scheme with a sigmoid link, for noise of power 1, whose privacy
    loss in one round stays within epsilon; ``accountant`` chooses how the paper's bound is read."""
    uplink = Digital(link=Sigmoid(slope))
    if accountant == "by entry":
        return entry_gain(uplink, epsilon, readings.DELTA, DIM)
    kind, _, shift = accountant.partition(", ")
    bits = uplink.privacy_event([(1.0, DIM)])
    return bits.allowed_gain(epsilon, readings.DELTA, kind, DEVICES if shift != "1" else 2)


@lru_cache(maxsize=4096)
def _analog_gain(epsilon: float, accountant: str, half: str, norm: bool) -> float:
    """Largest gain of the analog scheme, for noise of power 1, whose privacy loss in one round
    stays within epsilon; ``accountant`` and ``half`` choose how the paper's privacy bound and its
    tail function T are read, ``norm`` whether gradients are clipped by norm."""
    event = GaussianEvent(2 * CLIP, 1.0, ((1.0, 1 if norm else DIM),))
    if accountant == "tight":
        return event.allowed_gain(epsilon, readings.DELTA, "tight", DEVICES)
    # Without its factor 1/2 the tail function T is twice a probability: T(x) >= 1 - delta then asks
    # for a probability of only (1 - delta)/2.
    target = readings.DELTA if half == "with 1/2" else 1 - (1 - readings.DELTA) / 2
    # Under the reading "by entry", epsilon/m takes the place of epsilon in the tail function T
    # alone; the m under the root of the formula comes from the event's m entries.
    share = epsilon / DIM if accountant == "by entry" else epsilon
    return largest_gain(
        lambda g: 1.0 if math.isinf(g) else gaussian.tail_delta(share, g * event.mu),
        target,
        1 / event.mu,
    )


TableKey = tuple[str, float, float, str]
"""Arguments, beside the gain, on which an error depends: scheme, slope, factor of the step, and
clipping."""


class ErrorTable:
    """Mean squared errors of every experiment on a grid of gains, for each scheme, slope, step and
    way of clipping.

    An error is measured when it is first asked for, because the interpretations of the paper's text
    reach only two thirds of the grid."""

    def __init__(
        self, model: LinearGaussian, seed: int, points: int, engine: str | Engine = "auto"
    ) -> None:
        self.model, self.seed, self.engine = model, seed, engine
        self.gains = {
            "digital": np.geomspace(0.004, LOUDEST["digital"], points),
            "analog": np.geomspace(1e-4, LOUDEST["analog"], points),
        }
        self._measured: dict[tuple[TableKey, int], Array] = {}

    def _log_errors(self, key: TableKey, index: int) -> Array:
        """Logarithm of the mean squared error of every experiment, (experiment), at the gain with
        number ``index`` in the grid; measured at the first call."""
        if (key, index) not in self._measured:
            gain = float(self.gains[key[0]][index])
            self._measured[key, index] = np.log(self._errors(key, gain))
        return self._measured[key, index]

    def _errors(self, key: TableKey, gain: float) -> Array:
        """Mean squared error of every experiment, (experiment), from chains that are run with one
        gain; ``key`` names scheme, slope, step and clipping."""
        scheme, slope, factor, clipping = key
        uplink: Uplink
        if scheme == "digital":
            uplink = Digital(link=Sigmoid(slope), snr_db=200.0, clipping=clipping)
        else:
            uplink = Analog(snr_db=200.0, clipping=clipping)
        step = _STEP_SIZES[scheme] * factor
        planned = plan(
            self.model, uplink, Limits(langevin="off"), step_size=step, gain=gain, forecast=False
        )
        return squared_errors(simulate(planned, self.model, self.seed, engine=self.engine).moments)

    def errors(self, key: TableKey, gain: Array) -> Array:
        """Mean squared errors (gain, experiment) at the given gains (gain), interpolated between
        the gains of the grid in logarithms; a gain outside the grid counts as the nearer end."""
        grid = np.log(self.gains[key[0]])
        place = np.interp(np.log(gain), grid, np.arange(len(grid)))
        low = np.minimum(place.astype(int), len(grid) - 2)
        share = place - low
        table = np.zeros((len(grid), self.model.num_experiments))
        # At a point of the grid the neighbour has weight 0 in the interpolation, so it need not be
        # measured.
        for index in {*low[share < 1].tolist(), *(low[share > 0] + 1).tolist()}:
            table[index] = self._log_errors(key, index)
        share = share[:, None]
        return np.asarray(np.exp((1 - share) * table[low] + share * table[low + 1]))


@dataclass(frozen=True)
class JudgedCombination:
    """One interpretation of the paper's text, and the names of the paper's claims that hold under
    it."""

    combination: Combination
    holds: tuple[str, ...]

    @property
    def changes(self) -> int:
        """Number of choices in which this interpretation differs from the first values in
        ``CHOICES``, which are the printed ones but for the half in the tail function T(x), which
        print leaves out."""
        printed = [values[0] for values in CHOICES.values()]
        return sum(
            getattr(self.combination, f.name) != p
            for f, p in zip(fields(self.combination), printed, strict=True)
        )


Curve = tuple[Array, Array]


class CombinationFigures:
    """The curves of the paper's figures 2, 3 and 4 under any interpretation of its text,
    interpolated from a table of errors. Interpretations share a curve where they agree in
    everything that its scheme depends on, or where the same limits bind."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = table
        self._curves: dict[object, Curve] = {}
        self._of_gains: dict[object, Curve] = {}

    def of(self, combination: Combination) -> dict[str, dict[str, Curve]]:
        """The curves of figures 2, 3 and 4 under one interpretation, by number of the figure and
        then name of the curve; a curve is its x (point) and errors (point, experiment)."""
        snr = [(x, x, readings.EPSILON_OF_SNR_FIGURE) for x in readings.SNR_DB]
        epsilons = [(x, readings.SNR_OF_EPSILON_FIGURES, x) for x in readings.EPSILONS]
        slopes = [(x, readings.SNR_OF_EPSILON_FIGURES, x) for x in readings.EPSILONS_OF_SLOPES]
        both = ("digital", "analog")
        return {
            "2": {scheme: self._curve("2", combination, scheme, 0.05, snr) for scheme in both},
            "3": {scheme: self._curve("3", combination, scheme, 0.05, epsilons) for scheme in both},
            "4": {
                f"a = {a:g}": self._curve("4", combination, "digital", a, slopes)
                for a in readings.SLOPES
            },
        }

    def _curve(
        self,
        figure: str,
        combination: Combination,
        scheme: str,
        slope: float,
        points: list[tuple[float, float, float]],
    ) -> Curve:
        """One curve: x (point) and errors (point, experiment) of a scheme at ``points``, each a
        triple of x, SNR in dB and epsilon. Curves with equal gains are computed once."""
        digital = scheme == "digital"
        factor = combination.digital_step if digital else combination.analog_step
        # The key holds only the choices on which the scheme depends.
        own = (
            *(figure, scheme, slope, factor),
            *(combination.power, combination.accountant, combination.clipping),
            combination.limits_noise(scheme),
            "" if digital else combination.half,
        )
        if own not in self._curves:
            key = (scheme, slope if digital else 0.0, factor, combination.clipping)
            gains = tuple(
                gain_of(combination, scheme, slope, snr, epsilon) for _, snr, epsilon in points
            )
            same = (figure, key, gains)
            if same not in self._of_gains:
                self._of_gains[same] = (
                    np.array([x for x, _, _ in points]),
                    self._table.errors(key, np.array(gains)),
                )
            self._curves[own] = self._of_gains[same]
        return self._curves[own]


class _Judge:
    """Decides which of the paper's claims hold for given curves, and remembers the verdicts: the
    same claim about the same curves is judged once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, bool]] = {}

    def holding(self, figures: dict[str, dict[str, Curve]]) -> tuple[str, ...]:
        """Names of the paper's claims that hold for the curves of its figures under one
        interpretation of its text."""
        return tuple(
            name
            for name, claim in CLAIMS.items()
            if self._holds(name, claim, figures.get(claim.figure, {}))
        )

    def _holds(self, name: str, claim: Claim, curves: dict[str, Curve]) -> bool:
        """Whether a claim holds for the curves of its figure; False where it is undecided."""
        key = (name, *(id(curves[curve]) for curve in claim.curves or curves))
        if key not in self._known:
            # The curves are stored too, because the id of an object is unique only while the object
            # lives.
            self._known[key] = (curves, claim.judge(curves).holds is True)
        return self._known[key][1]


def search(table: ErrorTable, progress: Progress | None = None) -> list[JudgedCombination]:
    """All interpretations of the paper's text, each with the claims that hold under it:
    interpretations with most claims come first, and among equals the ones with the fewest changes
    of the printed text."""
    judged = []
    everything = list(combinations())
    figures, judge = CombinationFigures(table), _Judge()
    for index, combination in enumerate(everything):
        judged.append(JudgedCombination(combination, judge.holding(figures.of(combination))))
        if progress is not None:
            progress((index + 1) / len(everything))
    return sorted(judged, key=lambda each: (-len(each.holds), each.changes))
