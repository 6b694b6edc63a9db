"""Law of the privacy loss of one entry when the received value is normal about known centres."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from flmc.base.arrays import Array
from flmc.base.numerics.special import ndtr
from flmc.privacy.bits.bit_pair import REACH, BitPair
from flmc.privacy.losses.loss_grid import LossGrid

_LOUDEST = 40.0
"""Largest amplitude over noise that the quadrature follows."""


@dataclass(frozen=True)
class LossLaw:
    """Law of a pair's loss when the received value is normal with variance 1 about one of
    ``centres``, which have ``weights``."""

    pair: BitPair
    centres: tuple[float, ...]
    weights: tuple[float, ...]

    @classmethod
    def under_first(cls, pair: BitPair) -> LossLaw:
        """Law of the loss when the received value comes from P, the first data set."""
        pair = _audible(pair)
        return cls(pair, (pair.amplitude, -pair.amplitude), (pair.high, 1.0 - pair.high))

    @classmethod
    def of_paper(cls, pair: BitPair, num_devices: int) -> LossLaw:
        """Law of the paper's bound of the loss: the received value is noise plus A (K - 1)."""
        pair = _audible(pair)
        return cls(pair, (pair.amplitude * (num_devices - 1),), (1.0,))

    def nodes(self, width: float) -> tuple[Array, Array]:
        """Losses at received values ``width`` apart, and their weights: the trapezoidal rule."""
        z, density = _normal_nodes(width)
        received = np.concatenate([c + z for c in self.centres])
        return self.pair.loss(received), np.concatenate([w * density for w in self.weights])

    def node_width(self, fastest: float) -> float:
        """Width of nodes that resolves exp(i t loss) for t up to ``fastest`` and keeps clear of the
        loss's singularities, at a distance of pi/(2 A) from the real line."""
        wanted = 2 * math.pi / (25.0 * self.pair.amplitude + self.steepest * fastest + 60.0)
        # A power of the root of two, so that the width changes rarely.
        return float(2.0 ** (math.floor(2 * math.log2(min(0.1, wanted))) / 2))

    def cumulant(self, s: float, *, exactly: bool = False) -> tuple[float, float]:
        """Values of ln E[exp(s loss)] and its slope, by few nodes (which may not do for large s),
        or ``exactly``."""
        loss, weights = self.nodes(self.node_width(abs(s))) if exactly else self._still_nodes
        exponent = s * loss
        peak = float(exponent.max())
        exponent -= peak
        tilted = np.exp(exponent, out=exponent) * weights
        total = float(tilted.sum())
        return math.log(total) + peak, float(tilted @ loss) / total

    @cached_property
    def _still_nodes(self) -> tuple[Array, Array]:
        """Nodes for real arguments."""
        return self.nodes(self.node_width(0.0))

    def log_magnitude(self, c: float, t: float) -> float:
        """Logarithm of the magnitude of E[exp((c + i t) loss)]."""
        loss, weights = self.nodes(self.node_width(t))
        peak = float((c * loss).max())
        value = abs(complex(weights @ np.exp((c + 1j * t) * loss - peak)))
        return math.log(max(value, 1e-300)) + peak

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the loss."""
        loss, weights = self._still_nodes
        mean = float(loss @ weights)
        return mean, float(np.square(loss - mean) @ weights)

    @property
    def steepest(self) -> float:
        """Steepest slope of the loss, at w = 0."""
        return 2.0 * self.pair.amplitude * (self.pair.high - self.pair.low)

    @cached_property
    def largest(self) -> float:
        """Largest loss within reach of the noise."""
        return float(self.pair.loss(np.array([max(self.centres) + REACH]))[0])

    @property
    def smallest(self) -> float:
        """Smallest loss within reach of the noise."""
        return float(self.pair.loss(np.array([min(self.centres) - REACH]))[0])

    def grid(self, step: float, shares: int) -> LossGrid:
        """Grid of the law with losses rounded to multiples of ``step``, upwards on average.

        Between two points of the grid the share of the mass that goes to the upper one grows in so
        many ``shares``, each at least as large as its losses ask for. With 1 all losses are rounded
        up."""
        first, last = math.floor(self.smallest / step), math.ceil(self.largest / step)
        fine = step / shares * np.arange(first * shares, last * shares + 1)
        edges = self.pair.threshold(np.asarray(fine))
        above = np.asarray(self.weights) @ ndtr(np.asarray(self.centres)[:, None] - edges)
        between = np.maximum(above[:-1] - above[1:], 0.0).reshape(-1, shares)
        upper = between @ (np.arange(1, shares + 1) / shares)
        mass = np.zeros(last - first + 1)
        mass[1:] += upper
        mass[:-1] += between.sum(axis=1) - upper
        mass[0] += 1.0 - float(above[0])  # beyond the reach of the noise
        return LossGrid(step, first, mass, float(above[-1]))


@lru_cache(maxsize=16)
def _normal_nodes(width: float) -> tuple[Array, Array]:
    """Values of the noise ``width`` apart, and their weights: widths are few, laws many."""
    z = np.arange(-REACH, REACH + width, width)
    nodes = z, width / math.sqrt(2 * math.pi) * np.exp(-0.5 * z * z)
    for array in nodes:
        array.flags.writeable = False
    return nodes


def _audible(pair: BitPair) -> BitPair:
    """The pair with an amplitude of at most 40, beyond which the quadrature would have to follow
    every step.

    Nothing changes: bits are received without error, and the loss is the largest but for exp(-2 *
    40 * 30)."""
    return replace(pair, amplitude=min(pair.amplitude, _LOUDEST))
