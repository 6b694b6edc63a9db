"""The air's role: it announces rounds, collects answers, and publishes what was received, once."""

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
from flmc.wire.messages import Announcement, Answer, Received, Theta, in_short, largest_answer
from flmc.wire.presence import Presence
from flmc.wire.topics import ALIVE, END, RECEIVED, ROUND, THETA, UPLINK, Topic, device_number

_PATIENCE = 3
"""Rounds in a row whose deadline a device may miss before it is not waited for."""
_STATUS_SECONDS = 1.0
"""Seconds between two statuses of the air, at least."""
_GATHER_SECONDS = 0.02
"""Seconds for which devices that come back are gathered, before the round is announced again. They
double each time: else a device that comes and goes makes the air send to all without end."""


class _Taken(NamedTuple):
    """An answer that was taken, until its round is closed."""

    sent: Transmission
    journal: JournalState


class AirRole(Role):
    """The air of a federation.

    Parameters
    ----------
    federation
        The run, as the air was told it when it was set up.
    journal
        What was received before; it is written before anything is published.
    opener
        Opens what devices seal.
    channel
        What carries symbols.
    clock
        The monotonic clock, by which the parts of a round are timed.

    Raises
    ------
    InvalidSetting
        If the privacy statement of the plan does not hold over the channel.
    """

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
        self._repeats, self._told = 0, float("-inf")
        self._answering, self._receiving = Timing(), Timing()
        self._begin(journal.round + 1)

    def _begin(self, round_number: int) -> None:
        """Make ready for a round."""
        self._round = round_number
        self._over = round_number > self.federation.plan.num_rounds
        self._now = self._schedule.round(min(round_number, self.federation.plan.num_rounds))
        self._attempt = 0
        self._theta: bytes | None = None
        """Digest of federation, round and theta; None: theta is still to come."""
        self._deadline: float | None = None
        self._announce_at, self._gather = float("inf"), _GATHER_SECONDS
        self._asked = 0.0
        self._taken: dict[int, _Taken] = {}
        self._missing = set(np.flatnonzero(self._now.devices).tolist())
        """Devices that are scheduled and have not answered."""

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Theta, all uplinks, who is there, and the end of the run."""
        return (*self.reads(THETA, END), self.topic(UPLINK, "+"), self.topic(ALIVE, "+"))

    @property
    def next_wake(self) -> float | None:
        """The deadline of the round, once theta is known; before it, to announce it again."""
        if self._deadline is None:
            return None
        return min(self._deadline, self._announce_at)

    @property
    def numbers(self) -> Mapping[str, float]:
        """The current round, answers in it, and rounds that were announced again."""
        return {"round": self._round, "answers": len(self._taken), "repeats_total": self._repeats}

    def connected(self, now: float) -> list[Outgoing]:
        """Say what was received last and what comes next.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        digest = self.federation.digest.hex()
        said = [self.presence(Presence("joined", "", digest))]
        announced = self._announcement(self._round, retain=True)
        if self._theta is not None:
            announced += self._announcement(self._round + 1, retain=True)
        return [*said, *self._last_received(), *announced, self._status(now)]

    def _last_received(self) -> list[Outgoing]:
        """The same bytes as when they were first published."""
        last = self.journal.last
        return [] if last is None else [self.say(RECEIVED, last.to_bytes())]

    def _announcement(self, round_number: int, *, retain: bool) -> list[Outgoing]:
        """A round as it is public before it; nothing behind the last round.

        The next round is announced while answers to the current one are waited for, so that nobody
        waits for it later; its announcement is the one that is kept for those who come."""
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
        """How the air stands, for the server and for observers."""
        document = {
            "run": self.run,
            "round": self._round,
            "repeats": self._repeats,
            "dropped": self.drops.to_document(),
            "answer_seconds": self._answering.median,
            "receive_seconds": self._receiving.median,
        }
        self._told = now
        return self.say(topics.AIR_STATUS, json.dumps(document).encode())

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """What to publish because of a message.

        Parameters
        ----------
        topic, payload, now
            As :class:`~flmc.deploy.role.Role` says.
        """
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
        """Learn who is there: the dead are not waited for."""
        number = topics.device_number(who)
        state = Presence.from_bytes(payload).state
        if number is None or number >= self.federation.plan.num_devices:
            return []
        self._attendance.said(number, state)
        if self._theta is not None and number in self._missing and state in ("here", "joined"):
            # It has come back, and knows the announcement of the next round only.
            self._announce_at = min(self._announce_at, now + self._gather)
        return self._close_if_complete(now)

    def _take_theta(self, payload: bytes, now: float) -> list[Outgoing]:
        """Begin to wait for answers; say again what was received if the server missed it."""
        federation = self.federation
        found = Theta.from_bytes(payload, federation.plan.dim)
        if found.digest != federation.digest:
            raise Dropped("wrong-run")
        if not np.isfinite(found.theta).all():
            raise Dropped("out-of-range", "theta")
        binding = federation.binding(found.round, found.theta)
        last = self.journal.last
        if last is not None and found.round == last.round:
            if binding != last.binding:
                raise Dropped("other-theta")
            return self._last_received()
        if found.round != self._round or self._over:
            raise Dropped("wrong-round")
        if self._theta is not None:
            if binding != self._theta:
                raise Dropped("other-theta")
            return []
        self._theta, self._asked = binding, now
        self._deadline = now + federation.deadline_ms / 1000
        said = self._announcement(self._round + 1, retain=True)
        return said if self._now.devices.any() else [*said, *self._close(now)]

    def _take_answer(self, who: str, payload: bytes, now: float) -> list[Outgoing]:
        """Take a device's answer to the current round, at most once."""
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
        check_loudness(answer, self._now.on_air)
        amplitude = np.broadcast_to(answer.amplitude, (plan.dim,))
        self._taken[number] = _Taken(
            Transmission(answer.symbols, amplitude), JournalState(answer.journal, answer.epoch)
        )
        self._missing.discard(number)
        return self._close_if_complete(now)

    @property
    def _needed(self) -> int:
        """Answers without which the round repeats: the quorum's share of those scheduled."""
        scheduled, all_devices = int(self._now.devices.sum()), self.federation.plan.num_devices
        return -(-scheduled * self.federation.quorum // all_devices)

    def _close_if_complete(self, now: float) -> list[Outgoing]:
        """Close the round if everybody answered who is scheduled and there."""
        if self._theta is None or len(self._taken) < self._needed:
            return []
        # No loop over all devices here: it would take the square of their number in a round.
        return [] if self._attendance.waits_for(self._missing) else self._close(now)

    def wake(self, now: float) -> list[Outgoing]:
        """At the deadline: close the round, or announce it again if answers are too few.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        if self._deadline is None or now < self._deadline:
            if now < self._announce_at:
                return []
            self._announce_at, self._gather = float("inf"), 2 * self._gather
            return self._announcement(self._round, retain=False)
        if len(self._taken) >= self._needed:
            for number in self._attendance.missed(self._missing):
                told = {"event": "silent", "round": self._round, "device": number}
                self.log.warning("not waited for until it is heard again", extra=told)
            return self._close(now)
        self._attempt, self._repeats = self._attempt + 1, self._repeats + 1
        self._deadline = now + self.federation.deadline_ms / 1000
        told = {"event": "repeat", "round": self._round, "attempt": self._attempt}
        self.log.warning("too few answers, the round repeats", extra=told)
        return [*self._announcement(self._round, retain=False), self._status(now)]

    def _close(self, now: float) -> list[Outgoing]:
        """Receive the round, record it, publish it, and announce the next one."""
        assert self._theta is not None
        on_air, _ = self._now
        sent = {number: taken.sent for number, taken in self._taken.items()}
        steps, values = self._channel.receive(on_air, sent)
        active = np.zeros(self.federation.plan.num_devices, dtype=bool)
        active[list(sent)] = True
        if self._channel.hears_all:
            active = self._now.devices.copy()
        received = Received(
            self._round, self._theta, active, in_short(on_air.gain), steps=steps, values=values
        )
        self.journal.keep(received, {k: taken.journal for k, taken in self._taken.items()})
        self._answering.add(now - self._asked)
        self._receiving.add(self._clock() - now)
        self._begin(self._round + 1)
        said = [self.say(RECEIVED, received.to_bytes())]
        if now - self._told >= _STATUS_SECONDS:
            said.append(self._status(now))
        return said


def open_answer(who: str, payload: bytes, plan: Plan, opener: Opener) -> Answer:
    """The answer in a sealed payload.

    Parameters
    ----------
    who
        Identity in the topic, which the broker vouches for.
    payload
        Bytes from anybody.
    plan, opener
        Gives the sizes, and opens what devices seal.

    Raises
    ------
    Dropped
        If it is too large, not sealed to the air's key, or of another device.
    Malformed
        If what was sealed is no answer.
    """
    number = device_number(who)
    if number is None or number >= plan.num_devices:
        raise Dropped("wrong-identity")
    if len(payload) > largest_answer(plan.dim) + OVERHEAD:
        raise Dropped("oversized")
    try:
        opened = opener.open(payload)
    except NotSealed as error:
        raise Dropped("not-sealed") from error
    answer = Answer.from_bytes(opened, plan.dim, plan.uplink.random_bits)
    if answer.device != number:
        raise Dropped("wrong-identity")
    return answer


def check_loudness(answer: Answer, on_air: RoundOnAir) -> None:
    """Refuse an answer that would arrive louder than was announced, which is what is accounted.

    Parameters
    ----------
    answer, on_air
        The answer, and the round with its gain, which is at most the plan's cap.

    Raises
    ------
    Dropped
        If an entry is too loud.
    """
    with np.errstate(over="ignore"):  # infinite is over the cap
        arrives = on_air.fading[answer.device] * answer.amplitude
    if (arrives > on_air.gain * (1 + 1e-9)).any():
        raise Dropped("over-cap")


class Attendance:
    """Devices that are not waited for.

    A device whose certificate was revoked can say neither an answer nor that it is gone, and one
    that hangs says nothing either: each would make every round last until its deadline.
    """

    def __init__(self) -> None:
        self._absent = set[int]()
        self._missed = Counter[int]()

    def said(self, device: int, state: str) -> None:
        """Hear of a device's state.

        Parameters
        ----------
        device, state
            Its number, and one of :data:`flmc.wire.presence.STATES`.
        """
        if state in ("gone", "refused"):
            self._absent.add(device)
        else:
            self.heard(device)

    def heard(self, device: int) -> None:
        """Note that a device is there: it has spoken.

        Parameters
        ----------
        device
            Its number.
        """
        self._absent.discard(device)
        self._missed.pop(device, None)

    def missed(self, devices: Iterable[int]) -> list[int]:
        """Note who was silent until the deadline of a round that was closed.

        Parameters
        ----------
        devices
            Their numbers.

        Returns
        -------
        list of int
            Those who are not waited for from now on, until they are heard again.
        """
        silent = [device for device in devices if device not in self._absent]
        self._missed.update(silent)
        given_up = [device for device in silent if self._missed[device] >= _PATIENCE]
        self._absent.update(given_up)
        return given_up

    def waits_for(self, devices: Set[int]) -> bool:
        """Whether any of some devices is waited for.

        Parameters
        ----------
        devices
            Their numbers.
        """
        return not devices <= self._absent


class Scheduled(NamedTuple):
    """A round as it is announced.

    Attributes
    ----------
    on_air
        The round.
    devices
        Who is to transmit, (device).
    """

    on_air: RoundOnAir
    devices: npt.NDArray[np.bool_]


class AirSchedule:
    """The rounds of a plan, drawn in blocks as a simulation draws them.

    Parameters
    ----------
    plan, seed
        The plan, and the seed of what is random; both decide every round.
    least_gain
        Nobody is scheduled in a round with a gain below it: the fade is too deep for the grid.
    """

    def __init__(self, plan: Plan, seed: int, least_gain: float = 0.0) -> None:
        self._plan, self._seed, self._least_gain = plan, seed, least_gain
        self._block = -1
        self._drawn: Schedule | None = None

    def round(self, number: int) -> Scheduled:
        """What is fixed for a round.

        Parameters
        ----------
        number
            The round, counted from 1.
        """
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
        return Scheduled(RoundOnAir(number, gain, fading, arriving), devices)
