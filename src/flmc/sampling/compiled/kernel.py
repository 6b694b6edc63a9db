"""The compiled inner loop of the fast engine: many chains at once, each in a lane.

*Lane*: one chain of one data set. Chains do not talk to each other, so the same instruction can
serve many of them: a *block* is ``LANES`` chains, and every number that belongs to a chain is
stored ``LANES`` times in a row, chain after chain: eight such numbers are one vector. A block runs
all its rounds before the next one begins: 8 lanes of the paper's experiment are 14 kB, which the
first-level cache holds.

*Emitted*: what happens inside a round, from the gradients to the step, is a function of its own
(:mod:`flmc.sampling.compiled.emitted.rounds`) for each kind of symbol and arrangement of the data,
which is called by its address. So this loop is compiled once for all of them.

*Precision*: a chain's position is its deviation from a centre, in single precision; sums over kept
rounds are doubles.

*Indices* are unsigned: a signed one may be negative, which in Python counts from the end, and the
test for it would keep the loop from being vectorised."""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.sampling.compiled.blocks import (
    LANES,
    collect,
    deal,
    load_block,
    lost_lane,
    rows_of,
    seed_lanes,
)
from flmc.sampling.compiled.code_cache import compiled, part
from flmc.sampling.compiled.emitted.devices import FIELDS
from flmc.sampling.compiled.emitted.emission import ROUNDS_AT_ONCE
from flmc.sampling.compiled.kept_rounds import add_sums, keep
from flmc.sampling.compiled.random_words import (
    fill_normals,
    fill_normals_alone,
    fill_words,
)

_L, _ROUNDS = np.uint64(LANES), np.uint64(ROUNDS_PER_BLOCK)
_0, _1, _2, _4 = (np.uint64(i) for i in (0, 1, 2, 4))
_WHOLE = np.uint64(64)
"""Normals that are made in whole vectors, however the compiler groups these."""
_QUANTISER, _CHANNEL = (np.uint32(int(p)) for p in (Purpose.QUANTISER, Purpose.CHANNEL))
_AHEAD = np.uint64(ROUNDS_AT_ONCE)
u32, f32 = np.uint32, np.float32
_STATE, _COUNT, _NOISE, _NUM_NOISES, _NORMALS, _RECENT, _TALKS, _APART = (
    FIELDS.index(name)
    for name in "state count noise num_noises normals recent talks apart".split()  # noqa: SIM905
)


@intrinsic
def _run_rounds(
    typing: Any, address: Any, frame: Any, first: Any, normal: Any, count: Any, most: Any
) -> Any:
    """Call the emitted function of :func:`~flmc.sampling.compiled.emitted.rounds.rounds_of`."""
    return types.void(*[types.uint64] * 5, types.float32), _emit_call


@intrinsic
def _add_moments(
    typing: Any, address: Any, recent: Any, sums: Any, products: Any, count: Any
) -> Any:
    """Call the emitted function of :func:`~flmc.sampling.compiled.emitted.moments.moments_of`."""
    return types.void(*[types.uint64] * 5), _emit_call


@intrinsic
def _add_products(typing: Any, address: Any, positions: Any, products: Any, dim: Any) -> Any:
    """Call the emitted function of
    :func:`~flmc.sampling.compiled.emitted.moments.products_of_rounds`."""
    return types.void(*[types.uint64] * 4), _emit_call


def _emit_call(context: Any, builder: Any, signature: Any, args: Any) -> Any:
    """Emit a call of the function at an address, with the other arguments."""
    kind = ir.FunctionType(ir.VoidType(), [value.type for value in args[1:]])
    builder.call(builder.inttoptr(args[0], kind.as_pointer()), args[1:])
    return context.get_dummy_value()


@part
def _finite(value):  # type: ignore[no-untyped-def]
    """Whether a number is finite, compiled without fast-math."""
    return np.isfinite(value)


@compiled
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
    emitted,
    frame,
    shape,
    shared,
    bits,
    most,
    rounds,
    pull,
    noise,
    active,
    talks,
    words,
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
        times dim) or of squares alone (chain, dim), of all data sets; changed in place.
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
    emitted
        Addresses of the functions that run rounds, and that add moments or products.
    frame
        What the first of them finds in its frame, see :mod:`flmc.sampling.compiled.frame`; what
        this function knows better is put in.
    shape
        The arrangement, see :func:`~flmc.sampling.compiled.blocks.load_block`.
    shared
        Whether the lanes of a block must belong to one data set.
    bits
        Whether words are drawn for bits.
    most
        1, or infinity where nothing is clipped.
    rounds
        (first, end, burn-in), counted from 0.
    pull, noise, active
        Factors (round), (round, dim, chain or 1; flat, chains with ``LANES`` more), and who
        transmits (round, device); they begin with the first round and the first chain.
    talks
        Factors of the symbols, (round, device, chain; flat, chains with ``LANES`` more), 0 where a
        device is silent, where every chain has devices of its own active; else empty.
    words
        Room for the words of a round.
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
    devices, dim = np.uint64(active.shape[1]), np.uint64(position.shape[1])
    few, in_rows = shape[0] > _0, shape[4]
    sum_, product = np.empty(dim * _L if few else _0), np.empty(dim * dim * _L if few else _0)
    recent, own = np.empty(_AHEAD * dim * _L, f32), np.empty((_AHEAD, dim))
    room = np.empty((dim + _2, dim))
    rows, data_sets = np.empty(LANES, np.int64), np.empty(LANES, np.int64)
    channel, quantiser = np.empty(4 * LANES, u32), np.empty(4 * LANES, u32)
    key, clipped = np.empty(8, u32), np.empty(LANES, u32)
    normals = np.zeros(_AHEAD * dim * _L, f32)
    vectors = (dim * _4 + _WHOLE - _1) // _WHOLE * _WHOLE if in_rows else _0
    chosen, made = np.zeros(_2 * vectors, u32), np.empty(_2 * vectors, f32)
    num_noises = np.uint64(len(noise)) // (np.uint64(len(pull)) * dim)
    apart = np.uint64(len(talks)) // (np.uint64(len(pull)) * devices)
    # Addresses keep no array alive: these arrays live because they are used below by name, too.
    frame[_STATE], frame[_COUNT] = quantiser.ctypes.data, clipped.ctypes.data
    frame[_NORMALS], frame[_RECENT] = normals.ctypes.data, recent.ctypes.data
    frame[_NUM_NOISES], frame[_APART] = num_noises, apart
    num_squares = 0 if few or products.shape[1] > position.shape[1] else position.shape[1]
    num_clipped, first = np.int64(0), first_chain
    while first < end:
        last = first + 1 if in_rows else min(first + LANES, end)
        if shared:
            last = min(last, (first // num_chains + 1) * num_chains)
        place = _4 * np.uint64(first - first_chain)
        frame[_NOISE] = noise.ctypes.data + (place if num_noises > _1 else _0)
        frame[_TALKS] = talks.ctypes.data + place
        rows_of(first, last, rows)
        for lane in range(LANES):
            data_sets[lane] = rows[lane] // num_chains - base
        if not _finite(
            load_block(hessian, offset, centre, data_sets, unit, shape, space, at, room)
        ):
            return np.int64(0), np.int64(-2), np.int64(0)
        deal(position, rows, space)
        if few:
            deal(sums, rows, sum_)
            deal(products, rows, product)
        clipped[:] = 0
        r = begin // _ROUNDS * _ROUNDS
        while r < until:
            if r % _ROUNDS == _0:
                block = u32(r // _ROUNDS)
                seed_lanes(entropy, rows, num_chains, _CHANNEL, block, key, channel)
                if bits:
                    seed_lanes(entropy, rows, num_chains, _QUANTISER, block, key, quantiser)
            # A block of the streams begins with fresh normals, because its 128 rounds are a
            # multiple of 8.
            if r % _AHEAD == _0:
                if in_rows:
                    fill_normals_alone(channel, words, normals, _AHEAD * dim, chosen, made)
                else:
                    fill_normals(channel, words, normals, _AHEAD * dim)
            # Going on inside a block of the streams: these numbers were used before, and are drawn
            # only to get to the later ones.
            if r < begin:
                for _ in range(devices if bits else _0):
                    fill_words(quantiser, words, dim)
                r += _1
                continue
            if r == num_burn_in:  # clipped entries of the burn-in do not count
                clipped[:] = 0
            # As many rounds as there are normals for, all of them kept or none.
            stop = min(until, (r // _AHEAD + _1) * _AHEAD)
            if r < num_burn_in:
                stop = min(stop, num_burn_in)
            count = stop - r
            _run_rounds(  # type: ignore[call-arg]
                emitted[0], frame.ctypes.data, r - begin, r % _AHEAD, count, most
            )
            if r >= num_burn_in:
                if few:
                    _add_moments(
                        emitted[1],
                        recent.ctypes.data,
                        sum_.ctypes.data,
                        product.ctypes.data,
                        count,
                    )
                else:
                    for row in range(first, last):
                        lane, squares = np.uint64(row - first), products[row, :num_squares]
                        add_sums(recent, count, dim, lane, own, sums[row], squares)
                        if num_squares == 0:
                            _add_products(
                                emitted[1], own.ctypes.data, products[row].ctypes.data, dim
                            )
                if len(draws):
                    keep(recent, count, dim, first, last, data_sets, centre, draws, r - num_burn_in)
            if stop % _ROUNDS == _0 or stop == until:
                # A position that is not finite stays so, because every round only adds to it:
                # looking once in a block of rounds is enough.
                lost = lost_lane(space, position.shape[1], last - first)
                if lost >= 0:
                    return np.int64(0), rows[lost], np.int64((stop - _1) // _ROUNDS)
            r = stop
        collect(position, first, last, space)
        if few:
            collect(sums, first, last, sum_)
            collect(products, first, last, product)
        # Only the upper triangle was summed.
        for row in range(first, last if num_squares == 0 else first):
            for i in range(dim):
                for j in range(i):
                    products[row, i * dim + j] = products[row, j * dim + i]
        if until > num_burn_in:
            # Where lanes are entries of one chain, all of them count.
            for lane in range(LANES if in_rows else last - first):
                num_clipped += np.int64(clipped[lane])
        first = last
    return num_clipped, np.int64(-1), np.int64(0)
