"""The problems that are measured: linear regression of any size, planned with the defaults."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import flmc

_ROUNDS, _BURN_IN = 300, 200
"""Rounds of the standard point, and those of them that are not kept."""


@dataclass(frozen=True)
class Problem:
    """A size of linear regression, with everything else as users find it.

    Attributes
    ----------
    scheme
        ``digital`` or ``analog``.
    experiments, chains, devices, dim, rounds
        Sizes; the default is the standard point.
    held
        Whether the statistics of all data sets stay in memory, whatever they take: then a run
        does not draw them again.
    """

    scheme: str = "digital"
    experiments: int = 1000
    chains: int = 1
    devices: int = 20
    dim: int = 5
    rounds: int = _ROUNDS
    held: bool = False

    @property
    def symbols(self) -> float:
        """Symbols that all devices of all chains send in all rounds."""
        return float(self.experiments * self.chains * self.devices * self.dim * self.rounds)

    @property
    def arguments(self) -> dict[str, Any]:
        """The attributes, as a child process takes them."""
        return asdict(self)

    def make_model(self) -> flmc.LinearGaussian:
        """A new model of this size; nothing is shared with models that were made before."""
        source: Any = flmc.data.draw_linear_statistics(
            0,
            num_experiments=self.experiments,
            num_samples=max(1200, self.devices * self.dim),
            dim=self.dim,
            num_devices=self.devices,
            kind="sufficient",
        )
        if self.held:
            source = source.rows(range(self.experiments))
        return flmc.LinearGaussian(source)

    @cached_property
    def model(self) -> flmc.LinearGaussian:
        """The model, made once."""
        return self.make_model()

    def make_plan(self, model: flmc.LinearGaussian) -> flmc.Plan:
        """A plan for a model of this size, without the forecast that planning adds for people."""
        uplink = flmc.Digital() if self.scheme == "digital" else flmc.Analog()
        burn_in = self.rounds * _BURN_IN // _ROUNDS
        return flmc.plan(model, uplink, num_rounds=self.rounds, num_burn_in=burn_in, forecast=False)

    @cached_property
    def plan(self) -> flmc.Plan:
        """The plan, made once."""
        return self.make_plan(self.model)
