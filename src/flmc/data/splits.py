"""Splits: how many examples each device holds."""

from __future__ import annotations

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.memory import fits


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
        If there are more devices than examples, or no device.

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
