"""The server's role: theta out, received signal in, Langevin's step, commit, theta out."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping

import numpy as np

from flmc.deploy.accounting import accounted
from flmc.deploy.role import Dropped, Outgoing, Role, Timing
from flmc.deploy.server.federation_result import result_without_data
from flmc.deploy.server.server_record import ServerRecord
from flmc.planning.temperature import temperature
from flmc.runs.ledger_cost import spent_curve
from flmc.sampling.roles import server
from flmc.wire import topics
from flmc.wire.federation import Federation
from flmc.wire.messages import Received, Theta
from flmc.wire.presence import Presence
from flmc.wire.status import AirStatus, Status
from flmc.wire.topics import AIR_STATUS, ALIVE, END, PLAN, RECEIVED, STATUS, THETA, Topic

_SHARE = 0.02
"""Share of the time that accounting may take."""
_STATUS_SECONDS = 0.5
"""Seconds between two statuses, at least."""
_SECOND_THOUGHTS = 15.0
"""Seconds for which devices that have refused are waited for, once all others have joined."""


class ServerRole(Role):
    """The server of a federation.

    Parameters
    ----------
    federation, record
        The run, and where it is recorded.
    patience
        Seconds after which round 1 begins without devices that have not joined, if they are a
        quorum; before, all devices of the plan are waited for.
    wall_clock, clock
        Seconds since 1970, for the status, and the monotonic clock.
    """

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
        self._told = float("-inf")
        self._asked = float("-inf")
        self.failure: str | None = None
        """Why the run cannot go on; None: it can, or is finished."""

    @property
    def last_round(self) -> int:
        """Round after which the run ends: the last one that the budget affords."""
        return self.federation.plan.affordable_rounds

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """What was received, how the air stands, who is there."""
        return (*self.reads(RECEIVED, AIR_STATUS), self.topic(ALIVE, "+"))

    @property
    def next_wake(self) -> float | None:
        """When to say again what is asked, and how the run stands."""
        return self._told + _STATUS_SECONDS

    @property
    def _repeat_seconds(self) -> float:
        """Seconds after which theta is said again, if nothing was received."""
        return 3 * self.federation.deadline_ms / 1000

    @property
    def numbers(self) -> Mapping[str, float]:
        """Rounds that are done, devices in the last one, epsilon, median time of a round."""
        found: dict[str, float] = {"round": self.record.round, "active": self._active}
        if self._spending.epsilon is not None:
            found["epsilon"] = self._spending.epsilon
        median = self._rounds.median
        return found if median is None else {**found, "round_seconds": median}

    def connected(self, now: float) -> list[Outgoing]:
        """Say plan and theta again: the broker may have forgotten them.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        self._began = now if self._began is None else self._began
        if self._phase == "running" and self._round_began is None:
            self._round_began = now
        digest = self.federation.digest.hex()
        said = [
            self.presence(Presence("joined", "", digest)),
            self.say(PLAN, self.federation.to_bytes()),
            self.say(END, b""),  # an end of an earlier run of this name
        ]
        if self.record.round >= self.last_round:
            return [*said, *self._finish(now)]
        return [*said, *self._ask(now), self._status(now)]

    def _ask(self, now: float) -> list[Outgoing]:
        """Theta for the next round, once it may begin."""
        if self._phase != "running":
            return []
        self._asked = now
        theta = Theta(self.record.round + 1, self.federation.digest, self.record.theta)
        return [self.say(THETA, theta.to_bytes())]

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """What to publish because of a message.

        Parameters
        ----------
        topic, payload, now
            As :class:`~flmc.deploy.role.Role` says.
        """
        if topic.what == ALIVE and topic.who is not None:
            number = topics.device_number(topic.who)
            found = Presence.from_bytes(payload)
            if number is not None and number < self.federation.plan.num_devices:
                self._presence[number] = found
            return self._begin_if_ready(now)
        if topic.who is not None or topic.what not in (RECEIVED, AIR_STATUS):
            raise Dropped("unknown-topic")
        if topic.what == AIR_STATUS:
            self._air = AirStatus.from_bytes(payload)
            return []
        return self._take_received(payload, now)

    def _begin_if_ready(self, now: float) -> list[Outgoing]:
        """Begin with round 1 when all devices have joined or refused, or patience has ended."""
        if self._phase != "waiting":
            return []
        joined = self._count("joined")
        devices, patience = self.federation.plan.num_devices, self._patience
        if joined + self._count("refused") >= devices:
            # A device that has refused may come back with another budget, but not after long.
            patience = 0.0 if joined >= devices else min(patience, _SECOND_THOUGHTS)
        waited = self._began is not None and now - self._began >= patience
        if joined < self.federation.quorum or not waited:
            return []
        self._phase = "running"
        self.log.info("round 1 begins", extra={"event": "begins", "active": joined})
        self._round_began = now
        return [*self._ask(now), self._status(now)]

    def _count(self, state: str) -> int:
        """Devices in a state; those that joined another federation are not counted as joined."""
        digest = self.federation.digest.hex()
        return sum(
            each.state == state and (state != "joined" or each.digest == digest)
            for each in self._presence.values()
        )

    def _take_received(self, payload: bytes, now: float) -> list[Outgoing]:
        """Take Langevin's step, commit it, and ask for the next round."""
        federation, plan, record = self.federation, self.federation.plan, self.record
        found = Received.from_bytes(payload, plan.num_devices, plan.dim)
        number = record.round + 1
        if found.round == record.round and record.round > 0:
            raise Dropped("repeated")
        if found.round != number or self._phase != "running":
            raise Dropped("wrong-round")
        if found.binding != federation.binding(number, record.theta):
            raise Dropped("other-theta")
        if (found.gain > federation.cap(number) * (1 + 1e-9)).any():
            raise Dropped("over-cap")
        gain, signal = found.gain, found.values
        count = int(found.active.sum())
        if found.steps is not None:
            signal = federation.grid.values(found.steps)
            if count:  # in a round whose gain is below the grid nobody transmits
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
        record.commit(moved.theta, accounted(federation, found.gain), found.active, heat)
        self._commits.add(self._clock() - now)
        self._active, self._temperature = count, heat
        if self._round_began is not None:
            self._rounds.add(now - self._round_began)
        self._round_began = now
        if record.round >= self.last_round:
            return self._finish(now)
        said = self._ask(now)
        return said if now - self._told < _STATUS_SECONDS else [*said, self._status(now)]

    def wake(self, now: float) -> list[Outgoing]:
        """Say how the run stands; ask again if nothing came for long.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        said = self._begin_if_ready(now)
        if now - self._asked >= self._repeat_seconds:
            said += self._ask(now)
        if now - self._told >= _STATUS_SECONDS:
            said.append(self._status(now))
        return said

    def _finish(self, now: float) -> list[Outgoing]:
        """Write the result, and tell everybody that the run is over."""
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
        record.finish(result_without_data(plan, kept, seconds, record.ledger))
        self._phase = "finished"
        self.finished = True
        return [self._status(now, last=True), self.say(END, b'{"why":"finished"}')]

    def _fail(self, why: str, now: float) -> list[Outgoing]:
        """End a run that cannot go on, and say why."""
        self._phase, self.failure, self.finished = "failed", why, True
        self.log.error("failed: %s", why, extra={"event": "failed", "why": why})
        document = json.dumps({"why": why}).encode()
        return [self._status(now, last=True), self.say(END, document)]

    def _waits_for(self, now: float) -> str:
        """What the run waits for, in words; empty: for nothing unusual."""
        if self._phase == "waiting":
            counts = self._count("joined"), self._count("refused")
            return before_round_1(self.federation, *counts)
        if self._phase != "running" or self._round_began is None:
            return ""
        return for_answers(self.federation, self.record.round + 1, now - self._round_began)

    def _status(self, now: float, *, last: bool = False) -> Outgoing:
        """How the run stands, for everybody who may know it."""
        self._told = now
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
            temperature=self._temperature,
            round_seconds=self._rounds.median,
            answer_seconds=self._air.answer_seconds,
            receive_seconds=self._air.receive_seconds,
            commit_seconds=self._commits.median,
            dropped=self.drops.to_document(),
            dropped_air=self._air.dropped,
            repeats=self._air.repeats,
            why=why,
            unix_time=self._wall_clock(),
        )
        return self.say(STATUS, status.to_bytes())


class Spending:
    """Epsilon of the device that spent most, as of some round."""

    def __init__(self) -> None:
        self.epsilon: float | None = 0.0
        """The last one that was computed; None: it is unbounded."""
        self.round = 0
        """Round up to which it counts."""
        self._not_before = float("-inf")

    def update(self, record: ServerRecord, *, now: bool = False) -> None:
        """Compute it again if that has not cost too much time lately.

        Parameters
        ----------
        record
            Has the ledger.
        now
            Whether to compute it in any case.
        """
        plan, rounds = record.federation.plan, record.round
        began = time.monotonic()
        if rounds == self.round or plan.unknown_privacy is not None:
            return
        if began < self._not_before and not now:
            return
        curve = spent_curve(
            record.ledger[:rounds],
            plan.uplink,
            plan.limits,
            plan.num_devices,
            plan.dim,
            last_only=True,
        )
        self.epsilon = curve.epsilon if math.isfinite(curve.epsilon) else None
        self.round = rounds
        took = time.monotonic() - began
        self._not_before = began + took / _SHARE


def before_round_1(federation: Federation, joined: int, refused: int) -> str:
    """What is waited for before round 1.

    Parameters
    ----------
    federation
        The run.
    joined, refused
        Devices that have joined, and that do not want to.
    """
    devices, quorum = federation.plan.num_devices, federation.quorum
    said = f"{joined} of {devices} devices have joined, a quorum is {quorum}"
    return said + (f"; {refused} refused" if refused else "")


def for_answers(federation: Federation, round_number: int, seconds: float) -> str:
    """What is waited for in a round; empty as long as it takes no longer than two deadlines.

    Parameters
    ----------
    federation, round_number
        The run, and the round, counted from 1.
    seconds
        How long the round has taken so far.
    """
    if seconds <= 2 * federation.deadline_ms / 1000:
        return ""
    return (
        f"round {round_number} has had too few answers for {seconds:.0f} s; a quorum is"
        f" {federation.quorum} of {federation.plan.num_devices}"
    )
