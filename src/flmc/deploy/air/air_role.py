"""The role of the air, the process that stands for the radio channel: it announces rounds, collects
the devices' answers (their sealed symbols), and publishes the received signal of a round once.

Parts of it: the checks of an answer (:func:`open_answer`, :func:`check_loudness`), the devices for
which a round waits (:class:`Attendance`), and the rounds of the plan (:class:`AirSchedule`).
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Set
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.deploy.air.air_channel import Channel, RoundOnAir
from flmc.deploy.air.air_journal import AirJournal, JournalState
from flmc.deploy.role import Dropped, Outgoing, Role, Timing
from flmc.deploy.sealing import OVERHEAD, NotSealed, Opener
from flmc.planning.plans import Plan
from flmc.sampling.roles import Transmission
from flmc.sampling.schedule import Schedule, draw_schedule
from flmc.wire import topics
from flmc.wire.federation import Federation
from flmc.wire.messages import Announcement, DeviceAnswer, Received, Theta, in_short, largest_answer
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, END, RECEIVED, ROUND, THETA, UPLINK, Topic, device_number

_PATIENCE = 3
"""Number of rounds in a row in which a device misses the deadline, after which the air no longer
waits for that device."""
_STATUS_SECONDS = 1.0
"""Shortest time between two published statuses of the air, in seconds."""
_GATHER_SECONDS = 0.02
"""Seconds between the return of a device and the repeated announcement of the round, so that one
announcement serves all devices that return meanwhile. The time doubles with every announcement:
otherwise a device that comes and goes would make the air send to all devices without end."""


class _Taken(NamedTuple):
    """An answer of a device that the air accepted, kept until its round is closed: what the device
    sent, and the name and length of the device's journal."""

    sent: Transmission
    journal: JournalState


class AirRole(Role):
    """The air of a federation, the process that stands for the radio channel: it announces each
    round, collects the devices' answers, and publishes their sum with noise once. Raises
    ``InvalidSetting`` if the plan's privacy statement does not hold over the channel; ``clock`` is
    the monotonic clock that times the parts of a round."""

    def __init__(
        self,
        federation: Federation,
        journal: AirJournal,
        opener: Opener,
        channel: Channel,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(topics.AIR, federation.run)
        channel.check(federation)
        self.federation, self.journal = federation, journal
        self._opener, self._channel, self._clock = opener, channel, clock
        self._schedule = AirSchedule(federation.plan, journal.seed, federation.least_gain)
        self._attendance = Attendance()
        self._repeats, self._status_at = 0, float("-inf")
        self._answering, self._receiving = Timing(), Timing()
        self._begin(journal.round + 1)

    def _begin(self, round_number: int) -> None:
        """Begin the round of this number (from 1): the answers, theta and deadline of the round
        before are forgotten."""
        self._round = round_number
        self._over = round_number > self.federation.plan.num_rounds
        self._current = self._schedule.round(min(round_number, self.federation.plan.num_rounds))
        self._attempt = 0
        self._theta: bytes | None = None
        """Binding (SHA-256 of federation, round and theta) of this round; None until theta has
        come."""
        self._deadline: float | None = None
        self._announce_at, self._gather = float("inf"), _GATHER_SECONDS
        self._asked = 0.0
        self._taken: dict[int, _Taken] = {}
        self._missing = set(np.flatnonzero(self._current.devices).tolist())
        """Numbers (from 0) of the devices that are scheduled in the current round and have not
        answered it yet."""

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topics that the air reads: theta, the answers of all devices, all presences, and the end
        of the run."""
        return (*self.reads(THETA, END), self.topic(UPLINK, "+"), self.topic(ALIVE, "+"))

    @property
    def next_wake(self) -> float | None:
        """Time of the round's deadline or of its next repeated announcement, whichever is earlier,
        on the monotonic clock; None until the round's theta has come."""
        if self._deadline is None:
            return None
        return min(self._deadline, self._announce_at)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers of the air for Prometheus by name: the current round, the answers to it so far,
        and how often a round was repeated because it had too few answers."""
        return {"round": self._round, "answers": len(self._taken), "repeats_total": self._repeats}

    def connected(self, now: float) -> list[Outgoing]:
        """Messages that the air publishes on a new connection to the broker: its presence, the last
        received signal, the announcement of the current round (and of the next one, if theta of the
        current round has come), and its status."""
        digest = self.federation.digest.hex()
        outgoing = [self.presence(Presence("joined", "", digest))]
        announced = self._announcement(self._round, retain=True)
        if self._theta is not None:
            announced += self._announcement(self._round + 1, retain=True)
        return [*outgoing, *self._last_received(), *announced, self._status(now)]

    def _last_received(self) -> list[Outgoing]:
        """The message with the last received signal, in the same bytes as when it was first
        published; empty before the first round is closed."""
        last = self.journal.last
        return [] if last is None else [self.say(RECEIVED, last.to_bytes())]

    def _announcement(self, round_number: int, *, retain: bool) -> list[Outgoing]:
        """The message that announces a round: gain, path gains, scheduled devices, and the last
        closed round in which each device was active; empty after the last round. With ``retain``
        the broker keeps the message for devices that connect later."""
        # The next round is announced while answers to the current one are still coming, so that no
        # device has to wait for the announcement later. The broker retains the announcement of the
        # next round, for devices that connect meanwhile.
        if round_number > self.federation.plan.num_rounds:
            return []
        on_air, devices = self._schedule.round(round_number)
        announcement = Announcement(
            round_number,
            self.federation.digest,
            self._attempt if round_number == self._round else 0,
            in_short(on_air.gain),
            devices,
            self.journal.answered,
            in_short(on_air.fading),
            self.journal.name,
        )
        return [self.say(ROUND, announcement.to_bytes(), retain=retain)]

    def _status(self, now: float) -> Outgoing:
        """The message with the air's status, for the server and for observers: the current round,
        the number of repeated rounds, dropped messages by reason, and median times in seconds for
        collecting the answers of a round and for computing its signal."""
        document = {
            "run": self.run,
            "round": self._round,
            "repeats": self._repeats,
            "dropped": self.drops.to_document(),
            "answer_seconds": self._answering.median,
            "receive_seconds": self._receiving.median,
        }
        self._status_at = now
        return self.say(topics.AIR_STATUS, json.dumps(document).encode())

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """Messages to publish in reply to a presence, an answer, theta, or the end of the run;
        raises ``Dropped`` or ``Malformed`` to ignore the message."""
        if topic.what == ALIVE and topic.who is not None:
            return self._take_presence(topic.who, payload, now)
        if topic.what == UPLINK and topic.who is not None:
            return self._take_answer(topic.who, payload, now)
        if topic.who is not None or topic.what not in (THETA, END):
            raise Dropped("unknown-topic")
        if topic.what == END:
            return self.end(payload)
        return self._take_theta(payload, now)

    def _take_presence(self, who: str, payload: bytes, now: float) -> list[Outgoing]:
        """Note a device's newly published state. If the device came back, the round will be
        announced again; if no device is left to wait for, the round closes. Returns the messages
        that publish the closed round's signal, or none."""
        number = topics.device_number(who)
        state = Presence.from_bytes(payload).state
        if number is None or number >= self.federation.plan.num_devices:
            return []
        self._attendance.note_state(number, state)
        if self._theta is not None and number in self._missing and state in ("here", "joined"):
            # The device has come back. The broker retains only the latest announcement, that of
            # the next round, so the current round has to be announced again.
            self._announce_at = min(self._announce_at, now + self._gather)
        return self._close_if_complete(now)

    def _take_theta(self, payload: bytes, now: float) -> list[Outgoing]:
        """Take theta of the current round, start waiting for answers, and return the announcement
        of the next round (and the received signal at once, if no device is scheduled). Theta of the
        last closed round means that the server missed that round's signal, which is returned again.
        Raises ``Dropped`` for any other theta."""
        federation = self.federation
        theta = Theta.from_bytes(payload, federation.plan.dim)
        if theta.digest != federation.digest:
            raise Dropped("wrong-run")
        if not np.isfinite(theta.theta).all():
            raise Dropped("out-of-range", "theta")
        binding = federation.binding(theta.round, theta.theta)
        last = self.journal.last
        if last is not None and theta.round == last.round:
            # A round has one theta: answers to another one would be a second, uncounted look at the
            # data.
            if binding != last.binding:
                raise Dropped("other-theta")
            return self._last_received()
        if theta.round != self._round or self._over:
            raise Dropped("wrong-round")
        if self._theta is not None:
            if binding != self._theta:
                raise Dropped("other-theta")
            return []
        self._theta, self._asked = binding, now
        self._deadline = now + federation.deadline_ms / 1000
        outgoing = self._announcement(self._round + 1, retain=True)
        return outgoing if self._current.devices.any() else [*outgoing, *self._close(now)]

    def _take_answer(self, who: str, payload: bytes, now: float) -> list[Outgoing]:
        """Accept a device's answer to the current round, at most one from each device, and return
        the messages that close the round if no more answers are missing; raises ``Dropped`` or
        ``Malformed`` if the answer is not acceptable."""
        plan = self.federation.plan
        answer = open_answer(who, payload, plan, self._opener)
        number = answer.device
        self._attendance.heard(number)
        if answer.round != self._round or self._theta is None:
            raise Dropped("late" if answer.round <= self.journal.round else "wrong-round")
        if answer.binding != self._theta:
            raise Dropped("other-theta")
        if not self.journal.follows(number, answer.journal, answer.epoch):
            raise Dropped("stale-journal")
        if number not in self._missing:
            raise Dropped("repeated" if number in self._taken else "not-scheduled")
        check_loudness(answer, self._current.on_air)
        amplitude = np.broadcast_to(answer.amplitude, (plan.dim,))
        self._taken[number] = _Taken(
            Transmission(answer.symbols, amplitude), JournalState(answer.journal, answer.epoch)
        )
        self._missing.discard(number)
        return self._close_if_complete(now)

    @property
    def _needed(self) -> int:
        """Smallest number of answers with which the round closes; with fewer it repeats. It is the
        quorum's share of the scheduled devices, rounded up."""
        scheduled, all_devices = int(self._current.devices.sum()), self.federation.plan.num_devices
        return -(-scheduled * self.federation.quorum // all_devices)

    def _close_if_complete(self, now: float) -> list[Outgoing]:
        """Close the round if it has enough answers and every scheduled device that is present has
        answered; returns the messages to publish, empty if the round goes on."""
        if self._theta is None or len(self._taken) < self._needed:
            return []
        # This method runs after every answer, so it looks at the missing devices only: a loop over
        # all devices would cost the square of their number in each round.
        return [] if self._attendance.waits_for(self._missing) else self._close(now)

    def wake(self, now: float) -> list[Outgoing]:
        """Messages to publish because time has passed: the announcement once more for devices that
        have returned; or, at the deadline, the received signal, or the announcement once more if
        the answers are too few for the quorum."""
        if self._deadline is None or now < self._deadline:
            if now < self._announce_at:
                return []
            self._announce_at, self._gather = float("inf"), 2 * self._gather
            return self._announcement(self._round, retain=False)
        if len(self._taken) >= self._needed:
            for number in self._attendance.missed(self._missing):
                silent = {"event": "silent", "round": self._round, "device": number}
                self.log.warning("not waited for until it is heard again", extra=silent)
            return self._close(now)
        self._attempt, self._repeats = self._attempt + 1, self._repeats + 1
        self._deadline = now + self.federation.deadline_ms / 1000
        repeat = {"event": "repeat", "round": self._round, "attempt": self._attempt}
        self.log.warning("too few answers, the round repeats", extra=repeat)
        return [*self._announcement(self._round, retain=False), self._status(now)]

    def _close(self, now: float) -> list[Outgoing]:
        """Add up the round's answers and noise, write the received signal to the journal, and
        return the messages that publish it; the next round begins."""
        assert self._theta is not None
        on_air, _ = self._current
        sent = {number: taken.sent for number, taken in self._taken.items()}
        steps, values = self._channel.receive(on_air, sent)
        active = np.zeros(self.federation.plan.num_devices, dtype=bool)
        active[list(sent)] = True
        if self._channel.hears_all:
            active = self._current.devices.copy()
        received = Received(
            self._round, self._theta, active, in_short(on_air.gain), steps=steps, values=values
        )
        # The journal is written before the message is returned: after a crash between the two, the
        # same bytes are published. A second draw of noise on the same symbols would reveal more of
        # them than is accounted.
        self.journal.keep(received, {k: taken.journal for k, taken in self._taken.items()})
        self._answering.add(now - self._asked)
        self._receiving.add(self._clock() - now)
        self._begin(self._round + 1)
        outgoing = [self.say(RECEIVED, received.to_bytes())]
        if now - self._status_at >= _STATUS_SECONDS:
            outgoing.append(self._status(now))
        return outgoing


def open_answer(who: str, payload: bytes, plan: Plan, opener: Opener) -> DeviceAnswer:
    """The answer of a device in a sealed payload; ``who`` is the identity in the payload's topic,
    to which the broker lets nobody else write. Raises ``Dropped`` or ``Malformed`` for any other
    payload."""
    number = device_number(who)
    if number is None or number >= plan.num_devices:
        raise Dropped("wrong-identity")
    if len(payload) > largest_answer(plan.dim) + OVERHEAD:
        raise Dropped("oversized")
    try:
        opened = opener.open(payload)
    except NotSealed as error:
        raise Dropped("not-sealed") from error
    answer = DeviceAnswer.from_bytes(opened, plan.dim, plan.uplink.symbol_format)
    if answer.device != number:
        raise Dropped("wrong-identity")
    return answer


def check_loudness(answer: DeviceAnswer, on_air: RoundOnAir) -> None:
    """Raise ``Dropped`` if a device's answer would arrive, by its amplitude times the announced
    path gain, above the announced gain, for which the privacy cost is computed."""
    # NumPy's warning of an overflow is not needed: an infinite product is above the gain, too
    with np.errstate(over="ignore"):
        arrives = on_air.fading[answer.device] * answer.amplitude
    if (arrives > on_air.gain * (1 + 1e-9)).any():
        raise Dropped("over-cap")


class Attendance:
    """The absent devices, for which a round does not wait: devices that left, refused, or were
    silent until the deadlines of three rounds in a row.

    A device with a revoked certificate can neither answer nor say that it leaves, and a hanging one
    says nothing: each would make every round last until its deadline.
    """

    def __init__(self) -> None:
        self._absent = set[int]()
        self._missed = Counter[int]()

    def note_state(self, device: int, state: str) -> None:
        """Count a device as absent if its published ``state``, one of
        :data:`flmc.wire.presence.STATES`, is ``gone`` or ``refused``, and as present otherwise."""
        if state in ("gone", "refused"):
            self._absent.add(device)
        else:
            self.heard(device)

    def heard(self, device: int) -> None:
        """Note that a message of a device has arrived: the device counts as present again, with no
        missed deadlines."""
        self._absent.discard(device)
        self._missed.pop(device, None)

    def missed(self, devices: Iterable[int]) -> list[int]:
        """Note ``devices``, which were silent until the deadline of a closed round; returns the
        devices that count as absent from now on, because this was the third such round in a row."""
        silent = [device for device in devices if device not in self._absent]
        self._missed.update(silent)
        given_up = [device for device in silent if self._missed[device] >= _PATIENCE]
        self._absent.update(given_up)
        return given_up

    def waits_for(self, devices: Set[int]) -> bool:
        """Whether at least one of ``devices`` (numbers from 0) counts as present, so that the round
        waits for its answer."""
        return not devices <= self._absent


class ScheduledRound(NamedTuple):
    """A round as the air announces it.

    Attributes
    ----------
    on_air
        Gain, and path gains of all devices, in this round.
    devices
        Mask of the devices that should transmit, (device).
    """

    on_air: RoundOnAir
    devices: npt.NDArray[np.bool_]


class AirSchedule:
    """Gain, path gains and scheduled devices of every round, determined by the plan and a ``seed``,
    in the same way as in a simulation. Nobody is scheduled in a round whose gain is below
    ``least_gain``, because symbols would round to zero on the noise grid."""

    def __init__(self, plan: Plan, seed: int, least_gain: float = 0.0) -> None:
        self._plan, self._seed, self._least_gain = plan, seed, least_gain
        self._block = -1
        self._drawn: Schedule | None = None

    def round(self, number: int) -> ScheduledRound:
        """Gain, path gains and scheduled devices of a round, counted from 1."""
        block, index = divmod(number - 1, ROUNDS_PER_BLOCK)
        if self._drawn is None or block != self._block:
            self._drawn = draw_schedule(self._plan, self._seed, range(1), block)
            self._block = block
        drawn = self._drawn
        fading = np.asarray(drawn.fading[0, index])
        arriving = fading if drawn.arriving is None else np.asarray(drawn.arriving[0, index])
        devices = (
            np.ones(self._plan.num_devices, dtype=bool)
            if drawn.active is None
            else np.asarray(drawn.active[0, index] > 0)
        )
        gain = np.asarray(drawn.gain[0, index])
        if gain.min() < self._least_gain:
            devices = np.zeros_like(devices)
        return ScheduledRound(RoundOnAir(number, gain, fading, arriving), devices)
