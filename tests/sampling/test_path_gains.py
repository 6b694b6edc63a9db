"""A fading may be a function of time and may have a memory: plans and runs follow it over the
boundaries of the blocks of rounds, with both engines, wherever a run is cut."""

from __future__ import annotations

import logging
import weakref

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.sampling import path_gains
from flmc.sampling.engine import Resources
from flmc.sampling.schedule import draw_activity, draw_schedule, draw_transmitting
from flmc.sampling.simulation import simulate
from flmc.uplink.power import planned_power_limit
from support import full, full_only

ROUNDS, BURN_IN = 300, 2
ENGINES = ["numpy", "numba"]


class Trace(flmc.Fading):
    """A measured channel: a row of path gains for each round of a run, and none beyond."""

    def __init__(self, rows: Array) -> None:
        self._rows = rows

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        return self._rows[rounds.start : rounds.stop, :, None]


class Correlated(flmc.Fading):
    """Path gains whose logarithm is an autoregressive sequence, the same for all devices."""

    memory, spread = 0.9, 0.5

    def __init__(self) -> None:
        self._asked: list[range] = []

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        self._asked.append(rounds)
        level = rng.standard_normal(len(rounds))
        for now in range(1, len(level)):
            fresh = np.sqrt(1 - self.memory**2) * level[now]
            level[now] = self.memory * level[now - 1] + fresh
        return 0.04 * np.exp(self.spread * level)[:, None, None]


class Forgetful(Correlated):
    """A law that falsely claims independent rounds, and so begins anew in every block."""

    independent = True


def whole_runs(most_bytes: int) -> path_gains.WholeRuns:
    return path_gains.WholeRuns(path_gains._draw_whole_run, most_bytes)


def power_plan(model: flmc.Model, fading: flmc.Fading, **settings: object) -> flmc.Plan:
    """A plan in which nothing but power limits the gain, over more than two blocks of rounds."""
    return flmc.plan(
        model,
        flmc.Analog(clip=1000.0, fading=fading),
        flmc.Limits(langevin="off", privacy="off"),
        step_size=1e-3,
        num_rounds=ROUNDS,
        num_burn_in=BURN_IN,
        forecast=False,
        **settings,  # type: ignore[arg-type]
    )


def wave(num_rounds: int = ROUNDS) -> Array:
    """Path gains (round, device) of four devices that change with time, of which the second is the
    weakest."""
    time = np.arange(num_rounds)
    level = 0.04 * (1 + 0.5 * np.sin(time / 7.0)) * (1 + time / 200.0)
    return np.asarray(level[:, None] * np.array([1.0, 0.8, 1.2, 0.9]))


def received_noise(plan: flmc.Plan, model: flmc.LinearGaussian, chains: int, engine: str) -> Array:
    """Noise of the server's estimate, z/A, (experiment, round, chain and entry), in the kept rounds
    but the first: what the chains moved by, less the sum of the symbols that they were sent."""
    path = flmc.run(plan, model, seed=3, chains=chains, engine=engine).path
    assert path is not None
    theta = path.kept
    noise = np.empty((len(theta), theta.shape[2] - 1, chains * plan.dim))
    for index in range(noise.shape[1]):
        before, after = theta[:, :, index], theta[:, :, index + 1]
        symbols = plan.uplink.symbols(model.gradient(before), None).sum(axis=2)
        noise[:, index] = ((after - before) / plan.step_size + symbols).reshape(len(theta), -1)
    return noise


@pytest.mark.parametrize("engine", ENGINES)
def test_every_round_has_the_gain_that_the_trace_says(
    small: flmc.LinearGaussian, engine: str
) -> None:
    plan = power_plan(small, Trace(wave()))
    noise = received_noise(plan, small, full(2000, 400), engine)
    weakest = wave()[BURN_IN + 1 :, 1]  # entries are alike, so it is the device's own path gain
    gain = np.sqrt(plan.uplink.power_limit) / plan.uplink.clip * weakest
    variance = np.square(noise).mean(axis=2) * gain**2
    assert variance.shape == (3, ROUNDS - BURN_IN - 1)
    # The mean of n squared standard normals has the standard error sqrt(2/n).
    np.testing.assert_allclose(variance, 1.0, atol=5 * np.sqrt(2 / noise.shape[2]))


@full_only
@pytest.mark.parametrize("engine", ENGINES)
def test_correlation_crosses_the_boundary_of_blocks(engine: str) -> None:
    num_experiments = full(800, 200)
    data = flmc.data.draw_linear(
        seed=5, num_samples=40, dim=3, num_devices=2, num_experiments=num_experiments
    )
    model = flmc.LinearGaussian(data)

    def boundary_and_inside(fading: flmc.Fading) -> tuple[Array, float]:
        noise = received_noise(power_plan(model, fading), model, 16, engine)
        level = np.log(np.square(noise).mean(axis=2))  # (experiment, round)
        level -= level.mean(axis=0)
        level /= np.sqrt(np.square(level).mean(axis=0))
        lagged = (level[:, 1:] * level[:, :-1]).mean(axis=0)
        # Index i compares the rounds number BURN_IN + 1 + i and the next, counted from 0.
        boundary = np.isin(np.arange(len(lagged)) + BURN_IN + 2, (128, 256))
        return lagged[boundary], float(lagged[~boundary].mean())

    boundary, inside = boundary_and_inside(Correlated())
    assert boundary.shape == (2,)
    # The mean of 48 squared normals has a logarithm of variance about 2/48; that of 1/A^2 is
    # (2 spread)^2 = 1. So the correlation is about 0.9/(1 + 2/48) = 0.86, inside as across. The
    # standard error of a correlation r of n pairs is (1 - r^2)/sqrt(n), and the mean inside, of
    # many pairs of rounds, has no larger one: five times the root of two squares.
    error = (1 - inside**2) / np.sqrt(num_experiments)
    assert inside == pytest.approx(0.864, abs=5 * error)
    np.testing.assert_allclose(boundary, inside, atol=5 * np.sqrt(2) * error)
    # The same measurement sees a law that begins anew: there is no correlation across.
    broken, _ = boundary_and_inside(Forgetful())
    np.testing.assert_allclose(broken, 0.0, atol=5 / np.sqrt(num_experiments))


@pytest.mark.parametrize("engine", ENGINES)
def test_cutting_threads_and_memory_change_no_bit(
    small: flmc.LinearGaussian, engine: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fading = Correlated()
    plan = power_plan(small, fading)

    def draws(**settings: object) -> Array:
        chains = simulate(plan, small, 7, 3, engine=engine, keep_draws=True, **settings)  # type: ignore[arg-type]
        assert chains.draws is not None
        return chains.draws

    fading._asked.clear()
    whole = draws()
    assert fading._asked == 3 * [range(ROUNDS)]  # once for each data set
    assert np.array_equal(whole, draws(most_rounds=37))
    assert np.array_equal(whole, draws(resources=Resources(threads=2, experiments_at_once=1)))
    assert len(fading._asked) == 3
    monkeypatch.setattr(path_gains, "_whole_runs", whole_runs(0))
    assert np.array_equal(whole, draws())
    assert np.array_equal(whole, draws(most_rounds=37))
    assert len(fading._asked) > 3


def test_kept_path_gains_are_bounded_and_belong_to_their_plan(small: flmc.LinearGaussian) -> None:
    kept = whole_runs(3 * ROUNDS * 8)
    plan = power_plan(small, Correlated())
    for experiment in (0, 1, 2, 3, 3, 0):
        kept.draw(plan, 1, experiment)
        assert kept._bytes == sum(gains.nbytes for _, gains in kept._kept.values())
        assert kept._bytes <= kept.most_bytes
    assert [experiment for _, _, experiment in kept._kept] == [2, 3, 0]
    first, second = (power_plan(small, Trace(factor * wave())) for factor in (1.0, 2.0))
    np.testing.assert_array_equal(kept.draw(second, 1, 0), 2 * kept.draw(first, 1, 0))
    # What is left of a plan that is gone, whose identity was given to a new one, is not taken.
    gone = power_plan(small, Correlated())
    kept._kept[(id(first), 1, 0)] = (weakref.ref(gone), np.ones((1, 1, 1)))
    np.testing.assert_array_equal(kept.draw(second, 1, 0), 2 * kept.draw(first, 1, 0))


def test_too_large_a_run_is_said_once(
    small: flmc.LinearGaussian, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(
        path_gains,
        "_whole_runs",
        whole_runs(ROUNDS * 8),
    )
    plan = power_plan(small, Correlated())
    with caplog.at_level(logging.WARNING):
        draw_schedule(plan, 1, range(1), 0)
        assert not caplog.records
        for block in range(2):
            draw_schedule(plan, 1, range(3), block)
    (record,) = caplog.records
    assert "set independent = True in the class" in record.getMessage()


class Strongest(flmc.Scheduler):
    """A policy that follows the channel: the strongest device alone."""

    def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
        strength = fading.mean(axis=2)
        return np.asarray(strength == strength.max(axis=1, keepdims=True), dtype=np.float64)


class Turning(flmc.Fading):
    """A random channel with memory in which devices differ: a random phase, kept for the run."""

    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        angle = 2 * np.pi * rng.random() + np.asarray(rounds)[:, None] / 50.0
        return 0.04 * (1.5 + np.sin(angle + np.arange(num_devices)))[..., None]


def test_the_ledger_counts_what_the_run_does(small: flmc.LinearGaussian) -> None:
    plan = power_plan(small, Turning(), scheduler=Strongest())
    drawn = [draw_schedule(plan, 5, range(3), block).active for block in range(3)]
    active = np.concatenate([each for each in drawn if each is not None], axis=1)
    assert not np.array_equal(active[0], active[1])
    transmitting = draw_transmitting(plan, 5, 3, range(100, 260))
    assert transmitting is not None
    np.testing.assert_array_equal(transmitting, active.max(axis=0)[100:260])
    activity = draw_activity(plan, 5, 3)
    np.testing.assert_array_equal(activity.num_active, active.sum(axis=2))
    assert activity.most_rounds == active.sum(axis=1).max()


@pytest.mark.parametrize("num_rounds", [300, 3000])
def test_a_trace_is_planned_at_its_own_rounds(small: flmc.LinearGaussian, num_rounds: int) -> None:
    """There is no other row to take: the trace ends where the run does."""
    rows, burn_in = wave(num_rounds), num_rounds // 3
    uplink = flmc.Analog(clip=20.0, fading=Trace(rows))
    limits = flmc.Limits(langevin="off", privacy="off")

    def planned(active: Array | None = None) -> flmc.Plan:
        sizes = {"num_rounds": num_rounds, "num_burn_in": burn_in}
        settings = {"step_size": 1e-3, "forecast": False, "active": active, **sizes}
        return flmc.plan(small, uplink, limits, **settings)  # type: ignore[arg-type]

    plan = planned()
    gain = np.sqrt(uplink.power_limit) / uplink.clip * rows[:, 1]
    kept = gain[burn_in:]
    np.testing.assert_allclose(
        plan.planned_gain[:, 0], np.tile(kept, len(plan.planned_gain) // len(kept)), rtol=1e-12
    )
    assert plan.typical_gain == pytest.approx(np.mean(kept**-2.0) ** -0.5, rel=1e-12)
    assert plan.gain_limits.power == pytest.approx(
        np.quantile(gain, 0.1, method="lower"), rel=1e-12
    )
    # With a device silent in every other round, the next weakest decides there.
    active = np.ones((num_rounds, 4))
    active[1::2, 1] = 0.0
    weakest = np.where(np.arange(num_rounds) % 2 == 0, rows[:, 1], rows[:, 3])[burn_in:]
    np.testing.assert_allclose(
        planned(active).planned_gain[: len(weakest), 0],
        np.sqrt(uplink.power_limit) / uplink.clip * weakest,
        rtol=1e-12,
    )


def test_a_plan_asks_for_rounds_of_the_run_only(small: flmc.LinearGaussian) -> None:
    for fading in (Correlated(), Forgetful()):
        plan = power_plan(small, fading)
        assert plan.planned_gain.shape[1] == plan.dim
        assert {rounds.start for rounds in fading._asked} <= {0, BURN_IN}
        assert max(rounds.stop for rounds in fading._asked) == ROUNDS


def test_independent_rounds_are_planned_as_before() -> None:
    """The 10 % quantile of 1024 draws, however long the run is."""
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.2))
    limits = {planned_power_limit(uplink, 20, 5, num_rounds=rounds) for rounds in (1, 300, 5000)}
    assert len(limits) == 1
