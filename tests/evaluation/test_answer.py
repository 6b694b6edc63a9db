"""What the server knows: calibrated against exact posteriors, in the limits, computed twice."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.answer import Answer, answer_of, find_answer
from flmc.evaluation.gradient_regression import TranscriptRounds
from flmc.evaluation.theta_law import ThetaLaw, _half_width
from flmc.evaluation.transcript import Transcript
from flmc.models.parameters import Layout
from flmc.planning import answer_law
from flmc.planning.step_size import Curvature
from support import full, full_only
from unknown_curvatures import answers, chains

OFF = flmc.Limits(privacy="off")
LEVELS = (0.5, 0.8, 0.9, 0.95)


def held(answer: Answer, level: float) -> Array:
    """The posterior mass in the intervals of each data set, (data set, dim)."""
    mass = answer.held(level)
    assert mass is not None
    return mass


def run_many(uplink: flmc.Uplink, sets: int, dim: int = 5, **settings: Any) -> Answer:
    """The answers of one chain each, of a linear model with many data sets."""
    data = flmc.data.draw_linear_statistics(seed=3, dim=dim, num_experiments=sets)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, uplink, OFF, **settings)
    return flmc.run(plan, model, seed=7).posterior()


DIGITAL = flmc.Digital(link=flmc.Sigmoid(0.05), clip=30, snr_db=25)
ANALOG = flmc.Analog(clip=30, snr_db=40)
FADED = flmc.Analog(clip=30, snr_db=30, fading=flmc.RayleighFading(0.2))
CASES: dict[str, tuple[flmc.Uplink, dict[str, Any]]] = {
    "digital, hot": (DIGITAL, {"num_rounds": 300, "num_burn_in": 100, "step_size": 0.01}),
    "analog": (ANALOG, {"num_rounds": 400, "num_burn_in": 100}),
    "fading": (
        FADED,
        {"num_rounds": 500, "num_burn_in": 200, "scheduler": flmc.ThresholdDevices(0.1)},
    ),
    "half of the devices": (
        ANALOG,
        {"num_rounds": 500, "num_burn_in": 200, "scheduler": flmc.RandomDevices(10)},
    ),
    "ideal": (flmc.Ideal(), {"num_rounds": 400, "num_burn_in": 100}),
    "wrong estimates of the channel": (
        flmc.Analog(clip=30, snr_db=30, fading=flmc.RayleighFading(0.2), csi_error=0.2),
        {"num_rounds": 500, "num_burn_in": 200, "scheduler": flmc.ThresholdDevices(0.1)},
    ),
    "gains that rise, noise that falls to a hundredth": (
        flmc.Analog(clip=30, snr_db=60),
        {
            "num_rounds": 400,
            "num_burn_in": 100,
            "step_size": 1.5e-3,
            "gain": np.geomspace(0.05, 0.5, 400)[:, None],
        },
    ),
    "gains of entries": (
        flmc.Analog(clip=30, snr_db=60),
        {
            "num_rounds": 400,
            "num_burn_in": 100,
            "step_size": 1.5e-3,
            "gain": np.geomspace(0.05, 0.5, 5)[None],
        },
    ),
    "larger steps first": (
        ANALOG,
        {"num_rounds": 400, "num_burn_in": 100, "burn_in_step_factor": 3.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_intervals_of_one_chain_hold(case: str) -> None:
    """As often as they say, at four levels, for 400 fresh data sets; at most 1.15 times as wide as
    the exact ones, where draws of the hot chain would be twice as wide."""
    uplink, settings = CASES[case]
    answer = run_many(uplink, full(400, 100), **settings)
    for level in LEVELS:
        of_each = held(answer, level).mean(axis=1)
        # Five standard errors over data sets, and 0.02 for the curvature's law, which is that of
        # few degrees of freedom and is approximate.
        tolerance = 5 * of_each.std() / np.sqrt(len(of_each)) + 0.02
        assert abs(of_each.mean() - level) < tolerance, level
    assert 1.0 < np.median(answer.width) < 1.15


def test_the_posterior_mass_of_intervals_is_their_integral() -> None:
    """Computed twice: from quantiles of the normal law, and by counting exact draws."""
    answer = run_many(ANALOG, 3, num_rounds=300, num_burn_in=100)
    assert answer.exact is not None
    rng, ends = np.random.default_rng(0), answer.intervals(0.8)
    for e, mass in enumerate(held(answer, 0.8)):
        draws = rng.multivariate_normal(answer.exact.mean[e], answer.exact.covariance[e], 20_000)
        inside = ((draws > ends[e, :, 0]) & (draws < ends[e, :, 1])).mean(axis=0)
        # five standard errors of a share of 20 000
        np.testing.assert_allclose(inside, mass, atol=5 * 0.4 / np.sqrt(20_000))


def test_the_second_of_two_stages() -> None:
    """Its answer is in the model's own coordinates, and holds."""
    of_each = []
    for seed in range(full(40, 12)):
        model = flmc.LinearGaussian(flmc.data.draw_linear(seed=seed))
        both = flmc.plan_two_stages(model, flmc.Analog(clip=30, snr_db=30), OFF, num_rounds=900)
        of_each.append(held(flmc.run_two_stages(both, model, seed).main.posterior(), 0.9).mean())
    tolerance = 5 * np.std(of_each) / np.sqrt(len(of_each)) + 0.02
    assert abs(np.mean(of_each) - 0.9) < tolerance


def test_coordinates_do_not_change_the_answer() -> None:
    """In other coordinates the prior is still the model's, not the law of the chains' starts."""
    data = flmc.data.draw_linear(seed=1, dim=3, num_samples=80, num_devices=4)
    model = flmc.LinearGaussian(data, prior_mean=0.5, prior_precision=2.0)
    rng = np.random.default_rng(6)
    scale = 0.1 * np.linalg.qr(rng.standard_normal((3, 3)))[0]
    white = flmc.whiten(model, scale=scale, centre=np.ones(3))
    coordinates = white.coordinates
    assert coordinates is not None
    positions = chain(rng, some_curvature(rng, 3, 3.0), 200, 1e6)
    seen = transcript(positions, 1000.0, 1e6)
    # Gradients are scaled by 0.1, and steps take that back.
    moved = Transcript(
        coordinates.from_model(positions),
        seen.step_sizes * 100.0,
        seen.channel_noise * 0.01,
        *seen[3:],
    )
    plain = answer_of(seen, lambda theta: 4 * model.prior_share(theta))
    other = answer_of(moved, lambda phi: 4 * white.prior_share(phi), coordinates)
    np.testing.assert_allclose(other.mean, plain.mean, rtol=1e-6)
    np.testing.assert_allclose(other.covariance, plain.covariance, rtol=1e-6, atol=1e-12)


def test_chains_by_themselves() -> None:
    """An answer by chain is that of a run with this chain alone."""
    model = flmc.LinearGaussian(flmc.data.draw_linear_statistics(seed=3, num_experiments=3))
    some = flmc.ThresholdDevices(0.1)
    plan = flmc.plan(model, FADED, OFF, num_rounds=300, num_burn_in=100, scheduler=some)
    result = flmc.run(plan, model, seed=1, chains=4)
    several = result.posterior(by_chain=True)
    assert result.path is not None
    theta = result.path.after_rounds
    assert several.mean.shape == (12, 5)
    for e, c in ((0, 0), (1, 3), (2, 2)):
        alone = find_answer(plan, 1, model, theta[:, c : c + 1], result.path.origin)
        # Regressions of more data sets at once sum in another order.
        np.testing.assert_allclose(several.mean[4 * e + c], alone.mean[e], rtol=1e-9)
        np.testing.assert_allclose(held(several, 0.9)[4 * e + c], held(alone, 0.9)[e], rtol=1e-7)
    both = find_answer(plan, 1, model, theta, result.path.origin, by_chain=True, sets=2, chains=3)
    np.testing.assert_allclose(both.mean, several.mean[[0, 1, 2, 4, 5, 6]], rtol=1e-9)
    np.testing.assert_allclose(held(both, 0.5), held(several, 0.5)[[0, 1, 2, 4, 5, 6]], rtol=1e-7)


def predicted_at(answer: Answer, num_draws: int, seed: int) -> Array:
    """Predictions of a model that predicts something, (draw, prediction)."""
    predicted = answer.predictions(num_draws, seed)
    assert predicted is not None
    return predicted


def test_draws_by_name() -> None:
    """The same draws as an array, by parameter, as a data frame and for ArviZ."""
    rng = np.random.default_rng(1)
    seen = transcript(chain(rng, some_curvature(rng, 3, 5.0), 300, 7e3), 1000.0, 7e3)
    layout = Layout.of_shapes(slopes=(2,), level=())
    answer = answer_of(seen, flat, layout=layout, predict=lambda theta: 2.0 * theta[:, :, :1])
    drawn = answer.draws(50, seed=4)[0]
    named = answer.parameters(50, seed=4)
    assert {name: each.shape for name, each in named.items()} == {"slopes": (50, 2), "level": (50,)}
    np.testing.assert_array_equal(named["level"], drawn[:, 2])
    np.testing.assert_array_equal(predicted_at(answer, 50, 4), 2.0 * drawn[:, :1])
    assert [row[0] for row in answer.summary().rows] == ["slopes[0]", "slopes[1]", "level"]
    pytest.importorskip("pandas")
    frame = answer.to_dataframe(50, seed=4)
    assert list(frame.columns) == ["draw", "slopes[0]", "slopes[1]", "level"]
    np.testing.assert_array_equal(frame[["slopes[0]", "slopes[1]", "level"]], drawn)
    pytest.importorskip("arviz_base", reason="needs the extra arviz")
    tree = answer.to_arviz(50, seed=4)
    np.testing.assert_array_equal(tree["posterior"]["slopes"], drawn[None, :, :2])
    predicted = tree["posterior_predictive"]["prediction"]
    np.testing.assert_array_equal(predicted, 2.0 * drawn[None, :, :1])


def test_predictions_are_those_of_the_model() -> None:
    """In the sampler's coordinates draws are others, and the predictions the same."""
    small = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, dim=3, num_samples=80, num_devices=4))
    known = small.posterior
    assert known is not None
    own = flmc.Model.from_gradient(
        lambda theta: small.gradient(theta[None])[0] - theta[:, None] / small.num_devices,
        prior=flmc.Normal(),
        dim=3,
        num_devices=small.num_devices,
        smoothness=small.smoothness,
        convexity=small.convexity,
        posterior=known,
        predict=lambda theta: theta @ np.array([[1.0], [2.0], [0.0]]),
    )
    for model in (own, flmc.whiten(own, scale=np.full(3, 0.1))):
        plan = flmc.plan(model, ANALOG, OFF, num_rounds=200, num_burn_in=60)
        answer = flmc.run(plan, model, seed=3).posterior()
        drawn = answer.draws(20)[0]
        np.testing.assert_allclose(
            predicted_at(answer, 20, 0), drawn @ np.array([[1.0], [2.0], [0.0]]), rtol=1e-9
        )
        # The exact posterior comes in the model's coordinates, too.
        assert answer.exact is not None
        np.testing.assert_allclose(answer.exact.covariance, known.covariance, rtol=1e-9)


def test_chains_that_do_not_move_are_refused() -> None:
    """In one direction, because two entries are the same; beyond the range of numbers; and where
    nobody transmits in most rounds."""
    rng = np.random.default_rng(1)
    positions = chain(rng, some_curvature(rng, 3, 5.0), 300, 7e3)
    twice = positions.copy()
    twice[..., 2] = twice[..., 1]
    for moved in (twice, 1e200 * positions, np.zeros_like(positions)):
        with pytest.raises(InvalidSetting, match="move in every direction"):
            answer_of(transcript(moved, 1000.0, 7e3), flat)
    silent = transcript(positions, 1000.0, 7e3)
    silent.channel_noise[:, 9:] = np.inf
    with pytest.raises(InvalidSetting, match="in which devices transmit, got 9"):
        answer_of(silent, flat)


def test_only_twelve_entries_are_printed() -> None:
    rng = np.random.default_rng(1)
    seen = transcript(chain(rng, some_curvature(rng, 15, 2.0), 500, 7e3), 1000.0, 7e3)
    answer = answer_of(seen, flat)
    labels = [row.label for row in answer.listing().rows]
    assert labels[:14] == [*(f"theta[{i}]" for i in range(12)), "", "width"]
    assert "and 3 more entries" in str(answer)
    document = answer.to_document(0.8)
    assert len(document["mean"]) == 15
    np.testing.assert_array_equal(document["ends"], answer.intervals(0.8)[0])


@full_only
def test_many_entries() -> None:
    """Twenty entries: intervals hold at least as often as they say, and by no more than 0.05."""
    settings = {"num_rounds": 600, "num_burn_in": 200, "step_size": 0.01}
    answer = run_many(DIGITAL, full(200, 50), dim=20, **settings)
    assert 0.88 < held(answer, 0.9).mean() < 0.95


def chain(rng: np.random.Generator, curvature: Array, rounds: int, noise: float) -> Array:
    """Positions of a chain about zero with this curvature (dim, dim), (1, 1, round + 1, dim); its
    step is 0.3 over the largest curvature."""
    step = 0.3 / np.linalg.eigvalsh(curvature)[-1]
    theta = np.zeros((rounds + 1, len(curvature)))
    for s in range(rounds):
        gradient = curvature @ theta[s] + np.sqrt(noise) * rng.standard_normal(len(curvature))
        theta[s + 1] = theta[s] - step * gradient
    return theta[None, None]


def transcript(positions: Array, largest: float, noise: float) -> Transcript:
    """The transcript of a chain of :func:`chain`, of which all rounds are kept."""
    rounds, dim = positions.shape[2] - 1, positions.shape[3]
    return Transcript(
        positions,
        np.full(rounds, 0.3 / largest),
        np.full((1, rounds, dim), noise),
        np.zeros((1, rounds, 1)),
        rounds,
        True,
    )


def test_sums_of_equal_rounds_are_weighted_sums() -> None:
    """Two computations of the sums over rounds of equal weights: products over stretches of equal
    steps, from each chain's own first round on, and sums of weighted copies."""
    rng, rounds, start = np.random.default_rng(8), 80, np.array([[0, 7], [33, 80], [50, 2]])
    deviations = rng.standard_normal((3, 2, rounds + 1, 4)).astype(np.float32)
    seen = Transcript(
        np.asarray(deviations, dtype=np.float64), np.repeat([0.3, 0.1], [30, 50]),
        np.full((1, rounds, 4), 2.0), np.zeros((1, rounds, 1)), rounds, True,
        rng.standard_normal((3, 4)),
    )  # fmt: skip
    of_seen = TranscriptRounds.of(seen)
    x = of_seen._deviations
    theta = seen.theta(slice(None))
    np.testing.assert_allclose(x[:, :, :4].mT, theta - theta[:, :1, -1:], atol=1e-14)
    plain = of_seen._sums(x, start, 0, rounds)
    weighted = of_seen._weighted_sums(x, start, 0, rounds)
    for one, other in zip(plain, weighted, strict=True):
        # Rounding errors of a sum of 80 numbers near 1, over the step's square.
        np.testing.assert_allclose(one, other, rtol=1e-11, atol=1e-10)


def some_curvature(rng: np.random.Generator, dim: int, condition: float) -> Array:
    """A matrix with principal curvatures from 1000/condition to 1000, in random directions."""
    own = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return np.asarray((own * np.geomspace(1000 / condition, 1000, dim)) @ own.T)


def flat(theta: Array) -> Array:
    """Gradient of a flat prior."""
    return np.zeros_like(theta)


@full_only
def test_long_chains_know_the_posterior() -> None:
    """The limit of many rounds: mode and curvature are known, also at a condition of 30."""
    rng = np.random.default_rng(1)
    curvature, rounds = some_curvature(rng, 3, 30.0), 200_000
    answer = answer_of(transcript(chain(rng, curvature, rounds, 7e3), 1000.0, 7e3), flat)
    exact = np.linalg.inv(curvature)
    # The variance of the estimated curvature in the flattest direction, 2/(rounds q), q = 0.01.
    tolerance = 5 * np.sqrt(2 / (rounds * 0.01))
    np.testing.assert_allclose(answer.sd[0], np.sqrt(np.diag(exact)), rtol=tolerance)
    assert answer.width.max() < 1.01
    assert (np.abs(answer.mean[0]) < 5 * np.sqrt(np.diag(exact) * 0.01)).all()


def test_draws_and_closed_forms_agree() -> None:
    """Draws by Bartlett's decomposition and the closed forms are two computations of one law."""
    rng = np.random.default_rng(2)
    for condition in (1.0, 10.0):
        curvature = some_curvature(rng, 4, condition)
        seen = transcript(chain(rng, curvature, 1500, 7e3), 1000.0, 7e3)
        answer = answer_of(seen, lambda theta: 50.0 * theta)
        draws = answer.draws(40_000)[0]
        # Standard error of a variance: sqrt(2/40000) = 0.7 %; the closed form takes the principal
        # directions as independent, which is right to second order in 1/(degrees of freedom).
        np.testing.assert_allclose(draws.std(axis=0), answer.sd[0], rtol=0.035)
        np.testing.assert_allclose(draws.mean(axis=0) / answer.sd[0], answer.mean[0] / answer.sd[0],
                                   atol=0.04)  # fmt: skip
        inside = (draws > answer.intervals(0.9)[0, :, 0]) & (draws < answer.intervals(0.9)[0, :, 1])
        np.testing.assert_allclose(inside.mean(axis=0), 0.9, atol=0.02)


def test_rotations_rotate_the_answer() -> None:
    rng = np.random.default_rng(3)
    turn = np.linalg.qr(rng.standard_normal((4, 4)))[0]
    positions = chain(rng, some_curvature(rng, 4, 5.0), 400, 7e3)
    one = answer_of(transcript(positions, 1000.0, 7e3), lambda theta: 20 * theta)
    other = answer_of(transcript(positions @ turn.T, 1000.0, 7e3), lambda theta: 20 * theta)
    np.testing.assert_allclose(other.mean, one.mean @ turn.T, atol=1e-9)
    np.testing.assert_allclose(other.covariance, turn @ one.covariance @ turn.T, atol=1e-11)


@pytest.mark.parametrize("noise", [1e2, 1e6, 1e12])
def test_never_wider_than_the_prior(noise: float) -> None:
    """However noisy: what is unknown remains as unknown as before."""
    rng = np.random.default_rng(4)
    seen = transcript(chain(rng, some_curvature(rng, 3, 100.0), 60, noise), 1000.0, noise)
    answer = answer_of(seen, lambda theta: 4.0 * theta)
    assert np.linalg.eigvalsh(answer.covariance[0])[-1] <= 0.25 * (1 + 1e-9)
    assert answer.draws(2000)[0].std(axis=0).max() < 0.5 * (1 + 5 / np.sqrt(4000))


@pytest.mark.parametrize(("dim", "step"), [(1, 1e-5), (1, 1e-3), (5, 1e-5)])
def test_a_random_walk_tells_nothing(dim: int, step: float) -> None:
    """Chains that hardly feel a curvature: 90 % intervals hold about as often as they say, where
    the law of a covariance matrix holds 20 to 65 %; and nearly all answers say that they do not
    know."""
    sets = full(400, 100)
    made = chains(np.ones(dim), step, 300, 100.0, 20.0, sets, 4)
    answer = answers(made)
    low, high = np.moveaxis(answer.intervals(0.9), -1, 0)
    inside = ((low < made.truth) & (made.truth < high)).mean(axis=1)
    # Five standard errors; one walk in twenty in a dimension has a curvature by chance, and
    # intervals of these miss.
    assert inside.mean() > 0.9 - 0.05 - 5 * inside.std() / np.sqrt(sets)
    doubted = ["curvature-unknown" in {f.code for f in answer.findings_of(e)} for e in range(sets)]
    assert np.mean(doubted) > 0.8
    assert np.median(answer.sd) > 0.85 / np.sqrt(made.prior)


def test_public_bounds_of_the_curvature_narrow_intervals() -> None:
    """At some ten degrees of freedom: intervals still hold, and are narrower; a well-known
    curvature is not touched by bounds a factor of 4 away."""
    sets = full(400, 100)
    for step, slow in ((0.03, True), (0.4, False)):
        made = chains(np.ones(3), step, 300, 1.0, 20.0, sets, 5)
        plain, public = answers(made), answers(made, Curvature(4.0, 0.25, public=True))
        low, high = np.moveaxis(public.intervals(0.9), -1, 0)
        inside = ((low < made.truth) & (made.truth < high)).mean(axis=1)
        assert inside.mean() > 0.9 - 0.02 - 5 * inside.std() / np.sqrt(sets)
        if slow:
            assert public.sd.mean() < 0.6 * plain.sd.mean()
        else:
            np.testing.assert_allclose(np.median(public.sd), np.median(plain.sd), rtol=1e-6)


def test_draws_keep_to_public_bounds_in_every_direction() -> None:
    """A well-known curvature of 1 and a public smoothness of 0.5: no direction, along an
    eigenvector of the estimate or not, has a smaller variance than 1/0.5."""
    made = chains(np.ones(3), 0.4, 300, 1.0, 20.0, 1, 5)
    answer, count = answers(made, Curvature(0.5, 0.1, public=True)), 4000
    # Five standard errors of a variance.
    least = (1 - 5 * np.sqrt(2 / count)) / 0.5
    assert np.linalg.eigvalsh(answer.covariance[0])[0] > 1 / 0.5
    assert np.linalg.eigvalsh(np.cov(answer.draws(count)[0].T))[0] > least
    plain = answers(made).draws(count)[0]
    assert np.linalg.eigvalsh(np.cov(plain.T))[0] < least


def test_rounds_contradict_public_bounds_that_are_wrong() -> None:
    """A convexity of three times the curvature, under which 90 % intervals hold 82 %, and a
    smoothness of 0.4 times it; never bounds that are right, for equal curvatures and unequal ones,
    at their very edge."""
    sets = full(200, 40)

    def share(dim: int, rounds: int, step: float, convexity: float, smoothness: float) -> float:
        made = chains(np.linspace(1.0, 0.2, dim), step, rounds, 1.0, 20.0, sets, 7)
        answer = answers(made, Curvature(smoothness, convexity, public=True))
        codes = [{each.code for each in answer.findings_of(e)} for e in range(sets)]
        return float(np.mean(["bounds-contradicted" in each for each in codes]))

    for dim, rounds, step in ((1, 100, 0.1), (5, 300, 0.3), (20, 300, 0.1), (20, 1000, 0.4)):
        assert share(dim, rounds, step, 1.0 if dim == 1 else 0.2, 1.0) == 0.0
    assert share(5, 300, 0.3, 0.0, 1.0) == 0.0  # no convexity is public
    assert share(5, 1000, 0.4, 0.6, 10.0) > 0.9
    assert share(5, 1000, 0.4, 0.01, 0.4) > 0.9


@pytest.mark.parametrize("reach", [5.0, 50.0])
def test_intervals_change_smoothly_with_degrees_of_freedom(reach: float) -> None:
    """From a random walk to a well-known curvature, one hundredth of a degree at a time: intervals
    only narrow, and nowhere at once."""
    degrees = np.arange(4.0, 30.0, 0.01)[:, None]
    floor, weight = np.full_like(degrees, reach**-2), np.full(len(degrees), 15.0)
    data = answer_law.curvatures(np.ones_like(degrees), floor, degrees, weight)
    half = _half_width(np.sqrt(answer_law.variances(data, floor, weight)), 0.9)[:, 0]
    ratio = half[1:] / half[:-1]
    # The grid of curvatures has steps of some 20 %, of which each quantile makes one at a time.
    assert 0.8 < ratio.min() < ratio.max() < 1.05
    assert half[0] > 0.5 * reach * 1.645 > 1.2 * 1.645 > half[-1]


@pytest.mark.parametrize(
    ("planned", "code", "light"),
    [
        (np.inf, "curvature-unknown", "use"),
        (1.0, "curvature-by-chance", "sampling"),
        (60.0, "curvature-unknown", "sampling"),
    ],
)
def test_doubts_compare_the_curvature_with_the_plan(planned: float, code: str, light: str) -> None:
    """Some ten degrees of freedom: intervals are wide and hold; they may be too narrow where the
    plan expects almost none, and the chain is lost where it expects many."""
    made = chains(np.ones(1), 0.03, 300, 1.0, 5.0, 60, 4)
    answer = replace(answers(made), planned_degrees=planned)
    assert isinstance(answer._law, ThetaLaw)
    own = answer_law.own_degrees(answer._law.degrees)[:, 0]
    at = int(np.abs(own - 10.0).argmin())
    found = {each.code: each for each in answer.findings_of(at)}
    assert found[code].light == light
    assert found[code].severity == "warning"
    if code == "curvature-unknown":
        assert "100 % of theta" in found[code].message
    assert len(found.keys() & {"curvature-unknown", "curvature-by-chance"}) == 1


def doubts_of(
    model: flmc.LinearGaussian, uplink: flmc.Uplink, **settings: Any
) -> tuple[set[str], Answer]:
    """Codes of the findings with the light of sampling, and the answer."""
    plan = flmc.plan(model, uplink, OFF, **settings)
    answer = flmc.run(plan, model, seed=1).posterior()
    return {each.code for each in answer.findings if each.light == "sampling"}, answer


def test_an_answer_says_that_its_plan_predicted_nothing() -> None:
    """Devices with sorted data, which clip most of their gradients: no plan can predict it, and
    the answer is many standard deviations off."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((1000, 3))
    y = x @ rng.standard_normal(3) + rng.standard_normal(1000)
    order = np.argsort(y)
    model = flmc.LinearGaussian(flmc.LinearData(x[order], y[order], (200,) * 5))
    sizes = {"num_rounds": 400, "num_burn_in": 100}
    codes, answer = doubts_of(model, flmc.Analog(clip=30, snr_db=30), **sizes)
    assert (held(answer, 0.9) < 0.01).any()
    assert {"no-prediction", "clipped"} <= codes
    assert {each.code for each in answer.doubts} >= {"no-prediction", "clipped"}
    # Whatever leaves the program says so, too.
    assert "doubted: " in str(answer.summary())
    assert len(answer.to_dataframe(10).attrs["doubts"]) == len(answer.doubts)
    # A plan without a forecast is said. It is no reason to prefer draws of the chain.
    codes, answer = doubts_of(model, flmc.Analog(clip=3000, snr_db=70), forecast=False, **sizes)
    assert codes == {"not-judged"}
    assert not answer.doubts


def test_an_answer_doubts_noise_with_a_memory() -> None:
    """Two halves of the devices in turn over the analog uplink: their differences do not average
    out like noise. Random halves, all devices, and bits are no reason."""
    model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_devices=10))
    turns = np.tile(np.kron(np.eye(2), np.ones(5)), (200, 1))
    loud, sizes = flmc.Analog(clip=60, snr_db=40), {"num_rounds": 400, "aim": "answer"}
    assert "noise-memory" in doubts_of(model, loud, active=turns, **sizes)[0]
    slow = replace(loud, fading=flmc.GaussMarkovFading(0.2))
    reached = {"scheduler": flmc.ThresholdDevices(0.1), **sizes}
    assert "noise-memory" in doubts_of(model, slow, **reached)[0]
    for uplink, given in (
        (loud, {"active": np.ones((400, 10))}),
        (loud, {"scheduler": flmc.RandomDevices(5)}),
        (replace(loud, fading=flmc.RayleighFading(0.2)), {"scheduler": flmc.ThresholdDevices(0.1)}),
        (flmc.Digital(link=flmc.Sigmoid(0.05), clip=60, snr_db=25), {"active": turns}),
    ):
        assert "noise-memory" not in doubts_of(model, uplink, **given, **sizes)[0]


def test_an_answer_doubts_a_prior_that_hides_the_data() -> None:
    """A prior five times as precise as the data, and forty degrees of freedom; not a weak one, and
    not where a smallest curvature is public."""
    data = flmc.data.draw_linear(seed=1, num_devices=5, num_samples=200, dim=8)
    sizes = {"num_rounds": 400, "num_burn_in": 80}
    uplink = flmc.Analog(clip=2000, snr_db=45)
    strong = flmc.LinearGaussian(data, prior_precision=1000.0)
    weak = flmc.LinearGaussian(data, prior_precision=1.0)
    for model, doubted in ((strong, True), (weak, False)):
        step = 0.1 / model.smoothness
        codes, _ = doubts_of(model, uplink, step_size=step, **sizes)
        assert ("strong-prior" in codes) == doubted
    public = {"public_smoothness": strong.smoothness, "public_convexity": strong.convexity}
    codes, _ = doubts_of(strong, uplink, step_size=0.1 / strong.smoothness, **sizes, **public)
    assert "strong-prior" not in codes


def test_a_plan_carries_its_public_curvature(small: flmc.LinearGaussian) -> None:
    """To a document and back, and not in the digest; what is computed from data is no bound."""
    settings: dict[str, Any] = {"num_rounds": 60, "num_burn_in": 20, "step_size": 1e-3}
    plain = flmc.plan(small, ANALOG, OFF, **settings)
    public = flmc.plan(
        small, ANALOG, OFF, public_smoothness=500.0, public_convexity=5.0, **settings
    )
    assert plain.public_curvature is None
    assert public.public_curvature == Curvature(500.0, 5.0, public=True)
    assert flmc.Plan.from_document(public.to_document()).public_curvature == public.public_curvature
    assert "public_curvature" not in plain.to_document()


def test_parts_add_up() -> None:
    answer = run_many(ANALOG, 3, num_rounds=300, num_burn_in=100)
    assert set(answer.parts) == {"data", "noise", "curvature"}
    total = sum(answer.parts.values())
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    assert all((share > 0).all() for share in answer.parts.values())


@full_only
def test_a_bent_gradient_is_told() -> None:
    """A third derivative that moves the mean by a third of a standard deviation is seen in 20 000
    rounds; without it nothing is said in 200 chains, but for one in a hundred."""
    rng = np.random.default_rng(5)

    def codes(bend: float, rounds: int) -> set[str]:
        theta = np.zeros((rounds + 1, 1))
        for s in range(rounds):
            z = theta[s] * np.sqrt(1000.0)
            gradient = np.sqrt(1000.0) * (z + bend * np.square(z) / (1 + np.square(z) / 20))
            theta[s + 1] = theta[s] - 3e-4 * (gradient + np.sqrt(7e3) * rng.standard_normal(1))
        answer = answer_of(transcript(theta[None, None], 1000.0, 7e3), flat)
        return {each.code for each in answer.findings}

    assert "not-quadratic" in codes(0.5, 20_000)
    # Two standard deviations of a count with mean 2 at the stated level of 1 %, and one more.
    assert sum("not-quadratic" in codes(0.0, 500) for _ in range(200)) <= 6


def test_burn_in_counts_and_a_record_keeps_it(tmp_path: Path, small: flmc.LinearGaussian) -> None:
    """A recorded run, stopped and resumed, knows the same to the last bit."""
    plan = flmc.plan(small, ANALOG, OFF, num_rounds=120, num_burn_in=60)
    whole = flmc.run(plan, small, seed=3, chains=2)
    out = tmp_path / "run"
    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(plan, small, seed=3, chains=2, out=out, checkpoint_rounds=10, stop=_after(3))
    resumed = flmc.resume(out, plan, small)
    np.testing.assert_array_equal(resumed.burn_in, whole.burn_in)
    np.testing.assert_array_equal(resumed.posterior().mean, whole.posterior().mean)
    # The start, the burn-in and the kept rounds.
    theta = flmc.load(out).arrays["positions"]
    assert theta.shape[2] == 121
    again = find_answer(plan, 3, small, theta[:, :, 1:])
    np.testing.assert_array_equal(again.covariance, whole.posterior().covariance)
    np.testing.assert_array_equal(
        flmc.load(out).posterior(small).covariance, whole.posterior().covariance
    )
    fewer = find_answer(plan, 3, small, theta[:, :, 61:])
    assert (fewer.num_rounds < again.num_rounds).all()


def _after(calls: int) -> Any:
    """A function that says stop when it was asked so many times."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= calls


def test_what_has_no_answer_is_refused(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, ANALOG, OFF, num_rounds=60, num_burn_in=20)
    with pytest.raises(InvalidSetting, match="keep_draws=True"):
        flmc.run(plan, small, keep_draws=False).posterior()
    with pytest.raises(InvalidSetting, match="thin=1"):
        flmc.run(plan, small, thin=2).posterior()
    short = flmc.plan(small, ANALOG, OFF, num_rounds=60, num_burn_in=55)
    with pytest.raises(InvalidSetting, match="at least 10 kept rounds for 3 entries, got 5"):
        flmc.run(short, small).posterior()
    signs = flmc.Digital(link=flmc.Sign(), clip=30, snr_db=25)
    loud = flmc.Limits(privacy="off", langevin="off")
    steps = flmc.plan(small, signs, loud, num_rounds=60, num_burn_in=20, step_size=1e-4)
    with pytest.raises(InvalidSetting, match="Sign has none"):
        flmc.run(steps, small).posterior()
    swinging = flmc.plan(small, ANALOG, OFF, num_rounds=60, num_burn_in=20, step_size=1e-3,
                         update=flmc.Momentum(0.5))  # fmt: skip
    with pytest.raises(InvalidSetting, match="Momentum is another"):
        flmc.run(swinging, small).posterior()


def test_ranks_of_the_truth_are_uniform() -> None:
    """Simulation-based calibration of one chain a data set: the truth, a draw of the exact
    posterior, is as likely to have any rank among the answer's draws; so is its distance from the
    mean, which looks at all entries together."""
    sets, bins = full(1000, 200), 8
    answer = run_many(DIGITAL, sets, num_rounds=500, num_burn_in=100, step_size=0.01)
    exact, rng = answer.exact, np.random.default_rng(6)
    assert exact is not None
    root = np.linalg.cholesky(exact.covariance)
    truth = exact.mean + (root @ rng.standard_normal((sets, 5, 1)))[..., 0]
    draws = answer.draws(bins * 16 - 1, seed=1)
    ranks = [(draws < truth[:, None]).sum(axis=1)[:, i] for i in range(5)]
    metric = np.linalg.cholesky(np.linalg.inv(answer.covariance))
    away = np.concatenate([truth[:, None], draws], axis=1) - answer.mean[:, None]
    distance = np.square(away @ metric).sum(axis=2)
    ranks.append((distance[:, 1:] < distance[:, :1]).sum(axis=1))
    for rank in ranks:
        counts = np.bincount(rank // 16, minlength=bins)
        expected = sets / bins
        statistic = float((np.square(counts - expected) / expected).sum())
        # Mean and variance of chi-square with 7 degrees of freedom are 7 and 14; its tail beyond
        # five of its standard deviations is 0.03 %. The law of the curvature is approximate, which
        # these counts cannot see.
        assert statistic < 7 + 5 * np.sqrt(14), counts


@pytest.mark.parametrize("correlation", [0.0, 0.9])
def test_a_prior_that_is_not_round_beside_a_wide_answer(correlation: float) -> None:
    """Far more noise than data, prior precisions 1 and 400: the eigenvectors of the curvature are
    not those of the prior, and intervals are those of the draws, and hold."""
    sets, samples, devices, precision = full(200, 60), 200, 10, np.array([1.0, 400.0])
    rng = np.random.default_rng(17)
    theta = rng.standard_normal((sets, 2)) / np.sqrt(precision)
    common = np.sqrt(correlation) * rng.standard_normal((sets, samples, 1))
    features = common + np.sqrt(1 - correlation) * rng.standard_normal((sets, samples, 2))
    targets = np.einsum("esm,em->es", features, theta) + rng.standard_normal((sets, samples))
    data = flmc.LinearData(features, targets, (samples // devices,) * devices)
    model = flmc.LinearGaussian(data, prior_precision=precision)
    noise, step = (2e7, 0.3 / 420) if correlation else (2.4e6, 0.3 / 260)
    plan = flmc.plan(
        model, flmc.Analog(clip=1e4, snr_db=80), flmc.Limits(privacy="off"), num_rounds=600,
        gain=noise**-0.5, effective_step_size=step, num_burn_in=50, aim="answer",
    )  # fmt: skip
    answer = flmc.run(plan, model, seed=3).posterior()
    drawn = answer.draws(2000)
    # A standard deviation of 2000 draws has an error of 1/sqrt(4000), five of them are 8 %; the
    # mixture's tails and the quantiles that stand for it make another 4 %.
    assert np.median(np.abs(answer.sd / drawn.std(axis=1) - 1), axis=0).max() < 0.12
    low, high = np.moveaxis(answer.intervals(0.9), -1, 0)
    held = ((theta > low) & (theta < high)).mean(axis=0)
    # Five binomial standard errors.
    assert np.abs(held - 0.9).max() < 5 * np.sqrt(0.09 / sets), held
