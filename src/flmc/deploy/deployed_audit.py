"""The deployed path as a target of the privacy audit: the deployed code of devices and air, down to
the bytes of their messages.

:func:`flmc.evaluation.audit.attack.audit` takes :meth:`DeployedUplink.transmit` in place of its
own transmission. Devices quantise with the operating system's entropy, and encrypt and journal
their symbols; the air decrypts them, adds them on its noise grid, draws its noise from the
operating system and publishes the sum. Only the network and the waiting for slots are left out.

The adversary is the server, which chooses theta. Rounds of one run serve as independent trials:
a device's symbols depend on theta and on random bytes drawn for them alone, the noise is drawn for
each round alone, and neither depends on earlier rounds.
"""

from __future__ import annotations

import math
import tempfile
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.air.air_channel import SoftwareChannel
from flmc.deploy.air.air_journal import AirJournal
from flmc.deploy.air.air_role import AirRole, open_answer
from flmc.deploy.device.consent import Budget, Rules
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole, MakeGradient
from flmc.deploy.role import Outgoing
from flmc.deploy.sealing import Opener, Seal, new_keys
from flmc.evaluation.audit.attack import other_gradients
from flmc.evaluation.audit.scene import Scene
from flmc.planning.plans import Plan
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy
from flmc.wire.federation import Federation
from flmc.wire.messages import Received, Theta
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, PLAN, RECEIVED, ROUND, THETA, UPLINK, Topic, device_name
from flmc.wire.transport import Message

_RUN = "audit"
_MEMORY = Path("/dev/shm")
"""Directory for the audit's journals, in memory: faster than a disk, and nobody needs them
afterwards."""

_GONE = Presence("gone").to_bytes()


class Collected(NamedTuple):
    """Signals that the audit collected on the deployed path, (trial, round, entry) each.

    Attributes
    ----------
    received
        Signal that the air published, in steps of its noise grid.
    others
        Sum of the other devices' symbols as they arrive, in steps of the grid, decrypted with the
        air's secret key.
    symbols
        Symbols of the attacked device, decrypted with the same key.
    """

    received: IntArray
    others: IntArray
    symbols: Array


@dataclass(frozen=True)
class DeployedUplink:
    """The deployed path of a plan: the attacked device, one other device, and the air.

    The adversary knows the other devices' symbols and subtracts them, so one device stands for all
    of them; the plan's remaining devices are absent.

    Attributes
    ----------
    plan
        The plan. All rounds must have the same gain, and every device must be scheduled.
    grid_bits
        Fineness of the air's noise grid: about 2^bits steps make a standard deviation of the noise;
        None: the federation's default.
    make_entropy
        Makes the attacked device's source of random bits; tests substitute a broken one.
    """

    plan: Plan
    grid_bits: int | None = None
    make_entropy: Callable[[], Entropy] = SystemEntropy

    @property
    def federation(self) -> Federation:
        """The federation of the audit: the plan with a quorum of two devices (or one, if there is
        only one), because the other devices are absent."""
        quorum = min(2, self.plan.num_devices)
        return Federation.of(_RUN, self.plan, quorum=quorum, grid_bits=self.grid_bits)

    def transmit(
        self, scene: Scene, gradient: Array, trials: int, rng: np.random.Generator
    ) -> tuple[Array, Array]:
        """Received signal, and the part of it that the other devices contribute, (trial, round,
        entry) each in the unit of the gain, where the attacked device of the attack ``scene`` has
        the ``gradient`` (round, entry). ``rng`` is ignored, because nothing on the deployed path
        can be seeded."""
        collected = self.collect(scene, gradient, trials)
        grid = self.federation.grid
        return grid.values(collected.received), grid.values(collected.others)

    def collect(self, scene: Scene, gradient: Array, trials: int) -> Collected:
        """Signals of ``trials`` trials over the deployed path. In each trial the attacked device of
        the attack ``scene`` transmits its ``gradient``, (round, entry), not yet clipped. Raises
        ``InvalidSetting`` if a trial has more rounds than the plan."""
        local = other_gradients(scene)
        local[:, scene.attacked] = gradient
        at_once = self.plan.num_rounds // scene.num_rounds
        if not at_once:
            raise InvalidSetting(
                f"the plan has {self.plan.num_rounds} rounds, and a trial needs {scene.num_rounds}"
            )
        parts: list[Collected] = []
        for first in range(0, trials, at_once):
            with _new_run(self, scene, local) as run:
                parts.append(run.collect(min(at_once, trials - first)))
        return Collected(*(np.concatenate(each) for each in zip(*parts, strict=True)))


@contextmanager
def _new_run(uplink: DeployedUplink, scene: Scene, local: Array) -> Iterator[_Run]:
    """A new run of air and devices for the audit, where the devices have the gradients ``local``
    (round, device, entry); the journals of the run exist as long as the context."""
    place = _MEMORY if _MEMORY.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="flmc-audit-", dir=place) as directory:
        run = _Run(uplink, scene, local, Path(directory))
        try:
            yield run
        finally:
            run.close()


def _gradients(local: Array) -> MakeGradient:
    """Function from a federation to a device's gradient function, for the audit, where devices have
    no data: at a theta whose first entry is the whole number r, the gradient is ``local[r]``, with
    ``local`` (round, entry)."""
    return lambda federation: lambda theta: np.asarray(local[int(theta[0])])


class _Run:
    """One run of a real air and one or two real devices for the audit, in one process, with
    messages handed over as bytes in place of a network."""

    def __init__(self, uplink: DeployedUplink, scene: Scene, local: Array, directory: Path) -> None:
        self._scene, self._federation = scene, uplink.federation
        secret, public = new_keys()
        self._opener, channel = Opener(secret), SoftwareChannel(self._federation)
        journal = AirJournal(directory / "air", self._federation)
        self._air = AirRole(self._federation, journal, self._opener, channel)
        other = 0 if scene.attacked else 1
        self._devices: dict[str, DeviceRole] = {}
        for number in (scene.attacked, other)[: self._federation.plan.num_devices]:
            self._devices[device_name(number)] = DeviceRole(
                _RUN,
                Rules(
                    number,
                    self._federation.model,
                    Budget(epsilon=math.inf),
                    accept_data_dependent=True,
                ),
                DeviceJournal(directory / device_name(number)),
                Seal(public),
                _gradients(local[:, number]),
                uplink.make_entropy() if number == scene.attacked else None,
                clock=lambda: 0.0,  # a clock that stands still: no answer seems too slow
            )
        self._symbols: dict[str, Array] = {}
        self._received: Received | None = None
        self._start()

    def _start(self) -> None:
        """Start the audit's run: tell the air which devices are absent, give the plan to the
        attacked device and the other one, and let the air announce round 1."""
        for number in range(self._federation.plan.num_devices):
            if device_name(number) not in self._devices:
                gone = Message(self._air.topic(ALIVE, device_name(number)), _GONE)
                self._deliver(self._air.receive(gone, 0.0))
        plan = Message(self._air.topic(PLAN), self._federation.to_bytes())
        for device in self._devices.values():
            self._deliver([*device.connected(0.0), *device.receive(plan, 0.0)])
        self._deliver(self._air.connected(0.0))

    def _deliver(self, outgoing: list[Outgoing]) -> None:
        """Deliver messages to the air and the devices, and then their replies, until no message is
        left. The symbols of the devices and the received signal are noted on the way."""
        waiting = deque(each.message for each in outgoing)
        while waiting:
            message = waiting.popleft()
            topic = Topic.parse(message.topic)
            assert topic is not None
            replies: list[Outgoing] = []
            if topic.what == ROUND:
                for device in self._devices.values():
                    replies += device.receive(message, 0.0)
            elif topic.what in (ALIVE, UPLINK) and topic.who in self._devices:
                if topic.what == UPLINK:
                    plan = self._federation.plan
                    answer = open_answer(topic.who, message.payload, plan, self._opener)
                    self._symbols[topic.who] = answer.symbols
                replies = self._air.receive(message, 0.0)
            elif topic.what == RECEIVED:
                plan = self._federation.plan
                self._received = Received.from_bytes(message.payload, plan.num_devices, plan.dim)
            waiting.extend(each.message for each in replies)

    def collect(self, trials: int) -> Collected:
        """The signals of ``trials`` trials of the audit, one after the other in the rounds of this
        run, (trial, round, entry) each."""
        shape = (trials, self._scene.num_rounds, self._scene.dim)
        collected = Collected(np.zeros(shape, np.int64), np.zeros(shape, np.int64), np.zeros(shape))
        for trial in range(trials):
            for index in range(self._scene.num_rounds):
                number = trial * self._scene.num_rounds + index + 1
                parts = self._round(number, index)
                for into, part in zip(collected, parts, strict=True):
                    into[trial, index] = part
        return collected

    def _round(self, number: int, index: int) -> tuple[IntArray, IntArray, Array]:
        """Signals of one round, (entry) each: the received signal in steps of the grid, the other
        devices' part of it in steps, and the attacked device's symbols. ``number`` counts the run's
        rounds from 1, ``index`` the trial's rounds from 0. Raises ``RunFailed`` if the air
        publishes no signal."""
        theta = np.zeros(self._scene.dim)
        theta[0] = index
        asked = Theta(number, self._federation.digest, theta).to_bytes()
        message = Message(self._air.topic(THETA), asked)
        self._symbols.clear()
        replies = self._air.receive(message, 0.0)
        for device in self._devices.values():
            replies += device.receive(message, 0.0)
        self._deliver(replies)
        received = self._received
        if received is None or received.round != number or received.steps is None:
            refused = [str(each.refusal) for each in self._devices.values() if each.refusal]
            raise RunFailed(f"round {number} was not received: {'; '.join(refused) or 'no answer'}")
        gain = np.broadcast_to(received.gain, (self._scene.dim,))
        if not np.array_equal(gain, self._scene.gains[index]):
            raise InvalidSetting(
                "the deployed path is audited where all rounds have one gain; this plan's gains"
                " change from round to round"
            )
        grid, peak = self._federation.grid, self._federation.plan.uplink.peak
        own = self._symbols.pop(device_name(self._scene.attacked))
        others = np.zeros(self._scene.dim, dtype=np.int64)
        for symbols in self._symbols.values():
            # A device inverts its channel, so its symbols arrive with exactly the announced gain.
            others += grid.symbol_steps(symbols[None], gain, peak)[0]
        return received.steps, others, own

    def close(self) -> None:
        """Release the journals of the air and of the devices."""
        self._air.journal.close()
        for device in self._devices.values():
            device.journal.close()
