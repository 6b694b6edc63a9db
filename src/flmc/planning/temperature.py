r"""Temperature: how much noise the sampler needs, and how much it gets.

With slope :math:`\kappa`, quantisation variance :math:`V_q`, :math:`K_a` of K devices active and
the server's factor :math:`K/K_a`, the *temperature*

.. math:: T = \frac{\eta\,(K/K_a)^2\,(N_0/A^2 + V_q)}{2\kappa}

is, to leading order, the factor by which the sampled variance exceeds the posterior's. T = 1 is
right, T > 1 too wide, T < 1 collapses towards the mode. ``docs/sampling.md`` derives it."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.uplink import Uplink

STABLE_SHARE = 0.2
"""Share of the step 2/(mu + L) that an automatic step takes: the discretisation error of the
variance is 11 % for mu = L, at most 25 %."""
QUANTISATION_SHARE = 0.6
"""Largest share of the Langevin noise that an automatic step leaves to quantisation."""

Number = float | Array
"""A number, or an array of them."""


def temperature(
    uplink: Uplink,
    step_size: float,
    gain: Array | float,
    num_devices: int,
    num_active: Array | float | None = None,
) -> float:
    r"""Temperature T of the sampler, with the largest quantisation variance that is possible.

    It is :math:`T = \eta\,\overline{(K/K_a)^2 (N_0/A^2 + V_q)}/(2\kappa)` with :math:`V_q = K_a`
    for the digital uplink and 0 for the others. The bar is the mean over entries and rounds, where
    gain and number of devices vary.

    Parameters
    ----------
    uplink
        Gives the noise power, the slope and the variance of a bit.
    step_size
        Step :math:`\eta`.
    gain
        Gain A at the receiver: a number, or (round, dim).
    num_devices
        Number K of devices.
    num_active
        Number :math:`K_a` of devices that transmit, which broadcasts with ``gain``; None: all.

    Returns
    -------
    float
        The temperature; 1 is right.

    Raises
    ------
    InvalidSetting
        If the link has no slope.

    Examples
    --------
    >>> from flmc.planning.temperature import calibrated_gain, temperature
    >>> uplink = flmc.Digital()
    >>> gain = calibrated_gain(uplink, step_size=1e-3, num_devices=20)
    >>> round(temperature(uplink, 1e-3, gain, num_devices=20), 12)
    1.0
    """
    active = num_devices if num_active is None else num_active
    # The noise itself is averaged, not the gain: the chain adds up variances, so a round with a
    # small gain counts for more than its share.
    variance = np.square(num_devices / active) * (
        uplink.noise_power / np.square(gain) + uplink.bit_variance * active
    )
    return float(step_size * np.mean(variance) / (2.0 * uplink.slope))


def calibrated_gain(
    uplink: Uplink, step_size: Number, num_devices: int, num_active: Number | None = None
) -> Number:
    r"""Gain at which the temperature is 1, :math:`A = \sqrt{N_0/((2\kappa/\eta)(K_a/K)^2 - V_q)}`.

    Parameters
    ----------
    uplink
        Gives the noise power, the slope and the variance of a bit.
    step_size
        Step :math:`\eta`, a number or an array.
    num_devices
        Number K of devices.
    num_active
        Number :math:`K_a` of devices that transmit, which broadcasts with the step; None: all.

    Returns
    -------
    float or Array
        The gain. It is infinite where quantisation alone makes T >= 1, that is, for the digital
        uplink, where :math:`\eta \ge 2\kappa K_a/K^2`: no gain is too large then.
    """
    active = num_devices if num_active is None else num_active
    # Variance that the channel's noise may have at the server, N_0/A^2, beside that of
    # quantisation.
    room = (
        2.0 * uplink.slope / np.asarray(step_size) * np.square(active / num_devices)
        - uplink.bit_variance * active
    )
    with np.errstate(divide="ignore", invalid="ignore"):
        gain = np.where(room > 0, np.sqrt(uplink.noise_power / room), np.inf)
    return gain if gain.ndim else float(gain)


def paper_gain(
    uplink: Uplink, step_size: Number, num_devices: int, num_active: Number | None = None
) -> Number:
    r"""Langevin limit of the gain as the paper prints it, :math:`(K/K_a)\sqrt{\eta N_0/2}`.

    It is right for :math:`\kappa = 1` and :math:`V_q = 0`, that is for the analog uplink.

    Parameters
    ----------
    uplink
        Gives the noise power.
    step_size
        Step :math:`\eta`, a number or an array.
    num_devices
        Number K of devices.
    num_active
        Number :math:`K_a` of devices that transmit, which broadcasts with the step; None: all.

    Returns
    -------
    float or Array
        The gain.
    """
    active = num_devices if num_active is None else num_active
    return num_devices / active * np.sqrt(np.asarray(step_size) * uplink.noise_power / 2.0)


def auto_step_size(
    uplink: Uplink,
    num_devices: int,
    largest_gain: float,
    smoothness: float | None,
    convexity: float | None = None,
    num_active: int | None = None,
) -> float:
    r"""Automatic step: the smallest of three, each of which keeps one error small.

    * Stability: :math:`0.2 \cdot \frac{2}{\mu + L}/\kappa`.
    * Quantisation makes at most 0.6 of the Langevin noise: :math:`0.6 \cdot 2\kappa K_a/K^2`.
    * The largest gain attains T = 1: :math:`2\kappa (K_a/K)^2/(V_q + N_0/A_{\max}^2)`.

    Parameters
    ----------
    uplink
        Gives the noise power, the slope and the variance of a bit.
    num_devices
        Number K of devices.
    largest_gain
        Gain :math:`A_{\max}` that power and privacy allow; may be infinite.
    smoothness, convexity
        Largest and smallest curvature L and :math:`\mu` of the negative log posterior. Without a
        known convexity the smoothness takes its place, which only makes the step smaller.
    num_active
        Smallest number :math:`K_a` of devices that transmit in a round; None: all.

    Returns
    -------
    float
        The step :math:`\eta`.

    Raises
    ------
    InvalidSetting
        If the smoothness is not known, or the link has no slope.
    """
    if smoothness is None:
        raise InvalidSetting(
            "step_size 'auto' needs the smoothness L of the model, got none: give smoothness or a"
            " step_size"
        )
    curvature = smoothness + (smoothness if convexity is None else convexity)
    active = num_devices if num_active is None else num_active
    share = (active / num_devices) ** 2
    variance = uplink.bit_variance * active
    # The Langevin equation sees the step times the slope, hence the division.
    stable = STABLE_SHARE * 2.0 / curvature / uplink.slope
    # At a smaller step the sampler needs more noise, so a smaller gain; at a larger step it would
    # need a larger gain than is allowed.
    least_noise = variance + uplink.noise_power / largest_gain**2
    quantised = QUANTISATION_SHARE * 2.0 * uplink.slope * share / variance if variance else np.inf
    reached = 2.0 * uplink.slope * share / least_noise if least_noise else np.inf
    return float(min(stable, quantised, reached))


def auto_burn_in_factor(
    uplink: Uplink,
    step_size: float,
    num_fast: int,
    num_devices: int,
    distance: float,
    smoothness: float,
) -> float:
    r"""Factor by which the first ``num_fast`` steps should be larger, for a distant start to
    arrive.

    It is such that a start half as far again as ``distance`` arrives within these rounds when every
    device pulls with its largest mean symbol. It is not below 1, and never so large that the fast
    step comes near instability (:math:`\eta_{\text{eff}} L` at most 1/2).

    Parameters
    ----------
    uplink
        Gives the slope, the clip and the mean symbol.
    step_size
        Step :math:`\eta` of the other rounds.
    num_fast
        Number of rounds with the larger step; 0 makes the factor 1.
    num_devices
        Number of devices.
    distance
        Distance from the start to the posterior in one entry, in units of theta.
    smoothness
        Largest curvature L of the negative log posterior.

    Returns
    -------
    float
        The factor, at least 1.
    """
    if num_fast == 0:
        return 1.0
    # Far from the mode gradients are clipped, so a chain moves at a constant speed, not
    # exponentially.
    wanted = 1.5 * distance / (num_fast * step_size * num_devices * _largest_pull(uplink))
    return float(max(1.0, min(wanted, 0.5 / (step_size * uplink.slope * smoothness))))


def rounds_needed(
    uplink: Uplink,
    step_size: float,
    fast: float,
    num_fast: int,
    num_devices: int,
    distance: float,
    convexity: float,
) -> int:
    r"""Number of rounds of burn-in that the sampler needs: to travel, then to relax.

    Travel covers ``distance`` in one entry at full speed, when every device pulls with its largest
    mean symbol :math:`\psi`: :math:`\eta K \psi` a round, ``fast`` times that in the first
    ``num_fast`` rounds. Then what is left of the distance, at most :math:`K\ell/\mu` where
    gradients are no longer clipped, shrinks like :math:`e^{-\eta\kappa\mu}` a round until it is a
    tenth of the posterior's standard deviation, :math:`1/\sqrt\mu`; this takes at least five times
    :math:`1/(\eta\kappa\mu)` rounds.

    Parameters
    ----------
    uplink
        Gives the slope, the clip :math:`\ell` and the mean symbol.
    step_size
        Step :math:`\eta` of a round that is not fast.
    fast, num_fast
        Factor of the step in the first rounds, and their number.
    num_devices
        Number K of devices.
    distance
        Distance from the start to the posterior in one entry, in units of theta.
    convexity
        Smallest curvature :math:`\mu` of the negative log posterior.

    Returns
    -------
    int
        The number of rounds.
    """
    speed = step_size * num_devices * _largest_pull(uplink)
    covered = num_fast * fast * speed if num_fast else 0.0  # the ideal uplink's speed is infinite
    travel = (
        distance / (fast * speed)
        if covered >= distance
        else num_fast + (distance - covered) / speed
    )
    left = min(distance, num_devices * uplink.clip / convexity)
    # Relaxation times until what is left is a tenth of the posterior's standard deviation.
    times = max(5.0, np.log(10.0 * left * np.sqrt(convexity)))
    return int(np.ceil(travel + times / (step_size * uplink.slope * convexity)))


def _largest_pull(uplink: Uplink) -> float:
    """Mean symbol of a device whose gradient is at the clip, in the direction in which it is
    weaker."""
    # A link need not be odd: the chain may have to travel in the direction in which bits pull less.
    down, up = uplink.mean_symbol(np.array([-uplink.clip, uplink.clip]))
    return float(min(up, -down))
