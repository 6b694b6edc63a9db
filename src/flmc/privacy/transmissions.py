"""Transmissions: how often which gain was used, which is all that a device's privacy cost depends
on."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array

Transmissions = tuple[tuple[float, int], ...]
"""Pairs of a gain and the number of entries that were sent with it."""

MOST_GAINS = 32
"""Largest number of distinct gains that are accounted one by one; more are rounded up to this
many."""


def count_gains(gains: Array) -> Transmissions:
    """Distinct gains with their counts.

    Parameters
    ----------
    gains
        Gain of every entry that was sent, in any shape. A gain of 0 sends nothing and is left out.

    Returns
    -------
    Transmissions
        At most ``MOST_GAINS`` distinct gains. Where there are more they are rounded up, which can
        only overstate the cost.
    """
    flat = checks.finite_array("gain", np.ravel(gains))
    flat = flat[flat > 0]
    if flat.size == 0:
        return ()
    values, counts = np.unique(flat, return_counts=True)
    if len(values) > MOST_GAINS:
        edges = np.geomspace(values[0], values[-1], MOST_GAINS)
        # The last edge may be rounded below the largest gain, which must not be rounded down.
        edges[-1] = values[-1]
        # The first edge that is not below the gain; a gain that exceeds an edge by rounding alone
        # keeps it.
        level = np.searchsorted(edges, values * (1 - 1e-12))
        counts = np.bincount(level, weights=counts, minlength=MOST_GAINS).astype(np.int64)
        values, counts = np.maximum(edges[counts > 0], 0.0), counts[counts > 0]
    return tuple((float(value), int(count)) for value, count in zip(values, counts, strict=True))


def mu_of(sensitivity: float, noise_power: float, transmissions: Transmissions) -> float:
    r"""Distance :math:`\mu = \sqrt{\sum (\Delta A)^2/N_0}` of the means of a Gaussian mechanism.

    Parameters
    ----------
    sensitivity
        Largest move :math:`\Delta` of a value, before the gain A.
    noise_power
        :math:`N_0`, the variance of the noise in an entry.
    transmissions
        Gains, each with the number of entries that were sent with it.
    """
    return float(
        np.sqrt(
            sum(count * (sensitivity * gain) ** 2 for gain, count in transmissions) / noise_power
        )
    )
