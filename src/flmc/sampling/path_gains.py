"""Path gains of a block of rounds, for each experiment.

Where rounds are independent, each block of rounds has a random stream of its own. Where they are
not (Jakes, Gauss-Markov, a trace), the path gains of the whole run are drawn at once, and a block
is a slice of them, so that an interrupted run resumes with the same channel. Path gains of whole
runs stay in memory for later blocks, up to ``KEPT_BYTES`` bytes; those that do not fit are drawn
again for each block, with the same result."""

from __future__ import annotations

import logging
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, without_copies
from flmc.base.randomness import Purpose, generator
from flmc.planning.plans import Plan
from flmc.uplink.fading import Fading

_log = logging.getLogger(__name__)

KEPT_BYTES = 256_000_000
"""Largest number of bytes of each of two caches, which hold arrays for all rounds of an experiment:
one its path gains, the other its active devices. The arrays that were not used for longest are
dropped, and drawn again when they are needed."""

_Key = tuple[int, int, int]


class WholeRuns:
    """A cache, safe for threads, of random arrays that cover all rounds of an experiment, such as
    its path gains. The array that was not used for longest is dropped first.

    ``draw_anew`` draws an array from the plan, the seed and the number of the experiment;
    ``most_bytes`` is the largest number of bytes that the cache holds."""

    def __init__(self, draw_anew: Callable[[Plan, int, int], Array], most_bytes: int) -> None:
        self._draw_anew, self.most_bytes = draw_anew, most_bytes
        self._kept: OrderedDict[_Key, tuple[weakref.ref[Plan], Array]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()
        self._warned = False

    def draw(self, plan: Plan, seed: int, experiment: int) -> Array:
        """The array for all rounds of one experiment, from the cache or newly drawn by
        ``draw_anew``."""
        # The cache key holds the identity of the plan: two plans may compare equal although their
        # fadings, of a user's own class, differ.
        key = (id(plan), seed, experiment)
        with self._lock:
            plan_then, drawn = self._kept.get(key, (None, None))
            # Python may give the identity of a deleted plan to another one, so the plan itself is
            # compared.
            if drawn is not None and plan_then is not None and plan_then() is plan:
                self._kept.move_to_end(key)
                return drawn
        # The lock is not held while the array is drawn: if two threads draw it for the same
        # experiment, both get the same numbers.
        drawn = self._draw_anew(plan, seed, experiment)
        with self._lock:
            self._keep(key, plan, drawn)
        return drawn

    def _keep(self, key: _Key, plan: Plan, drawn: Array) -> None:
        """Add an array to the cache, whose lock the caller holds, and evict the least recently used
        arrays while the cache is too large."""
        # Another thread may have stored an array under the same key meanwhile; its bytes must not
        # count twice.
        if key in self._kept:
            self._bytes -= self._kept.pop(key)[1].nbytes
        self._kept[key] = (weakref.ref(plan), drawn)
        self._bytes += drawn.nbytes
        # An array larger than the whole cache evicts even itself, and is drawn again for every
        # block of rounds.
        while self._bytes > self.most_bytes:
            _, (_, oldest) = self._kept.popitem(last=False)
            self._bytes -= oldest.nbytes

    def warn_if_too_large(self, plan: Plan, num_bytes: int) -> None:
        """Warn, once for this cache, if path gains that are needed at the same time take
        ``num_bytes`` and this is more than the cache holds, so that they are drawn again for every
        block of rounds."""
        if num_bytes <= self.most_bytes or self._warned:
            return
        self._warned = True
        _log.warning(
            "all rounds of %s take %.3g MB for the data sets that run at once, and %.3g MB are"
            " kept: they are drawn again for every block of rounds, which is slow; set independent"
            " = True in the class if rounds are independent, or lower experiments_at_once",
            type(_law(plan)).__name__,
            num_bytes / 1e6,
            self.most_bytes / 1e6,
        )


def _law(plan: Plan) -> Fading:
    """Fading that draws the true path gains of a plan, even where devices know only estimates of
    them."""
    uplink = plan.uplink
    return uplink.known_fading if uplink.estimated is None else uplink.estimated.fading


def _draw_whole_run(plan: Plan, seed: int, experiment: int) -> Array:
    """Path gains of all rounds of one experiment, (1 or round, 1 or device, 1 or dim): an axis has
    length 1 where all its path gains are equal by the fading."""
    drawn = _law(plan).draw_checked(
        generator(seed, Purpose.FADING, experiment),
        range(plan.num_rounds),
        plan.num_devices,
        plan.dim,
    )
    # The cache keeps what this function returns: a copy, because a fading of a user's own class may
    # change its array later.
    return without_copies(drawn).copy()


_whole_runs = WholeRuns(_draw_whole_run, KEPT_BYTES)


def constant_path_gains(plan: Plan, seed: int) -> Array:
    """Path gains of a channel that is the same in all experiments and rounds, (1, 1, device,
    dim)."""
    # The random stream does not depend on the experiment, because all experiments share the
    # channel.
    return _law(plan).draw_checked(
        generator(seed, Purpose.FADING), range(1), plan.num_devices, plan.dim
    )[None]


def draw_path_gains(plan: Plan, seed: int, experiments: range, block: int, rounds: range) -> Array:
    """True path gains of the rounds ``rounds``, which make up block number ``block`` of the run,
    (experiment, round, device, dim); (1, 1, device, dim) where the channel is constant."""
    fading = _law(plan)
    if fading.constant:
        return constant_path_gains(plan, seed)
    shape = (len(rounds), plan.num_devices, plan.dim)
    if fading.independent:
        # Each block of rounds has a random stream of its own, so a resumed run need not draw the
        # blocks before it.
        streams = (generator(seed, Purpose.FADING, e, 0, block) for e in experiments)
        return _stacked([fading.draw_checked(rng, rounds, *shape[1:]) for rng in streams], shape)
    parts, num_bytes = [], 0
    for experiment in experiments:
        whole = _whole_runs.draw(plan, seed, experiment)
        num_bytes += whole.nbytes
        # An array with a single row stands for all rounds.
        parts.append(whole if len(whole) == 1 else whole[rounds.start : rounds.stop])
    _whole_runs.warn_if_too_large(plan, num_bytes)
    return _stacked(parts, shape)


def _stacked(parts: list[Array], shape: tuple[int, ...]) -> Array:
    """Path gains of several experiments in one array, (experiment, round, device, dim). ``parts``
    has one array for each experiment and ``shape`` is (round, device, dim). Where rounds, devices
    or entries share their path gains, the result is a broadcast view."""
    # The arrays of all experiments have the same shape, because one fading draws them.
    together = np.stack([without_copies(part) for part in parts])
    return np.broadcast_to(together, (len(parts), *shape))


class KnownChannel(NamedTuple):
    """Path gains of a block of rounds: those that devices know, and those that weaken their
    symbols. They differ where devices estimate their channels.

    Attributes
    ----------
    fading
        Path gains that devices know and invert, (experiment, round, device, dim).
    arriving
        In-phase part of the true path gains, in the same shape; None where devices know their path
        gains exactly.
    """

    fading: Array
    arriving: Array | None


def draw_known_channel(
    plan: Plan, seed: int, experiments: range, block: int, rounds: range
) -> KnownChannel:
    """Path gains of the rounds ``rounds``, which make up block number ``block`` of the run: those
    that devices know, and the true ones, (experiment, round, device, dim) each. Errors of the
    devices' estimates are drawn from other random streams than the path gains."""
    true = draw_path_gains(plan, seed, experiments, block, rounds)
    estimated = plan.uplink.estimated
    if estimated is None:
        return KnownChannel(true, None)
    shape = (len(experiments), len(rounds), plan.num_devices, plan.dim)
    drawn = [
        estimated.estimate(generator(seed, Purpose.ESTIMATION, e, 0, block), gains)
        for e, gains in zip(experiments, np.broadcast_to(true, shape), strict=True)
    ]
    # A device divides by the estimated magnitude. ``arrival`` is the in-phase part of the ratio of
    # the true path gain to the estimate, so the product of magnitude and ``arrival`` is the
    # in-phase part of the true path gain.
    known = np.stack([each.magnitude for each in drawn])
    factor = np.stack([each.arrival for each in drawn])
    return KnownChannel(np.broadcast_to(known, shape), np.broadcast_to(known * factor, shape))
