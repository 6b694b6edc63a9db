"""Batches: their mean and noise, what they do to a chain and an answer, and what they cost."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import stats

import flmc
from deploy.federations import DATA, Kit, answers_of, close, make_federation, make_plan
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.batches import (
    Batch,
    batch_covariance,
    batch_sizes,
    check_batches,
    draw_batch,
    sizes_of,
    weights_of,
)
from flmc.models.local_costs import ExampleBound
from flmc.planning.forecast import Law, forecast
from flmc.planning.prediction import midpoint_covariance
from flmc.planning.public_model import PublicModel
from flmc.planning.step_size import BATCH_HEAT, batch_heat
from support import against_sampling, full, full_only

ERRORS = 5.0
"""Standard errors up to which an average may be off: chance exceeds it once in two million."""


def regression(sizes: tuple[int, ...] = (6, 5, 1, 0), dim: int = 2, seed: int = 3) -> Any:
    """A linear regression whose features are correlated."""
    rng = np.random.default_rng(seed)
    mixed = np.eye(dim) + 0.5 * np.tri(dim, k=-1)
    features = rng.standard_normal((sum(sizes), dim)) @ mixed.T
    targets = features @ np.linspace(-0.5, 0.5, dim) + rng.standard_normal(sum(sizes))
    return flmc.LinearGaussian(flmc.LinearData(features, targets, sizes))


def logistic() -> Any:
    """A logistic regression on two devices of unlike size."""
    pytest.importorskip("jax")
    rng = np.random.default_rng(4)
    features, targets = rng.standard_normal((11, 2)), np.where(rng.random(11) < 0.5, -1.0, 1.0)
    return flmc.models.regressions.logistic(flmc.data.FederatedData(features, targets, (6, 5)))


def every_batch(size: int, count: int, device: int, others: Batch) -> Batch:
    """All batches of ``count`` of the ``size`` examples of one device, as chains; the other devices
    have the batch ``others``."""
    subsets = list(combinations(range(size), count))
    chosen = np.repeat(others.chosen, len(subsets), axis=1)
    for place, subset in enumerate(subsets):
        chosen[0, place, device, :count] = subset
    return others._replace(chosen=chosen)


@pytest.mark.parametrize("make", [regression, logistic])
@pytest.mark.parametrize("bound", [None, (0.4, True), (0.4, False)], ids=["free", "norm", "entry"])
def test_mean_and_covariance_over_all_batches_are_exact(make: Any, bound: Any) -> None:
    """Every subset of a small device is tried once: no chance is in it, so that the mean is the
    gradient of all examples, and the covariance the formula's, to rounding."""
    model, rule = make(), None if bound is None else ExampleBound(bound[0], by_norm=bound[1])
    share, sizes = 0.5, sizes_of(model)
    theta = np.array([0.3, -0.2, 0.1])[: model.dim]
    predicted = batch_covariance(model, share, rule, theta, np.random.default_rng(1))
    some = draw_batch(sizes, share, [np.random.default_rng(2)], (1, 1))
    whole = flmc.Analog(
        example_norm=bound[0] if bound and bound[1] else None,
        example_clip=bound[0] if bound and not bound[1] else None,
    ).local_gradients(model, theta[None, None])[0, 0]
    for device, (size, count) in enumerate(zip(sizes, batch_sizes(sizes, share), strict=True)):
        batches = every_batch(int(size), int(count), device, some)
        places = np.broadcast_to(theta, (1, batches.chosen.shape[1], model.dim))
        each = model.batch_gradient(places, batches, rule)[0, :, device]
        assert np.allclose(each.mean(axis=0), whole[device], rtol=1e-9, atol=1e-9)
        spread = np.cov(each.T, bias=True) if len(each) > 1 else np.zeros((model.dim, model.dim))
        assert np.allclose(spread, predicted[device], rtol=1e-9, atol=1e-9)


def test_batches_are_uniform_and_independent_of_each_other() -> None:
    """Every example is as often in a batch as any other, and pairs as often as for draws without
    replacement, within five standard errors."""
    count, size = full(20_000, 4_000), 7
    streams = [np.random.default_rng(5)]
    found = np.zeros((count, size))
    for row in found:
        row[draw_batch(np.array([size]), 0.4, streams, (1, 1)).chosen[0, 0, 0]] = 1.0
    assert (found.sum(axis=1) == 3).all()
    for rate, expected in (
        (found.mean(axis=0), 3 / 7),
        ((found[:, :-1] * found[:, 1:]).mean(axis=0), 3 / 7 * 2 / 6),
        ((found[:-1, 0] * found[1:, 0]).mean(), (3 / 7) ** 2),
    ):
        error = np.sqrt(expected * (1 - expected) / count)
        assert np.abs(rate - expected).max() < ERRORS * error


def test_a_weight_is_never_above_one_over_the_share() -> None:
    """The bound of an example's part, on which privacy rests, holds for every device."""
    rng = np.random.default_rng(6)
    for _ in range(full(3000, 300)):
        share, sizes = float(rng.uniform(1e-4, 1.0)), rng.integers(0, 10**6, 20)
        counts, weights = batch_sizes(sizes, share), weights_of(sizes, share)
        assert ((weights >= 1.0) & (weights <= 1.0 / share)).all()
        some = sizes > 0
        assert (counts[some] >= 1).all()
        assert (counts <= sizes).all()
        # Never more than one example beyond the share.
        assert (counts <= share * sizes + 1).all()
        assert np.allclose(weights[some] * counts[some], sizes[some], rtol=1e-9)


@pytest.mark.parametrize("scheme", ["analog", pytest.param("digital", marks=full_only)])
def test_a_chain_has_the_variances_that_its_plan_predicts(scheme: str) -> None:
    """A step so large that batches add a third to the variance along the steepest direction, and
    less along the others: all directions agree with the forecast. For analog symbols a forecast
    without this noise would be wrong; beside bits it is small."""
    model = regression((50,) * 4, dim=3)
    step = 0.037 / model.smoothness
    uplink: flmc.Uplink
    if scheme == "analog":
        uplink = flmc.Analog(clip=400.0, snr_db=60.0, batch_share=0.05)
    else:
        uplink = flmc.Digital(link=flmc.Linear(0.9), clip=200.0, snr_db=60.0, batch_share=0.05)
    plan = flmc.plan(
        model,
        uplink,
        flmc.Limits(privacy="off"),
        num_rounds=full(1200, 900),
        num_burn_in=300,
        effective_step_size=step,
    )
    assert plan.prediction is not None
    done = flmc.run(plan, model, chains=full(140, 70), seed=2)
    assert done.engine == "numpy"
    draws = done.draws - model.posterior.mean[0]
    values, directions = np.linalg.eigh(model.posterior.covariance[0])
    along = np.square(draws @ directions) / values
    each = along.mean(axis=1)  # (chain, direction)
    ratio, error = each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(len(each))
    predicted = _ratios(plan, model, directions, values)
    assert (np.abs(ratio - predicted) < ERRORS * error).all(), (ratio, predicted, error)
    if scheme == "digital":
        return
    alone = flmc.plan(
        model,
        flmc.replace(uplink, batch_share=1.0),
        flmc.Limits(privacy="off"),
        num_rounds=600,
        num_burn_in=300,
        step_size=plan.step_size,
        gain=plan.gain,
    )
    assert (ratio - _ratios(alone, model, directions, values))[0] > ERRORS * error[0]


def _ratios(plan: flmc.Plan, model: Any, directions: Array, values: Array) -> Array:
    """Variances of draws that a plan's forecast predicts along the posterior's axes, over the
    posterior's."""
    found = forecast(plan, model, Law.of(model.posterior))
    assert found is not None
    covariance = midpoint_covariance(
        found.chain.covariance[None], found.jacobian[None], plan.step_size
    )[0]
    away = directions.T @ (found.chain.mean - model.posterior.mean[0])
    return np.asarray((np.diag(directions.T @ covariance @ directions) + away**2) / values)


def test_an_automatic_step_leaves_no_room_for_the_noise_of_batches() -> None:
    """The step is so small that batches add 0.04 to the temperature at most, and the forecast from
    data finds that this is so."""
    model = regression((100,) * 4, dim=3)
    limits = flmc.Limits(privacy="off")
    uplink = flmc.Analog(clip=600.0, snr_db=60.0, batch_share=0.05)
    plan = flmc.plan(model, uplink, limits, num_rounds="auto")
    assert plan.effective_step_size is not None
    heat = batch_heat(0.05, plan.effective_step_size, model.smoothness)
    assert heat == pytest.approx(BATCH_HEAT, rel=1e-9)
    assert against_sampling(plan) == []
    assert plan.prediction is not None
    assert 1.0 < plan.prediction.variance_ratio_largest < 1.08
    without = flmc.plan(model, flmc.replace(uplink, batch_share=1.0), limits)
    assert without.step_size > 20 * plan.step_size


def test_a_plan_without_data_judges_batches_by_public_sizes() -> None:
    """Too large a step is a finding, with a step and a share that are none."""
    uplink = flmc.Analog(clip=400.0, snr_db=60.0, batch_share=0.02)
    settings: dict[str, Any] = {"public_smoothness": 1500.0, "public_convexity": 900.0}
    model = flmc.Model.from_gradient(
        lambda theta: np.zeros((len(theta), 4, 2)), prior=flmc.Normal(), dim=2, num_devices=4
    )
    with pytest.raises(InvalidSetting, match="batch_share needs gradients of some"):
        flmc.plan(model, uplink, **settings)
    public = PublicModel(1000, 4, 2)
    hot = flmc.plan(public, uplink, flmc.Limits(privacy="off"), step_size=2e-4)
    (finding,) = [each for each in hot.findings if each.code == "batch-noise"]
    assert finding.severity == "infeasible"
    smoothness = public.smoothness
    assert smoothness is not None
    assert finding.numbers["batch_heat"] == pytest.approx(0.5 * 2e-4 * smoothness * 49)
    cool = flmc.plan(public, uplink, flmc.Limits(privacy="off"))
    assert "batch-noise" not in [each.code for each in cool.findings]


@full_only
def test_an_answer_from_batches_holds() -> None:
    """Residuals tell the noise of batches, here of one example each, of which the plan states
    nothing: over data sets, 90 % intervals hold as often as they say, within five standard errors.
    Intervals about the same middle as wide as the exact ones, which have no noise, hold in 12 %
    fewer cases."""
    count, held, narrow = full(300, 60), 0, 0
    for seed in range(count):
        rng = np.random.default_rng(seed)
        truth = rng.standard_normal(2)
        features = rng.standard_normal((400, 2))
        targets = features @ truth + rng.standard_normal(400)
        model = flmc.LinearGaussian(flmc.LinearData(features, targets, (100,) * 4))
        uplink = flmc.Analog(clip=5000.0, snr_db=90.0, batch_share=0.01)
        plan = flmc.plan(
            model,
            uplink,
            flmc.Limits(privacy="off"),
            num_rounds=120,
            num_burn_in=20,
            step_size=0.2 / 400,
            aim="answer",
            forecast=False,
        )
        answer = flmc.run(plan, model, seed=seed).posterior()
        low, high = answer.intervals(0.9)[0].T
        held += int(((low <= truth) & (truth <= high)).sum())
        middle, sd = (low + high) / 2, np.sqrt(np.diag(model.posterior.covariance[0]))
        narrow += int((np.abs(truth - middle) <= 1.645 * sd).sum())
    # Two entries of one data set are nearly independent; the bound counts data sets alone.
    error = np.sqrt(0.9 * 0.1 / count)
    assert abs(held / (2 * count) - 0.9) < ERRORS * error
    assert narrow < held


# Privacy. The truth is computed here from the definition of the mechanism alone: whoever sees y
# knows the batches, in which the example is each round with the probability q by itself.


def known_batches_delta(epsilon: float, rounds: int, share: float, move: float) -> float:
    """Delta of ``rounds`` normal mechanisms with the noise 1, each with the shift ``move`` over the
    share where the example is in the batch, and no shift elsewhere; batches are known."""
    total = 0.0
    for count in range(1, rounds + 1):
        chance = float(stats.binom.pmf(count, rounds, share))
        total += chance * _normal_delta(epsilon, np.sqrt(count) * move / share)
    return total


@pytest.mark.parametrize("bound", ["example_clip", "example_norm"])
def test_the_statement_bounds_what_known_batches_reveal(bound: str) -> None:
    """Never below the truth, and far above that of an accountant that forgot the weights."""
    bounds: dict[str, Any] = {bound: 1.5}
    for share, rounds, gain in ((0.5, 3, 0.1), (0.1, 20, 0.02), (0.02, 50, 0.01)):
        uplink = flmc.Analog(clip=1e4, batch_share=share, **bounds)
        event = uplink.event_of_rounds(np.full((rounds, 1), gain), 1, "example")
        forgot = flmc.replace(uplink, batch_share=1.0)
        careless = forgot.event_of_rounds(np.full((rounds, 1), gain), 1, "example")
        for epsilon in (0.0, 0.3, 1.0, 3.0):
            truth = known_batches_delta(epsilon, rounds, share, 2 * 1.5 * gain)
            assert event.delta(epsilon) >= truth * (1 - 1e-9)
            # In the worst case the example is in every batch.
            assert event.delta(epsilon) == pytest.approx(
                _normal_delta(epsilon, np.sqrt(rounds) * 3.0 * gain / share), rel=1e-6, abs=1e-12
            )
        assert careless.delta(0.3) < known_batches_delta(0.3, rounds, share, 3.0 * gain)


def _normal_delta(epsilon: float, mu: float) -> float:
    """Delta of a normal mechanism with noise 1 and this shift."""
    high, low = (float(stats.norm.cdf(each - epsilon / mu)) for each in (mu / 2, -mu / 2))
    return float(high - np.exp(epsilon) * low)


def test_what_hides_a_device_does_not_know_of_batches() -> None:
    for uplink in (flmc.Analog(example_norm=2.0), flmc.Digital(example_norm=2.0)):
        one, other = (
            flmc.replace(uplink, batch_share=share).event_of_rounds(np.ones((5, 1)), 3, "device")
            for share in (1.0, 0.1)
        )
        assert one == other


@pytest.mark.parametrize("by_norm", [True, False], ids=["norm", "entry"])
@pytest.mark.parametrize("make", [regression, logistic])
def test_one_example_moves_a_gradient_as_far_as_stated_and_no_further(
    make: Any, by_norm: bool
) -> None:
    """The same batch of two neighbouring data sets: one example of the batch has another target,
    far away. For the regression the move reaches the bound."""
    settings: dict[str, Any] = {"example_norm" if by_norm else "example_clip": 0.3}
    uplink = flmc.Analog(batch_share=0.4, **settings)
    model, rng = make(), np.random.default_rng(7)
    batch = draw_batch(sizes_of(model), 0.4, [rng], (1, 1))
    largest = 0.0
    for first, second in _neighbours(model):
        for theta in rng.standard_normal((4, model.dim)):
            apart = (
                uplink.batch_gradients(first, theta[None, None], batch)
                - uplink.batch_gradients(second, theta[None, None], batch)
            )[0, 0]
            size = np.linalg.norm(apart, axis=1) if by_norm else np.abs(apart).max(axis=1)
            assert size.max() <= 2 * uplink.example_part * (1 + 1e-12)
            largest = max(largest, float(size.max()))
    if isinstance(model, flmc.LinearGaussian):
        # Six examples, and three of them in a batch: weight 2, of 2.5 that are allowed.
        assert largest == pytest.approx(2 * 0.3 * 2.0, rel=1e-9)


def _neighbours(model: Any) -> list[tuple[Any, Any]]:
    """Pairs of models whose data differ in one example of device 0."""
    pairs = []
    for example in range(6):
        if isinstance(model, flmc.LinearGaussian):
            held = model._examples
            assert held is not None
            both = []
            for far in (-1e6, 1e6):
                targets = held.targets.copy()
                targets[example] = far
                both.append(
                    flmc.LinearGaussian(flmc.LinearData(held.features, targets, held.device_sizes))
                )
            pairs.append((both[0], both[1]))
        else:
            data = model.data
            targets = data.targets.copy()
            targets[example] *= -1
            other = flmc.data.FederatedData(data.features, targets, data.device_sizes)
            pairs.append((model, flmc.models.regressions.logistic(other)))
    return pairs[: full(6, 2)] if not isinstance(model, flmc.LinearGaussian) else pairs


# Engines, federations, users' own models.


def test_compiled_engines_say_who_draws_batches() -> None:
    model = regression((20,) * 4)
    plan = flmc.plan(
        model, flmc.Analog(batch_share=0.5), flmc.Limits(privacy="off"), forecast=False
    )
    for engine, why in (
        ("numba", "batches of examples are drawn by the numpy and the jax engine"),
        ("jax", "LinearGaussian has no gradients of batches that JAX can trace"),
    ):
        pytest.importorskip(engine)
        with pytest.raises(InvalidSetting, match=why):
            flmc.run(plan, model, engine=engine)
    assert flmc.run(plan, model).engine == "numpy"


def test_batches_of_a_users_own_are_not_replaced_by_those_of_a_parent() -> None:
    """A class with other batches than those that JAX would trace runs on the NumPy engine."""
    pytest.importorskip("jax")
    from flmc.models.log_density import LogDensityModel
    from flmc.sampling.engine_choice import choose_engine

    class Own(LogDensityModel):
        def batch_gradient(self, *given: Any, **more: Any) -> Array:
            return super().batch_gradient(*given, **more)

    given = logistic()
    model = Own(lambda w: -0.5 * (w**2).sum(), lambda w, row: -((row["x"] @ w) ** 2), given.data,
                np.zeros(2), smoothness=20.0)  # fmt: skip
    plan = flmc.plan(
        given, flmc.Analog(batch_share=0.5), flmc.Limits(privacy="off"), forecast=False
    )
    assert choose_engine("auto", plan, given).name == "jax"
    assert choose_engine("auto", plan, model).name == "numpy"


def drawn_by_jax(sizes: tuple[int, ...], share: float, count: int) -> tuple[Array, Any]:
    """Whether every example is in the batch of its device, (round, device, example), over ``count``
    rounds of the JAX engine, some of them of several blocks; and how devices draw."""
    jax = pytest.importorskip("jax")
    from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
    from flmc.sampling.jax_batches import BatchDraw
    from flmc.sampling.jax_rounds import chain_key, words

    made = BatchDraw.of(np.array(sizes), share)
    blocks = -(-count // ROUNDS_PER_BLOCK)
    with jax.enable_x64():

        def of_block(key: Any) -> Any:
            index = jax.numpy.arange(ROUNDS_PER_BLOCK)
            return jax.vmap(lambda each: made.rows(jax, words, key, each))(index)

        block = jax.jit(of_block)
        keys = [chain_key(1, Purpose.BATCH, 0, 0, number) for number in range(blocks)]
        parts = [jax.tree.map(np.asarray, block(key)) for key in keys]
    rows, there = (np.concatenate(each)[:count] for each in zip(*parts, strict=True))
    found = np.zeros((count, len(sizes), max(sizes)))
    place = np.nonzero(there)
    np.add.at(found, (place[0], place[1], rows[place]), 1.0)
    assert (found.sum(axis=2) == made.counts).all()
    assert found.max() == 1.0  # without replacement
    return found, made


@pytest.mark.parametrize("share", [0.02, 0.2, 0.25, 0.3, 0.9], ids=str)
def test_the_batches_of_jax_are_uniform(share: float) -> None:
    """For devices of unlike size in one compiled array, and one without examples: every example is
    as often in a batch as any other of its device, pairs as often as for draws without replacement,
    and consecutive rounds and devices are independent, within five standard errors."""
    sizes, count = (7, 60, 0, 1, 5, 60), full(20_000, 4_000)
    found, made = drawn_by_jax(sizes, share, count)
    assert made.ordered == (share > 0.25)
    for device, (size, taken) in enumerate(zip(sizes, made.counts, strict=True)):
        own = found[:, device, :size]
        assert not found[:, device, size:].any()
        if size < 2:
            continue
        once, twice = taken / size, taken * (taken - 1) / (size * (size - 1))
        for rate, expected in (
            (own.mean(axis=0), once),
            ((own[:, :-1] * own[:, 1:]).mean(axis=0), twice),
            ((own[:, 0] * own[:, -1]).mean(), twice),
            ((own[:-1] * own[1:]).mean(axis=0), once**2),
            ((own[:-7] * own[7:]).mean(axis=0), once**2),
        ):
            error = np.sqrt(expected * (1 - expected) / (count - 7))
            assert np.abs(rate - expected).max() <= ERRORS * error
    # Two devices of one size: their batches have nothing to do with each other.
    once = made.counts[1] / 60
    error = np.sqrt(once**2 * (1 - once**2) / count)
    assert np.abs((found[:, 1] * found[:, 5]).mean(axis=0) - once**2).max() <= ERRORS * error


def test_jax_draws_as_many_indices_as_a_batch_needs() -> None:
    """Of a device with a million examples, a few more than the batch has: nothing goes with the
    number of examples."""
    pytest.importorskip("jax")
    from flmc.sampling.jax_batches import BatchDraw

    for size, share, most in ((10**6, 0.01, 1.02), (10**6, 0.25, 1.16), (10**5, 0.001, 1.06)):
        made = BatchDraw.of(np.array([size]), share)
        assert made.counts[0] <= made.num_rows <= most * made.counts[0]
        assert made.weights.dtype == np.float32
        np.testing.assert_allclose(made.weights, 1 / share, rtol=1e-6)


@full_only
def test_a_batch_that_came_out_short_is_drawn_anew() -> None:
    """With hardly more indices than the batch has, most draws have too few different ones: batches
    are whole, and uniform, all the same."""
    jax = pytest.importorskip("jax")
    from flmc.base.randomness import Purpose
    from flmc.sampling.jax_batches import BatchDraw
    from flmc.sampling.jax_rounds import chain_key, words

    made = BatchDraw.of(np.array([20, 16]), 0.25)._replace(num_rows=5)
    rounds, blocks = 128, 80
    with jax.enable_x64():

        def of_block(key: Any) -> Any:
            return jax.vmap(lambda each: made.rows(jax, words, key, each))(np.arange(rounds))

        block = jax.jit(of_block)
        parts = [
            jax.tree.map(np.asarray, block(chain_key(2, Purpose.BATCH, 0, 0, number)))
            for number in range(blocks)
        ]
    rows, there = (np.concatenate(each) for each in zip(*parts, strict=True))
    assert (there.sum(axis=2) == made.counts).all()
    for device, (size, taken) in enumerate(zip(made.sizes, made.counts, strict=True)):
        counted = np.bincount(rows[:, device][there[:, device]], minlength=int(size))
        expected = taken / size
        error = np.sqrt(expected * (1 - expected) / len(rows))
        assert np.abs(counted / len(rows) - expected).max() < ERRORS * error


@pytest.mark.parametrize("bound", [None, (0.4, True), (0.4, False)], ids=["free", "norm", "entry"])
def test_the_gradients_of_jax_batches_are_those_of_the_definition(bound: Any) -> None:
    """With padding in other places, in single precision, and a device without examples."""
    jax = pytest.importorskip("jax")
    rule = None if bound is None else ExampleBound(bound[0], by_norm=bound[1])
    rng = np.random.default_rng(8)
    features, targets = rng.standard_normal((14, 2)), np.where(rng.random(14) < 0.5, -1.0, 1.0)
    data = flmc.data.FederatedData(features, targets, (6, 0, 3, 5))
    model = flmc.models.regressions.logistic(data)
    costs = model.traced(rule)
    assert costs is not None
    assert costs.batch is not None
    sizes, theta = sizes_of(model), np.array([0.3, -0.2, 0.1])[: model.dim]
    batch = draw_batch(sizes, 0.5, [rng], (1, 1))
    expected = model.batch_gradient(theta[None, None], batch, rule)[0, 0]
    num_rows = batch.chosen.shape[-1] + 2
    rows, counts = np.zeros((2, 4, num_rows))
    rows[:, 1:-1] = batch.chosen[0, 0]
    counts[:, 1:-1] = np.arange(num_rows - 2) < batch.sizes[:, None]
    with jax.enable_x64():
        single = jax.tree.map(lambda each: jax.numpy.asarray(each, np.float32), costs.data(0))
        found = costs.batch(
            theta.astype(np.float32), single, rows.astype(np.int32), counts.astype(np.float32),
            batch.weights.astype(np.float32),
        )  # fmt: skip
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("share", [0.05, pytest.param(0.4, marks=full_only)])
def test_engines_agree_about_chains_with_batches(share: float) -> None:
    """Means and mean squares of the draws of independent chains of both engines, within five
    standard errors of their difference; a step so large that batches widen the chain by more than
    that, as a run without them shows."""
    pytest.importorskip("jax")
    rng = np.random.default_rng(4)
    features = rng.standard_normal((240, 2)) @ np.array([[1.0, 0.0], [0.6, 0.8]])
    targets = np.where(rng.random(240) < 1 / (1 + np.exp(-features[:, 0])), 1.0, -1.0)
    data = flmc.data.FederatedData(features, targets, (100, 60, 75, 5))
    model = flmc.models.regressions.logistic(data)
    # No gradient of a chain reaches the clip, and the gain is the calibrated one.
    uplink = flmc.Analog(clip=400.0, snr_db=60.0, batch_share=share)
    sizes: dict[str, Any] = {"num_rounds": full(1200, 500), "num_burn_in": 200, "forecast": False}
    step = {"effective_step_size": 0.2 / model.smoothness}
    plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), **sizes, **step)
    alone = flmc.plan(
        model, flmc.replace(uplink, batch_share=1.0), flmc.Limits(privacy="off"), **sizes,
        step_size=plan.step_size, gain=plan.gain,
    )  # fmt: skip
    chains = full(120, 50)
    found, centre = {}, np.array([0.16, 1.01, 0.0])
    for name, of, engine in (
        ("jax", plan, "jax"), ("numpy", plan, "numpy"), ("alone", alone, "jax"),
    ):  # fmt: skip
        draws = flmc.run(of, model, seed=11, chains=chains, engine=engine).draws
        away = draws - centre
        each = np.concatenate([away.mean(axis=1), np.square(away).mean(axis=1)], axis=1)
        found[name] = (each.mean(axis=0), each.std(axis=0, ddof=1) / np.sqrt(chains))

    def apart(one: str, other: str) -> Array:
        (first, error), (second, own) = found[one], found[other]
        return np.asarray(np.abs(first - second) / np.hypot(error, own))

    assert (apart("jax", "numpy") < ERRORS).all(), apart("jax", "numpy")
    assert share > 0.1 or apart("jax", "alone").max() > ERRORS


@pytest.mark.parametrize(("make", "engine"), [(regression, "numpy"), (logistic, "jax")])
def test_a_run_that_is_cut_has_the_batches_of_one_that_is_not(
    tmp_path: Path, make: Any, engine: str
) -> None:
    model = make()
    plan = flmc.plan(
        model,
        flmc.Digital(batch_share=0.3),
        flmc.Limits(privacy="off"),
        num_rounds=150,
        num_burn_in=20,
        forecast=False,
    )
    whole = flmc.run(plan, model, seed=3, chains=2)
    assert whole.engine == engine
    cut = flmc.run(plan, model, seed=3, chains=2, out=tmp_path / "run", checkpoint_rounds=37)
    assert (whole.draws == cut.draws).all()
    other = flmc.run(plan, model, seed=3, chains=1)
    assert (whole.draws[0] == other.draws[0]).all()  # a chain has batches of its own


def test_whitened_models_have_the_batches_of_their_own() -> None:
    model = regression()
    whitened = flmc.whiten(model, scale=np.array([[0.3, 0.1], [0.0, 0.5]]))
    check_batches(whitened, None)
    batch = draw_batch(sizes_of(model), 0.5, [np.random.default_rng(9)], (1, 1))
    phi = np.array([[[0.3, -0.2]]])
    coordinates = whitened.coordinates
    assert coordinates is not None
    own = model.batch_gradient(coordinates.to_model(phi), batch)
    assert np.allclose(whitened.batch_gradient(phi, batch), own @ coordinates.scale, rtol=1e-12)


def test_wrong_batches_of_a_users_model_are_refused() -> None:
    class Forgetful(flmc.Model):
        dim, num_devices, device_sizes = 1, 2, (3, 4)

        def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
            return np.repeat((theta + 1.0)[:, :, None], 2, axis=2)

        def batch_gradient(
            self,
            theta: Array,
            batch: Batch,
            example_bound: ExampleBound | None = None,
            experiments: slice = slice(None),
        ) -> Array:
            return 0.5 * self.gradient(theta)

    with pytest.raises(InvalidSetting, match="does not fit its other gradients"):
        check_batches(Forgetful(), None)


def test_a_device_repeats_the_bytes_of_a_batch_after_a_restart(tmp_path: Path) -> None:
    """A device draws another batch for every gradient; what it sent is in its journal."""
    uplink = flmc.Analog(batch_share=0.2, clip=60.0)
    kit = Kit(tmp_path, federation=make_federation(make_plan(uplink)))
    drawn = kit.gradient(0)
    at = np.array([0.1, 0.2, 0.3])
    many = np.stack([drawn(at) for _ in range(full(4000, 800))])
    assert len(np.unique(many[:, 0])) > 100
    whole = flmc.LinearGaussian(DATA).gradient(at[None, None])[0, 0, 0]
    error = many.std(axis=0) / np.sqrt(len(many))
    assert (np.abs(many.mean(axis=0) - whole) < ERRORS * error).all()

    sent = []
    for _ in range(2):
        device = kit.device()
        device.connected(0.0)
        device.receive(kit.plan_message(), 0.0)
        said = device.receive(kit.announce(1), 0.0)
        (answer,) = answers_of([*said, *device.receive(kit.theta(1, at.tolist()), 0.0)])
        sent.append(answer.message)
        close(device)
    assert sent[0] == sent[1]


@pytest.mark.parametrize("name", ["example_rule", "clips_examples"])
def test_a_class_that_changes_the_bound_of_examples_has_no_statement(name: str) -> None:
    """What bounds the examples of a batch is part of what is sent: whoever changes it states the
    privacy himself."""
    loose = type("Loose", (flmc.Analog,), {name: property(lambda self: None)})
    uplink = loose(clip=100.0, snr_db=60.0, example_clip=2.0, batch_share=0.5)
    limits = flmc.Limits(privacy="off", neighbouring="example")
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_devices=4, num_samples=80, dim=2))
    sizes: dict[str, Any] = {"num_rounds": 20, "num_burn_in": 5, "step_size": 1e-3, "gain": 1e-3}
    assert flmc.plan(model, uplink, limits, **sizes, forecast=False).unknown_privacy is not None
    plain = flmc.Analog(clip=100.0, snr_db=60.0, example_clip=2.0, batch_share=0.5)
    assert flmc.plan(model, plain, limits, **sizes, forecast=False).unknown_privacy is None
