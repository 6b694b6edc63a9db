"""Stein's evidence judges entries and directions with errors of its own, and says where it has
none."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.signal import lfilter

import flmc
from flmc.base.arrays import Array
from flmc.base.findings import Finding
from flmc.evaluation.stein import Evidence, examine
from flmc.evaluation.stein_judgement import LEVEL, effective_draws, make_groups
from support import full

WIDE = flmc.Normal(0.0, 1e6)  # no prior to speak of


def model(precision: Array) -> flmc.Model:
    return flmc.Model.from_gradient(
        lambda theta: (theta @ precision)[:, None],
        prior=WIDE,
        dim=len(precision),
        num_devices=1,
    )


def memory(rng: np.random.Generator, chains: int, draws: int, dim: int, rho: float) -> Array:
    """Chains of standard normal draws that remember a share rho of the one before."""
    noise = rng.standard_normal((chains, draws, dim)) * math.sqrt(1 - rho**2)
    noise[:, 0] /= math.sqrt(1 - rho**2)
    return np.asarray(lfilter([1.0], [1.0, -rho], noise, axis=1))


def rotation(dim: int) -> Array:
    return np.linalg.qr(np.random.default_rng(5).standard_normal((dim, dim)))[0]


def three_times_too_wide() -> tuple[flmc.Model, Array]:
    return model(np.eye(3)), math.sqrt(3.0) * np.eye(3)


def cancelling() -> tuple[flmc.Model, Array]:
    """Entries at 1.7 and 0.3 of the posterior's variance: their mean is right."""
    return model(np.eye(2)), np.diag(np.sqrt([1.7, 0.3]))


def soft_direction() -> tuple[flmc.Model, Array]:
    """One of ten directions, which is soft and along no entry, is three times too wide: the mean
    over entries is 1.2."""
    axes, variances = rotation(10), np.array([25.0] + [1.0] * 9)
    wide = variances * np.array([3.0] + [1.0] * 9)
    return model(axes @ np.diag(1 / variances) @ axes.T), axes @ np.diag(np.sqrt(wide))


KINDS = {"one chain": (1, 5000, 0.9), "chains": (20, 100, 0.5), "last draws": (200, 1, 0.0)}
"""Chains, draws of each, and memory."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wrong", [three_times_too_wide, cancelling, soft_direction])
def test_draws_that_are_wrong_somewhere_are_blamed(wrong: object, kind: str) -> None:
    """In 100 runs of each, none was missed; so in 10 (3) none may be."""
    target, root = wrong()  # type: ignore[operator]
    chains, draws, rho = KINDS[kind]
    for seed in range(full(10, 3)):
        rng = np.random.default_rng(seed)
        found = examine(target, memory(rng, chains, draws, len(root), rho) @ root.T)
        # 200 draws tell 0.3 from 1 more surely than 1.7.
        expected = "too narrow" if wrong is cancelling else "too wide"
        assert expected in " ".join(found.warnings), (seed, found)
        assert found.score > 1


def test_the_soft_direction_is_named_with_its_ratio() -> None:
    target, root = soft_direction()
    found = examine(target, memory(np.random.default_rng(1), 20, 1000, 10, 0.0) @ root.T)
    assert abs(found.stein_ratio - 1.2) < 5 * found.stein_ratio_se
    worst = found.off[0]
    assert (worst.what, worst.rank) == ("direction", 0)
    # The direction is that of the draws, which is the posterior's own but for its error.
    assert abs(worst.value - 3.0) < 5 * worst.se
    assert "along principal direction 1" in found.warnings[0]
    assert found.largest_direction == worst.value


def test_a_shift_along_a_stiff_direction_is_seen() -> None:
    """By one posterior standard deviation of a direction that is narrow beside all entries."""
    axes, variances = rotation(4), np.array([100.0, 100.0, 100.0, 0.01])
    target = model(axes @ np.diag(1 / variances) @ axes.T)
    draws = memory(np.random.default_rng(2), 20, 100, 4, 0.0) @ np.diag(np.sqrt(variances))
    draws[..., 3] += 0.1
    found = examine(target, draws @ axes.T)
    assert found.mean_shift < 0.2
    assert abs(found.mean_shift_direction - 1.0) < 0.3
    assert "principal direction 4" in found.warnings[0]


CORRECT = [(1, 1000, 5, 0.8), (4, 200, 20, 0.5), (60, 1, 3, 0.0), (10, 50, 5, 0.5)]
"""Chains, draws of each, entries, and memory."""


def test_right_draws_are_blamed_no_more_often_than_stated() -> None:
    """What counts is significance alone, without the limits 0.8 and 1.25 that a warning needs."""
    runs = full(400, 100) // len(CORRECT)
    found = []
    for chains, draws, dim, rho in CORRECT:
        rng = np.random.default_rng(7)
        mixed = rng.standard_normal((dim, dim))
        precision = mixed @ mixed.T / dim + 0.2 * np.eye(dim)
        root = np.linalg.cholesky(np.linalg.inv(precision))
        target = model(precision)
        found += [
            examine(target, memory(rng, chains, draws, dim, rho) @ root.T) for _ in range(runs)
        ]
    known = [each for each in found if not each.why_unknown]
    assert len(known) > 0.9 * len(found)
    # At the nominal level the count is binomial; five of its standard errors above.
    expected = LEVEL * len(known)
    blamed = sum(each.score > 1 for each in known)
    assert blamed <= expected + 5 * math.sqrt(expected)
    assert sum(bool(each.warnings) for each in found) <= expected + 5 * math.sqrt(expected)


@pytest.mark.parametrize(("chains", "draws", "rho"), [(1, 2000, 0.8), (3, 600, 0.7), (15, 60, 0.5)])
def test_errors_from_batches_are_those_of_repeats(chains: int, draws: int, rho: float) -> None:
    rng = np.random.default_rng(4)
    repeats = full(200, 50)
    found = [examine(model(np.eye(2)), memory(rng, chains, draws, 2, rho)) for _ in range(repeats)]
    spread = np.std([each.stein_ratio for each in found], ddof=1)
    stated = math.sqrt(np.mean([each.stein_ratio_se**2 for each in found]))
    # The spread of n repeats has a relative error of about 1/sqrt(2n).
    assert abs(spread / stated - 1) < 5 / math.sqrt(2 * repeats)
    mean = np.mean([each.stein_ratio for each in found])
    assert abs(mean - 1) < 5 * spread / math.sqrt(repeats)


def codes(findings: list[Finding]) -> list[tuple[str, str]]:
    return [(each.code, each.severity) for each in findings]


@pytest.mark.parametrize(("scale", "severity"), [(3.0, "warning"), (1.0, "note")])
def test_an_unknown_error_is_said(scale: float, severity: str) -> None:
    """One chain with so much memory that it holds a few independent draws."""
    draws = math.sqrt(scale) * memory(np.random.default_rng(5), 1, 400, 2, 0.95)
    found = examine(model(np.eye(2)), draws)
    assert math.isnan(found.stein_ratio_se)
    assert found.num_groups == 0
    assert codes(found.findings()) == [("draws-unknown", severity)]
    message = found.findings()[0].message
    assert "is not known" in message
    assert "effective draws, and errors need 40" in message
    assert "error not known" in found.rows[0].value


def test_draws_that_tell_nothing_are_said_to_tell_nothing() -> None:
    still = np.zeros((4, 50, 2))
    still[..., 0] = np.random.default_rng(1).standard_normal((4, 50))
    hollow = flmc.Model.from_gradient(
        lambda theta: np.full((len(theta), 1, 2), np.nan), prior=WIDE, dim=2, num_devices=1
    )
    for target, draws, severity, why in (
        (model(np.eye(2)), still, "warning", "do not vary in theta[1]"),
        (hollow, memory(np.random.default_rng(1), 4, 50, 2, 0.0), "warning", "not finite"),
        (model(np.eye(2)), np.zeros((1, 1, 2)), "note", "one draw has no spread"),
    ):
        found = examine(target, draws)
        assert codes(found.findings()) == [("draws-unknown", severity)]
        assert why in found.findings()[0].message
        assert why in found.rows[0].value
        assert found.to_document()["stein_ratio"] is None


def test_a_run_of_one_chain_says_what_it_knows() -> None:
    """A clip far too small makes draws too wide, and one long chain shows it."""
    target = flmc.Model.from_gradient(
        lambda theta: 20.0 * np.repeat(theta[:, None], 2, axis=1),
        prior=flmc.Normal(),
        dim=2,
        num_devices=2,
        smoothness=45.0,
        convexity=40.0,
    )
    plan = flmc.plan(target, flmc.Analog(clip=3.0), num_rounds=4000, num_burn_in=500)
    result = flmc.run(plan, target, chains=1)
    assert result.evidence is not None
    assert result.evidence.num_groups >= 8
    assert any("too wide" in text for text in result.warnings)
    short = flmc.plan(target, flmc.Analog(clip=3.0), num_rounds=60, num_burn_in=30)
    codes_found = [each.code for each in flmc.run(short, target, chains=1).findings]
    assert {"draws-unknown", "draws-not-judged"} & set(codes_found)


def test_the_stein_ratio_and_the_variance_ratio_are_named_apart() -> None:
    """A soft direction, three times too wide, decides tr C/tr Sigma and hardly tr(C Sigma^-1)/d."""
    found = examine(model(np.diag([0.01, 1.0])), draws_of_a_soft_entry())
    assert abs(found.stein_ratio - 2.0) < 5 * found.stein_ratio_se
    document = found.to_document()
    assert (document["stein_ratio"], document["stein_ratio_se"]) == (
        found.stein_ratio,
        found.stein_ratio_se,
    )
    assert not any("variance_ratio" in name for name in document)
    assert found.rows[0].label == "Stein ratio"
    assert not any("variance ratio" in f"{row.label} {row.value}" for row in found.rows)
    messages = [each.message for each in found.findings()]
    assert not any("variance ratio" in text for text in messages)


def draws_of_a_soft_entry() -> Array:
    return memory(np.random.default_rng(3), 20, 200, 2, 0.0) @ np.diag([math.sqrt(300.0), 1.0])


@settings(deadline=None, max_examples=full(50, 15))
@given(
    unit=st.floats(1e-3, 1e3),
    shift=st.floats(-1e3, 1e3),
    seed=st.integers(0, 2**32 - 1),
)
def test_unit_and_origin_change_nothing(unit: float, shift: float, seed: int) -> None:
    draws = memory(np.random.default_rng(seed), 5, 100, 2, 0.3)
    here = examine(model(np.eye(2)), draws)
    there = flmc.Model.from_gradient(
        lambda theta: ((theta / unit - shift) / unit)[:, None],
        prior=flmc.Normal(0.0, 1e9),
        dim=2,
        num_devices=1,
    )
    moved = examine(there, (draws + shift) * unit)
    for name in ("stein_ratio", "largest_direction", "mean_shift", "effective_draws", "score"):
        # Deviations of order 1 lose about three digits beside a shift of 1000.
        assert getattr(here, name) == pytest.approx(getattr(moved, name), rel=1e-6, abs=1e-6)


@settings(deadline=None, max_examples=full(200, 50))
@given(chains=st.integers(1, 300), draws=st.integers(1, 2000), effective=st.floats(1.0, 5000.0))
def test_groups_are_disjoint_and_large_enough(chains: int, draws: int, effective: float) -> None:
    effective = max(float(chains), min(effective, float(chains * draws)))
    groups = make_groups(chains, draws, effective)
    if groups is None:
        assert effective < 8 * 5 + 5 * chains
        return
    seen = np.zeros((chains, draws), dtype=int)
    for part in groups.parts:
        assert seen[part].size
        seen[part] += 1
    assert seen.max() == 1
    assert 8 <= len(groups) <= 40
    assert effective / len(groups) >= 5
    assert 1.0 <= groups.widening < 1.06


def test_effective_draws_are_those_of_the_memory() -> None:
    """An autoregression with rho = 0.8 has the autocorrelation time 1.8/0.2 = 9."""
    sizes = [
        effective_draws(memory(np.random.default_rng(seed), 2, 5000, 1, 0.8))
        for seed in range(full(20, 6))
    ]
    # Each estimate scatters by about 8 %; the smallest of two is somewhat lower.
    assert np.mean(sizes) == pytest.approx(10_000 / 9, rel=0.12)
    assert effective_draws(np.zeros((7, 2, 1))) == 7.0


def test_evidence_of_right_draws_is_quiet() -> None:
    found = examine(model(np.eye(3)), memory(np.random.default_rng(1), 4, 1000, 3, 0.5))
    assert isinstance(found, Evidence)
    assert not found.findings()
    assert found.num_judged == 13
