"""Federated Langevin Monte Carlo over a noisy uplink: plan it, simulate it, prove its privacy."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from flmc.base.version import VERSION

if TYPE_CHECKING:
    from flmc.interface import *  # noqa: F403

__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Import the public names when the first of them is used: a command such as `flmc plan` needs
    half of what they import, and figures (``flmc.plot``) need half a second more."""
    if name == "plot":
        return importlib.import_module("flmc.views.plot")
    # While Python imports a module it asks for names with underscores itself.
    if name == "__all__" or not name.startswith("_"):
        interface = importlib.import_module("flmc.interface")
        public = {each: getattr(interface, each) for each in interface.__all__}
        globals().update(public, __all__=interface.__all__)
        if name in globals():
            return globals()[name]
    raise AttributeError(f"module 'flmc' has no attribute {name!r}")


def __dir__() -> list[str]:
    """Every public name, also those that have not been imported yet."""
    from flmc.interface import __all__ as public

    return sorted({*globals(), *public, "plot"})
