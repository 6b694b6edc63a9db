"""Privacy cost of a federation's rounds. Devices' symbols are rounded to the noise grid, so the
plan's privacy event is evaluated at a gain that covers what the rounding may reveal in addition."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import UnknownPrivacy
from flmc.base.tables import Listing, Row, format_up
from flmc.planning.privacy_cost import exposure_of
from flmc.privacy.neighbours import moves, neighbours_in_words, relation_argument
from flmc.uplink.csi import arrival_bound
from flmc.wire.federation import Federation

NOT_HIDDEN = (
    "a federation shows which devices are there, which relation 'add_remove' of a device hides: use"
    " 'replace' or 'zero_out'"
)
"""Reason why a federation has no price for a device that is absent."""


def accounted(
    federation: Federation,
    gain: Array,
    neighbouring: str | None = None,
    relation: str | None = None,
) -> Array:
    """Gains that privacy accounting has to use, in the shape of ``gain``: unrounded symbols at
    these gains reveal at least as much as symbols that are sent at ``gain`` (amplitudes at the
    receiver) and rounded to the noise grid. ``neighbouring`` is the unit whose data the privacy
    statement hides, ``device`` or ``example``, and ``relation`` how it differs in neighbouring data
    (None: the plan's)."""
    plan, uplink = federation.plan, federation.plan.uplink
    hidden = neighbouring or plan.limits.neighbouring
    how = relation or plan.limits.relation
    # Bits and levels lie on the noise grid, and their peak is rounded towards 0, so the planned
    # gain already bounds what they reveal. The same holds for analog symbols if the hidden data can
    # move them from one end of their range to the other, or from an end to 0, which is a point of
    # the grid. Only analog symbols that move by less may be further apart after rounding to the
    # noise grid than before: they need a larger gain.
    sharing = None
    if uplink.symbol_format.levels is not None:
        return gain
    if uplink.shares_move(hidden):
        move, sharing = uplink.largest_move(plan.dim, hidden, **relation_argument(how)), plan.dim
    elif hidden == "example" and not uplink.moves_like_device(how):
        move = moves(how) * uplink.example_part
    else:
        return gain
    # Symbols sent through an inverted inexact channel estimate arrive louder than the planned gain,
    # and the grid rounds the symbols as they arrive. So the grid's bound is computed for the
    # loudest arrival, and then converted back into the gain that has this loudest arrival.
    extra, correlation = arrival_bound(uplink, plan.dim)

    def stated(value: float) -> float:
        if value < federation.least_gain:  # below this gain nobody transmits
            return value
        loud = (value + extra) / correlation
        bound = federation.grid.accounted_gain(
            loud, uplink.peak, move, sharing, peak_of_norm=uplink.clips_norm
        )
        return bound if extra == 0.0 else max(value, bound * correlation * (1 + 1e-15) - extra)

    values, place = np.unique(gain, return_inverse=True)
    return np.array([stated(float(value)) for value in values])[place].reshape(np.shape(gain))


def cost_of_run(
    federation: Federation,
    delta: float,
    neighbouring: str | None = None,
    runs: int = 1,
    relation: str | None = None,
) -> float:
    """Upper bound of epsilon at ``delta`` for the device that transmits most, over the whole run;
    with ``runs`` above 1, over that many runs of the same plan together. ``neighbouring`` is the
    protected unit, ``device`` or ``example``, and ``relation`` how it differs in neighbouring data
    (None: the plan's). Raises ``UnknownPrivacy`` if nothing is proven for the uplink, and for a
    device that is absent, because a federation shows which devices are there."""
    plan = federation.plan
    if plan.unknown_privacy is not None:
        raise UnknownPrivacy(plan.unknown_privacy)
    hidden, how = neighbouring or plan.limits.neighbouring, relation or plan.limits.relation
    if hidden == "device" and how == "add_remove":
        raise UnknownPrivacy(NOT_HIDDEN)
    exposure = exposure_of(
        plan.uplink,
        accounted(federation, federation.caps, hidden, how),
        plan.scheduler,
        plan.num_rounds,
        plan.num_devices,
        plan.dim,
        hidden,
        how,
    )
    return float(exposure.run.repeated(runs).epsilon(delta))


@dataclass(frozen=True)
class RunPrice:
    """Privacy price of a whole run, for a device's owner to decide on.

    Attributes
    ----------
    run, digest
        Name of the run, and digest of the federation in hexadecimal.
    epsilon, delta
        Upper bound of epsilon, at this delta, for the device that transmits most, over all rounds.
    neighbouring
        Unit that epsilon protects: all data of a ``device``, or one ``example``.
    runs
        Number of runs of the same plan, each with a chain of its own, that epsilon covers together.
    relation
        How the unit differs in neighbouring data: ``replace``, ``add_remove`` or ``zero_out``.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    neighbouring: str
    runs: int = 1
    relation: str = "replace"

    @classmethod
    def of(
        cls,
        federation: Federation,
        delta: float,
        neighbouring: str,
        runs: int = 1,
        relation: str = "replace",
    ) -> RunPrice:
        """The privacy price of a federation's whole run (with ``runs`` above 1: of that many runs
        of its plan together) at ``delta``, for the protected unit ``neighbouring`` (``device`` or
        ``example``) and a relation, computed by :func:`cost_of_run`."""
        epsilon = cost_of_run(federation, delta, neighbouring, runs, relation)
        digest = federation.digest.hex()
        return cls(federation.run, digest, epsilon, delta, neighbouring, runs, relation)

    def to_document(self) -> dict[str, Any]:
        """The privacy price of the run in plain values, for JSON; an infinite epsilon is None."""
        return {
            "schema_version": ANSWER_VERSION,
            "run": self.run,
            "digest": self.digest,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "neighbouring": self.neighbouring,
            "relation": self.relation,
            "runs": self.runs,
        }

    def listing(self) -> Listing:
        """The price as a table for the terminal: digest of the federation, epsilon and delta."""
        what = f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}"
        rounds = "all rounds together"
        if self.runs > 1:
            rounds = f"all rounds of {self.runs} runs together; a device adds up what each costs"
        neighbours = neighbours_in_words(self.neighbouring, self.relation)
        return Listing(
            f"run {self.run}",
            (
                Row("digest", self.digest),
                Row("cost", f"{what} for one {neighbours}, {rounds}"),
            ),
        )
