"""The page Solve: search for the value of one setting, such as SNR, epsilon or slope, with which a
plan meets requirements."""

from __future__ import annotations

import shlex

from nicegui import ui

from flmc.base.errors import InvalidSetting
from flmc.planning.plans.verdict import verdict_of
from flmc.planning.requirements import Requirement, read_requirement
from flmc.settings.questions import AXES, Solution, solve
from flmc.settings.schema import Settings
from flmc.studio.controls import CONTROLS, field_of, format_value, read_given
from flmc.studio.elements.cards import (
    ChartCard,
    save_page,
    show_grid,
    show_rows,
    show_verdict,
    with_notice,
)
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.elements.panel import Panel
from flmc.studio.page_addresses import command_line
from flmc.studio.work.page_tasks import Latest, Superseded, Turn
from flmc.views.charts.plan_charts import solution_chart

QUESTIONS = {
    "snr_db": "Which SNR do I need?",
    "epsilon": "What epsilon can I promise?",
    "rounds": "How many rounds do I need?",
    "devices": "How many devices do I need?",
    "samples": "How many examples do I need?",
    "slope_parameter": "Which slope is best?",
    "clip": "Which clip is best?",
}
"""Questions in words that the page can answer, by the name of the setting whose value each asks
for."""


class SolvePage:
    """The page Solve in one browser tab: it searches for the value of one setting with which the
    plan meets requirements: the smallest such value or, for clip and slope, the best of those that
    are tried (:func:`flmc.settings.questions.solve`). In its URL, ``ask`` names that setting,
    ``require`` lists the requirements (text such as ``temperature<=1.05``) with commas between
    them, and ``suggest=yes`` leaves link, clip and rounds to the search if they are not given."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        self.solution: Solution | None = None
        if state.more.get("ask") not in QUESTIONS:
            state.more["ask"] = "snr_db"
        self.work = Latest(self._compute, self._complain)
        self._share = 0.0
        ui.context.client.on_delete(self.work.close)
        whole = frame(state, on_theme=self._redraw, on_export=with_notice(self._export))
        with whole, ui.element("div").classes("sheet"):
            self.panel = Panel(state.given, self._changed)
            with ui.element("main").classes("main"):
                self._draw()
        self._timer = ui.timer(0.2, lambda: self._progress.set_value(self._share))
        ui.context.client.on_connect(self._changed)

    def _draw(self) -> None:
        """Draw the page's elements beside the panel of settings, still without an answer."""
        with ui.element("section").classes("card"):
            with ui.element("div").classes("line"):
                ui.select(
                    QUESTIONS, value=self.state.more["ask"], label="Question",
                    on_change=lambda event: self._asked("ask", event.value),
                ).classes("grow").props("outlined dense data-question")  # fmt: skip
                ui.input(
                    "Must hold", value=self.state.more.get("require", ""),
                    placeholder="run.epsilon<=3, temperature<=1.05, good",
                    on_change=lambda event: self._asked("require", event.value),
                ).classes("grow").props(
                    'outlined dense debounce=500 hint="such as run.epsilon<=3, temperature<=1.05,'
                    ' good; a burn-in that is not set is automatic here"'
                )  # fmt: skip
                ui.switch(
                    "Suggest the rest",
                    value=self.state.more.get("suggest") == "yes",
                    on_change=lambda event: self._asked("suggest", "yes" if event.value else ""),
                ).tooltip("Link, clip and rounds that are not given are proposed for every value")
            self._progress = ui.linear_progress(0.0, show_value=False).props("rounded")
        self._answer = ui.element("div")
        self._chart = ChartCard(self.state, "Plans for the values that were tried", tall=True)
        with ui.element("section").classes("card"):
            ui.label("Values that were tried").classes("text-subtitle2")
            self._grid = ui.element("div").classes("scroll")
        with ui.element("section").classes("card"):
            ui.label("The same on the command line").classes("text-subtitle2")
            self._command = ui.label("").classes("code").props("data-command")
        with ui.element("section").classes("card"):
            ui.label("The plan").classes("text-subtitle2")
            self._rows = ui.element("div").classes("scroll")

    def _asked(self, key: str, value: str) -> None:
        """Store what the user asked in the page's state, of which its URL is made, and start a new
        search: ``key`` is ``ask``, ``require`` or ``suggest``, and an empty ``value`` removes
        it."""
        if value:
            self.state.more[key] = value
        else:
            self.state.more.pop(key, None)
        self._changed()

    def _changed(self) -> None:
        self._chart.wait()
        self.state.changed()
        self.work.ask()

    @property
    def _requirements(self) -> list[Requirement]:
        texts = self.state.more.get("require", "").split(",")
        return [read_requirement(text.strip()) for text in texts if text.strip()]

    async def _compute(self, turn: Turn) -> None:
        """Search in a thread for the value of the setting that the page asks for, while the page
        stays responsive, and show the answer with its chart."""
        name = self.state.more["ask"]
        self._share = 0.02
        settings, requirements = read_given(self.state.given), self._requirements
        self.panel.settled(settings)
        self._command.set_text(self._command_text(name))
        solution = await turn.compute_slowly(self._solve, turn, settings, name, requirements)
        chart = await turn.compute(solution_chart, solution)
        self._share = 1.0
        self._show(solution)
        self._chart.show(chart)

    def _solve(
        self, turn: Turn, settings: Settings, name: str, requirements: list[Requirement]
    ) -> Solution:
        """Search for the value of the setting ``name`` at which the plan meets the requirements.
        This runs in a thread; after a newer request of the page it ends with ``Superseded``."""

        def progress(share: float) -> None:
            if turn.over:
                raise Superseded
            self._share = share

        suggest = self.state.more.get("suggest") == "yes"
        return solve(settings, name, requirements, suggest=suggest, progress=progress)

    def _command_text(self, name: str) -> str:
        """Command line ``flmc plan ... --solve NAME`` that searches for the same value as the
        page."""
        words = [command_line(self.state.given), "--solve", name]
        for text in self.state.more.get("require", "").split(","):
            if text.strip():
                words += ["--require", shlex.quote(text.strip())]
        if self.state.more.get("suggest") == "yes":
            words.append("--suggest")
        return " ".join(words)

    def _show(self, solution: Solution) -> None:
        """Show a solution: the value, its plan, and the values that were tried."""
        self.solution = solution
        self._answer.clear()
        with self._answer, ui.element("section").classes("card"):
            with ui.element("div").classes("line"):
                ui.label(solution.words).classes("text-subtitle1").props("data-answer")
                value = format_value(
                    int(solution.value) if AXES[solution.name].whole else solution.value
                )
                if solution.name in CONTROLS:
                    ui.button(
                        "Open in Plan", icon="open_in_new", on_click=lambda: self._take(value)
                    )
            listing = solution.plan.listing(with_run=True)
            verdict = verdict_of(solution.plan, with_run=True)
            show_verdict(verdict.headline, verdict.lights)
        self._grid.clear()
        with self._grid:
            show_grid(solution.grid())
        self._rows.clear()
        with self._rows:
            show_rows(listing.rows)

    def _take(self, value: str) -> None:
        """Open the page Plan with the found ``value`` of the setting; the burn-in is automatic
        there unless one was given."""
        assert self.solution is not None
        self.state.given[self.solution.name] = value
        if "burn_in" not in self.state.given:
            self.state.given["burn_in"] = "auto"
        ui.navigate.to(self.state.address_of("/"))

    def _complain(self, error: Exception, message: str) -> None:
        """Show an error in place of the answer and, if it is about a setting, at the control of
        that setting."""
        self._share, self.solution = 0.0, None
        self._grid.clear()
        self._rows.clear()
        name = field_of(message) if isinstance(error, InvalidSetting) else None
        if name is not None:
            self.panel.complain(name, message)
        self._answer.clear()
        with self._answer, ui.element("div").classes("verdict bad").props('role="alert"'):
            ui.label(message).props("data-answer")
        self._chart.say("There is no answer to draw.")

    def _redraw(self) -> None:
        self._chart.redraw()

    async def _export(self) -> None:
        if self.solution is None or self._chart.chart is None:
            ui.notify("Wait for an answer first", type="warning")
            return
        listing = self.solution.plan.listing()
        charts = [self._chart.chart]
        await save_page("solve", self._command.text, listing, charts, self.state.theme)
