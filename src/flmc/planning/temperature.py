r"""How much noise the sampler needs, and how much it gets.

With slope :math:`\kappa`, quantisation variance :math:`V_q`, K_a of K devices active and the
server's factor K/K_a, the *temperature*

.. math:: T = \frac{\eta\,(K/K_a)^2\,(N_0/A^2 + V_q)}{2\kappa}

is, to leading order, the factor by which the sampled variance exceeds the posterior's. T = 1 is
right, T > 1 too wide, T < 1 collapses towards the mode. ``docs/sampling.md`` derives it. All
functions broadcast over ``gain`` and ``num_active``."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.uplink.uplink import Uplink

STABLE_SHARE = 0.2
"""Share of the step 2/(mu + L) that `auto` takes: the discretisation error is 11 % for mu = L, at
most 25 %."""
QUANTISATION_SHARE = 0.6
"""Largest share of the Langevin noise that `auto` leaves to quantisation."""

Number = float | Array


def temperature(
    uplink: Uplink,
    step_size: float,
    gain: Array | float,
    num_devices: int,
    num_active: Array | float | None = None,
) -> float:
    """T as above with the largest quantisation variance, V_q = K_a for the digital uplink; where
    gain and num_active are arrays, the noise is averaged over them (entries, rounds), as the chain
    does."""
    active = num_devices if num_active is None else num_active
    variance = np.square(num_devices / active) * (
        uplink.noise_power / np.square(gain) + uplink.bit_variance * active
    )
    return float(step_size * np.mean(variance) / (2.0 * uplink.slope))


def calibrated_gain(
    uplink: Uplink, step_size: Number, num_devices: int, num_active: Number | None = None
) -> Number:
    r"""The gain at which T = 1, :math:`A = \sqrt{N_0/((2\kappa/\eta)(K_a/K)^2 - V_q)}`.

    Infinite where quantisation alone makes T >= 1, that is for :math:`\eta \ge 2\kappa K_a/K^2`: no
    gain is too large then."""
    active = num_devices if num_active is None else num_active
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
    r"""The Langevin limit as printed, :math:`(K/K_a)\sqrt{\eta N_0/2}`: right for :math:`\kappa =
    1` and :math:`V_q = 0`, that is for analog."""
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
    r"""The smallest of three steps:

    * stability: :math:`0.2 \cdot \frac{2}{\mu + L}/\kappa`;
    * quantisation, at most 0.6 of the Langevin noise: :math:`0.6 \cdot 2\kappa K_a/K^2`;
    * reach: T = 1 is attained by ``largest_gain``,
      :math:`2\kappa (K_a/K)^2/(V_q + N_0/A_{\max}^2)`.

    Without a known convexity the smoothness takes its place, which only makes the step smaller.
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
    stable = STABLE_SHARE * 2.0 / curvature / uplink.slope
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
    r"""How much larger the first ``num_fast`` steps should be: a start half as far again as
    ``distance`` arrives in them.

    Not below 1, and never so large that the fast step comes near instability
    (:math:`\eta_{\text{eff}} L` at most 1/2)."""
    if num_fast == 0:
        return 1.0
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
    r"""Burn-in: travel, then relax.

    Travel covers ``distance`` in one entry at full speed, when every device pulls with its largest
    mean symbol: :math:`\eta K (2\Phi(\ell) - 1)` a round, ``fast`` times that in the first
    ``num_fast`` rounds. Then what is left of the distance, at most :math:`K\ell/\mu` where
    gradients are no longer clipped, shrinks like :math:`e^{-\eta\kappa\mu}` a round until it is a
    tenth of the posterior's standard deviation, :math:`1/\sqrt\mu`; at least five times
    :math:`1/(\eta\kappa\mu)`."""
    speed = step_size * num_devices * _largest_pull(uplink)
    covered = num_fast * fast * speed if num_fast else 0.0  # the ideal uplink's speed is infinite
    travel = (
        distance / (fast * speed)
        if covered >= distance
        else num_fast + (distance - covered) / speed
    )
    left = min(distance, num_devices * uplink.clip / convexity)
    times = max(5.0, np.log(10.0 * left * np.sqrt(convexity)))
    return int(np.ceil(travel + times / (step_size * uplink.slope * convexity)))


def _largest_pull(uplink: Uplink) -> float:
    """Mean symbol of a device whose gradient is at the clip, in the direction in which it is
    weaker."""
    down, up = uplink.mean_symbol(np.array([-uplink.clip, uplink.clip]))
    return float(min(up, -down))
