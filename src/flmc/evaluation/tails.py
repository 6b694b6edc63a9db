"""Tails of the draws of a run whose posterior is normal: fourth moments, and findings about them.

Noise that is not normal, or that differs much between rounds, leaves the variance of the draws as
planned and makes their tails heavier or lighter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.evaluation.chain_statistics import FEWEST_DRAWS
from flmc.evaluation.diagnostics import MOST_DRAWS, Mixing, thinned

_NEARLY_AGREED = 1.1
"""Largest R-hat with which the shape of the draws of all chains together is judged; with a larger
one, differences between chains would change the shape."""
_LEAST_FOR_SHAPE, _ODD_SHAPE, _WRONG_SHAPE = 200.0, 0.3, 1.0
"""Limits for judging the shape of the draws of a normal posterior: ``_LEAST_FOR_SHAPE`` is the
smallest number of effective draws with which their kurtosis is judged; an excess kurtosis above
``_ODD_SHAPE`` brings a note, and one above ``_WRONG_SHAPE`` a warning."""
_FALSE_ALARMS = 1e-3
"""Share of runs with exact draws of a normal posterior in which the tails of some entry may bring a
finding by chance."""
_MOST_STORED = 20_000_000
"""About the largest number of entries of theta, over all draws, that are stored only to judge
tails; if there are more, only every second, third, ... draw is stored."""


class Tails(NamedTuple):
    """Tails of draws whose posterior is normal: fourth moment and outlying draws of the entry of
    theta whose excess kurtosis is largest in magnitude."""

    entry: int
    """Number, from 0, of the entry of theta whose excess kurtosis is largest in magnitude."""
    excess: float
    """Excess kurtosis of the draws of this entry; 0 for a normal law."""
    beyond: float
    """Share of this entry's draws that are more than three standard deviations from their mean;
    0.0027 for a normal law."""
    found: bool
    """Whether the excess kurtosis is larger than chance explains for draws of a normal law, and
    large enough to matter."""
    effective: float
    """Number of independent draws that the judged draws are worth."""


def measure_tails(chains: Array | None, mixing: Mixing | None) -> Tails | str:
    """Tails of the draws of the first data set, from ``chains`` (experiment, chain, draw, dim) and
    their agreement ``mixing``; or the reason, as the end of a sentence, why they cannot be
    judged."""
    if chains is None or mixing is None:
        return "no draws were kept"
    if mixing.doubt > _NEARLY_AGREED:
        return f"the chains do not agree (R-hat {mixing.doubt:.3g})"
    effective = mixing.entries.ess_bulk
    if not effective >= _LEAST_FOR_SHAPE:
        return f"it takes {_LEAST_FOR_SHAPE:.0f} effective draws, and there are {effective:.0f}"
    draws = thinned(chains).reshape(-1, chains.shape[-1])
    scaled = (draws - draws.mean(axis=0)) / draws.std(axis=0)
    excess = (scaled**4).mean(axis=0) - 3.0
    worst = int(np.argmax(np.abs(excess)))
    count = min(effective, len(draws))
    score = kurtosis_score(float(excess[worst]), count)
    # A two-sided test with Bonferroni's correction for the number of entries, because the entry
    # with the largest excess was chosen.
    surprising = abs(score) > NormalDist().inv_cdf(1.0 - _FALSE_ALARMS / (2.0 * len(excess)))
    found = bool(surprising and abs(excess[worst]) > _ODD_SHAPE)
    beyond = float((np.abs(scaled[:, worst]) > 3.0).mean())
    return Tails(worst, float(excess[worst]), beyond, found, count)


def judge_shape(
    chains: Array | None,
    mixing: Mixing | None,
    *,
    doubted: bool = False,
    names: Sequence[str] = (),
) -> list[Finding]:
    """List with one finding where draws (experiment, chain, draw, dim) of a normal posterior have
    heavier or lighter tails than a normal law, about the entry with the largest excess kurtosis;
    else empty. Only the first data set is judged, and only if its chains have nearly mixed and hold
    at least 200 effective draws. Where the shape is ``doubted``, as under noise that is not normal,
    a finding also says that the tails were not judged, and why, or that they were right. ``names``
    are those of the entries; empty: they have numbers."""
    tails = measure_tails(chains, mixing)
    if isinstance(tails, str):
        short = "the tails of the draws were not judged"
        return [Finding("tails-unknown", "unknown", f"{short}: {tails}", short)] * doubted
    entry = names[tails.entry] if names else f"theta[{tails.entry}]"
    numbers = {"excess_kurtosis": tails.excess, "beyond_three_sd": tails.beyond}
    if not tails.found:
        text = (
            f"the tails of the draws are not told from those of the normal posterior: excess"
            f" kurtosis {tails.excess:.2g} in {entry}, the largest, of"
            f" {tails.effective:.0f} effective draws; 0 is right, and up to {_ODD_SHAPE:g} is let"
            " pass"
        )
        return [Finding("tails-judged", "note", text, numbers=numbers)] * doubted
    side = "heavier" if tails.excess > 0 else "lighter"
    short = f"excess kurtosis {tails.excess:.2g} in {entry}, must be 0"
    text = (
        f"{short}: the draws' tails are {side} than those of the posterior, which is normal"
        f" ({100 * tails.beyond:.2g} % lie beyond three standard deviations, 0.27 % should),"
        " whatever their variance; the noise is not normal, or differs much between rounds: use a"
        " smaller step, over which noise averages out"
    )
    grade: Grade = "warning" if abs(tails.excess) > _WRONG_SHAPE else "note"
    return [Finding("tails", grade, text, short, numbers)]


def thin_for_tails(num_kept: int, num_chains: int, numbers_a_round: int) -> int:
    """The number n such that every n-th kept round is stored, for a run that keeps no draws but
    whose tails are judged. It is large enough that about 10,000 draws of the ``num_chains`` chains
    of a data set and at most 160 MB are stored, but at least four draws of each chain are.
    ``num_kept`` is the number of kept rounds, ``numbers_a_round`` the number of entries of theta in
    all chains of all data sets."""
    wanted = max(
        math.ceil(num_kept * num_chains / MOST_DRAWS),
        math.ceil(num_kept * numbers_a_round / _MOST_STORED),
    )
    return max(1, min(wanted, num_kept // FEWEST_DRAWS))


def kurtosis_score(excess: float, count: float) -> float:
    """Score of the ``excess`` kurtosis of ``count`` independent numbers, at least 20, that is
    about standard normal if the numbers are normal (Anscombe and Glynn, Biometrika 70, 1983).

    The kurtosis over its standard deviation would not do: its law has a long right tail."""
    n = count
    mean = -6.0 / (n + 1.0)
    variance = 24.0 * n * (n - 2.0) * (n - 3.0) / ((n + 1.0) ** 2 * (n + 3.0) * (n + 5.0))
    skew = 6.0 * (n * n - 5.0 * n + 2.0) / ((n + 7.0) * (n + 9.0))
    skew *= math.sqrt(6.0 * (n + 3.0) * (n + 5.0) / (n * (n - 2.0) * (n - 3.0)))
    a = 6.0 + 8.0 / skew * (2.0 / skew + math.sqrt(1.0 + 4.0 / skew**2))
    scaled = 1.0 + (excess - mean) / math.sqrt(variance) * math.sqrt(2.0 / (a - 4.0))
    if scaled <= 0.0:  # tails so light that no sample of normal numbers has them
        return -math.inf
    root = math.cbrt((1.0 - 2.0 / a) / scaled)
    return (1.0 - 2.0 / (9.0 * a) - root) / math.sqrt(2.0 / (9.0 * a))
