"""Cards of a page, each a box with one element: a chart with a menu to save it, a number, rows of
facts, or a verdict. Also the page as one HTML file."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import get_args

from nicegui import ui

from flmc.base.tables import Grid, Listing, Row
from flmc.base.version import VERSION
from flmc.planning.plans.verdict import LightState
from flmc.studio.elements.echarts import to_options
from flmc.studio.elements.page_layout import PageState
from flmc.studio.work.page_tasks import in_words
from flmc.views.charts.chart import Chart, Theme
from flmc.views.charts.drawing import FileFormat, render_chart
from flmc.views.reports import Block, render_html


class ChartCard:
    """A card of a page with a chart, its title, its caption, and a menu that saves the chart as a
    file. ``tall`` makes the card taller and ``whole`` as wide as the page; ``on_click`` is called
    with the name of the series and the values of a clicked point."""

    def __init__(
        self,
        state: PageState,
        title: str,
        *,
        tall: bool = False,
        whole: bool = False,
        on_click: Callable[[str, list[float]], None] | None = None,
    ) -> None:
        self._state = state
        self.chart: Chart | None = None
        with ui.element("section").classes("card stale" + " whole" * whole) as self.card:
            with ui.element("div").classes("head"):
                self._title = ui.label(title).classes("text-subtitle2")
                with ui.element("span").classes("waits"):
                    ui.spinner(size="14px")
                    ui.label("computing")
                with (
                    ui.button(icon="download").props(
                        'flat round dense color="grey" aria-label="Save this picture"'
                    ),
                    ui.menu(),
                ):
                    for file_format in get_args(FileFormat):
                        ui.menu_item(file_format.upper(), self._saver(file_format))
            self._view = ui.echart({"series": []}, renderer="canvas").classes(
                "chart" + " tall" * tall
            )
            self._caption = ui.label("").classes("caption")
            if on_click is not None:
                self._view.on_point_click(lambda event: on_click(event.series_name, event.value))

    def show(self, chart: Chart) -> None:
        """Draw a chart on the card with its title and caption, no longer marked as out of date."""
        self.chart = chart
        self._title.set_text(chart.title)
        self._caption.set_text(chart.caption)
        options = self._view.options
        options.clear()
        options.update(to_options(chart, self._state.theme))
        self._view.update()
        self.card.classes(remove="stale silent")

    def say(self, words: str) -> None:
        """Show the text ``words`` in place of the chart, such as the reason for which none can be
        drawn."""
        self.chart = None
        self._view.options.clear()
        self._view.options["series"] = []
        self._view.update()
        self._caption.set_text(words)
        self.card.classes(add="silent", remove="stale")

    def wait(self) -> None:
        """Mark the chart as out of date, and show that its successor is being computed."""
        self.card.classes(add="stale", remove="halted")

    def halt(self) -> None:
        """Remove the sign that a new chart is being computed, because the computation failed. A
        chart that is out of date stays marked as such."""
        self.card.classes(add="halted")

    def redraw(self) -> None:
        """Draw the same chart again in the page's current theme, light or dark."""
        if self.chart is not None:
            stale = "stale" in self.card.classes
            self.show(self.chart)
            if stale:
                self.wait()

    def _saver(self, file_format: FileFormat) -> Callable[[], object]:
        """Handler of a menu item that makes the browser download the chart in the format
        ``file_format``, such as SVG or PDF."""

        async def save() -> None:
            if self.chart is None:
                ui.notify("There is no picture to save yet", type="warning")
                return
            theme = self._state.theme
            content = await asyncio.to_thread(render_chart, self.chart, file_format, theme)
            ui.download.content(content, f"flmc-{self.chart.name}.{file_format}")

        return save


class Tile:
    """A small card of a page with a name, one number and a few more words; tests find it by ``key``
    in the HTML attribute ``data-tile``."""

    def __init__(self, name: str, key: str) -> None:
        self.key = key
        with ui.element("div").classes("tile stale").props(f'data-tile="{key}"') as self.box:
            ui.label(name).classes("name")
            self._figure = ui.label("-").classes("figure")
            self._more = ui.label("").classes("more")

    def show(self, text: str, value: object = None, more: str = "") -> None:
        """Show a number as ``text``, with ``more`` words below it and the full ``value`` in the
        attribute ``data-value``."""
        self._figure.set_text(text)
        self._more.set_text(more)
        self.box.props["data-value"] = "" if value is None else repr(value)
        self.box.classes(remove="stale")

    def wait(self) -> None:
        """Mark the number as out of date until the next one is shown."""
        self.box.classes(add="stale")


def with_notice(handler: Callable[[], Awaitable[None] | None]) -> Callable[[], Awaitable[None]]:
    """A handler like ``handler``, of a button or key, that shows an error in a corner of the page
    instead of raising it."""

    async def guarded() -> None:
        try:
            waiting = handler()
            if waiting is not None:
                await waiting
        except Exception as error:
            ui.notify(in_words(error), type="negative", multi_line=True)

    return guarded


def show_rows(rows: Iterable[Row]) -> None:
    """Draw rows of facts (name, text, severity) as a table in the page element that is open."""
    with ui.element("table").classes("rows"):
        for row in rows:
            with ui.element("tr").classes(row.severity):
                with ui.element("th").props('scope="row"'):
                    ui.label(row.label)
                with ui.element("td"):
                    ui.label(row.text)


def show_verdict(row: Row | None, lights: Iterable[LightState] = ()) -> None:
    """Draw a verdict: a line with a coloured edge from ``row``, the most important fact about a
    plan or run (None: a sentence that nothing is predicted), and below it a card for each of the
    ``lights``."""
    with (
        ui.element("div")
        .classes(f"verdict {'' if row is None else row.severity}")
        .props('role="status" data-verdict')
    ):
        if row is None:
            ui.label("Nothing is predicted for these settings.")
            return
        with ui.element("b"):
            ui.label(row.label).style("display:inline")
        ui.label(row.text).style("display:inline")
    with ui.element("div").classes("lights"):
        for each in lights:
            with (
                ui.element("div")
                .classes(f"verdict {each.row.severity}")
                .props(f'data-light="{each.light}"')
            ):
                with ui.element("b"):
                    ui.label(f"{each.light}: {each.state}").style("display:inline")
                ui.label(each.words).style("display:block")


def show_grid(grid: Grid) -> None:
    """Draw ``grid``, a table of texts with a header, in the page element that is open."""
    with ui.element("table").classes("rows cells"):
        with ui.element("tr"):
            for title in grid.header:
                with ui.element("th").props('scope="col"').style("width:auto"):
                    ui.label(title.replace("-\n", "").replace("\n", " "))
        for cells in grid.rows:
            with ui.element("tr"):
                for cell in cells:
                    with ui.element("td"):
                        ui.label(cell)


def page_as_html(
    title: str,
    commands: Sequence[str],
    facts: Listing | Grid,
    charts: Sequence[Chart],
    theme: Theme,
) -> str:
    """A page as one self-contained HTML file: title, verdict, command lines ``commands`` that
    compute the same, ``charts``, and ``facts`` as a table."""
    blocks: list[Block] = [("title", title)]
    if isinstance(facts, Listing) and facts.headline is not None:
        blocks.append(("text", f"{facts.headline.label}: {facts.headline.text}"))
    blocks += [("text", f"`{command}`") for command in commands]
    blocks.append(("text", f"Made by flmc {VERSION}."))
    for chart in charts:
        svg = render_chart(chart, "svg", theme).decode()
        blocks.append(("drawing", (svg[svg.index("<svg") :], chart.caption or chart.title)))
    if isinstance(facts, Listing):
        blocks.append(("heading", facts.title))
        rows = [[row.label, row.text] for row in facts.rows]
        blocks.append(("table", (["", ""], rows)))
    else:
        blocks.append(("table", (list(facts.header), [list(cells) for cells in facts.rows])))
    return render_html(blocks)


async def save_page(
    name: str,
    commands: str | Sequence[str],
    facts: Listing | Grid,
    charts: Sequence[Chart],
    theme: Theme,
) -> None:
    """Make the browser save the page as ``flmc-<name>.html``, by :func:`page_as_html`."""
    lines = [commands] if isinstance(commands, str) else list(commands)
    title = f"flmc studio: {name}"
    text = await asyncio.to_thread(page_as_html, title, lines, facts, charts, theme)
    ui.download.content(text.encode(), f"flmc-{name}.html", "text/html")
