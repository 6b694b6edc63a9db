"""Draws half way between positions: the law that they have, in every engine; the same bits wherever
a run is cut, however it is thinned; and what plans predict of them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import flmc
from flmc.base.errors import InvalidSetting
from flmc.planning.plans.release import draws_with_memory
from flmc.planning.server_update import LANGEVIN
from midpoints import measure
from posteriors import FOLDER
from support import full, full_only

OFF = flmc.Limits(privacy="off")
ENGINES = ("numpy", "numba", "jax")


def isotropic(dim: int, examples: int) -> flmc.LinearGaussian:
    """Linear regression on 4 devices whose posterior has about the same curvature everywhere."""
    data = flmc.data.draw_linear(seed=2, num_samples=examples, dim=dim, num_devices=4)
    return flmc.LinearGaussian(data)


def linear_plan(model: flmc.LinearGaussian, q: float, **given: Any) -> flmc.Plan:
    """A plan at temperature 1 without clipping, whose step times the largest curvature is q."""
    uplink = flmc.Analog(clip=1e4, snr_db=120.0)
    settings = {"num_rounds": 150, "num_burn_in": 50, "start": "zero", "forecast": False}
    step = q / (model.smoothness or 1.0)
    return flmc.plan(model, uplink, OFF, step_size=step, **{**settings, **given})


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("q", [0.2, 0.5, 1.0])
def test_a_linear_chain_has_the_posterior_s_variance(engine: str, q: float) -> None:
    """Exactly 1/lambda in every direction, and 1/(1 - q/2) times that at positions."""
    model = isotropic(2, 400)
    chains = full(800, 300) if engine != "numpy" else full(400, 150)
    values, directions = np.linalg.eigh(np.asarray(model.posterior.covariance[0]))
    for draw_at in ("midpoints", "positions"):
        plan = linear_plan(model, q, draw_at=draw_at)
        result = flmc.run(plan, model, seed=1, chains=chains, engine=engine)
        away = (result.draws - model.posterior.mean[0]) @ directions / np.sqrt(values)
        squares = np.square(away).mean(axis=1)  # (chain, direction)
        error = squares.std(axis=0, ddof=1) / chains**0.5
        euler = 1.0 - plan.step_size / values / 2.0
        expected = np.ones(2) if draw_at == "midpoints" else 1.0 / euler
        assert (np.abs(squares.mean(axis=0) - expected) < 5 * error).all()
        assert (5 * error < 0.25).all()


@pytest.mark.parametrize("draw_at", ["midpoints", "positions"])
@pytest.mark.parametrize("q", [0.1, 0.6, 1.4])
def test_draws_are_worth_what_their_mean_says(q: float, draw_at: str) -> None:
    """The variance of the mean of n draws of a chain at rest, summed over all pairs of rounds."""
    r, n, midpoints = 1.0 - q, 30, draw_at == "midpoints"
    theta = r ** np.abs(np.subtract.outer(np.arange(n + 1), np.arange(n + 1)))
    take = np.eye(n + 1)[1:]
    if midpoints:
        take = (take + np.eye(n + 1)[:-1]) / 2
    covariance = take @ theta @ take.T
    worth = covariance[0, 0] / covariance.mean()
    if r >= 0 or midpoints:
        assert draws_with_memory(r, n, midpoints=midpoints) == pytest.approx(worth, rel=1e-9)
    assert draws_with_memory(r, n, midpoints=midpoints) <= n


@pytest.mark.parametrize("engine", ENGINES)
def test_draws_are_means_of_positions(engine: str) -> None:
    """Of the positions before and after each kept round, the start among them; and moments are
    those of all draws, kept or not."""
    model = isotropic(3, 200)
    for burn_in in (0, 37):
        plan = linear_plan(model, 0.5, num_rounds=150, num_burn_in=burn_in, start="prior")
        settings: dict[str, Any] = {"seed": 3, "chains": 5, "engine": engine}
        result = flmc.run(plan, model, **settings)
        path = result.path
        assert path is not None
        assert path.positions.shape == (1, 5, 151, 3)
        theta = path._theta(slice(None))
        halves = (theta[:, :, burn_in:-1] + theta[:, :, burn_in + 1 :]) / 2
        # Compiled engines hold deviations of about 1 in single precision.
        tolerance = 1e-12 if engine == "numpy" else 3e-7
        np.testing.assert_allclose(result.draws_by_chain, halves, atol=tolerance)
        np.testing.assert_allclose(result.mean, result.draws_by_chain.mean(axis=(1, 2)), atol=1e-12)
        without = flmc.run(plan, model, keep_draws=False, **settings)
        np.testing.assert_array_equal(without.covariance, result.covariance)
        for thin in (2, 7, 150 - burn_in):
            few = flmc.run(plan, model, thin=thin, **settings)
            np.testing.assert_array_equal(few.draws, result.draws[:, thin - 1 :: thin])
            np.testing.assert_array_equal(few.covariance, result.covariance)
            with pytest.raises(InvalidSetting, match="run with thin=1"):
                few.posterior()


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize(
    ("keep", "thin"), [(True, 1), (True, 7), (False, 1)], ids=["all", "thinned", "none"]
)
def test_a_run_may_be_cut_anywhere(engine: str, keep: bool, thin: int, tmp_path: Path) -> None:
    """Before and after the last round of the burn-in and of a draw: the same bits, answer too."""
    model = isotropic(3, 200)
    plan = linear_plan(model, 0.5, num_rounds=150, num_burn_in=50, start="prior")
    settings: dict[str, Any] = {"seed": 3, "chains": 3, "engine": engine}
    kept: dict[str, Any] = {"keep_draws": keep, "thin": thin}
    whole = flmc.run(plan, model, **kept, **settings)
    for every in (1, 7, 16, 49, 50, 51, 57)[full(0, 1) :: full(1, 3)]:
        out = tmp_path / f"record-{every}"
        for number in range(1000):
            stop = _after(2)
            try:
                if number == 0:
                    done = flmc.run(plan, model, out=out, checkpoint_rounds=every, stop=stop,
                                    **kept, **settings)  # fmt: skip
                else:
                    done = flmc.resume(out, plan, model, stop=stop)
                break
            except flmc.errors.Interrupted:
                continue
        np.testing.assert_array_equal(done.covariance, whole.covariance)
        if keep:
            np.testing.assert_array_equal(done.draws, whole.draws)
            np.testing.assert_array_equal(flmc.load(out).draws, whole.draws)
        if keep and thin == 1:
            np.testing.assert_array_equal(done.posterior().mean, whole.posterior().mean)
            recorded = flmc.load(out).posterior(model)
            np.testing.assert_array_equal(recorded.mean, whole.posterior().mean)


def _after(calls: int) -> Any:
    """A function that says stop when it was asked so many times."""
    asked = iter(range(10**6))
    return lambda: next(asked) >= calls


@pytest.mark.parametrize("engine", ENGINES)
def test_many_draws_stay_in_a_file(
    engine: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Positions and draws beyond the limit; without the burn-in, from its last position on."""
    model = isotropic(3, 200)
    plan = linear_plan(model, 0.5)
    whole = flmc.run(plan, model, seed=3, chains=2, engine=engine)
    monkeypatch.setattr("flmc.sampling.path.MOST_DRAWN_BYTES", 1000)
    result = flmc.run(plan, model, seed=3, chains=2, engine=engine, out=tmp_path / "record")
    assert isinstance(result.chains, np.memmap)
    assert result.path is not None
    assert isinstance(result.path.positions, np.memmap)
    assert result.path.positions.shape[2] == 101
    assert result.burn_in is None
    np.testing.assert_array_equal(result.draws, whole.draws)
    np.testing.assert_array_equal(flmc.load(tmp_path / "record").draws, whole.draws)
    answers = result.posterior(), flmc.load(tmp_path / "record").posterior(model)
    np.testing.assert_array_equal(answers[0].mean, answers[1].mean)


@pytest.mark.parametrize("seed", range(full(20, 2)))
def test_predictions_of_plans_that_nobody_tuned(seed: int) -> None:
    """Covariance of the draws of random linear regressions, links, clips, schedules and steps up to
    q = 1.2 against the prediction, along the axes of the posterior: five standard errors, and
    3 % for what the prediction neglects (clipping that is not linear)."""
    rng = np.random.default_rng([34, seed])
    dim, devices = int(rng.integers(1, 5)), int(rng.integers(2, 12))
    features = rng.normal(size=(devices * 40, dim)) * rng.uniform(0.4, 1.5, dim)
    truth = rng.normal(size=dim)
    targets = features @ truth + rng.normal(size=len(features))
    model = flmc.LinearGaussian(flmc.LinearData(features, targets, (40,) * devices))
    clip = float(rng.uniform(3.0, 8.0) * np.sqrt(40))
    uplink: flmc.Uplink = flmc.Analog(clip=clip, snr_db=float(rng.uniform(40, 80)))
    if rng.random() < 0.5:
        link = flmc.Sigmoid(float(rng.uniform(0.3, 1.0)) / clip)
        uplink = flmc.Digital(clip=clip, link=link, snr_db=float(rng.uniform(40, 80)))
    some = flmc.RandomDevices(max(1, devices // 2)) if rng.random() < 0.3 else None
    q = float(rng.uniform(0.05, 1.2))
    plan = flmc.plan(
        model, uplink, OFF, num_rounds=400, num_burn_in=200, scheduler=some,
        step_size=q / uplink.slope / (model.smoothness or 1.0), start="zero",
    )  # fmt: skip
    assert plan.midpoints
    if plan.prediction is None or "clipped" in {each.code for each in plan.findings}:
        # Too hot to be predicted, as positions are: the plan says so.
        assert plan.verdict is None or not plan.verdict.good
        return
    chains = full(600, 300)
    result = flmc.run(plan, model, seed=seed, chains=chains)
    values, directions = np.linalg.eigh(np.asarray(model.posterior.covariance[0]))
    away = (result.draws - result.draws.mean(axis=(0, 1))) @ directions / np.sqrt(values)
    squares = np.square(away).mean(axis=1)
    error = squares.std(axis=0, ddof=1) / chains**0.5
    ratios, predicted = squares.mean(axis=0), plan.prediction
    # The choice of devices is noise that entries share, which the prediction takes for independent.
    slack = 5 * error + (0.03 if some is None else 0.1) * ratios
    assert (ratios > predicted.variance_ratio_smallest - slack).all()
    assert (ratios < predicted.variance_ratio_largest + slack).all()
    total = float(ratios @ values / values.sum())
    assert abs(total - predicted.variance_ratio) < float((slack * values).sum() / values.sum())
    # The same chain at positions is wider, by Euler's factor at most.
    there = replace(plan, draw_at="positions")
    assert there.digest != plan.digest


def test_unequal_noise_is_predicted() -> None:
    """Noise of variance 1.6 and 0.4 in two entries of equal curvature: 1.6 and 0.4 times the
    posterior's variance, where entries do not interact; said by the prediction, not corrected."""
    model = isotropic(2, 4000)
    gains = np.sqrt(np.array([[1.0, 4.0]]) / 1.6)
    plain = linear_plan(model, 0.5)
    plan = linear_plan(model, 0.5, gain=plain.typical_gain * gains, forecast=True)
    prediction = plan.prediction
    assert prediction is not None
    assert prediction.variance_ratio_largest == pytest.approx(1.6, rel=0.05)
    assert prediction.variance_ratio_smallest == pytest.approx(0.4, rel=0.05)
    chains = full(400, 200)
    result = flmc.run(plan, model, seed=5, chains=chains)
    variance = np.asarray(model.posterior.covariance[0]).diagonal()
    squares = np.square(result.draws - model.posterior.mean[0]).mean(axis=1) / variance
    error = squares.std(axis=0, ddof=1) / chains**0.5
    assert (
        np.abs(squares.mean(axis=0) - [1.6, 0.4]) < 5 * error + 0.05 * np.array([1.6, 0.4])
    ).all()


@full_only
@pytest.mark.skipif(not FOLDER.is_dir(), reason="needs ../shared/data/posteriordb")
@pytest.mark.parametrize(
    "name", ["kidiq-kidscore_momiq", "mesquite-logmesquite_logvash", "sblrc-blr"]
)
def test_published_posteriors(name: str) -> None:
    """Some of `make midpoints`: every reference sd within 3 % and three standard errors. Positions
    of the same chains are wider."""
    spread = measure(name, "midpoints", 16)
    assert spread.holds
    assert spread.error < 0.02
    assert not spread.doubts
    assert abs(spread.shift) < 0.25


UPDATES = (LANGEVIN, flmc.Momentum(0.5), flmc.MajorityVote())


@given(
    st.sampled_from(["auto", "midpoints", "positions"]),
    st.sampled_from(UPDATES),
    st.integers(2, 400),
    st.floats(1e-5, 1e-3),
)
def test_a_plan_says_where_its_draws_are_taken(
    asked: str, update: flmc.ServerUpdate, rounds: int, step: float
) -> None:
    """There and back through the document; a document of before means positions; an update whose
    midpoints nobody knows has positions, and no others."""
    model = MODEL
    settings: dict[str, Any] = {
        "num_rounds": rounds, "num_burn_in": rounds // 2, "step_size": step, "gain": 0.01,
        "update": update, "forecast": False,
    }  # fmt: skip
    known = not isinstance(update, flmc.MajorityVote)
    if asked == "midpoints" and not known:
        with pytest.raises(InvalidSetting, match="MajorityVote does not say so"):
            flmc.plan(model, flmc.Analog(), OFF, draw_at=asked, **settings)
        return
    plan = flmc.plan(model, flmc.Analog(), OFF, draw_at=asked, **settings)
    assert plan.midpoints == (known and asked != "positions")
    document = plan.to_document(with_run=False)
    again = flmc.Plan.from_document(document)
    assert again.digest == plan.digest
    assert again.draw_at == plan.draw_at
    there = flmc.plan(model, flmc.Analog(), OFF, draw_at="positions", **settings)
    older = there.to_document(with_run=False)
    assert "draw_at" not in older
    assert flmc.Plan.from_document(older).draw_at == "positions"
    assert (there.digest == plan.digest) == (not plan.midpoints)


MODEL = isotropic(2, 40)


def test_what_draw_at_may_be() -> None:
    with pytest.raises(InvalidSetting, match="draw_at must be one of auto, midpoints, positions"):
        flmc.plan(MODEL, flmc.Analog(), OFF, draw_at="somewhere")
    document = flmc.plan(MODEL, flmc.Analog(), OFF).to_document(with_run=False)
    with pytest.raises(InvalidSetting, match="draw_at must be one of midpoints, positions"):
        flmc.Plan.from_document({**document, "draw_at": "somewhere"})
    changed = {name: value for name, value in document.items() if name != "draw_at"}
    with pytest.raises(InvalidSetting, match="was changed since it was made"):
        flmc.Plan.from_document(changed)
