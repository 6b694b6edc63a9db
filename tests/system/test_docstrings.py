"""Docstrings: their examples run, and what users call has its parameters described."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import flmc
from extras import missing_in
from flmc.base.errors import MissingExtra


def modules() -> Iterator[Any]:
    """The modules of flmc, but for those that run something or lack an optional dependency."""
    yield flmc
    for found in pkgutil.walk_packages(flmc.__path__, "flmc."):
        if found.name == "flmc.__main__":
            continue
        try:
            yield importlib.import_module(found.name)
        except (MissingExtra, ModuleNotFoundError) as error:
            # A module of flmc itself that is not there is a broken package, not a missing extra.
            if str(getattr(error, "name", None) or "").startswith("flmc"):
                raise


def examples() -> list[doctest.DocTest]:
    """Every docstring of flmc that has an example, with the names that examples may use."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    given = {"flmc": flmc, "np": np}
    return [
        test
        for module in modules()
        for test in finder.find(module, module.__name__, globs=dict(given))
        if test.examples
    ]


@pytest.mark.parametrize("example", examples(), ids=lambda test: test.name)
def test_examples_in_docstrings_run(example: doctest.DocTest) -> None:
    report: list[str] = []
    outcome = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert outcome.attempted > 0
    if outcome.failed and (reason := missing_in("".join(report))):
        pytest.skip(reason)
    assert outcome.failed == 0, "".join(report)


def callables() -> Iterator[tuple[str, Callable[..., Any]]]:
    """Public functions, and the public methods of public classes, each where flmc defines it."""
    found: dict[str, Callable[..., Any]] = {}
    for value in [getattr(place, name) for place in (flmc, flmc.data) for name in place.__all__]:
        if inspect.isfunction(value):
            found[value.__qualname__] = value
        elif inspect.isclass(value):
            for kind in value.__mro__:
                if not kind.__module__.startswith("flmc."):
                    continue
                for name, member in vars(kind).items():
                    function = getattr(member, "__func__", member)  # of class and static methods
                    own = inspect.isfunction(function) and not name.startswith("_")
                    if own and not overrides_a_documented_one(kind, name):
                        found[f"{kind.__name__}.{name}"] = function
    yield from sorted(found.items())


def documented(function: Callable[..., Any]) -> bool:
    return "\nParameters\n----------\n" in inspect.cleandoc(function.__doc__ or "")


def overrides_a_documented_one(kind: type, name: str) -> bool:
    """Whether a method fulfils a contract that describes its parameters, so that a sentence is
    enough."""
    contracts = [vars(base)[name] for base in kind.__mro__[1:] if name in vars(base)]
    return any(documented(getattr(each, "__func__", each)) for each in contracts)


def takes_parameters(function: Callable[..., Any]) -> bool:
    return bool(set(inspect.signature(function).parameters) - {"self", "cls"})


@pytest.mark.parametrize(
    ("name", "function"),
    [
        pytest.param(name, function, id=name)
        for name, function in callables()
        if takes_parameters(function)
    ],
)
def test_what_users_call_has_its_parameters_described(
    name: str, function: Callable[..., Any]
) -> None:
    assert documented(function), f"{name} has no Parameters section"
