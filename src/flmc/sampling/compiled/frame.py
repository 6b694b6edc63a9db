"""What one call of the kernel works on: its space, and the frame that tells emitted code where
everything is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from flmc.planning.plans import Plan
from flmc.sampling.compiled.blocks import LANES
from flmc.sampling.compiled.emitted.arrangement import Arrangement, Layout
from flmc.sampling.compiled.emitted.devices import FIELDS, Form
from flmc.sampling.compiled.emitted.emission import ROUNDS_AT_ONCE
from flmc.sampling.compiled.emitted.moments import moments_of, products_of_rounds
from flmc.sampling.compiled.emitted.rounds import rounds_of
from flmc.sampling.compiled.given_rounds import Floats, GivenRounds
from flmc.sampling.compiled.link_curve import Curve

_SLACK = 1024
"""Words that may be read behind the last, where a vector has entries that there are not."""


@dataclass(frozen=True)
class Frame:
    """Arrays of a call, and their addresses, which keep no array alive: this does."""

    emitted: tuple[np.uint64, np.uint64]
    """Addresses of the functions that run rounds, and that add moments or products."""
    fields: npt.NDArray[np.uint64]
    """Addresses and sizes in the order of
    :data:`~flmc.sampling.compiled.emitted.devices.FIELDS`."""
    shape: tuple[Any, ...]
    """The arrangement as :func:`~flmc.sampling.compiled.blocks.load_block` takes it."""
    words: npt.NDArray[np.uint32]
    """Room for random words."""
    space: Floats
    """The floats of a block of lanes."""
    layout: Layout
    """Where they begin."""
    others: tuple[Any, ...]
    """Arrays that only the fields point to."""

    @classmethod
    def of(
        cls, plan: Plan, arrangement: Arrangement, rounds: GivenRounds, link: Curve | None
    ) -> Frame:
        """The frame of a call.

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
        """
        devices, dim = plan.num_devices, plan.dim
        at = Layout.of(arrangement, devices, dim)
        space = np.zeros(at.end, np.float32)
        words = np.empty(max(LANES * ROUNDS_AT_ONCE * dim, devices * dim + _SLACK), np.uint32)
        curve = np.array([] if link is None else link, np.float32)
        all_active = np.asarray(rounds.active.all(axis=1))
        fields = {
            **{name: space.ctypes.data + 4 * start for name, start in at._asdict().items()},
            "devices": devices,
            "dim": dim,
            "tiles": arrangement.tiles(dim),
            "link": curve.ctypes.data,
            "nodes": len(curve),
            "words": words.ctypes.data,
            "pull": rounds.pull.ctypes.data,
            "active": rounds.active.ctypes.data,
            "all_active": all_active.ctypes.data,
        }
        form = Form(
            arrangement,
            None if link is None else len(link) * isinstance(link, tuple),
            bool(plan.uplink.clips_norm and np.isfinite(plan.uplink.clip)),
            rounds.talks.size > 0,
            rounds.noise.shape[2] > 1,
        )
        adding = moments_of(dim) if arrangement.entries else products_of_rounds()
        sizes = (arrangement.entries, arrangement.tile, arrangement.tiles(dim), arrangement.unit)
        return cls(
            (np.uint64(rounds_of(form)), np.uint64(adding)),
            np.array([fields.get(name, 0) for name in FIELDS], np.uint64),
            (*map(np.uint64, sizes), arrangement.lanes == 1),
            words,
            space,
            Layout._make(map(np.uint64, at)),
            (curve, all_active),
        )
