"""The analog predecessor: budgets, the adaptive program against another solver, runs against a
plain loop, and the published points."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import NonlinearConstraint, brentq, minimize
from scipy.stats import norm

from flmc.base.arrays import Array
from flmc.cli import main
from flmc.papers.request import StudyRequest
from flmc.papers.wflmc.base_case import NUM_RUNS, SNR_DB, BaseCase, make_base_case
from flmc.papers.wflmc.experiment import Laboratory
from flmc.papers.wflmc.gain_allocation import (
    Allocations,
    Programs,
    exact_budget,
    published_budget,
    solve,
)
from flmc.papers.wflmc.study import conduct
from support import QUICK, full, full_only, many_repetitions, repeated

SHARED = Path(os.environ.get("FLMC_SHARED", Path(__file__).parents[3] / "shared")) / "data"
"""Where the published data are, if they are there; they are not ours to distribute."""
BUDGET = published_budget(15.0, 0.01)


def test_budgets() -> None:
    assert published_budget(15.0, 0.01) == pytest.approx(5.96727, abs=5e-6)

    def delta(mu: float) -> float:
        """The exact privacy curve of N(0, 1) against N(mu, 1), once more."""
        return float(
            norm.cdf(mu / 2 - 15.0 / mu) - math.exp(15.0) * norm.cdf(-mu / 2 - 15.0 / mu) - 0.01
        )

    assert exact_budget(15.0, 0.01) == pytest.approx(brentq(delta, 1.0, 10.0) ** 2 / 2, rel=1e-9)
    assert exact_budget(15.0, 0.01) == pytest.approx(7.04, abs=0.005)


@given(st.floats(0.1, 50.0), st.floats(1e-12, 0.2))
@settings(max_examples=full(100, 20))
def test_the_published_budget_is_conservative(epsilon: float, delta: float) -> None:
    assert published_budget(epsilon, delta) <= exact_budget(epsilon, delta) * (1 + 1e-9)


def random_programs(seed: int, runs: int, rounds: int, kept: int, devices: int) -> Programs:
    """Programs of the study's kind, of any size, whose budgets bind."""
    rng = np.random.default_rng(seed)
    active = rng.random((runs, devices, rounds)) < 0.8
    active[:, 0] = True
    shares = rng.uniform(0.5, 1.5, (runs, 1, rounds)) * 4.0 / rounds
    weight = rng.uniform(0.2, 1.0, (runs, rounds))
    return Programs(rng.uniform(0.0, 1.0, (runs, kept)), weight, active * shares, 0.8)


@pytest.mark.parametrize("seed", range(full(6, 2)))
def test_the_program_against_another_solver(seed: int) -> None:
    programs = random_programs(seed, 1, 20, 8, 4)
    shares = solve(programs)
    assert (shares > 0).all()
    assert (shares <= 1).all()
    assert np.einsum("rks,rs->rk", programs.cost, shares).max() <= 1.0
    # Sequential quadratic programming, in the logarithms of the shares and the level.
    rounds = shares.shape[1]
    memory, weight, cost = programs.memory, programs.weight[0], programs.cost[0]

    def inside(x: Array) -> Array:
        bounds = programs.base[0] + memory @ (weight * np.exp(x[:-1]))
        return np.concatenate([x[-1] - bounds, 1.0 - cost @ np.exp(-x[:-1]), x[:-1]])

    start = np.full(rounds + 1, math.log(1.5 * cost.sum(axis=1).max()))
    start[-1] = 2.0 * programs.objective(np.exp(-start[None, :-1]))[0]

    def level(x: Array) -> float:
        return float(x[-1])

    found = minimize(
        level,
        start,
        constraints=[NonlinearConstraint(inside, 0.0, np.inf)],
        method="SLSQP",
        options={"maxiter": 2000},
        tol=1e-14,
    )
    # Another solver can only find what is at least as large, up to its own accuracy and the tie.
    assert float(programs.objective(shares)[0]) == pytest.approx(float(found.fun), rel=1e-5)


def test_one_kept_round_has_a_closed_form() -> None:
    # With one kept round and one budget, minimise the sum of v/y with the sum of c y at most 1: y
    # is sqrt(v/(price c)), or 1 where that is more; the price spends the budget.
    programs = random_programs(3, 5, 30, 1, 1)
    values, costs = programs.weight * programs.memory[0], programs.cost[:, 0]
    for shares, value, cost in zip(solve(programs), values, costs, strict=True):

        def spent(price: float, value: Array = value, cost: Array = cost) -> float:
            return float((cost * np.minimum(1.0, np.sqrt(value / cost / price))).sum()) - 1.0

        price = brentq(spent, 1e-9, 1e9, xtol=1e-14, rtol=1e-14)
        wanted = np.minimum(1.0, np.sqrt(value / cost / price))
        # Early rounds hardly count, so that their shares are the least certain.
        np.testing.assert_allclose(shares[-10:], wanted[-10:], rtol=1e-3)
        best = float((value / wanted).sum())
        assert float((value / shares).sum()) == pytest.approx(best, rel=1e-5)


@given(st.integers(0, 1000), st.floats(0.3, 3.0))
@settings(max_examples=full(40, 8), deadline=None)
def test_a_larger_budget_is_never_worse(seed: int, factor: float) -> None:
    programs = random_programs(seed, 2, 15, 6, 3)
    changed = programs._replace(cost=programs.cost * factor)
    before, after = (float(p.objective(solve(p))[0]) for p in (programs, changed))
    assert (after - before) * (factor - 1.0) >= -1e-6 * before


def test_without_a_binding_budget_gains_are_the_largest() -> None:
    programs = random_programs(1, 3, 20, 8, 4)
    loose = programs._replace(cost=programs.cost / programs.cost.sum(axis=2).max())
    assert (solve(loose) == 1.0).all()


@pytest.fixture(scope="module")
def case() -> BaseCase:
    """Data of the published law, for two experiments."""
    return make_base_case({}, None, 0, 2 * NUM_RUNS)


@pytest.fixture(scope="module")
def laboratory(case: BaseCase) -> Laboratory:
    return Laboratory(case, 3)


@pytest.mark.parametrize("snr_db", [5.0, 10.0, 40.0])
def test_allocations_keep_all_limits(laboratory: Laboratory, snr_db: float) -> None:
    case = laboratory.case
    active = laboratory.channels.active(snr_db).astype(float)
    allowed = Allocations.of(case, snr_db, laboratory.channels.fading, active)
    heard = np.where(active > 0, laboratory.channels.fading, np.inf)
    energy = 10 ** (snr_db / 10) * 5
    first = Allocations(case, allowed.largest[:4], active[:4])
    for squared, part in (
        (allowed.largest, active),
        (allowed.static(BUDGET), active),
        (first.adaptive(BUDGET), active[:4]),
    ):
        weakest = heard[: len(squared)].min(axis=2)
        assert (squared <= energy * weakest**2 / 900 * (1 + 1e-12)).all()
        langevin = (30 / part.sum(axis=2)) ** 2 * case.step_size / 2
        assert (squared <= langevin * (1 + 1e-12)).all()
        spent = float((2 * 900 * np.einsum("rs,rsk->rk", squared, part)).max())
        if squared is not allowed.largest:
            assert spent <= BUDGET * (1 + 1e-9)
            if snr_db == 40.0:  # privacy binds: the busiest device spends all
                assert spent == pytest.approx(BUDGET, rel=1e-6)


def test_adaptive_is_predicted_to_beat_static(laboratory: Laboratory) -> None:
    active = laboratory.channels.active(25.0).astype(float)[:6]
    fading = laboratory.channels.fading[:6]
    allowed = Allocations.of(laboratory.case, 25.0, fading, active)
    programs = allowed.programs(BUDGET)
    static, adaptive = (
        programs.objective(squared / allowed.largest)
        for squared in (allowed.static(BUDGET), allowed.adaptive(BUDGET))
    )
    assert (adaptive < static).all()


def plain_distances(case: BaseCase, squared: Array, active: Array, seed: int) -> Array:
    """Largest squared W2 of experiments of 100 runs, with every round written out."""
    rng = np.random.default_rng(seed)
    costs = case.model.quadratic(slice(0, 1))
    hessian, offset = costs.hessian[0], costs.offset[0]
    posterior, step = case.model.posterior, case.step_size
    theta, kept = rng.standard_normal((len(squared), 5)), []
    for s in range(100):
        gradient = np.einsum("kij,rj->rki", hessian, theta) - offset
        norms = np.linalg.norm(gradient, axis=2, keepdims=True)
        clipped = gradient * np.minimum(1.0, 30.0 / norms)
        heard = (clipped * active[:, s, :, None]).sum(axis=1)
        noise = rng.standard_normal(theta.shape) / np.sqrt(squared[:, s, None])
        theta = theta - step * 30.0 / active[:, s].sum(axis=1)[:, None] * (heard + noise)
        if s >= 50:
            kept.append(theta)
    root = np.linalg.cholesky(posterior.covariance[0])
    found = []
    for runs in np.split(np.stack(kept, axis=1), len(squared) // 100):
        worst = 0.0
        for j in range(50):
            shift = runs[:, j].mean(axis=0) - posterior.mean[0]
            covariance = np.cov(runs[:, j].T, bias=True)
            # The eigenvalues of L' C L are those of the root in the distance, for any root.
            cross = np.sqrt(np.linalg.eigvalsh(root.T @ covariance @ root)).sum()
            distance = shift @ shift + np.trace(covariance + posterior.covariance[0]) - 2 * cross
            worst = max(worst, float(distance))
        found.append(worst)
    return np.array(found)


@full_only
@pytest.mark.parametrize("engine", ["numba", "numpy"])
@pytest.mark.parametrize("curve", ["largest", "static"])
def test_runs_against_a_plain_loop(curve: str, engine: str) -> None:
    experiments = full(12, 6)
    case = make_base_case({}, None, 0, NUM_RUNS * experiments)
    laboratory = Laboratory(case, 5, engine)
    active = laboratory.channels.active(10.0).astype(float)
    allowed = Allocations.of(case, 10.0, laboratory.channels.fading, active)
    squared = allowed.largest if curve == "largest" else allowed.static(BUDGET)
    fast = np.log(laboratory.worst_distances(laboratory.run(np.sqrt(squared), active)))
    slow = np.log(plain_distances(case, squared, active, 1))
    error = math.sqrt((fast.var(ddof=1) + slow.var(ddof=1)) / experiments)
    assert abs(fast.mean() - slow.mean()) < 5 * error


def test_population_and_floor(laboratory: Laboratory, case: BaseCase) -> None:
    # Infinitely many runs: many, and what is left of their floor, which falls like 1/n.
    assert 5e-6 < laboratory.population < 2e-5
    runs = make_base_case({}, None, 0, 20 * NUM_RUNS)
    many = Laboratory(runs, 1)
    pooled = many.worst_distance(many.run_ideal())
    assert abs(pooled - laboratory.population) < 2 * laboratory.floor / 20
    # The distance of n exact draws is about the trace of the covariance of their mean, tr/n, and
    # as much for their spread (dim + 3)/4; the largest of 50 rounds is more.
    trace = float(np.trace(case.model.posterior.covariance[0]))
    assert trace / NUM_RUNS < laboratory.floor < 6 * trace / NUM_RUNS


def test_draws_are_common_to_all_snr(laboratory: Laboratory) -> None:
    at = [laboratory.channels.active(snr).astype(float) for snr in (5.0, 40.0)]
    # The rule has at least as many devices where power is larger, of the same channels.
    assert (at[0] <= at[1]).all()
    ideal = laboratory.run_ideal()
    assert np.array_equal(ideal, Laboratory(laboratory.case, 3).run_ideal())


def published() -> Path:
    """The published data; skips where they are not: they are not ours to distribute."""
    path = SHARED / "wflmc_gaussian.npz"
    if not path.exists():
        pytest.skip("the published data are not there (FLMC_SHARED names their directory)")
    return path


@many_repetitions
@full_only
def test_published_points(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every published point is within three standard deviations of the replicated experiment."""
    places = SNR_DB if not QUICK else (5.0, 40.0)
    monkeypatch.setattr("flmc.papers.wflmc.study.SNR_DB", places)
    study = conduct(
        StudyRequest(
            tmp_path, data_file=published(), experiments=repeated(20, 8, 5), engine="numba", seed=0
        )
    )
    compared = [point for point in study.points if not math.isnan(point.z)]
    assert len(compared) == 5 * len(places)
    for point in compared:
        assert abs(point.z) <= 3, point
    assert study.budget_db == pytest.approx(0.72, abs=0.005)
    assert study.population == pytest.approx(1.14e-5, rel=0.01)


FAST = ["--set", "devices=4", "--set", "rounds=20", "--set", "burn_in=10", "--experiments", "1"]


@full_only
def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    own = tmp_path / "mine.toml"
    own.write_text('scheme = "digital"\nlink = "probit"\nepsilon = 30.0\n')
    out = tmp_path / "out"
    study = ["reproduce", "--paper", "wflmc", *FAST]
    assert main([*study, "--add-curve", f"mine={own}", "--out", str(out), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert "drawn" in document["data"]
    curves = {point["curve"] for point in document["points"]}
    assert {"static", "adaptive", "without DP", "mine"} <= curves
    assert all(point["published"] is None for point in document["points"])
    names = {path.name for path in out.iterdir()}
    assert {"points.csv", "report.md", "report.html", "figure_snr.png", "figure_snr.pdf"} <= names
    text = (out / "report.md").read_text()
    assert "--add-curve mine=mine.toml" in " ".join(text.split())
    assert "Nothing is compared with print" in " ".join(text.split())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--set", "scheme=digital"], "--set of the study 'wflmc' takes"),
        (["--set", "devices"], "NAME=VALUE"),
        (["--set", "devices=4", "--set", "devices=5"], "twice"),
        (["--set", "devices=0"], "at least 1"),
        (["--set", "burn_in=100"], "below rounds"),
        (["--set", "fading=tdl"], "all entries share"),
        (["--figure", "2"], "not for the study 'wflmc'"),
        (["--data", "examples"], "not for the study 'wflmc'"),
        (["--experiments", "0"], "at least 1"),
        (["--data-file", "nothing.npz"], "npz with arrays X and Y"),
        (["--data-file", "text.npz"], "npz with arrays X and Y"),
        (["--data-file", "other.npz"], "npz with arrays X and Y"),
        (["--data-file", "data.npz", "--set", "dim=3"], "comes from the data file"),
        (["--data-file", "data.npz"], "columns curve, x, y"),
        (["--add-curve", "mine=nothing.toml"], "cannot read"),
        (["--add-curve", "mine=sized.toml"], "comes from the study"),
        (["--add-curve", "mine=louder.toml"], "snr_db of the curve 'mine' comes from the study"),
        (["--add-curve", "static=mine.toml"], "a curve 'static' is there already"),
        (["--add-curve", "mine=wrong.toml"], "'wrong.toml': unknown setting 'eps'"),
        (["--add-curve", "mine=strict.toml"], "curve 'mine' at 5 dB: no gain keeps epsilon"),
        (["--set", "link=nothing"], "link must be one of sigmoid"),
    ],
)
def test_what_is_refused(
    given: list[str],
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("text.npz").write_text("no archive")
    np.savez("other.npz", A=np.zeros(3))
    np.savez("data.npz", X=np.ones((60, 2)), Y=np.ones(60))
    Path("wflmc_snr.csv").write_text("no,such,columns\n1,2,3\n")
    Path("sized.toml").write_text("devices = 7\n")
    Path("louder.toml").write_text("snr_db = 20.0\n")
    Path("mine.toml").write_text('scheme = "analog"\n')
    Path("wrong.toml").write_text("eps = 1.0\n")
    Path("strict.toml").write_text('scheme = "analog"\ncsi_error = 0.5\nepsilon = 0.01\n')
    assert main(["reproduce", "--paper", "wflmc", *given, "--out", "out"]) == 2
    assert said in " ".join(capsys.readouterr().err.split())
    assert not Path("out").exists()
