"""The sections of the report, each from the results and the formulas alone."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flmc.papers.qflmc import readings
from flmc.papers.qflmc.beyond import power_gained_db
from flmc.papers.qflmc.claims import CLAIMS
from flmc.papers.qflmc.combinations import CHOICES
from flmc.papers.qflmc.landmarks import LANDMARKS, digital_stops_db
from flmc.papers.qflmc.reporting.words import (
    BEYOND_IN_WORDS,
    CONJECTURE,
    CONTRADICTION,
    FEW_CHAINS,
    INTERVALS,
    LANDMARKS_IN_WORDS,
    REASON,
    SEARCH_IN_WORDS,
    SEARCH_SETTINGS,
)
from flmc.papers.qflmc.search import Found
from flmc.papers.qflmc.study import SEARCH_EXPERIMENTS, SEARCH_POINTS, Study
from flmc.views.reports import Block


def claims_section(study: Study) -> list[Block]:
    """The section on the claims: how they are judged, a table of verdicts, and a likely reason.

    Parameters
    ----------
    study
        All results, with verdicts.
    """
    names = list(study.verdicts)
    header = ["claim", "decided by", *(reading.label for reading in readings.READINGS)]
    rows = []
    for key, first in next(iter(study.verdicts.values())).items():
        verdicts = [study.verdicts[name][key] for name in names]
        rows.append([first.claim, first.statistic, *(f"{v.word}: {v.value}" for v in verdicts)])
    return [
        ("heading", "Claims"),
        ("text", INTERVALS),
        ("table", (header, rows)),
        ("text", _reason()),
    ]


def landmarks_section(study: Study) -> list[Block]:
    """The section on the numbers that the paper's text names; none where no figure has any.

    Parameters
    ----------
    study
        All results, with landmarks.
    """
    header = ["number", "printed", *(reading.label for reading in readings.READINGS)]
    rows = [
        [
            f"figure {mark.figure}: {mark.words}",
            f"{mark.printed:g}{mark.unit}",
            *(in_words(found[name], mark.unit) for found in study.landmarks.values()),
        ]
        for name, mark in LANDMARKS.items()
        if all(name in found for found in study.landmarks.values())
    ]
    if not rows:
        return []
    return [
        ("heading", "The numbers of the text"),
        ("text", LANDMARKS_IN_WORDS),
        ("table", (header, rows)),
        ("text", CONJECTURE),
    ]


def in_words(values: Sequence[float], unit: str) -> str:
    """Values of a landmark for a table.

    Parameters
    ----------
    values, unit
        None, one or several values, and what stands behind each.
    """
    return ", ".join(f"{value:.3g}{unit}" for value in values) or "none"


def contradiction_section() -> list[Block]:
    """The section with the proof that two claims contradict each other under the printed bound."""
    return [
        ("heading", "What needs no search"),
        ("text", CONTRADICTION.format(stops=digital_stops_db())),
    ]


def _reason() -> str:
    """Why digital cannot win at the printed steps, from the formulas alone."""
    # The printed digital step; kappa = a/2 of the sigmoid with a = 0.05; K. With V_q = K and the
    # noise N_0/A^2 = 2/eta of the printed Langevin limit, T = eta (V_q + N_0/A^2)/(2 kappa).
    step, slope, devices = 8.28e-3, 0.025, 20
    floor = step * devices / (2 * slope)
    literal = step * (devices + 2 / step) / (2 * slope)
    return REASON.format(floor=floor, literal=literal)


def beyond_section(study: Study) -> list[Block]:
    """The section on what a better design gains.

    Parameters
    ----------
    study
        All results, with the comparison beyond the paper.
    """
    header = [
        "sweep",
        "x",
        "scheme",
        "gain",
        "T",
        "rounds",
        "variance ratio",
        "W2 squared",
        "mean error squared",
        "eps round",
        "eps run",
    ]
    rows = [
        [
            "SNR, dB" if r.sweep == "snr_db" else "epsilon",
            f"{r.x:g}",
            r.scheme,
            f"{r.gain:.4g}",
            f"{r.temperature:.3g}",
            str(r.rounds),
            f"{r.variance_ratio:.3g} ± {r.variance_ratio_se:.1g}",
            (
                "-"
                if math.isnan(r.wasserstein2_squared)
                else f"{r.wasserstein2_squared:.3g} ± {r.wasserstein2_squared_se:.1g}"
            ),
            f"{r.mean_error_squared:.2g} ± {r.mean_error_squared_se:.1g}",
            "unbounded" if math.isinf(r.epsilon_round) else f"{r.epsilon_round:.3g}",
            f"{r.epsilon_run:.4g}",
        ]
        for r in study.beyond
    ]
    few = any(math.isnan(r.wasserstein2_squared) for r in study.beyond)
    return [
        ("heading", "Beyond the paper"),
        ("text", BEYOND_IN_WORDS.format(decibels=power_gained_db()) + (FEW_CHAINS if few else "")),
        ("table", (header, rows)),
    ]


def failing(found: Found) -> list[str]:
    """Names of the claims that do not hold under a combination.

    Parameters
    ----------
    found
        A combination that was judged.
    """
    return [name for name in CLAIMS if name not in found.holds]


def search_section(study: Study) -> list[Block]:
    """The section on the search: how many combinations satisfy how many claims.

    Parameters
    ----------
    study
        All results, with what the search found.
    """
    header = [*(name.replace("_", " ") for name in CHOICES), "claims", "fails"]
    rows = [
        [
            *map(str, vars(found.combination).values()),
            str(len(found.holds)),
            "; ".join(failing(found)),
        ]
        for found in study.found[:15]
    ]
    # "paper, 1" has a comma of its own.
    choices = [
        f"{name.replace('_', ' ')}: {'; '.join(map(str, values))}"
        for name, values in CHOICES.items()
    ]
    settings = SEARCH_SETTINGS.format(experiments=SEARCH_EXPERIMENTS, points=SEARCH_POINTS)
    return [
        ("heading", "Search over what the text leaves open"),
        ("text", SEARCH_IN_WORDS),
        ("list", choices),
        ("text", settings),
        ("text", f"What came out: {search_verdict(study)} {_by_langevin(study.found)}"),
        ("text", "The nearest, fewest changes first; all are in search.csv."),
        ("table", (header, rows)),
    ]


def search_verdict(study: Study) -> str:
    """How many claims hold at most, and under how many combinations, as a sentence.

    Parameters
    ----------
    study
        All results, with what the search found.
    """
    best, total = len(study.found[0].holds), len(CLAIMS)
    most = sum(len(found.holds) == best for found in study.found)
    if best == total:
        return f"under {most} of {len(study.found)} combinations all {total} claims hold."
    return (
        f"under none of {len(study.found)} combinations do all {total} claims hold; the most is"
        f" {best}, under {most} of them."
    )


def _by_langevin(found: Sequence[Found]) -> str:
    """How near each way to switch the Langevin limit comes, in words."""
    printed_steps = [
        f for f in found if f.combination.analog_step == 1.0 == f.combination.digital_step
    ]

    def most(among: Sequence[Found]) -> dict[str, int]:
        kinds = (str(kind) for kind in CHOICES["langevin"])
        return {
            kind: max(len(f.holds) for f in among if f.combination.langevin == kind)
            for kind in kinds
        }

    free, printed = most(found), most(printed_steps)
    ways = ", ".join(f"{kind} {free[kind]} ({printed[kind]})" for kind in free)
    best = " and ".join(f"'{kind}'" for kind in free if printed[kind] == max(printed.values()))
    return (
        "The Langevin limit is switched for each scheme. The most claims, by what it limits, with"
        f" any steps and in brackets with the printed ones: {ways}. With the printed steps {best}"
        " comes nearest."
    )
