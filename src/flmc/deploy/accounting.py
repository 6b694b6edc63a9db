"""What rounds of a federation cost: the plan's event, at gains that bound what the grid sends."""

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
    """Gains whose privacy event bounds what symbols at some gains reveal on the channel's grid.

    They are the gains themselves, because the grid rounds towards 0; but where one example of an
    analog uplink is replaced, which may move a symbol by a little more than its share.

    Parameters
    ----------
    federation
        Gives uplink and grid.
    gain
        Gains that were planned or announced, in any shape.
    neighbouring
        What is replaced: all data of a ``device``, or one ``example``; None: what the plan says.
    """
    plan, uplink = federation.plan, federation.plan.uplink
    example = (neighbouring or plan.limits.neighbouring) == "example"
    if not example or uplink.random_bits or uplink.hides_like_a_device:
        return gain
    move = 2.0 * uplink.example_bound
    sharing = plan.dim if uplink.shares_move("example") else None
    values, place = np.unique(gain, return_inverse=True)
    grid = federation.grid
    stated = [grid.accounted_gain(float(v), uplink.peak, move, sharing) for v in values]
    return np.array(stated)[place].reshape(np.shape(gain))


def cost_of_run(federation: Federation, delta: float, neighbouring: str | None = None) -> float:
    """Upper bound of epsilon that the device that transmits most spends in the whole run.

    Parameters
    ----------
    federation
        The run.
    delta
        Delta at which epsilon is stated.
    neighbouring
        What is replaced: all data of a ``device``, or one ``example``; None: what the plan says.

    Raises
    ------
    UnknownPrivacy
        If nothing is proven for the plan's uplink.
    """
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
    """What a whole run may cost a device, for its owner to decide.

    Attributes
    ----------
    run, digest
        Name of the run, and the digest of the federation, as hexadecimal text.
    epsilon, delta
        Upper bound of what the device that transmits most spends in all rounds.
    neighbouring
        What epsilon protects: all data of a ``device``, or one ``example``.
    """

    run: str
    digest: str
    epsilon: float
    delta: float
    neighbouring: str

    @classmethod
    def of(cls, federation: Federation, delta: float, neighbouring: str) -> RunPrice:
        """The price of a run.

        Parameters
        ----------
        federation, delta, neighbouring
            As for :func:`cost_of_run`.
        """
        epsilon = cost_of_run(federation, delta, neighbouring)
        return cls(federation.run, federation.digest.hex(), epsilon, delta, neighbouring)

    def to_document(self) -> dict[str, Any]:
        """The price in plain values, for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "run": self.run,
            "digest": self.digest,
            "epsilon": self.epsilon if math.isfinite(self.epsilon) else None,
            "delta": self.delta,
            "neighbouring": self.neighbouring,
        }

    def listing(self) -> Listing:
        """The price in words."""
        what = f"epsilon {format_up(self.epsilon)} at delta {self.delta:g}"
        return Listing(
            f"run {self.run}",
            (
                Row("digest", self.digest),
                Row("cost", f"{what} for the data of one {self.neighbouring}, all rounds together"),
            ),
        )
