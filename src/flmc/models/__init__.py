"""Models of the devices' data: gradients of local costs, priors, and known facts of the posterior.

Engines rely on the contract :class:`~flmc.models.model.Model` alone. Users make a model with
``Model.from_log_density`` or ``Model.from_gradient``, or take a ready one from ``linear``,
``wide_linear``, ``regressions`` or ``networks``. Priors are in ``distributions`` and ``priors``,
changes of coordinates in ``whitening`` and ``affine``. The data themselves are in
:mod:`flmc.data`."""

from __future__ import annotations

import importlib
from types import ModuleType

_LATER = ("networks", "regressions")
"""Modules that are imported on first use: their models need the extra ``jax``."""


def __getattr__(name: str) -> ModuleType:
    """Import a module of ``_LATER`` when it is first used."""
    if name in _LATER:
        return importlib.import_module(f"flmc.models.{name}")
    raise AttributeError(f"module 'flmc.models' has no attribute {name!r}")
