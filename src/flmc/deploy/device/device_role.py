"""The device's role: it consents to a plan, and answers every round once, in a fixed time."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from functools import partial

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.deploy.accounting import accounted
from flmc.deploy.device import consent
from flmc.deploy.device.consent import Refused, Rules
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.local_model import LocalGradient
from flmc.deploy.role import Dropped, Outgoing, Role
from flmc.deploy.sealing import Seal
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy, draw_uniform
from flmc.sampling.roles import Transmission, device
from flmc.uplink.power import power_scale
from flmc.wire.federation import Federation, OtherVersion, stated_digest
from flmc.wire.messages import Announcement, Answer, Theta, in_short
from flmc.wire.presence import Presence
from flmc.wire.topics import END, PLAN, ROUND, THETA, UPLINK, Topic, device_name
from flmc.wire.transport import Message

_FARTHEST = 1e100
"""Largest quotient of gain and path gain, or its inverse, that is computed with."""
MOST_PLAN_BYTES = 32 * 2**20
"""Bytes of a plan that a device reads, at most."""
MakeGradient = Callable[[Federation], LocalGradient]
"""The gradient of the local cost, for a federation that was agreed to."""


class DeviceRole(Role):
    """A device of a federation.

    Parameters
    ----------
    run
        Name of the run.
    rules
        What the device decides by itself.
    journal
        What it did before; it is written before anything is sent.
    seal
        Seals answers to the air's key, which the device was given when it was set up.
    make_gradient
        Gives the gradient of the local cost.
    entropy, clock
        Source of random bits, and the monotonic clock; tests put others in their place.
    """

    def __init__(
        self,
        run: str,
        rules: Rules,
        journal: DeviceJournal,
        seal: Seal,
        make_gradient: MakeGradient,
        entropy: Entropy | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(device_name(rules.device), run)
        self.rules, self.journal = rules, journal
        self._seal, self._make_gradient = seal, make_gradient
        self._entropy = entropy or SystemEntropy()
        self._clock = clock
        self.federation: Federation | None = None
        self.refusal: str | None = None
        """Why the device does not take part; None: it does, or nobody has asked yet."""
        self._gradient: LocalGradient | None = None
        self._announcements: dict[int, Announcement] = {}
        self._theta: Theta | None = None
        self._waiting: dict[str, bytes] = {}
        self._sent: int | None = None
        self._leaves = 0.0
        self._overran = 0

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Plan, theta, announcements, and the end of the run."""
        return self.reads(PLAN, ROUND, THETA, END)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Rounds that were answered, what runs may cost, answers that overran their slot."""
        joined = self.journal.runs.get(self.run)
        counts = {"answers_total": joined.answers if joined else 0, "overran_total": self._overran}
        return {**counts, "epsilon_reserved": self.journal.spent[0]}

    def connected(self, now: float) -> list[Outgoing]:
        """Say that the device is there; what it knew of the round is asked again.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        self._theta = self._sent = None
        self._announcements.clear()
        self._waiting.clear()
        return [self._own_presence()]

    def _own_presence(self) -> Outgoing:
        """Whether the device takes part."""
        digest = "" if self.federation is None else self.federation.digest.hex()
        if self.refusal is not None:
            return self.presence(Presence("refused", self.refusal, digest))
        return self.presence(Presence("here" if self._gradient is None else "joined", "", digest))

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """What to publish because of a message.

        Parameters
        ----------
        topic, payload, now
            As :class:`~flmc.deploy.role.Role` says.
        """
        if topic.who is not None or topic.what not in (PLAN, ROUND, THETA, END):
            raise Dropped("unknown-topic")
        if topic.what == END:
            return self.end(payload)
        if topic.what == PLAN:
            said = self._take_plan(payload)
            for what in (ROUND, THETA):
                if self.federation is not None and what in self._waiting:
                    waiting = Message(self.topic(what), self._waiting.pop(what))
                    said += self.receive(waiting, now)
            return said
        if self.refusal is not None:
            raise Dropped("not-joined")
        if self.federation is None:
            self._waiting[topic.what] = payload  # the plan is still to come
            return []
        if topic.what == ROUND:
            return self._take_announcement(payload, now)
        return self._take_theta(payload, now)

    def _take_plan(self, payload: bytes) -> list[Outgoing]:
        """Look at a plan, and refuse what does not suit the device."""
        if len(payload) > MOST_PLAN_BYTES:
            raise Dropped("oversized")
        if self.federation is not None and stated_digest(payload) == self.federation.digest.hex():
            return []  # it is known: reading a plan takes time
        try:
            found = Federation.from_bytes(payload)
            if found.run != self.run:
                raise Dropped("wrong-run")
            if self.federation is not None:
                raise Refused(
                    f"the plan changed in the run, from {self.federation.digest.hex()[:12]} to"
                    f" {found.digest.hex()[:12]}"
                )
            consent.check_federation(found, self.rules)
        except (OtherVersion, Refused) as error:
            return self._refuse(str(error))
        except InvalidSetting as error:
            raise Dropped("malformed", str(error)) from error
        self.federation = found
        return []

    def _refuse(self, why: str) -> list[Outgoing]:
        """Take part no more, and say why."""
        if self.refusal is None:
            self.log.error("refused: %s", why, extra={"event": "refused", "why": why})
        self.refusal, self.finished = why, True
        return [self._own_presence()]

    @property
    def farewell(self) -> Presence:
        """A refusal stays to be read; else the device is gone."""
        if self.refusal is None:
            return super().farewell
        return Presence("refused", self.refusal)

    def _take_announcement(self, payload: bytes, now: float) -> list[Outgoing]:
        """Join at the first announcement; answer if theta is known."""
        federation = self.federation
        assert federation is not None
        plan = federation.plan
        found = Announcement.from_bytes(payload, plan.num_devices, plan.dim)
        if found.digest != federation.digest:
            raise Dropped("wrong-run")
        if not 1 <= found.round <= plan.num_rounds:
            raise Dropped("wrong-round")
        if (found.gain > federation.cap(found.round) * (1 + 1e-12)).any():
            raise Dropped("over-cap", "the announced gain is above the plan's")
        if not can_invert(found, self.rules.device):
            raise Dropped("out-of-range", "a path gain")
        # The current round and the next one.
        self._announcements[found.round] = found
        if len(self._announcements) > 2:
            del self._announcements[min(self._announcements)]
        # Whoever asks again is answered again, but one answer waits at a time.
        if self._sent == found.round and now >= self._leaves:
            self._sent = None
        said = self._join(federation, found) if self._gradient is None else []
        return said + self._answer(now)

    def _join(self, federation: Federation, found: Announcement) -> list[Outgoing]:
        """Take part in the run, or refuse it."""
        if federation.run not in self.journal.runs and found.round > 1:
            return self._refuse(
                f"the run is at round {found.round}, and this journal knows nothing of it: a device"
                " joins before round 1 is over, or with the journal that it joined with"
            )
        try:
            price = consent.check_budget(federation, self.rules, self.journal)
            gradient = self._make_gradient(federation)
            work = partial(rehearse, gradient, federation.plan.dim, self._seal, self.journal)
            consent.check_pace(federation, work, self._clock)
        except (Refused, InvalidSetting) as error:
            return self._refuse(str(error))
        if price is not None:
            self.journal.join(federation.run, federation.digest.hex(), *price, found.journal)
        self._gradient = gradient
        self.log.info("joined", extra={"event": "joined", "run": self.run})
        return [self._own_presence()]

    def _take_theta(self, payload: bytes, now: float) -> list[Outgoing]:
        """Answer if the round is announced."""
        federation = self.federation
        assert federation is not None
        found = Theta.from_bytes(payload, federation.plan.dim)
        if found.digest != federation.digest:
            raise Dropped("wrong-run")
        if not (np.abs(found.theta) <= self.rules.largest_theta).all():  # NaN is not below
            raise Dropped("out-of-range", "theta")
        if not 1 <= found.round <= federation.plan.num_rounds:
            raise Dropped("wrong-round")
        self._theta = found
        return self._answer(now)

    def _answer(self, now: float) -> list[Outgoing]:
        """The answer to the round whose theta and announcement are known, new or repeated."""
        federation, theta, number = self.federation, self._theta, self.rules.device
        if federation is None or theta is None or self._gradient is None:
            return []
        asked = self._announcements.get(theta.round)
        if asked is None or not asked.scheduled[number] or self._sent == asked.round:
            return []
        if not federation.may_transmit(asked.round, number):
            raise Dropped("not-scheduled", "the plan has this device silent in the round")
        joined = self.journal.runs[self.run]
        if asked.journal != joined.air:
            if joined.answers:
                raise Dropped("stale-journal", consent.OTHER_AIR)
            price = joined.epsilon, joined.delta
            joined = self.journal.join(self.run, joined.digest, *price, asked.journal)
        if asked.answered[number] > joined.round:
            return self._refuse(
                f"the air has an answer of this device to round {asked.answered[number]}, and its"
                f" journal ends with round {joined.round}: it is an older copy"
            )
        binding = federation.binding(theta.round, theta.theta)
        if theta.round < joined.round:
            raise Dropped("wrong-round", "the round was left behind")
        if theta.round == joined.round:
            if binding != joined.binding:
                raise Dropped("other-theta")
        else:
            self._make_answer(federation, asked, theta, binding)
        self._sent = asked.round
        topic = self.topic(UPLINK, self.identity)
        self._leaves = self._slot_end(federation, now)
        return [Outgoing(Message(topic, joined.sealed), self._leaves)]

    def _make_answer(
        self, federation: Federation, asked: Announcement, theta: Theta, binding: bytes
    ) -> None:
        """Compute, seal and journal the answer to a new round."""
        plan, joined = federation.plan, self.journal.runs[self.run]
        if joined.answers >= plan.scheduler.most_rounds(plan.num_rounds, plan.num_devices):
            raise Dropped("over-cap", "as many rounds as the plan allows were answered")
        assert self._gradient is not None
        gradient, loudest = self._gradient(theta.theta), self.rules.largest_amplitude
        sent = transmit(gradient, federation, asked, self.rules.device, self._entropy, loudest)
        answer = Answer(
            theta.round,
            self.rules.device,
            self.journal.name,
            self.journal.epoch + 1,
            binding,
            sent.symbols,
            in_short(sent.amplitude),
        )
        sealed = self._seal.close(answer.to_bytes(plan.uplink.random_bits))
        gain = [float(each) for each in in_short(accounted(federation, asked.gain))]
        self.journal.answer(self.run, theta.round, binding, gain, sealed)

    def _slot_end(self, federation: Federation, now: float) -> float:
        """When the answer leaves."""
        at, overran = slot_end(federation.slot_ms / 1000, now, self._clock())
        if overran:
            self._overran += 1
            told = {"event": "overran", "count": self._overran}
            self.log.error("an answer took longer than its slot", extra=told)
        return at


def transmit(
    gradient: Array,
    federation: Federation,
    announcement: Announcement,
    number: int,
    entropy: Entropy,
    largest_amplitude: float = float("inf"),
) -> Transmission:
    """Symbols and amplitudes of one device.

    The roles of a simulation make them (:func:`flmc.sampling.roles.device`), with random bits from
    the source of entropy. A device that would have to be louder than its own power limit to invert
    its channel is as loud as the limit: it arrives softer than planned.

    Parameters
    ----------
    gradient
        Gradient of the local cost, (dim).
    federation, announcement
        The plan, and gain and path gains of the round.
    number
        Number of the device.
    entropy
        Source of the bits; the operating system's in a deployment.
    largest_amplitude
        A limit of the device's own.

    Returns
    -------
    Transmission
        Symbols and amplitudes, (dim).
    """
    uplink, dim = federation.plan.uplink, federation.plan.dim
    gain = np.broadcast_to(announcement.gain, (dim,))
    fading = np.broadcast_to(announcement.fading[number], (1, dim))
    uniform = draw_uniform((1, dim), entropy) if uplink.random_bits else None
    sent = device(gradient[None], uniform, uplink, gain, fading)
    # The planned gain keeps the limit up to its last digit, which must not be scaled down.
    affordable = float(power_scale(uplink, gain, fading)) * (1 + 1e-12)
    amplitude = np.minimum(sent.amplitude[0] * min(1.0, affordable), largest_amplitude)
    return Transmission(sent.symbols[0], amplitude)


def can_invert(announcement: Announcement, number: int) -> bool:
    """Whether a device's channel can be inverted in floating point.

    Parameters
    ----------
    announcement, number
        Gain and path gains of the round, and the number of the device.
    """
    with np.errstate(over="ignore", under="ignore"):
        wanted = announcement.gain / announcement.fading[number]
    return bool(((wanted > 1 / _FARTHEST) & (wanted < _FARTHEST)).all())


def slot_end(slot: float, asked: float, now: float) -> tuple[float, bool]:
    """When an answer leaves, and whether it took longer than a slot.

    It leaves a slot after the question; if it took longer, after more whole slots, so that its
    delay tells as little as possible.

    Parameters
    ----------
    slot
        Seconds of a slot.
    asked, now
        When the question was known, and when the answer is ready, on the monotonic clock.
    """
    slots = max(1, math.ceil((now - asked) / slot))
    return asked + slots * slot, slots > 1


def rehearse(gradient: LocalGradient, dim: int, seal: Seal, journal: DeviceJournal) -> None:
    """Do the work of an answer, of which nothing is kept or sent.

    Parameters
    ----------
    gradient, dim
        The gradient of the local cost, and its number of entries.
    seal, journal
        What seals answers, and what writes them to the disk.
    """
    gradient(np.zeros(dim))
    journal.rehearse(seal.close(bytes(12 * dim)))  # as long as an answer, about
