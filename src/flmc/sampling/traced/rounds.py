r"""A stretch of rounds of some chains of one data set, as one loop that JAX compiles.

The loop is the three roles of :mod:`flmc.sampling.roles` in single precision:

.. math:: x \leftarrow x - p \sum_k w_k s_k - n z, \qquad p = \eta K/K_a, \quad n = p \sqrt{N_0}/A,

with the factor :math:`w_k` that a device's symbols have at the receiver: 1, or 0 for a silent one,
or what its estimate of the channel makes of that. Positions x are deviations from a centre. Sums
over kept rounds are pairs of numbers of single precision, which together have the digits of double
precision; they are added in the order of the rounds, by the same code wherever a stretch begins, so
a run may be cut anywhere."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.sampling.traced import counters
from flmc.sampling.traced.symbols import SymbolKind, scaled_to_norm, thresholds

AT_ONCE = 4
"""Devices that share one call of the generator: two words of 32 bits are four halves."""


class Stretch(NamedTuple):
    """What a stretch of rounds changes; all arrays in single precision but the counts.

    Attributes
    ----------
    position
        Deviations from the centre, (chain, dim).
    sums, sums_rest, products, products_rest
        Sums of deviations (chain, dim), and of their products, (chain, dim, dim) or the squares
        alone, (chain, dim), each as a number and the rest that it leaves.
    draws
        Positions after every round of the stretch, (chain, round, dim); no rounds if draws are not
        kept.
    clipped, undefined
        Gradient entries of active devices that clipping changed, and that were not finite, in
        every round of the stretch, (round).
    """

    position: Any
    sums: Any
    sums_rest: Any
    products: Any
    products_rest: Any
    draws: Any
    clipped: Any
    undefined: Any


class Fixed(NamedTuple):
    """What is fixed for the rounds of a block.

    Attributes
    ----------
    data
        What the local gradients take of the data set.
    centre
        Where deviations are measured from, (dim).
    quantiser, channel
        Keys of every chain, (chain, 2).
    pull
        Step times K/K_a of every round, (round).
    noise
        Factor of the normals, (round or 1, dim or 1).
    weights
        Factor of every device's symbols, (round or 1, device, dim or 1).
    clip, link_factor
        Largest magnitude or norm of a local gradient, and the factor of the link.
    """

    data: Any
    centre: Any
    quantiser: Any
    channel: Any
    pull: Any
    noise: Any
    weights: Any
    clip: Any
    link_factor: Any


class Span(NamedTuple):
    """Which rounds are run: ``begin`` to ``end`` of a block, counted from 0; the first that is
    kept, ``kept``; and the first of the stretch, ``origin``, that its arrays begin with."""

    begin: Any
    end: Any
    kept: Any
    origin: Any


def compile_rounds(
    jax: Any, gradients: Callable[[Any, Any], Any], kind: SymbolKind
) -> Callable[[Stretch, Fixed, Span], Stretch]:
    """The loop over rounds, compiled when it is first called.

    Parameters
    ----------
    jax
        The module.
    gradients
        From one theta (dim) and the data to local gradients (device, dim).
    kind
        What devices make of their gradients.
    """

    def advance(stretch: Stretch, fixed: Fixed, span: Span) -> Stretch:
        def one(index: Any, before: Stretch) -> Stretch:
            return _round(jax, gradients, kind, index, before, fixed, span)

        after: Stretch = jax.lax.fori_loop(span.begin, span.end, one, stretch)
        return after

    # What is given is not used again, so the loop may write over it.
    return jax.jit(advance, donate_argnums=0)  # type: ignore[no-any-return]


def _round(
    jax: Any,
    gradients: Callable[[Any, Any], Any],
    kind: SymbolKind,
    index: Any,
    before: Stretch,
    fixed: Fixed,
    span: Span,
) -> Stretch:
    """One round of all chains; ``index`` counts within the block."""
    numpy = jax.numpy
    local = jax.vmap(gradients, in_axes=(0, None))(fixed.centre + before.position, fixed.data)
    local = local.astype(numpy.float32)  # a user's constants may have made it double
    weights = fixed.weights[numpy.minimum(index, len(fixed.weights) - 1)]
    total, clipped, undefined = _superpose(jax, kind, index, local, weights, fixed)
    entry = numpy.arange(before.position.shape[1], dtype=numpy.uint32)
    normal = counters.normals(
        numpy, *counters.words(fixed.channel, entry, index.astype(numpy.uint32))
    )
    noise = fixed.noise[numpy.minimum(index, len(fixed.noise) - 1)]
    position = before.position - fixed.pull[index] * total - noise * normal
    place, kept = index - span.origin, index >= span.kept
    draws = before.draws
    if draws.shape[1]:
        draws = jax.lax.dynamic_update_slice_in_dim(draws, position[:, None], place, 1)
    sums = jax.lax.cond(kept, _summed, lambda sums, _: sums, before[1:5], position)
    clipped = before.clipped.at[place].set(numpy.where(kept, clipped, 0))
    undefined = before.undefined.at[place].set(undefined)
    return Stretch._make((position, *sums, draws, clipped, undefined))


def _superpose(
    jax: Any, kind: SymbolKind, index: Any, local: Any, weights: Any, fixed: Fixed
) -> tuple[Any, Any, Any]:
    """Sum over devices of weighted symbols, (chain, dim), and how many entries were clipped and
    were not finite."""
    numpy, num_devices = jax.numpy, local.shape[1]
    groups = -(-num_devices // AT_ONCE)
    entry = numpy.arange(local.shape[2], dtype=numpy.uint32)
    whole = numpy.zeros((len(local), num_devices, 1), bool)
    ready = local
    if kind.clipping == "norm":
        norm = numpy.sqrt(numpy.square(local).sum(axis=2, keepdims=True))
        whole = numpy.logical_not(norm <= fixed.clip)
        ready = scaled_to_norm(numpy, local, fixed.clip)
    first = (index * (groups + 1)).astype(numpy.uint32)
    low = numpy.zeros((), numpy.uint32)
    if kind.link is not None:
        low = counters.words(fixed.quantiser, entry, first + numpy.uint32(groups))[0]

    def add(group: Any, sums: Any) -> Any:
        total, clipped, undefined = sums
        halves = [None] * AT_ONCE
        if kind.link is not None:
            drawn = counters.words(fixed.quantiser, entry, first + group.astype(numpy.uint32))
            halves = _halves(jax, drawn, low)
        for position, half in enumerate(halves):
            device = group * AT_ONCE + position
            there = device < num_devices  # the last group may not be full

            def of(array: Any, axis: int, device: Any = device) -> Any:
                at = numpy.minimum(device, num_devices - 1)
                return jax.lax.dynamic_index_in_dim(array, at, axis, keepdims=False)

            weight = numpy.where(there, of(weights, 0), 0.0)
            gradient, raw = of(ready, 1), of(local, 1)
            changed = of(whole, 1)
            if kind.clipping != "none":
                if kind.clipping == "entry":
                    changed = numpy.logical_not(numpy.abs(raw) <= fixed.clip)
                gradient = numpy.clip(gradient, -fixed.clip, fixed.clip)
                gradient = numpy.where(numpy.isnan(gradient), 0.0, gradient)
            symbol = numpy.where(weight != 0.0, gradient * weight, 0.0)
            if kind.link is not None:
                limit = thresholds(jax, kind.link, gradient, fixed.link_factor)
                symbol = numpy.where(half < limit, weight, -weight)
            active = (weight != 0.0).astype(numpy.int32)
            total = total + symbol
            clipped = clipped + numpy.where(changed, active, 0)
            undefined = undefined + numpy.where(numpy.isfinite(raw), 0, active)
        return total, clipped, undefined

    shape = (len(local), local.shape[2])
    count = numpy.zeros(shape, numpy.int32)
    start = (numpy.zeros(shape, numpy.float32), count, count)
    total, clipped, undefined = jax.lax.fori_loop(0, groups, add, start)
    return total, clipped.sum(dtype=numpy.int32), undefined.sum(dtype=numpy.int32)


def _halves(jax: Any, drawn: tuple[Any, Any], low: Any) -> list[Any]:
    """Four random words with sign out of two: the upper half is a device's own, the lower one is
    shared by all devices of an entry and a round.

    Every word is uniform. What two devices share matters only where the upper halves of both tie
    with their thresholds, once in 2^32 pairs."""
    upper, lower = np.uint32(0xFFFF0000), low & np.uint32(0xFFFF)
    found = []
    for word in drawn:
        found += [(word & upper) | lower, (word << np.uint32(16)) | lower]
    return [jax.lax.bitcast_convert_type(word, jax.numpy.int32) for word in found]


def _summed(sums: tuple[Any, Any, Any, Any], position: Any) -> tuple[Any, ...]:
    """Sums and their rests with one more position."""
    whole = sums[2].ndim == 3
    product = position[:, :, None] * position[:, None] if whole else position * position
    return (*_add(sums[0], sums[1], position), *_add(sums[2], sums[3], product))


def _add(total: Any, rest: Any, value: Any) -> tuple[Any, Any]:
    """A sum and its rest with one more value: what rounding takes from the sum goes to the rest
    (Knuth's two-sum)."""
    new = total + value
    part = new - total
    rest = rest + ((total - (new - part)) + (value - part))
    rounded = new + rest
    return rounded, rest - (rounded - new)
