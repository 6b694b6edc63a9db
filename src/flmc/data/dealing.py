"""Ways to deal examples to devices: evenly at random, sorted by label, by Dirichlet shares of each
class, or at random with unequal sizes."""

from __future__ import annotations

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits

DEALS = ("iid", "label", "dirichlet:ALPHA", "size:ALPHA")
"""Ways of dealing examples to devices: ``iid``, evenly at random; ``label``, sorted by target;
``dirichlet``, with Dirichlet shares of each class; ``size``, at random with Dirichlet shares as the
devices' sizes. ALPHA is the concentration of the Dirichlet distribution."""
_MOST_CLASSES = 1000
"""Number of distinct targets beyond which targets count as numbers, so that examples cannot be
dealt by class."""


def split_evenly(num_samples: int, num_devices: int) -> tuple[int, ...]:
    """Number of examples of each device, when they are dealt as evenly as possible.

    Parameters
    ----------
    num_samples
        Examples in all.
    num_devices
        Devices to deal them to.

    Returns
    -------
    tuple of int
        One size per device; sizes differ by at most one, and the larger ones come first.

    Raises
    ------
    InvalidSetting
        If there are more devices than examples, no device, or too many devices for memory.

    Examples
    --------
    >>> flmc.data.split_evenly(11, 4)
    (3, 3, 3, 2)
    """
    checks.at_least("num_devices", num_devices, 1)
    if num_devices > num_samples:
        raise InvalidSetting(
            f"num_devices must not exceed num_samples = {num_samples}, got {num_devices}"
        )
    fits("a list of so many devices", 64.0 * num_devices)
    size, rest = divmod(num_samples, num_devices)
    return (size + 1,) * rest + (size,) * (num_devices - rest)


def deal(targets: Array, num_devices: int, how: str, seed: int) -> list[IntArray]:
    """Indices of the examples that each device gets, one array per device with at least one index.
    ``how`` is one of the ways in ``DEALS``, with a number for ALPHA; ``targets`` (sample) are the
    targets of all examples, which ``label`` and ``dirichlet`` need. Raises ``InvalidSetting`` for
    another way, or for more devices than examples."""
    sizes = split_evenly(len(targets), num_devices)
    rng = np.random.default_rng(checks.at_least("seed", seed, 0))
    kind, _, text = how.partition(":")
    if kind == "iid" and not text:
        return np.split(rng.permutation(len(targets)), np.cumsum(sizes)[:-1])
    if kind == "label" and not text:
        # Shuffled first, so that it is random which examples of a class a device gets.
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
    """The number ALPHA in the name ``how`` of a split such as ``size:0.5``, parsed from ``text``;
    raises ``InvalidSetting`` unless it is positive."""
    try:
        return checks.positive("ALPHA", float(text))
    except ValueError:
        raise InvalidSetting(f"ALPHA of the split {how!r} must be a number") from None


def _cut(rng: np.random.Generator, order: IntArray, alpha: float, parts: int) -> list[IntArray]:
    """The indices ``order`` cut into ``parts`` consecutive parts. Their sizes, as shares of the
    whole, are one draw of the symmetric Dirichlet distribution with parameter ``alpha``,
    rounded."""
    # Dirichlet shares are gamma variates over their sum. For a small alpha these underflow, so they
    # are drawn as logarithms: gamma(alpha) has the law of gamma(alpha + 1) times u^(1/alpha), u
    # being uniform.
    weights = np.log(rng.gamma(alpha + 1.0, size=parts)) + np.log(rng.random(parts)) / alpha
    shares = np.exp(weights - weights.max())
    ends = np.rint(np.cumsum(shares / shares.sum()) * len(order)).astype(np.intp)
    return np.split(order, ends[:-1])


def _by_class(
    rng: np.random.Generator, targets: Array, alpha: float, num_devices: int
) -> list[IntArray]:
    """Indices of the examples that each device gets. The shares of the devices in each class are a
    separate draw of the symmetric Dirichlet distribution with parameter ``alpha``. Raises
    ``InvalidSetting`` for more than 1000 distinct targets."""
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
    """The same groups of indices, none of which is empty: each empty group in turn takes the last
    index of the largest group. The list is changed in place."""
    for index, group in enumerate(groups):
        if not len(group):
            largest = max(range(len(groups)), key=lambda k: len(groups[k]))
            groups[index], groups[largest] = groups[largest][-1:], groups[largest][:-1]
    return groups
