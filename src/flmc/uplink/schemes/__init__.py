"""The uplinks that flmc brings: digital (one random bit per entry), analog (scaled values), and
ideal (a reference without channel)."""

from flmc.uplink.schemes.analog import Analog
from flmc.uplink.schemes.digital import Digital
from flmc.uplink.schemes.ideal import Ideal

__all__ = ["Analog", "Digital", "Ideal"]
