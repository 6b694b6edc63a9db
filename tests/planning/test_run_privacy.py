"""Privacy of whole runs: budgets, allocation over rounds, single examples, what was spent, and
attacks on ourselves."""

from __future__ import annotations

import importlib
import json
import math
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.cli import main
from flmc.evaluation import auditing
from flmc.evaluation.auditing import Scene, audit, lower_bound
from flmc.planning.allocation import noise_weights, water_fill
from flmc.planning.privacy_cost import cost_of_run, exposure_of
from flmc.planning.temperature import calibrated_gain
from flmc.privacy import gaussian
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_pair import BitPair
from flmc.privacy.worst_centre import convex_below, deltas, worst_profile
from flmc.uplink.example_clipping import shrink_factor
from support import QUICK, full

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))

PRICED = [
    flmc.Digital(),
    flmc.Digital(link=flmc.Sigmoid(0.02)),
    flmc.Digital(link=flmc.Linear(0.8)),
    flmc.Analog(),
]


@pytest.mark.parametrize("uplink", PRICED, ids=lambda u: f"{u.scheme}-{getattr(u, 'link', '')}")
def test_price_of_a_correct_sampler(uplink: flmc.Uplink) -> None:
    """Section 2.6: mu^2 = 2 m ell_eff^2 S eta_eff/(1 - f) at T = 1, within 5 % of the composed
    epsilon, while the gain is small against the noise (below a quarter): the formula is of first
    order in it."""
    tried = 0
    for devices in (5, 20, 100):
        for share in (0.1, 0.3, 0.6):
            for rounds, dim in ((30, 2), (300, 5), (3000, 5), (300, 50)):
                digital = uplink.scheme == "digital"
                step = share * 2 * uplink.slope / devices if digital else share * 1e-3
                gain = float(calibrated_gain(uplink, step, devices))
                if not gain < (0.25 if digital else math.inf):
                    continue
                reach = uplink.clip
                if isinstance(uplink, flmc.Digital):
                    reach = (2 * uplink.link.extremes(uplink.clip)[0] - 1) / uplink.slope
                quantised = step * uplink.bit_variance * devices / (2 * uplink.slope)
                mu = math.sqrt(2 * dim * reach**2 * rounds * step * uplink.slope / (1 - quantised))
                exact = uplink.privacy_event([(gain, dim * rounds)]).epsilon(1e-5)
                assert gaussian.epsilon(1e-5, mu) == pytest.approx(exact, rel=0.05)
                tried += 1
    assert tried >= 20


@pytest.mark.parametrize("uplink", [flmc.Digital(), flmc.Analog()], ids=["digital", "analog"])
@pytest.mark.parametrize("epsilon", [0.5, 5.0, 50.0])
def test_a_budget_of_the_run_is_spent_and_not_more(uplink: flmc.Uplink, epsilon: float) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    limits = flmc.Limits(epsilon=epsilon, scope="run", langevin="off")
    plan = flmc.plan(
        model, flmc.replace(uplink, snr_db=60.0), limits, step_size=1e-4, forecast=False
    )
    assert plan.binding == "privacy"
    assert plan.run_cost is not None
    assert 0.999 * epsilon < plan.run_cost.epsilon <= epsilon * (1 + 1e-9)


@pytest.mark.parametrize(
    ("gain", "count"), [(0.02, 300_000), (0.27, 300_000), (0.002, 30_000_000), (0.27, 30_000_000)]
)
def test_very_many_compositions(gain: float, count: int) -> None:
    """3000 rounds at dim 100 and dim 10 000: between the Gaussian limit and its neighbourhood, in
    little memory."""
    import tracemalloc

    tracemalloc.start()
    found = flmc.Digital().privacy_event([(gain, count)]).epsilon(1e-5)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 1e9
    # The loss of so many entries is normal: its mean and variance are those of one entry, times the
    # count.
    pair = BitPair(*flmc.Sigmoid(0.05).extremes(30.0), gain)
    z = np.linspace(-10, 10, 4001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    parts = [(pair.high, pair.loss(gain + z)), (1 - pair.high, pair.loss(-gain + z))]
    mean = sum(p * float(loss @ weight) for p, loss in parts)
    variance = sum(p * float((loss - mean) ** 2 @ weight) for p, loss in parts)
    spread = math.sqrt(count * variance)
    assert found == pytest.approx(gaussian_epsilon(count * mean, spread, 1e-5), rel=0.01)


def gaussian_epsilon(mean: float, spread: float, delta: float) -> float:
    """Epsilon of a loss that is normal, from its hockey-stick integral by quadrature and
    bisection."""
    loss = mean + spread * np.linspace(-12, 12, 200_001)
    density = np.exp(-0.5 * np.linspace(-12, 12, 200_001) ** 2)
    density /= density.sum()
    low, high = 0.0, mean + 12 * spread
    for _ in range(80):
        middle = (low + high) / 2
        above = loss > middle
        value = float(-np.expm1(middle - loss[above]) @ density[above])
        low, high = (middle, high) if value > delta else (low, middle)
    return high


# One example --------------------------------------------------------------------------------------

EXAMPLE = flmc.Digital(link=flmc.Sigmoid(0.011), clip=700.0, example_clip=4.0)


def test_divergences_of_two_bits() -> None:
    """Against the exact formula of a pair, and against a sum over a fine grid of received
    values."""
    epsilon = np.linspace(-0.3, 0.5, 41)
    for p, q, amplitude in ((0.6, 0.45, 0.3), (0.9, 0.2, 1.5), (0.501, 0.499, 0.1)):
        found = deltas(np.full(41, p), np.full(41, q), amplitude, epsilon)
        np.testing.assert_allclose(found, BitPair(p, q, amplitude).delta(epsilon), atol=1e-14)
        y = np.linspace(-12, 12, 480_001)

        def density(share: float, amplitude: float = amplitude, y: Array = y) -> Array:
            plus, minus = np.exp(-0.5 * (y - amplitude) ** 2), np.exp(-0.5 * (y + amplitude) ** 2)
            return np.asarray((share * plus + (1 - share) * minus) / math.sqrt(2 * math.pi))

        for e, value in zip(epsilon[::10], found[::10], strict=True):
            grid = np.maximum(density(p) - math.exp(e) * density(q), 0).sum() * (y[1] - y[0])
            assert value == pytest.approx(grid, abs=1e-7)


@pytest.mark.parametrize(
    "link", [flmc.Sigmoid(0.011), flmc.Probit(0.007), flmc.Linear(0.9)], ids=str
)
@pytest.mark.parametrize("amplitude", [0.1, 1.0])
def test_the_worst_centre_bounds_every_centre(link: flmc.Link, amplitude: float) -> None:
    bound = link.bound_to(700.0)
    epsilon = np.linspace(-0.02, 0.09, 60)
    profile = worst_profile(bound, 700.0, 8.0, amplitude, epsilon)
    attained = np.zeros_like(epsilon)
    for x in np.linspace(-700, 692, full(2001, 401)):
        high, low = bound.probability(np.array([x + 8.0, x]))
        for p, q in ((high, low), (1 - low, 1 - high)):
            attained = np.maximum(
                attained, deltas(np.full(60, p), np.full(60, q), amplitude, epsilon)
            )
    assert (profile >= attained * (1 - 1e-12)).all()
    assert (profile <= 1.02 * attained + 1e-5).all()
    slopes = np.diff(profile) / np.diff(np.exp(epsilon))
    assert (np.diff(slopes) > -1e-9).all()  # convex, as connect-the-dots needs


def test_convex_below() -> None:
    x = np.array([1.0, 2.0, 3.0, 4.0])
    np.testing.assert_allclose(
        convex_below(x, np.array([0.5, 0.4, 0.1, 0.05])), [0.5, 0.3, 0.1, 0.05]
    )


def test_one_example_costs_less_than_a_device() -> None:
    sent = [(0.1054, 950)]
    example = EXAMPLE.privacy_event(sent, "example").epsilon(1e-5)
    device = EXAMPLE.privacy_event(sent).epsilon(1e-5)
    high, low = (float(p) for p in EXAMPLE.link.probability(np.array([4.0, -4.0])))
    middle = BitEvent(high, low, 1.0, ((0.1054, 950),)).epsilon(1e-5)
    assert middle <= example <= 1.03 * middle  # the middle is nearly the worst place here
    assert example < device / 10
    # The simpler bound of section 2.7: logits +-2 a c.
    p = 1 / (1 + math.exp(-2 * 0.011 * 4.0))
    assert example < BitEvent(p, 1 - p, 1.0, ((0.1054, 950),)).epsilon(1e-5) < 2.4 * example
    analog = flmc.Analog(clip=700.0, example_clip=4.0).privacy_event([(1e-3, 950)], "example")
    assert analog.mu == pytest.approx(8e-3 * math.sqrt(950))


@settings(max_examples=full(12, 1))
@given(
    a=st.floats(0.005, 0.05),
    c=st.floats(1.0, 20.0),
    gain=st.floats(0.02, 1.0),
    rounds=st.integers(1, 200),
    dim=st.integers(1, 5),
)
def test_monotone_for_one_example(a: float, c: float, gain: float, rounds: int, dim: int) -> None:
    """More noise, fewer rounds, a smaller example clip never cost more, up to the bound's own
    looseness."""

    def cost(c: float, gain: float, rounds: int) -> float:
        uplink = flmc.Digital(link=flmc.Sigmoid(a), clip=200.0, example_clip=c)
        return uplink.privacy_event([(gain, dim * rounds)], "example").epsilon(1e-5)

    most = cost(c, gain, rounds) * 1.01 + 1e-6
    assert cost(c, 0.8 * gain, rounds) <= most
    assert cost(0.8 * c, gain, rounds) <= most
    assert cost(c, gain, max(1, rounds // 2)) <= most


@settings(max_examples=full(60, 10))
@given(
    a=st.floats(0.01, 0.1),
    clip=st.floats(5, 60),
    gain=st.floats(0.01, 2),
    rounds=st.integers(1, 400),
    dim=st.integers(1, 20),
)
def test_monotone_for_a_device(a: float, clip: float, gain: float, rounds: int, dim: int) -> None:
    def cost(clip: float, gain: float, rounds: int, noise: float = 1.0) -> float:
        uplink = flmc.Digital(link=flmc.Sigmoid(a), clip=clip, noise_power=noise)
        return uplink.privacy_event([(gain, dim * rounds)]).epsilon(1e-5)

    most = cost(clip, gain, rounds) * (1 + 1e-4) + 1e-9
    assert cost(clip, gain, rounds, 1.5) <= most
    assert cost(0.9 * clip, gain, rounds) <= most
    assert cost(clip, 0.9 * gain, rounds) <= most
    assert cost(clip, gain, max(1, rounds // 2)) <= most


def test_the_gain_that_a_budget_of_examples_allows() -> None:
    unit = EXAMPLE.privacy_event([(1.0, 950)], "example")
    gain = unit.allowed_gain(1.0, 1e-5)
    spent = EXAMPLE.privacy_event([(gain, 950)], "example").delta(1.0)
    assert 0.9e-5 < spent <= 1e-5


def test_what_example_privacy_needs() -> None:
    with pytest.raises(InvalidSetting, match="needs example_clip"):
        flmc.Digital().privacy_event([(1.0, 5)], "example")
    with pytest.raises(InvalidSetting, match="needs privacy 'tight'"):
        EXAMPLE.privacy_event([(1.0, 5)], "example").delta(1.0, "tail", 20)
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(1, num_experiments=1))
    with pytest.raises(InvalidSetting, match="example_clip needs examples"):
        flmc.plan(model, EXAMPLE, num_rounds=4, num_burn_in=1, forecast=False)
    # A whole device moves no further than twice the clip.
    wide = flmc.Digital(clip=30.0, example_clip=40.0)
    assert wide.privacy_event([(1.0, 5)], "example") == wide.privacy_event([(1.0, 5)])


def test_clipped_examples_by_hand() -> None:
    data = flmc.data.draw_linear(seed=2, num_samples=30, dim=3, num_devices=4, num_experiments=2)
    model = flmc.LinearGaussian(data, prior_precision=2.0, noise_variance=0.5)
    theta = np.random.default_rng(0).normal(size=(2, 3, 3))
    found = model.clipped_gradient(theta, 0.7)
    for e, c in np.ndindex(2, 3):
        start = 0
        for k, size in enumerate(data.device_sizes):
            total = 2.0 * theta[e, c] / 4
            for n in range(start, start + size):
                u, v = data.features[e, n], data.targets[e, n]
                total = total + np.clip(u * (u @ theta[e, c] - v) / 0.5, -0.7, 0.7)
            start += size
            np.testing.assert_allclose(found[e, c, k], total, atol=1e-12)
    np.testing.assert_allclose(model.clipped_gradient(theta, 1e9), model.gradient(theta), atol=1e-9)


def test_shrink_factor() -> None:
    """Against Monte Carlo, five standard errors, and close to the design's values."""
    rng = np.random.default_rng(1)
    u, e = rng.standard_normal((2, full(4_000_000, 400_000)))
    for c, stated in ((3.0, 0.913), (4.0, 0.964), (5.0, 0.985)):
        sample = u**2 * (np.abs(u * e) <= c)
        assert abs(shrink_factor(c) - sample.mean()) < 5 * sample.std() / math.sqrt(len(u))
        assert shrink_factor(c) == pytest.approx(stated, abs=0.002)


def test_the_advertisement() -> None:
    """Whole run, one example, delta 1e-5: epsilon at most 1, ratio at most 1.2, squared mean error
    at most 5 %."""
    private_posterior = importlib.import_module("private_posterior")

    if QUICK:
        epsilon, ratio, error = private_posterior.main(1, 8)
        assert epsilon <= 1
        assert ratio < 1.6
        assert error < 0.4
        return
    epsilon, ratio, error = private_posterior.main()
    assert epsilon <= 1.0
    assert ratio <= 1.2
    assert error <= 0.05


# Allocation ---------------------------------------------------------------------------------------


def test_water_filling_is_the_minimum() -> None:
    """No shift of budget between two rounds that are below their caps makes the sum smaller."""
    rng = np.random.default_rng(0)
    weights, caps = rng.random(20) ** 4 + 1e-3, rng.random(20) + 0.5
    gains = water_fill(weights, caps, 3.0)
    assert np.square(gains).sum() == pytest.approx(3.0)
    assert (gains <= caps * (1 + 1e-12)).all()
    marginal = (weights / gains**4)[gains < caps * 0.999]
    np.testing.assert_allclose(marginal, marginal[0], rtol=1e-6)
    assert ((weights / gains**4)[gains >= caps * 0.999] >= marginal[0] * (1 - 1e-6)).all()


def test_weights_of_noise() -> None:
    """Against the variance of the linear recursion, round by round."""
    steps, contraction, burn_in = np.linspace(2, 1, 12), np.linspace(0.7, 0.9, 12), 5
    weights = noise_weights(steps, contraction, burn_in)
    direct = []
    for t in range(12):
        left, total = steps[t] ** 2, 0.0
        for s in range(t, 12):
            left = left if s == t else left * contraction[s] ** 2
            total += left if s >= burn_in else 0.0
        direct.append(total)
    np.testing.assert_allclose(weights, np.maximum(np.array(direct) / max(direct), 1e-3))


@pytest.mark.parametrize(
    ("uplink", "step"), [(flmc.Digital(), 1e-3), (flmc.Analog(), 1e-4)], ids=["digital", "analog"]
)
@pytest.mark.parametrize("epsilon", [20.0, 60.0])
def test_adaptive_beats_static(uplink: flmc.Uplink, step: float, epsilon: float) -> None:
    """Squared W2 distance at equal budget, over data sets, by more than five standard errors."""
    source = flmc.data.draw_linear_statistics(3, num_experiments=full(20, 6), kind="sufficient")
    model = flmc.LinearGaussian(source)
    found = {}
    for allocation in ("static", "adaptive"):
        limits = flmc.Limits(epsilon=epsilon, scope="run", allocation=allocation)
        plan = flmc.plan(model, uplink, limits, step_size=step, start="zero", forecast=False)
        assert plan.run_cost is not None
        assert plan.run_cost.epsilon <= epsilon * (1 + 1e-9)
        metrics = flmc.run(plan, model, seed=1, chains=full(60, 30), keep_draws=False).metrics
        assert metrics is not None
        found[allocation] = metrics.wasserstein2_squared
    gained = found["static"].mean - found["adaptive"].mean
    assert (
        gained > 5 * math.hypot(found["static"].se, found["adaptive"].se)
        or gained > 0.4 * found["static"].mean
    )
    with pytest.raises(InvalidSetting, match="needs a budget of the run"):
        flmc.Limits(epsilon=5.0, allocation="adaptive")


# What was spent -----------------------------------------------------------------------------------


def test_a_run_stops_before_it_overspends(tmp_path: Path) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    limits = flmc.Limits(epsilon=20.0, scope="run", langevin="off")
    plan = flmc.plan(model, flmc.Digital(), limits, gain=0.2, step_size=1e-3, forecast=False)
    rounds = plan.affordable_rounds
    assert 0 < rounds < 300
    assert plan.uplink.privacy_event([(0.2, 5 * rounds)]).epsilon(1e-5) <= 20.0
    assert plan.uplink.privacy_event([(0.2, 5 * (rounds + 1))]).epsilon(1e-5) > 20.0
    with pytest.raises(
        RunFailed, match=f"stopped after round {rounds} of 300: the next would overspend"
    ):
        flmc.run(plan, model, out=tmp_path / "run")
    assert len(flmc.load(tmp_path / "run").ledger) == rounds


def test_ledger_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(tmp_path / "run")
    assert (
        main(["run", "--rounds", "40", "--burn-in", "10", "--chains", "2", "--json", "--out", out])
        == 0
    )
    result = json.loads(capsys.readouterr().out)
    assert main(["ledger", out, "--json"]) == 0
    curve = json.loads(capsys.readouterr().out)
    spent = [epsilon for _, epsilon in curve["curve"]]
    assert spent == sorted(spent)
    assert spent[-1] == pytest.approx(result["plan"]["privacy"]["run"]["epsilon"], rel=1e-9)
    assert curve["transmitted"] == [40] * 20
    assert curve["devices"] == [spent[-1]] * 20
    assert main(["ledger", out]) == 0
    assert "epsilon" in capsys.readouterr().out
    assert (tmp_path / "run" / "ledger.png").stat().st_size > 5_000
    assert main(["ledger", str(tmp_path)]) == 2


def test_a_damaged_ledger_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "run"
    assert (
        main(
            [
                "run",
                "--rounds",
                "40",
                "--burn-in",
                "10",
                "--chains",
                "2",
                "--json",
                "--out",
                str(out),
            ]
        )
        == 0
    )
    capsys.readouterr()
    whole = (out / "ledger.txt").read_bytes()
    for damaged, message in (
        (whole.replace(b'"round":3,', b'"round":7,'), "damaged behind round 2"),
        (b"\n".join(whole.split(b"\n")[:11]) + b"\n", "ends with round 11"),
    ):
        (out / "ledger.txt").write_bytes(damaged)
        assert main(["ledger", str(out)]) == 1
        assert message in capsys.readouterr().err


def test_what_a_run_from_python_has_spent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The dimension is the model's, whatever the settings' default."""
    own = flmc.Model.from_gradient(
        lambda theta: np.repeat(theta[:, None], 4, axis=1),
        prior=flmc.Normal(0, 1),
        dim=12,
        num_devices=4,
        smoothness=9.0,
        convexity=1.0,
    )
    plan = flmc.plan(own, flmc.Digital(), num_rounds=20, num_burn_in=10)
    flmc.run(plan, own, out=tmp_path / "run")
    assert plan.run_cost is not None
    found = flmc.spent(flmc.load(tmp_path / "run"), plan)
    assert found.points[-1][1] == pytest.approx(plan.run_cost.epsilon, rel=1e-9)
    assert main(["ledger", str(tmp_path / "run")]) == 2
    assert "flmc.spent(flmc.load(DIR), plan)" in capsys.readouterr().err


def test_the_ledger_of_a_model_of_the_user(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "twelve.py").write_text(
        "import flmc, numpy as np\nmodel = flmc.Model.from_gradient(lambda t: np.repeat(t[:, None],"
        " 4, axis=1), prior=flmc.Normal(0, 1), dim=12, num_devices=4, smoothness=9.0,"
        " convexity=1.0)\n"
    )
    monkeypatch.chdir(tmp_path)
    asked = [
        "--model",
        "twelve:model",
        "--rounds",
        "20",
        "--burn-in",
        "10",
        "--chains",
        "2",
        "--json",
    ]
    assert main(["run", *asked, "--out", "run"]) == 0
    stated = json.loads(capsys.readouterr().out)["plan"]["privacy"]["run"]["epsilon"]
    assert main(["ledger", "run", "--json"]) == 0
    assert max(json.loads(capsys.readouterr().out)["devices"]) == pytest.approx(stated, rel=1e-9)


def test_each_device_has_spent_its_own() -> None:
    from flmc.runs.ledger_cost import spent_curve

    entries = [
        json.dumps({"round": r + 1, "gain": [0.2], "silent": [0] if r % 2 else []})
        for r in range(20)
    ]
    curve = spent_curve(entries, flmc.Digital(), flmc.Limits(), 3, 5)
    assert curve.transmitted == [10, 20, 20]
    assert curve.devices[0] == pytest.approx(
        flmc.Digital().privacy_event([(0.2, 50)]).epsilon(1e-5)
    )
    assert curve.devices[1] == curve.devices[2] == curve.points[-1][1] > curve.devices[0]


def test_a_coarse_grid_is_said() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    said = {}
    for rounds in (300, 6_000_000):
        exposure = exposure_of(
            flmc.Digital(), np.array([[0.27]]), flmc.AllDevices(), rounds, model.dim
        )
        said[rounds] = str(cost_of_run(exposure, flmc.Limits()))
    assert "coarsened" not in said[300]
    assert "on a coarsened grid: an upper bound" in said[6_000_000]


def test_suggestions(capsys: pytest.CaptureFixture[str]) -> None:
    public = [
        "--samples",
        "20000",
        "--devices",
        "20",
        "--scope",
        "run",
        "--epsilon",
        "3",
        "--neighbouring",
        "example",
    ]
    assert main(["plan", "--suggest", *public, "--json"]) == 0
    captured = capsys.readouterr()
    plan = json.loads(captured.out)
    assert plan["data_dependent"] is False
    assert plan["temperature"] == pytest.approx(1, abs=0.05)
    assert plan["privacy"]["run"]["epsilon"] <= 3
    assert "--example-clip 4" in captured.err
    assert main(["plan", "--suggest", "--scheme", "analog"]) == 2


# Attacks ------------------------------------------------------------------------------------------

SCENE = Scene(flmc.Digital(), 0.3, 5, 2, 1)


def without_noise(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    return auditing.transmit(
        replace(scene, uplink=flmc.replace(scene.uplink, noise_power=1e-12)), gradient, trials, rng
    )


def too_loud(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    return auditing.transmit(replace(scene, gain=1.2 * scene.gain), gradient, trials, rng)


def always_the_same(
    scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
) -> tuple[Array, Array]:
    seed = int(rng.integers(2**60))
    once = replace(scene, num_rounds=1)
    parts = [
        auditing.transmit(once, g[None], trials, np.random.default_rng(seed)) for g in gradient
    ]
    return tuple(np.concatenate(each, axis=1) for each in zip(*parts, strict=True))  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("broken", "rounds", "trials"),
    [(without_noise, 1, 20_000), (too_loud, 1, 400_000), (always_the_same, 4, 20_000)],
    ids=["no noise", "gain 20 % too large", "the same numbers every round"],
)
def test_broken_mechanisms_are_caught(broken: Any, rounds: int, trials: int) -> None:
    """At least 95 % of 40 seeds, at delta 0.01."""
    seeds = full(40, 4)
    scene = replace(SCENE, num_rounds=rounds)
    caught = sum(audit(scene, 0.01, trials, seed, transmit=broken).broken for seed in range(seeds))
    assert caught >= 0.95 * seeds


@pytest.mark.parametrize(
    "uplink", [flmc.Digital(), flmc.Analog(clip=1.0), flmc.Digital(link=flmc.Sign())], ids=str
)
@pytest.mark.parametrize("rounds", [1, 4])
def test_the_real_mechanism_is_not_refuted(uplink: flmc.Uplink, rounds: int) -> None:
    scene = Scene(uplink, 0.3, 5, 2, rounds)
    for seed in range(full(40, 4)):
        found = audit(scene, 0.01, 50_000, seed)
        assert not found.broken
        # The attack finds most of what the accountant allows, as far as 50 000 trials can tell.
        assert found.lower > 0.6 * min(found.upper, 4.0)


def test_lower_bounds_hold() -> None:
    """For two normals at distance 1 the bound is below the true epsilon in nearly all of many
    attacks."""
    truth = gaussian.epsilon(0.01, 1.0)
    rng = np.random.default_rng(3)
    values = [
        lower_bound(rng.normal(1, 1, 20_000), rng.normal(0, 1, 20_000), 0.01, confidence=0.99)
        for _ in range(full(300, 60))
    ]
    # At most 1 % may exceed the truth; of 300 attacks 9 or more would with a probability of 0.4 %.
    assert np.mean(np.array(values) > truth) < 0.03
    assert np.median(values) > 0.75 * truth


def test_audit_command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["audit", "--trials", "5000", "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert [each["num_rounds"] for each in document["audits"]] == [1, 4]
    assert all(each["lower"] < each["upper"] for each in document["audits"])
    assert main(["audit", "--scheme", "ideal"]) == 2
    assert main(["audit", "--trials", "10"]) == 2
    capsys.readouterr()
    monkeypatch.setattr(
        auditing.audit,
        "__kwdefaults__",
        {**(auditing.audit.__kwdefaults__ or {}), "transmit": without_noise},
    )
    assert main(["audit", "--trials", "20000"]) == 1
    captured = capsys.readouterr()
    assert "REFUTED" in captured.out
    assert "is broken" in captured.err
