"""Readings of the paper, which are interpretations of its text where it is ambiguous; and the base
case, the settings that all its figures share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.data.synthetic import draw_linear_statistics
from flmc.models.linear import LinearGaussian
from flmc.papers.request import change_base_case
from flmc.planning.limits import Limits
from flmc.settings.construction import make_uplink, scheme_of
from flmc.settings.registered import SCHEDULERS
from flmc.settings.schema import Settings, merge
from flmc.uplink.schemes import Analog, Digital
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Reading:
    """One interpretation of the paper's text: how privacy is accounted, how the gain is limited so
    that enough noise remains for the sampler, and which step size it takes.

    Attributes
    ----------
    name
        Name of the interpretation.
    words
        Description in words.
    privacy
        Criterion of the privacy limit, as in :class:`flmc.Limits`; ``by entry`` for the conjecture
        of :mod:`flmc.papers.qflmc.design_search`.
    digital_langevin, analog_langevin
        Mode of the limit of the gain that leaves the sampler enough noise, for each scheme:
        ``paper``, ``calibrated`` or ``off``, as ``langevin`` of :class:`flmc.Limits`.
    paper_steps
        Whether the printed step sizes are used; False: the planner chooses the step size.
    """

    name: str
    words: str
    privacy: str
    digital_langevin: str
    analog_langevin: str
    paper_steps: bool

    @property
    def conjecture(self) -> bool:
        """Whether this interpretation is a guess at the authors' program, which does not guarantee
        privacy."""
        return self.privacy == "by entry"

    @property
    def label(self) -> str:
        """The interpretation's name for titles, followed by ``(conjecture)`` if it is a guess at
        the authors' program."""
        return f"{self.name} (conjecture)" if self.conjecture else self.name

    @property
    def file_name(self) -> str:
        """The interpretation's name with underscores for spaces, for file names."""
        return self.name.replace(" ", "_")

    def limits(self, scheme: str, epsilon: float | None, delta: float) -> Limits:
        """The limits with which flmc plans ``scheme`` under this interpretation. ``epsilon`` and
        ``delta`` are the privacy budget of a round (epsilon None: without privacy). For a
        conjecture the limits have no privacy budget, because its rule does not guarantee
        privacy."""
        langevin = self.digital_langevin if scheme == "digital" else self.analog_langevin
        if epsilon is None or self.conjecture:
            return Limits(delta=delta, privacy="off", langevin=langevin)
        return Limits(epsilon=epsilon, delta=delta, privacy=self.privacy, langevin=langevin)

    def for_own(self, settings: Settings) -> Settings | None:
        """The ``settings`` of a user's own curve, with privacy criterion, Langevin limit and step
        size of this reading where the user gave none. None if the scheme is neither digital nor
        analog, the paper's two, because a reading says nothing about other schemes."""
        kind = scheme_of(settings)
        if not issubclass(kind, (Digital, Analog)):
            return None
        changes: dict[str, Any] = {}
        if self.decides_privacy(settings):
            changes["privacy"] = "off" if self.conjecture else self.privacy
        if not settings.model_fields_set & {"langevin", "aim"}:
            digital = issubclass(kind, Digital)
            changes["langevin"] = self.digital_langevin if digital else self.analog_langevin
        if self.paper_steps and not settings.model_fields_set & _STEPS:
            changes["step_size"] = kind.published_step_size
        return settings.model_copy(update=changes)

    def decides_privacy(self, settings: Settings) -> bool:
        """Whether a user's own curve takes the privacy criterion of this reading: it does if none
        of its ``settings`` states how privacy is accounted."""
        return not settings.model_fields_set & _OF_PRIVACY

    def how_planned(self, settings: Settings) -> str:
        """Clause for a caption that says whether a user's own curve is planned as this reading
        says, and which of the curve's own ``settings`` override it."""
        if self.for_own(settings) is None:
            return (
                "planned by its own settings, not by the reading, which is of the digital and the"
                " analog scheme"
            )
        given = sorted(settings.model_fields_set & {*_OF_PRIVACY, *_STEPS, "langevin", "aim"})
        own = ", ".join(f"{name} = {getattr(settings, name)}" for name in given)
        return "planned as the reading says" + (f", but for its own {own}" if own else "")


_OF_PRIVACY = {"privacy", "scope", "neighbouring", "allocation"}
_STEPS = {"step_size", "effective_step_size"}
"""Settings with which a user's own curve states its privacy criterion (``_OF_PRIVACY``) or its step
itself, whatever the reading."""

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

# Values on the x axes of the paper's figures. Figure 2 varies the SNR at one epsilon; figures 3 and
# 4 vary epsilon at one SNR, and figure 4 has a curve for each slope parameter. Epsilon and DELTA
# are the privacy budget of one round.
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
"""Names of the settings, shared by all points of the figures, that a user may change. The figures
vary scheme, SNR, privacy budget and, in figure 4, the slope parameter."""


@dataclass(frozen=True)
class BaseCase:
    """Settings that all points of the paper's figures share.

    Attributes
    ----------
    settings
        Sizes, channel, link and rounds. The default values of flmc are those of the paper.
    """

    settings: Settings = field(default_factory=lambda: merge({}, {}))

    @classmethod
    def changed(cls, changes: Mapping[str, str]) -> BaseCase:
        """The paper's base case with the settings in ``changes`` replaced: values by name, as the
        user wrote them. ``InvalidSetting`` for a setting that cannot be changed, for a burn-in that
        is automatic or leaves no kept rounds, or for an automatic link."""
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
        """The uplink of ``scheme`` (digital or analog) with the channel and clipping of the base
        case, at an SNR in dB. ``slope`` is the slope parameter of the digital scheme's link; None:
        that of the base case."""
        given = {name: getattr(self.settings, name) for name in self.settings.model_fields_set}
        if scheme != "digital":
            given = {n: v for n, v in given.items() if n not in ("link", "slope_parameter")}
        elif slope is not None:
            given["slope_parameter"] = slope
            given["link"] = str(given.get("link", "sigmoid")).partition(":")[0]
        return make_uplink(Settings(**{**given, "scheme": scheme, "snr_db": snr_db}))

    def draw(self, count: int, seed: int, kind: str) -> LinearGaussian:
        """Linear regression on ``count`` synthetic data sets, drawn from the paper's law with
        ``seed``. ``kind`` says whether ``sufficient`` statistics or ``examples`` are drawn."""
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
        """Those keyword arguments of :func:`flmc.plan` that follow from the base case (rounds,
        burn-in, start and scheduler), by name."""
        return {
            "num_rounds": self.settings.rounds,
            "num_burn_in": self.settings.burn_in,
            "start": self.settings.start,
            "draw_at": "positions",
            "scheduler": SCHEDULERS.build(self.settings.scheduling),
        }


PAPER = BaseCase()
"""The base case with the settings of the paper, without changes."""
