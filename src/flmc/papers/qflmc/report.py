"""The report of `flmc reproduce --paper qflmc`: tables and pictures, as Markdown and HTML."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flmc.base.errors import InvalidSetting
from flmc.papers.qflmc.best_pictures import draw_map, draw_thresholds
from flmc.papers.qflmc.best_section import best_section
from flmc.papers.qflmc.design_search import JudgedCombination
from flmc.papers.qflmc.readings import (
    DELTA,
    EPSILON_OF_SNR_FIGURE,
    READINGS,
    SNR_OF_EPSILON_FIGURES,
    Reading,
)
from flmc.papers.qflmc.sections import (
    FIGURES_IN_WORDS,
    PAPER,
    beyond_section,
    claims_section,
    contradiction_section,
    failing,
    landmarks_section,
    search_section,
    summary,
)
from flmc.papers.qflmc.study import FULL, Study, conduct
from flmc.papers.request import StudyRequest, made_by, refuse_given, settings_in_words
from flmc.planning.limits import Limits
from flmc.runs.files.durable_files import read_table, write_table
from flmc.views.figures import (
    COLOURS,
    draw_curves,
    draw_distance,
    draw_mse,
    epsilon_label,
    label_y,
    make_x_logarithmic,
    new_figure,
    write_png_and_pdf,
)
from flmc.views.reports import Block, write_html, write_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_BENCHMARK = {"marker": "", "linewidth": 5, "alpha": 0.35, "solid_capstyle": "butt", "zorder": 1}
"""Matplotlib style of a curve without privacy: broad, pale and drawn below the curve with privacy,
so that it stays visible where both coincide."""

SCHEME_STYLES: dict[str, dict[str, Any]] = {
    "digital": {"color": COLOURS[0], "marker": "o", "markersize": 3, "linewidth": 1.5},
    "analog": {"color": COLOURS[1], "marker": "s", "markersize": 3, "linewidth": 1.5},
    "digital without DP": {"color": COLOURS[0], **_BENCHMARK},
    "analog without DP": {"color": COLOURS[1], **_BENCHMARK},
}
"""Matplotlib styles of the curves of figures 2 and 3, by name of the curve."""


def draw_study(study: Study, out: Path) -> list[tuple[str, str]]:
    """Draw every picture of a study from the CSV files in the directory ``out``, as PNG and PDF in
    the same directory. Returns a pair for each picture: file name of the PNG, and caption."""
    drawn = []
    points = read_table(out / "points.csv") if study.figures else []
    for number in study.figures:
        for reading in READINGS:
            rows = [
                row for row in points if (row["figure"], row["reading"]) == (number, reading.name)
            ]
            caption = f"Figure {number} of the paper, {reading.name}: {reading.words}"
            for name, settings in study.own_settings.items():
                caption += f"; {name}: {reading.how_planned(settings)}"
            drawn.append((_draw_figure(study, number, reading, rows, out), caption))
    if study.beyond:
        drawn.append(
            (
                _draw_beyond(out),
                "Beyond: squared W2 distance and epsilon of the run, at equal effective step and"
                " rounds",
            )
        )
    return drawn


def draw_best(study: Study, out: Path) -> list[tuple[str, str]]:
    """Draw the two pictures that compare the digital with the analog scheme, each with its best
    design, from the CSV files in the directory ``out``, as PNG and PDF there. Returns a pair for
    each picture: file name of the PNG, and caption. No pictures if ``study`` lacks the
    comparison."""
    if not study.best.cells:
        return []
    return [
        (
            draw_thresholds(out),
            "Up to how many devices bits, received without noise, tell more than analog symbols at"
            " equal privacy of the run, and the rule of thumb",
        ),
        (
            draw_map(out),
            "Predicted error of digital over that of analog, each at its best, at equal privacy of"
            " the run; left of the rule of thumb digital may win by that rule",
        ),
    ]


def _draw_figure(
    study: Study, number: str, reading: Reading, rows: Sequence[Mapping[str, Any]], out: Path
) -> str:
    """Draw the paper's figure ``number`` under one reading of its text, as PNG and PDF in the
    directory ``out``, from ``rows``, which are the figure's rows of the CSV file. Returns the file
    name of the PNG."""
    curves = list(dict.fromkeys(row["curve"] for row in rows))
    styles = SCHEME_STYLES if number != "4" else None
    figure, (left, right) = new_figure(columns=2, width=3.5, height=3.0, layout=None)
    # The margins are constants, because all these pictures have the same shape and Matplotlib's
    # automatic layout would take half of the drawing time.
    figure.subplots_adjust(left=0.125, right=0.975, bottom=0.26, top=0.91, wspace=0.36)
    # A user's own curve whose scheme the reading says nothing about is marked in the legend: a
    # picture may be shown without its caption, which explains this.
    labels = {
        name: f"{name} (own plan)"
        for name, settings in study.own_settings.items()
        if reading.for_own(settings) is None
    }
    rows = [{**row, "curve": labels.get(row["curve"], row["curve"])} for row in rows]
    curves = [labels.get(name, name) for name in curves]
    draw_mse(left, rows, curves, study.trace, styles=styles)
    draw_distance(right, rows, curves, study.exact_distance, styles=styles)
    for axes in (left, right):
        if number == "2":
            axes.set_xlabel("SNR [dB]")
        else:
            make_x_logarithmic(axes)
            axes.set_xlabel(epsilon_label("round", DELTA))
    _draw_errors(left, rows, curves, "mse")
    _draw_errors(right, rows, curves, "one_run_wasserstein2_squared")
    # The legend is below the panels, because inside a panel it may cover curves that the user
    # added.
    handles, words = left.get_legend_handles_labels()
    bars: dict[str, Any] = {"loc": "lower center", "ncols": 4, "fontsize": 6.5, "frameon": False}
    figure.legend(handles, words, title="bars: one standard error", title_fontsize=6.5, **bars)
    fixed = (
        f"epsilon {EPSILON_OF_SNR_FIGURE:g} of a round, delta {DELTA:g}"
        if number == "2"
        else f"{SNR_OF_EPSILON_FIGURES:g} dB"
    )
    # The title must not contain "fi" as a ligature, for which a PDF would embed the font a second
    # time.
    figure.suptitle(f"Figure {number}, reading: {reading.label}; {fixed}", fontsize=9)
    return write_png_and_pdf(figure, out, f"figure_{number}_{reading.file_name}")


def _draw_errors(
    axes: Axes, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], value: str
) -> None:
    """Draw into ``axes`` a bar of one standard error to either side of every point of ``curves``,
    from the columns ``value`` and ``value``_se of ``rows``. Bars are visible where a shaded band is
    so narrow that its curve hides it."""
    for name in curves:
        points = [row for row in rows if row["curve"] == name]
        x, y, error = (
            [float(row[column]) for row in points] for column in ("x", value, f"{value}_se")
        )
        axes.errorbar(x, y, error, fmt="none", ecolor="black", elinewidth=0.6, capsize=1.5)


def _draw_beyond(out: Path) -> str:
    """Draw the comparison of the paper's schemes with schemes whose gain flmc calibrates, from
    ``beyond.csv`` in the directory ``out``, as PNG and PDF there; returns the file name of the
    PNG."""
    figure, panels = new_figure(columns=2, rows=2, width=3.5, height=2.8)
    panels[0].set_title(f"epsilon {EPSILON_OF_SNR_FIGURE:g} of a round, delta {DELTA:g}", size=9)
    panels[1].set_title(f"{SNR_OF_EPSILON_FIGURES:g} dB", size=9)
    table = read_table(out / "beyond.csv")
    names = list(dict.fromkeys(row["scheme"] for row in table))
    for column, (sweep, label) in enumerate(
        (("snr_db", "SNR [dB]"), ("epsilon", epsilon_label("round", DELTA)))
    ):
        rows = [
            {**row, "curve": row["scheme"], "epsilon_run_se": "0"}
            for row in table
            if row["sweep"] == sweep
        ]
        for axes, value, words in (
            (panels[column], "wasserstein2_squared", "squared W2 distance"),
            (panels[2 + column], "epsilon_run", epsilon_label("run", Limits().run_delta)),
        ):
            draw_curves(axes, [row for row in rows if row[value]], value, names)
            if sweep == "epsilon":
                make_x_logarithmic(axes)
            axes.set_xlabel(label)
            label_y(axes, words, size=9)
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=3, fontsize=7, frameon=False)
    return write_png_and_pdf(figure, out, "figure_beyond")


def write(study: Study, out: Path, command: str) -> None:
    """Write the CSV files, the pictures as PNG and PDF, report.md and report.html of a study into
    the directory ``out``. ``command`` is the command line that the report quotes."""
    out.mkdir(parents=True, exist_ok=True)
    if study.curves.rows:
        write_table(out / "points.csv", [row.to_dict() for row in study.curves.rows])
    if study.verdicts:
        write_table(out / "claims.csv", _claim_rows(study))
    if study.beyond:
        write_table(out / "beyond.csv", [row.to_dict() for row in study.beyond])
    if study.best.cells:
        write_table(out / "information.csv", [row._asdict() for row in study.best.thresholds])
        write_table(out / "best.csv", [cell.to_dict() for cell in study.best.cells])
        trials = [row for trial in study.best.trials for row in trial.to_rows()]
        write_table(out / "best_trials.csv", trials)
    if study.combinations:
        rows = [_combination_row(judged) for judged in study.combinations]
        write_table(out / "search.csv", rows)
    blocks = report(study, command, draw_study(study, out), draw_best(study, out))
    write_markdown(out / "report.md", blocks)
    write_html(out / "report.html", blocks)


def _claim_rows(study: Study) -> list[dict[str, Any]]:
    """Rows of the CSV file of claims: one for each claim under each reading of the paper, with the
    statistic that decides it, its value, and the verdict."""
    return [
        {
            "reading": reading,
            "claim": v.claim,
            "statistic": v.statistic,
            "value": v.value,
            "verdict": v.word,
        }
        for reading, verdicts in study.verdicts.items()
        for v in verdicts.values()
    ]


def _combination_row(judged: JudgedCombination) -> dict[str, Any]:
    """Row of the file ``search.csv`` for one interpretation of the paper's text: its choice in
    every ambiguous place, the number of choices that differ from the printed text, the number of
    the paper's claims that hold, and the names of the claims that do not."""
    return {
        **vars(judged.combination),
        "changes": judged.changes,
        "claims": len(judged.holds),
        "fails": "; ".join(failing(judged)),
    }


OWN_CURVES = (
    "All settings of the curves that were added, with those that they have from the study and"
    " defaults; what a figure varies is varied. A reading decides privacy, langevin and step_size"
    " of a curve that does not state them, if its scheme is digital or analog. Any other curve is"
    " planned by its own settings in all readings, so that it differs from the paper's curves in"
    " more than its scheme."
)
"""Sentence of the report above the list of the curves that the user added."""


def _own_in_words(study: Study) -> dict[str, str]:
    """The settings of the curves that the user added as text, by name of the curve. SNR and epsilon
    are followed by the figures in which they are not varied; for a setting that readings decide the
    text says so in place of a value."""
    others = {
        "snr_db": [each for each in study.figures if each != "2"],
        "epsilon": [each for each in study.figures if each == "2"],
    }
    held = {
        name: f" (figure {' and '.join(figures)})" if figures else ""
        for name, figures in others.items()
    }
    described = {}
    for curve, settings in study.own_settings.items():
        notes = dict(held)
        for reading in READINGS:
            followed = reading.for_own(settings)
            for name in ("privacy", "langevin", "step_size"):
                if followed is not None and getattr(followed, name) != getattr(settings, name):
                    notes[name] = "= as the reading says"
        described[curve] = settings_in_words(settings, notes)
    return described


def report(
    study: Study,
    command: str,
    pictures: Sequence[tuple[str, str]],
    pictures_of_best: Sequence[tuple[str, str]] = (),
) -> list[Block]:
    """The report on a study as a list of blocks (headings, paragraphs, tables, pictures).
    ``command`` is the command line that it quotes. ``pictures``, and ``pictures_of_best`` for the
    section that compares the schemes with their best designs, are pairs of file name and
    caption."""
    preview = (
        ""
        if study.experiments >= FULL
        else f" This is a preview: the full study has {FULL} experiments."
    )
    made = (
        f"Made by `{command}` with seed {study.seed} and {study.experiments} experiments,"
        f" {made_by()}.{preview}"
    )
    blocks: list[Block] = [
        ("title", "Reproduction of the paper's figures and claims"),
        ("text", PAPER),
        ("text", made),
    ]
    if study.changes:
        changed = ", ".join(f"{name} = {value}" for name, value in study.changes.items())
        blocks.append(
            (
                "text",
                f"The base case was changed: {changed}. The claims are about the paper's base"
                " case, so none is judged here.",
            )
        )
    if study.verdicts:
        blocks += summary(study)
        blocks += claims_section(study)
        blocks += [*landmarks_section(study), *contradiction_section()]
    if pictures:
        blocks += [("heading", "Figures"), ("text", FIGURES_IN_WORDS)]
    blocks += [("picture", picture) for picture in pictures]
    if study.own_settings:
        words = [f"`{name}`: {each}" for name, each in _own_in_words(study).items()]
        blocks += [("heading", "Curves of your own"), ("text", OWN_CURVES), ("list", words)]
    if study.beyond:
        blocks += beyond_section(study)
    if study.best.cells:
        blocks += best_section(study.best, study.verdicts, pictures_of_best)
    if study.combinations:
        blocks += search_section(study)
    return blocks


def reproduce(**asked: Any) -> Study:
    """Measure the figures, judge the paper's claims, write tables, pictures and report into a
    directory, and return the results. The arguments are the attributes of
    :class:`~flmc.papers.request.StudyRequest`."""
    request = StudyRequest(**asked)
    refuse_given(request, "qflmc", data_file="its data sets are synthetic")
    # An empty figure is made first: it raises if Matplotlib is missing, before anything is
    # computed.
    new_figure(columns=1)
    study = conduct(request)
    try:
        command = request.command(
            "figure", experiments=study.experiments, seed=study.seed, data=request.data
        )
        write(study, request.out, command)
        request.describe("qflmc", command, study.experiments, _own_in_words(study))
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(request.out)!r}: {error.strerror}") from error
    return study
