"""Tables of evidence: what tests with many repetitions counted, written by `make evidence`.

A test takes the fixture ``evidence`` and states what it tried, how often, and what came of it. With
``--evidence FOLDER`` the session writes one Markdown table for each topic, with date, commit and
machine; without it the statements go nowhere, and the test asserts the same."""

from __future__ import annotations

import datetime
import os
import platform
import subprocess
from collections import Counter, defaultdict
from pathlib import Path
from typing import Protocol

import pytest

from support import EVIDENCE, QUICK

ROOT = Path(__file__).parents[1]
_PROPERTY = "evidence"


class State(Protocol):
    """Adds a row to a table: topic, what was tried, how often, what came of it. Rows that agree in
    all but the count become one."""

    def __call__(self, topic: str, tried: str, count: int, outcome: str) -> None: ...


class Tables:
    """Plugin that collects the rows of all workers, and writes the tables at the end."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._rows: dict[str, Counter[tuple[str, str, str]]] = defaultdict(Counter)

    @pytest.fixture
    def evidence(self, record_property: object) -> State:
        """Function that states one row of evidence."""

        def state(topic: str, tried: str, count: int, outcome: str) -> None:
            assert callable(record_property)
            record_property(_PROPERTY, (topic, tried, count, outcome))

        return state

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep the rows of a test that passed; workers send them with its report."""
        if report.when != "call":
            return
        outcome = "" if report.passed else f" ({report.outcome})"
        for name, row in report.user_properties:
            if name == _PROPERTY and isinstance(row, tuple | list):
                topic, tried, count, what = row
                test = report.nodeid.removeprefix("tests/").partition("[")[0]
                # Parts of one test that say the same are one row.
                self._rows[topic][tried, what + outcome, test] += count

    def pytest_sessionfinish(self) -> None:
        """Write the tables, in the process that has the rows of all workers."""
        folder = self._config.getoption("--evidence")
        if folder is None or hasattr(self._config, "workerinput"):
            return
        for topic, rows in self._rows.items():
            _write(Path(folder), topic, rows)


def _write(folder: Path, topic: str, rows: Counter[tuple[str, str, str]]) -> None:
    """Write the table of a topic."""
    counts = "evidence" if EVIDENCE else "quick" if QUICK else "test"
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    lines = [
        f"# Evidence: {topic}",
        "",
        f"Made on {today} at commit {_commit()} by `make evidence` ({counts} counts), on"
        f" {os.cpu_count()} cores, {platform.system()}, Python {platform.python_version()}.",
        "",
        "| tried | how often | what came of it | test |",
        "|---|---|---|---|",
        *(f"| {row[0]} | {rows[row]} | {row[1]} | `{row[2]}` |" for row in sorted(rows)),
    ]
    folder.mkdir(parents=True, exist_ok=True)
    name = topic.lower().replace(" ", "_")
    (folder / f"{name}.md").write_text("\n".join(lines) + "\n")


def _commit() -> str:
    """Abbreviated commit of the tree, with a plus where files were changed since."""
    try:
        commit = subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=ROOT, capture_output=True, text=True
        ).stdout.strip()
        changed = subprocess.run(
            ["git", "status", "--porcelain", "src", "tests"],
            cwd=ROOT, capture_output=True, text=True,
        ).stdout.strip()  # fmt: skip
    except OSError:
        return "unknown"
    return (commit or "unknown") + ("+" if changed else "")
