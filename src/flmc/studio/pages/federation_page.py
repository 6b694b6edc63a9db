"""The page Federation: live progress, devices and privacy of runs on separate machines, as heard
from the studio's MQTT broker."""

from __future__ import annotations

import shlex
import time
from collections import Counter
from collections.abc import Sequence

from nicegui import ui

from flmc.base.tables import Grid, Listing, Row, Severity, format_up
from flmc.studio.elements.cards import (
    ChartCard,
    Tile,
    save_page,
    show_grid,
    show_verdict,
    with_notice,
)
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.work.watched_federation import FEDERATIONS
from flmc.views.charts.chart import Chart
from flmc.views.charts.run_charts import active_chart, spent_chart, time_chart
from flmc.wire.drops import REASONS
from flmc.wire.observation import TROUBLE, ObservedRun
from flmc.wire.presence import STATES, Presence
from flmc.wire.status import Status
from flmc.wire.topics import SERVER

_REFRESH = 0.5
"""Seconds between two updates of the page from the messages received so far."""
_MOST_ROWS = 100
"""Largest number of roles (server, air and devices) in the table of their states. Roles that
refused or are gone come first."""
_VERDICTS: dict[str, tuple[str, Severity]] = {
    "waiting": ("WAITING", "plain"),
    "running": ("RUNNING", "good"),
    "finished": ("FINISHED", "good"),
    "failed": ("FAILED", "bad"),
}
_TILES = {
    "round": "Rounds done", "active": "Active devices", "epsilon": "Epsilon of the run",
    "round_ms": "Time of a round", "repeats": "Repeated rounds", "dropped": "Dropped messages",
}  # fmt: skip


class FederationPage:
    """The page Federation in one browser tab: live progress, devices and privacy of one run at the
    studio's MQTT broker. In its URL, ``run`` names the run."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        if FEDERATIONS.broker is None:
            with frame(state), ui.element("div").classes("sheet single"):
                _explain()
            return
        self._seen = -1
        self._shown: dict[str, object] = {}
        whole = frame(state, on_theme=self._redraw, on_export=with_notice(self._export))
        with (
            whole,
            ui.element("div").classes("sheet single"),
            ui.element("main").classes("main"),
        ):
            self._draw()
        self._timer = ui.timer(_REFRESH, self._look)
        self._look()

    def _draw(self) -> None:
        """Draw the page's elements (choice of a run, verdict, tiles, charts and tables), still
        without content."""
        with ui.element("section").classes("card"):
            with ui.element("div").classes("line"):
                self._choice = ui.select([], label="Run", on_change=self._chosen)
                self._choice.classes("grow").props("outlined dense")
                self._status = ui.label("").classes("caption").props('role="status" data-status')
            self._progress = ui.linear_progress(0.0, show_value=False).props("rounded")
            self._progress.style("margin-top:10px")
        self._verdict = ui.element("div")
        with ui.element("div").classes("tiles"):
            self._tiles = {key: Tile(name, key) for key, name in _TILES.items()}
        with ui.element("div").classes("cards"):
            self._cards = {
                "active": ChartCard(self.state, "Active devices"),
                "epsilon": ChartCard(self.state, "Epsilon of the rounds so far"),
                "time": ChartCard(self.state, "Time of a round"),
            }
            with ui.element("section").classes("card").props("data-dropped"):
                ui.label("Dropped messages").classes("text-subtitle2")
                self._dropped = ui.element("div").classes("scroll")
        with ui.element("section").classes("card").props("data-devices"):
            ui.label("Server, air and devices").classes("text-subtitle2")
            self._devices = ui.element("div").classes("scroll")
        with ui.element("section").classes("card"):
            ui.label("The same on the command line").classes("text-subtitle2")
            self._command = ui.label("").classes("code").props("data-command")

    @property
    def _run(self) -> str | None:
        """Name of the run that is shown: the one in the URL, else the run whose server was the last
        to publish a status; None if no run is known."""
        return self.state.more.get("run") or FEDERATIONS.newest

    def _chosen(self, event: object) -> None:
        name = event.value  # type: ignore[attr-defined]
        # Updates of the page set the list to the run that it shows already, which calls this
        # handler too: only another run is a choice of the user.
        if name and name != self._run:
            self.state.more["run"] = name
            self.state.changed()
            self._seen = -1
            self._look()

    def _look(self) -> None:
        """Update the age of the last status and, if a message of the broker arrived since the last
        update, the rest of the page; a timer calls this twice a second."""
        name = self._run
        run = FEDERATIONS.observed.runs.get(name or "", ObservedRun())
        # The line with the age of the last status is updated on every call, because the age grows
        # without a message.
        self._say_state(name, run.status)
        if self._seen == FEDERATIONS.changes:
            return
        self._seen = FEDERATIONS.changes
        names = sorted(FEDERATIONS.observed.runs)
        self._choice.set_options(names, value=name if name in names else None)
        words = "flmc status --broker " + shlex.quote(FEDERATIONS.broker or "")
        self._command.set_text(words + ("" if name is None else f" --run {shlex.quote(name)}"))
        self._show_status(name, run)
        self._show_devices(run)

    def _say_state(self, name: str | None, status: Status | None) -> None:
        """Show in a line whether the broker is connected, and the age of the last status."""
        words = f"Connected to {FEDERATIONS.broker}."
        if FEDERATIONS.trouble is not None:
            words = f"Not connected to {FEDERATIONS.broker}: {FEDERATIONS.trouble}."
        elif name is None:
            words += " No run has been heard of."
        elif status is not None:
            words += f" The server spoke {_ago(time.time() - status.unix_time)}."
        self._status.set_text(words)

    def _show_status(self, name: str | None, run: ObservedRun) -> None:
        """Show the server's last status of the run ``name`` (None: no run is known) as a verdict,
        tiles with numbers, and charts."""
        status, server = run.status, run.presences.get(SERVER)
        if not self._is_new("status", (name, status, server)):
            return
        self._verdict.clear()
        if status is None:
            with self._verdict:
                what = "of any run yet" if name is None else f"of the server of run {name} yet"
                show_verdict(Row("UNKNOWN", f"Nothing was heard {what}."))
            self._progress.set_value(0.0)
            for tile in self._tiles.values():
                tile.show("-")
            for card in self._cards.values():
                card.say("The rounds appear here when the server speaks of them.")
            self._show_dropped(())
            return
        word, severity = _VERDICTS[status.phase]
        words = status.why or _in_words(status)
        if server is not None and server.state == "gone" and status.phase in ("waiting", "running"):
            words, severity = f"{words} But its server is gone.", "warning"
        with self._verdict:
            show_verdict(Row(word, words, severity=severity))
        self._progress.set_value(min(1.0, status.round / max(1, status.num_rounds)))
        self._show_tiles(status)
        seen = FEDERATIONS.history.of(status.run)
        if seen:
            self._cards["active"].show(active_chart(seen, status.num_devices))
            self._cards["epsilon"].show(spent_chart(seen))
            self._cards["time"].show(time_chart(seen))
        else:
            for card in self._cards.values():
                card.say("No round is done yet.")
        rows = (("server", status.dropped), ("air", status.dropped_air))
        self._show_dropped(
            tuple(
                (REASONS.get(reason, reason), who, str(count))
                for who, counts in rows
                for reason, count in sorted(counts.items())
            )
        )

    def _show_tiles(self, status: Status) -> None:
        tiles = self._tiles
        tiles["round"].show(str(status.round), status.round, f"of {status.num_rounds}")
        tiles["active"].show(
            str(status.active), status.active, f"of {status.num_devices} in the last round"
        )
        spent = "-" if status.delta is None else "unbounded"
        at = f"at delta {status.delta:g}, the whole planned run" if status.delta else ""
        if status.epsilon is not None:
            spent = format_up(status.epsilon)
        tiles["epsilon"].show(spent, status.epsilon, at)
        milliseconds = None if status.round_seconds is None else 1000 * status.round_seconds
        shown = "-" if milliseconds is None else f"{milliseconds:.3g} ms"
        tiles["round_ms"].show(shown, milliseconds, "median of the last rounds")
        tiles["repeats"].show(str(status.repeats), status.repeats, "answers were too few")
        dropped = sum(status.dropped.values()) + sum(status.dropped_air.values())
        tiles["dropped"].show(str(dropped), dropped, "by server and air")

    def _show_dropped(self, rows: tuple[tuple[str, ...], ...]) -> None:
        """Show a table of the messages that server and air (the process that adds up the signals)
        dropped; rows are (reason, role, number)."""
        if not self._is_new("dropped", rows):
            return
        self._dropped.clear()
        with self._dropped:
            if rows:
                show_grid(Grid(("messages", "dropped by", "number"), rows))
            else:
                ui.label("No message was dropped.").classes("empty")

    def _show_devices(self, run: ObservedRun) -> None:
        """Show a table with the states of the server, the air (the process that adds up the
        signals) and the devices, and the reasons of refusals."""
        shown = [(each, run.presences[each]) for each in run.shown(_MOST_ROWS)]
        if not self._is_new("devices", (shown, len(run.presences))):
            return
        self._devices.clear()
        with self._devices:
            if not shown:
                ui.label("Nobody has come yet.").classes("empty")
                return
            states = Counter(each.state for each in run.presences.values())
            counted = ", ".join(f"{states[state]} {state}" for state in STATES if states[state])
            hidden = len(run.presences) - len(shown)
            more = f"; {hidden} more are not shown" if hidden else ""
            ui.label(f"{counted}{more}").classes("caption")
            _show_roles(shown)

    def _is_new(self, what: str, value: object) -> bool:
        """Whether ``value`` differs from the value that is shown in the part of the page called
        ``what``; if it does, it is noted as shown."""
        # An unchanged table is not drawn again: twice a second that would undo selections and
        # scrolling.
        if what in self._shown and self._shown[what] == value:
            return False
        self._shown[what] = value
        return True

    def _redraw(self) -> None:
        for card in self._cards.values():
            card.redraw()

    async def _export(self) -> None:
        run = FEDERATIONS.observed.runs.get(self._run or "")
        if run is None or run.status is None:
            ui.notify("There is no run to save yet", type="warning")
            return
        charts: list[Chart] = [
            card.chart for card in self._cards.values() if card.chart is not None
        ]
        listing: Listing = run.status.listing()
        await save_page("federation", self._command.text, listing, charts, self.state.theme)


def _explain() -> None:
    """Draw instructions for starting the studio with a broker, on a page without one."""
    with ui.element("main").classes("main"), ui.element("section").classes("card"):
        ui.label("Federation").classes("text-subtitle2")
        ui.label(
            "This page shows runs on separate machines while they go on: rounds, who is active,"
            " what was spent. It listens to a broker, which is given when the studio is started."
        ).classes("prose")
        ui.label("flmc studio --broker mqtts://HOST:8883 --broker-tls DIR").classes("code")
        ui.label(
            "DIR has ca.pem, cert.pem and key.pem of the observer. A federation on this machine"
            " alone, broker included, is started by"
        ).classes("prose")
        ui.label("flmc deploy demo").classes("code")


def _show_roles(shown: Sequence[tuple[str, Presence]]) -> None:
    """Draw a table with a row for each role (server, air or device), from pairs of its name and its
    presence (state, version, reason)."""
    with ui.element("table").classes("rows roles"):
        with ui.element("tr"):
            for title in ("who", "state", "flmc", "why"):
                with ui.element("th").props('scope="col"').style("width:auto"):
                    ui.label(title)
        for name, each in shown:
            with ui.element("tr").classes("warning" if each.state in TROUBLE else ""):
                for cell in (name, each.state, each.version or "unknown", each.why):
                    with ui.element("td"):
                        ui.label(cell)


def _in_words(status: Status) -> str:
    """A sentence about the phase of a run, for a status whose ``why`` is empty."""
    if status.phase == "running":
        return f"Round {status.round} of {status.num_rounds} is done."
    if status.phase == "finished":
        return f"All {status.round} rounds are done."
    return "The server waits for devices." if status.phase == "waiting" else "No reason was given."


def _ago(seconds: float) -> str:
    """An age, given in seconds, as text such as ``5 min ago``."""
    if seconds < 2:
        return "just now"
    if seconds < 120:
        return f"{seconds:.0f} s ago"
    return f"{seconds / 60:.0f} min ago" if seconds < 7200 else f"{seconds / 3600:.0f} h ago"
