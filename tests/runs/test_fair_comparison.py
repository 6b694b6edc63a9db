"""Comparisons of uplinks that are made equal, paired by data set."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest

import flmc
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from support import full_only

ROUNDS: dict[str, Any] = {"num_rounds": 60, "num_burn_in": 20}
UPLINKS = {"digital": flmc.Digital(), "analog": flmc.Analog()}


@pytest.fixture(scope="module")
def model() -> flmc.LinearGaussian:
    data = flmc.data.draw_linear(seed=1, num_experiments=8, num_samples=80, dim=3, num_devices=4)
    return flmc.LinearGaussian(data)


def compared(model: flmc.Model, equal: str | None, **settings: Any) -> flmc.Comparison:
    given = {**ROUNDS, "chains": 3, "engine": "numpy", **settings}
    return flmc.compare(UPLINKS, model, equal=equal, **given)


@pytest.mark.parametrize("equal", ["step", "privacy", "energy"])
def test_uplinks_are_made_equal(equal: str, model: flmc.LinearGaussian) -> None:
    done = compared(model, equal)
    assert done.shared is not None
    plans = [method.plan for method in done.methods]
    for plan in plans:
        done.shared.check(plan)
        assert "made-equal" in [each.code for each in plan.findings]
        assert plan.data_dependent
    assert f"equal {equal}: every method" in str(done)
    document = done.to_document()
    assert document["equal"]["name"] == equal
    assert document["equal"]["value"] == done.shared.value
    alone = compared(model, None)
    assert alone.shared is None
    assert "made-equal" not in str(alone)


@full_only
def test_automatic_choices_stay_what_they_were(model: flmc.LinearGaussian) -> None:
    """Clip and rounds that were chosen by rule are those of each uplink by itself."""
    chosen = {"clip": "auto", "num_rounds": "auto"}
    alone = compared(model, None, chains=1, **chosen)
    done = compared(model, "step", chains=1, **chosen)
    for name in UPLINKS:
        assert done[name].plan.uplink.clip == alone[name].plan.uplink.clip
        assert done[name].plan.num_rounds == alone[name].plan.num_rounds


def test_differences_are_paired(model: flmc.LinearGaussian) -> None:
    done = compared(model, "step", baselines=True)
    metrics = [result.metrics for result in done.results.values()]
    assert metrics[0] is not None
    assert metrics[1] is not None
    difference = metrics[1].each["mse"] - metrics[0].each["mse"]
    found = done.paired["analog"]["mse"]
    assert found.mean == pytest.approx(difference.mean())
    assert found.se == pytest.approx(difference.std(ddof=1) / math.sqrt(8))
    # A baseline is paired by the score that it has.
    assert set(done.paired["FedSGD"]) == {"mean_error"}
    errors = [done[name].each["mean_error"] for name in ("digital", "FedSGD")]
    assert done["FedSGD"].scores["mean_error"].mean == pytest.approx(np.mean(errors[1]))
    assert done.paired["FedSGD"]["mean_error"].mean == pytest.approx(np.mean(errors[1] - errors[0]))
    assert "less digital, on the same 8 data sets" in str(done)


def test_plans_and_single_uplinks_are_not_made_equal(model: flmc.LinearGaussian) -> None:
    plan = flmc.plan(model, flmc.Digital(), **ROUNDS)
    with pytest.raises(InvalidSetting, match="'old' is a plan"):
        flmc.compare({"old": plan, "new": flmc.Analog()}, model, equal="step", **ROUNDS)
    with pytest.raises(InvalidSetting, match="for two uplinks or more"):
        flmc.compare(flmc.Digital(), model, equal="step", **ROUNDS)


def test_command(capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--devices", "4", "--samples", "80", "--rounds", "60", "--burn-in", "20"]
    command = ["compare", *sizes, "--engine", "numpy", "--experiments", "8", "--chains", "2"]
    assert main([*command, "--baselines", "--equal", "step"]) == 2
    assert "--equal step needs another uplink" in capsys.readouterr().err
    two = [*command, "--beside", "scheme=analog", "--equal", "privacy"]
    assert main([*two, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    epsilons = [method["epsilon"] for method in document["methods"]]
    assert epsilons[1] == pytest.approx(epsilons[0], rel=1e-3)
    assert document["equal"]["value"] == pytest.approx(min(epsilons), rel=1e-3)
    assert document["paired"]["scheme=analog"]["mse"]["data_sets"] == 8
    assert main([*command, "--beside", "scheme=ideal", "--equal", "energy"]) == 2
    assert "the ideal uplink has no energy" in capsys.readouterr().err
