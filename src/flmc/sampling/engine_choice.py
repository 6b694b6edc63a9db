"""The engines by name, and the choice among them, which is made once for a run."""

from __future__ import annotations

import importlib
import importlib.util
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
"""Engines that `auto` tries first: module, class, package that must be installed, and the extra
that brings it. They are imported when they are needed, because importing them takes long."""
ENGINES = ("auto", *COMPILED, NumpyEngine.name)
"""Names of engines that the setting ``engine`` may have."""


def choose_engine(name: str | Engine, plan: Plan, model: Model) -> Engine:
    """The engine of this name, or for `auto` a compiled one that is installed, can run the plan and
    is expected to be the fastest, else `numpy`; an engine of the user's own as it is.

    ``InvalidSetting`` for an unknown name, or an engine that was given and is not installed or
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
    return NumpyEngine()


def _insist(name: str, plan: Plan, model: Model) -> Engine:
    """The compiled engine of this name; ``InvalidSetting`` says why it cannot run the plan."""
    _, _, package, extra = COMPILED[name]
    if not _installed(package):
        raise InvalidSetting(
            f"the {name} engine needs the extra {extra!r}: pip install 'flmc[{extra}]'"
        )
    return _able(_load(name), plan, model)


def _able(engine: Engine, plan: Plan, model: Model) -> Engine:
    """The engine itself; ``InvalidSetting`` says why it cannot run the plan."""
    obstacle = engine.why_not(plan, model)
    if obstacle is not None:
        raise InvalidSetting(
            f"the {engine.name} engine does not apply: {obstacle}; use engine = 'numpy'"
        )
    return engine


@cache
def _installed(package: str) -> bool:
    """Whether a package can be imported, looked up once: a study chooses engines by the hundred."""
    return importlib.util.find_spec(package) is not None


def _load_if_installed(name: str) -> Engine | None:
    """The engine of this name; None where it is not installed."""
    return _load(name) if _installed(COMPILED[name][2]) else None


def _load(name: str) -> Engine:
    """A new engine of this name, whose package must be installed."""
    engine: Engine = _class_of(name)()
    return engine


@cache
def _class_of(name: str) -> type[Engine]:
    """The class of the compiled engine of this name, imported at the first call."""
    module, kind, _, _ = COMPILED[name]
    engine: type[Engine] = getattr(importlib.import_module(module), kind)
    return engine
