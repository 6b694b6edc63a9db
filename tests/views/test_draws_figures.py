"""Figures of draws: what they show, by numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.evaluation.predictive import score_probabilities
from flmc.models.parameters import Layout
from flmc.sampling.path import ChainPath
from flmc.views import plot
from support import full_only


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


def test_many_chains_are_not_drawn_over_each_other(result: flmc.Result) -> None:
    assert result.chains is not None
    many = replace(
        result, path=ChainPath.of_draws(np.repeat(result.chains, 3, axis=1)), num_chains=12
    )
    assert len(plot.trace(many, ["theta[0]"]).axes[0].lines) == 7
    (axes,) = plot.rank(many, ["theta[0]"]).axes
    shown = [patch.get_data().values for patch in axes.patches if hasattr(patch, "get_data")]
    assert len(shown) == 7
    # The ranks are those among the chains that are shown, or their histograms could not be flat.
    assert sum(each.sum() for each in shown) == 7 * 300


@full_only
def test_files_show_the_entries_whose_chains_agree_least(tmp_path: Path) -> None:
    """Ten entries, of which two have chains that disagree."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=10, num_samples=400))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=300, num_burn_in=200)
    result = flmc.run(plan, model, seed=1, chains=4, engine="numpy")
    chains = np.random.default_rng(1).standard_normal((1, 4, 100, 10))
    chains[0, 0, :, [4, 8]] += 5.0
    chains[0, :, :, 6] = 1.0  # does not move
    names = Layout.of_shapes(**{"layers.0.attention.projection.weight": (10,)})
    odd = replace(result, path=ChainPath.of_draws(chains), layout=names)
    entries, words = plot.shown_entries(odd)
    assert len(entries) == 6
    assert entries == sorted(entries)
    assert {entry.partition("[")[2] for entry in entries} >= {"4]", "6]", "8]"}
    assert words == "the 6 of 10 entries with the largest R-hat"
    written = plot.write_figures(odd, model, tmp_path / "new" / "figures")
    assert [path.name for path in written] == [
        "trace.png",
        "rank.png",
        "autocorrelation.png",
        "pair.png",
    ]
    assert all(path.read_bytes().startswith(b"\x89PNG") for path in written)
    # Names that are too long for their picture keep their index.
    label = plot.trace(odd, entries[:1]).axes[0].get_ylabel()
    assert len(label) <= 22
    assert label.endswith(entries[0][-3:])
    two = replace(odd, path=ChainPath.of_draws(np.repeat(chains, 2, axis=0)))
    assert plot.shown_entries(two)[1].endswith("of the first data set")
    (tmp_path / "file").write_text("")
    with pytest.raises(InvalidSetting, match="cannot write"):
        plot.write_figures(odd, model, tmp_path / "file" / "below")
    with pytest.raises(InvalidSetting, match="keep_draws=True"):
        plot.write_figures(replace(odd, path=None), model, tmp_path)
