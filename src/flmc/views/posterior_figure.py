"""Draws of two entries against the exact posterior."""

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
    """Draws of two entries of the first data set, their two-sigma ellipse, and the exact
    posterior's."""
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
    """Points at Mahalanobis distance 2, (2, point)."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean[:, None] + 2.0 * np.linalg.cholesky(covariance) @ circle)
