"""Somebody else's record must not harm: links are not followed, code is not run, pipes not waited
for."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from flmc.cli import main
from flmc.runs.files.durable_files import read_json, write_json
from support import full_only

SETTINGS = ["--rounds", "40", "--burn-in", "10", "--engine", "numpy", "--checkpoint-rounds", "10"]
PRECIOUS = "do not touch\n"


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made") / "record"
    assert main(["run", *SETTINGS, "--out", str(out)]) == 0
    return out


@pytest.fixture
def record(finished: Path, tmp_path: Path) -> Path:
    """A record of a run that is not finished, as far as anybody can see."""
    copy = tmp_path / "record"
    shutil.copytree(finished, copy)
    (copy / "result.json").unlink()
    return copy


def say(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    code = main(list(words))
    return code, capsys.readouterr().err


@pytest.mark.parametrize("name", [".lock", "ledger.txt", "ledger.txt.cut", "ledger.png", "new"])
@pytest.mark.parametrize("command", ["resume", "ledger", "answer"])
def test_links_in_a_record_are_refused(
    command: str, name: str, record: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "precious"
    target.write_text(PRECIOUS)
    (record / name).unlink(missing_ok=True)
    (record / name).symlink_to(target)
    code, said = say(capsys, command, str(record))
    assert code == 2
    assert f"{name}' is a symbolic link" in said
    assert target.read_text() == PRECIOUS


@pytest.mark.parametrize("name", [".lock", "run.json", "points"])
def test_links_in_a_new_directory_are_refused(
    name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target, out = tmp_path / "precious", tmp_path / "out"
    target.write_text(PRECIOUS)
    out.mkdir()
    (out / name).symlink_to(target)
    vary = tmp_path / "grid.toml"
    vary.write_text("rounds = 20\nburn_in = 5\n[sweep]\nsnr_db = [10, 20]\n")
    commands = [["run", *SETTINGS, "--out", str(out)]]
    if name == "points":
        commands.append(["sweep", "--config", str(vary), "--out", str(out)])
    for words in commands:
        code, said = say(capsys, *words)
        assert code == 2
        assert "symbolic link" in said or "must be a new or empty directory" in said
    assert target.read_text() == PRECIOUS


def test_a_link_that_appears_later_is_not_followed(tmp_path: Path) -> None:
    """Between the check and the write: the functions that write refuse by themselves."""
    from flmc.runs.files.append_log import Log
    from flmc.runs.files.durable_files import locked

    target = tmp_path / "precious"
    target.write_text(PRECIOUS)
    log = Log(tmp_path / "ledger.txt")
    (tmp_path / "ledger.txt").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"):
        log.append(["more"])
    (tmp_path / ".lock").symlink_to(target)
    with pytest.raises(OSError, match="symbolic links"), locked(tmp_path):
        pass
    (tmp_path / "run.json").symlink_to(target)
    write_json(tmp_path / "run.json", {"a": 1})  # replaces the link
    assert not (tmp_path / "run.json").is_symlink()
    assert target.read_text() == PRECIOUS


@pytest.mark.parametrize("name", ["ledger.txt", "result.json", "checkpoint.npz"])
def test_pipes_are_not_waited_for(
    name: str, record: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (record / name).unlink(missing_ok=True)
    os.mkfifo(record / name)
    for command in ("resume", "ledger", "answer"):
        code, said = say(capsys, command, str(record))
        assert code == 2
        assert "is a pipe" in said


def with_link(record: Path, text: str) -> None:
    """Change the link in the settings of a record, as somebody would who knows its digest."""
    path = record / "run.json"
    document = read_json(path)
    write_json(path, {**document, "settings": {**document["settings"], "link": text}})


@full_only
@pytest.mark.parametrize("where", ["record", "here"])
@pytest.mark.parametrize("command", ["resume", "ledger"])
def test_code_that_a_record_names_is_not_run(command: str, where: str, record: Path) -> None:
    """In a process of its own, whose current directory holds the module."""
    place = record if where == "record" else record.parent
    (place / "evil.py").write_text("open('ran', 'w').close()\nraise SystemExit(7)\n")
    with_link(record, "evil:Link")

    def call(*more: str) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "flmc", command, str(record), *more]
        return subprocess.run(words, cwd=place, capture_output=True, text=True, check=False)

    done = call()
    assert done.returncode == 2
    assert "names code of its own, link 'evil:Link'" in done.stderr
    assert "--trust-code" in done.stderr
    # Trusted, but not in the current directory, unless that is asked for.
    done = call("--trust-code")
    assert done.returncode == 2
    assert "No module named 'evil'" in done.stderr
    assert not (place / "ran").exists()
    call("--code-from", str(place))
    assert (place / "ran").exists()


def test_os_abort_is_no_link(record: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with_link(record, "os:abort")
    for command in ("resume", "ledger"):
        assert say(capsys, command, str(record))[0] == 2
