"""The schedulers that flmc brings."""

from flmc.uplink.schedulers.by_channel import (
    PredecessorDevices,
    StrongestDevices,
    ThresholdDevices,
)
from flmc.uplink.schedulers.simple import AllDevices, GivenDevices, RandomDevices

__all__ = [
    "AllDevices",
    "GivenDevices",
    "PredecessorDevices",
    "RandomDevices",
    "StrongestDevices",
    "ThresholdDevices",
]
