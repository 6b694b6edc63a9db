"""The shared radio channel: channel inversion, superposition, noise, and the server's
normalisation.

Conventions: one real symbol per entry; :math:`N_0` is the noise power per real entry; the received
amplitude of every active device that knows its path gain :math:`h_k` is the *gain* :math:`A`,
because it transmits with :math:`P_k = A/h_k`."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array


def power_from_snr(snr_db: float, noise_power: float) -> float:
    r"""Power limit :math:`N_0 10^{\text{SNR}/10}` per symbol, from a signal-to-noise ratio in
    decibels and the noise power :math:`N_0`, the variance of the noise in a real entry."""
    return float(noise_power * 10.0 ** (snr_db / 10.0))


def invert_channel(gain: Array, fading: Array, active: Array | None = None) -> Array:
    """Transmit amplitudes :math:`P_{k,i} = A_i/h_{k,i}`, with which the symbols of every device
    arrive at the server with the amplitude :math:`A_i`, the gain: (..., device, dim) from gains
    (..., dim) and path gains (..., device, dim).

    ``active`` is 1 for a device that transmits, else 0, (..., device); None: all transmit."""
    amplitude = gain[..., None, :] / fading
    return amplitude if active is None else amplitude * active[..., None]


def superpose_received(symbols: Array, received_amplitude: Array, noise: Array) -> Array:
    r"""Received entries :math:`y_i = \sum_k h_{k,i} P_{k,i} s_{k,i} + z_i`: the sum of all devices'
    symbols and the noise, (..., dim).

    Symbols are (..., device, dim). The received amplitude :math:`h_{k,i} P_{k,i}` is passed as a
    product because it may have fewer leading axes than the symbols: the chains of an experiment
    share it."""
    # einsum multiplies and adds in one pass. An array of all products, as large as that of the
    # symbols, is never formed.
    received: Array = np.einsum("...km,...km->...m", symbols, received_amplitude)
    return received + noise


def estimate_gradient(
    received: Array, gain: Array, num_devices: int, num_active: Array | float
) -> Array:
    r"""Server's estimate of the sum of all devices' symbols, :math:`\frac{K}{K_a} y_i / A_i` for
    each entry i; 0 if nobody transmitted.

    The received entries :math:`y_i` and the gain :math:`A_i` are (..., dim); K is the number of all
    devices, and the number :math:`K_a` of those that transmitted broadcasts with the gain."""
    if np.all(np.greater(num_active, 0)):
        return received * (num_devices / (num_active * gain))
    # A round in which nobody transmitted is skipped: its estimate is 0, because its noise is no
    # gradient.
    with np.errstate(divide="ignore"):
        factor = np.where(np.greater(num_active, 0), num_devices / (num_active * gain), 0.0)
    return np.asarray(received * factor)
