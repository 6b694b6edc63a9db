"""What a device's owner sees of its journal."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from flmc.cli import main
from flmc.deploy.device.device_journal import DeviceJournal


def test_the_ledger_is_shown_while_the_journal_is_in_use(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    journal = DeviceJournal(tmp_path)
    journal.join("first", "ab" * 32, 2.5, 1e-5, bytes(8))
    journal.answer("first", 1, bytes(32), [0.3], b"sealed")
    journal.answer("first", 4, bytes(32), [0.3], b"sealed")
    journal.join("second", "cd" * 32, 1.0, 1e-5, bytes(8))
    assert main(["deploy", "ledger", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert [(each["run"], each["answers"], each["last_round"]) for each in found["runs"]] == [
        ("first", 2, 4),
        ("second", 0, 0),
    ]
    # The second run was joined and never answered: it has cost nothing.
    assert (found["epsilon"], found["delta"]) == (2.5, 1e-5)
    assert main(["deploy", "ledger", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "first" in out
    assert "epsilon 2.5 at delta 1e-05" in out
    journal.close()


def test_no_journal_and_a_damaged_one_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["deploy", "ledger", str(tmp_path)]) == 2
    assert "there is no journal" in capsys.readouterr().err
    (tmp_path / "journal.txt").write_text("")
    assert main(["deploy", "ledger", str(tmp_path)]) == 0
    assert "no run was joined yet" in capsys.readouterr().out
