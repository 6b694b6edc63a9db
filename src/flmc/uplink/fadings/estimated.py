r"""Path gains as devices estimate them, and the factor with which symbols arrive that were sent by
inverting such an estimate.

A device with path gain h that estimates :math:`\hat h = \sqrt{1-e^2}\,h + e\,n`, with the error e
and complex normal n, and inverts the estimate is received with the factor :math:`h/\hat h` in place
of 1. The server takes the part in phase, :math:`r =
\operatorname{Re}(h/\hat h)`: the error has a magnitude and a phase."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.fading import Fading


class Estimates(NamedTuple):
    r"""Estimated path gains, and the factor of the gain with which symbols arrive that were sent by
    inverting these estimates.

    Attributes
    ----------
    magnitude
        :math:`|\hat h|`, (round, device, 1 or dim).
    arrival
        :math:`r = \operatorname{Re}(h/\hat h)`, in the same shape; it may be negative.
    """

    magnitude: Array
    arrival: Array


@dataclass(frozen=True)
class EstimatedFading(Fading):
    r"""Magnitudes of estimated path gains, :math:`|\sqrt{1-e^2}\,h + e\,n|`, where n is
    :math:`CN(0, E[h^2])`.

    Errors are drawn anew for every round and device, and for every entry where entries have path
    gains of their own. Estimates of Rayleigh fading have the law of the path gains themselves.

    Attributes
    ----------
    fading
        Law of the path gains h; its mean square must be known.
    csi_error
        Relative error e of the estimates, from 0 to 0.9.
    """

    fading: Fading
    csi_error: float

    def __post_init__(self) -> None:
        if not 0.0 <= checks.number("csi_error", self.csi_error) <= 0.9:
            raise InvalidSetting(f"csi_error must be from 0 to 0.9, got {self.csi_error!r}")
        if self.fading.mean_square is None:
            raise InvalidSetting(
                f"csi_error needs the mean square of the path gains, which"
                f" {type(self.fading).__name__} does not tell: give it a property mean_square"
            )

    @property
    def independent(self) -> bool:  # type: ignore[override]
        """Whether the estimates of all rounds are independent draws: they are if the true path
        gains are."""
        return self.fading.independent

    @property
    def mean_square(self) -> float:
        r"""Mean square of the estimated path gains, which is that of the true ones,
        :math:`E[|\hat h|^2] = E[h^2]`."""
        return self.fading.mean_square or 0.0

    @property
    def correlation(self) -> float:
        r"""Correlation of an estimated path gain with the true one: :math:`\sqrt{1-e^2}` with the
        relative error e of the estimates."""
        return math.sqrt(1.0 - self.csi_error**2)

    @property
    def error_scale(self) -> float:
        r"""Root mean square of the error of an estimated path gain: the relative error times the
        root mean square :math:`\sqrt{E[h^2]}` of the path gain h itself."""
        return self.csi_error * math.sqrt(self.mean_square)

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Magnitudes of the estimated path gains of ``rounds``, (round, device, 1 or dim)."""
        return self.draw_estimates(rng, rounds, num_devices, dim).magnitude

    def draw_estimates(
        self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
    ) -> Estimates:
        """Estimated path gains of ``rounds``, and the factors of the gain with which symbols arrive
        if devices invert these estimates, (round, device, 1 or dim) each. From the same state of
        ``rng``, :meth:`draw` gives the same magnitudes."""
        return self.estimate(rng, self.fading.draw_checked(rng, rounds, num_devices, dim))

    def estimate(self, rng: np.random.Generator, true: Array) -> Estimates:
        """Estimates of the path gains ``true`` (round, device, dim), with errors from ``rng``;
        entries that share a path gain share its error too, and the result is (round, device, 1)."""
        if true.strides[-1] == 0:  # the last axis was broadcast: entries share a path gain
            true = true[..., :1]
        error = self.error_scale / math.sqrt(2.0) * rng.standard_normal((2, *true.shape))
        # The result depends only on the angle between path gain and error, so the path gain is
        # taken to be real.
        in_phase = self.correlation * true + error[0]
        square = np.square(in_phase) + np.square(error[1])
        return Estimates(np.sqrt(square), true * in_phase / square)
