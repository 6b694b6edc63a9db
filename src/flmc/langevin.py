r"""The sampler: two pure functions. Random numbers are arguments; ``State`` is carried, ``Info`` is reported.

One round, with the uplink's symbols :math:`s_k(\nabla f_k(\theta))`:

.. math:: \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\Bigl[\sum_{k \text{ active}} h_k P_k s_k + z\Bigr],
          \qquad z \sim N(0, N_0 I).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.channel import estimate_gradient, superpose_received
from flmc.checks import Array
from flmc.uplink import Uplink


class State(NamedTuple):
    """What is carried from round to round: ``theta`` (..., dim) and the number of rounds done."""

    theta: Array
    round: int


class Info(NamedTuple):
    """What a round reports: local gradients before clipping, symbols, and the server's estimate of their sum."""

    gradient: Array
    symbols: Array
    estimate: Array


class Noise(NamedTuple):
    """Random numbers of a round: standard ``normal`` (..., dim) for the channel; ``uniform`` (..., device, dim) in [0,
    1) for the quantiser, None where the uplink needs none."""

    normal: Array
    uniform: Array | None


class Round(NamedTuple):
    """What the plan and the channel fix for one round."""

    step_size: float
    gain: Array
    """(..., dim)"""
    received_amplitude: Array
    """h_k P_k, (..., device, dim): the gain for an active device, 0 for a silent one."""
    num_active: float


def init(theta: Array) -> State:
    """Before round 1."""
    return State(theta, 0)


def step(
    state: State, noise: Noise, this: Round, gradient: Callable[[Array], Array], uplink: Uplink
) -> tuple[State, Info]:
    """One round: gradients, symbols, superposition, estimate, update."""
    local = gradient(state.theta)
    symbols = uplink.symbols(local, noise.uniform)
    received = superpose_received(symbols, this.received_amplitude, np.sqrt(uplink.noise_power) * noise.normal)
    estimate = estimate_gradient(received, this.gain, local.shape[-2], this.num_active)
    return State(state.theta - this.step_size * estimate, state.round + 1), Info(local, symbols, estimate)
