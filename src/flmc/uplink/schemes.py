"""The uplinks that flmc brings: digital (one random bit an entry), analog (scaled values), and
ideal (a reference)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.moving_bit_event import MovingBitEvent
from flmc.uplink.fading import ConstantFading, Fading
from flmc.uplink.link import Link, quantise
from flmc.uplink.links import Sigmoid
from flmc.uplink.uplink import Uplink


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
            raise InvalidSetting(
                f"link must be a flmc.Link, for example Sigmoid(0.05); got {self.link!r}"
            )
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
            raise InvalidSetting(
                "the digital uplink needs one uniform random number per entry, got none"
            )
        return quantise(self.link.bounded_probability(self.clipped(gradient), self.clip), uniform)

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Bits at the two extreme probabilities; if one example is replaced, bits of an entry that
        moves by at most twice the example clip."""
        sent = tuple(transmissions)
        whole_device = neighbouring == "device" or self.hides_like_a_device
        if not self.transmits_like(Digital) or not self.link.within_extremes:
            return super().privacy_event(sent, neighbouring)
        # Between the ends nothing is known of a link that is not proven, and a jump reveals all the
        # same.
        if whole_device or not self.link.proven or self.link.jumps:
            high, low = self.link.extremes(self.clip)
            return BitEvent(high, low, self.noise_power, sent)
        return MovingBitEvent(
            self.link, self.clip, 2.0 * self.checked_example_clip, self.noise_power, sent
        )

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

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Values that move by at most twice the clip, or twice the example clip if one example is
        replaced."""
        sent = tuple(transmissions)
        whole_device = neighbouring == "device" or self.hides_like_a_device
        if not self.transmits_like(Analog):
            return super().privacy_event(sent, neighbouring)
        shift = 2.0 * (self.clip if whole_device else self.checked_example_clip)
        return GaussianEvent(shift, self.noise_power, sent)

    def mean_symbol(self, gradient: Array) -> Array:
        """Nothing is random: the symbol itself."""
        return clip(gradient, self.clip)


@dataclass(frozen=True)
class Ideal(Uplink):
    """No quantiser, no clip, no channel: the exact sum of gradients and exactly the noise that
    Langevin asks for.

    It is the analog uplink with unlimited power and clip; its gain is always the calibrated one.
    """

    scheme: ClassVar[str] = "ideal"
    noise_is_exact: ClassVar[bool] = True

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

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Refused: exact gradients are transmitted."""
        if not self.transmits_like(Ideal):
            return super().privacy_event(transmissions, neighbouring)
        raise UnknownPrivacy("the ideal uplink hides nothing: it transmits exact gradients")

    def mean_symbol(self, gradient: Array) -> Array:
        """The gradients themselves."""
        return gradient
