"""Readings of the paper, that is, ways to take its text where that is ambiguous; and the base case,
the settings that all its figures share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.data.synthetic import draw_linear_statistics
from flmc.models.linear import LinearGaussian
from flmc.papers.request import change_base_case
from flmc.planning.limits import Limits
from flmc.settings.construction import make_uplink
from flmc.settings.registered import SCHEDULERS
from flmc.settings.schema import Settings, merge
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Reading:
    """One interpretation of the paper's text: how privacy is accounted, which Langevin limit bounds
    the gain, and which step the sampler takes.

    Attributes
    ----------
    words
        Description in words.
    privacy
        Criterion of the privacy limit, as in :class:`flmc.Limits`; ``by entry`` for the conjecture
        of :mod:`flmc.papers.qflmc.design_search`.
    digital_langevin, analog_langevin
        Kind of Langevin limit of each scheme, as in :class:`flmc.Limits`.
    paper_steps
        Whether the printed step sizes are used; else the planner chooses the step.
    """

    name: str
    words: str
    privacy: str
    digital_langevin: str
    analog_langevin: str
    paper_steps: bool

    @property
    def conjecture(self) -> bool:
        """Whether this is a guess at the authors' program, and no sound privacy rule."""
        return self.privacy == "by entry"

    @property
    def label(self) -> str:
        """The reading's name for titles; a conjecture (a guess at the authors' program) is marked
        as one."""
        return f"{self.name} (conjecture)" if self.conjecture else self.name

    @property
    def file_name(self) -> str:
        """The reading's name in a form that can be part of a file name."""
        return self.name.replace(" ", "_")

    def limits(self, scheme: str, epsilon: float | None, delta: float) -> Limits:
        """The limits under which ``scheme`` is planned in this reading. ``epsilon`` and ``delta``
        are the privacy budget of a round (epsilon None: without privacy); a conjecture has no
        budget in its limits, because it is no sound privacy rule."""
        langevin = self.digital_langevin if scheme == "digital" else self.analog_langevin
        if epsilon is None or self.conjecture:
            return Limits(delta=delta, privacy="off", langevin=langevin)
        return Limits(epsilon=epsilon, delta=delta, privacy=self.privacy, langevin=langevin)


READINGS = (
    Reading(
        "literal",
        "all three constraints as printed, the half restored in T(x)",
        "paper",
        "paper",
        "paper",
        True,
    ),
    Reading(
        "unlimited",
        "as literal, but the Langevin noise requirement is not enforced",
        "paper",
        "off",
        "off",
        True,
    ),
    Reading(
        "calibrated",
        "ours: tail of the exact pair, calibrated noise, automatic step",
        "tail",
        "calibrated",
        "calibrated",
        False,
    ),
    Reading(
        "by entry",
        "a conjecture about the authors' program, not a sound privacy rule: every entry gets"
        " epsilon/m, and the Langevin noise requirement limits analog only",
        "by entry",
        "off",
        "paper",
        True,
    ),
)

# The grids of the figures. DELTA is the privacy budget's delta of a round. Figure 2 varies the SNR
# at one epsilon, figures 3 and 4 vary epsilon at one SNR, and figure 4 has a curve for each slope
# parameter.
DELTA = 0.01
SNR_DB = tuple(2.5 * i for i in range(13))
EPSILON_OF_SNR_FIGURE = 5.0
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.5, 8.0, 9.0, 10.0, 12.5, 15.0, 17.5, 20.0)
SNR_OF_EPSILON_FIGURES = 25.0
SLOPES = (0.01, 0.03, 0.05, 0.07)
EPSILONS_OF_SLOPES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 10.0, 12.0)


CHANGEABLE = (
    *("devices", "dim", "samples", "clip", "clipping", "modulation", "fading", "csi_error"),
    *("noise_power", "link", "slope_parameter", "scheduling", "rounds", "burn_in", "start"),
)
"""Settings of the base case that a user may change; the figures themselves vary scheme, SNR, budget
and, in figure 4, the slope parameter."""


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
        """The paper's base case with the settings ``changes`` replaced: values by name, as the user
        wrote them. ``InvalidSetting`` for a setting that cannot be changed, a burn-in that leaves
        no rounds, or an automatic link."""
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
        """Number of rounds of a run that are kept: those after burn-in."""
        burn_in = self.settings.burn_in
        return self.settings.rounds - (0 if burn_in == "auto" else burn_in)

    def uplink(self, scheme: str, snr_db: float = 25.0, slope: float | None = None) -> Uplink:
        """The uplink of ``scheme`` with the base case's channel and clipping, at an SNR in dB;
        ``slope`` replaces the base case's slope parameter of the digital link."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        if scheme != "digital":
            given = {n: v for n, v in given.items() if n not in ("link", "slope_parameter")}
        elif slope is not None:
            given["slope_parameter"] = slope
            given["link"] = str(given.get("link", "sigmoid")).partition(":")[0]
        return make_uplink(Settings(**{**given, "scheme": scheme, "snr_db": snr_db}))

    def draw(self, count: int, seed: int, kind: str) -> LinearGaussian:
        """Linear regression on ``count`` data sets of the paper's law, drawn as ``sufficient``
        statistics or as ``examples``."""
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
"""The base case with the paper's own settings, nothing changed."""
