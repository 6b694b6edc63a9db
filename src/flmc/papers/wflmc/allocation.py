r"""Allocations of the study: how strongly the devices of a round transmit.

Gains are those at the receiver, A; the study writes :math:`a_s = A_s^2`. Three limits hold in every
round with :math:`K_a` of K devices:

.. math:: a_s \le \frac{P \min_k |h_k|^2}{\ell^2}, \qquad
          a_s \le \Big(\frac{K}{K_a}\Big)^2 \frac{\eta N_0}{2}, \qquad
          \sum_{s: k \text{ active}} \frac{2\ell^2 a_s}{N_0} \le R .

The energy P of a block is :math:`m P_0`."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import brentq

from flmc.base.arrays import Array
from flmc.papers.wflmc.base_case import BaseCase
from flmc.papers.wflmc.program import Programs, solve
from flmc.privacy import gaussian


def published_budget(epsilon: float, delta: float) -> float:
    r"""Budget R as published: :math:`(\sqrt{\epsilon + c^2} - c)^2` with :math:`\sqrt\pi\, c\,
    e^{c^2} = 1/\delta`.

    Parameters
    ----------
    epsilon, delta
        The guarantee of a run.
    """
    # In logarithms, so that a small delta does not overflow.
    wanted = -math.log(delta) - 0.5 * math.log(math.pi)
    c = brentq(lambda c: math.log(c) + c * c - wanted, 1e-300, 10.0 + math.sqrt(abs(wanted)))
    return float((math.sqrt(epsilon + c * c) - c) ** 2)


def exact_budget(epsilon: float, delta: float) -> float:
    r"""Budget R that the Gaussian mechanism really has: :math:`\mu^2/2` at the largest :math:`\mu`
    with :math:`\delta(\epsilon; \mu) \le \delta`.

    Parameters
    ----------
    epsilon, delta
        The guarantee of a run.
    """
    low, high = 0.0, 1.0
    while gaussian.delta(epsilon, high) <= delta:
        low, high = high, 2.0 * high
    # Bisection from below: what is returned is allowed.
    for _ in range(100):
        middle = 0.5 * (low + high)
        low, high = (middle, high) if gaussian.delta(epsilon, middle) <= delta else (low, middle)
    return 0.5 * low * low


@dataclass(frozen=True)
class Allocations:
    """Squared gains of all runs on one channel at one SNR.

    Attributes
    ----------
    case
        The base case.
    largest
        What power and Langevin noise allow, (run, round).
    active
        Who transmits, (run, round, device) with 1 or 0.
    """

    case: BaseCase
    largest: Array
    active: Array

    @classmethod
    def of(cls, case: BaseCase, snr_db: float, fading: Array, active: Array) -> Allocations:
        """The limits of power and Langevin noise on a channel.

        Parameters
        ----------
        case
            The base case.
        snr_db
            Energy of a block over that of its noise, in dB.
        fading, active
            Path gains and who transmits, (run, round, device).
        """
        settings = case.settings
        energy = 10.0 ** (snr_db / 10.0) * settings.noise_power * settings.dim
        weakest = np.where(active > 0, fading, np.inf).min(axis=2)
        power = energy * np.square(weakest / settings.clip)
        count = active.sum(axis=2)
        langevin = np.square(settings.devices / count) * case.step_size * settings.noise_power / 2.0
        return cls(case, np.minimum(power, langevin), active)

    @classmethod
    def noiseless(cls, case: BaseCase) -> Allocations:
        """Limits without a channel: all devices, Langevin noise alone; one run stands for all.

        Parameters
        ----------
        case
            The base case.
        """
        settings = case.settings
        largest = np.full((1, settings.rounds), case.step_size * settings.noise_power / 2.0)
        return cls(case, largest, np.ones((1, settings.rounds, settings.devices)))

    def static(self, budget: float) -> Array:
        """Squared gains under one cap for all rounds of a run, (run, round).

        The cap spends the budget of the device that transmits most often.

        Parameters
        ----------
        budget
            Budget R of a device.
        """
        settings = self.case.settings
        most = self.active.sum(axis=1).max(axis=1, keepdims=True)
        cap = settings.noise_power * budget / (2.0 * settings.clip**2 * most)
        return np.asarray(np.minimum(self.largest, cap))

    def adaptive(self, budget: float) -> Array:
        """Squared gains that minimise the largest bound over kept rounds, (run, round).

        Parameters
        ----------
        budget
            Budget R of a device.
        """
        return np.asarray(self.largest * solve(self.programs(budget)))

    def programs(self, budget: float) -> Programs:
        r"""The convex programs of the adaptive allocation, one for each run.

        The bound of a kept round j is :math:`\rho^{2j} W_0 + \kappa \sum_{s \le j} \rho^{2(j-s)}
        [\eta^4 L^3 m/3 + \eta^3 L^2 m + 4 \eta^2 \ell^2 (K - K_a)^2 + \eta^2 N_0 K^2/(K_a^2 a_s) -
        2\eta]` with :math:`\rho = (1+\gamma)/2`, :math:`\kappa = (2+2\gamma)/(1-\gamma)` and
        :math:`\gamma = 1 - \eta\mu`. The Langevin limit keeps the last difference from being
        negative, so that it stands here without its positive part.

        Parameters
        ----------
        budget
            Budget R of a device.
        """
        case, settings = self.case, self.case.settings
        step, smoothness, dim = case.step_size, case.model.smoothness, settings.dim
        contraction = 1.0 - step * case.model.convexity
        decay = np.square((1.0 + contraction) / 2.0)
        factor = (2.0 + 2.0 * contraction) / (1.0 - contraction)
        count = self.active.sum(axis=2)
        fixed = step**4 * smoothness**3 * dim / 3.0 + step**3 * smoothness**2 * dim - 2.0 * step
        silent = 4.0 * np.square(step * settings.clip * (settings.devices - count))
        noise = np.square(step * settings.devices / count) * settings.noise_power
        cost = 2.0 * settings.clip**2 * self.largest / (settings.noise_power * budget)
        programs = Programs(
            np.zeros((len(count), case.num_kept)),
            factor * noise / self.largest,
            np.swapaxes(self.active * cost[:, :, None], 1, 2),
            float(decay),
        )
        kept = np.arange(case.num_burn_in + 1, settings.rounds + 1)
        base = decay**kept * _start_distance(case) + factor * (fixed + silent) @ programs.memory.T
        return programs._replace(base=base)


def _start_distance(case: BaseCase) -> float:
    r"""Squared W2 between prior and posterior, :math:`\|m\|^2 + \operatorname{tr}(\Sigma + I - 2
    \Sigma^{1/2})`."""
    posterior = case.model.posterior
    values = np.linalg.eigvalsh(posterior.covariance[0])
    return float(np.square(posterior.mean[0]).sum() + (values + 1.0 - 2.0 * np.sqrt(values)).sum())
