"""A scheduler of your own: which devices transmit in a round."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


@dataclass(frozen=True)
class StrongestDevices(flmc.Scheduler):
    """In every round the ``count`` devices whose weakest entry has the largest path gain."""

    count: int = 5

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        """1 for a device that transmits, else 0, (round, device), from ``fading`` (round, device,
        entry); at least one device in every round."""
        weakest = fading.min(axis=2)
        # A random order first: devices with equal gains are then chosen with equal probability.
        order = rng.permuted(np.broadcast_to(np.arange(weakest.shape[1]), weakest.shape), axis=1)
        sorted_gains = np.argsort(-np.take_along_axis(weakest, order, axis=1), axis=1)
        chosen = np.take_along_axis(order, sorted_gains[:, : self.count], axis=1)
        active = np.zeros(weakest.shape)
        np.put_along_axis(active, chosen, 1.0, axis=1)
        return active

    # Optional. Without it every plan is accepted.
    def check(self, num_rounds: int, num_devices: int) -> None:
        """Refuse a plan with fewer devices than ``count``."""
        if not 1 <= self.count <= num_devices:
            raise InvalidSetting(f"count must be 1 to {num_devices}, got {self.count}")

    # Optional. Without it a device is charged for every round before the run begins.
    def most_rounds(self, num_rounds: int, num_devices: int) -> int:
        """No bound below all rounds holds for certain: one device may always be the strongest."""
        return num_rounds


scheduler = StrongestDevices(5)
