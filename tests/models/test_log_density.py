"""Models from log densities: gradients, clipping and curvature against plain loops, and what a
practitioner does with them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data import FederatedData
from flmc.models.parameters import Layout
from support import full, full_only

jnp = pytest.importorskip("jax.numpy", reason="needs the extra jax")


def log_prior(w: Any) -> Any:
    return -0.5 * jnp.sum(w["slope"] ** 2) - 0.5 * (w["intercept"] / 3.0) ** 2


def log_likelihood(w: Any, row: Any) -> Any:
    return -jnp.logaddexp(0.0, -row["y"] * (row["x"] @ w["slope"] + w["intercept"]))


START = {"slope": np.zeros(3), "intercept": 0.0}


def draw_data(seed: int = 1, sizes: tuple[int, ...] = (7, 1, 0, 12)) -> FederatedData:
    rng = np.random.default_rng(seed)
    count = sum(sizes)
    return FederatedData(
        rng.standard_normal((count, 3)), np.where(rng.random(count) < 0.5, -1.0, 1.0), sizes
    )


@pytest.fixture(scope="module")
def model() -> flmc.Model:
    return flmc.Model.from_log_density(log_prior, log_likelihood, draw_data(), START)


def by_hand(
    data: FederatedData, theta: Array, clip: float | None = None, norm: float | None = None
) -> Array:
    """Local gradients of logistic regression, example by example; theta is intercept, slope."""
    prior = theta / np.array([9.0, 1.0, 1.0, 1.0])
    local, first = [], 0
    for size in data.device_sizes:
        total = prior / data.num_devices
        for n in range(first, first + size):
            x, y = np.append(1.0, data.features[n]), data.targets[n]
            each = -y * x / (1.0 + np.exp(y * (x @ theta)))
            if clip is not None:
                each = np.clip(each, -clip, clip)
            if norm is not None:
                each = each * min(1.0, norm / np.linalg.norm(each))
            total = total + each
        first += size
        local.append(total)
    return np.array(local)


def test_gradients_are_those_of_a_plain_loop(model: flmc.Model) -> None:
    thetas = np.random.default_rng(2).standard_normal((1, 5, 4))
    assert model.layout == Layout.of_shapes(intercept=(), slope=(3,))
    for found, words in (
        (model.gradient(thetas), {}),
        (model.clipped_gradient(thetas, 0.2), {"clip": 0.2}),
        (model.norm_clipped_gradient(thetas, 0.3), {"norm": 0.3}),
    ):
        assert found.shape == (1, 5, 4, 4)
        for chain in range(5):
            expected = by_hand(draw_data(), thetas[0, chain], **words)
            np.testing.assert_allclose(found[0, chain], expected, rtol=1e-10, atol=1e-12)


def test_slices_of_examples_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    thetas = np.random.default_rng(2).standard_normal((1, 2, 4))
    whole: list[Array] = []
    sliced: list[Array] = []
    for found, numbers in ((whole, 4_000_000), (sliced, 4 * 4 * 5)):
        monkeypatch.setattr("flmc.models.differentiation._AT_ONCE", numbers)
        model = flmc.Model.from_log_density(log_prior, log_likelihood, draw_data(), START)
        found.append(model.norm_clipped_gradient(thetas, 0.3))
    np.testing.assert_allclose(whole[0], sliced[0], rtol=1e-12)


def test_an_example_that_is_not_a_number_counts_as_nothing() -> None:
    """An entry of its gradient is 0 where single examples are clipped; others stay."""

    def broken(w: Any, row: Any) -> Any:
        # The logarithm is no number for one example, in one entry.
        return log_likelihood(w, row) + 0.0 * w["intercept"] * jnp.log(200.0 - row["x"][0])

    data = draw_data()
    features = data.features.copy()
    features[3, 0] = 1e3
    spoiled = FederatedData(features, data.targets, data.device_sizes)
    model = flmc.Model.from_log_density(log_prior, broken, spoiled, START, smoothness=10.0)
    theta = np.random.default_rng(3).standard_normal((1, 1, 4))
    found = model.clipped_gradient(theta, 0.2)[0, 0]
    assert np.isfinite(found).all()
    expected = by_hand(spoiled, theta[0, 0], clip=0.2)
    alone = FederatedData(features[3:4], data.targets[3:4], (1,))
    share = by_hand(alone, theta[0, 0], clip=0.2)[0, 0] - theta[0, 0, 0] / 9
    expected[0, 0] -= share  # the entry that is no number
    np.testing.assert_allclose(found, expected, rtol=1e-10)


def test_curvature_is_measured_or_given(model: flmc.Model) -> None:
    """At 0 the Hessian of logistic regression is largest: X'X/4 and the prior's."""
    data = draw_data()
    design = np.column_stack([np.ones(20), data.features])
    hessian = design.T @ design / 4 + np.diag([1 / 9, 1, 1, 1])
    assert model.smoothness is not None
    assert model.smoothness == pytest.approx(np.linalg.eigvalsh(hessian)[-1], rel=1e-9)
    assert model.convexity is not None
    assert 0 < model.convexity < model.smoothness
    assert not model.public
    given = flmc.Model.from_log_density(
        log_prior, log_likelihood, data, START, smoothness=20.0, convexity=0.1
    )
    assert (given.smoothness, given.convexity, given.public) == (20.0, 0.1, True)


def test_starts_have_the_spread_of_the_prior(model: flmc.Model) -> None:
    np.testing.assert_allclose(model.prior.sd, [3.0, 1.0, 1.0, 1.0], rtol=1e-9)
    given = flmc.Model.from_log_density(
        log_prior, log_likelihood, draw_data(), START, smoothness=9.0, start_sd=0.1
    )
    np.testing.assert_allclose(given.prior.sd, 0.1)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({"log_prior": lambda w: jnp.nan}, "log_prior must be one finite number"),
        ({"log_likelihood": lambda w, row: row["x"]}, "log_likelihood must be one finite number"),
        ({"log_likelihood": lambda w, row: row["z"]}, "log_likelihood failed at the start: KeyErr"),
        ({"start": {"slope": np.array([np.inf])}}, "start of 'slope' must"),
        ({"smoothness": -1.0}, "smoothness must be positive"),
        ({"smoothness": 1.0, "convexity": 2.0}, "convexity must not exceed"),
        ({"start_sd": 0.0}, "start_sd must be positive"),
    ],
    ids=["prior", "shape", "failing", "start", "smoothness", "convexity", "sd"],
)
def test_what_is_refused(words: dict[str, Any], message: str) -> None:
    usual: dict[str, Any] = {
        "log_prior": log_prior,
        "log_likelihood": log_likelihood,
        "data": draw_data(),
        "start": START,
    }
    with pytest.raises(InvalidSetting, match=message):
        flmc.Model.from_log_density(**{**usual, **words})


def test_ten_lines_of_a_practitioner(tmp_path: Path) -> None:
    """Files of two hospitals, a model, a plan, a run, and what she does with the draws: against the
    posterior by brute force on a grid."""
    rng = np.random.default_rng(5)
    for name, count in (("north", 60), ("south", 30)):
        dose = rng.standard_normal(count)
        cured = rng.random(count) < 1 / (1 + np.exp(-(0.5 + dose)))
        lines = [f"{x:.6f},{'yes' if c else 'no'}" for x, c in zip(dose, cured, strict=True)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["dose,cured", *lines]))
    data = flmc.data.read(str(tmp_path / "*.csv"), target="cured")
    start = {"slope": np.zeros(1), "intercept": 0.0}
    model = flmc.Model.from_log_density(log_prior, log_likelihood, data, start)
    uplink = flmc.Analog(snr_db=30.0)
    plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), num_rounds=1500, num_burn_in=300)
    result = flmc.run(plan, model, seed=7, chains=full(40, 20))
    assert set(result.parameters()) == {"intercept", "slope"}
    grid = np.linspace(-2, 3, 201)
    b, w = np.meshgrid(grid, grid, indexing="ij")
    logits = data.targets * (b[..., None] + w[..., None] * data.features[:, 0])
    log = -np.logaddexp(0, -logits).sum(axis=-1) - 0.5 * w**2 - b**2 / 18
    weight = np.exp(log - log.max())
    weight /= weight.sum()
    for name, values in (("intercept", b), ("slope", w)):
        mean = float((weight * values).sum())
        sd = float(np.sqrt((weight * (values - mean) ** 2).sum()))
        drawn = result.parameters()[name]
        # Means within 0.1 and spreads within 10 % of the posterior's, as the plan's 5 % of heat
        # and some thousand independent draws allow.
        assert abs(drawn.mean() - mean) < 0.1 * sd
        assert drawn.std() == pytest.approx(sd, rel=0.1)
    said = str(result.summary())
    assert "slope[0]" in said
    assert "r-hat" in said
    frame = result.to_dataframe()
    assert list(frame.columns) == ["chain", "draw", "intercept", "slope[0]"]
    assert len(frame) == result.draws.shape[0] * result.draws.shape[1]


def test_arviz_reads_the_draws(model: flmc.Model) -> None:
    pytest.importorskip("arviz_base", reason="needs the extra arviz")
    from arviz_stats import summary  # type: ignore[attr-defined]  # offered at run time

    plan = flmc.plan(model, flmc.Analog(), num_rounds=80, num_burn_in=30)
    result = flmc.run(plan, model, seed=1, chains=4)
    tree = result.to_arviz()
    assert tree["posterior"]["slope"].shape == (4, 50, 3)
    np.testing.assert_array_equal(tree["posterior"]["intercept"].values, result.draws[:, :, 0])
    table = summary(tree, round_to="none")  # type: ignore[no-untyped-call]
    rows = {row[0]: row for row in result.summary().rows}
    for name in ("intercept", "slope[0]", "slope[2]"):
        ours = [float(cell) for cell in rows[name][1:]]
        # Mean and spread, then error and effective draws, to the digits that are shown.
        assert ours[0] == pytest.approx(table.loc[name, "mean"], rel=1e-3)
        assert ours[1] == pytest.approx(table.loc[name, "sd"], rel=3e-3)  # over n, not n - 1
        assert ours[4] == pytest.approx(table.loc[name, "mcse_mean"], rel=0.06)
        assert ours[5] == pytest.approx(table.loc[name, "ess_bulk"], abs=1)
        assert ours[7] == pytest.approx(table.loc[name, "r_hat"], abs=1e-3)


def test_summary_needs_draws() -> None:
    linear = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(linear, flmc.Digital(), num_rounds=30, num_burn_in=27)
    result = flmc.run(plan, linear, chains=2)
    with pytest.raises(InvalidSetting, match="4 draws"):
        result.summary()
    none = flmc.run(plan, linear, chains=2, keep_draws=False)
    with pytest.raises(InvalidSetting, match="kept no draws"):
        none.to_dataframe()


def exploding(sizes: tuple[int, ...], first: float) -> flmc.Model:
    """A log likelihood whose gradient overflows where a feature is large."""
    features = np.ones((sum(sizes), 1))
    features[0] = first
    data = FederatedData(features, np.zeros(len(features)), sizes)
    return flmc.Model.from_log_density(
        lambda w: -0.5 * w[0] ** 2,
        lambda w, row: -1e-3 * jnp.sum(jnp.exp(w * row["x"])),
        data,
        np.zeros(1),
        smoothness=10.0,
    )


@pytest.mark.parametrize("first", [1.0, 300.0, 700.0, 709.0, 715.0, 800.0, -800.0])
@pytest.mark.parametrize("single", [False, True], ids=["double", "single precision"])
def test_no_example_exceeds_its_bound(first: float, single: bool) -> None:
    """Gradients up to and beyond the end of the range: one example moves by its norm at most."""
    import jax

    from flmc.models.local_costs import ExampleBound

    found = []
    for value in (1.0, first):
        costs = exploding((3,), value).traced(ExampleBound(0.01, by_norm=True))
        assert costs is not None
        kind = np.float32 if single else np.float64
        with jax.enable_x64():
            data = jax.tree.map(lambda leaf, kind=kind: jnp.asarray(leaf, kind), costs.data(0))
            found.append(np.array(jax.jit(costs.gradients)(jnp.ones(1, kind), data)))
    assert np.abs(found[1] - found[0]).max() <= 0.02 * (1 + 1e-5)


def test_an_example_touches_no_other_device() -> None:
    """Devices of unequal size are filled up, and none has none: the first device's example, whose
    gradient overflows, changes the first device alone."""
    theta = np.ones((1, 1, 1))
    before, after = (exploding((3, 2, 0), value).gradient(theta)[0, 0] for value in (1.0, 800.0))
    assert not np.isfinite(after[0]).all()
    assert np.array_equal(before[1:], after[1:])
    assert after[2] == pytest.approx(1.0 / 3)  # the prior's share


@full_only
def test_examples_are_clipped_wherever_chains_start() -> None:
    """The start is not the prior's mode: the prior's share there is no unclipped example."""
    data = draw_data()
    start = {"slope": np.full(3, 2.0), "intercept": 1.0}
    shifted = flmc.Model.from_log_density(log_prior, log_likelihood, data, start, smoothness=10.0)
    theta = np.random.default_rng(0).standard_normal((1, 2, 4))
    share = theta / np.array([9.0, 1.0, 1.0, 1.0]) / 4
    np.testing.assert_allclose(shifted.prior_share(theta), share, rtol=1e-12)
    limits = flmc.Limits(epsilon=8.0, scope="run", neighbouring="example")
    uplink = flmc.Analog(clip=5.0, example_clip=0.1)
    plan = flmc.plan(shifted, uplink, limits, num_rounds=20, num_burn_in=5, step_size=1e-2)
    assert plan.run_cost is not None


@pytest.mark.parametrize(
    ("targets", "signs", "noticed"),
    [((0, 1), True, True), ((-1, 1), True, False), ((0, 1), False, False)],
)
def test_a_target_of_0_for_a_likelihood_of_signs(
    targets: tuple[int, int], signs: bool, noticed: bool
) -> None:
    rng = np.random.default_rng(1)
    x = rng.standard_normal((60, 2))
    y = np.where(x[:, 0] + rng.standard_normal(60) > 0, targets[1], targets[0]).astype(float)

    def log_likelihood(w: Any, row: Any) -> Any:
        score = row["x"] @ w
        if signs:
            return -jnp.logaddexp(0.0, -row["y"] * score)
        return row["y"] * score - jnp.logaddexp(0.0, score)

    model = flmc.Model.from_log_density(
        lambda w: -0.5 * jnp.sum(w**2),
        log_likelihood,
        flmc.data.FederatedData(x, y, (20, 20, 20)),
        np.zeros(2),
    )
    planned = flmc.plan(model, flmc.Digital(), num_rounds=6, num_burn_in=2)
    told = [each for each in planned.findings if each.code == "target-without-effect"]
    assert bool(told) == noticed
    if told:
        assert "no example with y = 0 changes the likelihood" in told[0].message
