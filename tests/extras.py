"""Tests of extras that are not installed are skipped, by name: hooks that conftest registers."""

from __future__ import annotations

import re
from collections.abc import Generator
from importlib.util import find_spec
from typing import Any

import pytest

from flmc.base.errors import FlmcError

EXTRAS = {
    "jax": "jax",
    "numpyro": "numpyro",
    "arviz_base": "arviz",
    "arviz_stats": "arviz, and the test group",
    "dask": "dask",
    "distributed": "dask",
    "nicegui": "studio",
    "playwright": "studio, and the test group",
    "aiomqtt": "mqtt",
    "nacl": "mqtt",
    "cryptography": "mqtt",
    "prometheus_client": "mqtt",
    "amqtt": "broker",
}
"""Modules that `pip install flmc[standard]` does not bring, with the extra that does."""


def missing_in(message: str) -> str | None:
    """The same for a message that says what to install, as those of flmc do."""
    for module in re.findall(r"No module named '(\w+)", message):
        if module in EXTRAS and find_spec(module) is None:
            return f"needs the extra {EXTRAS[module]}"
    for extra in re.findall(r"flmc\[(\w+)\]", message):
        modules = [module for module, brings in EXTRAS.items() if brings == extra]
        if any(find_spec(module) is None for module in modules):
            return f"needs the extra {extra}"
    return None


def missing_extra(error: BaseException | None) -> str | None:
    """Extra that an error asks for, if it is really not installed."""
    while error is not None:
        module = (getattr(error, "name", None) or "").partition(".")[0]
        if module in EXTRAS and find_spec(module) is None:
            return f"needs the extra {EXTRAS[module]}"
        if isinstance(error, FlmcError) and (reason := missing_in(str(error))):
            return reason
        error = getattr(error, "cause", None) or error.__cause__ or error.__context__
    return None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that asks for an extra which is not installed is skipped, by its name."""
    report = yield
    reason = missing_extra(call.excinfo.value) if call.excinfo and report.failed else None
    if reason:
        report.outcome = "skipped"
        report.longrepr = (str(item.path), item.location[1] or 0, f"Skipped: {reason}")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A file or folder of tests that imports such an extra is skipped as a whole."""
    report = yield
    call: Any = getattr(report, "call", None)
    reason = missing_extra(call.excinfo.value) if call and call.excinfo else None
    if report.failed and reason:
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, f"Skipped: {reason}")
    return report
