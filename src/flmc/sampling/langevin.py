"""One round of the sampler, composed of the three roles. ``State`` is carried, ``Info`` is
reported."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.sampling.roles import air, device, server
from flmc.uplink.uplink import Uplink


class State(NamedTuple):
    """What is carried from round to round: ``theta`` (..., dim) and the number of rounds done."""

    theta: Array
    round: int


class Info(NamedTuple):
    """What a round reports: local gradients before clipping, symbols, and the server's estimate of
    their sum."""

    gradient: Array
    symbols: Array
    estimate: Array


class Noise(NamedTuple):
    """Random numbers of a round: standard ``normal`` (..., dim) for the channel; ``uniform`` (...,
    device, dim) in [0, 1) for the quantiser, None where the uplink needs none."""

    normal: Array
    uniform: Array | None


class Round(NamedTuple):
    """What the plan and the channel fix for one round: ``gain`` (..., dim), ``fading`` (...,
    device, dim), who is ``active`` (..., device; None: all) and the ``num_active`` of them, a
    number or (..., 1)."""

    step_size: float
    gain: Array
    fading: Array
    active: Array | None
    num_active: Array | float


def init(theta: Array) -> State:
    """Before round 1."""
    return State(theta, 0)


def step(
    state: State, noise: Noise, this: Round, gradient: Callable[[Array], Array], uplink: Uplink
) -> tuple[State, Info]:
    """One round: devices transmit, the air superposes, the server updates.

    Parameters
    ----------
    state
        Where the chains stand, theta (..., dim).
    noise
        The random numbers of this round.
    this
        What the plan and the channel fix for this round.
    gradient
        From thetas (..., dim) to local gradients (..., device, dim).
    uplink
        How gradients become symbols, and the channel's noise power.
    """
    local = gradient(state.theta)
    sent = device(local, noise.uniform, uplink, this.gain, this.fading, this.active)
    received = air(sent, this.fading, np.sqrt(uplink.noise_power) * noise.normal)
    theta, estimate = server(
        state.theta, received, this.step_size, this.gain, local.shape[-2], this.num_active
    )
    return State(theta, state.round + 1), Info(local, sent.symbols, estimate)
