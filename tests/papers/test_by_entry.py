"""The conjecture `by entry`: its gains against given ones and simulated losses, its marks, and the
numbers of the text."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.cli import main
from flmc.evaluation.metrics import squared_errors
from flmc.papers.qflmc import design_search, readings
from flmc.papers.qflmc.design_search import entry_gain, exceedance
from flmc.papers.qflmc.experiment import FigurePoint, Laboratory
from flmc.papers.qflmc.landmarks import LANDMARKS, crossings, digital_stops_db
from flmc.papers.qflmc.readings import READINGS, Reading
from flmc.sampling.simulation import simulate
from flmc.uplink.links import Sigmoid
from support import full, full_only

BY_ENTRY = next(reading for reading in READINGS if reading.name == "by entry")


def laboratory() -> Laboratory:
    return Laboratory(flmc.LinearGaussian(flmc.data.draw_linear(seed=0)), 0)


def planned_gain(uplink: flmc.Uplink, epsilon: float | None, reading: Reading = BY_ENTRY) -> float:
    point = FigurePoint("3", reading, uplink.scheme, epsilon or 0.0, uplink, epsilon)
    return laboratory().plan(point).typical_gain


@pytest.mark.parametrize(
    ("slope", "epsilon", "gain"),
    [
        (0.05, 1.0, 0.06131),
        (0.05, 5.0, 0.34057),
        (0.05, 7.0, 0.62477),
        (0.01, 1.0, 0.30162),
        (0.03, 1.0, 0.09308),
        (0.07, 1.0, 0.04970),
    ],
)
def test_digital_gains(slope: float, epsilon: float, gain: float) -> None:
    # Given to five decimals; at 25 dB power allows 0.71, so that privacy decides.
    assert planned_gain(flmc.Digital(link=Sigmoid(slope)), epsilon) == pytest.approx(gain, abs=5e-6)


@pytest.mark.parametrize(
    ("epsilon", "gain"), [(5.0, 0.0028435), (7.5, 0.0041859), (15.0, 0.0078086)]
)
def test_analog_gains(epsilon: float, gain: float) -> None:
    assert planned_gain(flmc.Analog(), epsilon) == pytest.approx(gain, abs=5e-8)


def test_analog_gain_solves_the_printed_formula() -> None:
    """T(x) with the half and epsilon/m is 1 - delta at x = 2 m ell^2 A^2/N_0."""
    x = 2 * 5 * 30.0**2 * entry_gain(flmc.Analog(), 5.0, 0.01, dim=5) ** 2
    root = 2 * math.sqrt(x)
    value = 0.5 * (math.erf((1 - x) / root) - math.erf((-1 - x) / root))
    assert value == pytest.approx(0.99, abs=1e-9)


def test_digital_gain_against_drawn_losses() -> None:
    """The loss of one entry, drawn, exceeds epsilon/m as often as the closed form says."""
    count = full(1_000_000, 100_000)
    rng = np.random.default_rng(0)
    high = 1 / (1 + math.exp(-1.5))
    gain = entry_gain(flmc.Digital(), 5.0, 0.01, dim=5)
    bits = np.where(rng.random(count) < high, 1.0, -1.0)
    received = gain * bits + rng.standard_normal(count)
    grown = np.exp(2 * gain * received)
    loss = np.log((high * grown + 1 - high) / ((1 - high) * grown + high))
    share = float((np.abs(loss) > 1.0).mean())
    # A count of rare events: its standard error is that of a binomial share; 5 of them.
    assert abs(share - 0.01) < 5 * math.sqrt(0.01 * 0.99 / count)


def test_largest_loss_of_an_entry() -> None:
    """From ln(p/q) = a ell on no gain is too large; certain bits are a Gaussian pair."""
    assert entry_gain(flmc.Digital(), 7.5 * (1 + 1e-9), 0.01, dim=5) == math.inf
    assert math.isfinite(entry_gain(flmc.Digital(), 7.4, 0.01, dim=5))
    # Two normal distributions 2 A apart: the loss is N(2 A^2, 4 A^2).
    assert exceedance(0.5, 1.0, 1.0) == pytest.approx(
        flmc.privacy.gaussian.tail_delta(1.0, 1.0), rel=1e-12
    )


def test_limits_of_noise_and_power() -> None:
    """The Langevin noise requirement limits analog alone; power limits both, at any epsilon."""
    assert planned_gain(flmc.Analog(), 100.0) == pytest.approx(math.sqrt(1.28e-4 / 2))
    assert planned_gain(flmc.Analog(), None) == pytest.approx(math.sqrt(1.28e-4 / 2))
    power = 0.04 * 10 ** (25 / 20)
    assert planned_gain(flmc.Digital(), 100.0) == pytest.approx(power)
    assert planned_gain(flmc.Digital(), None) == pytest.approx(power)
    for uplink, epsilon, binding in (
        (flmc.Digital(), 5.0, "privacy"),
        (flmc.Digital(), 9.0, "power"),
        (flmc.Analog(), 20.0, "langevin"),
    ):
        point = FigurePoint("3", BY_ENTRY, uplink.scheme, epsilon, uplink, epsilon)
        assert laboratory().plan(point).binding == binding


def test_gains_are_below_those_of_the_exact_pair() -> None:
    """The report says so of its figures."""
    for slope in readings.SLOPES:
        uplink = flmc.Digital(link=Sigmoid(slope))
        for epsilon in (0.25, 1.0, 5.0, 7.0, 10.0):
            exact = uplink.privacy_event([(1.0, 5)]).allowed_gain(epsilon, 0.01, "tail")
            entry = entry_gain(uplink, epsilon, 0.01, dim=5)
            assert entry < exact or entry == exact == math.inf


def test_only_the_conjecture_is_marked_as_one() -> None:
    assert [reading.name for reading in READINGS if reading.conjecture] == ["by entry"]
    assert "conjecture" in BY_ENTRY.words
    assert "not a sound privacy rule" in BY_ENTRY.words
    assert BY_ENTRY.label == "by entry (conjecture)"
    # A plan under the conjecture makes no statement of a budget that it would not keep.
    limits = BY_ENTRY.limits("digital", 5.0, 0.01)
    assert (limits.privacy, limits.epsilon) == ("off", None)


def test_the_conjecture_is_a_combination_of_the_search() -> None:
    printed = [values[0] for values in design_search.CHOICES.values()]
    conjecture = design_search.Combination(*printed)  # type: ignore[arg-type]
    conjecture = replace(conjecture, langevin="analog only", accountant="by entry")
    for uplink in (flmc.Digital(), flmc.Analog()):
        for epsilon in (1.0, 5.0, 16.0):
            gain = design_search.gain_of(conjecture, uplink.scheme, 0.05, 25.0, epsilon)
            assert gain == pytest.approx(planned_gain(uplink, epsilon), rel=1e-8)


@pytest.mark.parametrize(
    ("kind", "digital", "analog"),
    [
        ("both", True, True),
        ("analog only", False, True),
        ("digital only", True, False),
        ("neither", False, False),
    ],
)
def test_langevin_limit_is_switched_for_each_scheme(kind: str, digital: bool, analog: bool) -> None:
    printed = [values[0] for values in design_search.CHOICES.values()]
    chosen = replace(
        design_search.Combination(*printed),  # type: ignore[arg-type]
        langevin=kind,
        power="off",
    )
    for scheme, step, limited in (("digital", 8.28e-3, digital), ("analog", 1.28e-4, analog)):
        gain = design_search.gain_of(chosen, scheme, 0.05, 25.0, None)
        assert (gain == pytest.approx(math.sqrt(step / 2))) is limited


def test_digital_stops_improving() -> None:
    """The proof: with the printed bound digital's gain is the same from 13.7 dB on, whatever its
    step, and power allows less below."""
    stops = digital_stops_db()
    assert stops == pytest.approx(13.7, abs=0.05)
    for langevin in ("both", "neither"):
        for step in (0.1, 1.0, 10.0):
            printed = [values[0] for values in design_search.CHOICES.values()]
            chosen = replace(
                design_search.Combination(*printed),  # type: ignore[arg-type]
                langevin=langevin,
                digital_step=step,
            )
            below, *above = (
                design_search.gain_of(chosen, "digital", 0.05, snr_db, 5.0)
                for snr_db in (stops - 0.1, stops, 15.0, 20.0, 30.0)
            )
            assert above == pytest.approx([above[0]] * 4, rel=1e-9)
            assert below <= above[0]
            if langevin == "neither":
                assert below == pytest.approx(above[0] * 10 ** (-0.1 / 20), rel=1e-6)


def test_analog_error_falls_with_the_gain() -> None:
    """The other half of the proof: analog's gain does not fall with the SNR, and a larger gain has
    the smaller error, with clipping too; the same random numbers serve all gains."""
    gains = [planned_gain(flmc.Analog(snr_db=x), 5.0, READINGS[1]) for x in (0.0, 10.0, 15.0, 20.0)]
    assert gains == sorted(gains)
    data = flmc.data.draw_linear_statistics(seed=0, num_experiments=400)
    model = flmc.LinearGaussian(data)
    for step in (1.28e-5, 1.28e-4, 1.28e-3):
        errors = []
        for gain in (0.0005, 0.001, 0.002, 0.004, 0.008):
            limits, loud = flmc.Limits(langevin="off"), flmc.Analog(snr_db=200.0)
            plan = flmc.plan(model, loud, limits, step_size=step, gain=gain, forecast=False)
            errors.append(squared_errors(simulate(plan, model, 0).moments).mean())
        assert errors == sorted(errors, reverse=True)


def test_crossings() -> None:
    x = np.array([0.0, 1.0, 2.0, 3.0])
    ours, theirs = np.exp(np.array([[1.0], [-1.0], [-2.0], [1.0]])), np.ones((4, 1))
    assert crossings(x, ours, theirs) == pytest.approx((0.5, 2 + 2 / 3))
    assert crossings(x, theirs, 2 * theirs) == ()


@full_only
def test_numbers_of_the_text(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By entry puts them at 7.2, 15.4 and 7.3, where 7.5, 15 and 7.5 are printed; the report and
    the JSON mark it as a conjecture."""
    out = tmp_path / "out"
    experiments = full(200, 20)
    arguments = ["--figure", "3", "--experiments", str(experiments), "--out", str(out), "--json"]
    assert main(["reproduce", *arguments]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["conjectures"] == ["by entry"]
    found = document["numbers"]["by entry"]
    # The first two follow from formulas, to 0.1 %.
    assert found["digital until"] == pytest.approx([7.23], abs=0.02)
    assert found["analog until"] == pytest.approx([15.43], abs=0.03)
    # The logarithm of the ratio of mean errors has a standard error of 0.18/sqrt(experiments) and
    # rises by 0.19 for each 1 of epsilon there: 5 standard errors of the crossing are 4.7/sqrt(n).
    assert found["crossing epsilon"] == pytest.approx([7.3], abs=4.7 / math.sqrt(experiments))
    assert set(found) == {name for name, mark in LANDMARKS.items() if mark.figure == "3"}
    for name in ("report.md", "report.html"):
        words = " ".join((out / name).read_text().split())
        assert "conjecture about the authors&#x27; program" in words or (
            "conjecture about the authors' program" in words
        )
        assert "not a sound privacy rule" in words
        assert "201 344" in words
        assert "none of which satisfies all claims" in words
        assert "by entry (conjecture)" in words
        assert "Leveraging Channel Noise for Sampling and Privacy" in words
        assert "A reading is one way to take the paper's text" in words.replace("&#x27;", "'")
        assert words.index("Summary") < words.index("A reading is") < words.index("Claims")
        assert "13.7 dB" in words
