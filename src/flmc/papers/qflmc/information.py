r"""Information of digital and of analog estimates about a gradient at equal privacy of a whole run.

Take S rounds of m entries, so that a device sends n = m S symbols, and an uplink whose mean symbol
has the slope :math:`\kappa` at zero and the largest value t, the peak; s is the squared gain over
the noise power. The *information* of a round is :math:`\kappa^2` over the noise variance of the
received sum of symbols: :math:`\kappa^2/(1/s + V)` for bits, where V, at most the number K of
devices, is the variance of the sum of their random bits; for analog symbols V is 0. The *advantage*
of bits is the information of bits over that of analog symbols, for equal :math:`\kappa/t`, rounds
and privacy budget, where privacy limits both gains: :math:`(4 n t^2/\mu^2)/(1/s + V)`. Here
:math:`\mu` is the distance of the means of the Gaussian mechanism that spends the budget. Section
14 of docs/privacy.md has the proofs."""

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
    r"""Mean square of the conditional expectation of a fair bit, :math:`\pm 1`, given its received
    value, for each squared gain over the noise power in ``snr``, in its shape: near 0 if noise
    hides the bit, near 1 if the received value shows it.

    It is :math:`M(s) = E \tanh^2(s + \sqrt s Z)` with s = ``snr`` and a standard normal Z, and at
    least :math:`s/(1 + s)`, the mean square of the best linear estimate of the bit."""
    s = np.asarray(snr, dtype=np.float64)[..., None]
    return np.asarray(np.square(np.tanh(s + np.sqrt(s) * NODES)) @ WEIGHTS)


def advantage_of_many_bits(snr: Array, quantisation: Array | float) -> Array:
    """Information of bits about a gradient, over that of analog symbols at equal privacy, in the
    limit of many bits that each say little: 1/(M(s) (1/s + V)), in the shape of ``snr``. Here s =
    ``snr`` is the squared gain over the noise power, V = ``quantisation`` the variance of the sum
    of all devices' bits, and M the function ``evidence``. It is at most (1 + s)/(1 + V s), so at
    most 1 unless V is below 1."""
    s = np.asarray(snr, dtype=np.float64)
    return np.asarray(1.0 / (evidence(s) * (1.0 / s + quantisation)))


def largest_mean_bit(num_bits: int, epsilon: float, delta: float) -> float:
    """Largest mean bit t, below 1, for which ``num_bits`` bits that are received without noise keep
    the budget (``epsilon``, ``delta``): a bit is +1 with probability (1 + t)/2 under one of two
    neighbouring data sets and (1 - t)/2 under the other."""
    right = np.arange(num_bits + 1.0)
    # Logarithms of binomial coefficients, from the sums of the logarithms of 1, 2, ...
    factorial = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1.0, num_bits + 1.0)))])
    ways = factorial[-1] - factorial - factorial[::-1]

    def excess(log_odds: float) -> float:
        """Delta at ``epsilon``, less the delta of the budget, for bits whose privacy loss is plus
        or minus ``log_odds``. The summed loss follows from the binomial number of bits, ``right``,
        whose loss is positive."""
        log_mass = ways + right * log_odds - num_bits * np.logaddexp(0.0, log_odds)
        loss = (2.0 * right - num_bits) * log_odds
        beyond = -np.expm1(np.minimum(epsilon - loss, 0.0))
        return float(np.exp(log_mass) @ beyond) - delta

    # Lower end of the search: if the losses of all bits add up to epsilon at most, delta is 0. The
    # upper end is larger than the loss at which one bit alone breaks the budget.
    most = epsilon + math.log((1.0 + delta) / (1.0 - delta)) + 40.0
    return math.tanh(largest_argument(excess, epsilon / num_bits, most) / 2.0)


def most_devices(num_bits: int, epsilon: float, delta: float) -> float:
    r"""Number of devices up to which bits that are received without noise tell at least as much of
    a gradient as analog symbols at equal privacy: :math:`4 n t^2/\mu^2`. Strictly, it bounds the
    variance of the sum of all devices' bits, which is nearly the number of devices. Here a device
    sends n = ``num_bits`` bits, t is the largest mean bit that the budget (``epsilon``, ``delta``)
    allows, and :math:`\mu` the distance of the means of the Gaussian mechanism that spends it."""
    mean_bit = largest_mean_bit(num_bits, epsilon, delta)
    return 4.0 * num_bits * mean_bit**2 / budget_mu(epsilon, delta) ** 2


def rule_of_thumb(num_bits: int, epsilon: float, delta: float) -> float:
    r"""Approximation :math:`\epsilon^2/(n \mu^2)`, n = ``num_bits``, of ``most_devices``, the
    number of devices up to which bits tell as much as analog symbols. It is close if bits spend
    epsilon and hardly any delta. For a large n it is too small: it tends to 0, the true number to
    1."""
    return epsilon**2 / num_bits / budget_mu(epsilon, delta) ** 2


def proven_advantage(
    epsilon: float, delta: float, mean_bit: float, snr: float, quantisation: float
) -> float:
    r"""Upper bound, for any number of bits, of the information of bits over that of analog symbols
    at equal privacy; infinite where nothing is proven. The largest mean bit is t = ``mean_bit``,
    the squared gain over the noise power s = ``snr``, and the variance of the sum of all devices'
    bits ``quantisation``.

    With :math:`\tau = \tanh(\epsilon/2)`, :math:`\theta = \delta/(t M(s))`, M the function
    ``evidence`` and :math:`\mu` the function ``budget_mu``, the bound is :math:`4 \tau^2/((1 -
    \theta)^2 - \tau^2)/\mu^2` times ``advantage_of_many_bits``."""
    known = float(evidence(np.array(snr)))
    share = delta / (mean_bit * known)
    tau = math.tanh(epsilon / 2.0) ** 2
    left = (1.0 - share) ** 2 - tau
    if share >= 1.0 or left <= 0.0:
        return math.inf
    bound = 4.0 * tau / left / budget_mu(epsilon, delta) ** 2
    return bound * float(advantage_of_many_bits(np.array(snr), quantisation))


class Threshold(NamedTuple):
    """Number of devices up to which bits tell as much as analog symbols, for one ``epsilon`` of the
    run and one number of ``bits`` that a device sends in it: exactly (``most_devices``), and by the
    ``rule_of_thumb``."""

    epsilon: float
    bits: int
    most_devices: float
    rule_of_thumb: float


def thresholds(delta: float, whole: bool) -> list[Threshold]:
    """Numbers of devices up to which bits tell as much as analog symbols, for epsilons from 0.1 to
    100 and 1 to 2000 bits of a device, epsilon by epsilon, at ``delta``. Without ``whole`` it is a
    preview with fewer epsilons and numbers of bits."""
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
