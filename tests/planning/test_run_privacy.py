"""Privacy of whole runs: budgets, allocation over rounds, single examples, what was spent, and
attacks on ourselves."""

from __future__ import annotations

import importlib
import math
import sys
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.planning.privacy_cost import cost_of_run, exposure_of
from flmc.planning.temperature import calibrated_gain
from flmc.privacy import composed_loss, gaussian
from reference_pair import ReferencePair
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
    pair = ReferencePair(*flmc.Sigmoid(0.05).extremes(30.0), gain)
    z = np.linspace(-10, 10, 4001)
    weight = np.exp(-z * z / 2) / np.exp(-z * z / 2).sum()
    parts = [(pair.high, pair.loss(gain + z)), (1 - pair.high, pair.loss(-gain + z))]
    mean = sum(p * float(loss @ weight) for p, loss in parts)
    variance = sum(p * float((loss - mean) ** 2 @ weight) for p, loss in parts)
    spread = math.sqrt(count * variance)
    assert found == pytest.approx(gaussian_epsilon(count * mean, spread, 1e-5), rel=0.01)


ADVERTISED = ("analog", "digital", "analog, norm", "digital, norm")


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


@pytest.mark.parametrize("scheme", list(ADVERTISED)[:1] if QUICK else ADVERTISED)
def test_the_advertisement(scheme: str) -> None:
    """One chain, whole run, one example, delta 1e-5, nothing from the data: epsilon at most 1, at
    least 50 effective draws, and a mean that is off by at most 3 % of the trace, squared."""
    private_posterior = importlib.import_module("private_posterior")

    plan, rows = private_posterior.show(scheme, full(5, 1), full(20, 4))
    assert plan.run_cost.epsilon <= 1.0
    assert plan.effective_draws >= 50
    assert not plan.data_dependent
    assert plan.temperature == pytest.approx(1.0)
    assert plan.rounds_needed <= plan.num_burn_in
    error, common, ratio = rows.mean(axis=0)
    # Four chains of one data set tell little: their errors vary by two thirds, and so does the
    # shift by clipping; five standard errors of both are some 8 %.
    assert error <= (0.1 if QUICK else 0.03)
    assert common < error
    assert 0.8 < ratio < 1.2


@pytest.mark.parametrize("scheme", ADVERTISED)
def test_the_advertisement_needs_its_examples(scheme: str) -> None:
    """With 5 % fewer the same draws do not fit into the budget: privacy decides the gain, and the
    noise is too much. The number of examples is the smallest but for rounding."""
    private_posterior = importlib.import_module("private_posterior")
    setting = private_posterior.SETTINGS[scheme]
    few = int(0.95 * setting.num_samples)
    plan = setting.plan(private_posterior.draw(1, few), few)
    assert plan.binding == "privacy"
    assert plan.temperature > 1.01


@pytest.mark.parametrize("row", [1, 9] if QUICK else [0, 1, 2, 9, 10, 13])
def test_the_advertised_intervals_hold(row: int) -> None:
    """One chain a data set, of settings that were fixed before: the budget is kept, intervals of
    90 % hold within 5 standard errors and the two points by which few degrees of freedom make them
    longer, the width is the one that was asked for to 8 per cent (at a width of 2 the curvature has
    80 degrees of freedom, and its law is skew), and no answer is narrower than one query allows."""
    private_posterior = importlib.import_module("private_posterior")
    setting = private_posterior.ANSWERS[row]
    measured = private_posterior.measure(setting, full(100, 30))
    assert measured.epsilon <= setting.epsilon * (1 + 1e-9)
    assert -5 * measured.held_error < measured.held - 0.9 < 5 * measured.held_error + 0.02
    assert measured.width == pytest.approx(setting.wanted, rel=0.08)
    assert measured.width > setting.bound
    # What is stated is no less than what is true, but for chance: an error's mean square over 30
    # or more data sets of 5 entries varies by sqrt(2/150).
    assert measured.error < measured.width * (1 + 5 * math.sqrt(2 / 5 / measured.data_sets) / 2)


def test_the_batched_gradients_of_the_example_are_those_of_the_model() -> None:
    private_posterior = importlib.import_module("private_posterior")
    data = flmc.data.draw_linear(seed=3, num_samples=200, num_devices=20, num_experiments=3)
    theta = np.random.default_rng(1).standard_normal((3, 1, 5))
    batched = private_posterior.Regressions(data).norm_clipped_gradient(theta, 5.0)
    model = flmc.LinearGaussian(data)
    assert batched == pytest.approx(model.norm_clipped_gradient(theta, 5.0), rel=1e-12, abs=1e-11)


def test_a_coarse_grid_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    said = {}
    # Thirty million entries fit the grid; where only a few cells are affordable, it is said.
    for rounds, cells in ((300, 2**14), (6_000_000, 2**14), (301, 16)):
        monkeypatch.setattr(composed_loss, "_MOST_CELLS", cells)
        exposure = exposure_of(
            flmc.Digital(), np.array([[0.27]]), flmc.AllDevices(), rounds, 20, model.dim
        )
        said[rounds] = str(cost_of_run(exposure, flmc.Limits()))
    assert "coarsened" not in said[300]
    assert "coarsened" not in said[6_000_000]
    assert "on a coarsened grid: an upper bound" in said[301]
