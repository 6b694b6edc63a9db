"""Some rounds of a block of lanes: gradients, symbols, their sum, and the step of the sampler.

Numbers are the same to the bit for every arrangement: a gradient entry is the same chain of fused
products in each, and the symbols of an entry are added device after device."""

from __future__ import annotations

from flmc.sampling.compiled.emitted.devices import Devices
from flmc.sampling.compiled.emitted.few_entries import FewEntries
from flmc.sampling.compiled.emitted.many_entries import ManyEntries
from flmc.sampling.compiled.emitted.team import Team
from flmc.sampling.compiled.machine.emission import ROUNDS_AT_ONCE
from flmc.sampling.compiled.machine.value import FLOAT, FLOATS, Value


def run_rounds(team: Team, first: Value, normal: Value, count: Value) -> None:
    """Emit the loop over rounds.

    Parameters
    ----------
    team
        The blocks that run together.
    first, normal
        The number of the first round in the arrays of this call, and among those that have normals.
    count
        How many rounds.
    """
    code, form = team.code, team.form
    with code.loop(count) as s:
        team.begin(first + s)
        if form.arrangement.entries:
            with team.members() as devices:
                place = _Place(first + s, _normals(devices, normal + s), s)
                for n, received in enumerate(FewEntries(devices).receive()):
                    _step(devices, place, code.number(n), received)
        else:
            ManyEntries(team).receive()
            with team.members() as devices:
                place = _Place(first + s, _normals(devices, normal + s), s)
                with code.loop(devices.at["dim"]) as i:
                    number = i * form.arrangement.lanes
                    received = code.load(devices.at["received"], number, form.arrangement.float)
                    _step(devices, place, i, received)
    team.save()


def _normals(devices: Devices, number: Value) -> Value:
    """The address of a round's normals: the second half of the rounds begins with a vector."""
    code, at, lanes = devices.code, devices.at, devices.form.arrangement.lanes
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
