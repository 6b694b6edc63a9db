"""What the devices know: gradients of their local costs, and what is known of the posterior.

Engines know the contract :class:`~flmc.models.model.Model`. Users make one with
``Model.from_log_density`` or ``Model.from_gradient``, or take a ready one from ``linear``,
``wide_linear``, ``regressions`` or ``networks``. Priors are in ``distributions`` and ``priors``,
changes of coordinates in ``whitening`` and ``affine``. The data themselves live in
:mod:`flmc.data`."""

from __future__ import annotations

import importlib
from types import ModuleType

_LATER = ("networks", "regressions")
"""Modules that are imported when they are first used: they need an extra."""


def __getattr__(name: str) -> ModuleType:
    if name in _LATER:
        return importlib.import_module(f"flmc.models.{name}")
    raise AttributeError(f"module 'flmc.models' has no attribute {name!r}")
