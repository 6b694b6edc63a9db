"""Run a plan of two stages: the pilot, the coordinates that follow from its draws, and the run."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import RunFailed
from flmc.base.progress import Progress, report_within
from flmc.base.randomness import second_seed
from flmc.base.tables import Listing, Row, format_up
from flmc.evaluation.chain_statistics import FEWEST_DRAWS, effective_size_of_mean
from flmc.models.affine import Coordinates
from flmc.models.model import Model
from flmc.models.whitening import in_coordinates
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.planning.search.automatic import CLIPPED_AT
from flmc.planning.two_stage_plan import TwoStagePlan
from flmc.runs.execution import run
from flmc.runs.results import Result
from flmc.sampling.simulation import never

_CURVES = 1.5
"""Factor by which curvature may differ from that of a normal posterior, over its width."""
_ROOM = 2.0
"""Factor of the variance of local gradients that the clip leaves room for, because devices are not
alike: with 1 the means of the example with eight hospitals are off by 0.12 standard deviations,
with 2 by 0.04."""
_LEAST_DRAWS = 2.0
"""Effective draws for each entry that a pilot must be worth: its least variance is then too small
by a factor of 12 at most."""


class PilotFindings(NamedTuple):
    """What the second stage takes of the pilot's draws, and of nothing else.

    Attributes
    ----------
    coordinates
        Mean and root of the covariance of the draws, stretched to the clip.
    smoothness, convexity
        Curvatures that the posterior may have in them.
    effective_draws
        Independent draws that the pilot's are worth, the harmonic mean over entries.
    """

    coordinates: Coordinates
    smoothness: float
    convexity: float
    effective_draws: float


@dataclass(frozen=True)
class TwoStageResult:
    """Both stages of a finished run.

    Attributes
    ----------
    plan
        What was planned before the first round.
    pilot, main
        Results of the first stage, one chain, and of the second.
    found
        What the second stage took of the first.
    """

    plan: TwoStagePlan
    pilot: Result
    main: Result
    found: PilotFindings

    @property
    def cost(self) -> Cost | None:
        """Privacy of the pilot and of one chain of the second stage together, as it was planned;
        None where it is unknown."""
        return self.plan.cost

    def listing(self) -> Listing:
        """The second stage in rows, with what both stages cost."""
        rows = [
            Row(
                "pilot",
                f"{self.pilot.plan.num_rounds} rounds, worth {self.found.effective_draws:.0f}"
                " independent draws",
            )
        ]
        if self.cost is not None:
            text = f"epsilon {format_up(self.cost.epsilon)} at delta {self.cost.delta:g}, of one"
            rows.append(Row("privacy of both", f"{text} chain and the pilot together"))
        shown = self.main.listing()
        # Its own cost leaves out the pilot, and so does the warning that says so.
        left = [
            row for row in shown.rows if row.label != "privacy" and "two stages" not in row.value
        ]
        return Listing(shown.title, (*rows, *left))

    def __str__(self) -> str:
        return str(self.listing())


def run_two_stages(
    plan: TwoStagePlan,
    model: Model,
    seed: int = 0,
    chains: int = 1,
    *,
    keep_draws: bool = True,
    thin: int = 1,
    engine: str = "auto",
    progress: Progress | None = None,
    out: str | Path | None = None,
    stop: Callable[[], bool] = never,
) -> TwoStageResult:
    """Run the pilot with one chain, and the second stage in the coordinates that it finds.

    Parameters
    ----------
    plan, model
        What :func:`flmc.plan_two_stages` made for this model.
    seed, chains
        Seed of all randomness, and chains of the second stage.
    keep_draws, thin
        Draws of the second stage, as for :func:`flmc.run`.
    engine, progress, stop
        As for :func:`flmc.run`.
    out
        A new directory, with a record of each stage in ``pilot`` and ``main``.

    Returns
    -------
    TwoStageResult
        Both results, and what they cost together.

    Raises
    ------
    RunFailed
        If the pilot is too short to find coordinates.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> both = flmc.plan_two_stages(model, flmc.Ideal(), num_rounds=900)
    >>> result = flmc.run_two_stages(both, model, chains=4, engine="numpy")
    >>> result.main.draws.shape[0], result.main.mean.shape
    (4, (1, 5))
    """
    share = plan.pilot.num_rounds / (plan.pilot.num_rounds + plan.main_rounds * chains)
    place = None if out is None else Path(out)
    pilot = run(
        plan.pilot,
        model,
        seed,
        1,
        engine=engine,
        progress=report_within(progress, 0.0, share),
        out=None if place is None else place / "pilot",
        stop=stop,
    )
    found = read_pilot(pilot)
    white = in_coordinates(model, found.coordinates, found.smoothness, found.convexity, public=True)
    second = plan.main(white, found.smoothness, found.convexity)
    main = run(
        second,
        white,
        second_seed(seed),
        chains,
        keep_draws=keep_draws,
        thin=thin,
        engine=engine,
        progress=report_within(progress, share, 1.0),
        out=None if place is None else place / "main",
        stop=stop,
    )
    return TwoStageResult(plan, pilot, main, found)


def read_pilot(pilot: Result) -> PilotFindings:
    r"""Coordinates and curvature from the draws of a pilot.

    Let draws of a normal law with covariance :math:`T\Sigma` have the covariance
    :math:`S = RR^\top`. In coordinates of R the curvature is :math:`R^\top\Sigma^{-1}R`, with the
    eigenvalues of :math:`\Sigma^{-1}S`. For n independent draws in m dimensions these lie between
    :math:`T(1 - \sqrt{m/n})^2` and :math:`T(1 + \sqrt{m/n})^2` (Marchenko and Pastur).

    Parameters
    ----------
    pilot
        A finished run of one data set that kept its draws.

    Raises
    ------
    RunFailed
        If the draws are worth too few independent ones.
    """
    draws = pilot.draws
    worth = effective_draws(draws)
    needed = _LEAST_DRAWS * draws.shape[-1]
    if not worth >= needed:
        raise RunFailed(
            f"the pilot's draws are worth {worth:.0f} independent ones, and"
            f" coordinates of {draws.shape[-1]} entries need {needed:.0f}: use more pilot_rounds,"
            " a smaller clip, or a larger budget if that is what limits the step"
        )
    off = math.sqrt(draws.shape[-1] / worth)
    heat = pilot.plan.temperature or 1.0
    smoothness = _CURVES * max(1.0, heat) * (1.0 + off) ** 2
    convexity = min(1.0, heat) * (1.0 - off) ** 2 / _CURVES
    # By what is typical, not by the bound: a clip that is too wide makes bits tell little.
    factor = _fitting(pilot.plan, _ROOM * max(1.0, heat))
    coordinates = Coordinates.of_draws(draws).stretched(factor)
    return PilotFindings(coordinates, smoothness * factor**2, convexity * factor**2, worth)


def effective_draws(draws: Array) -> float:
    """Independent draws that those of some chains are worth: the harmonic mean over entries.

    Errors of a covariance add up over entries, each with one over its effective draws.

    Parameters
    ----------
    draws
        (chain, draw, dim).
    """
    if draws.shape[1] < FEWEST_DRAWS:
        return 0.0
    each = effective_size_of_mean(np.moveaxis(draws, 2, 0))
    return float(1.0 / np.mean(1.0 / each))


def _fitting(plan: Plan, smoothness: float) -> float:
    """Factor of coordinates with which gradients of this smoothness fit the uplink's clip."""
    uplink = plan.uplink
    if not math.isfinite(uplink.clip):
        return 1.0
    spread = math.sqrt(smoothness / plan.num_devices * (plan.dim if uplink.clips_norm else 1))
    return uplink.clip / (CLIPPED_AT * spread)
