r"""The round as three roles: what a device does, what the air does, what the server does.

.. math:: s_k = \text{symbol}(\nabla f_k(\theta)), \quad P_k = A/h_k; \qquad
          y = \sum_k h_k P_k s_k + z, \quad z \sim N(0, N_0 I); \qquad
          \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\,y .

Three pure functions; random numbers are arguments. The NumPy engine, the audit and a deployment
call them, and compiled engines are held to them by tests: nothing else writes the round again."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.channel import estimate_gradient, invert_channel, superpose_received
from flmc.uplink.uplink import Uplink


class Transmission(NamedTuple):
    """What devices send: ``symbols`` (..., device, dim) and the ``amplitude`` (..., device, dim) of
    each; an amplitude of 0 sends nothing."""

    symbols: Array
    amplitude: Array


def device(
    gradient: Array,
    uniform: Array | None,
    uplink: Uplink,
    gain: Array,
    fading: Array,
    active: Array | None = None,
) -> Transmission:
    """What devices do with their gradients: clip, make symbols, and invert their own channel.

    Parameters
    ----------
    gradient
        Local gradients (..., device, dim).
    uniform
        Random numbers in [0, 1) of the same shape, for an uplink with random bits; else None.
    uplink
        How gradients become symbols.
    gain
        Amplitude at which symbols are to arrive, (..., dim).
    fading
        Path gain of each device, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all.
    """
    return Transmission(uplink.symbols(gradient, uniform), invert_channel(gain, fading, active))


def air(sent: Transmission, fading: Array, noise: Array) -> Array:
    """What the air does: symbols add up, each with its path gain, and noise is added.

    Parameters
    ----------
    sent
        What the devices transmit.
    fading
        Path gain of each device, (..., device, dim).
    noise
        Noise of the channel, (..., dim), with variance N_0.

    Returns
    -------
    Array
        The received signal y, (..., dim).
    """
    return superpose_received(sent.symbols, fading * sent.amplitude, noise)


class Update(NamedTuple):
    """What the server does: the new theta, and its ``estimate`` of the sum of all devices'
    symbols."""

    theta: Array
    estimate: Array


def server(
    theta: Array,
    received: Array,
    step_size: float,
    gain: Array,
    num_devices: int,
    num_active: Array | float,
) -> Update:
    """What the server does with the received signal: normalise it, and step against it.

    Parameters
    ----------
    theta, received
        Where the chain stands and what was received, (..., dim).
    step_size
        Step of this round.
    gain
        Amplitude at which symbols arrive, (..., dim).
    num_devices, num_active
        Devices in all, and those that transmitted.
    """
    estimate = estimate_gradient(received, gain, num_devices, num_active)
    return Update(np.asarray(theta - step_size * estimate), estimate)
