"""Fingerprints: no row of a sweep and no resumed run of other settings, data or code."""

from __future__ import annotations

import importlib.util
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from evidence import State
from flmc.cli import main
from flmc.runs.files.durable_files import write_json
from flmc.runs.fingerprints import Fingerprints
from flmc.runs.sweeps.points import run_point
from flmc.settings.schema import NOTHING, Settings, names_of
from support import full_only, many_repetitions, repeated

SMALL: dict[str, Any] = {"devices": 4, "samples": 40, "rounds": 12, "burn_in": 4, "chains": 2}
SMALL |= {"engine": "numpy"}
OTHER: dict[str, Any] = {
    "scheme": "analog", "snr_db": 3.0, "epsilon": 2.0, "delta": 0.02, "run_delta": 1e-4,
    "scope": "run", "privacy": "tail", "neighbouring": "example", "relation": "zero_out",
    "example_clip": 2.0, "example_norm": 2.0, "example_shrink": 0.9, "batch_share": 0.5,
    "allocation": "adaptive",
    "langevin": "off",
    "aim": "answer", "draw_at": "positions",
    "step_size": 1e-4, "effective_step_size": 2e-5, "link": "linear", "slope_parameter": 0.1,
    "clip": 10.0, "clipping": "norm",
    "modulation": "complex", "average_snr_db": 3.0, "csi_error": 0.1, "devices": 5, "dim": 3,
    "samples": 60, "rounds": 14, "burn_in": 3, "burn_in_step_factor": 2.0, "start": "zero",
    "fading": "rayleigh:0.04", "scheduling": "random:2", "noise_power": 2.0, "gain": 0.1,
    "public_smoothness": 90.0, "public_convexity": 2.0, "model": "logistic", "data_file": "b.csv",
    "target": "z", "device_column": "who", "deal": "label", "standardise": "data",
    "features": "z", "classes": "0,1", "categories": "x=a:b", "missing": "drop",
    "precondition": "prior", "pilot_rounds": 5, "choose": "clip", "thin": 2, "experiments": 2,
    "noise_law": "gaussian", "update": "momentum:0.5", "chains": 3, "seed": 1,
    "data": "sufficient", "engine": "numba",
}  # fmt: skip
"""Another value of every setting that a sweep takes."""


def write_data(path: Path, seed: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [f"{a:.6f},{b:.6f},{i % 3},{a + b:.4f}" for i, (a, b) in enumerate(rng.random((24, 2)))]
    path.write_text("x,z,who,y\n" + "\n".join(rows) + "\n")


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    write_data(tmp_path / "a.csv", 1)
    write_data(tmp_path / "b.csv", 2)
    return tmp_path


def test_every_setting_has_another_value() -> None:
    assert {*OTHER} | names_of(NOTHING) | {"require"} == {*Settings.model_fields}


def row_of(settings: dict[str, Any], vary: dict[str, Any], out: Path) -> dict[str, Any]:
    done = flmc.sweep(settings, vary={name: [value] for name, value in vary.items()}, out=out)
    return {name: value for name, value in done.rows[0].items() if name not in vary}


ON_FILE = {"data_file": "a.csv", "target": "y", "deal": "iid", "devices": 4}


def alone(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Columns of a row, from the answer of `flmc run` with these settings."""
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items()]
    code = main(["run", "--json", *(text for pair in pairs for text in pair)])
    answered = capsys.readouterr()
    if code:
        return {"error": " ".join(answered.err.split()).removeprefix("error: ")}
    ran = json.loads(answered.out)
    columns = {name: ran["plan"][name] for name in ("temperature", "binding", "rounds_needed")}
    columns |= {"plan_digest": ran["plan"]["digest"], "error": None}
    columns |= {name: ran[name] for name in ("clipped_fraction", "posterior_trace")}
    for name, estimate in (ran["metrics"] or {}).items():
        columns |= {name: estimate["mean"], f"{name}_se": estimate["se"]}
    for name, spread in (ran["one_chain"] or {}).items():
        columns[f"one_chain_{name}"] = None if spread is None else spread["mean"]
    return columns


@many_repetitions
@pytest.mark.parametrize("base", [pytest.param("synthetic", marks=full_only), "file"])
def test_every_setting_counts_in_a_sweep(
    base: str, files: Path, capsys: pytest.CaptureFixture[str], evidence: State
) -> None:
    """Each setting changed alone and in random pairs: a row is that of a single run, to the last
    digit. One directory for all sweeps: a key that left out a setting would find an old row."""
    few = {name: value for name, value in SMALL.items() if base != "file" or name != "samples"}
    given = {**few, **ON_FILE} if base == "file" else few
    chosen, compared, pairs = random.Random(4), 0, repeated(100, 12, 4)
    singly = [{}, *({name: OTHER[name]} for name in OTHER)]

    def changes() -> Iterator[dict[str, Any]]:
        yield from singly
        # Pairs that contradict each other are compared too, and do not count.
        while compared < pairs:
            yield {name: OTHER[name] for name in chosen.sample(sorted(OTHER), 2)}

    for number, change in enumerate(changes()):
        rest = {name: value for name, value in given.items() if name not in change}
        # A sweep needs a setting that varies; the seed, unless it is among the changes. Where the
        # scheme varies, a sweep leaves out what the scheme does not have, and a run refuses it.
        vary = {"seed": 0, **{n: v for n, v in change.items() if n != "scheme"}}
        fixed = {**rest, **{n: v for n, v in change.items() if n == "scheme"}}
        single = alone({**fixed, **vary}, capsys)
        row = row_of(fixed, vary, files / "out")
        if single["error"] is None:
            wanted = {name: value for name, value in single.items() if name not in vary}
            assert {name: row[name] for name in wanted} == wanted, change
            compared += number >= len(singly)
        else:
            assert row["error"] is not None, change
            assert " ".join(row["error"].split()) in single["error"], change
    evidence(
        "settings",
        f"on {base} data, settings changed in random pairs, a sweep's row against a single run",
        compared,
        "every row equal to the last digit",
    )


def test_data_settings_give_rows_of_their_own(files: Path) -> None:
    few = {"rounds": 12, "burn_in": 4, "chains": 2, "engine": "numpy", "target": "y"}
    for vary in (
        {"data_file": ["a.csv", "b.csv"]},
        {"deal": ["iid", "label", "size:0.5"]},
        {"precondition": ["none", "prior"]},
    ):
        base = {**few, **{n: v for n, v in ON_FILE.items() if n not in vary}}
        for plan_only in (False, True):
            done = flmc.sweep(base, vary=vary, workers=1, plan_only=plan_only)
            assert done.num_failed == 0, done.rows
            assert done.num_distinct == len(done.rows)
        whole = flmc.sweep(base, vary=vary, workers=1)
        assert len({row["posterior_trace"] for row in whole.rows}) > 1 or "data_file" not in vary


def test_replaced_data_are_noticed_by_sweeps(files: Path) -> None:
    base = {**ON_FILE, "target": "y", "rounds": 12, "burn_in": 4, "chains": 2, "engine": "numpy"}
    old = row_of(base, {"seed": 0}, files / "out")
    for seed in range(3, 8):
        write_data(files / "a.csv", seed)
        new = row_of(base, {"seed": 0}, files / "out")
        assert new == {n: v for n, v in run_point({**base, "seed": 0}).items() if n != "seed"}
        assert new != old
        old = new


_numbers = count()
CODE = """
import numpy as np
import flmc
from {helper} import LEVEL

class Own(flmc.Fading):
    def draw(self, rng, rounds, num_devices, dim):
        return np.full((len(rounds), num_devices, dim), LEVEL)

class OwnScheme(flmc.Digital):
    pass

fading = Own()
"""


@full_only
@pytest.mark.parametrize("edited", ["module", "helper"])
def test_edited_code_is_noticed_by_sweeps_and_resumed_runs(edited: str, files: Path) -> None:
    """Each command is a process of its own, as an edited module is imported anew only there."""
    module, helper = (f"{kind}_{next(_numbers)}" for kind in ("mine", "helper"))
    paths = {"module": files / f"{module}.py", "helper": files / f"{helper}.py"}
    paths["module"].write_text(CODE.format(helper=helper))
    paths["helper"].write_text("LEVEL = 0.04\n")
    script = f"""
import sys, flmc, {module}
model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
uplink = {module}.OwnScheme(fading={module}.fading)
plan = flmc.plan(model, uplink, num_rounds=20, num_burn_in=4)
if sys.argv[1] == "run":
    try:
        flmc.run(plan, model, engine="numpy", out="record", stop=lambda: True)
    except flmc.errors.Interrupted:
        pass
else:
    try:
        flmc.resume("record", plan, model)
    except flmc.errors.InvalidSetting as error:
        print(error)
    else:
        print("resumed")
few = {{"devices": 4, "samples": 40, "rounds": 12, "burn_in": 4, "chains": 2, "engine": "numpy"}}
few["fading"] = "{module}:fading"
flmc.sweep(few, vary={{"seed": [0]}}, out="sweep", workers=1)
print("points", len(list(__import__("pathlib").Path("sweep/points").glob("*.json"))))
"""

    def start(what: str) -> str:
        command = [sys.executable, "-c", script, what]
        return subprocess.run(command, cwd=files, capture_output=True, text=True, check=True).stdout

    assert start("run") == "points 1\n"
    kept = paths[edited].read_text()
    paths[edited].write_text(kept + "\nEDITED = True\n")
    said = start("resume")
    assert "was changed since the run in 'record' began" in said
    assert "points 2" in said
    paths[edited].write_text(kept)
    said = start("resume")
    assert "resumed" in said
    assert "points 2" in said


SCRIPT = """
import sys
import numpy as np
import flmc
import {own}
FRICTION = 0.26
SCALES = np.array([1.0, 2.0])
UNUSED = 1

class Options:
    power = 3

options = Options()
options.more = 4

def damp(memory):
    return (1 - FRICTION) * memory

class Base(flmc.ServerUpdate):
    def shrink(self, memory):
        return damp(memory) * options.power

class Kinetic(Base):
    num_slots = 1
    step_factor = 1 / float(SCALES[0])

    def next(self, state, estimate, step_size, normal):
        unused = {own}.LEVEL
        v = self.shrink(state.memory[..., 0, :]) - step_size * estimate
        return flmc.ServerState(state.theta + v, v[..., None, :])

if __name__ == "__main__" and len(sys.argv) > 1:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    limits = flmc.Limits(privacy="off")
    plan = flmc.plan(
        model, flmc.Analog(), limits, num_rounds=20, num_burn_in=4, update=Kinetic(), step_size=1e-4
    )
    if sys.argv[1] == "run":
        flmc.run(plan, model, engine="numpy", out="record", stop=lambda: True)
    else:
        flmc.resume("record", plan, model)
"""


EDITS = {
    "a constant": ("0.26", "0.5", True),
    "an array": ("2.0]", "3.0]", True),
    "a function": ("return (1", "return (2", True),
    "a class of an object": ("power = 3", "power = 5", True),
    "a base class": ("* options.power", "/ options.power", True),
    "the class": ("state.theta + v", "state.theta - v", True),
    "a constant that it does not use": ("UNUSED = 1", "UNUSED = 2", False),
    "a variable of the script, named as one of a method": ("UNUSED = 1", "unused = 2", False),
    "the call": ('flmc.resume("record", plan, model)', "pass", False),
    "nothing": ("UNUSED", "UNUSED", False),
}


@pytest.mark.parametrize("edit", EDITS)
def test_what_a_class_of_a_script_names_counts(
    edit: str, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The class alone is not enough: what it computes depends on constants and functions too."""
    old, new, noticed = EDITS[edit]
    own = f"level_{next(_numbers)}"
    (files / f"{own}.py").write_text("LEVEL = 1\n")
    monkeypatch.syspath_prepend(files)

    def digests(text: str) -> dict[str, str]:
        path = files / f"script_{next(_numbers)}.py"
        path.write_text(text)
        spec = importlib.util.spec_from_file_location("__main__", path)
        assert spec is not None
        assert spec.loader is not None
        script = importlib.util.module_from_spec(spec)
        monkeypatch.setitem(sys.modules, "__main__", script)
        monkeypatch.setattr(sys, "argv", [str(path)])
        spec.loader.exec_module(script)
        return Fingerprints().of_objects(script.Kinetic())

    text = SCRIPT.format(own=own)
    assert text.count(old) >= 1
    first, second = digests(text), digests(text.replace(old, new))
    assert own in first
    assert (first != second) == noticed
    assert "__main__.UNUSED" not in first


def test_an_edited_constant_of_a_script_is_refused_by_resume(files: Path) -> None:
    (files / "level.py").write_text("LEVEL = 1\n")

    def start(what: str, text: str) -> str:
        (files / "script.py").write_text(text)
        command = [sys.executable, "script.py", what]
        return subprocess.run(command, cwd=files, capture_output=True, text=True).stderr

    text = SCRIPT.format(own="level")
    assert "Interrupted" in start("run", text)
    said = start("resume", text.replace("0.26", "0.5"))
    assert "'__main__.FRICTION' was changed since the run in 'record' began" in said
    assert start("resume", text) == ""


def test_an_object_without_a_statement_that_makes_it_is_refused(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = files / "script.py"
    path.write_text(
        "import flmc\nglobals()['hidden'] = object()\n"
        "class Own(flmc.Fading):\n    def draw(self, rng, *sizes):\n        return hidden\n"
    )
    spec = importlib.util.spec_from_file_location("__main__", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "__main__", script)
    spec.loader.exec_module(script)
    with pytest.raises(flmc.errors.InvalidSetting, match="uses 'hidden', of type object"):
        Fingerprints().of_objects(script.Own())


def test_replaced_data_are_noticed_by_resume(files: Path) -> None:
    from flmc.settings.assembly import assemble
    from flmc.settings.schema import merge

    given = {**ON_FILE, "rounds": 200, "burn_in": 20, "engine": "numpy"}

    def problem() -> Any:
        return assemble(merge({}, given))

    first = problem()
    plan = first.plan()
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            plan, first.model, engine="numpy", out=files / "r", settings=given, stop=lambda: True
        )
    text = (files / "a.csv").read_text()
    # A white space changes no number, and no gradient would show it; a digest of contents does.
    (files / "a.csv").write_text(text.replace(",", ", ", 1))
    with pytest.raises(flmc.errors.InvalidSetting, match=r"'a\.csv' was changed since the run"):
        flmc.resume(files / "r", plan, first.model)
    # Another number changes the plan too, and still the file is named, as a new process would.
    write_data(files / "a.csv", 7)
    other = problem()
    assert other.plan().digest != plan.digest
    with pytest.raises(flmc.errors.InvalidSetting, match=r"'a\.csv' was changed since the run"):
        flmc.resume(files / "r", other.plan(), other.model)
    (files / "a.csv").write_text(text)
    shorter = flmc.plan(first.model, plan.uplink, num_rounds=150, num_burn_in=20)
    with pytest.raises(flmc.errors.InvalidSetting, match=r"another plan .* from other settings"):
        flmc.resume(files / "r", shorter, first.model)
    flmc.resume(files / "r", plan, first.model)


def test_an_old_record_with_own_classes_is_refused(files: Path) -> None:
    """Before there were digests of contents a record had none; of flmc's own classes it goes on."""

    class OwnScheme(flmc.Digital):
        pass

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    rounds: dict[str, Any] = {"num_rounds": 20, "num_burn_in": 4}
    ours, own = (flmc.plan(model, each, **rounds) for each in (flmc.Digital(), OwnScheme()))
    for name, plan in (("ours", ours), ("own", own)):
        with pytest.raises(flmc.errors.Interrupted):
            flmc.run(plan, model, engine="numpy", out=files / name, stop=lambda: True)
        asked = json.loads((files / name / "run.json").read_text())
        del asked["contents"], asked["sha256"]
        write_json(files / name / "run.json", asked)
    assert flmc.resume(files / "ours", ours, model).num_chains == 1
    with pytest.raises(flmc.errors.InvalidSetting, match="has no digests of code"):
        flmc.resume(files / "own", own, model)
