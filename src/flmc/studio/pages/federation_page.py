"""The page Federation: its place, until there is a federation to watch."""

from __future__ import annotations

from nicegui import ui

from flmc.studio.elements.frame import State, frame


class FederationPage:
    """The page Federation of one tab.

    Parameters
    ----------
    state
        What its address says.
    """

    def __init__(self, state: State) -> None:
        with (
            frame(state),
            ui.element("div").classes("sheet single"),
            ui.element("section").classes("card"),
        ):
            ui.label("Federation").classes("text-subtitle2")
            ui.label(
                "flmc cannot run as a federation of separate devices yet, so there is nothing to"
                " watch here. When it can, this page shows its rounds, who is active, and what was"
                " spent."
            ).classes("empty")
