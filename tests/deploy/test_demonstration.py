"""The demonstration as a command: what is left of it when it is asked to stop."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import flmc
from deploy.federations import make_plan
from flmc.cli import main
from flmc.wire.federation import Federation, refuse_foreign
from support import full_only


@full_only
@pytest.mark.parametrize("last", ["broker", "air", "device-1"])
def test_a_demonstration_that_is_stopped_leaves_no_process(tmp_path: Path, last: str) -> None:
    """Stopped as soon as its last process is being started, the first ones too."""
    words = ["deploy", "demo", "--devices", "2", "--rounds", "2000", "--burn-in", "1000"]
    place = tmp_path / "here"
    demo = subprocess.Popen(
        [sys.executable, "-m", "flmc", *words, "--out", str(place)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )
    log = place / "logs" / f"{last}.log"
    until = time.monotonic() + 60
    while not log.exists() and time.monotonic() < until:
        time.sleep(0.001)
    assert log.exists()
    demo.send_signal(signal.SIGTERM)
    assert demo.wait(60) == 130  # as after Ctrl-C
    assert demo.stderr is not None
    said = demo.stderr.read()
    assert b"interrupted" in said
    assert b"Traceback" not in said
    demo.stderr.close()
    for path in Path("/proc").glob("[0-9]*/cwd"):
        try:
            there = path.resolve()
        except OSError:
            continue
        assert not there.is_relative_to(place), path


def test_an_own_scheme_is_refused_before_anything_is_shown_or_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine_at_once.py").write_text("import flmc\nclass Mine(flmc.Digital): pass\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    words = ["deploy", "demo", "--devices", "4", "--rounds", "60", "--burn-in", "30"]
    assert main([*words, "--scheme", "mine_at_once:Mine", "--out", "here"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert "the plan has uplink 'mine_at_once:Mine'" in " ".join(said.err.split())
    assert not (tmp_path / "here").exists()


class Never(flmc.Fading):
    """A fading of a user's own."""

    def draw(self, rng: object, rounds: range, num_devices: int, dim: int) -> Any:
        raise NotImplementedError


class Alone(flmc.Scheduler):
    """A scheduler of a user's own."""

    def draw(self, rng: object, rounds: range, fading: object) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(("part", "own"), [("fading", Never()), ("scheduler", Alone())])
def test_a_federation_names_the_part_that_is_not_of_flmc(part: str, own: Any) -> None:
    plan = make_plan(num_rounds=4, num_burn_in=1, gain=0.1)
    if part == "fading":
        changed = replace(plan, uplink=replace(plan.uplink, fading=own))
    else:
        changed = replace(plan, scheduler=own)
    Federation("test", plan, 1).to_bytes()
    named = f"the plan has {part} '.*:{type(own).__name__}'"
    with pytest.raises(flmc.errors.InvalidSetting, match=named):
        refuse_foreign(changed)
    with pytest.raises(flmc.errors.InvalidSetting, match=named):
        Federation.to_document(SimpleNamespace(plan=changed))  # type: ignore[arg-type]
