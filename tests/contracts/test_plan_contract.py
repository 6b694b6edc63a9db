"""A plan is a value: it travels as JSON and comes back the same, for everything registered."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
from pathlib import Path

import jsonschema
import numpy as np
import pytest

import flmc
from contracts import pinned_runs
from contracts.registered import model, plan, plans
from flmc.base.arrays import Array
from flmc.cli import main
from flmc.planning.plans.plan_schema import schema


@pytest.mark.parametrize("name", plans())
def test_there_and_back(name: str) -> None:
    there = plan(name, model())
    document = json.loads(json.dumps(there.to_document(), allow_nan=False))
    back = flmc.Plan.from_document(document)
    assert back.digest == there.digest == document["digest"]
    assert json.loads(json.dumps(back.to_document())) == document
    assert np.array_equal(back.gain, there.gain)
    assert back.temperature == there.temperature
    assert str(back) == str(there)


@pytest.mark.parametrize("name", pinned_runs.CASES)
def test_pinned_plans_there_and_back(name: str) -> None:
    there, _ = pinned_runs.CASES[name]()
    own = there.uplink if name == "digital own link" else None
    document = json.loads(json.dumps(there.to_document(), allow_nan=False))
    assert flmc.Plan.from_document(document, uplink=own).digest == there.digest


@pytest.mark.parametrize("name", plans())
def test_documents_fit_the_schema(name: str) -> None:
    document = json.loads(json.dumps(plan(name, model()).to_document()))
    jsonschema.validate(document, schema(), cls=jsonschema.Draft202012Validator)


@pytest.mark.parametrize("name", ["link sigmoid", "scheduler random"])
def test_the_digest_is_what_the_schema_says(name: str) -> None:
    """Computed here from the description alone, as firmware without this package would."""
    document = json.loads(json.dumps(plan(name, model()).to_document()))
    left_out = {
        "digest",
        "rounds_needed",
        "privacy",
        "release",
        "unknown_privacy",
        "prediction",
        "warnings",
        "findings",
        "verdict",
        "margins_db",
        "radio",
        "airtime",
        "estimates",
        "aim",
        "answer",
    }
    if document["scheduler"]["type"] in ("AllDevices", "GivenDevices"):
        left_out.add("scheduler")
    rest = {key: value for key, value in document.items() if key not in left_out}
    text = json.dumps(rest, sort_keys=True, separators=(",", ":"))
    assert hashlib.sha256(text.encode()).hexdigest() == document["digest"]


def test_a_plan_that_came_back_runs_to_the_same_draws() -> None:
    there = plan("scheduler random", model())
    back = flmc.Plan.from_document(json.loads(json.dumps(there.to_document())))
    first, second = (flmc.run(each, model(), seed=3, chains=2) for each in (there, back))
    assert np.array_equal(first.draws, second.draws)


def test_a_fresh_process_reads_every_plan(tmp_path: Path) -> None:
    """With nothing imported but flmc, wherever a built-in class lives."""
    for index, name in enumerate(plans()):
        document = json.dumps(plan(name, model()).to_document())
        (tmp_path / f"{index}.json").write_text(document)
    code = (
        "import flmc, json, pathlib, sys\n"
        "for path in pathlib.Path(sys.argv[1]).glob('*.json'):\n"
        "    flmc.Plan.from_document(json.loads(path.read_text()))\n"
    )
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)


def test_a_scheduler_of_one_s_own_is_passed() -> None:
    class Own(flmc.Scheduler):
        def draw(self, rng: np.random.Generator, rounds: range, fading: Array) -> Array:
            return np.ones((len(rounds), fading.shape[1]))

    there = flmc.plan(model(), flmc.Digital(), num_rounds=60, num_burn_in=10, scheduler=Own())
    document = json.loads(json.dumps(there.to_document()))
    with pytest.raises(flmc.errors.InvalidSetting, match="as uplink=, scheduler= or"):
        flmc.Plan.from_document(document)
    assert flmc.Plan.from_document(document, scheduler=Own()).digest == there.digest


def test_a_changed_plan_is_refused() -> None:
    document = plan("link sigmoid", model()).to_document()
    with pytest.raises(flmc.errors.InvalidSetting, match="the plan was changed since it was made"):
        flmc.Plan.from_document({**document, "step_size": 1.0})
    with pytest.raises(flmc.errors.InvalidSetting, match=r"schema_version 1, .* got 2"):
        flmc.Plan.from_document({**document, "schema_version": 2})
    with pytest.raises(flmc.errors.InvalidSetting, match="not a whole plan: KeyError: 'gain'"):
        flmc.Plan.from_document({k: v for k, v in document.items() if k != "gain"})


def test_code_named_in_a_document_is_not_imported() -> None:
    document = plan("link sigmoid", model()).to_document()
    uplink = {**document["uplink"], "link": {"type": "os:abort"}}
    with pytest.raises(flmc.errors.InvalidSetting, match="never imported"):
        flmc.Plan.from_document({**document, "uplink": uplink})


def test_the_command_prints_the_schema(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "--schema"]) == 0
    printed = json.loads(capsys.readouterr().out)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert main(["plan", "--json", "--no-run"]) == 0
    jsonschema.validate(json.loads(capsys.readouterr().out), printed)
