"""Figures of results, for notebooks: ``flmc.plot.trace(result)`` and others; they need the extra
``plot``.

Each of these returns a Matplotlib figure, which a notebook shows and ``savefig`` writes.
``write_figures`` writes all that fit a finished run as files, as ``flmc run --plots`` does."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.evaluation.chain_statistics import chain_statistics
from flmc.evaluation.named_draws import entry_names
from flmc.evaluation.predictive import class_numbers, class_probabilities, score_probabilities
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model
from flmc.runs.results import Result
from flmc.views.draws_figures import MOST_CHAINS, MOST_ENTRIES
from flmc.views.draws_figures import draw_autocorrelation as autocorrelation
from flmc.views.draws_figures import draw_pairs as pair
from flmc.views.draws_figures import draw_ranks as rank
from flmc.views.draws_figures import draw_reliability as reliability
from flmc.views.draws_figures import draw_traces as trace
from flmc.views.figures import write_png

__all__ = ["autocorrelation", "pair", "rank", "reliability", "trace", "write_figures"]

_MOST_RANKED = 20_000
"""Draws of all chains from which R-hat is computed at most, to find the entries to draw."""
_MOST_PREDICTED = 200
"""Draws over which predictive probabilities are averaged at most."""


def write_figures(result: Result, model: Model, directory: str | Path) -> tuple[Path, ...]:
    """Write figures of a run's draws as PNG files: trace, rank, autocorrelation and pair, and
    reliability where the model predicts classes.

    At most six entries are drawn: those with the largest R-hat where there are more. Titles say
    which.

    Parameters
    ----------
    result
        A run that kept its draws.
    model
        The model that was run. Where its data have classes, these very data are predicted, so that
        the calibration looks better than that of new examples.
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
    if isinstance(model, LogDensityModel) and len(model.data.classes) > 1:
        draws = result.draws[: result.num_chains].reshape(-1, model.dim)
        thinned = draws[:: -(-len(draws) // _MOST_PREDICTED)]
        probabilities = class_probabilities(model, thinned, model.data)
        scores = score_probabilities(probabilities, class_numbers(model.data))
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
    """The names of the entries to draw, those whose chains agree least, and words that say which.

    Parameters
    ----------
    result
        A run that kept its draws.

    Returns
    -------
    tuple of list and str
        Names in the order of theta, at most six, and what they are.
    """
    draws = result.draws[: result.num_chains]
    names = entry_names(draws.shape[2], result.layout)
    where = "" if len(result.draws) == len(draws) else " of the first data set"
    if len(names) <= MOST_ENTRIES:
        return names, f"all entries{where}"
    if draws.shape[1] < 4:
        return names[:MOST_ENTRIES], f"the first {MOST_ENTRIES} of {len(names)} entries{where}"
    every = min(max(1, draws.shape[0] * draws.shape[1] // _MOST_RANKED), draws.shape[1] // 4)
    r_hat = chain_statistics(np.moveaxis(draws[:, ::every], 2, 0)).r_hat
    # An entry that does not move has no R-hat: it is looked at first.
    worst = np.argsort(np.nan_to_num(r_hat, nan=np.inf))[-MOST_ENTRIES:]
    words = f"the {MOST_ENTRIES} of {len(names)} entries with the largest R-hat{where}"
    return [names[index] for index in sorted(worst)], words
