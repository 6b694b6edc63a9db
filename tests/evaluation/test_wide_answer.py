"""What the server knows of many entries: it holds where curvatures are alike, is refused where they
are not, and its low-rank algebra is that of whole matrices."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation import wide_law
from flmc.evaluation.answer import answer_of, find_answer
from flmc.evaluation.transcript import Transcript
from flmc.evaluation.wide_law import ShrunkCurvature, WideLaws
from flmc.models.affine import Coordinates
from flmc.models.distributions import Gaussian
from flmc.planning.step_size import Curvature
from support import full, full_only

PRIOR = 4.0


def drawn(
    seed: int, dim: int, rounds: int, heat: float, spread: Array
) -> tuple[Transcript, Gaussian]:
    """What the server of one chain sees of a linear regression with ten examples for each entry,
    features of the standard deviations ``spread`` and a theta from the prior; and the exact
    posterior. The chain starts at the mode, with the temperature ``heat``."""
    rng = np.random.default_rng(seed)
    features = rng.standard_normal((10 * dim, dim)) * spread
    theta = rng.standard_normal(dim) / np.sqrt(PRIOR)
    curvature = features.T @ features + PRIOR * np.eye(dim)
    covariance: Array = np.array(np.linalg.inv(curvature), dtype=np.float64)
    targets = features @ theta + rng.standard_normal(len(features))
    mode = covariance @ (features.T @ targets)
    step = 0.3 / np.linalg.eigvalsh(curvature)[-1]
    noise = 2 * heat / step
    places = np.empty((rounds + 1, dim))
    places[0] = mode
    for s in range(rounds):
        shown = curvature @ (places[s] - mode) + np.sqrt(noise) * rng.standard_normal(dim)
        places[s + 1] = places[s] - step * shown
    return seen_at(places[None, None], step, noise), Gaussian(mode, covariance)


def seen_at(places: Array, step: float, noise: float) -> Transcript:
    """The transcript of chains with these positions, (data set, chain, round + 1, dim)."""
    rounds, dim = places.shape[2] - 1, places.shape[3]
    channel, symbols = np.full((1, rounds, dim), noise), np.zeros((1, rounds, 1))
    return Transcript(places, np.full(rounds, step), channel, symbols, rounds, True)


def prior(theta: Array) -> Array:
    return PRIOR * theta


@pytest.mark.parametrize(("rounds", "heat"), [(200, 1.0), (400, 5.0), (200, 20.0)])
def test_intervals_of_many_entries_hold(rounds: int, heat: float) -> None:
    """At three levels, from fewer rounds than entries too, hot and cold; and they are not much
    wider than noise makes them."""
    masses = []
    for seed in range(full(12, 4)):
        seen, exact = drawn(seed, 250, rounds, heat, np.ones(250))
        answer = answer_of(seen, prior, exact=exact)
        assert isinstance(answer._law, WideLaws)
        assert "curvature" in answer.parts
        assert answer.parts["curvature"][0] < 0.12
        found = [answer.held(level) for level in (0.5, 0.9, 0.95)]
        masses.append([mass.mean() for mass in found if mass is not None])
    each = np.array(masses)
    # Five standard errors over data sets, and 0.02 for the law of the curvature, which is not that
    # of these data: 250 entries of 2500 examples have eigenvalues by Marchenko and Pastur.
    tolerance = 5 * each.std(axis=0, ddof=1) / np.sqrt(len(each)) + 0.02
    assert (np.abs(each.mean(axis=0) - [0.5, 0.9, 0.95]) < tolerance).all()


@full_only
def test_a_run_of_many_entries() -> None:
    """A record of kept draws alone is enough, and the text names what is not tested."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=210, num_samples=4200))
    plan = flmc.plan(
        model,
        flmc.Analog(clip=300, snr_db=25),
        flmc.Limits(privacy="off", langevin="off"),
        num_rounds=300,
        num_burn_in=100,
        step_size=0.3 / model.smoothness,
        forecast=False,
    )
    result = flmc.run(plan, model, seed=1)
    answer = result.posterior()
    mass = answer.held(0.9)
    assert mass is not None
    # The binomial error of 210 entries of one data set is 0.02; five of them.
    assert abs(mass.mean() - 0.9) < 0.1
    # Of so many entries hardly anything is tested, and this plan has no forecast.
    assert [each.code for each in answer.doubts] == ["not-judged"]
    assert answer.num_rounds.tolist() == [199]  # the first kept draw is where the second begins
    assert "and 198 more entries" in str(answer)
    document = answer.to_document(0.8)
    assert document["covariance"] is None
    np.testing.assert_array_equal(document["ends"], answer.intervals(0.8)[0])
    assert result.path is not None
    again = find_answer(plan, 1, model, result.path.kept, by_chain=True)
    np.testing.assert_allclose(again.mean, answer.mean, rtol=1e-9)


@pytest.mark.parametrize(("dim", "rounds"), [(80, 60), (12, 90)])
def test_low_rank_is_whole_matrices(dim: int, rounds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Covariance and mean without an error of the curvature, by dense algebra; entries differ in
    their prior, with more entries than rounds and with fewer."""
    monkeypatch.setattr(wide_law, "_MOST_UNLIKE", np.inf)
    monkeypatch.setattr(wide_law, "_MOST_BIAS", 1.0)
    rng = np.random.default_rng(3)
    seen, _ = drawn(1, dim, rounds, 5.0, np.ones(dim))
    scale = rng.uniform(2.0, 6.0, dim)
    laws = WideLaws.of(seen, lambda theta: scale * theta, None, None, known=False)
    law = laws.of_sets[0]
    noise, theta = seen.channel_noise[0, 0, 0], seen.positions[0, 0]
    gradient = (theta[:-1] - theta[1:]) / seen.step_sizes[0]
    place, slope = theta[:-1].mean(axis=0), (gradient - scale * theta[:-1]).mean(axis=0)
    curvature = law.curvature
    basis = curvature.basis
    data = curvature.mean * (np.eye(dim) - basis @ basis.T) + basis @ curvature.matrix @ basis.T
    share = data @ np.linalg.inv(data + noise / rounds * np.eye(dim))
    covariance = np.linalg.inv(np.diag(scale) + share @ data)
    np.testing.assert_allclose(law.known.covariance, covariance, rtol=1e-7, atol=1e-12)
    mean = place - covariance @ (scale * place + share @ slope)
    np.testing.assert_allclose(law.known.mean, mean, rtol=1e-7, atol=1e-9)
    exact = np.linalg.inv(np.diag(scale) + data)
    np.testing.assert_allclose(law.exact.covariance, exact, rtol=1e-7, atol=1e-12)
    # What is not known of the curvature widens it.
    wider = np.linalg.eigvalsh(law.law.covariance - law.known.covariance)
    assert wider.min() > -1e-12
    rows = rng.standard_normal((5, dim))
    whole = np.einsum("ij,jk,ik->i", rows, law.law.covariance, rows)
    np.testing.assert_allclose(law.law.variances_along(rows), whole, rtol=1e-9)
    vector = rng.standard_normal(dim)
    np.testing.assert_allclose(law.law.times(vector), law.law.covariance @ vector, rtol=1e-8)


def test_the_likelihood_of_the_spread() -> None:
    """By the joint normal law of all gradients given theta, for every symmetric matrix of three
    entries; and the mean of the curvature by its conditional law."""
    rng = np.random.default_rng(2)
    places = rng.standard_normal((30, 3))
    slopes = places @ np.diag([20.0, 30.0, 40.0]) + rng.standard_normal((30, 3))
    found = ShrunkCurvature.of(places, slopes, np.ones(3), 30.0)
    pairs = [(i, j) for i in range(3) for j in range(i, 3)]
    design = np.zeros((90, 6))
    for column, (i, j) in enumerate(pairs):
        unit = np.zeros((3, 3))
        unit[i, j] = unit[j, i] = 1.0
        design[:, column] = (places @ unit).ravel()
    left = (slopes - found.mean * places).ravel()
    scale = np.array([2.0 if i == j else 1.0 for i, j in pairs])

    def likelihood(deviation: float) -> float:
        covariance = np.eye(90) + (design * deviation**2 * scale) @ design.T
        inner = left @ np.linalg.solve(covariance, left)
        return float(-0.5 * (np.linalg.slogdet(covariance)[1] + inner))

    steps = wide_law._SPREADS * found.mean
    by_steps = np.array([likelihood(each) for each in steps])
    assert found.deviation == pytest.approx(steps[by_steps.argmax()])
    assert found.largest == pytest.approx(steps[by_steps > by_steps.max() - 2.0][-1])
    law = np.diag(1.0 / (scale * found.deviation**2)) + design.T @ design
    entries = np.linalg.solve(law, design.T @ left)
    expected = found.mean * np.eye(3)
    for (i, j), entry in zip(pairs, entries, strict=True):
        expected[i, j] += entry
        expected[j, i] = expected[i, j]
    np.testing.assert_allclose(found.basis @ found.matrix @ found.basis.T, expected, rtol=1e-7)


def test_draws_are_of_the_law() -> None:
    seen, _ = drawn(1, 220, 150, 5.0, np.ones(220))
    answer = answer_of(seen, prior)
    draws = answer.draws(4000, seed=2)[0]
    # Five standard errors of a standard deviation and of a mean of 4000 draws.
    assert np.abs(draws.std(axis=0) / answer.sd[0] - 1.0).max() < 5 / np.sqrt(8000)
    assert np.abs((draws.mean(axis=0) - answer.mean[0]) / answer.sd[0]).max() < 5 / np.sqrt(4000)
    np.testing.assert_allclose(np.diag(answer.covariance[0]), np.square(answer.sd[0]), rtol=1e-9)
    assert "linearity-unknown" in [each.code for each in answer.findings]
    # Nothing tells whether the posterior is normal, unless it is known.
    assert [each.code for each in answer.doubts] == ["linearity-unknown"]
    # Public bounds change nothing, and the answer says so.
    bounded = answer_of(seen, prior, public=Curvature(1e9, 1.0, public=True))
    assert "bounds-not-used" in [each.code for each in bounded.findings]
    assert [each.code for each in bounded.doubts] == ["linearity-unknown"]
    np.testing.assert_array_equal(bounded.sd, answer.sd)


def test_other_coordinates_of_many_entries() -> None:
    """In the same unit for all entries, the answer is the same."""
    seen, _ = drawn(1, 220, 150, 5.0, np.ones(220))
    coordinates = Coordinates(np.ones(220), np.full(220, 0.1))
    moved = seen._replace(
        positions=coordinates.from_model(seen.positions),
        step_sizes=seen.step_sizes * 100.0,
        channel_noise=seen.channel_noise * 0.01,
    )
    plain = answer_of(seen, prior)
    other = answer_of(
        moved, lambda phi: 0.1 * prior(np.asarray(coordinates.to_model(phi))), coordinates
    )
    np.testing.assert_allclose(other.mean, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(other.sd, plain.sd, rtol=1e-6)
    np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-5, atol=1e-12)


def test_unlike_curvatures_are_refused() -> None:
    """A condition number of 30, or ten steep directions: intervals would not hold."""
    steep = np.where(np.arange(220) < 10, 8.0, 1.0)
    for spread in (np.geomspace(1.0, 5.5, 220), steep):
        seen, _ = drawn(1, 220, 300, 5.0, spread)
        with pytest.raises(InvalidSetting, match=r"differ too much|do not tell the mean"):
            answer_of(seen, prior)


def test_what_else_is_refused() -> None:
    seen, _ = drawn(1, 210, 100, 5.0, np.ones(210))
    with pytest.raises(InvalidSetting, match="noise of known size"):
        answer_of(seen._replace(bounded=False), prior)
    with pytest.raises(InvalidSetting, match="prior with independent entries"):
        answer_of(seen, lambda theta: theta + theta.mean(axis=-1, keepdims=True))
    # A chain without curvature; least squares would show some.
    walk = np.cumsum(np.random.default_rng(1).standard_normal((1, 1, 30, 210)), axis=2)
    with pytest.raises(InvalidSetting, match="do not tell the mean curvature"):
        answer_of(seen_at(walk, 1e-3, 1e6), np.zeros_like)
    many = seen._replace(positions=np.zeros((1, 1, 2001, 2001)), num_kept=2000)
    with pytest.raises(InvalidSetting, match="takes too long"):
        answer_of(many, prior)
    silent = seen._replace(channel_noise=np.full_like(seen.channel_noise, np.inf))
    with pytest.raises(InvalidSetting, match="rounds in which devices transmit"):
        answer_of(silent, prior)


def test_memory_grows_with_entries_times_rank() -> None:
    """For 10 000 entries and 60 rounds, of which a matrix of all pairs would take 800 MB."""
    dim, rounds = 10_000, 60
    rng = np.random.default_rng(1)
    step, noise, places = 0.2 / 1000.0, 2 * 2.0 / (0.2 / 1000.0), np.zeros((1, 1, rounds + 1, dim))
    for s in range(rounds):
        shown = 1000.0 * places[0, 0, s] + np.sqrt(noise) * rng.standard_normal(dim)
        places[0, 0, s + 1] = places[0, 0, s] - step * shown
    seen = seen_at(places, step, noise)
    tracemalloc.start()
    answer = answer_of(seen, prior)
    answer.intervals(0.9), answer.draws(10), answer.width
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    # The kept draws are dim * rounds numbers of 8 bytes; there is room for 50 copies of them.
    assert peak < 50 * 8 * dim * rounds
    # All curvatures are 1000, and the mode is 0. Least squares would find 15 % more; what is
    # left of its bias is of second order in 2 / (rounds * 0.2), and chance takes 0.005.
    assert isinstance(answer._law, WideLaws)
    shown = answer._law.of_sets[0].curvature.mean
    assert shown == pytest.approx(1000.0 - PRIOR, rel=(2 / (rounds * 0.2)) ** 2)
