"""The fadings that flmc brings; each says what :math:`E[h^2]` is."""

from flmc.uplink.fadings.constant import ConstantFading, FixedFading
from flmc.uplink.fadings.correlated import GaussMarkovFading, JakesFading
from flmc.uplink.fadings.distance import DistanceFading
from flmc.uplink.fadings.estimated import EstimatedFading
from flmc.uplink.fadings.independent import NakagamiFading, RayleighFading, RicianFading
from flmc.uplink.fadings.paired import PairedFading
from flmc.uplink.fadings.selective import SelectiveFading, TappedDelayFading
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
