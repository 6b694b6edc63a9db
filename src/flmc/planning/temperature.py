r"""Temperature: how much noise the sampler needs, and how much it gets.

Let :math:`\kappa` be the link's slope, :math:`V_q` the quantisation variance, A the gain, and
:math:`K_a` of K devices active, so that the server multiplies by :math:`K/K_a`. The *temperature*

.. math:: T = \frac{\eta\,(K/K_a)^2\,(N_0/A^2 + V_q)}{2\kappa}

is, to leading order, the factor by which the sampled variance exceeds the posterior's. T = 1 is
right, T > 1 too wide, T < 1 collapses towards the mode. ``docs/sampling.md`` derives it."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.uplink.csi import bit_noise, response
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.uplink import Uplink

Number = float | Array
"""Number, or array of numbers."""


def temperature(
    uplink: Uplink,
    step_size: float,
    gain: Array | float,
    num_devices: int,
    num_active: Array | float | None = None,
    policy: Scheduler | None = None,
) -> float:
    r"""Temperature T of the sampler, with the largest quantisation variance that is possible.

    It is :math:`T = \eta\,\overline{(K/K_a)^2 (N_0/A^2 + V_q)}/(2\kappa)` with :math:`V_q = K_a`
    for the digital uplink and 0 for the others. The bar is the mean over entries and rounds, where
    gain and number of devices vary. ``num_active`` is :math:`K_a` (None: all devices), ``policy``
    the scheduler.

    Examples
    --------
    >>> from flmc.planning.temperature import calibrated_gain, temperature
    >>> uplink = flmc.Digital()
    >>> gain = calibrated_gain(uplink, step_size=1e-3, num_devices=20)
    >>> round(temperature(uplink, 1e-3, gain, num_devices=20), 12)
    1.0
    """
    active = num_devices if num_active is None else num_active
    # The variance is averaged over rounds, not the gain: the chain adds up variances, so a round
    # with a small gain counts for more than its share.
    variance = np.square(num_devices / active) * (
        uplink.noise_power / np.square(gain) + bit_noise(uplink, num_devices, policy) * active
    )
    return float(step_size * np.mean(variance) / (2.0 * response(uplink, num_devices, policy)))


def calibrated_gain(
    uplink: Uplink,
    step_size: Number,
    num_devices: int,
    num_active: Number | None = None,
    policy: Scheduler | None = None,
) -> Number:
    r"""Gain at which the temperature is 1, :math:`A = \sqrt{N_0/((2\kappa/\eta)(K_a/K)^2 - V_q)}`.
    Here :math:`\eta` is the ``step_size``; :math:`K_a` (``num_active``) of K (``num_devices``)
    devices transmit, None: all; and the ``uplink`` has the slope :math:`\kappa`, the noise power
    :math:`N_0` and the quantisation variance :math:`V_q`.

    The gain is infinite where quantisation alone makes the temperature at least 1, for the digital
    uplink where :math:`\eta \ge 2\kappa K_a/K^2`: no gain is too large then.
    """
    active = num_devices if num_active is None else num_active
    # The formula of the temperature, set to 1 and solved for the noise power over the squared gain:
    # the variance that the channel's noise must have beside quantisation.
    channel_noise = (
        2.0
        * response(uplink, num_devices, policy)
        / np.asarray(step_size)
        * np.square(active / num_devices)
        - bit_noise(uplink, num_devices, policy) * active
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(channel_noise > 0, np.sqrt(uplink.noise_power / channel_noise), np.inf)
    return gain if gain.ndim else float(gain)


def paper_gain(
    uplink: Uplink, step_size: Number, num_devices: int, num_active: Number | None = None
) -> Number:
    r"""Langevin limit of the gain as the paper prints it, :math:`(K/K_a)\sqrt{\eta N_0/2}`, with
    the ``step_size`` :math:`\eta`, the noise power :math:`N_0` of the ``uplink``, and :math:`K_a`
    (``num_active``; None: all) of K (``num_devices``) devices transmitting.

    With this gain the temperature is 1 for an uplink of slope 1 without quantisation, that is for
    the analog one.
    """
    active = num_devices if num_active is None else num_active
    return num_devices / active * np.sqrt(np.asarray(step_size) * uplink.noise_power / 2.0)


def langevin_gain(
    mode: str,
    uplink: Uplink,
    step_size: Number,
    num_devices: int,
    num_active: Array,
    policy: Scheduler | None = None,
) -> Array:
    """Largest gain that leaves enough noise for the sampler, in the common shape of ``step_size``
    and ``num_active``, by ``mode``: ``calibrated`` (temperature 1), ``paper`` (the limit as the
    paper prints it) or ``off`` (infinite, in the shape of ``num_active``). ``num_active`` of
    ``num_devices`` devices transmit, as the scheduler ``policy`` says."""
    if mode == "off":
        return np.full(np.shape(num_active), np.inf)
    if mode == "paper":
        return np.asarray(paper_gain(uplink, step_size, num_devices, num_active))
    return np.asarray(calibrated_gain(uplink, step_size, num_devices, num_active, policy))
