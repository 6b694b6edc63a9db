r"""Delta of whatever an uplink transmits, from its symbols alone.

The uplink is a black box: its method ``symbols`` is called, and how often each symbol comes out of
a uniform random number is measured by bisection. A received entry is the symbol times the gain plus
normal noise, so under two gradients its densities P and Q are mixtures of normals. With the loss
:math:`L = \ln(P/Q)`,

.. math:: \delta(\epsilon) = \int (P - e^\epsilon Q)_+\,dw

is integrated between the roots of :math:`L = \epsilon` for one entry. For several independent
entries it is the inverse of the moment generating function
:math:`M(s) = \int P^{1+s} Q^{-s}\,dw` on a line,

.. math:: \delta(\epsilon) = \frac1{2\pi i}\int_{c-i\infty}^{c+i\infty}
          \frac{\prod M(s)\,e^{-s\epsilon}}{s(s+1)}\,ds,

by the trapezoidal rule, whose error falls exponentially in the spacing for analytic integrands.
Two lines with other spacings say how exact a value is. Nothing here imports ``flmc``."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import optimize

Array = npt.NDArray[np.float64]
Complex = npt.NDArray[np.complex128]

_NEGLIGIBLE = 46.0
"""Logarithm of the ratio of an integrand's peak to what is left out: 1e-20."""
_MOST_POINTS, _CHUNK = 2048, 64
"""Points of a line at most, and how many are computed together. Loud bits need more: their loss has
nearly two values, and its moment generating function hardly decays."""
_GAUSS = np.polynomial.legendre.leggauss(24)


class NotConvergedError(Exception):
    """The two lines of integration disagree."""


@dataclass(frozen=True)
class Law:
    """Law of one symbol: its possible values, increasing, and their probabilities, (symbol)."""

    values: Array
    probabilities: Array


def symbol_laws(uplink: Any, gradient: Array) -> list[Law]:
    """Law of every symbol that one device sends for a gradient (dim)."""
    dim = len(gradient)
    # Rare symbols hide at the ends of [0, 1): points crowd there.
    ends = np.geomspace(1e-15, 1e-3, 60)
    tried = np.unique(np.concatenate([[0.0], ends, np.linspace(1e-3, 0.999, 997), 1.0 - ends]))

    def sent(uniform: Array) -> Array:
        """Symbols (trial, dim) for uniform random numbers (trial, dim)."""
        shaped = np.asarray(uplink.symbols(gradient[None, :], uniform[:, None, :]))
        return np.broadcast_to(shaped, (len(uniform), 1, dim))[:, 0, :]

    coarse = sent(np.repeat(tried[:, None], dim, axis=1))
    change, entry = np.nonzero(np.diff(coarse, axis=0))
    low, high = tried[change], tried[change + 1]
    below, row = coarse[change, entry], np.arange(len(entry))
    for _ in range(60 if len(entry) else 0):
        middle = (low + high) / 2
        uniform = np.full((len(entry), dim), 0.5)
        uniform[row, entry] = middle
        same = sent(uniform)[row, entry] == below
        low, high = np.where(same, middle, low), np.where(same, high, middle)
    laws = []
    for place in range(dim):
        mine = entry == place
        edges = np.concatenate([[0.0], high[mine], [1.0]])
        symbols = np.concatenate([coarse[change[mine], place], coarse[-1:, place]])
        values, where = np.unique(symbols, return_inverse=True)
        probabilities = np.asarray(np.bincount(where, weights=np.diff(edges)), np.float64)
        kept = probabilities > 0.0
        laws.append(Law(values[kept], probabilities[kept]))
    return laws


@dataclass(frozen=True)
class Pair:
    """One received entry under two gradients, in standard deviations of the noise: two mixtures of
    normals of variance 1, and how often such an entry is received."""

    first: Law
    second: Law
    amplitude: float
    count: int = 1

    @property
    def exchanged(self) -> Pair:
        """The same entry with the two gradients exchanged."""
        return Pair(self.second, self.first, self.amplitude, self.count)

    def repeated(self, count: int) -> Pair:
        """The same entry, received ``count`` times."""
        return Pair(self.first, self.second, self.amplitude, count)

    @property
    def same(self) -> bool:
        """Whether both gradients lead to the same symbols, so that nothing is revealed."""
        return (
            np.array_equal(self.first.values, self.second.values)
            and float(np.abs(self.first.probabilities - self.second.probabilities).max()) < 1e-15
        )

    def log_densities(self, w: Array) -> tuple[Array, Array]:
        """ln P and ln Q at received values, each (point)."""
        return self._log_density(self.first, w), self._log_density(self.second, w)

    def _log_density(self, law: Law, w: Array) -> Array:
        away = w[:, None] - self.amplitude * law.values
        exponent = np.log(law.probabilities) - 0.5 * np.square(away)
        peak = exponent.max(axis=1)
        total = np.exp(exponent - peak[:, None]).sum(axis=1)
        return np.asarray(peak + np.log(total) - 0.5 * math.log(2 * math.pi))

    @property
    def range(self) -> float:
        """Distance of the smallest from the largest symbol."""
        every = np.concatenate([self.first.values, self.second.values])
        return float(every.max() - every.min())

    @property
    def reach(self) -> tuple[float, float]:
        """Received values between which all mass lies but 1e-32."""
        every = self.amplitude * np.concatenate([self.first.values, self.second.values])
        return float(every.min()) - 12.0, float(every.max()) + 12.0

    def _loss(self, w: float) -> float:
        p, q = self.log_densities(np.array([w]))
        return float(p[0] - q[0])

    def _integral(self, sign: float, level: float, weight_q: float) -> float:
        """Integral of P - weight_q Q over values with sign (L - level) > 0."""
        w = np.linspace(*self.reach, 1601)
        p, q = self.log_densities(w)
        over = sign * (p - q - level) > 0
        roots = [
            optimize.brentq(lambda x: self._loss(x) - level, w[i], w[i + 1], xtol=1e-14)
            for i in np.flatnonzero(np.diff(over))
        ]
        edges = np.array([w[0], *roots, w[-1]])
        total, inside = 0.0, bool(over[0])
        for low, high in itertools.pairwise(edges):
            if inside:
                panels = np.linspace(low, high, 2 + math.ceil(high - low))
                half = np.diff(panels)[:, None] / 2
                nodes = (panels[:-1, None] + half * (1 + _GAUSS[0])).ravel()
                p, q = self.log_densities(nodes)
                weights = (half * _GAUSS[1]).ravel()
                total += float(weights @ (np.exp(p) - weight_q * np.exp(q)))
            inside = not inside
        return total

    def moments(self) -> tuple[float, float]:
        """Mean and variance of the loss under P, of this entry, received once."""
        w = np.linspace(*self.reach, 1601)
        p, q = self.log_densities(w)
        weight = np.exp(p) * (w[1] - w[0])
        mean = float(weight @ (p - q))
        return mean, float(weight @ np.square(p - q - mean))

    def delta(self, epsilon: float) -> float:
        """Hockey-stick divergence of this entry, received once."""
        return self._integral(1.0, epsilon, math.exp(epsilon))

    def tail(self, epsilon: float) -> float:
        """Pr(abs(L) > epsilon) under P, of this entry, received once."""
        return self._integral(1.0, epsilon, 0.0) + self._integral(-1.0, -epsilon, 0.0)


def pairs_of(
    uplink: Any, first: Array, second: Array | None, gain: float, rounds: int
) -> list[Pair]:
    """Entries of some rounds under two gradients (dim), the second None for a device that sends
    nothing; those that reveal nothing are left out, and entries alike are counted together."""
    amplitude = gain / math.sqrt(uplink.noise_power)
    silence = [Law(np.zeros(1), np.ones(1)) for _ in first]
    laws = (symbol_laws(uplink, first), silence if second is None else symbol_laws(uplink, second))
    alike: dict[tuple[float, float], list[Pair]] = {}
    others = np.full(len(first), np.inf) if second is None else second
    for g, h, a, b in zip(first, others, *laws, strict=True):
        if not (pair := Pair(a, b, amplitude)).same:
            alike.setdefault((float(g), float(h)), []).append(pair)
    return [pairs[0].repeated(rounds * len(pairs)) for pairs in alike.values()]


class _Moments:
    """Nodes of the moment generating function of one entry's loss, for tilts about ``c``."""

    def __init__(self, pair: Pair, c: float, fastest: float) -> None:
        # With a tilt the mass moves, by twice the amplitude for each unit of c and symbol.
        low, high = pair.reach
        farther = (1.0 + 2.0 * c) * (high - low)
        scan = np.linspace(low - farther, high + farther, 4001)
        p, q = pair.log_densities(scan)
        exponent = p + c * np.maximum(p - q, 0.0)
        loud = np.flatnonzero(exponent > exponent.max() - _NEGLIGIBLE)
        # The trapezoidal rule sees frequencies up to 2 pi/width. The normal density has none above
        # 10, e^{i t L} adds the slope of L times t, and the singularities of L, at the distance
        # pi/(amplitude times the distance of two symbols), a decay of frequencies, to 1e-16 at 36
        # over that distance.
        steepest = float(np.abs(np.gradient(p - q, scan)).max())
        width = 2 * math.pi / (30.0 + 12.0 * pair.amplitude * pair.range + steepest * fastest)
        w = np.arange(scan[max(loud[0] - 1, 0)], scan[min(loud[-1] + 1, 4000)], width)
        p, q = pair.log_densities(w)
        self.loss, self.log_weight, self.count = p - q, p + math.log(width), pair.count

    def cumulant(self, c: float) -> float:
        """count times ln M(c)."""
        exponent = self.log_weight + c * self.loss
        peak = float(exponent.max())
        return self.count * (peak + math.log(float(np.exp(exponent - peak).sum())))

    def log_moment(self, c: float, begin: float, spacing: float) -> Complex:
        """count times ln M at c + i (begin + k spacing) for the points k of a chunk, (point)."""
        exponent = self.log_weight + c * self.loss
        peak = float(exponent.max())
        value = np.exp(exponent - peak) * np.exp(1j * begin * self.loss)
        turn = np.exp(1j * spacing * self.loss)
        total = np.empty(_CHUNK, dtype=np.complex128)
        for index in range(_CHUNK):  # a product costs much less than an exponential
            total[index] = value.sum()
            value = value * turn
        return np.asarray(self.count * (peak + np.log(total)))


def composed_delta(pairs: Sequence[Pair], epsilon: float) -> float:
    """Delta of independent entries, each received as often as it says, to 1e-8 of it."""
    return _composed(pairs, epsilon, tail=False)


def composed_tail(pairs: Sequence[Pair], epsilon: float) -> float:
    """Pr(L > epsilon) + Pr(L < -epsilon) of the sum of the losses of independent entries."""
    above = _composed(pairs, epsilon, tail=True)
    # Under P, Pr(L < -eps) = E_Q[e^L; -L > eps]: the exchanged pair, tilted back.
    return above + _composed(pairs, epsilon, tail=True, below=True)


def _composed(pairs: Sequence[Pair], epsilon: float, *, tail: bool, below: bool = False) -> float:
    if not pairs:
        return 0.0
    values = [
        _on_line([p.exchanged for p in pairs] if below else pairs, epsilon, tail, below, wider)
        for wider in (1.0, 1.3)
    ]
    if abs(values[1] - values[0]) > 1e-7 * abs(values[0]) + 1e-14:
        raise NotConvergedError(f"two lines give {values} at epsilon {epsilon:g}")
    return values[0]


def _on_line(pairs: Sequence[Pair], epsilon: float, tail: bool, below: bool, wider: float) -> float:
    """The line integral through the saddle point, with a period ``wider`` times the least one."""
    rough = [_Moments(pair, 4.0, 0.0) for pair in pairs]

    def level(c: float) -> float:
        return sum(m.cumulant(c) for m in rough)

    def kernel(s: Any) -> Any:
        # E[e^-L; L > eps] has its pole at -1; Pr(L > eps) at 0; the divergence at both.
        return math.exp(-epsilon) / (s + 1) if below else 1 / s if tail else 1 / (s * (s + 1))

    def exponent(log_c: float) -> float:
        c = math.exp(log_c)
        return level(c) - c * epsilon + math.log(kernel(c))

    found = optimize.minimize_scalar(
        exponent, bounds=(math.log(0.01), math.log(200.0)), method="bounded"
    )
    # The second line is another one: its agreement says more than a finer spacing would.
    c = math.exp(float(found.x)) * (1.0 if wider == 1.0 else 1.15)
    h = 0.01 * c
    spread = math.sqrt(max(level(c + h) - 2 * level(c) + level(c - h), 1e-12)) / h
    size = exponent(math.log(c))
    period = wider * max((25.0 + max(-size, 0.0)) / c, 16.0 * spread)
    spacing = 2 * math.pi / period
    total = 0.0
    moments = [_Moments(pair, c, spacing * _CHUNK) for pair in pairs]
    for first in range(0, _MOST_POINTS, _CHUNK):
        if first and first & (first - 1) == 0:  # at powers of two: finer nodes for faster turns
            moments = [_Moments(pair, c, 2 * spacing * first) for pair in pairs]
        t = spacing * np.arange(first, first + _CHUNK)
        s = c + 1j * t
        log_moment = np.sum([m.log_moment(c, float(t[0]), spacing) for m in moments], axis=0)
        # Far from the saddle point a value may overflow: then it is no number, nothing converges.
        with np.errstate(over="ignore", invalid="ignore"):
            terms = np.exp(log_moment - s * epsilon - size) * kernel(s)
        total += float(terms.real.sum()) - (float(terms[0].real) / 2 if first == 0 else 0.0)
        if float(np.abs(terms).max()) * (first + _CHUNK) < 1e-10 * abs(total):
            return spacing / math.pi * total * math.exp(size)
    raise NotConvergedError(f"the integrand does not decay within {_MOST_POINTS} points")
