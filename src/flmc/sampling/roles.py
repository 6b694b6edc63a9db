r"""The round as three roles: what a device does, what the air does, what the server does.

.. math:: s_k = \text{symbol}(\nabla f_k(\theta)), \quad P_k = A/h_k; \qquad
          y = \sum_k h_k P_k s_k + z, \quad z \sim N(0, N_0 I); \qquad
          \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\,y .

The functions are pure; random numbers are arguments. The NumPy engine, the audit and a deployment
call them. Only the compiled engines have their own versions of the roles, which tests compare with
these functions.

In a deployment where a program takes the place of the radio channel, devices and air use
``device_on_grid`` and ``air_on_grid``, which compute in whole numbers with cryptographic noise: the
low-order digits of a floating-point sum could reveal the symbols that the noise must hide."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.planning.server_update import ServerState, ServerUpdate
from flmc.privacy.safe_noise.entropy import Entropy, draw_uniform
from flmc.privacy.safe_noise.noise_grid import MOST_STEPS, NoiseGrid
from flmc.uplink.channel import estimate_gradient, invert_channel, superpose_received
from flmc.uplink.noise import why_not_drawn
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
    """Symbols and transmit amplitudes of devices, (..., device, dim): they clip their gradients,
    make symbols, and invert their own channels.

    The transmit amplitude is :math:`P_{k,i} = A_i/h_{k,i}`, with the gain A (..., dim) at which
    symbols are to arrive and the path gain h = ``fading`` (..., device, dim). ``active``
    (..., device) is 1 for a device that transmits and 0 for a silent one, whose amplitude is 0
    although its symbols are computed; None: all transmit. ``gradient`` holds the local gradients
    (..., device, dim). ``uniform`` holds random numbers in [0, 1) of the same shape, or with more
    leading axes for many trials of the same gradients; None for an uplink without random bits."""
    return Transmission(uplink.symbols(gradient, uniform), invert_channel(gain, fading, active))


def air(sent: Transmission, fading: Array, noise: Array) -> Array:
    r"""The received signal y (..., dim): symbols add up, each with its path gain, and noise is
    added.

    .. math:: y_i = \sum_k h_{k,i} P_{k,i} s_{k,i} + z_i

    ``fading`` is the path gain :math:`h` of each device, (..., device, dim); ``sent`` holds the
    amplitudes :math:`P` and the symbols :math:`s` of the devices; and ``noise`` is :math:`z`, (...,
    dim), whose variance is the noise power of the uplink."""
    return superpose_received(sent.symbols, fading * sent.amplitude, noise)


class Update(NamedTuple):
    """Result of the server's part of a round.

    Attributes
    ----------
    theta
        The new theta, (..., dim).
    estimate
        (K/K_a) y/A, (..., dim), from the received signal y and the gain A: what the server takes
        for the sum of the gradients of all K devices, of which K_a transmitted.
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
    r"""The new theta, and the estimate of the sum of gradients from which it was computed: the
    server normalises the received signal and makes a step of Langevin's update.

    .. math:: \theta \leftarrow \theta - \eta\,\frac{K}{K_a A}\,y

    ``theta``, ``received`` (y) and ``gain`` (A) are (..., dim); ``step_size`` is :math:`\eta`,
    ``num_devices`` K, and ``num_active`` the number :math:`K_a` of devices that transmitted, a
    number or (..., 1)."""
    estimate = estimate_gradient(received, gain, num_devices, num_active)
    return Update(np.asarray(theta - step_size * estimate), estimate)


def server_with(
    update: ServerUpdate,
    state: ServerState,
    received: Array,
    step_size: float,
    gain: Array,
    num_devices: int,
    num_active: Array | float,
    normal: Array | None,
) -> tuple[ServerState, Array]:
    """The server's part of a round with another update than Langevin's: the new state, and the
    estimate of the sum of gradients from which it was computed.

    ``received``, ``step_size``, ``gain``, ``num_devices`` and ``num_active`` are as for
    :func:`server`. In a round in which nobody transmits the state does not change. ``normal`` holds
    standard normals, (..., dim), for an update with noise of its own, else None.
    ``InvalidSetting`` if the update returns arrays of other shapes than the state's."""
    estimate = estimate_gradient(received, gain, num_devices, num_active)
    after = update.next(state, estimate, step_size, normal)
    for name, old, new in zip(state._fields, state, after, strict=True):
        if np.shape(new) != old.shape:
            raise InvalidSetting(
                f"the server's update {type(update).__name__} must return {name} of shape"
                f" {old.shape}, got {np.shape(new)}"
            )
    heard = np.asarray(num_active) > 0
    if heard.all():
        return after, estimate
    theta = np.where(heard, after.theta, state.theta)
    return ServerState(theta, np.where(heard[..., None], after.memory, state.memory)), estimate


def device_on_grid(
    gradient: Array,
    uplink: Uplink,
    grid: NoiseGrid,
    gain: Array,
    entropy: Entropy,
    active: Array | None = None,
) -> IntArray:
    """Symbols that devices send to a software channel, as whole numbers of steps of ``grid``,
    (..., device, dim); 0 for a device whose ``active`` (..., device) is 0; None: all are active.

    Gradients (..., device, dim) become symbols as in :func:`device`, with random bits from
    ``entropy`` (``SystemEntropy()`` in a deployment). The largest possible symbol, the uplink's
    peak, becomes ``gain`` (..., dim) times the peak, rounded down to a whole number of steps. The
    gain on the grid is therefore a little smaller, and the server normalises by it
    (``grid.gain``). A software channel has no path gains to invert.

    ``InvalidSetting`` if the grid is for another noise power than the uplink's, a gain does not
    suit the grid, or the uplink's symbols have no bound."""
    if uplink.noise_is_exact:
        raise InvalidSetting(
            f"the {uplink.scheme} uplink has symbols without a bound, which no grid holds; use"
            " digital or analog"
        )
    cannot = why_not_drawn(uplink.noise_law)
    if cannot is not None:
        raise InvalidSetting(f"the grid cannot stand for the channel: {cannot}; use flmc.run")
    if grid.noise_power != uplink.noise_power:
        raise InvalidSetting(
            f"the grid must have the uplink's noise power {uplink.noise_power:g}, got"
            f" {grid.noise_power:g}"
        )
    uniform = draw_uniform(np.shape(gradient), entropy) if uplink.randomised else None
    steps = grid.symbol_steps(uplink.symbols(gradient, uniform), gain, uplink.peak)
    return steps if active is None else steps * (active[..., None] > 0)


def air_on_grid(sent: IntArray, grid: NoiseGrid, entropy: Entropy) -> IntArray:
    r"""Received signal of a software channel as whole numbers of steps of ``grid``, (..., dim): the
    exact sum of all devices' steps and of noise.

    .. math:: r_i = \sum_k \text{sent}_{k,i} + Z_i, \quad Z_i = \text{round}(2^b n_i)

    Here :math:`r_i` is the result for entry i, and :math:`n_i` is standard normal, so the noise
    :math:`Z_i` has a standard deviation of about :math:`2^b` steps, with b = ``grid.bits``. A step
    has the length g, so y is :math:`g r_i`, which ``grid.values`` computes and :func:`server`
    takes. ``sent`` holds the steps of every device k, (..., device, dim); the noise is drawn from
    ``entropy``, which is ``SystemEntropy()`` in a deployment. ``InvalidSetting`` if a device sends
    more than ``MOST_STEPS`` steps."""
    largest = max(int(np.max(sent, initial=0)), -int(np.min(sent, initial=0)))
    if largest > MOST_STEPS:
        raise InvalidSetting(
            f"a device must send at most {MOST_STEPS} steps, got {largest}; use a coarser grid"
        )
    total = np.asarray(np.sum(sent, axis=-2, dtype=np.int64))
    return total + grid.draw_noise(total.shape, entropy)
