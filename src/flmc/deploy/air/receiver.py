r"""A channel that is a receiver: what it measured in each round, from a file.

The symbols went over the radio, and the noise is the receiver's own; what devices send to the air
says only who transmitted. How strong the noise is must be known from below: from n samples of noise
alone, the sum S of their squared deviations from their mean, over :math:`N_0`, is a chi-squared
variable of n - 1 degrees of freedom, so that

.. math:: N_0 \ge \frac{S}{\chi^2_{n-1,\,1-\alpha}}

but for a probability of :math:`\alpha`. The privacy statement holds for that noise power, with
:math:`\alpha` added to its delta. It rests on noise that is normal, independent from sample to
sample, and as strong in the run as it was when it was measured."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.air.channel import Channel, RoundOnAir, Signal
from flmc.runs.files.durable_files import read_arrays
from flmc.sampling.roles import Transmission
from flmc.wire.federation import Federation

ALPHA = 1e-9
"""Probability with which the noise may be weaker than its bound, unless told."""
_FEWEST = 100
_SMALL = 0.01
"""Largest alpha, as a share of the delta that is stated for the run."""


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
