"""Documents: the files and the names of flmc that they mention exist, and generated ones are
wrapped."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from flmc.settings.registered import REGISTRIES
from flmc.views.reports import wrap_prose, write_markdown

ROOT = Path(__file__).parents[2]
WIDTH = 100
GENERATED = {ROOT / "docs" / "reference" / "modules.md"}
"""Pages that `make docs` writes."""
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md")),
    *sorted({*(ROOT / "docs").rglob("*.md")} - GENERATED),
]
PLACES = ("src", "src/flmc", "tests", "benchmarks", "examples", "docs")
"""Folders from which documents name files, beside the repository and the page's own folder."""
SOURCES = (".py", ".c", ".h")
"""Endings of files that are always ours; a `config.toml` may be a user's."""


def quoted(text: str) -> Iterator[str]:
    """Words in backquotes, outside fenced blocks."""
    yield from re.findall(r"`([\w./-]+)`", re.sub(r"(?ms)^```.*?^```", "", text))


def names_a_source(word: str) -> bool:
    first = word.partition("/")[0]
    of_ours = first in ("src", "tests", "benchmarks", "examples", "docs")
    return word.endswith(SOURCES) or ("/" in word and of_ours)


def is_there(word: str, page: Path) -> bool:
    """Whether a word names a file or folder: from a known folder, or by the end of its path."""
    if any((place / word).exists() for place in (page.parent, ROOT)):
        return True
    return any(
        next((ROOT / place).rglob(word.strip("/")), None) is not None
        for place in PLACES
        if not word.startswith("/")
    )


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_source_file_that_a_page_names_exists(page: Path) -> None:
    gone = [
        word
        for word in quoted(page.read_text())
        if names_a_source(word) and not is_there(word, page)
    ]
    assert not gone, f"{page.relative_to(ROOT)} names files that do not exist: {gone}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_a_file_leads_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)", page.read_text())
    gone = [
        link
        for link in links
        if not re.match(r"[a-z]+:", link)
        and (page.parent / link).resolve() not in GENERATED
        and not (page.parent / link).exists()
    ]
    assert not gone, f"{page.relative_to(ROOT)} links to files that do not exist: {gone}"


def lookup(dotted: str) -> Any:
    """The object that a dotted name of flmc means: a module, or an attribute in one."""
    parts = dotted.split(".")
    for length in range(len(parts), 0, -1):
        try:
            value: Any = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError as error:
            # A module that needs an extra is there, even if the extra is not.
            if not str(error.name).startswith("flmc"):
                return None
            continue
        for name in parts[length:]:
            # Fields of dataclasses without a default are annotations only.
            fields = getattr(value, "__annotations__", {})
            value = fields[name] if name in fields else getattr(value, name)
        return value
    raise AttributeError(dotted)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_name_of_flmc_that_a_page_names_exists(page: Path) -> None:
    gone = []
    for name in sorted(set(re.findall(r"`~?(flmc(?:\.\w+)+)(?:\([^`]*\))?`", page.read_text()))):
        try:
            lookup(name)
        except AttributeError:
            gone.append(name)
    assert not gone, f"{page.relative_to(ROOT)} names what flmc does not have: {gone}"


def test_the_checks_see_what_is_gone() -> None:
    page = ROOT / "README.md"
    assert list(quoted("`a/b.py`\n```\n`c.py`\n```\n")) == ["a/b.py"]
    assert names_a_source("uplink/links.py")
    assert is_there("uplink/links.py", page)
    assert not is_there("uplink/no_such_links.py", page)
    with pytest.raises(AttributeError):
        lookup("flmc.uplink.no_such_module")


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
