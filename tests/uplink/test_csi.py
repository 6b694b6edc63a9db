"""Channel estimates that are not exact: their law, the privacy of uncertain gains, and what they do
to the sampler."""

from __future__ import annotations

import json
import math
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.special import exp1

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.cli import main
from flmc.evaluation.audit.scene import Scene
from flmc.privacy import gaussian
from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from flmc.runs.ledger_cost import spent_curve
from flmc.uplink.csi import EXCEEDED, arrival_of
from flmc.uplink.fadings import EstimatedFading
from flmc.uplink.power import realised_gain
from support import few, full

LAWS: dict[str, flmc.Fading] = {
    "constant": flmc.ConstantFading(0.04),
    "rayleigh": flmc.RayleighFading(0.04),
    "rician": flmc.RicianFading(0.04, 4.0),
    "nakagami": flmc.NakagamiFading(0.04, 0.7),
}


def drawn(fading: flmc.Fading, error: float, rounds: int) -> tuple[Array, Array]:
    """Magnitudes and factors of arrival of one device."""
    rng = np.random.default_rng(1)
    found = EstimatedFading(fading, error).draw_estimates(rng, range(rounds), 1, 3)
    assert found.magnitude.shape == (rounds, 1, 1)  # one error for all entries of a flat channel
    return found.magnitude.ravel(), found.arrival.ravel()


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("error", [0.1, 0.6])
def test_the_law_of_estimates_from_complex_numbers(name: str, error: float) -> None:
    """The definition once more, with complex path gains of any phase; the probability that two
    samples of one law differ so much is 1e-6."""
    count = full(20_000, 4000)
    magnitude, arrival = drawn(LAWS[name], error, count)
    rng = np.random.default_rng(2)
    size = LAWS[name].draw_checked(rng, range(count), 1, 1).ravel()
    path = size * np.exp(2j * np.pi * rng.random(count))
    normal = rng.standard_normal((2, count)) / math.sqrt(2)
    noise = math.sqrt(LAWS[name].mean_square or 0.0) * (normal[0] + 1j * normal[1])
    estimate = math.sqrt(1 - error**2) * path + error * noise
    for ours, theirs in ((magnitude, np.abs(estimate)), (arrival, (path / estimate).real)):
        assert stats.ks_2samp(ours, theirs).pvalue > 1e-6


def test_estimates_of_rayleigh_fading_have_its_law() -> None:
    magnitude, arrival = drawn(LAWS["rayleigh"], 0.3, full(40_000, 4000))
    assert stats.kstest(magnitude**2 / 0.04**2, "expon").pvalue > 1e-6
    # Given the estimate, the factor is normal about rho with variance e^2 s^2/(2 |h|^2): so under
    # every policy that follows the estimates, its mean is rho.
    rho = math.sqrt(1 - 0.3**2)
    standard = (arrival - rho) * magnitude * math.sqrt(2) / (0.3 * 0.04)
    assert stats.kstest(standard, "norm").pvalue > 1e-6


@pytest.mark.parametrize("error", [0.1, 0.3, 0.6])
def test_mean_factor_of_a_constant_channel(error: float) -> None:
    """1/z is harmonic but at 0, so its mean over a circle about rho is 1/rho, or 0 for a circle
    about 0 as well."""
    _, arrival = drawn(LAWS["constant"], error, full(200_000, 20_000))
    rho = math.sqrt(1 - error**2)
    expected = (1 - math.exp(-(rho**2) / error**2)) / rho
    assert abs(arrival.mean() - expected) < 5 * arrival.std() / math.sqrt(len(arrival))
    moments = arrival_of(flmc.Digital(csi_error=error), 20)
    assert moments is not None
    assert (moments.mean == moments.mean[0]).all()
    assert abs(moments.mean[0] - expected) < 5 * arrival.std() / math.sqrt(4096 * 20)


def test_exact_estimates_change_nothing() -> None:
    assert flmc.Digital().estimated is None
    assert arrival_of(flmc.Digital(), 20) is None
    exact, none = (EstimatedFading(LAWS["rayleigh"], e) for e in (1e-9, 0.0))
    for law in (exact, none):
        found = law.draw_estimates(np.random.default_rng(0), range(50), 4, 2)
        np.testing.assert_allclose(found.arrival, 1.0, rtol=1e-6)


@pytest.mark.parametrize("name", LAWS)
@pytest.mark.parametrize("scheme", [flmc.Digital, flmc.Analog])
def test_the_stated_gain_is_rarely_exceeded(name: str, scheme: type[flmc.Digital]) -> None:
    """With a probability that can be counted: of rounds with realised gains and real errors, no
    more than stated exceed the gain, to five standard errors."""
    exceeded, count, devices = 0.02, full(40_000, 4000), 3
    for snr, error in ((10.0, 0.1), (30.0, 0.1), (20.0, 0.5)):
        uplink = scheme(fading=LAWS[name], snr_db=snr, csi_error=error)
        cap = 0.2 / uplink.peak
        with patch("flmc.uplink.csi.EXCEEDED", exceeded):
            event = uplink.privacy_event([(cap, 1)])
        assert isinstance(event, UncertainGainEvent)
        (stated, _), *_ = event.loud.transmissions
        assert uplink.estimated is not None
        rng = np.random.default_rng(3)
        found = uplink.estimated.draw_estimates(rng, range(count), devices, 1)
        gain = realised_gain(uplink, np.full((count, 1), cap), found.magnitude)
        arrives = np.abs(gain[:, None] * found.arrival)[:, :, 0]
        share = float((arrives[:, 0] > stated).mean())
        assert share <= exceeded + 5 * math.sqrt(exceeded / count)


@given(
    st.sampled_from([flmc.Digital, flmc.Analog]),
    st.floats(0.001, 0.3),
    st.floats(0.5, 20.0),
    st.floats(1e-8, 1e-3),
    st.integers(1, 400),
)
@settings(max_examples=full(60, 10), deadline=None)
def test_the_gain_that_a_budget_allows_keeps_it(
    scheme: type[flmc.Digital], error: float, epsilon: float, delta: float, rounds: int
) -> None:
    uplink = scheme(csi_error=error, snr_db=15.0)
    unit = uplink.event_of_rounds(np.ones((1, 1)), 5, "device", rounds)
    certain = flmc.replace(uplink, csi_error=0.0).event_of_rounds(
        np.ones((1, 1)), 5, "device", rounds
    )
    try:
        gain = unit.allowed_gain(epsilon, delta)
    except InvalidSetting:  # a device in a deep fade may be too loud at any gain
        assert unit.scaled(1e-12).delta(epsilon) > 0.99 * delta
        return
    assert gain <= certain.allowed_gain(epsilon, delta) * (1 + 1e-9)
    if math.isfinite(gain):
        sent = unit.scaled(gain)
        assert sent.delta(epsilon) <= delta * (1 + 1e-6)
        assert sent.epsilon(delta) <= epsilon * (1 + 1e-6)
        # Errors only cost: no statement is better than with exact estimates.
        assert sent.delta(epsilon) >= certain.scaled(gain).delta(epsilon)
        assert sent.epsilon(delta) >= certain.scaled(gain).epsilon(delta) * (1 - 1e-9)


def test_the_statement_against_the_mixture_itself() -> None:
    """An adversary who knows every path gain and estimate faces a Gaussian mechanism with the gain
    that arrived: its delta is the mean over channels, here of one entry over Rayleigh fading."""
    uplink = flmc.Analog(fading=flmc.RayleighFading(0.04), csi_error=0.1, snr_db=20.0)
    cap, epsilon = 0.003, 1.0
    event = uplink.privacy_event([(cap, 1)])
    assert uplink.estimated is not None
    count = full(20_000, 4000)
    found = uplink.estimated.draw_estimates(np.random.default_rng(5), range(count), 4, 1)
    gain = realised_gain(uplink, np.full((count, 1), cap), found.magnitude)
    moved = 2 * uplink.clip * np.abs(gain * found.arrival[:, 0])
    deltas = np.array([gaussian.delta(epsilon, float(mu)) for mu in moved.ravel()])
    assert 0 < deltas.mean() + 5 * deltas.std() / math.sqrt(count) < event.delta(epsilon)


def test_exceedance_is_part_of_delta() -> None:
    uplink = flmc.Analog(csi_error=0.01)
    event = uplink.event_of_rounds(np.full((1, 1), 0.001), 5, "device", 200)
    assert isinstance(event, UncertainGainEvent)
    assert event.probability == pytest.approx(1000 * EXCEEDED)
    assert event.delta(3.0) == pytest.approx(event.loud.delta(3.0) + event.probability)
    # At a smaller delta nothing is left: no statement, which is an infinite epsilon.
    assert event.epsilon(0.5 * event.probability) == math.inf
    with pytest.raises(InvalidSetting, match="delta must exceed 1e-09"):
        event.allowed_gain(3.0, 1e-10)
    # A bit tells no more than its own randomness lets it, whatever the gain was.
    bits = flmc.Digital(csi_error=0.5).event_of_rounds(np.ones((1, 1)), 5)
    assert bits.epsilon(1e-15) <= bits.largest_loss < math.inf
    assert bits.delta(bits.largest_loss) == 0.0


@pytest.mark.parametrize("scheme", ["digital", "analog"])
@pytest.mark.parametrize("engine", few(["numba", "numpy"], 1))
def test_drift_and_heat_are_as_predicted(scheme: str, engine: str) -> None:
    """A constant channel with e = 0.25, every data set with channel errors of its own and one chain
    (chains of one data set share their errors): the variance ratio is the predicted one. Where the
    errors are left out of the prediction it is not."""
    experiments = full(600, 150)
    model = flmc.LinearGaussian(
        flmc.data.draw_linear_statistics(seed=4, num_experiments=experiments, num_devices=8)
    )
    uplink = {"digital": flmc.Digital, "analog": flmc.Analog}[scheme](csi_error=0.25, snr_db=35.0)
    plan = flmc.plan(model, uplink, flmc.Limits(privacy="off"), num_rounds=600, num_burn_in=200)
    assert plan.prediction is not None
    result = flmc.run(plan, model, seed=2, chains=1, engine=engine, keep_draws=False)
    assert result.metrics is not None
    ratio = result.metrics.variance_ratio
    assert abs(ratio.mean - plan.prediction.variance_ratio) < 5 * ratio.se + 0.02
    if scheme == "analog":
        blind = flmc.replace(uplink, csi_error=0.0)
        without = flmc.plan(
            model,
            blind,
            flmc.Limits(privacy="off"),
            num_rounds=600,
            num_burn_in=200,
            step_size=plan.step_size,
            gain=plan.gain,
        )
        assert without.prediction is not None
        far = full(5, 2) * ratio.se  # few data sets see less
        assert abs(ratio.mean - without.prediction.variance_ratio) > far


def test_the_plan_says_it() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(csi_error=0.05), flmc.Limits(epsilon=5))
    assert plan.estimates is not None
    said = next(row.text for row in plan.listing().rows if row.label == "channel estimates")
    assert "error 0.05: symbols arrive with" in said
    assert "within delta" in said
    assert plan.estimates.stated_gain is not None
    assert plan.estimates.stated_gain > plan.typical_gain
    exact = flmc.plan(model, flmc.Digital(), flmc.Limits(epsilon=5))
    assert exact.estimates is None
    assert plan.run_cost is not None
    assert exact.run_cost is not None
    assert plan.run_cost.epsilon > exact.run_cost.epsilon
    assert flmc.Plan.from_document(plan.to_document()) == plan


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"csi_error": -0.1}, "csi_error must be from 0 to 0.9, got -0.1"),
        ({"csi_error": 0.95}, "csi_error must be from 0 to 0.9, got 0.95"),
        ({"csi_error": 0.1, "modulation": "complex"}, "csi_error needs real symbols"),
    ],
)
def test_what_is_refused(change: dict[str, object], message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        flmc.replace(flmc.Digital(), **change)


def test_a_law_without_a_mean_square_is_refused() -> None:
    class Own(flmc.Fading):
        def draw(
            self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
        ) -> Array:
            return np.full((1, 1, 1), 0.04)

    with pytest.raises(InvalidSetting, match="Own does not tell"):
        flmc.Digital(fading=Own(), csi_error=0.1)


def test_the_numba_engine_refuses_errors_of_single_entries() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    uplink = flmc.Digital(fading=flmc.SelectiveFading(), csi_error=0.05)
    plan = flmc.plan(model, uplink, num_rounds=60, num_burn_in=20)
    with pytest.raises(InvalidSetting, match="must share a path gain"):
        flmc.run(plan, model, engine="numba")
    assert flmc.run(plan, model, chains=2).engine == "numpy"


def test_the_audit_says_that_it_does_not_attack_errors() -> None:
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    plan = flmc.plan(model, flmc.Digital(csi_error=0.02), num_rounds=60, num_burn_in=20)
    with pytest.raises(InvalidSetting, match="audit the plan without it"):
        Scene.of_plan(plan, 3)


def test_single_entries_of_a_clipped_norm_are_not_accounted() -> None:
    uplink = flmc.Analog(clipping="norm", csi_error=0.02)
    with pytest.raises(UnknownPrivacy, match="ask event_of_rounds"):
        uplink.privacy_event([(0.001, 1)])
    assert uplink.event_of_rounds(np.full((1, 1), 0.001), 5).epsilon(1e-3) > 0


def test_silent_rounds_count_in_the_ledger() -> None:
    """A policy may silence a device because of its error: the probability of a large one is charged
    in every round. With a probability that is seen, and a device that transmits in one of ten."""
    entries = [
        json.dumps({"round": k + 1, "gain": 0.001, "silent": [0] if k % 10 else []})
        for k in range(100)
    ]
    uplink, limits = flmc.Analog(csi_error=0.02), flmc.Limits(run_delta=1e-3)
    with patch("flmc.uplink.csi.EXCEEDED", 1e-6):
        spent = spent_curve(entries, uplink, limits, 2, 5)
        event = uplink.event_of_rounds(np.full((10, 1), 0.001), 5)
        assert isinstance(event, UncertainGainEvent)
        expected = event.loud.epsilon(1e-3 - 100 * 5 * 1e-6)
    assert spent.devices[0] == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("snr_db", [20.0, 30.0])
def test_inverse_questions_know_of_the_errors(
    snr_db: float, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", "--solve", "epsilon", "--scheme", "analog", "--snr-db", str(snr_db)]
    wrong = ["--csi-error", "0.01", "--scope", "run", "--rounds", "300", "--burn-in", "auto"]
    assert main([*asked, *wrong, "--json"]) == 0
    answer = json.loads(capsys.readouterr().out)
    assert answer["plan"]["privacy"]["run"]["epsilon"] <= answer["solved"]["value"] * (1 + 1e-6)


def test_a_policy_that_silences_weak_devices_leaves_less_noise() -> None:
    """The scatter is that of devices which transmit: over Rayleigh fading with |h| >= t it is e^2
    s^2/2 times the mean of 1/|h|^2 there, E1(t^2/s^2) exp(t^2/s^2)/s^2; drawn 4096 x 20 times."""
    error, scale, threshold = 0.4, 0.04, 0.03
    uplink = flmc.Digital(fading=flmc.RayleighFading(scale), csi_error=error)
    found = arrival_of(uplink, 20, flmc.ThresholdDevices(threshold))
    everybody = arrival_of(uplink, 20)
    assert found is not None
    assert everybody is not None
    far = (threshold / scale) ** 2
    expected = error**2 / 2 * exp1(far) * math.exp(far)
    spread = float(found.mean_square[0] - found.mean[0] ** 2)
    assert spread == pytest.approx(expected, rel=0.03)
    assert spread < 0.5 * float(everybody.mean_square[0] - everybody.mean[0] ** 2)


@pytest.mark.parametrize("error", [0.3, 0.6])
def test_the_temperature_is_right_under_a_policy(error: float) -> None:
    """With large errors and weak devices silent, the samples are as wide as with exact estimates:
    to five standard errors, and the 2 % that a plan leaves."""
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=0, num_experiments=8))
    policy, limits = flmc.ThresholdDevices(0.03), flmc.Limits(privacy="off")
    ratios = []
    for e in (0.0, error):
        uplink = flmc.Digital(fading=flmc.RayleighFading(0.04), csi_error=e)
        plan = flmc.plan(
            model, uplink, limits, scheduler=policy, num_rounds=full(4000, 1500), num_burn_in=500
        )
        result = flmc.run(plan, model, seed=1, chains=25, keep_draws=False)
        assert result.metrics is not None
        ratios.append(result.metrics.variance_ratio)
    exact, wrong = ratios
    assert abs(wrong.mean - exact.mean) < 5 * math.hypot(exact.se, wrong.se) + 0.02


def test_relaxing_what_becomes_impossible_is_left_out(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--scheme", "analog", "--fading", "rayleigh", "--scheduling", "threshold:0.02"]
    assert main([*words, "--snr-db", "15", "--csi-error", "0.3", "--rounds", "400"]) == 0
    said = capsys.readouterr().out
    assert "+ 3 dB" not in said
    assert "step / 2" in said
    assert main([*words, "--csi-error", "0.95"]) == 2
    assert "csi_error must be at most 0.9" in capsys.readouterr().err.replace("-", "_")
