"""Rows of a plan: limits of the gain, step, temperature, prediction, privacy, warnings.

Everything that shows a plan (``print``, the command line, pages) draws these rows."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from flmc.base.findings import gravest
from flmc.base.tables import Listing, Row, format_number, format_percent, format_up
from flmc.planning.plans.expectation import activity_in_words, calibrated_cap
from flmc.planning.plans.verdict import verdict_of
from flmc.planning.prediction import Prediction
from flmc.planning.privacy_cost import Exposure, risk_in_words
from flmc.planning.server_update import ServerUpdate, is_langevin
from flmc.privacy.neighbours import relation_argument
from flmc.privacy.scheduled_event import ScheduledEvent
from flmc.uplink.link import Link

if TYPE_CHECKING:
    from flmc.planning.plans.plan_value import Plan


ADVERSARY = (
    "an honest-but-curious server that sees every received signal and knows all other devices'"
    " symbols"
)
"""Description of the adversary against whom privacy statements hold."""
_CRITERIA = {
    "tight": "an upper bound, standard differential privacy",
    "tail": "probability of a larger loss at the worst pair",
    "paper": "the paper's bound",
}
"""Descriptions of the privacy criteria, by name."""
CONSTRAINTS = {
    "power": "transmit power",
    "langevin": "noise that the sampler needs",
    "privacy": "privacy budget",
}
"""Descriptions of the constraints of the gain, by name."""

_LOUD = 1.2
"""Ratio of the gain's cap to the typical gain above which a printed plan says that every round is
charged for the cap."""
_ROUNDED = 1e-3
"""Relative difference up to which a printed plan takes the gain and the limit that decides it as
equal."""
_NO_CONVEXITY = "no convexity given"
"""Reason that is printed where the needed burn-in or the effective draws are unknown although the
effective step is known."""
USELESS_EPSILON = 20.0
"""Epsilon of a whole run above which a printed plan says that the privacy statement guarantees next
to nothing."""


def privacy_rows(plan: Plan, with_run: bool) -> list[Row]:
    """Rows that state the privacy of a round and of the run, with adversary, neighbouring data and
    criterion. Without ``with_run`` the run's cost, which takes longer, is left out."""
    exposure, once = plan.exposure, plan.round_cost
    if exposure is None or once is None:
        return [Row("privacy statement", f"none: {plan.unknown_privacy}")]
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
    # The cost of a round is stated where the budget is for a round, or where the cost of the run is
    # left out.
    if limits.scope == "round" or not with_run:
        meaning = f"{limits.criterion}: {_CRITERIA[limits.criterion]}"
        whose = _as_stated(plan, meaning)
        rows.append(Row("privacy, one round", f"{once} ({whose}){_words_for_zero_epsilon(plan)}"))
    if with_run and plan.run_cost is not None:
        over = f"{_charged(plan, exposure)} ({_as_stated(plan, 'tight: an upper bound')})"
        rows.append(Row("privacy, whole run", f"{plan.run_cost}, {over}"))
        if plan.run_cost.epsilon >= exposure.run.largest_loss * (1 - 1e-9):
            rows.append(
                Row(
                    "", "that is the bound without any noise: a delta this small cannot be resolved"
                )
            )
        if plan.run_cost.epsilon > USELESS_EPSILON:
            rows.append(Row("", "such an epsilon for the whole run guarantees next to nothing"))
        words = risk_in_words(plan.run_risk, limits.told_apart, limits.run_delta)
        if plan.uplink.privacy_stated_by is not None:
            words += f" ({_as_stated(plan, '')})"
        rows += [Row("risk, whole run", words), *_price_row(plan)]
    loose = plan.uplink.looseness(limits.neighbouring, **relation_argument(limits.relation))
    if loose is not None and plan.uplink.privacy_stated_by is None:
        rows.append(Row("upper bound", f"epsilon may be far above the least: {loose}"))
    if plan.uplink.batched and limits.neighbouring == "example":
        text = (
            "an example is charged as if it were in every batch, with the weight that it has there"
        )
        rows.append(Row("upper bound", text))
    rows += [Row("neighbouring", limits.neighbours), Row("adversary", ADVERSARY)]
    bound = exposure.round.largest_loss
    if math.isfinite(bound):
        cost = f"a round would cost epsilon {format_up(bound)}, so no SNR makes it cost more"
        rows.append(Row("without noise", cost))
    if plan.data_dependent:
        text = (
            "yes: step, features or coordinates were computed from the devices' data. This is a"
            " simulation, not a privacy statement for a deployment; give public_smoothness and"
            " public_convexity, or a step"
        )
        rows.append(Row("data dependent", text))
    return rows


def _as_stated(plan: Plan, proven: str) -> str:
    """Text that says on whose word a privacy statement rests: ``proven`` where flmc states it, else
    a text that names the user's class that states it."""
    by = plan.uplink.privacy_stated_by
    return proven if by is None else f"as stated by {by}, which flmc has not proven"


def _charged(plan: Plan, exposure: Exposure) -> str:
    """Text that says what the cost of a run is computed for: how many rounds, which gains, and
    which schedule of devices."""
    over = f"over {exposure.num_rounds} rounds of one chain"
    run = exposure.run
    if isinstance(run, ScheduledEvent):
        often = run.rounds * run.chance
        law = ", if path gains have the law of the plan" if plan.scheduler.by_channel else ""
        over += (
            f", averaged over the schedule: a device transmits in {often:.4g} of them on average."
            f" That holds if the schedule is drawn once, and not by the server{law}"
        )
    if plan.known_schedule is not None:
        return f"{over}, with the devices and gains that the given path gains lead to"
    loudest = float(np.max(plan.gain))
    if plan.scheduler.by_channel and math.isfinite(loudest) and loudest > _LOUD * plan.typical_gain:
        # Only rounds with few devices and large path gains have a gain near a cap that is so far
        # above the typical gain.
        over += (
            f"; every round is charged at the cap {format_number(loudest)}, which only rounds with"
            f" few devices reach, where a usual round has {format_number(plan.typical_gain)}"
        )
    return over


def release_in_words(plan: Plan) -> str:
    """Text about the release of one chain of a plan: its kept rounds, and the independent draws
    that they are worth."""
    kept = plan.num_rounds - plan.num_burn_in
    given = f"one chain, {kept} kept round{'s' * (kept != 1)}"
    if plan.effective_draws is None:
        return f"{given}; effective draws: unknown ({plan.unknown_step or _NO_CONVEXITY})"
    if plan.effective_draws == 0.0:
        return f"{given}, worth no draw of the posterior: the chain does not arrive there"
    # The mean of n independent draws has 1/n of the variance that the chain samples, which is the
    # temperature times the posterior's.
    share = format_percent((plan.temperature or 1.0) / plan.effective_draws)
    return (
        f"{given}, worth about {plan.effective_draws:.3g} effective draws in the worst direction:"
        f" the variance of its mean is {share} of the posterior's"
    )


def _price_row(plan: Plan) -> list[Row]:
    """List with one row, which states the privacy cost per effective draw, and the cost of a
    further chain; empty where the cost per draw is unknown."""
    release = plan.release()
    if release.price is None:
        return []
    price = (
        f"mu^2 {format_up(release.price)} per effective draw, burn-in included; every further chain"
        f" that is given out adds mu^2 {format_up(release.mu_squared or 0.0)}"
    )
    return [Row("price", price)]


def _words_for_zero_epsilon(plan: Plan) -> str:
    """Text to print after the cost of a round whose epsilon is 0 at the round's delta: the delta at
    epsilon 0, and the epsilon at the run's delta. Empty for other rounds."""
    once, exposure = plan.round_cost, plan.exposure
    if once is None or exposure is None or once.epsilon > 0:
        return ""
    finer, _ = exposure.round.tight_epsilon(plan.limits.run_delta)
    return (
        f"; epsilon 0 has delta {format_up(once.delta_at_zero or 0.0)} already, and delta"
        f" {plan.limits.run_delta:g} has epsilon {format_up(finer)}"
    )


def listing(plan: Plan, with_run: bool) -> Listing:
    """All rows of a plan, with title and headline. Without ``with_run`` the run's privacy cost,
    which takes longer, is left out."""
    radio = "" if math.isinf(plan.uplink.snr_db) else f", {plan.uplink.snr_db:g} dB"
    title = f"{plan.uplink.scheme} uplink, {plan.num_devices} devices, {plan.dim} entries{radio}"
    verdict = verdict_of(plan, with_run=with_run) if plan.judged else None
    rows = [] if verdict is None else [each.row for each in verdict.lights]
    if plan.num_local:
        each = f"{plan.num_local} {'entry' if plan.num_local == 1 else 'entries'} of each device"
        rows.append(Row("local parameters", f"{each}, which never leave it"))
    rows += [*_radio_rows(plan), *_gain_rows(plan), *_sampling_rows(plan)]
    rows += [*privacy_rows(plan, with_run), *(each.row for each in plan.findings)]
    return Listing(title, tuple(rows), None if verdict is None else verdict.headline)


def _radio_rows(plan: Plan) -> list[Row]:
    """Rows of a printed plan about its link, SNR at the device and at the server, channel uses,
    long-term power and channel estimates; empty for the ideal uplink."""
    uplink = plan.uplink
    if uplink.noise_is_exact:
        return []
    link = getattr(uplink, "link", None)
    means = "" if link is None else f"{_link_in_words(link)}, "
    radio, airtime = plan.radio, plan.airtime
    by_norm = " (of the norm)" if uplink.clips_norm else ""
    rows = [
        Row("link", f"{means}clip {uplink.clip:g}{by_norm}"),
        Row(
            "radio",
            f"SNR {radio.snr_db:.4g} dB at the transmitter, path gain {radio.path_gain:.3g}"
            f" ({radio.path_gain_db:.3g} dB{radio.meaning}): {radio.received_snr_db:.3g} dB at the"
            " receiver",
        ),
    ]
    if airtime is not None:
        most = "at most " if airtime.largest else ""
        uses = f"{airtime.channel_uses} channel uses; a device transmits {most}{airtime.energy:.3g}"
        rows.append(Row("airtime", f"{uses} times the noise's energy in one of them"))
    if uplink.average_snr_db is not None:
        most = f"at most {uplink.average_snr_db:g} dB on average over rounds"
        rows.append(Row("long-term power", f"{most}, expected over the channel"))
    if plan.estimates is not None:
        rows.append(Row("channel estimates", str(plan.estimates)))
    return rows


def _link_in_words(link: Link) -> str:
    """Name of a link with its parameters; the clip is left out, because a plan's row states it
    elsewhere."""
    name = type(link).__name__.lower()
    if not dataclasses.is_dataclass(link):
        return name
    numbers = (
        f"{field.name.replace('_', ' ')} {getattr(link, field.name):.4g}"
        for field in dataclasses.fields(link)
        if field.name != "clip" and isinstance(getattr(link, field.name), int | float)
    )
    return ", ".join([name, *numbers])


def _gain_rows(plan: Plan) -> list[Row]:
    """Rows of the largest gain that each constraint allows, and of the gain that the plan uses."""
    rows = []
    for name, words in CONSTRAINTS.items():
        limit = getattr(plan.gain_limits, name)
        rows.append(Row(f"limit by {words}", format_number(limit) + _margin(plan, name)))
    given = " (given)" if plan.binding == "given" else ""
    gain = format_number(plan.typical_gain) + given + (_over_rounds(plan) or _below_limit(plan))
    return [*rows, Row("gain", gain)]


def _below_limit(plan: Plan) -> str:
    """Text to print after the gain where gains differ over rounds, so that the typical gain is
    below the limit that decides it: it states the range of gains. Empty where gain and limit are
    equal, or no limit decides."""
    if plan.binding not in CONSTRAINTS:
        return ""
    if plan.typical_gain > (1 - _ROUNDED) * getattr(plan.gain_limits, plan.binding):
        return ""
    low, high = float(plan.planned_gain.min()), float(plan.planned_gain.max())
    return (
        f", the constant gain with as much noise; {format_number(low)} to {format_number(high)}"
        " over rounds: in deep fades power allows less than the limit that decides"
    )


def _over_rounds(plan: Plan) -> str:
    """Text to print after the gain where path gains decide who transmits: the range of gains over
    the drawn rounds, and the share of rounds in which the power limit decides the gain. Empty for
    other plans."""
    drawn = plan.expected.rounds
    if drawn is None or plan.binding == "given":
        return ""
    gain = plan.expected.gain.max(axis=1)
    cap = calibrated_cap(plan, plan.gain[:1], drawn.num_active)[:, 0]
    by_power = float(np.mean(gain < cap * (1 - 1e-9)))
    return (
        f"; {format_number(gain.min())} to {format_number(gain.max())} over rounds: transmit power"
        f" decides in {format_percent(by_power)} of them, in the others the noise that the sampler"
        " needs from so many devices, or privacy"
    )


def _margin(plan: Plan, name: str) -> str:
    """Text to print after the limit of the gain with the name ``name``: that it decides the gain,
    that the step was chosen so that gain and limit are equal, or how far the limit is from the
    gain, in decibels."""
    if plan.binding == name:
        return " <- decides"
    margin = plan.margins_db[name]
    if not math.isfinite(margin):
        return ""
    if name == "langevin" and abs(margin) < 1e-6:
        return " (the step was chosen to meet it)"
    return f" ({abs(margin):.2g} dB {'above' if margin >= 0 else 'below'} the gain)"


def _sampling_rows(plan: Plan) -> list[Row]:
    """Rows about the sampler: step, temperature, prediction of what it samples, rounds, and devices
    that transmit."""
    step = f"{format_number(plan.step_size)} (effective {format_number(plan.effective_step_size)})"
    allowed = getattr(plan.gain_limits, plan.binding, math.inf)
    close = math.isclose(plan.gain_limits.langevin, allowed, rel_tol=1e-9)
    # A given gain is not decided by a constraint, so the step is not explained by one.
    if plan.binding in CONSTRAINTS and plan.binding != "langevin" and close:
        step += (
            f"; so small because the {CONSTRAINTS[plan.binding]} allows no more gain, and the"
            " noise must be right"
        )
    sampled = [each for each in plan.findings if each.light == "sampling"]
    why = plan.unknown_step
    heat, uneven = Row("temperature", f"unknown: {why}", severity="warning"), None
    if plan.temperature is not None:
        heat = temperature_row(plan.temperature, sure=not gravest(sampled))
        # Drawing runs takes time, so it is left out for a plan that was made without a forecast.
        runs = plan.over_runs if plan.judged and plan.aim == "chain" else None
        uneven = runs if runs is not None and runs.uneven else None
        if uneven is not None:
            heat = Row(
                "temperature",
                f"{plan.temperature:.4g} in the drawn rounds; of single runs: {uneven}",
                severity="warning",
            )
    if plan.aim == "answer" and plan.temperature is not None:
        heat = Row("temperature", f"{plan.temperature:.4g}, which the answer takes out")
    rows = [Row("step size", step), heat]
    if plan.uplink.batched:
        share = format_percent(plan.uplink.batch_share)
        text = f"{share} of a device's examples in a round; the temperature leaves out their noise"
        rows.append(Row("batches", text))
    late = any(each.code == "burn-in" for each in plan.findings)
    left = None if plan.prediction is None else plan.prediction.left_variance
    # ``left`` is the excess of the variance over that of chains at rest. Above 1 it is not printed:
    # such chains are still on their way, and can have any variance.
    hot = format_percent(left) if late and left is not None and left <= 1.0 else ""
    if plan.prediction is not None:
        p = plan.prediction
        spread = (
            f"{p.variance_ratio_smallest:.4g} to {p.variance_ratio_largest:.4g} over directions"
        )
        rest = "" if not hot else f", of chains at rest; about {hot} larger in these kept rounds"
        if plan.never_arrives:
            rest = ", of chains at rest, which these do not come to"
        if uneven is not None and plan.temperature:
            rest += f"; of single runs: {uneven.scaled(p.variance_ratio / plan.temperature)}"
        rows += [
            Row("predicted variance ratio", f"{p.variance_ratio:.4g} ({spread}; 1 is right){rest}"),
            Row("predicted shift of the mean", _shift_in_words(p)),
            Row("predicted clipped entries", format_percent(p.clipped_fraction)),
        ]
    # The burn-in that the prediction found, by following chains from likely starts, is preferred to
    # that of the rule for any start, which uses the convexity only.
    followed = None if plan.prediction is None else plan.prediction.rounds_to_arrive
    by_rule = plan.rounds_needed
    needed = by_rule if followed is None else followed
    why = plan.unknown_step or _NO_CONVEXITY
    needed_in_words = f"unknown ({why})" if needed is None else f"about {needed}"
    if followed is not None and by_rule is not None:
        needed_in_words += f" from likely starts ({by_rule} by the rule for any start)"
    if followed is not None and late and followed <= plan.num_burn_in:
        needed_in_words = f"more than {plan.num_burn_in}; without noise {needed_in_words}"
    faster = plan.burn_in_step_factor
    early = "" if faster == 1 else f" (the first {plan.num_fast} with {faster:.3g} times the step)"
    rounds = (
        f"{plan.num_rounds}, of which {plan.num_burn_in} burn-in{early}; needed for burn-in:"
        f" {needed_in_words}"
    )
    rows += [Row("rounds", rounds), Row("release", release_in_words(plan)), *_answer_rows(plan)]
    if not plan.midpoints:
        rows.append(Row("draws", "at the positions of the chain after its kept rounds"))
    if not is_langevin(plan.update):
        rows.append(Row("server's update", _update_in_words(plan.update)))
    if not plan.scheduler.everyone:
        rows.append(Row("devices in a round", activity_in_words(plan)))
    if plan.limits.allocation == "adaptive":
        rows.append(Row("allocation", _allocation_in_words(plan)))
    return rows


def _update_in_words(update: ServerUpdate) -> str:
    """Text about a server's update that is not Langevin's: its class, and the step factor and own
    temperature that it declares."""
    if update.step_factor is None:
        return f"{type(update).__name__}; what it samples is not known"
    own = update.own_temperature
    heat = f", and its own noise has temperature {own:.3g}" if own else ""
    return (
        f"{type(update).__name__}, which declares {update.step_factor:.3g} times the effective"
        f" step{heat}"
    )


def _answer_rows(plan: Plan) -> list[Row]:
    """List with the row of the predicted answer: its width over the exact posterior's, the parts of
    its variance, and the rounds and channel uses that it takes; empty where the plan was not
    judged."""
    if not plan.judged:
        return []
    answer = plan.answer
    if answer is None:
        return [Row("answer", "width of its intervals: not known")]
    # Where the response of the rounds to the curvature of single directions is not known, the width
    # was computed with the smallest curvature in all directions: it is an upper bound.
    most = "at most " if answer.response is None else ""
    uses = "" if plan.airtime is None else f", {plan.airtime.channel_uses} channel uses"
    text = (
        f"intervals {most}{answer.mean_width:.3g} times as wide as the exact posterior's"
        f" ({answer.width:.3g} in the worst direction); {format_percent(answer.noise)} of the"
        f" variance is channel noise, {format_percent(answer.curvature)} unknown curvature;"
        f" {answer.num_rounds} of {plan.num_rounds} rounds count{uses}"
    )
    return [Row("answer", text)]


def _shift_in_words(prediction: Prediction) -> str:
    """Text about the predicted distance of the samples' mean from the posterior mean, in the worst
    direction and over all entries together."""
    share = f"{format_percent(prediction.relative_mean_error)} of trace(Sigma), squared"
    if prediction.mean_shift is None:
        return share
    shift = "below 0.01" if prediction.mean_shift < 0.01 else f"{prediction.mean_shift:.2g}"
    return f"{shift} posterior sd in the worst direction ({share})"


def _allocation_in_words(plan: Plan) -> str:
    """Text about the range of gains in a plan that spends its budget unevenly over rounds."""
    low, high = float(plan.gain.min()), float(plan.gain.max())
    if high <= low * (1 + 1e-9):
        return "adaptive, but all rounds have the same gain: other limits leave nothing to allot"
    return (
        f"adaptive: gains from {format_number(low)} to {format_number(high)}, the loudest where"
        " noise matters most"
    )


def temperature_row(temperature: float, *, sure: bool = True) -> Row:
    """Row that states a temperature and what it means. A temperature within 0.05 of 1 is called
    right only if ``sure``, that is if no finding speaks against the sampling."""
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
