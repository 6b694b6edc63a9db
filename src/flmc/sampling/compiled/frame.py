"""One call of emitted code: its arrays, and the frame that tells where they are."""

from __future__ import annotations

import ctypes
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.planning.plans import Plan
from flmc.sampling.compiled.emitted.advance import advance_of
from flmc.sampling.compiled.emitted.arrangement import TEAMS, Arrangement
from flmc.sampling.compiled.emitted.devices import Form
from flmc.sampling.compiled.emitted.frame_fields import FIELDS
from flmc.sampling.compiled.emitted.team import MOST_MEMBERS
from flmc.sampling.compiled.given_rounds import GivenRounds
from flmc.sampling.compiled.link_curve import Curve
from flmc.sampling.compiled.machine.addresses import Room, address_of
from flmc.sampling.compiled.machine.emission import ROUNDS_AT_ONCE
from flmc.sampling.compiled.machine.value import WIDTH

_SLACK = 1024
"""Numbers that may be read behind the last, where a vector has entries that there are not."""
_NEVER = 2**64 - 1
"""Stands for a block of rounds where no chain was lost."""
_CALL = ctypes.CFUNCTYPE(None, ctypes.c_uint64, ctypes.c_float)

_WRITTEN = ("x", "sums", "products", "draws", "count", "lost")
"""What emitted code gives back."""

UInts = npt.NDArray[np.uint32]


class Frame:
    """Names and arrays of a call; an array lives as long as its frame.

    Parameters
    ----------
    plan
        What is run.
    arrangement
        How the data lie in memory.
    rounds
        The rounds of the call.
    link
        The link as the kernel takes it; None for an uplink without bits.
    entropy
        The words of the seed.
    """

    def __init__(
        self,
        plan: Plan,
        arrangement: Arrangement,
        rounds: GivenRounds,
        link: Curve | None,
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
        # Sums of symbols, a gradient, and a vector, for each block that runs with others.
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
        self._room = Room(
            received=4 * team * received,
            away=4 * team * WIDTH,
            words=4 * (max(2 * whole, plan.num_devices * dim) + _SLACK),
            normals=4 * team * 2 * whole,
            recent=4 * team * ROUNDS_AT_ONCE * dim * lanes,
            positions=0 if arrangement.entries else 8 * ROUNDS_AT_ONCE * dim,
            channel=4 * team * 4 * WIDTH,
            state=4 * team * 4 * WIDTH,
        )
        self._fields |= self._room.addresses

    @property
    def may_be_near(self) -> bool:
        """Whether the gradient of all costs may serve."""
        return self._form.may_be_near

    def put(self, **values: Any) -> None:
        """Put numbers, or arrays by their addresses, into the frame.

        Parameters
        ----------
        **values
            By the names of the fields.
        """
        for name, value in values.items():
            if isinstance(value, np.ndarray):
                if name in _WRITTEN and not value.flags.c_contiguous:
                    raise ValueError(f"{name} must be contiguous: what is written would be lost")
                self._arrays[name] = kept = np.ascontiguousarray(value)
                self._fields[name] = address_of(kept)
            else:
                self._fields[name] = int(value)

    def run(self, blocks: int) -> tuple[int | None, int | None]:
        """Run all rounds of the blocks.

        Parameters
        ----------
        blocks
            How many there are.

        Returns
        -------
        tuple
            The first block in which a chain was lost, and the block of rounds when; None.
        """
        lost = np.empty(blocks, np.uint64)
        lost.fill(_NEVER)
        self.put(blocks=blocks, lost=lost)
        # In the order of the fields, with which the dictionary began.
        frame = np.array(list(self._fields.values()), np.uint64)
        # The interpreter's lock is not held meanwhile.
        _CALL(advance_of(self._form))(address_of(frame), self._most)
        found = (lost != _NEVER).nonzero()[0]
        return (int(found[0]), int(lost[found[0]])) if len(found) else (None, None)
