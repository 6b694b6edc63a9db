r"""Mini-batches: the random part of its examples that a device uses in a round.

A device with :math:`N_k` examples draws :math:`n_k = \lceil q N_k \rceil` of them without
replacement, afresh in every round, for the share q that a plan states, and weighs each by
:math:`w_k = N_k/n_k \le 1/q`. The weighted sum of their gradients is unbiased, and its covariance
is :math:`w_k^2 n_k (1 - n_k/N_k) S_k`, where :math:`S_k` is the covariance of one example's
gradient over the device's examples."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose, generator
from flmc.models.local_costs import ExampleBound
from flmc.models.model import Model

_MOST_MEASURED = 1000
"""Largest number of examples of a device from which the covariance of their gradients is measured:
its standard deviations are then known to about 2 %."""
_CHECKED: WeakKeyDictionary[Model, set[ExampleBound | None]] = WeakKeyDictionary()
"""For each model, the bounds of single examples' gradients for which :func:`check_batches` has
already accepted its ``batch_gradient``, so that it computes nothing when it is called again."""
_ROUNDED = 1.0 - 1e-12
"""Factor of the batch size q N_k before it is rounded up, so that a floating-point product just
above a whole number does not add an example."""


class Batch(NamedTuple):
    """Examples that devices use in one round.

    Attributes
    ----------
    chosen
        Indices of the chosen examples among their device's own, from 0, (experiment, chain, device,
        largest batch size). Only the first ``sizes`` of a device's indices count; the rest are
        padding.
    sizes
        Number of examples in the batch of each device, (device).
    weights
        Factor by which each device multiplies the gradient of every example in its batch, (device).
    """

    chosen: IntArray
    sizes: IntArray
    weights: Array


def sizes_of(model: Model) -> IntArray:
    """Number of examples of each device of ``model``, (device). Raises ``InvalidSetting`` if its
    ``device_sizes`` is None, which says that it cannot compute gradients from batches."""
    if model.device_sizes is None:
        raise InvalidSetting(
            f"batch_share needs gradients of some of a device's examples, which"
            f" {type(model).__name__} does not give: use batch_share 1, or a class of your own with"
            " device_sizes and batch_gradient"
        )
    return np.array(model.device_sizes, dtype=np.int64)


def check_batches(model: Model, bound: ExampleBound | None) -> None:
    """Raise ``InvalidSetting`` unless ``model.batch_gradient``, for batches of all examples, agrees
    with the model's gradient from all examples, at the prior's mean and for the first data set. In
    both, each example's gradient is clipped as ``bound`` says; None: not clipped."""
    sizes = sizes_of(model)
    kept = type(model).__hash__ is object.__hash__
    if kept and bound in _CHECKED.get(model, ()):
        return
    theta = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (1, 1, model.dim)) + 0.0
    first = slice(0, 1)
    whole = model.batch_gradient(theta, sample_batches(sizes, 1.0, (1, 1)), bound, first)
    if bound is None:
        expected = model.gradient(theta, first)
    elif bound.by_norm:
        expected = model.norm_clipped_gradient(theta, bound.bound, first)
    else:
        expected = model.clipped_gradient(theta, bound.bound, first)
    small = 1e-9 * float(np.nan_to_num(np.abs(expected)).max(initial=0.0))
    if not np.allclose(whole, expected, rtol=1e-6, atol=small, equal_nan=True):
        raise InvalidSetting(
            f"batch_gradient of {type(model).__name__} does not fit its other gradients: with all"
            " examples and weights of 1 they must be equal, up to rounding"
        )
    if kept:
        _CHECKED.setdefault(model, set()).add(bound)


def batch_sizes(sizes: IntArray, share: float) -> IntArray:
    """Number of examples in the batch of each device, (device): ``share`` times its number of
    examples, ``sizes`` (device), rounded up."""
    return np.asarray(np.ceil(share * sizes * _ROUNDED), dtype=np.int64)


def weights_of(sizes: IntArray, share: float) -> Array:
    """Weight of each example's gradient in a device's batch, (device): the device's number of
    examples, ``sizes`` (device), over that in its batch, and never above 1 / ``share``; 1 for a
    device without examples."""
    counts = np.maximum(1, batch_sizes(sizes, share))
    return np.minimum(np.maximum(sizes, 1) / counts, 1.0 / share)


def draw_batch(
    sizes: IntArray, share: float, streams: Sequence[np.random.Generator], lead: tuple[int, int]
) -> Batch:
    """Draw a batch of each device for every chain. Devices have ``sizes`` (device) examples and use
    a ``share`` of them. ``lead`` is the number of data sets and of chains for each; ``streams`` has
    a random generator for each chain, data set by data set."""
    counts = batch_sizes(sizes, share)
    chosen = np.zeros((len(streams), len(sizes), max(1, int(counts.max()))), dtype=np.int64)
    for rng, row in zip(streams, chosen, strict=True):
        for device, (size, count) in enumerate(zip(sizes, counts, strict=True)):
            if count:
                row[device, :count] = rng.choice(size, count, replace=False, shuffle=False)
    return Batch(chosen.reshape(*lead, *chosen.shape[1:]), counts, weights_of(sizes, share))


def sample_batches(sizes: IntArray, share: float, lead: tuple[int, int]) -> Batch:
    """Batches with which a model is examined before a run: a ``share`` of the ``sizes`` (device)
    examples of each device, drawn from fixed seeds, so the same in every call. ``lead`` is the
    number of data sets and of chains for each."""
    streams = [generator(0, Purpose.BATCH, e, c) for e, c in np.ndindex(lead)]
    return draw_batch(sizes, share, streams, lead)


def batch_covariance(
    model: Model,
    share: float,
    bound: ExampleBound | None,
    theta: Array,
    rng: np.random.Generator,
) -> Array:
    """Covariance of each device's gradient over its random batches of a ``share`` of its examples,
    (device, dim, dim), at one ``theta`` (dim) for the first data set, with each example's gradient
    clipped as ``bound`` says. It is measured from at most 1000 examples of each device, which
    ``rng`` chooses."""
    sizes, dim = sizes_of(model), len(theta)
    count = int(np.minimum(sizes, _MOST_MEASURED).max())
    chosen = np.zeros((1, count, len(sizes), 1), dtype=np.int64)
    for device, size in enumerate(sizes):
        some = min(int(size), count)
        chosen[0, :some, device, 0] = rng.permutation(size)[:some]
    # Batches of one example with weight 1 return the gradients of single examples. They lie along
    # the chain axis, so that one call computes all of them.
    one = Batch(chosen, np.minimum(1, sizes), np.ones(len(sizes)))
    places = np.broadcast_to(theta, (1, count, dim))
    each = model.batch_gradient(places, one, bound, slice(0, 1))[0]
    batches, weights = batch_sizes(sizes, share), weights_of(sizes, share)
    found = np.zeros((len(sizes), dim, dim))
    for device, size in enumerate(sizes):
        some = min(int(size), count)
        if some > 1:
            spread = np.atleast_2d(np.cov(each[:some, device].T))
            factor = weights[device] ** 2 * batches[device] * (1.0 - batches[device] / size)
            found[device] = factor * spread
    return found
