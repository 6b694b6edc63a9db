"""Figures of draws: what they show, by numbers."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.evaluation.predictive import score_probabilities
from flmc.views import plot


@pytest.fixture(scope="module")
def result() -> flmc.Result:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=500, num_burn_in=200)
    return flmc.run(plan, model, seed=1, chains=4)


def test_traces_show_every_chain(result: flmc.Result, tmp_path: Path) -> None:
    figure = plot.trace(result, ["theta[0]", "theta[3]"])
    assert len(figure.axes) == 4
    shown = figure.axes[2]
    assert shown.get_ylabel() == "theta[3]"
    assert len(shown.lines) == 4
    np.testing.assert_array_equal(
        np.asarray(shown.lines[1].get_ydata(), dtype=float), result.draws[1, :, 3]
    )
    figure.savefig(tmp_path / "trace.png")
    assert len(plot.trace(result).axes) == 10  # all five entries


def test_ranks_of_chains_that_disagree_are_not_flat(result: flmc.Result) -> None:
    figure = plot.rank(result, ["theta[0]"])
    (axes,) = figure.axes
    counts = [patch.get_data().values for patch in axes.patches if hasattr(patch, "get_data")]
    assert len(counts) == 4
    assert all(each.sum() == 300 for each in counts)


def test_autocorrelation_is_that_of_a_plain_loop(result: flmc.Result) -> None:
    figure = plot.autocorrelation(result, ["theta[1]"], most_lags=20)
    line = figure.axes[0].lines[0]
    found = np.asarray(line.get_ydata(), dtype=float)
    expected = []
    for lag in range(21):
        each = []
        for chain in result.draws[:, :, 1]:
            centred = chain - chain.mean()
            each.append((centred[: 300 - lag] @ centred[lag:]) / (centred @ centred))
        expected.append(np.mean(each))
    np.testing.assert_allclose(found, expected, atol=1e-10)
    assert found[0] == pytest.approx(1.0)


def test_pairs_and_reliability(result: flmc.Result, tmp_path: Path) -> None:
    figure = plot.pair(result, ["theta[0]", "theta[1]", "theta[2]"])
    assert len(figure.axes) == 9
    rng = np.random.default_rng(1)
    probabilities = rng.dirichlet(np.ones(3), 400)
    classes = np.array([rng.choice(3, p=row) for row in probabilities])
    scores = score_probabilities(probabilities, classes)
    figure = plot.reliability(scores)
    assert f"{scores.ece:.3f}" in figure.axes[0].get_title()
    figure.savefig(tmp_path / "reliability.png")


def test_unknown_entries_are_refused(result: flmc.Result) -> None:
    with pytest.raises(InvalidSetting, match="there is no entry 'slope'"):
        plot.trace(result, ["slope"])
    with pytest.raises(InvalidSetting, match="no entry was asked for"):
        plot.pair(result, [])
