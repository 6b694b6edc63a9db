"""What a run has spent so far, for its status: computed now and then, because it takes a while."""

from __future__ import annotations

import math
import time

from flmc.deploy.server.server_record import ServerRecord
from flmc.runs.ledgers.ledger_cost import spent_curve

_SHARE = 0.02
"""Share of the time that accounting may take."""


class Spending:
    """Epsilon of the device that spent most, as of some round."""

    def __init__(self) -> None:
        self.epsilon: float | None = 0.0
        """The last one that was computed; None: it is unbounded."""
        self.round = 0
        """Round up to which it counts."""
        self._not_before = float("-inf")

    def update(self, record: ServerRecord, *, now: bool = False) -> None:
        """Compute it again if that has not cost too much time lately.

        Parameters
        ----------
        record
            Has the ledger.
        now
            Whether to compute it in any case.
        """
        plan, rounds = record.federation.plan, record.round
        began = time.monotonic()
        if rounds == self.round or plan.unknown_privacy is not None:
            return
        if began < self._not_before and not now:
            return
        curve = spent_curve(
            record.ledger[:rounds],
            plan.uplink,
            plan.limits,
            plan.num_devices,
            plan.dim,
            last_only=True,
        )
        self.epsilon = curve.epsilon if math.isfinite(curve.epsilon) else None
        self.round = rounds
        took = time.monotonic() - began
        self._not_before = began + took / _SHARE
