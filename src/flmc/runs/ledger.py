"""The ledger: which devices transmitted at which gain, round by round, written before the symbols
are used.

An entry says what a round may spend at most: its gain is the plan's cap. It depends on the plan,
the seed and the number of the round alone, so the ledger of a run that was interrupted and went on
is that of a run that was not. A simulation that goes on repeats the very symbols of the rounds it
lost, so that nothing is spent twice. Where several data sets are simulated with devices drawn at
random, a device counts as active in a round if it is in any of them: an upper bound for each."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from itertools import zip_longest

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.planning.plans import Plan
from flmc.runs.files.append_log import Log
from flmc.sampling.schedule import draw_realised, draw_transmitting
from flmc.uplink.power import finite_cap


@dataclass(frozen=True)
class Ledger:
    """What a run writes into its ledger.

    Attributes
    ----------
    plan
        Gives the gain of every round, and who may transmit.
    seed
        Of the run: it decides who transmits where devices are drawn at random.
    num_experiments
        Data sets that are simulated.
    """

    plan: Plan
    seed: int = 0
    num_experiments: int = 1

    def entries(self, first: int, until: int) -> list[str]:
        """The entries of some rounds, as lines of JSON.

        Parameters
        ----------
        first, until
            Rounds number ``first`` to ``until - 1``, from 0; in the entries they are counted from
            1.

        Returns
        -------
        list of str
            For each round ``{"round": ..., "gain": [...], "silent": [...]}``: the gain of every
            entry (one number where they are equal), and the devices that did not transmit, from 0.
            Where the channel decides who transmits, the gain is the realised one, rounded up, and
            ``temperature`` is that of the round; null if nobody transmits.
        """
        plan, rounds = self.plan, range(first, until)
        if plan.scheduler.everyone and len(plan.gain) == 1:  # all alike but for their number
            same = self._what(0, [])
            return [f'{{"round":{index + 1},{same}' for index in rounds]
        if plan.scheduler.by_channel:
            return self._realised(rounds) if rounds else []
        active = (
            draw_transmitting(plan, self.seed, self.num_experiments, rounds) if rounds else None
        )
        found = []
        for index in rounds:
            silent = (
                []
                if active is None
                else [k for k, on in enumerate(active[index - first]) if not on]
            )
            found.append(f'{{"round":{index + 1},{self._what(index, silent)}')
        return found

    def _realised(self, rounds: range) -> list[str]:
        """The entries of rounds in which the channel decides who transmits how loudly."""
        active, gain, heat = draw_realised(self.plan, self.seed, self.num_experiments, rounds)
        caps = finite_cap(self.plan.uplink, self.plan.gain)
        found = []
        for index, who, loud, hot in zip(rounds, active, gain, heat, strict=True):
            cap = caps[0 if len(caps) == 1 else index]
            stated = np.minimum(_rounded_up(loud), cap)
            same = bool((stated == stated[0]).all())
            entry = {
                "round": index + 1,
                "gain": [float(value) for value in (stated[:1] if same else stated)],
                "silent": [k for k, on in enumerate(who) if not on],
                "temperature": round(float(hot), 6) if math.isfinite(hot) else None,
            }
            found.append(json.dumps(entry, separators=(",", ":")))
        return found

    def _what(self, index: int, silent: list[int]) -> str:
        """Gain of every entry (one number where they are equal) and silent devices, as JSON without
        the opening brace."""
        caps = self.plan.gain
        gain = finite_cap(self.plan.uplink, caps[0 if len(caps) == 1 else index])
        return json.dumps(
            {"gain": [float(value) for value in gain], "silent": silent}, separators=(",", ":")
        )[1:]

    def check(self, log: Log) -> None:
        """Refuse the ledger of another run, or one into which two processes wrote.

        Parameters
        ----------
        log
            The ledger on disk.

        Raises
        ------
        InvalidSetting
            If its entries are not those that this run would have written.
        """
        own = self.entries(0, min(len(log.entries), self.plan.num_rounds))
        if log.entries == own:
            return
        pairs = enumerate(zip_longest(log.entries, own))
        place, found = next((i, there) for i, (there, due) in pairs if there != due)
        if place and found in own[:place]:
            raise InvalidSetting(
                f"the ledger {str(log.path)!r} names round {own.index(found) + 1} again behind"
                f" round {place}: two processes wrote into it at the same time, where locks do not"
                " work; its run cannot go on: start it anew, in a place of its own"
            )
        raise InvalidSetting(f"the ledger {str(log.path)!r} belongs to another run")

    def spend(self, log: Log, until: int) -> None:
        """Record rounds up to ``until`` as spent, as far as they are not yet; return when they are
        on the disk.

        Parameters
        ----------
        log
            The ledger on disk.
        until
            The last round to record, counted from 1.
        """
        new = self.entries(len(log.entries), until)
        if new:
            log.append(new)


def _rounded_up(gain: Array) -> Array:
    """Gains rounded up to four significant digits: an upper bound, and few different ones, so that
    a long ledger is accounted in no time."""
    unit = 10.0 ** (np.floor(np.log10(np.maximum(gain, 1e-300))) - 3)
    return np.where(gain > 0, np.ceil(gain / unit * (1 - 1e-12)) * unit * (1 + 1e-12), 0.0)
