"""Fingerprints of what a run takes from outside of flmc: the contents of data files, and the source
of a user's own code with the modules that it imports. Nothing is imported to find them."""

from __future__ import annotations

import ast
import glob
import hashlib
import importlib.util
import shlex
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from flmc.base.errors import InvalidSetting
from flmc.data.table_files import BUNDLED_PREFIX, digest_of_bundled
from flmc.runs.script_code import SCRIPT, digests_of_class
from flmc.settings.registered import FADINGS
from flmc.settings.registry import CURRENT_DIRECTORY

_INSTALLED = tuple(str(Path(sysconfig.get_path(name)).resolve()) for name in ("purelib", "platlib"))
MISSING = "missing"
"""Word in place of the digest of a file or module that does not exist. No error is raised for it
when digests are made, because the run itself then fails with a message about it."""


class Fingerprints:
    """SHA-256 digests of files and modules. Each digest is computed when it is first asked for and
    then remembered, so a change made later is seen by a new object only."""

    def __init__(self) -> None:
        self._files: dict[Path, str] = {}
        self._modules: dict[str, dict[str, str]] = {}

    def of_settings(self, settings: Mapping[str, Any]) -> dict[str, str]:
        """SHA-256 digests of all data files (by path) and of the user's Python modules (by module
        name) that ``settings`` name; empty where they name none. ``InvalidSetting`` for code
        without readable source."""
        digests: dict[str, str] = {}
        if not settings:
            return digests
        # Imported here, because it loads pydantic, which a run from Python without settings does
        # not need.
        from flmc.settings.construction import named_code

        for path in _files_of(settings):
            digests[str(path)] = self._of_file(path)
        source = settings.get("data_file")
        if isinstance(source, str) and source.startswith(BUNDLED_PREFIX):
            digests[source] = digest_of_bundled(source.removeprefix(BUNDLED_PREFIX)) or MISSING
        for name, text in named_code(settings).items():
            digests |= self.of_module(text.partition(":")[0], f"{name} {text!r}")
        return digests

    def of_objects(self, *objects: object) -> dict[str, str]:
        """SHA-256 digests, by module name, of the user's modules that define the classes of
        ``objects`` and their base classes; modules of flmc and of Python are left out. For a class
        in a script, the digests are of the class itself and of everything in the script that its
        code uses, by name. ``InvalidSetting`` for a class without readable source."""
        digests: dict[str, str] = {}
        for each in objects:
            for kind in type(each).__mro__:
                if kind.__module__ == SCRIPT:
                    what = f"the class {kind.__qualname__}"
                    digests |= digests_of_class(kind, partial(self._of_own_module, what=what))
                elif _is_own(kind.__module__):
                    what = f"the class {kind.__module__}.{kind.__qualname__}"
                    digests |= self.of_module(kind.__module__, what)
        return digests

    def of_module(self, name: str, what: str) -> dict[str, str]:
        """SHA-256 digests, by module name, of the source of the module ``name`` and of all modules
        that it imports, except installed packages. ``what`` says in error messages who needs the
        module, such as a setting or a class."""
        if name not in self._modules:
            digests: dict[str, str] = {}
            self._collect(name, what, digests)
            self._modules[name] = digests
        return self._modules[name]

    def _of_own_module(self, name: str, what: str) -> dict[str, str]:
        """SHA-256 digests, by module name, of the user's module ``name`` and the modules that it
        imports; empty for a module of flmc, of Python or of an installed package. ``what`` says in
        error messages who needs the module."""
        path = _source_of(name)
        if path is None or str(path.resolve()).startswith(_INSTALLED):
            return {}
        return self.of_module(name, what) if path.suffix == ".py" else {}

    def _collect(self, name: str, what: str, digests: dict[str, str]) -> None:
        """Add to ``digests`` the SHA-256 digests of the module ``name`` and of the modules that it
        imports, directly or through others, except installed packages. ``what`` says in error
        messages who needs the module, such as a setting or a class."""
        path = _source_of(name)
        if path is None:
            digests[name] = MISSING
            return
        if not path.is_file():
            raise InvalidSetting(
                f"{what} must have source that can be read, so that changes are noticed; the module"
                f" {name!r} has none: put it into a .py file, or keep no record"
            )
        digests[name] = self._of_file(path)
        for other in _imports(path, name):
            if other not in digests and (found := _source_of(other)) is not None:
                installed = str(found.resolve()).startswith(_INSTALLED)
                if found.suffix == ".py" and not installed:
                    self._collect(other, what, digests)

    def _of_file(self, path: Path) -> str:
        """SHA-256 of the contents of a file, or the word ``missing`` if it cannot be read. The
        digest is remembered for the next call."""
        if path not in self._files:
            try:
                self._files[path] = _digest(path)
            except OSError:
                self._files[path] = MISSING
        return self._files[path]


def option_for(named: Iterable[str]) -> str:
    """Option with which `flmc resume` finds the user's code that the texts ``named`` name, each as
    ``package.module:object``: ``--code-from`` with the code's directory (a relative path if it is
    below the current directory), or ``--trust-code`` if all of the code is in installed packages.
    Nothing is imported."""
    for text in named:
        # Only the top package is looked for, because finding a module in it would import the
        # package.
        source = _source_of(text.partition(":")[0].partition(".")[0])
        if source is None or not source.is_file():
            return "--code-from DIR"
        root = source.resolve().parents[source.name == "__init__.py"]
        if not str(root).startswith(_INSTALLED):
            here = Path.cwd().resolve()
            place = root.relative_to(here) if root.is_relative_to(here) else root
            return f"--code-from {shlex.quote(str(place))}"
    return "--trust-code"


def what_changed(then: Mapping[str, str], now: Mapping[str, str], where: str) -> str | None:
    """The beginning of an error message about the first file or module, by name, that was changed
    or is no longer found since the run in the directory ``where`` began; None if nothing was
    changed. ``then`` and ``now`` have digests by name, from the beginning of the run and of
    today."""
    changed = sorted(name for name in {*then, *now} if then.get(name) != now.get(name))
    if not changed:
        return None
    name = changed[0]
    if now.get(name) == MISSING:
        return (
            f"{name!r}, which the run in {where} began with, is not found here: go to its"
            " directory, or for code name that with --code-from"
        )
    return f"{name!r} was changed since the run in {where} began: restore what it was"


def _digest(path: Path) -> str:
    """SHA-256 of the contents of a regular file, in hexadecimal; ``OSError`` for anything else."""
    if not path.is_file():  # opening a pipe would wait for a writer
        raise OSError(f"{path} is no regular file")
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


def _files_of(settings: Mapping[str, Any]) -> Iterator[Path]:
    """Paths of the files that settings name: the data file of ``data_file`` (or several, for a
    pattern), and the file of recorded path gains that a fading reads."""
    source, fading = settings.get("data_file"), settings.get("fading")
    if isinstance(source, str) and not source.startswith(BUNDLED_PREFIX):
        yield from map(Path, sorted(glob.glob(source)) if glob.has_magic(source) else [source])
    if isinstance(fading, str):
        name, _, rest = fading.partition(":")
        if name in FADINGS.names and any(each.text for each in FADINGS[name].parameters):
            yield Path(rest)


def _is_own(module: str) -> bool:
    """Whether a module is neither flmc's nor in Python's standard library. ``__main__``, a script,
    is the user's, and so is, for this function, an installed package."""
    top = module.partition(".")[0]
    return (top != "flmc" and top not in sys.stdlib_module_names) or top == SCRIPT


def _source_of(module: str) -> Path | None:
    """Path of the source file of a module; None for a module of flmc or of Python's standard
    library, or if there is no such module. For a loaded module without a file it is the bare name
    of the module, as a path."""
    if not _is_own(module):
        return None
    loaded = sys.modules.get(module)
    if loaded is not None:
        file = getattr(loaded, "__file__", None)
        return Path(file) if file else Path(module)
    if CURRENT_DIRECTORY.get() and "" not in sys.path:
        sys.path.insert(0, "")
    try:
        spec = importlib.util.find_spec(module)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None or not spec.has_location:
        return None
    return Path(spec.origin or module)


def _imports(path: Path, module: str) -> Iterator[str]:
    """Names that the source file ``path`` may import as modules, at its top or within functions,
    and the packages that contain ``module``, which is the name of the file's own module."""
    try:
        tree = ast.parse(path.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    parts = module.split(".")
    yield from (".".join(parts[:count]) for count in range(1, len(parts)))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = node.module or ""
            if node.level:
                above = package.split(".")[: len(package.split(".")) - node.level + 1]
                base = ".".join([*above, *([base] if base else [])])
            yield base
            # In ``from a import b`` the name b may itself be a module.
            yield from (f"{base}.{alias.name}" for alias in node.names)
