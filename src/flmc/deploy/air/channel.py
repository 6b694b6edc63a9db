"""What the air does to symbols: an interface, and the channel that is made of software."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS
from flmc.sampling.roles import Transmission, air_on_grid
from flmc.wire.federation import Federation

_ENTRIES_AT_ONCE = 1 << 20
"""Symbols that the channel of software puts on its grid at a time."""


class RoundOnAir(NamedTuple):
    """What happens in a round, but for the symbols.

    Attributes
    ----------
    round
        Number of the round, from 1.
    gain
        Amplitude at which symbols are to arrive, (dim).
    fading
        Path gains that devices know, (device, dim).
    arriving
        Path gains that symbols meet, (device, dim): the same, unless devices know estimates only.
    """

    round: int
    gain: Array
    fading: Array
    arriving: Array


class Signal(NamedTuple):
    """What was received: steps of the noise grid, or values that a receiver measured, (dim)."""

    steps: IntArray | None
    values: Array | None


class Channel(ABC):
    """What carries symbols. Another one, a radio for example, is another class."""

    hears_all = False
    """Whether everybody who is scheduled is in the signal, also if its answer does not come."""

    @abstractmethod
    def check(self, federation: Federation) -> None:
        """Refuse a federation whose privacy statement does not hold over this channel.

        Parameters
        ----------
        federation
            The federation.

        Raises
        ------
        InvalidSetting
            With the reason.
        """

    @abstractmethod
    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """What is received in a round. It is called once for a round: the second noise on the same
        symbols would be a second look at them.

        Parameters
        ----------
        this
            The round.
        sent
            Symbols and amplitudes, (dim) each, by number of the device.
        """


class SoftwareChannel(Channel):
    """The channel made of software: whole numbers of steps, with exact noise.

    Parameters
    ----------
    federation
        Gives grid and peak.
    entropy
        Source of the noise; the operating system's in a deployment.
    """

    def __init__(self, federation: Federation, entropy: Entropy | None = None) -> None:
        self._federation, self._entropy = federation, entropy or SystemEntropy()
        # The first draw makes its tables, which takes a second: not in round 1.
        federation.grid.draw_noise((1,), SystemEntropy())

    def check(self, federation: Federation) -> None:
        """Refuse a federation with another grid: its noise would not be the planned one.

        Parameters
        ----------
        federation
            The federation.
        """
        if federation.grid != self._federation.grid:
            raise InvalidSetting("the channel was made for another grid than the federation's")

    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """Symbols of all devices in the order of their numbers, and noise.

        Parameters
        ----------
        this, sent
            The round, and what was sent.
        """
        grid, peak = self._federation.grid, self._federation.plan.uplink.peak
        numbers, dim = sorted(sent), len(this.gain)
        loudest = MOST_STEPS * grid.step / peak * (1 - 1e-9)
        steps = np.zeros((len(sent), dim), dtype=np.int64)
        # Many devices at once, because they share gains and a gain takes exact arithmetic; not
        # all, because of the memory that many entries take.
        at_once = max(1, _ENTRIES_AT_ONCE // dim)
        for first in range(0, len(numbers), at_once):
            some = numbers[first : first + at_once]
            symbols = np.stack([sent[number].symbols for number in some])
            arrives = this.arriving[some] * np.stack([sent[number].amplitude for number in some])
            # An amplitude that inverts its channel arrives with the gain, but for a last digit.
            exact = np.abs(arrives - this.gain) <= 1e-9 * this.gain
            arrives = np.where(exact, this.gain, arrives)
            # Amplitudes are rounded down to the grid: what is below its first step is silence.
            silent = np.abs(arrives) * peak < grid.step * (1 + 1e-9)
            arrives = np.where(silent, 0.0, arrives)
            # An estimate that was too small makes a symbol arrive louder than planned, and the
            # grid ends somewhere.
            arrives = np.clip(arrives, -loudest, loudest)
            steps[first : first + at_once] = grid.arriving_steps(symbols, arrives, peak)
        return Signal(air_on_grid(steps, grid, self._entropy), None)
