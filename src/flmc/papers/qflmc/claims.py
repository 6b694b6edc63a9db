"""The claims of the paper's numerical section, each with the statistic that decides whether it
holds.

A claim is judged from the errors of both schemes in the same experiments (common random numbers).
"Smaller" means that the 99 % confidence interval of the ratio of mean errors lies below 1; where
the interval contains 1, the claim is undecided. All verdicts are computed."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.schemes import Analog, Digital

_RESAMPLES = 200
"""Number of bootstrap resamples of the experiments."""
_NEGLIGIBLE = 0.01
"""Relative excess of a mean error over its value at the last point of a curve below which the curve
counts as flat."""

CurveSet = Mapping[str, tuple[Array, Array]]
"""Curves of a figure, by name: for each its x values (point) and errors (point, experiment)."""
Figures = Mapping[str, CurveSet]


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim of the paper in our words (``claim``), the name of the statistic that decides it
    (``statistic``), a function that returns the statistic's value as text (``describe``), and
    whether the claim holds (None: undecided)."""

    claim: str
    statistic: str
    describe: Callable[[], str]
    """Function that returns the statistic's value as text. It is called only for verdicts that are
    printed, and not in the search over many interpretations of the paper."""
    holds: bool | None
    """Whether the claim of the paper holds; None: the experiments leave it undecided."""

    @cached_property
    def value(self) -> str:
        """The statistic that decides the claim of the paper, with its 99 % confidence interval, as
        text."""
        return self.describe()

    @property
    def word(self) -> str:
        """The verdict on the claim of the paper as a word: ``holds``, ``fails`` or
        ``undecided``."""
        return "undecided" if self.holds is None else "holds" if self.holds else "fails"


@lru_cache(maxsize=16)
def _quantile(count: int) -> float:
    """Half-width of a two-sided 99 % confidence interval for the mean of ``count`` values, in
    standard errors: the 99.5 % quantile of Student's distribution."""
    # SciPy is imported only here, because the import takes as long as making a plan.
    from scipy.special import stdtrit

    return float(stdtrit(count - 1, 0.995))


def paired(first: Array, second: Array) -> Array:
    """Ratio of the mean of the errors ``first`` to the mean of ``second``, and the lower and the
    upper end of its 99 % confidence interval, (..., 3). Both arguments are (..., experiment) and
    belong to the same experiments, so the interval is computed from paired differences."""
    difference, scale = first - second, second.mean(axis=-1)
    count = difference.shape[-1]
    half = _quantile(count) * difference.std(axis=-1, ddof=1) / math.sqrt(count) / scale
    interval = np.empty((*half.shape, 3))
    interval[..., 0] = ratio = first.mean(axis=-1) / scale
    interval[..., 1], interval[..., 2] = ratio - half, ratio + half
    return interval


def wins_throughout(ours: Array, theirs: Array) -> tuple[bool | None, Array]:
    """Two results. First: True if the mean error of one scheme, ``ours`` (point, experiment), is
    significantly smaller than that of another, ``theirs`` (point, experiment), at every point;
    False if it is significantly larger at some point; else None. Second: at the point that is least
    favourable for ``ours``, the ratio of the mean errors and the ends of its 99 % confidence
    interval, (3)."""
    ratios = paired(ours, theirs)
    lost = bool((ratios[:, 1] >= 1).any())
    worst = ratios[np.argmax(ratios[:, 1 if lost else 2])]
    return False if lost else True if worst[2] < 1 else None, worst


def _interval(values: Array) -> str:
    """Text of an estimate with its confidence interval, such as ``0.9 [0.8, 1]``; ``values`` are
    the estimate, the lower and the upper end, (3)."""
    middle, low, high = values
    return f"{middle:.3g} [{low:.3g}, {high:.3g}]"


def crossing(x: Array, ours: Array, theirs: Array, unit: str) -> str:
    """Text that names the intervals between neighbouring ``x`` (point) in which the mean errors of
    two curves cross, or says that they do not cross and which one is smaller. ``ours`` are the
    errors of the digital scheme, ``theirs`` those of the analog one, (point, experiment); ``unit``
    is that of x."""
    sign = np.sign(ours.mean(axis=1) - theirs.mean(axis=1))
    changes = [
        f"{x[i]:g} to {x[i + 1]:g}{unit}" for i in range(len(x) - 1) if sign[i] * sign[i + 1] < 0
    ]
    if changes:
        return "crossing at " + ", ".join(changes)
    return f"no crossing, {'digital' if sign[0] < 0 else 'analog'} is smaller throughout"


def saturation(x: Array, errors: Array) -> tuple[float, float, float]:
    """The x from which a falling curve is flat, and the lower and upper end of its 99 % confidence
    interval. It is the smallest of the given x (point) at which the mean of the errors (point,
    experiment) is less than 1 % above, or not significantly above, that at the last x."""
    ratio, low, _ = paired(errors, errors[-1:]).T
    # np.argmax returns the index of the first True. There always is one, because the last point is
    # compared with itself.
    place = x[np.argmax((ratio < 1 + _NEGLIGIBLE) | (low < 1))]
    return float(place), *_bootstrap_saturation(x, errors)


def _bootstrap_saturation(x: Array, errors: Array) -> tuple[float, float]:
    """Lower and upper end of a 99 % bootstrap interval of the x at which a curve becomes flat:
    experiments are resampled, and the curve counts as flat from the first x whose mean error is
    less than 1 % above that at the last x."""
    means = errors @ _resampling(errors.shape[1])
    places = x[np.argmax(means < (1 + _NEGLIGIBLE) * means[-1], axis=0)]
    low, high = np.quantile(places, [0.005, 0.995], method="nearest")
    return float(low), float(high)


@lru_cache(maxsize=4)
def _resampling(count: int) -> Array:
    """Weights of a bootstrap, (experiment, resample): the share that each of the ``count``
    experiments has in each resample, so that a column sums to 1."""
    drawn = np.random.default_rng(0).multinomial(count, np.full(count, 1 / count), size=_RESAMPLES)
    return np.ascontiguousarray(drawn.T / count)


@lru_cache(maxsize=1)
def finite_loss() -> ClaimVerdict:
    """Verdict on the claim that at high SNR the privacy loss of one round stays finite for the
    digital scheme, and grows without bound for the analog one. Both losses are computed at a gain
    80 dB above the noise."""
    gain = 10.0**4
    digital = Digital().privacy_event([(gain, 5)]).epsilon(0.01)
    analog = Analog().privacy_event([(gain, 5)]).epsilon(0.01)
    return ClaimVerdict(
        "at high SNR digital keeps a finite privacy loss, m a ell = 7.5, while analog's grows"
        " without bound",
        "epsilon of one round at amplitude 80 dB above the noise, delta 0.01 (exact)",
        lambda: f"digital {digital:.4g}, analog {analog:.3g}",
        digital <= 7.5 * (1 + 1e-9) and analog > 1e6,
    )


def above_the_crossing(curves: CurveSet) -> ClaimVerdict:
    """Verdict on the claim of figure 2 that the digital scheme has a smaller error than the analog
    one at every SNR above 17.5 dB."""
    x, digital, analog = _both(curves)
    holds, value = wins_throughout(digital[x > 17.5], analog[x > 17.5])
    return ClaimVerdict(
        "digital has the smaller error above 17.5 dB",
        "digital error over analog error, at the SNR above 17.5 dB where digital does worst (below"
        " 1: holds)",
        lambda: f"{_interval(value)}; {crossing(x, digital, analog, ' dB')}",
        holds,
    )


def below_the_crossing(curves: CurveSet) -> ClaimVerdict:
    """Verdict on the claim of figure 2 that the analog scheme has a smaller error than the digital
    one at every SNR below 17.5 dB."""
    x, digital, analog = _both(curves)
    holds, value = wins_throughout(analog[x < 17.5], digital[x < 17.5])
    return ClaimVerdict(
        "analog has the smaller error below 17.5 dB",
        "analog error over digital error, at the SNR below 17.5 dB where analog does worst (below"
        " 1: holds)",
        lambda: f"{_interval(value)}; {crossing(x, digital, analog, ' dB')}",
        holds,
    )


def _falls_until(curves: CurveSet, scheme: str, claimed: float) -> ClaimVerdict:
    """Verdict on the claim of figure 3 that the error of ``scheme`` falls as the privacy budget
    epsilon of a round grows up to ``claimed``, and does not fall any more beyond that."""
    x, errors = curves[scheme]
    start, low, high = saturation(x, errors)
    neighbours = x[np.abs(np.arange(len(x)) - np.searchsorted(x, claimed)) <= 1]
    inside = [bool(neighbours.min() <= place <= neighbours.max()) for place in (start, low, high)]
    beside = high < neighbours.min() or low > neighbours.max()
    return ClaimVerdict(
        f"the {scheme} error falls with epsilon until {claimed:g} and not beyond",
        "smallest epsilon of the grid from which the mean error falls by less than 1 %",
        lambda: f"{start:g} [{low:g}, {high:g}]",
        True if all(inside) else False if beside and not any(inside) else None,
    )


def strict_privacy(curves: CurveSet) -> ClaimVerdict:
    """Verdict on the claim of figure 3 that the digital scheme has a smaller error than the analog
    one for privacy budgets epsilon of a round up to 7.5."""
    x, digital, analog = _both(curves)
    holds, value = wins_throughout(digital[x <= 7.5], analog[x <= 7.5])
    return ClaimVerdict(
        "digital has the smaller error for epsilon <= 7.5 at 25 dB",
        "digital error over analog error, at the epsilon <= 7.5 where digital does worst (below 1:"
        " holds)",
        lambda: f"{_interval(value)}; {crossing(x, digital, analog, '')}",
        holds,
    )


def small_slope_first(curves: CurveSet) -> ClaimVerdict:
    """Verdict on the claim of figure 4 that, for privacy budgets epsilon of a round below 2, the
    link with the smallest slope parameter has the smallest error."""
    x, small = curves["a = 0.01"]
    strict = x < 2
    results = [
        wins_throughout(small[strict], errors[strict])
        for name, (_, errors) in curves.items()
        if name != "a = 0.01"
    ]
    return ClaimVerdict(
        "the noisiest quantiser, a = 0.01, has the smallest error for epsilon < 2",
        "error of a = 0.01 over that of another a, where it does worst (below 1: holds)",
        lambda: _interval(max((value for _, value in results), key=lambda ratio: ratio[2])),
        _all(holds for holds, _ in results),
    )


def _all(verdicts: Iterable[bool | None]) -> bool | None:
    """Three-valued "and" of verdicts: False if one verdict is False; else None (undecided) if one
    is None; else True."""
    kinds = set(verdicts)
    return False if False in kinds else None if None in kinds else True


def larger_slopes_later(curves: CurveSet) -> ClaimVerdict:
    """Verdict on the claim of figure 4 that links with larger slope parameters become better than
    the one with 0.01 from some epsilon on, and that the one with the largest has the smallest error
    at the largest epsilon."""
    names = list(curves)
    x, small = curves[names[0]]
    overtaken = {name[4:]: _ahead_from(x, curves[name][1], small) for name in names[1:]}
    order = np.argsort([errors[-1].mean() for _, errors in curves.values()])
    first, second = (curves[names[i]][1][-1] for i in order[:2])
    lead = paired(first, second)
    largest_last = None if lead[2] >= 1 else bool(order[0] == len(names) - 1)
    later = [
        (None if paired(curves[name][1], small)[-1, 1] < 1 else False)
        if start is None
        else bool(start > x[0])
        for name, start in zip(names[1:], overtaken.values(), strict=True)
    ]

    def describe() -> str:
        starts = ", ".join(
            f"{a} from {'never' if start is None else f'{start:g}'}"
            for a, start in overtaken.items()
        )
        best = names[order[0]][4:]
        return f"{starts}; best at last: {best}, error over the next {_interval(lead)}"

    return ClaimVerdict(
        "larger a becomes better as epsilon is relaxed",
        "epsilon from which each larger a stays ahead of a = 0.01 (99 %); best a at the largest"
        " epsilon",
        describe,
        _all([largest_last, *later]),
    )


def _ahead_from(x: Array, ours: Array, theirs: Array) -> float | None:
    """The smallest x (point) such that at it and at every larger x the mean error of one curve,
    ``ours`` (point, experiment), is significantly smaller than that of another, ``theirs`` (point,
    experiment); None if there is no such x."""
    behind = np.flatnonzero(paired(ours, theirs)[:, 2] >= 1)
    first = behind[-1] + 1 if len(behind) else 0
    return float(x[first]) if first < len(x) else None


def _both(curves: CurveSet) -> tuple[Array, Array, Array]:
    """The x values (point) of a figure, and the errors (point, experiment) of its digital and of
    its analog curve."""
    x, digital = curves["digital"]
    return x, digital, curves["analog"][1]


class Claim(NamedTuple):
    """A claim of the paper: the number of the figure that it is about (empty: it needs no figure),
    the function that computes the verdict from the figure's curves, and the names of the curves on
    which the verdict depends (empty: all)."""

    figure: str
    judge: Callable[[CurveSet], ClaimVerdict]
    curves: tuple[str, ...] = ()


CLAIMS = {
    "finite loss": Claim("", lambda curves: finite_loss()),
    "digital above 17.5 dB": Claim("2", above_the_crossing),
    "analog below 17.5 dB": Claim("2", below_the_crossing),
    "digital until 7.5": Claim(
        "3", lambda curves: _falls_until(curves, "digital", 7.5), ("digital",)
    ),
    "analog until 15": Claim("3", lambda curves: _falls_until(curves, "analog", 15.0), ("analog",)),
    "digital for epsilon <= 7.5": Claim("3", strict_privacy),
    "small a for epsilon < 2": Claim("4", small_slope_first),
    "larger a later": Claim("4", larger_slopes_later),
}


def judge(figures: Figures) -> dict[str, ClaimVerdict]:
    """Verdicts on all claims of the paper whose figure is in ``figures``, or that need none, by the
    name of the claim."""
    return {
        name: claim.judge(figures.get(claim.figure, {}))
        for name, claim in CLAIMS.items()
        if not claim.figure or claim.figure in figures
    }
