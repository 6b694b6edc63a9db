"""Where chains start: standard normals from the streams of their starts."""

from __future__ import annotations

import ctypes
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from flmc.sampling.compiled.blocks import LANES, Blocks
from flmc.sampling.compiled.emitted.advance import starts_of
from flmc.sampling.compiled.emitted.arrangement import OWN, Arrangement

_CALL = ctypes.CFUNCTYPE(None, *[ctypes.c_uint64] * 8)
_FEW = 100_000
"""Numbers of all chains up to which starts are kept."""


def entropy_of(seed: int) -> npt.NDArray[np.uint32]:
    """The words of a seed as ``SeedSequence`` takes them beside a spawn key: 32 bits each, lowest
    first, at least four.

    Parameters
    ----------
    seed
        A whole number that is not negative.
    """
    words = [seed >> shift & 0xFFFFFFFF for shift in range(0, max(seed.bit_length(), 128), 32)]
    return np.array(words, np.uint32)


def draw_starts(
    seed: int, num_experiments: int, num_chains: int, dim: int
) -> npt.NDArray[np.float32]:
    """Standard normals for the starts of all chains, (experiment, chain, dim).

    Parameters
    ----------
    seed
        Of all randomness.
    num_experiments, num_chains, dim
        Data sets, chains of each, and entries of theta.

    Returns
    -------
    Array
        Not to be written to: few of them are kept, because the plans of a study start alike.
    """
    few = num_experiments * num_chains * dim <= _FEW
    draw = _drawn_once if few else _drawn_once.__wrapped__
    return draw(seed, num_experiments, num_chains, dim)


@lru_cache(maxsize=4)
def _drawn_once(
    seed: int, num_experiments: int, num_chains: int, dim: int
) -> npt.NDArray[np.float32]:
    """Starts that are kept for the next run."""
    count, entropy = num_experiments * num_chains, entropy_of(seed)
    blocks = Blocks.of(Arrangement.of(OWN, dim), 0, count, num_chains)
    half = -(-dim // 2)
    normals = np.empty((len(blocks.firsts), 2 * half, LANES), np.float32)
    words, state = np.empty(2 * half * LANES, np.uint32), np.empty(4 * LANES, np.uint32)
    keys = blocks.keys
    _CALL(starts_of())(
        keys.ctypes.data, entropy.ctypes.data, normals.ctypes.data, len(entropy), len(normals),
        half, words.ctypes.data, state.ctypes.data,
    )  # fmt: skip
    chains = np.swapaxes(normals[:, :dim], 1, 2).reshape(-1, dim)[:count]
    starts = chains.reshape(num_experiments, num_chains, dim)
    starts.flags.writeable = False
    return starts
