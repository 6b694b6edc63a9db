"""Reports as files: Markdown, and HTML in a single file, both made from the same blocks of
content."""

from __future__ import annotations

import base64
import html
import re
import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from flmc.runs.files.durable_files import write_atomically

Block = tuple[str, Any]
"""One block of a report, a pair of kind and content: ('title' | 'heading' | 'text', str), ('list',
items), ('picture', (file name, caption)), ('table', (header, rows)), or, for HTML only, ('drawing',
(SVG text, caption))."""


def write_markdown(path: Path, blocks: Sequence[Block]) -> None:
    """Write a report's blocks as a Markdown file; pictures are links to files in the same
    directory."""
    parts = []
    for kind, content in blocks:
        if kind in ("title", "heading"):
            parts.append(("# " if kind == "title" else "## ") + content)
        elif kind == "picture":
            name, caption = content
            parts.append(f"![{caption}]({name})")
        elif kind == "table":
            header, rows = content
            lines = [
                "| " + " | ".join(cells) + " |" for cells in [header, ["---"] * len(header), *rows]
            ]
            parts.append("\n".join(lines))
        elif kind == "list":
            items = [wrap_prose(item, 98).replace("\n", "\n  ") for item in content]
            parts.append("\n".join(f"- {item}" for item in items))
        else:
            parts.append(wrap_prose(content))
    text = "\n\n".join(parts) + "\n"
    write_atomically(path, lambda stream: stream.write(text.encode()))


_MARKER = re.compile(r"([-*+>#|=]|\d+[.)])(\s|$)")
"""Pattern of the beginning of a line that Markdown would take for a list, a quote, a heading or a
table."""


def wrap_prose(text: str, width: int = 100) -> str:
    """A paragraph broken into lines of at most ``width`` characters; lines are shorter where the
    next would begin like a list, a quote, a heading or a table of Markdown. A word longer than a
    line stays whole."""
    lines = [text]
    for narrower in range(width, width // 2, -1):
        lines = textwrap.wrap(text, narrower, break_long_words=False, break_on_hyphens=False)
        if not any(_MARKER.match(line) for line in lines[1:]):
            break
    return "\n".join(lines)


_STYLE = """body{font:15px/1.5 system-ui,sans-serif;max-width:62rem;margin:2rem auto;
padding:0 1rem;color:#222}
table{border-collapse:collapse;margin:1rem 0;font-size:13px;display:block;overflow-x:auto}
td,th{border:1px solid #ccc;padding:.25rem .5rem;text-align:left;vertical-align:top}
th{background:#f3f3f3}
img,svg{max-width:100%;height:auto}code{background:#f3f3f3;padding:0 .2rem}
figure{margin:1rem 0}figcaption{font-size:13px;color:#555}"""


def _inline(text: str) -> str:
    """A line of text as HTML: special characters are escaped, and words in backquotes become
    code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def write_html(path: Path, blocks: Sequence[Block]) -> None:
    """Write a report's blocks as a single HTML file; pictures from the file's directory are
    embedded in it."""
    text = render_html(blocks, path.parent)
    write_atomically(path, lambda stream: stream.write(text.encode()))


def render_html(blocks: Sequence[Block], directory: Path | None = None) -> str:
    """A report's blocks as the text of a single HTML file, in which pictures from ``directory`` are
    embedded."""
    parts = [_as_html(kind, content, directory) for kind, content in blocks]
    title = next((content for kind, content in blocks if kind == "title"), "report")
    head = f'<meta charset="utf-8"><title>{html.escape(title)}</title><style>{_STYLE}</style>'
    page = f'<!doctype html><html lang="en">{head}'
    return page + "<body>" + "\n".join(parts) + "</body></html>\n"


def _as_html(kind: str, content: Any, directory: Path | None) -> str:
    """One block of a report as HTML. Its ``kind`` (title, heading, picture, drawing, table, text
    and so on) says what ``content`` holds: a text, or a tuple such as file name and caption of a
    picture, which is read from ``directory`` and embedded in the page."""
    if kind in ("title", "heading"):
        tag = "h1" if kind == "title" else "h2"
        return f"<{tag}>{html.escape(content)}</{tag}>"
    if kind == "picture":
        name, caption = content
        assert directory is not None
        data = base64.b64encode((directory / name).read_bytes()).decode()
        return (
            f'<figure><img alt="{html.escape(caption)}" src="data:image/png;base64,{data}">'
            f"<figcaption>{html.escape(caption)}</figcaption></figure>"
        )
    if kind == "drawing":
        drawing, caption = content
        return f"<figure>{drawing}<figcaption>{html.escape(caption)}</figcaption></figure>"
    if kind == "table":
        header, rows = content
        cells = "".join(f"<th>{html.escape(cell)}</th>" for cell in header)
        body = "".join(
            "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>"
            for row in rows
        )
        return f"<table><tr>{cells}</tr>{body}</table>"
    if kind == "list":
        return "<ul>" + "".join(f"<li>{_inline(item)}</li>" for item in content) + "</ul>"
    return f"<p>{_inline(content)}</p>"
