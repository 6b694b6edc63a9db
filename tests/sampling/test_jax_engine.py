"""The JAX engine against the three roles, the NumPy engine, and plain computations."""

from __future__ import annotations

import gc
import weakref
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend.random import threefry2x32_p
from scipy import stats

import flmc
from contracts.registered import fadings
from flmc.base.arrays import Array
from flmc.base.clipping import clip_norm
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import Purpose
from flmc.models.regressions import logistic
from flmc.models.wide_linear import WideLinear
from flmc.sampling import moments
from flmc.sampling.jax_engine import JaxEngine
from flmc.sampling.jax_rounds import AT_ONCE, chain_key, normals, scaled_to_norm, words
from flmc.sampling.langevin import Noise, State, step
from flmc.sampling.schedule import draw_schedule
from sampling.problems import Cauchy, engine_differences
from support import QUICK, few, full, full_only


def counted(key: Any, dim: int, counter: int) -> tuple[Any, Any]:
    entry = np.arange(dim, dtype=np.uint32)
    first, second = words(np.asarray(key, np.uint32), entry, np.uint32(counter))
    return np.asarray(first), np.asarray(second)


def test_words_are_those_of_threefry() -> None:
    """JAX's own primitive as the second computation."""
    key = np.array([123456789, 987654321], np.uint32)
    entry = np.arange(1000, dtype=np.uint32)
    ours = counted(key, 1000, 77)
    theirs = threefry2x32_p.bind(  # type: ignore[no-untyped-call]
        *(jnp.uint32(word) for word in key), jnp.asarray(entry), jnp.full(1000, 77, jnp.uint32)
    )
    for one, other in zip(ours, theirs, strict=True):
        assert np.array_equal(one, np.asarray(other))


def test_normals_are_normal() -> None:
    """Kolmogorov-Smirnov at a level of 1e-6, and the fourth moment within 5 standard errors
    (variance of z^4 is 96)."""
    count = full(1_000_000, 100_000)
    drawn = np.asarray(normals(jnp, *map(jnp.asarray, counted([3, 5], count, 1))), np.float64)
    assert stats.kstest(drawn, "norm").pvalue > 1e-6
    assert abs(np.mean(drawn**4) - 3.0) < 5 * np.sqrt(96 / count)


def test_streams_have_keys_of_their_own() -> None:
    places = [(p, e, c, b) for p in (3, 4) for e in (0, 1) for c in (0, 1) for b in (0, 1)]
    keys = {tuple(chain_key(5, Purpose(p), e, c, b).tolist()) for p, e, c, b in places}
    assert len(keys) == len(places)


def uniforms(seed: int, chain: int, block: int, index: int, shape: tuple[int, int]) -> Array:
    """Uniform numbers that the loop draws for the devices of one round, (device, dim)."""
    devices, dim = shape
    key = chain_key(seed, Purpose.QUANTISER, 0, chain, block)
    groups = -(-devices // AT_ONCE)
    low = counted(key, dim, index * (groups + 1) + groups)[0] & np.uint32(0xFFFF)
    found = []
    for group in range(groups):
        for word in counted(key, dim, index * (groups + 1) + group):
            found += [(word & np.uint32(0xFFFF0000)) | low, (word << np.uint32(16)) | low]
    # A word with sign is below 2^31 psi where the number in [0, 1) is below (1 + psi)/2.
    signed = np.stack(found[:devices]).view(np.int32).astype(np.float64)
    return np.asarray((signed + 2.0**31) / 2.0**32)


UPLINKS = {
    "sigmoid": flmc.Digital(link=flmc.Sigmoid(0.07)),
    "probit": flmc.Digital(link=flmc.Probit(0.05)),
    "linear": flmc.Digital(link=flmc.Linear(1.0), clip=20.0),
    "sign": flmc.Digital(link=flmc.Sign()),
    "norm": flmc.Digital(clipping="norm", clip=25.0),
    "analog": flmc.Analog(),
    "analog norm": flmc.Analog(clipping="norm", clip=25.0),
    "ideal": flmc.Ideal(),
    "faded": flmc.Digital(fading=fadings()["rayleigh"], csi_error=0.2, snr_db=30),
}


@pytest.mark.parametrize("devices", [7] if QUICK else [4, 7])
@pytest.mark.parametrize("name", list(UPLINKS)[::2] if QUICK else UPLINKS)
def test_rounds_are_the_three_roles(name: str, devices: int) -> None:
    """The same random numbers through the roles, in double precision: equal to the rounding of
    single precision, over so few rounds that no bit ties."""
    data = flmc.data.draw_linear(seed=5, num_samples=80, dim=3, num_devices=devices)
    model = flmc.LinearGaussian(data)
    policy = flmc.RandomDevices(devices - 1) if name in ("sigmoid", "analog") else None
    gain = 0.02 if name.startswith("analog") else 0.2
    settings: dict[str, Any] = {} if name == "ideal" else {"step_size": 2e-3, "gain": gain}
    plan = flmc.plan(
        model,
        UPLINKS[name],
        flmc.Limits(langevin="off", privacy="off"),
        num_rounds=12,
        num_burn_in=2,
        scheduler=policy or flmc.AllDevices(),
        **settings,
    )
    engine = JaxEngine()
    assert engine.obstacle(plan, model) is None
    chains = engine.start(plan, model, 9, 2, keep_draws=True)
    state = State(engine.theta(chains, model)[:, :1], 0)
    engine.advance(chains, plan, model, 9, 12)
    schedule = draw_schedule(plan, 9, range(1), 0)
    assert chains.path is not None
    for index in range(12):
        key = chain_key(9, Purpose.CHANNEL, 0, 0, 0)
        normal = np.asarray(normals(jnp, *map(jnp.asarray, counted(key, 3, index))), np.float64)
        bits = uniforms(9, 0, 0, index, (devices, 3))[None, None]
        uniform = bits if plan.uplink.randomised else None
        noise = Noise(normal[None, None], uniform)
        state, _ = step(state, noise, schedule.round(index), model.gradient, plan.uplink)
        if index >= 2:
            found = chains.path.kept[:, :1, index - 2]
            np.testing.assert_allclose(found, state.theta, rtol=2e-5, atol=2e-6)


def logistic_model() -> flmc.Model:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 2))
    y = np.where(rng.random(60) < 1 / (1 + np.exp(-x[:, 0])), 1.0, -1.0)
    data = flmc.data.FederatedData(x, y, (30, 10, 20))
    return logistic(data, feature_norm=5.0)


@pytest.mark.parametrize("scheme", few(["digital", "analog"], 1))
def test_the_same_samples_as_numpy(scheme: str) -> None:
    """Mean and variance of kept rounds of a logistic regression over ten seeds, |z| < 4."""
    model = logistic_model()
    uplink: flmc.Uplink = flmc.Analog(clip=10.0)
    if scheme == "digital":
        uplink = flmc.Digital(clip=10.0, link=flmc.Sigmoid(0.1))
    plan = flmc.plan(model, uplink, num_rounds=500, num_burn_in=200)
    difference = engine_differences(plan, model, full(10, 4), ("jax", "numpy"))
    variance = difference.var(axis=0, ddof=1).mean(axis=(1, 2), keepdims=True)
    z = difference.mean(axis=0) / np.sqrt(variance / len(difference))
    assert (np.abs(z) < (4 if len(difference) >= 10 else 6)).all()


@pytest.mark.parametrize("other", ["numpy", "numba"])
def test_linear_regression_by_all_engines(other: str) -> None:
    data = flmc.data.draw_linear(seed=5, num_samples=80, dim=2, num_devices=4, num_experiments=2)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, flmc.Digital(), num_rounds=300, num_burn_in=100)
    difference = engine_differences(plan, model, full(10, 4), ("jax", other))
    variance = difference.var(axis=0, ddof=1).mean(axis=(1, 2), keepdims=True)
    z = difference.mean(axis=0) / np.sqrt(variance / len(difference))
    assert (np.abs(z) < (4 if len(difference) >= 10 else 6)).all()


def test_sums_have_the_digits_of_double_precision() -> None:
    """10 000 rounds far from the centre: a sum in single precision alone would be wrong by 1e-4."""
    model = logistic_model()
    plan = flmc.plan(model, flmc.Ideal(), num_rounds=full(10_000, 2000), num_burn_in=10)
    result = flmc.run(plan, model, seed=1, chains=2, engine="jax")
    deviations = result.draws - model.prior.mean
    np.testing.assert_allclose(result.moments.sums[0], deviations.sum(axis=1), rtol=1e-11)
    products = np.einsum("cri,crj->cij", deviations, deviations)
    # A product of two numbers of single precision is rounded to it before it is added.
    np.testing.assert_allclose(result.moments.products[0], products, rtol=2e-7, atol=1e-8)


@pytest.mark.parametrize("engine", ["numpy", "numba", "jax"])
def test_thinned_draws_are_every_so_many_th(engine: str) -> None:
    model = flmc.LinearGaussian(
        flmc.data.draw_linear(seed=5, num_samples=80, dim=2, num_devices=4, num_experiments=2)
    )
    plan = flmc.plan(model, flmc.Digital(), num_rounds=300, num_burn_in=37)
    every = flmc.run(plan, model, seed=1, chains=3, engine=engine)
    some = flmc.run(plan, model, seed=1, chains=3, engine=engine, thin=7)
    assert some.draws.shape == (6, 37, 2)
    assert np.array_equal(some.draws, every.draws[:, 6::7])
    assert np.array_equal(some.mean, every.mean)
    with pytest.raises(InvalidSetting, match="thin must be at most the 263 rounds"):
        flmc.run(plan, model, engine=engine, thin=264)


def test_a_thinned_record_goes_on_from_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Draws beyond the limit are in a file without a name; cut and resumed, they are the same."""
    monkeypatch.setattr("flmc.sampling.path.MOST_DRAWN_BYTES", 100)
    model = logistic_model()
    plan = flmc.plan(model, flmc.Digital(clip=10.0), num_rounds=300, num_burn_in=37)
    whole = flmc.run(plan, model, seed=1, chains=2, thin=3)
    assert whole.engine == "jax"
    asked = iter([False, True] + 100 * [True])
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            plan,
            model,
            seed=1,
            chains=2,
            thin=3,
            out=tmp_path / "record",
            checkpoint_rounds=50,
            stop=lambda: next(asked),
        )
    resumed = flmc.resume(tmp_path / "record", plan, model)
    assert isinstance(resumed.chains, np.memmap)
    assert np.array_equal(whole.draws, resumed.draws)
    assert np.array_equal(whole.draws, flmc.load(tmp_path / "record").draws)
    assert not [path for path in (tmp_path / "record").iterdir() if path.name.startswith("tmp")]


@pytest.mark.parametrize("engine", ["numpy", "jax"])
def test_variances_alone_where_entries_are_many(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    data = flmc.data.draw_linear(seed=5, num_samples=40, dim=6, num_devices=4)
    model = WideLinear(data)
    plan = flmc.plan(model, flmc.Digital(), num_rounds=60, num_burn_in=20)
    whole = flmc.run(plan, model, seed=1, chains=2, engine=engine)
    monkeypatch.setattr(moments, "MOST_ENTRIES", 5)
    some = flmc.run(plan, model, seed=1, chains=2, engine=engine, out=tmp_path / "record")
    np.testing.assert_allclose(
        some.variance, np.diagonal(whole.covariance, axis1=1, axis2=2), rtol=1e-6
    )
    with pytest.raises(InvalidSetting, match="only variances"):
        _ = some.covariance
    kept = {"mean", "variance", "draws", "positions"}
    assert set(flmc.load(tmp_path / "record").arrays) == kept
    assert "sd" in str(some)


@full_only
def test_ten_thousand_entries() -> None:
    """Gradients of WideLinear by JAX and NumPy, moments without a covariance."""
    data = flmc.data.draw_linear(seed=5, num_samples=40, dim=10_000, num_devices=4)
    model = WideLinear(data)
    plan = flmc.plan(model, flmc.Digital(), num_rounds=12, num_burn_in=4)
    result = flmc.run(plan, model, chains=2, engine="jax", thin=4)
    assert result.draws.shape == (2, 2, 10_000)
    assert np.isfinite(result.variance).all()


def test_what_it_refuses() -> None:
    model = logistic_model()
    own = flmc.plan(model, flmc.Digital(link=Cauchy(), clip=10.0), num_rounds=5, num_burn_in=1)
    with pytest.raises(InvalidSetting, match="a link of its own"):
        flmc.run(own, model, engine="jax")
    plain = flmc.Model.from_gradient(
        lambda theta: theta[:, None] * np.ones((1, 2, 1)),
        prior=flmc.Normal(),
        dim=2,
        num_devices=2,
        smoothness=3.0,
    )
    plan = flmc.plan(plain, flmc.Digital(), num_rounds=5, num_burn_in=1)
    with pytest.raises(InvalidSetting, match="no gradients that JAX can trace"):
        flmc.run(plan, plain, engine="jax")

    class Own(type(model)):  # type: ignore[misc]
        def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
            return 2.0 * super().gradient(theta, experiments)  # type: ignore[no-any-return]

    model.__class__ = Own
    known = flmc.plan(model, flmc.Digital(clip=10.0), num_rounds=5, num_burn_in=1)
    with pytest.raises(InvalidSetting, match="a gradient of its own"):
        flmc.run(known, model, engine="jax")


def test_chains_that_leave_the_numbers_are_named() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=5, num_samples=80, num_devices=4))
    blown = flmc.plan(model, flmc.Ideal(), step_size=10.0, num_rounds=300, num_burn_in=1)
    with pytest.raises(flmc.errors.RunFailed, match="not finite within rounds 1 to"):
        flmc.run(blown, model, engine="jax")


@pytest.mark.parametrize(
    "gradient",
    [
        [3.0, 4.0, 0.0],
        [0.0, 0.0, 0.0],
        [np.nan, 30.0, 40.0],
        [np.inf, 5.0, -np.inf],
        [1e30, 1e30, -1e30],
        [2e38, 2e38, 0.0],
        [1e-30, 0.0, 0.0],
    ],
)
def test_norms_are_clipped_as_defined(gradient: list[float]) -> None:
    expected = clip_norm(np.array(gradient), 10.0)
    found = np.asarray(scaled_to_norm(jnp, jnp.array(gradient, jnp.float32), jnp.float32(10.0)))
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_gradients_that_are_not_numbers_count_like_numpy_s() -> None:
    """A log likelihood that is NaN beyond a place."""
    rng = np.random.default_rng(3)
    data = flmc.data.FederatedData(rng.standard_normal((20, 1)), rng.standard_normal(20), (10, 10))

    def log_likelihood(w: Any, row: Any) -> Any:
        return 1e-9 * jnp.sqrt(0.2 - w[0]) - 0.5 * (row["y"] - w[0]) ** 2

    model = flmc.Model.from_log_density(
        lambda w: -0.5 * w[0] ** 2, log_likelihood, data, jnp.zeros(1), smoothness=21.0
    )
    plan = flmc.plan(model, flmc.Analog(), num_rounds=400, num_burn_in=100, step_size=0.01)
    fractions = []
    for engine in ("jax", "numpy"):
        result = flmc.run(plan, model, seed=2, chains=8, engine=engine)
        fractions.append(result.num_undefined / (400 * 8 * 2))
    assert fractions[0] > 0.01
    # Chains of 300 correlated rounds: a tenth of them as independent, five standard errors.
    error = 5 * np.sqrt(2 * fractions[1] / (400 * 8 / 10))
    assert abs(fractions[0] - fractions[1]) < error


def test_a_user_s_double_precision_changes_nothing() -> None:
    model = logistic_model()
    plan = flmc.plan(model, flmc.Digital(clip=10.0), num_rounds=40, num_burn_in=10)
    before = flmc.run(plan, model, engine="jax").draws
    with jax.enable_x64():
        assert np.array_equal(flmc.run(plan, model, engine="jax").draws, before)


@full_only
def test_constants_in_double_precision_are_taken() -> None:
    """A user's arrays of NumPy, used in double precision before: the same gradients, and a run."""
    rng = np.random.default_rng(0)
    features, targets = rng.standard_normal((60, 3)), np.sign(rng.standard_normal(60))
    data = flmc.data.FederatedData(features, targets, (30, 10, 20))
    sd, centre = np.array([1.0, 2.0, 3.0]), np.arange(3.0)
    model = flmc.Model.from_log_density(
        lambda w: -0.5 * jnp.sum(((w - centre) / sd) ** 2),
        lambda w, row: -jnp.logaddexp(0.0, -row["y"] * (row["x"] * sd) @ w),
        data,
        np.zeros(3),
    )
    costs = model.traced()
    assert costs is not None
    at = np.array([0.3, -0.2, 0.1])
    with jax.enable_x64():
        found = costs.gradients(at.astype(np.float32), costs.data(0))
    np.testing.assert_allclose(found, model.gradient(at[None, None])[0, 0], rtol=1e-5)
    plan = flmc.plan(model, flmc.Digital(), num_rounds=50, num_burn_in=10)
    assert np.isfinite(flmc.run(plan, model, engine="jax").draws).all()


def test_a_silent_device_is_not_heard_whatever_it_holds() -> None:
    """Without a clip, a silent device whose gradient is beyond single precision."""
    data = flmc.data.FederatedData(np.ones((4, 1)), np.array([0.0, 0.0, 0.0, 1e39]), (1, 1, 1, 1))
    model = flmc.Model.from_log_density(
        lambda w: -0.5 * w[0] ** 2,
        lambda w, row: -0.5 * (row["y"] - w[0]) ** 2,
        data,
        np.zeros(1),
        smoothness=5.0,
    )
    silent = flmc.GivenDevices(np.tile([1.0, 1.0, 1.0, 0.0], (20, 1)))
    plan = flmc.plan(
        model, flmc.Ideal(), num_rounds=20, num_burn_in=5, scheduler=silent, forecast=False
    )
    engine = JaxEngine()
    chains = engine.start(plan, model, 0, 1, keep_draws=False)
    engine.advance(chains, plan, model, 0, 20)
    assert np.isfinite(chains.position).all()


def test_a_model_goes_when_nobody_uses_it() -> None:
    model = logistic_model()
    plan = flmc.plan(model, flmc.Digital(clip=10.0), num_rounds=10, num_burn_in=2)
    flmc.run(plan, model, engine="jax")
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None
