"""The layout of all pages: bar with links, keyboard shortcuts, and at the end the style sheet for
the light and the dark theme."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from nicegui import ui

from flmc.studio.page_addresses import address
from flmc.views.charts.chart import DARK, LIGHT, THEMES, Theme

PLACES = {
    "/": "Plan",
    "/solve": "Solve",
    "/run": "Run",
    "/compare": "Compare",
    "/figures": "Figures",
    "/federation": "Federation",
}
"""Names of the studio's pages by the path in their URL, in the order of the links in the bar at the
top."""
_KEYS = {
    **{str(index + 1): f"open {name}" for index, name in enumerate(PLACES.values())},
    "d": "dark or light",
    "l": "copy the link to this page",
    "e": "save this page as one HTML file",
    "?": "show these keys",
}


@dataclass
class PageState:
    """The state of a page in one browser tab: what its URL says, and the page's links to all pages.

    Attributes
    ----------
    path
        Path of the page.
    given
        Given settings, as text by name.
    theme_name
        ``light`` or ``dark``.
    more
        Values of the URL keys that are neither settings nor the theme but have a meaning on this
        page, by key.
    unknown
        Unknown keys in the URL, which the page reports.
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
        """URL of the page at ``path`` with the settings and the theme of this page, and with the
        keys ``more``."""
        theme = {} if self.theme_name == "light" else {"theme": self.theme_name}
        return address(path, self.given, {**theme, **(more or {})})

    def changed(self) -> None:
        """Write the page's changed content (settings, theme, keys of its own) into the URL in the
        browser's address bar, and the settings and the theme into the links to the other pages."""
        here = json.dumps(self.address_of(self.path, self.more))
        ui.run_javascript(f"history.replaceState(history.state, '', {here})")
        for path, link in self.links.items():
            link.props["href"] = self.address_of(path)


@contextmanager
def frame(
    state: PageState,
    *,
    on_theme: Callable[[], None] = lambda: None,
    on_export: Callable[[], object] | None = None,
) -> Iterator[None]:
    """Context that draws the frame of a page (bar with links, keyboard shortcuts, warning about
    unknown URL keys), and within which the caller draws the rest of the page; ``on_theme`` redraws
    charts after a change of theme, and ``on_export`` saves the page as one HTML file (None: nothing
    to save)."""
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


def _opener(state: PageState, path: str) -> Callable[[], None]:
    """Handler of a key, which opens the page at ``path`` with the settings and the theme of
    ``state``."""
    return lambda: ui.navigate.to(state.address_of(path))


def _icon(name: str, words: str, action: Callable[[], object]) -> None:
    """Draw a button with the icon ``name`` that calls ``action``; ``words`` are its text for screen
    readers and its tooltip."""
    button = ui.button(icon=name, on_click=lambda: action())
    button.props(f'flat round dense color="grey" aria-label="{words}"').tooltip(words)


def _help() -> ui.dialog:
    """The dialog with the list of keyboard shortcuts, not yet open."""
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
    """Do the action of ``actions`` (by key) for a key pressed without modifiers, and return its
    value, which may be a coroutine for NiceGUI to await; None for other keys and events."""
    action, key = event.action, event.key  # type: ignore[attr-defined]
    modifiers = event.modifiers  # type: ignore[attr-defined]
    alone = not (modifiers.ctrl or modifiers.alt or modifiers.meta)
    if action.keydown and not action.repeat and alone and key.name in actions:
        return actions[key.name]()
    return None


def _variables(theme: Theme, page: str) -> str:
    """The colours of a theme, and ``page``, the colour of the page behind its cards, as CSS
    variables."""
    colours = ";".join(f"--{name}:{value}" for name, value in theme.colours.items())
    return f"--page:{page};--card:{theme.background};--line:{theme.grid};{colours}"


STYLE = (
    f"""
:root{{{_variables(LIGHT, "#f4f6f8")}}}
body.body--dark{{{_variables(DARK, "#0e1318")}}}
"""
    + """
body{background:var(--page)!important;color:var(--ink);font-variant-numeric:tabular-nums}
.nicegui-content{padding:0!important;gap:0!important;align-items:stretch!important}
.bar{display:flex;flex-wrap:wrap;align-items:center;gap:4px 14px;padding:8px 16px;
 background:var(--card);border-bottom:1px solid var(--line);position:sticky;top:0;z-index:20}
.brand{font-weight:600;font-size:17px;letter-spacing:.01em}
.places{scrollbar-width:none;display:flex;gap:2px;overflow-x:auto;flex:1 1 auto}
.places a{color:var(--ink);text-decoration:none;padding:5px 10px;border-radius:6px;
 white-space:nowrap}
.places a:hover,.places a:focus-visible{background:var(--page)}
.places a.here{background:var(--blue);color:#fff}
body.body--dark .places a.here{color:#0e1318}
.sheet{display:grid;grid-template-columns:330px minmax(0,1fr);gap:16px;padding:16px;
 align-items:start;max-width:1700px;width:100%;margin:0 auto}
.sheet.single{grid-template-columns:minmax(0,1fr)}
.panel{position:sticky;top:62px;max-height:calc(100vh - 78px);overflow-y:auto;
 background:var(--card);border:1px solid var(--line);border-radius:10px;padding:6px 14px 14px}
.panel h2,.card h2{font-size:14px;font-weight:600;line-height:1.3;margin:0}
.panel h2{margin:14px 0 4px;color:var(--muted);text-transform:uppercase;font-size:11px;
 letter-spacing:.08em}
.control{display:grid;grid-template-columns:minmax(0,1fr) 112px;column-gap:10px;
 align-items:center;width:100%}
.control.wide{grid-template-columns:minmax(0,1fr)}
.control .name{font-size:13px}
.control .q-slider{grid-column:1/-1;margin-top:-1px;padding:0 6px}
.control .q-field{font-size:13px}
.control .q-field__bottom{padding:2px 0 0;font-size:12px;line-height:1.25;min-height:0}
.control .q-field--error .q-field__bottom{color:var(--vermilion)}
.control.off{opacity:.38}
.control .q-btn-group,.control .q-btn-toggle{width:100%;flex-wrap:wrap}
.control .q-btn{font-size:12px;flex:1 1 auto;padding:2px 6px;min-height:28px}
.main{display:flex;flex-direction:column;gap:14px;min-width:0}
.card{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:12px 14px;
 min-width:0;position:relative}
.cards{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:14px}
.cards .whole{grid-column:1/-1}
.card .head{display:flex;align-items:center;justify-content:space-between;gap:8px;min-height:30px}
.card .chart{width:100%;height:300px}
.card .chart.tall{height:430px}
.caption{font-size:13px;color:var(--muted);min-height:1.2em}
.silent .chart{display:none}
.silent .caption{padding:26px 10px;text-align:center;font-size:14px}
.stale .chart,.stale .figure,.tile.stale .figure{opacity:.4}
.figure.stale{opacity:.4}
.stale.halted .waits{visibility:hidden}
.q-menu{width:max-content;min-width:0!important}
.stale .waits{visibility:visible}
.waits{visibility:hidden;font-size:12px;color:var(--muted);display:inline-flex;gap:6px;
 align-items:center}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(128px,1fr));gap:10px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:10px;padding:9px 12px;
 min-width:0}
.tile .name{font-size:12px;color:var(--muted)}
.tile .figure{font-size:21px;font-weight:600;line-height:1.25;overflow-wrap:anywhere}
.tile .more{font-size:12px;color:var(--muted);min-height:1.1em}
.verdict{border-left:5px solid var(--muted);padding:10px 14px;border-radius:8px;
 background:var(--card);font-size:14px;line-height:1.45}
.verdict b{margin-right:8px}
.verdict.good{border-color:var(--green)}
.verdict.warning{border-color:var(--orange)}
.verdict.unknown{border-color:var(--purple);border-left-style:dashed}
.verdict.bad{border-color:var(--vermilion);border:1px solid var(--vermilion);border-left-width:5px}
.verdict.bad b::before{content:"";display:inline-block;width:.8em;height:.8em;margin-right:6px;
 background:var(--vermilion);
 clip-path:polygon(30% 0,70% 0,100% 30%,100% 70%,70% 100%,30% 100%,0 70%,0 30%)}
.lights{display:grid;grid-template-columns:repeat(auto-fit,minmax(200px,1fr));gap:10px}
.lights:not(:empty){margin-top:10px}
.lights .verdict{font-size:13px}
.rows{width:100%;border-collapse:collapse;font-size:13px}
.rows th,.rows td{text-align:left;vertical-align:top;padding:4px 10px 4px 0;
 border-bottom:1px solid var(--line);overflow-wrap:anywhere}
.rows th{font-weight:500;color:var(--muted);width:30%}
.cells th{width:auto;white-space:nowrap}
.cells td,.roles td:not(:last-child){white-space:nowrap}
.rows tr.warning td{color:var(--orange)} .rows tr.bad td{color:var(--vermilion)}
body:not(.body--dark) .rows tr.warning td{color:#8a5a00}
.rows tr.unknown td{color:var(--purple)}
body:not(.body--dark) .rows tr.unknown td{color:#8a3a6b}
.rows tr.good td{color:var(--green)}
body:not(.body--dark) .rows tr.good td{color:#00704f}
.scroll{overflow-x:auto;width:100%}
.code{font-family:ui-monospace,Menlo,Consolas,monospace;font-size:12.5px;background:var(--page);
 padding:7px 10px;border-radius:6px;overflow-wrap:anywhere;flex:1 1 auto}
.line{display:flex;gap:8px;align-items:center;width:100%;flex-wrap:wrap}
.empty{padding:26px 10px;text-align:center;color:var(--muted);font-size:14px}
.columns{grid-template-columns:repeat(4,minmax(0,1fr))}
.grow{flex:1 1 240px;min-width:0;max-width:100%}
.grow .q-field__native>span{overflow:hidden;text-overflow:ellipsis;white-space:nowrap}
.picture{border:0;background:none;padding:0;cursor:zoom-in;width:100%;text-align:center}
.picture img{max-width:100%}
body.body--dark .picture img,body.body--dark .zoom img{background:#fff;border-radius:6px}
.prose{font-size:14px}
.prose h1{font-size:22px;line-height:1.3;margin:0 0 8px}
.prose h2{font-size:17px;line-height:1.3;margin:14px 0 6px}
.prose table{border-collapse:collapse;font-size:13px}
.prose td,.prose th{border:1px solid var(--line);padding:4px 8px;text-align:left;vertical-align:top}
.zoom{overflow:auto;max-height:80vh}
.q-btn:focus-visible,a:focus-visible{outline:2px solid var(--blue);outline-offset:1px}
@media (max-width:1000px){
 .sheet{grid-template-columns:minmax(0,1fr);padding:10px;gap:10px}
 .panel{position:static;max-height:46vh}
 .cards{grid-template-columns:minmax(0,1fr)}
 .bar{padding:6px 10px}
 .places{order:3;flex-basis:100%}
 .tiles.columns{grid-template-columns:minmax(0,1fr)}
 .tiles:not(.columns){grid-template-columns:repeat(2,minmax(0,1fr))}
 .card .chart.tall{height:380px}
}
"""
)
"""The style sheet of all pages, as CSS, for both themes."""
