"""What the air does to symbols: an interface, a channel made of software, and a receiver whose
measurements come from a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS
from flmc.runs.files.durable_files import read_arrays
from flmc.sampling.roles import Transmission, air_on_grid
from flmc.wire.federation import Federation

_ENTRIES_AT_ONCE = 1 << 20
"""Symbols that the channel of software puts on its grid at a time."""
ALPHA = 1e-9
"""Probability with which the noise may be weaker than its bound, unless told."""
_FEWEST = 100
_SMALL = 0.01
"""Largest alpha, as a share of the delta that is stated for the run."""


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


def least_noise_power(samples: Array, alpha: float = ALPHA) -> float:
    """Lower confidence bound of a receiver's noise power.

    Parameters
    ----------
    samples
        What it measured while nobody transmitted, any shape; at least 100 numbers.
    alpha
        Probability with which the noise power may be below the bound.

    Returns
    -------
    float
        The bound, rounded down.

    Raises
    ------
    InvalidSetting
        If there are too few samples, or they are no numbers.
    """
    from scipy.special import chdtri  # which no other air needs

    checks.between("alpha", alpha, 0.0, 1.0)
    flat = checks.finite_array("the samples of noise", np.ravel(samples))
    if flat.size < _FEWEST:
        raise InvalidSetting(
            f"at least {_FEWEST} samples of noise are needed to bound its power, got {flat.size}"
        )
    # Around the mean, because a constant offset hides nothing.
    squares = float(np.sum(np.square(flat - flat.mean())))
    quantile = float(chdtri(flat.size - 1, alpha))  # exceeded with probability alpha
    return squares / quantile * (1 - 1e-9)


class RecordedReceiver(Channel):
    """A receiver whose measurements are in a file. Whoever is scheduled has transmitted by radio,
    so that all of them count as active.

    Parameters
    ----------
    path
        An npz file: ``noise``, samples of noise alone; ``y`` (round, dim), the received signal of
        every round, in the unit of gain and noise.
    alpha
        Probability with which the noise may be weaker than the bound that is computed from the
        samples.

    Raises
    ------
    InvalidSetting
        If the file does not hold them.
    """

    hears_all = True

    def __init__(self, path: Path, alpha: float = ALPHA) -> None:
        try:
            arrays = read_arrays(path)
        except RunFailed as error:
            raise InvalidSetting(str(error)) from error
        if not {"noise", "y"} <= arrays.keys() or arrays["y"].ndim != 2:
            raise InvalidSetting(
                f"{str(path)!r} must hold the arrays noise (sample) and y (round, dim)"
            )
        self._alpha = alpha
        self._y = checks.finite_array("y", arrays["y"])
        self.noise_power = least_noise_power(arrays["noise"], alpha)
        """Noise power for which the privacy statement holds."""

    def check(self, federation: Federation) -> None:
        """Refuse a plan that counts on more noise than the receiver is known to have, on more
        certainty, or on more rounds than it measured.

        Parameters
        ----------
        federation
            The federation.
        """
        plan = federation.plan
        if plan.uplink.noise_power > self.noise_power:
            raise InvalidSetting(
                f"the plan's noise_power is {plan.uplink.noise_power:g}, and this receiver's is"
                f" known to be at least {self.noise_power:.6g} only: plan with noise_power"
                f" {self.noise_power:.6g} or less"
            )
        if self._alpha > _SMALL * plan.limits.run_delta:
            raise InvalidSetting(
                f"alpha must be at most {_SMALL:g} of the plan's run_delta,"
                f" {plan.limits.run_delta:g}, because it is added to delta; got {self._alpha:g}"
            )
        if self._y.shape[1] != plan.dim or len(self._y) < plan.num_rounds:
            raise InvalidSetting(
                f"the receiver measured (round, dim) = {self._y.shape}, and the plan needs"
                f" ({plan.num_rounds}, {plan.dim})"
            )

    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """What the receiver measured in the round.

        Parameters
        ----------
        this, sent
            The round; what was sent has long arrived by radio.
        """
        return Signal(None, self._y[this.round - 1])
