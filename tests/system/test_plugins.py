"""A user's own object of every kind, by ``package.module:object``, through every interface."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from evidence import State
from flmc.cli import main
from flmc.runs.records import how_to_resume
from flmc.runs.sweeps.points import key_of, run_point
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_engine, named_code
from flmc.settings.schema import merge, naming
from support import full_only, many_repetitions, repeated

SKELETONS = Path(__file__).parents[2] / "docs" / "skeletons"
OWN: dict[str, dict[str, Any]] = {
    "link": {"link": "my_link:Cauchy"},
    "scheme": {"scheme": "my_scheme:Quaternary"},
    "fading": {"fading": "my_fading:Nakagami"},
    "scheduling": {"scheduling": "my_scheduler:StrongestDevices"},
    "noise_law": {"noise_law": "my_noise:Bursts", "privacy": "off"},
    "update": {"update": "my_update:KineticLangevin"},
    "model": {"model": "my_model:model", "clip": 15.0, "link": "sigmoid:0.2"},
    "engine": {"engine": "my_engine:OneByOneEngine"},
}
"""Settings that name the skeleton of each kind."""
SIZES = {"devices": 6, "samples": 60, "dim": 2}
FEW = {"rounds": 40, "burn_in": 10, "chains": 2, "seed": 3}


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A directory, the current one, with a copy of every skeleton under the names above."""
    for path in SKELETONS.glob("*.py"):
        shutil.copy(path, tmp_path / f"my_{path.name}")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    yield tmp_path
    for name in [each for each in sys.modules if each.startswith("my_")]:
        del sys.modules[name]


def settings_of(kind: str) -> dict[str, Any]:
    return {**({} if kind == "model" else SIZES), **FEW, **OWN[kind]}


def options(settings: dict[str, Any]) -> list[str]:
    pairs = [(f"--{name.replace('_', '-')}", str(value)) for name, value in settings.items()]
    return [text for pair in pairs for text in pair]


def test_every_setting_that_names_code_is_here() -> None:
    assert naming().keys() == OWN.keys()


@pytest.mark.parametrize("kind", OWN)
def test_an_own_object_plans_runs_and_resumes(
    kind: str,
    place: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    given = settings_of(kind)
    assert main(["plan", "--json", *options(given)]) == 0
    planned = json.loads(capsys.readouterr().out)
    assert main(["run", "--json", *options(given), "--out", "whole"]) == 0
    whole = json.loads(capsys.readouterr().out)
    assert whole["plan"]["digest"] == planned["digest"]
    # Interrupted after the first checkpoint, as by a signal.
    problem, asked = assemble(merge({}, given)), []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 4

    with pytest.raises(flmc.errors.Interrupted, match=r"flmc resume cut --code-from \.$"):
        flmc.run(
            problem.plan(),
            problem.model,
            3,
            2,
            engine=make_engine(problem.settings),
            out="cut",
            settings=given,
            checkpoint_rounds=7,
            stop=stop,
        )
    assert json.loads(Path("cut/progress.json").read_text())["round"] < 40
    # A record may come from a stranger: its code is imported only if the user says so, and from
    # the directory that she names.
    Path("elsewhere").mkdir()
    (text,) = named_code(given).values()
    module = text.partition(":")[0]
    (place / f"{module}.py").rename(place / "elsewhere" / f"{module}.py")
    del sys.modules[module]
    assert main(["resume", "cut"]) == 2
    assert f"{kind} {text!r}" in " ".join(capsys.readouterr().err.split())
    assert main(["resume", "cut", "--trust-code"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "is not searched: name its place, --code-from DIR" in said
    assert how_to_resume(Path("cut")) == "flmc resume cut --code-from DIR"  # not found here
    with monkeypatch.context() as context:
        context.syspath_prepend(str(place / "elsewhere"))
        assert how_to_resume(Path("cut")) == "flmc resume cut --code-from elsewhere"
    assert module not in sys.modules
    assert main(["resume", "cut", "--code-from", "elsewhere", "--json"]) == 0
    resumed = json.loads(capsys.readouterr().out)
    assert resumed["metrics"] == whole["metrics"]
    first, second = (flmc.load(each) for each in ("whole", "cut"))
    assert first.draws is not None
    assert second.draws is not None
    np.testing.assert_array_equal(first.draws, second.draws)
    assert main(["cite", "cut"]) == 0
    cited = " ".join(capsys.readouterr().out.split())
    # Everything that is not flmc's own is in the paragraph about methods, by its class; models and
    # engines by the names that they have.
    names = {"model": repr(text), "engine": "one-by-one"}
    assert names.get(kind, f"{module}:") in cited
    ledger = ["ledger", "cut", "--json", "--code-from", "elsewhere"]
    known = planned["unknown_privacy"] is None
    assert main(ledger) == (0 if known else 2), capsys.readouterr().err


@pytest.mark.parametrize("kind", OWN)
def test_an_own_object_in_a_sweep_is_that_of_a_single_run(kind: str, place: Path) -> None:
    given = settings_of(kind)
    base = {name: value for name, value in given.items() if name not in ("seed", *OWN[kind])}
    vary = {"seed": [3, 4], **{name: [value] for name, value in OWN[kind].items()}}
    swept = flmc.sweep(base, vary=vary, out="sweep", workers=1)
    assert swept.num_failed == 0, swept.rows
    for row in swept.rows:
        single = run_point({**given, "seed": row["seed"]})
        for name in single.keys() & row.keys() - {*vary}:
            assert row[name] == single[name], name
    # An edit is another point.
    path = place / f"{next(iter(named_code(given).values())).partition(':')[0]}.py"
    path.write_text(path.read_text() + "\nEDITED = True\n")
    flmc.sweep(base, vary=vary, out="sweep", workers=1)
    assert len(list(Path("sweep/points").glob("*.json"))) == 4


@pytest.mark.parametrize("kind", ["link", "scheme", "fading", "scheduling", "update", "noise_law"])
def test_an_own_object_is_audited_or_refused(
    kind: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = {**settings_of(kind), "rounds": 12, "burn_in": 4}
    audited = main(["audit", *options(given), "--trials", "2000", "--audit-rounds", "2", "--json"])
    out = capsys.readouterr()
    if kind == "noise_law":  # it has no privacy statement that an attack could refute
        assert audited == 2
        assert "noise_law is Bursts" in " ".join(out.err.split())
    else:
        assert audited == 0, out.err


@full_only
def test_own_objects_are_curves_of_a_study(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    kinds = [kind for kind in OWN if kind not in ("model", "engine")]
    command = ["reproduce", "--experiments", "2", "--figure", "2", "--out", "out", "--json"]
    for kind in kinds:
        lines = [f"{name} = {json.dumps(value)}" for name, value in OWN[kind].items()]
        (place / f"{kind}.toml").write_text("\n".join(lines) + "\n")
        command += ["--add-curve", f"{kind}={kind}.toml"]
    assert main([*command, "--engine", "my_engine:OneByOneEngine"]) == 2
    assert "the one-by-one engine does not apply" in " ".join(capsys.readouterr().err.split())
    assert main([*command, "--force"]) == 0, capsys.readouterr().err
    capsys.readouterr()
    text = (place / "out" / "points.csv").read_text().splitlines()
    names = text[0].split(",")
    rows = [dict(zip(names, line.split(","), strict=True)) for line in text[1:]]
    at = {row["curve"]: row["mse"] for row in rows if float(row["x"]) == 25.0}
    # None has the numbers of another, or of the paper's digital uplink, which all would share if an
    # own object were left out of what decides a curve's chains.
    mine = [at[kind] for kind in kinds]
    assert len({*mine, at["digital"]}) == len(kinds) + 1


@full_only
def test_dask_workers_import_own_objects(place: Path) -> None:
    kinds = ("scheme", "update", "noise_law")
    vary = {name: value for kind in kinds for name, value in OWN[kind].items()}
    lines = [f"{name} = {json.dumps(value)}" for name, value in {**SIZES, **FEW, **vary}.items()]
    table = "[sweep]\nsnr_db = [20.0, 25.0]\n"
    (place / "sweep.toml").write_text("\n".join([*lines, table]))
    done = {}
    for name, more in (("one", ["--workers", "1"]), ("dask", ["--scheduler", "local"])):
        # A process of its own, as Dask starts others.
        command = [sys.executable, "-m", "flmc", "sweep", "--config", "sweep.toml"]
        subprocess.run([*command, "--out", name, *more], cwd=place, check=True, timeout=300)
        done[name] = (place / name / "table.csv").read_text()
    assert done["one"] == done["dask"]


HELPER = """
import my_helper  # a module that another imports counts like itself
"""
TRACE = "trace.csv"


def edit(path: Path, rng: random.Random) -> None:
    """Change a file by one of the smallest edits: a digit, a blank, a line, its end."""
    text = path.read_text()
    places = [i for i, each in enumerate(text) if each.isdigit()]
    lines = text.splitlines(keepends=True)
    edits = [text + "\n", text.replace(" ", "  ", 1) if " " in text else text + " "]
    edits.append("".join([*lines, lines[-1]]))
    if places:
        at = rng.choice(places)
        edits.append(f"{text[:at]}{(int(text[at]) + 1) % 10}{text[at + 1 :]}")
    path.write_text(rng.choice([each for each in edits if each != text]))


@many_repetitions
def test_edits_are_noticed(place: Path, evidence: State) -> None:
    """Edits of own code, of a module that it imports, of data and of a channel's trace, between a
    start and a resumption or a second sweep: none goes unnoticed."""
    rng = random.Random(5)
    (place / "my_helper.py").write_text("LEVEL = 3\n")
    (place / "my_update.py").write_text((place / "my_update.py").read_text() + HELPER)
    rows = [f"{i % 7},{i % 5},{(3 * i) % 11 + 0.5}" for i in range(24)]
    (place / "data.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    gains = np.full((FEW["rounds"], 6), 0.04)
    np.savetxt(TRACE, gains, delimiter=",", fmt="%.3f")
    sources: list[tuple[dict[str, Any], str]] = [
        (settings_of(kind), f"{next(iter(named_code(OWN[kind]).values())).partition(':')[0]}.py")
        for kind in OWN
    ]
    sources.append((settings_of("update"), "my_helper.py"))
    data = {"data_file": "data.csv", "target": "y", "deal": "iid", "devices": 6, **FEW}
    sources.append((data, "data.csv"))
    sources.append(({**SIZES, **FEW, "fading": f"trace:{TRACE}"}, TRACE))
    wanted = repeated(100, 22, 11)
    for number in range(wanted):
        given, name = sources[number % len(sources)]
        path, record = place / name, place / f"record-{number}"
        problem = assemble(merge({}, given))
        plan, engine = problem.plan(), make_engine(problem.settings)
        with pytest.raises(flmc.errors.Interrupted):
            flmc.run(
                plan,
                problem.model,
                engine=engine,
                out=record,
                settings=given,
                checkpoint_rounds=5,
                stop=lambda: True,
            )
        points = [merge({}, given)]
        before = [key_of(each) for each in points]
        text = path.read_text()
        edit(path, rng)
        own = engine if not isinstance(engine, str) else None
        with pytest.raises(flmc.errors.InvalidSetting, match="was changed since the run"):
            flmc.resume(record, plan, problem.model, engine=own)
        assert before != [key_of(each) for each in points], name
        path.write_text(text)
        assert before == [key_of(each) for each in points], name
        assert flmc.resume(record, plan, problem.model, engine=own).num_chains == 1
    evidence(
        "edits", "edits of own code or data between a start and what goes on", wanted, "all noticed"
    )


UNKNOWN = """
import numpy as np
import flmc

class Signs(flmc.ServerUpdate):
    def next(self, state, estimate, step_size, normal):
        return flmc.ServerState(state.theta - step_size * np.sign(estimate), state.memory)

class Loud(flmc.NoiseLaw):
    def draw(self, rng, shape):
        return np.sqrt(3.0) * rng.uniform(-1.0, 1.0, shape)
"""


def test_what_is_not_known_is_refused_where_it_would_be_claimed(
    place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (place / "my_unknown.py").write_text(UNKNOWN)

    def said(*more: str) -> tuple[int, str]:
        few = {**SIZES, **FEW, "privacy": "off"}
        code = main(["run", "--json", *options(few), *more])
        out = capsys.readouterr()
        return code, out.out if code == 0 else " ".join(out.err.split())

    signs = ["--update", "my_unknown:Signs"]
    code, text = said(*signs, "--step-size", "1e-3")
    assert code == 2
    assert "the temperature that the server's update Signs samples" in text
    code, text = said(*signs, "--langevin", "off")
    assert code == 2
    assert "step_size must be given" in text
    code, text = said(*signs, "--scheme", "ideal", "--step-size", "1e-3", "--langevin", "off")
    assert code == 2
    assert "use another scheme" in text
    code, text = said(*signs, "--step-size", "1e-3", "--langevin", "off", "--engine", "numba")
    assert code == 2
    assert "it takes Langevin's steps" in text
    code, text = said(*signs, "--step-size", "1e-3", "--langevin", "off")
    assert code == 0
    ran = json.loads(text)["plan"]
    assert ran["temperature"] is None
    assert ran["verdict"]["lights"]["sampling"]["state"] == "unknown"
    loud = ["--noise-law", "my_unknown:Loud", "--scheme", "analog"]
    assert said(*loud, "--privacy", "tight")[0] == 2
    code, text = said(*loud)
    assert code == 0
    assert json.loads(text)["plan"]["privacy"] is None
    # Bits are random by themselves, and this is proven whatever the noise is.
    bits = ["--noise-law", "my_unknown:Loud", "--privacy", "tight"]
    assert said(*bits, "--epsilon", "0.1")[0] == 2
    code, text = said(*bits, "--epsilon", "50")
    assert code == 0
    assert json.loads(text)["plan"]["privacy"]["stated_by"] is None
    code, text = said("--scheme", "my_noise:Bursts")
    assert code == 2
    assert "must name a subclass of flmc.Uplink" in text
