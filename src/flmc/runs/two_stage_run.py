"""Execution of a two-stage plan: a pilot run, new coordinates computed from its draws, and the main
run in these coordinates."""

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
from flmc.evaluation.shown_answer import AnswerMode
from flmc.models.affine import Coordinates
from flmc.models.model import Model
from flmc.models.whitening import in_coordinates
from flmc.planning.choice import CLIPPED_AT
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.planning.two_stage_plan import TwoStagePlan
from flmc.runs.execution import run
from flmc.runs.records import Record
from flmc.runs.results import Result
from flmc.sampling.engine import Engine
from flmc.sampling.simulation import never

_CURVES = 1.5
"""Assumed bound of the ratio, in either direction, between the curvature of a posterior and that of
the normal law with the same covariance, within the width of the posterior."""
_CLIP_MARGIN = 2.0
"""Factor of safety: local gradients are clipped only where their variance exceeds this factor times
the variance that they have if all devices have alike data. With 1, the means of the example with
eight hospitals are off by 0.12 posterior standard deviations, with 2 by 0.04."""
_LEAST_DRAWS = 2.0
"""Smallest number of effective draws of a pilot for each entry of theta. With 2, the smallest
eigenvalue of the draws' covariance is too small by a factor of at most (1 - sqrt(1/2))^-2 = 12."""


class PilotFindings(NamedTuple):
    """Everything that the main run takes from the pilot run; it is computed from the pilot's draws
    alone.

    Attributes
    ----------
    coordinates
        New coordinates of theta: origin at the mean of the draws, axes from a root of their
        covariance, scaled so that gradients fit the clip.
    smoothness, convexity
        Largest and smallest curvature that the posterior may have in these coordinates.
    effective_draws
        Number of independent draws that the pilot's draws are worth, harmonic mean over entries.
    """

    coordinates: Coordinates
    smoothness: float
    convexity: float
    effective_draws: float


@dataclass(frozen=True)
class TwoStageResult:
    """Outcome of a two-stage run: the results of the pilot and of the main run, and the coordinates
    and curvature that the pilot found."""

    plan: TwoStagePlan
    """The plan of both stages, made before the first round."""
    pilot: Result
    """Result of the first stage, a pilot run of one chain."""
    main: Result
    """Result of the second stage, the run in the coordinates that the pilot found."""
    pilot_findings: PilotFindings
    """Coordinates and curvature that the second stage took from the pilot's draws."""

    @property
    def cost(self) -> Cost | None:
        """Privacy of the pilot and one chain of the second stage together, as planned; None where
        it is unknown."""
        return self.plan.cost

    def listing(self, answer: AnswerMode = "auto") -> Listing:
        """The result of the second stage as rows for printing, with the pilot's size and the
        privacy of both stages.

        Parameters
        ----------
        answer
            As for :meth:`flmc.Result.listing`.
        """
        rounds, worth = self.pilot.plan.num_rounds, self.pilot_findings.effective_draws
        rows = [Row("pilot", f"{rounds} rounds, worth {worth:.0f} independent draws")]
        if self.cost is not None:
            text = f"epsilon {format_up(self.cost.epsilon)} at delta {self.cost.delta:g}, of one"
            rows.append(Row("privacy of both", f"{text} chain and the pilot together"))
        shown = self.main.listing(answer)
        # Rows about privacy are left out: they state the cost of the second stage alone, without
        # that of the pilot.
        left = [
            row
            for row in shown.rows
            if not row.label.startswith("privacy") and "two stages" not in row.value
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
    engine: str | Engine = "auto",
    progress: Progress | None = None,
    out: str | Path | None = None,
    stop: Callable[[], bool] = never,
) -> TwoStageResult:
    """Run the pilot with one chain, compute coordinates from its draws in which the posterior is
    about round, and run the second stage in these.

    Parameters
    ----------
    plan, model
        A plan that :func:`flmc.plan_two_stages` made for this model.
    seed, chains
        Seed of all randomness, and number of chains of the second stage.
    keep_draws, thin
        As for :func:`flmc.run`, for the second stage.
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
        If the pilot is too short to find coordinates, or a stage fails as in :func:`flmc.run`.
    InvalidSetting, Interrupted
        As for :func:`flmc.run`.

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
    findings = read_pilot(pilot)
    white = _second_stage(model, findings)
    second = plan.main(white, findings.smoothness, findings.convexity)
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
    return TwoStageResult(plan, pilot, main, findings)


def read_pilot(pilot: Result) -> PilotFindings:
    """Coordinates for the second stage and the posterior's curvature in these coordinates, computed
    from the draws of the run ``pilot`` on one data set. ``RunFailed`` if the draws are worth fewer
    than two independent draws for each entry of theta."""
    return pilot_findings(pilot.draws, pilot.plan)


def in_pilot_coordinates(model: Model, pilot: Record) -> Model:
    """The ``model`` in the coordinates of the second stage, which are computed from the draws in
    the record ``pilot``."""
    findings = pilot_findings(pilot.draws, Plan.from_document(pilot.asked["plan"]))
    return _second_stage(model, findings)


def _second_stage(model: Model, findings: PilotFindings) -> Model:
    """The ``model`` in the coordinates of the second stage. These count as public, although they
    come from data, because the plan has paid for the release of the pilot's draws."""
    coordinates, smoothness, convexity, _ = findings
    return in_coordinates(model, coordinates, smoothness, convexity, public=True)


def pilot_findings(draws: Array, plan: Plan) -> PilotFindings:
    r"""Coordinates for the second stage and the posterior's curvature in these coordinates,
    computed from the ``draws`` (chain, draw, dim) of a pilot run with the plan ``plan``.
    ``RunFailed`` if the draws are worth fewer than two independent draws for each entry of theta.

    Let the posterior have the covariance :math:`\Sigma`, let draws be normal with the covariance
    :math:`T\Sigma` at the temperature T, and let their sample covariance be :math:`S = RR^\top`. In
    coordinates of R the posterior's curvature is :math:`R^\top\Sigma^{-1}R`, with the eigenvalues
    of :math:`\Sigma^{-1}S`. For n independent draws in m dimensions these lie between :math:`T(1 -
    \sqrt{m/n})^2` and :math:`T(1 + \sqrt{m/n})^2` (Marchenko and Pastur)."""
    worth = effective_draws(draws)
    needed = _LEAST_DRAWS * draws.shape[-1]
    if not worth >= needed:
        raise RunFailed(
            f"the pilot's draws are worth {worth:.0f} independent ones, and"
            f" coordinates of {draws.shape[-1]} entries need {needed:.0f}: use more pilot_rounds,"
            " a smaller clip, or a larger budget if that is what limits the step"
        )
    off = math.sqrt(draws.shape[-1] / worth)
    heat = plan.temperature or 1.0
    smoothness = _CURVES * max(1.0, heat) * (1.0 + off) ** 2
    convexity = min(1.0, heat) * (1.0 - off) ** 2 / _CURVES
    # The scale of the coordinates follows from the typical curvature. Its upper bound would leave
    # gradients far below the clip, where bits carry little information.
    factor = _stretch_to_clip(plan, _CLIP_MARGIN * max(1.0, heat))
    coordinates = Coordinates.of_draws(draws).stretched(factor)
    return PilotFindings(coordinates, smoothness * factor**2, convexity * factor**2, worth)


def effective_draws(draws: Array) -> float:
    """Number of independent draws that ``draws`` (chain, draw, dim) are worth for estimating a
    covariance; 0 with fewer than 4 draws a chain. It is the harmonic mean over entries: the error
    of an entry is proportional to one over its effective draws, and errors add up."""
    if draws.shape[1] < FEWEST_DRAWS:
        return 0.0
    each = effective_size_of_mean(np.moveaxis(draws, 2, 0))
    return float(1.0 / np.mean(1.0 / each))


def _stretch_to_clip(plan: Plan, smoothness: float) -> float:
    """Factor by which coordinates are divided, and gradients in them multiplied, so that the local
    gradients of a posterior with largest curvature ``smoothness`` just fit the uplink's clip; 1 if
    the uplink does not clip."""
    uplink = plan.uplink
    if not math.isfinite(uplink.clip):
        return 1.0
    spread = math.sqrt(smoothness / plan.num_devices * (plan.dim if uplink.clips_norm else 1))
    return uplink.clip / (CLIPPED_AT * spread)
