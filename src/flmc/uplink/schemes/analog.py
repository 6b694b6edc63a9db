"""The analog uplink: devices send their clipped gradients as they are, scaled so that they arrive
with the gain."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from flmc.base.arrays import Array
from flmc.base.clipping import clip
from flmc.base.errors import UnknownPrivacy
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.neighbours import moves, relation_argument
from flmc.privacy.transmissions import Transmissions
from flmc.uplink.csi import as_received
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Analog(Uplink):
    """Uplink that sends the clipped gradient itself, scaled to the gain.

    Attributes
    ----------
    clip, clipping, fading, snr_db, average_snr_db, noise_power, modulation, csi_error
        Settings of every uplink, described in :class:`flmc.Uplink`. With ``clipping="norm"`` the
        norm of what is sent is bounded: replaced data change the symbols of a round by at most
        twice the clip in norm, and a round takes at most the energy of one entry at the clip.
    example_clip, example_norm, example_shrink, batch_share
        Settings of every uplink about single examples.

    Examples
    --------
    >>> flmc.Analog(clip=2.0).symbols(np.array([[1.0, -3.0, np.nan]]), None).tolist()
    [[1.0, -2.0, 0.0]]
    """

    scheme: ClassVar[str] = "analog"
    standard_symbols: ClassVar[bool] = True
    published_step_size: ClassVar[float | None] = 1.28e-4

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol: the clip."""
        return self.clip

    @property
    def slope(self) -> float:
        """Slope of the mean symbol: the share of a gradient that clipping examples leaves; 1 where
        examples are not clipped, because the symbol is the gradient."""
        return self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Clipped gradients, (..., device, dim)."""
        return self.clipped(gradient)

    def privacy_event(
        self,
        transmissions: Iterable[tuple[float, int]],
        neighbouring: str = "device",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of the values that one device sends, in the worst case.

        A value moves by at most twice the clip if all data of a device are replaced. If one example
        is replaced and bounded, it moves by at most twice what an example may add to a gradient
        entry: the example's bound over ``batch_share``. Where the unit is absent or put to zero,
        its value is compared with 0, and so moves by the bound once.
        """
        self.check_relation(neighbouring, relation)
        sent = tuple(transmissions)
        if not self.transmits_like(Analog):
            return super().privacy_event(sent, neighbouring, relation)
        if self.clips_norm and self.estimated is not None:
            raise UnknownPrivacy(
                "with csi_error and clipping 'norm' the power of a round may be in one entry: ask"
                " event_of_rounds, which knows how many there are"
            )
        # Replacing data can move an entry from one end of [-clip, clip] to the other. A silent
        # device and one that sends 0 are the same on the air.
        if neighbouring == "device":
            shift = moves(relation) * self.clip
        elif self.moves_like_device(relation):
            shift = 2.0 * self.clip
        else:
            shift = moves(relation) * self.example_part
        return as_received(self, GaussianEvent(shift, self.noise_power, sent))

    @property
    def shares_power(self) -> bool:
        """Whether one bound limits the energy of all symbols of a round together: it does where the
        norm of a gradient is clipped, because the symbols are the gradient's entries."""
        return self.clips_norm

    def shares_move(self, neighbouring: str) -> bool:
        """Whether one bound limits how far all symbols of a round together can move between
        neighbouring data: it does where the norm of the local gradient, or of one example's
        gradient, is bounded."""
        return self.clips_norm or super().shares_move(neighbouring)

    def largest_move(self, dim: int, neighbouring: str, relation: str = "replace") -> float:
        """Largest norm of the difference of a round's symbols between neighbouring data.

        It is twice the smaller of two bounds. The norm of a device's gradient is at most the clip,
        times the root of ``dim`` if entries are clipped one by one. If one example is replaced,
        what it adds to the gradient has a bounded norm, too, and clipping a device's gradient moves
        two gradients no further apart. Where the unit is absent or put to zero, what it adds counts
        once; the gradient of a device without one example may still lie anywhere within the clip.
        """
        root = math.sqrt(dim)
        bound = self.clip if self.clips_norm else self.clip * root
        if neighbouring == "device":
            return moves(relation) * bound
        if not self.clips_examples:
            return 2.0 * bound
        part = self.example_part if self.example_norm is not None else self.example_part * root
        return min(2.0 * bound, moves(relation) * part)

    def shared_event(
        self,
        rounds: Transmissions,
        dim: int,
        neighbouring: str = "example",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of rounds in which one bound limits how far all symbols together can move
        between neighbouring data: exactly the Gaussian mechanism, with :meth:`largest_move` as
        sensitivity."""
        if not self.transmits_like(Analog):
            return super().shared_event(rounds, dim, neighbouring, relation)
        self.check_relation(neighbouring, relation)
        move = self.largest_move(dim, neighbouring, **relation_argument(relation))
        return as_received(self, GaussianEvent(move, self.noise_power, rounds), dim)

    def mean_symbol(self, gradient: Array) -> Array:
        """Clipped gradient: the symbol itself, because nothing is random."""
        return clip(gradient, self.clip)
