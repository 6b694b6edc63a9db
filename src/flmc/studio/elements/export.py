"""A page as one HTML file that needs nothing else, to be sent around."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from nicegui import ui

from flmc.base.tables import Grid, Listing
from flmc.base.version import VERSION
from flmc.views.charts.chart import Chart
from flmc.views.charts.drawing import render_chart
from flmc.views.charts.themes import Theme
from flmc.views.reports import Block, render_html


def page_as_html(
    title: str,
    commands: Sequence[str],
    facts: Listing | Grid,
    charts: Sequence[Chart],
    theme: Theme,
) -> str:
    """A page as HTML: verdict, charts, facts, and the commands that compute them.

    Parameters
    ----------
    title
        Title of the page.
    commands
        Command lines.
    facts
        Rows under a title, or cells under a header.
    charts
        The charts, in order.
    theme
        Their colours.
    """
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
    """Let the browser save the page as one HTML file.

    Parameters
    ----------
    name
        Name of the file behind ``flmc-``.
    commands, facts, charts, theme
        As for :func:`page_as_html`; one command may stand alone.
    """
    lines = [commands] if isinstance(commands, str) else list(commands)
    title = f"flmc studio: {name}"
    text = await asyncio.to_thread(page_as_html, title, lines, facts, charts, theme)
    ui.download.content(text.encode(), f"flmc-{name}.html", "text/html")
