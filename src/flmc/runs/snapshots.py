"""Watching a run while it goes: where it stands after every stretch of rounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from flmc.base.arrays import Array
from flmc.evaluation.metrics import Metrics
from flmc.sampling.chains import Chains
from flmc.sampling.simulation import RoundObserver


@dataclass(frozen=True)
class Snapshot:
    """Where a run stands.

    Attributes
    ----------
    round, num_rounds
        Rounds that are done, and rounds of the plan.
    draws
        Draws of the first data set so far, (chain, draw, dim), in the sampler's coordinates; None
        where none are kept. They are the run's own memory: copy what is to be used later.
    metrics
        Metrics of the rounds that were kept so far; None without a known posterior or a kept round.
    """

    round: int
    num_rounds: int
    draws: Array | None
    metrics: Metrics | None


Watch = Callable[[Snapshot], None]
"""Called after every stretch of rounds."""


class SnapshotObserver:
    """An observer of rounds that tells a watcher, beside the one that records.

    Parameters
    ----------
    watch
        Told where the run stands.
    num_rounds
        Rounds of the plan.
    metrics
        Metrics of the rounds that were kept so far.
    recorder
        Told everything first; None: nobody records.
    """

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
        """Called before rounds are run.

        Parameters
        ----------
        until
            The last round of the stretch, counted from 1.
        """
        if self._recorder is not None:
            self._recorder.begins(until)

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """Called after the rounds of a stretch.

        Parameters
        ----------
        chains
            Where the chains stand.
        now
            Whether the run stops here.
        """
        if self._recorder is not None:
            self._recorder.ended(chains, now=now)
        draws = chains.draws
        if draws is not None:
            draws = draws[0, :, : chains.draws_until(chains.round)]
        self._watch(Snapshot(chains.round, self._num_rounds, draws, self._metrics(chains)))

    def restore(self, chains: Chains) -> None:
        """Put chains that were just started where they were saved.

        Parameters
        ----------
        chains
            Chains before round 1.
        """
        if self._recorder is not None:
            self._recorder.restore(chains)
