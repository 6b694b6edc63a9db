"""The compiled inner loop of the fast engine: many chains at once, each in a lane.

*Lane*: one chain of one data set. Chains do not talk to each other, so the same instruction can serve many of them: a
*block* is ``LANES`` chains, and every number that belongs to a chain is stored ``LANES`` times in a row, chain after
chain. The innermost loop always runs over lanes, in the same order as memory; the compiler turns it into vector
instructions. A block's data are read from cache in every round; 64 lanes of the paper's experiment are 150 kB.

*Word*: 32 random bits, from one xoshiro128++ generator per lane and purpose, seeded like every stream of this package.

*Unit*: gradients are divided by the clip when a block is loaded, so that clipping is to [-1, 1] and the link is a
function on [-1, 1].

*Comparison*: a bit is +1 with probability (1 + psi)/2, where psi is the mean bit. A word, read as a signed number, is
uniform on [-2^31, 2^31); it is compared with 2^31 psi, which the polynomial or table gives at once: no exponential, no
division. A float has 24 bits, so near the ends the word is rounded to a multiple of 128 and probabilities have a
resolution of 3e-8; rounding of psi itself adds up to about 2e-7. :mod:`flmc.curve` keeps the sum below 1e-6.

*Precision*: a chain's position is its deviation from a centre, in single precision; sums over kept rounds are doubles.

*Indices* are unsigned: a signed one may be negative, which in Python counts from the end, and the test for it would
keep the loop from being vectorised.

Everything compiled lies in this file, because the cache of compiled code notices changes of this file only. The
purposes of streams and the scale of words come from elsewhere: whoever changes those must touch this file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np

from flmc.curve import WORD_SCALE
from flmc.randomness import Purpose

LANES = 64
_FEWEST_COLUMNS, _MOST_COLUMNS = 4, 8
_ROUNDS_OF_NORMALS = 8
"""Normals are made for so many rounds at once, an even number, because Box-Muller makes pairs."""

_L = np.uint64(LANES)
_0, _1, _2, _3, _4 = (np.uint64(i) for i in range(5))
_QUANTISER, _CHANNEL, _INIT = (np.uint32(int(p)) for p in (Purpose.QUANTISER, Purpose.CHANNEL, Purpose.INIT))
_AHEAD = np.uint64(_ROUNDS_OF_NORMALS)
u32, f32, f64 = np.uint32, np.float32, np.float64

# Sums may be reordered and multiplications fused; a NaN can only come from a chain that has left the range of numbers,
# which is noticed after the round.
_FAST = {"nnan", "nsz", "arcp", "contract", "reassoc", "afn"}


def _compiled(function: Callable[..., Any]) -> Any:
    return numba.njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")(function)


# Random words -------------------------------------------------------------------------------------------------------


@_compiled
def seed_lane(entropy, key, state, lane):  # type: ignore[no-untyped-def]
    """Start a lane's generator: the four words of ``SeedSequence(seed, spawn_key=key).generate_state(4)``, where
    ``entropy`` holds the words of the seed, at least four."""
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
    """``count`` words for every lane, xoshiro128++."""
    for t in range(count):
        for lane in range(_L):
            a, b, c, d = state[lane], state[_L + lane], state[_2 * _L + lane], state[_3 * _L + lane]
            total = u32(a + d)
            words[t * _L + lane] = u32(u32(u32(total << u32(7)) | u32(total >> u32(25))) + a)
            shifted = u32(b << u32(9))
            c = u32(c ^ a)
            d = u32(d ^ b)
            b = u32(b ^ c)
            a = u32(a ^ d)
            c = u32(c ^ shifted)
            state[lane], state[_L + lane], state[_2 * _L + lane] = a, b, c
            state[_3 * _L + lane] = u32(u32(d << u32(11)) | u32(d >> u32(21)))


@_compiled
def _log(word):  # type: ignore[no-untyped-def]
    """Natural logarithm of (word + 1/2)/2^32: the exponent, and a series of atanh for the mantissa in [0.7, 1.4]."""
    bits = np.int32(np.float32(f32(word) + f32(0.5)).view(np.int32))
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
        f32(3.14159265) + q * (f32(-5.16771278) + q * (f32(2.550164039877) + q * (f32(-0.5992645293) + q * tail)))
    )


@_compiled
def fill_normals(state, words, normals, count):  # type: ignore[no-untyped-def]
    """``count`` (even) standard normals for every lane, by Box and Muller from two words each pair."""
    fill_words(state, words, count)
    for pair in range(count // _2):
        first = _2 * pair * _L
        for lane in range(_L):
            radius = f32(np.sqrt(f32(-2) * _log(words[first + lane])))
            angle = f32(np.int32(words[first + _L + lane])) * f32(1 / WORD_SCALE)  # in units of pi, in [-1, 1]
            size = abs(angle)
            folded = f32(0.5) - abs(size - f32(0.5))
            normals[first + lane] = radius * _sine(f32(0.5) - size)
            normals[first + _L + lane] = radius * (_sine(folded) if angle > f32(0) else -_sine(folded))


@_compiled
def draw_alone(state, words, normals, words_each, normals_each, blocks, rounds):  # type: ignore[no-untyped-def]
    """The random numbers of a run and nothing else, for benchmarks: the limit of any engine that uses them."""
    for _ in range(blocks):
        for r in range(rounds):
            if r % 8 == 0:
                fill_normals(state, words, normals, normals_each)
            fill_words(state, words, words_each)


# From a gradient to a symbol ------------------------------------------------------------------------------------------


@_compiled
def _polynomial(g, terms):  # type: ignore[no-untyped-def]
    """2^31 psi(g) for g in [-1, 1], an odd polynomial with coefficients ``terms``, highest first."""
    square = g * g
    value = terms[0]
    for i in range(1, len(terms)):
        value = value * square + terms[i]
    return value * g


@_compiled
def _interpolated(g, table):  # type: ignore[no-untyped-def]
    """2^31 psi(g) for g in [-1, 1], by linear interpolation between equidistant nodes."""
    last = np.int32(len(table) - 2)
    half = f32(0.5) * f32(len(table) - 1)
    place = g * half + half
    node = max(np.int32(0), min(np.int32(place), last))  # in whole numbers, so that it holds for NaN too
    low, high = table[np.uint32(node)], table[np.uint32(node) + u32(1)]
    return low + (place - f32(node)) * (high - low)


@_compiled
def _clip(g):  # type: ignore[no-untyped-def]
    return min(max(g, f32(-1)), f32(1))


@_compiled
def _bit(word, threshold):  # type: ignore[no-untyped-def]
    """+1 if the word, as a signed number, lies below the threshold."""
    return f32(1) if f32(np.int32(word)) < threshold else f32(-1)


def symbol(*what: Any) -> Any:
    """What a device sends for a gradient entry g in units of the clip, by the type of ``link``: a tuple of
    coefficients, a table, or None for the clipped entry itself."""
    raise NotImplementedError("this exists in compiled code only")


@numba.extending.overload(symbol, jit_options={"fastmath": _FAST})
def _symbol(g, word, link):  # type: ignore[no-untyped-def]
    if isinstance(link, numba.types.UniTuple):
        return lambda g, word, link: _bit(word, _polynomial(_clip(g), link))
    if isinstance(link, numba.types.Array):
        return lambda g, word, link: _bit(word, _interpolated(_clip(g), link))
    return lambda g, word, link: _clip(g)


@_compiled
def _add_moments(x, dim, sums, products):  # type: ignore[no-untyped-def]
    for i in range(dim):
        for lane in range(_L):
            sums[i * _L + lane] += f64(x[i * _L + lane])
        for j in range(i, dim):
            for lane in range(_L):
                products[(i * dim + j) * _L + lane] += f64(x[i * _L + lane]) * f64(x[j * _L + lane])


# Loading a block ------------------------------------------------------------------------------------------------------


@_compiled
def load_block(hessian, offset, centre, rows, unit, width):  # type: ignore[no-untyped-def]
    """The data of a block, lane after lane, in units of ``unit``: H_k and the gradient at the centre of every device,
    both padded with zeros to whole squares of ``width``; and the same for the sum over devices. ``rows`` names the data
    set of each lane."""
    devices, dim = np.uint64(hessian.shape[1]), np.uint64(hessian.shape[2])
    wide = (dim + width - _1) // width * width
    local, at_centre = np.zeros(devices * wide * wide * _L, f32), np.zeros(devices * wide * _L, f32)
    total, total_at_centre = np.zeros(wide * wide * _L, f32), np.zeros(wide * _L, f32)
    sums = np.empty(dim + _1)
    for lane in range(_L):
        e = rows[lane]
        for i in range(dim):
            sums[:] = 0.0
            for k in range(devices):
                gradient = -offset[e, k, i]
                for j in range(dim):
                    h = hessian[e, k, i, j]
                    gradient += h * centre[e, j]
                    sums[j] += h
                    local[((k * wide + i) * wide + j) * _L + lane] = f32(h / unit)
                at_centre[(k * wide + i) * _L + lane] = f32(gradient / unit)
                sums[dim] += gradient
            for j in range(dim):
                total[(i * wide + j) * _L + lane] = f32(sums[j] / unit)
            total_at_centre[i * _L + lane] = f32(sums[dim] / unit)
    return local, at_centre, total, total_at_centre


@_compiled
def _seed(entropy, lanes, purpose, block, state):  # type: ignore[no-untyped-def]
    """Start the generators of all lanes for a block of rounds."""
    key = np.empty(4, u32)
    for lane in range(LANES):
        key[0], key[1], key[2], key[3] = purpose, lanes[lane, 0], lanes[lane, 1], block
        seed_lane(entropy, key, state, lane)


@_compiled
def draw_starts(entropy, lanes, dim):  # type: ignore[no-untyped-def]
    """Standard normals (dim or one more, lane) for the starts of the chains; ``lanes`` (lane, 2) holds the data set
    and chain of each."""
    count = (dim + _1) // _2 * _2
    state, words, normals = np.empty(4 * LANES, u32), np.empty(count * _L, u32), np.empty(count * _L, f32)
    _seed(entropy, lanes, _INIT, u32(0), state)
    fill_normals(state, words, normals, count)
    return normals


# Rounds ---------------------------------------------------------------------------------------------------------------


@_compiled
def _dot(matrix, start, x, first, lane, square):  # type: ignore[no-untyped-def]
    value = f32(0)
    for j in range(np.uint64(len(square))):
        value += matrix[start + j * _L + lane] * x[first + j * _L + lane]
    return value


@_compiled
def _add_product(matrix, m, wide, x, first, gradient, g, square):  # type: ignore[no-untyped-def]
    """Add one square times x to the gradient entries of its rows, which begin at ``g``; the square begins at ``m``."""
    for lane in range(_L):
        for i in range(np.uint64(len(square))):
            gradient[g + i * _L + lane] += _dot(matrix, m + i * wide * _L, x, first, lane, square)


def shrink(*where: Any) -> Any:
    """1, or with ``norm`` a tuple (not None) what brings the norm of a device's gradient, which is a single square,
    down to the clip."""
    raise NotImplementedError("this exists in compiled code only")


@_compiled
def _norm_factor(matrix, m, wide, x, first, gradient, g, lane, square):  # type: ignore[no-untyped-def]
    total = f32(0)
    for i in range(np.uint64(len(square))):
        entry = gradient[g + i * _L + lane] + _dot(matrix, m + i * wide * _L, x, first, lane, square)
        total += entry * entry
    return f32(1) / max(f32(1), f32(np.sqrt(total)))


@numba.extending.overload(shrink, jit_options={"fastmath": _FAST})
def _shrink(matrix, m, wide, x, first, gradient, g, lane, square, norm):  # type: ignore[no-untyped-def]
    if isinstance(norm, numba.types.NoneType):
        return lambda matrix, m, wide, x, first, gradient, g, lane, square, norm: f32(1)
    return lambda matrix, m, wide, x, first, gradient, g, lane, square, norm: _norm_factor(
        matrix, m, wide, x, first, gradient, g, lane, square
    )


@_compiled
def _add_symbols(  # type: ignore[no-untyped-def]
    matrix, m, wide, x, first, gradient, g, words, w, link, received, r, num_clipped, square, norm
):
    """The same with the last square of a row, and what follows: the symbols are added to what is received."""
    for lane in range(_L):
        count = u32(0)
        factor = shrink(matrix, m, wide, x, first, gradient, g, lane, square, norm)
        for i in range(np.uint64(len(square))):
            entry = gradient[g + i * _L + lane] + _dot(matrix, m + i * wide * _L, x, first, lane, square)
            count += u32(1) if abs(entry) > f32(1) else u32(0)
            entry *= factor
            received[r + i * _L + lane] += symbol(entry, words[w + i * _L + lane], link)
        num_clipped[lane] += count


@_compiled
def advance(  # type: ignore[no-untyped-def]
    x,
    data,
    entropy,
    lanes,
    link,
    norm,
    square,
    unclipped,
    block,
    origin,
    first,
    last,
    num_burn_in,
    pull,
    noise,
    active,
    sums,
    products,
    draws,
):
    """Rounds ``first`` to ``last``, which must belong to the block number ``block`` of the random streams, which begins
    with round ``origin``.

    The types of three arguments are constants for the compiler. ``link`` says what a symbol is: coefficients of a
    polynomial, a table, or None for the clipped gradient itself. ``norm`` is a tuple to clip norms instead of entries,
    or None. ``square`` is a tuple whose length is the number of rows and columns that are taken at a time: loops over
    them are written out. ``unclipped`` says that nothing is clipped at all.

    ``x`` (wide, lane) is advanced in place: x <- x - pull (sum of symbols) - noise z, with ``pull`` (round),
    ``noise`` (round, dim, lane or 1), ``active`` (round, device). ``sums`` (dim, lane) and ``products`` (dim, dim,
    lane; upper triangle) take the kept rounds, ``draws`` (kept round of these, dim times lane) may be empty. Returns
    the number of clipped gradient entries of each lane in kept rounds.
    """
    local, at_centre, total, total_at_centre = data
    devices, dim, wide = np.uint64(active.shape[1]), np.uint64(noise.shape[1]), np.uint64(len(x)) // _L
    channel, quantiser = np.empty(4 * LANES, u32), np.empty(4 * LANES, u32)
    words = np.empty(max(devices, _AHEAD) * wide * _L, u32)
    normals = np.empty(_AHEAD * dim * _L, f32)
    width = np.uint64(len(square))
    partial, received = np.empty(width * _L, f32), np.empty(wide * _L, f32)
    num_clipped = np.zeros(LANES, u32)
    _seed(entropy, lanes, _CHANNEL, block, channel)
    _seed(entropy, lanes, _QUANTISER, block, quantiser)
    for r in range(origin, last):
        if (r - origin) % _AHEAD == _0:
            fill_normals(channel, words, normals, _AHEAD * dim)
        if link is not None:
            fill_words(quantiser, words, devices * wide)
        if r < first:  # going on inside a block of the streams: these numbers were used before
            continue
        t = r - first
        if r <= num_burn_in:
            num_clipped[:] = u32(0)
        if unclipped and active[t].all():
            # The sum of the gradients is the gradient of the sum.
            received[:] = total_at_centre
            for i in range(_0, wide, width):
                for j in range(_0, wide, width):
                    _add_product(total, (i * wide + j) * _L, wide, x, j * _L, received, i * _L, square)
        else:
            received[:] = f32(0)
            for k in range(devices):
                if not active[t, k]:
                    continue
                for i in range(_0, wide, width):
                    row = k * wide + i
                    if unclipped:
                        for lane in range(width * _L):
                            received[i * _L + lane] += at_centre[row * _L + lane]
                        for j in range(_0, wide, width):
                            _add_product(local, (row * wide + j) * _L, wide, x, j * _L, received, i * _L, square)
                        continue
                    gradient, g = at_centre, row * _L
                    if wide > width:
                        partial[:] = at_centre[g : g + width * _L]
                        gradient, g = partial, _0
                        for j in range(_0, wide - width, width):
                            _add_product(local, (row * wide + j) * _L, wide, x, j * _L, partial, _0, square)
                    rest = wide - width
                    _add_symbols(
                        local, (row * wide + rest) * _L, wide, x, rest * _L, gradient, g,
                        words, row * _L, link, received, i * _L, num_clipped, square, norm,
                    )  # fmt: skip
        for i in range(dim):
            z = ((r - origin) % _AHEAD * dim + i) * _L
            scale = noise[t, i, 0]
            if noise.shape[2] > 1:
                scale = f32(1)
                for lane in range(_L):
                    normals[z + lane] *= noise[t, i, lane]
            for lane in range(_L):
                x[i * _L + lane] -= pull[t] * received[i * _L + lane] + scale * normals[z + lane]
        if r >= num_burn_in:
            _add_moments(x, dim, sums, products)
            if len(draws):
                draws[r - max(first, num_burn_in)] = x[: dim * _L]
    if last <= num_burn_in:
        num_clipped[:] = u32(0)
    return num_clipped


def square_for(dim: int) -> tuple[int, ...]:
    """A tuple as long as the side of a square: all columns where they are few, else what leaves least to pad."""
    if dim <= _MOST_COLUMNS:
        return (0,) * dim
    sides = range(_MOST_COLUMNS, _FEWEST_COLUMNS - 1, -1)
    return (0,) * min(sides, key=lambda side: -(-dim // side) * side)
