"""The table of pages: class, path and URL keys of each, and their registration with NiceGUI."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from fastapi import Request
from nicegui import ui

from flmc.studio.elements.page_layout import PageState
from flmc.studio.page_addresses import given_of, unknown_keys
from flmc.studio.pages.compare_page import ComparePage
from flmc.studio.pages.federation_page import FederationPage
from flmc.studio.pages.figures_page import FiguresPage
from flmc.studio.pages.plan_page import PlanPage
from flmc.studio.pages.run_page import RunPage
from flmc.studio.pages.solve_page import SolvePage
from flmc.views.charts.chart import THEMES

PAGES: dict[str, Callable[[PageState], object]] = {
    "/": PlanPage,
    "/solve": SolvePage,
    "/run": RunPage,
    "/compare": ComparePage,
    "/figures": FiguresPage,
    "/federation": FederationPage,
}
"""Class of each page, by its path; an object of the class is the page in one browser tab, and draws
itself when it is made."""

PAGE_KEYS = {
    "/solve": ("ask", "require", "suggest"),
    "/compare": ("a", "b", "c", "d"),
    "/figures": ("paper",),
    "/federation": ("run",),
}
"""Keys that a page takes in its URL, apart from settings and theme, by the page's path."""


@cache
def register() -> None:
    """Register all pages with NiceGUI, once."""
    for path, page in PAGES.items():
        ui.page(path, title="flmc studio")(_drawn(path, page))


def _drawn(path: str, page: Callable[[PageState], object]) -> Callable[[Request], None]:
    """The function that NiceGUI calls for a request of ``path``: it reads the URL and draws the
    ``page``."""

    def draw(request: Request) -> None:
        query = request.query_params.multi_items()
        theme = request.query_params.get("theme", "light")
        known = PAGE_KEYS.get(path, ())
        own = {name: text for name, text in query if name in known}
        state = PageState(path, given_of(query), theme if theme in THEMES else "light", own)
        state.unknown = unknown_keys(query, known)
        page(state)

    return draw
