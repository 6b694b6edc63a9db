"""How examples are dealt to devices."""

from __future__ import annotations

from flmc.base import checks
from flmc.base.errors import InvalidSetting


def split_evenly(num_samples: int, num_devices: int) -> tuple[int, ...]:
    """Sizes that differ by at most one, the larger first."""
    checks.at_least("num_devices", num_devices, 1)
    if num_devices > num_samples:
        raise InvalidSetting(
            f"num_devices must not exceed num_samples = {num_samples}, got {num_devices}"
        )
    size, rest = divmod(num_samples, num_devices)
    return (size + 1,) * rest + (size,) * (num_devices - rest)
