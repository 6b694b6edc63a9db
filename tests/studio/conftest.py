"""A studio in a process of its own, and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

expect.set_options(timeout=30_000)  # milliseconds: machines are shared
ARTEFACTS = Path(__file__).parents[2] / "out" / "studio"
"""Where screenshots are kept, to be looked at."""
# Without these chromium asks other hosts for updates by itself.
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip


@dataclass
class Studio:
    """A running studio."""

    address: str
    process: subprocess.Popen[str]

    def stop(self) -> None:
        """End it as Ctrl-C does."""
        self.process.send_signal(signal.SIGINT)
        with self.process:  # which waits, and closes its pipe
            pass


def start_studio(*words: str, **environment: str) -> Studio:
    """Start `flmc studio` and wait until it says where it is."""
    command = [sys.executable, "-m", "flmc", "studio", "--no-browser", "--port", "0", *words]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, **environment}
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://\S+", line)
    assert found is not None, line
    return Studio(found[0], process)


@pytest.fixture(scope="session")
def studio() -> Iterator[Studio]:
    started = start_studio()
    try:
        yield started
    finally:
        started.stop()


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "the tests of the studio need Debian's chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield started
        started.close()


@dataclass
class Tab:
    """A page in the browser, with what it said and asked for."""

    page: Page
    address: str
    errors: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def open(self, path: str) -> Page:
        self.page.goto(self.address.rstrip("/") + path)
        return self.page

    def tile(self, key: str) -> float:
        """The number of a tile in full, when it is no longer stale."""
        tile = self.page.locator(f'[data-tile="{key}"]:not(.stale)')
        tile.wait_for(timeout=60_000)
        return float(tile.get_attribute("data-value") or "nan")

    def settle(self) -> None:
        """Wait until nothing but the map is stale."""
        self.page.wait_for_function(
            "document.querySelectorAll('.tile.stale, .card.stale:not(.whole)').length === 0",
            timeout=120_000,
        )

    def type(self, name: str, text: str) -> None:
        """Type into the field of a control."""
        self.page.locator(f'[data-control="{name}"] input').fill(text)


def new_tab(
    browser: Browser | BrowserContext, studio: Studio, width: int = 1280, height: int = 900
) -> Tab:
    """A tab of its own window, or of a window that is open already."""
    page = browser.new_page()
    page.set_viewport_size({"width": width, "height": height})
    tab = Tab(page, studio.address)
    tab.page.on(
        "console",
        lambda said: tab.errors.append(said.text) if said.type in ("error", "warning") else None,
    )
    tab.page.on("pageerror", lambda error: tab.errors.append(str(error)))
    tab.page.on("request", lambda request: tab.hosts.add(request.url.split("/")[2]))
    return tab


@pytest.fixture(scope="session")
def window(browser: Browser) -> BrowserContext:
    """A window whose tabs share what was loaded once: a page opens in half the time."""
    return browser.new_context(accept_downloads=True)


@pytest.fixture
def tab(window: BrowserContext, studio: Studio) -> Iterator[Tab]:
    """A tab whose console must stay silent, and which must ask no other host."""
    opened = new_tab(window, studio)
    yield opened
    opened.page.close()
    assert opened.errors == []
    own = studio.address.split("/")[2]
    assert {host for host in opened.hosts if host} <= {own}
