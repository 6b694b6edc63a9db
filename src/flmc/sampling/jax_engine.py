"""The JAX engine: for models whose gradients JAX can compute; rounds run in a loop that JAX
compiles.

The position of a chain is stored as the deviation of theta from a fixed theta of its data set
(:func:`flmc.sampling.chains.centre_of`), in single precision. Random numbers follow from the seed,
their purpose, the data set, the chain and the block of rounds, so neither the grouping of chains
nor an interruption of the run changes them. JAX chooses the number of threads and the processor, a
GPU if there is one. The rounding of a matrix product depends on both, so a run is repeated to the
bit only on the same machine; elsewhere it agrees statistically."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, NamedTuple

import numpy as np

from flmc.base.arrays import Array, without_copies
from flmc.base.progress import Progress, report_part
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.models.batches import sizes_of
from flmc.models.differentiation import require_jax
from flmc.models.local_costs import ExampleBound, TracedCosts
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains, centre_of, fail
from flmc.sampling.engine import (
    DEFAULT_RESOURCES,
    Resources,
    defined_together,
    num_symbols,
)
from flmc.sampling.jax_batches import BatchDraw
from flmc.sampling.jax_rounds import (
    Fixed,
    Span,
    Stretch,
    SymbolKind,
    TracedBatches,
    chain_key,
    compile_rounds,
    kind_of,
    link_factor,
    standard_function,
)
from flmc.sampling.schedule import DrawSchedule, Schedule, draw_schedule
from flmc.sampling.single_precision import SinglePrecisionEngine

_TILE_NUMBERS = 2_000_000
"""Largest number of gradient entries (chains x devices x dim) of a tile: the chains of a data set
that are advanced together. A tile has at least one chain, whatever its size."""
_DRAWN_NUMBERS = 16_000_000
"""Largest number of position entries (chains x rounds x dim) that one call of the compiled loop
returns; with more chains or entries, a call runs fewer rounds."""


class DataSetRun(NamedTuple):
    """Everything that is needed to advance the chains of one data set.

    Attributes
    ----------
    chains, plan, model, seed, schedule
        The arguments of :meth:`flmc.sampling.engine.Engine.advance`.
    experiment
        Number of the data set.
    data, loop
        Arrays of the data set that the local gradients need, and the compiled loop over rounds.
    """

    chains: Chains
    plan: Plan
    model: Model
    seed: int
    experiment: int
    schedule: DrawSchedule
    data: Any
    loop: Callable[[Stretch, Fixed, Span], Stretch]

    def advance(self, until: int, report: Progress) -> None:
        """Advance the chains of the data set to round ``until``, one block of rounds after the
        other and, within a block, one tile (part of the chains) after the other."""
        done = self.chains.round
        for block in range(done // ROUNDS_PER_BLOCK, -(-until // ROUNDS_PER_BLOCK)):
            one = range(self.experiment, self.experiment + 1)
            schedule = self.schedule(self.plan, self.seed, one, block)
            first = block * ROUNDS_PER_BLOCK
            begin, end = max(done - first, 0), min(until - first, len(schedule))
            for tile in self._tiles():
                fixed = self._fixed(schedule, block, tile)
                at_once = max(1, _DRAWN_NUMBERS // (len(tile) * self.plan.dim))
                for origin in range(begin, end, at_once):
                    self._stretch(
                        fixed, tile, first, range(origin, min(origin + at_once, end)), at_once
                    )
            report((first + end - done) / (until - done))

    def _tiles(self) -> list[range]:
        """The chains of the data set cut into ranges of about the same length, each of which is
        advanced as a whole (a tile)."""
        num_chains = self.chains.position.shape[1]
        numbers = self.plan.num_devices * self.plan.dim
        if self.plan.uplink.batched:
            draw = _draw_of(self.plan, self.model)
            held = draw.num_rows * _numbers_of_row(self.data)
            if draw.ordered:
                held = max(held, int(draw.sizes.max()))
            numbers = max(numbers, self.plan.num_devices * held)
        most = max(1, _TILE_NUMBERS // numbers)
        size = -(-num_chains // -(-num_chains // most))
        return [range(num_chains)[first : first + size] for first in range(0, num_chains, size)]

    def _fixed(self, schedule: Schedule, block: int, tile: range) -> Fixed:
        """Input of the compiled loop that is constant over block number ``block`` of rounds, for
        the chains ``tile``: data, keys of random streams, and the factors that multiply symbols and
        noise in the update of theta, in single precision."""
        plan, uplink = self.plan, self.plan.uplink
        count = schedule.num_active[0]
        with np.errstate(divide="ignore"):
            share = schedule.step_sizes * plan.num_devices / count
        # A round in which nobody transmits is skipped: the factor of its sum of symbols is 0.
        pull = np.where(count > 0, share, 0.0)
        noise = pull[:, None] * np.sqrt(uplink.noise_power) / without_copies(schedule.gain)[0]
        keys = [
            np.stack([chain_key(self.seed, purpose, self.experiment, c, block) for c in tile])
            for purpose in (Purpose.QUANTISER, Purpose.CHANNEL, Purpose.LOCAL, Purpose.BATCH)
        ]
        centre = centre_of(self.model)[self.experiment]
        arrays = (centre, _whole_block(pull), _shared(noise), _weights(schedule, plan))
        middle, pull, noise, weights = (array.astype(np.float32) for array in arrays)
        clip, factor = np.float32(uplink.clip), np.float32(link_factor(uplink))
        midpoints = np.bool_(plan.midpoints)
        return Fixed(
            self.data,
            middle,
            keys[0],
            keys[1],
            pull,
            noise,
            weights,
            clip,
            factor,
            midpoints,
            None if self.chains.local is None else keys[2],
            keys[3] if uplink.batched else None,
        )

    def _stretch(self, fixed: Fixed, tile: range, first: int, rounds: range, at_once: int) -> None:
        """Run some rounds of the block of rounds that begins with round ``first``, for the chains
        ``tile``, and write positions, sums, draws and counts into the chains of the run. ``rounds``
        are counted from 0 within the block. ``RunFailed`` if a position is not finite.

        Arrays have room for ``at_once`` rounds, however few are run, because JAX compiles the loop
        anew for every other size."""
        chains, moments = self.chains, self.chains.moments
        place = (self.experiment, slice(tile.start, tile.stop))
        sums, products = moments.sums[place], moments.products[place]
        space = min(at_once, ROUNDS_PER_BLOCK)
        drawn = space if chains.path is not None else 0
        counts = np.zeros(space, np.int32)
        before = Stretch(
            chains.position[place],
            *_pair(sums),
            *_pair(products),
            np.zeros((len(tile), drawn, self.plan.dim), np.float32),
            counts,
            counts,
            None if chains.local is None else chains.local[place],
        )
        span = Span(rounds.start, rounds.stop, self.plan.num_burn_in - first, rounds.start)
        reached = self.loop(before, fixed, span)
        after = Stretch._make(None if each is None else np.array(each) for each in reached)
        chains.position[place] = after.position
        if chains.local is not None:
            chains.local[place] = after.local
        finite = np.isfinite(after.position).all(axis=-1)
        if not finite.all():
            seen = f"within rounds {first + rounds.start + 1} to {first + rounds.stop}"
            fail(self.experiment, tile[int(np.argmin(finite))], seen)
        # The single-precision sum and its rounding error, which is stored beside it, together have
        # the digits of a double.
        sums[...] = after.sums.astype(np.float64) + after.sums_rest
        products[...] = after.products.astype(np.float64) + after.products_rest
        chains.num_clipped += int(after.clipped.sum(dtype=np.int64))
        chains.num_undefined += int(after.undefined.sum(dtype=np.int64))
        if chains.path is not None:
            chains.keep(place, first + rounds.start, after.draws[:, : len(rounds)])


def _pair(numbers: Array) -> tuple[Any, Any]:
    """Two arrays of single precision, in the shape of ``numbers``, whose sum is ``numbers`` to
    about twice the digits of single precision: the rounded numbers, and the rounding errors."""
    single = numbers.astype(np.float32)
    return single, (numbers - single).astype(np.float32)


def _whole_block(rows: Array) -> Array:
    """The array ``rows``, whose first axis is the round of a block, with its last row repeated
    until there are ``ROUNDS_PER_BLOCK`` rows. All blocks then have the same shape, also a short
    last one, and share the compiled code."""
    missing = ROUNDS_PER_BLOCK - len(rows)
    return np.concatenate([rows, np.repeat(rows[-1:], missing, axis=0)]) if missing > 0 else rows


def _shared(noise: Array) -> Array:
    """The factors ``noise`` (round or 1, dim or 1) of the noise in a block of rounds. An axis along
    which all factors are equal is cut to length 1; an axis of rounds that stays is extended to
    ``ROUNDS_PER_BLOCK`` by repeats of the last round."""
    if (noise == noise[:1]).all():
        noise = noise[:1]
    if (noise == noise[:, :1]).all():
        noise = noise[:, :1]
    return noise if len(noise) == 1 else _whole_block(noise)


def _weights(schedule: Schedule, plan: Plan) -> Array:
    """Factor, relative to the gain, with which every device's symbols arrive at the receiver,
    (round or 1, device, dim or 1). It is 0 for a device that does not transmit, else 1; or, where
    devices estimate their channels, the in-phase part of the true path gain divided by the
    estimate."""
    weights = np.ones((1, plan.num_devices, 1))
    if schedule.active is not None:
        weights = _whole_block(schedule.active[0])[:, :, None]
    if schedule.arriving is not None:
        met, known = without_copies(schedule.arriving)[0], without_copies(schedule.fading)[0]
        factor = met / known
        rows = np.broadcast_to(factor, (len(schedule), *factor.shape[1:]))
        weights = weights * _whole_block(rows)
    return weights


def _draw_of(plan: Plan, model: Model) -> BatchDraw:
    """How the devices of the ``model`` draw the batches of the plan."""
    return BatchDraw.of(sizes_of(model), plan.uplink.batch_share)


def _numbers_of_row(data: Any) -> int:
    """Number of numbers in one example of the ``data`` of a model with batches."""
    return sum(int(np.prod(each.shape[2:])) for each in data["rows"].values())


_Key = tuple[SymbolKind, ExampleBound | None, float]
_Loop = Callable[[Stretch, Fixed, Span], Stretch]
_quadratic_loops: dict[_Key, _Loop] = {}
"""Compiled loops over rounds that all quadratic models share. A key is the kind of symbols, the
bound of single examples' gradients (None: not bounded), and the share of its examples that a device
uses in a round. Any other model holds its compiled loops in an attribute of its own, so that they
are freed with the model."""
_ATTRIBUTE = "_compiled_rounds"


class JaxEngine(SinglePrecisionEngine):
    """Engine that compiles rounds with JAX, for models that are given by log densities and for
    quadratic ones."""

    name: ClassVar[str] = "jax"
    libraries: ClassVar[tuple[str, ...]] = ("jax", "jaxlib")
    threaded: ClassVar[bool] = True
    any_batch: ClassVar[bool] = True

    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Reason why JAX cannot compile the rounds of a plan with a model, as the end of a
        sentence; None if it can."""
        kind = kind_of(plan.uplink)
        if kind is None:
            return f"{type(plan.uplink).__name__} has symbols or a link of its own"
        if not defined_together(model, "gradient", "traced", "quadratic"):
            return f"{type(model).__name__} has a gradient of its own"
        costs = _costs(plan, model)
        if plan.uplink.batched:
            # Asked of the class, because its batches may be other than those of its parent.
            alike = defined_together(model, "gradient", "batch_gradient")
            if costs is None or costs.batch is None or not alike:
                return f"{type(model).__name__} has no gradients of batches that JAX can trace"
        if costs is None:
            single = " of single examples" if plan.uplink.clips_examples else ""
            return f"{type(model).__name__} has no gradients{single} that JAX can trace"
        # This check comes last, because it imports JAX, which is slow.
        if kind.function is not None and standard_function(require_jax(), kind.function) is None:
            return f"JAX has no function {kind.function}, which the link names"
        return None

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether the model itself gives local gradients that JAX can trace. Where it gives only
        quadratic costs, this engine can run it but is not expected to be the fastest."""
        return model.traced() is not None

    def start(self, plan: Plan, model: Model, seed: int, num_chains: int, **kept: Any) -> Chains:
        """State before round 1, as :meth:`flmc.sampling.engine.Engine.start` describes it; ``kept``
        are its keyword arguments. The devices' local parameters, if the model has any, begin at the
        values that the model gives."""
        chains = super().start(plan, model, seed, num_chains, **kept)
        costs = model.traced() if model.num_local else None
        if costs is not None and costs.moves is not None:
            lead = (model.num_experiments, num_chains, model.num_devices, 1)
            chains.local = np.tile(costs.moves.start, lead).astype(np.float32)
        return chains

    def advance(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        resources: Resources = DEFAULT_RESOURCES,
        schedule: DrawSchedule = draw_schedule,
    ) -> None:
        """Advance all chains in place to the end of round ``until``, counted from 1, one data set
        after the other."""
        jax = require_jax()
        # Double precision is enabled although all arrays here are in single precision: a user's
        # function may hold constants in double precision, and JAX confuses the constants of a
        # function that it traces once with double precision enabled and once without.
        with jax.enable_x64():
            costs, loop = _loop_of(jax, plan, model)
            for experiment in range(model.num_experiments):
                report = report_part(resources.progress, experiment, model.num_experiments)
                data = _single(jax, costs.data(experiment))
                chains_of = DataSetRun(chains, plan, model, seed, experiment, schedule, data, loop)
                chains_of.advance(until, report)
        chains.round = until

    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """Seconds of one round of all chains, estimated at 100 million symbols a second."""
        return num_symbols(plan, model, num_chains) / 1e8


def _costs(plan: Plan, model: Model) -> TracedCosts | None:
    """Local gradients of the model as a function that JAX can trace; None if the model gives no
    such function. If the plan's uplink clips gradients of single examples, the function clips every
    example's gradient before it sums over a device's examples."""
    uplink, bound = plan.uplink, None
    if uplink.clips_examples:
        by_norm = uplink.example_norm is not None
        bound = ExampleBound(uplink.example_bound, by_norm=by_norm)
    traced = model.traced(bound)
    if traced is not None or bound is not None or model.quadratic(slice(0, 1)) is None:
        return traced

    def data(experiment: int) -> dict[str, Array]:
        costs = model.quadratic(slice(experiment, experiment + 1))
        return {} if costs is None else {"hessian": costs.hessian[0], "offset": costs.offset[0]}

    return TracedCosts(_quadratic_gradients, data)


def _quadratic_gradients(theta: Any, data: Any) -> Any:
    """Local gradients of quadratic costs, (device, dim), at ``theta`` (dim). ``data`` holds every
    device's Hessian H (device, dim, dim) and offset b (device, dim); the gradient is
    H theta - b."""
    return data["hessian"] @ theta - data["offset"]


def _loop_of(jax: Any, plan: Plan, model: Model) -> tuple[TracedCosts, _Loop]:
    """Local gradients of a model, and the compiled loop over rounds for the symbols of the plan.
    The loop is cached: in the model, or in one cache for all quadratic models. ``TypeError`` if
    this engine cannot run the plan."""
    costs, kind, uplink = _costs(plan, model), kind_of(plan.uplink), plan.uplink
    if costs is None or kind is None:
        raise TypeError("the engine was not asked whether it can run this plan")
    bound = None
    if uplink.clips_examples:
        bound = ExampleBound(uplink.example_bound, by_norm=uplink.example_norm is not None)
    shared = costs.gradients is _quadratic_gradients
    loops = _quadratic_loops if shared else vars(model).setdefault(_ATTRIBUTE, {})
    key = (kind, bound, uplink.batch_share)
    if key not in loops:
        batches = None
        if uplink.batched and costs.batch is not None:
            batches = TracedBatches(_draw_of(plan, model), costs.batch)
        loops[key] = compile_rounds(jax, costs.gradients, kind, costs.moves, batches)
    return costs, loops[key]


def _single(jax: Any, tree: Any) -> Any:
    """A copy of a tree of arrays (nested dicts, lists or tuples) on the processor where JAX
    computes, with real numbers in single precision."""

    def single(leaf: Any) -> Any:
        real = np.issubdtype(leaf.dtype, np.floating)
        # A number too large for single precision becomes infinite without a warning: a user's data
        # may hold such numbers, and the gradients made from them are clipped later.
        with np.errstate(over="ignore"):
            return jax.numpy.asarray(leaf.astype(np.float32) if real else leaf)

    return jax.tree.map(single, tree)
