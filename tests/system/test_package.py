"""The wheel: what is in it, what it says about itself, and that it works where the sources are not.

A quick run builds the wheel and looks into it; a full run also installs it elsewhere."""

from __future__ import annotations

import email
import json
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import flmc
from flmc.cli import main
from flmc.runs import citation
from support import QUICK

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).parent / "uv"


def call(*command: str | Path, cwd: Path) -> str:
    """What a command prints on standard output; the test fails if the command does."""
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    call(UV, "build", "--quiet", "--wheel", "--out-dir", out, ROOT, cwd=out)
    [built] = out.glob("*.whl")
    return built


def metadata(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        [name] = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    assert "flmc/py.typed" in names
    sources = {str(path.relative_to(ROOT / "src")) for path in (ROOT / "src").rglob("*.py")}
    assert {name for name in names if name.endswith(".py")} == sources
    information = f"flmc-{flmc.__version__}.dist-info"
    assert {name.partition("/")[0] for name in names} == {"flmc", "flmc_command.py", information}
    assert f"{information}/licenses/LICENSE" in names


def test_one_version_everywhere(wheel: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"{flmc.__version__}\n"
    assert metadata(wheel)["Version"] == flmc.__version__
    cited = (ROOT / "CITATION.cff").read_text()
    assert re.findall(r"^version: (.+)$", cited, flags=re.MULTILINE) == [flmc.__version__]


def test_citations_say_what_the_citation_file_says() -> None:
    text = (ROOT / "CITATION.cff").read_text()
    titles = re.findall(r"^ *(?:- )?title: \"(.+)\"$", text, flags=re.MULTILINE)
    assert titles == [citation.TITLE, citation.PAPER]
    assert re.findall(r"^  - name: \"(.+)\"$", text, flags=re.MULTILINE) == [citation.AUTHOR]
    authors = re.findall(r"family-names: (.+)\n +given-names: (.+)$", text, flags=re.MULTILINE)
    assert tuple(", ".join(each) for each in authors) == citation.PAPER_AUTHORS
    assert re.findall(r"^ +collection-title: \"(.+)\"$", text, flags=re.MULTILINE) == [
        citation.PAPER_IN
    ]
    assert re.findall(r"^ +year: (\d+)$", text, flags=re.MULTILINE) == [str(citation.PAPER_YEAR)]
    assert f'value: "arXiv:{citation.PAPER_EPRINT}"' in text


def test_the_wheel_asks_for_no_tool_of_developers(wheel: Path) -> None:
    wanted = metadata(wheel).get_all("Requires-Dist") or []
    names = {re.split(r"[^\w.-]", line)[0] for line in wanted}
    assert not names & {"pytest", "mypy", "ruff", "hypothesis", "sphinx", "uv"}
    always = {re.split(r"[^\w.-]", line)[0] for line in wanted if "extra ==" not in line}
    assert always == {"numpy", "scipy", "pydantic", "typer", "rich", "threadpoolctl"}


def test_no_source_is_ignored() -> None:
    """A pattern in .gitignore that is meant for outputs must not hide a file of the package: git
    would never add it, ruff would not read it, and the wheel would lack it."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a clone")
    listed = call(
        *("git", "ls-files", "--others", "--ignored", "--exclude-standard", "src", "tests"),
        cwd=ROOT,
    )
    assert [name for name in listed.splitlines() if "__pycache__" not in name] == []


@pytest.mark.skipif(QUICK, reason="installs into a new environment")
def test_the_wheel_works_elsewhere(wheel: Path, tmp_path: Path) -> None:
    """Commands as in the README, from a directory that knows nothing of the sources."""
    place = tmp_path / "environment"
    python, command = place / "bin" / "python", place / "bin" / "flmc"
    call(UV, "venv", "--quiet", "--python", sys.executable, place, cwd=tmp_path)
    constraints = ("--constraint", ROOT / "constraints.txt")
    asked = f"flmc[fast,plot] @ {wheel.as_uri()}"
    call(UV, "pip", "install", "--quiet", "--python", python, *constraints, asked, cwd=tmp_path)

    assert call(command, "--version", cwd=tmp_path) == f"{flmc.__version__}\n"
    code = "import flmc; print(flmc.__version__, flmc.__file__)"
    version, file = call(python, "-c", code, cwd=tmp_path).split(maxsplit=1)
    assert version == flmc.__version__
    assert Path(file.strip()).is_relative_to(place)
    plan = json.loads(call(command, "plan", "--json", "--no-run", cwd=tmp_path))
    assert plan["binding"] == "langevin"
    few = ("--chains", "2", "--rounds", "40", "--burn-in", "20")
    result = json.loads(call(command, "run", *few, "--json", cwd=tmp_path))
    assert (result["num_chains"], result["version"]) == (2, flmc.__version__)
