"""Snapshots of a run under way, which a user's function receives about twice a second."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flmc.base.arrays import Array
from flmc.evaluation.metrics import Metrics
from flmc.sampling.chains import Chains
from flmc.sampling.simulation import RoundObserver


@dataclass(frozen=True)
class Snapshot:
    """State of a run that is under way, after some of its rounds: draws and metrics so far."""

    round: int
    """Number of finished rounds."""
    num_rounds: int
    """Number of all rounds of the plan."""
    draws: Array | None
    """Draws of the first data set so far, (chain, draw, dim), in the sampler's coordinates, which
    differ from the model's own if the model is whitened; None where no draws are kept. The array is
    the run's own memory: copy what is to be used later."""
    metrics: Metrics | None
    """Metrics of the rounds kept so far; None without a known posterior or a kept round."""


Watch = Callable[[Snapshot], None]
"""A user's function that is called with a snapshot of a run about twice a second, between
rounds."""


class SnapshotObserver:
    """An observer of a run that calls ``watch`` with a snapshot after each group of rounds, about
    twice a second. If there is a ``recorder``, it writes a checkpoint, if one is due, before that
    call."""

    def __init__(
        self,
        watch: Watch,
        num_rounds: int,
        metrics: Callable[[Chains], Metrics | None],
        recorder: RoundObserver | None,
    ) -> None:
        self._watch, self._num_rounds = watch, num_rounds
        self._metrics, self._recorder = metrics, recorder

    def begins(self, until: int) -> None:
        """Let the recorder, if there is one, enter the rounds up to number ``until`` (the first has
        number 1) into the run's ledger before they are run: their gains and silent devices, from
        which follows the privacy that they will have spent."""
        if self._recorder is not None:
            self._recorder.begins(until)

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Let the recorder, if there is one, write a checkpoint if one is due (or the run stops
        ``now``), then call ``watch`` with a snapshot."""
        if self._recorder is not None:
            self._recorder.ended(chains, now=now)
        draws = None
        if chains.path is not None and chains.keeps_draws:
            draws = chains.path.some_draws(slice(0, 1), chains.round)[0]
        self._watch(Snapshot(chains.round, self._num_rounds, draws, self._metrics(chains)))

    def restore(self, chains: Chains) -> None:
        """Set chains that have not begun to the last checkpoint, in place, if the run has a
        recorder."""
        if self._recorder is not None:
            self._recorder.restore(chains)
