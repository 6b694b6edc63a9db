"""The numba engine: its parts against independent computations, and the whole against the NumPy
engine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.evaluation.metrics import squared_errors
from flmc.sampling.engine_choice import choose_engine
from flmc.sampling.simulation import simulate
from sampling.problems import Cauchy, quiet_plan
from support import QUICK, full, full_only

AGREEING = [
    (flmc.Digital(), {}),
    (flmc.Digital(link=flmc.Probit()), {}),
    (flmc.Digital(link=flmc.Linear()), {}),
    (flmc.Digital(link=flmc.Sigmoid(0.5)), {}),
    (flmc.Digital(link=flmc.Sign()), {"step_size": 1e-3, "limits": flmc.Limits(langevin="off")}),
    (flmc.Digital(link=Cauchy()), {}),
    (flmc.Digital(clip=8.0), {}),
    (flmc.Digital(link=flmc.Linear(), clip=8.0), {}),
    (flmc.Analog(), {}),
    (flmc.Analog(clip=8.0), {}),
    (flmc.Ideal(), {}),
]


@pytest.mark.parametrize(("uplink", "settings"), AGREEING, ids=lambda value: str(value)[:60])
def test_agrees_with_the_numpy_engine(uplink: flmc.Uplink, settings: dict[str, object]) -> None:
    """Paired on the same data, over ten seeds: |z| < 4 for MSE and variance ratio, for every seed
    and for all."""
    seeds, experiments = full(10, 3), full(300, 64)
    limits = settings.pop("limits", None) if "limits" in settings else None
    scores: dict[str, list[float]] = {"mse": [], "variance ratio": []}
    for seed in range(seeds):
        source = flmc.data.draw_linear_statistics(
            seed, num_experiments=experiments, kind="sufficient"
        )
        model = flmc.LinearGaussian(source)
        plan = flmc.plan(model, uplink, limits, forecast=False, **settings)  # type: ignore[arg-type]
        found = []
        for name in ("numba", "numpy"):
            moments = simulate(plan, model, seed, engine=name).moments
            found.append((squared_errors(moments), np.trace(moments.covariance, axis1=1, axis2=2)))
        for name, fast_value, plain_value in zip(scores, *found, strict=True):
            difference = np.log(fast_value) - np.log(
                plain_value
            )  # of ratios, so that no data set dominates
            scores[name].append(difference.mean() / (difference.std(ddof=1) / np.sqrt(experiments)))
    for name, z in scores.items():
        assert np.abs(z).max() < 4, (name, z)
        assert abs(np.sum(z)) / np.sqrt(seeds) < 4, (name, z)


# Every size of a square is compiled by itself, which takes seconds.
@pytest.mark.parametrize("dim", [1, 3, 5, 9] if QUICK else [1, 2, 3, 5, 8, 9, 16, 21])
@pytest.mark.parametrize("clip", [0.02, 5.0, 1000.0])
def test_without_noise_both_engines_do_the_same(dim: int, clip: float) -> None:
    """Gradient descent with clipped gradients, with silent devices and random fading; agreement to
    single precision."""
    data = flmc.data.draw_linear(
        seed=dim, num_samples=200, dim=dim, num_devices=4, num_experiments=3
    )
    model = flmc.LinearGaussian(data)
    active = np.random.default_rng(0).random((40, 4)) < 0.7
    active[:, 0] = True
    for fading in (flmc.ConstantFading(0.04), flmc.RayleighFading(0.04)):
        uplink = flmc.Analog(clip=clip, snr_db=300.0, fading=fading)
        for who in (None, active):
            plan = quiet_plan(model, uplink, active=who)
            plain, compiled = (
                flmc.run(plan, model, chains=2, engine=name) for name in ("numpy", "numba")
            )
            # Single precision rounds by 6e-8 of what is added, in each of 40 rounds. An entry that
            # is as near to the clip counts as clipped in one engine only.
            np.testing.assert_allclose(compiled.draws, plain.draws, atol=2e-5)
            np.testing.assert_allclose(compiled.covariance, plain.covariance, atol=2e-5)
            assert compiled.clipped_fraction == pytest.approx(plain.clipped_fraction, abs=2e-3)


def test_norms_are_clipped_alike() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=3, num_samples=200, num_devices=4))
    plan = quiet_plan(model, flmc.Analog(clip=20.0, snr_db=300.0, clipping="norm"))
    plain, compiled = (flmc.run(plan, model, engine=name).draws for name in ("numpy", "numba"))
    np.testing.assert_allclose(compiled, plain, atol=2e-5)


UPLINKS = [
    flmc.Digital(),
    flmc.Digital(link=Cauchy()),
    flmc.Analog(),
    flmc.Ideal(),
    flmc.Digital(fading=flmc.RayleighFading(0.04)),
]


@pytest.mark.parametrize("uplink", UPLINKS, ids=lambda u: f"{u.scheme}-{type(u.fading).__name__}")
def test_threads_and_groups_change_nothing(uplink: flmc.Uplink) -> None:
    model = flmc.LinearGaussian(
        flmc.data.draw_linear_statistics(1, num_experiments=70, num_samples=80, num_devices=4)
    )
    plan = flmc.plan(model, uplink, num_rounds=140, num_burn_in=20)
    results = [
        flmc.run(
            plan,
            model,
            seed=1,
            chains=3,
            engine="numba",
            threads=threads,
            experiments_at_once=group,
        )
        for threads, group in ((1, None), (2, None), (2, 70), (1, 7), (2, 33))
    ]
    for other in results[1:]:
        np.testing.assert_array_equal(results[0].draws, other.draws)
        np.testing.assert_array_equal(results[0].moments.products, other.moments.products)
        assert results[0].clipped_fraction == other.clipped_fraction


@pytest.mark.parametrize(
    "uplink", [flmc.Digital(), *(flmc.Analog(clip=clip) for clip in (0.1, 8.0, 30.0))], ids=str
)
def test_a_chain_does_not_depend_on_its_neighbours(uplink: flmc.Uplink) -> None:
    """Data set 65 gives the same draws alone in its block as among others."""
    settings = {"num_samples": 80, "num_devices": 4}
    many, few = (
        flmc.LinearGaussian(flmc.data.draw_linear_statistics(1, num_experiments=n, **settings))  # type: ignore[arg-type]
        for n in (100, 66)
    )
    plan = flmc.plan(few, uplink, flmc.Limits(privacy="off"), num_rounds=30, num_burn_in=10)
    first, second = (flmc.run(plan, model, seed=1, engine="numba").chains for model in (many, few))
    assert first is not None
    assert second is not None
    np.testing.assert_array_equal(first[:66], second)


@pytest.mark.parametrize("name", ["numpy", "numba"])
@pytest.mark.parametrize("uplink", UPLINKS, ids=lambda u: f"{u.scheme}-{type(u.fading).__name__}")
def test_a_run_may_be_cut_anywhere(
    small: flmc.LinearGaussian, uplink: flmc.Uplink, name: str
) -> None:
    plan = flmc.plan(small, uplink, num_rounds=280, num_burn_in=130)
    how = choose_engine(name, plan, small)
    whole = how.start(plan, small, 3, 23, keep_draws=True)
    how.advance(whole, plan, small, 3, 280)
    pieces = how.start(plan, small, 3, 23, keep_draws=True)
    for until in (1, 7, 128, 129, 131, 200, 256, 257, 280):
        how.advance(pieces, plan, small, 3, until)
    assert whole.draws is not None
    assert pieces.draws is not None
    np.testing.assert_array_equal(whole.draws, pieces.draws)
    np.testing.assert_array_equal(whole.moments.sums, pieces.moments.sums)
    np.testing.assert_array_equal(whole.moments.products, pieces.moments.products)
    assert whole.num_clipped == pieces.num_clipped


def test_draws_agree_with_moments(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=50, num_burn_in=10)
    result = flmc.run(plan, small, seed=1, chains=47, engine="numba")
    assert result.chains is not None
    assert result.moments.sums.shape == (3, 16, 3)
    pooled = result.chains.reshape(3, -1, 3)
    # Both are sums in double precision of the same numbers.
    np.testing.assert_allclose(result.mean, pooled.mean(axis=1), rtol=1e-6)
    for experiment in range(3):
        np.testing.assert_allclose(
            result.covariance[experiment], np.cov(pooled[experiment].T, bias=True), rtol=1e-5
        )


def test_where_it_does_not_apply(small: flmc.LinearGaussian) -> None:
    own = flmc.Model.from_gradient(
        lambda theta: np.repeat(theta[:, None], 4, axis=1),
        prior=flmc.Normal(0, 1),
        dim=3,
        num_devices=4,
        smoothness=9.0,
        convexity=1.0,
    )
    plan = flmc.plan(own, flmc.Digital(), num_rounds=5, num_burn_in=1)
    assert flmc.run(plan, own).engine == "numpy"
    with pytest.raises(InvalidSetting, match="must be quadratic"):
        flmc.run(plan, own, engine="numba")
    with pytest.raises(InvalidSetting, match="engine must be one of"):
        flmc.run(plan, own, engine="cuda")
    assert (
        flmc.run(flmc.plan(small, flmc.Analog(), num_rounds=5, num_burn_in=1), small).engine
        == "numba"
    )


def test_a_chain_that_diverges_is_named(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Ideal(), step_size=10.0)
    with pytest.raises(RunFailed, match=r"within rounds 1 to 128 in data set 0, chain 0"):
        flmc.run(plan, small, engine="numba")


@pytest.mark.parametrize("kept", [0, 7, 64, 150])
def test_a_model_that_does_not_fit_is_kept_or_drawn_again(
    kept: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = flmc.data.draw_linear_statistics(
        4, num_experiments=150, num_samples=60, num_devices=3, kind="sufficient"
    )
    held = flmc.LinearGaussian(source)
    monkeypatch.setattr("flmc.models.linear_costs._MOST_HELD", 5000)
    each = 3 * (15 + 5)  # numbers of a data set: upper triangles and offsets of three devices
    monkeypatch.setattr("flmc.models.linear_costs._MOST_KEPT", kept * each)
    drawn = flmc.LinearGaussian(source)
    assert held._costs._held is not None
    assert drawn._costs._held is None
    assert drawn._costs._kept is not None
    assert drawn._costs._kept.count == kept
    for part in (slice(None), slice(3, 7), slice(5, 70), slice(149, 150)):
        for expected, found in zip(held.quadratic(part), drawn.quadratic(part), strict=True):
            np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(held.posterior.covariance, drawn.posterior.covariance)
    plan = flmc.plan(held, flmc.Digital(), num_rounds=20, num_burn_in=10)
    for name in ("numpy", "numba"):
        first, second = (
            flmc.run(plan, model, engine=name, experiments_at_once=40).draws
            for model in (held, drawn)
        )
        np.testing.assert_array_equal(first, second)


@full_only
def test_memory_of_many_experiments() -> None:
    """100 000 experiments of the standard point in less than 600 MB, the whole process."""
    count = full(100_000, 5_000)
    # Not getrusage: its peak begins with that of the process which started this one.
    code = f"""
from flmc.cli import main
assert main(["run", "--experiments", "{count}", "--data", "sufficient", "--json"]) == 0
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout
    assert int(out.split()[-1]) / 1024 < 600


@full_only
def test_the_first_use_keeps_what_it_compiled(tmp_path: Path) -> None:
    words = "run --rounds 5 --burn-in 2 --chains 2 --json"
    command = [sys.executable, "-m", "flmc", *words.split()]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    ages = []
    for _ in range(2):
        found = subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        # A machine that is busy takes long enough for a line of progress.
        assert all(line.startswith("simulating: ") for line in found.stderr.splitlines())
        assert '"engine":"numba"' in found.stdout.replace(" ", "")
        ages.append({file.name: file.stat().st_mtime_ns for file in tmp_path.iterdir()})
    assert ages[0]
    assert ages[0] == ages[1]


def test_large_seeds_are_not_rounded(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=5, num_burn_in=1)
    for name in ("numpy", "numba"):
        first, second = (flmc.run(plan, small, seed=2**90 + i, engine=name).draws for i in (0, 1))
        assert not np.array_equal(first, second)
