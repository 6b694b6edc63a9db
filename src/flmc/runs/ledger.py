"""The ledger of a run: which devices transmitted at which gain, round by round, written to disk
before a round's symbols are used, so that the privacy cost can be computed from it.

An entry is an upper bound of what its round spends: its gain is the plan's cap or, where the
channel decides who transmits, the realised gain, rounded up. It depends only on the plan, the seed,
the number of data sets and the number of the round, so that an interrupted and resumed run has the
ledger of an uninterrupted one: a resumed run repeats the very symbols of the rounds that it lost,
and spends nothing twice. Where several data sets are simulated with devices drawn at random, a
device counts as active in a round if it is active in any of them: an upper bound for each."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.planning.plans import Plan
from flmc.planning.plans.expectation import rounded_up
from flmc.runs.files.append_log import Log
from flmc.sampling.schedule import draw_realised, draw_transmitting
from flmc.uplink.power import finite_cap


@dataclass(frozen=True)
class Ledger:
    """Makes the entries that a run writes into its ledger, one for each round."""

    plan: Plan
    seed: int = 0
    """Seed of the run: it decides who transmits where devices are drawn at random."""
    num_experiments: int = 1
    """Number of simulated data sets."""

    def entries(self, first: int, until: int) -> list[str]:
        """Ledger entries of the rounds ``first`` to ``until - 1``, counted from 0, as lines of JSON
        with the keys ``round`` (number from 1), ``gain`` (a list of one number, or one for each
        entry of theta) and ``silent`` (numbers, from 0, of the devices that do not transmit).

        The gain is the cap that the plan sets. Where the path gains decide who transmits, it is the
        realised gain, rounded up, and the key ``temperature`` has the temperature of the round,
        null if nobody transmits."""
        plan, rounds = self.plan, range(first, until)
        # If every device transmits in every round with one gain, entries differ only in the number
        # of the round, so the rest of the text is made once, to save time.
        if plan.scheduler.everyone and len(plan.gain) == 1:
            same = self._gain_and_silent(0, [])
            return [f'{{"round":{index + 1},{same}' for index in rounds]
        if plan.scheduler.by_channel:
            return self._realised(rounds) if rounds else []
        active = (
            draw_transmitting(plan, self.seed, self.num_experiments, rounds) if rounds else None
        )
        lines = []
        for index in rounds:
            silent = (
                []
                if active is None
                else [k for k, on in enumerate(active[index - first]) if not on]
            )
            lines.append(f'{{"round":{index + 1},{self._gain_and_silent(index, silent)}')
        return lines

    def _realised(self, rounds: range) -> list[str]:
        """Ledger entries, as lines of JSON, of ``rounds`` (counted from 0) of a plan in which the
        path gains decide who transmits and at which gain."""
        active, gain, heat = draw_realised(self.plan, self.seed, self.num_experiments, rounds)
        caps = finite_cap(self.plan.uplink, self.plan.gain)
        lines = []
        for index, who, loud, hot in zip(rounds, active, gain, heat, strict=True):
            cap = caps[0 if len(caps) == 1 else index]
            stated = np.minimum(rounded_up(loud), cap)  # the rounded gain must not exceed the cap
            same = bool((stated == stated[0]).all())
            entry = {
                "round": index + 1,
                "gain": [float(value) for value in (stated[:1] if same else stated)],
                "silent": [k for k, on in enumerate(who) if not on],
                "temperature": round(float(hot), 6) if math.isfinite(hot) else None,
            }
            lines.append(json.dumps(entry, separators=(",", ":")))
        return lines

    def _gain_and_silent(self, index: int, silent: list[int]) -> str:
        """The part of a ledger entry, as JSON text without the opening brace, that holds the gain
        of round ``index`` and the devices ``silent`` in it."""
        caps = self.plan.gain
        gain = finite_cap(self.plan.uplink, caps[0 if len(caps) == 1 else index])
        return json.dumps(
            {"gain": [float(value) for value in gain], "silent": silent}, separators=(",", ":")
        )[1:]

    def check(self, log: Log) -> None:
        """Raise ``InvalidSetting`` for a log that holds the ledger of another run, or into which
        two processes wrote."""
        own = self.entries(0, min(len(log.entries), self.plan.num_rounds))
        if log.entries == own:
            return
        pairs = enumerate(zip_longest(log.entries, own))
        place, entry = next((i, there) for i, (there, due) in pairs if there != due)
        if place and entry in own[:place]:
            raise InvalidSetting(
                f"the ledger {str(log.path)!r} names round {own.index(entry) + 1} again behind"
                f" round {place}: two processes wrote into it at the same time, where locks do not"
                " work; its run cannot go on: start it anew, in a place of its own"
            )
        raise InvalidSetting(f"the ledger {str(log.path)!r} belongs to another run")

    def spend(self, log: Log, until: int) -> None:
        """Append to the log the entries of the rounds up to number ``until`` (the first has number
        1), except those that it already has, and return when they are on the disk."""
        new = self.entries(len(log.entries), until)
        if new:
            log.append(new)


def planned_entries(plan: Plan, caps: Array, rounds: range) -> list[str]:
    """Ledger entries, as lines of JSON, of ``rounds`` (counted from 0) that have not begun, as an
    upper bound of what they will spend: the gain is its cap in ``caps`` (round or 1, dim or 1), and
    every device transmits except where the plan says that it is silent."""
    lines = []
    for index in rounds:
        gain = finite_cap(plan.uplink, caps[0 if len(caps) == 1 else index])
        silent = [] if plan.active is None else np.flatnonzero(plan.active[index] == 0).tolist()
        entry = {"round": index + 1, "gain": [float(value) for value in gain], "silent": silent}
        lines.append(json.dumps(entry, separators=(",", ":")))
    return lines


def rounds_seen(entries: Sequence[str], num_devices: int) -> tuple[Array, Array]:
    """Two arrays from the lines of a federation's ledger: how many devices answered, (round), and
    the gains with which their symbols arrived, (round, 1 or dim)."""
    rounds = [json.loads(line) for line in entries]
    active = np.array([float(num_devices - len(each["silent"])) for each in rounds])
    return active, np.array([each.get("arrived", each["gain"]) for each in rounds])
