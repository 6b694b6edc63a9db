r"""Batches of examples on the JAX engine: each device's random part of its examples in a round,
drawn inside of the compiled loop.

The law is that of :mod:`flmc.models.batches`: in every round, device k draws :math:`n_k = \lceil q
N_k \rceil` of its :math:`N_k` examples uniformly, without replacement. Compiled arrays have one
shape, so a device with fewer examples in its batch than another one has *padding*, which counts for
nothing. Two ways of drawing have exactly this law, but for the finite words of the generator:

- for shares up to a quarter, independent uniform indices, of which the first :math:`n_k` different
  ones in the order of drawing are taken. By symmetry every subset of that size is as likely as any
  other. Work and memory go with the size of the batch, not with the number of examples. If fewer
  than :math:`n_k` indices of the planned number are different, all are drawn anew; the condition
  treats all examples alike, so it leaves the law uniform;
- for larger shares, a random number for each example, and the examples with the smallest ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import IntArray
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.models.batches import batch_sizes, weights_of

Words = Callable[[Any, Any, Any], tuple[Any, Any]]
"""The random generator of the compiled loop: :func:`flmc.sampling.jax_rounds.words`."""
_LARGEST_DRAWN = 0.25
"""Largest share for which indices are drawn one by one. Above it, so many are drawn twice that to
order all examples takes less work."""
_DEVIATIONS = 5.0
"""Number of standard deviations by which the number of drawn indices exceeds the mean number that
is needed for enough different ones. With more, padding takes longer than to draw anew, once in
several thousand rounds."""


class BatchDraw(NamedTuple):
    """How the devices of a model draw batches in a compiled loop.

    Attributes
    ----------
    sizes, counts
        Number of examples of each device, and of those in its batch, (device) each.
    weights
        Factor of the gradient of every example in a device's batch, (device), in single precision.
    num_rows
        Number of rows that are gathered for each device: those of the batch, and padding.
    ordered
        Whether all examples are put into a random order; False: indices are drawn one by one.
    """

    sizes: IntArray
    counts: IntArray
    weights: np.typing.NDArray[np.float32]
    num_rows: int
    ordered: bool

    @classmethod
    def of(cls, sizes: IntArray, share: float) -> BatchDraw:
        """The draw of a ``share`` of the examples of devices with ``sizes`` (device) of them."""
        counts = batch_sizes(sizes, share)
        weights = weights_of(sizes, share).astype(np.float32)
        ordered = share > _LARGEST_DRAWN
        pairs = {(int(size), int(count)) for size, count in zip(sizes, counts, strict=True)}
        needed = [int(counts.max())] if ordered else [_indices_for(*each) for each in pairs]
        return cls(sizes, counts, weights, max(1, *needed), ordered)

    def rows(self, jax: Any, words: Words, key: Any, index: Any) -> tuple[Any, Any]:
        """Batches of one chain in round ``index`` of its block, from the chain's ``key`` (2): rows
        of each device's examples, (device, row), and whether each is in the batch or padding,
        (device, row)."""
        if self.ordered:
            return self._first_of_order(jax, words, key, index)
        return self._different(jax, words, key, index)

    def _first_of_order(self, jax: Any, words: Words, key: Any, index: Any) -> tuple[Any, Any]:
        """The examples of every device with the smallest random numbers; as :meth:`rows`."""
        numpy, most = jax.numpy, int(self.sizes.max())
        place = numpy.arange(most, dtype=numpy.uint64)
        drawn = _numbers(numpy, words, key, index.astype(numpy.uint32), (len(self.sizes), most))
        # The lowest bits of a random number are replaced by the number of its example, which is
        # read off after the sort. Two examples tie, and are then taken in their order, with the
        # probability of 1 to 2^(64 - bits).
        bits = np.uint64(max(1, most - 1).bit_length())
        tagged = ((drawn >> bits) << bits) | place
        # A device's padding comes last.
        tagged = numpy.where(place < self.sizes[:, None], tagged, np.uint64(2**64 - 1))
        chosen = numpy.sort(tagged, axis=1)[:, : self.num_rows] & ((np.uint64(1) << bits) - 1)
        there = numpy.arange(self.num_rows) < self.counts[:, None]
        return numpy.where(there, chosen, 0).astype(numpy.int32), there

    def _different(self, jax: Any, words: Words, key: Any, index: Any) -> tuple[Any, Any]:
        """The first different ones of independent uniform indices of every device; as
        :meth:`rows`."""
        numpy, low = jax.numpy, np.uint64(2**32 - 1)
        shape = (len(self.sizes), self.num_rows)
        sizes, counts = self.sizes.astype(np.uint64)[:, None], self.counts
        order = numpy.arange(self.num_rows, dtype=numpy.uint64)

        def draw(attempt: Any) -> tuple[Any, Any, Any]:
            """Indices in the order of their size, (device, row), whether each is the first of its
            size, and its place in the order of drawing."""
            counter = index.astype(numpy.uint32) + attempt * np.uint32(ROUNDS_PER_BLOCK)
            drawn = _numbers(numpy, words, key, counter, shape)
            # The upper half of the product of 64 random bits and the number of examples N is a
            # uniform index: no index is likelier than another by more than N/2^64.
            found = (drawn >> np.uint64(32)) * sizes + (((drawn & low) * sizes) >> np.uint64(32))
            # One number holds the index and its place, so that a single array is sorted.
            tagged = numpy.sort(((found >> np.uint64(32)) << np.uint64(32)) | order, axis=1)
            indices = tagged >> np.uint64(32)
            new = numpy.concatenate(
                [numpy.ones((shape[0], 1), bool), indices[:, 1:] != indices[:, :-1]], axis=1
            )
            return indices.astype(numpy.int32), new, (tagged & low).astype(numpy.int32)

        def missing(state: Any) -> Any:
            return (state[1][1].sum(axis=1) < counts).any()

        def again(state: Any) -> Any:
            return state[0] + np.uint32(1), draw(state[0] + np.uint32(1))

        first = (numpy.uint32(0), draw(numpy.uint32(0)))
        _, (indices, new, place) = jax.lax.while_loop(missing, again, first)

        def half(_: Any, ends: tuple[Any, Any]) -> tuple[Any, Any]:
            """Two limits of the place up to which the new indices are as many as the batch has,
            with half of the distance between them."""
            below, above = ends
            middle = (below + above) // 2
            enough = (new & (place <= middle[:, None])).sum(axis=1) >= counts
            return numpy.where(enough, below, middle), numpy.where(enough, middle, above)

        ends = (numpy.full(shape[0], -1), numpy.full(shape[0], self.num_rows - 1))
        last = jax.lax.fori_loop(0, self.num_rows.bit_length(), half, ends)[1]
        return indices, new & (place <= last[:, None]) & (counts > 0)[:, None]


def _numbers(numpy: Any, words: Words, key: Any, counter: Any, shape: tuple[int, int]) -> Any:
    """Random numbers of 64 bits in this ``shape``, from the generator ``words`` with a chain's
    ``key`` (2) and a ``counter``."""
    entry = numpy.arange(shape[0] * shape[1], dtype=numpy.uint32)
    first, second = words(key, entry, counter)
    wide = (first.astype(numpy.uint64) << np.uint64(32)) | second.astype(numpy.uint64)
    return wide.reshape(shape)


def _indices_for(size: int, count: int) -> int:
    """Number of independent uniform indices of ``size`` examples to be drawn, so that ``count`` of
    them are different nearly always."""
    # After i different indices the next new one takes a geometric number of draws, with the
    # probability 1 - i/size.
    there = np.arange(count) / max(1, size)
    mean, variance = (1.0 / (1.0 - there)).sum(), (there / np.square(1.0 - there)).sum()
    return int(np.ceil(mean + _DEVIATIONS * np.sqrt(variance)))
