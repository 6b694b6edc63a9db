"""What all pages share: the bar with its places, the theme, the link to share, the keys."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from nicegui import ui

from flmc.studio.addresses import address
from flmc.studio.elements.style import STYLE
from flmc.views.charts.themes import THEMES, Theme

PLACES = {
    "/": "Plan",
    "/solve": "Solve",
    "/run": "Run",
    "/compare": "Compare",
    "/figures": "Figures",
    "/federation": "Federation",
}
"""Pages by their paths, in the order of the bar."""
_KEYS = {
    **{str(index + 1): f"open {name}" for index, name in enumerate(PLACES.values())},
    "d": "dark or light",
    "l": "copy the link to this page",
    "e": "save this page as one HTML file",
    "?": "show these keys",
}


@dataclass
class State:
    """What a page shows, as its address says it.

    Attributes
    ----------
    path
        Path of the page.
    given
        Settings that were given, as text by name.
    theme_name
        ``light`` or ``dark``.
    more
        Further keys of the address, which only this page knows.
    unknown
        Keys of the address that nothing knows; they are told, not ignored.
    links
        Links to all pages, by path.
    """

    path: str
    given: dict[str, str]
    theme_name: str = "light"
    more: dict[str, str] = field(default_factory=dict)
    unknown: list[str] = field(default_factory=list)
    links: dict[str, ui.link] = field(default_factory=dict)

    @property
    def theme(self) -> Theme:
        """Colours of the page's charts."""
        return THEMES[self.theme_name]

    def address_of(self, path: str, more: Mapping[str, str] | None = None) -> str:
        """Address of a page with the settings and the theme of this one.

        Parameters
        ----------
        path
            Path of the page.
        more
            Further keys of its address.
        """
        theme = {} if self.theme_name == "light" else {"theme": self.theme_name}
        return address(path, self.given, {**theme, **(more or {})})

    def changed(self) -> None:
        """Put what is shown into the address bar, and into the links to other pages."""
        here = json.dumps(self.address_of(self.path, self.more))
        ui.run_javascript(f"history.replaceState(history.state, '', {here})")
        for path, link in self.links.items():
            link.props["href"] = self.address_of(path)


@contextmanager
def frame(
    state: State,
    *,
    on_theme: Callable[[], None] = lambda: None,
    on_export: Callable[[], object] | None = None,
) -> Iterator[None]:
    """The frame of a page; what is drawn inside the context is its body.

    Parameters
    ----------
    state
        What the page shows.
    on_theme
        Called when the theme has changed, to draw charts anew.
    on_export
        Saves the page as one HTML file; None: the page has nothing to save.
    """
    ui.add_css(STYLE)
    dark = ui.dark_mode(state.theme_name == "dark")

    def turn() -> None:
        state.theme_name = "light" if state.theme_name == "dark" else "dark"
        dark.value = state.theme_name == "dark"
        on_theme()
        state.changed()

    def copy() -> None:
        ui.run_javascript("navigator.clipboard.writeText(location.href)")
        ui.notify("Link copied", position="bottom")

    with ui.element("header").classes("bar"):
        ui.label("flmc studio").classes("brand")
        with ui.element("nav").classes("places").props('aria-label="pages"'):
            for path, name in PLACES.items():
                link = ui.link(name, state.address_of(path))
                if path == state.path:
                    link.classes("here").props('aria-current="page"')
                state.links[path] = link
        _icon("link", "Copy the link to this page (l)", copy)
        if on_export is not None:
            _icon("save_alt", "Save this page as one HTML file (e)", on_export)
        _icon("contrast", "Dark or light (d)", turn)
        keys = _help()
        _icon("keyboard", "Keys (?)", keys.open)
    actions: dict[str, Callable[[], object]] = {"d": turn, "l": copy, "?": keys.open}
    if on_export is not None:
        actions["e"] = on_export
    for index, path in enumerate(PLACES):
        actions[str(index + 1)] = _opener(state, path)
    ui.keyboard(lambda event: _pressed(event, actions), ignore=["input", "select", "textarea"])
    if state.unknown:
        with ui.element("div").classes("verdict warning").props('role="alert" data-unknown'):
            ui.label(
                f"The address sets {', '.join(state.unknown)}, which the studio does not know or"
                " does not allow; it was left out."
            )
    yield


def _opener(state: State, path: str) -> Callable[[], None]:
    """What opens a page with the settings of this one."""
    return lambda: ui.navigate.to(state.address_of(path))


def _icon(name: str, words: str, action: Callable[[], object]) -> None:
    """A button with an icon, and words for who cannot see it."""
    button = ui.button(icon=name, on_click=lambda: action())
    button.props(f'flat round dense color="grey" aria-label="{words}"').tooltip(words)


def _help() -> ui.dialog:
    """The list of keys."""
    with ui.dialog() as dialog, ui.card():
        ui.label("Keys").classes("text-h6")
        with ui.element("table").classes("rows"):
            for key, meaning in _KEYS.items():
                with ui.element("tr"):
                    with ui.element("th"):
                        ui.label(key)
                    with ui.element("td"):
                        ui.label(meaning)
        ui.label("Sliders: arrow keys move them, Tab goes on.").classes("caption")
    return dialog


def _pressed(event: object, actions: Mapping[str, Callable[[], object]]) -> object:
    """Do what a key stands for, where it is pressed alone; what is to be awaited is returned."""
    action, key = event.action, event.key  # type: ignore[attr-defined]
    modifiers = event.modifiers  # type: ignore[attr-defined]
    alone = not (modifiers.ctrl or modifiers.alt or modifiers.meta)
    if action.keydown and not action.repeat and alone and key.name in actions:
        return actions[key.name]()
    return None
