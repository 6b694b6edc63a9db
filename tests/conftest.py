"""Problems that many tests share."""

from __future__ import annotations

import asyncio
import gc
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import scipy.linalg  # noqa: F401
from hypothesis import settings
from threadpoolctl import threadpool_limits

import evidence
import extras
import flmc
from support import full

# What JAX compiles is kept for the next time, as numba's code is; processes that tests start use it
# as well. Most of it compiles in less than a second, the default below which JAX keeps nothing, and
# together takes more time than all else that tests of models do.
os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(Path(__file__).parents[1] / ".jax_cache"))
os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")

# Two workers with a thread for each processor wait busily for one another: matrices of a few
# hundred entries then take ten times the processor time. Processes that tests start have threads as
# users' have, and tests of threads set their number. SciPy brings a library of its own.
threadpool_limits(1, "blas")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--evidence", metavar="FOLDER", help="write tables of evidence to FOLDER")


def pytest_configure(config: pytest.Config) -> None:
    """Register hooks that must be called for every folder: those of a conftest are not called for
    a folder whose own conftest cannot be imported."""
    config.addinivalue_line("markers", "evidence: repeated often by `make evidence`")
    config.pluginmanager.register(extras)
    config.pluginmanager.register(evidence.Tables(config))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whole programs come first, because they take longest: a worker that is done takes from the
    other's end, and with a long test at the end one of them would wait for it alone."""
    items.sort(key=lambda item: "system" not in item.path.parts)


def pytest_collection_finish() -> None:
    """What was imported by now stays, and is not searched for garbage again and again."""
    gc.collect()
    gc.freeze()


# The same examples every time, however slow the machine.
settings.register_profile("flmc", deadline=None, derandomize=True)
settings.load_profile("flmc")


@pytest.fixture(autouse=True)
def _no_loop_of_playwright(request: pytest.FixtureRequest) -> Iterator[None]:
    """Hides the event loop that Playwright leaves running in this thread once a test has used the
    browser: with it other tests in the same process could not run a loop of their own."""
    loop = asyncio._get_running_loop()
    if loop is None or "browser" in request.fixturenames:
        yield
        return
    asyncio._set_running_loop(None)
    yield
    asyncio._set_running_loop(loop)


@pytest.fixture(scope="session")
def model() -> flmc.LinearGaussian:
    """The paper's problem, one data set."""
    return flmc.LinearGaussian(flmc.data.draw_linear(seed=1))


@pytest.fixture(scope="session")
def many() -> flmc.LinearGaussian:
    """The paper's problem, many data sets."""
    return flmc.LinearGaussian(
        flmc.data.draw_linear_statistics(seed=3, num_experiments=full(1000, 200))
    )


@pytest.fixture(scope="session")
def small() -> flmc.LinearGaussian:
    """A problem for tests of exactness: three data sets, four devices, dim 3."""
    data = flmc.data.draw_linear(seed=5, num_samples=80, dim=3, num_devices=4, num_experiments=3)
    return flmc.LinearGaussian(data)
