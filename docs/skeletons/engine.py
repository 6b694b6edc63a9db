"""An engine of your own: what advances the chains of a run.

This one runs the chains one after the other through the three roles of a round, with random numbers
of its own order. It is slow, and short enough to begin from."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.clipping import count_clipped
from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose, generator
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling import langevin
from flmc.sampling.chains import Chains
from flmc.sampling.engine import DEFAULT_RESOURCES, Engine, Resources, num_symbols
from flmc.sampling.schedule import DrawSchedule, draw_schedule


class OneByOneEngine(Engine):
    """One data set, chain and round at a time."""

    name: ClassVar[str] = "one-by-one"

    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Why this engine cannot run the plan, in words; None if it can."""
        if plan.uplink.clips_examples:
            return "it does not clip single examples"
        return None

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether ``auto`` should choose this engine where it can run the plan."""
        return False

    def start(
        self,
        plan: Plan,
        model: Model,
        seed: int,
        num_chains: int,
        *,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
    ) -> Chains:
        """Every chain before round 1: at a draw from the prior, or at zero, as the plan says."""
        position = np.zeros((model.num_experiments, num_chains, model.dim))
        if plan.start == "prior":
            for e, c in np.ndindex(position.shape[:2]):
                position[e, c] = model.prior.draw(generator(seed, Purpose.INIT, e, c), model.dim)
        return Chains.at_start(plan, model, position, keep_draws, thin, directory)

    def advance(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        resources: Resources = DEFAULT_RESOURCES,
        schedule: DrawSchedule = draw_schedule,
    ) -> None:
        """Advance all chains in place to the end of round ``until``."""
        for e, c in np.ndindex(chains.position.shape[:2]):
            self._advance_one(chains, plan, model, seed, e, c, until, schedule)
        chains.round = until

    def _advance_one(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        e: int,
        c: int,
        until: int,
        draw: DrawSchedule,
    ) -> None:
        """Advance chain ``c`` of data set ``e``."""
        data_set, place = slice(e, e + 1), (slice(e, e + 1), slice(c, c + 1))
        state = langevin.State(chains.position[place], chains.round)
        for number in range(chains.round, until):
            # Random numbers are named by seed, data set, chain and block of rounds, never by what
            # ran before: so a run that was cut goes on with the same numbers.
            block, index = divmod(number, ROUNDS_PER_BLOCK)
            schedule = draw(plan, seed, range(e, e + 1), block)
            noise = _draw_noise(plan, seed, e, c, block, index)
            before = state.theta
            state, info = langevin.step(
                state,
                noise,
                schedule.round(index),
                lambda theta: model.gradient(theta, data_set),
                plan.uplink,
            )
            if chains.keep_round(place, before, state.theta, state.round):
                chains.num_clipped += count_clipped(
                    info.gradient, plan.uplink.clip, schedule.active_devices(index)
                )
        chains.position[place] = state.theta

    def theta(self, chains: Chains, model: Model) -> Array:
        """Where the chains stand in the model's coordinates, (experiment, chain, entry)."""
        return chains.position

    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """A guess, from the number of symbols that devices send."""
        return num_symbols(plan, model, num_chains) / 1e5


def _draw_noise(
    plan: Plan, seed: int, experiment: int, chain: int, block: int, index: int
) -> langevin.Noise:
    """The random numbers of round ``index`` of a block, for one chain."""
    normal, uniform = (
        generator(seed, purpose, experiment, chain, block)
        for purpose in (Purpose.CHANNEL, Purpose.QUANTISER)
    )
    bits = (ROUNDS_PER_BLOCK, plan.num_devices, plan.dim)
    return langevin.Noise(
        normal.standard_normal((ROUNDS_PER_BLOCK, plan.dim))[None, None, index],
        uniform.random(bits)[None, None, index] if plan.uplink.randomised else None,
    )
