"""Channels between devices and server: the interface, a channel in software, and a radio
receiver whose measurements are in a file."""

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
"""Number of symbols that the software channel rounds to its noise grid at a time, which limits its
memory."""
ALPHA = 1e-9
"""Default of alpha, the probability that a receiver's true noise power is below the lower bound
that was computed from samples of its noise."""
_FEWEST = 100
"""Smallest number of noise samples from which a receiver's noise power is bounded; fewer are
refused."""
_SMALL = 0.01
"""Largest alpha (the probability that the noise power is below its lower bound) over the delta
stated for the run, to which alpha is added; a larger one is refused."""


class RoundOnAir(NamedTuple):
    """Physical facts of a round without the symbols.

    Attributes
    ----------
    round
        Number of the round, from 1.
    gain
        Amplitude at which symbols should arrive, (dim).
    fading
        Path gains known to the devices, (device, dim).
    arriving
        Path gains that the symbols meet, (device, dim); they differ from ``fading`` where devices
        know estimates only.
    """

    round: int
    gain: Array
    fading: Array
    arriving: Array


class Signal(NamedTuple):
    """The received signal of a round, (dim): ``steps`` in whole steps of the noise grid, from a
    software channel, or ``values`` as a radio receiver measured them. The other of the two is
    None."""

    steps: IntArray | None
    values: Array | None


class Channel(ABC):
    """Base class of channels, which add up the symbols of all devices and noise: in software, or in
    a radio receiver."""

    hears_all = False
    """Whether the received signal contains the symbols of every scheduled device, because they came
    by radio, even where the device's message to the air was lost."""

    @abstractmethod
    def check(self, federation: Federation) -> None:
        """Raise ``InvalidSetting`` if the privacy statement of the federation's plan does not hold
        over this channel."""

    @abstractmethod
    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """The received signal of the round ``this``, computed from ``sent``: symbols and
        amplitudes, (dim) each, by number of the device. The air calls it once for each round: the
        same symbols with a second draw of noise would reveal more than is accounted."""


class SoftwareChannel(Channel):
    """A channel in software: it adds symbols and noise in whole steps of the noise grid, where
    floating-point rounding cannot leak, with random bits from ``entropy`` (None: the operating
    system's)."""

    def __init__(self, federation: Federation, entropy: Entropy | None = None) -> None:
        self._federation, self._entropy = federation, entropy or SystemEntropy()
        # The first draw of noise takes about a second, because it builds tables: so one draw is
        # made here, before round 1.
        federation.grid.draw_noise((1,), SystemEntropy())

    def check(self, federation: Federation) -> None:
        """Raise ``InvalidSetting`` if the federation has another noise grid than the one for which
        this channel was made."""
        if federation.grid != self._federation.grid:
            raise InvalidSetting("the channel was made for another grid than the federation's")

    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """The received signal of a round in steps of the noise grid, (dim): the sum of all devices'
        arriving symbols, plus noise."""
        grid, peak = self._federation.grid, self._federation.plan.uplink.peak
        numbers, dim = sorted(sent), len(this.gain)
        loudest = MOST_STEPS * grid.step / peak * (1 - 1e-9)
        steps = np.zeros((len(sent), dim), dtype=np.int64)
        # Devices are processed in large groups, because exact arithmetic is done once for each
        # distinct gain in a group; but not all at once, because the arrays of a large model would
        # not fit into memory.
        at_once = max(1, _ENTRIES_AT_ONCE // dim)
        for first in range(0, len(numbers), at_once):
            some = numbers[first : first + at_once]
            symbols = np.stack([sent[number].symbols for number in some])
            arrives = this.arriving[some] * np.stack([sent[number].amplitude for number in some])
            # An amplitude A/h times its path gain h is the gain A up to rounding: where the product
            # is that close to A, it is replaced by A.
            exact = np.abs(arrives - this.gain) <= 1e-9 * this.gain
            arrives = np.where(exact, this.gain, arrives)
            # A symbol that would arrive below the first step of the noise grid counts as silence,
            # because amplitudes are rounded down to whole steps.
            silent = np.abs(arrives) * peak < grid.step * (1 + 1e-9)
            arrives = np.where(silent, 0.0, arrives)
            # A path gain that was estimated too small makes a symbol arrive louder than planned:
            # its amplitude is limited to the largest number of steps that a symbol on the grid may
            # have.
            arrives = np.clip(arrives, -loudest, loudest)
            steps[first : first + at_once] = grid.arriving_steps(symbols, arrives, peak)
        return Signal(air_on_grid(steps, grid, self._entropy), None)


def least_noise_power(samples: Array, alpha: float = ALPHA) -> float:
    r"""Lower confidence bound of a receiver's noise power, from at least 100 samples of noise
    alone (any shape); the true power is below the bound with probability ``alpha`` at most.

    Let S be the sum of the squared deviations of n samples from their mean. Divided by the
    noise power :math:`N_0` it is a chi-squared variable with n - 1 degrees of freedom, so that
    with probability :math:`1-\alpha`

    .. math:: N_0 \ge \frac{S}{\chi^2_{n-1,\,1-\alpha}}

    This rests on noise that is normal, independent from sample to sample, and as strong in the
    run as at its measurement.
    """
    from scipy.special import chdtri  # imported here, because only this channel needs SciPy

    checks.between("alpha", alpha, 0.0, 1.0)
    flat = checks.finite_array("the samples of noise", np.ravel(samples))
    if flat.size < _FEWEST:
        raise InvalidSetting(
            f"at least {_FEWEST} samples of noise are needed to bound its power, got {flat.size}"
        )
    # Deviations from the mean: a constant offset hides nothing, so it must not count as noise.
    squares = float(np.sum(np.square(flat - flat.mean())))
    # chdtri inverts the upper tail, which has the probability alpha
    quantile = float(chdtri(flat.size - 1, alpha))
    # lowered by a relative 1e-9 against the rounding of the sums, so that it stays a lower bound
    return squares / quantile * (1 - 1e-9)


class RecordedReceiver(Channel):
    """A radio receiver whose measurements are in an npz file: ``noise`` (sample), noise alone, and
    ``y`` (round, dim), the signal of every round in the unit in which the plan states gain and
    noise.

    The symbols went over the radio, and the noise is the receiver's own. Every scheduled device
    counts as active, and the devices' messages to the air only decide when a round closes. The
    privacy statement holds for the noise power of :func:`least_noise_power`; to its delta is added
    ``alpha``, the probability that the noise is weaker.
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
        """Noise power for which the privacy statement holds, a lower bound of the receiver's."""

    def check(self, federation: Federation) -> None:
        """Raise ``InvalidSetting`` if the plan counts on more noise power than is proven for the
        receiver, if ``alpha`` is more than 1 % of the delta stated for the run, or if the measured
        signals have another number of entries, or fewer rounds, than the plan."""
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
        """The signal that the receiver measured in the round ``this``, (dim), read from the file;
        the symbols ``sent`` to the air are ignored."""
        return Signal(None, self._y[this.round - 1])
