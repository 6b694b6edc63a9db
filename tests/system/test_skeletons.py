"""Every skeleton of docs/extending.md, copied elsewhere as a reader would, is really used."""

from __future__ import annotations

import importlib.util
import io
import math
import shutil
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

import flmc
from flmc.cli import main
from flmc.deploy.air.air_channel import RoundOnAir
from flmc.evaluation.audit.likelihood_ratio import loss_of_round
from flmc.privacy.gaussian import GaussianEvent
from flmc.sampling.engine import Engine
from flmc.sampling.simulation import simulate
from flmc.wire.federation import Federation
from flmc.wire.messages import DeviceAnswer

SKELETONS = Path(__file__).parents[2] / "docs" / "skeletons"
ROUNDS, BURN_IN, CHAINS = 60, 40, 4


def copied(name: str, directory: Path) -> ModuleType:
    """The module that a copy of a skeleton makes."""
    path = Path(shutil.copy(SKELETONS / f"{name}.py", directory / f"my_{name}.py"))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module  # dataclasses look their module up
    try:
        spec.loader.exec_module(module)
    finally:
        del sys.modules[path.stem]
    return module


def planned_and_run(
    model: flmc.Model, uplink: flmc.Uplink, scheduler: flmc.Scheduler | None = None
) -> flmc.Result:
    limits = flmc.Limits(epsilon=5.0)
    plan = flmc.plan(
        model, uplink, limits, num_rounds=ROUNDS, num_burn_in=BURN_IN, scheduler=scheduler
    )
    assert plan.round_cost is not None  # a privacy statement is made for what a user adds
    assert plan.round_cost.epsilon <= 5.0 * (1 + 1e-9)
    result = flmc.run(plan, model, seed=7, chains=CHAINS)
    assert np.isfinite(result.draws).all()
    return result


def test_every_skeleton_is_tested_and_shown() -> None:
    names = {path.stem for path in SKELETONS.glob("*.py")}
    assert names == {
        *("link", "scheme", "fading", "scheduler", "noise", "update", "model", "engine", "channel")
    }
    page = (SKELETONS.parent / "extending.md").read_text()
    for name in names:
        assert f"{{literalinclude}} skeletons/{name}.py" in page


def test_link(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    uplink = copied("link", tmp_path).uplink
    result = planned_and_run(small, uplink)
    assert result.plan.temperature == pytest.approx(1.0, abs=0.05)
    # The slope that the skeleton states is the one that flmc would derive.
    assert uplink.link.slope(30.0) == pytest.approx(flmc.Link.slope(uplink.link, 30.0), rel=1e-6)


def test_scheme(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    uplink = copied("scheme", tmp_path).uplink
    result = planned_and_run(small, uplink)
    assert result.engine == "numpy"
    gradient = np.array([-31.0, -20.0, 0.0, 4.0, 30.0])
    # A symbol's variance is at most 1/9, so five standard errors of 20 000 are below 0.012.
    symbols = uplink.symbols(gradient, np.random.default_rng(1).random((20_000, 5)))
    np.testing.assert_allclose(symbols.mean(axis=0), uplink.mean_symbol(gradient), atol=0.012)
    np.testing.assert_allclose(uplink.mean_symbol(gradient), np.clip(gradient / 30, -1, 1))
    difference = np.diff(uplink.mean_symbol(np.array([-1e-3, 1e-3])))[0]
    assert uplink.slope == pytest.approx(difference / 2e-3, rel=1e-9)
    # At the clips the extreme levels are certain, so the Gaussian mechanism is exact.
    exact = GaussianEvent(2.0, 1.0, ((0.3, 5),))
    assert uplink.privacy_event([(0.3, 5)]).delta(1.0) == pytest.approx(exact.delta(1.0), rel=1e-12)
    # In a federation all levels lie on the channel's grid, and travel in two bits.
    federation = Federation.of("four", result.plan)
    steps = federation.grid.symbol_steps(symbols[:4], result.plan.gain[0], uplink.peak)
    assert federation.grid.parts == 3
    np.testing.assert_array_equal(np.abs(steps) % (np.abs(steps).max() // 3), 0)
    answer = DeviceAnswer(1, 0, bytes(8), 1, bytes(32), symbols[0], np.ones(1))
    sent = answer.to_bytes(uplink.symbol_format)
    assert len(sent) == 65 + 8 + 2
    np.testing.assert_array_equal(
        DeviceAnswer.from_bytes(sent, 5, uplink.symbol_format).symbols, symbols[0]
    )
    # The audit knows the law of the symbols: a whole device is attacked at its two extreme levels.
    law = loss_of_round(result.plan)
    assert law is not None
    assert result.plan.round_cost is not None
    assert law.epsilon(0.01) == pytest.approx(result.plan.round_cost.epsilon, rel=0.01)


def test_fading(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    uplink = copied("fading", tmp_path).uplink
    planned_and_run(small, uplink)
    gains = uplink.fading.draw_checked(np.random.default_rng(1), range(20_000), 2, 1)
    # The relative standard error of the mean of 40 000 values of h^2, whose variance is 1/2 of the
    # squared mean for shape 2, is 0.0035; five of them are allowed.
    assert np.square(gains).mean() == pytest.approx(0.04**2, rel=0.018)


def test_scheduler(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    module = copied("scheduler", tmp_path)
    policy = module.StrongestDevices(2)
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    result = planned_and_run(small, uplink, policy)
    assert (result.plan.num_active == 2).all()
    fading = np.array([[[0.1], [0.4], [0.2], [0.3]]])
    active = policy.draw_checked(np.random.default_rng(1), range(1), fading)
    assert active.tolist() == [[0.0, 1.0, 0.0, 1.0]]
    with pytest.raises(flmc.errors.InvalidSetting, match="count must be 1 to 4, got 5"):
        flmc.plan(small, uplink, scheduler=module.scheduler)


def test_noise(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    law = copied("noise", tmp_path).Bursts()
    drawn = law.draw(np.random.default_rng(1), (100_000, 2))
    # The kurtosis k of a mixture of normal numbers; the error of a variance of n numbers is
    # sqrt((k - 1)/n).
    kurtosis = 3.0 * (0.98 + 0.02 * 7.0**4) / (0.98 + 0.02 * 7.0**2) ** 2
    assert abs(drawn.var() - 1.0) < 5 * np.sqrt((kurtosis - 1) / drawn.size)
    assert (drawn**4).mean() > 10.0  # heavy, against 3 of normal noise
    one, many = np.random.default_rng(2), np.random.default_rng(2)
    singly = np.concatenate([law.draw(one, (1, 3)) for _ in range(5)])
    np.testing.assert_array_equal(singly, law.draw(many, (5, 3)))
    plan = flmc.plan(small, flmc.Analog(noise_law=law), num_rounds=ROUNDS, num_burn_in=BURN_IN)
    assert plan.exposure is None
    assert flmc.run(plan, small, chains=CHAINS).engine == "numpy"


def test_update(tmp_path: Path) -> None:
    """Own noise and the channel's together have the temperature that the update declares."""
    kinetic = copied("update", tmp_path).KineticLangevin
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_experiments=8))
    for own in (0.0, 0.6):
        plan = flmc.plan(
            model, flmc.Analog(), num_rounds=1300, num_burn_in=300, update=kinetic(0.5, own)
        )
        assert plan.temperature == pytest.approx(1.0)
        # As large a step as momentum with the same decay takes, less the share of the own noise.
        momentum = flmc.Momentum(math.exp(-0.5))
        like = flmc.plan(model, flmc.Analog(), num_rounds=1300, num_burn_in=300, update=momentum)
        assert like.effective_step_size is not None
        assert plan.effective_step_size == pytest.approx((1 - own) * like.effective_step_size)
        metrics = flmc.run(plan, model, chains=25, keep_draws=False).metrics
        assert metrics is not None
        ratio = metrics.variance_ratio
        # Midpoints have no discretisation error where the posterior is normal.
        assert plan.midpoints
        assert abs(ratio.mean - 1.0) < 5 * ratio.se


def test_model(tmp_path: Path) -> None:
    module = copied("model", tmp_path)
    planned_and_run(module.model, flmc.Digital(link=flmc.Sigmoid(0.2), clip=15.0))
    # The gradient is the derivative of the negative log likelihood, by central differences.
    theta, width = np.array([0.2, -0.1]), 1e-5

    def cost(at: np.ndarray) -> float:
        exponent = module.features @ at
        return float((np.exp(exponent) - module.counts * exponent).sum())

    unit = np.eye(2) * width
    slope = [(cost(theta + step) - cost(theta - step)) / (2 * width) for step in unit]
    np.testing.assert_allclose(module.gradient(theta[None]).sum(axis=(0, 1)), slope, rtol=1e-6)


def test_engine(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    engine: Engine = copied("engine", tmp_path).OneByOneEngine()
    uplink = flmc.Digital(fading=flmc.RayleighFading(0.04))
    plan = flmc.plan(small, uplink, num_rounds=ROUNDS, num_burn_in=BURN_IN)
    assert engine.obstacle(plan, small) is None
    whole = simulate(plan, small, 7, CHAINS, engine=engine, keep_draws=True)
    cut = simulate(plan, small, 7, CHAINS, engine=engine, keep_draws=True, most_rounds=7)
    definition = simulate(plan, small, 7, CHAINS, engine="numpy", keep_draws=True)
    assert whole.round == ROUNDS
    assert whole.draws is not None
    assert definition.draws is not None
    np.testing.assert_array_equal(whole.draws, cut.draws)
    # It uses the same streams in the same order as the definition: only rounding may differ.
    np.testing.assert_allclose(whole.draws, definition.draws, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(whole.moments.covariance, definition.moments.covariance)
    assert whole.num_clipped == definition.num_clipped
    limited = flmc.plan(small, flmc.Digital(example_clip=4.0), num_rounds=4, num_burn_in=2)
    assert engine.obstacle(limited, small) == "it does not clip single examples"


def test_skeletons_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command of the page, with few rounds."""
    page = (SKELETONS.parent / "extending.md").read_text()
    command = next(line for line in page.splitlines() if line.startswith("flmc run "))
    for name in ("link", "fading", "scheduler"):
        shutil.copy(SKELETONS / f"{name}.py", tmp_path / f"my_{name}.py")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    few = ["--rounds", "30", "--burn-in", "20", "--chains", "2", "--engine", "numpy", "--json"]
    assert main([*command.split()[1:], *few]) == 0


def test_channel(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    module = copied("channel", tmp_path)
    plan = flmc.plan(small, flmc.Digital(), num_rounds=4, num_burn_in=2)
    federation = Federation.of("mine", plan)
    rounds = np.arange(2.0 * plan.dim).reshape(2, plan.dim)
    channel = module.StreamReceiver(io.BytesIO(rounds.astype("<f8").tobytes()), noise_power=1.0)
    channel.check(federation)
    gain, fading = np.ones(plan.dim), np.ones((plan.num_devices, plan.dim))
    for number, expected in enumerate(rounds, start=1):
        found = channel.receive(RoundOnAir(number, gain, fading, fading), {})
        assert found.steps is None
        assert np.array_equal(found.values, expected)
    with pytest.raises(flmc.base.errors.RunFailed, match="before round 3"):
        channel.receive(RoundOnAir(3, gain, fading, fading), {})
    with pytest.raises(flmc.base.errors.InvalidSetting, match="noise_power is 1"):
        module.StreamReceiver(io.BytesIO(), noise_power=0.99).check(federation)
    federation_file = tmp_path / "config.toml"
    federation_file.write_text('run = "mine"\nplan = "missing.json"\n')
    with pytest.raises(flmc.base.errors.InvalidSetting, match=r"missing\.json"):
        module.run_air(federation_file, "mqtt://127.0.0.1:1", channel)
