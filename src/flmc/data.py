"""Synthetic data: the paper's linear regression, for any number of samples, entries and devices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from flmc import checks
from flmc.checks import Array
from flmc.errors import InvalidSetting
from flmc.linear import LinearData, LinearStatistics
from flmc.randomness import Purpose, generator

PAPER_THETA = (0.418, -0.289, 0.3982, 0.8231, 0.5251)
"""The paper's ground truth, section IV."""

_NUMBERS_AT_ONCE = 4_000_000


def split_evenly(num_samples: int, num_devices: int) -> tuple[int, ...]:
    """Sizes that differ by at most one, the larger first."""
    checks.at_least("num_devices", num_devices, 1)
    if num_devices > num_samples:
        raise InvalidSetting(f"num_devices must not exceed num_samples = {num_samples}, got {num_devices}")
    size, rest = divmod(num_samples, num_devices)
    return (size + 1,) * rest + (size,) * (num_devices - rest)


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
    r"""Features :math:`u \sim N(0, I)` and targets :math:`v = u^\top\theta^* + N(0, \sigma^2)`.

    ``theta`` defaults to the paper's ground truth, repeated or cut to ``dim`` entries. Samples are dealt to devices
    evenly, or as ``device_sizes`` says. With ``num_experiments`` the arrays get a leading axis; data set number e is
    the same whatever their number."""
    sizes, truth = _problem(num_samples, dim, num_devices, device_sizes, theta)
    checks.positive("noise_variance", noise_variance)
    if num_experiments is None:
        return LinearData(*_draw_one(seed, 0, num_samples, truth, noise_variance), sizes)
    return _draw_several(
        seed, range(checks.at_least("num_experiments", num_experiments, 1)), sizes, truth, noise_variance
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
) -> LinearStatistics:
    """Sufficient statistics of the very data sets that :func:`draw_linear` draws, a few at a time, so that memory does
    not grow with the number of samples."""
    sizes, truth = _problem(num_samples, dim, num_devices, device_sizes, theta)
    checks.at_least("num_experiments", num_experiments, 1)
    at_once = max(1, _NUMBERS_AT_ONCE // (num_samples * dim))
    every = range(num_experiments)
    parts = [
        _draw_several(seed, every[first : first + at_once], sizes, truth, noise_variance).to_statistics()
        for first in every[::at_once]
    ]
    return LinearStatistics(np.concatenate([p.gram for p in parts]), np.concatenate([p.moment for p in parts]))


def _draw_several(
    seed: int, experiments: range, sizes: tuple[int, ...], theta: Array, noise_variance: float
) -> LinearData:
    pairs = [_draw_one(seed, experiment, sum(sizes), theta, noise_variance) for experiment in experiments]
    return LinearData(np.stack([features for features, _ in pairs]), np.stack([targets for _, targets in pairs]), sizes)


def _draw_one(seed: int, experiment: int, num_samples: int, theta: Array, noise_variance: float) -> tuple[Array, Array]:
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
    """Device sizes and ground truth, checked."""
    checks.at_least("num_samples", num_samples, 1)
    checks.at_least("dim", dim, 1)
    sizes = split_evenly(num_samples, num_devices) if device_sizes is None else tuple(device_sizes)
    truth = np.resize(PAPER_THETA, dim) if theta is None else checks.finite_array("theta", theta)
    if truth.shape != (dim,):
        raise InvalidSetting(f"theta must have dim = {dim} entries, got {truth.shape}")
    return sizes, truth
