"""The numba engine: its parts against independent computations, and the whole against the NumPy
engine."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numba
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.evaluation.metrics import squared_errors
from flmc.models.model import Quadratic
from flmc.sampling.compiled import kernel, vectors
from flmc.sampling.compiled import numba_engine as fast
from flmc.sampling.compiled.kernel import LANES
from flmc.sampling.compiled.link_curve import WORD_SCALE, Curve, fit
from flmc.sampling.engines import choose_engine
from flmc.sampling.numpy_engine import NumpyEngine
from flmc.sampling.simulation import _Pace, simulate
from support import QUICK, full


class Cauchy(flmc.Link):
    def __repr__(self) -> str:
        return "Cauchy"

    def probability(self, g: Array) -> Array:
        return 0.5 + np.arctan(g / 20.0) / np.pi


class Skewed(flmc.Link):
    """A link that is not odd, so that a polynomial of odd powers cannot follow it."""

    def __repr__(self) -> str:
        return "Skewed"

    def probability(self, g: Array) -> Array:
        return np.asarray(-np.expm1(-np.exp(g / 25.0 + np.log(np.log(2.0)))))


LINKS = [
    (flmc.Sigmoid(0.05), 30.0),
    (flmc.Sigmoid(0.011), 700.0),
    (flmc.Sigmoid(0.5), 30.0),
    (flmc.Probit(0.03), 30.0),
    (flmc.Probit(0.3), 30.0),
    (flmc.Linear(1.0), 30.0),
    (flmc.Linear(0.4), 8.0),
    (Cauchy(), 30.0),
    (Skewed(), 30.0),
]


@given(seed=st.integers(0, 2**200), key=st.tuples(*[st.integers(0, 2**32 - 1)] * 4))
def test_lanes_are_seeded_like_numpy(seed: int, key: tuple[int, ...]) -> None:
    state = np.zeros(4 * LANES, np.uint32)
    kernel.seed_lane(fast._entropy(seed), np.array(key, np.uint32), state, 5)
    expected = np.random.SeedSequence(seed, spawn_key=key).generate_state(4)
    np.testing.assert_array_equal(state.reshape(4, LANES)[:, 5], expected)


def plain_xoshiro(state: list[int], count: int) -> list[int]:
    """xoshiro128++ in Python's whole numbers, from its published definition."""
    mask, s, out = 0xFFFFFFFF, list(state), []

    def turn(value: int, by: int) -> int:
        return (value << by | value >> (32 - by)) & mask

    for _ in range(count):
        out.append((turn((s[0] + s[3]) & mask, 7) + s[0]) & mask)
        t = s[1] << 9 & mask
        s[2] ^= s[0]
        s[3] ^= s[1]
        s[1] ^= s[2]
        s[0] ^= s[3]
        s[2] ^= t
        s[3] = turn(s[3], 11)
    return out


def test_words_are_those_of_xoshiro() -> None:
    state = np.random.default_rng(1).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    start = state.reshape(4, LANES).copy()
    words = np.zeros(50 * LANES, np.uint32)
    kernel.fill_words(state, words, np.uint64(50))
    for lane in (0, 1, 3, LANES - 1):
        expected = plain_xoshiro([int(word) for word in start[:, lane]], 50)
        np.testing.assert_array_equal(words.reshape(50, LANES)[:, lane], expected)


def test_normals() -> None:
    count = full(2_000_000, 200_000) // LANES // 2 * 2
    state = np.random.default_rng(2).integers(0, 2**32, 4 * LANES, dtype=np.uint32)
    words, normals = np.zeros(count * LANES, np.uint32), np.zeros(count * LANES, np.float32)
    kernel.fill_normals(state, words, normals, np.uint64(count))
    first, second = words.reshape(2, -1)
    radius = np.sqrt(-2 * np.log((first.astype(np.float64) + 0.5) / 2**32))
    signed = second.view(np.int32) * np.pi / 2**31
    expected = np.concatenate([radius * np.cos(signed), radius * np.sin(signed)])
    # Single precision: 6e-8 of up to 6.8, a few times; near u = 1 the radius, below 0.002, is
    # coarse.
    np.testing.assert_allclose(normals.reshape(expected.shape), expected, atol=4e-4)
    assert np.quantile(np.abs(normals.reshape(expected.shape) - expected), 0.999) < 3e-6
    z = normals.astype(np.float64)
    # Five standard errors of the first four moments of a standard normal.
    for power, mean, variance in ((1, 0.0, 1.0), (2, 1.0, 2.0), (3, 0.0, 15.0), (4, 3.0, 96.0)):
        assert abs((z**power).mean() - mean) < 5 * np.sqrt(variance / len(z))
    assert stats.kstest(z, "norm").pvalue > 1e-6


def thresholds(g: npt.NDArray[np.float32], curve: Curve) -> Array:
    """What words are compared with for gradients in [-1, 1], as the compiled kernel computes it."""
    part = kernel._polynomial if isinstance(curve, tuple) else kernel._interpolated

    @numba.njit
    def evaluate(values, curve, results):  # type: ignore[no-untyped-def]
        for place in range(0, len(values), vectors.WIDTH):
            vectors.store(
                results.ctypes.data, place, part(vectors.load(values.ctypes.data, place), curve)
            )

    padded = np.concatenate([g, np.zeros(-len(g) % vectors.WIDTH)]).astype(np.float32)
    results = np.empty_like(padded)
    evaluate(padded, curve, results)
    return results[: len(g)].astype(np.float64)


@pytest.mark.parametrize(("link", "clip"), LINKS, ids=lambda value: str(value))
def test_probabilities_are_the_link_s(link: flmc.Link, clip: float) -> None:
    """|implemented probability - Phi| <= 1e-6 over the clip range, rounding included."""
    link = link.bound_to(clip)
    curve = fit(link, clip)
    assert curve is not None
    g = np.linspace(-1, 1, full(200_001, 20_001)).astype(np.float32)
    implemented = np.clip(0.5 + 0.5 * thresholds(g, curve) / WORD_SCALE, 0, 1)
    # A word is rounded to 24 bits before the comparison: a threshold is as if moved by up to 64 of
    # 2^32 words.
    resolution = 64 / 2**32
    assert (
        np.abs(implemented - link.probability(clip * g.astype(np.float64))).max() + resolution
        <= 1e-6
    )


def test_links_that_cannot_be_tabulated() -> None:
    class Jump(flmc.Link):
        def probability(self, g: Array) -> Array:
            return np.where(g > 1.234567, 0.9, 0.1)

    assert fit(Jump(), 30.0) is None
    assert fit(flmc.Sign(), 30.0) is not None


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


def quiet_plan(model: flmc.Model, uplink: flmc.Uplink, **settings: object) -> flmc.Plan:
    """A plan so loud that the noise vanishes."""
    return flmc.plan(
        model,
        uplink,
        flmc.Limits(langevin="off"),
        gain=1e7,
        step_size=1e-4,
        forecast=False,
        start="zero",
        num_rounds=40,
        num_burn_in=10,
        **settings,  # type: ignore[arg-type]
    )


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
    class ByNorm(flmc.Analog):
        clips_norm = True

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=3, num_samples=200, num_devices=4))
    plan = quiet_plan(model, ByNorm(clip=20.0, snr_db=300.0))
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
    with pytest.raises(InvalidSetting, match="not quadratic"):
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


def test_sufficient_statistics_have_the_law_of_examples() -> None:
    """Means and covariances of the statistics, from the moments of the Wishart law, five standard
    errors."""
    count, dim, sizes, theta = full(20_000, 4_000), 3, (7, 2, 40), np.array([0.5, -1.0, 0.2])
    source = flmc.data.draw_linear_statistics(
        1,
        num_experiments=count,
        num_samples=49,
        dim=dim,
        num_devices=3,
        device_sizes=sizes,
        theta=theta,
        noise_variance=0.3,
        kind="sufficient",
    )
    gram, moment = (np.asarray(array) for array in vars(source.rows(range(count))).values())
    residual = moment - gram @ theta
    for device, n in enumerate(sizes):
        g, r = gram[:, device], residual[:, device]
        np.testing.assert_allclose(g, np.swapaxes(g, 1, 2))
        for i in range(dim):
            for j in range(dim):
                variance = n * (1 + (i == j))  # of a Wishart entry
                expected = n * float(i == j)
                assert abs(g[:, i, j].mean() - expected) < 5 * np.sqrt(variance / count)
                squares = (g[:, i, j] - expected) ** 2
                assert abs(squares.mean() - variance) < 5 * squares.std() / np.sqrt(count)
            assert abs(r[:, i].mean()) < 5 * r[:, i].std() / np.sqrt(count)
            # E[r^2 | G] = sigma^2 G_ii
            excess = r[:, i] ** 2 - 0.3 * g[:, i, i]
            assert abs(excess.mean()) < 5 * excess.std() / np.sqrt(count)
    assert (np.linalg.matrix_rank(gram[:20, 1]) == 2).all()
    plain = flmc.data.draw_linear_statistics(
        2,
        num_experiments=count,
        num_samples=49,
        dim=dim,
        num_devices=3,
        device_sizes=sizes,
        theta=theta,
        noise_variance=0.3,
    ).rows(range(count))
    for ours, theirs in (
        (np.linalg.det(gram[:, 0]), np.linalg.det(plain.gram[:, 0])),
        (moment[:, 1, 0], plain.moment[:, 1, 0]),
    ):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-6


@pytest.mark.parametrize("kind", flmc.data.KINDS)
def test_data_sets_do_not_depend_on_which_are_asked(kind: str) -> None:
    source = flmc.data.draw_linear_statistics(
        4, num_experiments=200, num_samples=30, num_devices=3, kind=kind
    )
    whole, part = source.rows(range(200)), source.rows(range(60, 131))
    np.testing.assert_array_equal(whole.gram[60:131], part.gram)
    np.testing.assert_array_equal(whole.moment[60:131], part.moment)


def test_a_model_that_does_not_fit_is_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    source = flmc.data.draw_linear_statistics(
        4, num_experiments=150, num_samples=60, num_devices=3, kind="sufficient"
    )
    held = flmc.LinearGaussian(source)
    monkeypatch.setattr("flmc.models.linear._MOST_HELD", 5000)
    drawn = flmc.LinearGaussian(source)
    assert held._held is not None
    assert drawn._held is None
    np.testing.assert_array_equal(held.posterior.covariance, drawn.posterior.covariance)
    plan = flmc.plan(held, flmc.Digital(), num_rounds=20, num_burn_in=10)
    for name in ("numpy", "numba"):
        first, second = (
            flmc.run(plan, model, engine=name, experiments_at_once=40).draws
            for model in (held, drawn)
        )
        np.testing.assert_array_equal(first, second)


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


@pytest.mark.skipif(
    QUICK, reason="compiles from nothing, which takes half a minute: only in the full run"
)
def test_the_first_use_says_that_it_compiles(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "flmc",
        "run",
        "--rounds",
        "5",
        "--burn-in",
        "2",
        "--chains",
        "2",
        "--json",
    ]
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    first, second = (
        subprocess.run(command, env=environment, capture_output=True, text=True, check=True)
        for _ in range(2)
    )
    assert first.stderr.count("compiling") == 1
    assert "compiling" not in second.stderr
    assert '"engine":"numba"' in first.stdout.replace(" ", "")


def test_large_seeds_are_not_rounded(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=5, num_burn_in=1)
    for name in ("numpy", "numba"):
        first, second = (flmc.run(plan, small, seed=2**90 + i, engine=name).draws for i in (0, 1))
        assert not np.array_equal(first, second)


class Own(flmc.Model):
    """A quadratic model of a user's."""

    dim, num_devices = 2, 3

    def __init__(self, offset: Array, scale: float = 1.0) -> None:
        self.cost = Quadratic(scale * np.tile(np.eye(2), (1, 3, 1, 1)), offset)
        self.smoothness = self.convexity = 3.0 * scale

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        hessian, offset = self.quadratic(experiments)
        return np.asarray(np.einsum("ekij,ecj->ecki", hessian, theta) - offset[:, None])

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic:
        return Quadratic(*(array[experiments] for array in self.cost))


def test_models_of_a_user() -> None:
    uplink = flmc.Digital(link=Cauchy())
    good = Own(np.ones((1, 3, 2)))
    plan = flmc.plan(good, uplink, num_rounds=20, num_burn_in=10)
    assert flmc.run(plan, good).engine == "numba"
    # A NaN must not reach a table's index; arrays that do not fit must not be read beyond their
    # end.
    bad = Own(np.full((1, 3, 2), np.nan))
    with pytest.raises(RunFailed, match="is not finite"):
        flmc.run(plan, bad, engine="numba")
    with pytest.raises(InvalidSetting, match="needs a quadratic model, with a Hessian"):
        flmc.run(plan, Own(np.ones((1, 2, 2))), engine="numba")
    with pytest.raises(InvalidSetting, match="must fit"):
        flmc.data.LinearStatistics(np.ones((1, 1, 5, 5)), np.ones((1, 20, 5)))

    class Robust(Own):
        def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
            return np.tanh(super().gradient(theta, experiments))

    assert flmc.run(plan, Robust(np.ones((1, 3, 2)))).engine == "numpy"


def test_far_from_the_prior() -> None:
    """Single precision is spent on deviations from the mode, even where the posterior is not
    declared."""
    model = Own(
        np.full((1, 3, 2), 1e11), scale=1e6
    )  # the mode is at 1e5, the standard deviation 6e-4
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=3000, num_burn_in=2000)
    result = flmc.run(plan, model, chains=64, engine="numba")
    assert result.engine == "numba"
    # At 1e5 single precision resolves 8e-3, ten times the standard deviation: positions that were
    # no deviations would miss by far more than 20 %.
    assert np.trace(result.covariance[0]) == pytest.approx(2 / 3e6, rel=0.2)


def test_links_of_a_user_are_their_own() -> None:
    class Shifted(flmc.Sigmoid):
        def probability(self, g: Array) -> Array:
            return super().probability(g + 4.0)

    class SoftSign(flmc.Sign):
        def probability(self, g: Array) -> Array:
            return 0.5 + 0.4 * np.tanh(g / 10.0)

    for link in (Shifted(0.05), SoftSign()):
        curve = fit(link, 30.0)
        assert curve is not None
        value = 0.5 + 0.5 * thresholds(np.array([0.1], np.float32), curve)[0] / WORD_SCALE
        assert value == pytest.approx(float(link.probability(np.array(3.0))), abs=1e-6)

    class Halved(flmc.Digital):
        def clipped(self, gradient: Array) -> Array:
            return super().clipped(gradient) / 2

    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    plan = flmc.plan(model, Halved(), flmc.Limits(privacy="off"), num_rounds=4, num_burn_in=1)
    assert choose_engine("auto", plan, model).name == "numpy"


def test_ideal_with_silent_devices(small: flmc.LinearGaussian) -> None:
    active = np.ones((60, 4))
    active[:, 0] = 0
    plan = flmc.plan(small, flmc.Ideal(), num_rounds=60, num_burn_in=20, active=active)
    plain, compiled = (
        flmc.run(plan, small, chains=full(400, 100), engine=name) for name in ("numpy", "numba")
    )
    assert compiled.clipped_fraction == 0
    # Five standard errors, where each chain counts as one draw; 1.5 is more than sqrt(2), for the
    # difference of two means.
    spread = np.sqrt(np.diagonal(plain.covariance, axis1=1, axis2=2) / full(400, 100))
    assert (np.abs(plain.mean - compiled.mean) < 5 * 1.5 * spread).all()


def test_stretches_end_with_blocks() -> None:
    """Going on inside a block draws its numbers again, so a large run must not be cut there."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(), num_rounds=1000, forecast=False)
    pace = _Pace(fast.NumbaEngine(), plan, model, 60_000, 0.5)
    done, stops = 0, []
    while done < 1000:
        until = pace.next_stop(done, 1000, None)
        pace.took(until - done, 3.0 * (until - done))
        stops.append(until)
        done = until
    assert all(stop % 128 == 0 for stop in stops[:-1])
    own = flmc.Model.from_gradient(
        lambda t: t[:, None] + np.zeros((20, 1)), prior=flmc.Normal(), dim=5, num_devices=20
    )
    slow = _Pace(NumpyEngine(), plan, own, 10, 0.5)
    slow.took(1, 3.0)
    assert slow.next_stop(5, 1000, None) == 6
    assert slow.next_stop(5, 1000, 40) == 45
    clipped = replace(
        plan, uplink=flmc.Digital(example_clip=4.0)
    )  # nobody knows how many examples there are
    assert _Pace(NumpyEngine(), clipped, model, 200, 5.0).next_stop(0, 1000, None) == 1


def test_what_the_kernel_was_built_on() -> None:
    """Numba's cache notices changes of kernel.py alone: what else is compiled must be named in
    it."""
    source = (
        Path(vectors.__file__).read_bytes()
        + repr((WORD_SCALE, ROUNDS_PER_BLOCK, list(Purpose))).encode()
    )
    assert hashlib.sha256(source).hexdigest()[:16] == kernel._BUILT_ON, "put this into kernel.py"


def test_devices_without_curvature_are_heard_by_chains_that_are_far() -> None:
    model = Own(np.zeros((1, 3, 2)))
    model.cost = Quadratic(
        np.array([1000.0, 1000.0, 0.0])[None, :, None, None] * np.eye(2),
        np.array([1e6, -1e6, 0.5])[None, :, None] * np.ones(2),
    )
    plan = flmc.plan(
        model,
        flmc.Analog(clip=1.0, snr_db=300.0),
        flmc.Limits(langevin="off"),
        gain=1e7,
        step_size=1e-2,
        forecast=False,
        start="zero",
        num_rounds=40,
        num_burn_in=1,
    )
    plain, compiled = (flmc.run(plan, model, engine=name).draws for name in ("numpy", "numba"))
    np.testing.assert_allclose(compiled, plain, atol=1e-5)


def test_numbers_beyond_single_precision() -> None:
    plan = flmc.plan(
        Own(np.ones((1, 3, 2))),
        flmc.Analog(clip=1e-12),
        num_rounds=5,
        num_burn_in=1,
        forecast=False,
    )
    with pytest.raises(RunFailed, match="too large against the clip"):
        flmc.run(plan, Own(np.ones((1, 3, 2)), scale=1e6), engine="numba")
    flat = Own(np.ones((1, 3, 2)))
    flat.smoothness, flat.convexity = 1e3, 1e-12
    assert choose_engine("auto", plan, flat).name == "numpy"


def test_whole_numbers_as_data() -> None:
    model = Own(np.ones((1, 3, 2)))
    plan = quiet_plan(model, flmc.Analog(clip=1000.0, snr_db=300.0))
    other = Own(np.ones((1, 3, 2)))
    other.cost = Quadratic(model.cost.hessian.astype(np.uint8), model.cost.offset.astype(np.uint8))
    first, second = (flmc.run(plan, m, engine="numba").draws for m in (model, other))
    np.testing.assert_array_equal(first, second)


def test_a_plan_of_another_model_is_refused() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=400, num_devices=200))
    few = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=400, num_devices=2))
    plan = flmc.plan(few, flmc.Analog(), num_rounds=5, num_burn_in=1, forecast=False)
    with pytest.raises(InvalidSetting, match="needs a quadratic model"):
        simulate(plan, model, 0, engine="numba")


def test_large_matrices_are_left_to_numpy() -> None:
    """Measured: with many chains of one data set NumPy takes half the time at dim 200, three times
    as much at 100."""
    for dim, name in ((100, "numba"), (200, "numpy")):
        source = flmc.data.draw_linear_statistics(
            0, num_experiments=1, num_samples=4000, dim=dim, kind="sufficient"
        )
        model = flmc.LinearGaussian(source)
        plan = flmc.plan(model, flmc.Digital(), forecast=False, num_rounds=2, num_burn_in=1)
        assert choose_engine("auto", plan, model).name == name


@pytest.mark.parametrize("threads", [1, 2, 7])
def test_the_first_chain_that_fails_is_told(threads: int) -> None:
    """The first chain that fails is named, whichever thread meets a failure first."""
    steep = np.isin(np.arange(2000), [1990, 701, 702, 1200])
    model = Many(np.where(steep, 50.0, 1.0))
    plan = flmc.plan(
        model, flmc.Ideal(), num_rounds=100, num_burn_in=50, step_size=0.1, start="zero"
    )
    with pytest.raises(RunFailed, match="data set 701, chain 0"):
        flmc.run(plan, model, engine="numba", threads=threads)


class Many(Own):
    """Data sets of different curvature."""

    def __init__(self, curvature: Array) -> None:
        super().__init__(np.ones((1, 3, 2)))
        self.num_experiments = len(curvature)
        hessian = curvature[:, None, None, None] * np.tile(np.eye(2), (1, 3, 1, 1))
        self.cost = Quadratic(hessian, np.ones((len(curvature), 3, 2)))
