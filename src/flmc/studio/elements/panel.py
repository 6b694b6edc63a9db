"""The panel of controls: sliders, fields and choices for the settings."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from nicegui import ui

from flmc.settings.registered import LINKS
from flmc.settings.schema import Settings
from flmc.studio.controls import (
    CONTROLS,
    GROUPS,
    Control,
    default_text,
    format_value,
    is_number,
)


class Panel:
    """The panel of a page with a control for each setting; controls change ``given`` (settings as
    text by name) in place, and then call ``on_change``."""

    def __init__(self, given: dict[str, str], on_change: Callable[[], None]) -> None:
        self._given, self._on_change = given, on_change
        self._widgets: dict[str, _Widget] = {}
        with ui.element("aside").classes("panel").props('aria-label="settings"'):
            for group, controls in GROUPS.items():
                with ui.element("h2"):
                    ui.label(group)
                for control in controls:
                    self._widgets[control.name] = _Widget(control, self)
            ui.button("Reset all", on_click=self.reset).props("flat dense size=sm").classes("mt-2")

    def text(self, name: str) -> str:
        """The value of a setting as text: the given one, or else its default."""
        return self._given.get(name, default_text(name))

    def change(self, name: str, text: str) -> None:
        """Store the new value ``text`` of the setting ``name``, which a control has got, and report
        the change; an empty text means the default."""
        if text in ("", default_text(name)):
            self._given.pop(name, None)
        else:
            self._given[name] = text
        if self._given.get("neighbouring") == "example" and "example_clip" not in self._given:
            # The privacy of single examples needs a bound of each example's gradient. So the bound
            # is set to 1 as soon as this privacy is chosen.
            self._given["example_clip"] = "1"
            self._widgets["example_clip"].put("1")
        self._on_change()

    def put(self, values: dict[str, str]) -> None:
        """Set several settings at once, given as text by name, and show the values at their
        controls."""
        self._given.update(values)
        for name in values:
            self._widgets[name].put(self.text(name))
        self._on_change()

    def reset(self) -> None:
        """Reset all settings to their defaults."""
        self._given.clear()
        for name, widget in self._widgets.items():
            widget.put(self.text(name))
        self._on_change()

    def settled(self, settings: Settings) -> None:
        """Show that the settings are valid: clear all error messages, grey out the controls without
        an effect under these settings, and show the link's default slope parameter if none is
        given."""
        for name, widget in self._widgets.items():
            widget.complain(None)
            widget.enable(CONTROLS[name].applies(settings))
        if settings.slope_parameter is None and settings.link in LINKS.names:
            parameters = LINKS[settings.link].parameters
            if parameters and "slope_parameter" not in self._given:
                self._widgets["slope_parameter"].put(format_value(parameters[0].default))

    def complain(self, name: str, message: str) -> None:
        """Show an error message at the control of the setting ``name``, and clear the messages at
        all other controls."""
        for each, widget in self._widgets.items():
            widget.complain(message if each == name else None)


class _Slider(ui.slider):
    """A slider whose position the server does not send back while the user moves it: the delayed
    echo would pull it back."""

    LOOPBACK = False


class _Widget:
    """The control of one setting on the panel: a field or a choice, and for numbers a slider
    too."""

    def __init__(self, control: Control, panel: Panel) -> None:
        self._control, self._panel = control, panel
        self._quiet = False
        self._slider: _Slider | None = None
        text = panel.text(control.name)
        with (
            ui.element("div")
            .classes("control")
            .props(f'data-control="{control.name}"') as self._box
        ):
            unit = f" [{control.unit}]" if control.unit else ""
            ui.label(control.label + unit).classes("name").tooltip(control.help)
            if control.kind == "choice":
                self._box.classes("wide")
                self._field: Any = ui.toggle(
                    list(control.words), value=text if text in control.words else None
                ).props(f'dense unelevated no-caps spread aria-label="{control.label}"')
            else:
                self._field = ui.input(value=text).props(
                    f'dense outlined debounce=250 hide-bottom-space aria-label="{control.label}"'
                )
                if control.words:
                    self._suggest()
            if control.kind == "slider":
                self._add_slider(text)
            self._field.on_value_change(self._typed)

    def _suggest(self) -> None:
        """Draw a menu beside the field that offers words for it; the user writes a word's
        parameters after a colon."""
        with (
            self._field.add_slot("append"),
            ui.button(icon="expand_more").props(
                f'flat dense round size=xs color=grey aria-label="{self._control.label}: words"'
            ),
            ui.menu().props("auto-close"),
        ):
            for word in self._control.words:
                ui.menu_item(word, partial(self._field.set_value, word))

    def _add_slider(self, text: str) -> None:
        low, high = self._control.places
        self._slider = _Slider(
            min=low, max=high, step=self._control.step, value=self._place(text)
        ).props(f'dense aria-label="{self._control.label} slider"')
        self._slider.on_value_change(self._slid)

    def _place(self, text: str) -> float:
        """Position on the slider of a value given as text; the lower end for text that is not a
        number."""
        try:
            return self._control.place_of(float(text))
        except ValueError:
            return self._control.places[0]

    def _slid(self, event: Any) -> None:
        if self._quiet or event.value is None:
            return
        text = format_value(self._control.value_at(event.value))
        # Setting the field calls its own change handler, which would move the slider again.
        self._quietly(self._field.set_value, text)
        self._panel.change(self._control.name, text)

    def _typed(self, event: Any) -> None:
        if self._quiet:
            return
        text = str(event.value or "").strip()
        if self._slider is not None and is_number(text):
            self._quietly(self._slider.set_value, self._place(text))
        self._panel.change(self._control.name, text)

    def _quietly(self, setter: Callable[[Any], object], value: Any) -> None:
        """Set the field or the slider of the control to a value, without triggering its change
        handler."""
        self._quiet = True
        try:
            setter(value)
        finally:
            self._quiet = False

    def put(self, text: str) -> None:
        """Show a value, given as text, at this control after its setting was changed elsewhere,
        such as by a button; no change handler is called."""
        known = self._control.kind != "choice" or text in self._control.words
        self._quietly(self._field.set_value, text if known else None)
        if self._slider is not None:
            self._quietly(self._slider.set_value, self._place(text))

    def complain(self, message: str | None) -> None:
        """Show an error message about the control's value, or (None) clear it."""
        if isinstance(self._field, ui.input):
            self._field.error = message

    def enable(self, applies: bool) -> None:
        """Enable the control if its setting has an effect (``applies``), or else grey it out."""
        self._box.classes(remove="off") if applies else self._box.classes(add="off")
        self._field.set_enabled(applies)
        if self._slider is not None:
            self._slider.set_enabled(applies)
