"""The base case of the paper's figures, and what a user changes in it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.data.synthetic import draw_linear_statistics
from flmc.models.linear import LinearGaussian
from flmc.papers.own_curves import change_base_case
from flmc.settings.registered import SCHEDULERS
from flmc.settings.schema import Settings, merge
from flmc.settings.uplinks import make_uplink
from flmc.uplink.uplink import Uplink

CHANGEABLE = (
    *("devices", "dim", "samples", "clip", "clipping", "modulation", "fading", "csi_error"),
    *("noise_power", "link", "slope_parameter", "scheduling", "rounds", "burn_in", "start"),
)
"""Settings that may be changed; the figures themselves vary scheme, SNR, budget and, in figure 4,
the slope parameter."""


@dataclass(frozen=True)
class BaseCase:
    """Settings that all points of the figures share.

    Attributes
    ----------
    settings
        Sizes, channel, link and rounds; flmc's defaults are the paper's.
    """

    settings: Settings = field(default_factory=lambda: merge({}, {}))

    @classmethod
    def changed(cls, changes: Mapping[str, str]) -> BaseCase:
        """The paper's base case with some settings changed.

        Parameters
        ----------
        changes
            Settings as they were written, by name.
        """
        settings = change_base_case("qflmc", {}, changes, CHANGEABLE)
        if settings.burn_in == "auto" or settings.burn_in >= settings.rounds:
            raise InvalidSetting(
                f"burn_in must be a number below rounds = {settings.rounds}, got"
                f" {settings.burn_in!r}"
            )
        if settings.link == "auto":
            raise InvalidSetting("link of a study must be one link for all points, got 'auto'")
        return cls(settings)

    @property
    def num_kept(self) -> int:
        """Rounds that are kept."""
        burn_in = self.settings.burn_in
        return self.settings.rounds - (0 if burn_in == "auto" else burn_in)

    def uplink(self, scheme: str, snr_db: float = 25.0, slope: float | None = None) -> Uplink:
        """An uplink of the figures.

        Parameters
        ----------
        scheme
            ``digital`` or ``analog``.
        snr_db
            Largest SNR.
        slope
            Slope parameter of the link; None: that of the base case.
        """
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        if scheme != "digital":
            given = {n: v for n, v in given.items() if n not in ("link", "slope_parameter")}
        elif slope is not None:
            given["slope_parameter"] = slope
            given["link"] = str(given.get("link", "sigmoid")).partition(":")[0]
        return make_uplink(Settings(**{**given, "scheme": scheme, "snr_db": snr_db}))

    def draw(self, count: int, seed: int, kind: str) -> LinearGaussian:
        """Data sets of the paper's law.

        Parameters
        ----------
        count
            How many.
        seed
            Of all randomness.
        kind
            How they are drawn: ``sufficient`` statistics, or ``examples``.
        """
        settings = self.settings
        statistics = draw_linear_statistics(
            seed,
            num_experiments=count,
            num_samples=settings.samples,
            dim=settings.dim,
            num_devices=settings.devices,
            kind=kind,
        )
        return LinearGaussian(statistics)

    def planner_arguments(self) -> dict[str, Any]:
        """The keyword arguments of :func:`flmc.plan` that the base case decides, by name."""
        return {
            "num_rounds": self.settings.rounds,
            "num_burn_in": self.settings.burn_in,
            "start": self.settings.start,
            "scheduler": SCHEDULERS.build(self.settings.scheduling),
        }


PAPER = BaseCase()
"""The paper's own base case."""
