r"""Privacy event of transmissions whose gain at the receiver is not certain.

A device that inverts an inexact estimate of its channel arrives with another gain than planned. If
the gain of a transmission exceeds :math:`\bar A` with probability p at most, whatever the data,
then n transmissions are all within it with probability :math:`1 - np`. So a proof at :math:`\bar A`
for :math:`\delta - np` holds for :math:`\delta`, because whether a gain was exceeded does not
depend on the data."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

from flmc.base.errors import InvalidSetting
from flmc.privacy.event import Event
from flmc.privacy.transmissions import Transmissions


@dataclass(frozen=True)
class UncertainGainEvent(Event):
    r"""Privacy event of transmissions that are planned with a gain A, and arrive with a gain of at
    most :math:`(A + a)/\rho`, except with the probability ``exceeded``; a is ``extra``, and
    :math:`\rho` is ``correlation``."""

    certain: Event
    """The event that would happen if all transmissions arrived with their planned gains."""
    extra: float
    """Amount that is added to a planned gain, in the unit of gains, before it is divided by
    ``correlation``, for the gain at arrival that is rarely exceeded."""
    correlation: float
    r"""Number in (0, 1] by which a planned gain plus ``extra`` is divided, for the gain at arrival
    that is rarely exceeded."""
    exceeded: float
    """Upper bound of the probability with which one transmission arrives with more than the planned
    gain plus ``extra``, over ``correlation``."""

    @property
    def noise_power(self) -> float:  # type: ignore[override]
        """Variance of the channel's noise in an entry."""
        return self.certain.noise_power

    @property
    def transmissions(self) -> Transmissions:  # type: ignore[override]
        """Planned gains, each with the number of entries that were sent with it."""
        return self.certain.transmissions

    @property
    def loud(self) -> Event:
        r"""The event that would happen if every transmission arrived with a gain that is rarely
        exceeded: the planned gain plus ``extra``, over ``correlation``."""
        sent = tuple(
            ((gain + self.extra) / self.correlation if gain > 0 else 0.0, count)
            for gain, count in self.transmissions
        )
        return dataclasses.replace(self.certain, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    @property
    def probability(self) -> float:
        r"""Upper bound of the probability that any of the transmissions arrives with more than its
        planned gain plus ``extra``, over ``correlation``."""
        return self.exceeded * sum(count for gain, count in self.transmissions if gain > 0)

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any gain, also at one above the gain that is rarely
        exceeded."""
        return self.certain.largest_loss

    @property
    def mu(self) -> float:
        """Distance of the means of the Gaussian mechanism, in standard deviations of the noise, if
        every transmission arrived with the gain that is rarely exceeded."""
        return self.loud.mu

    @property
    def criteria(self) -> tuple[str, ...]:
        """Criteria that are proven for the event at the planned gains."""
        return self.certain.criteria

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting`` for a criterion that is not proven for the event at the planned
        gains."""
        self.certain.check_criterion(criterion, num_devices)

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` by the criterion ``tight``: that at
        gains of arrival that are rarely exceeded, plus the probability that one is exceeded."""
        return min(1.0, self.loud.delta(epsilon) + self.probability)

    def tail_delta(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the delta that goes with ``epsilon`` by the criterion ``tail`` or
        ``paper``: that at gains of arrival that are rarely exceeded, plus the probability that one
        is exceeded."""
        return min(1.0, self.loud.delta(epsilon, criterion, num_devices) + self.probability)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon by the criterion ``tight``, and whether it is loose: epsilon at
        gains of arrival that are rarely exceeded, for ``delta`` minus the probability that one is
        exceeded; the largest loss if nothing of delta is left."""
        left = delta - self.probability
        if left <= 0.0:
            return self.largest_loss, False
        epsilon, coarse = self.loud.tight_epsilon(left)
        return min(epsilon, self.largest_loss), coarse

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of epsilon by the criterion ``tail`` or ``paper``: epsilon at gains of
        arrival that are rarely exceeded, for ``delta`` minus the probability that one is exceeded;
        the largest loss if nothing of delta is left."""
        left = delta - self.probability
        if left <= 0.0:
            return self.largest_loss
        return self.loud.epsilon(left, criterion, num_devices)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta in the limit of an infinite gain: that of the event at the planned
        gains, because no gain exceeds an infinite one."""
        return self.certain.delta_without_noise(epsilon, criterion, num_devices)

    @lru_cache(maxsize=64)  # noqa: B019  # as the method that it overrides
    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Largest factor of all planned gains with which the gains at arrival keep the budget
        (``epsilon``, ``delta``), where delta includes the probability that one of these is
        exceeded. Raises ``InvalidSetting`` if that probability uses up delta, or if no factor keeps
        the budget."""
        if epsilon >= self.largest_loss:
            return math.inf
        left = delta - self.probability
        if left <= 0.0:
            raise InvalidSetting(
                f"delta must exceed {self.probability:.2g}, the probability that a gain is exceeded"
                f" because of csi_error in {self.num_transmissions} entries, got {delta:g}"
            )
        allowed = self.certain.allowed_gain(epsilon, left, criterion, num_devices)
        if self.planned(allowed) <= 0.0:
            raise self.too_loud(epsilon, allowed)
        return self.planned(allowed)

    def planned(self, allowed: float) -> float:
        """Largest factor of the planned gains with which the gains at arrival, except for the rare
        ones beyond their bound, are at most ``allowed`` times the present ones; not positive if
        there is none."""
        return self.correlation * allowed - self.extra / self.softest

    def too_loud(self, epsilon: float, allowed: float) -> InvalidSetting:
        """Error, to be raised by the caller, for a privacy budget that no planned gain keeps;
        ``allowed`` is the factor of all gains that the budget would allow if they were certain."""
        return InvalidSetting(
            f"no gain keeps epsilon {epsilon:g}: a device in a deep fade that inverts a wrong"
            f" estimate at full power may arrive with {self.extra / self.correlation:.3g}, and"
            f" {allowed * self.softest:.3g} is allowed; use a lower snr_db or csi_error, or a"
            " larger epsilon"
        )

    def scaled(self, gain: float) -> Self:
        """Event with every planned gain multiplied by ``gain``."""
        return dataclasses.replace(self, certain=self.certain.scaled(gain))

    def repeated(self, times: int) -> Self:
        """Event of the same transmissions, each made ``times`` times."""
        return dataclasses.replace(self, certain=self.certain.repeated(times))
