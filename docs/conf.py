"""How Sphinx builds the documentation: `make docs` writes HTML to out/docs.

The pages need no network, neither when they are built nor when they are read: formulas become
MathML (see ``_extensions/mathml.py``), and the theme brings its own style."""

from __future__ import annotations

import sys
from pathlib import Path

import flmc

sys.path.insert(0, str(Path(__file__).parent / "_extensions"))

project = "flmc"
author = "The flmc authors"
copyright = author  # noqa: A001 (the name that Sphinx reads)
version = release = flmc.__version__

extensions = [
    "myst_nb",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "mathml",
    "registered_names",
]
templates_path = ["_templates"]
exclude_patterns = ["_extensions", "_templates", "skeletons", "**/.ipynb_checkpoints"]

# Markdown.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = ["config.cache"]

# Notebooks run at every build: a cell that fails, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True

# The reference is made from docstrings.
autosummary_generate = True
autosummary_ignore_module_all = False
# File systems that do not tell capitals from small letters must keep both pages.
autosummary_filename_map = {"flmc.Plan": "flmc.Plan-class"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_member_order = "bysource"
autodoc_preserve_defaults = True
autoclass_content = "class"
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 100

# With -n every reference must lead somewhere. Names of other projects have no page here, because
# a list of their pages would have to be fetched from them; type variables and names that only
# type checkers import have none anywhere.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|np|scipy|matplotlib|pydantic|typer|rich|numba|llvmlite)(\..*)?"),
    (r"py:.*", r"(collections|pathlib|typing|abc|enum|logging|types|threading|json)\..*"),
]

html_theme = "furo"
html_title = f"flmc {release}"
html_static_path: list[str] = []
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"
