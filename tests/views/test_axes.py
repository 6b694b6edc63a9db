"""Axes and files of figures: labels of epsilon, logarithms, curves under others, fonts."""

from __future__ import annotations

import re
import zlib
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flmc.papers.qflmc import readings
from flmc.papers.qflmc import report as paper_figures
from flmc.papers.qflmc.study import conduct
from flmc.papers.request import StudyRequest
from flmc.runs.files.durable_files import write_table
from flmc.runs.sweeps.table import Sweep
from flmc.views import sweep_figure
from flmc.views.figures import (
    draw_curves,
    epsilon_label,
    families_for,
    make_x_logarithmic,
    new_figure,
    write_png_and_pdf,
)
from support import full_only


@pytest.mark.parametrize("label", ["epsilon (a \u2212 b)", "\u03b5, which is Greek"])
def test_fonts_of_a_pdf_are_truetype(label: str, tmp_path: Path) -> None:
    figure, (axes,) = new_figure(columns=1)
    axes.set_xlabel(label)
    assert write_png_and_pdf(figure, tmp_path, "f") == "f.png"
    data = (tmp_path / "f.pdf").read_bytes()
    for stream in re.findall(rb"stream\r?\n(.*?)\r?\nendstream", data, flags=re.DOTALL):
        try:
            data += zlib.decompress(stream)
        except zlib.error:
            continue  # not compressed
    assert b"/FontFile2" in data  # TrueType, embedded
    assert b"/Type3" not in data
    # Under its own name, whether or not the signs come from the small one.
    assert re.findall(rb"/BaseFont /[A-Z]+\+DejaVuSans\b", data)
    assert (families_for(figure)[0] == "flmc small") == label.startswith("epsilon")


def test_labels_of_epsilon() -> None:
    assert epsilon_label("round", 0.01) == "epsilon of a round, delta = 0.01"
    assert epsilon_label("run", 1e-5) == "epsilon of the run, delta = 1e-05"


def test_logarithmic_x_has_plain_numbers() -> None:
    _, (axes,) = new_figure(columns=1)
    axes.plot([3.0, 60.0], [1.0, 2.0])
    axes.axhline(1.0)  # its own x, 0 and 1, are no data
    make_x_logarithmic(axes)
    assert axes.get_xscale() == "log"
    assert [label.get_text() for label in axes.get_xticklabels()] == ["5", "10", "20", "50"]


def test_curves_under_others_are_broader() -> None:
    rows = [{"curve": name, "x": x, "y": 1.0, "y_se": 0.0} for name in "abc" for x in (1, 2)]
    _, (axes,) = new_figure(columns=1)
    draw_curves(axes, rows, "y", list("abc"))
    widths = [line.get_linewidth() for line in axes.lines]
    assert all(below >= above + 0.6 for below, above in pairwise(widths))


@pytest.fixture
def drawn(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> dict[str, Any]:
    """The pictures of a small reproduction as figures, by name of the file."""
    found: dict[str, Any] = {}

    def keep(figure: Any, out: Path, name: str) -> str:
        found[name] = figure
        return f"{name}.png"

    monkeypatch.setattr(paper_figures, "write_png_and_pdf", keep)
    for number in ("2", "3", "4", "beyond"):
        study = conduct(StudyRequest(tmp_path, figure=number, experiments=2))
        if study.figures:
            write_table(tmp_path / "points.csv", [row.to_dict() for row in study.curves.rows])
        else:
            write_table(tmp_path / "beyond.csv", [row.to_dict() for row in study.beyond])
        paper_figures.draw_study(study, tmp_path)
    return found


@full_only
def test_pictures_of_the_paper(drawn: dict[str, Any]) -> None:
    names = [reading.file_name for reading in readings.READINGS]
    assert set(drawn) == {f"figure_{n}_{r}" for n in "234" for r in names} | {"figure_beyond"}
    for name, figure in drawn.items():
        for axes in figure.axes:
            # Labels of y axes are folded.
            labels = (axes.get_xlabel(), axes.get_ylabel().replace("\n", " "))
            # An epsilon says what it is for, and its delta.
            for label in labels:
                assert "epsilon" not in label or re.fullmatch(
                    r"epsilon of (a round|the run), delta = [\de.-]+", label
                )
            if labels[0].startswith("epsilon"):
                assert axes.get_xscale() == "log"
        if name != "figure_beyond":
            left, right = figure.axes
            assert (left.get_ylabel(), right.get_ylabel()) == (
                "MSE",
                "squared W2, one run",
            )
            marked = "(conjecture)" in figure.get_suptitle()
            assert marked == name.endswith("by_entry")
    # Without privacy is seen where the curve with privacy lies on it: broader, and behind.
    lines = {line.get_label(): line for line in drawn["figure_3_literal"].axes[0].lines}
    for scheme in ("digital", "analog"):
        free, private = lines[f"{scheme} without DP"], lines[scheme]
        assert free.get_linewidth() > 2 * private.get_linewidth()
        assert free.get_zorder() < private.get_zorder()


@pytest.mark.parametrize(
    ("base", "axes", "x", "y"),
    [
        ({}, {"epsilon": [0.5, 5.0]}, "epsilon of a round, delta = 0.01", "1e-05"),
        ({"scope": "run", "run_delta": 1e-6}, {"epsilon": [1.0]}, "epsilon of the run", "1e-06"),
        ({}, {"epsilon": [1.0], "delta": [0.1, 0.2]}, "epsilon", "1e-05"),
    ],
)
def test_labels_of_a_sweep(base: dict[str, Any], axes: dict[str, Any], x: str, y: str) -> None:
    done = Sweep(axes, [], num_distinct=0, base=base)
    assert sweep_figure._label(done, "epsilon", "epsilon").startswith(x)
    assert sweep_figure._label(done, "epsilon_run", "epsilon of the run") == (
        f"epsilon of the run, delta = {y}"
    )
    assert sweep_figure._label(done, "snr_db", "SNR [dB]") == "SNR [dB]"
