r"""The round as three roles: what a device does, what the air does, what the server does.

.. math:: s_k = \text{symbol}(\nabla f_k(\theta)), \quad P_k = A/h_k; \qquad
          y = \sum_k h_k P_k s_k + z, \quad z \sim N(0, N_0 I); \qquad
          \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\,y .

Three pure functions; random numbers are arguments. The NumPy engine, the audit and a deployment
call them, and compiled engines are held to them by tests: nothing else writes the round again.

Where the air is a program and what it receives leaves the process, devices and air use
``device_on_grid`` and ``air_on_grid``: in whole numbers, with noise from a source of entropy. The
low-order digits of a floating-point sum would tell what the noise hides."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.privacy.safe_noise.entropy import Entropy, draw_uniform
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS, NoiseGrid
from flmc.uplink.channel import estimate_gradient, invert_channel, superpose_received
from flmc.uplink.uplink import Uplink


class Transmission(NamedTuple):
    """Symbols that all devices send in a round, and the amplitudes with which they send them.

    Attributes
    ----------
    symbols
        Bits in {-1, +1}, or clipped gradients, (..., device, dim).
    amplitude
        Transmit amplitude of each symbol, (..., device, dim); 0 sends nothing.
    """

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

    The transmit amplitude is :math:`P_{k,i} = A_i/h_{k,i}`, 0 for a device that is not active.

    Parameters
    ----------
    gradient
        Local gradients (..., device, dim).
    uniform
        Random numbers in [0, 1) of the same shape, or with more leading axes for many trials of the
        same gradients, for an uplink with random bits; else None.
    uplink
        How gradients become symbols.
    gain
        Amplitude A at which symbols are to arrive, (..., dim).
    fading
        Path gain h of each device, (..., device, dim).
    active
        Who transmits, (..., device) with 1 or 0; None: all.

    Returns
    -------
    Transmission
        Symbols and amplitudes, (..., device, dim). A silent device has symbols too, at amplitude 0.
    """
    return Transmission(uplink.symbols(gradient, uniform), invert_channel(gain, fading, active))


def air(sent: Transmission, fading: Array, noise: Array) -> Array:
    r"""What the air does: symbols add up, each with its path gain, and noise is added.

    .. math:: y_i = \sum_k h_{k,i} P_{k,i} s_{k,i} + z_i

    Parameters
    ----------
    sent
        What the devices transmit.
    fading
        Path gain of each device, (..., device, dim).
    noise
        Noise z of the channel, (..., dim), with variance N_0.

    Returns
    -------
    Array
        The received signal y, (..., dim).
    """
    return superpose_received(sent.symbols, fading * sent.amplitude, noise)


class Update(NamedTuple):
    """What the server has after a round.

    Attributes
    ----------
    theta
        The new theta, (..., dim).
    estimate
        The estimate of the sum of all devices' symbols, (..., dim).
    """

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
    r"""What the server does with the received signal: normalise it, and step against it.

    .. math:: \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\,y

    Parameters
    ----------
    theta, received
        Where the chain stands and what was received, (..., dim).
    step_size
        Step eta of this round.
    gain
        Amplitude A at which symbols arrive, (..., dim).
    num_devices, num_active
        Devices in all, K, and those that transmitted, K_a: a number or (..., 1).

    Returns
    -------
    Update
        The new theta, and the estimate that it was moved by.
    """
    estimate = estimate_gradient(received, gain, num_devices, num_active)
    return Update(np.asarray(theta - step_size * estimate), estimate)


Server = Callable[[Array, Array, float, Array, int, Array | float], Update]
"""What a server does with the received signal, with the arguments of :func:`server`."""


def majority_server(
    theta: Array,
    received: Array,
    step_size: float,
    gain: Array,
    num_devices: int,
    num_active: Array | float,
) -> Update:
    r"""What the server of a majority vote does: step against the sign of the received signal.

    .. math:: \theta \leftarrow \theta - \eta\,\text{sign}(y)

    It is a server for devices that send the signs of their gradients: the sign of their sum is what
    most of them say, if the noise does not turn it over.

    Parameters
    ----------
    theta, received, step_size
        As for :func:`server`.
    gain, num_devices, num_active
        Not used: a sign does not depend on the scale.

    Returns
    -------
    Update
        The new theta, and the signs that it was moved by; 0 where exactly nothing was received.
    """
    vote = np.sign(received)
    return Update(np.asarray(theta - step_size * vote), vote)


def device_on_grid(
    gradient: Array,
    uplink: Uplink,
    grid: NoiseGrid,
    gain: Array,
    entropy: Entropy,
    active: Array | None = None,
) -> IntArray:
    """What devices send to a channel made of software: symbols as whole numbers of steps of a grid.

    Gradients become symbols as in :func:`device`, with random bits from the source of entropy, and
    a symbol of the uplink's peak becomes the gain times the peak, rounded down to the grid. There
    is no path gain to invert: what is sent is what arrives.

    Parameters
    ----------
    gradient
        Local gradients (..., device, dim).
    uplink
        How gradients become symbols.
    grid
        Grid of the channel; its noise power must be that of the uplink.
    gain
        Amplitude A at which symbols are to arrive, (..., dim). The server normalises by
        ``grid.gain``, which is a little less.
    entropy
        Source of the random bits; ``SystemEntropy()`` in a deployment.
    active
        Who transmits, (..., device) with 1 or 0; None: all.

    Returns
    -------
    IntArray
        Steps, (..., device, dim); 0 for a device that is not active.

    Raises
    ------
    InvalidSetting
        If the grid is for another noise power, a gain does not suit the grid, or the uplink has no
        bound of its symbols.
    """
    if uplink.noise_is_exact:
        raise InvalidSetting(
            f"the {uplink.scheme} uplink has symbols without a bound, which no grid holds; use"
            " digital or analog"
        )
    if grid.noise_power != uplink.noise_power:
        raise InvalidSetting(
            f"the grid must have the uplink's noise power {uplink.noise_power:g}, got"
            f" {grid.noise_power:g}"
        )
    uniform = draw_uniform(np.shape(gradient), entropy) if uplink.randomised else None
    steps = grid.symbol_steps(uplink.symbols(gradient, uniform), gain, uplink.peak)
    return steps if active is None else steps * (active[..., None] > 0)


def air_on_grid(sent: IntArray, grid: NoiseGrid, entropy: Entropy) -> IntArray:
    r"""What a channel made of software does: whole steps add up without rounding, noise among them.

    .. math:: k_i = \sum_k \text{sent}_{k,i} + Z_i, \quad Z_i = \text{round}(2^b n_i)

    The received value is :math:`g k_i` (``grid.values``), which :func:`server` takes.

    Parameters
    ----------
    sent
        Steps that the devices send, (..., device, dim).
    grid
        Grid of the channel.
    entropy
        Source of the noise; ``SystemEntropy()`` in a deployment.

    Returns
    -------
    IntArray
        Received steps, (..., dim).

    Raises
    ------
    InvalidSetting
        If a device sends more than the grid allows.
    """
    largest = max(int(np.max(sent, initial=0)), -int(np.min(sent, initial=0)))
    if largest > MOST_STEPS:
        raise InvalidSetting(
            f"a device must send at most {MOST_STEPS} steps, got {largest}; use a coarser grid"
        )
    total = np.asarray(np.sum(sent, axis=-2, dtype=np.int64))
    return total + grid.draw_noise(total.shape, entropy)
