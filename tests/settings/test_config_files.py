"""Thousands of config files, valid and invalid: the valid ones plan, the invalid ones are one line
and exit code 2."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.settings.assembly import assemble
from flmc.settings.schema import merge, read_file
from support import full, full_only, many_repetitions, repeated

positive = st.floats(1e-3, 1e3)
GOOD: dict[str, st.SearchStrategy[Any]] = {
    "scheme": st.sampled_from(["digital", "analog"]),
    "snr_db": st.floats(-20, 40),
    "epsilon": st.floats(0.1, 20),
    "delta": st.floats(1e-6, 0.5),
    "run_delta": st.floats(1e-8, 0.1),
    "privacy": st.sampled_from(["tight", "tail", "off"]),
    "langevin": st.sampled_from(["calibrated", "paper"]),
    "step_size": st.one_of(st.just("auto"), st.floats(1e-6, 1e-2)),
    "clip": st.floats(1, 100),
    "devices": st.integers(1, 8),
    "dim": st.integers(1, 6),
    "samples": st.integers(8, 200),
    "rounds": st.integers(2, 50),
    "burn_in": st.integers(0, 1),
    "start": st.sampled_from(["prior", "zero"]),
    "fading": st.one_of(st.floats(0.01, 1), st.just("rayleigh:0.3")),
    "noise_power": st.floats(0.1, 10),
    "experiments": st.integers(1, 3),
    "chains": st.integers(1, 3),
    "seed": st.integers(0, 2**40),
    "engine": st.sampled_from(["auto", "numpy", "numba"]),
    "data": st.sampled_from(["examples", "sufficient"]),
    "threads": st.integers(1, 4),
    "public_smoothness": st.floats(300, 1000),
}
BAD: dict[str, st.SearchStrategy[Any]] = {
    "scheme": st.sampled_from(["digita", "", "DIGITAL"]),
    "snr_db": st.sampled_from([float("nan"), float("inf"), "loud", [1.0], {"a": 1}]),
    "epsilon": st.sampled_from([0, -1.0, float("nan"), "five", True]),
    "delta": st.sampled_from([0.0, 1.0, 2, -0.1, "small"]),
    "privacy": st.sampled_from(["none", 3]),
    "step_size": st.sampled_from([0.0, -1e-3, "automatic", []]),
    "link": st.sampled_from(["tanh", "nomodule:thing", "os:path", ""]),
    "clip": st.sampled_from([0, -3, float("inf")]),
    "devices": st.sampled_from([0, -1, 2.5, "many", 10**9]),
    "dim": st.sampled_from([0, -2, 1.5]),
    "rounds": st.sampled_from([0, -5, "ten"]),
    "burn_in": st.sampled_from([-1, 10**6, 0.5]),
    "fading": st.sampled_from([0.0, -0.1, "rayleigh:", "rayleigh:x", "weather"]),
    "gain": st.sampled_from([0.0, -1.0, [], [1.0, -1.0], "loud"]),
    "seed": st.sampled_from([-1, 1.5, "x"]),
    "engine": st.sampled_from(["gpu", 1]),
    "unknown_setting": st.integers(),
    "Snr_db": st.just(3.0),
}


def as_toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return '"' + value + '"'
    if isinstance(value, list):
        return "[" + ", ".join(as_toml(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{k} = {as_toml(v)}" for k, v in value.items()) + "}"
    return repr(value)


BROKEN = [
    "= 3",
    "[[",
    'scheme = "digital',
    "\x00",
    "clip = 3\nclip = 4",
    "[a]\n[a]",
    "snr_db = 1_",
    "é = 1",
]


@st.composite
def documents(draw: st.DrawFn) -> tuple[str, bool]:
    """Text of a config file, and whether it must be refused."""
    names = draw(st.lists(st.sampled_from(sorted(GOOD)), unique=True, max_size=8))
    chosen = {name: draw(GOOD[name]) for name in names}
    wrong = draw(st.booleans())
    lines = [f"{name} = {as_toml(value)}" for name, value in chosen.items()]
    if wrong and draw(st.integers(0, 9)) == 0:
        lines.append(draw(st.sampled_from(BROKEN)))
    elif wrong:
        name = draw(st.sampled_from(sorted(BAD)))
        lines = [line for line in lines if not line.startswith(f"{name} =")]
        lines.append(f"{name} = {as_toml(draw(BAD[name]))}")
    return "\n".join(lines) + "\n", wrong


@many_repetitions
@settings(max_examples=repeated(2000, 500, 150), suppress_health_check=list(HealthCheck))
@given(documents())
def test_config_files(tmp_path_factory: pytest.TempPathFactory, document: tuple[str, bool]) -> None:
    text, wrong = document
    path = tmp_path_factory.getbasetemp() / "settings.toml"
    path.write_text(text)
    message = None
    try:
        chosen = merge(read_file(path), {})
        assemble(chosen).plan(forecast=False)
    except InvalidSetting as error:  # anything else is a failure
        message = str(error)
    # What is right by itself may still not fit together, but it is always bad input, told in one
    # line.
    assert message is not None or not wrong, text
    assert message is None or ("\n" not in message and len(message) > 15)


@full_only
def test_through_a_real_process(tmp_path: Path) -> None:
    """Twenty config files through the command line: no traceback at all."""
    found: list[tuple[str, bool]] = []

    @settings(max_examples=full(20, 4), suppress_health_check=list(HealthCheck), database=None)
    @given(documents())
    def collect(document: tuple[str, bool]) -> None:
        found.append(document)

    collect()
    for index, (text, wrong) in enumerate(found[: full(20, 4)]):
        path = tmp_path / f"{index}.toml"
        path.write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "flmc", "plan", "--json", "--no-run", "--config", str(path)],
            capture_output=True, text=True,
        )  # fmt: skip
        assert "Traceback" not in done.stderr
        assert done.returncode in ((2,) if wrong else (0, 2)), (text, done.stderr)
        if done.returncode == 2:
            assert done.stderr.count("\n") == 1
            assert done.stdout == ""


def test_most_valid_files_plan() -> None:
    """Most valid files plan, so that ``test_config_files`` cannot be passed by refusing
    everything."""
    planned = 0

    @settings(max_examples=40, suppress_health_check=list(HealthCheck), database=None)
    @given(documents().filter(lambda d: not d[1]))
    def plan(document: tuple[str, bool]) -> None:
        nonlocal planned
        import tomllib

        try:
            chosen = merge(tomllib.loads(document[0]), {})
            assemble(chosen).plan(forecast=False)
        except InvalidSetting:
            return
        planned += 1

    plan()
    assert planned >= 20


def test_a_config_file_that_is_a_directory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "--config", str(tmp_path)]) == 2
    assert "cannot read the config file" in capsys.readouterr().err


def test_requirements_in_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    short = ["--config", "a.toml", "--rounds", "6", "--burn-in", "2", "--chains", "2"]
    Path("a.toml").write_text('require = ["rounds>=5", "temperature<=0.5"]\n')
    for command in (["plan", "--no-run"], ["run", "--engine", "numpy"]):
        assert main([*command, *short]) == 1
        assert "temperature<=0.5 is not met" in capsys.readouterr().err
        # Options take the place of what the file asks.
        assert main([*command, *short, "--require", "rounds>=6", "--require", "rounds<=6"]) == 0
        capsys.readouterr()
    assert main(["plan", "--no-run", *short, "--require", "rounds<=6", "--write", "b.toml"]) == 0
    assert 'require = ["rounds<=6"]' in Path("b.toml").read_text()
    capsys.readouterr()
    for text, words in (
        ("require = 5", "require must be a list of texts"),
        ('require = ["god"]', "a requirement must be NAME<=NUMBER"),
    ):
        Path("a.toml").write_text(text + "\n")
        assert main(["plan", *short]) == 2
        assert words in capsys.readouterr().err
    # One text is a list of one, as an option that is given once.
    Path("a.toml").write_text('require = "rounds<=6"\n')
    assert main(["plan", "--no-run", *short]) == 0
    capsys.readouterr()
    Path("a.toml").write_text('require = ["good"]\n[sweep]\nsnr_db = [10, 20]\n')
    assert main(["sweep", "--config", "a.toml", "--plan-only"]) == 2
    assert "require must not be given for a sweep" in capsys.readouterr().err
    Path("a.toml").write_text('require = ["good"]\n')
    assert main(["compare", "--config", "a.toml"]) == 2
    assert "require is for the commands plan and run" in capsys.readouterr().err
