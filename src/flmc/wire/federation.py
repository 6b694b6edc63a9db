"""A federation: a named run, its plan, and the settings on which all roles must agree.

It travels as JSON from the server to all roles, and its digest binds every message of a round. The
digest covers the run's name, the plan's own digest (gains, noise power, clip, link, rounds,
fading, scheduler), quorum, slot, deadline, grid and model; and the names of theta's entries, where
it has any. Plans that are too large, or that name a file, are refused before anything is computed
from them.
"""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.version import VERSION
from flmc.planning.plans import Plan
from flmc.planning.plans.document import foreign_parts
from flmc.planning.server_update import why_not_updated
from flmc.privacy.safe_noise.noise_grid import NoiseGrid
from flmc.privacy.safe_noise.rounded_normal import MOST_BITS
from flmc.uplink.csi import arrival_bound
from flmc.uplink.fadings.fixed import ConstantFading
from flmc.uplink.fadings.trace import TraceFile
from flmc.uplink.noise import why_not_drawn
from flmc.uplink.power import finite_cap
from flmc.uplink.report import SUFFIX, scale_of
from flmc.uplink.schedulers import AllDevices
from flmc.wire.encoding import MOST_BYTES
from flmc.wire.topics import WIRE_VERSION, check_run

_MOST_VALUE_STEPS = 1 << 18
"""Largest amplitude at which an analog symbol may arrive at the air, in steps of the noise grid.
Symbols travel in single precision, which rounds a symbol of this size by at most 1/64 of a step,
and the device's floating-point sums over examples add an error of at most 1/5 of a step. Counted
for each of two neighbouring data sets, both errors stay within half a step, as
``NoiseGrid.accounted_gain`` assumes."""
_LEAST_VALUE, _MOST_VALUE = 1e-30, 1e30
"""Smallest and largest value that the peak, the largest analog symbol, may have: between them
single precision keeps all its digits for every symbol of at least one step of the noise grid, and
does not overflow."""
_SOFTEST_BITS = 8
"""Base-2 logarithm of the amplitude at which the weakest planned symbol should arrive, in steps of
the noise grid: rounding then takes away less than 1/256 of the symbol."""
_LONGEST_MODEL = 200
"""Longest name of a model, in characters; a federation with a longer one is refused."""
_MOST_NAMES = 10_000
"""Largest number of entries of theta that may have names."""
_AGREED = ("quorum", "slot_ms", "deadline_ms", "grid_bits", "model")
"""Names of the settings of a federation, beside the run's name and the plan, that its digest
covers."""


class OtherVersion(InvalidSetting):
    """Raised for the document of a federation with another version of topics and payloads than this
    version of flmc speaks."""


def refuse_foreign(plan: Plan) -> None:
    """Raise ``InvalidSetting`` for a plan with a user's own scheme, link, fading, noise law,
    scheduler or server's update: a plan travels as JSON, which cannot carry the user's code."""
    foreign = foreign_parts(plan)
    if foreign:
        named = ", ".join(f"{part} {kind!r}" for part, kind in foreign.items())
        raise InvalidSetting(
            f"a federation runs flmc's own code alone, and the plan has {named}: roles on other"
            " machines get the plan as a document, and never import code that a document names;"
            " simulate it with flmc run"
        )


@dataclass(frozen=True)
class Federation:
    """A run on separate machines, with the settings on which all roles agree; raises
    ``InvalidSetting`` if a value is out of its bounds, or the plan cannot be deployed.

    Attributes
    ----------
    run
        Name of the run, which is a part of every topic.
    plan
        Everything that is fixed before round 1, without the forecast that was made with it: all
        roles read the plan, and a forecast may be computed from the devices' data.
    quorum
        Smallest number of devices that must answer (send symbols) in a round of all devices; with
        fewer the air repeats the round. A round of fewer scheduled devices needs the same share of
        them, rounded up.
    slot_ms
        Milliseconds from the question to a device's answer, always the same, so that the time
        of a gradient computation does not leak.
    deadline_ms
        Milliseconds for which the air waits for answers, before it closes or repeats the round.
    grid_bits
        The channel noise has a standard deviation of 2^grid_bits steps of its grid.
    model
        Name of the model whose gradients the devices compute; devices of a ``NAME+report`` report
        what clipping and the link take away, as the last entry of theta.
    names
        Public names of the entries of theta, without a report, under which the server shows what it
        knows; empty: they have none. They are agreed on, because a device compares them with its
        model's own: what the server shows is then in the order that devices compute in.
    """

    run: str
    plan: Plan
    quorum: int
    slot_ms: int = 50
    deadline_ms: int = 2000
    grid_bits: int = 20
    model: str = "linear"
    names: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_run(self.run)
        refuse_large(self.plan)
        object.__setattr__(self, "plan", self.plan.without_forecast())
        self.plan.scheduler.check(self.plan.num_rounds, self.plan.num_devices)
        checks.at_least("quorum", self.quorum, 1, highest=self.plan.num_devices)
        checks.at_least("slot_ms", self.slot_ms, 1, highest=600_000)
        if checks.at_least("deadline_ms", self.deadline_ms, 2, highest=3_600_000) <= self.slot_ms:
            raise InvalidSetting(
                f"deadline_ms must be larger than slot_ms, {self.slot_ms}, after which devices"
                f" answer; got {self.deadline_ms}"
            )
        limits = self.plan.limits
        if limits.neighbouring == "device" and limits.relation == "add_remove":
            raise InvalidSetting(
                "a federation shows which devices are there, which relation 'add_remove' of a"
                " device hides: plan with relation 'replace' or 'zero_out'"
            )
        uplink = self.plan.uplink
        if uplink.noise_is_exact:
            raise InvalidSetting(
                f"the {uplink.scheme} scheme is an idea that no device can carry out; plan with"
                " another"
            )
        cannot = why_not_drawn(uplink.noise_law)
        if cannot is not None:
            raise InvalidSetting(f"a federation's air cannot stand for the channel: {cannot}")
        cannot = why_not_updated(self.plan.update)
        if cannot is not None:
            raise InvalidSetting(f"a federation's server cannot run the plan: {cannot}")
        if self.reports:
            scale_of(uplink)
        self._check_names()
        caps = finite_cap(uplink, self.plan.gain)
        # The largest symbol must reach the first step of the grid even in the round with the
        # smallest gain: otherwise peak_steps raises the error.
        self.grid.peak_steps(float(caps.min()), uplink.peak)
        values = uplink.symbol_format.levels is None
        loudest = _loudest(self.plan) if values else float(caps.max())
        steps = self.grid.peak_steps(loudest, uplink.peak)
        if values and steps > _MOST_VALUE_STEPS:
            raise InvalidSetting(
                f"the largest analog symbol must arrive at {_MOST_VALUE_STEPS} steps or below, got"
                f" {steps}, because symbols travel in single precision; use fewer grid_bits,"
                " or plan with a limit of the gain"
            )
        if values and not _LEAST_VALUE <= uplink.peak <= _MOST_VALUE:
            raise InvalidSetting(
                f"clip must lie between {_LEAST_VALUE:g} and {_MOST_VALUE:g} in an analog"
                f" federation, because symbols travel in single precision, got {uplink.peak:g};"
                " use other units for the parameters"
            )

    def _check_names(self) -> None:
        """Raise ``InvalidSetting`` unless there are no names, or one for each parameter in theta,
        all different, short and printable."""
        count = self.plan.dim - self.reports
        if len(self.names) not in (0, count):
            raise InvalidSetting(
                f"names must be {count}, one for each entry of theta, got {len(self.names)}"
            )
        if len(self.names) > _MOST_NAMES:
            raise InvalidSetting(
                f"names must be left out for more than {_MOST_NAMES} entries, got {count}"
            )
        names = checks.plain_names("names", self.names)
        object.__setattr__(self, "names", names)

    @classmethod
    def of(cls, run: str, plan: Plan, **given: Any) -> Federation:
        """A federation with a quorum of half the devices and the finest noise grid that the plan's
        largest symbol fits, unless ``given`` sets ``quorum`` or ``grid_bits`` (None: not given).
        Path gains that the plan reads from a trace file become a part of the plan."""
        chosen = {name: value for name, value in given.items() if value is not None}
        chosen.setdefault("quorum", -(-plan.num_devices // 2))
        # A plan must not refer to files of this machine, which other machines do not have.
        fading = plan.uplink.fading.without_files()
        if fading is not plan.uplink.fading:
            plan = replace(plan, uplink=replace(plan.uplink, fading=fading))
        if "grid_bits" not in chosen and not plan.uplink.noise_is_exact:
            chosen["grid_bits"] = _finest_grid(plan)
        return cls(run, plan, **chosen)

    @property
    def reports(self) -> bool:
        """Whether the last entry of theta is the devices' report, and not a parameter."""
        return self.model.endswith(SUFFIX)

    def may_transmit(self, round_number: int, device: int) -> bool:
        """Whether the plan's own schedule lets a device (from 0) transmit in a round (from 1),
        whatever the air announces."""
        active = self.plan.active
        return active is None or bool(active[round_number - 1, device] > 0)

    @cached_property
    def grid(self) -> NoiseGrid:
        """Grid of equally spaced amplitudes, in steps of which the air, the process that stands for
        the radio channel, adds up symbols and noise where the channel is software."""
        uplink = self.plan.uplink
        return NoiseGrid(uplink.noise_power, self.grid_bits, uplink.symbol_format.parts)

    @cached_property
    def least_gain(self) -> float:
        """Smallest gain (amplitude of a symbol at the air) at which the largest symbol ``peak``
        arrives at one step of the noise grid or more; nobody transmits in a round with a smaller
        gain."""
        # The margin covers the rounding of this division, so that a symbol surely reaches a step at
        # this gain.
        return self.grid.step / self.plan.uplink.peak * (1 + 1e-9)

    @cached_property
    def caps(self) -> Array:
        """Largest gains (amplitudes of a symbol at the air) that the plan allows, all finite,
        (1 or round, 1 or dim); an axis of length 1 means that all rounds, or all entries, have the
        same."""
        return finite_cap(self.plan.uplink, self.plan.gain)

    def cap(self, round_number: int) -> Array:
        """Largest gain (amplitude of a symbol at the air) that the plan allows in a round, counted
        from 1; (dim), or (1) if it is the same for all entries."""
        return np.asarray(self.caps[0 if len(self.caps) == 1 else round_number - 1])

    @cached_property
    def digest(self) -> bytes:
        """SHA-256, 32 bytes, of the canonical JSON of everything that the roles must agree on:
        wire version, name of the run, the plan's digest and the other settings."""
        document = {
            "wire": WIRE_VERSION, "run": self.run, "plan": self.plan.digest, **self._agreed
        }  # fmt: skip
        # Canonical: sorted keys, no spaces, ASCII only; another language must get the same bytes.
        text = json.dumps(document, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).digest()

    @property
    def _agreed(self) -> dict[str, Any]:
        """The settings beside run and plan on which all roles agree, by name; without names of
        entries, if there are none, so that such a federation has the digest that it always had."""
        names = {"names": list(self.names)} if self.names else {}
        return {**{name: getattr(self, name) for name in _AGREED}, **names}

    def binding(self, round_number: int, theta: Array) -> bytes:
        """SHA-256, 32 bytes, of the federation's digest, the round (from 1, four bytes) and the
        chain's position theta before the round, (dim) of eight bytes each, little-endian. A device
        puts it into its answer, which then counts for this theta alone."""
        data = np.ascontiguousarray(theta, dtype="<f8").tobytes()
        return hashlib.sha256(self.digest + struct.pack("<I", round_number) + data).digest()

    def to_document(self) -> dict[str, Any]:
        """The federation in plain values, for JSON; ``InvalidSetting`` for a plan with code that
        is not flmc's own, which no other role could read."""
        refuse_foreign(self.plan)
        return {
            "wire": WIRE_VERSION,
            "flmc": VERSION,
            "run": self.run,
            **self._agreed,
            "plan": self.plan.to_document(with_run=False),
            "digest": self.digest.hex(),
        }

    def to_bytes(self) -> bytes:
        """The federation as the JSON payload that the server publishes on the topic ``plan``."""
        return json.dumps(self.to_document(), allow_nan=False).encode()

    @classmethod
    def from_document(cls, document: Mapping[str, Any]) -> Federation:
        """The federation in the plain values of :meth:`to_document`; raises ``OtherVersion`` if
        they are of another wire version, and ``InvalidSetting`` if they are damaged, too large, or
        do not fit their digest."""
        wire = document.get("wire")
        if not isinstance(wire, int):
            raise InvalidSetting("this is not a federation: it names no wire version")
        if wire != WIRE_VERSION:
            raise OtherVersion(
                f"the run speaks wire version {wire}, and this flmc ({VERSION}) speaks"
                f" {WIRE_VERSION}: use the flmc that the server uses"
                f" ({str(document.get('flmc'))[:40]!r})"
            )
        model = document.get("model")
        if not isinstance(model, str) or len(model) > _LONGEST_MODEL:
            raise InvalidSetting(f"model must be a name of at most {_LONGEST_MODEL} characters")
        # Sizes and file names are checked before the plan is built, because building one computes
        # arrays of its sizes.
        refuse_large_document(document.get("plan"))
        refuse_files(document.get("plan"))
        try:
            plan = Plan.from_document(document["plan"])
            agreed = {name: document[name] for name in _AGREED}
            federation = cls(document["run"], plan, **agreed, names=document.get("names", ()))
            stated, digest = document["digest"], federation.digest.hex()
        except InvalidSetting:
            raise
        except Exception as error:  # a stranger wrote the document, so any exception is possible
            raise InvalidSetting(
                f"this is not a whole federation: {type(error).__name__}: {error}"
            ) from error
        if stated != digest:
            raise InvalidSetting(
                f"the federation was changed since it was made: its digest is {digest[:12]}, and it"
                f" says {str(stated)[:12]}"
            )
        return federation

    @classmethod
    def from_bytes(cls, payload: bytes) -> Federation:
        """The federation in a JSON payload of ``to_bytes``; raises ``OtherVersion`` for another
        wire version, and ``InvalidSetting`` if the payload holds no federation."""
        try:
            document = json.loads(payload)
        except (ValueError, RecursionError) as error:
            raise InvalidSetting(f"the plan is not valid JSON: {error}") from error
        if not isinstance(document, dict):
            raise InvalidSetting("the plan must be a JSON object")
        return cls.from_document(document)


def _finest_grid(plan: Plan) -> int:
    """Largest ``grid_bits`` (the noise has a standard deviation of 2^grid_bits steps) at which the
    plan's largest symbol still fits the noise grid; at most 20, unless the symbols of the weakest
    round need a finer grid."""
    uplink = plan.uplink
    deviation = math.sqrt(uplink.noise_power)
    values = uplink.symbol_format.levels is None
    caps = finite_cap(uplink, plan.gain)
    loudest = _loudest(plan) if values else float(caps.max())
    # The largest symbol may have 2^40 steps on a noise grid if symbols are bits or levels, and 2^18
    # if they are analog values, which travel in single precision.
    most = math.log2(_MOST_VALUE_STEPS) if values else 40
    # Smallest grid_bits, the logarithm of the noise's standard deviation in steps, at which the
    # weakest symbol arrives at 2^8 steps or more.
    needed = _SOFTEST_BITS - math.floor(math.log2(float(caps.min()) * uplink.peak / deviation))
    fitting = math.floor(most - math.log2(loudest * uplink.peak / deviation))
    return max(0, min(max(20, needed), fitting, MOST_BITS))


def _loudest(plan: Plan) -> float:
    """Largest gain with which symbols of the plan arrive at the air: the largest planned gain or,
    where devices know inexact channel estimates, a larger one, which symbols exceed with a small
    probability only. The privacy statement counts that probability."""
    extra, correlation = arrival_bound(plan.uplink, plan.dim)
    return (float(finite_cap(plan.uplink, plan.gain).max()) + extra) / correlation


def stated_digest(payload: bytes) -> str | None:
    """The federation's digest, in hexadecimal, that a JSON payload claims to have, unchecked; None
    if it claims none."""
    try:
        document = json.loads(payload)
    except (ValueError, RecursionError):
        return None
    stated = document.get("digest") if isinstance(document, dict) else None
    return stated if isinstance(stated, str) else None


_MOST = {"num_devices": 10**6, "dim": MOST_BYTES // 8, "num_rounds": 10**7}
"""Largest sizes of a plan by name; a larger plan is refused. Numbers of devices have at most six
digits, and theta must fit into one payload."""
_MOST_VARYING = 2**25
"""Largest product of rounds and entries, and of rounds and devices, in a plan whose gains, path
gains or devices change from round to round. A reader computes arrays of that size before it can
check the digest, and a short message must not take gigabytes of a device's memory."""


def refuse_large_document(document: object) -> None:
    """Raise ``InvalidSetting`` if the JSON document of a plan states more devices, entries or
    rounds than a federation may have, before anything is computed from the document."""
    if not isinstance(document, dict):
        raise InvalidSetting("this is not a federation: it has no plan")
    for name, most in _MOST.items():
        size = document.get(name)
        if type(size) is not int or not 1 <= size <= most:
            raise InvalidSetting(f"{name} of a plan must be a whole number from 1 to {most}")
    uplink, scheduler = document.get("uplink"), document.get("scheduler")
    fading = uplink.get("fading") if isinstance(uplink, dict) else None
    varies = (
        isinstance(document.get("gain"), list)
        or _type_of(fading) != ConstantFading.__name__
        or _type_of(scheduler) not in (AllDevices.__name__, None)
    )
    _refuse_sizes(document["num_rounds"], document["dim"], document["num_devices"], varies)


def _type_of(value: object) -> object:
    """The name of a class that a JSON value has under the key ``type``; None if the value is no
    object or has no such key."""
    return value.get("type") if isinstance(value, dict) else None


def refuse_large(plan: Plan) -> None:
    """Raise ``InvalidSetting`` if the arrays of a plan are so large that the other roles of a
    federation would refuse to read it."""
    still = plan.uplink.fading.constant and plan.uplink.fading.alike and plan.gain.size == 1
    varies = not (still and isinstance(plan.scheduler, AllDevices))
    _refuse_sizes(plan.num_rounds, plan.dim, plan.num_devices, varies)


def _refuse_sizes(num_rounds: int, dim: int, num_devices: int, varies: bool) -> None:
    """Raise ``InvalidSetting`` if a plan's arrays (round, entry) or (round, device) would take too
    much memory. Only a plan that ``varies`` has them: one whose gains, path gains or transmitting
    devices change from round to round."""
    for name, size in (("dim", dim), ("num_devices", num_devices)):
        if varies and num_rounds * size > _MOST_VARYING:
            raise InvalidSetting(
                f"num_rounds times {name} must be at most {_MOST_VARYING} in a federation whose"
                " gains, path gains or devices change from round to round; got"
                f" {num_rounds} times {size}"
            )


def refuse_files(document: object) -> None:
    """Raise ``InvalidSetting`` if a plan's document names a file of path gains at any depth: a
    message must not make a role open a file."""
    # The search keeps a list of values still to be visited, and does not recurse: a stranger's
    # deeply nested document must not exhaust the stack.
    waiting = [document]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            if value.get("type") == TraceFile.__name__:
                raise InvalidSetting(
                    "the plan names a file of path gains, which only its maker has: Federation.of"
                    " puts them into the plan"
                )
            waiting += value.values()
        elif isinstance(value, list) and any(isinstance(each, dict) for each in value):
            waiting += value
