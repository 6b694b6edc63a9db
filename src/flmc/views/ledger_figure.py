"""The figure of what a run has spent, against the round."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from flmc.base.errors import MissingExtra
from flmc.runs.ledgers.ledger_cost import SpentCurve
from flmc.views.figures import COLOURS, new_figure, write_png


def draw_ledger_file(curve: SpentCurve, out: Path) -> Path | None:
    """Write ``ledger.png``: epsilon spent against round, with the run's budget if it has one.

    Parameters
    ----------
    curve
        What was spent.
    out
        The directory.

    Returns
    -------
    Path or None
        The file; None without Matplotlib, if epsilon is not bounded, or if it could not be written.
    """
    if not np.isfinite([epsilon for _, epsilon in curve.points]).all():
        return None
    try:
        figure, (axes,) = new_figure(columns=1)
    except MissingExtra:
        return None
    rounds, epsilon = zip(*curve.points, strict=True)
    axes.plot(rounds, epsilon, color=COLOURS[0], marker="o", markersize=3)
    axes.set_xlabel("round")
    axes.set_ylabel(f"epsilon spent, at delta = {curve.run_delta:g}")
    if curve.budget is not None:
        axes.axhline(
            curve.budget, color="0.4", linestyle=":", linewidth=1, label="budget of the run"
        )
        axes.legend(fontsize=7, frameon=False)
    axes.set_ylim(bottom=0)
    axes.locator_params(axis="x", integer=True)
    axes.set_title(f"neighbouring: {curve.neighbouring.partition(' ')[0]}", fontsize=9)
    return write_png(figure, out / "ledger.png")
