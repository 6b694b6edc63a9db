"""One round of the sampler, composed of its three roles: device, air and server.

:class:`State` is carried from round to round, :class:`Info` is reported. The functions ``init`` and
``step`` are pure: random numbers are arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.sampling.roles import Server, air, device, server
from flmc.uplink.uplink import Uplink


class State(NamedTuple):
    """Where chains stand between two rounds: all that one round hands to the next.

    Attributes
    ----------
    theta
        Where the chains stand, (..., dim).
    round
        Number of rounds that are done.
    """

    theta: Array
    round: int


class Info(NamedTuple):
    """What a round reports, beside the new state.

    Attributes
    ----------
    gradient
        Local gradients before clipping, (..., device, dim).
    symbols
        What the devices transmitted, before the amplitude, (..., device, dim).
    estimate
        The server's estimate of the sum of all devices' symbols, (..., dim).
    """

    gradient: Array
    symbols: Array
    estimate: Array


class Noise(NamedTuple):
    """Random numbers of a round.

    Attributes
    ----------
    normal
        Standard normals for the channel, (..., dim); they are multiplied by the root of N_0.
    uniform
        Uniform numbers in [0, 1) for the quantiser, (..., device, dim); None where the uplink has
        no random bits.
    """

    normal: Array
    uniform: Array | None


class Round(NamedTuple):
    """What the plan and the channel fix for one round.

    Attributes
    ----------
    step_size
        The step of this round.
    gain
        Amplitude of a symbol at the receiver, (..., dim).
    fading
        Path gain of each device, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all.
    num_active
        How many transmit: a number, or (..., 1).
    arriving
        In-phase part of the path gain that each device's symbols meet, (..., device, dim); None:
        the path gain itself.
    """

    step_size: float
    gain: Array
    fading: Array
    active: Array | None
    num_active: Array | float
    arriving: Array | None = None


def init(theta: Array) -> State:
    """The state before round 1 of chains that start at ``theta``, (..., dim)."""
    return State(theta, 0)


def step(
    state: State,
    noise: Noise,
    this: Round,
    gradient: Callable[[Array], Array],
    uplink: Uplink,
    serve: Server = server,
) -> tuple[State, Info]:
    """One round: devices transmit, the air superposes, the server updates. Returns the state after
    the round, and what the round reports.

    ``gradient`` maps theta (..., dim) to local gradients (..., device, dim); ``serve`` is what the
    server does, which is another function for baselines."""
    local = gradient(state.theta)
    sent = device(local, noise.uniform, uplink, this.gain, this.fading, this.active)
    met = this.fading if this.arriving is None else this.arriving
    received = air(sent, met, np.sqrt(uplink.noise_power) * noise.normal)
    theta, estimate = serve(
        state.theta, received, this.step_size, this.gain, local.shape[-2], this.num_active
    )
    return State(theta, state.round + 1), Info(local, sent.symbols, estimate)
