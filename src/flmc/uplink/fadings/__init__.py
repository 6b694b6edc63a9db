"""The laws of path gains h that flmc brings; each knows its mean square :math:`E[h^2]`."""

from flmc.uplink.fadings.estimated import EstimatedFading
from flmc.uplink.fadings.fixed import ConstantFading, DistanceFading, FixedFading
from flmc.uplink.fadings.laws import (
    GaussMarkovFading,
    JakesFading,
    NakagamiFading,
    RayleighFading,
    RicianFading,
)
from flmc.uplink.fadings.selective import PairedFading, SelectiveFading, TappedDelayFading
from flmc.uplink.fadings.trace import TraceFading, TraceFile

__all__ = [
    "ConstantFading",
    "DistanceFading",
    "EstimatedFading",
    "FixedFading",
    "GaussMarkovFading",
    "JakesFading",
    "NakagamiFading",
    "PairedFading",
    "RayleighFading",
    "RicianFading",
    "SelectiveFading",
    "TappedDelayFading",
    "TraceFading",
    "TraceFile",
]
