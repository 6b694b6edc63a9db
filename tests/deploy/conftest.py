"""Roles that a test made are closed after it, as the end of their processes would."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from deploy.federations import MADE, close


@pytest.fixture(autouse=True)
def _close_roles() -> Iterator[None]:
    yield
    close(*MADE)
    MADE.clear()
