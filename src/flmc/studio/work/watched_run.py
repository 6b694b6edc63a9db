"""A simulation in a thread of its own, with its progress and charts so far, for the page Run."""

from __future__ import annotations

import io
import shutil
import threading
import time
import zipfile
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import FlmcError, Interrupted
from flmc.evaluation.chain_statistics import FEWEST_DRAWS
from flmc.evaluation.diagnostics import diagnose_draws
from flmc.evaluation.metrics import Metrics
from flmc.evaluation.named_draws import entry_names
from flmc.models.distributions import Gaussian
from flmc.runs.execution import run
from flmc.runs.results import Result
from flmc.runs.snapshots import Snapshot
from flmc.settings.construction import make_engine
from flmc.settings.schema import Settings
from flmc.studio.work import computations
from flmc.studio.work.page_tasks import in_words
from flmc.studio.work.scratch import at_the_end
from flmc.views.charts.chart import Chart
from flmc.views.charts.run_charts import (
    ChainAgreement,
    agreement_chart,
    posterior_chart,
    trace_chart,
)

_LOOKS = 24
"""Number of times, at least, that a run reports its progress and its draws to the page; a run with
fewer rounds reports after every round."""
_MOST_STATISTICS = 300_000
"""Number of values (chains times draws times entries) above which draws are thinned before R-hat is
computed, to save time."""


class WatchedRun:
    """A simulation with ``settings`` in a thread of its own. It starts at once, records the run
    into a directory below ``directory``, and keeps its progress and its charts up to now in
    attributes."""

    def __init__(self, settings: Settings, directory: Path) -> None:
        self.settings, self.directory = settings, directory
        self.problem = computations.problem_of(settings)
        self.plan = computations.whole_plan(settings)
        self.round, self.began = 0, time.monotonic()
        self.ended: float | None = None
        self.metrics: Metrics | None = None
        self.charts: dict[str, Chart] = {}
        self.history: list[ChainAgreement] = []
        self.result: Result | None = None
        self.error: str | None = None
        self._stop = threading.Event()
        # The action is registered before the thread starts, because the thread unregisters it at
        # its end.
        self._forget = at_the_end(self._end)
        # A daemon: a run that hangs must not keep the studio's process alive after its end.
        self.thread = threading.Thread(target=self._run, daemon=True, name="studio run")
        self.thread.start()

    def stop(self) -> None:
        """Ask the run to stop; it ends within about a second."""
        self._stop.set()

    @property
    def stopping(self) -> bool:
        """Whether the run was asked to stop."""
        return self._stop.is_set()

    @property
    def running(self) -> bool:
        """Whether the run is still going on."""
        return self.ended is None

    def _run(self) -> None:
        """Body of the run's thread: conducts the simulation until it ends, is stopped, or fails,
        and stores its result or its error."""
        settings = self.settings
        try:
            self.result = run(
                self.plan,
                self.problem.model,
                settings.seed,
                settings.num_chains,
                keep_draws=True,
                engine=make_engine(settings),
                out=self.directory / "record",
                settings=settings.model_dump(exclude_defaults=True),
                # Snapshots are so frequent that the page can show how the chains settle, even in a
                # run of one second.
                checkpoint_rounds=max(1, self.plan.num_rounds // _LOOKS),
                stop=self._stop.is_set,
                watch=self._seen,
            )
            kept = self.result.kept_draws
            if kept is not None:
                self._draw(kept[0])
        except Interrupted as stopped:
            self.error = str(stopped).split(";")[0]
        except Exception as error:
            self.error = in_words(error)
        finally:
            self._forget()
            # ``ended`` is set last: once it is set, the page reads result and error without a lock.
            self.ended = time.monotonic()

    def _end(self) -> None:
        """Stop the run at the end of the studio, and wait for at most ten seconds, before its files
        are removed."""
        self.stop()
        self.thread.join(timeout=10.0)

    def _seen(self, now: Snapshot) -> None:
        """Note the round and the metrics of a snapshot (the state of the run after some rounds),
        and make charts of its draws; the run calls this in its own thread."""
        self.round, self.metrics = now.round, now.metrics
        if now.draws is None or now.draws.shape[1] < FEWEST_DRAWS:
            return
        try:
            self._draw(now.draws)
        except (FlmcError, ArithmeticError, ValueError):
            # Draws of which no chart can be made, such as those of chains that do not move, must
            # not end the run.
            return

    def _draw(self, draws: Array) -> None:
        """Make the charts of the draws so far, (chain, draw, dim): trace, agreement of the chains,
        and posterior where it is known."""
        every = max(1, draws.size // _MOST_STATISTICS)
        thinned = draws[None, :, ::every]
        if thinned.shape[2] >= FEWEST_DRAWS:
            diagnosis = diagnose_draws(thinned)
            worst, fewest = float(diagnosis.r_hat.max()), float(diagnosis.ess_bulk.min())
            here = self.plan.num_burn_in + draws.shape[1]
            if not self.history or self.history[-1].round < here:
                self.history.append(ChainAgreement(here, worst, fewest))
        # A chart object is replaced, never changed, because the page, in another thread, may be
        # drawing the old one.
        names = entry_names(self.plan.dim, self.problem.model.layout)
        self.charts["trace"] = trace_chart(draws, self.plan.num_burn_in + 1, names=names)
        self.charts["agreement"] = agreement_chart(self.history)
        exact = self.problem.model.posterior
        if exact is not None and self.plan.dim > 1:
            two = draws[..., :2].reshape(-1, 2).astype(float)
            law = Gaussian(two.mean(axis=0), np.cov(two.T))
            self.charts["posterior"] = posterior_chart(
                exact,
                {"draws, fitted": law},
                two,
                title="Draws against the exact posterior",
                names=names,
            )


def remove_after(watched: WatchedRun, directory: Path) -> None:
    """Wait for the end of a stopping run, and remove its files."""
    watched.thread.join()
    shutil.rmtree(directory, ignore_errors=True)


def zipped(directory: Path) -> bytes:
    """The files of a run's record as the bytes of a zip file, without the lock that marks a record
    in use."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as archive:
        for path in sorted(directory.rglob("*")):
            if path.is_file() and path.name != ".lock":
                archive.write(path, Path("record") / path.relative_to(directory))
    return stream.getvalue()
