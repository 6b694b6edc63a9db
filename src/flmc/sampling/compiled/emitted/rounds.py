"""Some rounds of a block of lanes: gradients, symbols, their sum, and the step of the sampler.

Numbers are the same to the bit for every arrangement: a gradient entry is the same chain of fused
products in each, and the symbols of an entry are added device after device."""

from __future__ import annotations

from flmc.sampling.compiled.emitted.devices import Devices, Form
from flmc.sampling.compiled.emitted.few_entries import FewEntries
from flmc.sampling.compiled.emitted.many_entries import ManyEntries
from flmc.sampling.compiled.machine.emission import ROUNDS_AT_ONCE, Code
from flmc.sampling.compiled.machine.value import FLOAT, FLOATS, Value


def run_rounds(
    code: Code,
    form: Form,
    at: dict[str, Value],
    most: Value,
    first: Value,
    normal: Value,
    count: Value,
) -> None:
    """Emit the loop over rounds.

    Parameters
    ----------
    code
        Where code is emitted.
    form
        What is known beforehand.
    at
        Addresses and sizes by name, those of one block.
    most
        The clip in its own units.
    first, normal
        The number of the first round in the arrays of this call, and among those that have normals.
    count
        How many rounds.
    """
    devices = Devices(code, form, at, most)
    lanes = form.arrangement.lanes
    with code.loop(count) as s:
        devices.begin(first + s)
        place = _Place(first + s, _normals(code, at, normal + s, lanes), s)
        if form.arrangement.entries:
            for n, received in enumerate(FewEntries(devices).receive()):
                _step(devices, place, code.number(n), received)
        else:
            ManyEntries(devices).receive()
            with code.loop(at["dim"]) as i:
                received = code.load(at["received"], i * lanes, form.arrangement.float)
                _step(devices, place, i, received)
    devices.save()


def _normals(code: Code, at: dict[str, Value], number: Value, lanes: int) -> Value:
    """The address of a round's normals: the second half of the rounds begins with a vector."""
    half = ROUNDS_AT_ONCE // 2
    slack = at["normals_apart"] - at["dim"] * (half * lanes)
    before = (number < code.number(half)).choose(code.number(0), slack)
    return at["normals"] + (number * at["dim"] * lanes + before) * 4


class _Place:
    """Where a round is."""

    def __init__(self, t: Value, normals: Value, s: Value) -> None:
        self.t, self.normals, self.s = t, normals, s


def _step(devices: Devices, place: _Place, i: Value, received: Value) -> None:
    """Move an entry of the position, x - p y - n z, and put it beside those of the other rounds."""
    code, at, lanes = devices.code, devices.at, devices.form.arrangement.lanes
    kind, number = devices.form.arrangement.float, place.t * at["dim"] + i

    def every(value: Value) -> Value:
        return value.spread() if kind == FLOATS else value

    if devices.form.own_noise:
        deviation = code.load(at["noise"], number * at["num_noises"], kind)
    else:
        deviation = every(code.load(at["noise"], number, FLOAT))
    z = code.load(place.normals, i * lanes, kind)
    pull = every(code.load(at["pull"], place.t, FLOAT))
    x = code.load(at["x"], i * lanes, kind) - pull.times(received, deviation * z)
    code.store(at["x"], i * lanes, x)
    code.store(at["recent"], (place.s * at["dim"] + i) * lanes, x)
