"""The picture of a sweep: every panel draws what the table says, under the right name, and nothing
is cut off."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from flmc.runs.sweeps.table import Sweep
from flmc.views import sweep_figure

SCHEMES = ["ideal", "digital", "analog"]
SNR_DB = [10.0, 15.0, 20.0]


def _rows(more: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Rows of a sweep over SNR, schemes and ``more``. The ideal scheme has no epsilon, digital no
    W2 at the first SNR, and analog's first points failed."""
    varied: list[dict[str, Any]] = [{"snr_db": x, "scheme": s} for x in SNR_DB for s in SCHEMES]
    for name, choices in more.items():
        varied = [{**point, name: choice} for point in varied for choice in choices]
    rows = []
    for place, point in enumerate(varied):
        failed = point["scheme"] == "analog" and point["snr_db"] == SNR_DB[0]
        first = point["scheme"] == "digital" and point["snr_db"] == SNR_DB[0]
        values: dict[str, Any] = {
            "variance_ratio": 1.0 + 0.01 * place,
            "wasserstein2_squared": None if first else 1e-4 * (1 + place),
            "epsilon_run": None if point["scheme"] == "ideal" else 3.0 + place,
        }
        measured = {} if failed else {**values, "variance_ratio_se": 0.005}
        rows.append({**point, **measured, "error": "it failed" if failed else None})
    return rows


@pytest.fixture
def keep(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """The figures that are drawn, instead of being written."""
    figures: list[Any] = []

    def write(figure: Any, path: Path) -> Path:
        figures.append(figure)
        return path

    monkeypatch.setattr(sweep_figure, "write_png", write)
    return figures


@pytest.mark.parametrize("more", [{}, {"rounds": [300, 600]}])
def test_curves_are_of_the_method_that_they_name(
    more: dict[str, list[Any]], keep: list[Any], tmp_path: Path
) -> None:
    rows = _rows(more)
    axes: dict[str, list[Any]] = {"snr_db": SNR_DB, "scheme": SCHEMES, **more}
    paired = [
        {
            **{name: row[name] for name in axes},
            "against": "ideal",
            "metric": "variance_ratio",
            "data_sets": 20,
            "heavy": False,
            "mean": row["variance_ratio"] - 1,
            "se": 0.1,
            "median": 0.0,
            "median_low": None,
            "median_high": None,
        }
        for row in rows
        if row["scheme"] == "analog" and row["error"] is None
    ]
    done = Sweep(axes, rows, num_distinct=len(rows), paired=paired, methods="scheme")
    assert sweep_figure.draw_sweep_file(done, tmp_path) is not None
    panels = [panel for panel in keep[0].axes if panel.axison]
    legend = keep[0].legends[0]
    styles = {
        text.get_text(): (line.get_color(), line.get_marker(), line.get_linestyle())
        for line, text in zip(legend.get_lines(), legend.get_texts(), strict=True)
    }
    assert len(styles) == len(set(styles.values())) == 3 * (2 if more else 1)
    for panel, name in zip(
        panels, ("variance_ratio", "wasserstein2_squared", "epsilon_run"), strict=False
    ):
        drawn = {line.get_label(): line for line in panel.lines if line.get_label() in styles}
        for curve, style in styles.items():
            of_curve = [row for row in rows if sweep_figure._curve(row, list(axes)[1:]) == curve]
            known = [(row["snr_db"], row[name]) for row in of_curve if row.get(name) is not None]
            if not known:
                assert curve not in drawn
                continue
            line = drawn[curve]
            assert list(zip(*line.get_data(), strict=True)) == known
            assert (line.get_color(), line.get_marker(), line.get_linestyle()) == style
    analog = {style for curve, style in styles.items() if "analog" in curve}
    pairs = {(lines[0].get_color(), lines[0].get_marker()) for lines in panels[3].containers}
    assert pairs == {style[:2] for style in analog}
    assert "shaded: one standard error" in keep[0].get_suptitle()


def test_nothing_is_cut_off(keep: list[Any], tmp_path: Path) -> None:
    axes: dict[str, list[Any]] = {"snr_db": SNR_DB, "scheme": SCHEMES}
    rows = [
        {**row, "mean_shift": 0.1 + place, "accuracy": 0.1 * place, "wasserstein2_floor": 0.1}
        for place, row in enumerate(_rows({}))
    ]
    sweep_figure.draw_sweep_file(
        Sweep(axes, rows, num_distinct=9, equal="step", methods="scheme"), tmp_path
    )
    figure = keep[0]
    figure.canvas.draw()
    edges = figure.bbox
    labels = [label for each in figure.axes for label in (each.xaxis.label, each.yaxis.label)]
    for text in [*labels, *figure.legends[0].get_texts(), figure._suptitle]:
        box = text.get_window_extent()
        assert edges.x0 <= box.x0 < box.x1 <= edges.x1, text.get_text()
        assert edges.y0 <= box.y0 < box.y1 <= edges.y1, text.get_text()
    for panel in figure.axes:  # a longer label is cut off, or reaches into another panel
        box = panel.yaxis.label.get_window_extent()
        assert box.height <= panel.bbox.height, panel.get_ylabel()


def test_an_epsilon_of_a_user_s_own_is_marked(keep: list[Any], tmp_path: Path) -> None:
    rows = [
        {**row, "privacy_stated_by": "mine:Own" if row["scheme"] == "digital" else None}
        for row in _rows({})
    ]
    axes: dict[str, list[Any]] = {"snr_db": SNR_DB, "scheme": SCHEMES}
    sweep_figure.draw_sweep_file(Sweep(axes, rows, num_distinct=9), tmp_path)
    words = "stated by a user's class, not proven"
    figure = keep[0]
    assert words in [text.get_text() for text in figure.legends[0].get_texts()]
    assert "as stated by mine:Own, which flmc has not proven" in figure.get_suptitle()
    claimed = [(r["snr_db"], r["epsilon_run"]) for r in rows if r["scheme"] == "digital"]
    for panel in figure.axes:
        drawn = [
            list(zip(*line.get_data(), strict=True))
            for line in panel.lines
            if line.get_fillstyle() == "none"
        ]
        assert drawn == ([claimed] if "epsilon" in panel.get_ylabel() else [])


def test_points_that_are_no_results_are_marked(keep: list[Any], tmp_path: Path) -> None:
    """Infeasible points in every panel, chains that are not mixed where they were measured; what
    has no known error is counted in the head, and shown with a question mark on the screen."""
    lost, unmixed = SNR_DB[1], SNR_DB[2]
    rows = [
        {
            "snr_db": x,
            "scheme": "digital",
            "chains": 4,
            "r_hat": 1.0 + x,
            "stein_ratio": x,
            "stein_ratio_se": None if x == lost else 0.5,
            "epsilon_run": x,
            "verdict": "good",
            "verdict_of_run": "infeasible" if x == lost else "warning",
            "findings_of_run": "pilot; unmixed" if x in (lost, unmixed) else "pilot",
            "error": None,
        }
        for x in SNR_DB
    ]
    done = Sweep({"snr_db": SNR_DB, "scheme": ["digital"]}, rows, num_distinct=3)
    sweep_figure.draw_sweep_file(done, tmp_path)
    figure = keep[0]
    legend = [text.get_text() for text in figure.legends[0].get_texts()]
    assert legend == ["scheme digital", "infeasible by its verdict", "chains not mixed"]
    assert "Stein ratio of 1 of 3 points without a known error" in figure.get_suptitle()
    for panel in figure.axes:
        marks = {str(line.get_marker()): list(line.get_xdata()) for line in panel.lines[1:]}
        epsilon = "epsilon" in panel.get_ylabel()
        assert marks["o"] == [lost]
        assert marks.get("x") == (None if epsilon else [lost, unmixed])
    shown = str(done)
    assert "15 ± ?" in shown
    assert "20 ± 0.5" in shown
    assert "±: standard error; ? where it is not known" in shown


@pytest.mark.parametrize("bound", [False, True])
def test_budgets_and_what_is_spent_are_told_apart(
    bound: bool, keep: list[Any], tmp_path: Path
) -> None:
    """Over budgets a panel of what was spent is drawn only if something else than the budget
    decided it somewhere; labels of a wide axis do not overlap, and are not cut off."""
    budgets = [0.1, 1.0, 10.0, 100.0, 1000.0]
    rows = [
        {
            "epsilon": epsilon,
            "variance_ratio": 1.0 + epsilon,
            "epsilon_run": epsilon if bound else min(epsilon, 527.0),
            "error": None,
        }
        for epsilon in budgets
    ]
    done = Sweep({"epsilon": budgets}, rows, num_distinct=5, base={"scope": "run"})
    sweep_figure.draw_sweep_file(done, tmp_path)
    figure = keep[0]
    names = [panel.get_ylabel().split(",")[0] for panel in figure.axes]
    assert names == ["variance ratio", *([] if bound else ["epsilon of the run"])]
    figure.canvas.draw()
    for panel in figure.axes:
        assert panel.get_xlabel().startswith("budget\n")
        boxes = [each.get_window_extent() for each in panel.get_xticklabels()]
        assert len(boxes) >= 3
        assert all(one.x1 < other.x0 for one, other in pairwise(boxes))
        assert panel.xaxis.label.get_window_extent().x1 <= figure.bbox.x1
