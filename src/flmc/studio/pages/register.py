"""Paths of the studio and the pages at them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from fastapi import Request
from nicegui import ui

from flmc.studio.addresses import given_of, unknown_keys
from flmc.studio.elements.frame import State
from flmc.studio.pages.compare_page import ComparePage
from flmc.studio.pages.federation_page import FederationPage
from flmc.studio.pages.figures_page import FiguresPage
from flmc.studio.pages.plan_page import PlanPage
from flmc.studio.pages.run_page import RunPage
from flmc.studio.pages.solve_page import SolvePage
from flmc.views.charts.themes import THEMES

PAGES: dict[str, Callable[[State], object]] = {
    "/": PlanPage,
    "/solve": SolvePage,
    "/run": RunPage,
    "/compare": ComparePage,
    "/figures": FiguresPage,
    "/federation": FederationPage,
}
"""What draws the page at each path."""

PAGE_KEYS = {
    "/solve": ("ask", "require", "suggest"),
    "/compare": ("a", "b", "c", "d"),
    "/figures": ("paper",),
    "/federation": ("run",),
}
"""Keys of addresses beside settings and theme, by path."""


@cache
def register() -> None:
    """Make all pages known to NiceGUI, once."""
    for path, page in PAGES.items():
        ui.page(path, title="flmc studio")(_drawn(path, page))


def _drawn(path: str, page: Callable[[State], object]) -> Callable[[Request], None]:
    """What NiceGUI calls for a path."""

    def draw(request: Request) -> None:
        query = request.query_params.multi_items()
        theme = request.query_params.get("theme", "light")
        known = PAGE_KEYS.get(path, ())
        own = {name: text for name, text in query if name in known}
        state = State(path, given_of(query), theme if theme in THEMES else "light", own)
        state.unknown = unknown_keys(query, known)
        page(state)

    return draw
