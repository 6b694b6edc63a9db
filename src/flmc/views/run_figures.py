"""Figures of a run: epsilon spent against rounds, epsilon of a round against the SNR, draws against
the posterior."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import MissingExtra
from flmc.evaluation.named_draws import entry_names
from flmc.models.distributions import Gaussian
from flmc.runs.ledger_cost import SpentCurve
from flmc.runs.results import Result
from flmc.uplink.power import planned_power_limit
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import replace
from flmc.views.figures import COLOURS, label_y, new_figure, write_png

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def draw_ledger_file(curve: SpentCurve, out: Path) -> Path | None:
    """Write ``ledger.png`` into the directory ``out``: epsilon that a run has spent against rounds,
    with its budget if it has one. Returns the file's path; None without Matplotlib, if epsilon is
    not bounded, or if writing failed."""
    if not np.isfinite([epsilon for _, epsilon in curve.points]).all():
        return None
    try:
        figure, (axes,) = new_figure(columns=1)
    except MissingExtra:
        return None
    rounds, epsilon = zip(*curve.points, strict=True)
    axes.plot(rounds, epsilon, color=COLOURS[0], marker="o", markersize=3)
    axes.set_xlabel("round")
    label_y(axes, f"epsilon up to the round, at delta = {curve.run_delta:g}")
    if curve.partial and np.isfinite(curve.epsilon):
        label = "the whole run, whenever it stops"
        axes.axhline(curve.epsilon, color="0.4", linewidth=1, label=label)
        axes.legend(fontsize=7, frameon=False)
    if curve.budget is not None:
        axes.axhline(
            curve.budget, color="0.4", linestyle=":", linewidth=1, label="budget of the run"
        )
        axes.legend(fontsize=7, frameon=False)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"neighbouring: {curve.neighbouring.partition(' ')[0]}", fontsize=9)
    return write_png(figure, out / "ledger.png")


def draw_loss_against_snr(
    axes: Axes, digital: Digital, analog: Analog, dim: int, delta: float, snr_db: Array
) -> None:
    """Draw the epsilon, at ``delta``, that one round with ``dim`` entries costs at full transmit
    power, against the SNR in dB, (point), for a digital and an analog uplink: bounded for digital,
    not for analog.

    Examples
    --------
    >>> from flmc.views.figures import new_figure
    >>> from flmc.views.run_figures import draw_loss_against_snr
    >>> figure, (axes,) = new_figure(columns=1)
    >>> snr_db = np.array([0.0, 10.0, 20.0])
    >>> draw_loss_against_snr(axes, flmc.Digital(), flmc.Analog(), 5, 0.01, snr_db)
    >>> digital, analog, bound = axes.lines
    >>> bool((digital.get_ydata() <= bound.get_ydata()[0]).all())
    True
    """
    for uplink, colour in ((digital, COLOURS[0]), (analog, COLOURS[1])):
        epsilon = []
        for value in snr_db:
            loud = replace(uplink, snr_db=float(value))
            event = loud.privacy_event([(planned_power_limit(loud, 2, dim), dim)])
            epsilon.append(event.epsilon(delta))
        axes.semilogy(snr_db, epsilon, color=colour, label=uplink.scheme)
    bound = digital.privacy_event([(1.0, dim)]).largest_loss
    axes.axhline(bound, color=COLOURS[0], linestyle=":", label=f"digital bound {bound:g}")
    axes.set_xlabel("SNR at the transmitter [dB]")
    label_y(axes, f"epsilon of one round at delta = {delta:g}")
    axes.legend(frameon=False)


def draw_posterior(
    axes: Axes, result: Result, posterior: Gaussian, entries: tuple[int, int] = (0, 1)
) -> None:
    """Draw two entries of theta (indices from 0) for the first data set: about 2000 draws as dots,
    the two-sigma ellipse of the draws, and that of the exact posterior.

    Examples
    --------
    >>> from flmc.views.figures import new_figure
    >>> from flmc.views.run_figures import draw_posterior
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
    names = entry_names(result.plan.dim, result.layout)
    axes.set_xlabel(names[entries[0]])
    axes.set_ylabel(names[entries[1]])


def _ellipse(mean: Array, covariance: Array) -> Array:
    """Points (2, point) on the ellipse at Mahalanobis distance 2 from ``mean`` (2), for two entries
    of theta with the covariance matrix ``covariance`` (2, 2)."""
    angle = np.linspace(0, 2 * np.pi, 200)
    circle = np.stack([np.cos(angle), np.sin(angle)])
    return np.asarray(mean[:, None] + 2.0 * np.linalg.cholesky(covariance) @ circle)
