"""The page about cost from the JSON of the suite: tables between two marks of ``docs/scale.md``,
and the picture beside it.

Usage: tables.py [--json FILE] [--page FILE] [--check]. With ``--check`` nothing is written, and the
exit code is 1 if the page is not what the JSON gives."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from rendering.markdown import render

ROOT = Path(__file__).parents[1]
PAGE, DATA = ROOT / "docs" / "scale.md", ROOT / "docs" / "scale" / "benchmark.json"
BEGIN, END = "<!-- benchmark: begin -->", "<!-- benchmark: end -->"


def replaced(page: str, tables: str) -> str:
    """A page with new tables between its marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not begin or not end:
        raise ValueError(f"the page must have the marks {BEGIN} and {END}")
    return f"{before}{BEGIN}\n\n{tables}\n{END}{after}"


def main() -> int:
    """Write the page and the picture, or compare the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path, default=DATA, metavar="FILE")
    parser.add_argument("--page", type=Path, default=PAGE, metavar="FILE")
    parser.add_argument("--check", action="store_true", help="write nothing")
    options = parser.parse_args()
    document: dict[str, Any] = json.loads(options.json.read_text())
    old = options.page.read_text()
    new = replaced(old, render(document))
    if options.check:
        if new != old:
            print(f"{options.page.name} differs from {options.json.name}; run benchmarks/tables.py")
        return int(new != old)
    options.page.write_text(new)
    # Imported here: a check needs no Matplotlib.
    from rendering.picture import draw

    picture = options.page.parent / "scale" / "cost.png"
    picture.parent.mkdir(exist_ok=True)
    draw(document, picture)
    return 0


if __name__ == "__main__":
    sys.exit(main())
