"""Names and modules of the engines, and the choice of the engine that runs a plan: the engine that
the user names, or the first compiled one that suits the plan, or else the numpy engine."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.engine import Engine
from flmc.sampling.numpy_engine import NumpyEngine

COMPILED = {
    "numba": ("flmc.sampling.compiled.numba_engine", "NumbaEngine", "numba", "fast"),
    "jax": ("flmc.sampling.jax_engine", "JaxEngine", "jax", "jax"),
}
"""Compiled engines by name, in the order in which ``auto`` tries them: module, class, package that
must be installed, and the extra of flmc that installs it. They are imported only when needed,
because the import is slow."""
ENGINES = ("auto", *COMPILED, NumpyEngine.name)
"""Names of engines that the setting ``engine`` may have."""


def choose_engine(name: str | Engine, plan: Plan, model: Model) -> Engine:
    """The engine that runs a plan with a model. For ``auto`` it is the first compiled engine that
    is installed, can run the plan and is expected to be faster than ``numpy``, else ``numpy``. A
    ready-made engine object is returned as it is.

    ``InvalidSetting`` for an unknown name, or if the named or given engine is not installed or
    cannot run the plan."""
    if isinstance(name, Engine):
        return _able(name, plan, model)
    checks.one_of("engine", name, ENGINES)
    if name in COMPILED:
        return _insist(name, plan, model)
    for each in COMPILED if name == "auto" else ():
        engine = _load_if_installed(each)
        if (
            engine is not None
            and engine.why_not(plan, model) is None
            and engine.worthwhile(plan, model)
        ):
            return engine
    return _able(NumpyEngine(), plan, model)


def libraries_of(name: str) -> tuple[str, ...]:
    """Names of the modules of libraries that the engine ``name`` computes with; for ``auto`` those
    of all compiled engines that this process has loaded. Empty for the numpy engine, and for a
    user's own engine, whose libraries are the modules that it imports."""
    if name == "auto":
        loaded = [each for each, (module, *_) in COMPILED.items() if module in sys.modules]
        return tuple(library for each in loaded for library in _class_of(each).libraries)
    return _class_of(name).libraries if name in COMPILED else ()


def _insist(name: str, plan: Plan, model: Model) -> Engine:
    """The compiled engine of this name; ``InvalidSetting``, with the reason, if it is not installed
    or cannot run the plan."""
    _, _, package, extra = COMPILED[name]
    if not _installed(package):
        raise InvalidSetting(
            f"the {name} engine needs the extra {extra!r}: pip install 'flmc[{extra}]'"
        )
    return _able(_load(name), plan, model)


def _able(engine: Engine, plan: Plan, model: Model) -> Engine:
    """Return ``engine`` itself if it can run the plan with the model, else raise ``InvalidSetting``
    with the reason."""
    obstacle = engine.why_not(plan, model)
    if obstacle is not None:
        raise InvalidSetting(
            f"the {engine.name} engine does not apply: {obstacle}; use engine ="
            f" {'jax' if model.num_local else 'numpy'!r}"
        )
    return engine


@cache
def _installed(package: str) -> bool:
    """Whether a package is installed; cached, because a study asks hundreds of times."""
    return importlib.util.find_spec(package) is not None


def _load_if_installed(name: str) -> Engine | None:
    """A new compiled engine of this name; None where its package is not installed."""
    return _load(name) if _installed(COMPILED[name][2]) else None


def _load(name: str) -> Engine:
    """A new compiled engine of this name; its package must be installed."""
    engine: Engine = _class_of(name)()
    return engine


@cache
def _class_of(name: str) -> type[Engine]:
    """The class of the compiled engine of this name, imported at the first call."""
    module, kind, _, _ = COMPILED[name]
    engine: type[Engine] = getattr(importlib.import_module(module), kind)
    return engine
