r"""Privacy event of transmissions whose gain at the receiver is not certain, because a device
inverts an inexact estimate of its path gain.

If the gain of a transmission exceeds :math:`\bar A` with probability p at most, whatever the data,
then the gains of n transmissions are all at most :math:`\bar A` with probability :math:`1 - np`. So
a proof at :math:`\bar A` for :math:`\delta - np` holds for :math:`\delta`, because whether a gain
exceeds :math:`\bar A` does not depend on the data."""

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
    r"""Privacy event of transmissions that are planned with a gain A and arrive with an uncertain
    one. The bound :math:`(A + a)/\rho` of the gain at the receiver fails with probability
    ``exceeded`` at most in each transmission; a is ``extra``, and :math:`\rho` is
    ``correlation``."""

    certain: Event
    """The event that would happen if all transmissions arrived with their planned gains."""
    extra: float
    """Addition to a planned gain in the bound of the gain at the receiver, (planned gain +
    ``extra``)/``correlation``; in the unit of gains."""
    correlation: float
    """Divisor in the bound of the gain at the receiver, (planned gain + ``extra``)/``correlation``:
    the correlation, in (0, 1], of the estimated with the true path gain."""
    exceeded: float
    """Upper bound of the probability that the gain of one transmission at the receiver exceeds its
    bound, (planned gain + ``extra``)/``correlation``."""

    @property
    def noise_power(self) -> float:  # type: ignore[override]
        """Variance of the channel's noise in an entry."""
        return self.certain.noise_power

    @property
    def transmissions(self) -> Transmissions:  # type: ignore[override]
        """Planned gains, each with the number of entries that are sent with it."""
        return self.certain.transmissions

    @property
    def loud(self) -> Event:
        """The event that would happen if the gain of every transmission at the receiver were its
        bound, (planned gain + ``extra``)/``correlation``."""
        sent = tuple(
            ((gain + self.extra) / self.correlation if gain > 0 else 0.0, count)
            for gain, count in self.transmissions
        )
        return dataclasses.replace(self.certain, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    @property
    def probability(self) -> float:
        """Upper bound of the probability that the gain of any transmission at the receiver exceeds
        its bound, (planned gain + ``extra``)/``correlation``."""
        return self.exceeded * sum(count for gain, count in self.transmissions if gain > 0)

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss that holds for all gains at the receiver, also for those
        that exceed the bound (planned gain + ``extra``)/``correlation``."""
        return self.certain.largest_loss

    @property
    def mu(self) -> float:
        """Distance of the means of a Gaussian mechanism, in standard deviations of the noise, if
        the gain of every transmission at the receiver is its bound, (planned gain +
        ``extra``)/``correlation``."""
        return self.loud.mu

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names of the privacy criteria that are proven for the event at the planned gains."""
        return self.certain.criteria

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting`` for a criterion that is not proven for the event at the planned
        gains."""
        self.certain.check_criterion(criterion, num_devices)

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy: the
        delta with all gains at the receiver at their bounds, (planned gain +
        ``extra``)/``correlation``, plus the probability that any gain exceeds its bound."""
        return min(1.0, self.loud.delta(epsilon) + self.probability)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy, for
        a curve of many epsilons: as :meth:`tight_delta`."""
        if self.silent or epsilon >= self.largest_loss:
            return self.delta(epsilon)
        return min(1.0, self.loud.curve_delta(epsilon) + self.probability)

    def tail_delta(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the probability that the magnitude of the privacy loss (criterion
        ``tail``) or of the paper's bound of it (``paper``) exceeds ``epsilon``: that with all gains
        at the receiver at their bounds, plus the probability that any gain exceeds its bound."""
        return min(1.0, self.loud.delta(epsilon, criterion, num_devices) + self.probability)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy, and
        whether it is looser than usual because a grid of privacy losses had to be made coarser. All
        gains at the receiver are at their bounds, and the probability that any gain exceeds its
        bound is subtracted from ``delta``; if nothing of delta is left, epsilon is the largest
        possible loss."""
        left = delta - self.probability
        if left <= 0.0:
            return self.largest_loss, False
        epsilon, coarse = self.loud.tight_epsilon(left)
        return min(epsilon, self.largest_loss), coarse

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the epsilon that goes with ``delta`` by the given ``criterion``. All gains
        at the receiver are at their bounds, and the probability that any gain exceeds its bound is
        subtracted from ``delta``; if nothing of delta is left, epsilon is the largest possible
        loss."""
        left = delta - self.probability
        if left <= 0.0:
            return self.largest_loss
        return self.loud.epsilon(left, criterion, num_devices)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in the limit of an infinite gain:
        that of the event at the planned gains, because no gain exceeds an infinite one."""
        return self.certain.delta_without_noise(epsilon, criterion, num_devices)

    @lru_cache(maxsize=64)  # noqa: B019  # as the method that it overrides
    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Largest factor of all planned gains that keeps the budget (``epsilon``, ``delta``), where
        delta includes the probability that a gain at the receiver exceeds its bound. Raises
        ``InvalidSetting`` if that probability uses up delta, or if no factor keeps the budget."""
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
        """Largest factor of the planned gains at which the bounds of the gains at the receiver,
        (planned gain + ``extra``)/``correlation``, are at most ``allowed`` times the planned gains
        of this event; not positive if there is no such factor."""
        return self.correlation * allowed - self.extra / self.softest

    def too_loud(self, epsilon: float, allowed: float) -> InvalidSetting:
        """Error, to be raised by the caller, for an ``epsilon`` that no planned gain keeps;
        ``allowed`` is the factor of all planned gains that would be allowed if gains at the
        receiver were certain."""
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
        """Event in which each of the transmissions is made ``times`` times, with the same gain."""
        return dataclasses.replace(self, certain=self.certain.repeated(times))
