"""A search over interpretations of the paper's text, with its ambiguities and possible misprints,
for one that gives the published results.

The error of a scheme depends only on its gain, step size, slope parameter and kind of clipping. It
is measured once on a grid of gains for every combination of the others, with common random numbers.
For an interpretation of the text only the gains are computed, and the errors of each experiment are
interpolated at these gains.

The conjecture `by entry` is a rule by which the authors' program may have computed gains. It does
not guarantee the stated privacy: every one of the m entries gets the budget (epsilon/m, delta)."""

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
"""The paper's step sizes, by name of the scheme."""


def entry_gain(uplink: Uplink, epsilon: float, delta: float, dim: int) -> float:
    r"""Largest gain that the rule `by entry` allows for a privacy budget of a round; infinite if it
    allows every gain. The rule is a guess at the authors' program, in which each of the m = ``dim``
    entries gets the budget :math:`(\epsilon/m, \delta)`. Limits by power and Langevin noise are not
    applied.

    For a digital uplink it is the largest gain A with :math:`\Pr(|\text{loss of one entry}| >
    \epsilon/m) \le \delta` for the worst pair of gradients. For an analog uplink it is the printed
    formula :math:`A = \sqrt{N_0 x/(2 m \ell^2)}`, where x solves :math:`T(x) = 1 - \delta` with
    :math:`\epsilon/m` in place of :math:`\epsilon`. Here T(x), with a factor 1/2 that is missing in
    print, is the probability that a privacy loss with the law :math:`N(x, 2x)` is at most
    :math:`\epsilon` in magnitude.

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
    # In the printed formula epsilon occurs only in the tail function T, where epsilon/m replaces
    # it; the m under the root stays.
    return uplink.privacy_event([(1.0, dim)]).allowed_gain(share, delta, "tail")


def exceedance(gain: float, high: float, epsilon: float) -> float:
    r"""Probability that the privacy loss of one entry, which a device sends as a random bit,
    exceeds ``epsilon`` > 0 in magnitude. ``gain`` is in standard deviations of the noise; +1 has
    the probability ``high`` with one data set and 1 - ``high`` with the neighbouring one.

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
        # The probability of |y| > ``reached``. It is the same under N(A, 1) and N(-A, 1), and so
        # under their mixture, which is the law of y.
        return _below(gain - reached) + _below(-gain - reached)
    return 0.0


def limited(planned: Plan, gain: float) -> Plan:
    """A copy of the plan ``planned``, which was made without a privacy limit, with its gains
    limited to ``gain``. The copy states no privacy budget, because ``gain`` comes from a rule that
    is only a conjecture about the authors' program."""
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
    """One interpretation of the paper's text: a choice for each of its ambiguities, with the
    possible values in ``CHOICES``.

    ``power`` is the unit of the power limit, ``langevin`` the schemes whose gain is limited by
    Langevin noise, ``accountant`` the privacy formula, and ``half`` says whether the tail function
    T has the factor 1/2. ``digital_step`` and ``analog_step`` are factors of the printed step
    sizes; ``clipping`` bounds each entry or the norm. The first value of each choice is the printed
    one, except for ``half``: in print the factor is missing."""

    power: str
    langevin: str
    accountant: str
    half: str
    digital_step: float
    analog_step: float
    clipping: str

    def limits_noise(self, scheme: str) -> bool:
        """Whether, under this interpretation, the gain of ``scheme`` is limited so that the noise
        of the channel is at least as strong as Langevin sampling requires."""
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
    """Iterate over all interpretations of the paper's text: every combination of the values in
    ``CHOICES``."""
    for values in itertools.product(*CHOICES.values()):
        yield Combination(*values)  # type: ignore[arg-type]


def gain_of(
    combination: Combination, scheme: str, slope: float, snr_db: float, epsilon: float | None
) -> float:
    """The largest gain of ``scheme`` that the limits of power, Langevin noise and privacy allow
    under one interpretation of the paper; at most ``LOUDEST``. ``slope`` is the slope parameter of
    the digital scheme's sigmoid link, and ``epsilon`` the privacy budget of a round (None: without
    privacy)."""
    power = 10.0 ** (snr_db / 10) / (DIM if combination.power == "per block" else 1)
    norm = combination.clipping == "norm"
    # ``peak`` is the largest root mean square of a symbol. With the clip ell, a gradient of m
    # entries has at most ell/sqrt(m) where its norm is clipped, and ell where its entries are; a
    # bit has 1.
    peak = 1.0 if scheme == "digital" else CLIP / (math.sqrt(DIM) if norm else 1.0)
    limits = [FADING * math.sqrt(power) / peak if combination.power != "off" else math.inf]
    step = _STEP_SIZES[scheme] * (
        combination.digital_step if scheme == "digital" else combination.analog_step
    )
    if combination.limits_noise(scheme):
        limits.append(math.sqrt(step / 2))
    if epsilon is not None:
        if scheme == "digital":
            # The paper assumes the worst case in every entry at the same time. Clipping the norm
            # does not change the worst case of one entry, so it does not matter here.
            limits.append(_digital_gain(slope, epsilon, combination.accountant))
        else:
            limits.append(_analog_gain(epsilon, combination.accountant, combination.half, norm))
    return min(*limits, LOUDEST[scheme])


LOUDEST = {"digital": 30.0, "analog": 1.0}
"""Gain of each scheme, by its name, that replaces an unlimited gain; the channel's noise is
negligible at this gain."""


@lru_cache(maxsize=4096)
def _digital_gain(slope: float, epsilon: float, accountant: str) -> float:
    """Largest gain of the digital scheme with a sigmoid link, for noise of power 1, that keeps the
    privacy budget ``epsilon`` of one round, by the privacy formula ``accountant`` (a value of
    ``CHOICES``)."""
    uplink = Digital(link=Sigmoid(slope))
    if accountant == "by entry":
        return entry_gain(uplink, epsilon, readings.DELTA, DIM)
    kind, _, shift = accountant.partition(", ")
    bits = uplink.privacy_event([(1.0, DIM)])
    return bits.allowed_gain(epsilon, readings.DELTA, kind, DEVICES if shift != "1" else 2)


@lru_cache(maxsize=4096)
def _analog_gain(epsilon: float, accountant: str, half: str, norm: bool) -> float:
    """Largest gain of the analog scheme, for noise of power 1, that keeps the privacy budget
    ``epsilon`` of one round. ``accountant`` and ``half`` (values of ``CHOICES``) choose the privacy
    formula and whether its tail function T has the factor 1/2; ``norm`` says whether the norm of a
    gradient is clipped, not its entries."""
    event = GaussianEvent(2 * CLIP, 1.0, ((1.0, 1 if norm else DIM),))
    if accountant == "tight":
        return event.allowed_gain(epsilon, readings.DELTA, "tight", DEVICES)
    # Without the factor 1/2 the tail function T is twice a probability, so the condition
    # T(x) >= 1 - delta requires a probability of only (1 - delta)/2.
    target = readings.DELTA if half == "with 1/2" else 1 - (1 - readings.DELTA) / 2
    # By the rule "by entry", epsilon/m replaces epsilon in the tail function T only. The m under
    # the root of the printed formula enters through the m entries of ``event``.
    share = epsilon / DIM if accountant == "by entry" else epsilon
    return largest_gain(
        lambda g: 1.0 if math.isinf(g) else gaussian.tail_delta(share, g * event.mu),
        target,
        1 / event.mu,
    )


TableKey = tuple[str, float, float, str]
"""Everything but the gain on which the error of a scheme depends: name of the scheme, slope
parameter, factor of the printed step size, and kind of clipping."""


class ErrorTable:
    """Mean squared errors of every experiment on a grid of ``points`` gains, for each scheme, slope
    parameter, step size and kind of clipping.

    An error is measured, by running chains, only when it is first needed, because the
    interpretations of the paper's text need only about two thirds of the grid."""

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
        """Logarithm of the mean squared error of every experiment, (experiment), at gain number
        ``index`` of the grid for the scheme, slope, step and clipping in ``key``; measured at the
        first call."""
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
            self.model,
            uplink,
            Limits(langevin="off"),
            step_size=step,
            gain=gain,
            draw_at="positions",
            forecast=False,
        )
        return squared_errors(simulate(planned, self.model, self.seed, engine=self.engine).moments)

    def errors(self, key: TableKey, gain: Array) -> Array:
        """Mean squared errors, (gain, experiment), at the given gains (gain), for the scheme,
        slope, step and clipping in ``key``. The logarithm of the error is interpolated linearly in
        the logarithm of the gain; a gain outside the grid is replaced by the nearer end of the
        grid."""
        grid = np.log(self.gains[key[0]])
        place = np.interp(np.log(gain), grid, np.arange(len(grid)))
        low = np.minimum(place.astype(int), len(grid) - 2)
        share = place - low
        table = np.zeros((len(grid), self.model.num_experiments))
        # A gain that lies exactly on the grid needs no interpolation, so its neighbour, whose
        # weight is 0, is not measured.
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
        ``CHOICES``. These are the printed ones, except that T(x) has a factor 1/2 that is missing
        in print."""
        printed = [values[0] for values in CHOICES.values()]
        return sum(
            getattr(self.combination, f.name) != p
            for f, p in zip(fields(self.combination), printed, strict=True)
        )


Curve = tuple[Array, Array]


class CombinationFigures:
    """The curves of the paper's figures 2, 3 and 4 under any interpretation of its text,
    interpolated from a table of errors. A curve is computed once for all interpretations that give
    the same gains, step size and clipping."""

    def __init__(self, table: ErrorTable) -> None:
        self._table = table
        self._curves: dict[object, Curve] = {}
        self._of_gains: dict[object, Curve] = {}

    def of(self, combination: Combination) -> dict[str, dict[str, Curve]]:
        """The curves of the paper's figures 2, 3 and 4 under one interpretation of its text, by
        number of the figure, then by name of the curve: the x values (point) and errors (point,
        experiment) of each."""
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
        """The x values (point) and errors (point, experiment) of one curve of a figure: of
        ``scheme`` at ``points``, which are triples of x, SNR in dB and epsilon. Curves with equal
        gains are computed once."""
        digital = scheme == "digital"
        factor = combination.digital_step if digital else combination.analog_step
        # The key of the cache holds only those choices of the interpretation on which this scheme
        # depends.
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
    """Decides which of the paper's claims hold for given curves. Verdicts are cached, so that the
    same claim about the same curves is judged only once."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], tuple[object, bool]] = {}

    def holding(self, figures: dict[str, dict[str, Curve]]) -> tuple[str, ...]:
        """Names of the paper's claims that hold for ``figures``: curves by number of the figure,
        then by name of the curve."""
        return tuple(
            name
            for name, claim in CLAIMS.items()
            if self._holds(name, claim, figures.get(claim.figure, {}))
        )

    def _holds(self, name: str, claim: Claim, curves: dict[str, Curve]) -> bool:
        """Whether the claim ``name`` holds for the curves of its figure; False also where the
        experiments leave it undecided."""
        key = (name, *(id(curves[curve]) for curve in claim.curves or curves))
        if key not in self._known:
            # The curves are stored too, because the id of an object is unique only while the object
            # lives.
            self._known[key] = (curves, claim.judge(curves).holds is True)
        return self._known[key][1]


def search(table: ErrorTable, progress: Progress | None = None) -> list[JudgedCombination]:
    """All interpretations of the paper's text, each with the claims that hold under it. They are
    sorted by the number of claims, largest first, and among equals by the number of changes of the
    printed text, smallest first."""
    judged = []
    everything = list(combinations())
    figures, judge = CombinationFigures(table), _Judge()
    for index, combination in enumerate(everything):
        judged.append(JudgedCombination(combination, judge.holding(figures.of(combination))))
        if progress is not None:
            progress((index + 1) / len(everything))
    return sorted(judged, key=lambda each: (-len(each.holds), each.changes))
