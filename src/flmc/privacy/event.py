r"""What was done, apart from what it costs.

An event is the worst case for one device over some transmissions, each of one entry with one gain: the *pair* of
distributions that an adversary, who knows every other device's symbols, must tell apart. Neighbouring: all data of one
device are replaced."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar, TypeGuard, TypeVar

import numpy as np

from flmc import checks
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.quantise import Link, Sign
from flmc.uplink import Analog, Digital, Uplink

SYMMETRY_TOLERANCE = 1e-12
MOST_GAINS = 32
"""Distinct gains that are accounted one by one; more are rounded up to this many."""

Transmissions = tuple[tuple[float, int], ...]
"""Pairs of a gain and how many entries were sent with it."""


class _Sent:
    """What both kinds of events know of their transmissions."""

    transmissions: Transmissions

    @property
    def num_transmissions(self) -> int:
        """Entries sent in all."""
        return sum(count for _, count in self.transmissions)

    @property
    def silent(self) -> bool:
        """Whether nothing was sent at all."""
        return not any(count and gain > 0 for gain, count in self.transmissions)


@dataclass(frozen=True)
class BitEvent(_Sent):
    r"""Bits that are +1 with probability ``high`` under one data set and ``low`` under the other,
    :math:`\Phi(\pm\ell)`."""

    high: float
    low: float
    noise_power: float
    transmissions: Transmissions

    @property
    def symmetric(self) -> bool:
        """Whether high + low = 1: then both orders of the pair cost the same, and so does any mixture over entries."""
        return abs(self.high + self.low - 1.0) <= SYMMETRY_TOLERANCE

    @property
    def deterministic(self) -> bool:
        """Whether a bit reveals the gradient's sign for certain, so that only the channel's noise hides it."""
        return self.symmetric and max(self.high, 1.0 - self.low) >= 1.0

    @property
    def probability(self) -> float:
        """The symmetric pair's p; of two values that differ by rounding the more revealing one."""
        return max(self.high, 1.0 - self.low)

    @property
    def largest_loss(self) -> float:
        r"""Bound of the privacy loss at any signal-to-noise ratio: :math:`\ln(\Phi(\ell)/\Phi(-\ell))` per entry if
        symmetric."""
        with np.errstate(divide="ignore"):
            ratios = np.log1p((self.high - self.low) / np.array([self.low, 1.0 - self.high]))
        return float(np.max(ratios)) * self.num_transmissions

    @property
    def mu(self) -> float:
        """As a Gaussian mechanism, for deterministic bits: they move by 2 A."""
        return _mu(2.0, self.noise_power, self.transmissions)


@dataclass(frozen=True)
class MovingBitEvent(_Sent):
    """Bits of a gradient entry that moves by at most ``shift``, from an unknown place: one example is replaced."""

    link: Link
    clip: float
    shift: float
    noise_power: float
    transmissions: Transmissions

    symmetric: ClassVar[bool] = False
    deterministic: ClassVar[bool] = False

    @property
    def largest_loss(self) -> float:
        """Bound at any signal-to-noise ratio, over a fine grid of places and rounded up. For an odd link bits of +1
        say it all: those of -1 are the same at the opposite place, where probabilities near 1 are not rounded."""
        step = self.shift / 64
        x = np.linspace(-self.clip, self.clip - self.shift, 4096)
        step = max(step, x[1] - x[0])
        high = self.link.probability(np.minimum(x + self.shift + step, self.clip))
        low = self.link.probability(x)
        with np.errstate(divide="ignore", invalid="ignore"):
            ratios = np.log(high) - np.log(low)
            if np.max(np.abs(low + self.link.probability(-x) - 1.0)) > SYMMETRY_TOLERANCE:
                ratios = np.maximum(ratios, np.log1p(-low) - np.log1p(-high))
        return float(np.max(np.nan_to_num(ratios, nan=np.inf, posinf=np.inf))) * self.num_transmissions

    @property
    def mu(self) -> float:
        """As a Gaussian mechanism, were the bits' means sent: the size of a search's first step."""
        x = np.linspace(-self.clip, self.clip - self.shift, 1001)
        moved = float(np.max(self.link.probability(x + self.shift) - self.link.probability(x)))
        return _mu(2.0 * moved, self.noise_power, self.transmissions)


@dataclass(frozen=True)
class GaussianEvent(_Sent):
    """Values that move by at most ``sensitivity`` times the gain, under Gaussian noise."""

    sensitivity: float
    noise_power: float
    transmissions: Transmissions

    @property
    def largest_loss(self) -> float:
        """Unbounded: no noise, no privacy."""
        return float("inf")

    @property
    def mu(self) -> float:
        r"""Distance of the two means in standard deviations, :math:`\mu^2 = \sum (\Delta A)^2/N_0`; squares add over
        rounds."""
        return _mu(self.sensitivity, self.noise_power, self.transmissions)


Event = BitEvent | MovingBitEvent | GaussianEvent
AnyKind = TypeVar("AnyKind", bound=Uplink)


def _mu(sensitivity: float, noise_power: float, transmissions: Transmissions) -> float:
    return float(np.sqrt(sum(count * (sensitivity * gain) ** 2 for gain, count in transmissions) / noise_power))


def event_of(uplink: Uplink, transmissions: Iterable[tuple[float, int]], neighbouring: str = "device") -> Event:
    """The event of an uplink, when all data of a ``device`` are replaced or one ``example``; refused by name for an
    uplink whose worst case is not proven."""
    sent = tuple(transmissions)
    if neighbouring == "example":
        return _event_of_example(uplink, sent)
    if _transmits_as(uplink, Digital):
        high, low = uplink.link.extremes(uplink.clip)
        return BitEvent(high, low, uplink.noise_power, sent)
    if _transmits_as(uplink, Analog):
        return GaussianEvent(2.0 * uplink.clip, uplink.noise_power, sent)
    raise InvalidSetting(
        f"no privacy guarantee is known for the {uplink.scheme} uplink ({type(uplink).__name__}): its worst-case"
        " pair is not proven; use digital or analog, or switch privacy off"
    )


def _transmits_as(uplink: Uplink, kind: type[AnyKind]) -> TypeGuard[AnyKind]:
    """Whether an uplink does what the proof for this kind is about: a subclass that clips, quantises or transmits in
    its own way has none, whatever it is called."""
    if not isinstance(uplink, kind) or type(uplink).symbols is not kind.symbols:
        return False
    if type(uplink).clipped is not Uplink.clipped:
        return False
    return not isinstance(uplink, Digital) or uplink.link.within_extremes


def _event_of_example(uplink: Uplink, sent: Transmissions) -> Event:
    r"""With examples clipped at c an entry of the sum moves by at most :math:`D = \min(2c, 2\ell)`."""
    if uplink.example_clip is None:
        raise InvalidSetting(
            "neighbouring 'example' needs example_clip, the bound of one example's gradient entries; got none"
        )
    # A whole device moves no further; and projecting onto a ball moves single entries further than examples did.
    if uplink.example_clip >= uplink.clip or uplink.clips_norm:
        return event_of(uplink, sent)
    shift = 2.0 * uplink.example_clip
    if _transmits_as(uplink, Digital):
        if not uplink.link.proven or isinstance(uplink.link, Sign):
            return event_of(uplink, sent)  # nothing is known between the ends, or a step reveals all the same
        return MovingBitEvent(uplink.link, uplink.clip, shift, uplink.noise_power, sent)
    if _transmits_as(uplink, Analog):
        return GaussianEvent(shift, uplink.noise_power, sent)
    return event_of(uplink, sent)


def count_gains(gains: Array) -> Transmissions:
    """Distinct gains with their counts; where there are many, rounded up to a few, which only costs privacy."""
    flat = checks.finite_array("gain", np.ravel(gains))
    flat = flat[flat > 0]  # a gain of 0 sends nothing
    if flat.size == 0:
        return ()
    values, counts = np.unique(flat, return_counts=True)
    if len(values) > MOST_GAINS:
        edges = np.geomspace(values[0], values[-1], MOST_GAINS)
        edges[-1] = values[-1]
        level = np.searchsorted(edges, values * (1 - 1e-12))
        counts = np.bincount(level, weights=counts, minlength=MOST_GAINS).astype(np.int64)
        values, counts = np.maximum(edges[counts > 0], 0.0), counts[counts > 0]
    return tuple((float(value), int(count)) for value, count in zip(values, counts, strict=True))
