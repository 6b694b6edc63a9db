"""Figures of results, for notebooks, such as ``flmc.plot.trace(result)``; they need the extra
``plot``.

Each function that is named after a figure returns it as a Matplotlib figure, which a notebook shows
and ``savefig`` writes. Figures of draws show entries of theta by their names, for the first data
set, with at most about 2000 draws of a chain. Where each chain has a colour, only the first seven
are shown, because readers can tell no more colours apart. ``write_figures`` writes all figures that
a finished run allows as files, as ``flmc run --plots`` does."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import ndtri
from flmc.data.federated import FederatedData
from flmc.evaluation.answer import Answer
from flmc.evaluation.chain_statistics import chain_statistics
from flmc.evaluation.named_draws import by_entry, entry_names
from flmc.evaluation.predictive import (
    Predictive,
    class_numbers,
    class_probabilities,
    score_probabilities,
)
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model
from flmc.runs.results import Result
from flmc.views.figures import COLOURS, new_figure, write_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["autocorrelation", "intervals", "pair", "rank", "reliability", "trace", "write_figures"]

_MOST_SHOWN = 2000
"""About the largest number of draws of a chain that a figure shows; of more draws every n-th is
shown."""
MOST_ENTRIES = 6
"""Number of entries of theta that are drawn unless the caller names others."""
MOST_CHAINS = len(COLOURS)
"""Largest number of chains that a figure shows where each has a colour of its own; further chains
are left out."""
_MOST_INTERVALS = 40
"""Largest number of entries of theta whose intervals are drawn one below the other in one column of
a figure; more take further columns."""
_MOST_LETTERS = 22
"""Largest number of characters in the name of an entry of theta that fit beside a panel; longer
names are shortened."""
_RANK_BINS = 20
_MOST_RANKED = 20_000
"""Largest number of draws, of all chains together, from which R-hat is computed to choose the
entries that are drawn."""
_MOST_PREDICTED = 200
"""Largest number of draws over which predictive probabilities are averaged."""


def trace(result: Result, entries: Sequence[str] | None = None) -> Figure:
    """Draw the values of every chain's draws in their order, and their density beside them, for
    some entries of theta.

    Parameters
    ----------
    result
        A run that kept its draws.
    entries
        Names of entries as :meth:`flmc.Result.summary` has them; None: the first six.
    """
    names, draws = _chosen(result, entries)
    draws = draws[:MOST_CHAINS]
    figure, axes = new_figure(columns=2, rows=len(names), width=3.6, height=1.4)
    every = max(1, draws.shape[1] // _MOST_SHOWN)
    rounds = np.arange(draws.shape[1])[::every]
    for index, name in enumerate(names):
        line, density = axes[2 * index : 2 * index + 2]
        low, high = draws[:, :, index].min(), draws[:, :, index].max()
        # If all draws of an entry are equal, the bins need a width above 0.
        pad = 0.0 if high > low else 1e-6 * abs(low) + 1e-9
        edges = np.linspace(low - pad, high + pad, 41)
        for chain, values in enumerate(draws[:, :, index]):
            colour = COLOURS[chain % len(COLOURS)]
            line.plot(rounds, values[::every], color=colour, linewidth=0.5, alpha=0.8)
            density.hist(values, edges.tolist(), color=colour, histtype="step", density=True)
        line.set_ylabel(_short(name), fontsize=8)
        line.margins(x=0)
        density.set_yticks([])
    axes[-2].set_xlabel("kept round")
    axes[-1].set_xlabel("value")
    return figure


def rank(result: Result, entries: Sequence[str] | None = None) -> Figure:
    """Draw for every chain a histogram of the ranks that its draws have among the draws of all
    chains.

    Histograms of chains that agree are flat: with independent draws, their bars lie within the grey
    band of three standard deviations; with correlated draws, they scatter more.

    Parameters
    ----------
    result
        A run that kept its draws.
    entries
        Names of entries as :meth:`flmc.Result.summary` has them; None: the first six.
    """
    names, draws = _chosen(result, entries)
    draws = draws[:MOST_CHAINS]
    figure, axes = new_figure(columns=1, rows=len(names), width=5.0, height=1.4)
    chains, count, _ = draws.shape
    expected = count / _RANK_BINS
    for index, (axis, name) in enumerate(zip(axes, names, strict=True)):
        order = np.argsort(np.argsort(draws[:, :, index], axis=None)).reshape(chains, count)
        axis.axhspan(
            expected - 3 * np.sqrt(expected), expected + 3 * np.sqrt(expected), color="0.9"
        )
        for chain in range(chains):
            counts, edges = np.histogram(order[chain], _RANK_BINS, (0, chains * count))
            colour = COLOURS[chain % len(COLOURS)]
            axis.stairs(counts, edges, color=colour, linewidth=1)
        axis.set_ylabel(_short(name), fontsize=8)
        axis.set_ylim(bottom=0)
    axes[-1].set_xlabel("rank among the draws of these chains")
    return figure


def autocorrelation(
    result: Result, entries: Sequence[str] | None = None, most_lags: int = 100
) -> Figure:
    """Draw the correlation between two draws of a chain, averaged over chains, against the number
    of draws from one to the other: of rounds, if every kept round is a draw.

    Parameters
    ----------
    result
        A run that kept its draws.
    entries
        Names of entries as :meth:`flmc.Result.summary` has them; None: the first six.
    most_lags
        Largest number of draws from one to the other.
    """
    names, draws = _chosen(result, entries)
    lags = np.arange(min(checks.at_least("most_lags", most_lags, 1), draws.shape[1] - 1) + 1)
    figure, (axes,) = new_figure(columns=1, width=5.0, height=3.0)
    for index, name in enumerate(names):
        centred = draws[:, :, index] - draws[:, :, index].mean(axis=1, keepdims=True)
        # Chains are padded with zeros to twice their length, because the Fourier transform would
        # otherwise correlate the end of a chain with its beginning.
        spectrum = np.abs(np.fft.rfft(centred, 2 * draws.shape[1], axis=1)) ** 2
        products = np.fft.irfft(spectrum, axis=1)[:, lags]
        moving = products[:, 0] > 0
        if moving.any():
            correlation = (products[moving] / products[moving, :1]).mean(axis=0)
            axes.plot(lags, correlation, color=COLOURS[index % len(COLOURS)], label=name)
    axes.axhline(0.0, color="0.6", linewidth=0.8)
    axes.set_xlabel("draws apart")
    axes.set_ylabel("autocorrelation")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7, frameon=False)
    return figure


def pair(result: Result, entries: Sequence[str] | None = None) -> Figure:
    """Draw the draws of every pair of entries of theta against each other, and a histogram of each
    entry on the diagonal.

    Parameters
    ----------
    result
        A run that kept its draws.
    entries
        Names of entries as :meth:`flmc.Result.summary` has them; None: the first six.
    """
    names, draws = _chosen(result, entries)
    flat = draws.reshape(-1, len(names))
    shown = flat[:: max(1, len(flat) // _MOST_SHOWN)]
    figure, axes = new_figure(columns=len(names), rows=len(names), width=1.5, height=1.5)
    for place, axis in enumerate(axes):
        row, column = divmod(place, len(names))
        if column > row:
            axis.axis("off")
            continue
        if row == column:
            axis.hist(flat[:, row], 30, color=COLOURS[5])
            axis.set_yticks([])
        else:
            axis.plot(
                shown[:, column], shown[:, row], ".", color=COLOURS[0], markersize=1, alpha=0.4
            )
            axis.locator_params(axis="y", nbins=4)
        # At most four labels on the x axis, because more would overlap.
        axis.locator_params(axis="x", nbins=4)
        axis.tick_params(labelsize=6)
        if row == len(names) - 1:
            axis.set_xlabel(_short(names[column]), fontsize=7)
        if column == 0 and row > 0:
            axis.set_ylabel(_short(names[row]), fontsize=7)
    return figure


def reliability(scores: Predictive, axes: Axes | None = None) -> Figure:
    """Draw the share of right predictions against the confidence, the largest predicted probability
    of an example. For a model whose probabilities are right, the points lie on the diagonal.

    Parameters
    ----------
    scores
        Scores of predictive probabilities, as
        :func:`flmc.evaluation.predictive.score_probabilities` returns them.
    axes
        Matplotlib Axes to draw into; None: those of a new figure.
    """
    if axes is None:
        _, (axes,) = new_figure(columns=1, width=4.2, height=3.6)
    there = scores.examples > 0
    size = 15 + 150 * scores.examples[there] / max(scores.examples.max(), 1)
    axes.plot([0, 1], [0, 1], color="0.6", linestyle=":", linewidth=1)
    axes.scatter(scores.confidence[there], scores.correct[there], size, color=COLOURS[0], alpha=0.8)
    axes.plot(scores.confidence[there], scores.correct[there], color=COLOURS[0], linewidth=0.8)
    axes.set_xlim(0, 1.02)
    axes.set_ylim(0, 1.05)
    axes.set_xlabel("confidence, mean of a bin")
    axes.set_ylabel("share of right predictions")
    axes.set_title(
        f"accuracy {scores.accuracy:.3f}, calibration error {scores.ece:.3f}", fontsize=9
    )
    return cast("Figure", axes.get_figure())  # Matplotlib 3.9 does not know the argument root=True


def intervals(answer: Answer, probability: float = 0.9) -> Figure:
    """Draw the central intervals of all entries of an answer, and beside them those of the exact
    posterior where it is known, for the first data set.

    Parameters
    ----------
    answer
        What :meth:`flmc.Result.posterior` returns.
    probability
        Probability of the intervals.
    """
    names = entry_names(answer.mean.shape[1], answer.layout)
    columns = -(-len(names) // _MOST_INTERVALS)
    rows = -(-len(names) // columns)
    figure, axes = new_figure(columns=columns, width=4.2, height=1.3 + 0.24 * rows)
    ends = answer.intervals(probability)[0]
    drawn = [(ends, answer.mean[0], COLOURS[0], "what the server knows")]
    if answer.exact is not None:
        sd = np.sqrt(np.diagonal(answer.exact.covariance[0]))
        reach = np.array([-1.0, 1.0]) * float(ndtri(np.array([(1 + probability) / 2]))[0])
        exact = answer.exact.mean[0][:, None] + sd[:, None] * reach
        drawn.append((exact, answer.exact.mean[0], COLOURS[1], "exact posterior"))
    for column, axis in enumerate(axes):
        some = slice(column * rows, (column + 1) * rows)
        height = np.arange(len(names[some]))
        for index, (both, mean, colour, words) in enumerate(drawn):
            at = height + 0.3 * (index - (len(drawn) - 1) / 2)
            axis.hlines(at, both[some, 0], both[some, 1], color=colour, linewidth=2)
            axis.plot(mean[some], at, "o", color=colour, markersize=4, label=words)
        axis.set_yticks(height, [_short(name) for name in names[some]], fontsize=8)
        axis.set_ylim(len(height) - 0.4, -0.6)
        axis.grid(axis="x", color="0.9", linewidth=0.6)
        axis.set_axisbelow(True)
        axis.set_xlabel(f"mean and {100 * probability:.3g} % interval")
    handles, labels = axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=2, frameon=False, fontsize=8)
    return figure


def _short(name: str) -> str:
    """The name of an entry of theta, shortened to about ``_MOST_LETTERS`` characters to fit beside
    a panel: dots replace the middle of a long name, because its end has the index."""
    half = (_MOST_LETTERS - 1) // 2
    return name if len(name) <= _MOST_LETTERS else f"{name[:half]}…{name[-half:]}"


def _chosen(result: Result, entries: Sequence[str] | None) -> tuple[list[str], Array]:
    """Names of the entries to draw (``entries`` None: the first six), and their draws for the first
    data set, (chain, draw, entry). Raises ``InvalidSetting`` for an unknown name."""
    names, draws = by_entry(result.draws[: result.num_chains], result.layout)
    wanted = names[:MOST_ENTRIES] if entries is None else list(entries)
    for name in wanted:
        if name not in names:
            raise InvalidSetting(f"there is no entry {name!r}: it is one of {', '.join(names)}")
    if not wanted:
        raise InvalidSetting("no entry was asked for")
    return wanted, draws[:, :, [names.index(name) for name in wanted]]


def write_figures(result: Result, model: Model, directory: str | Path) -> tuple[Path, ...]:
    """Write figures of a run's draws as PNG files: trace, rank, autocorrelation and pair, and
    reliability where the model predicts classes.

    At most six entries of theta are drawn; if theta has more, those with the largest R-hat. The
    titles say which.

    Parameters
    ----------
    result
        A run that kept its draws.
    model
        The model that was run. Where its data have classes, the figure of reliability is made from
        the same data that the model has learnt from, and looks better than new data would.
    directory
        Where to write; it is made if it does not exist, and files of these names are replaced.

    Returns
    -------
    tuple of Path
        The files.

    Raises
    ------
    InvalidSetting
        If the run kept no draws, or the directory cannot be written.
    MissingExtra
        If Matplotlib is not installed.
    """
    entries, words = shown_entries(result)
    figures = {
        "trace": trace(result, entries),
        "rank": rank(result, entries),
        "autocorrelation": autocorrelation(result, entries),
        "pair": pair(result, entries),
    }
    for name, figure in figures.items():
        some = name in ("trace", "rank") and result.num_chains > MOST_CHAINS
        chains = f"; the first {MOST_CHAINS} of {result.num_chains} chains" if some else ""
        figure.suptitle(words + chains, fontsize=9)
    data = model.data if isinstance(model, LogDensityModel) else None
    if isinstance(data, FederatedData) and len(data.classes) > 1:
        assert isinstance(model, LogDensityModel)
        draws = result.draws[: result.num_chains].reshape(-1, model.dim)
        thinned = draws[:: -(-len(draws) // _MOST_PREDICTED)]
        probabilities = class_probabilities(model, thinned, data)
        scores = score_probabilities(probabilities, class_numbers(data))
        figures["reliability"] = reliability(scores)
        figures["reliability"].suptitle("the examples that were learnt from", fontsize=9)
    place = Path(directory)
    try:
        place.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InvalidSetting(f"cannot write {str(place)!r}: {error.strerror}") from error
    written = (write_png(figure, place / f"{name}.png") for name, figure in figures.items())
    return tuple(path for path in written if path is not None)


def shown_entries(result: Result) -> tuple[list[str], str]:
    """Names, in the order of the model, of the entries to draw: all if there are at most six, else
    the six with the largest R-hat; and words that say which these are, such as ``all entries``. The
    run must have kept its draws."""
    names, draws = by_entry(result.draws[: result.num_chains], result.layout)
    where = "" if len(result.draws) == len(draws) else " of the first data set"
    if len(names) <= MOST_ENTRIES:
        return names, f"all entries{where}"
    if draws.shape[1] < 4:
        return names[:MOST_ENTRIES], f"the first {MOST_ENTRIES} of {len(names)} entries{where}"
    every = min(max(1, draws.shape[0] * draws.shape[1] // _MOST_RANKED), draws.shape[1] // 4)
    r_hat = chain_statistics(np.moveaxis(draws[:, ::every], 2, 0)).r_hat
    # The R-hat of an entry whose draws are all equal is NaN; such an entry counts as the worst, so
    # that it is among those drawn.
    worst = np.argsort(np.nan_to_num(r_hat, nan=np.inf))[-MOST_ENTRIES:]
    words = f"the {MOST_ENTRIES} of {len(names)} entries with the largest R-hat{where}"
    return [names[index] for index in sorted(worst)], words
