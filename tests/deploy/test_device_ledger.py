"""What a device's owner sees of its journal, and of a run beforehand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from deploy.federations import make_federation
from flmc.base.tables import format_up
from flmc.cli import main
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.configuration import read_federation
from flmc.deploy.device.device_journal import DeviceJournal, Price


def test_the_ledger_is_shown_while_the_journal_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = DeviceJournal(tmp_path)
    journal.join("first", "ab" * 32, Price("device", 2.5, 0.1, 1e-5), bytes(8))
    journal.answer("first", 1, bytes(32), [0.3], b"sealed")
    journal.answer("first", 4, bytes(32), [0.3], b"sealed")
    journal.join("second", "cd" * 32, Price("example", None, 1.0, 1e-5), bytes(8))
    assert main(["deploy", "ledger", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["run"], each["answers"], each["last_round"]) for each in found["runs"]] == [
        ("first", 2, 4),
        ("second", 0, 0),
    ]
    # The second run was joined and never answered: it has cost nothing.
    totals = found["epsilon_device"], found["epsilon_example"], found["delta"]
    assert totals == (2.5, 0.1, 1e-5)
    assert [each["neighbouring"] for each in found["runs"]] == ["device", "example"]
    assert found["runs"][1]["epsilon_device"] is None
    assert main(["deploy", "ledger", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "first" in out
    assert "epsilon 2.5 for all data of the device, 0.1 for one example, at delta 1e-05" in out
    assert "not known" in out
    journal.close()


def test_no_journal_and_a_damaged_one_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "ledger", str(tmp_path)]) == 2
    assert "there is no journal" in capsys.readouterr().err
    (tmp_path / "journal.txt").write_text("")
    assert main(["deploy", "ledger", str(tmp_path)]) == 0
    assert "no run was joined yet" in capsys.readouterr().out


def test_what_a_run_may_cost_is_told_beforehand(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By the digest and the epsilon with which a device would join."""
    federation = make_federation()
    plan = federation.plan.to_document(with_run=False)
    (tmp_path / "plan.json").write_text(json.dumps(plan))
    path = tmp_path / "federation.toml"
    path.write_text(f'run = "{federation.run}"\nplan = "plan.json"\nquorum = {federation.quorum}\n')
    assert main(["deploy", "cost", str(path), "--delta", "1e-6", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    found = read_federation(path)
    assert told["digest"] == found.digest.hex()
    assert told["epsilon"] == cost_of_run(found, 1e-6, "device")
    assert main(["deploy", "cost", str(path)]) == 0
    assert format_up(cost_of_run(found, 1e-5, "device")) in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["nowhere.toml"], "cannot read 'nowhere.toml'"),
        (["federation.toml", "--delta", "1"], "--delta must lie strictly between 0 and 1"),
        (["federation.toml", "--neighbouring", "row"], "one of device, example"),
        (["federation.toml"], "plan.json"),
    ],
)
def test_bad_questions_about_costs(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    words: list[str],
    said: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "federation.toml").write_text('run = "first"\nplan = "plan.json"\n')
    assert main(["deploy", "cost", *words]) == 2
    assert said in capsys.readouterr().err
