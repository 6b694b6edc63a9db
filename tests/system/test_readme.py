"""Every command and every block of code in the README and in docs/ is executed."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from extras import missing_in
from flmc.cli import main
from support import EVIDENCE, QUICK, many_repetitions

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path, language: str) -> list[str]:
    return re.findall(
        rf"^```{language}\n(.*?)^```", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )


COMMANDS = list(
    dict.fromkeys(  # each once
        line
        for page in PAGES
        for block in blocks(page, "sh")
        for line in block.replace("\\\n", "").splitlines()  # a command may go on in a next line
        if line.strip()
    )
)
_LONG = ("flmc reproduce", "--plots", "flmc audit", "flmc deploy demo", "--suggest", "--solve")


def commands_of_flmc(line: str) -> list[list[str]] | None:
    """Words of the commands that a line runs one after the other, each without its ``flmc``; None
    if the line needs a shell."""
    words = shlex.shlex(line, posix=True, punctuation_chars=True)
    words.whitespace_split = True
    commands: list[list[str]] = [[]]
    for word in words:
        if word == "&&":
            commands.append([])
        elif set(word) <= set(words.punctuation_chars):
            return None
        else:
            commands[-1].append(word)
    return [each[1:] for each in commands] if {each[0] for each in commands} == {"flmc"} else None


@pytest.mark.parametrize("command", COMMANDS)
def test_commands(
    command: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Run as written, with this environment in place of .venv, and with few experiments. `make
    test` would call itself: its recipe is shown to be the one that runs these tests. A quick run
    spares the start of a process for each command."""
    if QUICK and any(word in command for word in _LONG):
        pytest.skip("long even with small counts: the command has quick tests of its own")
    command = command.replace("--experiments 50", "--experiments 4")
    if QUICK and (commands := commands_of_flmc(command)):
        monkeypatch.chdir(tmp_path)
        for words in commands:
            code = main(words)
            said = "".join(capsys.readouterr())
            if code and (reason := missing_in(said)):
                pytest.skip(reason)
            assert code == 0, said
        return
    binaries = Path(sys.executable).parent
    if command.startswith("make"):
        target = command.split()[1]
        arguments = [
            "make",
            "-C",
            str(ROOT),
            "-o",
            ".venv/.installed",
            "-o",
            ".venv/.test-installed",
            f"BIN={binaries}",
            "EXPERIMENTS=4",
            f"OUT={tmp_path}",
        ]
        if target.startswith("test"):
            shown = subprocess.run(
                [*arguments, "-n", target], capture_output=True, text=True, check=True
            ).stdout
            assert f"{binaries}/python -m pytest" in shown
            assert "mypy" in shown
            assert "ruff check" in shown
            return
        if QUICK:  # its command has a quick test of its own
            shown = subprocess.run(
                [*arguments, "-n", target], capture_output=True, text=True, check=True
            ).stdout
            assert f"{binaries}/flmc reproduce" in shown
            return
        done = subprocess.run([*arguments, target], capture_output=True, text=True)
    else:
        environment = {**os.environ, "PATH": f"{binaries}:{os.environ['PATH']}"}
        done = subprocess.run(
            command, shell=True, cwd=tmp_path, capture_output=True, text=True, env=environment
        )
    if done.returncode and (reason := missing_in(done.stderr)):
        pytest.skip(reason)
    assert done.returncode == 0, done.stdout + done.stderr


LONG = (
    "baselines.py",
    "digits.py",
    "first_ten_minutes.py",
    "hospitals.py",
    "private_posterior.py",
)


@many_repetitions
@pytest.mark.parametrize("script", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.name)
def test_examples_run(script: Path, tmp_path: Path) -> None:
    if script.name == "pytorch_model.py":
        pytest.importorskip("torch", reason="PyTorch is large and in no extra")
    few = {"private_posterior.py": ["1", "2", "0"]}  # in full it is a test of its own
    if not EVIDENCE:
        few |= {
            "baselines.py": ["100", "4", "1"],
            "digits.py": ["4"],
            "hospitals.py": ["60000", "40000"],
        }
    if QUICK:
        if script.name in LONG:
            pytest.skip("long even with small counts: in the full run only")
        few |= {"pytorch_model.py": ["400"]}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), *few.get(script.name, [])],
        cwd=tmp_path,
        capture_output=True,
        text=True,
    )
    if done.returncode and (reason := missing_in(done.stderr)):
        pytest.skip(reason)
    assert done.returncode == 0, done.stderr
    assert done.stdout


def test_make_leaves_what_a_user_made_alone(tmp_path: Path) -> None:
    """Whatever a test makes goes to its own place: no recipe writes below out/ if told
    otherwise."""
    for target in ("run", "bench"):
        arguments = ["make", "-C", str(ROOT), "-n", "-B", f"OUT={tmp_path}", target]
        shown = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
        assert str(tmp_path) in shown
        assert not re.search(r"(^| )out/", shown)


def test_the_readme_s_ten_lines_print_what_it_shows(tmp_path: Path) -> None:
    """Words to the letter; numbers to 10 %, because other processors round differently and a
    flipped random bit makes another draw. Standard errors, and numbers at their size, may differ by
    more."""
    readme = ROOT / "README.md"
    code = "\n".join(blocks(readme, "python"))
    assert len([line for line in code.splitlines() if line.strip()]) <= 10
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    printed = [_words(line) for line in done.stdout.splitlines()]
    for block in blocks(readme, "text"):
        for line in block.splitlines():
            if line.strip() == "...":
                continue
            words, numbers = _words(line)
            same = [found for text, found in printed if text == words]
            assert same, line
            if "±" not in line:
                # Both answers have a row of their width, say, and one of them is shown.
                assert any(found == pytest.approx(numbers, rel=0.1) for found in same), line


def _words(line: str) -> tuple[str, list[float]]:
    """A line without its numbers, and the numbers."""
    number = r"(?<![\w.])-?\d+\.?\d*(?:e-?\d+)?"
    numbers = [float(found) for found in re.findall(number, line)]
    return re.sub(number, "#", " ".join(line.split())), numbers
