"""Synthetic data of the paper's linear regression, for any number of samples, entries of theta and
devices.

Examples are drawn at once, or only when they are needed, so that a run with very many examples can
be planned before they are drawn. Sufficient statistics of many data sets are drawn a few data sets
at a time, either from examples that are drawn and summed, or directly from their own law."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array, one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits
from flmc.base.randomness import Purpose, generator
from flmc.data.dealing import split_evenly
from flmc.data.linear_data import LinearData, LinearStatistics

PAPER_THETA = (0.418, -0.289, 0.3982, 0.8231, 0.5251)
"""True theta of the paper's experiments (its section IV), from which targets are drawn."""
KINDS = ("examples", "sufficient")
"""Ways in which sufficient statistics are drawn: ``examples`` draws examples and adds them up,
``sufficient`` draws the sums directly from their law."""
_NUMBERS_AT_ONCE = 4_000_000
"""Largest count of numbers that the data sets drawn at one time may hold in memory: 32 MB in double
precision."""
_MOST_WORK = 2e11
"""Largest number of multiplications for which the largest eigenvalue of the sum of u u^T, over a
data set's examples with features u, is computed from the examples; so many take ten seconds. With
more, an upper bound that is known before drawing takes its place."""
_UNLIKELY = 1e-9
"""Upper bound of the probability that, in any data set, the largest eigenvalue of the sum of u u^T
over its examples exceeds the bound that is known before drawing."""


@one_blas_thread()
def draw_linear(
    seed: int,
    *,
    num_samples: int = 1200,
    dim: int = 5,
    num_devices: int = 20,
    device_sizes: Sequence[int] | None = None,
    theta: Sequence[float] | Array | None = None,
    noise_variance: float = 1.0,
    num_experiments: int | None = None,
) -> LinearData:
    r"""Synthetic examples of a linear regression, as in the paper.

    Features are :math:`u \sim N(0, I)`, targets :math:`v = u^\top\theta^* + N(0, \sigma^2)`.

    Parameters
    ----------
    seed
        Seed of the data, a whole number that is not negative.
    num_samples, dim
        Examples in all, over all devices, and entries of theta (features of an example).
    num_devices, device_sizes
        Number of examples of each device, adding up to ``num_samples``; None: ``num_devices``
        devices, with as even sizes as possible.
    theta, noise_variance
        True theta :math:`\theta^*`, (dim), None: the paper's, repeated or cut to ``dim`` entries;
        and variance :math:`\sigma^2` of the targets given the features.
    num_experiments
        Number of data sets, which become the leading axis of the arrays; None: one data set,
        without that axis. Data set number e is the same, however many are drawn.

    Returns
    -------
    LinearData
        The examples, in device order.

    Raises
    ------
    InvalidSetting
        If a setting is out of its bounds, or the examples do not fit into memory.

    Examples
    --------
    >>> data = flmc.data.draw_linear(seed=1, num_samples=100, dim=3, num_devices=4)
    >>> data.features.shape, data.targets.shape, data.device_sizes
    ((100, 3), (100,), (25, 25, 25, 25))
    """
    # Bytes that are held at the same time: 8 for each number, times three for copies on the way, as
    # measured.
    fits("the examples", 24.0 * num_samples * (dim + 1) * (num_experiments or 1))
    sizes, truth = _problem(num_samples, dim, num_devices, device_sizes, theta)
    checks.positive("noise_variance", noise_variance)
    if num_experiments is None:
        return LinearData(*_draw_one(seed, 0, num_samples, truth, noise_variance), sizes)
    return _draw_several(
        seed,
        range(checks.at_least("num_experiments", num_experiments, 1)),
        sizes,
        truth,
        noise_variance,
    )


def draw_linear_statistics(
    seed: int,
    *,
    num_experiments: int,
    num_samples: int = 1200,
    dim: int = 5,
    num_devices: int = 20,
    device_sizes: Sequence[int] | None = None,
    theta: Sequence[float] | Array | None = None,
    noise_variance: float = 1.0,
    kind: str = "examples",
) -> DrawnStatistics:
    """Sufficient statistics of many synthetic data sets, each drawn when it is needed.

    The data sets follow the law of :func:`draw_linear`; their examples are never all in memory.

    Parameters
    ----------
    seed, num_experiments
        Seed of the data, a whole number that is not negative, and number of data sets.
    num_samples, dim
        Examples of a data set, over all devices, and entries of theta (features of an example).
    num_devices, device_sizes
        Number of examples of each device, adding up to ``num_samples``; None: ``num_devices``
        devices, with as even sizes as possible.
    theta, noise_variance
        Ground truth, (dim), and variance of the targets given the features. None: the paper's
        ground truth, repeated or cut to ``dim`` entries.
    kind
        ``examples``: the statistics of the very data sets that :func:`draw_linear` draws.
        ``sufficient``: statistics drawn directly, which is faster and exact in law, but gives other
        data sets.

    Returns
    -------
    DrawnStatistics
        A source of statistics, for :class:`flmc.LinearGaussian`.

    Raises
    ------
    InvalidSetting
        If a setting is out of its bounds, or one data set or all posteriors do not fit into memory.

    Examples
    --------
    >>> source = flmc.data.draw_linear_statistics(seed=1, num_experiments=1000, kind="sufficient")
    >>> flmc.LinearGaussian(source).posterior.mean.shape
    (1000, 5)
    """
    if kind == "examples":
        fits("the examples of one data set", 24.0 * num_samples * (dim + 1))
    fits("the statistics of one data set", 32.0 * num_devices * dim**2)
    fits("the posteriors of all data sets", 24.0 * num_experiments * dim**2)
    sizes, truth = _problem(num_samples, dim, num_devices, device_sizes, theta)
    checks.one_of("kind", kind, KINDS)
    checks.positive("noise_variance", noise_variance)
    checks.at_least("num_experiments", num_experiments, 1)
    return DrawnStatistics(seed, num_experiments, sizes, truth, noise_variance, kind)


@dataclass(frozen=True)
class DrawnStatistics:
    """Sufficient statistics of synthetic data sets, each drawn from the seed when it is asked for.

    A data set is the same whichever other data sets are asked for, and however often.

    Attributes
    ----------
    seed, num_experiments
        Seed of the data, and number of data sets.
    device_sizes
        Number of examples of each device.
    theta, noise_variance
        Ground truth, (dim), and variance of the targets given the features.
    kind
        ``examples``: examples are drawn and added up; ``sufficient``: the sums are drawn directly
        from their law.
    """

    seed: int
    num_experiments: int
    device_sizes: tuple[int, ...]
    theta: Array
    noise_variance: float
    kind: str

    @property
    def num_devices(self) -> int:
        """Number of devices, those without data included."""
        return len(self.device_sizes)

    @property
    def dim(self) -> int:
        """Number of entries of theta."""
        return len(self.theta)

    @one_blas_thread()
    def rows(self, experiments: range) -> LinearStatistics:
        """Sufficient statistics of some of the data sets, drawn anew at every call.

        Parameters
        ----------
        experiments
            Numbers of the data sets, consecutive and counted from 0.
        """
        gram = np.empty((len(experiments), self.num_devices, self.dim, self.dim))
        moment = np.empty(gram.shape[:-1])
        at_once = self._at_once
        # Blocks begin at multiples of their size, not at the first data set that is asked for: data
        # sets that are drawn directly share a random stream with their block, and the number of the
        # block's first data set selects that stream.
        for first in range(experiments.start // at_once * at_once, experiments.stop, at_once):
            block = range(first, first + at_once)
            wanted = range(max(first, experiments.start), min(block.stop, experiments.stop))
            place = slice(wanted.start - experiments.start, wanted.stop - experiments.start)
            part = self._draw(block, wanted)
            # One block has all wanted data sets: its statistics are returned without a copy,
            # because they may be large.
            if wanted == experiments:
                return part
            gram[place], moment[place] = part.gram, part.moment
        return LinearStatistics(gram, moment)

    @property
    def _at_once(self) -> int:
        """Number of consecutive data sets in a block, which are drawn at one time."""
        if self.kind == "examples":
            return max(1, _NUMBERS_AT_ONCE // (sum(self.device_sizes) * self.dim))
        # The data sets of a block share a random stream, so the size of a block is part of what a
        # seed means, and must not depend on the number of data sets.
        return max(1, min(64, _NUMBERS_AT_ONCE // (4 * self.num_devices * self.dim**2)))

    def _draw(self, block: range, wanted: range) -> LinearStatistics:
        """Statistics of the data sets ``wanted``, which all lie in ``block``. If statistics are
        drawn directly, the data sets of a block share a random stream; otherwise each has its
        own."""
        if self.kind == "examples":
            several = _draw_several(
                self.seed, wanted, self.device_sizes, self.theta, self.noise_variance
            )
            return several.to_statistics()
        place = slice(wanted.start - block.start, wanted.stop - block.start)
        return LinearStatistics(*(array[place] for array in self._bartlett(block)))

    def _bartlett(self, block: range) -> tuple[Array, Array]:
        r"""Sums G of :math:`u u^\top`, (experiment, device, dim, dim), and sums of :math:`u v`,
        (experiment, device, dim), over the examples of each device with features u and targets v,
        for a block of data sets, drawn by Bartlett's decomposition.

        For a device with n >= m examples of m standard normal features, :math:`G = A A^\top` where
        A is lower triangular, :math:`A_{ii}^2 \sim \chi^2_{n-i}` (i = 0, 1, ...) and the entries
        below the diagonal are standard normal. Given the features, the second sum is :math:`G\theta
        + \sigma N(0, G)`, that is :math:`G\theta + \sigma A z` with standard normal z. For a device
        with fewer than m examples the columns of A are the features of its examples."""
        rng = generator(self.seed, Purpose.DATA, block.start, 1)
        shape = (len(block), self.num_devices, self.dim)
        root = rng.standard_normal((*shape, self.dim))
        # The upper triangle of A is set to zero in place, because np.tril copies.
        np.copyto(root, 0.0, where=np.tri(self.dim, dtype=np.bool_).T)
        # Chi-square needs at least 1 degree of freedom: the matrix A of a device with fewer
        # examples than entries is replaced below.
        freedom = np.subtract.outer(np.array(self.device_sizes), np.arange(self.dim))
        entry = np.arange(self.dim)
        root[..., entry, entry] = np.sqrt(rng.chisquare(np.maximum(freedom, 1), shape))
        for device in np.flatnonzero(np.array(self.device_sizes) < self.dim):
            root[:, device] = 0.0
            few = self.device_sizes[device]
            root[:, device, :, :few] = rng.standard_normal((len(block), self.dim, few))
        gram = root @ np.swapaxes(root, 2, 3)
        noise = np.einsum("ekij,ekj->eki", root, rng.standard_normal(shape))
        return gram, gram @ self.theta + np.sqrt(self.noise_variance) * noise


@dataclass(frozen=True)
class DrawnExamples:
    """Description, by seed and sizes, of the examples that :func:`flmc.data.synthetic.draw_linear`
    would draw, so that a run can be planned before they are drawn.

    Attributes
    ----------
    seed, num_experiments
        Seed of the data, and number of data sets.
    device_sizes
        Number of examples of each device.
    dim
        Features of an example.

    Examples
    --------
    >>> from flmc.data.synthetic import DrawnExamples
    >>> many = DrawnExamples(0, 1, (10,) * 10_000, 10_000)  # 8 GB, if they were drawn
    >>> many.too_many, round(many.largest_curvature)
    (True, 178646)
    """

    seed: int
    num_experiments: int
    device_sizes: tuple[int, ...]
    dim: int

    @property
    def num_samples(self) -> int:
        """Number of examples of a data set, over all devices."""
        return sum(self.device_sizes)

    @property
    def too_many(self) -> bool:
        r"""Whether there are so many examples and features that computing the largest eigenvalue of
        the sum of :math:`u u^\top` from them would take more than about ten seconds."""
        count, dim = self.num_samples, self.dim
        return float(count) * dim * min(count, dim) > _MOST_WORK

    @property
    def largest_curvature(self) -> float:
        r"""Upper bound of the largest eigenvalue of every data set's sum of :math:`u u^\top` over
        its examples with features u; the bound fails with probability 1e-9 at most.

        For n examples with m independent standard normal features the largest eigenvalue is above
        :math:`(\sqrt n + \sqrt m + t)^2` with a probability of at most :math:`e^{-t^2/2}` (Davidson
        and Szarek, *Local operator theory, random matrices and Banach spaces*, theorem II.13). The
        bound is known before anything is drawn, and within some per cent of the true value."""
        # ``beyond`` is t of the theorem, for a probability of 1e-9 over the number of data sets
        # (union bound).
        beyond = math.sqrt(2.0 * math.log(self.num_experiments / _UNLIKELY))
        return (math.sqrt(self.num_samples) + math.sqrt(self.dim) + beyond) ** 2

    def draw(self) -> LinearData:
        """Draw the examples: features (experiment, sample, dim) and targets (experiment,
        sample)."""
        return draw_linear(
            self.seed,
            num_experiments=self.num_experiments,
            num_samples=self.num_samples,
            dim=self.dim,
            device_sizes=self.device_sizes,
        )


def _draw_several(
    seed: int, experiments: range, sizes: tuple[int, ...], theta: Array, noise_variance: float
) -> LinearData:
    """Examples of the data sets with the numbers ``experiments``, drawn one after the other:
    features (experiment, sample, dim) and targets (experiment, sample)."""
    pairs = [
        _draw_one(seed, experiment, sum(sizes), theta, noise_variance) for experiment in experiments
    ]
    if len(pairs) == 1:  # returned without np.stack, which would copy arrays that may be large
        ((features, targets),) = pairs
        return LinearData(features[None], targets[None], sizes)
    features, targets = (np.stack(arrays) for arrays in zip(*pairs, strict=True))
    return LinearData(features, targets, sizes)


def _draw_one(
    seed: int, experiment: int, num_samples: int, theta: Array, noise_variance: float
) -> tuple[Array, Array]:
    """Features (sample, dim) and targets (sample) of data set number ``experiment``, drawn from a
    random stream of its own."""
    rng = generator(seed, Purpose.DATA, experiment)
    features = rng.standard_normal((num_samples, len(theta)))
    targets = features @ theta + np.sqrt(noise_variance) * rng.standard_normal(num_samples)
    return features, targets


def _problem(
    num_samples: int,
    dim: int,
    num_devices: int,
    device_sizes: Sequence[int] | None,
    theta: Sequence[float] | Array | None,
) -> tuple[tuple[int, ...], Array]:
    """Number of examples of each device, and the true theta (dim), of a synthetic regression, with
    defaults filled in; raises ``InvalidSetting`` for settings that do not fit together."""
    # At most 2^53, because whole numbers up to there are exact in double precision.
    checks.at_least("num_samples", num_samples, 1, highest=2**53)
    checks.at_least("dim", dim, 1)
    if device_sizes is None:
        sizes = split_evenly(num_samples, num_devices)
    else:
        sizes = tuple(
            checks.at_least("each device's number of samples", size, 0) for size in device_sizes
        )
        if not sizes or sum(sizes) != num_samples:
            raise InvalidSetting(
                f"device_sizes must add up to num_samples = {num_samples}, got {sum(sizes)}"
            )
    truth = np.resize(PAPER_THETA, dim) if theta is None else checks.finite_array("theta", theta)
    if truth.shape != (dim,):
        raise InvalidSetting(f"theta must have dim = {dim} entries, got {truth.shape}")
    return sizes, truth
