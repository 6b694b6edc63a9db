"""Blocks of lanes: which chains they are, and how their data and sums come in and out, in compiled
code."""

from __future__ import annotations

import numpy as np

from flmc.base.randomness import Purpose
from flmc.sampling.compiled.code_cache import compiled, part
from flmc.sampling.compiled.emitted.value import WIDTH
from flmc.sampling.compiled.random_words import fill_normals, seed_lane

LANES = WIDTH
"""Chains of a block, one for each lane of a vector."""
NEAR, _FEW = 64.0, 20
"""A chain is near where no gradient entry can exceed ``NEAR`` clips. With more than ``_FEW``
devices the number is smaller in proportion, but at least 2: the sum over devices, from which the
excess of single entries is taken, then stays below 64 x 20 = 1280 clips (up to 640 devices), and
its rounding in single precision below 1e-4 clips."""
_FAR = np.float32(np.inf)
_MOST_REACH = 3e38
"""Largest squared distance that ``reach`` may hold: less than infinity, the distance of a chain
that is far, so that such a chain looks at every device."""
_LARGEST = 1e15
"""Largest gradient at the centre, and largest norm of a matrix row, in clips: beyond, squares leave
the range of single precision."""
_L = np.uint64(LANES)
_0, _1, _2 = np.uint64(0), np.uint64(1), np.uint64(2)
_INIT = np.uint32(int(Purpose.INIT))
u32, f32, f64 = np.uint32, np.float32, np.float64


@part
def _fill(matrix, gradient, factor, start, lane, shape, space):  # type: ignore[no-untyped-def]
    """Put a device's numbers for one lane into the space, from ``start`` on, in the order of
    :mod:`flmc.sampling.compiled.emitted.arrangement`. Of the symmetric matrix, columns are read as
    rows, which lie together."""
    entries, tile, tiles, unit, in_rows = shape
    dim = np.uint64(len(gradient))
    place = start + lane
    if entries > _0:
        for i in range(dim):
            space[place] = f32(gradient[i] * factor)
            place += unit
        for i in range(dim):
            for j in range(i, dim):
                space[place] = f32(matrix[i, j] * factor)
                place += unit
        return
    for n in range(tiles):
        for column in range(dim + _1):
            for q in range(n * tile, (n + _1) * tile):
                if in_rows:
                    for i in range(q * _L, min((q + _1) * _L, dim)):
                        number = gradient[i] if column == _0 else matrix[column - _1, i]
                        space[place + i % _L] = f32(number * factor)
                elif q < dim:
                    number = gradient[q] if column == _0 else matrix[column - _1, q]
                    space[place] = f32(number * factor)
                place += unit


@part
def _at_centre(hessian, offset, centre, e, k, i):  # type: ignore[no-untyped-def]
    """Entry i of device k's gradient at the centre, and the squared norm of its row, term after
    term: the same to the bit, wherever the numbers go.

    The 1e-300 stands against a division by 0 for a row of zeros."""
    value, norm = -offset[e, k, i], 1e-300
    for j in range(hessian.shape[3]):
        h = hessian[e, k, i, j]
        value += h * centre[e, j]
        norm += h * h
    return value, norm


@compiled
def load_block(hessian, offset, centre, data_sets, unit, shape, space, at, room):  # type: ignore[no-untyped-def]
    """Load the data of a block of lanes into its space, in units of the clip.

    A device's gradient is H_k theta - b_k, so at the centre it is H_k c - b_k. ``reach`` (device)
    is the squared distance from the centre up to which none of a device's entries can exceed 1,
    because |g_i| <= |g_i(centre)| + ||H_i|| ||x||, with a margin for rounding. ``horizon`` is the
    squared distance up to which no entry of any device can exceed the number of clips that counts
    as near.

    Parameters
    ----------
    hessian, offset, centre
        Local costs and centres of data sets, in double precision.
    data_sets
        The data set of every lane; where lanes share it, the first alone is read.
    unit
        The clip.
    shape
        (entries, vectors of a tile, tiles, floats of a number, whether lanes are entries), see
        :mod:`flmc.sampling.compiled.emitted.arrangement`.
    space, at
        Where the data go, zero before; and its layout.
    room
        Room for the sum of all Hessians and for two gradients, (dim + 2, dim).

    Returns
    -------
    float
        A number that is finite if all data are, and not too large.
    """
    devices, dim = np.uint64(hessian.shape[1]), np.uint64(hessian.shape[2])
    own = shape[3] > _1 and not shape[4]
    size = (np.uint64(len(space)) - at.local) // (devices + _1)
    total, gradient, totals = room[:dim], room[dim], room[dim + _1]
    # The margin: 1e-6, sixteen roundings of single precision, for each product of a sum and some
    # more.
    factor, certain, everything = 1 / unit, 1 - 1e-6 * (f64(dim) + 8), 0.0
    near = min(NEAR, max(2.0, NEAR * _FEW / f64(devices)))
    for lane in range(_L if own else _1):
        e = data_sets[lane]
        room[:] = 0.0
        horizon = np.inf
        for k in range(devices):
            reach = _MOST_REACH
            for i in range(dim):
                gradient[i], norm = _at_centre(hessian, offset, centre, e, k, i)
                totals[i] += gradient[i]
                for j in range(dim):
                    total[i, j] += hessian[e, k, i, j]
                size_of = abs(gradient[i])
                # NaN and infinity survive a sum, so one number tells of all data.
                everything += size_of + norm
                if max(size_of, np.sqrt(norm)) > _LARGEST * unit:
                    # Finite, but its square would not be, in single precision.
                    everything = np.inf
                # From |g_i(centre)| + ||H_i|| r = bound: r^2 = (bound - |g_i(centre)|)^2 /
                # ||H_i||^2.
                left, more = max(0.0, certain * unit - size_of), max(0.0, near * unit - size_of)
                reach = min(reach, certain * left * left / norm)
                horizon = min(horizon, more * more / norm)
            space[at.reach + k * _L + lane] = f32(reach)
            _fill(hessian[e, k], gradient, factor, at.local + k * size, lane, shape, space)
        space[at.horizon + lane] = f32(horizon)
        _fill(total, totals, factor, at.local + devices * size, lane, shape, space)
    if not own:
        for k in range(devices + _1):  # the horizon, and behind it the reach of every device
            for lane in range(_1, _L):
                space[at.horizon + k * _L + lane] = space[at.horizon + k * _L]
    return everything


@part
def rows_of(first, end, rows):  # type: ignore[no-untyped-def]
    """Name the chain of every lane, from ``first`` on; lanes beyond ``end`` repeat the last
    chain."""
    for lane in range(LANES):
        rows[lane] = min(first + lane, end - 1)


@part
def seed_lanes(entropy, rows, num_chains, purpose, block, key, state):  # type: ignore[no-untyped-def]
    """Start the generators of all lanes for a block of rounds, each by its data set and chain.

    ``key`` is room for eight words."""
    for lane in range(LANES):
        key[0], key[1], key[2], key[3] = (
            purpose,
            u32(rows[lane] // num_chains),
            u32(rows[lane] % num_chains),
            block,
        )
        seed_lane(entropy, key, state, lane)


@compiled
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
    rows, key = np.empty(LANES, np.int64), np.empty(8, u32)
    for first in range(0, len(starts), LANES):
        rows_of(first, len(starts), rows)
        seed_lanes(entropy, rows, num_chains, _INIT, u32(0), key, state)
        fill_normals(state, words, normals, count)
        collect(starts, first, min(first + LANES, len(starts)), normals)


@part
def deal(source, rows, block):  # type: ignore[no-untyped-def]
    """Copy rows of an array, one for each chain, to the lanes of a block."""
    for lane in range(LANES):
        for i in range(source.shape[1]):
            block[i * LANES + lane] = source[rows[lane], i]


@part
def collect(target, first, last, block):  # type: ignore[no-untyped-def]
    """Copy the lanes of a block back to the rows of an array, from ``first`` on, below ``last``."""
    for lane in range(last - first):
        for i in range(target.shape[1]):
            target[first + lane, i] = block[i * LANES + lane]


@part
def lost_lane(space, dim, lanes):  # type: ignore[no-untyped-def]
    """The first of some lanes whose position is not finite, or -1."""
    for lane in range(lanes):
        for i in range(dim):
            if not np.isfinite(space[i * LANES + lane]):
                return lane
    return -1
