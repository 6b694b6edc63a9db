"""The beginning of the report: what was asked, what came out, in sentences to be retold."""

from __future__ import annotations

from flmc.papers.qflmc import readings
from flmc.papers.qflmc.landmarks import LANDMARKS, digital_stops_db
from flmc.papers.qflmc.reporting.sections import in_words, search_verdict
from flmc.papers.qflmc.reporting.words import QUESTION, WHAT_A_READING_IS
from flmc.papers.qflmc.study import Study
from flmc.views.reports import Block


def summary(study: Study) -> list[Block]:
    """The summary: the question, what a reading is, and what came out under each.

    Parameters
    ----------
    study
        All results, with verdicts.
    """
    return [
        ("heading", "Summary"),
        ("text", QUESTION),
        ("text", WHAT_A_READING_IS),
        ("list", [_of_reading(study, reading) for reading in readings.READINGS]),
        ("text", "What came out:"),
        ("list", _findings(study)),
    ]


def _of_reading(study: Study, reading: readings.Reading) -> str:
    """One reading in words, and how many claims hold under it."""
    verdicts = study.verdicts[reading.name].values()
    held = sum(verdict.holds is True for verdict in verdicts)
    return f"`{reading.name}`: {reading.words}. {held} of {len(verdicts)} claims hold."


def _findings(study: Study) -> list[str]:
    """What came out, a sentence or two for each finding."""
    first = next(iter(study.verdicts.values()))
    all_hold = [
        name
        for name, verdicts in study.verdicts.items()
        if all(verdict.holds for verdict in verdicts.values())
    ]
    found = [
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
            found.append(f"Under {kind} reading: {'; '.join(same)}.")
    if "2" in study.figures:
        found.append(
            "Two claims about figure 2 exclude each other under the printed privacy bound, at any"
            f" step sizes: digital stops improving at {digital_stops_db():.1f} dB, so it cannot"
            " overtake analog at 17.5 dB."
        )
    near = [reading for reading in readings.READINGS if reading.conjecture]
    for reading in near if set(study.figures) >= {"2", "3"} else []:
        marks = study.landmarks[reading.name]
        ours = ", ".join(in_words(marks[name], mark.unit) for name, mark in LANDMARKS.items())
        printed = ", ".join(f"{mark.printed:g}{mark.unit}" for mark in LANDMARKS.values())
        found.append(
            f"The conjecture `{reading.name}` puts the four numbers of the text at {ours}, where"
            f" {printed} are printed, with nothing fitted. It is a guess at the authors' program,"
            " found after a search of 201 344 combinations of formulas of which none satisfies all"
            " claims, and it is not a sound privacy rule."
        )
    if study.found:
        found.append(f"A search over what the text leaves open: {search_verdict(study)}")
    found.append(
        "The paper's error rewards a narrow cloud of samples, whether or not it is the posterior."
        " What brings the samples to the posterior is noise of the right size, as under"
        " `calibrated`, for digital and analog alike."
    )
    return found
