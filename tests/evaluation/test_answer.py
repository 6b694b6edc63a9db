"""What the server knows: calibrated against exact posteriors, in the limits, computed twice."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.special import ndtr
from flmc.evaluation.answer import Answer, answer_of, find_answer
from flmc.evaluation.transcript import Transcript
from support import full

OFF = flmc.Limits(privacy="off")
LEVELS = (0.5, 0.8, 0.9, 0.95)


def held(model: flmc.Model, answer: Answer, level: float) -> Array:
    """Probability with which the exact posterior of each data set puts theta into the answer's
    intervals, (data set, dim): averaged over data sets from the prior, it is their coverage."""
    assert model.posterior is not None
    sd = np.sqrt(np.einsum("eii->ei", model.posterior.covariance))
    low, high = np.moveaxis((answer.intervals(level) - model.posterior.mean[..., None]), -1, 0) / sd
    return np.asarray(ndtr(high) - ndtr(low))


def run_many(uplink: flmc.Uplink, sets: int, dim: int = 5, **settings: Any) -> tuple[Any, Answer]:
    """A linear model with many data sets, and the answers of one chain each."""
    data = flmc.data.draw_linear_statistics(seed=3, dim=dim, num_experiments=sets)
    model = flmc.LinearGaussian(data)
    plan = flmc.plan(model, uplink, OFF, **settings)
    return model, flmc.run(plan, model, seed=7).posterior()


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
}


@pytest.mark.parametrize("case", CASES)
def test_intervals_of_one_chain_hold(case: str) -> None:
    """As often as they say, at four levels, for 400 fresh data sets; at most 1.15 times as wide as
    the exact ones, where draws of the hot chain would be twice as wide."""
    uplink, settings = CASES[case]
    model, answer = run_many(uplink, full(400, 100), **settings)
    for level in LEVELS:
        of_each = held(model, answer, level).mean(axis=1)
        # Five standard errors over data sets, and 0.02 for the curvature's law, which is that of
        # few degrees of freedom and is approximate.
        tolerance = 5 * of_each.std() / np.sqrt(len(of_each)) + 0.02
        assert abs(of_each.mean() - level) < tolerance, level
    assert 1.0 < np.median(answer.width) < 1.15


def test_many_entries() -> None:
    """Twenty entries: intervals hold at least as often as they say, and by no more than 0.05."""
    settings = {"num_rounds": 600, "num_burn_in": 200, "step_size": 0.01}
    model, answer = run_many(DIGITAL, full(200, 50), dim=20, **settings)
    assert 0.88 < held(model, answer, 0.9).mean() < 0.95


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


def some_curvature(rng: np.random.Generator, dim: int, condition: float) -> Array:
    """A matrix with principal curvatures from 1000/condition to 1000, in random directions."""
    own = np.linalg.qr(rng.standard_normal((dim, dim)))[0]
    return np.asarray((own * np.geomspace(1000 / condition, 1000, dim)) @ own.T)


def flat(theta: Array) -> Array:
    """Gradient of a flat prior."""
    return np.zeros_like(theta)


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


def test_parts_add_up() -> None:
    _, answer = run_many(ANALOG, 3, num_rounds=300, num_burn_in=100)
    assert set(answer.parts) == {"data", "noise", "curvature"}
    total = sum(answer.parts.values())
    np.testing.assert_allclose(total, 1.0, rtol=1e-12)
    assert all((share > 0).all() for share in answer.parts.values())


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
    arrays = flmc.load(out).arrays
    again = find_answer(plan, 3, small, arrays["draws"], arrays["burn_in"])
    np.testing.assert_array_equal(again.covariance, whole.posterior().covariance)
    fewer = find_answer(plan, 3, small, arrays["draws"])
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
