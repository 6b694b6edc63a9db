"""Input and output of one call of machine code: the factors that multiply symbols and noise in its
rounds, the frame (an array of sizes and addresses of arrays, the call's argument), and the state of
its chains."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains
from flmc.sampling.compiled.arrangement import (
    LANES,
    MOST_MEMBERS,
    TEAMS,
    Arrangement,
    Blocks,
    Numbers,
)
from flmc.sampling.compiled.devices import Form
from flmc.sampling.compiled.instructions import ROUNDS_AT_ONCE, WIDTH, Workspace, address_of
from flmc.sampling.compiled.link_curve import FittedLink
from flmc.sampling.compiled.rounds import FIELDS, advance_of
from flmc.sampling.schedule import Schedule

Floats = npt.NDArray[np.float32]


class GivenRounds(NamedTuple):
    """Factors that multiply symbols and noise in the update of theta in some rounds, in the form
    that machine code takes.

    Attributes
    ----------
    pull
        Factor of the sum of symbols, (round).
    noise
        Factor of the standard normals of the noise, (round, dim, 1 or chain).
    active
        Whether a device transmits, (round, device), where all chains share this.
    all_active
        Whether all devices transmit, (round).
    talks
        Factor of every device's symbols, (round, device, chain), where it differs between chains:
        it includes the step size, and is 0 for a silent device; ``active`` is then False
        everywhere. Else empty, (round, device, 0).
    """

    pull: Floats
    noise: Floats
    active: npt.NDArray[np.bool_]
    all_active: npt.NDArray[np.bool_]
    talks: Floats

    @classmethod
    def of(
        cls, plan: Plan, schedule: Schedule, rows: npt.NDArray[np.intp], unit: float, several: bool
    ) -> GivenRounds:
        r"""Factors that multiply symbols and noise in the update of theta, in the rounds of
        ``schedule``. ``rows`` holds, for every chain, the index of its data set in the schedule;
        ``unit`` is the clip where symbols are gradients, else 1; ``several`` says whether the run
        has several data sets.

        The update of a chain's position x, with symbols :math:`s_k` and a standard normal z, is
        :math:`x \leftarrow x - p \sum_k s_k - n z` with pull :math:`p = \eta K/K_a` (times the clip
        where symbols are gradients in units of it) and noise :math:`n = \eta (K/K_a) \sqrt{N_0}/A`.
        """
        count = schedule.num_active
        if schedule.active is None or len(schedule.active) == 1:
            count = count[:1]
        # A round in which nobody transmits is skipped: the factor of its symbols is 0.
        share = schedule.step_sizes * plan.num_devices
        share = np.divide(share, count, out=np.zeros(count.shape), where=count > 0)
        factor = _chosen(share, rows)
        noise = (
            factor[:, :, None] * math.sqrt(plan.uplink.noise_power) / _chosen(schedule.gain, rows)
        )
        shape = (factor.shape[1], plan.num_devices)
        active = np.ones(shape, np.bool_) if schedule.active is None else schedule.active[0] > 0
        talks = np.empty((*shape, 0), np.float32)
        # Factors for every chain (``talks``) make machine code round in another order. Their use
        # must not depend on the number of data sets in this call, but only on that of the run, so
        # that results do not depend on how a run is cut into calls.
        if (several and plan.scheduler.random) or len(count) > 1 or schedule.arriving is not None:
            factors = _factors(schedule, rows, plan.num_devices)
            factors *= (unit * factor)[:, :, None]
            talks = factors.transpose(1, 2, 0).astype(np.float32, order="C")
            factor, active = np.ones_like(factor) / unit, np.zeros(shape, np.bool_)
        everyone = schedule.active is None and not talks.size
        return cls(
            (factor[0] * unit).astype(np.float32),
            noise.transpose(1, 2, 0).astype(np.float32, order="C"),
            active,
            np.ones(len(active), np.bool_) if everyone else np.asarray(active.all(axis=1)),
            talks,
        )


def _chosen(values: Array, rows: npt.NDArray[np.intp]) -> Array:
    """The row of ``values`` (data set, ...) for every chain, (chain, ...). ``rows`` holds the index
    of each chain's data set; a single row of ``values`` stands for all data sets."""
    if len(rows) == len(values) == 1:
        return values
    return values[np.minimum(rows, len(values) - 1)]


def _factors(schedule: Schedule, rows: npt.NDArray[np.intp], num_devices: int) -> Array:
    """Factor, relative to the gain, with which every device's symbols arrive at the receiver,
    (chain, round, device), as a new array: 0 for a silent device, else 1, or the in-phase part of
    the true path gain over the estimate where devices estimate their channels. ``rows`` holds the
    index of each chain's data set in the schedule."""
    if schedule.active is None:
        factors = np.ones((len(rows), len(schedule), num_devices))
    else:
        factors = schedule.active[np.minimum(rows, len(schedule.active) - 1)]
    if schedule.arriving is not None:
        # Index 0 stands for all entries, because this engine refuses plans with estimated channels
        # in which entries of a round have different path gains.
        met, known = schedule.arriving[..., 0], schedule.fading[..., 0]
        factors *= (met / known)[np.minimum(rows, len(met) - 1)]
    return factors


def entries_share_gain(plan: Plan) -> bool:
    """Whether all entries of theta have the same path gain in a round. It is found from a test
    draw: path gains that entries share are a broadcast array, whose last axis has stride 0."""
    rng = np.random.default_rng(0)
    # A fading of a user's own class whose rounds are dependent may need all rounds of the run.
    rounds = range(1 if plan.uplink.fading.independent else plan.num_rounds)
    drawn = plan.uplink.fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    return plan.dim == 1 or drawn.strides[-1] == 0


_SLACK = 1024
"""Number of elements reserved behind the end of the array of random words, because the last vector
that is loaded or stored may reach beyond the end."""
_NEVER = 2**64 - 1
"""Value in place of the number of a block of rounds that says that no chain's position became
infinite or NaN."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_float)

_WRITTEN = ("x", "sums", "products", "path", "count", "lost")
"""Names of the arrays that machine code writes to. They must be passed themselves: in a copy the
results would be lost."""

UInts = npt.NDArray[np.uint32]


class Frame:
    """Argument of a call of machine code: named fields, which hold numbers or addresses of arrays.
    The object also holds the arrays, so that they live as long as it.

    ``link`` is the link in the form that machine code takes, None for an uplink without bits;
    ``entropy`` holds the words of the seed."""

    def __init__(
        self,
        plan: Plan,
        arrangement: Arrangement,
        rounds: GivenRounds,
        link: FittedLink | None,
        entropy: UInts,
    ) -> None:
        self._form = Form(
            arrangement,
            None if link is None else len(link) * isinstance(link, tuple),
            bool(plan.uplink.clips_norm and math.isfinite(plan.uplink.clip)),
            rounds.talks.size > 0,
            rounds.noise.shape[2] > 1,
        )
        self._most = 1.0 if math.isfinite(plan.uplink.clip) else math.inf
        self._fields = dict.fromkeys(FIELDS, 0)
        self._arrays: dict[str, Any] = {}
        dim, lanes = plan.dim, arrangement.lanes
        whole = ROUNDS_AT_ONCE // 2 * dim * lanes
        whole = -(-whole // WIDTH) * WIDTH
        # ``received`` is the number of floats of scratch memory for each block of chains: for the
        # sums of symbols, a gradient, and one more vector.
        received = 2 * max(dim * lanes, arrangement.tiles(dim) * arrangement.tile * WIDTH) + WIDTH
        team = MOST_MEMBERS if arrangement.kind == TEAMS else 1
        curve = np.array([] if link is None else link, np.float32)
        self.put(
            devices=plan.num_devices, dim=dim, tiles=arrangement.tiles(dim), link=curve,
            nodes=len(curve), entropy=entropy, num_entropy=len(entropy), pull=rounds.pull,
            noise=rounds.noise, num_noises=rounds.noise.shape[2], active=rounds.active,
            all_active=rounds.all_active, talks=rounds.talks,
            apart=rounds.talks.shape[2], received_size=received, normals_apart=whole,
        )  # fmt: skip
        self._workspace = Workspace(
            received=4 * team * received,
            away=4 * team * WIDTH,
            words=4 * (max(2 * whole, plan.num_devices * dim) + _SLACK),
            normals=4 * team * 2 * whole,
            recent=4 * team * (ROUNDS_AT_ONCE + 1) * dim * lanes,
            positions=0 if arrangement.entries else 8 * ROUNDS_AT_ONCE * dim,
            channel=4 * team * 4 * WIDTH,
            state=4 * team * 4 * WIDTH,
        )
        self._fields |= self._workspace.addresses

    @property
    def may_be_near(self) -> bool:
        """Whether, for chains near the fixed theta of their data set
        (:func:`flmc.sampling.chains.centre_of`), the sum over devices begins with the unclipped
        gradient of the sum of all costs, to which only the changes by clipping are added. This
        holds where symbols are gradients (not bits) that are clipped entry by entry or not at
        all."""
        return self._form.may_be_near

    def put(self, **values: Any) -> None:
        """Set fields of the frame by name, to numbers or to the addresses of arrays; the frame
        keeps the arrays alive."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                if name in _WRITTEN and not value.flags.c_contiguous:
                    raise ValueError(f"{name} must be contiguous: what is written would be lost")
                self._arrays[name] = kept = np.ascontiguousarray(value)
                self._fields[name] = address_of(kept)
            else:
                self._fields[name] = int(value)

    def run(self, blocks: int) -> tuple[int | None, int | None]:
        """Run all rounds for the first ``blocks`` blocks of chains. Returns the number of the first
        block with a chain whose position became infinite or NaN, and the number of the block of
        rounds in which that happened; None for both if all positions are finite."""
        lost = np.empty(blocks, np.uint64)
        lost.fill(_NEVER)
        self.put(blocks=blocks, lost=lost)
        # The values are in the order in which machine code expects the fields, because the
        # dictionary was made from FIELDS.
        frame = np.array(list(self._fields.values()), np.uint64)
        # ctypes releases Python's global lock during the call, so threads run in parallel.
        _CALL(advance_of(self._form))(address_of(frame), self._most)
        failed = (lost != _NEVER).nonzero()[0]
        return (int(failed[0]), int(lost[failed[0]])) if len(failed) else (None, None)


@dataclass
class KeptRounds:
    """State of the chains of one call of machine code: views of their positions, sums and paths,
    whose first axis is the chain; and copies of positions and sums in the order that the code
    needs, where the numbers of eight chains lie next to each other. ``rounds`` are the rounds of
    the call, counted from 0, and ``chains`` is the state of all chains of the run."""

    chains: Chains
    rounds: range
    rows: slice
    """Slice of the chains of this call of machine code, counted through all data sets."""
    num_burn_in: int
    """Number of the first round, counted from 0, whose positions are added to the sums."""
    path_from: int
    """Number of the first round, counted from 0, whose positions are stored in ``path``."""
    path_place: int
    """Index, along the second axis of ``path``, of the positions after round ``path_from``."""
    position: Array
    sums: Array
    products: Array
    path: Array
    """Positions after rounds, (chain of the call, place, dim), where a place is a round that is
    stored; empty if the positions after the rounds of this call are not stored."""

    @classmethod
    def of(
        cls, chains: Chains, num_burn_in: int, rounds: range, first: int, end: int
    ) -> KeptRounds:
        """Positions, sums and paths of the chains from ``first`` to below ``end``, counted through
        all data sets, for the rounds of one call of machine code."""
        dim, moments, rows = chains.position.shape[2], chains.moments, slice(first, end)
        path_from, place = rounds.stop, 0
        path: Array = np.empty((0, 0, dim))
        if chains.path is not None and chains.path.thin == 1:
            stored = chains.path.positions
            path = stored.reshape(-1, *stored.shape[2:])[rows]
            path_from = max(0, chains.path.first - 1)
            place = path_from + 1 - chains.path.first
        elif chains.path is not None and (few := chains.path.stored(rounds)):
            # With thinning, the path has room for some rounds only, but machine code stores the
            # positions after all rounds from ``path_from`` on. They go to an array of their own,
            # from which those that draws need are copied to the path after the call.
            path_from = few.start
            path = np.empty((end - first, rounds.stop - path_from, dim), chains.position.dtype)
        return cls(
            chains,
            rounds,
            rows,
            num_burn_in,
            path_from,
            place,
            chains.position.reshape(-1, dim)[rows],
            moments.sums.reshape(-1, dim)[rows],
            moments.products.reshape(len(moments.sums) * moments.sums.shape[1], -1)[rows],
            path,
        )

    def put(self, frame: Frame, lanes: Numbers, arrangement: Arrangement) -> None:
        """Copy positions and sums so that the numbers of the eight chains of a block lie next to
        each other, and set the fields of ``frame`` to the copies. ``lanes`` holds the number of the
        chain in every place of a block's vectors, (block, 8 or 1)."""
        own = lanes - self.rows.start
        self.x = np.swapaxes(self.position[own], 1, 2).copy()
        self.count = np.zeros((len(lanes), LANES), np.uint32)
        dim = self.position.shape[1]
        self._in_lanes: dict[str, Array] = {}
        if arrangement.entries:
            for name in ("sums", "products"):
                copied = getattr(self, name)[own]
                if name == "products" and copied.shape[2] < dim * dim:
                    # Only squares are kept here, but machine code sums all products. The squares
                    # become diagonals of matrices; other products are dropped after the call.
                    squares, copied = copied, np.zeros((*own.shape, dim * dim))
                    copied[:, :, :: dim + 1] = squares
                self._in_lanes[name] = np.ascontiguousarray(np.swapaxes(copied, 1, 2))
        summed = self._in_lanes or {"sums": self.sums, "products": self.products}
        frame.put(
            x=self.x, count=self.count, **summed,
            squares=not arrangement.entries and self.products.shape[1] == dim,
            path=self.path, path_apart=self.path.shape[1] * dim, path_from=self.path_from,
            path_place=self.path_place, midpoints=self.chains.midpoints, burn_in=self.num_burn_in,
        )  # fmt: skip

    def collect(self, blocks: Blocks) -> None:
        """Copy positions and sums after a call of machine code, where those of eight chains lie
        next to each other, back to the chains; ``blocks`` says which chain is where."""
        real = blocks.are_chains[:, : self.x.shape[2]]
        self.position[:] = np.swapaxes(self.x, 1, 2)[real]
        dim = self.position.shape[1]
        for name, array in self._in_lanes.items():
            summed, target = np.swapaxes(array, 1, 2)[real], getattr(self, name)
            target[:] = summed if summed.shape == target.shape else summed[:, :: dim + 1]
        if self.products.shape[1] == dim * dim:
            # Machine code sums products only in the upper triangle of the matrix; copy them to the
            # lower one.
            square = self.products.reshape(-1, dim, dim)
            for i in range(dim - 1):
                square[:, i + 1 :, i] = square[:, i, i + 1 :]
        path = self.chains.path
        if path is not None and path.thin > 1 and self.path.size:
            # The path has an axis of data sets and one of chains; ``rows`` counts chains through
            # all data sets, so both axes are joined.
            together = path.positions.reshape(1, -1, *path.positions.shape[2:])
            replace(path, positions=together).keep((0, self.rows), self.path_from, self.path)
