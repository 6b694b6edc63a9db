"""Controls, addresses and commands: what goes round comes back."""

from __future__ import annotations

import shlex
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flmc.base.errors import InvalidSetting
from flmc.settings.schema import Settings, merge, naming
from flmc.studio.controls import CONTROLS, Control, default_text, field_of, format_value, read_given
from flmc.studio.page_addresses import address, changed, command_line, given_of, unknown_keys

SLIDERS = [control for control in CONTROLS.values() if control.kind == "slider"]


def test_every_control_is_a_setting() -> None:
    assert set(CONTROLS) <= set(Settings.model_fields)
    assert all(control.help for control in CONTROLS.values())


@pytest.mark.parametrize("control", SLIDERS, ids=lambda control: control.name)
@given(share=st.floats(0, 1))
def test_sliders_give_values_that_the_schema_takes(control: Control, share: float) -> None:
    low, high = control.places
    value = control.value_at(low + share * (high - low))
    read = merge({}, {control.name: format_value(value)})
    assert getattr(read, control.name) == value
    # Three digits are kept of a value, so that its place is within a half per cent.
    assert control.place_of(value) == pytest.approx(low + share * (high - low), rel=0.01, abs=0.5)


@pytest.mark.parametrize("control", SLIDERS, ids=lambda control: control.name)
def test_values_beyond_the_slider_stand_at_its_end(control: Control) -> None:
    low, high = control.places
    assert control.place_of(1e12) == high
    assert control.place_of(-1e12) == low


TEXTS = {
    "snr_db": "12.5",
    "epsilon": "0.3",
    "fading": "rician:0.05,3",
    "link": "probit",
    "burn_in": "auto",
}


@given(st.dictionaries(st.sampled_from(sorted(TEXTS)), st.none()))
def test_addresses_keep_settings(names: dict[str, None]) -> None:
    given_ = {name: TEXTS[name] for name in names}
    query = parse_qsl(urlsplit(address("/run", given_, {"theme": "dark"})).query)
    assert given_of(query) == given_
    assert unknown_keys(query) == []
    words = shlex.split(command_line(given_, "run"))
    assert words[:2] == ["flmc", "run"]
    options = dict(zip(words[2::2], words[3::2], strict=True))
    assert {name.strip("-").replace("-", "_"): text for name, text in options.items()} == given_


def test_defaults_are_left_out() -> None:
    assert changed({name: default_text(name) for name in CONTROLS}) == {}
    assert address("/", {"snr_db": "25", "devices": "20"}) == "/"


def test_settings_without_effect_are_left_out_of_the_command() -> None:
    given_ = {"scheme": "analog", "link": "probit", "slope_parameter": "0.1"}
    assert command_line(given_) == "flmc plan --scheme analog"
    assert read_given(given_).model_fields_set == {"scheme"}


@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("fading", "os.path:join", "must be one of"),
        ("fading", "antigravity:anything", "must be one of"),
        ("fading", "trace:/etc/passwd", "must not name a file"),
        ("link", "builtins:print", "must be one of"),
        ("link", "auto:thing", "must be one of"),
        ("link", " sigmoid:x", "must be one of"),
        ("fading", "nan:thing", "must be one of"),
        ("fading", "1:thing", "must be one of"),
        ("scheduling", "subprocess:Popen", "must be one of"),
        ("data_file", "/etc/passwd", "cannot be set in the studio"),
        ("model", "os:system", "cannot be set in the studio"),
        ("scheme", "os:system", "code of your own is for the command line"),
        ("engine", "numpy", "cannot be set in the studio"),
    ],
)
def test_addresses_import_no_code_and_read_no_file(name: str, text: str, why: str) -> None:
    with pytest.raises(InvalidSetting, match=why):
        read_given({name: text})


@pytest.mark.parametrize("name", ["snr_db", "epsilon", "devices", "burn_in", "fading"])
def test_messages_find_their_field(name: str) -> None:
    with pytest.raises(InvalidSetting) as refused:
        read_given({name: "nonsense"})
    assert field_of(str(refused.value)) == name
    assert field_of("something else went wrong") is None


@pytest.mark.parametrize("name", sorted(naming().keys() & CONTROLS.keys()))
def test_no_control_imports_code(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever settings may name code: the sender of a link to the studio must not run any."""
    (tmp_path / "harmful.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(InvalidSetting, match="code of your own is for the command line"):
        read_given({name: "harmful:Thing"})
