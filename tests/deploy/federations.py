"""Federations without a broker: roles in virtual time, and a network that carries their words."""

from __future__ import annotations

import heapq
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.data.linear_data import LinearData
from flmc.deploy.air.air_channel import Channel, SoftwareChannel
from flmc.deploy.air.air_journal import AirJournal
from flmc.deploy.air.air_role import AirRole
from flmc.deploy.device.consent import Budget, Rules
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.device.local_model import LocalGradient, local_gradient
from flmc.deploy.role import Outgoing, Role
from flmc.deploy.sealing import Opener, Seal, new_keys
from flmc.deploy.server.server_prior import prior_of
from flmc.deploy.server.server_record import ServerRecord
from flmc.deploy.server.server_role import ServerRole
from flmc.planning.plans import Plan
from flmc.privacy.safe_noise.entropy import Entropy
from flmc.uplink.uplink import Uplink
from flmc.wire.federation import Federation
from flmc.wire.messages import Announcement, DeviceAnswer, Theta
from flmc.wire.topics import PLAN, ROUND, THETA, Topic
from flmc.wire.transport import Message, matches

RoleKind = TypeVar("RoleKind", bound=Role)
DEVICES, DIM, ROUNDS = 4, 3, 6
DATA = flmc.data.draw_linear(seed=5, num_samples=80, dim=DIM, num_devices=DEVICES)
KEYS = new_keys()
MADE: list[Any] = []
"""Roles that a kit has made, to be closed after the test."""


def data_of(data: LinearData, device: int) -> LinearData:
    """The examples of one device."""
    parts = np.cumsum((0, *data.device_sizes))
    rows = slice(*parts[device : device + 2])
    size = int(parts[device + 1] - parts[device])
    return LinearData(data.features[rows], data.targets[rows], (size,))


def make_plan(
    uplink: Uplink | None = None, limits: flmc.Limits | None = None, **given: Any
) -> Plan:
    """A plan of a small federation, from public knowledge."""
    settings: dict[str, Any] = {
        "num_rounds": ROUNDS,
        "num_burn_in": 2,
        "step_size": 1e-3,
        "burn_in_step_factor": 1.0,
        "start": "zero",
        "public_smoothness": 120.0,
        "public_convexity": 60.0,
        "forecast": False,
    }
    model = flmc.LinearGaussian(DATA)
    return flmc.plan(model, uplink or flmc.Digital(), limits, **{**settings, **given})


def make_federation(plan: Plan | None = None, **given: Any) -> Federation:
    """A federation of that plan: a slot of 50 ms, a deadline of 1 s, a quorum of two devices."""
    settings: dict[str, Any] = {"quorum": 2, "slot_ms": 50, "deadline_ms": 1000}
    return Federation.of(given.pop("run", "test"), plan or make_plan(), **{**settings, **given})


class Clock:
    """A monotonic clock that tests move."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Counting:
    """A gradient that records where it was asked for."""

    def __init__(self, found: Callable[[Array], Array] = np.zeros_like) -> None:
        self.calls: list[Array] = []
        self._found = found

    def __call__(self, theta: Array) -> Array:
        self.calls.append(theta.copy())
        return self._found(theta)


def _made(role: RoleKind) -> RoleKind:
    MADE.append(role)
    return role


@dataclass
class Kit:
    """All that roles of a federation are made from, in one folder, on one clock."""

    folder: Path
    federation: Federation = field(default_factory=make_federation)
    clock: Clock = field(default_factory=Clock)

    def gradient(self, device: int) -> LocalGradient:
        """The gradient of a device's local cost."""
        model = flmc.LinearGaussian(data_of(DATA, device))
        plan = self.federation.plan
        reports = self.federation.reports
        return local_gradient(model, plan.uplink, plan.num_devices, dim=plan.dim, reports=reports)

    def device(
        self,
        number: int = 0,
        *,
        gradient: LocalGradient | None = None,
        entropy: Entropy | None = None,
        journal: str | None = None,
        **rules: Any,
    ) -> DeviceRole:
        """A device; its journal is that of its number, unless another is named."""
        computed = gradient or self.gradient(number)
        return _made(
            DeviceRole(
                self.federation.run,
                Rules(
                    number,
                    **{
                        "budget": Budget(epsilon=math.inf),
                        "model": self.federation.model,
                        **rules,
                    },
                ),
                DeviceJournal(self.folder / (journal or f"device-{number}")),
                Seal(KEYS[1]),
                lambda federation: computed,
                entropy or np.random.default_rng(number),
                self.clock,
            )
        )

    def air(self, *, seed: int = 99, channel: Channel | None = None) -> AirRole:
        """The air."""
        journal = AirJournal(self.folder / "air", self.federation)
        carried = channel or SoftwareChannel(self.federation, np.random.default_rng(seed))
        return _made(AirRole(self.federation, journal, Opener(KEYS[0]), carried))

    def server(
        self,
        *,
        start: Sequence[float] | None = None,
        patience: float = 60.0,
        prior: flmc.Normal | None = None,
    ) -> ServerRole:
        """The server; its configuration may state a prior."""
        at = np.zeros(self.federation.plan.dim) if start is None else np.array(start)
        known = prior_of(self.federation, prior)
        record = ServerRecord(self.folder / "record", self.federation, lambda: at, known)
        return _made(ServerRole(self.federation, record, patience, wall_clock=lambda: 1e9))

    # Messages as the roles would say them.

    def message(self, what: str, payload: bytes, who: str | None = None) -> Message:
        """A message to a topic of the run."""
        return Message(str(Topic(self.federation.run, what, who)), payload)

    def plan_message(self) -> Message:
        """The plan."""
        return self.message(PLAN, self.federation.to_bytes())

    def theta(self, round_number: int = 1, values: Sequence[float] | None = None) -> Message:
        """Theta of a round."""
        dim = self.federation.plan.dim
        at = np.zeros(dim) if values is None else np.array(values, dtype=float)
        return self.message(THETA, Theta(round_number, self.federation.digest, at).to_bytes())

    def announcement(self, round_number: int = 1, **changed: Any) -> Announcement:
        """What the air announces for a round."""
        plan = self.federation.plan
        usual = Announcement(
            round_number,
            self.federation.digest,
            0,
            np.asarray(plan.gain[0]),
            np.ones(plan.num_devices, dtype=bool),
            np.zeros(plan.num_devices, dtype=np.int64),
            np.full((plan.num_devices, 1), 0.04),
        )
        return replace(usual, **changed)

    def announce(self, round_number: int = 1, **changed: Any) -> Message:
        """The same as a message."""
        return self.message(ROUND, self.announcement(round_number, **changed).to_bytes())

    def opened(self, outgoing: Outgoing) -> DeviceAnswer:
        """The answer in a sealed message."""
        plan = self.federation.plan
        data = Opener(KEYS[0]).open(outgoing.message.payload)
        return DeviceAnswer.from_bytes(data, plan.dim, plan.uplink.symbol_format)


class Network:
    """A broker in virtual time, to which roles are connected; retained messages are kept."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.roles: list[Role] = []
        self.retained: dict[str, Message] = {}
        self.said: list[tuple[str, Message]] = []
        """Everything that was published, with who published it."""
        self._due: list[tuple[float, int, Role, Message]] = []
        self._order = itertools.count()
        self.carries: Callable[[Role, Message], bool] = lambda role, message: True
        """Whether a message of a role arrives at all."""

    def connect(self, *roles: Role) -> None:
        """Connect roles, one after the other."""
        for role in roles:
            self.roles.append(role)
            self._publish(role, role.connected(self.clock.now))
            for message in list(self.retained.values()):
                self._offer(role, message)

    def kill(self, role: Role) -> None:
        """A role dies: what it had not sent is lost, and the broker says that it is gone."""
        self.roles.remove(role)
        self._due = [each for each in self._due if each[2] is not role]
        heapq.heapify(self._due)
        self._deliver(role, role.will)

    def _publish(self, role: Role, outgoing: Sequence[Outgoing]) -> None:
        for message, at in outgoing:
            entry = (at or self.clock.now, next(self._order), role, message)
            heapq.heappush(self._due, entry)

    def _deliver(self, role: Role, message: Message) -> None:
        if not self.carries(role, message):
            return
        self.said.append((role.identity, message))
        if message.retain:
            if message.payload:
                self.retained[message.topic] = message
            else:
                self.retained.pop(message.topic, None)
        for other in list(self.roles):
            self._offer(other, message)

    def _offer(self, role: Role, message: Message) -> None:
        if not role.finished and any(matches(each, message.topic) for each in role.subscriptions):
            self._publish(role, role.receive(message, self.clock.now))

    def step(self) -> bool:
        """The next thing that happens; whether there was one."""
        wakes = [
            (role.next_wake, index)
            for index, role in enumerate(self.roles)
            if role.next_wake is not None and not role.finished
        ]
        wake = min(wakes, default=(float("inf"), -1))
        if self._due and self._due[0][0] <= wake[0]:
            at, _, role, message = heapq.heappop(self._due)
            self.clock.now = max(self.clock.now, at)
            if role in self.roles:
                self._deliver(role, message)
            return True
        if wake[1] < 0:
            return False
        self.clock.now = max(self.clock.now, float(wake[0] or 0.0))
        role = self.roles[wake[1]]
        self._publish(role, role.wake(self.clock.now))
        return True

    def run(self, until: Callable[[], bool] | None = None, *, most: int = 20_000) -> None:
        """Go on until something holds, by default until all roles are finished."""
        done = until or (lambda: all(role.finished for role in self.roles) and not self._due)
        for _ in range(most):
            if done():
                return
            if not self.step():
                break
        assert done(), f"nothing more happens at {self.clock.now:g} s"


def run_whole(kit: Kit, **server: Any) -> tuple[Network, AirRole, ServerRole, list[DeviceRole]]:
    """Run a whole federation, from the plan to its end."""
    network = Network(kit.clock)
    made, air = kit.server(**server), kit.air()
    devices = [kit.device(k) for k in range(kit.federation.plan.num_devices)]
    network.connect(made, air, *devices)
    network.run()
    return network, air, made, devices


def close(*roles: Any) -> None:
    """Release journals and records, as the end of a process does."""
    for role in roles:
        (role.record if isinstance(role, ServerRole) else role.journal).close()


def answers_of(said: Sequence[Outgoing]) -> list[Outgoing]:
    """Answers among what a device says."""
    return [each for each in said if "/uplink/" in each.message.topic]
