"""The page Compare of the studio: plans for up to four sets of settings, on the same axes."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from dataclasses import replace

from nicegui import ui

from flmc.base.errors import FlmcError, InvalidSetting
from flmc.base.tables import Grid, format_number, format_up
from flmc.planning.plans import Plan
from flmc.settings.schema import Settings
from flmc.studio.controls import CONTROLS, read_given
from flmc.studio.elements.cards import ChartCard, save_page, show_grid, with_notice
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.page_addresses import address, command_line
from flmc.studio.work import computations
from flmc.studio.work.page_tasks import Latest, Turn
from flmc.views.charts.chart import Chart, Line
from flmc.views.charts.plan_charts import (
    NAME_OF_CONSTRAINT,
    limits_chart,
    loss_chart,
    spending_chart,
)
from flmc.views.charts.run_charts import posterior_chart

NAMES = ("A", "B", "C", "D")
"""Names of the columns of the page, each for a set of settings; their keys in the URL are the same
letters in lower case."""


class ComparePage:
    """The page Compare in one browser tab: plans for up to four sets of settings, a column each.
    Its URL has the command-line options of each column under ``a`` to ``d``; without any of these
    keys the page compares the digital and the analog scheme at the settings in the URL."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        if not any(name.lower() in state.more for name in NAMES):
            state.more |= _both_schemes(state.given)
        # On this page every column has its own settings, under its key in the URL. Settings for the
        # page as a whole are dropped.
        state.given.clear()
        self.work = Latest(self._compute, self._complain)
        ui.context.client.on_delete(self.work.close)
        self._limits: dict[str, ChartCard] = {}
        self._fields: dict[str, ui.input] = {}
        whole = frame(state, on_theme=self._redraw, on_export=with_notice(self._export))
        with (
            whole,
            ui.element("div").classes("sheet single"),
            ui.element("main").classes("main"),
        ):
            self._draw()
        ui.context.client.on_connect(self._changed)

    def _complain(self, error: Exception, message: str) -> None:
        """Show an error that is not about a single column in a corner of the page, and show at the
        charts that nothing is being computed."""
        for card in self._cards:
            card.halt()
        ui.notify(message, type="negative", multi_line=True)

    def _draw(self) -> None:
        """Draw the page's elements (fields, table and charts of the columns), still without
        content."""
        with ui.element("div").classes("tiles columns"):
            for name in NAMES:
                with ui.element("section").classes("card").props(f'data-column="{name}"'):
                    with ui.element("div").classes("head"):
                        ui.label(name).classes("text-subtitle2")
                        ui.button(
                            icon="open_in_new", on_click=with_notice(self._opener(name))
                        ).props(f'flat round dense color="grey" aria-label="Open {name} in Plan"')
                    self._fields[name] = (
                        ui.input(
                            value=self.state.more.get(name.lower(), ""),
                            placeholder="--scheme analog --snr-db 12",
                            on_change=self._editor(name),
                        )
                        .props(
                            f'dense outlined autogrow debounce=400 aria-label="Options of {name}"'
                            " hide-bottom-space"
                        )
                        .classes("w-full")
                    )
        with ui.element("section").classes("card"):
            ui.label("Numbers").classes("text-subtitle2")
            self._numbers = ui.element("div").classes("scroll figure").props("data-numbers")
        with ui.element("div").classes("cards"):
            for name in NAMES:
                self._limits[name] = ChartCard(self.state, f"{name}: what limits the gain")
            self._spending = ChartCard(self.state, "Privacy over the run")
            self._loss = ChartCard(self.state, "Privacy loss of one round")
            self._posterior = ChartCard(self.state, "What will be sampled", whole=True, tall=True)

    def _opener(self, name: str) -> Callable[[], None]:
        """Click handler that opens the page Plan with the settings of the column ``name``."""

        def open_plan() -> None:
            given = _options(self.state.more.get(name.lower(), ""))
            theme = {} if self.state.theme_name == "light" else {"theme": "dark"}
            ui.navigate.to(address("/", given, theme))

        return open_plan

    def _editor(self, name: str) -> Callable[[object], None]:
        """Change handler of the field of the column ``name``: it stores the new text and requests a
        new computation."""

        def edited(event: object) -> None:
            text = str(event.value or "").strip()  # type: ignore[attr-defined]
            key = name.lower()
            # An empty text means all defaults in columns A and B, and no column in C and D.
            if text or key in ("a", "b"):
                self.state.more[key] = text
            else:
                self.state.more.pop(key, None)
            self._changed()

        return edited

    @property
    def _cards(self) -> list[ChartCard]:
        return [*self._limits.values(), self._spending, self._loss, self._posterior]

    def _redraw(self) -> None:
        for card in self._cards:
            card.redraw()

    def _changed(self) -> None:
        """Mark all charts as out of date, write the new settings into the URL, and request a new
        computation."""
        for card in self._cards:
            card.wait()
        self.state.changed()
        self.work.ask()

    async def _compute(self, turn: Turn) -> None:
        """Plan for each column, and show the table and the charts one after the other, until a
        newer request ends the ``turn``."""
        asked = self._read()
        plans: dict[str, Plan] = {}
        for name, settings in asked.items():
            try:
                plans[name] = await turn.compute_slowly(computations.whole_plan, settings)
                # The document is computed only for its side effect: a plan computes its privacy
                # when it is first asked, which takes too long for the event loop below.
                await turn.compute_slowly(computations.document, settings)
            except FlmcError as error:
                self._fields[name].error = str(error)
        self._numbers.clear()
        self._grid = _grid(plans)
        with self._numbers:
            show_grid(self._grid)
        self._show_limits(plans)
        await self._show_privacy(turn, plans, asked)
        laws = {
            name: await turn.compute_slowly(computations.predicted_law, asked[name])
            for name in plans
        }
        known = {name: law for name, law in laws.items() if law is not None}
        same = len({computations.of_data(asked[name]) for name in plans}) == 1
        if not same:
            self._posterior.say("These settings have different data, and so different posteriors.")
        elif not known or next(iter(plans.values())).dim < 2:
            self._posterior.say("Nothing is predicted for these settings.")
        else:
            problem = await turn.compute_slowly(computations.problem_of, asked[next(iter(known))])
            exact = problem.model.posterior
            self._posterior.show(await turn.compute(posterior_chart, exact, known))

    def _read(self) -> dict[str, Settings]:
        """Settings by the name of their column, for the columns in use; a column with an error
        shows it at its field and is left out."""
        settings = {}
        for name in NAMES:
            self._fields[name].error = None
            text = self.state.more.get(name.lower())
            if text is None:
                continue
            try:
                settings[name] = read_given(_options(text))
            except FlmcError as error:
                self._fields[name].error = str(error)
        return settings

    def _show_limits(self, plans: dict[str, Plan]) -> None:
        """Show a chart of the constraints on the gain for the plan of each column, all with the
        same x axis, and hide those of columns without a plan."""
        charts = {name: limits_chart(plan) for name, plan in plans.items()}
        lows = [chart.x.low for chart in charts.values() if chart.x.low is not None]
        highs = [chart.x.high for chart in charts.values() if chart.x.high is not None]
        for name, card in self._limits.items():
            card.card.set_visibility(name in charts)
            if name in charts:
                card.show(_on_axis(charts[name], name, min(lows), max(highs)))

    async def _show_privacy(
        self, turn: Turn, plans: dict[str, Plan], asked: dict[str, Settings]
    ) -> None:
        """Show the charts of epsilon over the rounds and of the privacy loss of one round, a curve
        for each plan; ``plans`` and their settings ``asked`` are given by the name of the
        column."""
        curves = {
            name: await turn.compute_slowly(computations.spending, asked[name]) for name in plans
        }
        curves = {name: curve for name, curve in curves.items() if curve}
        if len({plans[name].limits.run_delta for name in curves}) > 1:
            self._spending.say("The deltas of these runs differ: their epsilons do not compare.")
        elif curves:
            first = plans[next(iter(curves))]
            self._spending.show(spending_chart(curves, first))
        else:
            self._spending.say("The privacy of these runs is not known.")
        laws = {}
        for name, plan in plans.items():
            own = (await turn.compute_slowly(computations.round_losses, asked[name])).get(
                plan.uplink.scheme
            )
            if own is not None:
                laws[name] = own
        if laws:
            self._loss.show(loss_chart(laws, plans[next(iter(laws))], marked=False))
        else:
            self._loss.say("The law of the loss is not known for these settings.")

    async def _export(self) -> None:
        charts = [card.chart for card in self._cards if card.chart is not None]
        commands = [
            command_line(_options(self.state.more[name.lower()]))
            for name in NAMES
            if name.lower() in self.state.more
        ]
        await save_page("compare", commands, self._grid, charts, self.state.theme)


def _on_axis(chart: Chart, name: str, low: float, high: float) -> Chart:
    """The ``chart`` of the constraints on the gain for the column ``name``, with that name in its
    title and with an x axis from ``low`` to ``high``, the same for all columns."""
    # Each bar of the chart is a line that begins at the lower end of the x axis; it must begin at
    # the new end.
    layers = tuple(
        replace(layer, x=(low, *layer.x[1:])) if isinstance(layer, Line) else layer
        for layer in chart.layers
    )
    return replace(
        chart, name=f"limits-{name}", title=f"{name}: {chart.title.lower()}",
        x=replace(chart.x, low=low, high=high), layers=layers,
    )  # fmt: skip


def _both_schemes(given: dict[str, str]) -> dict[str, str]:
    """Texts of the columns A and B by their key in the URL: the given settings with the digital
    scheme, and the given settings with the analog scheme (without those of a link, which it does
    not have)."""
    kept = {name: text for name, text in given.items() if name != "scheme"}
    analog = {name: text for name, text in kept.items() if name not in ("link", "slope_parameter")}
    return {"a": _as_options(kept), "b": _as_options({"scheme": "analog", **analog})}


def _as_options(given: dict[str, str]) -> str:
    """The settings ``given``, text by name, written as command-line options such as ``--snr-db
    12``: the content of a column's field."""
    words = []
    for name, text in given.items():
        words += [f"--{name.replace('_', '-')}", text]
    return shlex.join(words)


def _options(text: str) -> dict[str, str]:
    """Settings as text by name, read from the command-line options in a column's field; raises
    ``InvalidSetting`` for an unknown option or a missing value."""
    try:
        words = shlex.split(text)
    except ValueError as error:
        raise InvalidSetting(f"options must be written --name value: {error}") from error
    given: dict[str, str] = {}
    while words:
        option, _, value = words.pop(0).partition("=")
        name = option.removeprefix("--").replace("-", "_")
        if not option.startswith("--") or name not in CONTROLS:
            raise InvalidSetting(
                f"unknown option {option!r}; use {', '.join(_as_option(each) for each in CONTROLS)}"
            )
        if not value and not words:
            raise InvalidSetting(f"{option} needs a value")
        given[name] = value or words.pop(0)
    return given


def _as_option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _grid(plans: dict[str, Plan]) -> Grid:
    """Table of the plans' numbers, with a row for each quantity and a column for each plan."""
    rows: list[tuple[str, ...]] = []
    table: dict[str, Callable[[Plan], str]] = {
        "scheme": lambda plan: plan.uplink.scheme,
        "gain": lambda plan: f"{plan.typical_gain:.5g}",
        "decides": lambda plan: NAME_OF_CONSTRAINT.get(plan.binding, plan.binding),
        "temperature": lambda plan: _number(plan.temperature),
        "predicted variance ratio": lambda plan: _number(
            None if plan.prediction is None else plan.prediction.variance_ratio
        ),
        "predicted mean shift, posterior sd": lambda plan: _number(
            None if plan.prediction is None else plan.prediction.mean_shift
        ),
        "effective step": lambda plan: _number(plan.effective_step_size),
        "effective draws of one chain": lambda plan: _number(plan.effective_draws),
        "price, mu^2 per effective draw": lambda plan: _number(plan.release().price),
        "epsilon, one round": lambda plan: (
            "unknown" if plan.round_cost is None else format_up(plan.round_cost.epsilon)
        ),
        "epsilon, whole run": lambda plan: (
            "unknown" if plan.run_cost is None else format_up(plan.run_cost.epsilon)
        ),
        "verdict": lambda plan: getattr(plan.listing().headline, "label", "-"),
    }
    for label, cell in table.items():
        rows.append((label, *(cell(plan) for plan in plans.values())))
    return Grid(("", *plans), tuple(rows))


def _number(value: float | None) -> str:
    return "unknown" if value is None else format_number(value)
