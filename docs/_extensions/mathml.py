"""Formulas as MathML, made when the pages are built.

A browser draws MathML by itself: no script and no font has to be fetched when a page is opened."""

from __future__ import annotations

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx
from sphinx.util.math import get_node_equation_number
from sphinx.writers.html5 import HTML5Translator


def write_inline(translator: HTML5Translator, node: nodes.math) -> None:
    """Write a formula within a line."""
    translator.body.append(convert(node.astext()))
    raise nodes.SkipNode


def write_block(translator: HTML5Translator, node: nodes.math_block) -> None:
    """Write a formula on lines of its own, with its number if it has one."""
    translator.body.append(translator.starttag(node, "div", CLASS="math notranslate"))
    if node["number"]:
        number = get_node_equation_number(translator, node)
        translator.body.append(f'<span class="eqno">({number})</span>')
    translator.body.append(convert(node.astext(), display="block"))
    translator.body.append("</div>\n")
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer under the name ``mathml``."""
    app.add_html_math_renderer("mathml", (write_inline, None), (write_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
