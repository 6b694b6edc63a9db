"""What the air does to symbols: an interface, and the channel that is made of software."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy
from flmc.sampling.roles import Transmission, air_on_grid
from flmc.wire.federation import Federation


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
        steps = np.zeros((len(sent), len(this.gain)), dtype=np.int64)
        for row, number in enumerate(sorted(sent)):
            symbols, amplitude = sent[number]
            arrives = this.arriving[number] * amplitude
            # An amplitude that inverts its channel arrives with the gain, but for a last digit.
            exact = np.abs(arrives - this.gain) <= 1e-9 * this.gain
            arrives = np.where(exact, this.gain, arrives)
            steps[row] = grid.arriving_steps(symbols[None], arrives[None], peak)[0]
        return Signal(air_on_grid(steps, grid, self._entropy), None)
