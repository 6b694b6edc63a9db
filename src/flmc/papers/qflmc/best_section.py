"""The report's section that compares the digital with the analog scheme, each with its best design
at equal privacy of the run: what is proven, the map of predicted errors, trials of some designs,
and the paper's claims. All numbers are computed from results.

The constants are texts that do not depend on measurements; some have placeholders for numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from flmc.papers.qflmc.best_designs import DELTA, EXAMPLES, Cell, Place
from flmc.papers.qflmc.best_trials import INTERVAL, Trial
from flmc.papers.qflmc.claims import ClaimVerdict
from flmc.papers.qflmc.information import Threshold, most_devices, rule_of_thumb, run_epsilon
from flmc.papers.qflmc.readings import DELTA as ROUND_DELTA
from flmc.papers.qflmc.readings import EPSILON_OF_SNR_FIGURE, READINGS
from flmc.views.reports import Block

RESOLUTION = 0.002
"""Relative difference of the best errors of two schemes up to which they count as equal, because
the search for designs finds the best error no more accurately."""
_PAPER_DEVICES, _PAPER_ENTRIES, _PAPER_ROUNDS = 20, 5, 300

QUESTION = (
    "The paper's figures give each scheme one printed step, and a budget to every round. What a"
    " device gives away is decided by the whole run: epsilon {epsilon:g} a round at delta"
    " {round_delta:g} makes {run:.0f} for {rounds} rounds of a Gaussian mechanism, at delta"
    " {delta:g}. So here both schemes have the same budget of the run, and each the design (clip,"
    " link, slope, gain, step, and up to {rounds} rounds) with the smallest predicted error of what"
    " the server knows after it: the standard deviation that it states for an entry of theta,"
    " with the shift of the mean that clip and link cause, over that of the exact posterior."
    " Devices are alike and have {examples} examples each."
)

PROVEN = (
    "What is proven (docs/privacy.md, section 14). A device sends n = entries x rounds symbols, K"
    " devices transmit. With certain bits at the clip digital costs exactly as much privacy as"
    " analog and has the noise of K random bits in addition: it never wins, and comes as near as"
    " one likes with many rounds. In the limit of many bits that each say little, the information"
    " of digital over that of analog is at most (1 + s)/(1 + K s), where s is the squared gain"
    " over the noise power: never above 1. Only few bits that are received nearly without noise,"
    " whose bounded loss spends epsilon and hardly any delta, can do better: up to K ="
    " epsilon^2/(n mu^2) devices, nearly, where mu is that of the Gaussian mechanism with the same"
    " budget. For a run of one round that is the rule of thumb K m < epsilon^2/mu^2; more rounds"
    " make it as many times as strict. The picture has the exact numbers, for bits received"
    " without noise. At epsilon 1 one round of one entry leaves room for {one:.1f} devices (the"
    " rule says {rule:.1f}), 20 rounds for {twenty:.2f}, {rounds} rounds of {entries} entries for"
    " {paper:.3f}."
)

MAP_IN_WORDS = (
    "The map has a cell for every setting. Grey: no design has an answer, because the budget, or"
    " the power, leaves too little of what the data say for the curvature to be known. Left of the"
    " dashed line the rule of thumb would let digital win. Under small budgets no answer is to be"
    " had there; under large ones the rule leaves out that a run has many rounds, each with bits"
    " of its own, and what remains of digital's disadvantage is the noise of random bits in"
    " {rounds} rounds, which falls with more of them. The star is the paper's size, with its"
    " budget of a round over its run."
)

TRIALS_IN_WORDS = (
    "Some designs, run on {data_sets} data sets each, both schemes on the same: the standard"
    " deviation that servers state over the exact one (width), the distance of their mean from the"
    " posterior's in standard deviations (mean error), predicted and measured (root mean squares),"
    " and the probability of the exact posterior in intervals that state {interval:g}. The ratio of"
    " widths, digital over analog, has a 99 % interval from paired differences. With one device and"
    " several entries the prediction is rough: the curvature of {examples} examples differs between"
    " directions."
)

CLAIMS_IN_WORDS = (
    "The paper's claims at its own settings, as judged above, and at each scheme's best: 'holds' if"
    " digital's predicted error is the smaller one at all the places that a claim is about, 'fails'"
    " if it is at none."
)


@dataclass
class Best:
    """The comparison of the digital with the analog scheme, each with its best design.

    Attributes
    ----------
    thresholds
        Numbers of devices up to which bits tell as much as analog symbols at equal privacy, by
        privacy budget and number of bits that a device sends.
    cells
        Best designs of both schemes and their predicted errors, in every setting of the map.
    trials
        Measurements of the best designs in some of these settings.
    """

    thresholds: list[Threshold] = field(default_factory=list)
    cells: list[Cell] = field(default_factory=list)
    trials: list[Trial] = field(default_factory=list)

    @property
    def answered(self) -> list[Cell]:
        """The settings of the map, with their best designs, in which at least one scheme has an
        answer."""
        return [cell for cell in self.cells if not math.isnan(cell.ratio)]

    @property
    def digital_ahead(self) -> list[Cell]:
        """The settings of the map, with their best designs, in which the digital scheme's predicted
        error is smaller than the analog one's by more than ``RESOLUTION``."""
        return [cell for cell in self.answered if cell.ratio < 1.0 - RESOLUTION]

    def verdicts(self) -> dict[str, ClaimVerdict]:
        """Verdicts on two of the paper's claims, by name of the claim, if each scheme has its best
        design in place of the paper's. They use the settings of the map with the paper's numbers of
        devices and entries; empty if the map has no such setting with an answer."""
        size = (_PAPER_DEVICES, _PAPER_ENTRIES)
        here = [c for c in self.answered if (c.place.num_devices, c.place.dim) == size]
        about = {
            "digital above 17.5 dB": [c for c in here if c.place.snr_db > 17.5],
            "digital for epsilon <= 7.5": [c for c in here if c.place.snr_db == 25.0],
        }
        words = {
            "digital above 17.5 dB": "digital has the smaller error at high SNR",
            "digital for epsilon <= 7.5": "digital has the smaller error under strict privacy",
        }
        return {name: _verdict(words[name], cells) for name, cells in about.items() if cells}

    def sentence(self) -> str:
        """One or two sentences with the range of the digital scheme's predicted error over the
        analog one's, and the settings in which the digital scheme is ahead."""
        answered, ahead = self.answered, self.digital_ahead
        several = [c for c in answered if c.place.num_devices > 1]
        if not several:
            return "At each scheme's best no design has an answer."
        ratios = [cell.ratio for cell in several]
        text = (
            "With each scheme at its best and equal privacy of the run, digital's error is"
            f" {min(ratios):.3f} to {max(ratios):.3f} times analog's at the {len(several)} places"
            " of the map with two or more devices and an answer (the search for designs resolves"
            f" {100 * RESOLUTION:g} %)"
        )
        if not ahead:
            return f"{text}; digital is ahead nowhere."
        measured = {trial.place: trial.ratio for trial in self.trials}
        where = []
        for cell in ahead:
            words = f"{_in_words(cell.place)} ({cell.ratio:.3f}"
            if cell.place in measured:
                middle, low, high = measured[cell.place]
                words += f"; measured width {middle:.3f} [{low:.3f}, {high:.3f}]"
            where.append(f"{words})")
        return f"{text}. Digital is predicted to be ahead at {len(ahead)}: {'; '.join(where)}."

    def to_document(self) -> dict[str, Any] | None:
        """Numbers, verdicts and trials of the comparison as plain values for JSON; None if the
        comparison was not made."""
        if not self.cells:
            return None
        ratios = [cell.ratio for cell in self.answered]
        return {
            "places": len(self.cells),
            "answered": len(self.answered),
            "digital_ahead": len(self.digital_ahead),
            "smallest_ratio": min(ratios, default=None),
            "largest_ratio": max(ratios, default=None),
            "claims": {n: {"holds": v.holds, "value": v.value} for n, v in self.verdicts().items()},
            "trials": [
                {**t.place._asdict(), "ratio": list(map(float, t.ratio))} for t in self.trials
            ],
        }


def _verdict(words: str, cells: Sequence[Cell]) -> ClaimVerdict:
    """Verdict on the claim, in the text ``words``, that the best digital design has a smaller
    predicted error than the best analog one in all settings ``cells``: it holds if so, fails if in
    none of them, and is undecided else. Differences below ``RESOLUTION`` do not count."""
    ratios = [cell.ratio for cell in cells]
    budgets = [cell.place.epsilon for cell in cells]
    low, high = min(ratios), max(ratios)
    return ClaimVerdict(
        words,
        "digital's predicted error over analog's, each at its best",
        lambda: f"{low:.3f} to {high:.3f}, epsilon of the run {min(budgets):g} to {max(budgets):g}",
        True if high < 1.0 - RESOLUTION else False if low > 1.0 - RESOLUTION else None,
    )


def _in_words(place: Place) -> str:
    """A setting of the map as text: numbers of devices and entries, SNR and epsilon."""
    devices = "one device" if place.num_devices == 1 else f"{place.num_devices} devices"
    entries = "one entry" if place.dim == 1 else f"{place.dim} entries"
    return f"{devices}, {entries}, {place.snr_db:g} dB, epsilon {place.epsilon:g}"


def best_section(
    best: Best,
    judged: Mapping[str, Mapping[str, ClaimVerdict]],
    pictures: Sequence[tuple[str, str]],
) -> list[Block]:
    """The report's section that compares both schemes at their best, as a list of blocks (headings,
    texts, tables, pictures). ``judged`` has the verdicts on the paper's claims at the paper's own
    settings, by name of the reading, then by name of the claim; ``pictures`` are pairs of file name
    and caption."""
    question = QUESTION.format(
        epsilon=EPSILON_OF_SNR_FIGURE,
        round_delta=ROUND_DELTA,
        run=run_epsilon(EPSILON_OF_SNR_FIGURE, ROUND_DELTA, _PAPER_ROUNDS, DELTA),
        rounds=_PAPER_ROUNDS,
        delta=DELTA,
        examples=EXAMPLES,
    )
    proven = PROVEN.format(
        one=most_devices(1, 1.0, DELTA),
        rule=rule_of_thumb(1, 1.0, DELTA),
        twenty=most_devices(20, 1.0, DELTA),
        rounds=_PAPER_ROUNDS,
        entries=_PAPER_ENTRIES,
        paper=most_devices(_PAPER_ROUNDS * _PAPER_ENTRIES, 1.0, DELTA),
    )
    blocks: list[Block] = [
        ("heading", "Each scheme at its best"),
        ("text", question),
        ("text", f"What came out: {best.sentence()}"),
        ("text", proven),
        *[("picture", picture) for picture in pictures],
        ("text", MAP_IN_WORDS.format(rounds=_PAPER_ROUNDS)),
    ]
    if best.trials:
        blocks += _trials(best.trials)
    verdicts = best.verdicts()
    if verdicts:
        header = ["claim", *(r.label for r in READINGS if r.name in judged), "each at its best"]
        rows = [
            [
                verdict.claim,
                *(judged[r.name][name].word for r in READINGS if r.name in judged),
                f"{verdict.word}: {verdict.value}",
            ]
            for name, verdict in verdicts.items()
            if all(name in of_reading for of_reading in judged.values())
        ]
        blocks += [("text", CLAIMS_IN_WORDS), ("table", (header, rows))]
    return blocks


def _trials(trials: Sequence[Trial]) -> list[Block]:
    """Two blocks of the report about the designs that were run: an explanation, and a table with
    predicted and measured errors, one row for each setting and scheme."""
    words = TRIALS_IN_WORDS.format(
        data_sets=trials[0].data_sets, interval=INTERVAL, examples=EXAMPLES
    )
    header = [
        *("devices", "entries", "SNR, dB", "epsilon", "scheme", "link, peak", "clip", "rounds"),
        *("width: predicted", "measured", "mean error: predicted", "measured"),
        *("held", "ratio: predicted", "measured"),
    ]
    rows = []
    for trial in trials:
        place, (middle, low, high) = trial.place, trial.ratio
        predicted = trial.digital.design.width / trial.analog.design.width
        each = zip((trial.digital, trial.analog), trial.to_rows(), strict=True)
        for measured, row in each:
            design, digital = measured.design, row["scheme"] == "digital"
            rows.append(
                [
                    *(
                        f"{v:g}"
                        for v in (place.num_devices, place.dim, place.snr_db, place.epsilon)
                    ),
                    row["scheme"],
                    f"{design.link}, {design.peak:g}" if digital else "-",
                    f"{design.clip:.3g} sd",
                    str(design.rounds),
                    f"{row['predicted_width']:.3f}",
                    f"{row['width']:.3f} ± {row['width_se']:.1g}",
                    f"{row['predicted_mean_error']:.3f}",
                    f"{row['mean_error']:.3f} ± {row['mean_error_se']:.1g}",
                    f"{row['held']:.3f} ± {row['held_se']:.1g}",
                    f"{predicted:.3f}" if digital else "",
                    f"{middle:.3f} [{low:.3f}, {high:.3f}]" if digital else "",
                ]
            )
    return [("text", words), ("table", (header, rows))]
