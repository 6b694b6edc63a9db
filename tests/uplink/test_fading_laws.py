"""Every fading has its marginal law and its autocorrelation.

Tolerances are five standard errors: of a mean over independent draws; of an autocorrelation over
independent devices, each of which gives one time average."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from scipy.special import j0

import flmc
from flmc.base.arrays import Array, ComplexArray
from flmc.base.errors import InvalidSetting
from support import full

COUNT = full(200_000, 20_000)


def drawn(fading: flmc.Fading, rounds: int, devices: int, dim: int = 1, seed: int = 1) -> Array:
    return fading.draw_checked(np.random.default_rng(seed), range(rounds), devices, dim)


LAWS: list[tuple[flmc.Fading, Any]] = [
    (flmc.RayleighFading(0.3), stats.rayleigh(scale=0.3 / np.sqrt(2))),
    (flmc.RicianFading(0.3, 0.0), stats.rayleigh(scale=0.3 / np.sqrt(2))),
    (
        # scipy's rice(b, scale s): b = sqrt(2 K), s^2 = scale^2/(2 (K + 1)).
        flmc.RicianFading(0.3, 4.0),
        stats.rice(np.sqrt(8.0), scale=0.3 / np.sqrt(10.0)),
    ),
    (flmc.NakagamiFading(0.3, 0.5), stats.nakagami(0.5, scale=0.3)),
    (flmc.NakagamiFading(0.3, 3.0), stats.nakagami(3.0, scale=0.3)),
    (flmc.SelectiveFading(0.3, 2.0), stats.rayleigh(scale=0.3 / np.sqrt(2))),
    (flmc.TappedDelayFading(0.3), stats.rayleigh(scale=0.3 / np.sqrt(2))),
]


@pytest.mark.parametrize(
    ("fading", "law"), LAWS, ids=[type(f).__name__ + str(i) for i, (f, _) in enumerate(LAWS)]
)
def test_the_law_of_a_round(fading: flmc.Fading, law: Any) -> None:
    """Kolmogorov-Smirnov: sqrt(n) D exceeds 2.65 with probability 2 exp(-2 2.65^2) = 1.6e-6, which
    is that of five standard errors."""
    gains = drawn(fading, COUNT, 1)[:, 0, 0]
    assert stats.kstest(gains, law.cdf).statistic < 2.65 / np.sqrt(COUNT)


@pytest.mark.parametrize(
    "fading",
    [fading for fading, _ in LAWS]
    + [
        flmc.GaussMarkovFading(0.3, 0.8),
        flmc.JakesFading(0.3, 0.2),
        flmc.ConstantFading(0.3),
        flmc.DistanceFading(4.0, 0.3, 3.0, 4.0),
        flmc.DistanceFading(4.0, 0.3, 2.0),
        flmc.DistanceFading((1.0, 2.0, 3.0), 0.3, 2.5),
    ],
    ids=repr,
)
def test_mean_squares_are_those_that_are_stated(fading: flmc.Fading) -> None:
    devices = 3 if fading.constant else COUNT
    power = np.square(drawn(fading, 2, devices)[0, :, 0])
    error = 0.0 if fading.constant else power.std() / np.sqrt(devices)
    assert fading.mean_square is not None
    assert abs(power.mean() - fading.mean_square) <= 5 * error + 1e-12


@pytest.mark.parametrize(
    ("fading", "correlation"),
    [
        (flmc.GaussMarkovFading(0.3, 0.9), lambda lag: 0.9**lag),
        (flmc.GaussMarkovFading(0.3, 0.0), lambda lag: float(lag == 0)),
        (flmc.JakesFading(0.3, 0.05), lambda lag: j0(2 * np.pi * 0.05 * lag)),
        (flmc.JakesFading(0.3, 0.7), lambda lag: j0(2 * np.pi * 0.7 * lag)),
    ],
    ids=["markov 0.9", "markov 0", "jakes 0.05", "jakes 0.7"],
)
def test_autocorrelation(fading: flmc.Fading, correlation: Any) -> None:
    """h^2 of a complex Gaussian process with autocorrelation c has the autocorrelation c^2; and h
    is Rayleigh in every round, the last as well."""
    rounds, devices = 300, full(8000, 1500)
    gains = drawn(fading, rounds, devices)[:, :, 0]
    power = np.square(gains / 0.3) - 1.0  # mean 0 and variance 1 by the law of the exponential
    for lag in (0, 1, 3, 10, 40, 128, 250):
        products = (power[lag:] * power[: rounds - lag]).mean(axis=0)
        error = products.std() / np.sqrt(devices)
        # The grid of frequencies of Jakes' fading: see its docstring.
        allowed = 5 * error + 0.03 * isinstance(fading, flmc.JakesFading) * (lag / rounds) ** 2
        assert abs(products.mean() - correlation(lag) ** 2) < allowed, lag
    law = stats.rayleigh(scale=0.3 / np.sqrt(2))
    for now in (0, 150, rounds - 1):
        assert stats.kstest(gains[now], law.cdf).statistic < 2.65 / np.sqrt(devices)


@pytest.mark.parametrize(
    "fading", [flmc.SelectiveFading(0.3, 2.0), flmc.TappedDelayFading(0.3, 1000.0, 60.0)]
)
def test_entries_are_correlated_by_the_profile(fading: Any) -> None:
    """Two subcarriers n apart have the complex correlation that is the Fourier transform of the
    profile; their powers have its squared magnitude."""
    dim = 12
    power = np.square(drawn(fading, full(60_000, 8000), 1, dim)[:, 0] / 0.3) - 1.0
    for apart in (0, 1, 2, 5, 11):
        if isinstance(fading, flmc.SelectiveFading):
            powers = fading.profile(dim)
            expected = powers @ np.exp(-2j * np.pi * apart * np.arange(len(powers)) / dim)
        else:
            delays, decibels = np.array(fading.taps).T
            powers = 10 ** (decibels / 10)
            turns = delays * 1e-6 * 60e3 * apart
            expected = (powers @ np.exp(-2j * np.pi * turns)) / powers.sum()
        products = power[:, 0] * power[:, apart]
        error = products.std() / np.sqrt(len(products))
        assert abs(products.mean() - abs(expected) ** 2) < 5 * error, apart


def test_the_tabulated_profile_has_its_delay_spread() -> None:
    """Delays are in units of the root mean square delay spread, which so is 1."""
    delays, decibels = np.array(flmc.TappedDelayFading().taps).T
    weights = 10 ** (decibels / 10) / np.sum(10 ** (decibels / 10))
    assert np.sqrt(weights @ delays**2 - (weights @ delays) ** 2) == pytest.approx(1.0, abs=1e-3)


@given(
    rounds=st.integers(1, 30),
    devices=st.integers(1, 5),
    entries=st.integers(1, 4),
    seed=st.integers(0, 9),
)
def test_traces_round_trip(
    rounds: int, devices: int, entries: int, seed: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = tmp_path_factory.mktemp("trace")
    rng = np.random.default_rng(seed)
    complex_: ComplexArray = np.asarray(rng.standard_normal((rounds, devices, entries)) + 1j)
    np.savez(place / "t.npz", h=complex_, normalisation=0.5, carrier_hz=3.5e9)
    trace = flmc.TraceFile(str(place / "t.npz"))
    np.testing.assert_array_equal(trace.gains, np.abs(0.5 * complex_))
    same = flmc.TraceFading(np.multiply(0.5, complex_, dtype=np.complex128))
    sizes = (devices, entries)
    asked = range(rounds // 2, rounds)
    np.testing.assert_array_equal(
        trace.draw_checked(rng, asked, *sizes), same.draw_checked(rng, asked, *sizes)
    )
    np.savetxt(place / "t.csv", np.abs(complex_[:, :, 0]), delimiter=",", fmt="%.17g")
    plain = flmc.TraceFile(str(place / "t.csv"))
    np.testing.assert_array_equal(plain.gains[:, :, 0], np.abs(complex_[:, :, 0]))
    with pytest.raises(InvalidSetting, match=f"has {rounds} rounds, and {rounds + 1} are needed"):
        trace.draw_checked(rng, range(rounds + 1), *sizes)
    with pytest.raises(InvalidSetting, match=f"of {devices + 1} devices"):
        trace.draw_checked(rng, range(rounds), devices + 1, entries)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", b"1,2", "must be a .csv or .npz file"),
        ("a.csv", b"1,x", "cannot be read: ValueError"),
        ("a.csv", b"1,2\n3", "cannot be read"),
        ("a.csv", b"1,0\n", r"got 0 in round 1, device 2"),
        ("a.csv", b"1,nan\n", r"got nan in round 1, device 2"),
        ("a.npz", b"zip", "cannot be read"),
        ("missing.csv", None, "No such file"),
    ],
)
def test_wrong_traces(name: str, content: bytes | None, message: str, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    with pytest.raises(InvalidSetting, match=message):
        flmc.TraceFile(str(tmp_path / name))


def test_a_plan_knows_its_trace(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    path = tmp_path / "t.csv"
    np.savetxt(path, np.full((40, 4), 0.05), delimiter=",")
    uplink = flmc.Digital(fading=flmc.TraceFile(str(path)))
    plan = flmc.plan(small, uplink, num_rounds=40, num_burn_in=10)
    again = flmc.Plan.from_document(plan.to_document())
    assert again.digest == plan.digest
    with pytest.raises(InvalidSetting, match="it has 40 rounds, and 41 are needed"):
        flmc.plan(small, uplink, num_rounds=41, num_burn_in=10)
    np.savetxt(path, np.full((40, 4), 0.06), delimiter=",")
    with pytest.raises(InvalidSetting, match="was changed: its digest is"):
        flmc.Plan.from_document(plan.to_document())


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: flmc.RicianFading(0.1, -1), "K factor must not be negative"),
        (lambda: flmc.NakagamiFading(0.1, 0.4), "at least 0.5, got 0.4"),
        (lambda: flmc.GaussMarkovFading(0.1, 1.0), r"in \[0, 1\), got 1.0"),
        (lambda: flmc.JakesFading(0.1, 0.0), "must be positive"),
        (lambda: flmc.DistanceFading(0.5), "from 1 .the reference distance."),
        (lambda: flmc.DistanceFading((1.0, -2.0)), "from 1 .the reference distance."),
        (lambda: flmc.SelectiveFading(0.1, -1), "must be positive"),
        (lambda: flmc.TappedDelayFading(taps=((-1.0, 0.0),)), "not negative"),
        (lambda: flmc.TraceFading(np.zeros((3, 2))), "got 0 in round 1, device 1"),
        (lambda: flmc.TraceFading(np.ones(3)), r"got shape \(3,\)"),
    ],
)
def test_wrong_parameters(make: Any, message: str) -> None:
    with pytest.raises(InvalidSetting, match=message):
        make()


def test_traces_that_amplify_are_told_of(small: flmc.LinearGaussian) -> None:
    rng = np.random.default_rng(1)
    rayleigh = np.abs(rng.standard_normal((40, 4)) + 1j * rng.standard_normal((40, 4)))
    for scale, severities in ((0.04, []), (0.5, ["note"]), (3.0, ["warning"])):
        trace = flmc.TraceFading(scale * rayleigh)
        planned = flmc.plan(small, flmc.Digital(fading=trace), num_rounds=40, num_burn_in=10)
        codes = [each for each in planned.findings if each.code == "path-gain-above-1"]
        assert [each.severity for each in codes] == severities
    (told,) = flmc.TraceFading(3 * rayleigh).findings
    assert told.numbers["root_mean_square"] == pytest.approx(
        float(np.sqrt(np.mean(np.square(3 * rayleigh))))
    )


def test_signed_traces_are_refused_unless_complex() -> None:
    with pytest.raises(InvalidSetting, match=r"got -0\.1 in round 2"):
        flmc.TraceFading(np.array([[0.1, 0.2], [0.3, -0.1]]))
    assert (flmc.TraceFading(np.array([[-0.1 + 0j, 0.2j]])).gains > 0).all()
