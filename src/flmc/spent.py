"""What a ledger says was spent: epsilon against round, for the device that transmitted most."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flmc.checks import Array
from flmc.config import Settings
from flmc.privacy.account import epsilon_of
from flmc.privacy.event import count_gains, event_of
from flmc.spending import NEIGHBOURING
from flmc.table import format_grid, format_up
from flmc.uplink import Ideal, Uplink

_POINTS = 12


@dataclass(frozen=True)
class SpentCurve:
    """``points``: round and the epsilon spent up to it; ``transmitted``: rounds in which each device transmitted."""

    points: list[tuple[int, float]]
    transmitted: list[int]
    devices: list[float]
    """Epsilon that each device has spent in all."""
    run_delta: float
    neighbouring: str

    def __str__(self) -> str:
        head = (
            f"spent by the device that transmitted most, at delta {self.run_delta:g}; neighbouring: {self.neighbouring}"
        )
        rows = [[str(r), format_up(epsilon)] for r, epsilon in self.points]
        few, most = min(self.transmitted), max(self.transmitted)
        least, largest = format_up(min(self.devices)), format_up(max(self.devices))
        devices = (
            f"{len(self.transmitted)} devices transmitted in {few} to {most} rounds and spent {least} to {largest}"
        )
        return f"{head}\n{format_grid(['round', 'epsilon'], rows)}\n{devices}"


def spent_curve(entries: Sequence[str], uplink: Uplink, num_devices: int, settings: Settings) -> SpentCurve:
    """From the entries of a ledger, at the caps that they state; always `tight`, an upper bound."""
    rounds = [json.loads(entry) for entry in entries]
    talks = np.ones((len(rounds), num_devices), dtype=bool)
    gains = np.empty((len(rounds), settings.dim))
    for index, each in enumerate(rounds):
        talks[index, each["silent"]] = False
        gains[index] = each["gain"]
    device = int(talks.sum(axis=0).argmax())
    neighbouring, delta = settings.neighbouring, settings.run_delta

    def spent(used: Array) -> float:
        return (
            math.inf
            if isinstance(uplink, Ideal)
            else epsilon_of(event_of(uplink, count_gains(used), neighbouring), delta)
        )

    # Devices that were there in the same rounds have spent the same.
    patterns, group = np.unique(talks.T, axis=0, return_inverse=True)
    each = [spent(gains[pattern]) for pattern in patterns]
    places = np.unique(np.linspace(1, len(rounds), _POINTS).astype(int))
    points = [(int(last), spent(gains[:last][talks[:last, device]])) for last in places]
    transmitted = [int(count) for count in talks.sum(axis=0)]
    by_device = [each[index] for index in np.ravel(group)]
    return SpentCurve(points, transmitted, by_device, delta, NEIGHBOURING[neighbouring])
