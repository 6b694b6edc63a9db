"""Rows of a plan: what limits the gain, step, temperature, what is predicted, privacy, warnings.

Everything that shows a plan (``print``, the command line, pages) draws these rows."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from flmc.base.tables import Listing, Row, format_number, format_percent, warning_rows
from flmc.planning.privacy_cost import NEIGHBOURING

if TYPE_CHECKING:
    from flmc.planning.plans.value import Plan

ADVERSARY = (
    "an honest-but-curious server that sees every received signal and knows all other devices'"
    " symbols"
)
"""Whom the privacy statement is about."""
CONSTRAINTS = {
    "power": "transmit power",
    "langevin": "noise that the sampler needs",
    "privacy": "privacy budget",
}
"""Constraints of the gain, in words."""
_CRITERIA = {
    "tight": "standard differential privacy",
    "tail": "probability of a larger loss at the worst pair",
    "paper": "the paper's bound",
}
"""Privacy criteria, in words."""


def listing(plan: Plan, with_run: bool) -> Listing:
    """Rows of a plan: what limits the gain, step, temperature, prediction, privacy, warnings.

    Parameters
    ----------
    plan
        The plan.
    with_run
        Whether to state the privacy of the whole run, which may take a second to compute.

    Returns
    -------
    Listing
        Facts and warnings under a title.
    """
    radio = "" if math.isinf(plan.uplink.snr_db) else f", {plan.uplink.snr_db:g} dB"
    title = f"{plan.uplink.scheme} uplink, {plan.num_devices} devices, {plan.dim} entries{radio}"
    rows = [*_gain_rows(plan), *_sampling_rows(plan), *_privacy_rows(plan, with_run)]
    return Listing(title, (*rows, *warning_rows(plan.warnings)))


def _gain_rows(plan: Plan) -> list[Row]:
    """Rows of the limits of the gain, and of the gain itself."""
    rows = []
    for name, words in CONSTRAINTS.items():
        decides = " <- decides" if plan.binding == name else ""
        rows.append(
            Row(f"limit by {words}", format_number(getattr(plan.gain_limits, name)) + decides)
        )
    given = " (given)" if plan.binding == "given" else ""
    return [*rows, Row("gain", format_number(plan.typical_gain) + given)]


def _sampling_rows(plan: Plan) -> list[Row]:
    """Rows of step, temperature, prediction, rounds and devices."""
    step = f"{format_number(plan.step_size)} (effective {format_number(plan.effective_step_size)})"
    allowed = getattr(plan.gain_limits, plan.binding, math.inf)
    if plan.binding != "langevin" and math.isclose(
        plan.gain_limits.langevin, allowed, rel_tol=1e-9
    ):
        step += (
            f"; so small because the {CONSTRAINTS[plan.binding]} allows no more gain, and the"
            " noise must be right"
        )
    rows = [Row("step size", step), temperature_row(plan.temperature, sure=not plan.warnings)]
    if plan.prediction is not None:
        p = plan.prediction
        spread = (
            f"{p.variance_ratio_smallest:.4g} to {p.variance_ratio_largest:.4g} over directions"
        )
        rows += [
            Row("predicted variance ratio", f"{p.variance_ratio:.4g} ({spread}; 1 is right)"),
            Row(
                "predicted shift of the mean",
                f"{format_percent(p.relative_mean_error)} of trace(Sigma), squared",
            ),
            Row("predicted clipped entries", format_percent(p.clipped_fraction)),
        ]
    needed = (
        "unknown (no convexity given)"
        if plan.rounds_needed is None
        else f"about {plan.rounds_needed}"
    )
    faster = plan.burn_in_step_factor
    early = "" if faster == 1 else f" (the first {plan.num_fast} with {faster:.3g} times the step)"
    rounds = (
        f"{plan.num_rounds}, of which {plan.num_burn_in} burn-in{early}; needed for burn-in:"
        f" {needed}"
    )
    rows.append(Row("rounds", rounds))
    if not plan.scheduler.everyone:
        few, most = int(plan.num_active.min()), int(plan.num_active.max())
        count = str(few) if few == most else f"{few} to {most}"
        rows.append(Row("devices in a round", f"{count} of {plan.num_devices}"))
    if plan.limits.allocation == "adaptive":
        rows.append(Row("allocation", _allocation_in_words(plan)))
    return rows


def _allocation_in_words(plan: Plan) -> str:
    """Sentence about the gains of an adaptive allocation."""
    low, high = float(plan.gain.min()), float(plan.gain.max())
    if high <= low * (1 + 1e-9):
        return "adaptive, but all rounds have the same gain: other limits leave nothing to allot"
    return (
        f"adaptive: gains from {format_number(low)} to {format_number(high)}, the loudest where"
        " noise matters most"
    )


def _privacy_rows(plan: Plan, with_run: bool) -> list[Row]:
    """Privacy of a round and of the run, with all that a statement needs."""
    exposure, once = plan.exposure, plan.round_cost
    if exposure is None or once is None:
        return [Row("privacy", f"none: {plan.unknown_privacy}")]
    rows = []
    limits = plan.limits
    if limits.epsilon is not None and limits.privacy != "off":
        of_round = limits.scope == "round"
        what = (
            f"one round, delta {limits.delta:g}"
            if of_round
            else f"the run, delta {limits.run_delta:g}"
        )
        rows.append(Row("privacy budget", f"epsilon {limits.epsilon:g} for {what}"))
    if limits.scope == "round" or not with_run:  # the delta of a round says little about a run
        covered = "; nothing beyond what this delta allows anyway" if once.epsilon == 0 else ""
        meaning = f"{limits.criterion}: {_CRITERIA[limits.criterion]}"
        rows.append(Row("privacy, one round", f"{once} ({meaning}){covered}"))
    if with_run and plan.run_cost is not None:
        over = f"over {exposure.num_rounds} rounds of one chain (tight)"
        rows.append(Row("privacy, whole run", f"{plan.run_cost}, {over}"))
        if plan.run_cost.epsilon >= exposure.run.largest_loss * (1 - 1e-9):
            rows.append(
                Row(
                    "", "that is the bound without any noise: a delta this small cannot be resolved"
                )
            )
        if plan.run_cost.epsilon > 20:
            rows.append(Row("", "such an epsilon for the whole run guarantees next to nothing"))
    rows += [Row("neighbouring", NEIGHBOURING[limits.neighbouring]), Row("adversary", ADVERSARY)]
    bound = exposure.round.largest_loss
    if math.isfinite(bound):
        cost = f"a round would cost epsilon {format_number(bound)}, so no SNR makes it cost more"
        rows.append(Row("without noise", cost))
    if plan.data_dependent:
        text = (
            "yes: the step was computed from the devices' data. This is a simulation, not a privacy"
            " statement for a deployment; give public_smoothness and public_convexity, or a step"
        )
        rows.append(Row("data dependent", text))
    return rows


def temperature_row(temperature: float | None, *, sure: bool = True) -> Row:
    """Row of a temperature and its meaning.

    Parameters
    ----------
    temperature
        The temperature; None for a link without slope.
    sure
        Whether nothing else speaks against the plan; only then is a temperature near 1 called
        right.

    Returns
    -------
    Row
        A fact; a warning if the temperature differs from 1 by more than 0.05 or is unknown.
    """
    if temperature is None:
        return Row("temperature", "unknown: the link has no slope", severity="warning")
    if temperature > 1.05:
        meaning = (
            f"too hot: samples spread {temperature:.3g} times as wide in variance as the posterior"
        )
    elif temperature < 0.95:
        meaning = "too cold: samples collapse towards the mode"
    else:
        meaning = (
            "right: samples spread like the posterior"
            if sure
            else "the noise is right, but see the warnings"
        )
        return Row(
            "temperature", f"{temperature:.4g}, {meaning}", severity="good" if sure else "plain"
        )
    return Row("temperature", f"{temperature:.4g}, {meaning}", severity="warning")
