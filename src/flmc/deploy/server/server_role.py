"""The server's role: it publishes theta, takes the received signal, makes the Langevin step,
commits it, and publishes the next theta."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from flmc.base.findings import Finding, gravest
from flmc.deploy.accounting import accounted
from flmc.deploy.role import Dropped, Outgoing, Role, Timing
from flmc.deploy.server.federation_result import result_without_data
from flmc.deploy.server.server_record import ServerRecord
from flmc.models.parameters import Layout
from flmc.planning.temperature import temperature
from flmc.runs.ledger import planned_entries
from flmc.runs.ledger_cost import spent_curve
from flmc.sampling.roles import server
from flmc.wire import topics
from flmc.wire.federation import Federation
from flmc.wire.messages import Received, Theta
from flmc.wire.presence import Presence
from flmc.wire.status import AirStatus, Status
from flmc.wire.topics import AIR_STATUS, ALIVE, END, PLAN, RECEIVED, STATUS, THETA, Topic

_SHARE = 0.02
"""Largest share of the server's time that privacy accounting may take during a run: the next
computation of epsilon begins no sooner than this allows."""
_STATUS_SECONDS = 0.5
"""Shortest time between two published statuses of the server, in seconds."""
_SECOND_THOUGHTS = 15.0
"""Longest wait for round 1 once every device has joined or refused, in seconds from the server's
first connection: meanwhile an owner may restart a refusing device with another budget."""


class ServerRole(Role):
    """The server of a federation: it publishes theta, takes the received signal of each round, and
    makes the Langevin step. Round 1 begins when all devices have joined, or with a quorum after
    ``patience`` seconds (at most 15 if all others have refused); ``wall_clock`` (seconds since
    1970) stamps the status, ``clock`` is the monotonic clock."""

    def __init__(
        self,
        federation: Federation,
        record: ServerRecord,
        patience: float = 60.0,
        wall_clock: Callable[[], float] = time.time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(topics.SERVER, federation.run)
        self.federation, self.record = federation, record
        self._patience, self._wall_clock, self._clock = patience, wall_clock, clock
        self._presence: dict[int, Presence] = {}
        self._phase = "running" if record.round else "waiting"
        self._began: float | None = None
        self._round_began: float | None = None
        self._rounds, self._commits = Timing(), Timing()
        self._active = record.num_active[-1] if record.num_active else 0
        self._temperature: float | None = None
        self._spending = Spending()
        self._air = AirStatus()
        self._verdict = ""
        # Times of the last publication of status and theta; minus infinity makes both due at once.
        self._status_at = float("-inf")
        self._asked = float("-inf")
        self.failure: str | None = None
        """Reason for which the run cannot go on; None if it can, or is finished."""

    @property
    def last_round(self) -> int:
        """Number of the last round, from 1, that the plan's privacy budget affords, after which the
        run ends; 0 if it affords none."""
        return self.federation.plan.affordable_rounds

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Topics that the server reads: received signals, the air's status, and all presences."""
        return (*self.reads(RECEIVED, AIR_STATUS), self.topic(ALIVE, "+"))

    @property
    def next_wake(self) -> float | None:
        """Time on the monotonic clock at which the server publishes its next status."""
        return self._status_at + _STATUS_SECONDS

    @property
    def _repeat_seconds(self) -> float:
        """Seconds without a received signal after which the server publishes theta again: three
        deadlines of the air."""
        return 3 * self.federation.deadline_ms / 1000

    @property
    def numbers(self) -> Mapping[str, float]:
        """Numbers for Prometheus by name: committed rounds, active devices in the last one, epsilon
        of the whole run, and median time of a round in seconds; unknown ones are left out."""
        numbers: dict[str, float] = {"round": self.record.round, "active": self._active}
        if self._spending.epsilon is not None:
            numbers["epsilon"] = self._spending.epsilon
        median = self._rounds.median
        return numbers if median is None else {**numbers, "round_seconds": median}

    def connected(self, now: float) -> list[Outgoing]:
        """Messages that the server publishes on a new connection, because the broker may have
        forgotten them: presence, plan, theta (once rounds have begun) and status, or the end of a
        run without rounds left."""
        self._began = now if self._began is None else self._began
        if self._phase == "running" and self._round_began is None:
            self._round_began = now
        digest = self.federation.digest.hex()
        outgoing = [
            self.presence(Presence("joined", "", digest)),
            self.say(PLAN, self.federation.to_bytes()),
            self.say(END, b""),  # an empty payload clears the end of an earlier run with this name
        ]
        if self.record.round >= self.last_round:
            return [*outgoing, *self._finish(now)]
        return [*outgoing, *self._ask(now), self._status(now)]

    def _ask(self, now: float) -> list[Outgoing]:
        """The message with theta for the next round; empty unless the run is in progress."""
        if self._phase != "running":
            return []
        self._asked = now
        theta = Theta(self.record.round + 1, self.federation.digest, self.record.theta)
        return [self.say(THETA, theta.to_bytes())]

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """Messages to publish in reply to a presence, the air's status, or a received signal;
        raises ``Dropped`` or ``Malformed`` to ignore the message."""
        if topic.what == ALIVE and topic.who is not None:
            number = topics.device_number(topic.who)
            presence = Presence.from_bytes(payload)
            if number is not None and number < self.federation.plan.num_devices:
                self._presence[number] = presence
            return self._begin_if_ready(now)
        if topic.who is not None or topic.what not in (RECEIVED, AIR_STATUS):
            raise Dropped("unknown-topic")
        if topic.what == AIR_STATUS:
            self._air = AirStatus.from_bytes(payload)
            return []
        return self._take_received(payload, now)

    def _begin_if_ready(self, now: float) -> list[Outgoing]:
        """Begin round 1 if a quorum has joined and either all devices have joined or the server has
        waited long enough; returns the messages with theta and status, none if the run does not
        begin now."""
        if self._phase != "waiting":
            return []
        joined = self._count("joined")
        devices, patience = self.federation.plan.num_devices, self._patience
        if joined + self._count("refused") >= devices:
            # The owner of a refusing device may restart it with another budget: the server waits
            # for that, but not for long.
            patience = 0.0 if joined >= devices else min(patience, _SECOND_THOUGHTS)
        waited = self._began is not None and now - self._began >= patience
        if joined < self.federation.quorum or not waited:
            return []
        self._phase = "running"
        self.log.info("round 1 begins", extra={"event": "begins", "active": joined})
        self._round_began = now
        return [*self._ask(now), self._status(now)]

    def _count(self, state: str) -> int:
        """Number of devices whose last published state is ``state``, one of
        :data:`flmc.wire.presence.STATES`; a device that joined with another digest, and so another
        plan, does not count as joined."""
        digest = self.federation.digest.hex()
        return sum(
            each.state == state and (state != "joined" or each.digest == digest)
            for each in self._presence.values()
        )

    def _take_received(self, payload: bytes, now: float) -> list[Outgoing]:
        """Make the Langevin step from the received signal of the current round, write the new theta
        to the disk, and return the messages to publish: theta for the next round, or the end of the
        run. Raises ``Dropped`` or ``Malformed`` if the signal does not belong to the round."""
        federation, plan, record = self.federation, self.federation.plan, self.record
        received = Received.from_bytes(payload, plan.num_devices, plan.dim)
        number = record.round + 1
        if received.round == record.round and record.round > 0:
            raise Dropped("repeated")
        if received.round != number or self._phase != "running":
            raise Dropped("wrong-round")
        if received.binding != federation.binding(number, record.theta):
            raise Dropped("other-theta")
        if (received.gain > federation.cap(number) * (1 + 1e-9)).any():
            raise Dropped("over-cap")
        gain, signal = received.gain, received.values
        count = int(received.active.sum())
        if received.steps is not None:
            signal = federation.grid.values(received.steps)
            if count:  # nobody transmits in a round whose gain is below the noise grid's first step
                if (gain < federation.least_gain).any():
                    raise Dropped("out-of-range", "gain")
                gain = federation.grid.gain(gain, plan.uplink.peak)
        assert signal is not None, "a received signal has steps or values"
        step = float(plan.step_sizes[number - 1])
        with np.errstate(over="ignore", invalid="ignore"):
            moved = server(record.theta, signal, step, gain, plan.num_devices, float(count))
        if not np.isfinite(moved.theta).all():
            return self._fail(
                f"theta is not finite after round {number}: the step is too large for this model",
                now,
            )
        heat = None
        if count and plan.slope is not None:
            heat = temperature(
                plan.uplink, step, gain, plan.num_devices, float(count), plan.scheduler
            )
        # The new theta is committed before it is published: after a crash the server must publish
        # the same theta, because the air and the devices answer only one theta in each round.
        stated = accounted(federation, received.gain)
        record.commit(moved.theta, stated, received.active, heat, arrived=gain)
        self._commits.add(self._clock() - now)
        self._active, self._temperature = count, heat
        if self._round_began is not None:
            self._rounds.add(now - self._round_began)
        self._round_began = now
        if record.round >= self.last_round:
            return self._finish(now)
        asked = self._ask(now)
        return asked if now - self._status_at < _STATUS_SECONDS else [*asked, self._status(now)]

    def wake(self, now: float) -> list[Outgoing]:
        """Messages to publish because time has passed: the first theta if round 1 can begin, theta
        again if no signal has come for long, and the status."""
        outgoing = self._begin_if_ready(now)
        if now - self._asked >= self._repeat_seconds:
            outgoing += self._ask(now)
        if now - self._status_at >= _STATUS_SECONDS:
            outgoing.append(self._status(now))
        return outgoing

    def _finish(self, now: float) -> list[Outgoing]:
        """Write the result, and return the last status and the message that ends the run; a run
        cut short by its privacy budget counts as failed, and gets no result."""
        plan, record = self.federation.plan, self.record
        if record.round < plan.num_rounds:
            return self._fail(
                f"stopped after round {record.round} of {plan.num_rounds}: the next would overspend"
                f" the run's budget of epsilon {plan.limits.epsilon:g} at delta"
                f" {plan.limits.run_delta:g}",
                now,
            )
        kept = np.stack(record.thetas[plan.num_burn_in + 1 :])
        seconds = time.process_time()
        reports, names = self.federation.reports, self.federation.names
        before = np.stack(record.thetas[: plan.num_burn_in + 1])
        result = result_without_data(
            plan,
            kept,
            seconds,
            record.ledger,
            reports=reports,
            before=before[:, :-1] if reports else before,
            prior=record.prior,
            layout=Layout.of_names(names, len(names)) if names else None,
        )
        record.finish(result)
        self._verdict = verdict_on(result.findings)
        self._phase = "finished"
        self.finished = True
        return [self._status(now, last=True), self.say(END, b'{"why":"finished"}')]

    def _fail(self, why: str, now: float) -> list[Outgoing]:
        """End a run that cannot go on, and return the messages for the other roles: the last
        status, and the message that ends the run, each with the reason ``why``."""
        self._phase, self.failure, self.finished = "failed", why, True
        self.log.error("failed: %s", why, extra={"event": "failed", "why": why})
        document = json.dumps({"why": why}).encode()
        return [self._status(now, last=True), self.say(END, document)]

    def _waits_for(self, now: float) -> str:
        """Text for the status that says for which devices or answers the run waits; empty if it
        does not wait, or not longer than two deadlines."""
        if self._phase == "waiting":
            counts = self._count("joined"), self._count("refused")
            return before_round_1(self.federation, *counts)
        if self._phase != "running" or self._round_began is None:
            return ""
        return for_answers(self.federation, self.record.round + 1, now - self._round_began)

    def _status(self, now: float, *, last: bool = False) -> Outgoing:
        """The message with the status of the run. Its epsilons are the last computed ones, which
        may not yet include the newest rounds, except in the ``last`` status."""
        self._status_at = now
        plan, record = self.federation.plan, self.record
        self._spending.update(record, now=last)
        why = self.failure or self._waits_for(now)
        status = Status(
            run=self.run,
            phase=self._phase,
            round=record.round,
            num_rounds=plan.num_rounds,
            num_devices=plan.num_devices,
            active=self._active,
            present=dict(Counter(each.state for each in self._presence.values())),
            epsilon=self._spending.epsilon,
            delta=plan.limits.run_delta if plan.unknown_privacy is None else None,
            epsilon_round=self._spending.round,
            epsilon_so_far=self._spending.so_far,
            temperature=self._temperature,
            round_seconds=self._rounds.median,
            answer_seconds=self._air.answer_seconds,
            receive_seconds=self._air.receive_seconds,
            commit_seconds=self._commits.median,
            dropped=self.drops.to_document(),
            dropped_air=self._air.dropped,
            repeats=self._air.repeats,
            why=why,
            verdict=self._verdict,
            unix_time=self._wall_clock(),
        )
        return self.say(STATUS, status.to_bytes())


class Spending:
    """Epsilon of a whole run, and of its rounds so far, for the device that spends most. The server
    computes the two numbers only now and then, because computing them takes time."""

    def __init__(self) -> None:
        self.epsilon: float | None = 0.0
        """Last computed epsilon of all planned rounds, 0 before round 1 is done; None:
        unbounded."""
        self.so_far: float | None = 0.0
        """Last computed epsilon of the rounds that were done at that time; None: unbounded."""
        self.round = 0
        """Number of the last round whose epsilon is in ``so_far``."""
        self._not_before = float("-inf")

    def update(self, record: ServerRecord, *, now: bool = False) -> None:
        """Compute both epsilons, of the whole run and of its rounds so far, anew from the record's
        ledger. Do nothing if there is no new round or no privacy statement, or if the last
        computation is too recent and ``now`` is False."""
        plan, rounds = record.federation.plan, record.round
        began = time.monotonic()
        if rounds == self.round or plan.unknown_privacy is not None:
            return
        if began < self._not_before and not now:
            return
        caps = accounted(record.federation, record.federation.caps)
        curve = spent_curve(
            record.ledger[:rounds],
            plan.uplink,
            plan.limits,
            plan.num_devices,
            plan.dim,
            ahead=planned_entries(plan, caps, range(rounds, plan.affordable_rounds)),
            last_only=True,
        )
        self.epsilon, self.so_far = (
            value if math.isfinite(value) else None
            for value in (curve.epsilon, curve.epsilon_so_far)
        )
        self.round = rounds
        took = time.monotonic() - began
        # A computation of epsilon that took t seconds is followed by another no sooner than 50 t
        # seconds after its beginning, so that all of them take at most 2 % of the time.
        self._not_before = began + took / _SHARE


def verdict_on(findings: Sequence[Finding]) -> str:
    """The gravest findings on a finished run in words, for its status; a finding that something is
    not known counts as graver than a note. Empty if there are notes only."""
    worst = gravest(findings)
    if not worst:
        return ""
    return f"{worst[0].severity}: {'; '.join(each.short or each.message for each in worst)}"


def before_round_1(federation: Federation, joined: int, refused: int) -> str:
    """Text for the status before round 1: how many devices have joined and refused, and the quorum
    that is needed."""
    devices, quorum = federation.plan.num_devices, federation.quorum
    words = f"{joined} of {devices} devices have joined, a quorum is {quorum}"
    return words + (f"; {refused} refused" if refused else "")


def for_answers(federation: Federation, round_number: int, seconds: float) -> str:
    """Text for the status that says for how long a round has waited for answers, if these
    ``seconds`` are more than two deadlines; else empty."""
    if seconds <= 2 * federation.deadline_ms / 1000:
        return ""
    return (
        f"round {round_number} has had too few answers for {seconds:.0f} s; a quorum is"
        f" {federation.quorum} of {federation.plan.num_devices}"
    )
