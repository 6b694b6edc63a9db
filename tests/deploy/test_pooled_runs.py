"""Runs of one plan under names of their own, judged and priced together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest

import flmc
from deploy.federations import (
    DATA,
    DIM,
    Kit,
    answers_of,
    close,
    make_federation,
    make_plan,
    run_whole,
)
from flmc.base.errors import InvalidSetting
from flmc.cli import main
from flmc.cli.schemas import ANSWERS
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.device.consent import Budget
from flmc.deploy.server.federation_result import result_of_record
from flmc.deploy.server.pooled_runs import pool
from flmc.evaluation.answer import answer_of
from flmc.evaluation.transcript import Transcript
from flmc.planning.plans import Plan
from support import full_only

ROUNDS, BURN_IN = 60, 20
STARTS = ([1.0, -1.0, 0.5], [-1.0, 1.0, 0.0])


def plan_of(**given: Any) -> Plan:
    """A plan with rounds enough for R-hat and an answer."""
    loud = flmc.Analog(clip=30.0, snr_db=40.0)
    sizes = {"num_rounds": ROUNDS, "num_burn_in": BURN_IN, "step_size": 3e-3}
    return make_plan(loud, flmc.Limits(privacy="off"), **{**sizes, **given})


def record_run(folder: Path, name: str, start: Any, plan: Plan | None = None) -> Path:
    """Run a whole federation of that name from a start, and return its server's record."""
    kit = Kit(folder, make_federation(plan or plan_of(), run=name))
    _, air, server, devices = run_whole(kit, start=start)
    close(air, server, *devices)
    return folder / "record"


def two(folder: Path, plan: Plan | None = None) -> list[Path]:
    """Records of two runs from places of their own."""
    return [
        record_run(folder / name, name, start, plan)
        for name, start in zip(("one", "two"), STARTS, strict=True)
    ]


def test_chains_of_two_runs_are_judged_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """R-hat, moments and the answer are those of both chains, by other code."""
    plan = plan_of()
    places = two(tmp_path, plan)
    alone = [result_of_record(each) for each in places]
    for each in alone:
        assert "one-chain" in [found.code for found in each.findings]
    together = pool(places)
    result = together.result
    assert together.runs == ("one", "two")
    assert result.num_chains == 2
    codes = [found.code for found in result.findings]
    assert not {"one-chain", "same-start"} & {*codes}
    draws = np.stack([each.draws[0] for each in alone])
    np.testing.assert_array_equal(result.draws, draws)
    np.testing.assert_allclose(result.mean[0], draws.mean(axis=(0, 1)), rtol=1e-12)
    assert result.diagnostics is not None
    wanted = flmc.diagnose(result).r_hat
    assert result.diagnostics.entries.r_hat == pytest.approx(float(wanted.max()))

    positions = np.stack([flmc.load(each).arrays["positions"][0, 0] for each in places])
    record = flmc.load(places[0])
    lines = [json.loads(line) for line in record.ledger]
    gain = np.array([line.get("arrived", line["gain"]) for line in lines])
    noise = plan.uplink.noise_power / np.square(np.broadcast_to(gain, (ROUNDS, DIM)))
    by_hand = answer_of(
        Transcript(
            positions[None, :, 1:],
            plan.step_sizes[1:],
            noise[None, 1:],
            np.zeros((1, ROUNDS - 1, 1)),
            ROUNDS - BURN_IN,
            False,
        ),
        lambda theta: theta,
        public=plan.public_curvature,
    )
    answer = result.posterior()
    np.testing.assert_allclose(answer.mean, by_hand.mean, rtol=1e-9)
    np.testing.assert_allclose(answer.sd, by_hand.sd, rtol=1e-9)
    one = alone[0].posterior()
    assert (answer.sd < one.sd).all()  # twice the rounds

    assert main(["deploy", "together", *map(str, places)]) == 0
    shown = capsys.readouterr().out
    assert "one, two" in shown
    assert "privacy, one chain" not in shown
    assert main(["deploy", "together", *map(str, places), "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator(ANSWERS["deploy-together"].schema()).validate(printed)
    np.testing.assert_allclose(printed["posterior"]["mean"], answer.mean[0], rtol=1e-9)
    assert printed["agreement"]["r_hat"] == pytest.approx(float(wanted.max()))


def test_chains_in_different_places_are_found_out(tmp_path: Path) -> None:
    """A step so small that each chain stays where it began: alone nothing is seen, together R-hat
    is far above 1."""
    plan = plan_of(step_size=1e-6)
    together = pool(two(tmp_path, plan))
    (finding,) = [each for each in together.result.findings if each.code == "unmixed"]
    assert finding.severity == "infeasible"


def test_chains_that_begin_at_one_place_do_not_count_as_two(tmp_path: Path) -> None:
    plan = plan_of()
    places = [record_run(tmp_path / name, name, [0.1, 0.1, 0.1], plan) for name in ("a", "b")]
    (finding,) = [each for each in pool(places).result.findings if each.code == "same-start"]
    assert finding.severity == "warning"
    assert finding.numbers["distance"] == 0.0


def test_the_price_is_that_of_all_rounds_together(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exactly the price of one run with twice the rounds; a device charges each run by itself,
    which is more, and refuses the run that its budget does not cover."""
    uplink = flmc.Analog(clip=30.0, snr_db=20.0)
    limits = flmc.Limits(epsilon=3.0, scope="run")
    sizes = {"num_rounds": 12, "num_burn_in": 2, "step_size": 1e-3}
    plan = make_plan(uplink, limits, **sizes)
    places = two(tmp_path, plan)
    together = pool(places)
    double = make_plan(uplink, limits, **{**sizes, "num_rounds": 24}, gain=plan.gain)
    assert double.run_cost is not None
    assert together.epsilon == pytest.approx(double.run_cost.epsilon, rel=1e-6)
    federation = make_federation(plan)
    alone = cost_of_run(federation, plan.limits.run_delta)
    assert alone < (together.epsilon or 0.0) < 2 * alone

    (tmp_path / "plan.json").write_text(json.dumps(plan.to_document()))
    (tmp_path / "federation.toml").write_text('run = "one"\nplan = "plan.json"\n')
    cost = ["deploy", "cost", str(tmp_path / "federation.toml"), "--runs", "2", "--json"]
    assert main(cost) == 0
    assert json.loads(capsys.readouterr().out)["epsilon"] == pytest.approx(together.epsilon)

    budget = Budget(epsilon=1.5 * alone, delta=2e-5, runs=2)
    for name, refused in (("one", False), ("two", True)):
        kit = Kit(tmp_path / "devices", make_federation(plan, run=name))
        device = kit.device(budget=budget)
        device.connected(0.0)
        device.receive(kit.plan_message(), 0.0)
        said = device.receive(kit.announce(1), 0.0)
        said = [*said, *device.receive(kit.theta(1), 0.0)]
        assert (device.refusal is not None) == refused
        assert bool(answers_of(said)) != refused
        close(device)


def test_every_run_is_priced_with_its_own_noise_grid(tmp_path: Path) -> None:
    """A coarse grid costs privacy where single analog examples are hidden, and it is no part of the
    plan: the dearest run counts, in whatever order."""
    uplink = flmc.Analog(clip=30.0, example_clip=2.0, snr_db=20.0)
    limits = flmc.Limits(privacy="off", neighbouring="example")
    plan = make_plan(uplink, limits, num_rounds=12, num_burn_in=2, step_size=1e-3, gain=0.013)
    places, prices = [], []
    for name, bits, start in zip(("one", "two"), (18, 3), STARTS, strict=True):
        kit = Kit(tmp_path / name, make_federation(plan, run=name, grid_bits=bits))
        _, air, server, devices = run_whole(kit, start=start)
        close(air, server, *devices)
        places.append(tmp_path / name / "record")
        prices.append(cost_of_run(kit.federation, plan.limits.run_delta, runs=2))
    assert prices[1] > 1.5 * prices[0]
    assert pool(places).epsilon == pool(places[::-1]).epsilon == prices[1]


@full_only
def test_other_runs_are_refused_by_name(tmp_path: Path) -> None:
    plan = plan_of()
    one, other = two(tmp_path, plan)
    hotter = record_run(tmp_path / "hot", "hot", STARTS[0], plan_of(step_size=2e-3))
    again = record_run(tmp_path / "again", "one", STARTS[1], plan)
    (tmp_path / "simulation").mkdir()
    flmc.run(plan, flmc.LinearGaussian(DATA)).save(tmp_path / "simulation")
    for places, words in (
        ([one], "two runs or more"),
        ([one, again], "a name of its own"),
        ([one, hotter], "different plans or models"),
        ([one, tmp_path / "simulation"], "record of a federation's finished run"),
    ):
        with pytest.raises(InvalidSetting, match=words):
            pool(places)
    assert pool([one, other]).runs == ("one", "two")
