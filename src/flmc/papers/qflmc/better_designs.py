"""Comparison of the paper's schemes with schemes whose gain flmc calibrates for temperature 1, at
equal SNR, effective step size and number of rounds.

Effective step size and rounds are equal, because a slower sampler always looks more private. The
figure is called `beyond`, because it is not in the paper."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from flmc.base.progress import Progress
from flmc.evaluation.metrics import Metrics
from flmc.models.linear import LinearGaussian
from flmc.papers.qflmc.experiment import chains_of
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.runs.execution import run
from flmc.sampling.engine import Engine
from flmc.uplink.links import Linear
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink

SNR_DB = (0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0)
EPSILONS = (0.5, 1.0, 2.0, 5.0, 10.0)
KEPT = 100
"""Number of kept rounds (those after burn-in) of every run."""


@dataclass(frozen=True)
class BeyondRow:
    """Measurements of one transmission scheme at one SNR and one privacy budget, compared with the
    other schemes; a row of a CSV file.

    ``sweep`` names the quantity that varies, ``snr_db`` or ``epsilon``, and ``x`` is its value.
    ``gain`` to ``rounds`` are those of the plan. The columns with ``_se`` are standard errors of
    the ones before them: variance ratio, squared W2 distance of the draws from the posterior, and
    squared error of their mean. ``epsilon_round`` and ``epsilon_run`` are the privacy loss of one
    round and of the whole run."""

    sweep: str
    x: float
    scheme: str
    gain: float
    temperature: float
    effective_step: float
    rounds: int
    variance_ratio: float
    variance_ratio_se: float
    wasserstein2_squared: float
    wasserstein2_squared_se: float
    mean_error_squared: float
    mean_error_squared_se: float
    epsilon_round: float
    epsilon_run: float

    def to_dict(self) -> dict[str, Any]:
        """The row as a dictionary from column names to values, for a table; NaN becomes an empty
        text."""
        return {
            name: "" if isinstance(value, float) and math.isnan(value) else value
            for name, value in asdict(self).items()
        }


def contestants(snr_db: float, epsilon: float, delta: float) -> dict[str, tuple[Uplink, Limits]]:
    """The schemes to compare, by name, each an uplink with the limits of its gain. Two are planned
    as in the paper, three with the gain that flmc calibrates for temperature 1; ``epsilon`` and
    ``delta`` are the privacy budget of one round."""
    paper = Limits(epsilon=epsilon, delta=delta, privacy="paper", langevin="paper")
    ours = Limits(epsilon=epsilon, delta=delta, privacy="tail")
    return {
        "paper's digital": (Digital(snr_db=snr_db), paper),
        "paper's analog": (Analog(snr_db=snr_db), paper),
        "calibrated digital, sigmoid": (Digital(snr_db=snr_db), ours),
        "calibrated digital, linear": (Digital(link=Linear(1.0), snr_db=snr_db), ours),
        "calibrated analog": (Analog(snr_db=snr_db), ours),
    }


def compare_beyond(
    model: LinearGaussian,
    seed: int,
    chains: int,
    *,
    engine: str | Engine = "auto",
    every: int = 1,
    progress: Progress | None = None,
) -> list[BeyondRow]:
    """Measurements of all compared schemes at several SNRs with epsilon 5 per round, and at several
    epsilon with 25 dB; delta is 0.01 per round. Only every ``every``-th SNR and epsilon is
    measured.

    At each point all schemes have the same effective step size and number of rounds: those of the
    calibrated digital scheme with the sigmoid link."""
    cases = [("snr_db", snr_db, snr_db, 5.0) for snr_db in SNR_DB[every - 1 :: every]]
    cases += [("epsilon", eps, 25.0, eps) for eps in EPSILONS[every - 1 :: every]]
    rows, measured = [], dict[str, Metrics]()
    for index, (sweep, x, snr_db, epsilon) in enumerate(cases):
        reference = plan(
            model,
            Digital(snr_db=snr_db),
            Limits(epsilon=epsilon, privacy="tail"),
            draw_at="positions",
            forecast=False,
        )
        effective = reference.effective_step_size or math.nan
        # The burn-in is 10 % longer than the planner requires, and has at least the 200 rounds of
        # the paper.
        burn_in = max(200, int(1.1 * (reference.rounds_needed or 200)))
        for name, (uplink, limits) in contestants(snr_db, epsilon, 0.01).items():
            step = effective / uplink.slope
            planned = plan(
                model,
                uplink,
                limits,
                step_size=step,
                num_rounds=burn_in + KEPT,
                num_burn_in=burn_in,
                draw_at="positions",
                forecast=False,
            )
            # Plans that lead to the same chains are run only once. There are such plans: the sweeps
            # over SNR and epsilon share a point, and where the privacy budget limits the gain, a
            # larger SNR changes nothing.
            same = chains_of(planned)
            if same not in measured:
                result = run(planned, model, seed, chains, keep_draws=False, engine=engine)
                if result.metrics is None:
                    raise AssertionError("the posterior of linear regression is known")
                measured[same] = result.metrics
            rows.append(_row((sweep, x, name), planned, measured[same]))
        if progress is not None:
            progress((index + 1) / len(cases))
    return rows


def _row(place: tuple[str, float, str], planned: Plan, metrics: Metrics) -> BeyondRow:
    """The row of one scheme: ``place`` holds the first three columns (varied quantity, its value,
    scheme), the plan gives gain, step size and privacy loss, and ``metrics`` the errors."""
    if planned.round_cost is None or planned.run_cost is None:
        raise AssertionError("digital and analog have costs")
    return BeyondRow(
        *place,
        planned.typical_gain,
        planned.temperature or math.nan,
        planned.effective_step_size or math.nan,
        planned.num_rounds,
        *metrics.variance_ratio,
        *metrics.wasserstein2_squared,
        *metrics.mean_error_squared,
        planned.round_cost.epsilon,
        planned.run_cost.epsilon,
    )


def power_gained_db(epsilon: float = 5.0, delta: float = 0.01) -> float:
    """Additional transmit power, in dB, that the budget (``epsilon``, ``delta``) of one round
    allows a device of the digital scheme if the privacy loss is computed exactly for the worst pair
    of data sets and not by the paper's looser bound."""
    unit = Digital().privacy_event([(1.0, 5)])
    exact, printed = (
        unit.allowed_gain(epsilon, delta, criterion, 20) for criterion in ("tail", "paper")
    )
    return 20 * math.log10(exact / printed)
