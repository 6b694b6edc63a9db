r"""An uplink is what a device does to its gradient, and the radio it uses: ``Digital``, ``Analog`` or ``Ideal``.

Each says what the planner needs: the peak of a symbol (power), the slope :math:`\kappa` (how a small gradient is
scaled), the mean and variance of a symbol given the gradient, and the largest variance that quantisation adds per
device."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from typing import ClassVar, TypeVar

import numpy as np

from flmc import checks
from flmc.channel import power_from_snr
from flmc.checks import Array
from flmc.clip import clip, clip_norm
from flmc.errors import InvalidSetting
from flmc.fading import ConstantFading, Fading
from flmc.quantise import Link, Sigmoid, quantise

AnyUplink = TypeVar("AnyUplink", bound="Uplink")


@dataclass(frozen=True)
class Uplink(ABC):
    """What the schemes share. ``snr_db`` is the largest signal-to-noise ratio, transmit power limit over noise
    power."""

    scheme: ClassVar[str]
    random_bits: ClassVar[bool] = False
    """Whether a symbol needs a random number."""
    clips_norm: ClassVar[bool] = False
    """Whether the norm of a device's gradient is clipped first, for comparisons with the literature; limits and privacy
    take no notice of it."""
    bit_variance: ClassVar[float] = 0.0
    """Largest variance that the quantiser adds per device and entry."""

    clip: float = 30.0
    fading: Fading = field(default_factory=ConstantFading)
    snr_db: float = 25.0
    noise_power: float = 1.0
    example_clip: float | None = None
    """Bound c of the gradient entries of a single example, before they are summed; None: examples are not clipped."""
    example_shrink: float = 1.0
    """Factor rho by which that shrinks the gradient, from public knowledge."""

    def __post_init__(self) -> None:
        checks.positive("clip", self.clip, extreme=1e15)
        if self.example_clip is not None:
            checks.positive("example_clip", self.example_clip)
        if not 0 < checks.number("example_shrink", self.example_shrink) <= 1:
            raise InvalidSetting(f"example_shrink must lie in (0, 1], got {self.example_shrink!r}")
        checks.between("snr_db", self.snr_db, -300.0, 400.0)
        checks.positive("noise_power", self.noise_power, extreme=1e30)
        if not isinstance(self.fading, Fading):
            raise InvalidSetting(f"fading must be a flmc.Fading, for example ConstantFading(0.04); got {self.fading!r}")

    @property
    def power_limit(self) -> float:
        """Largest mean power of a device's symbols over the entries of a round, P_0."""
        return power_from_snr(self.snr_db, self.noise_power)

    @property
    @abstractmethod
    def peak(self) -> float:
        """Largest magnitude of a symbol before the transmit amplitude."""

    @property
    @abstractmethod
    def slope(self) -> float:
        """Factor kappa by which the expected symbol scales a small gradient."""

    @abstractmethod
    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """What the devices transmit, before the amplitude."""

    def clipped(self, gradient: Array) -> Array:
        """Gradients (..., device, dim) as they are quantised or scaled."""
        return clip(clip_norm(gradient, self.clip) if self.clips_norm else gradient, self.clip)

    @abstractmethod
    def mean_symbol(self, gradient: Array) -> Array:
        """Expected symbol, clipping included."""

    def symbol_variance(self, gradient: Array) -> Array:
        """Variance of the symbol given the gradient."""
        return np.zeros_like(gradient)


@dataclass(frozen=True)
class Digital(Uplink):
    """One stochastic bit per entry, sent as a BPSK symbol: clip, quantise, transmit -1 or +1."""

    scheme: ClassVar[str] = "digital"
    random_bits: ClassVar[bool] = True
    bit_variance: ClassVar[float] = 1.0

    link: Link = field(default_factory=Sigmoid)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.link, Link):
            raise InvalidSetting(f"link must be a flmc.Link, for example Sigmoid(0.05); got {self.link!r}")
        object.__setattr__(self, "link", self.link.bound_to(self.clip))
        self.link.check(self.clip)

    @property
    def peak(self) -> float:
        """A bit has magnitude 1."""
        return 1.0

    @property
    def slope(self) -> float:
        """The link's slope at 0, times what clipping examples leaves of a gradient."""
        return self.link.slope(self.clip) * self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Bits in {-1, +1}."""
        if uniform is None:
            raise InvalidSetting("the digital uplink needs one uniform random number per entry, got none")
        return quantise(self.link.bounded_probability(self.clipped(gradient), self.clip), uniform)

    def mean_symbol(self, gradient: Array) -> Array:
        """Expected bit of the clipped gradient."""
        return self.link.mean(clip(gradient, self.clip), self.clip)

    def symbol_variance(self, gradient: Array) -> Array:
        """1 - mean^2."""
        return 1.0 - np.square(self.mean_symbol(gradient))


@dataclass(frozen=True)
class Analog(Uplink):
    """The clipped gradient itself, scaled."""

    scheme: ClassVar[str] = "analog"

    @property
    def peak(self) -> float:
        """The clip."""
        return self.clip

    @property
    def slope(self) -> float:
        """The symbol is the gradient, or what clipping examples leaves of it."""
        return self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Clipped gradients."""
        return self.clipped(gradient)

    def mean_symbol(self, gradient: Array) -> Array:
        """Nothing is random: the symbol itself."""
        return clip(gradient, self.clip)


@dataclass(frozen=True)
class Ideal(Uplink):
    """No quantiser, no clip, no channel: the exact sum of gradients and exactly the noise that Langevin asks for.

    It is the analog uplink with unlimited power and clip; its gain is always the calibrated one.
    """

    scheme: ClassVar[str] = "ideal"

    clip: float = field(default=np.inf, init=False)
    fading: Fading = field(default_factory=lambda: ConstantFading(1.0), init=False)
    snr_db: float = field(default=np.inf, init=False)
    noise_power: float = field(default=1.0, init=False)
    example_clip: None = field(default=None, init=False)
    example_shrink: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        """Nothing to check: nothing can be set."""

    @property
    def peak(self) -> float:
        """Of no consequence: the power limit is infinite."""
        return 1.0

    @property
    def slope(self) -> float:
        """The symbol is the gradient."""
        return 1.0

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """The gradients themselves."""
        return gradient

    def mean_symbol(self, gradient: Array) -> Array:
        """The gradients themselves."""
        return gradient


def replace(uplink: AnyUplink, **changes: object) -> AnyUplink:
    """A copy with some settings changed, checked anew."""
    known = {f.name for f in dataclasses.fields(uplink) if f.init}
    unknown = sorted(set(changes) - known)
    if unknown:
        raise InvalidSetting(
            f"{type(uplink).__name__} has no setting {unknown[0]!r}; it has {', '.join(sorted(known)) or 'none'}"
        )
    return dataclasses.replace(uplink, **changes)  # type: ignore[arg-type]  # checked by the class
