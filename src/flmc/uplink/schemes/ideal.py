"""The ideal uplink: a reference without quantiser, clip and channel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import LATER
from flmc.base.errors import UnknownPrivacy
from flmc.privacy.event import Event
from flmc.uplink.fading import Fading
from flmc.uplink.fadings import ConstantFading
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Ideal(Uplink):
    """Reference without quantiser, clip and channel: the exact sum of gradients with exactly the
    noise that Langevin sampling asks for.

    It is the analog uplink with unlimited power and clip. Its gain is always the one at which the
    noise gives the temperature 1, and none of its settings can be changed."""

    scheme: ClassVar[str] = "ideal"
    standard_symbols: ClassVar[bool] = True
    published_step_size: ClassVar[float | None] = 1.28e-4  # the paper's step for the analog uplink
    noise_is_exact: ClassVar[bool] = True

    clip: float = field(default=np.inf, init=False)
    fading: Fading = field(default_factory=lambda: ConstantFading(1.0), init=False)
    snr_db: float = field(default=np.inf, init=False)
    noise_power: float = field(default=1.0, init=False)
    example_clip: None = field(default=None, init=False)
    example_shrink: float = field(default=1.0, init=False)
    example_norm: None = field(default=None, init=False, metadata=LATER)
    clipping: str = field(default="entry", init=False, metadata=LATER)
    modulation: str = field(default="real", init=False, metadata=LATER)
    csi_error: float = field(default=0.0, init=False, metadata=LATER)
    batch_share: float = field(default=1.0, init=False, metadata=LATER)
    average_snr_db: None = field(default=None, init=False, metadata=LATER)

    def __post_init__(self) -> None:
        """Check nothing, because nothing can be set."""

    @property
    def peak(self) -> float:
        """Largest magnitude of a symbol, 1 by convention: with an infinite power limit it has no
        effect."""
        return 1.0

    @property
    def slope(self) -> float:
        """Slope of the mean symbol: 1, because the symbol is the gradient."""
        return 1.0

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """The gradients themselves, (..., device, dim)."""
        return gradient

    def privacy_event(
        self,
        transmissions: Iterable[tuple[float, int]],
        neighbouring: str = "device",
        relation: str = "replace",
    ) -> Event:
        """Refuse to state a privacy event, by :class:`~flmc.base.errors.UnknownPrivacy`: exact
        gradients are transmitted."""
        if not self.transmits_like(Ideal):
            return super().privacy_event(transmissions, neighbouring, relation)
        raise UnknownPrivacy("the ideal uplink hides nothing: it transmits exact gradients")

    def mean_symbol(self, gradient: Array) -> Array:
        """The gradients themselves, in the shape of ``gradient``."""
        return gradient
