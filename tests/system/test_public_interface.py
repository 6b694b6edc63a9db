"""What users build on: the public names, the shape of the first ten minutes, files."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting


def test_public_names_are_frozen() -> None:
    assert flmc.__all__ == [
        "AllDevices",
        "Analog",
        "Answer",
        "Citation",
        "Comparison",
        "ConstantFading",
        "CorrelatedNormal",
        "Diagnostics",
        "Digital",
        "DistanceFading",
        "Fading",
        "FixedFading",
        "FunctionPrior",
        "GaussMarkovFading",
        "Gaussian",
        "GivenDevices",
        "Ideal",
        "JakesFading",
        "Limits",
        "Linear",
        "LinearData",
        "LinearGaussian",
        "Link",
        "MajorityVote",
        "Model",
        "Momentum",
        "NakagamiFading",
        "NoiseLaw",
        "Normal",
        "Parameter",
        "Plan",
        "PredecessorDevices",
        "Probit",
        "RandomDevices",
        "RayleighFading",
        "Record",
        "Result",
        "RicianFading",
        "Scheduler",
        "SelectiveFading",
        "ServerState",
        "ServerUpdate",
        "Sigmoid",
        "Sign",
        "StrongestDevices",
        "Sweep",
        "TappedDelayFading",
        "ThresholdDevices",
        "TraceFading",
        "TraceFile",
        "TwoStagePlan",
        "TwoStageResult",
        "Uplink",
        "check_model",
        "choose_link",
        "cite",
        "compare",
        "data",
        "diagnose",
        "errors",
        "load",
        "plan",
        "plan_two_stages",
        "replace",
        "resume",
        "run",
        "run_two_stages",
        "spent",
        "supports",
        "sweep",
        "whiten",
    ]
    for name in flmc.__all__:
        assert getattr(flmc, name) is not None


class Nakagami(flmc.Fading):
    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        return np.asarray(0.04 * np.sqrt(rng.gamma(2.0, 0.5, (len(rounds), num_devices, 1))))


class Cauchy(flmc.Link):
    def __init__(self, scale: float) -> None:
        self.scale = scale

    def probability(self, g: Array) -> Array:
        return np.asarray(0.5 + np.arctan(g / self.scale) / np.pi)


def test_her_own_link_fading_and_model() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(20, 50, 30))
    labels = np.sign(features @ rng.normal(size=30))

    def gradient(theta: Array) -> Array:  # logistic regression
        margin = labels * np.einsum("knd,cd->ckn", features, theta)
        return np.asarray(
            -np.einsum("ckn,kn,knd->ckd", 1 / (1 + np.exp(margin)), labels, features, optimize=True)
        )

    own = flmc.Model.from_gradient(
        gradient, prior=flmc.Normal(0, 1), dim=30, num_devices=20, smoothness=250.0
    )
    uplink = flmc.Digital(link=flmc.Sigmoid(0.05), fading=Nakagami(), snr_db=25)
    table = flmc.compare(
        {"paper": uplink, "mine": flmc.replace(uplink, link=Cauchy(20.0))},
        own,
        seed=7,
        chains=2,
        num_rounds=60,
        num_burn_in=30,
    )
    assert "mine" in str(table)
    assert table.results["mine"].mean.shape == (1, 30)
    assert table.results["mine"].metrics is None
    assert "sd" in str(table.results["mine"])
    document = table["mine"].plan.to_document()
    assert document["uplink"]["link"]["scale"] == 20.0
    assert document["uplink"]["link"]["type"].endswith(":Cauchy")


def test_compare_shows_metrics(small: flmc.LinearGaussian) -> None:
    table = str(
        flmc.compare(
            {"a": flmc.Digital(), "b": flmc.Ideal()}, small, chains=2, num_rounds=40, num_burn_in=20
        )
    )
    assert "variance ratio" in table
    assert "±" in table
    with pytest.raises(InvalidSetting, match="at least one uplink"):
        flmc.compare({}, small)


def test_save(small: flmc.LinearGaussian, tmp_path: Path) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=40, num_burn_in=20)
    result = flmc.run(plan, small, seed=7, chains=2)
    directory = result.save(tmp_path / "runs" / "base")
    assert sorted(p.name for p in directory.iterdir()) == [
        ".lock",
        "draws.npz",
        "result.json",
        "run.json",
    ]
    document = json.loads((directory / "result.json").read_text())
    assert document["seed"] == 7
    assert set(document["metrics"]["mse"]) == {"mean", "se"}
    with np.load(directory / "draws.npz", allow_pickle=False) as arrays:
        np.testing.assert_array_equal(arrays["draws"].reshape(6, 20, 3), result.draws)
        np.testing.assert_array_equal(arrays["covariance"], result.covariance)
    with pytest.raises(InvalidSetting, match="must be a new or empty directory"):
        result.save(directory)
    (tmp_path / "file").write_text("x")
    with pytest.raises(InvalidSetting, match="cannot write"):
        result.save(tmp_path / "file" / "below")


def test_draws_are_kept_only_if_asked_for(small: flmc.LinearGaussian) -> None:
    plan = flmc.plan(small, flmc.Digital(), num_rounds=4, num_burn_in=2)
    with pytest.raises(InvalidSetting, match="keep_draws=True"):
        _ = flmc.run(plan, small, keep_draws=False).draws


def test_progress_and_silence(
    small: flmc.LinearGaussian, capsys: pytest.CaptureFixture[str]
) -> None:
    seen: list[float] = []
    plan = flmc.plan(small, flmc.Digital(), num_rounds=300, num_burn_in=2)
    flmc.run(plan, small, chains=2, progress=seen.append, engine="numpy")
    assert seen == sorted(seen)
    assert seen[-1] == pytest.approx(1.0)
    assert len(seen) >= 3
    assert capsys.readouterr() == ("", "")


def test_run_refuses_what_does_not_fit(
    small: flmc.LinearGaussian, model: flmc.LinearGaussian
) -> None:
    plan = flmc.plan(model, flmc.Digital())
    with pytest.raises(
        InvalidSetting, match="the plan is for 20 devices and dim 5, the model has 4 and 3"
    ):
        flmc.run(plan, small)
    with pytest.raises(InvalidSetting, match="seed must be a whole number of at least 0, got -1"):
        flmc.run(plan, model, seed=-1)
    with pytest.raises(InvalidSetting, match="chains must be a whole number of at least 1, got 0"):
        flmc.run(plan, model, chains=0)


def test_gradients_that_are_not_numbers_are_reported(caplog: pytest.LogCaptureFixture) -> None:
    def undefined(theta: Array) -> Array:
        return np.stack([theta, np.full_like(theta, np.nan)], axis=1)

    model = flmc.Model.from_gradient(
        undefined, prior=flmc.Normal(0, 1), dim=3, num_devices=2, smoothness=1.0
    )
    result = flmc.run(
        flmc.plan(model, flmc.Digital(), num_rounds=10, num_burn_in=5), model, chains=2
    )
    assert result.num_undefined == 10 * 2 * 3
    assert "not finite" in str(result)
    assert "not finite" in caplog.text


def test_mistaken_arguments(small: flmc.LinearGaussian) -> None:
    uplink = flmc.Digital()
    with pytest.raises(InvalidSetting, match=r"model must be a flmc.Model, got Digital"):
        flmc.plan(uplink, small)  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"limits must be a flmc.Limits, got dict"):
        flmc.plan(small, uplink, {"epsilon": 5})  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match=r"plan must be a flmc.Plan, got LinearGaussian"):
        flmc.run(small, flmc.plan(small, uplink))  # type: ignore[arg-type]
    with pytest.raises(InvalidSetting, match="snr_db must be a number, got '25'"):
        flmc.Digital(snr_db="25")  # type: ignore[arg-type]


def test_a_posterior_for_one_data_set() -> None:
    one = flmc.Gaussian(np.zeros(3), np.eye(3))
    assert (one.mean.shape, one.covariance.shape) == ((1, 3), (1, 3, 3))
    with pytest.raises(InvalidSetting, match="must fit"):
        flmc.Gaussian(np.zeros(3), np.eye(2))
    with pytest.raises(InvalidSetting, match="positive definite"):
        flmc.Gaussian(np.zeros(2), -np.eye(2))


def logistic() -> flmc.Model:
    """A user's own model with examples: their gradients by entry, clipped one by one."""
    rng = np.random.default_rng(3)
    features = rng.normal(size=(6, 40, 2))
    labels = np.where(features @ [1.0, -1.0] + rng.logistic(size=(6, 40)) > 0, 1.0, -1.0)

    def each(theta: Array) -> Array:
        margin = labels * np.einsum("kne,ce->ckn", features, theta)
        return np.asarray(
            -np.einsum("ckn,kn,kne->ckne", 1 / (1 + np.exp(margin)), labels, features)
        )

    return flmc.Model.from_gradient(
        lambda theta: each(theta).sum(axis=2),
        prior=flmc.Normal(),
        dim=2,
        num_devices=6,
        smoothness=80.0,
        convexity=20.0,
        clipped_gradient=lambda theta, clip: np.clip(each(theta), -clip, clip).sum(axis=2),
    )


def test_examples_of_her_own_model_are_hidden() -> None:
    """The function that clips examples is used, and the plan states the privacy of one example."""
    model = logistic()
    limits = flmc.Limits(epsilon=20.0, scope="run", neighbouring="example")
    wide, narrow = (
        flmc.Digital(link=flmc.Sigmoid(0.2), clip=10.0, example_clip=clip) for clip in (50.0, 0.2)
    )
    theta = np.full((1, 3, 2), 0.3)
    np.testing.assert_allclose(model.clipped_gradient(theta, 50.0), model.gradient(theta))
    assert np.abs(model.clipped_gradient(theta, 0.2) - model.gradient(theta)).max() > 1
    plan = flmc.plan(model, narrow, limits, num_rounds=60, num_burn_in=30)
    assert plan.run_cost is not None
    assert plan.run_cost.epsilon <= 20.0
    assert (
        plan.gain.max() > flmc.plan(model, wide, limits, num_rounds=60, num_burn_in=30).gain.max()
    )
    assert any("example_shrink is 1" in text for text in plan.warnings)
    assert flmc.run(plan, model, chains=3).draws.shape == (3, 30, 2)


def test_a_result_without_a_posterior_repeats_what_the_plan_warned_of() -> None:
    model = logistic()
    plan = flmc.plan(model, flmc.Digital(), num_rounds=20, num_burn_in=5)
    text = str(flmc.run(plan, model, chains=2))
    assert "burn-in of 5 rounds is short" in text


def test_comparisons_tell_of_unequal_steps(small: flmc.LinearGaussian) -> None:
    schemes = {"digital": flmc.Digital(), "analog": flmc.Analog()}
    text = str(flmc.compare(schemes, small, num_rounds=20, num_burn_in=10, chains=2))
    assert "effective steps differ" in text
    equal = {"one": flmc.Digital(), "two": flmc.Digital(clip=29.0)}
    assert "effective steps differ" not in str(
        flmc.compare(equal, small, num_rounds=20, num_burn_in=10, chains=2)
    )
    with pytest.raises(InvalidSetting, match="uplinks must be a dict"):
        flmc.compare([flmc.Digital()], small)  # type: ignore[arg-type]


def test_names_are_imported_when_the_first_is_used() -> None:
    code = """
import sys
import flmc
print('numpy' in sys.modules, 'plan' in dir(flmc), 'plot' in dir(flmc))
from flmc import Digital, data
print(callable(flmc.plan), data is flmc.data, flmc.runs.records.__name__)
try:
    flmc.nonsense
except AttributeError as error:
    print(error)
"""
    out = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert out == [
        "False True True",
        "True True flmc.runs.records",
        "module 'flmc' has no attribute 'nonsense'",
    ]
