r"""Units of data: the numbers of all devices in the order in which emitted code reads them.

A unit serves a block of lanes: eight data sets, or one. A device's gradient is H_k theta - b_k; it
is stored at the centre c, H_k c - b_k, with the Hessian beside it, both in units of the clip, so
that clipping is to [-1, 1]. Behind the devices lies their sum.

*Near*: what :mod:`flmc.sampling.compiled.emitted.devices` says. ``reach`` (device) is the squared
distance from the centre up to which none of a device's entries can exceed 1, because
:math:`|g_i| \le |g_i(c)| + \|H_i\| \|x\|`, with a margin for rounding; ``horizon`` is the squared
distance up to which no entry of any device can exceed the number of clips that counts as near."""

from __future__ import annotations

import ctypes

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.local_costs import Quadratic
from flmc.sampling.compiled.emitted.arrangement import Arrangement
from flmc.sampling.compiled.emitted.loading import ADDRESSES, MEASURES, SIZES, load_of
from flmc.sampling.compiled.machine.addresses import address_of
from flmc.sampling.compiled.machine.value import WIDTH

NEAR, _FEW = 64.0, 20
"""A chain is near where no gradient entry can exceed ``NEAR`` clips. With more than ``_FEW``
devices the number is smaller in proportion, but at least 2: the sum over devices, from which the
excess of single entries is taken, then stays below 64 x 20 = 1280 clips (up to 640 devices), and
its rounding in single precision below 1e-4 clips."""
_MOST_REACH = 3e38
"""Largest squared distance that ``reach`` may hold: less than infinity, the distance of a chain
that is far, so that such a chain looks at every device."""
_LARGEST = 1e15
"""Largest gradient at the centre, and largest norm of a matrix row, in clips: beyond, squares leave
the range of single precision."""
_UNEVEN = 1e-5
"""Difference of a Hessian's row from its column, relative to the row, that rounding explains."""

Floats = npt.NDArray[np.float32]
_CALL = ctypes.CFUNCTYPE(
    None,
    *[ctypes.c_uint64] * len((*ADDRESSES, *SIZES)),
    *[ctypes.c_double] * len(MEASURES),
)


def load_units(
    costs: Quadratic,
    centre: Array,
    unit: float,
    arrangement: Arrangement,
    lanes: npt.NDArray[np.int64],
    near: bool,
) -> Floats | None:
    """The units of some data sets.

    Parameters
    ----------
    costs, centre
        Hessians (data set, device, dim, dim), offsets and centres, in double precision; contiguous.
    unit
        The clip.
    arrangement
        The order of a unit.
    lanes
        The data set of every lane of every unit, (unit, 8) or (unit, 1).
    near
        Whether chains may be near: else horizon, reach and the sum of all devices are not needed.

    Returns
    -------
    Floats or None
        (unit, float): horizon (8), reach (device, 8), devices; None if data are not finite, or too
        large for single precision.

    Raises
    ------
    InvalidSetting
        If a Hessian is not symmetric.
    """
    devices, dim = costs.offset.shape[1:]
    size = (1 + devices) * WIDTH + (devices + 1) * arrangement.device_size(dim)
    units = np.zeros((len(lanes), size), np.float32)
    # The margin: 1e-6, sixteen roundings of single precision, for each product of a sum and some
    # more.
    certain = 1 - 1e-6 * (dim + 8.0)
    clips = min(NEAR, max(2.0, NEAR * _FEW / devices))
    good, room = np.array([1, 0], np.uint64), np.empty((dim + 2) * dim)
    arrays = (*costs, centre, lanes, units, room, good)
    sizes = (len(lanes), devices, dim, arrangement.tiles(dim), size)
    measures = (
        _UNEVEN**2,
        1 / unit,
        _LARGEST * unit,
        _MOST_REACH,
        certain * unit,
        certain,
        clips * unit,
    )
    _CALL(load_of(arrangement, near))(*map(address_of, arrays), *sizes, *measures)
    if good[0] and good[1]:
        raise InvalidSetting(
            f"the Hessian of device {good[1] - 1} is not symmetric, as that of every function is;"
            " engine = 'numpy' takes the gradient as it is"
        )
    return units if good[0] else None
