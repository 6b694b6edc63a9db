"""The compiled inner loop of the fast engine: many chains at once, each in a lane.

*Lane*: one chain of one data set. Chains do not talk to each other, so the same instruction can
serve many of them: a *block* is ``LANES`` chains, and every number that belongs to a chain is
stored ``LANES`` times in a row, chain after chain. Eight such numbers are one value, see
:mod:`flmc.sampling.compiled.vectors`. A block runs all its rounds before the next one begins: 8
lanes of the paper's experiment are 20 kB, which the first-level cache holds.

*Word*: 32 random bits, from one xoshiro128++ generator per lane and purpose, seeded like every
stream of this package.

*Unit*: gradients are divided by the clip when a block is loaded, so that clipping is to [-1, 1] and
the link is a function on [-1, 1].

*Comparison*: a bit is +1 with probability (1 + psi)/2, where psi is the mean bit. A word, read as a
signed number, is uniform on [-2^31, 2^31); it is compared with 2^31 psi, which the polynomial or
table gives at once: no exponential, no division. A float has 24 bits, so near the ends the word is
rounded to a multiple of 128 and probabilities have a resolution of 3e-8; rounding of psi itself
adds up to about 2e-7. :mod:`flmc.sampling.compiled.link_curve` keeps the sum below 1e-6.

*Near*: without bits, what is received is the sum of the clipped gradients, and clipping is rare. A
chain is near the centre if no gradient entry of any device can exceed a certain number of clips
(``_NEAR``). Its sum begins with the gradient of the sum of all costs, and a device is looked at
only if one of its entries may exceed the clip: then it adds what clipping changes. A chain that is
far adds up the clipped gradients of all devices.

*Precision*: a chain's position is its deviation from a centre, in single precision; sums over kept
rounds are doubles.

*Indices* are unsigned: a signed one may be negative, which in Python counts from the end, and the
test for it would keep the loop from being vectorised.

Everything compiled lies here and in :mod:`flmc.sampling.compiled.vectors`. The cache of compiled
code notices changes of this file's text only, so whoever changes the other, or a constant that
comes from elsewhere, must change ``_BUILT_ON``."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import numba
import numba.extending
import numpy as np

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.sampling.compiled.code_cache import CodeCache
from flmc.sampling.compiled.link_curve import WORD_SCALE
from flmc.sampling.compiled.vectors import (
    WIDTH,
    choose,
    load,
    load_words,
    ones,
    pick,
    root,
    shift,
    signed,
    some,
    spread,
    store,
    turn,
    whole,
)

LANES = WIDTH
"""Chains of a block, one for each lane of a vector."""
_FEWEST_COLUMNS, _MOST_COLUMNS = 4, 8
"""Columns of a matrix that are multiplied in one loop that the compiler writes out, where a matrix
has more than ``_MOST_COLUMNS``."""
_ROUNDS_OF_NORMALS = 8
"""Rounds for which normals are made at once: an even number, because Box-Muller makes pairs."""
_NEAR, _FEW = 64.0, 20
"""A chain is near where no gradient entry can exceed ``_NEAR`` clips. With more than ``_FEW``
devices the number is smaller in proportion, but at least 2: the sum over devices, from which the
excess of single entries is taken, then stays below 64 x 20 = 1280 clips (up to 640 devices), and
its rounding in single precision below 1e-4 clips."""
_MOST_REACH = 3e38
"""Largest squared distance that ``reach`` may hold: less than infinity, the distance of a chain
that is far, so that such a chain looks at every device."""
_LARGEST = 1e15
"""Largest gradient at the centre, and largest norm of a matrix row, in clips: beyond, squares leave
the range of single precision."""
_BUILT_ON = "377299071c518b79"
"""Digest of what is compiled from other files, so that this file's text changes with them. The test
``test_what_the_kernel_was_built_on`` says what belongs here."""
_FAR = np.float32(np.inf)
"""Squared distance that stands for every chain that is not near."""

_L, _ROUNDS = np.uint64(LANES), np.uint64(ROUNDS_PER_BLOCK)
_0, _1, _2, _3, _4 = (np.uint64(i) for i in range(5))
_QUANTISER, _CHANNEL, _INIT = (
    np.uint32(int(p)) for p in (Purpose.QUANTISER, Purpose.CHANNEL, Purpose.INIT)
)
_AHEAD = np.uint64(_ROUNDS_OF_NORMALS)
u32, f32, f64 = np.uint32, np.float32, np.float64

_FAST = {"nsz", "arcp", "contract", "reassoc", "afn"}
"""Sums may be reordered, multiplications fused and divisions made multiplications. That no number
is NaN or infinite is not promised to the compiler: lost chains are found by ``np.isfinite``."""


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile a function without the interpreter's lock, with the rules of ``_FAST``, and keep it
    on disk."""
    compiled: Any = numba.njit(nogil=True, fastmath=_FAST, error_model="numpy")(function)
    compiled._cache = CodeCache(function)  # as cache=True does, with one that may be damaged
    return compiled


def _part(function: Callable[..., Any]) -> Any:
    """Compile a helper by the rules of IEEE (no fast-math), as a part of the functions that call
    it."""
    return numba.njit(error_model="numpy")(function)


# Random words -------------------------------------------------------------------------------------


@_compiled
def seed_lane(entropy, key, state, lane):  # type: ignore[no-untyped-def]
    """Start the generator of a lane as ``SeedSequence(seed, spawn_key=key).generate_state(4)``
    would.

    Parameters
    ----------
    entropy
        The words of the seed, 32 bits each, lowest first, at least four.
    key
        The words of the spawn key: purpose, data set, chain, block of rounds.
    state
        The generators of a block of lanes, four words each, (4 times lane); changed in place.
    lane
        Which lane to start.
    """
    # The constants and steps are those of NumPy's SeedSequence: mix the entropy into a pool of four
    # words, let every word of the pool and every further word act on all others, then hash the
    # pool.
    pool = np.empty(4, u32)
    factor = u32(0x43B0D7E5)
    for i in range(4):
        value = u32(entropy[i] ^ factor)
        factor = u32(factor * u32(0x931E8875))
        value = u32(value * factor)
        pool[i] = u32(value ^ (value >> u32(16)))
    for source in range(4 + (len(entropy) - 4) + len(key)):
        for target in range(4):
            if source == target:
                continue
            if source < 4:
                value = pool[source]
            elif source < len(entropy):
                value = entropy[source]
            else:
                value = key[source - len(entropy)]
            value = u32(value ^ factor)
            factor = u32(factor * u32(0x931E8875))
            value = u32(value * factor)
            value = u32(value ^ (value >> u32(16)))
            mixed = u32(u32(u32(0xCA01F9DD) * pool[target]) - u32(u32(0x4973F715) * value))
            pool[target] = u32(mixed ^ (mixed >> u32(16)))
    factor = u32(0x8B51F9DD)
    for i in range(4):
        value = u32(pool[i] ^ factor)
        factor = u32(factor * u32(0x58F38DED))
        value = u32(value * factor)
        state[np.uint64(i) * _L + np.uint64(lane)] = u32(value ^ (value >> u32(16)))


@_compiled
def fill_words(state, words, count):  # type: ignore[no-untyped-def]
    """Fill an array with ``count`` random words for every lane, by xoshiro128++.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane); advanced in place.
    words
        Where the words go, (count times lane).
    count
        Words for each lane.
    """
    memory, target = state.ctypes.data, words.ctypes.data
    a, b = load_words(memory, _0), load_words(memory, _L)
    c, d = load_words(memory, _2 * _L), load_words(memory, _3 * _L)
    for t in range(count):
        # The eight generators are held in four vectors, and stored once at the end.
        store(target, t * _L, turn(a + d, u32(7)) + a)
        shifted = shift(b, u32(9))
        c = c ^ a
        d = d ^ b
        b = b ^ c
        a = a ^ d
        c = c ^ shifted
        d = turn(d, u32(11))
    store(memory, _0, a)
    store(memory, _L, b)
    store(memory, _2 * _L, c)
    store(memory, _3 * _L, d)


@_compiled
def _log(word):  # type: ignore[no-untyped-def]
    """Natural logarithm of (word + 1/2)/2^32, which is never that of 0."""
    bits = np.int32(np.float32(f32(word) + f32(0.5)).view(np.int32))
    # A float is 2^exponent times a mantissa. Less the bits of sqrt(1/2), the exponent field is that
    # of a mantissa in [0.7, 1.4], where log(mantissa) = 2 atanh(s) has a short series.
    exponent = np.int32(np.int32(bits - np.int32(0x3F3504F3)) >> np.int32(23))
    mantissa = np.float32(np.int32(bits - np.int32(exponent << np.int32(23))).view(np.float32))
    s = (mantissa - f32(1)) / (mantissa + f32(1))
    q = s * s
    series = s * (f32(2) + q * (f32(2 / 3) + q * (f32(2 / 5) + q * f32(2 / 7))))
    return series + f32(exponent - np.int32(32)) * f32(0.69314718)


@_compiled
def _sine(t):  # type: ignore[no-untyped-def]
    """sin(pi t) for |t| <= 1/2."""
    q = t * t
    tail = f32(0.08214588661) + q * f32(-0.007370430945)
    return t * (
        f32(3.14159265)
        + q * (f32(-5.16771278) + q * (f32(2.550164039877) + q * (f32(-0.5992645293) + q * tail)))
    )


@_compiled
def fill_normals(state, words, normals, count):  # type: ignore[no-untyped-def]
    """Fill an array with ``count`` standard normals for every lane, by Box and Muller.

    The first half of as many words makes radii, the second half angles; a radius and an angle make
    two normals.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane); advanced in place.
    words
        Room for the words, (count times lane); overwritten.
    normals
        Where the normals go, (count times lane).
    count
        Normals for each lane, an even number.
    """
    fill_words(state, words, count)
    half = count // _2 * _L
    for n in range(half):
        radius = f32(np.sqrt(f32(-2) * _log(words[n])))
        angle = f32(np.int32(words[half + n])) * f32(1 / WORD_SCALE)  # in units of pi, in [-1, 1]
        size = abs(angle)
        # With t the angle in units of pi: cos(pi t) = sin(pi (1/2 - |t|)), and sin(pi |t|) = sin(pi
        # (1 - |t|)), which folds |t| into [0, 1/2]. So one series on [-1/2, 1/2] serves both.
        folded = f32(0.5) - abs(size - f32(0.5))
        normals[n] = radius * _sine(f32(0.5) - size)
        normals[half + n] = radius * (_sine(folded) if angle > f32(0) else -_sine(folded))


@_compiled
def draw_alone(state, words, normals, words_each, normals_each, blocks, rounds):  # type: ignore[no-untyped-def]
    """Draw the random numbers of a run and do nothing else: the limit of any engine that uses them,
    for benchmarks.

    Parameters
    ----------
    state
        The generators of the lanes, (4 times lane).
    words, normals
        Room for what is drawn.
    words_each, normals_each
        Words of one round, and normals of eight rounds, for each lane.
    blocks, rounds
        Blocks of lanes, and rounds of each.
    """
    for _ in range(blocks):
        for r in range(rounds):
            if r % _AHEAD == _0:
                fill_normals(state, words, normals, normals_each)
            fill_words(state, words, words_each)


# From a gradient to a symbol, for a block of lanes ------------------------------------------------


@_part
def _polynomial(g, terms):  # type: ignore[no-untyped-def]
    """2^31 psi(g) for g in [-1, 1], as an odd polynomial with coefficients ``terms``, highest
    first."""
    square = g * g
    value = spread(terms[0])
    for i in range(1, len(terms)):
        value = value * square + spread(terms[i])
    return value * g


@_part
def _interpolated(g, table):  # type: ignore[no-untyped-def]
    """2^31 psi(g) for g in [-1, 1], by linear interpolation between equidistant nodes."""
    half = spread(f32(0.5) * f32(len(table) - 1))
    place = g * half + half
    # g = 1 lies on the last node, behind which there is none: it belongs to the interval before.
    last = spread(f32(len(table) - 2))
    node = whole(choose(place < last, place, last))
    low, high = pick(table.ctypes.data, node), pick(table.ctypes.data + _4, node)
    return low + (place - signed(node)) * (high - low)


@_part
def _clip(g, most):  # type: ignore[no-untyped-def]
    """g clipped to [-most, most]; NaN becomes -most, so that it cannot point beside a table."""
    above = choose(g > -most, g, -most)
    return choose(above < most, above, most)


@_part
def _excess(g, most):  # type: ignore[no-untyped-def]
    """The clipped g minus g, which is exactly zero where clipping does nothing."""
    return choose(g > most, most - g, choose(g < -most, -most - g, spread(f32(0))))


@_part
def _bit(words, thresholds):  # type: ignore[no-untyped-def]
    """+1 in the lanes where the word, as a signed number, lies below the threshold, else -1."""
    return choose(signed(words) < thresholds, spread(f32(1)), spread(f32(-1)))


def symbol(*what: Any) -> Any:
    """What a device adds to the sum for gradient entries in units of the clip, in compiled code.

    The type of ``link`` decides: a bit for a tuple of coefficients or a table; for None the clipped
    entry, or only what clipping changes if the chain is near.

    Parameters
    ----------
    *what
        Entries ``g`` (lane); the address ``words`` of the random words and the number ``w`` of the
        first to use; ``link``; ``most``, the clip in its own units; ``distance``, the squared
        distance of the chains from the centre, infinite for those that are far.

    Raises
    ------
    NotImplementedError
        If it is called from the interpreter.
    """
    raise NotImplementedError("this exists in compiled code only")


@numba.extending.overload(symbol)
def _symbol(g, words, w, link, most, distance):  # type: ignore[no-untyped-def]
    if isinstance(link, numba.types.UniTuple):
        return lambda g, words, w, link, most, distance: _bit(
            load_words(words, w), _polynomial(_clip(g, most), link)
        )
    if isinstance(link, numba.types.Array):
        return lambda g, words, w, link, most, distance: _bit(
            load_words(words, w), _interpolated(_clip(g, most), link)
        )
    return lambda g, words, w, link, most, distance: choose(
        distance < spread(_FAR), _excess(g, most), _clip(g, most)
    )


# Moments and blocks -------------------------------------------------------------------------------


@_compiled
def _add_moments(space, x, dim, sums, products):  # type: ignore[no-untyped-def]
    """Add the position at ``x`` to the sums, and its products to the upper triangles."""
    for n in range(dim * _L):
        sums[n] += f64(space[x + n])
    for i in range(dim):
        for j in range(i, dim):
            for lane in range(_L):
                products[(i * dim + j) * _L + lane] += f64(space[x + i * _L + lane]) * f64(
                    space[x + j * _L + lane]
                )


class Layout(NamedTuple):
    """Where the floats of a block of lanes begin in its *space*.

    The space is one array that holds them all, because an array that is handed to a function costs
    more than a number. Every number has a place for each lane. ``wide`` stands for dim, rounded up
    to whole groups of columns; what is added is zero.

    Attributes
    ----------
    x
        Deviation from the centre, (wide).
    received
        Sum of the symbols, (dim).
    total_gradient, total
        Gradient at the centre (dim) and Hessian (dim, wide) of the sum of all costs.
    horizon
        Squared distance up to which a chain is near, (1).
    reach
        Squared distance up to which no entry of a device can exceed the clip, (device).
    factor
        What brings the norm of a device's gradient down to the clip, (device).
    gradient, local
        Gradients at the centre (device, dim) and Hessians (device, dim, wide) of all devices.
    end
        Length of the space.
    """

    x: int
    received: int
    total_gradient: int
    total: int
    horizon: int
    reach: int
    factor: int
    gradient: int
    local: int
    end: int

    @classmethod
    def of(cls, devices: int, dim: int, wide: int) -> Layout:
        """The layout for these sizes, the most used arrays first.

        Parameters
        ----------
        devices, dim
            Devices, and entries of theta.
        wide
            Columns of a matrix in the space, dim or more.
        """
        sizes = (
            wide,
            dim,
            dim,
            dim * wide,
            1,
            devices,
            devices,
            devices * dim,
            devices * dim * wide,
        )
        return cls(*(LANES * place for place in itertools.accumulate(sizes, initial=0)))


@_compiled
def _load_block(hessian, offset, centre, rows, unit, wide, space, at):  # type: ignore[no-untyped-def]
    """Load the data of a block of lanes into its space, in units of the clip.

    ``rows`` names the data set of each lane, ``unit`` is the clip, and what pads a matrix stays
    zero. A device's gradient is H_k theta - b_k, so at the centre it is H_k c - b_k.

    ``reach`` (device) is the squared distance from the centre up to which none of a device's
    entries can exceed 1, because |g_i| <= |g_i(centre)| + ||H_i|| ||x||, with a margin for
    rounding. ``horizon`` is the squared distance up to which no entry of any device can exceed the
    number of clips that counts as near.

    Returns a number that is finite if all data are, and not too large."""
    devices, dim = np.uint64(hessian.shape[1]), np.uint64(hessian.shape[2])
    gradient, local, total, total_gradient = at.gradient, at.local, at.total, at.total_gradient
    sums = np.empty(dim + _1)
    # The margin: 1e-6, sixteen roundings of single precision, for each product of a sum and some
    # more.
    factor, certain, everything = 1 / unit, 1 - 1e-6 * (f64(dim) + 8), 0.0
    near = min(_NEAR, max(2.0, _NEAR * _FEW / f64(devices)))
    for lane in range(_L):
        e = rows[lane]
        horizon, reach = at.horizon + lane, at.reach + lane
        space[horizon] = _FAR
        for k in range(devices):
            space[reach + k * _L] = f32(_MOST_REACH)
        for i in range(dim):
            sums[:] = 0.0
            for k in range(devices):
                at_centre, norm = -offset[e, k, i], 1e-300
                for j in range(dim):
                    h = hessian[e, k, i, j]
                    at_centre += h * centre[e, j]
                    norm += h * h
                    sums[j] += h
                    space[local + ((k * dim + i) * wide + j) * _L + lane] = f32(h * factor)
                space[gradient + (k * dim + i) * _L + lane] = f32(at_centre * factor)
                sums[dim] += at_centre
                # NaN and infinity survive a sum, so one number tells of all data.
                everything += abs(at_centre) + norm
                if max(abs(at_centre), np.sqrt(norm)) > _LARGEST * unit:
                    # Finite, but its square would not be, in single precision.
                    everything = np.inf
                # From |g_i(centre)| + ||H_i|| r = bound: r^2 = (bound - |g_i(centre)|)^2 /
                # ||H_i||^2. The 1e-300 in ``norm`` stands against a division by 0 for a row of
                # zeros.
                left, more = (
                    max(0.0, certain * unit - abs(at_centre)),
                    max(0.0, near * unit - abs(at_centre)),
                )
                squared = min(certain * left * left / norm, _MOST_REACH)
                space[reach + k * _L] = min(space[reach + k * _L], f32(squared))
                space[horizon] = min(space[horizon], f32(more * more / norm))
            for j in range(dim):
                space[total + (i * wide + j) * _L + lane] = f32(sums[j] * factor)
            space[total_gradient + i * _L + lane] = f32(sums[dim] * factor)
    return everything


@_part
def _rows_of(first, end, rows):  # type: ignore[no-untyped-def]
    """Name the chain of every lane, from ``first`` on; lanes beyond ``end`` repeat the last
    chain."""
    for lane in range(LANES):
        rows[lane] = min(first + lane, end - 1)


@_part
def _seed(entropy, rows, num_chains, purpose, block, state):  # type: ignore[no-untyped-def]
    """Start the generators of all lanes for a block of rounds, each by its data set and chain."""
    key = np.empty(4, u32)
    for lane in range(LANES):
        key[0], key[1], key[2], key[3] = (
            purpose,
            u32(rows[lane] // num_chains),
            u32(rows[lane] % num_chains),
            block,
        )
        seed_lane(entropy, key, state, lane)


@_compiled
def draw_starts(entropy, num_chains, starts):  # type: ignore[no-untyped-def]
    """Fill an array with standard normals for the starts of all chains.

    Parameters
    ----------
    entropy
        The words of the seed.
    num_chains
        Chains of every data set.
    starts
        Where the normals go, (data set times chain, dim), in single precision.
    """
    dim = np.uint64(starts.shape[1])
    count = (dim + _1) // _2 * _2
    state, words, normals = (
        np.empty(4 * LANES, u32),
        np.empty(count * _L, u32),
        np.empty(count * _L, f32),
    )
    rows = np.empty(LANES, np.int64)
    for first in range(0, len(starts), LANES):
        _rows_of(first, len(starts), rows)
        _seed(entropy, rows, num_chains, _INIT, u32(0), state)
        fill_normals(state, words, normals, count)
        _collect(starts, rows, normals)


@_part
def _deal(source, rows, block):  # type: ignore[no-untyped-def]
    """Copy rows of an array, one for each chain, to the lanes of a block."""
    for lane in range(LANES):
        for i in range(source.shape[1]):
            block[i * LANES + lane] = source[rows[lane], i]


@_part
def _collect(target, rows, block):  # type: ignore[no-untyped-def]
    """Copy the lanes of a block back to the rows of an array.

    Lanes that repeat the last chain write the same numbers to its row again, because they computed
    the same."""
    for lane in range(LANES):
        for i in range(target.shape[1]):
            target[rows[lane], i] = block[i * LANES + lane]


@_part
def _finite(value):  # type: ignore[no-untyped-def]
    """Whether a number is finite, compiled without fast-math."""
    return np.isfinite(value)


@_part
def _lost_lane(space, dim):  # type: ignore[no-untyped-def]
    """The first lane whose position is not finite, or -1."""
    for lane in range(LANES):
        for i in range(dim):
            if not np.isfinite(space[i * LANES + lane]):
                return lane
    return -1


# Rounds -------------------------------------------------------------------------------------------


@_part
def _add_product(value, space, m, x, columns):  # type: ignore[no-untyped-def]
    """Add the product of some columns of the matrix row at ``m`` with those of ``x`` to a value.

    Two sums are made, of even and odd columns, so that a product need not wait for the one
    before."""
    other = spread(f32(0))
    for j in range(np.uint64(len(columns))):
        product = load(space, m + j * _L) * load(space, x + j * _L)
        if j % _2 == _0:
            value = value + product
        else:
            other = other + product
    return value + other


@_part
def _entry(space, g, m, x, wide, columns, more):  # type: ignore[no-untyped-def]
    """A gradient entry: its value at the centre, stored at ``g``, plus the matrix row at ``m``
    times x.

    ``more`` is None if ``columns`` are all columns there are."""
    value = load(space, g)
    if more is None:
        return _add_product(value, space, m, x, columns)
    for j in range(_0, wide * _L, np.uint64(len(columns)) * _L):
        value = _add_product(value, space, m + j, x + j, columns)
    return value


@_part
def _norm_factor(space, at, k, dim, wide, columns, more):  # type: ignore[no-untyped-def]
    """The factor that brings the norm of device k's gradient down to the clip; 1 where it is
    smaller."""
    total, one = spread(f32(0)), spread(f32(1))
    for i in range(dim):
        row = k * dim + i
        value = _entry(
            space, at.gradient + row * _L, at.local + row * wide * _L, at.x, wide, columns, more
        )
        total = total + value * value
    return one / choose(total > one, root(total), one)


@_part
def _distance(space, at, wide):  # type: ignore[no-untyped-def]
    """Squared distance from the centre, infinite in lanes that are not near."""
    distance = spread(f32(0))
    for i in range(_0, wide * _L, _L):
        distance = distance + load(space, at.x + i) * load(space, at.x + i)
    return choose(distance < load(space, at.horizon), distance, spread(_FAR))


@_compiled
def _receive(  # type: ignore[no-untyped-def]
    space,
    at,
    dim,
    wide,
    words,
    active,
    talks,
    spot,
    apart,
    t,
    near,
    looked,
    link,
    norm,
    columns,
    more,
    most,
    count,
):
    """Add up the symbols of the devices that are active in round ``t``, and store the sum.

    Where every chain has devices of its own active, ``talks`` is the address of factors of the
    symbols, 0 for a silent device: those of device k begin at ``spot`` + k ``apart``.

    If ``near``, the sum of a lane that is near begins with the gradient of all costs, and a device
    is passed over where none of its entries can exceed the clip. ``looked`` is room for the numbers
    of the devices that are looked at. Returns ``count``, the number of clipped entries of every
    lane, with those of this round."""
    limit, far, zero = spread(most), spread(_FAR), spread(f32(0))
    away = _distance(space, at, wide) if near else far
    num_looked = _0
    # First, which devices to look at, so that no branch is left in the loop over entries.
    for k in range(np.uint64(active.shape[1])):
        here = active[t, k] if talks is None else some(load(talks, spot + k * apart) > zero)
        if here and (not near or some(away > load(space, at.reach + k * _L))):
            looked[num_looked] = k
            num_looked += _1
            if norm is not None:
                store(
                    space, at.factor + k * _L, _norm_factor(space, at, k, dim, wide, columns, more)
                )
    talk = zero
    for i in range(dim):
        total = spread(f32(0))
        if near:
            row = at.total + i * wide * _L
            total = _entry(space, at.total_gradient + i * _L, row, at.x, wide, columns, more)
            total = choose(away < far, total, spread(f32(0)))
        for n in range(num_looked):  # nothing is stored in here, so that x stays in registers
            row = looked[n] * dim + i
            m = at.local + row * wide * _L
            value = _entry(space, at.gradient + row * _L, m, at.x, wide, columns, more)
            heard = value
            if norm is not None:
                scale = load(space, at.factor + looked[n] * _L)
                # All entries of a gradient are changed, or none.
                heard = choose(scale < spread(f32(1)), far, zero)
                value = value * scale
            if talks is not None:
                talk = load(talks, spot + looked[n] * apart)
                heard = choose(talk > zero, heard, zero)
            count = count + ones(_clip(heard, limit) != heard)
            sent = symbol(value, words, row * _L, link, limit, away)
            if talks is not None:
                sent = sent * talk
            total = total + sent
        store(space, at.received + i * _L, total)
    return count


@_compiled
def advance(  # type: ignore[no-untyped-def]
    position,
    sums,
    products,
    draws,
    chains,
    hessian,
    offset,
    centre,
    unit,
    entropy,
    link,
    norm,
    columns,
    more,
    most,
    rounds,
    pull,
    noise,
    active,
    talks,
    space,
    at,
):
    r"""Run some rounds of some chains, a block of lanes after the other.

    The update is :math:`x \leftarrow x - p \sum_k s_k - n z`, with pull p, symbols s_k, noise
    factor n and standard normals z. A lane's numbers do not depend on its neighbours: a device that
    is looked at for their sake adds exactly zero.

    Parameters
    ----------
    position, sums, products
        Deviations from the centre and sums of them (chain, dim), and sums of products (chain, dim
        times dim), of all data sets; changed in place.
    draws
        Where theta of kept rounds goes, (chain, kept round, dim); not written if it has no chains.
    chains
        (first, end, chains of a data set, first data set in ``hessian``, ``offset`` and
        ``centre``): which chains to advance, counted through all data sets.
    hessian, offset, centre
        Local costs (data set, device, dim, dim), (data set, device, dim), and the centre (data set,
        dim), in double precision.
    unit
        The clip.
    entropy
        The words of the seed.
    link
        What a symbol is: coefficients of a polynomial, a table, or None for the clipped gradient.
        Its type is a constant for the compiler, like those of ``norm``, ``columns`` and ``more``.
    norm
        A tuple to clip the norm of a device's gradient instead of its entries, or None.
    columns
        A tuple whose length is the number of columns of a matrix that are taken at a time, in a
        loop that the compiler writes out.
    more
        A tuple if a matrix has more columns than that, else None.
    most
        1, or infinity where nothing is clipped.
    rounds
        (first, end, burn-in), counted from 0.
    pull, noise, active
        Factors (round), (round, dim, chain or 1; flat, chains in whole blocks), and who transmits
        (round, device); they begin with the first round and the first chain.
    talks
        Factors of the symbols, (round, device, chain; flat, chains in whole blocks), 0 where a
        device is silent, where every chain has devices of its own active; else None.
    space, at
        An array of zeros, and its layout.

    Returns
    -------
    tuple of three numbers
        The number of clipped gradient entries in kept rounds; the row of a chain that has left the
        range of numbers, or -1 if there is none, or -2 if data are not finite or too large; and
        the block of rounds in which that chain was lost.
    """
    first_chain, end, num_chains, base = chains
    begin, until, num_burn_in = np.uint64(rounds[0]), np.uint64(rounds[1]), np.uint64(rounds[2])
    devices, dim, width = (
        np.uint64(active.shape[1]),
        np.uint64(position.shape[1]),
        np.uint64(len(columns)),
    )
    wide = (dim + width - _1) // width * width
    looked = np.empty(devices, np.uint64)
    sum_, product = np.empty(dim * _L), np.empty(dim * dim * _L)
    rows, data_sets = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    channel, quantiser = np.empty(4 * LANES, u32), np.empty(4 * LANES, u32)
    words, normals = (
        np.empty(max(devices, _AHEAD) * dim * _L, u32),
        np.empty(_AHEAD * dim * _L, f32),
    )
    all_active = np.array([who.all() for who in active])
    apart, talk = _0, None
    if talks is not None:
        apart = np.uint64(len(talks)) // (np.uint64(len(pull)) * devices)
        talk = talks.ctypes.data
    num_noises = np.uint64(len(noise)) // (np.uint64(len(pull)) * dim)
    # Addresses keep no array alive: these arrays live because they are used below by name, too.
    memory, word, normal, noises = (
        space.ctypes.data,
        words.ctypes.data,
        normals.ctypes.data,
        noise.ctypes.data,
    )
    # A vector of zero words: there is no constant of that type.
    nothing = ones(spread(f32(0)) != spread(f32(0)))
    num_clipped = np.int64(0)
    for first in range(first_chain, end, LANES):
        _rows_of(first, end, rows)
        for lane in range(LANES):
            data_sets[lane] = rows[lane] // num_chains - base
        if not _finite(_load_block(hessian, offset, centre, data_sets, unit, wide, space, at)):
            return np.int64(0), np.int64(-2), np.int64(0)
        _deal(position, rows, space)
        _deal(sums, rows, sum_)
        _deal(products, rows, product)
        count = nothing
        for r in range(begin // _ROUNDS * _ROUNDS, until):
            if r % _ROUNDS == _0:
                _seed(entropy, rows, num_chains, _CHANNEL, u32(r // _ROUNDS), channel)
                if link is not None:
                    _seed(entropy, rows, num_chains, _QUANTISER, u32(r // _ROUNDS), quantiser)
            # A block of the streams begins with fresh normals, because its 128 rounds are a
            # multiple of 8.
            if r % _AHEAD == _0:
                fill_normals(channel, words, normals, _AHEAD * dim)
            if link is not None:
                fill_words(quantiser, words, devices * dim)
            # Going on inside a block of the streams: these numbers were used before, and are drawn
            # only to get to the later ones.
            if r < begin:
                continue
            t = r - begin
            if r == num_burn_in:  # clipped entries of the burn-in do not count
                count = nothing
            # The gradient of the sum of all costs serves only where every device transmits, and
            # what it transmits is its gradient, clipped entry by entry.
            near = link is None and norm is None and all_active[t]
            count = _receive(
                memory,
                at,
                dim,
                wide,
                word,
                active,
                talk,
                t * devices * apart + np.uint64(first - first_chain),
                apart,
                t,
                near,
                looked,
                link,
                norm,
                columns,
                more,
                most,
                count,
            )
            factor = spread(pull[t])
            for i in range(dim):
                z = (r % _AHEAD * dim + i) * _L
                # Every chain has a noise factor of its own, or all share one.
                if num_noises > _1:
                    deviation = load(
                        noises, (t * dim + i) * num_noises + np.uint64(first - first_chain)
                    )
                else:
                    deviation = spread(noise[t * dim + i])
                step = factor * load(memory, at.received + i * _L) + deviation * load(normal, z)
                store(memory, at.x + i * _L, load(memory, at.x + i * _L) - step)
            if r >= num_burn_in:
                _add_moments(space, at.x, dim, sum_, product)
                if len(draws):
                    for lane in range(LANES):
                        for i in range(dim):
                            value = centre[data_sets[lane], i] + f64(
                                space[i * _L + np.uint64(lane)]
                            )
                            draws[rows[lane], r - num_burn_in, i] = value
            if (r + _1) % _ROUNDS == _0 or r + _1 == until:
                # A position that is not finite stays so, because every round only adds to it:
                # looking once in a block of rounds is enough.
                lost = _lost_lane(space, position.shape[1])
                if lost >= 0:
                    return np.int64(0), rows[lost], np.int64(r // _ROUNDS)
        # Only the upper triangle was summed.
        for i in range(dim):
            for j in range(i):
                for lane in range(_L):
                    product[(i * dim + j) * _L + lane] = product[(j * dim + i) * _L + lane]
        _collect(position, rows, space)
        _collect(sums, rows, sum_)
        _collect(products, rows, product)
        if until > num_burn_in:
            store(word, _0, count)
            for lane in range(min(LANES, end - first)):  # not those that repeat the last chain
                num_clipped += np.int64(words[lane])
    return num_clipped, np.int64(-1), np.int64(0)


def columns_for(dim: int) -> tuple[int, ...]:
    """A tuple as long as the number of columns of a matrix that are taken at a time.

    Its length is all that matters, and is known to the compiler: all columns where they are few,
    else the width that leaves least to pad.

    Parameters
    ----------
    dim
        Columns that a matrix has.
    """
    if dim <= _MOST_COLUMNS:
        return (0,) * dim
    widths = range(_MOST_COLUMNS, _FEWEST_COLUMNS - 1, -1)
    return (0,) * min(widths, key=lambda width: -(-dim // width) * width)
