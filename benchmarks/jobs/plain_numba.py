"""The rounds of linear regression in plain Numba: what the engine's own instruction language is
measured against (docs/compiled_engine.md has the table).

A fair attempt, in which chains (``LANES`` of them) are the last axis of every array, so that the
innermost loops are vector instructions; gradients are in units of the clip; a random word is
compared with the link's polynomial. The kernels differ in how they make gradients:

- *few*: few entries, whose number is a constant of the compiler, so that all that a device does for
  a lane is one loop body;
- *columns*: the same for more entries, one after the other, each lane with a matrix of its own;
- *product*: all gradients of all chains of a data set are one product of matrices by BLAS;
- *alone*: those of one chain are a product of a matrix and a vector, and lanes are entries.

Every kernel is one ``prange`` over blocks, and not for its threads alone: in the body of a
``prange``, and nowhere else, Numba tells LLVM that arrays do not overlap. Without that the loops do
not become vector instructions ("too many memory checks needed") and take seven times as long."""

from __future__ import annotations

from functools import cache
from typing import Any

import numba
import numpy as np
import numpy.typing as npt

import flmc
from jobs.c_loop import mean_bit
from jobs.problem import Problem
from measuring.job import Job
from measuring.timing import cpu_seconds

LANES = 16
"""Chains of a block. With eight of them LLVM leaves the loops as they are, because a loop of so few
turns is rarely worth a vector; sixteen fill one vector of AVX-512, or two of AVX2."""
FEW, COLUMNS = 8, 32
"""Entries up to which the loops over all of them, or over the columns of a row, are unrolled."""
_AT_ONCE = 8
"""Rounds for which normals are made, and products added, at once."""
_FAR = np.float32(3e38)

_F, _U, _I = np.float32, np.uint32, np.int32
_ONE, _ZERO, _HALF = _F(1.0), _F(0.0), _F(0.5)
_OPTIONS: dict[str, Any] = {
    "nogil": True,
    "boundscheck": False,
    "error_model": "numpy",
    # Products and sums may be fused and reordered, and no number is NaN: as a C compiler's
    # -ffast-math, without which sums and comparisons would not become vector instructions.
    "fastmath": {"contract", "nnan", "nsz", "reassoc"},
}
_njit = numba.njit(**_OPTIONS)
_inlined = numba.njit(inline="always", **_OPTIONS)
_over_blocks = numba.njit(parallel=True, cache=True, **_OPTIONS)
_over_blocks_once = numba.njit(parallel=True, **_OPTIONS)


@_inlined
def _turned(x: Any, by: int) -> Any:
    """Bits moved upwards, those beyond the end to the lower one. Every operation is cast: Numba
    makes 64 bits of two numbers of 32."""
    return _U(_U(x << _U(by)) | _U(x >> _U(32 - by)))


@_inlined
def _sine(t: Any) -> Any:
    """sin(pi t) for |t| <= 1/2."""
    q = t * t
    value = _F(0.08214588661) + q * _F(-0.007370430945)
    value = _F(-0.5992645293) + q * value
    value = _F(2.550164039877) + q * value
    value = _F(-5.16771278) + q * value
    return t * (_F(3.14159265) + q * value)


@_inlined
def _fill_normals(state: Any, words: Any, normals: Any, block: int) -> None:
    """Normals (2 n, lane) of a block by Box and Muller's method, from xoshiro128++."""
    for n in range(words.shape[1]):
        for lane in range(LANES):
            a, b = state[block, 1, 0, lane], state[block, 1, 1, lane]
            c, d = state[block, 1, 2, lane], state[block, 1, 3, lane]
            words[block, n, lane] = _U(_turned(_U(a + d), 7) + a)
            shifted = _U(b << _U(9))
            c, d = _U(c ^ a), _U(d ^ b)
            state[block, 1, 1, lane] = _U(b ^ c)
            state[block, 1, 0, lane] = _U(a ^ d)
            state[block, 1, 2, lane] = _U(c ^ shifted)
            state[block, 1, 3, lane] = _turned(d, 11)
    half = words.shape[1] // 2
    for n in range(half):
        for lane in range(LANES):
            bits = np.float32(_F(words[block, n, lane]) + _HALF).view(np.uint32)
            exponent = _I(_U(bits - _U(0x3F3504F3))) >> _I(23)
            mantissa = np.uint32(bits - _U(_I(exponent) << _I(23))).view(np.float32)
            s = (mantissa - _ONE) / (mantissa + _ONE)
            q = s * s
            series = _F(2.0) + q * (_F(2 / 3) + q * (_F(2 / 5) + q * _F(2 / 7)))
            log = s * series + _F(_I(exponent - _I(32))) * _F(0.69314718)
            radius = np.sqrt(_F(-2.0) * log)
            angle = _F(_I(words[block, half + n, lane])) * _F(2.0**-31)
            size = abs(angle)
            sine = _sine(_HALF - abs(size - _HALF))
            normals[block, n, lane] = radius * _sine(_HALF - size)
            normals[block, half + n, lane] = radius * (sine if angle > _ZERO else -sine)


@_inlined
def _add_moments(recent: Any, sums: Any, products: Any, block: int, count: int, dim: int) -> None:
    """Add ``count`` rounds, all of them at once: every sum is read and written once for them."""
    for r in range(count, _AT_ONCE):
        for i in range(dim):
            for lane in range(LANES):
                recent[block, r, i, lane] = _ZERO
    for i in range(dim):
        for lane in range(LANES):
            total = sums[block, i, lane]
            for r in range(_AT_ONCE):
                total += np.float64(recent[block, r, i, lane])
            sums[block, i, lane] = total
        for j in range(i, dim):
            for lane in range(LANES):
                total = products[block, i, j, lane]
                for r in range(_AT_ONCE):
                    x = np.float64(recent[block, r, i, lane])
                    total += x * np.float64(recent[block, r, j, lane])
                products[block, i, j, lane] = total


@cache
def few(dim: int, digital: bool, shared: bool) -> Any:
    """The kernel for ``dim`` entries, at most ``FEW``."""
    triangle = np.zeros((dim, dim), np.int64)
    for n, (i, j) in enumerate(zip(*np.triu_indices(dim), strict=True)):
        triangle[i, j] = triangle[j, i] = dim + n
    place = tuple(int(n) for n in triangle.reshape(-1))

    @_inlined
    def gradient(data: Any, unit: int, k: int, i: int, x: Any, block: int, lane: int) -> Any:
        """Entry i of a device's gradient; of the symmetric matrix one triangle is stored."""
        own = 0 if shared else lane
        g = data[unit, k, i, own]
        for j in range(dim):
            g += data[unit, k, place[i * dim + j], own] * x[block, j, lane]
        return g

    @_over_blocks_once
    def run(
        data: Any, reach: Any, which: Any, x: Any, pull: Any, noise: Any, terms: Any, burn_in: int,
        state: Any, sums: Any, products: Any, count: Any, words: Any, normals: Any, recent: Any,
        ones: Any, total: Any, away: Any,
    ) -> None:  # fmt: skip
        devices = data.shape[1] - 1
        for block in numba.prange(len(x)):
            unit = which[block]
            c0, c1, c2, c3, c4 = terms[0], terms[1], terms[2], terms[3], terms[4]
            for t in range(len(pull)):
                if t % _AT_ONCE == 0:
                    _fill_normals(state, words, normals, block)
                if t == burn_in:
                    for lane in range(LANES):
                        count[block, lane] = 0
                if digital:
                    for i in range(dim):
                        for lane in range(LANES):
                            ones[block, i, lane] = 0
                    for k in range(devices):
                        for lane in range(LANES):
                            a, b = state[block, 0, 0, lane], state[block, 0, 1, lane]
                            c, d = state[block, 0, 2, lane], state[block, 0, 3, lane]
                            clipped = count[block, lane]
                            for i in range(dim):
                                g = gradient(data, unit, k, i, x, block, lane)
                                s = min(max(g, -_ONE), _ONE)
                                clipped = _U(clipped + _U(s != g))
                                q = s * s
                                threshold = ((((c0 * q + c1) * q + c2) * q + c3) * q + c4) * s
                                word = _U(_turned(_U(a + d), 7) + a)
                                shifted = _U(b << _U(9))
                                c = _U(c ^ a)
                                d = _U(d ^ b)
                                b = _U(b ^ c)
                                a = _U(a ^ d)
                                c = _U(c ^ shifted)
                                d = _turned(d, 11)
                                bit = _U(_F(_I(word)) < threshold)
                                ones[block, i, lane] = _U(ones[block, i, lane] + bit)
                            count[block, lane] = clipped
                            state[block, 0, 0, lane], state[block, 0, 1, lane] = a, b
                            state[block, 0, 2, lane], state[block, 0, 3, lane] = c, d
                    for i in range(dim):
                        for lane in range(LANES):
                            total[block, i, lane] = _F(2 * _I(ones[block, i, lane]) - devices)
                else:
                    for lane in range(LANES):
                        square = _ZERO
                        for i in range(dim):
                            square += x[block, i, lane] * x[block, i, lane]
                        near = square < reach[unit, 0, 0 if shared else lane]
                        away[block, lane] = square if near else _FAR
                        for i in range(dim):
                            g = gradient(data, unit, devices, i, x, block, lane)
                            total[block, i, lane] = g if near else _ZERO
                    for k in range(devices):
                        beyond = _U(0)
                        for lane in range(LANES):
                            limit = reach[unit, k + 1, 0 if shared else lane]
                            beyond = _U(beyond + _U(away[block, lane] > limit))
                        if beyond > 0:
                            for lane in range(LANES):
                                clipped = count[block, lane]
                                # What clipping changes where a chain is near, else what it leaves.
                                close = _F(away[block, lane] < _FAR)
                                for i in range(dim):
                                    g = gradient(data, unit, k, i, x, block, lane)
                                    s = min(max(g, -_ONE), _ONE)
                                    clipped = _U(clipped + _U(s != g))
                                    total[block, i, lane] += s - close * g
                                count[block, lane] = clipped
                p, n, r = pull[t], noise[t], t % _AT_ONCE
                for i in range(dim):
                    for lane in range(LANES):
                        step = p * total[block, i, lane] + n * normals[block, r * dim + i, lane]
                        moved = x[block, i, lane] - step
                        x[block, i, lane] = moved
                        recent[block, r, i, lane] = moved if t >= burn_in else _ZERO
                if t >= burn_in and (r == _AT_ONCE - 1 or t == len(pull) - 1):
                    _add_moments(recent, sums, products, block, r + 1, dim)

    return run


@cache
def columns(dim: int, digital: bool) -> Any:
    """The kernel for ``dim`` entries, at most ``COLUMNS``, with a matrix for every lane."""

    @_over_blocks_once
    def run(
        data: Any, x: Any, pull: Any, noise: Any, terms: Any, burn_in: int,
        state: Any, sums: Any, products: Any, count: Any, words: Any, normals: Any, recent: Any,
        total: Any,
    ) -> None:  # fmt: skip
        devices = data.shape[1]
        for block in numba.prange(len(x)):
            c0, c1, c2, c3, c4 = terms[0], terms[1], terms[2], terms[3], terms[4]
            for t in range(len(pull)):
                if t % _AT_ONCE == 0:
                    _fill_normals(state, words, normals, block)
                if t == burn_in:
                    for lane in range(LANES):
                        count[block, lane] = 0
                for i in range(dim):
                    for lane in range(LANES):
                        total[block, i, lane] = _ZERO
                for k in range(devices):
                    for i in range(dim):
                        for lane in range(LANES):
                            g = data[block, k, i, 0, lane]
                            for j in range(dim):
                                g += data[block, k, i, j + 1, lane] * x[block, j, lane]
                            s = min(max(g, -_ONE), _ONE)
                            count[block, lane] = _U(count[block, lane] + _U(s != g))
                            if digital:
                                a, b = state[block, 0, 0, lane], state[block, 0, 1, lane]
                                c, d = state[block, 0, 2, lane], state[block, 0, 3, lane]
                                word = _U(_turned(_U(a + d), 7) + a)
                                shifted = _U(b << _U(9))
                                c = _U(c ^ a)
                                d = _U(d ^ b)
                                state[block, 0, 1, lane] = _U(b ^ c)
                                state[block, 0, 0, lane] = _U(a ^ d)
                                state[block, 0, 2, lane] = _U(c ^ shifted)
                                state[block, 0, 3, lane] = _turned(d, 11)
                                q = s * s
                                threshold = ((((c0 * q + c1) * q + c2) * q + c3) * q + c4) * s
                                s = _ONE if _F(_I(word)) < threshold else -_ONE
                            total[block, i, lane] += s
                p, n, r = pull[t], noise[t], t % _AT_ONCE
                for i in range(dim):
                    for lane in range(LANES):
                        step = p * total[block, i, lane] + n * normals[block, r * dim + i, lane]
                        moved = x[block, i, lane] - step
                        x[block, i, lane] = moved
                        recent[block, r, i, lane] = moved if t >= burn_in else _ZERO
                if t >= burn_in and (r == _AT_ONCE - 1 or t == len(pull) - 1):
                    _add_moments(recent, sums, products, block, r + 1, dim)

    return run


@_over_blocks
def product(
    matrix: Any, offset: Any, x: Any, pull: Any, noise: Any, terms: Any, burn_in: int,
    digital: bool, state: Any, sums: Any, products: Any, count: Any, words: Any, normals: Any,
    recent: Any, total: Any, g: Any,
) -> None:  # fmt: skip
    """All rounds of the chains of one data set: gradients are matrix (device dim, dim) times
    position (block, dim, lane)."""
    dim = x.shape[1]
    for block in numba.prange(len(x)):
        c0, c1, c2, c3, c4 = terms[0], terms[1], terms[2], terms[3], terms[4]
        for t in range(len(pull)):
            if t % _AT_ONCE == 0:
                _fill_normals(state, words, normals, block)
            if t == burn_in:
                for lane in range(LANES):
                    count[block, lane] = 0
            for i in range(dim):
                for lane in range(LANES):
                    total[block, i, lane] = _ZERO
            np.dot(matrix, x[block], g[block])
            for k in range(len(matrix) // dim):
                for i in range(dim):
                    at_centre = offset[k * dim + i]
                    for lane in range(LANES):
                        value = g[block, k * dim + i, lane] + at_centre
                        s = min(max(value, -_ONE), _ONE)
                        count[block, lane] = _U(count[block, lane] + _U(s != value))
                        a, b = state[block, 0, 0, lane], state[block, 0, 1, lane]
                        c, d = state[block, 0, 2, lane], state[block, 0, 3, lane]
                        word = _U(_turned(_U(a + d), 7) + a)
                        shifted = _U(b << _U(9))
                        c = _U(c ^ a)
                        d = _U(d ^ b)
                        state[block, 0, 1, lane] = _U(b ^ c)
                        state[block, 0, 0, lane] = _U(a ^ d)
                        state[block, 0, 2, lane] = _U(c ^ shifted)
                        state[block, 0, 3, lane] = _turned(d, 11)
                        q = s * s
                        threshold = ((((c0 * q + c1) * q + c2) * q + c3) * q + c4) * s
                        bit = _ONE if _F(_I(word)) < threshold else -_ONE
                        total[block, i, lane] += bit if digital else s
            p, n, r = pull[t], noise[t], t % _AT_ONCE
            for i in range(dim):
                for lane in range(LANES):
                    step = p * total[block, i, lane] + n * normals[block, r * dim + i, lane]
                    moved = x[block, i, lane] - step
                    x[block, i, lane] = moved
                    recent[block, r, i, lane] = moved if t >= burn_in else _ZERO
            if t >= burn_in and (r == _AT_ONCE - 1 or t == len(pull) - 1):
                _add_moments(recent, sums, products, block, r + 1, dim)


@_over_blocks
def alone(
    matrix: Any, offset: Any, x: Any, pull: Any, noise: Any, terms: Any, burn_in: int,
    digital: bool, state: Any, sums: Any, products: Any, count: Any, words: Any, normals: Any,
    recent: Any, g: Any, symbols: Any, total: Any,
) -> None:  # fmt: skip
    """All rounds of one chain for each data set, position (data set, dim)."""
    dim = x.shape[1]
    for e in numba.prange(len(x)):
        c0, c1, c2, c3, c4 = terms[0], terms[1], terms[2], terms[3], terms[4]
        rows = matrix.shape[1]
        for t in range(len(pull)):
            if t % _AT_ONCE == 0:
                _fill_normals(state, words, normals, e)
            if t == burn_in:
                for lane in range(LANES):
                    count[e, lane] = 0
            np.dot(matrix[e], x[e], g[e, :rows])
            for n in range(rows):
                g[e, n] += offset[e, n]
            for n in range(g.shape[1] // LANES):
                for lane in range(LANES):
                    value = g[e, n * LANES + lane]
                    s = min(max(value, -_ONE), _ONE)
                    count[e, lane] = _U(count[e, lane] + _U(s != value))
                    a, b = state[e, 0, 0, lane], state[e, 0, 1, lane]
                    c, d = state[e, 0, 2, lane], state[e, 0, 3, lane]
                    word = _U(_turned(_U(a + d), 7) + a)
                    shifted = _U(b << _U(9))
                    c = _U(c ^ a)
                    d = _U(d ^ b)
                    state[e, 0, 1, lane] = _U(b ^ c)
                    state[e, 0, 0, lane] = _U(a ^ d)
                    state[e, 0, 2, lane] = _U(c ^ shifted)
                    state[e, 0, 3, lane] = _turned(d, 11)
                    q = s * s
                    threshold = ((((c0 * q + c1) * q + c2) * q + c3) * q + c4) * s
                    bit = _ONE if _F(_I(word)) < threshold else -_ONE
                    symbols[e, n * LANES + lane] = bit if digital else s
            for i in range(dim):
                total[e, i] = _ZERO
            for k in range(rows // dim):
                for i in range(dim):
                    total[e, i] += symbols[e, k * dim + i]
            r = t % _AT_ONCE
            for i in range(dim):
                place = r * dim + i
                z = normals[e, place // LANES, place % LANES]
                moved = x[e, i] - (pull[t] * total[e, i] + noise[t] * z)
                x[e, i] = moved
                recent[e, r, i] = moved if t >= burn_in else 0.0
            if t >= burn_in and (r == _AT_ONCE - 1 or t == len(pull) - 1):
                for late in range(r + 1, _AT_ONCE):
                    recent[e, late] = 0.0
                for i in range(dim):
                    for late in range(_AT_ONCE):
                        sums[e, i] += recent[e, late, i]
                    for j in range(i, dim):
                        more = products[e, i, j]
                        for late in range(_AT_ONCE):
                            more += recent[e, late, i] * recent[e, late, j]
                        products[e, i, j] = more


class Plain:
    """A problem for one of the kernels, with its data in single precision."""

    def __init__(self, problem: Problem, kind: str | None = None) -> None:
        self.problem, self.digital = problem, problem.scheme == "digital"
        self.kind = kind or self._choose()
        self.rng, plan, model = np.random.default_rng(0), problem.plan, problem.model
        self.burn_in, clip = plan.num_burn_in, float(plan.uplink.clip)
        pull = np.asarray(plan.step_sizes) * np.ones(plan.num_rounds)
        self.noise = np.asarray(pull * np.sqrt(plan.uplink.noise_power) / plan.typical_gain, _F)
        self.pull = np.asarray(pull * (1.0 if self.digital else clip), _F)
        uplink = plan.uplink
        self.terms = mean_bit(uplink) if isinstance(uplink, flmc.Digital) else np.zeros(5, _F)
        mean = np.asarray(model.posterior.mean)
        shape = (problem.experiments, problem.chains, problem.dim)
        start = model.prior.mean + model.prior.sd * self.rng.standard_normal(shape)
        self.start = np.asarray(start - mean[:, None], _F)
        costs = model.quadratic(slice(0, problem.experiments))
        assert costs is not None
        hessian = costs.hessian / clip
        self._pack(hessian, np.einsum("ekij,ej->eki", hessian, mean) - costs.offset / clip)

    def _choose(self) -> str:
        if self.problem.dim <= FEW:
            return "few"
        if self.problem.chains > 1:
            return "product"
        whole = self.problem.experiments >= LANES
        return "columns" if whole and self.problem.dim <= COLUMNS else "alone"

    def _pack(self, hessian: npt.NDArray[Any], centred: npt.NDArray[Any]) -> None:
        """Put the data into the order in which the kernel reads them."""
        dim, chains = self.problem.dim, self.start.reshape(-1, self.problem.dim)
        blocks = -(-len(chains) // LANES)
        # The lanes that are left over repeat the last chain.
        lanes = np.minimum(np.arange(blocks * LANES), len(chains) - 1).reshape(blocks, LANES)
        self.first = np.ascontiguousarray(np.swapaxes(chains[lanes], 1, 2))
        if self.kind == "few":
            rows, columns_ = np.triu_indices(dim)
            data = np.concatenate([centred, hessian[..., rows, columns_]], axis=2)
            data = np.concatenate([data, data.sum(axis=1, keepdims=True)], axis=1)
            size, norm = np.abs(centred), (hessian**2).sum(axis=-1)
            near = (np.maximum(0, 64 - size) ** 2 / norm).min(axis=(1, 2))[:, None]
            reach = (np.maximum(0, 0.99999 - size) ** 2 / norm).min(axis=2)
            limits = np.concatenate([near, reach], axis=1)
            if self.problem.chains > 1:
                self.data: Any = (data[..., None].astype(_F), limits[..., None].astype(_F))
                self.which = lanes[:, 0] // self.problem.chains
            else:
                together = (np.moveaxis(part[lanes], 1, -1) for part in (data, limits))
                self.data = tuple(np.ascontiguousarray(part, _F) for part in together)
                self.which = np.arange(blocks)
        elif self.kind == "columns":
            data = np.concatenate([centred[..., None], hessian], axis=3).astype(_F)
            self.data = np.ascontiguousarray(np.moveaxis(data[lanes], 1, -1))
        else:
            self.data = (
                np.ascontiguousarray(hessian.reshape(len(hessian), -1, dim), _F),
                np.ascontiguousarray(centred.reshape(len(centred), -1), _F),
            )

    def run(self) -> float:
        """All rounds of all chains; the mean squared deviation from the posterior's mean."""
        kept = len(self.pull) - self.burn_in
        same = (self.pull, self.noise, self.terms, self.burn_in)
        if self.kind == "alone":
            return self._run_alone(same) / kept
        x, (blocks, dim, _) = self.first.copy(), self.first.shape
        products = np.zeros((blocks, dim, dim, LANES))
        room = (
            self.rng.integers(0, 2**32, (blocks, 2, 4, LANES), np.uint32),
            np.zeros((blocks, dim, LANES)),
            products,
            np.zeros((blocks, LANES), np.uint32),
            np.empty((blocks, _AT_ONCE * dim, LANES), np.uint32),
            np.empty((blocks, _AT_ONCE * dim, LANES), _F),
            np.empty((blocks, _AT_ONCE, dim, LANES), _F),
        )
        total = np.empty((blocks, dim, LANES), _F)
        if self.kind == "few":
            run = few(dim, self.digital, self.problem.chains > 1)
            ones, away = np.empty((blocks, dim, LANES), np.uint32), np.empty((blocks, LANES), _F)
            run(*self.data, self.which, x, *same, *room, ones, total, away)
        elif self.kind == "columns":
            columns(dim, self.digital)(self.data, x, *same, *room, total)
        else:
            [matrix], [offset] = self.data
            g = np.empty((blocks, len(matrix), LANES), _F)
            product(matrix, offset, x, *same, self.digital, *room, total, g)
        return float(np.einsum("biil->", products) / products[:, 0].size / kept)

    def _run_alone(self, same: Any) -> float:
        matrix, offset = self.data
        count, rows, dim = matrix.shape
        half = -(-_AT_ONCE * dim // (2 * LANES))
        whole = -(-rows // LANES) * LANES
        products = np.zeros((count, dim, dim))
        alone(
            matrix, offset, self.start[:, 0].copy(), *same, self.digital,
            self.rng.integers(0, 2**32, (count, 2, 4, LANES), np.uint32),
            np.zeros((count, dim)), products, np.zeros((count, LANES), np.uint32),
            np.empty((count, 2 * half, LANES), np.uint32), np.empty((count, 2 * half, LANES), _F),
            np.empty((count, _AT_ONCE, dim)), np.zeros((count, whole), _F),
            np.empty((count, whole), _F), np.empty((count, dim), _F),
        )  # fmt: skip
        return float(np.einsum("eii->", products) / count / dim)


def plain_numba(kind: str | None = None, **sizes: Any) -> Job:
    """All rounds of a problem in plain Numba; its data are prepared beforehand."""
    plain = Plain(Problem(**sizes), kind)
    began = cpu_seconds()
    plain.run()
    first = cpu_seconds() - began
    return Job(plain.run, {"kind": plain.kind, "first_seconds": first})


def engine_rounds(**sizes: Any) -> Job:
    """All rounds of a problem by the engine's machine code; its data are prepared beforehand, and
    chains start anew before every turn."""
    from flmc.sampling.compiled.frame import Frame
    from flmc.sampling.simulation import simulate

    problem, calls = Problem(**sizes), []
    run = Frame.run

    def kept(frame: Frame, blocks: int) -> Any:
        position = frame._arrays["x"]
        calls.append((frame, blocks, position, position.copy()))
        return run(frame, blocks)

    Frame.run = kept  # type: ignore[method-assign,assignment]
    simulate(problem.plan, problem.model, 0, problem.chains, engine="numba")
    Frame.run = run  # type: ignore[method-assign]

    def before() -> None:
        for _, _, position, start in calls:
            position[:] = start

    def turn() -> None:
        for frame, blocks, _, _ in calls:
            run(frame, blocks)

    return Job(turn, {}, before)


JOBS = {"plain numba": plain_numba, "engine rounds": engine_rounds}
