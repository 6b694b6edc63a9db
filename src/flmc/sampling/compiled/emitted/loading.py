"""Units of data, as emitted code: the numbers of all devices in the order in which rounds read
them; see :mod:`flmc.sampling.compiled.units`."""

from __future__ import annotations

from functools import cache

from flmc.sampling.compiled.emitted.arrangement import OWN, Arrangement
from flmc.sampling.compiled.machine.emission import Code, Variable, emitted
from flmc.sampling.compiled.machine.value import DOUBLE, NUMBER, WIDTH, Value

ADDRESSES = ("hessian", "offset", "centre", "lanes", "units", "room", "good")
SIZES = ("num_units", "devices", "dim", "tiles", "unit_size")
MEASURES = ("rounding", "factor", "largest", "most_reach", "certain_clip", "certain", "near_clip")
"""Arguments: addresses, sizes, and numbers in double precision. ``room`` is for the sum of all
Hessians, its gradient, and one more. ``good`` is two numbers: the first becomes 0 if data are not
finite or too large, the second 1 more than the number of a device whose Hessian is not symmetric.
``rounding`` is the largest squared difference of a row from its column, relative to the row, and
``factor`` is 1 over the clip; the others are explained where they are computed."""


@cache
def load_of(arrangement: Arrangement, near: bool) -> int:
    """The address of the function that loads units; its arguments are ``ADDRESSES``, ``SIZES`` and
    ``MEASURES``.

    Parameters
    ----------
    arrangement
        The order of a unit.
    near
        Whether distances and the sum of all devices are needed.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        at = dict(zip((*ADDRESSES, *SIZES, *MEASURES), arguments, strict=True))
        if arrangement.entries:
            at["dim"] = code.number(arrangement.entries)  # a constant: loops are written out
        lanes = WIDTH if arrangement.kind == OWN else 1
        with code.loop(at["num_units"]) as n, code.loop(code.number(lanes)) as lane:
            e = code.load(at["lanes"], n * lanes + lane, NUMBER)
            unit = at["units"] + n * at["unit_size"] * 4
            _Lane(code, arrangement, near, at, e, unit, lane).emit()

    arguments = [NUMBER] * len((*ADDRESSES, *SIZES)) + [DOUBLE] * len(MEASURES)
    return emitted(f"load {arrangement!r} {near}", body, arguments)


class _Lane:
    """One lane of a unit, or all of them where they share a data set."""

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
        """Load all devices, and behind them their sum."""
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
                # What is not a number is not below anything.
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
        """Entry i of a device's gradient at the centre, and the squared norms of its row and of
        what it differs by from its column, term after term. The 1e-300 stands against a division by
        0 for a row of zeros."""
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
        """Add an entry to the sum of all devices, and see how far away it is from the clip.

        From |g_i(centre)| + ||H_i|| r = bound: r^2 = (bound - |g_i(centre)|)^2 / ||H_i||^2."""
        code, at, zero = self.code, self.at, self.code.value(DOUBLE(0.0))
        code.store(self.totals, i, code.load(self.totals, i, DOUBLE) + value)
        left, more = (at[name] - size for name in ("certain_clip", "near_clip"))
        left, more = (left > zero).choose(left, zero), (more > zero).choose(more, zero)
        reach.value = (at["certain"] * left * left / norm).at_most(reach.value)
        horizon.value = (more * more / norm).at_most(horizon.value)

    def _put(self, number: Value, distance: Value) -> None:
        """Store a squared distance, in every lane where they share it."""
        value, start = distance.single(), number * WIDTH + self.lane
        for lane in range(1 if self.arrangement.kind == OWN else WIDTH):
            self.code.store(self.unit, start + lane, value)

    def _fill(self, matrix: Value, gradient: Value, start: Value) -> None:
        """Put a device's numbers into the unit. Of the symmetric matrix, columns are read as rows,
        which lie together."""
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
            # Before the first column: the gradient.
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
