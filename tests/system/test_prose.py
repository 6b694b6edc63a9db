"""Prose is wrapped at 100 characters, so that changes of a page can be read line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from flmc.settings.registered import REGISTRIES
from flmc.views.reports import wrap_prose, write_markdown

ROOT = Path(__file__).parents[2]
WIDTH = 100
TOP = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
PAGES = [
    *(ROOT / name for name in TOP if (ROOT / name).exists()),
    *sorted((ROOT / "docs").rglob("*.md")),
]


def prose_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines that can be wrapped, with their numbers: not fenced or indented code, tables, pictures,
    nor a single word such as a long link."""
    fence = ""
    for number, line in enumerate(text.splitlines(), start=1):
        mark = re.match(r"\s*(`{3,}|:{3,})", line)
        if mark:
            if not fence:
                fence = mark[1]
            elif line.strip() == fence:
                fence = ""
            continue
        code = fence or line.startswith("    ")
        unbreakable = len(line.split()) <= 1 or line.lstrip().startswith(("|", "!["))
        # A heading cannot be broken; what counts is its text, not where it links to.
        if line.startswith("#"):
            line = re.sub(r"\]\([^)]*\)", "]", line)
        if not code and not unbreakable:
            yield number, line


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_prose_is_wrapped(page: Path) -> None:
    text = page.read_text()
    long = [number for number, line in prose_lines(text) if len(line) > WIDTH]
    assert not long, f"{page.relative_to(ROOT)} has prose over {WIDTH} characters in lines {long}"


def test_the_check_sees_prose_and_nothing_else() -> None:
    long, word = "word " * 30, "w" * 120
    skipped = [f"```\n{long}\n```", f"| {long} |", f"![{long}](a.png)", word, f"    {long}"]
    skipped += [f"# heading [x](http://{word})"]
    for text in skipped:
        assert all(len(line) <= WIDTH for _, line in prose_lines(text)), text
    for text in (long, f"* {long}", f"```\ncode\n```\n{long}"):
        assert any(len(line) > WIDTH for _, line in prose_lines(text)), text


def test_reports_are_wrapped_without_changing_a_word(tmp_path: Path) -> None:
    words = " ".join(["some words, then a number", "and - a dash"] * 40)
    write_markdown(tmp_path / "report.md", [("title", "A report"), ("text", words)])
    written = (tmp_path / "report.md").read_text()
    assert written.split() == f"# A report {words}".split()
    assert max(map(len, written.splitlines())) <= WIDTH
    assert not re.search(r"^- ", written, flags=re.MULTILINE)
    assert wrap_prose("w" * 120) == "w" * 120


def test_every_registry_has_its_table() -> None:
    """The tables are generated; what a kind means is written by hand, once for each kind."""
    page = (ROOT / "docs" / "reference" / "names.md").read_text()
    shown = re.findall(r"^```\{registered-names\} (\w+)$", page, flags=re.MULTILINE)
    assert shown == list(REGISTRIES)
