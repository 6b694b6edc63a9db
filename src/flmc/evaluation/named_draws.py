"""Draws of theta under the names of the model's parameters: names of entries, summary table, pandas
data frame."""

from __future__ import annotations

from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.base.tables import Grid
from flmc.evaluation.chain_statistics import chain_statistics, effective_size_of_mean
from flmc.models.model import Model
from flmc.models.parameters import Layout as Layout


def by_parameter(draws: Array, layout: Layout | None) -> dict[str, Array]:
    """Values of the parameters at draws of theta, (chain, draw, dim): for every name in the
    ``layout`` an array (chain, draw, ...), with the parameter's own axes last. Without a layout
    there is one parameter, ``theta``. ``InvalidSetting`` if the layout has another number of
    entries than the draws."""
    layout = layout or Layout.of_shapes(theta=draws.shape[2:])
    if layout.dim != draws.shape[2]:
        raise InvalidSetting(
            f"the names are of {layout.dim} entries, and theta has {draws.shape[2]}"
        )
    return layout.values(draws)


def by_entry(draws: Array, layout: Layout | None) -> tuple[list[str], Array]:
    """Names of all entries of the parameters' values, and the values at draws of theta (chain,
    draw, dim), as (chain, draw, entry). The draws of theta are returned as they are where no
    parameter has a support."""
    if layout is None or layout.free:
        return entry_names(draws.shape[2], layout), draws
    values = by_parameter(draws, layout).values()
    columns = [each.reshape(*draws.shape[:2], -1) for each in values]
    return layout.entries(), np.concatenate(columns, axis=2)


def entry_names(dim: int, layout: Layout | None) -> list[str]:
    """Names of the ``dim`` entries of theta: the name of the parameter, with an index if it has
    several entries, as ``free(name)`` if the entry is mapped to a value inside of a support.
    Without a layout, or with one of another number of entries: ``theta[0]``, ``theta[1]`` and so
    on."""
    if layout is None or layout.dim != dim:
        layout = Layout.of_shapes(theta=(dim,))
    return layout.free_entries()


def sampled_names(model: Model) -> list[str]:
    """Names of the entries that a sampler of the ``model`` moves: those of the model's theta, or
    ``coordinate 1 of the sampler`` and so on where the sampler's coordinates mix several
    entries."""
    coordinates = model.coordinates
    if coordinates is None or _is_diagonal(coordinates.scale):
        return entry_names(model.dim, model.layout)
    return [f"coordinate {number} of the sampler" for number in range(1, model.dim + 1)]


def _is_diagonal(matrix: Array) -> bool:
    return not (matrix - np.diag(np.diagonal(matrix))).any()


def summarise(draws: Array, layout: Layout | None, interval: float = 0.9) -> Grid:
    """A table with a row for each entry of the parameters' values, from draws of theta (chain,
    draw, dim), at least 4 a chain: mean, standard deviation, ends of the central interval of
    probability ``interval``, Monte Carlo error of the mean, effective draws and R-hat."""
    if draws.shape[1] < 4:
        raise InvalidSetting(f"a summary needs 4 draws of a chain at least, got {draws.shape[1]}")
    names, draws = by_entry(draws, layout)
    quantities = np.moveaxis(draws, 2, 0)
    statistics = chain_statistics(quantities)
    flat = draws.reshape(-1, draws.shape[2])
    low, high = np.quantile(flat, [(1 - interval) / 2, (1 + interval) / 2], axis=0)
    mean, sd = flat.mean(axis=0), flat.std(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):  # an entry that does not vary divides by 0
        error = sd / np.sqrt(effective_size_of_mean(quantities))
    rows = tuple(
        (
            name,
            *(f"{column[i]:.4g}" for column in (mean, sd, low, high)),
            f"{error[i]:.2g}",
            f"{statistics.ess_bulk[i]:.0f}",
            f"{statistics.ess_tail[i]:.0f}",
            f"{statistics.r_hat[i]:.3f}",
        )
        for i, name in enumerate(names)
    )
    edges = (f"{50 * (1 - interval):.3g} %", f"{50 * (1 + interval):.3g} %")
    header = ("entry", "mean", "sd", *edges, "mcse", "ess bulk", "ess tail", "r-hat")
    return Grid(header, rows, f"{draws.shape[0]} chains of {draws.shape[1]} draws")


def to_dataframe(draws: Array, layout: Layout | None) -> Any:
    """Draws of theta, (chain, draw, dim), as a pandas data frame with the columns ``chain``,
    ``draw`` and one for each entry of the parameters' values; ``MissingExtra`` if pandas is not
    installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("a data frame needs pandas: pip install pandas") from error
    names, values = by_entry(draws, layout)
    chains, count, width = values.shape
    frame = pandas.DataFrame(values.reshape(-1, width), columns=names)
    frame.insert(0, "chain", np.repeat(np.arange(chains), count))
    frame.insert(1, "draw", np.tile(np.arange(count), chains))
    return frame
