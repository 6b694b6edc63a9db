"""The report of `flmc reproduce --paper wflmc`: tables and pictures, as Markdown and HTML."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flmc.base.errors import InvalidSetting
from flmc.papers.request import StudyRequest, made_by, refuse_given
from flmc.papers.wflmc.base_case import NUM_RUNS, SNR_DB
from flmc.papers.wflmc.study import MOST_ADAPTIVE, CurvePoint, Study, conduct
from flmc.runs.files.durable_files import read_table, write_table
from flmc.views.figures import (
    COLOURS,
    draw_curves,
    make_y_logarithmic,
    new_figure,
    write_png_and_pdf,
)
from flmc.views.reports import Block, write_html, write_markdown

if TYPE_CHECKING:
    from matplotlib.axes import Axes


_BASELINE = {"marker": "", "linewidth": 1.2, "linestyle": "--"}
_STYLES: dict[str, dict[str, Any]] = {
    "static": {"color": COLOURS[1], "marker": "s"},
    "adaptive": {"color": COLOURS[0], "marker": "o"},
    "without DP": {"color": COLOURS[2], "marker": "^"},
    "noiseless with DP": {"color": COLOURS[0], **_BASELINE},
    "noiseless without DP": {"color": COLOURS[2], **_BASELINE},
    "static, exact budget": {"color": COLOURS[4], "marker": "D"},
    "analog, own step": {"color": COLOURS[6], "marker": "v"},
    "digital, a = 0.05": {"color": COLOURS[3], "marker": "v", "linestyle": ":"},
    "digital, a = 0.2": {"color": COLOURS[3], "marker": "D"},
}
_OWN_COLOURS = ("#8C510A", "#762A83", "#1B7837", "#B2182B")
"""Colours of the curves that the user adds; no other curve has them."""
_USUAL = {"markersize": 3.5, "linewidth": 1.3}
_FIRST = ("static", "adaptive", "without DP", "noiseless with DP", "noiseless without DP")
"""Names of the curves in the published figure, in the order of its legend."""


def draw_study(study: Study, out: Path) -> list[tuple[str, str]]:
    """Draw the pictures of a study from ``points.csv`` in the directory ``out``, as PNG and PDF in
    the same directory. Returns a pair for each picture: file name of the PNG, and caption."""
    rows = [_as_drawn(row) for row in read_table(out / "points.csv")]
    ours = [curve for curve in study.curves if curve not in _FIRST]
    crosses = "; crosses: as published" if study.published else ""
    own = "; with curves of your own" if study.own_curves else ""
    return [
        (
            _draw(study, out, rows, [*_FIRST, *study.own_curves], "figure_snr"),
            f"Squared W2 against SNR, the published curves measured again{crosses}{own}",
        ),
        (
            _draw(study, out, rows, ["static", "adaptive", *ours], "figure_digital"),
            "The same setting with the digital scheme, and with plans of flmc's own",
        ),
    ]


def _as_drawn(row: Mapping[str, str]) -> dict[str, Any]:
    """A row of the CSV file, completed by numbers under the names that `draw_curves` expects (x,
    distance and its standard error), and by ``spread``: the band around the curve reaches from the
    distance divided by this factor to the distance times it."""
    spread = float(row["log_sd"] or "nan")
    return {
        **row,
        "x": float(row["snr_db"]),
        "distance": float(row["mean"]),
        "distance_se": 0.0,
        "spread": 1.0 if math.isnan(spread) else math.exp(spread),
    }


def _draw(
    study: Study, out: Path, rows: Sequence[Mapping[str, Any]], curves: Sequence[str], name: str
) -> str:
    """Draw the named curves into one picture, from ``rows`` of the CSV file, as PNG and PDF in the
    directory ``out`` with the file name ``name``; returns the file name of the PNG."""
    figure, (axes,) = new_figure(columns=1, width=6.4, height=4.2)
    own = {
        curve: {"color": _OWN_COLOURS[i % len(_OWN_COLOURS)], "marker": "P*Xh"[i % 4]}
        for i, curve in enumerate(study.own_curves)
    }
    styles = {curve: {**_USUAL, **_STYLES.get(curve, {}), **own.get(curve, {})} for curve in curves}
    draw_curves(axes, rows, "distance", curves, styles)
    for line, curve in zip(axes.get_lines(), curves, strict=True):
        band = [row for row in rows if row["curve"] == curve]
        # The band reaches one standard deviation of the logarithm to either side, so on the
        # logarithmic axis it is symmetric about the curve.
        axes.fill_between(
            [row["x"] for row in band],
            [row["distance"] / row["spread"] for row in band],
            [row["distance"] * row["spread"] for row in band],
            color=line.get_color(),
            alpha=0.12,
            linewidth=0,
        )
    if name == "figure_snr":
        _draw_published(axes, rows)
    axes.axhline(study.floor, color="0.4", linestyle=":", linewidth=1, label="100 exact runs")
    make_y_logarithmic(axes)
    axes.set_xlabel("SNR [dB]")
    axes.set_ylabel("squared W2, largest over kept rounds")
    axes.legend(fontsize=7, framealpha=0.85, edgecolor="none")
    return write_png_and_pdf(figure, out, name)


def _draw_published(axes: Axes, rows: Sequence[Mapping[str, Any]]) -> None:
    """Draw the published values in ``rows`` as crosses in the colour of their curve."""
    printed = [row for row in rows if row["published"] not in ("", "nan")]
    for row in printed:
        colour = _STYLES[row["curve"]]["color"]
        axes.plot([row["x"]], [float(row["published"])], "x", color=colour, markersize=6)
    if printed:
        axes.plot([], [], "x", color="0.3", markersize=6, label="as published")


_SETTING = (
    "Dongzhu Liu and Osvaldo Simeone let devices send clipped gradients as they are (analog) over"
    " fading channels, each device inverting its own; the channel's noise drives a Langevin sampler"
    " and hides the data. Devices with weak channels are silent, by a rule that weighs noise"
    " against missing gradients. Three allocations of transmit power are compared: without privacy;"
    " static, one cap for all rounds; adaptive, which minimises a bound of the sampling error under"
    " the run's privacy budget."
)
_METRIC = (
    f"The measure is theirs: {NUM_RUNS} runs, each with its own channel, start and noise, the same"
    " for all curves and SNR; in every kept round the Gaussian fitted to the cloud of the runs, its"
    " squared W2 distance to the posterior; the largest over the kept rounds."
)


def write(study: Study, out: Path, command: str) -> None:
    """Write the CSV file, the pictures as PNG and PDF, report.md and report.html of a study into
    the directory ``out``. ``command`` is the command line that the report quotes."""
    out.mkdir(parents=True, exist_ok=True)
    write_table(out / "points.csv", [point.to_dict() for point in study.points])
    blocks = report(study, command, draw_study(study, out))
    write_markdown(out / "report.md", blocks)
    write_html(out / "report.html", blocks)


def report(study: Study, command: str, pictures: Sequence[tuple[str, str]]) -> list[Block]:
    """The report on a study as a list of blocks (headings, paragraphs, tables, pictures).
    ``command`` is the command line that it quotes; ``pictures`` are two pairs of file name and
    caption."""
    made = (
        f"Made by `{command}` with seed {study.seed}: {study.experiments} experiments of"
        f" {NUM_RUNS} runs (adaptive: {min(study.experiments, MOST_ADAPTIVE)}), on"
        f" {study.case.source}, {made_by()}."
    )
    first, second = pictures
    blocks: list[Block] = [
        ("title", "Reproduction of the analog predecessor"),
        ("text", _SETTING),
        ("text", _METRIC),
        ("text", made),
        ("heading", "What came out"),
        ("list", findings(study)),
        ("heading", "The published figure"),
        ("picture", first),
        ("text", _about_the_flat_parts(study)),
        ("table", _table(study)),
        ("heading", "The digital scheme in the same setting"),
        ("picture", second),
        ("text", _what_is_learnt(study)),
    ]
    if study.own_designs:
        blocks.append(("heading", "Curves of your own"))
        blocks.append(
            ("list", [f"`{name}`: {each.described}" for name, each in study.own_designs.items()])
        )
    return blocks


def findings(study: Study) -> list[str]:
    """The findings of the study as a list of texts of one or two sentences."""
    worst = study.largest_z
    sentences = []
    if worst is None:
        sentences.append(f"Nothing is compared with print: {study.why_not_compared}.")
    else:
        sentences.append(
            f"Every published point agrees with the experiments: the logarithm of the published"
            f" value is at most {abs(worst.z):.2f} standard deviations of one experiment from their"
            f" mean ({worst.curve} at {worst.snr_db:g} dB)."
            if abs(worst.z) <= 3
            else f"The published value of {worst.curve} at {worst.snr_db:g} dB is {worst.z:+.1f}"
            " standard deviations from the mean of the experiments."
        )
    high = SNR_DB[-1]
    sentences.append(
        f"The privacy budget as published, R = {study.budgets[0]:.4g} for each device, is"
        f" conservative: the exact Gaussian mechanism allows R = {study.budgets[1]:.4g},"
        f" {study.budget_db:.2f} dB more transmit power. At {high:g} dB it brings the static"
        f" allocation from {study.at('static', high).mean:.2g} to"
        f" {study.at('static, exact budget', high).mean:.2g}."
    )
    if study.changed:
        return sentences
    sentences.append(
        f"The flat parts of the best curves show the number of runs, not the sampler: {NUM_RUNS}"
        f" runs of a sampler that is exactly right have {study.floor:.2g}, those of noiseless"
        f" Langevin Monte Carlo {study.at('noiseless without DP', high).mean:.2g}, and infinitely"
        f" many of them {study.population:.3g}."
    )
    return sentences


def _about_the_flat_parts(study: Study) -> str:
    """A paragraph of the report that explains the bands and the dotted line of the pictures, and
    the columns ``all runs`` and ``z`` of the table."""
    return (
        "Bands: one standard deviation of one experiment. Dotted: what"
        f" {NUM_RUNS} runs of an exact sampler with the same memory have on average,"
        f" {study.floor:.2g}; it falls like one over the number of runs. `all runs` is the distance"
        " for the runs of all experiments together, which comes near to that of infinitely many;"
        " z is the logarithm of the published value against mean and standard deviation of the"
        " experiments."
    )


def _table(study: Study) -> tuple[list[str], list[list[str]]]:
    """Header and rows of cells, as text, of the report's table of all measured points and the
    published values."""
    header = ["curve", "SNR [dB]", "squared W2", "sd of log", "all runs", "published", "z"]
    return header, [_cells(point) for point in study.points]


def _cells(point: CurvePoint) -> list[str]:
    """The cells, as text, of the row of one point in the report's table."""

    def number(value: float, form: str) -> str:
        return "-" if math.isnan(value) else format(value, form)

    return [
        point.curve,
        f"{point.snr_db:g}",
        number(point.mean, ".3g"),
        number(point.log_sd, ".2g"),
        number(point.pooled, ".3g"),
        number(point.published, ".3g"),
        number(point.z, "+.2f"),
    ]


def _in_words(study: Study, digital: str, analog: str) -> str:
    """A sentence with the smallest and the largest ratio, over SNRs, of the distance from the
    posterior of the curve ``digital`` to that of the study's curve ``analog``."""
    ratios = {snr: study.at(digital, snr).mean / study.at(analog, snr).mean for snr in study.snr_db}
    best, worst = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    return (
        f"So its error is {ratios[best]:.2g} (at {best:g} dB) to {ratios[worst]:.2g} (at"
        f" {worst:g} dB) times that of the adaptive analog scheme."
    )


def _what_is_learnt(study: Study) -> str:
    """The paragraph of the report that compares the digital scheme with the study's analog one,
    with the measured numbers."""
    low, high = SNR_DB[1], SNR_DB[-1]
    digital = [curve for curve in study.curves if curve.startswith("digital")]
    best = min(digital, key=lambda curve: study.at(curve, high).mean)
    adaptive, step = "adaptive", "analog, own step"

    def pair(curve: str) -> str:
        return ", ".join(f"{study.at(curve, snr).mean:.2g} at {snr:g} dB" for snr in (low, high))

    compared = _in_words(study, best, adaptive)
    slow = ""
    if len(digital) > 1 and not study.changed:
        worst = max(digital, key=lambda curve: study.at(curve, high).mean)
        slow = (
            f" With `{worst.removeprefix('digital, ')}` ({pair(worst)}) it has not arrived after"
            f" {study.case.num_burn_in} rounds: the variance of the bits, which grows with the"
            " number of devices, allows only a small step."
        )
    return (
        "Rounds, burn-in, channel, rule and budget of the run are the study's; gain and step are"
        " the planner's, with the exact accountant, and early steps are larger. With one bit an"
        f" entry, `{best}` has {pair(best)}; the study's adaptive analog scheme has"
        f" {pair(adaptive)}, at the same budget. {compared}"
        f"{slow} Under a budget of the run the gain is bounded: at the study's step the noise is"
        " then more than the sampler asks for, and no allocation over rounds mends that. With a"
        f" step that suits the noise, `{step}` has {pair(step)}, where {NUM_RUNS} runs of an exact"
        f" sampler have {study.floor:.2g}."
    )


# The following function is called by the command `flmc reproduce --paper wflmc`.


def reproduce(**asked: Any) -> Study:
    """Measure the curves, write tables, pictures and report into a directory, and return the
    results. The arguments are the attributes of :class:`~flmc.papers.request.StudyRequest`."""
    request = StudyRequest(**asked)
    refuse_given(
        request,
        "wflmc",
        figure="it has one figure, which is drawn with all its curves",
        data="its one data set is read with --data-file, or drawn as examples",
    )
    # An empty figure is made first: it raises if Matplotlib is missing, before anything is
    # computed.
    new_figure(columns=1)
    study = conduct(request)
    try:
        command = request.command(paper="wflmc", experiments=study.experiments, seed=study.seed)
        write(study, request.out, command)
        own = {name: each.described for name, each in study.own_designs.items()}
        request.describe("wflmc", command, study.experiments, own)
    except OSError as error:
        raise InvalidSetting(f"cannot write to {str(request.out)!r}: {error.strerror}") from error
    return study
