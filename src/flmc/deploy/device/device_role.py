"""The device's role: it joins or refuses a run, and answers every round once, with symbols made
from its gradient, a fixed time after it has received the round's theta and announcement."""

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
from flmc.deploy.device.local_model import LocalGradient, LocalMoves
from flmc.deploy.role import Dropped, Outgoing, Role
from flmc.deploy.sealing import Seal
from flmc.privacy.safe_noise.entropy import Entropy, SystemEntropy, draw_uniform
from flmc.sampling.roles import Transmission, device
from flmc.uplink.power import power_scale
from flmc.wire.federation import Federation, OtherVersion, stated_digest
from flmc.wire.messages import Announcement, DeviceAnswer, Theta, in_short
from flmc.wire.presence import Presence
from flmc.wire.topics import END, PLAN, ROUND, THETA, UPLINK, Topic, device_name
from flmc.wire.transport import Message

_FARTHEST = 1e100
"""Largest ratio of the announced gain to a path gain, or of a path gain to the gain, with which a
device transmits: beyond it the amplitude could overflow or underflow, so the announcement of the
round is ignored."""
MOST_PLAN_BYTES = 32 * 2**20
"""Size of the largest plan that a device reads, in bytes; larger ones are ignored."""
MakeGradient = Callable[[Federation], LocalGradient]
"""Function from an accepted federation to the function that computes the device's gradient."""


class DeviceRole(Role):
    """A device of a federation, the process of one owner of data: it joins or refuses a run, and
    answers every round once with symbols made from its gradient. ``seal`` encrypts to the air's key
    from the device's set-up; tests may replace ``entropy`` (random bits) and ``clock``
    (monotonic)."""

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
        """Reason for which the device refused the run; None if it joined or is still undecided."""
        self._gradient: LocalGradient | None = None
        self._announcements: dict[int, Announcement] = {}
        self._theta: Theta | None = None
        self._waiting: dict[str, bytes] = {}
        self._sent: int | None = None
        self._leaves = 0.0
        self._overran = 0

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topics that the device reads: plan, announcements of rounds, theta, and the end of the
        run."""
        return self.reads(PLAN, ROUND, THETA, END)

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers of the device for Prometheus by name: answered rounds of this run, answers that
        took longer than their slot, and the sum of epsilon that its answered runs count against the
        lifetime budget."""
        joined = self.journal.runs.get(self.run)
        counts = {"answers_total": joined.answers if joined else 0, "overran_total": self._overran}
        spent, _ = self.journal.spent(self.rules.budget.neighbouring)
        return {**counts, "epsilon_reserved": spent}

    def connected(self, now: float) -> list[Outgoing]:
        """The message with the device's presence; theta and announcements are forgotten, because
        the broker delivers them again on a new connection."""
        self._theta = self._sent = None
        self._announcements.clear()
        self._waiting.clear()
        return [self._own_presence()]

    def _own_presence(self) -> Outgoing:
        """The message that publishes the device's state in the run: here, joined or refused."""
        digest = "" if self.federation is None else self.federation.digest.hex()
        if self.refusal is not None:
            return self.presence(Presence("refused", self.refusal, digest))
        return self.presence(Presence("here" if self._gradient is None else "joined", "", digest))

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """Messages to publish in reply to the plan, an announcement, theta, or the end of the
        run; raises ``Dropped`` or ``Malformed`` to ignore the message."""
        if topic.who is not None or topic.what not in (PLAN, ROUND, THETA, END):
            raise Dropped("unknown-topic")
        if topic.what == END:
            return self.end(payload)
        if topic.what == PLAN:
            outgoing = self._take_plan(payload)
            for what in (ROUND, THETA):
                if self.federation is not None and what in self._waiting:
                    waiting = Message(self.topic(what), self._waiting.pop(what))
                    outgoing += self.receive(waiting, now)
            return outgoing
        if self.refusal is not None:
            raise Dropped("not-joined")
        if self.federation is None:
            # Retained messages arrive in any order: theta and announcements wait here for the plan.
            self._waiting[topic.what] = payload
            return []
        if topic.what == ROUND:
            return self._take_announcement(payload, now)
        return self._take_theta(payload, now)

    def _take_plan(self, payload: bytes) -> list[Outgoing]:
        """Accept the plan of the run, or refuse it; returns the message that publishes a refusal,
        and none otherwise. Raises ``Dropped`` if the payload holds no plan of this run."""
        if len(payload) > MOST_PLAN_BYTES:
            raise Dropped("oversized")
        if self.federation is not None and stated_digest(payload) == self.federation.digest.hex():
            # A repeated plan is ignored: the server publishes it again, and reading one takes time.
            return []
        try:
            federation = Federation.from_bytes(payload)
            if federation.run != self.run:
                raise Dropped("wrong-run")
            if self.federation is not None:
                raise Refused(
                    f"the plan changed in the run, from {self.federation.digest.hex()[:12]} to"
                    f" {federation.digest.hex()[:12]}"
                )
            consent.check_federation(federation, self.rules)
        except (OtherVersion, Refused) as error:
            return self._refuse(str(error))
        except InvalidSetting as error:
            raise Dropped("malformed", str(error)) from error
        self.federation = federation
        return []

    def _refuse(self, why: str) -> list[Outgoing]:
        """Leave the run for good, and return the message that publishes the refusal with its
        reason."""
        if self.refusal is None:
            self.log.error("refused: %s", why, extra={"event": "refused", "why": why})
        self.refusal, self.finished = why, True
        return [self._own_presence()]

    @property
    def farewell(self) -> Presence:
        """The presence that the device publishes last: its refusal of the run, which stays
        readable at the broker, or else ``gone``."""
        if self.refusal is None:
            return super().farewell
        return Presence("refused", self.refusal)

    def _take_announcement(self, payload: bytes, now: float) -> list[Outgoing]:
        """Take the announcement of a round, decide whether to join the run if that is still open,
        and return the messages to publish: the device's presence if it joined or refused, and its
        answer if theta is known. Raises ``Dropped`` if the announcement goes beyond the plan."""
        federation = self.federation
        assert federation is not None
        plan = federation.plan
        announced = Announcement.from_bytes(payload, plan.num_devices, plan.dim)
        if announced.digest != federation.digest:
            raise Dropped("wrong-run")
        if not 1 <= announced.round <= plan.num_rounds:
            raise Dropped("wrong-round")
        if (announced.gain > federation.cap(announced.round) * (1 + 1e-12)).any():
            raise Dropped("over-cap", "the announced gain is above the plan's")
        if not can_invert(announced, self.rules.device):
            raise Dropped("out-of-range", "a path gain")
        # Two announcements are kept, because the air announces the next round while the current one
        # is still going on.
        self._announcements[announced.round] = announced
        if len(self._announcements) > 2:
            del self._announcements[min(self._announcements)]
        # A repeated announcement asks for the answer again, unless the first one still waits for
        # the end of its slot.
        if self._sent == announced.round and now >= self._leaves:
            self._sent = None
        outgoing = self._join(federation, announced) if self._gradient is None else []
        return outgoing + self._answer(now)

    def _join(self, federation: Federation, announced: Announcement) -> list[Outgoing]:
        """Join the run, or refuse it if the privacy budget does not suffice, this machine is too
        slow, or round 1 is over and the journal does not know the run; returns the message with the
        device's new state, joined or refused."""
        if federation.run not in self.journal.runs and announced.round > 1:
            return self._refuse(
                f"the run is at round {announced.round}, and this journal knows nothing of it: a"
                " device joins before round 1 is over, or with the journal that it joined with"
            )
        try:
            price = consent.check_budget(federation, self.rules, self.journal)
            gradient = self._make_gradient(federation)
            work = partial(rehearse, gradient, federation.plan.dim, self._seal, self.journal)
            consent.check_pace(federation, work, self._clock)
        except (Refused, InvalidSetting) as error:
            return self._refuse(str(error))
        # The price is journaled before the first answer, so that a crash cannot lose the charge.
        if price is not None:
            self.journal.join(federation.run, federation.digest.hex(), price, announced.journal)
        self._gradient = gradient
        self.log.info("joined", extra={"event": "joined", "run": self.run})
        return [self._own_presence()]

    def _take_theta(self, payload: bytes, now: float) -> list[Outgoing]:
        """Take theta of a round, and return the answer to publish if the air has announced the
        round already; raises ``Dropped`` if theta is too large or of another run or round."""
        federation = self.federation
        assert federation is not None
        theta = Theta.from_bytes(payload, federation.plan.dim)
        if theta.digest != federation.digest:
            raise Dropped("wrong-run")
        # Written with "not all <=", so that NaN is refused too: every comparison with it is false.
        if not (np.abs(theta.theta) <= self.rules.largest_theta).all():
            raise Dropped("out-of-range", "theta")
        if not 1 <= theta.round <= federation.plan.num_rounds:
            raise Dropped("wrong-round")
        self._theta = theta
        return self._answer(now)

    def _answer(self, now: float) -> list[Outgoing]:
        """The message with the sealed answer to the round of the last theta, to be sent at the end
        of the slot: newly computed, or repeated from the journal. Empty if theta or the
        announcement is missing, the device is not scheduled, or the answer is already on its way.
        If the device's journal is an old copy, the device refuses the run; ``Dropped`` is raised
        for a question that it must not answer."""
        federation, theta, number = self.federation, self._theta, self.rules.device
        if federation is None or theta is None or self._gradient is None:
            return []
        asked = self._announcements.get(theta.round)
        if asked is None or not asked.scheduled[number] or self._sent == asked.round:
            return []
        if not federation.may_transmit(asked.round, number):
            raise Dropped("not-scheduled", "the plan has this device silent in the round")
        joined = self.journal.runs[self.run]
        # An air with another journal than at joining has forgotten what it published, and could add
        # fresh noise to the same symbols. Before this device's first answer that is harmless, and
        # the device joins again; after an answer it must not answer this air any more.
        if asked.journal != joined.air:
            if joined.answers:
                raise Dropped("stale-journal", consent.OTHER_AIR)
            joined = self.journal.join(self.run, joined.digest, joined.price, asked.journal)
        # If the air knows an answer that this journal does not, the journal is an old copy, and
        # answering again would be a second, uncounted look at the data.
        if asked.answered[number] > joined.round:
            return self._refuse(
                f"the air has an answer of this device to round {asked.answered[number]}, and its"
                f" journal ends with round {joined.round}: it is an older copy"
            )
        binding = federation.binding(theta.round, theta.theta)
        if theta.round < joined.round:
            raise Dropped("wrong-round", "the round was left behind")
        # A repeated question gets the journaled bytes again, never new random bits, which would
        # reveal more.
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
        """Compute the answer to a new round from the local gradient at theta, seal it to the air's
        key, and write it to the journal; raises ``Dropped`` if the device has answered as many
        rounds as the plan allows."""
        plan, joined = federation.plan, self.journal.runs[self.run]
        if joined.answers >= plan.scheduler.most_rounds(plan.num_rounds, plan.num_devices):
            raise Dropped("over-cap", "as many rounds as the plan allows were answered")
        assert self._gradient is not None
        if isinstance(self._gradient, LocalMoves):
            gradient, own = self._gradient.moved(theta.theta, joined.own, self._entropy)
        else:
            gradient, own = self._gradient(theta.theta), ()
        loudest = self.rules.largest_amplitude
        sent = transmit(gradient, federation, asked, self.rules.device, self._entropy, loudest)
        answer = DeviceAnswer(
            theta.round,
            self.rules.device,
            self.journal.name,
            self.journal.epoch + 1,
            binding,
            sent.symbols,
            in_short(sent.amplitude),
        )
        sealed = self._seal.close(answer.to_bytes(plan.uplink.symbol_format))
        gain = [float(each) for each in in_short(accounted(federation, asked.gain))]
        # The local parameters are journaled together with the answer that was computed from them.
        # After a restart they must not be moved a second time in this round: the chain would no
        # longer be the one that the plan describes.
        self.journal.answer(self.run, theta.round, binding, gain, sealed, own)

    def _slot_end(self, federation: Federation, now: float) -> float:
        """Time, in seconds on the monotonic clock, at which the device sends its answer to a
        round's question that arrived at ``now``: one slot of the federation later, or a whole
        number of slots where computing the answer took longer, which is counted and logged."""
        at, overran = slot_end(federation.slot_ms / 1000, now, self._clock())
        if overran:
            self._overran += 1
            overrun = {"event": "overran", "count": self._overran}
            self.log.error("an answer took longer than its slot", extra=overrun)
        return at


def transmit(
    gradient: Array,
    federation: Federation,
    announcement: Announcement,
    number: int,
    entropy: Entropy,
    largest_amplitude: float = float("inf"),
) -> Transmission:
    """Symbols and amplitudes, (dim) each, of the device ``number`` in the announced round, made
    from its ``gradient`` (dim) by :func:`flmc.sampling.roles.device` with random bits from
    ``entropy``.

    A device that would have to exceed its power limit to invert its channel transmits at the
    limit, and arrives softer than planned; ``largest_amplitude`` is a further limit of its
    owner.
    """
    uplink, dim = federation.plan.uplink, federation.plan.dim
    gain = np.broadcast_to(announcement.gain, (dim,))
    fading = np.broadcast_to(announcement.fading[number], (1, dim))
    uniform = draw_uniform((1, dim), entropy) if uplink.randomised else None
    sent = device(gradient[None], uniform, uplink, gain, fading)
    # The planned gain meets the power limit up to rounding. Without the margin of 1e-12 a scale of
    # 1 - 1e-16 would make a device arrive softer than planned for no reason.
    affordable = float(power_scale(uplink, gain, fading)) * (1 + 1e-12)
    amplitude = np.minimum(sent.amplitude[0] * min(1.0, affordable), largest_amplitude)
    return Transmission(sent.symbols[0], amplitude)


def can_invert(announcement: Announcement, number: int) -> bool:
    """Whether the transmit amplitudes of the device ``number``, announced gain over path gain, are
    so far from overflow and underflow that it can invert its channel."""
    with np.errstate(over="ignore", under="ignore"):
        wanted = announcement.gain / announcement.fading[number]
    return bool(((wanted > 1 / _FARTHEST) & (wanted < _FARTHEST)).all())


def slot_end(slot: float, asked: float, now: float) -> tuple[float, bool]:
    """Time at which an answer is sent, a whole number of slots after ``asked``, and whether
    computing it until ``now`` took longer than one slot; all times are in seconds."""
    # A late answer waits for the end of a whole slot, so that its delay reveals as little as
    # possible about the time of the computation.
    slots = max(1, math.ceil((now - asked) / slot))
    return asked + slots * slot, slots > 1


def rehearse(gradient: LocalGradient, dim: int, seal: Seal, journal: DeviceJournal) -> None:
    """Do the work of an answer (``gradient`` at theta 0 with ``dim`` entries, sealing, a write to
    the disk) without keeping or sending one, so that the caller can measure its time."""
    gradient(np.zeros(dim))
    # 12 zero bytes for each entry: about as long as an answer
    journal.rehearse(seal.close(bytes(12 * dim)))
