"""The page Run: start, watch and stop a simulation, and download its record."""

from __future__ import annotations

import asyncio
import json
import shutil
import threading
from pathlib import Path

from nicegui import ui

from flmc.base.errors import FlmcError
from flmc.evaluation.diagnostics import AGREED
from flmc.settings.schema import to_toml
from flmc.studio.controls import field_of, read_given
from flmc.studio.elements.cards import (
    ChartCard,
    Tile,
    save_page,
    show_rows,
    show_verdict,
    with_notice,
)
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.elements.panel import Panel
from flmc.studio.page_addresses import command_line
from flmc.studio.work import computations
from flmc.studio.work.page_tasks import in_words
from flmc.studio.work.scratch import new_directory
from flmc.studio.work.watched_run import WatchedRun, remove_after, zipped
from flmc.views.charts.chart import Chart

_REFRESH = 0.4
"""Seconds between two updates of the page from the run's progress."""


class RunPage:
    """The page Run in one browser tab: it starts, shows and stops a simulation with the settings of
    its panel."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        self._watched: WatchedRun | None = None
        self._directory: Path | None = None
        self._shown: dict[str, Chart] = {}
        self._finished = self._closed = False
        self._ran: dict[str, str] | None = None
        ui.context.client.on_delete(self._close)
        whole = frame(state, on_theme=self._redraw, on_export=with_notice(self._export))
        with whole, ui.element("div").classes("sheet"):
            self.panel = Panel(state.given, self._changed)
            with ui.element("main").classes("main"):
                self._draw()
        self._timer = ui.timer(_REFRESH, self._look)
        self._changed()

    def _draw(self) -> None:
        """Draw the page's elements beside the panel of settings, still without a run."""
        with ui.element("section").classes("card"):
            with ui.element("div").classes("line"):
                self._start = ui.button("Start", icon="play_arrow", on_click=self._begin)
                self._stop = ui.button("Stop", icon="stop", on_click=self._end).props("outline")
                self._status = (
                    ui.label("Not started.").classes("caption").props('role="status" data-status')
                )
            self._changes = (
                ui.label("The settings were changed: what is shown is of the run before.")
                .classes("caption")
                .props('role="alert" data-changed')
            )
            self._changes.set_visibility(False)
            self._progress = ui.linear_progress(0.0, show_value=False).props("rounded")
        self._verdict = ui.element("div")
        with ui.element("div").classes("tiles"):
            self._tiles = {
                key: Tile(name, key)
                for key, name in {
                    "variance_ratio": "Variance ratio", "mean_error": "Squared mean error",
                    "w2": "Squared W2 distance", "r_hat": "Largest R-hat",
                    "effective_draws": "Effective draws",
                }.items()
            }  # fmt: skip
        with ui.element("div").classes("cards"):
            self._cards = {
                "trace": ChartCard(self.state, "Trace"),
                "posterior": ChartCard(self.state, "Draws against the exact posterior"),
                "agreement": ChartCard(self.state, "Agreement of the chains", whole=True),
            }
        for card in self._cards.values():
            card.say("Start a run to see it here.")
        for tile in self._tiles.values():
            tile.show("-")
        with ui.element("section").classes("card"):
            ui.label("Take it away").classes("text-subtitle2")
            with ui.element("div").classes("line"):
                self._record = ui.button(
                    "Record (zip)", icon="archive", on_click=with_notice(self._save_record)
                )
                ui.button("Settings (TOML)", icon="tune", on_click=with_notice(self._save_toml))
                ui.button("Plan (JSON)", icon="data_object", on_click=with_notice(self._save_plan))
            with ui.element("div").classes("line"):
                self._command = ui.label("").classes("code").props("data-command")
            ui.label(
                "Unpack the record and open it with flmc.load in Python, or with flmc ledger. It is"
                " gone when you leave this page."
            ).classes("caption")
        with ui.element("section").classes("card"):
            ui.label("Result").classes("text-subtitle2")
            self._rows = ui.element("div").classes("scroll")
            with self._rows:
                ui.label("Nothing was run yet.").classes("empty")
        self._buttons()

    def _buttons(self) -> None:
        """Enable or disable the buttons ``Start``, ``Stop`` and ``Record``, by whether a run is
        going on or has ended."""
        running = self._watched is not None and self._watched.running
        self._start.set_enabled(not running)
        self._stop.set_enabled(running)
        # A stopped run has a record too, with which `flmc resume` can continue it.
        self._record.set_enabled(self._watched is not None and not running)

    def _changed(self) -> None:
        """Check the settings after a change in the panel. If the charts shown are of a run with
        other settings, mark them as out of date."""
        self.state.changed()
        other = self._ran is not None and self._ran != self.state.given
        self._changes.set_visibility(other)
        for card in self._cards.values():
            card.card.classes(add="stale halted") if other else card.card.classes(remove="stale")
        try:
            self.panel.settled(read_given(self.state.given))
            self._command.set_text(command_line(self._given, "run"))
        except FlmcError as error:
            self._complain(str(error))

    @property
    def _given(self) -> dict[str, str]:
        """Settings of the run that the page shows, as text by name; before a run was started those
        of the panel."""
        return self.state.given if self._ran is None else self._ran

    def _complain(self, message: str) -> None:
        """Show an error message in the status line, and at the control of the setting that it
        names."""
        name = field_of(message)
        if name is not None:
            self.panel.complain(name, message)
        self._status.set_text(message)

    async def _begin(self) -> None:
        """Discard the last run, and start one with the current settings unless a run is going
        on."""
        if self._watched is not None and self._watched.running:
            return
        self._forget()
        # The button ``Start`` is disabled before the first await: a second click during the
        # planning must not start a second run.
        self._start.set_enabled(False)
        self._status.set_text("Planning …")
        for card in self._cards.values():
            card.say("The first rounds are on their way.")
        try:
            given = dict(self.state.given)
            settings = read_given(given)
            await asyncio.to_thread(computations.whole_plan, settings)
            if self._closed:  # the browser tab was closed during the planning
                return
            # The settings of the run are the copy made before the planning; the panel may have
            # others by now.
            self._ran = given
            self._directory = new_directory("run")
            self._watched = WatchedRun(settings, self._directory)
            self._changed()
        except Exception as error:
            self._complain(in_words(error))
        self._buttons()

    def _end(self) -> None:
        """Ask the run to stop, which takes about a second."""
        if self._watched is not None:
            self._watched.stop()
            self._status.set_text("Stopping …")

    def _look(self) -> None:
        """Show the run's progress and charts that are new since the last update of the page."""
        watched = self._watched
        if watched is None or self._finished:
            return
        # The loop goes over a copy, because the run's thread may add a chart meanwhile. A changed
        # chart is a new object, so identity tells whether a chart was drawn already.
        for name, chart in dict(watched.charts).items():
            if self._shown.get(name) is not chart:
                self._shown[name] = chart
                self._cards[name].show(chart)
        self._show_numbers(watched)
        total = watched.plan.num_rounds
        if watched.running:
            if not watched.stopping:
                self._status.set_text(f"Round {watched.round} of {total}")
            self._progress.set_value(watched.round / total)
            return
        self._finish(watched)

    def _show_numbers(self, watched: WatchedRun) -> None:
        metrics = watched.metrics if watched.result is None else watched.result.metrics
        if metrics is not None:
            for key, estimate in (
                ("variance_ratio", metrics.variance_ratio),
                ("mean_error", metrics.mean_error_squared),
                ("w2", metrics.wasserstein2_squared),
            ):
                self._tiles[key].show(str(estimate), estimate.mean)
        if watched.history:
            last = watched.history[-1]
            agreed = "agreed" if last.r_hat < AGREED else "not agreed"
            self._tiles["r_hat"].show(
                f"{last.r_hat:.4f}", last.r_hat, f"{agreed}: should be below {AGREED:g}"
            )
            self._tiles["effective_draws"].show(
                f"{last.effective_draws:.0f}",
                last.effective_draws,
                f"at least, of {watched.settings.num_chains} chains, worst entry",
            )

    def _finish(self, watched: WatchedRun) -> None:
        """Show the result of a run that has ended, or the error that ended it."""
        self._finished = True
        seconds = (watched.ended or 0.0) - watched.began
        self._rows.clear()
        self._verdict.clear()
        if watched.result is None:
            self._status.set_text(
                f"{watched.error or 'The run ended without a result'}. Its record can be taken"
                " away; flmc resume goes on with it."
            )
            with self._rows:
                ui.label("There is no result: the run did not end.").classes("empty")
        else:
            self._progress.set_value(1.0)
            self._status.set_text(
                f"Finished: {watched.plan.num_rounds} rounds of {watched.settings.num_chains}"
                f" chains in {seconds:.2g} s"
            )
            listing = watched.result.listing()
            with self._verdict:
                if watched.result.verdict is not None:
                    show_verdict(listing.headline, watched.result.verdict.lights)
            with self._rows:
                show_rows(listing.rows)
        self._buttons()

    def _forget(self) -> None:
        """Forget the last run of the page, and remove its files."""
        self._shown, self._finished = {}, False
        self._watched = self._ran = None
        if self._directory is not None:
            shutil.rmtree(self._directory, ignore_errors=True)
            self._directory = None

    def _close(self) -> None:
        """Stop the run of a closed tab, and remove its files after its end."""
        self._closed = True
        watched, directory = self._watched, self._directory
        if watched is None or directory is None:
            return
        watched.stop()
        # Waiting for the run in the event loop would freeze the other tabs.
        threading.Thread(target=remove_after, args=(watched, directory), daemon=True).start()

    def _redraw(self) -> None:
        for card in self._cards.values():
            card.redraw()

    async def _save_record(self) -> None:
        if self._directory is not None:
            content = await asyncio.to_thread(zipped, self._directory / "record")
            ui.download.content(content, "flmc-record.zip", "application/zip")

    def _save_toml(self) -> None:
        settings = read_given(self._given)
        text = to_toml(settings.model_dump(exclude_defaults=True))
        ui.download.content(text.encode(), "flmc-settings.toml", "application/toml")

    async def _save_plan(self) -> None:
        document = await asyncio.to_thread(computations.document, read_given(self._given))
        text = json.dumps(document, allow_nan=False, indent=1) + "\n"
        ui.download.content(text.encode(), "flmc-plan.json", "application/json")

    async def _export(self) -> None:
        if self._watched is None or self._watched.result is None:
            ui.notify("Finish a run first", type="warning")
            return
        charts = [card.chart for card in self._cards.values() if card.chart is not None]
        listing = self._watched.result.listing()
        await save_page("run", self._command.text, listing, charts, self.state.theme)
