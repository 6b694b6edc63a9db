"""The sum of symbols where a gradient has many entries: a tile of them is computed at a time, each
in a register of its own, and every number of the position that is read serves the whole tile."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from flmc.sampling.compiled.emitted.devices import Devices
from flmc.sampling.compiled.machine.emission import Variable
from flmc.sampling.compiled.machine.generator import Generator
from flmc.sampling.compiled.machine.value import FLOAT, WIDTH, WORDS, Value


class ManyEntries:
    """The emitted loop over devices.

    Parameters
    ----------
    devices
        The devices of the round.
    """

    def __init__(self, devices: Devices) -> None:
        self.devices, self.code, self.at = devices, devices.code, devices.at
        self.arrangement = devices.form.arrangement
        self.tile = self.arrangement.tile
        self.in_rows = self.arrangement.lanes == 1
        """Whether the lanes of a vector are entries of one chain."""
        # Sums of the entries of one chain, beside each other, or of every lane; and room for a
        # gradient.
        self.sums = self.at["received"]
        self.values = self.sums + self.at["tiles"] * (4 * WIDTH * self.tile)

    def receive(self) -> None:
        """Add up the symbols of all devices that are looked at, and store the sums."""
        devices, code, form = self.devices, self.code, self.devices.form
        generator = devices.generator
        with code.loop(self.at["tiles"] * self.tile) as i:
            code.store(self.sums, i * WIDTH, devices.zero)
        if form.may_be_near:
            with code.when(devices.near), code.loop(self.at["tiles"]) as tile:
                for q, value in enumerate(self._gradient(self.at["devices"], tile)):
                    near = (devices.away < devices.far).choose(value, devices.zero)
                    code.store(self.sums, (tile * self.tile + q) * WIDTH, near)
        if generator is not None and self.in_rows:
            # All words of the round: a vector takes eight of them.
            with code.loop(self.at["devices"] * self.at["dim"]) as n:
                code.store(self.at["words"], n, generator())
        with code.loop(self.at["devices"]) as k:
            here, talk = devices.here(k)
            with code.either(here) as (yes, no):
                with yes:
                    self._add_device(k, talk, generator)
                with no:  # the words of a device that is silent are drawn, too
                    if generator is not None and not self.in_rows:
                        with code.loop(self.at["dim"]):
                            generator()

    def _gradient(self, k: Value, tile: Value) -> list[Value]:
        """A tile of gradient entries of device k: those at the centre plus matrix times position,
        column after column."""
        code, unit = self.code, self.arrangement.unit
        size = (self.at["dim"] + 1) * (self.tile * unit)
        start = (k * self.at["tiles"] + tile) * size

        def read(place: Value) -> Value:
            if unit == 1:
                return code.load(self.at["local"], place, FLOAT).spread()
            return code.load(self.at["local"], place)

        sums = code.variables([read(start + q * unit) for q in range(self.tile)])
        with code.loop(self.at["dim"]) as j:
            x = self.devices.own(self.at["x"], j * self.arrangement.lanes)
            column = start + (j + 1) * (self.tile * unit)
            for q, value in enumerate(sums):
                value.value = read(column + q * unit).times(x, value.value)
        return [value.value for value in sums]

    def _add_device(self, k: Value, talk: Value | None, generator: Generator | None) -> None:
        """Add the symbols of device k to the sums."""
        code, scale = self.code, None
        if self.devices.form.norm:
            with code.loop(self.at["tiles"]) as tile:
                for q, value in enumerate(self._gradient(k, tile)):
                    code.store(self.values, (tile * self.tile + q) * WIDTH, value)
            scale = self.devices.scale_for(self._squares())
        with code.loop(self.at["tiles"]) as tile:
            first = tile * self.tile
            if scale is None:
                values = self._gradient(k, tile)
            else:
                values = [code.load(self.values, (first + q) * WIDTH) for q in range(self.tile)]
            for q, value in enumerate(values):
                if self.in_rows:
                    self._add_rows(k, first + q, value, talk, generator, scale)
                elif self.arrangement.whole:
                    self._add(first + q, value, generator, talk, scale)
                else:  # the last tile has more room than there are entries
                    with code.when(first + q < self.at["dim"]):
                        self._add(first + q, value, generator, talk, scale)

    def _squares(self) -> Value:
        """The sum of the squares of a device's gradient, entry after entry."""
        code = self.code
        if self.in_rows:
            alone = Variable(code, code.value(FLOAT(0.0)))
            with code.loop(self.at["dim"]) as i:
                value = code.load(self.values, i, FLOAT)
                alone.value = value.times(value, alone.value)
            return alone.value.spread()
        squares = Variable(code, self.devices.zero)
        with code.loop(self.at["dim"]) as i:
            value = code.load(self.values, i * WIDTH)
            squares.value = value.times(value, squares.value)
        return squares.value

    def _add_rows(
        self,
        k: Value,
        panel: Value,
        value: Value,
        talk: Value | None,
        generator: Generator | None,
        scale: Value | None,
    ) -> None:
        """Add the symbols of eight entries of one chain; those behind the last entry are added to
        sums that nobody reads."""
        code, word = self.code, None
        if generator is not None:
            place = k * self.at["dim"] + panel * WIDTH

            def word() -> Value:
                return code.load(self.at["words"], place, WORDS)

        exist = None
        if scale is not None:  # what is behind the last entry is zero, but its norm is not
            numbers = code.value(ir.Constant(WORDS, list(range(WIDTH))))
            numbers = numbers + (panel * WIDTH).as_word().spread()
            exist = numbers < self.at["dim"].as_word().spread()
        self._add(panel, value, word, talk, scale, exist)

    def _add(
        self,
        row: Value,
        value: Value,
        word: Callable[[], Value] | None,
        talk: Value | None,
        scale: Value | None,
        exist: Value | None = None,
    ) -> None:
        """Add the symbols of a vector of entries to their sums."""
        code, place = self.code, row * WIDTH
        sent = self.devices.sent(value, word, talk, scale, exist)
        if word is not None and talk is None:
            sent = sent.choose(code.floats(1.0), code.floats(-1.0))
        code.store(self.sums, place, code.load(self.sums, place) + sent)
