r"""Uplinks whose symbols are drawn from a few levels: the base of quantisers beyond one bit.

A quantiser is given by its levels :math:`s_1 < \dots < s_L` and by the probability of each, given a
clipped gradient entry. The symbol, its mean and its variance follow, and a privacy event that holds
for every such scheme. Under neighbouring data the received entry is a mixture of :math:`N(A s_j,
N_0)`, and the hockey-stick divergence is jointly convex: so no pair of mixtures is easier to tell
apart than the two extreme levels, which are a Gaussian mechanism of the shift :math:`s_L - s_1`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting
from flmc.privacy.event import Event
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.neighbours import relation_argument
from flmc.privacy.transmissions import Transmissions
from flmc.uplink.csi import as_received
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Quantised(Uplink):
    """Base class of uplinks that draw one of several levels at random for each entry. A scheme of
    this kind is a class with the property ``symbol_format`` and the method ``level_probabilities``;
    override ``privacy_event`` where more is proven than the bound by the two extreme levels."""

    randomised: ClassVar[bool] = True

    def __post_init__(self) -> None:
        super().__post_init__()
        tried = np.array([-self.clip, 0.0, self.clip])
        chances = self.level_probabilities(tried)
        if chances.shape != (3, len(self._levels)):
            raise InvalidSetting(
                f"{type(self).__name__}.level_probabilities must add an axis of"
                f" {len(self._levels)} levels to shape (3,), got {chances.shape}"
            )
        if not ((chances >= 0).all() and np.allclose(chances.sum(axis=-1), 1.0, atol=1e-12)):
            raise InvalidSetting(
                f"{type(self).__name__}.level_probabilities must be probabilities that add up to 1"
                f" for gradients -clip, 0 and clip, got {chances.tolist()}"
            )

    @property
    def _levels(self) -> Array:
        """Values that a symbol may have, in ascending order, (level)."""
        if self.symbol_format.levels is None:
            raise InvalidSetting(f"{type(self).__name__}.symbol_format must have levels, got none")
        return np.array(self.symbol_format.levels)

    @abstractmethod
    def level_probabilities(self, gradient: Array) -> Array:
        """Probability of each level given clipped gradient entries, in their shape with one more
        axis (level) at the end."""

    @property
    def peak(self) -> float:
        """Largest magnitude of a level."""
        return float(np.abs(self._levels).max())

    @cached_property
    def bit_variance(self) -> float:
        """Largest variance of a symbol over gradients from -clip to clip, of which 2001 are
        tried."""
        return float(self.symbol_variance(np.linspace(-self.clip, self.clip, 2001)).max())

    @property
    def slope(self) -> float:
        """Slope of the mean symbol at 0, a difference quotient, times the share of a gradient that
        clipping examples leaves; ``InvalidSetting`` if the mean symbol does not rise."""
        width = 1e-5 * self.clip
        low, high = self.mean_symbol(np.array([-width, width]))
        if not high > low:
            raise InvalidSetting(
                f"the mean symbol of {type(self).__name__} must rise at 0: small gradients would"
                " be lost"
            )
        return float(high - low) / (2.0 * width) * self.example_shrink

    def symbols(self, gradient: Array, uniform: Array | None) -> Array:
        """Symbols, (..., device, dim): for every entry of the clipped gradients one of the levels,
        drawn with the entry's number in ``uniform``."""
        if uniform is None:
            raise InvalidSetting(
                f"the {self.scheme} uplink needs one uniform random number per entry, got none"
            )
        # The last cumulative sum is 1 only up to rounding, and must not fall below a uniform
        # number: it is left out.
        below = np.cumsum(self.level_probabilities(self.clipped(gradient)), axis=-1)[..., :-1]
        return np.asarray(self._levels[(uniform[..., None] >= below).sum(axis=-1)])

    def mean_symbol(self, gradient: Array) -> Array:
        """Expected level given the gradient, clipped entry by entry, in the shape of
        ``gradient``."""
        return np.asarray(self.level_probabilities(clip(gradient, self.clip)) @ self._levels)

    def symbol_variance(self, gradient: Array) -> Array:
        """Variance of the random level given the gradient, clipped entry by entry, in the shape of
        ``gradient``."""
        chances = self.level_probabilities(clip(gradient, self.clip))
        mean = chances @ self._levels
        return np.asarray((chances * np.square(self._levels - mean[..., None])).sum(axis=-1))

    def privacy_event(
        self,
        transmissions: Iterable[tuple[float, int]],
        neighbouring: str = "device",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of a device that sends one of the two extreme levels: an upper bound
        whatever data are replaced; exact if a whole device is replaced, and gradients at the clip
        make an extreme level certain. ``UnknownPrivacy`` for a subclass that clips or draws symbols
        in its own way."""
        self.check_relation(neighbouring, relation)
        sent = tuple(transmissions)
        # The test of ``transmits_like(Quantised)``, written out because an abstract class must not
        # be its argument.
        if type(self).symbols is not Quantised.symbols or not self._clips_as_proven:
            return super().privacy_event(sent, neighbouring, relation)
        # A silent device sends 0: the farthest level is the worst. A gradient of 0 leads to levels
        # too, so nothing less than their span is proven for it here.
        silent = neighbouring == "device" and relation == "add_remove"
        span = self.peak if silent else float(self._levels[-1] - self._levels[0])
        return as_received(self, GaussianEvent(span, self.noise_power, sent))

    def looseness(self, neighbouring: str, relation: str = "replace") -> str | None:
        """Reason why the computed epsilon may be far above the smallest one that holds: the privacy
        event assumes that a device sends the lowest or the highest level for certain, and under
        ``neighbouring`` data that is not the worst case of this uplink. None if it is."""
        if neighbouring == "example" and not self.moves_like_device(relation):
            return "one example is accounted as if it turned the lowest level into the highest"
        if neighbouring == "device" and relation == "zero_out":
            return "a device put to zero is accounted like one that is replaced"
        chances = self.level_probabilities(np.array([-self.clip, self.clip]))
        least = float(min(chances[0, 0], chances[1, -1]))
        if least >= 1.0 - 1e-12:  # 1 up to rounding in the user's ``level_probabilities``
            return None
        return (
            "a device is accounted as if it sent an extreme level for certain, and at the clip it"
            f" does with probability {least:.3g}"
        )

    def shared_event(
        self,
        rounds: Transmissions,
        dim: int,
        neighbouring: str = "example",
        relation: str = "replace",
    ) -> Event:
        """Privacy event of whole rounds of ``dim`` entries. Every entry is accounted as if it could
        move from one extreme level to the other whatever the other entries do, which is an upper
        bound."""
        each = [(gain, dim * count) for gain, count in rounds]
        return self.privacy_event(each, neighbouring, **relation_argument(relation))
