r"""The Gaussian mechanism in closed form: two normal distributions whose means are :math:`\mu`
standard deviations apart.

The privacy loss is :math:`N(x, 2x)` with :math:`x = \mu^2/2`. Composition adds :math:`\mu^2`.
Analog: :math:`\mu^2 = 4 m \ell^2 A^2/N_0` a round."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from flmc.base.special import log_ndtr, ndtr
from flmc.privacy.event import Event, mu_of
from flmc.privacy.root_finding import largest_argument
from flmc.privacy.transmissions import Transmissions


def delta(epsilon: float, mu: float) -> float:
    r"""Exact curve: :math:`\delta = \Phi(\mu/2 - \epsilon/\mu) - e^\epsilon \Phi(-\mu/2 -
    \epsilon/\mu)`."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    first = log_ndtr(mu / 2 - epsilon / mu)
    second = epsilon + log_ndtr(-mu / 2 - epsilon / mu)
    rounding = 4e-16 * (
        1.0 + 2 * epsilon + abs(first)
    )  # of their difference; delta is an upper bound
    return math.exp(first) * -math.expm1(min(second - first, 0.0) - rounding)


def epsilon(target: float, mu: float) -> float:
    """Smallest epsilon >= 0 whose delta is at most ``target``, from above."""
    if delta(0.0, mu) <= target:
        return 0.0
    if math.isinf(mu):
        return math.inf
    high = mu * mu / 2 + mu * 40.0  # delta is below 1e-300 there
    return -largest_argument(lambda minus: delta(-minus, mu) - target, -high, 0.0)


def tail_delta(epsilon: float, mu: float) -> float:
    r"""The paper's criterion: the probability that the loss exceeds epsilon in magnitude, :math:`1
    - T(x)` with the half that makes :math:`T` a probability: :math:`T(x) =
    \frac12[\operatorname{erf}(\frac{\epsilon-x}{2\sqrt x}) -
    \operatorname{erf}(\frac{-\epsilon-x}{2\sqrt x})]`."""
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    x = mu * mu / 2
    return float(ndtr(np.array([(x - epsilon) / mu, (-epsilon - x) / mu])).sum())


def tail_epsilon(target: float, mu: float) -> float:
    """Smallest epsilon whose tail probability is at most ``target``, from above."""
    if math.isinf(mu):
        return math.inf
    if tail_delta(0.0, mu) <= target:
        return 0.0
    high = mu * mu / 2 + mu * 40.0
    return -largest_argument(lambda minus: tail_delta(-minus, mu) - target, -high, 0.0)


@dataclass(frozen=True)
class GaussianEvent(Event):
    """Values that move by at most ``sensitivity`` times the gain, under Gaussian noise."""

    sensitivity: float
    noise_power: float
    transmissions: Transmissions

    @property
    def largest_loss(self) -> float:
        """Unbounded: without noise there is no privacy."""
        return math.inf

    @property
    def mu(self) -> float:
        r""":math:`\mu^2 = \sum (\Delta A)^2/N_0`; squares add over rounds."""
        return mu_of(self.sensitivity, self.noise_power, self.transmissions)

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Every criterion is proven: ``paper`` is ``tail`` here."""

    def delta_within_loss(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """In closed form."""
        return (delta if criterion == "tight" else tail_delta)(epsilon, self.mu)

    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """In closed form, so never coarse."""
        return epsilon(delta, self.mu), False

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """In closed form."""
        return tail_epsilon(delta, self.mu)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Everything is revealed."""
        return 1.0
