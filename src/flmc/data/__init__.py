"""Data on devices: synthetic draws, sufficient statistics, and how examples are dealt to devices.

What a model makes of the data (gradients, posteriors) lives in :mod:`flmc.models`."""

from flmc.data.linear import LinearData, LinearStatistics, StatisticsSource
from flmc.data.splits import split_evenly
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
    "LinearData",
    "LinearStatistics",
    "StatisticsSource",
    "draw_linear",
    "draw_linear_statistics",
    "split_evenly",
]
