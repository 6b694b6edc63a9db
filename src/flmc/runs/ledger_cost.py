"""Privacy cost of a recorded run, from its ledger: epsilon against rounds, for the device that
spent most."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
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
from flmc.planning.privacy_cost import NEIGHBOURING
from flmc.runs.records import Record
from flmc.uplink.csi import silent_exceedance
from flmc.uplink.uplink import Uplink

_POINTS = 12
"""Number of rounds at which epsilon is computed, at most."""


@dataclass(frozen=True)
class SpentCurve:
    """Privacy parameter epsilon that a run has spent after each of some rounds, for the device that
    spent most."""

    points: list[tuple[int, float]]
    """Pairs of a round, from 1, and the epsilon that was spent up to and including it."""
    transmitted: list[int]
    """Number of rounds in which each device transmitted."""
    devices: list[float]
    """Epsilon that each device has spent over all counted rounds."""
    run_delta: float
    """Delta at which epsilon is stated."""
    neighbouring: str
    """The data that epsilon protects, in words: what is replaced between two neighbouring data
    sets."""
    budget: float | None = None
    """Epsilon that the run may spend, if it has a budget."""
    unfinished: int | None = None
    """Number of planned rounds of a run that is not finished; None for a finished run."""
    num_chains: int = 1
    """Chains of the run; each is a deployment of its own that spends what is stated here."""
    epsilon_all_chains: float | None = None
    """Epsilon of all chains together, if every one of them is released; None: not computed."""
    data_dependent: bool | None = None
    """Whether the plan was computed from the devices' data; None where the plan is not at hand."""

    @property
    def at(self) -> int:
        """The last round that is counted."""
        return self.points[-1][0]

    @property
    def epsilon(self) -> float:
        """Epsilon that the device that spent most has spent up to and including round ``at``."""
        return self.points[-1][1]

    def to_document(self) -> dict[str, Any]:
        """The curve as plain values, for JSON; an epsilon that is not bounded is null."""
        return {
            "schema_version": ANSWER_VERSION,
            "at": self.at,
            "epsilon": to_document(self.epsilon),
            "run_delta": self.run_delta,
            "curve": to_document(self.points),
            "transmitted": self.transmitted,
            "devices": to_document(self.devices),
            "budget": self.budget,
            "unfinished": self.unfinished,
            "num_chains": self.num_chains,
            "chains_covered": 1,
            "epsilon_all_chains": to_document(self.epsilon_all_chains),
            "data_dependent": self.data_dependent,
        }

    def __str__(self) -> str:
        return str(self.grid())

    def grid(self) -> Grid:
        """A table of epsilon against round, with notes on what the devices spent."""
        head = (
            f"spent by the device that spent most, at delta {self.run_delta:g}; neighbouring:"
            f" {self.neighbouring}"
        )
        rows = tuple((str(r), format_up(epsilon)) for r, epsilon in self.points)
        few, most = min(self.transmitted), max(self.transmitted)
        least, largest = format_up(min(self.devices)), format_up(max(self.devices))
        devices = (
            f"{len(self.transmitted)} devices transmitted in {few} to {most} rounds and spent"
            f" {least} to {largest}"
        )
        budget = "" if self.budget is None else f"; the run's budget is {self.budget:g}"
        notes = [Row("", devices + budget), Row("", self._covered_chains())]
        if self.data_dependent is not None:
            notes.append(data_dependence_row(self.data_dependent))
        if self.unfinished is not None:
            text = (
                f"the run is not finished: {self.at} of {self.unfinished} rounds count as spent,"
                " because rounds are entered before they begin"
            )
            notes.append(Row("", text, severity="warning"))
        return Grid(("round", "epsilon"), rows, head, tuple(notes))

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
    """Epsilon that one chain of a recorded run has spent, computed from its ledger under the plan
    that the run was made with.

    Parameters
    ----------
    record
        What :func:`flmc.load` opened; the run need not be finished.
    plan
        The plan of the run.
    at
        Round up to which, and including which, spending counts; None: all that the ledger has, at
        up to 12 rounds on the way.

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
    return spent_under(record, plan.uplink, plan.limits, at=at)


def spent_under(
    record: Record, uplink: Uplink, limits: Limits, *, at: int | None = None
) -> SpentCurve:
    """Epsilon that a recorded run has spent over an ``uplink``, up to and including round ``at``
    (None: all rounds of the ledger); for records whose plan cannot be made again."""
    check_ledger(record)
    rounds = len(record.ledger)
    if not rounds:
        raise InvalidSetting(f"{str(record.directory)!r} holds no ledger")
    if at is not None and checks.at_least("at", at, 1) > rounds:
        raise InvalidSetting(f"at must be a round of the ledger, at most {rounds}, got {at}")
    planned = record.asked["plan"]
    curve = spent_curve(
        record.ledger[:at],
        uplink,
        limits,
        planned["num_devices"],
        planned["dim"],
        last_only=at is not None,
        num_chains=record.asked.get("num_chains", 1),
    )
    return replace(
        curve,
        unfinished=planned["num_rounds"] if record.result is None and at is None else None,
        data_dependent=planned.get("data_dependent"),
    )


def check_ledger(record: Record) -> None:
    """Refuse a ledger that is damaged, or lists fewer rounds than the run has finished."""
    rounds = len(record.ledger)
    if record.ledger_damaged:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} is damaged behind round {rounds}: more was"
            " spent than can be read; `flmc resume` mends that of a run that is not finished"
        )
    if rounds < record.round:
        done = "saved" if record.result is None else "finished all"
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} ends with round {rounds}, and the run has"
            f" {done} {record.round}: something has been cut off"
        )


def spent_curve(
    entries: Sequence[str],
    uplink: Uplink,
    limits: Limits,
    num_devices: int,
    dim: int,
    *,
    last_only: bool = False,
    num_chains: int = 1,
) -> SpentCurve:
    """Epsilon after up to 12 rounds, or after the last only, for the device that spent most in all,
    from ``entries`` of a ledger (lines of JSON). Whatever privacy criterion the limits name, the
    `tight` one is used, an upper bound at the gains that the entries state."""
    rounds = [json.loads(entry) for entry in entries]
    talks = np.ones((len(rounds), num_devices), dtype=bool)
    gains = np.empty((len(rounds), dim))
    for index, each in enumerate(rounds):
        talks[index, each["silent"]] = False
        gains[index] = each["gain"]
    neighbouring, delta = limits.neighbouring, limits.run_delta
    budget = limits.epsilon if limits.scope == "run" and limits.privacy != "off" else None

    def cost(talks: npt.NDArray[np.bool_], chains: int = 1) -> float:
        """Epsilon of a device that transmitted in the rounds of a mask, (round)."""
        # The noise of an ideal uplink is made by the server itself: it hides nothing.
        if uplink.noise_is_exact:
            return math.inf
        if not talks.any():
            return 0.0
        event = uplink.event_of_rounds(gains[: len(talks)][talks], dim, neighbouring, chains)
        # An error of the channel estimate may exceed what the event allows for. The event charges
        # that for the rounds in which the device transmits; whether it transmits may depend on the
        # error, so the silent rounds are charged too, off delta.
        silent = chains * dim * int((~talks).sum())
        return event.epsilon(max(delta - silent_exceedance(uplink, silent), 1e-300))

    # Devices that transmitted in the same rounds have spent the same, so each pattern is composed
    # once.
    patterns, group = np.unique(talks.T, axis=0, return_inverse=True)
    each = [cost(pattern) for pattern in patterns]
    by_device = [each[index] for index in np.ravel(group)]
    device = int(np.argmax(by_device))
    # The curve is of one device, the one that spent most in all.
    first = len(rounds) if last_only else min(1, len(rounds))
    places = np.unique(np.linspace(first, len(rounds), _POINTS).astype(int))
    points = [(int(last), cost(talks[:last, device])) for last in places]
    transmitted = [int(count) for count in talks.sum(axis=0)]
    every = max(by_device)
    if num_chains > 1:  # which device spends most may change, so each pattern is composed again
        every = max(cost(pattern, num_chains) for pattern in patterns)
    curve = SpentCurve(points, transmitted, by_device, delta, NEIGHBOURING[neighbouring], budget)
    return replace(curve, num_chains=num_chains, epsilon_all_chains=every)
