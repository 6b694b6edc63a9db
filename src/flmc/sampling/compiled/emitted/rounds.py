"""Some rounds of a block of lanes: gradients, symbols, their sum, and the step of the sampler.

The function is emitted for each :class:`~flmc.sampling.compiled.emitted.devices.Form`. Its numbers
are the same to the bit for every arrangement: a gradient entry is the same chain of fused products
in each, and the symbols of an entry are added device after device."""

from __future__ import annotations

from functools import cache

from flmc.sampling.compiled.emitted.devices import Devices, Form
from flmc.sampling.compiled.emitted.emission import Code, emitted
from flmc.sampling.compiled.emitted.few_entries import FewEntries
from flmc.sampling.compiled.emitted.many_entries import ManyEntries
from flmc.sampling.compiled.emitted.value import FLOAT, NUMBER, WIDTH, Value


@cache
def rounds_of(form: Form) -> int:
    """The address of the function that runs some rounds, which is compiled once in a process: it
    takes about a tenth of a second.

    Its arguments are the address of the frame; the number of the first round in the arrays of this
    call; the number of its normals; how many rounds; and the clip in its own units.

    Parameters
    ----------
    form
        What is a constant for the compiler.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        frame, first, normal, count, most = arguments
        devices = Devices(code, form, frame, most)
        with code.loop(count) as s:
            devices.begin(first + s)
            if form.arrangement.entries:
                for n, sum_ in enumerate(FewEntries(devices).receive()):
                    _step(devices, first + s, normal + s, s, code.number(n), sum_)
            else:
                ManyEntries(devices).receive()
                with code.loop(devices.at["dim"]) as i:
                    received = code.load(devices.at["received"], i * WIDTH)
                    _step(devices, first + s, normal + s, s, i, received)
        devices.save()

    return emitted(body, [NUMBER, NUMBER, NUMBER, NUMBER, FLOAT])


def _step(devices: Devices, t: Value, normal: Value, s: Value, i: Value, received: Value) -> None:
    """Move an entry of the position, and put it beside those of the other rounds of the call."""
    code, at = devices.code, devices.at
    place, number = i * WIDTH, t * at["dim"] + i
    if devices.form.own_noise:
        deviation = code.load(at["noise"], number * at["num_noises"])
    else:
        deviation = code.load(at["noise"], number, FLOAT).spread()
    z = code.load(at["normals"], (normal * at["dim"] + i) * WIDTH)
    pull = code.load(at["pull"], t, FLOAT).spread()
    x = code.load(at["x"], place) - pull.times(received, deviation * z)
    code.store(at["x"], place, x)
    code.store(at["recent"], (s * at["dim"] + i) * WIDTH, x)
