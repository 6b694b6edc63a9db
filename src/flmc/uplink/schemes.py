"""The uplinks that flmc brings: digital (one random bit per entry), analog (scaled values), and
ideal (a reference without channel)."""

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
from flmc.privacy.shifted_bit_event import ShiftedBitEvent
from flmc.uplink.fading import Fading
from flmc.uplink.fadings import ConstantFading
from flmc.uplink.link import Link, quantise
from flmc.uplink.links import Sigmoid
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Digital(Uplink):
    """Uplink with one random bit per entry, sent as a BPSK symbol: clip, quantise, transmit -1 or
    +1.

    Attributes
    ----------
    clip, fading, snr_db, noise_power, example_clip, example_shrink
        Settings of every uplink, described in :class:`flmc.Uplink`.
    link
        Probability of a +1 bit given the clipped gradient; ``Sigmoid(0.05)`` by default. It must be
        a probability that never decreases on [-clip, clip].

    Examples
    --------
    >>> uplink = flmc.Digital(link=flmc.Sigmoid(0.1), clip=20.0, snr_db=30)
    >>> uplink.slope, uplink.power_limit
    (0.05, 1000.0)
    >>> uplink.symbols(np.array([[-1.0, 1.0]]), uniform=np.array([[0.9, 0.1]])).tolist()
    [[-1.0, 1.0]]
    """

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
        # A link whose shape depends on the clip learns it here; the field is frozen, hence the
        # detour.
        object.__setattr__(self, "link", self.link.bound_to(self.clip))
        self.link.check(self.clip)

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol: 1, that of a bit."""
        return 1.0

    @property
    def slope(self) -> float:
        """Slope of the link at 0, times the share of a gradient that clipping examples leaves."""
        return self.link.slope(self.clip) * self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Bits in {-1, +1} for the clipped gradients, (..., device, dim).

        Parameters
        ----------
        gradient
            Local gradients, (..., device, dim).
        uniform
            Random numbers drawn uniformly from [0, 1), in the same shape or with more leading axes;
            None is refused.
        """
        if uniform is None:
            raise InvalidSetting(
                "the digital uplink needs one uniform random number per entry, got none"
            )
        return quantise(self.link.bounded_probability(self.clipped(gradient), self.clip), uniform)

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Privacy event of the bits that one device sends, in the worst case.

        If all data of a device are replaced, a bit has one of the two extreme probabilities. If one
        example is replaced, its gradient entry moves by at most twice the example clip, from an
        unknown place.

        Parameters
        ----------
        transmissions, neighbouring
            Gains with the number of entries sent with each; what is replaced: ``device`` or
            ``example``.

        Returns
        -------
        Event
            A ``BitEvent``, or a ``ShiftedBitEvent`` for one example.

        Raises
        ------
        UnknownPrivacy
            If a subclass transmits in its own way, or its link goes beyond the extremes.
        """
        sent = tuple(transmissions)
        whole_device = neighbouring == "device" or self.hides_like_a_device
        if not self.transmits_like(Digital) or not self.link.within_extremes:
            return super().privacy_event(sent, neighbouring)
        # Between the ends nothing is known of a link that is not proven, and a jump reveals all the
        # same.
        if whole_device or not self.link.proven or self.link.jumps:
            high, low = self.link.extremes(self.clip)
            return BitEvent(high, low, self.noise_power, sent)
        return ShiftedBitEvent(
            self.link, self.clip, 2.0 * self.checked_example_clip, self.noise_power, sent
        )

    def mean_symbol(self, gradient: Array) -> Array:
        r"""Expected bit :math:`\psi = 2\Phi(g) - 1` of the clipped gradient, in [-1, 1].

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """
        return self.link.mean(clip(gradient, self.clip), self.clip)

    def symbol_variance(self, gradient: Array) -> Array:
        r"""Variance of a bit given the gradient, :math:`1 - \psi^2` with the mean :math:`\psi`.

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """
        return 1.0 - np.square(self.mean_symbol(gradient))


@dataclass(frozen=True)
class Analog(Uplink):
    """Uplink that sends the clipped gradient itself, scaled to the gain.

    Attributes
    ----------
    clip, fading, snr_db, noise_power, example_clip, example_shrink
        Settings of every uplink, described in :class:`flmc.Uplink`.

    Examples
    --------
    >>> flmc.Analog(clip=2.0).symbols(np.array([[1.0, -3.0, np.nan]]), None).tolist()
    [[1.0, -2.0, 0.0]]
    """

    scheme: ClassVar[str] = "analog"

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol: the clip."""
        return self.clip

    @property
    def slope(self) -> float:
        """Share of a gradient that clipping examples leaves; 1 without it, because the symbol is
        the gradient."""
        return self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Clipped gradients, (..., device, dim).

        Parameters
        ----------
        gradient, uniform
            Local gradients, (..., device, dim); random numbers are not used.
        """
        return self.clipped(gradient)

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Privacy event of the values that one device sends, in the worst case.

        A value moves by at most twice the clip, or twice the example clip if one example is
        replaced.

        Parameters
        ----------
        transmissions, neighbouring
            Gains with the number of entries sent with each; what is replaced: ``device`` or
            ``example``.

        Returns
        -------
        Event
            A ``GaussianEvent``.

        Raises
        ------
        UnknownPrivacy
            If a subclass transmits in its own way.
        """
        sent = tuple(transmissions)
        whole_device = neighbouring == "device" or self.hides_like_a_device
        if not self.transmits_like(Analog):
            return super().privacy_event(sent, neighbouring)
        # Replacing data can move an entry from one end of [-clip, clip] to the other.
        shift = 2.0 * (self.clip if whole_device else self.checked_example_clip)
        return GaussianEvent(shift, self.noise_power, sent)

    def mean_symbol(self, gradient: Array) -> Array:
        """Clipped gradient: the symbol itself, because nothing is random.

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """
        return clip(gradient, self.clip)


@dataclass(frozen=True)
class Ideal(Uplink):
    """Reference without quantiser, clip and channel: the exact sum of gradients with exactly the
    noise that Langevin sampling asks for.

    It is the analog uplink with unlimited power and clip; its gain is always the calibrated one,
    and none of its settings can be changed."""

    scheme: ClassVar[str] = "ideal"
    noise_is_exact: ClassVar[bool] = True

    clip: float = field(default=np.inf, init=False)
    fading: Fading = field(default_factory=lambda: ConstantFading(1.0), init=False)
    snr_db: float = field(default=np.inf, init=False)
    noise_power: float = field(default=1.0, init=False)
    example_clip: None = field(default=None, init=False)
    example_shrink: float = field(default=1.0, init=False)

    def __post_init__(self) -> None:
        """Check nothing, because nothing can be set."""

    @property
    def peak(self) -> float:
        """1, which is of no consequence: the power limit is infinite."""
        return 1.0

    @property
    def slope(self) -> float:
        """1, because the symbol is the gradient."""
        return 1.0

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Gradients themselves, (..., device, dim).

        Parameters
        ----------
        gradient, uniform
            Local gradients, (..., device, dim); random numbers are not used.
        """
        return gradient

    def privacy_event(
        self, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device"
    ) -> Event:
        """Refuse to state a privacy event, by :class:`~flmc.base.errors.UnknownPrivacy`: exact
        gradients are transmitted.

        Parameters
        ----------
        transmissions, neighbouring
            Not used.
        """
        if not self.transmits_like(Ideal):
            return super().privacy_event(transmissions, neighbouring)
        raise UnknownPrivacy("the ideal uplink hides nothing: it transmits exact gradients")

    def mean_symbol(self, gradient: Array) -> Array:
        """Gradients themselves.

        Parameters
        ----------
        gradient
            Gradient entries, in any shape.
        """
        return gradient
