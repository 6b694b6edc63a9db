"""Dealing examples with targets to devices: at random, by label, by Dirichlet shares, by size."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.data.splits import split_evenly

DEALS = ("iid", "label", "dirichlet:ALPHA", "size:ALPHA")
"""How examples can be dealt."""
_MOST_CLASSES = 1000
"""Distinct targets beyond which a target counts as a number, which has no classes to deal by."""


def deal(targets: Array, num_devices: int, how: str, seed: int) -> list[IntArray]:
    """Numbers of the examples of each device; every device has at least one.

    Parameters
    ----------
    targets
        Target of every example, (sample).
    num_devices
        Number of devices.
    how
        One of ``DEALS``.
    seed
        Of the shuffling.

    Raises
    ------
    InvalidSetting
        If there are more devices than examples, or no such way.
    """
    sizes = split_evenly(len(targets), num_devices)
    rng = np.random.default_rng(checks.at_least("seed", seed, 0))
    kind, _, text = how.partition(":")
    if kind == "iid" and not text:
        return np.split(rng.permutation(len(targets)), np.cumsum(sizes)[:-1])
    if kind == "label" and not text:
        # Shuffled first, so that which examples of a class a device gets is random.
        shuffled = rng.permutation(len(targets))
        order = shuffled[np.argsort(targets[shuffled], kind="stable")]
        return np.split(order, np.cumsum(sizes)[:-1])
    if kind in ("dirichlet", "size") and text:
        alpha = _alpha(how, text)
        if kind == "size":
            return _filled(_cut(rng, rng.permutation(len(targets)), alpha, num_devices))
        return _by_class(rng, targets, alpha, num_devices)
    raise InvalidSetting(f"a split must be one of {', '.join(DEALS)}; got {how!r}")


def _alpha(how: str, text: str) -> float:
    """The parameter of a split."""
    try:
        return checks.positive("ALPHA", float(text))
    except ValueError:
        raise InvalidSetting(f"ALPHA of the split {how!r} must be a number") from None


def _cut(rng: np.random.Generator, order: IntArray, alpha: float, parts: int) -> list[IntArray]:
    """Examples cut into parts whose shares are a draw of the symmetric Dirichlet distribution."""
    # In logarithms of gamma variates: those of a small alpha underflow.
    weights = np.log(rng.gamma(alpha + 1.0, size=parts)) + np.log(rng.random(parts)) / alpha
    shares = np.exp(weights - weights.max())
    ends = np.rint(np.cumsum(shares / shares.sum()) * len(order)).astype(np.intp)
    return np.split(order, ends[:-1])


def _by_class(
    rng: np.random.Generator, targets: Array, alpha: float, num_devices: int
) -> list[IntArray]:
    """Every class cut by shares of its own."""
    classes = np.unique(targets)
    if len(classes) > _MOST_CLASSES:
        raise InvalidSetting(
            f"a Dirichlet split needs classes, got {len(classes)} distinct targets; use size:ALPHA"
        )
    parts = [
        _cut(rng, rng.permutation(np.flatnonzero(targets == each)), alpha, num_devices)
        for each in classes
    ]
    return _filled([np.concatenate([part[k] for part in parts]) for k in range(num_devices)])


def _filled(groups: list[IntArray]) -> list[IntArray]:
    """The groups, where an empty one gets an example of the largest."""
    for index, group in enumerate(groups):
        if not len(group):
            largest = max(range(len(groups)), key=lambda k: len(groups[k]))
            groups[index], groups[largest] = groups[largest][-1:], groups[largest][:-1]
    return groups
