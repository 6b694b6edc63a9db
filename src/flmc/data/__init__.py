"""Data on devices: from files, arrays or data frames, synthetic draws, sufficient statistics, and
ways to deal examples to devices.

Gradients and posteriors of the data are in :mod:`flmc.models`."""

from flmc.data.dealing import split_evenly
from flmc.data.examples import Examples, from_arrays
from flmc.data.federated import FederatedData
from flmc.data.frames import from_frames
from flmc.data.linear_data import LinearData, LinearStatistics, StatisticsSource
from flmc.data.reading import read
from flmc.data.synthetic import (
    KINDS,
    PAPER_THETA,
    DrawnStatistics,
    draw_linear,
    draw_linear_statistics,
)

__all__ = [
    "KINDS",
    "PAPER_THETA",
    "DrawnStatistics",
    "Examples",
    "FederatedData",
    "LinearData",
    "LinearStatistics",
    "StatisticsSource",
    "draw_linear",
    "draw_linear_statistics",
    "from_arrays",
    "from_frames",
    "read",
    "split_evenly",
]
