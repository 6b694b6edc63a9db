"""The page Figures: reports of the reproduced papers, with zoomable figures and tables of
claims."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from nicegui import app, ui

from flmc.settings.registered import PAPERS
from flmc.studio.elements.page_layout import PageState, frame
from flmc.studio.work.reproduction import REPORT, REPORTS, Reproduction, parts_of_report

_PREVIEW = {"qflmc": 50, "wflmc": 1}
"""Initial number in the field ``Experiments``, by paper: enough for a preview. It becomes the
option ``--experiments`` of ``flmc reproduce``: data sets for each point for qflmc, and sets of 100
runs for wflmc."""


class FiguresPage:
    """The page Figures in one browser tab: the report of one reproduced paper, and a button that
    makes a new one. In its URL, ``paper`` names the paper."""

    def __init__(self, state: PageState) -> None:
        self.state = state
        if state.more.get("paper") not in PAPERS.names:
            state.more["paper"] = "qflmc"
        self._study: Reproduction | None = None
        ui.context.client.on_delete(self._stop)
        with (
            frame(state),
            ui.element("div").classes("sheet single"),
            ui.element("main").classes("main"),
        ):
            self._draw()
        self._timer = ui.timer(0.3, self._look)
        self._show()

    def _draw(self) -> None:
        with ui.element("section").classes("card"), ui.element("div").classes("line"):
            papers = {name: f"{name}: {PAPERS[name].help}" for name in PAPERS.names}
            ui.select(papers, value=self._paper, label="Paper", on_change=self._chosen).classes(
                "grow"
            ).props("outlined dense")
            self._count = ui.number(
                "Experiments", value=_PREVIEW.get(self._paper, 1), min=1, max=100_000, precision=0
            ).props("outlined dense").style("width:130px")  # fmt: skip
            self._make = ui.button("Make the report", icon="play_arrow", on_click=self._begin)
            self._end = ui.button("Stop", icon="stop", on_click=self._stop).props("outline")
            self._end.set_enabled(False)
            self._status = ui.label("").classes("caption").props('role="status" data-status')
        self._progress = ui.linear_progress(0.0, show_value=False).props("rounded")
        self._report = ui.element("div").classes("main report")

    @property
    def _paper(self) -> str:
        return self.state.more["paper"]

    def _chosen(self, event: object) -> None:
        self.state.more["paper"] = event.value  # type: ignore[attr-defined]
        self._count.set_value(_PREVIEW.get(self._paper, 1))
        self.state.changed()
        self._show()

    async def _begin(self) -> None:
        """Make the report of the paper with ``flmc reproduce``, which takes seconds to minutes, and
        show it; closing the tab stops the reproduction."""
        self._study = study = Reproduction(self._paper, int(self._count.value or 1))
        self._make.set_enabled(False)
        self._end.set_enabled(True)
        done = await study.conduct()
        self._make.set_enabled(True)
        self._end.set_enabled(False)
        self._progress.set_value(1.0 if done else 0.0)
        self._status.set_text("Finished." if done else f"No report: {study.error}")
        self._study = None
        if done:
            self._show()

    def _look(self) -> None:
        """Show how far the command ``flmc reproduce`` has come, if this page has started it; a
        timer calls this."""
        if self._study is not None:
            self._status.set_text(f"{self._study.stage}: {100 * self._study.share:.0f} %")
            self._progress.set_value(self._study.share)

    def _stop(self) -> None:
        if self._study is not None:
            self._study.stop()

    def _show(self) -> None:
        """Show the report on the chosen paper, or how to make one if there is none."""
        self._report.clear()
        directory = REPORTS.directories.get(self._paper)
        with self._report:
            if directory is None:
                with ui.element("section").classes("card"):
                    ui.label(
                        "There is no report yet. Make one here, a preview in about a minute, or"
                        " start the studio with --report DIR, where flmc reproduce wrote one."
                    ).classes("empty")
                return
            for file, text in parts_of_report((directory / REPORT).read_text()):
                with ui.element("section").classes("card"):
                    if file:
                        self._figure(directory / file, text)
                    else:
                        ui.markdown(text).classes("scroll prose")

    def _figure(self, path: Path, caption: str) -> None:
        """Draw a figure of the report with its caption and buttons to download its files; a click
        on the figure opens it enlarged."""
        address = app.add_static_file(local_file=path)
        with ui.dialog().props("maximized") as dialog, ui.card().classes("w-full"):
            with ui.element("div").classes("line"):
                zoom = ui.slider(min=0.5, max=4, step=0.1, value=1.5).style("max-width:320px")
                zoom.props('label aria-label="Zoom"')
                ui.button("Close", on_click=dialog.close).props("flat")
            with ui.element("div").classes("zoom w-full"):
                large = ui.element("img").props(f'src="{address}"').style("width:150%")
                large.props(f'alt="{path.stem}"')
            zoom.on_value_change(lambda event: large.style(f"width:{100 * event.value:.0f}%"))
        with (
            ui.element("button")
            .classes("picture")
            .props(f'aria-label="Enlarge {path.stem}"')
            .on("click", dialog.open)
        ):
            ui.element("img").props(f'src="{address}" alt="{path.stem}" loading="lazy"')
        with ui.element("div").classes("line"):
            ui.label(caption).classes("caption grow")
            for file in (path, path.with_suffix(".pdf")):
                if file.exists():
                    ui.button(
                        file.suffix[1:].upper(), on_click=partial(ui.download.file, file)
                    ).props("flat dense size=sm")
