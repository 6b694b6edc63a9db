"""Consecutive rounds of some chains of one data set as one loop that JAX compiles: a counter-based
random generator, the devices' symbols, and the loop.

The generator is Threefry-2x32 with 20 rounds (Salmon, Moraes, Dror and Shaw, "Parallel random
numbers: as easy as 1, 2, 3", 2011), the one that JAX itself uses; a test compares the two. JAX's
own function stores its numbers in memory and uses one of the two words of each call; here both
words are used and stay in registers."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from flmc.base.randomness import Purpose, check_seed
from flmc.models.local_costs import TracedMoves
from flmc.sampling.jax_batches import BatchDraw
from flmc.uplink.uplink import Uplink

_ROTATIONS = ((13, 15, 26, 6), (17, 29, 16, 24))
_PARITY = 0x1BD11BDA
_ROUNDS = 20


def chain_key(
    seed: int, purpose: Purpose, experiment: int, chain: int, block: int
) -> np.typing.NDArray[np.uint32]:
    """Key, two words of 32 bits, of the random stream for one purpose (such as noise or bits), data
    set, chain and block of rounds. NumPy's ``SeedSequence`` makes it from the seed, with the same
    spawn key as the streams of the other engines."""
    place = (int(purpose), experiment, chain, block)
    sequence = np.random.SeedSequence(check_seed(seed), spawn_key=place)
    return sequence.generate_state(2).astype(np.uint32)


def words(key: Any, entry: Any, counter: Any) -> tuple[Any, Any]:
    """Two arrays (..., entry) of random words of 32 bits, from the generator Threefry-2x32. They
    depend only on ``key`` (..., 2), two words for each stream, on ``entry`` (entry), the numbers of
    the entries, and on ``counter``, a whole number that must differ between calls with one key."""
    first, second = key[..., 0, None], key[..., 1, None]
    keys = (first, second, first ^ second ^ np.uint32(_PARITY))
    x, y = entry + keys[0], counter + keys[1]
    for index in range(_ROUNDS):
        turn = _ROTATIONS[index // 4 % 2][index % 4]
        x = x + y
        y = ((y << np.uint32(turn)) | (y >> np.uint32(32 - turn))) ^ x
        if index % 4 == 3:
            injection = index // 4 + 1
            x = x + keys[injection % 3]
            y = y + keys[(injection + 1) % 3] + np.uint32(injection)
    return x, y


def normals(numpy: Any, first: Any, second: Any) -> Any:
    r"""Standard normals :math:`\sqrt{-2\ln u}\cos 2\pi v` (Box and Muller), in the shape of the
    arguments: two arrays of random words, which make the uniform numbers u and v.

    All 32 bits of the first word are used, so that magnitudes reach 6.8.
    """
    u = (first.astype(numpy.float32) + 0.5) * np.float32(2.0**-32)
    v = (second >> np.uint32(8)).astype(numpy.float32) * np.float32(2.0**-24)
    return numpy.sqrt(-2.0 * numpy.log(u)) * numpy.cos(np.float32(2.0 * math.pi) * v)


# The following functions turn gradients into symbols with JAX: the role of the device in
# :mod:`flmc.sampling.roles`, in single precision.
#
# A link is given by its mean bit :math:`\psi(g) = 2\Phi(g) - 1`: a bit is +1 if a random word of 32
# bits, read as a signed number, is below :math:`2^{31}\psi`.


LARGEST_BELOW = np.float32(2147483520.0)
"""Largest number in single precision that is below 2^31."""
_LARGEST = np.float32(1e30)
"""Largest magnitude of a gradient entry in the computation of a norm; larger entries are clipped to
it."""


class SymbolKind(NamedTuple):
    """Properties of an uplink's symbols that are constants of the code that JAX compiles.

    The mean bit of a link is height * f(factor * g) at a clipped gradient entry g, with a standard
    function f (:class:`flmc.uplink.link.MeanCurve`).

    Attributes
    ----------
    function
        Name of f, such as ``tanh``; None where symbols are clipped gradients, not bits.
    clipping
        ``entry`` where each entry of a gradient is clipped, ``norm`` where its norm is, or
        ``none``.
    height
        The number that multiplies f.
    """

    function: str | None
    clipping: str
    height: float = 1.0


def kind_of(uplink: Uplink) -> SymbolKind | None:
    """Properties of an uplink's symbols that are constants of the compiled code; None for an uplink
    of a user's class that makes its own symbols, or a link whose mean bit is no scaled standard
    function."""
    if not uplink.standard_symbols:
        return None
    clipping = uplink.clipping if math.isfinite(uplink.clip) else "none"
    if uplink.link is None:
        return SymbolKind(None, clipping)
    curve = uplink.link.curve(uplink.clip) if uplink.link.within_extremes else None
    return None if curve is None else SymbolKind(curve.function, clipping, curve.height)


def link_factor(uplink: Uplink) -> float:
    """The factor c in the mean bit of an uplink's link, which is s f(c g) at the clipped gradient
    entry g, with a standard function f such as tanh and a constant s; 1 where the uplink has no
    link. :func:`kind_of` must not be None for the uplink."""
    curve = None if uplink.link is None else uplink.link.curve(uplink.clip)
    return 1.0 if curve is None else curve.factor


def standard_function(jax: Any, name: str) -> Callable[[Any], Any] | None:
    """The function with this name in ``jax.numpy`` or ``jax.scipy.special``; None if neither has
    one."""
    plain: Callable[[Any], Any] | None = getattr(jax.numpy, name, None)
    return plain or getattr(jax.scipy.special, name, None)


def thresholds(jax: Any, kind: SymbolKind, clipped: Any, factor: Any) -> Any:
    """Thresholds of random words, as signed integers of 32 bits in the shape of ``clipped``: a
    device sends +1 where a random word, read as a signed integer, is below the threshold.
    ``clipped`` holds clipped gradients; ``factor``, from :func:`link_factor`, multiplies them in
    the link's mean bit."""
    function = standard_function(jax, kind.function or "")
    if function is None:
        raise TypeError(f"the engine was not asked whether JAX has a function {kind.function}")
    scaled = np.float32(2147483648.0 * kind.height) * function(factor * clipped)
    limited = jax.numpy.clip(scaled, -np.float32(2147483648.0), LARGEST_BELOW)
    return limited.astype(jax.numpy.int32)


def scaled_to_norm(numpy: Any, gradient: Any, bound: Any) -> Any:
    """Gradients (..., dim), scaled down where their norm exceeds ``bound``. NaN counts as 0, and
    infinite entries outweigh finite ones, as in :func:`~flmc.base.clipping.clip_norm`."""
    known = numpy.where(numpy.isnan(gradient), 0.0, gradient)
    endless = numpy.isinf(known)
    unbounded = endless.any(axis=-1, keepdims=True)
    # A gradient with infinite entries counts as infinitely long, in the direction that has +1 or -1
    # in the infinite entries and 0 in all others.
    known = numpy.where(unbounded, numpy.where(endless, numpy.sign(known), 0.0), known)
    # Entries are limited to ``_LARGEST``, because compiled code may round the inverse of a larger
    # number to 0.
    known = numpy.clip(known, -_LARGEST, _LARGEST)
    largest = numpy.abs(known).max(axis=-1, keepdims=True)
    tiny = np.float32(1.0) / _LARGEST
    unit = known / numpy.maximum(largest, tiny)
    norm = numpy.sqrt(numpy.square(unit).sum(axis=-1, keepdims=True))
    length = numpy.where(unbounded, numpy.inf, numpy.maximum(largest, tiny))
    return unit * numpy.minimum(length, bound / numpy.maximum(norm, tiny))


# Consecutive rounds of some chains of one data set as one loop that JAX compiles.
#
# The loop is the three roles of :mod:`flmc.sampling.roles` in single precision:
#
# .. math:: x \leftarrow x - p \sum_k w_k s_k - n z, \qquad p = \eta K/K_a, \quad n = p
# \sqrt{N_0}/A,
#
# where :math:`\eta` is the step size, :math:`K_a` of K devices transmit, :math:`N_0` is the noise
# power, A the gain, :math:`s_k` are the symbols of device k, z is standard normal, and :math:`w_k`
# is the factor with which the symbols of device k arrive: 0 for a silent device, else 1, or the
# true over the estimated path gain where devices estimate their channels. The position x is the
# deviation of theta from a fixed theta. A sum over kept rounds is a pair of numbers of single
# precision, which together have the digits of double precision. Numbers are added in the order of
# the rounds by the same code wherever the loop begins, so an interruption of the run does not
# change the sums.


AT_ONCE = 4
"""Number of devices that share one call of the random generator, whose two words of 32 bits give a
half word to each of them."""


class Stretch(NamedTuple):
    """State of some chains of one data set, which one call of the compiled loop over rounds
    changes. All arrays are in single precision, except for the counts.

    Attributes
    ----------
    position
        Deviations of theta from the fixed theta of the data set, the attribute ``centre`` of
        :class:`Fixed`, (chain, dim).
    sums, sums_rest, products, products_rest
        Sums over kept rounds of the deviations, (chain, dim), and of their products, (chain, dim,
        dim), or only of their squares, (chain, dim); each as a rounded sum and its rounding error.
    draws
        Positions after every round of the call, (chain, round, dim); the axis of rounds has length
        0 if draws are not kept.
    clipped, undefined
        Numbers of gradient entries of active devices in every round of the call, (round): entries
        that clipping changed (0 before the kept rounds), and entries that were not finite.
    local
        Local parameters of the devices, (chain, device, entry); None where they have none.
    """

    position: Any
    sums: Any
    sums_rest: Any
    products: Any
    products_rest: Any
    draws: Any
    clipped: Any
    undefined: Any
    local: Any = None


class Fixed(NamedTuple):
    """Input of the compiled loop that is constant over a block of rounds, for some chains of one
    data set.

    Attributes
    ----------
    data
        Arrays of the data set that the local gradients need.
    centre
        The fixed theta of the data set, (dim), from which positions of chains are deviations.
    quantiser, channel
        Keys of every chain's random streams for bits and for noise, (chain, 2) each.
    pull
        What multiplies the sum of the devices' symbols in the update of theta, (round): the step
        size times the number of all devices over that of the active ones; 0 where none is active.
    noise
        What multiplies standard normals in the update of theta, for the channel's noise, (round or
        1, dim or 1).
    weights
        What multiplies every device's symbols before they are summed, (round or 1, device, dim or
        1): 0 where the device does not transmit, the true over the estimated path gain where
        devices estimate their channel, else 1.
    clip, link_factor
        Largest magnitude of a local gradient's entry, or of its norm where that is clipped; and
        the factor of the gradient in the link's mean bit, as :func:`link_factor` returns it.
    midpoints
        Whether sums are of the points half way between the positions before and after a round.
    local
        Keys of every chain's random streams for the steps of local parameters, (chain, 2); None
        where devices have none.
    batch
        Keys of every chain's random streams for batches of examples, (chain, 2); None where devices
        use all examples.
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
    midpoints: Any
    local: Any = None
    batch: Any = None


class TracedBatches(NamedTuple):
    """Local gradients from random batches of examples: how devices draw them, and the function of
    their gradients, :attr:`flmc.models.local_costs.TracedCosts.batch`."""

    draw: BatchDraw
    gradients: Callable[[Any, Any, Any, Any, Any], Any]

    def local(self, jax: Any, theta: Any, key: Any, index: Any, data: Any) -> Any:
        """Local gradients of one chain, (device, dim), at its ``theta`` (dim), from batches that
        its ``key`` (2) gives in round ``index`` of its block."""
        rows, there = self.draw.rows(jax, words, key, index)
        return self.gradients(theta, data, rows, there.astype(theta.dtype), self.draw.weights)


class Span(NamedTuple):
    """The rounds that one call of the compiled loop runs: from ``begin`` to below ``end``, counted
    from 0 within a block of rounds. Rounds from number ``kept`` on are kept (not burn-in). The
    draws and counts of round ``origin`` are stored at index 0, those of later rounds behind."""

    begin: Any
    end: Any
    kept: Any
    origin: Any


def compile_rounds(
    jax: Any,
    gradients: Callable[[Any, Any], Any],
    kind: SymbolKind,
    moves: TracedMoves | None = None,
    batches: TracedBatches | None = None,
) -> Callable[[Stretch, Fixed, Span], Stretch]:
    """A function that runs rounds, which JAX compiles at its first call. Its arguments are the
    state of the chains before the rounds, the constant input of their block, and the span of rounds
    to run; it returns the state after them.

    ``gradients`` maps theta (dim) and the data to local gradients (device, dim). Where devices have
    local parameters, ``moves`` replaces it: it moves these parameters and gives the gradients that
    devices send; else None. Where devices use batches of their examples, ``batches`` replaces it;
    else None."""

    def advance(stretch: Stretch, fixed: Fixed, span: Span) -> Stretch:
        def one(index: Any, before: Stretch) -> Stretch:
            return _round(jax, gradients, kind, moves, batches, index, before, fixed, span)

        after: Stretch = jax.lax.fori_loop(span.begin, span.end, one, stretch)
        return after

    # donate_argnums=0: JAX may overwrite the old state, because it is not used again.
    return jax.jit(advance, donate_argnums=0)  # type: ignore[no-any-return]


def _round(
    jax: Any,
    gradients: Callable[[Any, Any], Any],
    kind: SymbolKind,
    moves: TracedMoves | None,
    batches: TracedBatches | None,
    index: Any,
    before: Stretch,
    fixed: Fixed,
    span: Span,
) -> Stretch:
    """The state of all chains after one round, number ``index`` of its block of rounds, from the
    state before it: gradients, symbols, noise, the step, and sums over kept rounds."""
    numpy = jax.numpy
    theta, own = fixed.centre + before.position, before.local
    if moves is not None:
        own, local = _moved(jax, moves, index, theta, own, fixed)
    elif batches is not None:
        each = jax.vmap(partial(batches.local, jax), in_axes=(0, 0, None, None))
        local = each(theta, fixed.batch, index, fixed.data)
    else:
        local = jax.vmap(gradients, in_axes=(0, None))(theta, fixed.data)
    local = local.astype(numpy.float32)  # a user's constants may have made the gradients double
    weights = fixed.weights[numpy.minimum(index, len(fixed.weights) - 1)]
    total, clipped, undefined = _superpose(jax, kind, index, local, weights, fixed)
    entry = numpy.arange(before.position.shape[1], dtype=numpy.uint32)
    normal = normals(numpy, *words(fixed.channel, entry, index.astype(numpy.uint32)))
    noise = fixed.noise[numpy.minimum(index, len(fixed.noise) - 1)]
    position = before.position - fixed.pull[index] * total - noise * normal
    place, kept = index - span.origin, index >= span.kept
    draws = before.draws
    if draws.shape[1]:
        draws = jax.lax.dynamic_update_slice_in_dim(draws, position[:, None], place, 1)
    # A draw is the midpoint of the positions before and after the round, or the position after it.
    # The latter is computed as half the sum of the position and itself, which is exact, so that one
    # compiled loop serves plans of both kinds.
    other = numpy.where(fixed.midpoints, before.position, position)
    draw = np.float32(0.5) * (other + position)
    sums = jax.lax.cond(kept, _summed, lambda sums, _: sums, before[1:5], draw)
    clipped = before.clipped.at[place].set(numpy.where(kept, clipped, 0))
    undefined = before.undefined.at[place].set(undefined)
    return Stretch._make((position, *sums, draws, clipped, undefined, own))


def _moved(
    jax: Any, moves: TracedMoves, index: Any, theta: Any, own: Any, fixed: Fixed
) -> tuple[Any, Any]:
    """Local parameters of all devices after round ``index`` of its block, (chain, device, entry),
    and the gradients that they send, (chain, device, dim), from ``theta`` (chain, dim) and the
    local parameters ``own`` before the round."""
    numpy, (num_devices, entries) = jax.numpy, own.shape[1:]
    # Every step of every device takes two random words for each local parameter, which make the
    # standard normal of a proposal, and two more, of which one decides whether it is accepted.
    place = numpy.arange(num_devices * (entries + 1), dtype=numpy.uint32)
    first = index.astype(numpy.uint32) * np.uint32(moves.steps)
    drawn = [words(fixed.local, place, first + np.uint32(step)) for step in range(moves.steps)]
    shape = (len(own), num_devices, entries + 1)
    normal = numpy.stack([normals(numpy, *two).reshape(shape) for two in drawn], axis=2)
    # Random words w become uniform numbers (w + 1/2)/2^32, which are never 0, so that no logarithm
    # is infinite.
    uniform = numpy.stack([two[0].reshape(shape)[..., -1] for two in drawn], axis=2)
    log_uniform = numpy.log((uniform.astype(numpy.float32) + 0.5) * np.float32(2.0**-32))
    each = jax.vmap(moves.moved, in_axes=(0, 0, None, 0, 0))
    after, gradients = each(theta, own, fixed.data, normal[..., :-1], log_uniform)
    return after.astype(numpy.float32), gradients


def _superpose(
    jax: Any, kind: SymbolKind, index: Any, local: Any, weights: Any, fixed: Fixed
) -> tuple[Any, Any, Any]:
    """Three results for round ``index`` of its block: the sum over devices of symbols times
    ``weights`` (device, dim or 1), (chain, dim); the number of gradient entries that clipping
    changed; and the number of gradient entries that were not finite. Both numbers are over all
    chains and active devices. ``local`` holds the local gradients, (chain, device, dim)."""
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
    if kind.function is not None:
        low = words(fixed.quantiser, entry, first + numpy.uint32(groups))[0]

    def add(group: Any, sums: Any) -> Any:
        """The three ``sums`` (of symbols, of numbers of clipped entries, and of entries that are
        not finite) after adding those of group number ``group`` of ``AT_ONCE`` devices."""
        total, clipped, undefined = sums
        halves = [None] * AT_ONCE
        if kind.function is not None:
            drawn = words(fixed.quantiser, entry, first + group.astype(numpy.uint32))
            halves = _halves(jax, drawn, low)
        for position, half in enumerate(halves):
            device = group * AT_ONCE + position
            there = device < num_devices  # the last group of devices may not be full

            # ``of`` selects the device's part of an array. Where ``device`` is beyond the last
            # device, because the last group of devices is not full, it selects the part of the last
            # device, whose weight is then set to 0.
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
            if kind.function is not None:
                limit = thresholds(jax, kind, gradient, fixed.link_factor)
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
    """Four random words for four devices, as signed integers of 32 bits, from the two words
    ``drawn``. The upper 16 bits of each are a different half of the words ``drawn``; the lower 16
    bits are those of ``low``, which all devices share in an entry and a round.

    Every word is uniform. The shared lower bits decide a device's bit only if its upper 16 bits
    equal those of its threshold; two devices' bits depend on each other only if this happens to
    both, once in 2^32 pairs."""
    upper, lower = np.uint32(0xFFFF0000), low & np.uint32(0xFFFF)
    mixed = []
    for word in drawn:
        mixed += [(word & upper) | lower, (word << np.uint32(16)) | lower]
    return [jax.lax.bitcast_convert_type(word, jax.numpy.int32) for word in mixed]


def _summed(sums: tuple[Any, Any, Any, Any], position: Any) -> tuple[Any, ...]:
    """``sums`` after adding one round's draw ``position`` (chain, dim): the sum of draws, its
    rounding error, the sum of products of their entries (or of squares alone), its rounding
    error."""
    whole = sums[2].ndim == 3
    product = position[:, :, None] * position[:, None] if whole else position * position
    return (*_add(sums[0], sums[1], position), *_add(sums[2], sums[3], product))


def _add(total: Any, rest: Any, value: Any) -> tuple[Any, Any]:
    """The sum ``total`` and its accumulated rounding error ``rest`` after adding ``value``, by
    Knuth's two-sum; ``total + rest`` is the sum with about twice the digits."""
    new = total + value
    part = new - total
    rest = rest + ((total - (new - part)) + (value - part))
    rounded = new + rest
    return rounded, rest - (rounded - new)
