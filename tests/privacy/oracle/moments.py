r"""Moment generating function of a loss, from its profile alone.

With the excess G of the divergence over (1 - e^epsilon)+, two integrations by parts give

.. math:: M(s) = E_P[e^{sL}] = 1 + s(s+1) \int G(\epsilon)\,e^{s\epsilon}\,d\epsilon

for every s, whatever pair the profile belongs to. Nothing is lost to rounding where M is near 1:
ln M is taken of the excess."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from privacy.oracle.bits import Array, Profile

ComplexArray = npt.NDArray[np.complex128]

_NEGLIGIBLE = 50.0
"""Logarithm of what an integrand may fall to, from its peak, before it is left out."""
_ORDER = 12
_CLOSEST = 1e-15
"""Distance from the largest loss, as a share of it, at which the graded panels end."""


def reach_of(log_excess: Array, epsilon: Array, tilt: float, top: float) -> float:
    """Epsilon beyond which G e^{tilt epsilon} is negligible, from values on a scan; at most the
    largest loss."""
    weight = log_excess + tilt * epsilon
    peak = np.max(weight)
    loud = np.flatnonzero(weight > peak - _NEGLIGIBLE)
    last = int(loud[-1]) + 1
    return float(epsilon[last]) if last < len(epsilon) else top


def scan(top: float) -> Array:
    """Epsilons over many orders of magnitude, up to the largest loss."""
    if math.isinf(top):
        return np.geomspace(1e-9, 2e3, 240)
    return top * np.concatenate([np.geomspace(1e-14, 0.9, 260), 1 - np.geomspace(0.09, 1e-12, 40)])


def panels(reach: float, core: float, graded: bool, count: int) -> tuple[Array, Array]:
    """Nodes and weights of Gauss and Legendre on (0, reach).

    Parameters
    ----------
    reach, core
        Where the integrand is negligible, and where the excess has fallen to a third: if the one is
        much larger than the other the panels double in width from the core on, else all are even.
    graded
        Whether the last panels are divided again and again towards the end, where a bounded loss
        crowds.
    count
        Number of even panels.
    """
    if reach > 20 * core:
        doublings = math.ceil(math.log2(reach / core))
        per_doubling = count // 4
        wide = reach * 2.0 ** (-np.arange(doublings * per_doubling, -1, -1) / per_doubling)
        edges = np.concatenate([np.linspace(0.0, wide[0], per_doubling + 1)[:-1], wide])
    else:
        edges = np.linspace(0.0, reach, count + 1)
    if graded:
        last = (edges[-1] - edges[-2]) / reach
        closer = reach * (1 - last * 0.55 ** np.arange(1, 200))
        closer = closer[1 - closer / reach > _CLOSEST]
        edges = np.concatenate([edges[:-1], closer, [reach]])
    x, weight = np.polynomial.legendre.leggauss(_ORDER)
    half = np.diff(edges) / 2
    nodes = edges[:-1, None] + half[:, None] * (1 + x)
    return nodes.ravel(), (half[:, None] * weight).ravel()


@dataclass(frozen=True)
class Moments:
    """Nodes of the two integrals, over epsilon > 0 and over epsilon < 0."""

    up: Array
    log_up: Array
    down: Array
    log_down: Array

    @classmethod
    def of(cls, profile: Profile, tilt: float, count: int) -> Moments:
        """Nodes that serve for arguments with a real part between 0 and ``tilt``."""
        up = cls._nodes(profile.forward, profile.top, tilt, count)
        if profile.backward is profile.forward:  # the same function, known further than needed
            return cls(*up, *up)
        return cls(*up, *cls._nodes(profile.backward, profile.bottom, 0.0, count))

    @staticmethod
    def _nodes(
        side: Callable[[Array], Array], top: float, tilt: float, count: int
    ) -> tuple[Array, Array]:
        """Nodes of one integral, and the logarithms of weight times excess there."""
        places = scan(top)
        values = side(places)
        reach = reach_of(values, places, tilt, top)
        core = float(places[np.flatnonzero(values > values[0] - 1)[-1]])
        nodes, weights = panels(reach, core, reach == top, count)
        return nodes, side(nodes) + np.log(weights)

    def log_moment(self, c: float, begin: float, spacing: float, count: int) -> ComplexArray:
        """ln M at c + i t for ``count`` values of t from ``begin`` on, ``spacing`` apart."""
        up, down = self.log_up + c * self.up, self.log_down - (1 + c) * self.down
        peak = max(0.0, float(np.max(up)), float(np.max(down)))
        angle = np.concatenate([self.up, -self.down])
        value = np.exp(np.concatenate([up, down]) - peak) * np.exp(1j * begin * angle)
        turn = np.exp(1j * spacing * angle)
        total = np.empty(count, dtype=np.complex128)
        for index in range(count):  # a product costs much less than an exponential
            total[index] = value.sum()
            value = value * turn
        s = c + 1j * (begin + spacing * np.arange(count))
        product = s * (s + 1) * total
        if peak == 0.0:
            return np.asarray(np.log1p(product))
        return np.asarray(peak + np.log(math.exp(-peak) + product))

    def cumulant(self, c: float) -> float:
        """ln M(c) at a real argument."""
        return float(self.log_moment(c, 0.0, 0.0, 1).real[0])
