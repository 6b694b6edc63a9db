"""The two worlds of an attack: gradients of the attacked device that lie as far apart as clipping
lets them."""

from __future__ import annotations

import math

import numpy as np

from flmc.base.arrays import Array
from flmc.base.numerics.clipping import clip
from flmc.evaluation.auditing.scene import Scene

_BEYOND = 2.0
"""How many times its clip a canary is: a mechanism that forgets to clip is louder, and seen."""


def canary(scene: Scene) -> Array:
    """Gradients of the attacked device in the first world, (round, entry).

    Parameters
    ----------
    scene
        What is attacked. Signs follow the sequence of Thue and Morse, over rounds and over entries,
        which repeats nowhere for long: random numbers that repeat would show.
    """
    return gradients_of_worlds(scene)[0] * _signs(scene)


def neighbour(scene: Scene) -> Array:
    """Gradients of the attacked device in the second world, (round, entry): the opposite ones, or,
    where one example differs, as far away as that moves them.

    Parameters
    ----------
    scene
        What is attacked.
    """
    return gradients_of_worlds(scene)[1] * _signs(scene)


def gradients_of_worlds(scene: Scene) -> tuple[float, float]:
    """Gradient entry of a device in the first world and in the second, before signs.

    Parameters
    ----------
    scene
        Says what the worlds differ in: all data of the device, or one example.
    """
    if scene.whole_device:
        most = _BEYOND * scene.uplink.clip
        return most, -most
    bound = example_reach(scene)
    # Examples of the device, clipped one by one as a model does it, then summed: those that both
    # worlds share put the sum at the centre, and one has a gradient far beyond its clip.
    count = max(1, math.ceil(abs(scene.centre) / bound))
    shared = np.full(count, scene.centre / count)
    first, second = (
        float(clip(np.append(shared, world * _BEYOND * bound), bound).sum())
        for world in (1.0, -1.0)
    )
    return first, second


def example_reach(scene: Scene) -> float:
    """Largest entry of the example that differs, after it was clipped; a bounded norm is shared
    evenly by all entries.

    Parameters
    ----------
    scene
        Where one example differs.
    """
    bound, by_norm = scene.uplink.example_bound, scene.uplink.example_norm is not None
    return bound / math.sqrt(scene.dim) if by_norm else bound


def _signs(scene: Scene) -> Array:
    """Signs of the attacked device's gradients, (round, entry)."""
    by_round, by_entry = (thue_morse(count) for count in (scene.num_rounds, scene.dim))
    return np.asarray(by_round[:, None] * by_entry)


def thue_morse(count: int) -> Array:
    """The sequence of Thue and Morse: +1 for numbers whose binary digits have an even sum, else -1.

    Parameters
    ----------
    count
        Length of the sequence.
    """
    return np.array([(-1.0) ** number.bit_count() for number in range(count)])
