"""How Sphinx builds the documentation: `make docs` writes HTML to out/docs.

The pages need no network, neither when they are built nor when they are read: formulas become
MathML (see ``_extensions/mathml.py``), and the theme brings its own style."""

from __future__ import annotations

import pkgutil
import re
import sys
import types
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx

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
    "json_fields",
    "registered_names",
]
templates_path = ["_templates"]
exclude_patterns = ["_extensions", "_templates", "skeletons", "**/.ipynb_checkpoints"]

# Markdown.
myst_enable_extensions = ["colon_fence", "dollarmath"]
myst_heading_anchors = 3
suppress_warnings = [
    # A public name and its home, flmc.Plan and flmc.planning.plans.plan_value.Plan, have a page
    # each: a reference to Plan may lead to either.
    "ref.python",
]

# Notebooks run at every build: a cell that fails, fails the build.
nb_execution_mode = "force"
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_execution_in_temp = True
nb_merge_streams = True

# The page of all modules is written anew at every build, before autosummary reads it: its order is
# that of the map in development.md, which a test holds to the imports.
_HERE = Path(__file__).parent
_MAP = re.findall(r"^\| `(\w+)` \|", (_HERE / "development.md").read_text(), flags=re.MULTILINE)
_PACKAGES = sorted(
    (module.name for module in pkgutil.walk_packages(flmc.__path__, "flmc.") if module.ispkg),
    key=lambda name: (_MAP.index(name.split(".")[1]), name),
)
_NAMES = "\n".join(f"   {name}" for name in _PACKAGES)
(_HERE / "reference" / "modules.md").write_text(
    f"""# Modules

Every package with all its modules, in the order in which data pass through them. A package imports
from itself and from those above it in this list.

```{{eval-rst}}
.. autosummary::
   :toctree: generated
   :recursive:

{_NAMES}
```
"""
)

# The reference is made from docstrings.
autosummary_generate = True
# A package has one page with all its modules; a package within it has a page of its own.
autosummary_context = {"packages": set(_PACKAGES)}
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

# With --nitpicky every reference must lead somewhere. Names of other projects have no page here: a
# list of their pages would have to be fetched. Type variables have none anywhere, nor have the
# fragments that Sphinx makes of a default value.
nitpick_ignore_regex = [
    (r"py:.*", r"(numpy|scipy|matplotlib|pydantic|typer|rich|numba|llvmlite)(\..*)?"),
    (r"py:.*", r"(collections|contextlib|pathlib|typing|abc|enum|logging|types)\..*"),
    (r"py:.*", r"(threading|json|fractions|contextvars|concurrent|asyncio|np|npt)\..*"),
    (r"py:class", r"(datetime\.)?datetime"),
    (
        r"py:class",
        r"Array|BoolArray|IntArray|named_draws\.Layout|Floats|Numbers|Value|CurveSet|Axes|Figure|Path|Kind",
    ),
    (r"py:class", r"flmc\.uplink\.uplink\.(AnyUplink|_WithoutLink)|flmc\.uplink\.link\.Curve"),
    (r"py:class", r"flmc\.cli\.schemas\.sweep_answers\._Columns"),
    (r"py:class", r"flmc\.models\.numpyro_model\._Calls|flmc\.planning\.step_size\.Number"),
    (r"py:class", r"(annotated_types\.)?Ge|FieldInfo|NoneType"),  # of pydantic's annotations
    (r"py:class", r"list\[~typing\.Annotated\[str"),
    (r"py:class", r"Entry\(name|dict\[str|str \| ~typing\.Annotated\[float"),
]

html_theme = "furo"
html_title = f"flmc {release}"
html_static_path: list[str] = []
html_show_copyright = False
html_show_sphinx = False
html_copy_source = False
html_show_sourcelink = False
html_math_renderer = "mathml"


_LONG_ARRAY = "~numpy.ndarray[tuple[~typing.Any, ...], ~numpy.dtype[~numpy.float64]]"


def shorten_arrays(
    app: Sphinx, what: str, name: str, thing: object, options: Any, arguments: str, returned: str
) -> tuple[str, str] | None:
    """Write ``Array`` in signatures, as the source does, where Sphinx would spell it out."""
    if _LONG_ARRAY not in f"{arguments} {returned}":
        return None
    return tuple(text and text.replace(_LONG_ARRAY, "Array") for text in (arguments, returned))


def skip_aliases(
    app: Sphinx, what: str, name: str, thing: object, skip: bool, options: Any
) -> bool | None:
    """Leave out names of types such as ``Array``, whose docstring would be that of NumPy."""
    return True if type(thing) is types.GenericAlias else None


def setup(app: Sphinx) -> None:
    """Connect what is above."""
    app.connect("autodoc-process-signature", shorten_arrays)
    app.connect("autodoc-skip-member", skip_aliases)
