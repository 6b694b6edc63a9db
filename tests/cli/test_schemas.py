"""The JSON Schemas of what commands print: every answer fulfils its own, and each field that a
schema describes occurs."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import Any
from unittest.mock import patch

import jsonschema
import numpy as np
import pytest

from deploy.test_pooled_runs import record_run
from flmc.cli import main
from flmc.cli.schemas import ANSWERS, PARTS
from flmc.cli.schemas.catalogue import Kind, children, fields_of, part_of
from flmc.deploy.device.device_journal import DeviceJournal, Price
from flmc.planning.plans.plan_schema import json_schema
from studio.small_broker import demo_messages, small_broker
from support import QUICK

SIZES = ["--devices", "4", "--dim", "3", "--samples", "80", "--rounds", "60", "--burn-in", "20"]
RUN = ["run", *SIZES, "--engine", "numpy"]
OWN = """
import flmc

def unknown():
    held = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=60, dim=2, num_devices=4))
    return flmc.Model.from_gradient(
        lambda theta: held.gradient(theta[None])[0] - theta[:, None] / 4,
        prior=flmc.Normal(), dim=2, num_devices=4, smoothness=61.0, convexity=0.5,
        predict=lambda theta: theta[:, :1],
    )

def with_local():
    model = unknown()
    model.num_local = 1
    return model
"""
GRID = """
devices = 4
samples = 80
rounds = 12
engine = "numpy"
[sweep]
chains = [2, 3]
burn_in = [4, 40]
"""
"""A burn-in of 40 of 12 rounds is refused: half of the points fail."""

Call = Callable[..., Any]


@pytest.fixture
def call(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Call:
    """What a command prints with --json, as an object; it runs in a directory of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "own_for_schemas.py").write_text(OWN)
    (tmp_path / "grid.toml").write_text(GRID)

    def called(*arguments: str, code: int = 0) -> Any:
        capsys.readouterr()
        assert main([*arguments, "--json"]) == code
        return json.loads(capsys.readouterr().out)

    return called


def plans(call: Call) -> Iterator[Any]:
    yield call("plan", *SIZES)
    # So little gain that epsilon is 0 at the delta asked for.
    yield call("plan", *SIZES, "--gain", "0.0001")
    yield call("plan", *SIZES, "--scheme", "ideal", "--no-run")
    yield call("plan", *SIZES, "--scheduling", "random:2", "--fading", "rayleigh:0.04")
    yield call("plan", *SIZES, "--csi-error", "0.02")
    yield call("plan", *SIZES, "--update", "momentum:0.5")
    yield call("plan", *SIZES, "--public-smoothness", "50", "--public-convexity", "5")
    own = ["--model", "own_for_schemas:with_local", "--scheme", "analog"]
    yield call("plan", *own, "--rounds", "80", "--burn-in", "20")


TWO = ["--precondition", "pilot", "--devices", "4", "--dim", "2", "--samples", "80"]


def two_stage_plans(call: Call) -> Iterator[Any]:
    yield call("plan", *TWO, "--rounds", "900")
    yield call("plan", *TWO, "--rounds", "900", "--scheme", "ideal")


def two_stage_results(call: Call) -> Iterator[Any]:
    yield call("run", *TWO, "--rounds", "1800", "--engine", "numpy", "--scheme", "analog")
    yield call("run", *TWO, "--rounds", "1800", "--engine", "numpy", "--scheme", "ideal")


def solutions(call: Call) -> Iterator[Any]:
    yield call("plan", "--solve", "rounds", "--no-run")


def results(call: Call) -> Iterator[Any]:
    yield call(*RUN, "--chains", "4", "--out", "record")
    yield call("resume", "record")
    yield call(*RUN, "--chains", "4", "--answer", "chain")
    yield call(*RUN, "--chains", "2", "--answer", "aware")
    yield call(*RUN, "--chains", "1", "--scheme", "analog")
    yield call(*RUN, "--chains", "2", "--experiments", "3")
    own = ["--model", "own_for_schemas:unknown", "--scheme", "analog", "--chains", "2"]
    yield call("run", *own, "--rounds", "80", "--burn-in", "20", "--out", "of own model")


def comparisons(call: Call) -> Iterator[Any]:
    yield call("compare", "--baselines", *SIZES, "--engine", "numpy", "--chains", "2")
    two = ["--beside", "scheme=analog", "--beside", "scheme=ideal rounds=80", "--hold-out", "0"]
    yield call("compare", *two, *SIZES, "--engine", "numpy", "--chains", "2")
    fair = ["--beside", "scheme=analog", "--equal", "privacy", "--hold-out", "0"]
    yield call("compare", *fair, *SIZES, "--experiments", "3", "--engine", "numpy", "--chains", "2")
    # Without a channel some methods are missing.
    yield call("compare", "--baselines", *SIZES, "--engine", "numpy", "--scheme", "ideal")


def citations(call: Call) -> Iterator[Any]:
    call(*RUN, "--out", "record")
    yield call("cite", "record")


def answers(call: Call) -> Iterator[Any]:
    known = ["--scheme", "analog", "--snr-db", "40", "--chains", "2", "--epsilon", "100"]
    call(*RUN, *known, "--out", "record")
    yield call("answer", "record")
    own = ["--model", "own_for_schemas:unknown", "--scheme", "analog", "--chains", "1"]
    call("run", *own, "--rounds", "80", "--burn-in", "20", "--out", "own")
    yield call("answer", "own", "--trust-code", "--interval", "0.5")


def ledgers(call: Call) -> Iterator[Any]:
    call(*RUN, "--out", "record")
    yield call("ledger", "record")
    yield call("ledger", "record", "--at", "7")


def sweeps(call: Call) -> Iterator[Any]:
    yield call("sweep", "--config", "grid.toml", "--out", "out", "--workers", "1", code=1)
    yield call("sweep", "--config", "grid.toml", "--plan-only", code=1)
    both = ["--vary", "scheme=digital,analog", "--equal", "step", "--experiments", "3"]
    yield call("sweep", *both, *SIZES, "--chains", "60", "--workers", "1", "--out", "paired")
    own = ["--model", "own_for_schemas:unknown", "--rounds", "80", "--burn-in", "20"]
    yield call("sweep", *own, "--vary", "chains=2,3", "--workers", "1", "--out", "own")
    predicted = [*SIZES, "--hold-out", "0.2", "--vary", "chains=2,3", "--workers", "1"]
    yield call("sweep", *predicted, "--out", "predicted")
    rows = [f"{i % 7},{i % 5},{'yes' if i % 7 + i % 3 > 4 else 'no'}" for i in range(60)]
    Path("classes.csv").write_text("a,b,y\n" + "\n".join(rows) + "\n")
    file = ["--data-file", "classes.csv", "--target", "y", "--deal", "iid", "--devices", "3"]
    classes = [*file, "--model", "logistic", "--rounds", "60", "--burn-in", "20"]
    yield call(
        *("sweep", *classes, "--hold-out", "0.2", "--vary", "chains=2,3", "--workers", "1"),
        *("--out", "classes"),
    )


def audits(call: Call) -> Iterator[Any]:
    yield call("audit", *SIZES, "--trials", "2000", "--audit-rounds", "2", "--one-run")
    # Only power limits the gain: its cap is infinite, which JSON has not.
    free = ["--langevin", "off", "--privacy", "off", "--fading", "rayleigh:0.04"]
    yield call("audit", *SIZES, *free, "--trials", "2000", "--audit-rounds", "1")


def observations(call: Call) -> Iterator[Any]:
    with small_broker(Path.cwd()) as broker:
        broker.publish(demo_messages())
        yield call("status", "--broker", broker.url)


def setups(call: Call) -> Iterator[Any]:
    pytest.importorskip("cryptography", reason="needs the extra mqtt")
    yield call("deploy", "init", "federation", "--devices", "1")
    yield call("deploy", "renew", "federation", "device-0")
    yield call("deploy", "revoke", "federation", "device-0")


def prices(call: Call) -> Iterator[Any]:
    plan = ["plan", *SIZES, "--public-smoothness", "100", "--public-convexity", "10"]
    assert call(*plan, "--out", "plan.json")
    Path("federation.toml").write_text('run = "first"\nplan = "plan.json"\n')
    yield call("deploy", "cost", "federation.toml")


def pooled_runs(call: Call) -> Iterator[Any]:
    for name in ("first", "second"):
        record_run(Path(name), name, start=[0.5, -0.5, float(name == "first")])
    yield call("deploy", "together", "first/record", "second/record")


def device_ledgers(call: Call) -> Iterator[Any]:
    with closing(DeviceJournal(Path("journal"))) as journal:
        journal.join("first", "ab" * 32, Price("device", 2.5, None, 1e-5), bytes(8))
        journal.answer("first", 1, bytes(32), [0.3], b"sealed")
    yield call("deploy", "ledger", "journal")


def studies(call: Call) -> Iterator[Any]:
    yield call("reproduce", "--figure", "2", "--experiments", "2", "--engine", "numpy")
    yield call("reproduce", "--figure", "best", "--experiments", "2", "--out", "best")


def predecessors(call: Call) -> Iterator[Any]:
    # Data and published values made up here, so that there is something to compare.
    rng = np.random.default_rng(0)
    features = rng.standard_normal((60, 2))
    np.savez("data.npz", X=features, Y=features.sum(axis=1) + rng.standard_normal(60))
    Path("wflmc_snr.csv").write_text("curve,x,y\nWithout DP,5.0,0.01\n")
    small = ["--set", "devices=4", "--set", "rounds=20", "--set", "burn_in=10"]
    study = ["reproduce", "--paper", "wflmc"]
    # Less than is published: the adaptive allocations take a second each.
    module = "flmc.papers.wflmc.study"
    with patch(f"{module}.SNR_DB", (5.0, 10.0, 40.0)), patch(f"{module}.MOST_ADAPTIVE", 1):
        yield call(*study, *small, "--experiments", "1", "--out", "changed")
        yield call(*study, "--data-file", "data.npz", "--experiments", "5", "--out", "compared")


PRINTED: dict[str, Callable[[Call], Iterator[Any]]] = {
    "plan": plans,
    "plan-solve": solutions,
    "run": results,
    "answer": answers,
    "compare": comparisons,
    "plan-two-stages": two_stage_plans,
    "run-two-stages": two_stage_results,
    "cite": citations,
    "ledger": ledgers,
    "sweep": sweeps,
    "status": observations,
    "deploy": setups,
    "deploy-cost": prices,
    "deploy-ledger": device_ledgers,
    "deploy-together": pooled_runs,
    "audit": audits,
    "reproduce": studies,
    "reproduce-wflmc": predecessors,
}


def occurring(
    kind: Kind, definitions: Mapping[str, Kind], value: Any, root: str, path: str = ""
) -> Iterator[tuple[str, str]]:
    """Fields of a value that a schema describes, each as the answer or part that it belongs to, and
    its path there."""
    part = part_of(kind)
    if part is not None:
        root, path = part, ""
    for choice in kind.get("anyOf", ()):
        yield from occurring(choice, definitions, value, root, path)
    known = children(kind, definitions)
    items = value.items() if isinstance(value, dict) else ()
    inner = [(name if name in known else "*", each) for name, each in items]
    inner += [("[]", each) for each in value] if isinstance(value, list) else []
    for name, each in inner:
        if name in known:
            here = path + (name if name == "[]" or not path else f".{name}")
            yield root, here
            yield from occurring(known[name], definitions, each, root, here)


def test_every_schema_has_its_answers() -> None:
    assert set(PRINTED) == set(ANSWERS)


@pytest.mark.parametrize("name", PRINTED)
def test_answers_fulfil_their_schema_and_have_every_field_of_it(name: str, call: Call) -> None:
    if QUICK and name.startswith("reproduce"):
        pytest.skip("a reproduction takes long: in the full run only")
    schema = ANSWERS[name].schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    validator = jsonschema.Draft202012Validator(schema)
    definitions = schema.get("$defs", {})
    found: set[tuple[str, str]] = set()
    for document in PRINTED[name](call):
        validator.validate(document)
        assert not validator.is_valid({**document, "undescribed": 1})
        found |= set(occurring(schema, definitions, document, name))
    # What a plan consists of is looked at where plans are printed.
    elsewhere = set() if name == "plan" else {"plan", "cost", "finding"}
    parts = {part_of({"$ref": f"#/$defs/{each}"}) for each in definitions} - {None, *elsewhere}
    kinds = {name: schema, **{part: json_schema(PARTS[part], part) for part in parts if part}}
    wanted = {
        (root, field.path)
        for root, kind in kinds.items()
        for field in fields_of(kind, kind.get("$defs", {}))
    }
    assert not wanted - found, f"described, but in no answer: {sorted(wanted - found)}"


@pytest.mark.parametrize(
    ("name", "arguments", "path"),
    [
        ("run", RUN, ("metrics",)),
        ("run", RUN, ("metrics", "mse")),
        ("run", RUN, ("findings", 0)),
        ("run", RUN, ("plan", "radio")),
        ("sweep", ["sweep", "--config", "grid.toml", "--plan-only"], ("rows", 0)),
        ("audit", ["audit", *SIZES, "--trials", "2000"], ("audits", 0)),
    ],
)
def test_a_field_that_is_not_described_is_refused(
    name: str, arguments: list[str], path: tuple[str | int, ...], call: Call
) -> None:
    document = call(*arguments, code=1 if name == "sweep" else 0)
    validator = jsonschema.Draft202012Validator(ANSWERS[name].schema())
    changed = copy.deepcopy(document)
    place = changed
    for key in path:
        place = place[key]
    place["undescribed"] = 1
    assert validator.is_valid(document)
    assert not validator.is_valid(changed)


def test_the_command_prints_names_and_schemas(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["schema"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(ANSWERS)
    for name, answer in ANSWERS.items():
        assert main(["schema", name]) == 0
        assert json.loads(capsys.readouterr().out) == answer.schema()
    assert main(["schema", "resum"]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "'resum'" in err
    assert all(name in err for name in ANSWERS)


def test_a_plan_has_one_schema(capsys: pytest.CaptureFixture[str]) -> None:
    schemas = []
    for command in (["plan", "--schema"], ["schema", "plan"]):
        assert main(command) == 0
        schemas.append(json.loads(capsys.readouterr().out))
        schemas[-1].pop("title")
    assert schemas[0] == schemas[1]


def test_the_page_of_the_documentation_has_every_schema() -> None:
    page = Path(__file__).parents[2] / "docs" / "reference" / "json.md"
    lines = page.read_text().splitlines()
    shown = [line.split()[1] for line in lines if line.startswith("```{json-fields}")]
    assert sorted(shown) == sorted({*ANSWERS, *PARTS})
