"""The sum of symbols where a gradient has few entries: position, sums and generator stay in
registers, and of a matrix only the upper triangle is read."""

from __future__ import annotations

from flmc.sampling.compiled.emitted.devices import Devices
from flmc.sampling.compiled.machine.emission import Variable
from flmc.sampling.compiled.machine.generator import Generator
from flmc.sampling.compiled.machine.value import FLOAT, WIDTH, Value


class FewEntries:
    """The emitted loop over devices.

    Parameters
    ----------
    devices
        The devices of the round.
    """

    def __init__(self, devices: Devices) -> None:
        self.devices, self.code = devices, devices.code
        self.arrangement = devices.form.arrangement
        self.entries = self.arrangement.entries
        self.x: list[Value] = []

    def receive(self) -> list[Value]:
        """Add up the symbols of all devices that are looked at; the sums are returned."""
        devices, code, form = self.devices, self.code, self.devices.form
        # Bits without factors are counted: of n bits c are +1, and their sum is 2 c - n.
        counted = form.link is not None and not form.talks
        totals = code.variables([code.words(0) if counted else devices.zero] * self.entries)
        self.x = [code.load(devices.at["x"], j * WIDTH) for j in range(self.entries)]
        if form.may_be_near:
            with code.when(devices.near):
                for total, value in zip(totals, self._gradient(devices.at["devices"]), strict=True):
                    total.value = (devices.away < devices.far).choose(value, devices.zero)
        generator = devices.generator
        heard = Variable(code, code.words(0))
        with code.loop(devices.at["devices"]) as k:
            here, talk = devices.here(k)
            with code.either(here) as (yes, no):
                with yes:
                    heard.value = heard.value + code.words(1)
                    self._add_device(k, talk, generator, totals)
                with no:  # the words of a device that is silent are drawn, too
                    if generator is not None:
                        for _ in range(self.entries):
                            generator()
        if counted:
            return [(total.value + total.value - heard.value).signed() for total in totals]
        return [total.value for total in totals]

    def _gradient(self, k: Value) -> list[Value]:
        """The gradient entries of device k: those at the centre plus matrix times position.

        Two sums are made, of even and odd columns, so that a product need not wait for the one
        before."""
        start = k * self.arrangement.device_size(self.entries)
        index, matrix, found = self.entries, {}, []
        for i in range(self.entries):
            for j in range(i, self.entries):
                matrix[i, j] = matrix[j, i] = self._read(start, index)
                index += 1
        for i in range(self.entries):
            sums = [self._read(start, i), self.devices.zero]
            for j in range(self.entries):
                sums[j % 2] = matrix[i, j].times(self.x[j], sums[j % 2])
            found.append(sums[0] + sums[1])
        return found

    def _read(self, start: Value, index: int) -> Value:
        """A number of a device in every lane: each its own, or all the same."""
        place = start + index * self.arrangement.unit
        if self.arrangement.unit == 1:
            return self.code.load(self.devices.at["local"], place, FLOAT).spread()
        return self.code.load(self.devices.at["local"], place)

    def _add_device(
        self, k: Value, talk: Value | None, generator: Generator | None, totals: list[Variable]
    ) -> None:
        """Add the symbols of device k to the sums."""
        values, scale = self._gradient(k), None
        if self.devices.form.norm:
            squares = self.devices.zero
            for value in values:
                squares = value.times(value, squares)
            scale = self.devices.scale_for(squares)
        for value, total in zip(values, totals, strict=True):
            sent = self.devices.sent(value, generator, talk, scale)
            counted = generator is not None and talk is None
            total.value = total.value + (sent.ones() if counted else sent)
