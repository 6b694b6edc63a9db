"""The scene of an attack on the uplink's privacy: some rounds of a run, with the gains that it uses
and the caps of the gain that its accountant assumes, and the two worlds that an adversary tries to
tell apart."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.clipping import clip
from flmc.base.errors import InvalidSetting
from flmc.base.randomness import ROUNDS_PER_BLOCK
from flmc.planning.plans import Plan
from flmc.privacy.event import Event
from flmc.sampling.schedule import block_of, draw_schedule
from flmc.uplink.noise import why_not_drawn
from flmc.uplink.power import finite_cap
from flmc.uplink.uplink import Uplink


class Rounds(NamedTuple):
    """Some rounds of a run: which devices transmit, with which gains, over which path gains.

    Attributes
    ----------
    caps
        Upper limits of the gain from which the accountant computes epsilon, (round, dim).
    gains
        Gains that the run uses, (round, dim).
    fading
        Path gains, (round, device, dim).
    active
        1 for devices that transmit, else 0, (round, device).
    step_sizes
        Step sizes eta of the server's update, (round).
    """

    caps: Array
    gains: Array
    fading: Array
    active: Array
    step_sizes: Array

    def at(self, chosen: Array) -> Rounds:
        """The rounds whose indices in this object are ``chosen`` (chosen round), in the order of
        ``chosen``."""
        return Rounds(*(part[chosen] for part in self))


@dataclass(frozen=True)
class Scene:
    """The setting of an attack: the uplink, its devices, the rounds in which they transmit, and the
    attacked device. ``InvalidSetting`` for an uplink with inexact channel estimates, or with noise
    that is not normal."""

    uplink: Uplink
    gain: float
    """Largest cap of the gain over rounds and entries; where ``run`` is None, the gain of all
    rounds and entries."""
    dim: int
    num_devices: int
    num_rounds: int
    neighbouring: str = "device"
    """The difference between the two neighbouring worlds that the attack tells apart: all data of a
    ``device``, or one ``example`` of it."""
    run: Rounds | None = None
    """The rounds of a run that are attacked. None: in all ``num_rounds`` rounds all devices
    transmit at the one ``gain``, over path gains that the uplink draws."""
    attacked: int = 0
    """Number of the attacked device, from 0."""
    centre: float = 0.0
    """Value of a gradient entry of the attacked device half way between its values in the two
    neighbouring worlds; it is used only where these differ in one example."""

    def __post_init__(self) -> None:
        cannot = why_not_drawn(self.uplink.noise_law)
        if cannot is not None:
            raise InvalidSetting(f"the audit cannot attack this uplink: {cannot}")
        if self.uplink.estimated is not None:
            raise InvalidSetting(
                "the audit attacks devices that know their channels: it would attack less than"
                f" csi_error = {self.uplink.csi_error:g} reveals; audit the plan without it"
            )

    @classmethod
    def of_plan(cls, plan: Plan, num_rounds: int, seed: int = 0) -> Scene:
        """The scene with up to ``num_rounds`` rounds of a plan's run, those in which the attacked
        device transmits at the largest gains. The attacked device is the one whose squared gains in
        such rounds have the largest sum.

        Rounds are drawn in blocks of consecutive rounds, as a run draws them, from the block with
        the largest cap of the gain on, until there are ``num_rounds``; the scene has fewer rounds
        where the device transmits in fewer of them."""
        checks.at_least("num_rounds", num_rounds, 1)
        if plan.limits.relation != "replace":
            raise InvalidSetting(
                "the audit attacks data that are replaced, got relation"
                f" {plan.limits.relation!r}: audit the plan with relation 'replace'"
            )
        rounds = _rounds_from_the_loudest(plan, num_rounds, seed)
        # Squared gains of each device, summed over entries, shape (round, device).
        heard = rounds.active * np.square(rounds.gains).sum(axis=1)[:, None]
        attacked = int(np.argmax(np.sort(heard, axis=0)[::-1][:num_rounds].sum(axis=0)))
        loudest = np.argsort(-heard[:, attacked], kind="stable")[:num_rounds]
        chosen = np.sort(loudest[heard[loudest, attacked] > 0])
        return cls(
            plan.uplink,
            float(rounds.caps[chosen].max()),
            plan.dim,
            plan.num_devices,
            len(chosen),
            plan.limits.neighbouring,
            rounds.at(chosen),
            attacked,
        )

    @property
    def caps(self) -> Array:
        """Upper limits of the gain that the accountant assumes, (round, dim)."""
        return self._constant if self.run is None else self.run.caps

    @property
    def gains(self) -> Array:
        """Gains that the rounds really use, which are public, (round, dim)."""
        return self._constant if self.run is None else self.run.gains

    @property
    def _constant(self) -> Array:
        return np.full((self.num_rounds, self.dim), self.gain)

    def louder(self, factor: float) -> Scene:
        """The scene with all gains multiplied by ``factor``, and the caps of its run unchanged, so
        that the gains may exceed the caps."""
        run = None if self.run is None else self.run._replace(gains=factor * self.run.gains)
        return replace(self, gain=factor * self.gain, run=run)

    @property
    def whole_device(self) -> bool:
        """Whether the two neighbouring worlds that the attack tells apart may differ in everything
        that the attacked device sends, not only in the part of one example."""
        if self.neighbouring == "device":
            return True
        return self.uplink.example_norm is None and self.uplink.example_moves_like_device

    @property
    def event(self) -> Event:
        """The privacy event from which the accountant computes epsilon for these rounds: every gain
        at its cap."""
        return self.uplink.event_of_rounds(self.caps, self.dim, self.neighbouring)


def _rounds_from_the_loudest(plan: Plan, num_rounds: int, seed: int) -> Rounds:
    """Rounds of a plan's run in blocks of consecutive rounds, beginning with the block that has the
    largest cap of the gain: at least ``num_rounds`` rounds, or all rounds of the run if it has
    fewer."""
    caps = finite_cap(plan.uplink, plan.gain)
    num_blocks = -(-plan.num_rounds // ROUNDS_PER_BLOCK)
    first = int(np.argmax(caps.max(axis=1))) // ROUNDS_PER_BLOCK if len(caps) > 1 else 0
    blocks: list[Rounds] = []
    for block in [*range(first, num_blocks), *range(first)]:
        rounds = block_of(plan, block)
        schedule = draw_schedule(plan, seed, range(1), block)
        part = caps if len(caps) == 1 else caps[rounds.start : rounds.stop]
        sizes = (len(rounds), plan.num_devices)
        active = np.ones(sizes) if schedule.active is None else schedule.active[0]
        blocks.append(
            Rounds(
                np.broadcast_to(part, (len(rounds), plan.dim)),
                schedule.gain[0],
                schedule.fading[0],
                np.broadcast_to(active, sizes),
                schedule.step_sizes,
            )
        )
        if sum(len(each.caps) for each in blocks) >= num_rounds:
            break
    return Rounds(*(np.concatenate(parts) for parts in zip(*blocks, strict=True)))


# Below: the gradients of the attacked device in the two worlds. They lie as far apart as clipping
# lets them, because that reveals most.


_BEYOND = 2.0
"""Factor of the clip at which the attacked device's gradient entries lie before clipping: a
mechanism that forgets to clip then sends more than it may, and the audit detects it."""


def canary(scene: Scene) -> Array:
    """Gradients that the attacked device has in the first of the two neighbouring worlds that the
    attack tells apart, (round, entry)."""
    # The signs are a Thue-Morse sequence, which has no period: with it, the attack shows an
    # implementation that reuses random numbers between rounds or entries.
    return gradients_of_worlds(scene)[0] * _signs(scene)


def neighbour(scene: Scene) -> Array:
    """Gradients that the attacked device has in the second of the two neighbouring worlds that the
    attack tells apart, (round, entry): the opposite of the gradients in the first world, or, where
    only one example differs, as far from these as one example can move them."""
    return gradients_of_worlds(scene)[1] * _signs(scene)


def gradients_of_worlds(scene: Scene) -> tuple[float, float]:
    """Value of every gradient entry of the attacked device in the first and in the second of the
    two neighbouring worlds that the attack tells apart, before the entry's sign is applied."""
    if scene.whole_device:
        most = _BEYOND * scene.uplink.clip
        return most, -most
    bound = example_reach(scene)
    # The gradient is a sum over the device's examples, each clipped, as a model computes it. The
    # examples that both worlds share sum to the centre; the one that differs has a gradient far
    # beyond its clip.
    count = max(1, math.ceil(abs(scene.centre) / bound))
    shared = np.full(count, scene.centre / count)
    first, second = (
        float(clip(np.append(shared, world * _BEYOND * bound), bound).sum())
        for world in (1.0, -1.0)
    )
    return first, second


def example_reach(scene: Scene) -> float:
    """Largest magnitude of an entry that the gradient of the one differing example can have after
    clipping. Where clipping bounds the norm of that gradient, the bound is spread evenly over all
    entries."""
    bound, by_norm = scene.uplink.example_part, scene.uplink.example_norm is not None
    return bound / math.sqrt(scene.dim) if by_norm else bound


def _signs(scene: Scene) -> Array:
    """Signs, +1 or -1, by which the attacked device's gradients are multiplied, (round, entry)."""
    by_round, by_entry = (thue_morse(count) for count in (scene.num_rounds, scene.dim))
    return np.asarray(by_round[:, None] * by_entry)


def thue_morse(count: int) -> Array:
    """The first ``count`` terms of the Thue-Morse sequence: +1 for indices with an even sum of
    binary digits, else -1."""
    return np.array([(-1.0) ** number.bit_count() for number in range(count)])


def level_law(uplink: Uplink, gradient: Array) -> Array | None:
    """Probabilities with which each level of the symbol is sent for clipped gradients, (..., level)
    for ``gradient`` (...); None where the symbol is the gradient itself. ``InvalidSetting`` for an
    uplink with random symbols that does not state their probabilities, because it cannot be
    attacked."""
    law = uplink.level_probabilities(gradient)
    if law is None and uplink.randomised:
        raise InvalidSetting(
            f"an audit needs the law of symbols, and {type(uplink).__name__} does not state its"
            " level_probabilities"
        )
    return law
