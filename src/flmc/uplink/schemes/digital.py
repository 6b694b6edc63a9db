"""The digital uplink: devices send one random bit for each entry of their clipped gradient."""

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
from flmc.privacy.neighbours import moves
from flmc.privacy.noiseless_bits import NoiselessBitEvent
from flmc.privacy.one_sided_bits import AbsentBitEvent, ZeroedBitEvent
from flmc.privacy.shifted_bit_event import SharedShiftEvent, ShiftedBitEvent
from flmc.privacy.transmissions import Transmissions
from flmc.uplink.csi import as_received
from flmc.uplink.link import Link, quantise
from flmc.uplink.links import Sigmoid
from flmc.uplink.noise import is_normal
from flmc.uplink.symbol_format import BITS, SymbolFormat
from flmc.uplink.uplink import Uplink

_STEEP, _VANISHING = 20.0, 1e-280
"""A link counts as a jump if its slope times the clip is above ``_STEEP`` and its smallest
probability of a +1 bit is below ``_VANISHING``, where ratios of probabilities cannot be
computed."""


@dataclass(frozen=True)
class Digital(Uplink):
    """Uplink with one random bit per entry, sent as a BPSK symbol: clip, quantise, transmit -1 or
    +1.

    Attributes
    ----------
    clip, clipping, fading, snr_db, average_snr_db, noise_power, modulation, csi_error
        Settings of every uplink, described in :class:`flmc.Uplink`.
    example_clip, example_norm, example_shrink, batch_share
        Settings of every uplink about single examples.
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
    randomised: ClassVar[bool] = True
    standard_symbols: ClassVar[bool] = True
    published_step_size: ClassVar[float | None] = 8.28e-3

    link: Link = field(default_factory=Sigmoid)

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.link, Link):
            raise InvalidSetting(
                f"link must be a flmc.Link, for example Sigmoid(0.05); got {self.link!r}"
            )
        # A link whose shape depends on the clip is given the clip here; the dataclass is frozen, so
        # that the link cannot be assigned directly.
        object.__setattr__(self, "link", self.link.bound_to(self.clip))
        self.link.check(self.clip)

    @property
    def symbol_format(self) -> SymbolFormat:
        """Alphabet of the symbols: one bit, -1 or +1."""
        return BITS

    @property
    def bit_variance(self) -> float:
        """Largest variance of a bit: 1, that of a fair bit."""
        return 1.0

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol: 1, the magnitude of every bit."""
        return 1.0

    @property
    def slope(self) -> float:
        """Slope of the link at 0, times the share of a gradient that clipping examples leaves."""
        return self.link.slope(self.clip) * self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Bits in {-1, +1} for the clipped gradients, (..., device, dim)."""
        if uniform is None:
            raise InvalidSetting(
                "the digital uplink needs one uniform random number per entry, got none"
            )
        return quantise(self.link.bounded_probability(self.clipped(gradient), self.clip), uniform)

    def privacy_event(
        self,
        transmissions: Iterable[tuple[float, int]],
        neighbouring: str = "device",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of the bits that one device sends, in the worst case.

        If all data of a device are replaced, a bit is +1 with one of the link's two probabilities
        at the clip, plus or minus. If one example is replaced, a gradient entry moves, from an
        unknown value, by at most twice what an example may add to it: the example's bound over
        ``batch_share``. If the noise is not normal, the cost is computed as if bits were received
        without noise, and one example costs as much as a whole device.

        An example that is absent or put to zero moves an entry by its bound once. The bits of a
        device that is put to zero are those of a gradient of 0; a device that is absent is silent.
        """
        self.check_relation(neighbouring, relation)
        sent = tuple(transmissions)
        absent = neighbouring == "device" and relation == "add_remove"
        if self._counts_bits_alone:
            # Without the law of the noise nothing hides that a device is silent.
            if absent:
                raise UnknownPrivacy(
                    "relation 'add_remove' of a device needs normal noise, got noise_law"
                    f" {type(self.noise_law).__name__}: bits alone hide what a device sends, not"
                    " whether it sends; use 'zero_out' or 'replace'"
                )
            high, low = self.link.extremes(self.clip)
            return NoiselessBitEvent(min(low, 1.0 - high, 0.5), self.noise_power, sent)
        whole_device = neighbouring == "device" or self.moves_like_device(relation)
        if not self.transmits_like(Digital) or not self.link.within_extremes:
            return super().privacy_event(sent, neighbouring, relation)
        if absent:
            high, low = self.link.extremes(self.clip)
            return as_received(self, AbsentBitEvent(high, low, self.noise_power, sent))
        if neighbouring == "device" and relation == "zero_out" and not self._jumps:
            high, low = self.link.extremes(self.clip)
            zero = float(self.link.bounded_probability(np.zeros(1), self.clip)[0])
            return as_received(self, ZeroedBitEvent(high, low, zero, self.noise_power, sent))
        # Nothing is known of a link without proven shape except its values at the clip, and a link
        # that jumps reveals completely that a gradient entry moved across 0.
        if whole_device or not self.link.accounts_moves or self._jumps:
            high, low = self.link.extremes(self.clip)
            return as_received(self, BitEvent(high, low, self.noise_power, sent))
        shift = moves(relation) * self.example_part
        event = ShiftedBitEvent(self.link, self.clip, shift, self.noise_power, sent)
        return as_received(self, event)

    def looseness(self, neighbouring: str, relation: str = "replace") -> str | None:
        """Reason why the computed epsilon may be far above the smallest one that holds: the noise
        is not normal and therefore not counted, or one example is accounted like a whole device
        because too little is proven about the link. None if neither is the case."""
        if self._counts_bits_alone:
            return (
                "only the randomness of the bits is counted, which holds for any noise that does"
                f" not depend on the data, as {type(self.noise_law).__name__} must not"
            )
        if neighbouring == "device":
            loose = relation == "zero_out" and self._jumps
            return "a device put to zero is accounted like one that is replaced" if loose else None
        if self.moves_like_device(relation):
            return None
        if self.link.accounts_moves and not self._jumps:
            return None
        return f"one example is accounted like a whole device with the link {self.link.name}"

    @property
    def hides_without_noise(self) -> bool:
        """Whether bits are random for all gradients, by a link of proven shape, and this class
        takes and clips gradients, draws bits and states its privacy as ``Digital`` does."""
        own = type(self)
        proven = own.symbols is Digital.symbols and own.privacy_event is Digital.privacy_event
        if not (proven and self._bounds_as_proven and self.link.within_extremes):
            return False
        high, low = self.link.extremes(self.clip)
        return min(low, 1.0 - high) > 0.0

    @property
    def _counts_bits_alone(self) -> bool:
        """Whether privacy is computed from the randomness of the bits alone, because this uplink's
        noise law is not normal and the bits are proven to hide data without noise."""
        return not is_normal(self.noise_law) and self.hides_without_noise

    @property
    def _jumps(self) -> bool:
        """Whether the link jumps, or is so steep that its probabilities vanish in double precision:
        then one example is accounted like a whole device, which is an upper bound."""
        if self.link.jumps:
            return True
        # A vanishing probability alone is not enough: that of the linear link may be 0 at the clip
        # without any jump, so the slope must be steep too.
        steep = self.link.slope(self.clip) * self.clip > _STEEP
        return steep and self.link.extremes(self.clip)[1] < _VANISHING

    def shared_event(
        self,
        rounds: Transmissions,
        dim: int,
        neighbouring: str = "example",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of rounds of ``dim`` bits if one example, whose gradient has a bounded
        norm, is replaced; ``rounds`` holds gains with their numbers of rounds.

        The device's gradient moves by at most twice the norm of what an example may add to it, or
        by that norm if the example is absent or put to zero: clipping the gradient, by entry or by
        norm, moves two gradients no further apart.
        """
        each = [(gain, dim * count) for gain, count in rounds]
        if self._counts_bits_alone:
            return self.privacy_event(each, "example", relation)
        if not self.transmits_like(Digital) or not self.link.within_extremes:
            return super().shared_event(rounds, dim, neighbouring, relation)
        if not self.link.accounts_moves or self._jumps or self.clips_norm:
            return self.privacy_event(each, "example", relation)
        self.check_relation(neighbouring, relation)
        shift = moves(relation) * self.example_part
        event = SharedShiftEvent(self.link, self.clip, shift, dim, self.noise_power, rounds)
        return as_received(self, event, dim)

    def mean_symbol(self, gradient: Array) -> Array:
        r"""Expected bit :math:`\psi = 2\Phi(g) - 1` of the clipped gradient, in [-1, 1]."""
        return self.link.mean(clip(gradient, self.clip), self.clip)

    def symbol_variance(self, gradient: Array) -> Array:
        r"""Variance of a bit given the gradient, :math:`1 - \psi^2` with the mean :math:`\psi`."""
        return 1.0 - np.square(self.mean_symbol(gradient))

    def level_probabilities(self, gradient: Array) -> Array:
        """Probabilities of -1 and +1, (..., 2), given clipped gradient entries."""
        high = self.link.bounded_probability(gradient, self.clip)
        return np.stack([1.0 - high, high], axis=-1)
