"""Privacy cost of a federation's rounds, computed from the plan's privacy event at gains that
bound what the symbols reveal once they are rounded to the noise grid."""

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
from flmc.wire.federation import Federation


def accounted(federation: Federation, gain: Array, neighbouring: str | None = None) -> Array:
    """Gains, in the shape of ``gain``, at which the privacy accounting bounds what symbols sent at
    ``gain`` and rounded to the noise grid reveal; ``neighbouring`` is ``device`` or ``example``
    (None: the plan's), the data that the privacy statement hides."""
    plan, uplink = federation.plan, federation.plan.uplink
    # The grid rounds symbols towards 0, so the planned gain already bounds a whole device. Only
    # the replacement of one example of an analog uplink may move a rounded symbol by more than its
    # share.
    example = (neighbouring or plan.limits.neighbouring) == "example"
    if not example or uplink.symbol_format.levels is not None or uplink.example_moves_like_device:
        return gain
    move = 2.0 * uplink.example_bound
    sharing = plan.dim if uplink.shares_move("example") else None
    values, place = np.unique(gain, return_inverse=True)
    grid = federation.grid
    stated = [grid.accounted_gain(float(v), uplink.peak, move, sharing) for v in values]
    return np.array(stated)[place].reshape(np.shape(gain))


def cost_of_run(federation: Federation, delta: float, neighbouring: str | None = None) -> float:
    """Upper bound of epsilon at ``delta`` for the device that transmits most, over the whole
    run; ``neighbouring`` None means the plan's. Raises ``UnknownPrivacy`` if nothing is proven
    for the uplink."""
    plan = federation.plan
    if plan.unknown_privacy is not None:
        raise UnknownPrivacy(plan.unknown_privacy)
    exposure = exposure_of(
        plan.uplink,
        accounted(federation, federation.caps, neighbouring),
        plan.scheduler,
        plan.num_rounds,
        plan.num_devices,
        plan.dim,
        neighbouring or plan.limits.neighbouring,
    )
    return float(exposure.run.epsilon(delta))


@dataclass(frozen=True)
class RunPrice:
    """Privacy price of a whole run, for a device's owner to decide on.

    Attributes
    ----------
    run, digest
        Name of the run, and digest of the federation in hexadecimal.
    epsilon, delta
        Upper bound for the device that transmits most, over all rounds.
    neighbouring
        Unit that epsilon protects: all data of a ``device``, or one ``example``.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    neighbouring: str

    @classmethod
    def of(cls, federation: Federation, delta: float, neighbouring: str) -> RunPrice:
        """The price of a federation's whole run at ``delta``, computed by :func:`cost_of_run`."""
        epsilon = cost_of_run(federation, delta, neighbouring)
        return cls(federation.run, federation.digest.hex(), epsilon, delta, neighbouring)

    def to_document(self) -> dict[str, Any]:
        """The privacy price of the run in plain values, for JSON; an infinite epsilon is None."""
        return {
            "schema_version": ANSWER_VERSION,
            "run": self.run,
            "digest": self.digest,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "neighbouring": self.neighbouring,
        }

    def listing(self) -> Listing:
        """The price as a table for the terminal: digest of the federation, epsilon and delta."""
        what = f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}"
        return Listing(
            f"run {self.run}",
            (
                Row("digest", self.digest),
                Row("cost", f"{what} for the data of one {self.neighbouring}, all rounds together"),
            ),
        )
