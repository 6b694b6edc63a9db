"""Points of a sweep: computed once where they are the same, planned only, called from Python."""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.cli import main
from flmc.runs.files.durable_files import write_json
from flmc.runs.sweeps import points, workers
from flmc.runs.sweeps.grid import read_grid
from flmc.runs.sweeps.points import given_in, key_of, plan_point, run_point
from flmc.settings.assembly import assemble
from flmc.settings.construction import make_model, make_uplink
from flmc.settings.schema import Settings, merge
from flmc.views.sweep_figure import draw_sweep_file
from support import full, full_only

SMALL = {"devices": 4, "samples": 80, "rounds": 40, "burn_in": 20, "engine": "numpy"}

SAME: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "a default that is written out": ({}, {"clip": 30.0, "start": "prior"}),
    "as many chains as by default": ({"experiments": 50}, {"experiments": 50, "chains": 4}),
    "a parameter of the link": (
        {"slope_parameter": 0.1},
        {"link": "sigmoid:0.1"},
    ),
    "a default parameter": ({}, {"link": "sigmoid:0.05"}),
    "a path gain as a number": ({"fading": 0.1}, {"fading": "constant:0.1"}),
    "SNR of an ideal uplink": (
        {"scheme": "ideal", "snr_db": 3.0},
        {"scheme": "ideal", "snr_db": 30.0},
    ),
}
OTHERS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "seed": ({}, {"seed": 1}),
    "chains": ({}, {"chains": 3}),
    "engine": ({}, {"engine": "auto"}),
    "SNR": ({}, {"snr_db": 3.0}),
    "epsilon": ({}, {"epsilon": 4.0}),
    "clipped examples of an ideal uplink": (
        {"scheme": "ideal"},
        {"scheme": "ideal", "example_clip": 3.0},
    ),
    "two objects of a user's own": ({"link": "mine:one"}, {"link": "mine:two"}),
    "a point that cannot be": ({"scheme": "analog"}, {"scheme": "analog", "link": "linear"}),
}


@pytest.mark.parametrize("name", SAME)
def test_points_that_are_the_same_have_one_key_and_one_row(name: str) -> None:
    one, two = (merge({}, {**SMALL, **each}) for each in SAME[name])
    assert key_of(one) == key_of(two)
    # Not shared: each row is computed by itself.
    assert run_point(given_in(one)) == run_point(given_in(two))


@pytest.mark.parametrize("name", OTHERS)
def test_other_points_have_other_keys(name: str) -> None:
    one, two = (merge({}, {**SMALL, **each}) for each in OTHERS[name])
    assert key_of(one) != key_of(two)


def test_the_same_points_of_a_grid_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    computed: list[dict[str, Any]] = []

    def counting(given: dict[str, Any]) -> dict[str, Any]:
        computed.append(given)
        return run_point(given)

    monkeypatch.setattr(workers, "run_point", counting)
    vary: dict[str, list[Any]] = {"snr_db": [10, 20, 20], "scheme": ["digital", "ideal"]}
    done = flmc.sweep(SMALL, vary=vary, workers=1)
    assert len(computed) == done.num_distinct == 3
    assert [row["snr_db"] for row in done.rows] == [10, 10, 20, 20, 20, 20]
    assert done.rows[2] == done.rows[4]
    assert "3 of 6 points differ" in str(done)


def test_rows_say_what_their_numbers_are() -> None:
    row = run_point({**SMALL, "chains": 3, "seed": 2})
    problem = merge({}, {**SMALL, "chains": 3, "seed": 2})
    assert row["error"] is None
    assert (row["chains"], row["engine_used"], row["shift_from"]) == (3, "numpy", "chains")
    assert (row["delta_round"], row["delta_run"]) == (problem.delta, problem.run_delta)
    for name in ("posterior_trace", "wasserstein2_floor"):
        assert row[name] > 0
    longer = plan_point({**SMALL, "rounds": 900, "burn_in": 800})  # whose chains arrive
    assert longer["predicted_variance_ratio"] > 0
    assert longer["predicted_mean_shift"] >= 0
    assert row["predicted_variance_ratio"] is None
    # Three chains of 20 rounds are few: no distance is given, and the row says why.
    assert row["independent_draws"] < 20
    assert row["wasserstein2_squared"] is None
    assert "or more chains a data set" in row["notes"]
    planned = plan_point({**SMALL, "seed": 2})
    of_run = ("epsilon_run", "delta_run", "price")
    assert {name: row[name] for name in planned if name not in of_run} == {
        name: value for name, value in planned.items() if name not in of_run
    }
    assert planned["epsilon_run"] is None


def test_plan_only_simulates_nothing_and_draws_data_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: Any, **__: Any) -> None:
        raise AssertionError("a point was run")

    built: list[int] = []

    def counting(settings: Any) -> Any:
        built.append(settings.seed)
        return make_model(settings)

    monkeypatch.setattr(points, "run", refuse)
    monkeypatch.setattr(points, "make_model", counting)
    monkeypatch.setattr(points, "_latest", {})
    # The seed varies fastest, and still each of its two data sets is drawn once.
    done = flmc.sweep(
        {**SMALL, "chains": 7}, vary={"snr_db": [0, 10, 20], "seed": [1, 2]}, plan_only=True
    )
    assert done.num_failed == 0
    assert sorted(built) == [1, 2]
    for row in done.rows:
        settings = merge({}, {**SMALL, "snr_db": row["snr_db"], "seed": row["seed"]})
        plan = assemble(settings).plan()
        assert row["plan_digest"] == plan.digest
        assert row["limit_power"] == plan.gain_limits.power
        assert row["margin_power_db"] == plan.margins_db["power"]
        assert row["findings"] == "; ".join(each.code for each in plan.findings)
        assert "variance_ratio" not in row
    assert done.rows[0]["headline"] == "burn-in"


def test_a_budget_of_the_run_is_stated_by_plans_too() -> None:
    row = plan_point({**SMALL, "scope": "run", "epsilon": 20.0})
    assert 0 < row["epsilon_run"] <= 20
    assert row["delta_run"] == 1e-5


def test_no_prediction_of_chains_that_do_not_arrive() -> None:
    """Predictions are of chains at rest, so they are left out where a chain never comes to rest."""
    base = {"scheme": "analog", "scope": "run", "rounds": 300, "burn_in": 100}
    frozen, moving = flmc.sweep(base, vary={"epsilon": [0.1, 1000]}, plan_only=True).rows
    for name in ("predicted_variance_ratio", "predicted_mean_shift", "price"):
        assert frozen[name] is None
        assert moving[name] is not None
    assert frozen["effective_draws"] == 0.0
    assert frozen["headline"] == "burn-in"


@full_only
def test_the_burn_in_of_a_warning_is_a_column_of_its_row() -> None:
    """The rule for any start and chains that are followed give two numbers, with a name each."""
    pytest.importorskip("sklearn.datasets")
    base: dict[str, Any] = {
        "model": "logistic",
        "data_file": "sklearn:breast_cancer",
        "target": "y",
    }
    base |= {"deal": "iid", "devices": 5, "standardise": "data", "scheme": "analog"}
    base |= {"rounds": 200, "burn_in": 20, "precondition": "none"}
    done = flmc.sweep(base, vary={"snr_db": [-10, 10]}, plan_only=True)
    for row in done.rows:
        assert row["error"] is None
        assert "burn-in" in row["findings"]
        assert row["rounds_to_arrive"] != row["rounds_needed"]
        assert f"about {row['rounds_to_arrive']} are needed" in row["warnings"]
    assert "what 2 of 2 points are judged and warned by" in str(done)


def test_plans_do_not_pass_for_runs(tmp_path: Path) -> None:
    vary = {"snr_db": [0, 20]}
    planned = flmc.sweep(SMALL, vary=vary, out=tmp_path, plan_only=True)
    assert len(list((tmp_path / "points").iterdir())) == 2
    assert json.loads((tmp_path / "sweep.json").read_text())["plan_only"] is True
    done = flmc.sweep(SMALL, vary=vary, out=tmp_path, workers=1)
    assert len(list((tmp_path / "points").iterdir())) == 4
    assert done.rows[0]["variance_ratio"] > 0
    again = flmc.sweep(SMALL, vary=vary, out=tmp_path, plan_only=True)
    assert again.rows == planned.rows
    for path in [tmp_path / "sweep.json", *(tmp_path / "points").iterdir()]:
        assert json.loads(path.read_text())["schema_version"] == 1


def test_points_without_a_version_are_read_and_damaged_ones_computed_anew(tmp_path: Path) -> None:
    vary = {"snr_db": [20]}
    made = flmc.sweep(SMALL, vary=vary, out=tmp_path, plan_only=True).rows
    (path,) = (tmp_path / "points").iterdir()
    row = json.loads(path.read_text())
    del row["schema_version"], row["sha256"]
    write_json(path, {**row, "binding": "told"})
    assert flmc.sweep(SMALL, vary=vary, out=tmp_path, plan_only=True).rows[0]["binding"] == "told"
    # Without its digest, or with another number: not what was written.
    for changed in (row, {**json.loads(path.read_text()), "gain_used": 7.0}):
        path.write_text(json.dumps(changed))
        assert flmc.sweep(SMALL, vary=vary, out=tmp_path, plan_only=True).rows == made


def test_sweep_from_a_file_and_from_arrays(tmp_path: Path) -> None:
    path = tmp_path / "grid.toml"
    path.write_text("devices = 4\nsamples = 80\n[sweep]\nsnr_db = [1, 2]\nseed = [5]\n")
    from_file = flmc.sweep(path, plan_only=True)
    assert from_file.axes == {"snr_db": [1, 2], "seed": [5]}
    beaten = flmc.sweep(str(path), vary={"snr_db": np.linspace(3, 4, 2)}, plan_only=True)
    assert beaten.axes == {"snr_db": [3.0, 4.0], "seed": [5]}
    assert list(tmp_path.iterdir()) == [path]
    base = {"devices": 4, "samples": 80}
    ranges = flmc.sweep(base, vary={"seed": range(2), "clip": (20, np.float64(30))}, plan_only=True)
    assert ranges.axes == {"seed": [0, 1], "clip": [20, 30.0]}
    for settings, vary, message in (
        ({}, None, r"needs a table \[sweep\]"),
        ({}, {"snr": [1]}, "is it snr_db"),
        ({}, {"link": "linear"}, "must be a list"),
        ({}, [1], "vary must be a dict"),
        (7, {"seed": [1]}, "settings must be a mapping"),
        ({"seed": 1}, {"seed": [1]}, "must be given once"),
    ):
        with pytest.raises(InvalidSetting, match=message):
            flmc.sweep(settings, vary=vary, plan_only=True)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="workers must be"):
        flmc.sweep({}, vary={"seed": [1]}, workers=0)


def test_a_table_for_pandas(monkeypatch: pytest.MonkeyPatch) -> None:
    done = flmc.sweep({"devices": 4, "samples": 80}, vary={"seed": [1, 2]}, plan_only=True)
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtra, match="pip install pandas"):
        done.to_pandas()
    # Pandas itself is not among the test tools: what it is called with is looked at.
    fake = SimpleNamespace(DataFrame=lambda rows, columns: (rows, columns))
    monkeypatch.setitem(sys.modules, "pandas", fake)
    rows, columns = done.to_pandas()
    assert rows == done.rows
    assert set(columns) == set(rows[0])
    assert columns[0] == "seed"


def test_table_and_picture_say_what_is_not_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = {**SMALL, "experiments": 3, "chains": 1}
    done = flmc.sweep(base, vary={"snr_db": [0, 10, 20]}, workers=1)
    text = str(done)
    assert "3 of 3 points have notes" in text
    assert "the squared W2 distance is not given" in text
    assert "wasserstein2_squared" in text
    from matplotlib.figure import Figure

    said: list[str] = []
    title = Figure.suptitle

    def listening(figure: Figure, words: str, **kwargs: Any) -> Any:
        said.append(words)
        return title(figure, words, **kwargs)

    monkeypatch.setattr(Figure, "suptitle", listening)
    assert draw_sweep_file(done, tmp_path) is not None
    assert "squared W2 distance of 3 of 3 points not given" in said[0]
    assert "from one chain a data set" in said[0]


def test_command_for_plans(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = tmp_path / "grid.toml"
    config.write_text("devices = 4\nsamples = 80\n[sweep]\nsnr_db = [0, 30]\n")
    arguments = ["sweep", "--config", str(config)]
    assert main(arguments) == 2
    assert "needs --out" in capsys.readouterr().err
    assert main([*arguments, "--plan-only", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["schema_version"], document["plan_only"], document["out"]) == (1, True, None)
    assert [row["binding"] for row in document["rows"]] == ["power", "langevin"]
    assert main([*arguments, "--plan-only"]) == 0
    assert "predicted_variance_ratio" in capsys.readouterr().out
    assert main([*arguments, "--plan-only", "--out", str(tmp_path / "out"), "--workers", "2"]) == 0
    assert (tmp_path / "out" / "sweep.png").stat().st_size > 5_000


def test_a_link_is_left_out_for_schemes_without_one() -> None:
    document = {
        "link": "sigmoid:0.03",
        "csi_error": 0.1,
        "fading": "rayleigh",
        "sweep": {"scheme": ["digital", "analog", "ideal"], "snr_db": [10.0, 20.0]},
    }
    every = read_grid(document, {}).points
    assert [point.link for point in every] == 2 * ["sigmoid:0.03"] + 4 * ["sigmoid"]
    assert [point.csi_error for point in every] == 4 * [0.1] + 2 * [0.0]
    for point in every:
        make_uplink(point)
    # One scheme that has no link, and a link: still refused.
    (alone,) = read_grid({"scheme": "analog", "link": "linear", "sweep": {"seed": [1]}}, {}).points
    with pytest.raises(InvalidSetting, match="link and slope_parameter are for the"):
        make_uplink(alone)


VALUES: dict[str, tuple[Any, Any]] = {
    "scheme": ("digital", "analog"),
    "snr_db": (25.0, 40.0),
    "epsilon": (5.0, 0.5),
    "delta": (0.01, 1e-4),
    "run_delta": (1e-5, 1e-3),
    "scope": ("round", "run"),
    "privacy": ("tight", "off"),
    "neighbouring": ("device", "example"),
    "relation": ("replace", "zero_out"),
    "example_clip": (1.0, 3.0),
    "example_norm": (1.0, 3.0),
    "example_shrink": (0.5, 1.0),
    "batch_share": (0.5, 1.0),
    "allocation": ("static", "adaptive"),
    "langevin": ("calibrated", "paper"),
    "aim": ("chain", "answer"),
    "draw_at": ("auto", "positions"),
    "noise_law": (None, "gaussian"),
    "update": ("langevin", "momentum"),
    "step_size": ("auto", 0.002),
    "effective_step_size": (1e-3, 2e-3),
    "link": ("sigmoid", "linear"),
    "slope_parameter": (0.05, 0.1),
    "clip": (30.0, 10.0),
    "clipping": ("entry", "norm"),
    "modulation": ("real", "complex"),
    "average_snr_db": (5.0, 20.0),
    "csi_error": (0.0, 0.2),
    "devices": (4, 5),
    "dim": (2, 3),
    "samples": (80, 90),
    "rounds": (40, 50),
    "burn_in": (20, 10),
    "burn_in_step_factor": ("auto", 2.0),
    "start": ("prior", "zero"),
    "fading": (0.04, "rayleigh"),
    "scheduling": ("all", "random:2"),
    "noise_power": (1.0, 2.0),
    "gain": (0.01, 0.1),
    "public_smoothness": (100.0, 200.0),
    "public_convexity": (5.0, 9.0),
    "model": ("linear", "logistic"),
    "data_file": ("a.csv", "b.csv"),
    "target": ("y", "z"),
    "device_column": ("site", "other"),
    "deal": ("iid", "label"),
    "features": (["x"], ["x", "z"]),
    "classes": (["0", "1"], ["1", "0"]),
    "categories": ({"x": ["a", "b"]}, None),
    "standardise": ("data", None),
    "missing": ("refuse", "drop"),
    "precondition": ("none", "prior"),
    "pilot_rounds": (5, 10),
    "choose": ("rounds", "clip"),
    "thin": (1, 2),
    "experiments": (1, 2),
    "chains": (2, 3),
    "seed": (0, 1),
    "data": ("examples", "sufficient"),
    "engine": ("numpy", "numba"),
}
"""Two values of every setting that a sweep may vary."""
OF_FILES = {"rounds": 40, "burn_in": 20, "engine": "numpy", "chains": 2, "data_file": "a.csv"}
BASES = ({**SMALL, "chains": 2}, {**OF_FILES, "target": "y", "deal": "iid", "devices": 3})
"""Settings with synthetic data, and with those of a file."""


@pytest.fixture
def two_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Data files ``a.csv`` and ``b.csv`` with two targets and two columns of devices."""
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(1)
    for name in ("a", "b"):
        rows = [
            f"{x:.6f},{x + e:.6f},{e:.6f},{i % 3},{i % 2}"
            for i, (x, e) in enumerate(rng.standard_normal((40, 2)))
        ]
        Path(f"{name}.csv").write_text("\n".join(["x,y,z,site,other", *rows]) + "\n")


def assert_swept_as_run(base: dict[str, Any], vary: dict[str, list[Any]]) -> None:
    """Every row of a sweep is that of its settings alone, computed by themselves."""
    for row in flmc.sweep(base, vary=vary, workers=1).rows:
        changed = {name: row[name] for name in vary}
        # Without the settings that have their default, which some points would refuse.
        alone = run_point(given_in(merge({}, {**base, **changed})))
        assert {name: row[name] for name in alone if name not in vary} == {
            name: value for name, value in alone.items() if name not in vary
        }, changed


@full_only
@pytest.mark.parametrize("base", BASES, ids=["drawn", "file"])
@pytest.mark.usefixtures("two_files")
def test_a_sweep_over_any_setting_gives_the_rows_of_single_runs(base: dict[str, Any]) -> None:
    # A sweep refuses the others.
    refused = {"require", "checkpoint_rounds", "threads", "answer"}
    assert {*VALUES} == {*Settings.model_fields} - refused
    for name, values in VALUES.items():
        given = [value for value in values if value is not None]
        assert_swept_as_run({n: v for n, v in base.items() if n != name}, {name: given})


@pytest.mark.usefixtures("two_files")
def test_a_sweep_over_two_settings_gives_the_rows_of_single_runs() -> None:
    rng = random.Random(3)
    for _ in range(full(40, 4)):
        base = rng.choice(BASES)
        one, two = rng.sample(sorted(VALUES), 2)
        vary = {n: [v for v in VALUES[n] if v is not None] for n in (one, two)}
        assert_swept_as_run({n: v for n, v in base.items() if n not in vary}, vary)


@pytest.mark.usefixtures("two_files")
def test_points_of_edited_files_and_code_are_computed_anew() -> None:
    """A finished point is kept only while the data and the own code that it names are the same."""
    Path("own_links.py").write_text(
        "import flmc\ndef make():\n    return flmc.links.Sigmoid(0.1)\n"
    )
    base = {**SMALL, "chains": 2}
    asked: list[tuple[dict[str, Any], dict[str, list[Any]], str]] = [
        (BASES[1], {"seed": [1, 2]}, "a.csv"),
        (base, {"link": ["own_links:make"]}, "own_links.py"),
    ]
    for given, vary, name in asked:
        keys = [key_of(point) for point in read_grid({**given, "sweep": vary}, {}).points]
        again = [key_of(point) for point in read_grid({**given, "sweep": vary}, {}).points]
        assert keys == again
        for edit in ("0.5,0.5,0.5,1,1\n", "0.5,0.5,0.5,1,2\n"):
            path = Path(name)
            path.write_text(path.read_text() + (edit if name == "a.csv" else f"# {edit}"))
            edited = [key_of(point) for point in read_grid({**given, "sweep": vary}, {}).points]
            assert not {*keys} & {*edited}
            keys = edited
