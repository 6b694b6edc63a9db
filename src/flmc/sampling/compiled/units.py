r"""Units of data: arrays of floats with the quadratic costs of all devices, in the order in which
machine code reads them.

A unit serves a block of chains, those that a vector instruction serves: it holds eight data sets,
one for each place of the vector, or a single one. The gradient of device k is H_k theta - b_k, with
Hessian H_k and offset b_k. The unit stores its value H_k c - b_k at a fixed theta c of the data set
(:func:`flmc.sampling.chains.centre_of`), and the Hessian, both divided by the clip, so that
clipping is to [-1, 1]. After the devices follows the sum over all of them.

*Near*: a chain whose deviation x from c is so small that clipping is rare
(:mod:`flmc.sampling.compiled.devices`). ``reach`` (device) is the squared distance from c up to
which no entry of a device's gradient g can exceed 1, because
:math:`|g_i| \le |g_i(c)| + \|H_i\| \|x\|` with row H_i of the Hessian; a margin is left for
rounding. ``horizon`` is the squared distance up to which a chain counts as near: no gradient entry
of any device can exceed the number of clips that :data:`NEAR` sets."""

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
"""``ADDRESSES``, ``SIZES`` and ``MEASURES`` are the names of the arguments, in order, of the
machine code that copies data sets into units of data, the arrays that the machine code of the
rounds reads. Measures are numbers in double precision: ``rounding`` is the largest squared norm of
the difference between a row of a Hessian and the same column, relative to that of the row, that
counts as symmetric; ``factor`` is 1 over the clip; :func:`load_units` computes the rest.

At the address ``room`` is scratch memory for the sum of all Hessians, the sum of all gradients, and
one device's gradient. At ``good`` are two numbers: the first becomes 0 if data are not finite or
too large, the second 1 plus the number of a device whose Hessian is not symmetric."""


@cache
def load_of(arrangement: Arrangement, near: bool) -> int:
    """The address of the machine code that copies the costs of data sets into units of data, the
    arrays that the machine code of the rounds reads. Its arguments are named in ``ADDRESSES``,
    ``SIZES`` and ``MEASURES``. ``near`` says whether it also stores the squared distances
    ``horizon`` and ``reach`` and the sum over all devices, which are needed where chains near the
    fixed theta of their data set (:func:`flmc.sampling.chains.centre_of`) are treated
    differently."""

    def body(code: Code, arguments: list[Value]) -> None:
        at = dict(zip((*ADDRESSES, *SIZES, *MEASURES), arguments, strict=True))
        if arrangement.entries:
            # A small number of entries is a constant of the code, which has no loops over entries.
            at["dim"] = code.number(arrangement.entries)
        lanes = WIDTH if arrangement.kind == OWN else 1
        with code.loop(at["num_units"]) as n, code.loop(code.number(lanes)) as lane:
            e = code.load(at["lanes"], n * lanes + lane, NUMBER)
            unit = at["units"] + n * at["unit_size"] * 4
            _Lane(code, arrangement, near, at, e, unit, lane).emit()

    arguments = [NUMBER] * len((*ADDRESSES, *SIZES)) + [DOUBLE] * len(MEASURES)
    return emitted(f"load {arrangement!r} {near}", body, arguments)


class _Lane:
    """Emits the code that copies the costs of data set number ``e`` into the array of floats at the
    address ``unit``, from which the machine code of the rounds reads vectors of eight: into place
    number ``lane`` of every vector, or, where eight chains share the data set, once for all of
    them."""

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
        """Emit the code that copies, for every device of the data set, the gradient at a fixed
        theta (:func:`flmc.sampling.chains.centre_of`) and the Hessian into the array that machine
        code reads; if ``near``, the sums of these over all devices follow. It also checks that the
        data are finite, not too large, and symmetric."""
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
                # The data are good if both comparisons are true: they are false for NaN, which thus
                # counts as too large.
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
        """Emit three values and return them: entry ``i`` of a device's gradient at the fixed theta
        of the data set (:func:`flmc.sampling.chains.centre_of`), the squared norm of row i of the
        device's Hessian, and the squared norm of the difference between row i and column i. 1e-300
        is added to the squared norm of the row, so that a row of zeros leads to no division by 0.
        ``matrix`` is the address of the Hessian."""
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
        """Emit the code that adds entry ``i`` of a device's gradient at the fixed theta c of the
        data set (:func:`flmc.sampling.chains.centre_of`) to the sum over devices, and lowers two
        bounds of squared distances from c: ``reach``, beyond which the entry may exceed the clip,
        and ``horizon``, beyond which the entry may be so many clips that a chain is not near c.

        |g_i(c)| + ||H_i|| r = bound gives r^2 = (bound - |g_i(c)|)^2 / ||H_i||^2, with row H_i of
        the Hessian. ``value`` is g_i(c), ``size`` its magnitude, ``norm`` the squared norm of H_i.
        """
        code, at, zero = self.code, self.at, self.code.value(DOUBLE(0.0))
        code.store(self.totals, i, code.load(self.totals, i, DOUBLE) + value)
        left, more = (at[name] - size for name in ("certain_clip", "near_clip"))
        left, more = (left > zero).choose(left, zero), (more > zero).choose(more, zero)
        reach.value = (at["certain"] * left * left / norm).at_most(reach.value)
        horizon.value = (more * more / norm).at_most(horizon.value)

    def _put(self, number: Value, distance: Value) -> None:
        """Emit the code that stores a squared distance in vector number ``number`` of the array
        that machine code reads: in the place of this data set, or in all eight places where the
        chains share the data set."""
        value, start = distance.single(), number * WIDTH + self.lane
        for lane in range(1 if self.arrangement.kind == OWN else WIDTH):
            self.code.store(self.unit, start + lane, value)

    def _fill(self, matrix: Value, gradient: Value, start: Value) -> None:
        """Emit the code that copies a device's gradient at the fixed theta of the data set
        (:func:`flmc.sampling.chains.centre_of`; address ``gradient``) and its Hessian (address
        ``matrix``), divided by the clip, to the address ``start``. The columns of the Hessian are
        needed; because it is symmetric, its rows are read instead, whose numbers are neighbours in
        memory."""
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
            # Column 0 of the loop is the device's gradient, which is stored before the columns of
            # its Hessian.
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
"""A chain counts as near the fixed theta of its data set (:func:`flmc.sampling.chains.centre_of`)
if no gradient entry of a device, at the chain's position, can exceed ``NEAR`` times the clip. With
more than ``_FEW`` devices this bound is lowered to ``NEAR * _FEW`` over the number of devices, but
not below 2. The sum of unclipped gradients over devices then stays below 64 x 20 = 1280 clips (with
up to 640 devices), and its rounding error in single precision below 1e-4 clips."""
_MOST_REACH = 3e38
"""Upper limit of ``reach``, the squared distance up to which a device's gradient needs no clipping.
It is finite, and the distance of a chain that does not count as near its fixed theta is set to
infinity, so that the gradient of every device is computed for this chain."""
_LARGEST = 1e15
"""Largest accepted gradient entry at the fixed theta of a data set
(:func:`flmc.sampling.chains.centre_of`), and largest accepted norm of a Hessian's row, in units of
the clip: squares of larger numbers could overflow single precision."""
_UNEVEN = 1e-5
"""Largest norm of the difference between a row of a Hessian and the same column, relative to the
norm of the row, that is accepted as rounding error of a symmetric matrix."""

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
    """The costs of some data sets as arrays of floats, (array, float), that the machine code of the
    rounds reads. Each array holds ``horizon`` (8) and ``reach`` (device, 8), squared distances up
    to which no gradient entry is far beyond the clip, or beyond it; then gradients and Hessians of
    the devices, then their sum. None if data are not finite or too large for single precision;
    ``InvalidSetting`` for a Hessian that is not symmetric.

    ``costs`` and ``centre`` are contiguous, in double precision; ``unit`` is the clip, by which
    gradients are divided; ``lanes`` holds the index of the data set in every place of each array's
    vectors, (array, 8), or that of all places, (array, 1). ``near`` says whether the code treats
    chains near the fixed theta ``centre`` of their data set differently; if not, ``horizon``,
    ``reach`` and the sum over devices remain 0."""
    devices, dim = costs.offset.shape[1:]
    size = (1 + devices) * WIDTH + (devices + 1) * arrangement.device_size(dim)
    units = np.zeros((len(lanes), size), np.float32)
    # ``certain`` leaves a margin for rounding: 1e-6, sixteen times the rounding error of single
    # precision, for each product of a sum and for eight further operations.
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
