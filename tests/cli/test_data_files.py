"""Data from files on the command line."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.cli import main
from support import full_only

pytest.importorskip("jax", reason="needs the extra jax")


@pytest.fixture
def hospitals(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name, count in (("north", 40), ("south", 25)):
        x = rng.standard_normal((count, 2))
        cured = rng.random(count) < 1 / (1 + np.exp(-x.sum(axis=1)))
        lines = [
            f"{a:.4f},{b:.4f},{'yes' if c else 'no'}" for (a, b), c in zip(x, cured, strict=True)
        ]
        Path(f"{name}.csv").write_text("\n".join(["a,b,cured", *lines]))
    return tmp_path


RUN = ["--model", "logistic", "--target", "cured", "--scheme", "analog", "--privacy", "off"]
SHORT = ["--rounds", "120", "--burn-in", "40", "--chains", "4"]


def test_one_file_a_device(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--data-file", "*.csv", *RUN, *SHORT]
    assert main([*asked, "--out", "record", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["plan"]["num_devices"], document["plan"]["dim"]) == (2, 3)
    assert document["plan"]["data_dependent"]
    # A record goes on from the same files.
    assert main(["resume", "record", "--json"]) == 0
    again = json.loads(capsys.readouterr().out)
    assert again["plan"]["digest"] == document["plan"]["digest"]


def test_dealt_anew(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["plan", "--data-file", "north.csv", *RUN, "--deal", "label", "--devices", "5"]
    assert main([*asked, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["num_devices"] == 5


@full_only
def test_figures_of_a_run(
    hospitals: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib", reason="needs the extra plot")
    asked = ["run", "--data-file", "*.csv", *RUN, *SHORT]
    assert main([*asked, "--plots", "figures"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    names = ["trace", "rank", "autocorrelation", "pair", "reliability"]
    listed = ", ".join(f"{name}.png" for name in names)
    assert f"figures: {listed} in figures, of all entries" in said
    assert sorted(path.stem for path in Path("figures").iterdir()) == sorted(names)
    # Into the record itself, and with JSON alone on standard output.
    assert main([*asked, "--out", "record", "--plots", "record", "--json"]) == 0
    told = capsys.readouterr()
    assert json.loads(told.out)["num_chains"] == 4
    assert "figures:" in told.err
    assert Path("record/pair.png").exists()
    assert main(["resume", "record", "--json"]) == 0
    capsys.readouterr()
    # What cannot be drawn is told before anything is simulated.
    assert main([*asked, "--plots", "north.csv"]) == 2
    assert "--plots must be a directory, got the file" in capsys.readouterr().err
    assert main([*asked, "--out", "new", "--plots", "new/figures"]) == 2
    assert "must be the record's directory 'new' itself or one outside" in capsys.readouterr().err
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    assert main([*asked, "--plots", "more"]) == 2
    told = capsys.readouterr()
    assert told.err == "flmc: pictures need matplotlib: pip install 'flmc[plot]'\n"
    assert not told.out
    assert not Path("more").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--model", "logistic"], "needs data: give data_file"),
        (["--target", "cured"], "are for data_file"),
        (["--data-file", "north.csv"], "target must name the column"),
        (["--data-file", "none.csv", *RUN], "cannot read"),
        (["--data-file", "north.csv", *RUN, "--devices", "3"], "unless deal says"),
        (["--data-file", "north.csv", *RUN, "--dim", "3"], "come from data_file"),
        (["--data-file", "north.csv", *RUN, "--deal", "odd"], "a split must be one of iid"),
        (["--data-file", "north.csv", "--target", "a", "--model", "x.y:z"], "is for the models"),
        (["--data-file", "north.csv", "--target", "a", "--model", "poisson"], "holds words"),
    ],
)
def test_what_is_refused(
    words: list[str], message: str, hospitals: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", *words]) == 2
    # Messages name options as they are written on the command line.
    said = " ".join(capsys.readouterr().err.split()).replace("--", "").replace("-", "_")
    assert message.replace("-", "_") in said


def test_linear_regression_of_a_file(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("numbers.csv").write_text("x,z,y\n1,2,3\n2,1,4\n0,1,1\n3,3,7\n1,0,2\n")
    asked = [
        "run",
        "--data-file",
        "numbers.csv",
        "--target",
        "y",
        "--deal",
        "iid",
        "--devices",
        "2",
    ]
    assert main([*asked, *SHORT, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["metrics"] is not None


@full_only
def test_baselines_of_a_file(hospitals: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["compare", "--data-file", "*.csv", *RUN, *SHORT, "--hold-out", "0.25"]
    assert main([*asked, "--baselines", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["num_test"] == 10 + 6
    assert document["plan"]["num_devices"] == 2
    assert set(document["methods"][0]["scores"]) == {"accuracy", "log_loss", "brier", "ece"}
    assert main([*asked, "--baselines"]) == 0
    assert "no privacy statement" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "give --baselines"),
        (["--beside", "scheme analog"], "takes SETTING=VALUE"),
        (["--beside", "devices=3"], "must not change devices"),
        (["--beside", "shceme=analog"], "scheme"),
        (["--baselines", "--only", "SGD"], "a method must be one of flmc, FedSGD"),
        (["--baselines", "--hold-out", "1.5"], "between 0 and 1, got 1.5"),
        (["--baselines", "--experiments", "3", "--hold-out", "0.2"], "one data set"),
        (["--baselines", "--data", "sufficient"], "one data set"),
        (["--baselines", "--samples", "20", "--hold-out", "0.2"], "at least 1 held-out example"),
    ],
)
def test_what_compare_refuses(
    words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", *words]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


WARDS = """ward,age,note,cured
eyes,60,a,no
heart,,b,yes
bones,50,c,yes
eyes,40,d,no
heart,30,e,yes
"""
PUBLIC = [
    *("--features", "age,ward", "--categories", "ward=eyes:heart:bones", "--classes", "no,yes"),
    *("--standardise", "age=50:10", "--missing", "drop"),
]
IN_A_FILE = """
features = ["age", "ward"]
classes = ["no", "yes"]
missing = "drop"

[categories]
ward = ["eyes", "heart", "bones"]

[standardise]
age = [50, 10]
"""


@pytest.fixture
def wards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("north.csv").write_text(WARDS)
    Path("south.csv").write_text(WARDS.replace(",50,", ",?,"))
    return tmp_path


def test_what_is_public_of_columns(wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "--data-file", "*.csv", *RUN, "--rounds", "40", "--burn-in", "10"]
    assert main([*plan, *PUBLIC, "--json", "--write", "written.toml"]) == 0
    by_options = json.loads(capsys.readouterr().out)
    assert (by_options["num_devices"], by_options["dim"]) == (2, 4)
    (note,) = [each for each in by_options["findings"] if each["code"] == "missing-dropped"]
    assert (
        "3 of 10 examples have missing values and were left out (2 of south, 1 of north)"
        in note["message"]
    )
    Path("public.toml").write_text(IN_A_FILE)
    for file, more in (("public.toml", plan[1:]), ("written.toml", [])):
        assert main(["plan", "--config", file, *more, "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["digest"] == by_options["digest"]
    # The same data as in Python.
    data = flmc.data.read(
        "*.csv",
        target="cured",
        features=["age", "ward"],
        categories={"ward": ["eyes", "heart", "bones"]},
        standardise={"age": (50.0, 10.0)},
        missing="drop",
    )
    assert data.dropped == (1, 2)
    model = flmc.models.regressions.logistic(data)
    limits = flmc.Limits(privacy="off")
    planned = flmc.plan(model, flmc.Analog(), limits, num_rounds=40, num_burn_in=10)
    assert planned.step_size == pytest.approx(by_options["step_size"], rel=1e-12)


def test_a_record_keeps_what_is_public(wards: Path, capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["run", "--data-file", "*.csv", *RUN, *SHORT, *PUBLIC, "--out", "record", "--json"]
    assert main(asked) == 0
    first = json.loads(capsys.readouterr().out)
    assert main(["resume", "record", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["plan"]["digest"] == first["plan"]["digest"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            [],
            "column 'age' of north must be a number, and is missing in line 3: leave such examples",
        ),
        (["--missing", "mean"], "missing must be one of 'refuse', 'drop', got 'mean'"),
        (["--categories", "ward"], "categories must be as 'ward=eyes:heart:bones,smoker=no:yes'"),
        (
            ["--categories", "ward=eyes:heart", "--missing", "drop"],
            "'bones' in line 4, which is not",
        ),
        (["--standardise", "age=50"], "standardise must be 'data', or as 'age=60:10,dose=0:2'"),
        (["--standardise", "age=50:0"], "the scale of 'age' must be positive, got 0"),
        (["--standardise", "mean"], "standardise must be 'data', or as 'age=60:10,dose=0:2'"),
        (["--features", "age,size"], "north has no column 'size'; it has ward, age, note, cured"),
        (["--classes", "no", "--missing", "drop"], "must have two classes at least"),
    ],
)
def test_what_is_refused_of_columns(
    options: list[str], message: str, wards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    features = [] if "--features" in options else ["--features", "age,ward"]
    categories = [] if "--categories" in options else ["--categories", "ward=eyes:heart:bones"]
    assert main(["plan", "--data-file", "*.csv", *RUN, *features, *categories, *options]) == 2
    assert message in " ".join(capsys.readouterr().err.split())


def test_columns_are_those_of_a_file(capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--missing", "drop"), ("--features", "a"), ("--categories", "a=b:c")):
        assert main(["plan", option, value]) == 2
        assert "data_file" in capsys.readouterr().err
