"""Provenance of records and sweeps, and citations made of it."""

from __future__ import annotations

import json
import platform
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.runs import provenance as module
from flmc.runs.files.durable_files import write_json
from flmc.runs.provenance import digest_of, provenance

SMALL: dict[str, Any] = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "chains": 2}
SMALL |= {"engine": "numpy"}
OPTIONS = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
RECORDS = Path(__file__).parents[1] / "records"


def test_what_computes_is_known() -> None:
    known = provenance()
    assert known["flmc"] == flmc.__version__
    assert known["libraries"]["numpy"] == np.__version__
    assert known["python"].endswith(platform.python_version())
    assert known["processor"]
    assert known["features"] == sorted(known["features"])
    assert re.fullmatch("[0-9a-f]{64}", known["sources"])
    assert json.loads(json.dumps(known)) == known
    # Machine code of the numba engine that is read from a file needs no import of Numba.
    of_engine = """if True:
        import sys
        from flmc.runs.provenance import provenance
        names = provenance("numba")["libraries"], provenance("numpy")["libraries"]
        print(*names, "numba" in sys.modules, sep="; ")
    """
    with_engine, without, imported = subprocess.run(
        [sys.executable, "-c", of_engine], capture_output=True, text=True, check=True
    ).stdout.split("; ")
    assert "'numba': '" in with_engine
    assert "'llvmlite': '" in with_engine
    assert "'numba': '" not in without
    assert imported.strip() == "False"
    code = "import numba; from flmc.runs.provenance import provenance; print(provenance())"
    with_numba = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert "'numba': '" in with_numba


def test_records_and_points_name_the_libraries_of_their_engine(tmp_path: Path) -> None:
    # The first process compiles, unless another did, and the second reads the machine code.
    settings = {**SMALL, "engine": "numba"}
    for name in "ab":
        code = f"""if True:
            import flmc
            model = flmc.LinearGaussian(flmc.data.draw_linear(0, num_samples=40, num_devices=4))
            plan = flmc.plan(model, flmc.Digital(), num_rounds=20, num_burn_in=10)
            flmc.run(plan, model, chains=8, engine="numba", out={str(tmp_path / f"r{name}")!r})
            done = flmc.sweep({settings!r}, vary={{"snr_db": [20.0]}}, workers=1)
            print(done.provenance)
        """
        said = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True
        ).stdout
        assert "'numba': '" in said
        libraries = flmc.load(tmp_path / f"r{name}").asked["provenance"]["libraries"]
        assert {"numba", "llvmlite", "numpy"} <= set(libraries)


def test_the_commit_is_that_of_a_checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    package = tmp_path / "src" / "flmc"
    package.mkdir(parents=True)
    (tmp_path / "CITATION.cff").write_text("title")
    monkeypatch.setattr(module, "_PACKAGE", package)

    def commit() -> str | None:
        module._commit.cache_clear()
        return module._commit()

    def git(*words: str, where: Path = tmp_path) -> str:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        done = subprocess.run(
            ["git", *identity, *words], cwd=where, check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    try:
        assert commit() is None
        git("init", "-q")
        assert commit() is None  # nothing was committed
        git("add", "."), git("commit", "-qm", "one")
        assert commit() == git("rev-parse", "HEAD")
        git("pack-refs", "--all")
        assert commit() == git("rev-parse", "HEAD")
        git("commit", "-qm", "two", "--allow-empty")
        assert commit() == git("rev-parse", "HEAD")
        git("checkout", "-q", "--detach", "HEAD~1")
        assert commit() == git("rev-parse", "HEAD")
        tree = tmp_path / "tree"
        git("worktree", "add", "-q", "-b", "other", str(tree))
        git("commit", "-qm", "three", "--allow-empty", where=tree)
        (tree / "src" / "flmc").mkdir(parents=True)
        monkeypatch.setattr(module, "_PACKAGE", tree / "src" / "flmc")
        assert commit() == git("rev-parse", "HEAD", where=tree)
        # An installed package within a checkout of something else has none.
        monkeypatch.setattr(module, "_PACKAGE", tmp_path / "lib" / "site-packages" / "flmc")
        assert commit() is None
    finally:
        module._commit.cache_clear()


def test_a_record_says_what_made_it(tmp_path: Path) -> None:
    out = tmp_path / "out"
    link = ["--link", "auto", "--experiments", "1"]
    assert main(["run", *OPTIONS, *link, "--out", str(out)]) == 0
    asked = flmc.load(out).asked
    assert asked["provenance"]["sources"] == provenance()["sources"]
    resolved = asked["resolved"]
    # Defaults are written out, and what was chosen is there in place of auto.
    assert (resolved["snr_db"], resolved["seed"], resolved["chains"]) == (25.0, 0, 2)
    assert resolved["link"] != "auto"
    assert asked["settings"]["link"] == "auto"


def test_a_sweep_says_what_made_its_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    vary = {"snr_db": [0.0, 20.0]}
    done = flmc.sweep(SMALL, vary=vary, workers=1, out=tmp_path)
    (digest,) = done.provenance
    assert digest == digest_of(done.provenance[digest])
    stated = json.loads((tmp_path / "sweep.json").read_text())
    assert stated["provenance"] == done.provenance
    assert stated["resolved"]["clip"] == 30.0
    assert "snr_db" not in stated["resolved"]
    for path in (tmp_path / "points").iterdir():
        assert json.loads(path.read_text())["provenance"] == digest
    # Points that are kept keep theirs, beside that of points from another machine.
    elsewhere = {**provenance(), "processor": "another"}
    monkeypatch.setattr("flmc.runs.sweeps.workers.provenance", lambda engine: elsewhere)
    more = flmc.sweep(SMALL, vary={"snr_db": [0.0, 20.0, 30.0]}, workers=1, out=tmp_path)
    assert {each["processor"] for each in more.provenance.values()} == {
        provenance()["processor"],
        "another",
    }
    assert more.rows[:2] == done.rows
    assert "on another" in flmc.cite(tmp_path).methods
    # A file that is missing or damaged costs its facts, not the points.
    for path in (tmp_path / "provenance").iterdir():
        path.write_text("{")
    again = flmc.sweep(SMALL, vary={"snr_db": [0.0, 20.0, 30.0]}, workers=1, out=tmp_path)
    assert (again.rows, again.provenance) == (more.rows, {})


def test_citation_of_a_run(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    assert main(["run", *OPTIONS, "--scheme", "analog", "--out", str(out)]) == 0
    capsys.readouterr()
    assert main(["cite", str(out)]) == 0
    said = capsys.readouterr().out
    record = flmc.load(out)
    assert record.result is not None
    assert said.startswith("2 chains of 40 rounds, of which 20 were burn-in, were simulated")
    assert "on 1 synthetic data set(s) of 80 examples with 5 features" in said
    assert "by the analog scheme (Analog, clip 30.0" in said
    ratio = record.result["metrics"]["variance_ratio"]["mean"]
    assert f"variance ratio of the draws was {ratio:.4g}" in said
    # An epsilon is rounded up, and what it is worth is said.
    epsilon = float(re.search(r"One chain of the run is \(([\d.]+), 1e-05\)", said)[1])  # type: ignore[index]
    assert epsilon >= record.result["coverage"]["epsilon"]
    assert "is no statement for a deployment" in said
    assert record.asked["plan_digest"] in said
    assert f"numpy {np.__version__}" in said
    assert "@software{flmc," in said
    assert said.count("{") == said.count("}")


def test_citations_of_old_damaged_and_missing_records(tmp_path: Path) -> None:
    """Nothing is said that a record does not say."""
    old = RECORDS / "schema-3" / "finished-numpy"
    said = flmc.cite(old).methods
    assert "commit not recorded" in said
    assert "SHA-256 of its sources" not in said
    with pytest.raises(InvalidSetting, match="holds no record"):
        flmc.cite(tmp_path)
    planned = {"schema_version": 1, "settings": {"dim": 3}, "sweep": {"snr_db": [1, 2]}}
    write_json(tmp_path / "sweep.json", {**planned, "plan_only": True})
    early = str(flmc.cite(tmp_path))
    assert early.startswith("2 points of a grid were planned: snr_db over 1, 2.")
    assert "Which versions and processors computed it is not recorded" in early
    assert "version =" not in early


def test_a_run_from_python_says_that_its_data_are_not_recorded(tmp_path: Path) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=6, num_burn_in=2)
    flmc.run(plan, model, engine="numpy", out=tmp_path)
    said = flmc.cite(tmp_path).methods
    assert "Model and data were given in Python and are not recorded" in said
    assert "There is no privacy statement" in said
    assert "differentially private" not in said


def _examples(path: Path) -> None:
    """A CSV file of 60 examples of 6 devices, with 3 features."""
    draws = np.random.default_rng(0)
    lines = ["a,b,c,y,site"]
    for row in range(60):
        x = draws.standard_normal(3)
        numbers = ",".join(f"{value:.4f}" for value in (*x, x.sum()))
        lines.append(f"{numbers},{row % 6}")
    path.write_text("\n".join(lines) + "\n")


def test_resolved_settings_are_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    _examples(Path("x.csv"))
    of_file = ["--data-file", "x.csv", "--target", "y", "--device-column", "site"]
    common = ["--rounds", "40", "--burn-in", "auto", "--chains", "2", "--answer", "chain"]
    assert main(["run", *of_file, *common, "--scheme", "analog", "--out", "file"]) == 0
    asked = flmc.load("file").asked
    facts, plan = asked["resolved"], asked["plan"]
    # Sizes are those of the data, and not the defaults (20 devices, 5 entries, 1200 examples).
    sizes = {name: facts.get(name) for name in ("devices", "samples", "dim", "experiments")}
    assert sizes == {"devices": 6, "samples": 60, "dim": plan["dim"], "experiments": 1}
    assert plan["dim"] == 3
    # What has no effect is not there: how synthetic data are drawn, and the link of another scheme.
    assert not {"data", "link", "slope_parameter", "example_shrink"} & facts.keys()
    # Every automatic choice is written out.
    assert facts["engine"] == asked["engine"]
    for name, key in (("step_size", "step_size"), ("burn_in", "num_burn_in")):
        assert facts[name] == plan[key]
    assert "auto" not in facts.values()
    methods = flmc.cite("file").methods
    assert "60 examples on 6 devices, 3 entries" in methods
    # A plan from a file decides its settings; their defaults are no facts.
    assert main(["plan", "--snr-db", "12", "--devices", "4", "--out", "plan.json"]) == 0
    assert main(["run", "--plan", "plan.json", "--chains", "2", "--out", "planned"]) == 0
    of_plan = flmc.load("planned").asked["resolved"]
    assert "snr_db" not in of_plan
    assert (of_plan["devices"], of_plan["samples"]) == (4, 1200)


def test_resolved_settings_of_a_sweep_are_facts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    _examples(Path("x.csv"))
    of_file: dict[str, Any] = {"data_file": "x.csv", "target": "y", "device_column": "site"}
    of_file |= {"link": "probit", "rounds": 40, "burn_in": "auto"}
    vary = {"scheme": ["analog", "digital"]}
    done = flmc.sweep(of_file, vary=vary, plan_only=True, out="file")
    facts = json.loads(Path("file/sweep.json").read_text())["resolved"]
    # The link is that of the points that have one, and the first has none.
    assert (facts["devices"], facts["samples"], facts["dim"]) == (6, 60, 3)
    assert facts["link"] == "probit"
    assert "data" not in facts
    assert "60 examples on 6 devices, 3 entries" in flmc.cite("file").methods
    (used,) = {row["burn_in_used"] for row in done.rows}
    assert 0 < used < 40
    assert "What is auto was chosen for each point" in flmc.cite("file").methods


def test_sets_by_name_have_digests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from flmc.data import table_files
    from flmc.runs.fingerprints import Fingerprints

    settings = {"data_file": "sklearn:diabetes"}
    before = Fingerprints().of_settings(settings)
    assert re.fullmatch("[0-9a-f]{64}", before["sklearn:diabetes"])
    real = table_files.read_bundled
    table = real("diabetes")
    other = {name: values.copy() for name, values in table.columns.items()}
    next(iter(other.values()))[7] += 1e-9  # another version of the set

    monkeypatch.setattr(table_files, "read_bundled", lambda name: replace(table, columns=other))
    table_files.digest_of_bundled.cache_clear()
    try:
        assert Fingerprints().of_settings(settings) != before
        monkeypatch.setattr(table_files, "read_bundled", real)
    finally:
        table_files.digest_of_bundled.cache_clear()
    assert Fingerprints().of_settings({"data_file": "sklearn:none"}) == {"sklearn:none": "missing"}


OWN_SCHEMES = """
import dataclasses
import flmc
from flmc.privacy.gaussian import GaussianEvent

@dataclasses.dataclass(frozen=True)
class Stated(flmc.Digital):
    def privacy_event(self, transmissions, neighbouring="device"):
        return GaussianEvent(2.0, self.noise_power, tuple(transmissions))

@dataclasses.dataclass(frozen=True)
class Plain(flmc.Digital):
    pass
"""


def test_a_citation_keeps_the_reservation_of_the_statement(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_schemes_cited.py").write_text(OWN_SCHEMES)
    words = "as stated by own_schemes_cited:Stated, which flmc has not proven"
    for name in ("Stated", "Plain"):
        given = [*OPTIONS, "--scheme", f"own_schemes_cited:{name}", "--answer", "chain"]
        assert main(["run", *given, "--out", name]) == 0
        said = " ".join(capsys.readouterr().out.split())
        cited = flmc.cite(name).methods
        assert (words in said) == (words in cited) == (name == "Stated")
        # Records of earlier versions do not say who states it.
        path = Path(name, "result.json")
        result = json.loads(path.read_text())
        del result["coverage"]["stated_by"], result["sha256"]
        write_json(path, result)
        assert f"own uplink own_schemes_cited:{name}, which may have" in flmc.cite(name).methods


def test_a_sweep_keeps_the_reservations_of_its_statements(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its table, its rows, its picture's file and its citation, as a single run does."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_schemes_swept.py").write_text(OWN_SCHEMES)
    vary = {"scheme": ["digital", "own_schemes_swept:Stated"]}
    for plan_only in (False, True):
        done = flmc.sweep(SMALL, vary=vary, workers=1, plan_only=plan_only, out="out")
        stated = [row["privacy_stated_by"] for row in done.rows]
        assert stated == [None, "own_schemes_swept:Stated"]
        first, second = done.reservations
        assert first == (
            "epsilon of 1 of 2 points is as stated by own_schemes_swept:Stated, which flmc has not"
            " proven"
        )
        assert second.startswith("2 of 2 plans with an epsilon were computed from the devices'")
        for text in (first, second):
            assert text in str(done)
            assert text[1:] in flmc.cite("out").methods
    # Files of earlier versions do not say it.
    held = json.loads(Path("out", "sweep.json").read_text())
    del held["privacy"]
    held.pop("sha256", None)
    write_json(Path("out", "sweep.json"), held)
    assert "Who states the privacy of the points" in flmc.cite("out").methods


def test_a_sweep_without_reservations_has_none() -> None:
    public = {"public_smoothness": 130.0, "public_convexity": 40.0}
    done = flmc.sweep({**SMALL, **public}, vary={"snr_db": [0, 20]}, plan_only=True)
    assert [row["epsilon_round"] is None for row in done.rows] == [False, False]
    assert done.reservations == []
