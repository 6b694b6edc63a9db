r"""What digital and analog estimates tell of a gradient at equal privacy of a whole run.

Take S rounds of m entries, so that a device sends n = m S symbols, and an uplink whose mean symbol
has the slope :math:`\kappa` at zero and the peak t; s is the squared gain over the noise power. The
*information* of a round is :math:`\kappa^2` over the noise variance of the received sum of symbols:
:math:`\kappa^2/(1/s + V)` for bits, where V, at most the number K of devices, is the variance of
their sum, and with V = 0 for analog symbols. The *advantage* of bits is the ratio of the two, for
equal :math:`\kappa/t`, rounds and budget, where privacy limits both: :math:`(4 n t^2/\mu^2)/(1/s +
V)`, with the distance :math:`\mu` of the Gaussian mechanism that spends the budget.
``docs/privacy.md`` proves what is said here of it."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.planning.prediction import NODES, WEIGHTS
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.root_finding import largest_argument


def budget_mu(epsilon: float, delta: float) -> float:
    """Distance of the means, in standard deviations, of the Gaussian mechanism that spends the
    budget (``epsilon``, ``delta``)."""
    return GaussianEvent(1.0, 1.0, ((1.0, 1),)).allowed_gain(epsilon, delta)


def run_epsilon(epsilon: float, delta: float, rounds: int, run_delta: float) -> float:
    """Epsilon of a run at ``run_delta`` in which a Gaussian mechanism spends the budget
    (``epsilon``, ``delta``) in every round."""
    mu = budget_mu(epsilon, delta) * math.sqrt(rounds)
    return GaussianEvent(mu, 1.0, ((1.0, 1),)).epsilon(run_delta)


def evidence(snr: Array) -> Array:
    r"""Mean square of the expectation of a fair bit, :math:`\pm 1`, given its received value, for
    the squared gain over the noise power ``snr``: 0 where noise drowns it, 1 where it is certain.

    It is :math:`M(s) = E \tanh^2(s + \sqrt s Z)` with a standard normal Z, never below
    :math:`s/(1 + s)`, what a straight line through the received value finds out."""
    s = np.asarray(snr, dtype=np.float64)[..., None]
    return np.asarray(np.square(np.tanh(s + np.sqrt(s) * NODES)) @ WEIGHTS)


def advantage_of_many_bits(snr: Array, quantisation: Array | float) -> Array:
    """Advantage of bits, in information, in the limit of many bits that each say little:
    1/(M(s) (1/s + V)), at most (1 + s)/(1 + V s), for the squared gain over the noise power s,
    ``snr``, and the variance V of the sum of bits, ``quantisation``. It is at most 1 unless V is
    below 1."""
    s = np.asarray(snr, dtype=np.float64)
    return np.asarray(1.0 / (evidence(s) * (1.0 / s + quantisation)))


def largest_mean_bit(num_bits: int, epsilon: float, delta: float) -> float:
    """Largest peak of the mean bit, below 1, for which ``num_bits`` bits that are received without
    any noise keep the budget (``epsilon``, ``delta``)."""
    right = np.arange(num_bits + 1.0)
    # Logarithms of binomial coefficients, from the sums of the logarithms of 1, 2, ...
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, num_bits + 1.0)))])
    ways = factorial[-1] - factorial - factorial[::-1]

    def excess(log_odds: float) -> float:
        """Delta at epsilon, less the delta of the budget, for bits whose loss is ``log_odds`` up or
        down: the loss of all follows from the number of bits that are as under the first data."""
        log_mass = ways + right * log_odds - num_bits * np.logaddexp(0.0, log_odds)
        loss = (2.0 * right - num_bits) * log_odds
        beyond = -np.expm1(np.minimum(epsilon - loss, 0.0))
        return float(np.exp(log_mass) @ beyond) - delta

    # Where the losses of all bits add up to epsilon, no delta is needed at all; the upper end is
    # the loss at which one bit alone breaks the budget.
    most = epsilon + math.log((1.0 + delta) / (1.0 - delta)) + 40.0
    return math.tanh(largest_argument(excess, epsilon / num_bits, most) / 2.0)


def most_devices(num_bits: int, epsilon: float, delta: float) -> float:
    r"""Largest variance V of the sum of all devices' bits, which is nearly their number, for which
    bits that are received without noise tell as much as analog symbols: :math:`4 n t^2/\mu^2` with
    the largest mean bit t that ``num_bits`` bits of a device allow."""
    mean_bit = largest_mean_bit(num_bits, epsilon, delta)
    return 4.0 * num_bits * mean_bit**2 / budget_mu(epsilon, delta) ** 2


def rule_of_thumb(num_bits: int, epsilon: float, delta: float) -> float:
    r"""What ``most_devices`` is, nearly, where bits spend their budget without any delta:
    :math:`\epsilon^2/(n \mu^2)`. It falls below the true number where n is large, which tends to 1.
    """
    return epsilon**2 / num_bits / budget_mu(epsilon, delta) ** 2


def proven_advantage(
    epsilon: float, delta: float, mean_bit: float, snr: float, quantisation: float
) -> float:
    r"""Upper bound of the advantage of bits, in information, whatever their number; infinite where
    nothing is proven. The peak of the mean bit is ``mean_bit``, the squared gain over the noise
    power ``snr``, and the variance of the sum of bits ``quantisation``.

    With :math:`\tau = \tanh(\epsilon/2)` and :math:`\theta = \delta/(t M(s))` it is :math:`4
    \tau^2/((1 - \theta)^2 - \tau^2)/\mu^2` times the limit of many bits."""
    known = float(evidence(np.array(snr)))
    share = delta / (mean_bit * known)
    tau = math.tanh(epsilon / 2.0) ** 2
    left = (1.0 - share) ** 2 - tau
    if share >= 1.0 or left <= 0.0:
        return math.inf
    bound = 4.0 * tau / left / budget_mu(epsilon, delta) ** 2
    return bound * float(advantage_of_many_bits(np.array(snr), quantisation))


class Threshold(NamedTuple):
    """How many devices' bits tell as much as analog symbols, for one budget and number of bits that
    a device sends in the run: what ``most_devices`` and ``rule_of_thumb`` say."""

    epsilon: float
    bits: int
    most_devices: float
    rule_of_thumb: float


def thresholds(delta: float, whole: bool) -> list[Threshold]:
    """Thresholds over budgets and numbers of bits, epsilon by epsilon; without ``whole`` a preview
    with fewer."""
    budgets = np.geomspace(0.1, 100.0, 31 if whole else 7)
    numbers = np.unique(np.geomspace(1.0, 2000.0, 40 if whole else 9).round().astype(int))
    return [
        Threshold(
            float(epsilon),
            int(bits),
            most_devices(int(bits), float(epsilon), delta),
            rule_of_thumb(int(bits), float(epsilon), delta),
        )
        for epsilon in budgets
        for bits in numbers
    ]
