"""A model of one's own for the devices of a federation: levels of devices about a common mean, of
which each stays at home, or the same likelihood of a device as a whole. A device finds it by its
name, and its data in ``data.npz`` of the folder in which it runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

import flmc

DEVICES, BETWEEN, PRIOR = 4, 0.7, 0.1


def of_devices(data: Sequence[Mapping[str, Any]]) -> Any:
    """The model of these devices, which have their share of the prior."""
    return flmc.Model.from_log_density(
        lambda w: -0.5 * PRIOR * w["mean"] ** 2,
        lambda w, own, device: -0.5 * ((device["y"] - own["level"]) ** 2).sum(),
        flmc.data.from_arrays(data),
        {"mean": 0.0},
        local={"level": 0.0},
        log_local_prior=lambda w, own: -0.5 * ((own["level"] - w["mean"]) / BETWEEN) ** 2,
        likelihood_of="device",
        prior_devices=DEVICES,
    )


def here() -> Any:
    """The model of the device in whose folder this process runs."""
    with np.load(Path("data.npz")) as saved:
        return of_devices([{"y": saved["Y"]}])
