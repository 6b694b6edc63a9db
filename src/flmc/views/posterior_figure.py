"""The figure of the draws of two entries against the exact posterior."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from flmc.base.arrays import Array
from flmc.models.distributions import Gaussian
from flmc.runs.results import Result
from flmc.views.figures import COLOURS

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_posterior(
    axes: Axes, result: Result, posterior: Gaussian, entries: tuple[int, int] = (0, 1)
) -> None:
    """Draw two entries of the first data set's draws, their two-sigma ellipse, and that of the
    exact posterior.

    Parameters
    ----------
    axes
        Where to draw.
    result
        A run that kept its draws; about 2000 of them are shown.
    posterior
        The exact posterior, as ``model.posterior``.
    entries
        The two entries of theta, counted from 0.

    Examples
    --------
    >>> from flmc.views.figures import new_figure
    >>> from flmc.views.posterior_figure import draw_posterior
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> result = flmc.run(plan, model, chains=10, engine="numpy")
    >>> figure, (axes,) = new_figure(columns=1)
    >>> draw_posterior(axes, result, model.posterior)
    >>> [line.get_label() for line in axes.lines]
    ['draws', 'draws, 2 sigma', 'exact posterior, 2 sigma']
    """
    draws = result.draws[: result.num_chains].reshape(-1, result.plan.dim)[:, entries]
    shown = draws[:: max(1, len(draws) // 2000)]
    axes.plot(
        *shown.T, ".", color=COLOURS[5], markersize=2, alpha=0.5, rasterized=True, label="draws"
    )
    pick = np.ix_(entries, entries)
    for mean, covariance, colour, label in (
        (result.mean[0], result.covariance[0], COLOURS[0], "draws, 2 sigma"),
        (posterior.mean[0], posterior.covariance[0], COLOURS[1], "exact posterior, 2 sigma"),
    ):
        axes.plot(*_ellipse(mean[list(entries)], covariance[pick]), color=colour, label=label)
    axes.set_aspect("equal", adjustable="datalim")
    axes.set_xlabel(f"theta, entry {entries[0] + 1}")
    axes.set_ylabel(f"theta, entry {entries[1] + 1}")


def _ellipse(mean: Array, covariance: Array) -> Array:
    """Points at Mahalanobis distance 2 from the mean, (2, point)."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean[:, None] + 2.0 * np.linalg.cholesky(covariance) @ circle)
