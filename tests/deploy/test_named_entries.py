"""Names of theta's entries in a federation, whose server has no model: they are agreed on, compared
by devices with their own models, and shown by the server, its record and commands."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from deploy.federations import DATA, DIM, Kit, close, make_federation, make_plan, run_whole
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.deploy.configuration import read_federation
from flmc.deploy.role_assembly import _check_names
from flmc.deploy.server.federation_result import result_of_record
from flmc.deploy.server.pooled_runs import pool
from flmc.models.gradient_model import GradientModel
from flmc.planning.plans import Plan
from flmc.uplink.report import ReportingModel
from flmc.wire.federation import Federation

NAMES = ("intercept", "dose", "free(größe)")


def long_plan() -> Plan:
    """A plan with rounds enough for an answer."""
    loud, off = flmc.Analog(clip=30.0, snr_db=40.0), flmc.Limits(privacy="off")
    return make_plan(loud, off, num_rounds=120, num_burn_in=30, step_size=3e-3)


def named_model(names: Sequence[str] | None) -> flmc.Model:
    return flmc.Model.from_gradient(
        lambda theta: theta[:, None] + np.zeros((1, 4, 1)),
        prior=flmc.Normal(),
        dim=DIM,
        num_devices=4,
        names=names,
    )


def run_named(folder: Path, run: str = "test", names: tuple[str, ...] = NAMES) -> Path:
    """The record of a whole federation with these names."""
    folder.mkdir(exist_ok=True)
    kit = Kit(folder, make_federation(long_plan(), run=run, names=names))
    _, air, server, devices = run_whole(kit)
    close(air, server, *devices)
    return folder / "record"


def test_a_server_shows_names(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """In its listing, in JSON, in the answer, and in the draws that a command writes."""
    place = run_named(tmp_path)
    result = result_of_record(place)
    shown = str(result)
    assert all(name in shown for name in NAMES)
    assert "theta[" not in shown
    assert result.to_document()["entries"] == list(NAMES)
    stored = json.loads((place / "result.json").read_text())
    assert stored["entries"] == list(NAMES)
    assert list(result.parameters()) == list(NAMES)
    assert result.posterior().to_document()["entries"] == list(NAMES)
    record = flmc.load(place)
    assert record.posterior(flmc.Normal()).to_document()["entries"] == list(NAMES)
    table = tmp_path / "draws.csv"
    assert main(["answer", str(place), "--json", "--out", str(table), "--draws", "3"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["posterior"]["entries"] == list(NAMES)
    assert table.read_text().splitlines()[0] == ",".join(NAMES)


def test_a_federation_without_names_is_what_it_was(tmp_path: Path) -> None:
    """Its document and digest have no word of names, and its server shows numbers of entries."""
    plain = make_federation()
    assert "names" not in plain.to_document()
    assert Federation.from_bytes(plain.to_bytes()).names == ()
    result = result_of_record(run_named(tmp_path, names=()))
    assert result.to_document()["entries"] == ["theta[0]", "theta[1]", "theta[2]"]


def test_names_are_agreed_on() -> None:
    """They travel, and the digest covers them and their order, by the words of the page."""
    plain, named = make_federation(), make_federation(names=NAMES)
    assert Federation.from_bytes(named.to_bytes()) == named
    swapped = make_federation(names=(NAMES[1], NAMES[0], NAMES[2]))
    assert len({plain.digest, named.digest, swapped.digest}) == 3
    agreed = {"deadline_ms", "grid_bits", "model", "quorum", "run", "slot_ms", "wire", "names"}
    document = named.to_document()
    given = {name: document[name] for name in agreed}
    text = json.dumps({**given, "plan": named.plan.digest}, sort_keys=True, separators=(",", ":"))
    assert named.digest == hashlib.sha256(text.encode()).digest()
    changed = {**document, "names": ["dose", "intercept", NAMES[2]]}
    with pytest.raises(InvalidSetting, match="was changed since it was made"):
        Federation.from_bytes(json.dumps(changed).encode())


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["a", "b"], "names must be 3, one for each entry of theta, got 2"),
        (["a", "b", "a"], "'a' is there twice"),
        (["a", "b", ""], "1 to 100 printable characters"),
        (["a", "b", "c" * 101], "1 to 100 printable characters"),
        (["a", "b", "\x1b[2J"], r"printable characters, got '\\x1b\[2J'"),
        (["a", "b", "left\u202eright"], r"printable characters, got 'left\\u202eright'"),
        (["a", "b", "two\nlines"], "printable characters"),
        (["a", "b", "\ud800"], "printable characters"),
        (["a", "b", 3], "printable characters, got 3"),
        ("abc", "names must be a list of names, got str"),
        ({"a": 1, "b": 2, "c": 3}, "names must be a list of names, got dict"),
        (7, "not a whole federation"),
        (None, "not a whole federation"),
    ],
)
def test_what_may_not_be_a_name_is_refused_on_the_wire(names: Any, message: str) -> None:
    payload = json.dumps({**make_federation().to_document(), "names": names}).encode()
    with pytest.raises(InvalidSetting, match=message):
        Federation.from_bytes(payload)


def test_a_record_is_not_trusted_with_names(tmp_path: Path) -> None:
    """A record may come from anyone: control characters in it do not reach a terminal."""
    place = run_named(tmp_path)
    asked = json.loads((place / "run.json").read_text())
    asked["federation"]["names"][0] = "\x1b[2J"
    record = replace(flmc.load(place), asked=asked)
    with pytest.raises(InvalidSetting, match="printable characters"):
        record.posterior(flmc.Normal())


def test_names_are_in_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(long_plan().to_document()))
    path = tmp_path / "federation.toml"
    path.write_text('run = "test"\nnames = ["intercept", "dose", "free(größe)"]\n')
    assert read_federation(path).names == NAMES
    path.write_text('run = "test"\n')
    assert read_federation(path).names == ()
    path.write_text('run = "test"\nnames = ["intercept"]\n')
    with pytest.raises(InvalidSetting, match="names must be 3"):
        read_federation(path)


def test_devices_compare_names_with_their_model() -> None:
    """Another name, another order, or names of sampler's coordinates are refused, without telling
    the device's own names; a model without names is not asked."""
    federation = make_federation(names=NAMES)
    _check_names(named_model(NAMES), federation)
    _check_names(named_model(None), federation)
    _check_names(named_model(["other", "names", "here"]), make_federation())
    for own in (["intercept", "secret", NAMES[2]], [NAMES[1], NAMES[0], NAMES[2]]):
        with pytest.raises(InvalidSetting, match=r"the run calls entry \d of theta") as refused:
            _check_names(named_model(own), federation)
        assert "secret" not in str(refused.value)
    narrow: Any = object.__new__(GradientModel)
    narrow.layout = flmc.evaluation.named_draws.Layout.of_names(["one"], 1)
    narrow.dim, narrow.coordinates = 1, None
    with pytest.raises(InvalidSetting, match="the run names 3 entries"):
        _check_names(narrow, federation)


def test_a_device_refuses_wrong_names(tmp_path: Path) -> None:
    kit = Kit(tmp_path, make_federation(names=NAMES))

    def gradient(federation: Federation) -> Any:
        _check_names(named_model(["a", "b", "c"]), federation)

    device = kit.device()
    device._make_gradient = gradient
    device.connected(0.0)
    device.receive(kit.plan_message(), 0.0)
    device.receive(kit.announce(1), 0.0)
    assert device.refusal is not None
    assert "calls entry 0 of theta (from 0) 'intercept'" in device.refusal
    close(device)


def test_reports_have_no_name() -> None:
    """The entry that adds up devices' reports is no parameter: there are names of the others."""
    uplink = flmc.Analog(clip=30.0, snr_db=40.0)
    plan = flmc.plan(
        ReportingModel(flmc.LinearGaussian(DATA), uplink), uplink, flmc.Limits(privacy="off"),
        num_rounds=6, num_burn_in=2, step_size=3e-3, public_smoothness=120.0, forecast=False,
    )  # fmt: skip
    assert plan.dim == DIM + 1
    assert make_federation(plan, model="linear+report", names=NAMES).names == NAMES
    with pytest.raises(InvalidSetting, match="names must be 3"):
        make_federation(plan, model="linear+report", names=(*NAMES, "report"))


def test_runs_together_have_names(tmp_path: Path) -> None:
    """Those of the run that has any; runs with different names are not of one model."""
    first = run_named(tmp_path / "first", "first")
    second = run_named(tmp_path / "second", "second", ())
    assert pool([first, second]).result.to_document()["entries"] == list(NAMES)
    other = run_named(tmp_path / "other", "other", ("dose", "intercept", NAMES[2]))
    with pytest.raises(InvalidSetting, match=r"different names.*dose, intercept"):
        pool([first, other])
