r"""The shared radio channel: channel inversion, superposition, noise, and the server's
normalisation.

Conventions: one real symbol per entry; :math:`N_0` is the noise power per real entry; the received
amplitude of every active device is the *gain* :math:`A`, whatever its fading, because it transmits
with :math:`P_k = A/h_k`."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array


def power_from_snr(snr_db: float, noise_power: float) -> float:
    r"""Power limit :math:`P_0 = N_0 10^{\text{SNR}/10}` per symbol: the only place where decibels
    appear."""
    return float(noise_power * 10.0 ** (snr_db / 10.0))


def invert_channel(gain: Array, fading: Array, active: Array | None = None) -> Array:
    r"""Transmit amplitudes :math:`P_{k,i} = A_i/h_{k,i}` (..., device, dim); 0 for a silent device.

    ``gain`` is (..., dim), ``fading`` (..., device, dim), ``active`` (..., device) with 1 or 0.
    """
    amplitude = gain[..., None, :] / fading
    return amplitude if active is None else amplitude * active[..., None]


def superpose_received(symbols: Array, received_amplitude: Array, noise: Array) -> Array:
    r""":math:`y_i = \sum_k h_{k,i} P_{k,i} s_{k,i} + z_i`: the symbols (..., device, dim) of all
    devices add up.

    ``received_amplitude`` is :math:`h_{k,i} P_{k,i}`, which is small and shared by many chains.
    """
    received: Array = np.einsum("...km,...km->...m", symbols, received_amplitude)
    received += noise
    return received


def estimate_gradient(
    received: Array, gain: Array, num_devices: int, num_active: Array | float
) -> Array:
    r"""The server's estimate :math:`\frac{K}{K_a} y_i / A_i` of the sum of all devices' symbols."""
    return received * (num_devices / (num_active * gain))
