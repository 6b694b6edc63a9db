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
from flmc.planning.limits import Limits
from flmc.planning.plans import Plan
from flmc.runs.records import Record
from flmc.planning.privacy_cost import NEIGHBOURING
from flmc.base.tables import Grid, Row, format_up
from flmc.privacy.transmissions import count_gains
from flmc.uplink.uplink import Uplink

_POINTS = 12


@dataclass(frozen=True)
class SpentCurve:
    """``points``: round and the epsilon spent up to it; ``transmitted``: rounds in which each
    device transmitted."""

    points: list[tuple[int, float]]
    transmitted: list[int]
    devices: list[float]
    """Epsilon that each device has spent in all."""
    run_delta: float
    neighbouring: str
    budget: float | None = None
    """Epsilon that the run may spend, if it has a budget."""
    unfinished: int | None = None
    """Rounds that were planned, if the run is not finished."""

    def to_document(self) -> dict[str, Any]:
        """For JSON."""
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
        """Epsilon against round, and what the devices spent."""
        head = f"spent by the device that spent most, at delta {self.run_delta:g}; neighbouring: {self.neighbouring}"
        rows = tuple((str(r), format_up(epsilon)) for r, epsilon in self.points)
        few, most = min(self.transmitted), max(self.transmitted)
        least, largest = format_up(min(self.devices)), format_up(max(self.devices))
        devices = (
            f"{len(self.transmitted)} devices transmitted in {few} to {most} rounds and spent {least} to {largest}"
        )
        budget = "" if self.budget is None else f"; the run's budget is {self.budget:g}"
        notes = [Row("", devices + budget)]
        if self.unfinished is not None:
            text = (
                f"the run is not finished: {self.points[-1][0]} of {self.unfinished} rounds count as spent, because"
                " rounds are entered before they begin"
            )
            notes.append(Row("", text, severity="warning"))
        return Grid(("round", "epsilon"), rows, head, tuple(notes))


def spent(record: Record, plan: Plan) -> SpentCurve:
    """What a recorded run has spent, under the plan that it was made with."""
    return spent_under(record, plan.uplink, plan.limits)


def spent_under(record: Record, uplink: Uplink, limits: Limits) -> SpentCurve:
    """What a recorded run has spent over this uplink."""
    check_ledger(record)
    if not record.ledger:
        raise InvalidSetting(f"{str(record.directory)!r} holds no ledger")
    planned = record.asked["plan"]
    curve = spent_curve(record.ledger, uplink, limits, planned["num_devices"], planned["dim"])
    return replace(curve, unfinished=planned["num_rounds"] if record.result is None else None)


def check_ledger(record: Record) -> None:
    """Refuse a ledger that tells of less than was spent."""
    rounds = len(record.ledger)
    if record.ledger_damaged:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} is damaged behind round {rounds}: more was spent than can be"
            " read; `flmc resume` mends that of a run that is not finished"
        )
    planned = record.asked.get("plan", {}).get("num_rounds", 0)
    if record.result is not None and rounds < planned:
        raise RunFailed(
            f"the ledger in {str(record.directory)!r} ends with round {rounds}, and the run has finished all {planned}:"
            " something has been cut off"
        )


def spent_curve(entries: Sequence[str], uplink: Uplink, limits: Limits, num_devices: int, dim: int) -> SpentCurve:
    """From the entries of a ledger, at the caps that they state; always `tight`, an upper bound."""
    rounds = [json.loads(entry) for entry in entries]
    talks = np.ones((len(rounds), num_devices), dtype=bool)
    gains = np.empty((len(rounds), dim))
    for index, each in enumerate(rounds):
        talks[index, each["silent"]] = False
        gains[index] = each["gain"]
    neighbouring, delta = limits.neighbouring, limits.run_delta
    budget = limits.epsilon if limits.scope == "run" and limits.privacy != "off" else None

    def cost(used: Array) -> float:
        if uplink.noise_is_exact:  # it hides nothing
            return math.inf
        return uplink.privacy_event(count_gains(used), neighbouring).epsilon(delta)

    # Devices that were there in the same rounds have spent the same.
    patterns, group = np.unique(talks.T, axis=0, return_inverse=True)
    each = [cost(gains[pattern]) for pattern in patterns]
    by_device = [each[index] for index in np.ravel(group)]
    device = int(np.argmax(by_device))
    places = np.unique(np.linspace(min(1, len(rounds)), len(rounds), _POINTS).astype(int))
    points = [(int(last), cost(gains[:last][talks[:last, device]])) for last in places]
    transmitted = [int(count) for count in talks.sum(axis=0)]
    return SpentCurve(points, transmitted, by_device, delta, NEIGHBOURING[neighbouring], budget)
