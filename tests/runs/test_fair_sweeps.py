"""Sweeps that compare methods: made equal, paired by data set, judged without a posterior."""

from __future__ import annotations

import csv
import importlib.util
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.planning.fairness import QUANTITIES
from flmc.runs.sweeps.grid import read_grid, read_variation
from flmc.runs.sweeps.points import run_point
from flmc.runs.sweeps.table import DATA_SETS
from flmc.settings.assembly import assemble
from flmc.settings.schema import merge
from flmc.views import sweep_figure
from flmc.views.sweep_figure import draw_sweep_file
from support import few, full, full_only

SMALL: dict[str, Any] = {"devices": 4, "samples": 80, "dim": 3, "rounds": 60, "burn_in": 20}
SMALL |= {"engine": "numpy", "chains": 4, "experiments": full(12, 6)}
BOTH: dict[str, list[Any]] = {"snr_db": [5.0, 25.0], "scheme": ["digital", "analog"]}
COLUMNS = {
    "step": "effective_step_size",
    "privacy": "epsilon_run",
    "energy": "energy",
    "airtime": "channel_uses",
}


def as_settings(text: str | None) -> dict[str, str]:
    """The changed settings that a row names, such as ``epsilon = 3.2, scope = run``."""
    pairs = [pair.split(" = ") for pair in (text or "").split(", ") if pair]
    return dict(pairs)


@pytest.mark.parametrize("equal", QUANTITIES)
def test_methods_share_a_value_and_are_run_as_their_rows_say(equal: str) -> None:
    symbols: dict[str, list[Any]] = {"clip": [20.0], "modulation": ["real", "complex"]}
    vary: dict[str, list[Any]] = symbols if equal == "airtime" else BOTH
    alone = flmc.sweep(SMALL, vary=vary, workers=1)
    done = flmc.sweep(SMALL, vary=vary, workers=1, equal=equal)
    name, pick = COLUMNS[equal], max if equal == "airtime" else min
    for first in range(0, len(done.rows), 2):
        values = [alone.rows[first + place][name] for place in range(2)]
        for place in range(2):
            row = done.rows[first + place]
            assert row["error"] is None
            assert row["equal_to"] == pick(values)
            # Rounds are whole; other values are found to a thousandth.
            off = 1 if equal == "airtime" else 1e-3 * row["equal_to"]
            assert abs(row[name] - row["equal_to"]) <= off
            changed = as_settings(row["equal_by"])
            assert bool(changed) == (values[place] != pick(values))
            # The row is that of a single run with the settings that it names.
            varied = {setting: row[setting] for setting in vary}
            single = run_point({**SMALL, **varied, **changed})
            about_equality = {"findings", "findings_of_run"}
            if equal == "step" and changed:
                # The step came from plans that were made with the devices' data.
                assert row["data_dependent"]
                about_equality |= {"data_dependent", "plan_digest"}
            if equal == "privacy" and changed:
                # The single run keeps a budget of the run, for which nobody asked here.
                assert (single["verdict_privacy"], row["verdict_privacy"]) == ("good", "warning")
                about_equality |= {"verdict", "verdict_privacy", "headline", "warnings"}
                about_equality |= {"verdict_of_run"}
            for column in single.keys() - about_equality - varied.keys():
                assert row[column] == single[column], column
            assert "made-equal" in row["findings"]


@pytest.mark.parametrize(
    ("limits", "light"),
    [
        ({"epsilon": 5.0}, "warning"),  # a budget of single rounds
        ({"privacy": "off"}, "not asked"),
        ({"scope": "run", "epsilon": 3.0}, "good"),
    ],
)
def test_equal_methods_have_equal_verdicts_of_privacy(limits: dict[str, Any], light: str) -> None:
    done = flmc.sweep({**SMALL, **limits}, vary=BOTH, plan_only=True, equal="privacy")
    if "scope" not in limits:
        assert any(row["equal_by"] for row in done.rows)
    assert {row["verdict_privacy"] for row in done.rows} == {light}
    # The same in Python, where plans are compared.
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=0, num_samples=80, num_devices=4, num_experiments=2)
    )
    compared = flmc.compare(
        {"digital": flmc.Digital(), "analog": flmc.Analog()},
        model,
        flmc.Limits(**limits),
        equal="privacy",
        chains=2,
        num_rounds=40,
        num_burn_in=20,
    )
    verdicts = [each.plan.verdict for each in compared.methods]
    assert {verdict and verdict.light("privacy").state for verdict in verdicts} == {light}


def test_energies_that_are_bounds_are_called_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heads: list[str] = []

    def keep(figure: Any, path: Path) -> Path:
        heads.append(figure.get_suptitle())
        return path

    monkeypatch.setattr(sweep_figure, "write_png", keep)
    clips = {**BOTH, "clip": [20.0, 30.0]}
    for equal, vary, across in (
        ("energy", BOTH, None),
        ("step", BOTH, None),
        ("energy", clips, "clip"),
    ):
        done = flmc.sweep(SMALL, vary=vary, plan_only=True, equal=equal, across=across)
        sweep_figure.draw_sweep_file(done, tmp_path)
        said = str(done)
        mixed = equal == "energy" and across is None
        assert ("of scheme analog the energy is an upper bound" in said) == mixed
        assert ("of scheme analog an upper bound" in heads[-1]) == mixed
        for row in done.rows:
            assert row["energy_is_bound"] == (row["scheme"] == "analog")
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=0, num_samples=80, num_devices=4))
    uplinks = {"bits": flmc.Digital(), "values": flmc.Analog()}
    compared = flmc.compare(uplinks, model, equal="energy", chains=2, num_rounds=40, num_burn_in=20)
    assert "of values the energy is an upper bound" in str(compared)


def test_what_cannot_be_reached_is_a_row_with_its_reason() -> None:
    done = flmc.sweep(SMALL, vary={"scheme": ["digital", "ideal"]}, workers=1, equal="privacy")
    digital, ideal = done.rows
    assert digital["error"] is None
    assert "cannot be reached: the ideal uplink has no epsilon of the run" in ideal["error"]


def test_differences_are_paired_by_data_set(tmp_path: Path) -> None:
    done = flmc.sweep(SMALL, vary=BOTH, workers=1, out=tmp_path)
    count = SMALL["experiments"]
    assert done.methods == "scheme"
    for each in done.paired:
        rows = [r for r in done.rows if r["snr_db"] == each["snr_db"]]
        digital, analog = (np.array(row["data_sets"][each["metric"]]) for row in rows)
        assert (each["scheme"], each["against"], each["data_sets"]) == ("analog", "digital", count)
        difference = analog - digital
        assert each["mean"] == pytest.approx(difference.mean(), rel=1e-9)
        assert each["se"] == pytest.approx(difference.std(ddof=1) / math.sqrt(count), rel=1e-9)
        assert each["smaller"] == (difference < 0).sum()
    with (tmp_path / "paired.csv").open() as stream:
        assert len(list(csv.DictReader(stream))) == len(done.paired)
    assert len(done.data_sets) == 4 * count
    for row in done.rows:
        for name, each in row["data_sets"].items():
            assert row[name] == pytest.approx(np.mean(each), rel=1e-9)
            assert row[f"{name}_median"] == np.median(each)
    if importlib.util.find_spec("pyarrow") is not None:
        from pyarrow import parquet

        read = parquet.read_table(tmp_path / "data_sets.parquet").to_pylist()
        assert read == done.data_sets
    # Kept points have their data sets too, and a sweep of one data set leaves nothing behind.
    again = flmc.sweep(SMALL, vary=BOTH, workers=1, out=tmp_path)
    assert again.rows == done.rows
    flmc.sweep({**SMALL, "experiments": 1}, vary=BOTH, workers=1, out=tmp_path)
    assert not (tmp_path / "paired.csv").exists()
    assert not (tmp_path / "data_sets.parquet").exists()


def test_tables_are_named_where_pyarrow_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "pyarrow" else found(name)
    )
    arguments = ["--vary", "scheme=digital,analog", "--experiments", "2", "--chains", "2"]
    sizes = ["--rounds", "6", "--burn-in", "2", "--devices", "2", "--samples", "20"]
    out = tmp_path / "out"
    assert main(["sweep", *arguments, *sizes, "--workers", "1", "--out", str(out)]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "not written for want of pyarrow: table.parquet and data_sets.parquet" in said
    assert "pip install 'flmc[sweep]'" in said
    assert not list(out.glob("*.parquet"))


def test_heavy_tails_are_shown_as_medians(tmp_path: Path) -> None:
    """One entry of theta, four examples, one chain: squares of single numbers, of which some are
    large."""
    base = {**SMALL, "experiments": 20, "chains": 1, "samples": 4, "dim": 1, "devices": 2}
    base |= {"rounds": 6, "burn_in": 2}
    done = flmc.sweep(base, vary={"seed": [0, 1, 2], "snr_db": [5.0, 25.0]}, workers=1)
    heavy = [row for row in done.rows if row["heavy_tails"]]
    for row in done.rows:
        for name in ("mse", "variance_ratio", "one_chain_mean_error"):
            outside = not row[f"{name}_q25"] <= row[name] <= row[f"{name}_q75"]
            assert (name in (row["heavy_tails"] or "").split("; ")) == outside
    assert heavy  # else nothing is shown
    # A column holds means or medians, never both: one heavy point makes medians of all.
    shown = done.table()
    assert 0 < sum("variance_ratio" in (row["heavy_tails"] or "") for row in done.rows) < 6
    column = [cells[shown.header.index("variance_ratio")] for cells in shown.rows]
    assert [
        f"{row['variance_ratio_median']:.4g} [" in cell
        for row, cell in zip(done.rows, column, strict=True)
    ] == 6 * [True]
    assert "variance_ratio: medians [middle half of data sets] at all points" in str(shown)
    for row in done.rows:
        values = np.sort(row[DATA_SETS]["variance_ratio"])
        # Of 20 values the 6th and the 15th: P(Binomial(20, 1/2) <= 5) = 0.0207 is below 2.5 %.
        assert row["variance_ratio_median_low"] == values[5]
        assert row["variance_ratio_median_high"] == values[14]
    assert draw_sweep_file(done, tmp_path) is not None


def test_temperatures_of_single_runs_have_columns() -> None:
    """On a random channel a few fades decide the mean over drawn rounds; a usual run has less."""
    base = {**SMALL, "rounds": 400, "burn_in": 200}
    vary = {"fading": ["constant:0.04", "rician:0.04,5"]}
    same, fades = flmc.sweep(base, vary=vary, plan_only=True).rows
    assert same["temperature_of_runs"] is None
    plan = assemble(merge({}, {**base, "fading": "rician:0.04,5"})).plan()
    assert plan.over_runs is not None
    for end in ("", "_low", "_high"):
        stated = getattr(plan.over_runs, end.strip("_") or "median")
        assert fades[f"temperature_of_runs{end}"] == stated
    assert fades["temperature_of_runs"] < fades["temperature"] < fades["temperature_of_runs_high"]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"equal": "power"}, "equal must be one of step, privacy, energy, airtime"),
        ({"across": "clip"}, "across must be one of snr_db, seed, link"),
        ({"across": "seed"}, "must be a setting that leaves the data as they are"),
        ({"hold_out": 1.5}, "hold_out must lie strictly between 0 and 1"),
        ({"equal": "step", "sweep": {"snr_db": [1, 2]}}, "name it with across"),
    ],
)
def test_comparisons_that_make_no_sense_are_refused(document: dict[str, Any], message: str) -> None:
    vary = {"snr_db": [1.0, 2.0], "seed": [1, 2], "link": ["sigmoid", "linear"]}
    with pytest.raises(InvalidSetting, match=message):
        read_grid({"sweep": vary, **document}, {})


def test_methods_are_the_points_of_equal_other_settings() -> None:
    vary: dict[str, list[Any]] = {
        "snr_db": [1, 2, 3],
        "link": ["sigmoid", "linear"],
        "seed": [1, 2],
    }
    grid = read_grid({"sweep": vary}, {})
    assert grid.methods == "link"
    points = grid.points
    for index, point in enumerate(points):
        compared = [points[each] for each in grid.compared_with(index)]
        assert [each.link for each in compared] == vary["link"]
        assert {(each.snr_db, each.seed) for each in compared} == {(point.snr_db, point.seed)}
        assert point in compared
    numbers = read_grid({"sweep": {"snr_db": [1, 2], "csi_error": [0.0, 0.1]}}, {})
    assert numbers.methods is None
    named = read_grid({"across": "csi_error", "sweep": numbers.axes}, {})
    assert named.methods == "csi_error"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scheme=digital,analog", ("scheme", ["digital", "analog"])),
        ("snr-db=0:30:4", ("snr_db", {"start": 0, "stop": 30, "count": 4, "spacing": "linear"})),
        ("epsilon=1:9:3:log", ("epsilon", {"start": 1, "stop": 9, "count": 3, "spacing": "log"})),
        ("devices=4,8", ("devices", [4, 8])),
        ("link=sigmoid:0.05,probit", ("link", ["sigmoid:0.05", "probit"])),
        ("fading=0.04,rayleigh:0.04", ("fading", [0.04, "rayleigh:0.04"])),
        ("fading=rayleigh:0.04,0.1", ("fading", ["rayleigh:0.04", 0.1])),
        ("fading=rician:0.04,rayleigh", ("fading", ["rician:0.04", "rayleigh"])),
        ("fading=rician:0.04,2;0.1", ("fading", ["rician:0.04,2", 0.1])),
        ("fading=rician:0.04,2;", ("fading", ["rician:0.04,2"])),
        ("choose=clip;clip,link", ("choose", ["clip", "clip,link"])),
    ],
)
def test_variations_on_the_command_line(text: str, expected: tuple[str, Any]) -> None:
    assert read_variation(text) == expected


def test_a_variation_without_values_is_refused() -> None:
    with pytest.raises(InvalidSetting, match="--vary takes NAME=VALUE,VALUE"):
        read_variation("snr_db")


@pytest.mark.parametrize(
    "text",
    [
        "fading=rician:0.04,2",
        "fading=0.1,nakagami:0.04,2,0.2",
        "fading=trace:a,b.npz",
        "choose=clip,link",
    ],
)
def test_commas_that_may_be_within_a_value_are_refused(text: str) -> None:
    with pytest.raises(InvalidSetting, match=r"can be read in two ways.*put ';' between"):
        read_variation(text)


def test_one_command_and_one_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The researcher's figure in one command, and the same from a file."""
    monkeypatch.chdir(tmp_path)
    given = [f"--{name.replace('_', '-')}={value}" for name, value in SMALL.items()]
    vary = ["--vary", "snr_db=5,25", "--vary", "scheme=digital,analog"]
    command = ["sweep", *given, *vary, "--equal", "privacy", "--workers", "1"]
    assert main([*command, "--out", "one"]) == 0
    said = capsys.readouterr().out
    assert "equal privacy" in said
    assert f"on the same {SMALL['experiments']} data sets" in said
    assert Path("one/sweep.png").stat().st_size > 20_000
    lines = [f"{name} = {json.dumps(value)}" for name, value in SMALL.items()]
    Path("fair.toml").write_text(
        "\n".join([*lines, 'equal = "privacy"', "[sweep]", "snr_db = [5, 25]"])
        + '\nscheme = ["digital", "analog"]\n'
    )
    assert main(["sweep", "--config", "fair.toml", "--workers", "1", "--out", "two"]) == 0
    assert Path("two/table.csv").read_bytes() == Path("one/table.csv").read_bytes()
    capsys.readouterr()
    assert main(["plan", "--config", "fair.toml"]) == 2
    capsys.readouterr()
    Path("run.toml").write_text('equal = "privacy"\n')
    assert main(["run", "--config", "run.toml"]) == 2
    assert "equal is for the command sweep and compare" in capsys.readouterr().err


OWN = """
import flmc

def unknown():
    held = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=60, dim=2, num_devices=4))
    return flmc.Model.from_gradient(
        lambda theta: held.gradient(theta[None])[0], prior=flmc.Normal(), dim=2, num_devices=4,
        smoothness=held.smoothness, convexity=held.convexity,
    )
"""


@full_only
def test_models_without_a_posterior_have_columns_that_mean_something(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("without_posterior.py").write_text(OWN)
    base: dict[str, Any] = {
        "model": "without_posterior:unknown",
        "scheme": "analog",
        "engine": "numpy",
    }
    base |= {"rounds": 1500, "burn_in": 300}
    done = flmc.sweep(base, vary={"chains": [1, 8], "snr_db": [30.0, -20.0]}, workers=1)
    assert done.num_failed == 0
    for row in done.rows:
        result = flmc.load(_run_record(base, row, tmp_path)).result
        assert result is not None
        for name in ("r_hat", "ess_bulk", "ess_tail"):
            assert row[name] == result["diagnostics"][name]
        for name in ("stein_ratio", "stein_ratio_se", "mean_shift", "mean_shift_se"):
            assert row[name] == result["evidence"][name]
        assert row.get("variance_ratio") is None
        for name, value in row.items():
            assert not (isinstance(value, float) and not math.isfinite(value)), name
    # Eight chains at a good SNR mix and are right; at -20 dB they travel, and errors are not known.
    good = done.rows[2]
    assert good["r_hat"] < 1.05
    assert abs(good["stein_ratio"] - 1) < 5 * good["stein_ratio_se"] + 0.25
    # 0.25: the discretisation of the automatic step, at most.
    bad = done.rows[3]
    assert bad["r_hat"] > 1.2
    assert bad["stein_ratio_se"] is None
    assert "Stein's evidence" in bad["notes"]
    assert "r_hat" in str(done.table())


def _run_record(base: dict[str, Any], row: dict[str, Any], where: Path) -> Path:
    """A record of a run with the settings of a row."""
    out = where / f"{row['chains']}-{row['snr_db']}"
    settings = {**base, "chains": row["chains"], "snr_db": row["snr_db"]}
    options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
    assert main(["run", *options, "--out", str(out)]) == 0
    return out


def test_held_out_examples_are_scored_as_compare_does(capsys: pytest.CaptureFixture[str]) -> None:
    base = {**SMALL, "experiments": 1, "hold_out": 0.25}
    done = flmc.sweep(base, vary={"seed": [1, 2]}, workers=1)
    for row in done.rows:
        assert row["held_out"] == 20
        settings = {**SMALL, "experiments": 1, "seed": row["seed"]}
        options = [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]
        capsys.readouterr()
        beside = ["--beside", "scheme=analog", "--hold-out", "0.25", "--json"]
        assert main(["compare", *options, *beside]) == 0
        scores = json.loads(capsys.readouterr().out)["methods"][0]["scores"]
        for name in ("log_loss", "squared_error"):
            assert row[name] == scores[name]["mean"]
            assert row[f"{name}_se"] == scores[name]["se"]
    none = flmc.sweep({**SMALL, "experiments": 1}, vary={"seed": [1]}, workers=1)
    assert "log_loss" not in none.rows[0]


@pytest.mark.parametrize(
    ("model", "words"),
    few(
        [
            ("logistic", ["0", "1"]),
            ("logistic", ["-1", "1"]),
            ("logistic", ["no", "yes"]),
            ("softmax", ["0", "1", "2"]),
            ("softmax", ["a", "b", "c"]),
        ],
        4,
    ),
)
def test_classes_may_be_numbers_or_words(
    model: str, words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    draws = np.random.default_rng(3)
    lines = ["a,b,y,site"]
    for row in range(60):
        x = draws.standard_normal(2)
        line = f"{x[0]:.3f},{x[1]:.3f},{words[row % len(words)]},{row % 3}"
        lines.append(line)
    Path("x.csv").write_text("\n".join(lines) + "\n")
    settings: dict[str, Any] = {"model": model, "data_file": "x.csv", "target": "y"}
    settings |= {"device_column": "site", "rounds": 30, "burn_in": 10, "chains": 2}
    settings |= {"privacy": "off", "engine": "numpy"}
    done = flmc.sweep(settings, vary={"snr_db": [10.0, 20.0]}, workers=1, hold_out=0.2)
    assert [row["error"] for row in done.rows] == [None, None]
    count = done.rows[0]["held_out"]
    assert count == 12
    worst = max(np.sqrt(row["accuracy"] * (1 - row["accuracy"]) / count) for row in done.rows)
    assert f"a standard error of {worst:.2g} of accuracy" in str(done)


def test_scores_that_cannot_be_made_are_refused_before_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("jax")
    monkeypatch.chdir(tmp_path)
    lines = ["a,y,site", *(f"{row % 7 - 3},{row % 5},{row % 3}" for row in range(60))]
    Path("x.csv").write_text("\n".join(lines) + "\n")
    ran: list[object] = []
    monkeypatch.setattr("flmc.runs.sweeps.points.run", lambda *given, **more: ran.append(given))
    settings = {"model": "poisson", "data_file": "x.csv", "target": "y", "device_column": "site"}
    done = flmc.sweep(settings, vary={"snr_db": [10.0, 20.0]}, workers=1, hold_out=0.2)
    for row in done.rows:
        assert "held-out examples are scored for linear regression" in row["error"]
    assert not ran
