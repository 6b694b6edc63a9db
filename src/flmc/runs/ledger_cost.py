"""Privacy cost of a recorded run, from its ledger: of the whole planned run, and beside it epsilon
against rounds, for the device that spends most.

A run that somebody stops after looking at its output has a number of rounds that depends on the
data. The cost of the rounds so far is then no bound; the cost of all planned rounds is one,
whenever and for whatever reason the run stops (docs/privacy.md, section 6)."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.base import checks
from flmc.base.documents import ANSWER_VERSION, to_document
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Row, format_up
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.plans.release import data_dependence_row
from flmc.privacy.event import Event
from flmc.privacy.neighbours import relation_argument
from flmc.privacy.trade_off import TradeOff
from flmc.runs.ledger import planned_entries
from flmc.runs.records import Record
from flmc.uplink.csi import silent_exceedance
from flmc.uplink.uplink import Uplink

_POINTS = 12
"""Largest number of points of a curve of epsilon against rounds."""
IF_FIXED = "valid if the round to stop at was fixed beforehand"
"""Condition under which the cost of the first rounds of a run is a bound, in words."""


@dataclass(frozen=True)
class SpentCurve:
    """Epsilon of a whole planned run, a bound whenever the run stops, and epsilon of its first
    rounds (``points``), both for the device that spends most; ``devices`` has the epsilon of every
    device."""

    points: list[tuple[int, float]]
    """Pairs of a round, counted from 1, and the epsilon of all rounds up to and including that
    round. The epsilon is a bound for a run that stops there only if the stop was fixed
    beforehand."""
    transmitted: list[int]
    """Number of rounds, up to and including round ``at``, in which each device transmitted, in the
    order of the devices."""
    devices: list[float]
    """Epsilon that the whole planned run costs each device, in the order of the devices."""
    run_delta: float
    """Delta at which the epsilons of this curve are stated."""
    neighbouring: str
    """The data that epsilon protects, in words: what is replaced between two neighbouring data
    sets."""
    budget: float | None = None
    """Epsilon that the whole run may spend; None: the plan has no budget for the whole run."""
    planned: int | None = None
    """Number of rounds that the epsilon of the whole run covers; None: only the rounds that the
    ledger lists."""
    unfinished: int | None = None
    """Number of planned rounds, for a run that is not finished; None for a finished run."""
    num_chains: int = 1
    """Number of chains of the run. Each chain simulates a deployment of its own, and spends the
    stated epsilon."""
    epsilon_all_chains: float | None = None
    """Epsilon of all chains together, if every one of them is released; None: not computed."""
    event: Event | None = None
    """What every device that transmits does so in the whole planned run; None if the noise hides
    nothing, or if devices transmit in different rounds."""
    unstated: float = 0.0
    """Probability of an error of the channel estimate that ``event`` leaves out; a part of
    ``run_delta``."""
    told_apart: str = ""
    """What an attacker decides who tells neighbouring data apart, in words."""
    data_dependent: bool | None = None
    """Whether the plan was computed from the devices' private data, so that epsilon holds in a
    simulation only; None if that is not known."""

    @property
    def at(self) -> int:
        """Number, from 1, of the last round that ``epsilon_so_far`` includes."""
        return self.points[-1][0]

    @property
    def epsilon(self) -> float:
        """Epsilon of the whole planned run, for the device that spends most: a bound whenever and
        for whatever reason the run stops."""
        return max(self.devices)

    @property
    def epsilon_so_far(self) -> float:
        """Epsilon of the rounds up to and including ``at``: a bound only if the round to stop at
        was fixed beforehand."""
        return self.points[-1][1]

    @cached_property
    def risk(self) -> TradeOff | None:
        """What an attacker achieves at most after the whole planned run, against any device,
        whenever the run stops; None where no finite epsilon is known, or devices transmit in
        different rounds."""
        if self.event is None:
            return None
        return TradeOff.of(self.event, self.run_delta, self.unstated)

    @property
    def partial(self) -> bool:
        """Whether the curve ends (at round ``at``) before the last planned round."""
        return self.planned is not None and self.at < self.planned

    def to_document(self) -> dict[str, Any]:
        """The curve as plain values, for JSON; an epsilon that is not bounded is null."""
        return {
            "schema_version": ANSWER_VERSION,
            "at": self.at,
            "epsilon": to_document(self.epsilon),
            "epsilon_so_far": to_document(self.epsilon_so_far),
            "run_delta": self.run_delta,
            "risk": None if self.risk is None else self.risk.to_document(self.run_delta),
            "curve": to_document(self.points),
            "transmitted": self.transmitted,
            "devices": to_document(self.devices),
            "budget": self.budget,
            "planned": self.at if self.planned is None else self.planned,
            "unfinished": self.unfinished,
            "num_chains": self.num_chains,
            "chains_covered": 1,
            "epsilon_all_chains": to_document(self.epsilon_all_chains),
            "data_dependent": self.data_dependent,
        }

    def __str__(self) -> str:
        return str(self.grid())

    def grid(self) -> Grid:
        """A table of epsilon against rounds, for the device that spends most, with notes on what
        all devices spent and on what epsilon covers."""
        rounds = self.at if self.planned is None else self.planned
        head = (
            f"epsilon {format_up(self.epsilon)} at delta {self.run_delta:g} for the device that"
            f" spends most, all {rounds} planned rounds together; neighbouring: {self.neighbouring}"
        )
        rows = tuple((str(r), format_up(epsilon)) for r, epsilon in self.points)
        few, most = min(self.transmitted), max(self.transmitted)
        least, largest = format_up(min(self.devices)), format_up(max(self.devices))
        devices = (
            f"{len(self.transmitted)} devices transmitted in {few} to {most} rounds; the whole run"
            f" costs them {least} to {largest}"
        )
        budget = "" if self.budget is None else f"; the run's budget is {self.budget:g}"
        notes = [Row("", devices + budget), Row("", self._covered_chains())]
        if self.partial:
            text = (
                f"the rounds up to {self.at} alone: epsilon {format_up(self.epsilon_so_far)},"
                f" {IF_FIXED}; who stops after looking has spent the whole run"
            )
            notes.insert(0, Row("", text, severity="warning"))
        if self.risk is not None:
            notes.append(Row("", self.risk.in_words(self.told_apart, self.run_delta)))
        if self.data_dependent is not None:
            notes.append(data_dependence_row(self.data_dependent))
        if self.unfinished is not None:
            text = (
                f"the run is not finished: {self.at} of {self.unfinished} rounds count as spent,"
                " because rounds are entered before they begin"
            )
            notes.append(Row("", text, severity="warning"))
        return Grid(("up to round", "epsilon, if fixed beforehand"), rows, head, tuple(notes))

    def _covered_chains(self) -> str:
        """A sentence that says which of the run's chains the stated epsilon covers."""
        if self.num_chains == 1:
            return "it is the ledger of one chain, the only one of the run"
        text = (
            f"it is the ledger of one chain: the {self.num_chains} chains of the run simulate as"
            " many deployments, and each spends this"
        )
        if self.epsilon_all_chains is not None:
            every = format_up(self.epsilon_all_chains)
            text += f"; if all of them were given out, {every} would be spent in all"
        return text


def spent(record: Record, plan: Plan, *, at: int | None = None) -> SpentCurve:
    """Epsilon that one chain of a recorded run costs, computed from its ledger and, for rounds that
    have not begun, from the plan that the run was made with.

    ``epsilon`` of what is returned is that of the whole planned run. It holds whenever and for
    whatever reason the run stops; that of the rounds so far, ``epsilon_so_far``, only if the round
    to stop at was fixed beforehand.

    Parameters
    ----------
    record
        Record that :func:`flmc.load` opened; the run need not be finished.
    plan
        The plan of the run.
    at
        Round up to which, and including which, ``epsilon_so_far`` counts; None: all that the ledger
        has, at up to 12 rounds on the way.

    Returns
    -------
    SpentCurve
        Upper bounds of epsilon at the plan's ``run_delta``, from the gains that the ledger states.

    Raises
    ------
    InvalidSetting
        If the record has no ledger, or the ledger has no round ``at``.
    RunFailed
        If the ledger is damaged, or ends before the run did.

    Examples
    --------
    >>> import tempfile
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    >>> with tempfile.TemporaryDirectory() as out:
    ...     result = flmc.run(plan, model, engine="numpy", out=out)
    ...     curve = flmc.spent(flmc.load(out), plan)
    >>> curve.points[-1][0], curve.transmitted
    (6, [6, 6, 6, 6])
    """
    check_ledger(record)
    rounds = len(record.ledger)
    if not rounds:
        raise InvalidSetting(f"{str(record.directory)!r} holds no ledger")
    if at is not None and checks.at_least("at", at, 1) > rounds:
        raise InvalidSetting(f"at must be a round of the ledger, at most {rounds}, got {at}")
    planned = record.asked["plan"]
    # In a federation the air adds noise on a public grid. Privacy is then accounted with caps of
    # the gain on this grid, which the record holds.
    caps = np.array(record.asked.get("accounted_caps", plan.gain))
    # The round at which the budget is spent, ``affordable_rounds``, was fixed before round 1. The
    # run would have ended there whatever it gave out, so later rounds cost nothing.
    last = plan.affordable_rounds if record.result is None else rounds
    ahead = planned_entries(plan, caps, range(rounds, last))
    curve = spent_curve(
        record.ledger[:at],
        plan.uplink,
        plan.limits,
        plan.num_devices,
        plan.dim,
        ahead=[*record.ledger[len(record.ledger[:at]) :], *ahead],
        last_only=at is not None,
        num_chains=record.asked.get("num_chains", 1),
    )
    return replace(
        curve,
        unfinished=planned["num_rounds"] if record.result is None and at is None else None,
        data_dependent=planned.get("data_dependent"),
    )


def check_ledger(record: Record) -> None:
    """Raise ``RunFailed`` for a ledger that is damaged, or lists fewer rounds than the run has
    saved."""
    rounds = len(record.ledger)
    if record.ledger_damaged:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} is damaged behind round {rounds}: more was"
            f" spent than can be read; {_mend(record)}"
        )
    if rounds < record.round:
        done = "saved" if record.result is None else "finished all"
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} ends with round {rounds}, and the run has"
            f" {done} {record.round}: something has been cut off; {_mend(record)}"
        )


def _mend(record: Record) -> str:
    """End of an error message: what a user can do about the damaged ledger of ``record``."""
    if record.result is None:
        return "`flmc resume` mends the ledger of a run that is not finished"
    return (
        "restore ledger.txt from a copy, or count the whole planned run as spent (result.json"
        " states its cost)"
    )


def spent_curve(
    entries: Sequence[str],
    uplink: Uplink,
    limits: Limits,
    num_devices: int,
    dim: int,
    *,
    ahead: Sequence[str] = (),
    last_only: bool = False,
    num_chains: int = 1,
) -> SpentCurve:
    """Epsilon of a whole run, and after up to 12 of the rounds in the ledger (``last_only``: after
    the last of them), for the device that spends most. ``entries`` are the lines of JSON in the
    ledger, ``ahead`` those of rounds that have not begun. Whichever privacy criterion ``limits``
    name, epsilon is computed with ``tight``: the accountant's upper bound, here at the gains in the
    entries."""
    rounds = [json.loads(entry) for entry in (*entries, *ahead)]
    talks = np.ones((len(rounds), num_devices), dtype=bool)
    gains = np.empty((len(rounds), dim))
    for index, each in enumerate(rounds):
        talks[index, each["silent"]] = False
        gains[index] = each["gain"]
    neighbouring, delta = limits.neighbouring, limits.run_delta
    budget = limits.epsilon if limits.scope == "run" and limits.privacy != "off" else None

    def event_of(talks: npt.NDArray[np.bool_], chains: int = 1) -> tuple[Event, float]:
        """Event of a device that transmitted in the rounds where the mask ``talks`` (round) is
        true, for the release of ``chains`` chains together, and the probability that it leaves
        out."""
        event = uplink.event_of_rounds(
            gains[: len(talks)][talks],
            dim,
            neighbouring,
            chains,
            **relation_argument(limits.relation),
        )
        # The error of the channel estimate may, with small probability, exceed what the event
        # allows for. The event charges this probability to delta for the rounds in which the device
        # transmits. The error may also decide whether it transmits, so the silent rounds are
        # charged here.
        return event, silent_exceedance(uplink, chains * dim * int((~talks).sum()))

    def cost(talks: npt.NDArray[np.bool_], chains: int = 1) -> float:
        """Epsilon of a device that transmitted in the rounds where the mask ``talks`` (round) is
        true, for the release of ``chains`` chains together."""
        # The noise of an ideal uplink is made by the server itself: it hides nothing.
        if uplink.noise_is_exact:
            return math.inf
        if not talks.any():
            return 0.0
        event, left_out = event_of(talks, chains)
        return event.epsilon(max(delta - left_out, 1e-300))

    def cost_of_each(talks: npt.NDArray[np.bool_]) -> list[float]:
        """Epsilon of each device, from the rounds in which it transmitted, (round, device)."""
        # Devices that transmitted in the same rounds have spent the same, so epsilon is computed
        # once for each distinct set of rounds.
        patterns, group = np.unique(talks.T, axis=0, return_inverse=True)
        each = [cost(pattern) for pattern in patterns]
        return [each[index] for index in np.ravel(group)]

    by_device, counted = cost_of_each(talks), len(entries)
    # All points of the curve are for one device: the one that spent most in the rounds of
    # ``entries``.
    device = int(np.argmax(cost_of_each(talks[:counted]) if ahead else by_device))
    first = counted if last_only else min(1, counted)
    places = np.unique(np.linspace(first, counted, _POINTS).astype(int))
    points = [(int(last), cost(talks[:last, device])) for last in places]
    transmitted = [int(count) for count in talks[:counted].sum(axis=0)]
    every = max(by_device)
    # With several chains the device that spends most may be another one, so epsilon is computed for
    # each distinct set of rounds again.
    if num_chains > 1:
        every = max(cost(pattern, num_chains) for pattern in np.unique(talks.T, axis=0))
    curve = SpentCurve(points, transmitted, by_device, delta, limits.neighbours, budget)
    loudest = talks[:, int(np.argmax(by_device))]
    # An epsilon at one delta does not order whole curves: of devices that transmitted in different
    # rounds, another one may be told apart more easily than the one that spends most.
    alike = (talks[:, talks.any(axis=0)] == loudest[:, None]).all()
    if loudest.any() and alike and not uplink.noise_is_exact:
        event, left_out = event_of(loudest)
        curve = replace(curve, event=event, unstated=left_out)
    return replace(
        curve,
        num_chains=num_chains,
        epsilon_all_chains=every,
        planned=len(rounds),
        told_apart=limits.told_apart,
    )
