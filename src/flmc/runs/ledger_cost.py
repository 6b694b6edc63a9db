"""What a ledger says was spent: epsilon against round, for the device that spent most."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.tables import Grid, Row, format_up
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import NEIGHBOURING
from flmc.privacy.transmissions import count_gains
from flmc.runs.records import Record
from flmc.uplink.uplink import Uplink

_POINTS = 12
"""Rounds at which the curve is computed, at most."""


@dataclass(frozen=True)
class SpentCurve:
    """What a run has spent: epsilon against round, for the device that spent most."""

    points: list[tuple[int, float]]
    """Rounds, and the epsilon that was spent up to each."""
    transmitted: list[int]
    """Rounds in which each device transmitted."""
    devices: list[float]
    """Epsilon that each device has spent in all."""
    run_delta: float
    """Delta at which epsilon is stated."""
    neighbouring: str
    """What is replaced in neighbouring data, in words."""
    budget: float | None = None
    """Epsilon that the run may spend, if it has a budget."""
    unfinished: int | None = None
    """Rounds that were planned, if the run is not finished."""

    def to_document(self) -> dict[str, Any]:
        """The curve as plain values, for JSON."""
        return {
            "run_delta": self.run_delta,
            "curve": self.points,
            "transmitted": self.transmitted,
            "devices": self.devices,
            "budget": self.budget,
            "unfinished": self.unfinished,
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
        notes = [Row("", devices + budget)]
        if self.unfinished is not None:
            text = (
                f"the run is not finished: {self.points[-1][0]} of {self.unfinished} rounds count"
                " as spent, because rounds are entered before they begin"
            )
            notes.append(Row("", text, severity="warning"))
        return Grid(("round", "epsilon"), rows, head, tuple(notes))


def spent(record: Record, plan: Plan) -> SpentCurve:
    """What a recorded run has spent, under the plan that it was made with.

    Parameters
    ----------
    record
        What :func:`flmc.load` opened; the run need not be finished.
    plan
        The plan of the run.

    Returns
    -------
    SpentCurve
        Upper bounds of epsilon at the plan's ``run_delta``, from the gains that the ledger states.

    Raises
    ------
    InvalidSetting
        If the record has no ledger.
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
    return spent_under(record, plan.uplink, plan.limits)


def spent_under(record: Record, uplink: Uplink, limits: Limits) -> SpentCurve:
    """What a recorded run has spent over an uplink, where its plan is not at hand.

    Parameters
    ----------
    record
        What :func:`flmc.load` opened.
    uplink
        The uplink that the run used: what its transmissions reveal.
    limits
        Neighbouring relation, delta of the run, and its budget, if it has one.

    Returns
    -------
    SpentCurve
        Upper bounds of epsilon.
    """
    check_ledger(record)
    if not record.ledger:
        raise InvalidSetting(f"{str(record.directory)!r} holds no ledger")
    planned = record.asked["plan"]
    curve = spent_curve(record.ledger, uplink, limits, planned["num_devices"], planned["dim"])
    return replace(curve, unfinished=planned["num_rounds"] if record.result is None else None)


def check_ledger(record: Record) -> None:
    """Refuse a ledger that tells of less than was spent.

    Parameters
    ----------
    record
        What :func:`flmc.load` opened.

    Raises
    ------
    RunFailed
        If the ledger is damaged, or ends before a run that is finished.
    """
    rounds = len(record.ledger)
    if record.ledger_damaged:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} is damaged behind round {rounds}: more was"
            " spent than can be read; `flmc resume` mends that of a run that is not finished"
        )
    planned = record.asked.get("plan", {}).get("num_rounds", 0)
    if record.result is not None and rounds < planned:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} ends with round {rounds}, and the run has"
            f" finished all {planned}: something has been cut off"
        )


def spent_curve(
    entries: Sequence[str], uplink: Uplink, limits: Limits, num_devices: int, dim: int
) -> SpentCurve:
    """The curve of what was spent, from the entries of a ledger, at the caps of the gain that they
    state.

    Parameters
    ----------
    entries
        Lines of JSON, one for each round.
    uplink
        What transmissions reveal.
    limits
        Neighbouring relation, delta of the run, and its budget. Whatever its criterion, epsilon is
        `tight`: an upper bound.
    num_devices, dim
        Devices, and entries of theta.

    Returns
    -------
    SpentCurve
        At up to 12 rounds, for the device that spent most in all.
    """
    rounds = [json.loads(entry) for entry in entries]
    talks = np.ones((len(rounds), num_devices), dtype=bool)
    gains = np.empty((len(rounds), dim))
    for index, each in enumerate(rounds):
        talks[index, each["silent"]] = False
        gains[index] = each["gain"]
    neighbouring, delta = limits.neighbouring, limits.run_delta
    budget = limits.epsilon if limits.scope == "run" and limits.privacy != "off" else None

    def cost(used: Array) -> float:
        if uplink.noise_is_exact:  # made for the sampler by definition: it is no privacy mechanism
            return math.inf
        return uplink.privacy_event(count_gains(used), neighbouring).epsilon(delta)

    # Devices that transmitted in the same rounds have spent the same, so each pattern is composed
    # once.
    patterns, group = np.unique(talks.T, axis=0, return_inverse=True)
    each = [cost(gains[pattern]) for pattern in patterns]
    by_device = [each[index] for index in np.ravel(group)]
    device = int(np.argmax(by_device))
    # The curve is of one device, the one that spent most in all.
    places = np.unique(np.linspace(min(1, len(rounds)), len(rounds), _POINTS).astype(int))
    points = [(int(last), cost(gains[:last][talks[:last, device]])) for last in places]
    transmitted = [int(count) for count in talks.sum(axis=0)]
    return SpentCurve(points, transmitted, by_device, delta, NEIGHBOURING[neighbouring], budget)
