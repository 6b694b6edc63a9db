"""One round of the sampler, composed of its three roles: device, air and server.

A :class:`State` is carried from round to round; an :class:`Info` holds gradients, symbols and
estimate of one round. The functions ``init`` and ``step`` are pure: random numbers are
arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.planning.server_update import LANGEVIN, ServerState, ServerUpdate, is_langevin
from flmc.sampling.roles import air, device, server, server_with
from flmc.uplink.uplink import Uplink


class State(NamedTuple):
    """State of chains between two rounds: all that one round hands to the next.

    Attributes
    ----------
    theta
        Present positions of the chains, (..., dim).
    round
        Number of finished rounds.
    memory
        Numbers that the server's update carries from round to round beside theta, such as a
        momentum, (..., slot, dim); None for an update that carries none.
    """

    theta: Array
    round: int
    memory: Array | None = None


class Info(NamedTuple):
    """Gradients, symbols and estimate of one round, returned beside the new state.

    Attributes
    ----------
    gradient
        Local gradients before clipping, (..., device, dim).
    symbols
        What the devices transmitted, before the amplitude, (..., device, dim).
    estimate
        (K/K_a) y/A, (..., dim), from the received signal y and the gain A: what the server takes
        for the sum of the gradients of all K devices, of which K_a transmitted.
    """

    gradient: Array
    symbols: Array
    estimate: Array


class Noise(NamedTuple):
    """Random numbers of a round.

    Attributes
    ----------
    normal
        Standard normals for the channel, (..., dim); they are multiplied by the root of the
        uplink's noise power.
    uniform
        Uniform numbers in [0, 1) for the quantiser, (..., device, dim); None where the uplink has
        no random bits.
    own
        Standard normals of the server's update, (..., dim); None where it takes none.
    """

    normal: Array
    uniform: Array | None
    own: Array | None = None


class Round(NamedTuple):
    """Step size, gain, path gains and active devices of one round.

    Attributes
    ----------
    step_size
        Step size of this round.
    gain
        Amplitude of a symbol at the receiver, (..., dim).
    fading
        Path gain of each device, (..., device, dim).
    active
        Active devices, (..., device): 1 for a device that transmits, else 0; None: all transmit.
    num_active
        Number of active devices: a number, or (..., 1).
    arriving
        Where devices know only estimates of their channels: ``fading`` is then the estimate that a
        device inverts, and this is the in-phase part of the true path gain, (..., device, dim).
        None: the estimates are exact.
    """

    step_size: float
    gain: Array
    fading: Array
    active: Array | None
    num_active: Array | float
    arriving: Array | None = None


def init(theta: Array, update: ServerUpdate = LANGEVIN) -> State:
    """State before round 1 of chains that start at ``theta``, (..., dim), with the memory of the
    server's update set to zero."""
    shape = (*theta.shape[:-1], update.num_slots, theta.shape[-1])
    return State(theta, 0, np.zeros(shape) if update.num_slots else None)


def step(
    state: State,
    noise: Noise,
    this: Round,
    gradient: Callable[[Array], Array],
    uplink: Uplink,
    update: ServerUpdate = LANGEVIN,
) -> tuple[State, Info]:
    """Run one round: devices transmit, the air superposes their symbols, the server updates theta.
    Returns the state after the round, and the round's gradients, symbols and estimate.

    ``this`` holds step size, gain, path gains and active devices of the round. ``gradient`` maps
    theta (..., dim) to local gradients (..., device, dim); ``update`` is what the server does with
    its estimate."""
    local = gradient(state.theta)
    sent = device(local, noise.uniform, uplink, this.gain, this.fading, this.active)
    met = this.fading if this.arriving is None else this.arriving
    received = air(sent, met, np.sqrt(uplink.noise_power) * noise.normal)
    count, number = local.shape[-2], state.round + 1
    if is_langevin(update):
        theta, estimate = server(
            state.theta, received, this.step_size, this.gain, count, this.num_active
        )
        return State(theta, number, state.memory), Info(local, sent.symbols, estimate)
    memory = _no_memory(state.theta) if state.memory is None else state.memory
    after, estimate = server_with(
        update,
        ServerState(state.theta, memory),
        received,
        this.step_size,
        this.gain,
        count,
        this.num_active,
        noise.own,
    )
    kept = None if state.memory is None else after.memory
    return State(after.theta, number, kept), Info(local, sent.symbols, estimate)


def _no_memory(theta: Array) -> Array:
    """Empty memory, (..., 0, dim), for a server's update that carries no numbers beside theta
    (..., dim)."""
    return np.empty((*theta.shape[:-1], 0, theta.shape[-1]))
