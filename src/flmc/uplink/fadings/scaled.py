"""What laws of path gains with a scale share."""

from __future__ import annotations

from dataclasses import dataclass

from flmc.base import checks
from flmc.uplink.fading import Fading


@dataclass(frozen=True)
class ScaledFading(Fading):
    r"""A law of path gains with :math:`E[h^2] = \text{scale}^2`.

    Attributes
    ----------
    scale
        Root mean square of the path gain, positive.
    """

    scale: float = 0.04

    def __post_init__(self) -> None:
        checks.positive("fading scale", self.scale)

    @property
    def mean_square(self) -> float:
        """Square of the scale."""
        return self.scale**2
