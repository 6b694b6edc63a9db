"""A plan in a file: written by `flmc plan --out`, run by `flmc run --plan`, resumed, accounted."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

import flmc
from flmc.cli import main

SMALL = ["--devices", "4", "--dim", "3", "--samples", "80", "--rounds", "12", "--burn-in", "4"]


def test_a_plan_is_run_from_its_file(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    path, record = tmp_path / "plan.json", tmp_path / "record"
    uplink = ["--snr-db", "20", "--link", "probit", "--clip", "40"]
    assert main(["plan", *SMALL, *uplink, "--out", str(path)]) == 0
    data = ["--samples", "80", "--chains", "3", "--seed", "5"]
    capsys.readouterr()
    assert main(["run", "--plan", str(path), *data, "--out", str(record), "--json"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first["plan"]["digest"] == json.loads(path.read_text())["digest"]
    direct = tmp_path / "direct"
    assert main(["run", *SMALL, *uplink, *data[2:], "--out", str(direct)]) == 0
    # The plan was computed from seed 0's data, the run from seed 5's: as was asked.
    assert flmc.load(record).asked["plan_digest"] == first["plan"]["digest"]
    # An interrupted run goes on with the plan that it was given.
    (record / "result.json").unlink(missing_ok=True)
    capsys.readouterr()
    assert main(["ledger", str(record), "--at", "5", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema_version"] >= 1


def test_a_run_of_a_given_plan_is_resumed(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path, whole, cut = tmp_path / "plan.json", tmp_path / "whole", tmp_path / "cut"
    assert main(["plan", *SMALL, "--out", str(path)]) == 0
    command = ["run", "--plan", str(path), "--samples", "80", "--chains", "2", "--engine", "numpy"]
    assert main([*command, "--out", str(whole)]) == 0
    plan = flmc.Plan.from_document(json.loads(path.read_text()))
    data = flmc.data.draw_linear_statistics(
        0, num_experiments=1, num_samples=80, dim=3, num_devices=4
    )
    kept = {"devices": 4, "dim": 3, "samples": 80, "chains": 2, "engine": "numpy", "plan": True}
    asked: list[int] = []

    def stop() -> bool:
        asked.append(1)
        return len(asked) > 1

    with pytest.raises(flmc.errors.Interrupted):
        flmc.run(
            plan,
            flmc.LinearGaussian(data),
            chains=2,
            engine="numpy",
            out=cut,
            settings=kept,
            checkpoint_rounds=2,
            stop=stop,
        )
    assert main(["resume", str(cut)]) == 0
    first, second = (flmc.load(each).arrays["draws"] for each in (whole, cut))
    assert np.array_equal(first, second)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (None, "cannot read the plan"),
        ("{", "is not valid JSON"),
        ("[]", "must be a JSON object"),
        ("{}", "schema_version"),
    ],
)
def test_files_that_are_no_plans(
    text: str | None, words: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    if text is not None:
        path.write_text(text)
    assert main(["run", "--plan", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_what_the_plan_decides_is_not_given_again(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    assert main(["plan", *SMALL, "--out", str(path)]) == 0
    assert main(["run", "--plan", str(path), "--snr-db", "3"]) == 2
    assert "snr_db is decided by the plan" in capsys.readouterr().err
    assert main(["run", "--plan", str(path), "--devices", "5", "--samples", "80"]) == 2
    document = json.loads(path.read_text())
    document["step_size"] *= 2
    path.write_text(json.dumps(document))
    assert main(["run", "--plan", str(path)]) == 2
    assert "was changed since it was made" in capsys.readouterr().err


def test_a_plan_for_other_data_is_judged_anew(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The plan was made for 1200 examples; with 20 000 its clip is far too small."""
    path = tmp_path / "plan.json"
    assert main(["plan", "--out", str(path)]) == 0
    capsys.readouterr()
    assert main(["run", "--plan", str(path), "--samples", "200000", "--chains", "2"]) == 0
    shown = capsys.readouterr().out
    assert shown.startswith(("WARNING", "INFEASIBLE"))
    assert "200000 examples" in shown.replace("\n", " ")


@pytest.mark.parametrize("field", ["step_size", "limits", "num_devices", "gain", "uplink", "asked"])
@pytest.mark.parametrize("value", [None, [], "x", -1])
def test_documents_that_were_damaged_are_refused_in_a_line(
    field: str, value: object, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    path = tmp_path / "plan.json"
    data = flmc.data.draw_linear(seed=1, num_samples=80, dim=3, num_devices=4)
    plan = flmc.plan(flmc.LinearGaussian(data), flmc.Digital(), num_rounds=12, num_burn_in=4)
    document = {**plan.to_document(with_run=False), field: value}
    path.write_text(json.dumps(document))
    assert main(["run", "--plan", str(path)]) == 2
    assert capsys.readouterr().err.count("\n") == 1
