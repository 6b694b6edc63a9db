"""The sections of the report on the study, and its summary. The module's constants are texts that
do not depend on measurements; some have placeholders for numbers, which are computed from the
results or from formulas."""

from __future__ import annotations

import math
from collections.abc import Sequence

from flmc.papers.qflmc import readings
from flmc.papers.qflmc.better_designs import power_gained_db
from flmc.papers.qflmc.claims import CLAIMS
from flmc.papers.qflmc.design_search import CHOICES, JudgedCombination
from flmc.papers.qflmc.landmarks import LANDMARKS, digital_stops_db
from flmc.papers.qflmc.study import SEARCH_EXPERIMENTS, SEARCH_POINTS, Study
from flmc.views.reports import Block

PAPER = (
    'The paper: Yunchuan Zhang, Dongzhu Liu and Osvaldo Simeone, "Leveraging Channel Noise for'
    ' Sampling and Privacy via Quantized Federated Langevin Monte Carlo".'
)

QUESTION = (
    "The paper lets devices send their gradients as random single bits (digital) or as they are"
    " (analog) over a noisy channel, whose noise both drives the sampler and hides the data. It"
    " says that digital has the smaller error at high SNR and under strict privacy. Here its"
    " three figures are measured again, and each sentence about them, a claim, is judged."
)

WHAT_A_READING_IS = (
    "A reading is one way to take the paper's text, which leaves room: which privacy formula,"
    " which noise limit, which step. Every figure is drawn under each of them:"
)

CONJECTURE = (
    "`by entry` is a conjecture about the authors' program: each of the m = 5 entries gets"
    " epsilon/m. Digital takes the largest A with Pr(|loss of one entry of the exact pair| >"
    " epsilon/m) <= delta, without the Langevin limit; analog takes the printed formula with the"
    " half, epsilon/m in T but m kept in the root, with the Langevin limit. It is not a sound"
    " privacy rule: delta is spent anew in every entry, so that only m delta is proven for a"
    " round, and analog pays for m twice. (Its gains in these figures are below what the exact"
    " pair allows.) Nothing in it was fitted to a number, but it was chosen: it was found after"
    " a search of 201 344 combinations of formulas (88 digital, 572 analog, 4 ways to switch the"
    " Langevin limit), none of which satisfies all claims. That search was made once and is not"
    " part of this program; the search below is. So the near numbers are a hint at what was"
    " computed, not a proof."
)

LANDMARKS_IN_WORDS = (
    "The first two are where the gain becomes the one without privacy, from the formulas."
    " Crossings are interpolated between the points of a figure, in the logarithm of the ratio"
    " of mean errors."
)

CONTRADICTION = (
    "With the printed privacy bound, two claims contradict each other at any step sizes. At"
    " epsilon = 5 the bound allows digital a gain that power reaches at {stops:.1f} dB. The"
    " bound does not depend on the SNR, and the Langevin limit does not either: from {stops:.1f}"
    " dB on digital's chain is the same at every SNR, and so is its error. Analog's gain never"
    " falls as the SNR grows, and a larger gain does nothing but divide the channel noise (while"
    " no gradient is clipped, the error is that of the noiseless chain plus a multiple of"
    " N_0/A^2; with clipping a larger gain has the smaller error too, as measured from a tenth"
    " to ten times the printed step). So if analog is better at 15 dB, it is better at 20 dB:"
    " 'analog has the smaller error below 17.5 dB' excludes 'digital has the smaller error above"
    " 17.5 dB', and digital cannot overtake analog anywhere above {stops:.1f} dB. This holds for"
    " power as printed; counted for the block of m entries, digital stops 7 dB later."
)

FIGURES_IN_WORDS = (
    "Left: mean squared error in the paper's axes; the dotted line is trace(Sigma), the error"
    " of exact posterior samples: below it a sampler has collapsed. Right: squared W2 distance"
    " from the Gaussian fitted to the 100 draws of one run to the posterior, which is large for"
    " a cloud that is too narrow as well; the dotted line is that of 100 independent exact"
    " draws, out of reach for a chain with memory. Broad and pale: without privacy. Shaded: one"
    " standard error. Errors far above the dotted line at low SNR or small epsilon under"
    " `calibrated` belong to chains that have not arrived after 200 rounds of burn-in: their"
    " steps are as small as the noise demands."
)

REASON = (
    "The likely reason. At the printed digital step the random bits alone make the samples eta"
    " K/(2 kappa) = {floor:.3g} times as wide in variance as the posterior, at any SNR and"
    " without any privacy; with the Langevin limit as printed it is {literal:.3g} times. The"
    " analog scheme at its printed step is limited by Langevin noise to the right width, once"
    " power and privacy allow it. So digital can have the smaller error only where privacy holds"
    " analog back by more than that factor. At epsilon = 5 it does so under `by entry` alone,"
    " where analog pays for m twice. The MSE rewards the narrower cloud; it does not ask whether"
    " the cloud is the posterior. Under `calibrated` both errors are near trace(Sigma) once"
    " power and privacy allow the step; which of them is the smaller there is decided by the"
    " discretisation error of its step, a few per cent, not by the channel."
)

BEYOND_IN_WORDS = (
    "At equal SNR, equal effective step and equal rounds, else the slower sampler looks more"
    " private. Epsilon of a round at delta 0.01 by the scheme's own criterion; of the run at"
    " delta 1e-5, always tight. The exact worst-case pair allows {decibels:.1f} dB more transmit"
    " power than the paper's bound at epsilon = 5. What is true: calibration is what brings the"
    " samples to the posterior; at equal effective step neither calibrated scheme is more"
    " private throughout, and digital's advantages are its bounded loss and its one-bit radio."
)

FEW_CHAINS = (
    " No squared W2 distance is given where a data set has fewer than 20 independent draws; the"
    " full study has enough chains everywhere."
)

SEARCH_IN_WORDS = (
    "Every combination of these is tried. The first of each list is what is printed, but for the"
    " half of T(x), which print leaves out. Steps are factors of the printed ones; 'paper, 1'"
    " puts 1 in place of K - 1 in the loss; 'by entry' is the conjecture's rule."
)

SEARCH_SETTINGS = (
    "The privacy limit stays on: without it nothing depends on epsilon, and half of the claims"
    " are void. {experiments} experiments with common random numbers; errors interpolated over"
    " {points} gains. Only claims that hold are counted, not those that so few experiments leave"
    " undecided."
)

INTERVALS = (
    "Ratios are of mean errors over the same experiments, with 99 % intervals from their paired"
    " differences; verdicts are computed from them, `undecided` where an interval leaves both"
    " open. A saturation point counts as the claimed one within one step of the grid. The rule"
    " for 'larger a' was chosen after a preview of 50 experiments: the first rule, that the best"
    " a never falls with epsilon, failed under `unlimited` there; the present one asks for less."
)


def claims_section(study: Study) -> list[Block]:
    """The section of the report on the paper's claims: the rules by which they are judged, a table
    of verdicts, and a likely reason why some fail."""
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
    """The section of the report on the landmarks (numbers that the paper's text states), with
    printed and measured values; an empty list if none of them was measured."""
    header = ["number", "printed", *(reading.label for reading in readings.READINGS)]
    rows = [
        [
            f"figure {mark.figure}: {mark.words}",
            f"{mark.printed:g}{mark.unit}",
            *(in_words(values[name], mark.unit) for values in study.landmarks.values()),
        ]
        for name, mark in LANDMARKS.items()
        if all(name in values for values in study.landmarks.values())
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
    """The measured values of a landmark (a number that the paper's text states) as text for a cell
    of a table, with ``unit`` behind each; ``none`` if there are no values."""
    return ", ".join(f"{value:.3g}{unit}" for value in values) or "none"


def contradiction_section() -> list[Block]:
    """The section of the report that shows, without simulation, that two of the paper's claims
    contradict each other under its privacy bound as printed."""
    return [
        ("heading", "What needs no search"),
        ("text", CONTRADICTION.format(stops=digital_stops_db())),
    ]


def _reason() -> str:
    """A paragraph on why, at the printed step sizes, the digital scheme can have the smaller error
    only where privacy limits the gain of the analog one; its numbers come from formulas."""
    # The step size eta of the paper's digital scheme, the slope kappa = a/2 of its sigmoid with
    # a = 0.05, and its number of devices K. The temperature, the factor by which the sampled
    # variance exceeds the posterior's, is T = eta (V + N)/(2 kappa): random bits add the variance
    # V = K to the sum of symbols, and the channel N = 2/eta by the paper's limit of the gain.
    step, slope, devices = 8.28e-3, 0.025, 20
    floor = step * devices / (2 * slope)
    literal = step * (devices + 2 / step) / (2 * slope)
    return REASON.format(floor=floor, literal=literal)


def beyond_section(study: Study) -> list[Block]:
    """The section of the report that compares the paper's schemes with schemes whose gain flmc
    calibrates for temperature 1."""
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


def failing(judged: JudgedCombination) -> list[str]:
    """Names of the paper's claims that do not hold under one interpretation of its text."""
    return [name for name in CLAIMS if name not in judged.holds]


def search_section(study: Study) -> list[Block]:
    """The section of the report on the search over interpretations of the paper's text: the
    possible choices, the largest number of claims that hold at the same time, and a table of the 15
    interpretations under which most claims hold."""
    header = [*(name.replace("_", " ") for name in CHOICES), "claims", "fails"]
    rows = [
        [
            *map(str, vars(judged.combination).values()),
            str(len(judged.holds)),
            "; ".join(failing(judged)),
        ]
        for judged in study.combinations[:15]
    ]
    # The values are joined by semicolons, because some of them, such as "paper, 1", contain a
    # comma.
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
        ("text", f"What came out: {search_verdict(study)} {_by_langevin(study.combinations)}"),
        ("text", "The nearest, fewest changes first; all are in search.csv."),
        ("table", (header, rows)),
    ]


def search_verdict(study: Study) -> str:
    """A sentence with the largest number of claims that hold at the same time, and the number of
    interpretations of the paper's text under which that many hold."""
    judged = study.combinations
    best, total = len(judged[0].holds), len(CLAIMS)
    most = sum(len(each.holds) == best for each in judged)
    if best == total:
        return f"under {most} of {len(judged)} combinations all {total} claims hold."
    return (
        f"under none of {len(judged)} combinations do all {total} claims hold; the most is"
        f" {best}, under {most} of them."
    )


def _by_langevin(judged: Sequence[JudgedCombination]) -> str:
    """Sentences with the largest number of claims that hold if the limit of the gain by Langevin
    noise applies to both schemes, to one, or to neither: over all step sizes of the search, and
    with the printed step sizes only."""
    printed_steps = [
        f for f in judged if f.combination.analog_step == 1.0 == f.combination.digital_step
    ]

    def most(among: Sequence[JudgedCombination]) -> dict[str, int]:
        kinds = (str(kind) for kind in CHOICES["langevin"])
        return {
            kind: max(len(f.holds) for f in among if f.combination.langevin == kind)
            for kind in kinds
        }

    free, printed = most(judged), most(printed_steps)
    ways = ", ".join(f"{kind} {free[kind]} ({printed[kind]})" for kind in free)
    best = " and ".join(f"'{kind}'" for kind in free if printed[kind] == max(printed.values()))
    return (
        "The Langevin limit is switched for each scheme. The most claims, by what it limits, with"
        f" any steps and in brackets with the printed ones: {ways}. With the printed steps {best}"
        " comes nearest."
    )


def summary(study: Study) -> list[Block]:
    """The section with which the report begins: the question, the readings of the paper's text, and
    the findings."""
    return [
        ("heading", "Summary"),
        ("text", QUESTION),
        ("text", WHAT_A_READING_IS),
        ("list", [_of_reading(study, reading) for reading in readings.READINGS]),
        ("text", "What came out:"),
        ("list", _findings(study)),
    ]


def _of_reading(study: Study, reading: readings.Reading) -> str:
    """A text that describes one reading of the paper, with the number of claims that hold under
    it."""
    verdicts = study.verdicts[reading.name].values()
    held = sum(verdict.holds is True for verdict in verdicts)
    return f"`{reading.name}`: {reading.words}. {held} of {len(verdicts)} claims hold."


def _findings(study: Study) -> list[str]:
    """The findings of the study as a list of texts of one or two sentences."""
    first = next(iter(study.verdicts.values()))
    all_hold = [
        name
        for name, verdicts in study.verdicts.items()
        if all(verdict.holds for verdict in verdicts.values())
    ]
    sentences = [
        f"All claims hold under {', '.join(f'`{name}`' for name in all_hold)}."
        if all_hold
        else "Under no reading do all claims hold."
    ]
    for kind, holds in (("every", True), ("no", False)):
        same = [
            verdict.claim
            for key, verdict in first.items()
            if all(verdicts[key].holds is holds for verdicts in study.verdicts.values())
        ]
        if same:
            sentences.append(f"Under {kind} reading: {'; '.join(same)}.")
    if "2" in study.figures:
        sentences.append(
            "Two claims about figure 2 exclude each other under the printed privacy bound, at any"
            f" step sizes: digital stops improving at {digital_stops_db():.1f} dB, so it cannot"
            " overtake analog at 17.5 dB."
        )
    near = [reading for reading in readings.READINGS if reading.conjecture]
    for reading in near if set(study.figures) >= {"2", "3"} else []:
        marks = study.landmarks[reading.name]
        ours = ", ".join(in_words(marks[name], mark.unit) for name, mark in LANDMARKS.items())
        printed = ", ".join(f"{mark.printed:g}{mark.unit}" for mark in LANDMARKS.values())
        sentences.append(
            f"The conjecture `{reading.name}` puts the four numbers of the text at {ours}, where"
            f" {printed} are printed, with nothing fitted. It is a guess at the authors' program,"
            " found after a search of 201 344 combinations of formulas of which none satisfies all"
            " claims, and it is not a sound privacy rule."
        )
    if study.combinations:
        sentences.append(f"A search over what the text leaves open: {search_verdict(study)}")
    if study.best.cells:
        sentences.append(study.best.sentence())
    sentences.append(
        "The paper's error rewards a narrow cloud of samples, whether or not it is the posterior."
        " What brings the samples to the posterior is noise of the right size, as under"
        " `calibrated`, for digital and analog alike."
    )
    return sentences
