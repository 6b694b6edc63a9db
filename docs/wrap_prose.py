"""Wrap the prose of all pages at 100 characters: ``make format`` runs it.

Only paragraphs and list items that have a longer line change. Fenced and indented blocks, tables,
headings, directives and pictures stay as they are."""

from __future__ import annotations

import re
from pathlib import Path

from flmc.views.reports import wrap_prose

ROOT = Path(__file__).parents[1]
WIDTH = 100


def wrapped(text: str) -> str:
    """The text of a page with every paragraph that has a long line wrapped anew."""
    lines: list[str] = []
    fence = ""
    paragraph: list[str] = []

    def flush() -> None:
        lines.extend(_paragraph(paragraph))
        paragraph.clear()

    for line in text.splitlines():
        mark = re.match(r"\s*(`{3,}|:{3,})", line)
        if mark and not fence:
            fence = mark[1]
        elif mark and line.strip() == fence:
            fence = ""
        elif not fence and not mark and re.match(r"\s{0,3}[^\s|#!<]", line):
            # A new item of a list ends the paragraph before it.
            if re.match(r"\s*([*+-]|\d+\.)\s", line):
                flush()
            paragraph.append(line)
            continue
        flush()
        lines.append(line)
    flush()
    return "\n".join(lines) + "\n"


def _paragraph(lines: list[str]) -> list[str]:
    if all(len(line) <= WIDTH for line in lines):
        return lines
    start = re.match(r"\s*(?:[*+-]\s+|\d+\.\s+)?", lines[0])
    first = start[0] if start else ""
    hanging = " " * len(first)
    words = " ".join(" ".join(lines)[len(first) :].split())
    parts = wrap_prose(words, WIDTH - len(first)).split("\n")
    return [first + parts[0], *(hanging + part for part in parts[1:])]


def main() -> None:
    """Rewrite the pages that have long lines."""
    for page in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")]:
        before = page.read_text()
        after = wrapped(before)
        if after != before:
            assert after.split() == before.split(), f"{page}: words would change"
            page.write_text(after)


if __name__ == "__main__":
    main()
