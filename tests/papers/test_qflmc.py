"""The reproduction: points against a plain loop, verdicts on made-up curves, files, resolution of
the search."""

from __future__ import annotations

import hashlib
import json
import math
import random
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.clipping import clip_norm
from flmc.cli import main
from flmc.papers.qflmc import better_designs, claims, design_search, readings
from flmc.papers.qflmc import report as report_module
from flmc.papers.qflmc.better_designs import power_gained_db
from flmc.papers.qflmc.experiment import (
    FigurePoint,
    Laboratory,
    chains_of,
    measure,
    own_points_of,
    points_of,
)
from flmc.papers.qflmc.readings import READINGS, BaseCase
from flmc.papers.request import read_own_curve
from flmc.runs.files.durable_files import read_table, write_table
from flmc.settings.schema import merge
from flmc.views.reports import write_html, write_markdown
from support import full, full_only

READING_NAMES = {"literal", "unlimited", "calibrated", "by entry"}


def plain_mse(
    data: flmc.LinearData, mean: Array, gain: float, step: float, digital: bool, seed: int
) -> float:
    """One experiment of the paper in plain loops over rounds and devices: 20 devices, dim 5, 300
    rounds."""
    rng = random.Random(seed)
    blocks = [
        (data.features[60 * k : 60 * k + 60], data.targets[60 * k : 60 * k + 60]) for k in range(20)
    ]
    theta = np.array([rng.gauss(0, 1) for _ in range(5)])
    total = 0.0
    for s in range(300):
        received = np.array([rng.gauss(0, 1) for _ in range(5)])
        for u, v in blocks:
            gradient = u.T @ (u @ theta - v) + theta / 20
            for i in range(5):
                g = max(-30.0, min(30.0, gradient[i]))
                if digital:
                    g = 1.0 if rng.random() < 1 / (1 + math.exp(-0.05 * g)) else -1.0
                received[i] += gain * g
        theta = theta - step * received / gain
        if s >= 200:
            total += float(np.square(theta - mean).sum())
    return total / 100


@pytest.mark.parametrize("scheme", ["digital", "analog"])
def test_points_agree_with_a_plain_loop(scheme: str) -> None:
    count = full(30, 6)
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=count))
    uplink = flmc.Digital(snr_db=2.5) if scheme == "digital" else flmc.Analog(snr_db=2.5)
    point = FigurePoint("2", readings.READINGS[0], scheme, 2.5, uplink, 5.0)
    row = measure([point], Laboratory(model, seed=1)).rows[0]
    data = flmc.data.draw_linear(seed=0, num_experiments=count)
    slow = []
    for e in range(count):
        one = flmc.LinearData(data.features[e], data.targets[e], data.device_sizes)
        slow.append(
            plain_mse(one, model.posterior.mean[e], row.gain, row.step_size, scheme == "digital", e)
        )
    error = math.hypot(np.std(slow, ddof=1) / math.sqrt(count), row.mse_se)
    assert abs(np.mean(slow) - row.mse) < 5 * error


def test_points_of_the_figures() -> None:
    for number, curves in (("2", 4), ("3", 4), ("4", 4)):
        points = list(points_of(number))
        assert {p.reading.name for p in points} == READING_NAMES
        assert len({p.curve for p in points}) == curves
    assert {p.x for p in points_of("2")} >= {0.0, 17.5, 30.0}
    assert {p.x for p in points_of("3")} >= {7.5, 15.0}


def made_up(levels: list[float], experiments: int = 200, seed: int = 0) -> Array:
    """Errors (point, experiment) with these means and common randomness."""
    noise = np.random.default_rng(seed).gamma(20, 1 / 20, experiments)
    return np.asarray(np.array(levels)[:, None] * noise)


def paper_like() -> dict[str, dict[str, tuple[Array, Array]]]:
    """Curves that are as the paper describes them."""
    snr, eps, strict = (
        np.array(x) for x in (readings.SNR_DB, readings.EPSILONS, readings.EPSILONS_OF_SLOPES)
    )
    slopes = {
        f"a = {a:g}": (
            strict,
            made_up(
                [
                    max(1 / min(e, 150 * a) ** (1 + 3 * a), 0) * (1 + (20 * a if e < 2.5 else 0))
                    for e in strict
                ]
            ),
        )
        for a in readings.SLOPES
    }
    return {
        "2": {
            "digital": (snr, made_up([2.0 ** (17.4 - x) for x in snr])),
            "analog": (snr, made_up([1.0] * len(snr))),
        },
        "3": {
            "digital": (eps, made_up([1 / min(e, 7.5) for e in eps])),
            "analog": (eps, made_up([1.4 / min(e, 15) if e > 7.5 else 1.4 / e for e in eps])),
        },
        "4": slopes,
    }


def test_verdicts_follow_the_curves() -> None:
    figures = paper_like()
    verdicts = claims.judge(figures)
    assert {name for name, v in verdicts.items() if not v.holds} == set()
    swapped = {
        **figures,
        "2": {"digital": figures["2"]["analog"], "analog": figures["2"]["digital"]},
    }
    failing = {name for name, v in claims.judge(swapped).items() if not v.holds}
    assert failing == {"digital above 17.5 dB", "analog below 17.5 dB"}
    flat = {
        **figures,
        "3": {name: (x, made_up([1.0] * len(x))) for name, (x, _) in figures["3"].items()},
    }
    failing = {name for name, v in claims.judge(flat).items() if not v.holds}
    assert failing == {"digital until 7.5", "analog until 15", "digital for epsilon <= 7.5"}
    reversed_ = {
        **figures,
        "4": dict(zip(figures["4"], reversed(list(figures["4"].values())), strict=True)),
    }
    failing = {name for name, v in claims.judge(reversed_).items() if not v.holds}
    assert failing == {"small a for epsilon < 2", "larger a later"}


def test_orderings_need_significance() -> None:
    """Equal means decide nothing, however they fall, and however few they are."""
    rng = np.random.default_rng(1)
    for count in (3, 50):
        pairs = [(rng.gamma(5, 1, (1, count)), rng.gamma(5, 1, (1, count))) for _ in range(400)]
        found = [claims.wins_throughout(*pair)[0] for pair in pairs]
        most = 400 * 0.005 + 5 * math.sqrt(
            400 * 0.005
        )  # one side of a 99 % interval, 5 standard errors
        assert found.count(True) <= most
        assert found.count(False) <= most


def test_noise_leaves_claims_undecided() -> None:
    """Curves as the paper describes them, under noise that hides them: nothing holds, and nothing
    fails either."""
    rng = np.random.default_rng(2)
    hidden = {
        number: {
            name: (x, errors * rng.exponential(1.0, errors.shape) ** 6)
            for name, (x, errors) in curves.items()
        }
        for number, curves in paper_like().items()
    }
    words = {name: verdict.word for name, verdict in claims.judge(hidden).items()}
    assert words.pop("finite loss") == "holds"
    assert set(words.values()) == {"undecided"}


def test_search_gains_are_the_plans() -> None:
    """The combination that is printed gives the literal reading's gains."""
    printed = design_search.Combination(*(values[0] for values in design_search.CHOICES.values()))  # type: ignore[arg-type]
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=0))
    laboratory = Laboratory(model, 0)
    for figure in ("2", "3"):
        for point in list(points_of(figure))[::7]:
            if point.reading.name == "literal":
                gain = design_search.gain_of(
                    printed, point.uplink.scheme, 0.05, point.uplink.snr_db, point.epsilon
                )
                assert gain == pytest.approx(laboratory.plan(point).typical_gain, rel=1e-6)
    assert len(list(design_search.combinations())) == 2160


def test_search_on_a_small_table() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=4))
    table = design_search.ErrorTable(model, 0, 3)
    printed = design_search.Combination(*(values[0] for values in design_search.CHOICES.values()))  # type: ignore[arg-type]
    figures = design_search.CombinationFigures(table).of(printed)
    assert figures["2"]["digital"][1].shape == (len(readings.SNR_DB), 4)
    key, grid = ("digital", 0.05, 1.0, "entry"), table.gains["digital"]
    ends = np.log([table._errors(key, gain) for gain in grid[:2]])
    between = table.errors(key, np.sqrt(grid[:1] * grid[1:2]))[0]
    np.testing.assert_allclose(between, np.exp(ends.mean(axis=0)))


def test_search_measures_what_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=2))
    table, asked = design_search.ErrorTable(model, 0, 4), []

    def errors(key: design_search.TableKey, gain: float) -> Array:
        asked.append(gain)
        return np.full(2, gain)

    monkeypatch.setattr(table, "_errors", errors)
    key, grid = ("analog", 0.0, 1.0, "entry"), table.gains["analog"]
    for gain in (grid[1], grid[3], 2 * grid[3], 1.5 * grid[1], grid[1]):
        expected = min(gain, grid[3])  # an error that is the gain itself is interpolated exactly
        np.testing.assert_allclose(table.errors(key, np.array([gain])), expected)
    np.testing.assert_allclose(sorted(asked), grid[1:])


@pytest.mark.parametrize(("langevin", "shared"), [("both", True), ("neither", False)])
def test_combinations_share_a_curve_where_the_same_limit_binds(langevin: str, shared: bool) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=2))
    figures = design_search.CombinationFigures(design_search.ErrorTable(model, 0, 2))
    curves = [
        figures.of(design_search.Combination("off", langevin, rule, "with 1/2", 1.0, 1.0, "entry"))
        for rule in ("tail", "tight")
    ]
    # The noise requirement binds digital at every epsilon of figure 3, by either accountant.
    assert (curves[0]["3"]["digital"] is curves[1]["3"]["digital"]) == shared


def test_norm_clipping() -> None:
    clipped = clip_norm(np.array([[3.0, 4.0], [0.3, 0.4]]), 1.0)
    np.testing.assert_allclose(clipped, [[0.6, 0.8], [0.3, 0.4]])


def test_power_gained() -> None:
    assert power_gained_db() == pytest.approx(10.9, abs=0.05)


def test_tables_and_reports(tmp_path: Path) -> None:
    rows = [{"curve": "a, b", "x": 1.5}, {"curve": 'say "c"', "x": 2.0}]
    write_table(tmp_path / "t.csv", rows)
    assert read_table(tmp_path / "t.csv") == [{k: str(v) for k, v in row.items()} for row in rows]
    (tmp_path / "p.png").write_bytes(b"png")
    blocks = [
        ("title", "T <1>"),
        ("heading", "H"),
        ("text", "a < b"),
        ("list", ["one `x` < 2", "two " * 40]),
        ("picture", ("p.png", "a picture")),
        ("table", (["x", "y"], [["1", "<2>"]])),
    ]
    write_markdown(tmp_path / "r.md", blocks)
    write_html(tmp_path / "r.html", blocks)
    assert "| 1 | <2> |" in (tmp_path / "r.md").read_text()
    page = (tmp_path / "r.html").read_text()
    assert "a &lt; b" in page
    assert "<ul><li>one <code>x</code> &lt; 2</li>" in page
    text = (tmp_path / "r.md").read_text()
    assert "- one `x` < 2\n- two two" in text
    assert "\n  two two" in text  # the item's second line belongs to it
    assert max(map(len, text.splitlines())) <= 100
    assert "data:image/png;base64,cG5n" in page
    assert "http" not in page  # self-contained


def test_a_user_adds_her_own_curve(tmp_path: Path) -> None:
    from flmc.views.figures import draw_curves, draw_mse, draw_variance_ratio, new_figure

    rows = [
        {
            "curve": "mine",
            "x": x,
            "mse": 0.1 / x,
            "mse_se": 0.01,
            "variance_ratio": 2.0,
            "variance_ratio_se": 0.1,
        }
        for x in (1.0, 2.0, 4.0)
    ]
    write_table(tmp_path / "mine.csv", rows)
    figure, (left, right) = new_figure(columns=2)
    draw_mse(left, read_table(tmp_path / "mine.csv"), ["mine"], trace=0.004)
    draw_variance_ratio(right, rows, ["mine"])
    draw_curves(right, rows, "mse", ["mine", "absent"])
    assert left.get_yscale() == "log"
    np.testing.assert_allclose(
        np.asarray(left.lines[0].get_ydata(), dtype=float), [0.1, 0.05, 0.025]
    )
    assert len(left.collections) == 1  # the shaded standard error
    figure.savefig(tmp_path / "mine.png")


@full_only
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "reproduction"
    arguments = ["reproduce", "--figure", "2", "--experiments", "3", "--out", str(out)]
    assert main([*arguments, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert set(document["claims"]) == READING_NAMES
    names = {path.name for path in out.iterdir()}
    assert {
        "points.csv",
        "claims.csv",
        "report.md",
        "report.html",
        "figure_2_literal.png",
        "figure_2_literal.pdf",
        "figure_2_by_entry.png",
    } <= names
    text = (out / "report.md").read_text()
    assert "This is a preview" in text
    assert "flmc reproduce --figure 2 --experiments 3 --seed 0" in text
    assert main(arguments) == 2
    assert "use --force" in capsys.readouterr().err
    assert main([*arguments, "--force"]) == 0
    assert "claims of the paper, 3 experiments" in capsys.readouterr().out
    assert main(["reproduce", "--figure", "5", "--out", str(tmp_path / "x")]) == 2
    assert main(["reproduce", "--experiments", "1", "--out", str(tmp_path / "x")]) == 2
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize("figure", ["2", "3"])
@pytest.mark.parametrize("scheme", ["digital", "analog"])
def test_own_curves_follow_the_reading(figure: str, scheme: str, tmp_path: Path) -> None:
    """A curve that states nothing but the paper's scheme has the plans of the paper's curve in
    every reading, and what it states itself stays."""
    path = tmp_path / "mine.toml"
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=2))
    laboratory = Laboratory(model, 0)

    def own(text: str) -> list[FigurePoint]:
        path.write_text(text)
        settings = read_own_curve("mine", path, {"fading": 0.04})
        return list(own_points_of(figure, "mine", settings))

    ours = {(p.reading.name, p.x): p for p in points_of(figure) if p.curve == scheme}
    mine = own(f'scheme = "{scheme}"')
    assert len(mine) == len(ours)
    for point in mine:
        planned = laboratory.plan(point)
        expected = laboratory.plan(ours[point.reading.name, point.x])
        assert chains_of(planned) == chains_of(expected)
        assert planned.binding == expected.binding
    # Readings differ, or the test would hold for curves that ignore them.
    assert len({chains_of(laboratory.plan(p)) for p in mine if p.x == mine[-1].x}) > 2
    stated = own(f'scheme = "{scheme}"\nprivacy = "tight"\nstep_size = 1e-5')
    for point in stated:
        planned = laboratory.plan(point)
        assert (planned.step_size, planned.limits.privacy) == (1e-5, "tight")
    words = stated[0].reading.how_planned(stated[0].own or merge({}, {}))
    assert "but for its own" in words
    assert "privacy = tight" in words


@full_only
def test_a_curve_that_no_reading_is_of_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skeleton = Path(__file__).parents[2] / "docs" / "skeletons" / "scheme.py"
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    Path("own_scheme_of_study.py").write_text(skeleton.read_text())
    name = re.search(r"class (\w+)\(", skeleton.read_text())
    assert name is not None
    Path("mine.toml").write_text(f'scheme = "own_scheme_of_study:{name[1]}"\nclip = 20.0\n')
    few = ["reproduce", "--experiments", "2", "--figure", "2", "--add-curve", "mine=mine.toml"]
    assert main([*few, "--out", "out"]) == 0
    rows = [row for row in read_table(Path("out/points.csv")) if row["curve"] == "mine"]
    for x in {row["x"] for row in rows}:
        assert len({row["mse"] for row in rows if row["x"] == x}) == 1
    text = " ".join(Path("out/report.md").read_text().split())
    assert text.count("mine: planned by its own settings, not by the reading") == 4
    listed = text[text.index("Curves of your own") :]
    digest = hashlib.sha256(Path("own_scheme_of_study.py").read_bytes()).hexdigest()
    for setting in (
        "privacy = tight",
        "langevin = calibrated",
        "step_size = auto",
        "epsilon = 5.0",
    ):
        assert setting in listed
    assert "snr_db" not in listed  # the x axis
    assert f"own_scheme_of_study {digest[:12]}" in listed
    capsys.readouterr()
    assert main(["cite", "out"]) == 0
    cited = capsys.readouterr().out
    assert f"own_scheme_of_study {digest[:12]}" in cited
    assert "was measured again by `flmc reproduce --figure 2 --experiments 2" in cited
    Path("mine.toml").write_text("snr_db = 7.0\n")
    assert main([*few, "--out", "no"]) == 2
    assert "is the x axis of figure 2; leave it out" in " ".join(capsys.readouterr().err.split())


@full_only
def test_changed_base_case_and_own_curve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('scheme = "digital"\nlink = "linear"\nfading = "rayleigh:0.04"\n')
    out = tmp_path / "out"
    few = ["reproduce", "--experiments", "2", "--figure"]
    changes = ["--set", "devices=10", "--set", "link=probit", "--add-curve", f"mine={own}"]
    assert main([*few, "4", *changes, "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["claims"] == {}
    rows = read_table(out / "points.csv")
    assert {row["curve"] for row in rows} == {
        "a = 0.01",
        "a = 0.03",
        "a = 0.05",
        "a = 0.07",
        "mine",
    }
    # Her curve is planned by each reading.
    mine = [row for row in rows if row["curve"] == "mine"]
    assert len({row["mse"] for row in mine if row["x"] == mine[-1]["x"]}) > 1
    # The changes reach plan and data: a probit link has another slope, and 10 devices another step.
    point = next(p for p in points_of("4", BaseCase.changed({"link": "probit"})))
    assert isinstance(point.uplink, flmc.Digital)
    assert isinstance(point.uplink.link, flmc.Probit)
    text = " ".join((out / "report.md").read_text().split())
    assert "--set devices=10 --set link=probit --add-curve mine=mine.toml" in text
    assert "base case was changed" in text
    assert "Curves of your own" in text
    listed = text[text.index("Curves of your own") :]
    # Her own settings, and those that she has from the study.
    for setting in ("link = linear", "fading = rayleigh:0.04", "rounds = 300"):
        assert setting in listed

    def refused(*arguments: str) -> str:
        assert main([*few, *arguments, "--out", str(tmp_path / "no")]) == 2
        return " ".join(capsys.readouterr().err.split())

    assert "--set of the study 'qflmc' takes devices" in refused("2", "--set", "epsilon=3")
    assert "is not for the study 'qflmc'" in refused("2", "--data-file", "x.npz")
    assert "is there already" in refused("2", "--add-curve", f"digital={own}")
    assert "is for the figures 2, 3 and 4" in refused("beyond", "--set", "devices=5")


def test_what_was_run_is_not_run_again_beyond(monkeypatch: pytest.MonkeyPatch) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=2))
    plans: list[flmc.Plan] = []

    def run(plan: flmc.Plan, *given: Any, **settings: Any) -> flmc.Result:
        plans.append(plan)
        return flmc.run(plan, *given, **settings)

    monkeypatch.setattr(better_designs, "run", run)
    rows = better_designs.compare_beyond(model, 0, 4, every=2)
    assert len({chains_of(plan) for plan in plans}) == len(plans) < len(rows)
    # Each row has what its own plan gives when it is run by itself.
    for sweep, x, name in [
        ("snr_db", 25.0, "paper's digital"),
        ("epsilon", 1.0, "paper's digital"),
    ]:
        (row,) = (r for r in rows if (r.sweep, r.x, r.scheme) == (sweep, x, name))
        uplink, limits = better_designs.contestants(25.0, 5.0 if sweep == "snr_db" else x, 0.01)[
            name
        ]
        planned = flmc.plan(
            model,
            uplink,
            limits,
            step_size=row.effective_step / uplink.slope,
            num_rounds=row.rounds,
            num_burn_in=row.rounds - better_designs.KEPT,
            draw_at="positions",  # as the paper takes them
        )
        metrics = flmc.run(planned, model, 0, 4, keep_draws=False).metrics
        assert metrics is not None
        assert row.variance_ratio == metrics.variance_ratio.mean
        assert row.epsilon_round == planned.round_cost.epsilon  # type: ignore[union-attr]


def test_a_legend_covers_no_curve_and_errors_are_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    figures: list[Any] = []

    def keep(figure: Any, out: Path, name: str) -> str:
        figures.append(figure)
        return f"{name}.png"

    monkeypatch.setattr(report_module, "write_png_and_pdf", keep)
    rows = [
        {"curve": name, "x": x, "mse": 10.0 ** (-x), "mse_se": 10.0 ** (-x - 1)}
        | {"one_run_wasserstein2_squared": 1.0, "one_run_wasserstein2_squared_se": 0.1}
        for name in ("digital", "mine")
        for x in (0.0, 1.0, 2.0)
    ]
    study = SimpleNamespace(own_settings={}, trace=0.5, exact_distance=0.1)
    report_module._draw_figure(study, "2", READINGS[0], rows, tmp_path)  # type: ignore[arg-type]
    (figure,) = figures
    figure.canvas.draw()
    (legend,) = figure.legends
    box = legend.get_window_extent()
    for panel in figure.axes:
        assert panel.get_legend() is None
        assert box.y1 <= panel.bbox.y0
        bars = [each for held in panel.containers for each in held[2][0].get_segments()]
        assert len(bars) == 6
    low, high = figure.axes[0].containers[0][2][0].get_segments()[0][:, 1]
    assert (low, high) == pytest.approx((0.9, 1.1))
