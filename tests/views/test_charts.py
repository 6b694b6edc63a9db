"""Charts: what they show is what was computed, and any of them becomes a file."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import flmc
from flmc.evaluation.audit.likelihood_ratio import loss_of_round
from flmc.planning.privacy_curve import privacy_over_rounds, rounds_to_show
from flmc.settings.questions import solve
from flmc.settings.regimes import Regime, RegimeMap
from flmc.settings.schema import merge
from flmc.studio.elements.echarts import to_options
from flmc.views.charts.chart import DARK, LIGHT, Cells, Chart, ChartAxis, Line, Mark, Points, Words
from flmc.views.charts.drawing import edges, render_chart
from flmc.views.charts.plan_charts import (
    decibels,
    limits_chart,
    loss_chart,
    regime_chart,
    solution_chart,
    spending_chart,
)
from flmc.views.charts.run_charts import (
    ChainAgreement,
    agreement_chart,
    ellipse,
    posterior_chart,
    trace_chart,
)


@pytest.fixture(scope="module")
def plan(model: flmc.LinearGaussian) -> flmc.Plan:
    return flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5, delta=0.01))


def lines(chart: Chart) -> list[Line]:
    return [layer for layer in chart.layers if isinstance(layer, Line)]


def test_bars_end_at_the_limits(plan: flmc.Plan) -> None:
    chart = limits_chart(plan)
    ends = {chart.y.categories[int(line.y[0])]: line.x[1] for line in lines(chart)}
    assert ends["power"] == pytest.approx(20 * math.log10(plan.gain_limits.power))
    assert ends["sampler"] == pytest.approx(decibels(plan.typical_gain))
    words = [layer.text for layer in chart.layers if isinstance(layer, Words)]
    assert words.count("decides") == 1
    assert "noise that the sampler needs decides" in chart.caption


def test_a_limit_that_is_none_reaches_the_end(model: flmc.LinearGaussian) -> None:
    chart = limits_chart(flmc.plan(model, flmc.Digital(), flmc.Limits(privacy="off")))
    assert any(isinstance(layer, Words) and layer.text == "no limit" for layer in chart.layers)
    assert max(line.x[1] for line in lines(chart)) == chart.x.high


def test_spending_ends_at_the_cost_of_the_run(plan: flmc.Plan) -> None:
    curve = list(privacy_over_rounds(plan, rounds_to_show(plan.num_rounds)))
    (line,) = lines(spending_chart({"": curve}, plan))
    assert plan.run_cost is not None
    assert (line.x[-1], line.y[-1]) == (plan.num_rounds, plan.run_cost.epsilon)
    assert list(line.y) == sorted(line.y)


def test_densities_of_losses_are_densities(plan: flmc.Plan) -> None:
    law = loss_of_round(plan)
    assert law is not None
    (line,) = lines(loss_chart({"digital": law}, plan))
    # What is shown leaves out 1e-4 at either end, and the rule is of second order.
    assert np.trapezoid(line.y, line.x) == pytest.approx(1, abs=0.01)
    mean = np.trapezoid(np.multiply(line.x, line.y), line.x)
    assert mean == pytest.approx(float(law.losses @ law.first), abs=0.01)


def test_points_of_an_ellipse_are_two_sigma_away() -> None:
    law = flmc.Gaussian(np.array([1.0, -2.0, 5.0]), np.diag([4.0, 9.0, 1.0]))
    x, y = ellipse(law, (0, 1))
    distance = (np.array(x) - 1) ** 2 / 4 + (np.array(y) + 2) ** 2 / 9
    np.testing.assert_allclose(distance, 4.0)


def test_regimes_are_cells_with_contours() -> None:
    """Of a made-up map: power decides on the left, and epsilon of the run is constant upwards."""
    snr, epsilon = (0.0, 10.0, 20.0), (1.0, 10.0)
    row = tuple(
        Regime("power" if place < 2 else "langevin", 1.0 + place, 5.0 * 3.0**place, place > 0)
        for place in range(3)
    )
    chart = regime_chart(RegimeMap(snr, epsilon, (row, row)), (10.0, 3.0), "round", 0.01)
    cells = next(layer for layer in chart.layers if isinstance(layer, Cells))
    assert cells.codes == ((0, 0, 1), (0, 0, 1))
    assert (chart.x.low, chart.x.high) == (-5.0, 25.0)
    dotted = [line for line in lines(chart) if line.stroke == "dotted"]
    # Epsilon 10 lies at log(10/5)/log(3) of the way between the first two columns.
    assert dotted[0].x[0] == pytest.approx(10 * math.log(2) / math.log(3))
    assert "in 67 % of the places" in chart.caption


def test_edges_lie_between_middles() -> None:
    np.testing.assert_allclose(edges((0.0, 1.0, 2.0), False), [-0.5, 0.5, 1.5, 2.5])


def test_agreement_is_told_after_the_last_round() -> None:
    chart = agreement_chart([ChainAgreement(10, 30.0, 5.0), ChainAgreement(20, 1.004, 80.0)])
    assert "R-hat 1.004, at least 80 effective draws after round 20" in chart.caption
    assert agreement_chart([]).caption == ""


def test_traces_are_thinned() -> None:
    draws = np.arange(2 * 1000 * 3, dtype=float).reshape(2, 1000, 3)
    first, second = lines(trace_chart(draws, first_round=101))
    assert first.x[:2] == (101.0, 104.0)
    assert first.y[1] == draws[0, 3, 0]
    assert second.y[0] == draws[1, 0, 0]


def test_an_answer_is_marked() -> None:
    solution = solve(merge({}, {}), "snr_db")
    chart = solution_chart(solution)
    mark = next(layer for layer in chart.layers if isinstance(layer, Mark))
    assert mark.value == solution.value
    good, bad = (layer for layer in chart.layers if isinstance(layer, Points))
    assert min(good.x) == solution.value
    assert max(bad.x) < solution.value


EVERYTHING = Chart(
    "everything",
    "All layers",
    ChartAxis("x", low=0.5, high=3.5),
    ChartAxis("y", True),
    (
        Cells((1.0, 2.0, 3.0), (1.0, 10.0), ((0, 1, -1), (1, 0, 0)), ("a", "b"), ("blue", "green")),
        Line((1, 2), (1, math.nan), label="line", low=(0.5, 1.0), high=(2.0, 4.0), dots=True),
        Points((1,), (2,), label="points"),
        Words(1, 3, "words", side="above"),
        Mark("x", 2.0, "upright"),
        Mark("y", 2.0, "level", "purple", "dotted"),
    ),
    "A caption.",
)


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=lambda theme: theme.name)
@pytest.mark.parametrize(
    ("kind", "start"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")]
)
def test_every_layer_in_every_file(kind: str, start: bytes, theme: object) -> None:
    first, second = (render_chart(EVERYTHING, kind, theme) for _ in range(2))  # type: ignore[arg-type]
    assert first.startswith(start)
    if kind != "svg":  # where names of clipping paths are random
        assert first == second


def test_every_layer_in_the_browser() -> None:
    options = to_options(EVERYTHING, LIGHT)
    kinds = [series["type"] for series in options["series"]]
    assert kinds.count("heatmap") == 2
    assert options["legend"]["data"] == ["a", "b", "line", "points"]
    cells = sum(len(series["data"]) for series in options["series"] if series["type"] == "heatmap")
    assert cells == 5  # one is not known
    plain = to_options(replace(EVERYTHING, layers=()), DARK)
    assert plain["series"] == []


def test_a_posterior_with_draws() -> None:
    law = flmc.Gaussian(np.zeros(2), np.eye(2))
    chart = posterior_chart(law, {"other": law}, np.zeros((5000, 2)))
    points = next(layer for layer in chart.layers if isinstance(layer, Points))
    assert len(points.x) <= 1000
    assert [line.label for line in lines(chart)] == ["other", "exact posterior"]
