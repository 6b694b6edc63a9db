"""One call of machine code: the factors of the rounds that it runs, the frame (an array of numbers
and addresses) that tells it where its arrays are, and the chains that it changes."""

from __future__ import annotations

import ctypes
import math
from dataclasses import dataclass
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
    """Factors of symbols and noise in the update of theta in some rounds, as machine code takes
    them.

    Attributes
    ----------
    pull
        Factor of the sum of symbols, (round).
    noise
        Factor of the standard normals, (round, dim, 1 or chain).
    active
        Who transmits, (round, device).
    all_active
        Whether everybody does, (round).
    talks
        Factor of every symbol, (round, device, chain), which includes ``pull`` and who transmits,
        where data sets have devices of their own active; else empty.
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
        r"""Factors of symbols and noise in the rounds of ``schedule``, as machine code takes them.
        ``rows`` has for every chain the number of its data set in the schedule, ``unit`` is the
        clip where symbols are gradients, else 1, and ``several`` says whether the run has several
        data sets.

        The update of a chain's position x, with symbols :math:`s_k` and a standard normal z, is
        :math:`x \leftarrow x - p \sum_k s_k - n z` with pull :math:`p = \eta K/K_a` (times the clip
        where symbols are gradients in units of it) and noise :math:`n = \eta (K/K_a) \sqrt{N_0}/A`.
        """
        count = schedule.num_active
        if schedule.active is None or len(schedule.active) == 1:
            count = count[:1]
        # A round in which nobody transmits is skipped: its factor stays 0.
        share = schedule.step_sizes * plan.num_devices
        share = np.divide(share, count, out=np.zeros(count.shape), where=count > 0)
        factor = _chosen(share, rows)
        noise = (
            factor[:, :, None] * math.sqrt(plan.uplink.noise_power) / _chosen(schedule.gain, rows)
        )
        shape = (factor.shape[1], plan.num_devices)
        active = np.ones(shape, np.bool_) if schedule.active is None else schedule.active[0] > 0
        talks = np.empty((*shape, 0), np.float32)
        # Decided by the number of data sets in the run, not in this call: with factors for every
        # lane machine code rounds in another order, and a result must not depend on how a run is
        # cut into calls.
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
    """Rows of ``values`` (data set, ...) for every chain, (chain, ...), where ``rows`` has the
    number of each chain's data set; a single row stands for all data sets."""
    if len(rows) == len(values) == 1:
        return values
    return values[np.minimum(rows, len(values) - 1)]


def _factors(schedule: Schedule, rows: npt.NDArray[np.intp], num_devices: int) -> Array:
    """Factor of every device's symbols at the receiver, (chain, round, device), as a new array: 0
    for a silent device, 1 for an active one, or the factor that an inexact estimate of its channel
    makes of 1."""
    if schedule.active is None:
        factors = np.ones((len(rows), len(schedule), num_devices))
    else:
        factors = schedule.active[np.minimum(rows, len(schedule.active) - 1)]
    if schedule.arriving is not None:
        # All entries share a path gain: the engine refuses other plans.
        met, known = schedule.arriving[..., 0], schedule.fading[..., 0]
        factors *= (met / known)[np.minimum(rows, len(met) - 1)]
    return factors


def entries_share_gain(plan: Plan) -> bool:
    """Whether all entries of a round have the same path gain: a draw of path gains is then an array
    broadcast along its last axis, which has stride 0."""
    rng = np.random.default_rng(0)
    # A law of a user's own may need as many rounds as the run has.
    rounds = range(1 if plan.uplink.fading.independent else plan.num_rounds)
    drawn = plan.uplink.fading.draw_checked(rng, rounds, plan.num_devices, plan.dim)
    return plan.dim == 1 or drawn.strides[-1] == 0


_SLACK = 1024
"""Number of elements behind the end of an array that a vector load may touch, where the last vector
is not full."""
_NEVER = 2**64 - 1
"""Number that means "no chain left the range of numbers" where the number of a block of rounds is
expected."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_float)

_WRITTEN = ("x", "sums", "products", "path", "count", "lost")
"""Fields whose arrays machine code writes to: in a copy the result would be lost."""

UInts = npt.NDArray[np.uint32]


class Frame:
    """The frame of a call of machine code: fields, which the code reads (numbers and addresses),
    and the arrays at these addresses, which live as long as the frame.

    ``link`` is the fitted link, None for an uplink without bits; ``entropy`` holds the words of the
    seed."""

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
        # Number of floats of scratch memory for each block of chains: sums of symbols, a gradient,
        # and one vector more.
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
            recent=4 * team * ROUNDS_AT_ONCE * dim * lanes,
            positions=0 if arrangement.entries else 8 * ROUNDS_AT_ONCE * dim,
            channel=4 * team * 4 * WIDTH,
            state=4 * team * 4 * WIDTH,
        )
        self._fields |= self._workspace.addresses

    @property
    def may_be_near(self) -> bool:
        """Whether chains near the fixed point of their data set
        (:func:`flmc.sampling.chains.centre_of`) may start a round's sum over devices from the
        gradient of the sum of all costs, to which only the effect of clipping is added: where
        symbols are gradients that are clipped entry by entry."""
        return self._form.may_be_near

    def put(self, **values: Any) -> None:
        """Put numbers, or the addresses of arrays, into fields of the frame, which keeps the arrays
        alive."""
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                if name in _WRITTEN and not value.flags.c_contiguous:
                    raise ValueError(f"{name} must be contiguous: what is written would be lost")
                self._arrays[name] = kept = np.ascontiguousarray(value)
                self._fields[name] = address_of(kept)
            else:
                self._fields[name] = int(value)

    def run(self, blocks: int) -> tuple[int | None, int | None]:
        """Run all rounds of the first ``blocks`` blocks of chains, and return the first block with
        a chain that left the range of numbers, and the block of rounds in which it did; two None if
        no chain did."""
        lost = np.empty(blocks, np.uint64)
        lost.fill(_NEVER)
        self.put(blocks=blocks, lost=lost)
        # The dictionary was made in the order of the frame's fields, and so are its values.
        frame = np.array(list(self._fields.values()), np.uint64)
        # Python's global lock is released during the call.
        _CALL(advance_of(self._form))(address_of(frame), self._most)
        failed = (lost != _NEVER).nonzero()[0]
        return (int(failed[0]), int(lost[failed[0]])) if len(failed) else (None, None)


@dataclass
class KeptRounds:
    """What a call of machine code reads and writes of its chains: views of their positions, sums
    and paths, whose first axis is the chain; and copies in the order that the code needs, eight
    chains side by side (lanes)."""

    chains: Chains
    rounds: range
    rows: slice
    """The chains of this call of machine code, counted through all data sets."""
    num_burn_in: int
    """The round, counted from 0, from which on positions enter the sums."""
    path_from: int
    """The round, counted from 0, with which ``path`` begins."""
    position: Array
    sums: Array
    products: Array
    path: Array
    """Theta after the rounds, (chain of the call, round, dim); empty if draws are not kept."""

    @classmethod
    def of(
        cls, chains: Chains, num_burn_in: int, rounds: range, first: int, end: int
    ) -> KeptRounds:
        """Positions, sums and paths of the chains from ``first`` to below ``end``, counted through
        all data sets, for the rounds of one call of machine code."""
        dim, moments, rows = chains.position.shape[2], chains.moments, slice(first, end)
        path, path_from = np.empty((0, 0, dim)), chains.path_from
        if chains.path is not None and chains.thin == 1:
            path = chains.path.reshape(-1, *chains.path.shape[2:])[rows]
        elif chains.path is not None:
            # All kept rounds of this call are written here; those between two draws are dropped at
            # the end.
            path_from = max(path_from, rounds.start)
            path = np.empty((end - first, max(0, rounds.stop - path_from), dim))
        return cls(
            chains,
            rounds,
            rows,
            num_burn_in,
            path_from,
            chains.position.reshape(-1, dim)[rows],
            moments.sums.reshape(-1, dim)[rows],
            moments.products.reshape(len(moments.sums) * moments.sums.shape[1], -1)[rows],
            path,
        )

    def put(self, frame: Frame, lanes: Numbers, arrangement: Arrangement, centre: Array) -> None:
        """Copy positions and sums so that the eight chains of a block lie side by side, and put the
        copies into a frame; ``lanes`` is the chain of every lane (block, lane), and ``centre`` the
        point that its deviations are measured from, (block, lane, dim)."""
        own = lanes - self.rows.start
        self.x = np.swapaxes(self.position[own], 1, 2).copy()
        self.count = np.zeros((len(lanes), LANES), np.uint32)
        dim = self.position.shape[1]
        self._in_lanes: dict[str, Array] = {}
        if arrangement.entries:
            for name in ("sums", "products"):
                copied = getattr(self, name)[own]
                if name == "products" and copied.shape[2] < dim * dim:
                    # Where only squares are kept, they are the diagonals of products that are
                    # dropped at the end.
                    squares, copied = copied, np.zeros((*own.shape, dim * dim))
                    copied[:, :, :: dim + 1] = squares
                self._in_lanes[name] = np.ascontiguousarray(np.swapaxes(copied, 1, 2))
        summed = self._in_lanes or {"sums": self.sums, "products": self.products}
        frame.put(
            x=self.x, count=self.count, **summed,
            squares=not arrangement.entries and self.products.shape[1] == dim,
            centre=np.swapaxes(centre, 1, 2), path=self.path,
            path_apart=self.path.shape[1] * dim, path_from=self.path_from,
            burn_in=self.num_burn_in,
        )  # fmt: skip

    def collect(self, blocks: Blocks) -> None:
        """Copy positions and sums, as machine code left them in the lanes of ``blocks``, back to
        the chains."""
        real = blocks.are_chains[:, : self.x.shape[2]]
        self.position[:] = np.swapaxes(self.x, 1, 2)[real]
        dim = self.position.shape[1]
        for name, array in self._in_lanes.items():
            summed, target = np.swapaxes(array, 1, 2)[real], getattr(self, name)
            target[:] = summed if summed.shape == target.shape else summed[:, :: dim + 1]
        if self.products.shape[1] == dim * dim:
            # Machine code summed only the upper triangle: mirror it.
            square = self.products.reshape(-1, dim, dim)
            for i in range(dim - 1):
                square[:, i + 1 :, i] = square[:, i, i + 1 :]
        if self.chains.path is not None and self.chains.thin > 1:
            num_chains = self.chains.position.shape[1]
            for row, path in enumerate(self.path, self.rows.start):
                experiment, chain = divmod(row, num_chains)
                place = (experiment, slice(chain, chain + 1))
                self.chains.keep(place, self.path_from, path[None])
