"""Which arrangement of the data runs fastest, from costs that were measured.

``make bench`` measures what is predicted here: docs/scale.md has the table."""

from __future__ import annotations

from functools import lru_cache

from flmc.sampling.compiled.emitted.arrangement import MOST_WRITTEN_OUT, OWN, ROWS, SHARED, TEAMS
from flmc.sampling.compiled.emitted.team import MOST_MEMBERS
from flmc.sampling.compiled.machine.value import WIDTH

_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE = 0.7e6, 8e6, 16e6
"""Bytes up to which numbers that are read again in every round stay in a processor's own cache, in
its share of the common cache, and at all in it; beyond, they come from memory."""
_READING = (0.045, 0.12, 0.3, 0.6)
"""Nanoseconds for each float that a lane reads, in these places."""
_BROADCAST = 0.02
"""Nanoseconds of a product where eight lanes share a float: the multipliers bind."""
_SYMBOL = {OWN: 0.7, SHARED: 0.6, TEAMS: 0.9, ROWS: 1.6}
"""Nanoseconds of a symbol beside its products: random word, clip, link and comparison."""

DATA_AT_ONCE = 32_000_000
"""Bytes of local costs that are held in double precision at a time."""

IN_WORDS = {
    OWN: "8 chains at a time, each with its own numbers",
    SHARED: "8 chains of a data set at a time",
    TEAMS: f"{WIDTH * MOST_MEMBERS} chains of a data set at a time",
    ROWS: "one chain at a time",
}
"""What an arrangement does, for people."""


def _reading(floats: float) -> float:
    """Nanoseconds of a float where so many are read again in every round."""
    places = (_NEXT_TO_THE_PROCESSOR, _IN_CACHE, _SHARED_CACHE)
    return _READING[sum(4 * floats > size for size in places)]


def cost(kind: str, devices: int, dim: int, experiments: int, chains: int) -> float:
    """Nanoseconds of one round of all chains on one processor.

    Parameters
    ----------
    kind
        The arrangement.
    devices, dim
        Devices, and entries of theta.
    experiments, chains
        Data sets, and chains of each.
    """
    symbols = devices * dim
    data = symbols * (dim + 1)
    if kind == OWN:
        # Blocks do not reach beyond the data sets that are in memory at once.
        together = min(experiments, max(1, DATA_AT_ONCE // (8 * data)))
        lanes = -(-together * chains // WIDTH) * WIDTH * experiments / together
        # Of few entries only the upper triangle is read.
        share = 0.5 if dim <= MOST_WRITTEN_OUT else 1.0
        product = share * _reading(share * WIDTH * data)
    elif kind in (SHARED, TEAMS):
        blocks = -(-chains // WIDTH)
        lanes = experiments * blocks * WIDTH
        together = min(blocks, MOST_MEMBERS) if kind == TEAMS else 1
        # What is read from far away does not wait for the multipliers, nor they for it.
        product = _BROADCAST
        if 4 * data > _NEXT_TO_THE_PROCESSOR:
            product += _reading(data) / (WIDTH * together)
    else:
        lanes, product = experiments * chains, _reading(data)
    return lanes * symbols * (_SYMBOL[kind] + dim * product)


@lru_cache(maxsize=64)
def choose(devices: int, dim: int, experiments: int, chains: int) -> str:
    """The arrangement that costs least.

    Parameters
    ----------
    devices, dim
        Devices, and entries of theta.
    experiments, chains
        Data sets, and chains of each.
    """
    kinds = (OWN, SHARED) if dim <= MOST_WRITTEN_OUT else (OWN, SHARED, TEAMS, ROWS)
    return min(kinds, key=lambda kind: cost(kind, devices, dim, experiments, chains))
