"""The compiled inner loop of the fast engine: many chains at once, each in a lane.

*Lane*: one chain of one data set. Chains do not talk to each other, so the same instruction can serve many of them: a
*block* is ``LANES`` chains, and every number that belongs to a chain is stored ``LANES`` times in a row, chain after
chain. Most loops run over lanes in the order of memory, and the compiler makes vector instructions of them. Where that
is not enough, a *strip* of eight lanes is one value, see :mod:`flmc.vectors`. A block's data are read from cache in
every round; 64 lanes of the paper's experiment are 150 kB.

*Word*: 32 random bits, from one xoshiro128++ generator per lane and purpose, seeded like every stream of this package.

*Unit*: gradients are divided by the clip when a block is loaded, so that clipping is to [-1, 1] and the link is a
function on [-1, 1].

*Comparison*: a bit is +1 with probability (1 + psi)/2, where psi is the mean bit. A word, read as a signed number, is
uniform on [-2^31, 2^31); it is compared with 2^31 psi, which the polynomial or table gives at once: no exponential, no
division. A float has 24 bits, so near the ends the word is rounded to a multiple of 128 and probabilities have a
resolution of 3e-8; rounding of psi itself adds up to about 2e-7. :mod:`flmc.curve` keeps the sum below 1e-6.

*Near*: without bits, what is received is the sum of the clipped gradients, and clipping is rare. A chain is near where
no entry exceeds 64 clips. Its sum begins with the gradient of the sum of all costs, and a device is looked at only if
one of its entries may exceed the clip: then it adds what clipping changes. A chain that is far adds up the clipped
gradients of all devices.

*Precision*: a chain's position is its deviation from a centre, in single precision; sums over kept rounds are doubles.

*Indices* are unsigned: a signed one may be negative, which in Python counts from the end, and the test for it would
keep the loop from being vectorised.

Everything compiled lies here and in :mod:`flmc.vectors`, because the cache of compiled code notices changes of this
file only. The purposes of streams and the scale of words come from elsewhere: whoever changes those must touch this
file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numba.extending
import numpy as np

from flmc.curve import WORD_SCALE
from flmc.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.vectors import WIDTH, choose, load, ones, pick, root, shift, signed, some, spread, store, turn, whole

LANES = 64
_FEWEST_COLUMNS, _MOST_COLUMNS = 4, 8
_ROUNDS_OF_NORMALS = 8
"""Normals are made for so many rounds at once, an even number, because Box-Muller makes pairs."""
_NEAR = 64.0
"""Clips. Taking the excess of every entry from the sum of all then costs a rounding of 1e-5 clips at most."""
_FAR = np.float32(np.inf)

_L, _STRIP, _ROUNDS = np.uint64(LANES), np.uint64(WIDTH), np.uint64(ROUNDS_PER_BLOCK)
_0, _1, _2, _3, _4 = (np.uint64(i) for i in range(5))
_QUANTISER, _CHANNEL, _INIT = (np.uint32(int(p)) for p in (Purpose.QUANTISER, Purpose.CHANNEL, Purpose.INIT))
_AHEAD = np.uint64(_ROUNDS_OF_NORMALS)
u32, f32, f64 = np.uint32, np.float32, np.float64

_FAST = {"nsz", "arcp", "contract", "reassoc", "afn"}
"""Sums may be reordered and multiplications fused."""


def _compiled(function: Callable[..., Any]) -> Any:
    return numba.njit(nogil=True, cache=True, fastmath=_FAST, error_model="numpy")(function)


def _part(function: Callable[..., Any]) -> Any:
    """Compiled into what calls it."""
    return numba.njit(error_model="numpy")(function)


# Random words ---------------------------------------------------------------------------------------------------------


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
    for strip in range(_0, _L, _STRIP):
        a, b, c, d = (
            load(state, strip),
            load(state, _L + strip),
            load(state, _2 * _L + strip),
            load(state, _3 * _L + strip),
        )
        for t in range(count):
            store(words, t * _L + strip, turn(a + d, u32(7)) + a)
            shifted = shift(b, u32(9))
            c = c ^ a
            d = d ^ b
            b = b ^ c
            a = a ^ d
            c = c ^ shifted
            d = turn(d, u32(11))
        store(state, strip, a)
        store(state, _L + strip, b)
        store(state, _2 * _L + strip, c)
        store(state, _3 * _L + strip, d)


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


# From a gradient to a symbol, for a strip of lanes --------------------------------------------------------------------


@_part
def _polynomial(g, terms):  # type: ignore[no-untyped-def]
    """2^31 psi(g) for g in [-1, 1], an odd polynomial with coefficients ``terms``, highest first."""
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
    last = spread(f32(len(table) - 2))
    node = whole(choose(place < last, place, last))
    low, high = pick(table, node), pick(table[1:], node)
    return low + (place - signed(node)) * (high - low)


@_part
def _clip(g, most):  # type: ignore[no-untyped-def]
    """To [-most, most], NaN to one of its ends, so that it cannot point beside a table."""
    above = choose(g > -most, g, -most)
    return choose(above < most, above, most)


@_part
def _excess(g, most):  # type: ignore[no-untyped-def]
    """What clipping adds to g: exactly zero where it does nothing."""
    return choose(g > most, most - g, choose(g < -most, -most - g, spread(f32(0))))


@_part
def _bit(words, thresholds):  # type: ignore[no-untyped-def]
    """+1 where the word, as a signed number, lies below the threshold."""
    return choose(signed(words) < thresholds, spread(f32(1)), spread(f32(-1)))


def symbol(*what: Any) -> Any:
    """What a device adds to the sum for gradient entries g in units of the clip, by the type of ``link``: a bit by a
    tuple of coefficients or a table; for None the clipped entry, or what clipping changes for a chain that is near."""
    raise NotImplementedError("this exists in compiled code only")


@numba.extending.overload(symbol)
def _symbol(g, words, w, link, most, distance):  # type: ignore[no-untyped-def]
    if isinstance(link, numba.types.UniTuple):
        return lambda g, words, w, link, most, distance: _bit(load(words, w), _polynomial(_clip(g, most), link))
    if isinstance(link, numba.types.Array):
        return lambda g, words, w, link, most, distance: _bit(load(words, w), _interpolated(_clip(g, most), link))
    return lambda g, words, w, link, most, distance: choose(distance < spread(_FAR), _excess(g, most), _clip(g, most))


# Moments and blocks ---------------------------------------------------------------------------------------------------


@_compiled
def _add_moments(x, dim, sums, products):  # type: ignore[no-untyped-def]
    for i in range(dim):
        for lane in range(_L):
            sums[i * _L + lane] += f64(x[i * _L + lane])
        for j in range(i, dim):
            for lane in range(_L):
                products[(i * dim + j) * _L + lane] += f64(x[i * _L + lane]) * f64(x[j * _L + lane])


@_compiled
def load_block(hessian, offset, centre, rows, unit, width):  # type: ignore[no-untyped-def]
    """The data of a block, lane after lane, in units of ``unit``: H_k and the gradient at the centre of every device,
    both padded with zeros to whole squares of ``width``; and the same for the sum over devices. The gradients have room
    for another square's rows, in which those of larger dimensions are added up. ``rows`` names the data set of each
    lane.

    ``reach`` (device, lane) is the squared distance from the centre up to which none of a device's entries can exceed
    1, because |g_i| <= |g_i(centre)| + ||H_i|| ||x||, with a margin for rounding; ``horizon`` (lane) the same for
    ``_NEAR`` and all devices."""
    devices, dim = np.uint64(hessian.shape[1]), np.uint64(hessian.shape[2])
    wide = (dim + width - _1) // width * width
    local, at_centre = np.zeros(devices * wide * wide * _L, f32), np.zeros((devices * wide + width) * _L, f32)
    total, total_at_centre = np.zeros(wide * wide * _L, f32), np.zeros(wide * _L, f32)
    reach, horizon = np.full(devices * _L, np.inf, f32), np.full(_L, np.inf, f32)
    gradient, norm = np.empty(_L), np.empty(_L)
    sum_, sum_at_centre = np.zeros(dim * dim * _L), np.zeros(dim * _L)
    factor, certain = 1 / unit, 1 - 1e-6 * (f64(dim) + 8)
    for k in range(devices):
        for i in range(dim):
            for lane in range(_L):
                gradient[lane], norm[lane] = -offset[rows[lane], k, i], 1e-300
            for j in range(dim):
                for lane in range(_L):
                    h = hessian[rows[lane], k, i, j]
                    gradient[lane] += h * centre[rows[lane], j]
                    norm[lane] += h * h
                    sum_[(i * dim + j) * _L + lane] += h
                    local[((k * wide + i) * wide + j) * _L + lane] = f32(h * factor)
            for lane in range(_L):
                size = abs(gradient[lane])
                at_centre[(k * wide + i) * _L + lane] = f32(gradient[lane] * factor)
                sum_at_centre[i * _L + lane] += gradient[lane]
                left, more = max(0.0, certain * unit - size), max(0.0, _NEAR * unit - size)
                reach[k * _L + lane] = min(reach[k * _L + lane], f32(certain * left * left / norm[lane]))
                horizon[lane] = min(horizon[lane], f32(more * more / norm[lane]))
    for i in range(dim):
        for lane in range(_L):
            total_at_centre[i * _L + lane] = f32(sum_at_centre[i * _L + lane] * factor)
        for j in range(dim):
            for lane in range(_L):
                total[(i * wide + j) * _L + lane] = f32(sum_[(i * dim + j) * _L + lane] * factor)
    return local, at_centre, total, total_at_centre, reach, horizon


@_part
def _lanes_of(first, end, num_chains):  # type: ignore[no-untyped-def]
    """Data set and chain of every lane, for the chains from ``first`` on; lanes beyond ``end`` repeat the last."""
    lanes = np.empty((LANES, 2), u32)
    for lane in range(LANES):
        row = min(first + lane, end - 1)
        lanes[lane, 0], lanes[lane, 1] = row // num_chains, row % num_chains
    return lanes


@_part
def _seed(entropy, lanes, purpose, block, state):  # type: ignore[no-untyped-def]
    """Start the generators of all lanes for a block of rounds."""
    key = np.empty(4, u32)
    for lane in range(LANES):
        key[0], key[1], key[2], key[3] = purpose, lanes[lane, 0], lanes[lane, 1], block
        seed_lane(entropy, key, state, lane)


@_compiled
def draw_starts(entropy, num_chains, starts):  # type: ignore[no-untyped-def]
    """Standard normals for the starts of all chains (data set times chain, dim)."""
    dim = np.uint64(starts.shape[1])
    count = (dim + _1) // _2 * _2
    state, words, normals = np.empty(4 * LANES, u32), np.empty(count * _L, u32), np.empty(count * _L, f32)
    for first in range(0, len(starts), LANES):
        _seed(entropy, _lanes_of(first, len(starts), num_chains), _INIT, u32(0), state)
        fill_normals(state, words, normals, count)
        for lane in range(min(LANES, len(starts) - first)):
            for i in range(dim):
                starts[first + lane, i] = normals[i * _L + np.uint64(lane)]


@_part
def _deal(rows, first, end, block):  # type: ignore[no-untyped-def]
    """Rows ``first`` to ``end``, a chain each, to lanes; lanes that are left over repeat the last."""
    for lane in range(LANES):
        row = min(first + lane, end - 1)
        for i in range(rows.shape[1]):
            block[i * LANES + lane] = rows[row, i]


@_part
def _collect(rows, first, end, block):  # type: ignore[no-untyped-def]
    """And back."""
    for lane in range(end - first):
        for i in range(rows.shape[1]):
            rows[first + lane, i] = block[i * LANES + lane]


@_part
def _lost_lane(x):  # type: ignore[no-untyped-def]
    """The first lane with a number that is not finite, or -1."""
    for lane in range(LANES):
        for i in range(lane, len(x), LANES):
            if not np.isfinite(x[i]):
                return lane
    return -1


# Rounds ---------------------------------------------------------------------------------------------------------------


@_part
def _entry(matrix, m, x, first, gradient, g, square):  # type: ignore[no-untyped-def]
    """A gradient entry of a strip of lanes: what is known of it at ``g``, and the row of a square at ``m`` times x."""
    value = load(gradient, g)
    for j in range(np.uint64(len(square))):
        value = value + load(matrix, m + j * _L) * load(x, first + j * _L)
    return value


@_part
def _add_product(matrix, m, wide, x, first, gradient, g, square):  # type: ignore[no-untyped-def]
    """Add one square times x to the gradient entries of its rows, which begin at ``g``; the square begins at ``m``."""
    for i in range(np.uint64(len(square))):
        store(gradient, g + i * _L, _entry(matrix, m + i * wide * _L, x, first, gradient, g + i * _L, square))


def shrink(*where: Any) -> Any:
    """1, or with ``norm`` a tuple (not None) what brings the norm of a device's gradient, which is a single square,
    down to the clip."""
    raise NotImplementedError("this exists in compiled code only")


@_part
def _norm_factor(matrix, m, wide, x, first, gradient, g, square):  # type: ignore[no-untyped-def]
    total = spread(f32(0))
    for i in range(np.uint64(len(square))):
        entry = _entry(matrix, m + i * wide * _L, x, first, gradient, g + i * _L, square)
        total = total + entry * entry
    one = spread(f32(1))
    return one / choose(total > one, root(total), one)


@numba.extending.overload(shrink)
def _shrink(matrix, m, wide, x, first, gradient, g, square, norm):  # type: ignore[no-untyped-def]
    if isinstance(norm, numba.types.NoneType):
        return lambda matrix, m, wide, x, first, gradient, g, square, norm: spread(f32(1))
    return lambda matrix, m, wide, x, first, gradient, g, square, norm: _norm_factor(
        matrix, m, wide, x, first, gradient, g, square
    )


@_part
def _may_clip(distance, reach, k):  # type: ignore[no-untyped-def]
    """Whether an entry of the device may exceed the clip in any lane."""
    found = load(distance, _0) > load(reach, k * _L)
    for strip in range(_STRIP, _L, _STRIP):
        found = found | (load(distance, strip) > load(reach, k * _L + strip))
    return some(found)


@_compiled
def _add_symbols(  # type: ignore[no-untyped-def]
    local, gradient, x, words, active, near, distance, reach, link, norm, square, most, received, num_clipped
):
    """Add the symbols of the active devices to what is received, strip by strip. If the sum began with all gradients,
    a device is passed over where none of its entries can exceed the clip."""
    devices, width, wide = np.uint64(len(active)), np.uint64(len(square)), np.uint64(len(x)) // _L
    limit, rest = spread(most), wide - width
    for k in range(devices):
        if not active[k] or (near and not _may_clip(distance, reach, k)):
            continue
        for strip in range(_0, _L, _STRIP):
            away = load(distance, strip)
            if near and not some(away > load(reach, k * _L + strip)):
                continue
            for i in range(_0, wide, width):
                row = k * wide + i
                g = row * _L + strip
                if wide > width:
                    room = devices * wide * _L + strip
                    for p in range(_0, width * _L, _L):
                        store(gradient, room + p, load(gradient, g + p))
                    g = room
                    for j in range(_0, rest, width):
                        m = (row * wide + j) * _L + strip
                        _add_product(local, m, wide, x, j * _L + strip, gradient, g, square)
                m = (row * wide + rest) * _L + strip
                last = rest * _L + strip
                factor = shrink(local, m, wide, x, last, gradient, g, square, norm)
                count = load(num_clipped, strip)
                for p in range(width):
                    entry = _entry(local, m + p * wide * _L, x, last, gradient, g + p * _L, square)
                    count = count + ones((entry > limit) | (entry < -limit))
                    added = symbol(entry * factor, words, (row + p) * _L + strip, link, limit, away)
                    place = (i + p) * _L + strip
                    store(received, place, load(received, place) + added)
                store(num_clipped, strip, count)


@_compiled
def _begin_sum(total, total_gradient, x, dim, wide, square, horizon, distance, received):  # type: ignore[no-untyped-def]
    """What is received begins with the gradient of the sum of all costs in lanes that are near, with 0 in the others;
    ``distance`` becomes the squared distance from the centre, or infinity."""
    width = np.uint64(len(square))
    for lane in range(_L):
        distance[lane] = f32(0)
    for i in range(dim):
        for lane in range(_L):
            distance[lane] += x[i * _L + lane] * x[i * _L + lane]
    for lane in range(_L):
        distance[lane] = distance[lane] if distance[lane] < horizon[lane] else _FAR
    for i in range(wide * _L):
        received[i] = total_gradient[i]
    for strip in range(_0, _L, _STRIP):
        for i in range(_0, wide, width):
            for j in range(_0, wide, width):
                m = (i * wide + j) * _L + strip
                _add_product(total, m, wide, x, j * _L + strip, received, i * _L + strip, square)
    for i in range(wide):
        for lane in range(_L):
            received[i * _L + lane] = received[i * _L + lane] if distance[lane] < _FAR else f32(0)


@_compiled
def advance(  # type: ignore[no-untyped-def]
    position,
    sums,
    products,
    draws,
    chains,
    data,
    centre,
    entropy,
    link,
    norm,
    square,
    most,
    rounds,
    pull,
    noise,
    active,
):
    """Some rounds of one block of lanes.

    ``position``, ``sums`` (chain, dim) and ``products`` (chain, dim times dim) of all data sets are changed in place,
    and ``draws`` (chain, kept round, dim) written if it is not empty, for the ``chains`` = (first, end, chains of a
    data set, first data set in ``centre``). ``rounds`` = (first, end, burn-in).

    x <- x - pull (sum of symbols) - noise z, with ``pull`` (round), ``noise`` (round, dim, lane or 1), ``active``
    (round, device), which begin with the first round.

    The types of three arguments are constants for the compiler. ``link`` says what a symbol is: coefficients of a
    polynomial, a table, or None for the clipped gradient itself. ``norm`` is a tuple to clip norms instead of entries,
    or None. ``square`` is a tuple whose length is the number of rows and columns that are taken at a time: loops over
    them are written out. ``most`` is 1, or infinity where nothing is clipped.

    Returns the number of clipped gradient entries in kept rounds, and, if a chain has left the range of numbers, its
    row and the block of rounds, else -1.

    A lane's numbers do not depend on its neighbours: a device that is looked at for their sake adds exactly zero.
    """
    local, gradient, total, total_gradient, reach, horizon = data
    first, end, num_chains, base = chains
    begin, until, num_burn_in = np.uint64(rounds[0]), np.uint64(rounds[1]), np.uint64(rounds[2])
    devices, dim, width = np.uint64(active.shape[1]), np.uint64(position.shape[1]), np.uint64(len(square))
    wide = (dim + width - _1) // width * width
    lanes = _lanes_of(first, end, num_chains)
    x, sum_, product = np.zeros(wide * _L, f32), np.empty(dim * _L), np.empty(dim * dim * _L)
    _deal(position, first, end, x)
    _deal(sums, first, end, sum_)
    _deal(products, first, end, product)
    channel, quantiser = np.empty(4 * LANES, u32), np.empty(4 * LANES, u32)
    words = np.empty(max(devices, _AHEAD) * wide * _L, u32)
    normals = np.empty(_AHEAD * dim * _L, f32)
    received, distance = np.empty(wide * _L, f32), np.empty(LANES, f32)
    num_clipped = np.zeros(LANES, u32)
    all_active = np.array([who.all() for who in active])
    for r in range(begin // _ROUNDS * _ROUNDS, until):
        if r % _ROUNDS == _0:
            _seed(entropy, lanes, _CHANNEL, u32(r // _ROUNDS), channel)
            if link is not None:
                _seed(entropy, lanes, _QUANTISER, u32(r // _ROUNDS), quantiser)
        if r % _AHEAD == _0:
            fill_normals(channel, words, normals, _AHEAD * dim)
        if link is not None:
            fill_words(quantiser, words, devices * wide)
        if r < begin:  # going on inside a block of the streams: these numbers were used before
            continue
        t = r - begin
        if r == num_burn_in:
            for lane in range(_L):
                num_clipped[lane] = u32(0)
        near = link is None and norm is None and all_active[t]
        if near:
            _begin_sum(total, total_gradient, x, dim, wide, square, horizon, distance, received)
        else:
            for i in range(wide * _L):
                received[i] = f32(0)
            for lane in range(_L):
                distance[lane] = _FAR
        _add_symbols(
            local, gradient, x, words, active[t], near, distance, reach, link, norm, square, most, received, num_clipped
        )
        for i in range(dim):
            z = (r % _AHEAD * dim + i) * _L
            scale = noise[t, i, 0]
            if noise.shape[2] > 1:
                scale = f32(1)
                for lane in range(_L):
                    normals[z + lane] *= noise[t, i, lane]
            for lane in range(_L):
                x[i * _L + lane] -= pull[t] * received[i * _L + lane] + scale * normals[z + lane]
        if r >= num_burn_in:
            _add_moments(x, dim, sum_, product)
            if len(draws):
                for lane in range(end - first):
                    e = np.int64(lanes[lane, 0]) - base
                    for i in range(dim):
                        deviation = f64(x[i * _L + np.uint64(lane)])
                        draws[first + lane, r - num_burn_in, i] = centre[e, i] + deviation
        if (r + _1) % _ROUNDS == _0 or r + _1 == until:
            lost = _lost_lane(x)
            if lost >= 0:
                return np.uint64(0), min(first + lost, end - 1), np.int64(r // _ROUNDS)
    for i in range(dim):
        for j in range(i):
            for lane in range(_L):
                product[(i * dim + j) * _L + lane] = product[(j * dim + i) * _L + lane]
    _collect(position, first, end, x)
    _collect(sums, first, end, sum_)
    _collect(products, first, end, product)
    return (np.sum(num_clipped[: end - first]) if until > num_burn_in else np.uint64(0)), -1, 0


def square_for(dim: int) -> tuple[int, ...]:
    """A tuple as long as the side of a square: all columns where they are few, else what leaves least to pad."""
    if dim <= _MOST_COLUMNS:
        return (0,) * dim
    sides = range(_MOST_COLUMNS, _FEWEST_COLUMNS - 1, -1)
    return (0,) * min(sides, key=lambda side: -(-dim // side) * side)
