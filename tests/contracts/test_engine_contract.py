"""Every engine keeps the contract, for everything registered that a plan can have: cutting a run
changes no bit, theta is in the model's coordinates, and a record resumes to the same bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import flmc
from contracts.registered import BURN_IN, DIM, ROUNDS, model, plan, plans
from flmc.base.arrays import Array
from flmc.sampling.engine import Engine, Resources
from flmc.sampling.engine_choice import ENGINES, choose_engine
from flmc.settings import registered
from support import QUICK

NAMES = [name for name in ENGINES if name != "auto"]


def test_every_engine_is_registered() -> None:
    assert registered.ENGINES.names == ENGINES
    for name in NAMES:
        assert issubclass(registered.ENGINES[name].maker, Engine)
        assert registered.ENGINES[name].maker().name == name


def cases() -> list[tuple[str, str]]:
    """Engines and plans; JAX compiles for each of them, so that a quick run has a few."""
    every = [(name, what) for name in NAMES for what in plans()]
    few = list(plans())[::4]
    return [(name, what) for name, what in every if not QUICK or name != "jax" or what in few]


def engine_for(name: str, of: flmc.Plan, at: flmc.Model) -> Engine:
    """The engine; a test is skipped where the engine says by name why it cannot run the plan."""
    engine: Engine = registered.ENGINES[name].maker()
    obstacle = engine.obstacle(of, at)
    if obstacle is not None:
        pytest.skip(f"the engine says: {obstacle}")
    return engine


@pytest.mark.parametrize(("name", "what"), cases())
def test_cutting_changes_no_bit(name: str, what: str) -> None:
    problem = model(2)
    planned = plan(what, problem)
    engine = engine_for(name, planned, problem)
    whole, cut = (engine.start(planned, problem, 9, 3, keep_draws=True) for _ in range(2))
    engine.advance(whole, planned, problem, 9, ROUNDS)
    for until in (1, BURN_IN + 3, 127, 128, 129, ROUNDS):
        resources = Resources(threads=1, experiments_at_once=1)
        engine.advance(cut, planned, problem, 9, until, resources)
        assert cut.round == until
    assert whole.draws is not None
    assert cut.draws is not None
    assert np.array_equal(whole.draws, cut.draws)
    assert np.array_equal(whole.moments.products, cut.moments.products)
    assert whole.num_clipped == cut.num_clipped


@pytest.mark.parametrize("share", [0.2, 0.6])
@pytest.mark.parametrize("name", [each for each in NAMES if each != "numba"])
def test_cutting_changes_no_bit_of_batches(name: str, share: float, tmp_path: Path) -> None:
    """Devices of unlike size, and one without examples; and a record of the run resumes."""
    pytest.importorskip("jax", reason="needs the extra jax")
    rng = np.random.default_rng(3)
    features, targets = rng.standard_normal((31, 2)), np.where(rng.random(31) < 0.5, -1.0, 1.0)
    problem = flmc.models.regressions.logistic(
        flmc.data.FederatedData(features, targets, (20, 1, 0, 10))
    )
    planned = flmc.plan(
        problem,
        flmc.Digital(batch_share=share),
        flmc.Limits(privacy="off"),
        num_rounds=ROUNDS,
        num_burn_in=BURN_IN,
        forecast=False,
    )
    engine: Engine = registered.ENGINES[name].maker()
    assert engine.why_not(planned, problem) is None
    whole, cut = (engine.start(planned, problem, 9, 3, keep_draws=True) for _ in range(2))
    engine.advance(whole, planned, problem, 9, ROUNDS)
    for until in (1, BURN_IN + 3, 127, 128, 129, ROUNDS):
        engine.advance(cut, planned, problem, 9, until)
    assert whole.draws is not None
    assert cut.draws is not None
    assert np.array_equal(whole.draws, cut.draws)
    assert np.array_equal(whole.moments.products, cut.moments.products)
    asked = iter([False, True] + 100 * [True])
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            planned, problem, 9, 3, engine=name, out=tmp_path / "record", checkpoint_rounds=50,
            stop=lambda: next(asked),
        )  # fmt: skip
    resumed = flmc.resume(tmp_path / "record", planned, problem)
    assert np.array_equal(whole.draws[0], resumed.draws)


@pytest.mark.parametrize("name", NAMES)
def test_theta_is_in_the_model_s_coordinates(name: str) -> None:
    problem = model(2)
    planned = plan("scheme digital", problem)
    engine = engine_for(name, planned, problem)
    chains = engine.start(planned, problem, 9, 3, keep_draws=True)
    engine.advance(chains, planned, problem, 9, ROUNDS)
    assert chains.path is not None
    theta = engine.theta(chains, problem)
    assert theta.dtype == np.float64
    assert theta.shape == (2, 3, DIM)
    # Single precision of the deviations from the posterior mean.
    np.testing.assert_allclose(theta, chains.path.kept[:, :, -1], atol=1e-6)
    assert engine.seconds_per_round(planned, problem, 3) > 0


@pytest.mark.parametrize("name", NAMES)
def test_stein_s_evidence_sees_theta_without_draws(name: str) -> None:
    """A quadratic model whose posterior is not told: the evidence from final positions is the same
    question as from draws, wherever an engine keeps its origin."""
    known = model(1)
    hessian, offset = known.quadratic()

    class Untold(flmc.LinearGaussian):
        pass

    untold = Untold(flmc.data.draw_linear(seed=5, num_samples=80, dim=DIM, num_devices=4))
    untold.posterior = None  # type: ignore[assignment]
    assert np.array_equal(untold.quadratic()[0], hessian)
    assert np.array_equal(untold.quadratic()[1], offset)
    planned = flmc.plan(known, flmc.Digital(), num_rounds=600, num_burn_in=590)
    result = flmc.run(planned, untold, seed=2, chains=400, keep_draws=False, engine=name)
    assert result.evidence is not None
    error = result.evidence.stein_ratio_se
    assert abs(result.evidence.stein_ratio - 1.03) < 5 * error + 0.05


@pytest.mark.parametrize(("name", "what"), cases())
def test_a_record_resumes_to_the_same_bits(name: str, what: str, tmp_path: Path) -> None:
    problem = model(1)
    planned = plan(what, problem)
    engine_for(name, planned, problem)
    settings = {"seed": 4, "chains": 2, "engine": name}
    whole = flmc.run(planned, problem, **settings)  # type: ignore[arg-type]
    asked = iter([False, False, True] + 100 * [True])
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            planned,
            problem,
            out=tmp_path / "record",
            checkpoint_rounds=50,
            stop=lambda: next(asked),
            **settings,  # type: ignore[arg-type]
        )
    assert 0 < len(flmc.load(tmp_path / "record").ledger) < ROUNDS
    resumed = flmc.resume(tmp_path / "record", planned, problem)
    assert np.array_equal(whole.draws, resumed.draws)
    assert len(flmc.load(tmp_path / "record").ledger) == ROUNDS


def test_the_choice_is_made_once_and_said() -> None:
    problem = model(1)
    planned = plan("link sigmoid", problem)
    assert choose_engine("auto", planned, problem).name == "numba"
    assert choose_engine("numpy", planned, problem).name == "numpy"
    with pytest.raises(flmc.errors.InvalidSetting, match="engine must be one of auto, numba"):
        choose_engine("abacus", planned, problem)


def test_what_a_silent_device_would_say_is_not_counted() -> None:
    """One device is always silent and its gradient is never a number: the run is whole."""

    def gradient(theta: Array) -> Array:
        local = np.stack([theta, np.full_like(theta, np.nan)], axis=1)
        return np.asarray(local)

    own = flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(0, 1), dim=2, num_devices=2, smoothness=3.0
    )
    active = np.tile([1.0, 0.0], (60, 1))
    planned = flmc.plan(own, flmc.Digital(), num_rounds=60, num_burn_in=10, active=active)
    result = flmc.run(planned, own, chains=2)
    assert result.num_undefined == 0
    assert result.clipped_fraction == 0.0


def test_the_clipped_fraction_counts_the_devices_that_transmitted() -> None:
    """A policy of a user's own whose counts vary: with everything clipped the fraction is 1."""

    class Sometimes(flmc.Scheduler):
        def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
            count = rng.integers(1, fading.shape[1] + 1, len(rounds))
            return np.asarray(np.arange(fading.shape[1]) < count[:, None], dtype=np.float64)

    problem = model(2)
    planned = flmc.plan(
        problem,
        flmc.Digital(clip=1e-9, link=flmc.Linear()),
        flmc.Limits(langevin="off"),
        step_size=1e-4,
        num_rounds=150,
        num_burn_in=10,
        scheduler=Sometimes(),
    )
    assert flmc.run(planned, problem, chains=2).clipped_fraction == pytest.approx(1.0)


@pytest.mark.parametrize("name", ["numba", "jax"])
def test_starts_beyond_single_precision_are_refused(name: str) -> None:
    """By name, where a draw from the prior, of 1e39 and more, has no number of single precision."""
    problem = model(2)
    planned = plan("scheme digital", problem)
    engine = engine_for(name, planned, problem)
    far = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=DIM), prior_mean=1e39)
    with pytest.raises(flmc.errors.RunFailed, match="range of single precision"):
        engine.start(planned, far, 9, 3, keep_draws=True)
