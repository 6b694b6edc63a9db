"""Draws of theta under the names of the model's parameters: summary table, pandas data frame,
ArviZ."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.base.tables import Grid
from flmc.evaluation.chain_statistics import chain_statistics, effective_size_of_mean

Layout = tuple[tuple[str, tuple[int, ...]], ...]
"""Layout of theta: name and shape of every parameter, in the order in which parameters lie in
theta."""


def by_parameter(draws: Array, layout: Layout | None) -> dict[str, Array]:
    """Draws of theta, (chain, draw, dim), split by parameter: for every name in the ``layout`` an
    array (chain, draw, ...), with the parameter's own axes last. Without a layout there is one
    parameter, ``theta``. ``InvalidSetting`` if the layout has another number of entries than the
    draws."""
    parameters, first = {}, 0
    for name, shape in layout or (("theta", draws.shape[2:]),):
        size = math.prod(shape)
        parameters[name] = draws[:, :, first : first + size].reshape(*draws.shape[:2], *shape)
        first += size
    if first != draws.shape[2]:
        raise InvalidSetting(f"the names are of {first} entries, and theta has {draws.shape[2]}")
    return parameters


def entry_names(dim: int, layout: Layout | None) -> list[str]:
    """Names of the entries of theta: the name of the parameter, with an index if it has several
    entries; without a layout ``theta[0]`` and so on."""
    names = []
    for name, shape in layout or (("theta", (dim,)),):
        every = np.ndindex(*shape)
        names += [name + (f"[{','.join(map(str, i))}]" if i else "") for i in every]
    return names


def summarise(draws: Array, layout: Layout | None, interval: float = 0.9) -> Grid:
    """A table with a row for each entry of theta, from draws (chain, draw, dim), at least 4 a
    chain: mean, standard deviation, ends of the central interval of probability ``interval``, Monte
    Carlo error of the mean, effective draws and R-hat."""
    if draws.shape[1] < 4:
        raise InvalidSetting(f"a summary needs 4 draws of a chain at least, got {draws.shape[1]}")
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
        for i, name in enumerate(entry_names(draws.shape[2], layout))
    )
    edges = (f"{50 * (1 - interval):.3g} %", f"{50 * (1 + interval):.3g} %")
    header = ("entry", "mean", "sd", *edges, "mcse", "ess bulk", "ess tail", "r-hat")
    return Grid(header, rows, f"{draws.shape[0]} chains of {draws.shape[1]} draws")


def to_dataframe(draws: Array, layout: Layout | None) -> Any:
    """Draws, (chain, draw, dim), as a pandas data frame with the columns ``chain``, ``draw`` and
    one for each entry of theta; ``MissingExtra`` if pandas is not installed."""
    try:
        import pandas
    except ImportError as error:
        raise MissingExtra("a data frame needs pandas: pip install pandas") from error
    chains, count, dim = draws.shape
    frame = pandas.DataFrame(draws.reshape(-1, dim), columns=entry_names(dim, layout))
    frame.insert(0, "chain", np.repeat(np.arange(chains), count))
    frame.insert(1, "draw", np.tile(np.arange(count), chains))
    return frame


def to_arviz(draws: Array, layout: Layout | None, predictions: Array | None = None) -> Any:
    """Draws, (chain, draw, dim), as a DataTree of ArviZ with the group ``posterior`` and, where
    there are predictions (chain, draw, prediction), ``posterior_predictive``; ``MissingExtra`` if
    arviz-base is not installed."""
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise MissingExtra("ArviZ needs arviz-base: pip install 'flmc[arviz]'") from error
    groups: dict[str, Any] = {"posterior": by_parameter(draws, layout)}
    if predictions is not None:
        groups["posterior_predictive"] = {"prediction": predictions}
    return from_dict(groups)
