"""A fading of your own: the gains of the paths from the devices to the server."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

import flmc
from flmc.base.arrays import Array


@dataclass(frozen=True)
class Nakagami(flmc.Fading):
    """Nakagami's law with ``shape`` m (1 is Rayleigh fading) and root mean square ``scale``."""

    shape: float = 2.0
    scale: float = 0.04

    # Rounds are independent draws from one law, which does not look at the number of the round.
    # Leave this out for a trace, a law that changes with time, or one with memory: then `rounds`
    # is the whole run.
    independent = True
    # Set `constant = True` in the class if every draw gives the same values.

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Positive gains that broadcast to (round, device, entry); randomness from ``rng`` only."""
        power = rng.gamma(self.shape, 1.0 / self.shape, (len(rounds), num_devices, 1))
        return np.asarray(self.scale * np.sqrt(power))


uplink = flmc.Digital(fading=Nakagami())
