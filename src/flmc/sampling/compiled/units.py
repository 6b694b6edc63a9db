r"""Units of data: one array of floats for the quadratic costs of all devices, in the order in which
the emitted machine code reads them.

A unit serves a block of eight chains (lanes of a vector): it holds eight data sets, one for each
lane, or a single one. The gradient of device k is H_k theta - b_k, with Hessian H_k and offset b_k;
the unit stores its value at the centre c, H_k c - b_k, and the Hessian, both divided by the clip,
so that clipping is to [-1, 1]. Behind the devices lies the sum over all of them.

*Near*: a chain whose deviation x from the centre is so small that clipping is rare
(:mod:`flmc.sampling.compiled.devices`). ``reach`` (device) is the squared distance from the centre
up to which no entry of a device's gradient g can exceed 1, because
:math:`|g_i| \le |g_i(c)| + \|H_i\| \|x\|` with row H_i of the Hessian; a margin is left for
rounding. ``horizon`` is the squared distance up to which a chain is near: no entry of any device
can exceed the number of clips that :data:`NEAR` tells."""

from __future__ import annotations

import ctypes
from functools import cache

import numpy as np
import numpy.typing as npt

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.local_costs import Quadratic
from flmc.sampling.compiled.arrangement import OWN, Arrangement
from flmc.sampling.compiled.instructions import (
    DOUBLE,
    NUMBER,
    WIDTH,
    Code,
    Value,
    Variable,
    address_of,
    emitted,
)

ADDRESSES = ("hessian", "offset", "centre", "lanes", "units", "room", "good")
SIZES = ("num_units", "devices", "dim", "tiles", "unit_size")
MEASURES = ("rounding", "factor", "largest", "most_reach", "certain_clip", "certain", "near_clip")
"""Arguments of the function that loads units: addresses, sizes, and numbers in double precision.
``room`` is scratch memory for the sum of all Hessians, the sum of all gradients, and one device's
gradient. ``good`` is two numbers: the first becomes 0 if data are not finite or too large, the
second 1 more than the number of a device whose Hessian is not symmetric. ``rounding`` is the
largest squared difference of a Hessian's row from its column, relative to the row, that passes as
symmetric, and ``factor`` is 1 over the clip; :func:`load_units` computes the others."""


@cache
def load_of(arrangement: Arrangement, near: bool) -> int:
    """The address of the machine code that copies data sets into units of data, the arrays that
    blocks of chains read; its arguments are ``ADDRESSES``, ``SIZES`` and ``MEASURES``. ``near``
    says whether it also writes what is needed to treat chains near the centre apart: the squared
    distances ``horizon`` and ``reach``, and the sum over all devices."""

    def body(code: Code, arguments: list[Value]) -> None:
        at = dict(zip((*ADDRESSES, *SIZES, *MEASURES), arguments, strict=True))
        if arrangement.entries:
            # few entries are a constant of the code, whose loops over them are written out
            at["dim"] = code.number(arrangement.entries)
        lanes = WIDTH if arrangement.kind == OWN else 1
        with code.loop(at["num_units"]) as n, code.loop(code.number(lanes)) as lane:
            e = code.load(at["lanes"], n * lanes + lane, NUMBER)
            unit = at["units"] + n * at["unit_size"] * 4
            _Lane(code, arrangement, near, at, e, unit, lane).emit()

    arguments = [NUMBER] * len((*ADDRESSES, *SIZES)) + [DOUBLE] * len(MEASURES)
    return emitted(f"load {arrangement!r} {near}", body, arguments)


class _Lane:
    """Emits the code that copies one data set, number ``e``, into a unit of data (a block's array
    of floats) at the address ``unit``: into one lane, or where all lanes share the data set, once
    for all."""

    def __init__(
        self,
        code: Code,
        arrangement: Arrangement,
        near: bool,
        at: dict[str, Value],
        e: Value,
        unit: Value,
        lane: Value,
    ) -> None:
        self.code, self.arrangement, self.near, self.at = code, arrangement, near, at
        self.e, self.unit, self.lane = e, unit, lane
        dim = at["dim"]
        self.total, self.totals = at["room"], at["room"] + dim * dim * 8
        self.gradient = self.totals + dim * 8
        self.local = unit + (at["devices"] + 1) * (4 * WIDTH)

    def emit(self) -> None:
        """Emit the code that copies the gradients at the centre and the Hessians of all devices
        into the unit of data, and behind them their sums."""
        code, at, dim = self.code, self.at, self.at["dim"]
        size = (at["unit_size"] - (at["devices"] + 1) * WIDTH) / (at["devices"] + 1) * 4
        if self.near:
            with code.loop(dim * (dim + 1)) as n:
                code.store(at["room"], n, code.value(DOUBLE(0.0)))
        horizon = Variable(code, code.value(DOUBLE(float("inf"))))
        all_good = Variable(code, code.number(1))
        with code.loop(at["devices"]) as k:
            reach = Variable(code, at["most_reach"])
            device = self.e * at["devices"] + k
            matrix = at["hessian"] + device * dim * dim * 8
            with code.loop(dim) as i:
                value, norm, uneven = self._at_centre(device, matrix, i)
                code.store(self.gradient, i, value)
                size_of = value.magnitude()
                # Comparisons that are false for NaN, so that NaN counts as too large.
                good = (size_of < at["largest"]).both(norm < at["largest"] * at["largest"])
                all_good.value = good.choose(all_good.value, code.number(0))
                with code.when(uneven > at["rounding"] * norm):
                    code.store(at["good"], 1, k + 1)
                if self.near:
                    self._measure(i, value, size_of, norm, reach, horizon)
            if self.near:
                self._put(k + 1, reach.value)
            self._fill(matrix, self.gradient, self.local + k * size)
        with code.when(all_good.value.same(0)):
            code.store(at["good"], 0, code.number(0))
        if self.near:
            self._put(code.number(0), horizon.value)
            self._fill(self.total, self.totals, self.local + at["devices"] * size)

    def _at_centre(self, device: Value, matrix: Value, i: Value) -> tuple[Value, Value, Value]:
        """Three emitted values: entry i of a device's gradient at the fixed point of the data set
        (:func:`flmc.sampling.chains.centre_of`), the squared norm of row i of its Hessian, and the
        squared norm of the difference of that row from column i. The norm begins with 1e-300, so
        that a row of zeros leads to no division by 0."""
        code, dim = self.code, self.at["dim"]
        offset = code.load(self.at["offset"], device * dim + i, DOUBLE)
        value = Variable(code, -offset)
        norm, uneven = code.variables([code.value(DOUBLE(1e-300)), code.value(DOUBLE(0.0))])
        with code.loop(dim) as j:
            h = code.load(matrix, i * dim + j, DOUBLE)
            centre = code.load(self.at["centre"], self.e * dim + j, DOUBLE)
            value.value = value.value + h * centre
            norm.value = norm.value + h * h
            gap = h - code.load(matrix, j * dim + i, DOUBLE)
            uneven.value = uneven.value + gap * gap
            if self.near:
                place = i * dim + j
                code.store(self.total, place, code.load(self.total, place, DOUBLE) + h)
        return value.value, norm.value, uneven.value

    def _measure(
        self, i: Value, value: Value, size: Value, norm: Value, reach: Variable, horizon: Variable
    ) -> None:
        """Emit the code that adds entry i of a device's gradient to the sum over devices, and
        lowers ``reach`` and ``horizon`` to the squared distances r^2 from the centre at which the
        entry may exceed their bounds: the clip, and the number of clips up to which a chain counts
        as near the centre.

        |g_i(centre)| + ||H_i|| r = bound gives r^2 = (bound - |g_i(centre)|)^2 / ||H_i||^2, with
        row H_i of the Hessian.
        """
        code, at, zero = self.code, self.at, self.code.value(DOUBLE(0.0))
        code.store(self.totals, i, code.load(self.totals, i, DOUBLE) + value)
        left, more = (at[name] - size for name in ("certain_clip", "near_clip"))
        left, more = (left > zero).choose(left, zero), (more > zero).choose(more, zero)
        reach.value = (at["certain"] * left * left / norm).at_most(reach.value)
        horizon.value = (more * more / norm).at_most(horizon.value)

    def _put(self, number: Value, distance: Value) -> None:
        """Emit the code that stores a squared distance as vector ``number`` of the unit of data: in
        one lane, that of the data set, or in all lanes where they share it."""
        value, start = distance.single(), number * WIDTH + self.lane
        for lane in range(1 if self.arrangement.kind == OWN else WIDTH):
            self.code.store(self.unit, start + lane, value)

    def _fill(self, matrix: Value, gradient: Value, start: Value) -> None:
        """Emit the code that copies a device's gradient at the centre and its Hessian, times
        ``factor``, into the unit of data from the address ``start`` on. The Hessian is symmetric,
        so its columns are read as rows, whose numbers are neighbours in memory."""
        code, arrangement, dim = self.code, self.arrangement, self.at["dim"]
        place = Variable(code, self.lane)

        def put(number: Value, offset: Value | int = 0) -> None:
            code.store(start, place.value + offset, (number * self.at["factor"]).single())

        if arrangement.entries:
            with code.loop(dim) as i:
                put(code.load(gradient, i, DOUBLE))
                place.value = place.value + arrangement.unit
            with code.loop(dim) as i, code.loop(dim, i) as j:
                put(code.load(matrix, i * dim + j, DOUBLE))
                place.value = place.value + arrangement.unit
            return
        with code.loop(self.at["tiles"]) as tile, code.loop(dim + 1) as column:
            # The device's gradient is stored before the first column of its Hessian.
            before = code.value(column.same(0).raw)
            row = before.choose(gradient, matrix + (column - 1) * dim * 8)
            first = tile * arrangement.tile
            with code.loop(first + arrangement.tile, first) as q:
                if arrangement.lanes == 1:
                    end = ((q + 1) * WIDTH).at_most(dim)
                    with code.loop(end, q * WIDTH) as i:
                        put(code.load(row, i, DOUBLE), i - q * WIDTH)
                else:
                    with code.when(q < dim):
                        put(code.load(row, q, DOUBLE))
                place.value = place.value + arrangement.unit


NEAR, _FEW = 64.0, 20
"""Bound by which chains count as near the fixed point of their data set: no gradient entry of a
device can exceed ``NEAR`` times the clip there. With more than ``_FEW`` devices the bound is
smaller in proportion, but at least 2: the sum over devices, from which the excess of single entries
is taken, then stays below 64 x 20 = 1280 clips (up to 640 devices), and its rounding in single
precision below 1e-4 clips."""
_MOST_REACH = 3e38
"""Largest squared distance that ``reach`` may hold. It is less than infinity, the distance of a
chain that counts as far, so that such a chain computes every device."""
_LARGEST = 1e15
"""Largest gradient at the fixed point of a data set, and largest norm of a Hessian's row, in units
of the clip: squares of larger numbers leave the range of single precision."""
_UNEVEN = 1e-5
"""Largest difference of a Hessian's row from its column, relative to the row, that is taken for
rounding."""

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
    """The units of data of some data sets, (unit, float), each the numbers that a block of chains
    reads: horizon (8), reach (device, 8), then gradients and Hessians of the devices; None if data
    are not finite, or too large for single precision. A Hessian that is not symmetric is refused by
    ``InvalidSetting``.

    ``costs`` and ``centre`` are contiguous, in double precision; ``unit`` is the clip, by which
    gradients are divided; ``lanes`` is the data set of every lane of every unit, (unit, 8) or
    (unit, 1); ``near`` says whether the round's code treats chains near the centre apart, without
    which horizon, reach and the sum over devices are not written."""
    devices, dim = costs.offset.shape[1:]
    size = (1 + devices) * WIDTH + (devices + 1) * arrangement.device_size(dim)
    units = np.zeros((len(lanes), size), np.float32)
    # The margin for rounding: 1e-6, sixteen roundings of single precision, for each product of a
    # sum and for some operations more.
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
