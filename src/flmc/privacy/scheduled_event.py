r"""Privacy event of rounds in which a device transmits by chance, and everybody sees in which.

Let S be the schedule of these rounds, public and drawn without looking at data. Under two
neighbouring data sets (S, y), with the received values y, has the laws :math:`p(s) P_s(y)` and
:math:`p(s) Q_s(y)`, whose hockey-stick divergence is exactly :math:`\sum_s p(s) H_x(P_s\|Q_s)`:
delta at a fixed epsilon is averaged over schedules, never epsilon itself. The average holds for a
schedule that is still to be drawn. It must be drawn once, and not by those from whom the data are
hidden, who could draw several and choose the one that reveals most."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Self

from flmc.privacy.event import Event, GainSearch
from flmc.privacy.transmissions import Transmissions


@dataclass(frozen=True)
class ScheduledEvent(Event):
    """Privacy event of ``rounds`` rounds, in each of which a device transmits with probability
    ``chance``, independently of other rounds; everybody sees in which.

    Attributes
    ----------
    once
        The event of a round in which the device transmits.
    rounds
        Number of rounds, those in which the device is silent included.
    chance
        Probability that the device transmits in a round, above 0.
    """

    once: Event
    rounds: int
    chance: float

    @property
    def always(self) -> Event:
        """The event of a device that transmits in every round, which is the worst schedule."""
        return self.once.repeated(self.rounds)

    @property
    def noise_power(self) -> float:  # type: ignore[override]
        """Variance of the channel's noise in an entry."""
        return self.once.noise_power

    @property
    def transmissions(self) -> Transmissions:  # type: ignore[override]
        """Gains, each with the number of entries that are sent with it by the worst schedule, in
        which the device transmits in every round."""
        return self.always.transmissions

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss of the event, whatever the gains and the schedule are."""
        return self.always.largest_loss

    @property
    def mu(self) -> float:
        """Distance of the means, in standard deviations of the noise, of a Gaussian mechanism that
        transmits in as many rounds as are expected; it only says where the search for the allowed
        gain begins."""
        return math.sqrt(self.chance) * self.always.mu

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two phrases for the message that refuses the criteria ``tail`` and ``paper`` for this
        event: the name of what needs the criterion ``tight``, and the reason."""
        return "a schedule that is drawn", "only delta may be averaged over schedules"

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy,
        averaged over the random schedules of transmissions."""
        return self.once.averaged_delta(epsilon, self.rounds, self.chance)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``, averaged over the random schedules
        of transmissions, for a curve of many epsilons."""
        if self.silent or epsilon >= self.largest_loss:
            return self.delta(epsilon)
        return self.once.averaged_curve_delta(epsilon, self.rounds, self.chance)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon at which delta, averaged over the random schedules of
        transmissions, is ``delta``; and whether it is looser than usual because a grid of privacy
        losses had to be made coarser."""
        return self.once.averaged_epsilon(delta, self.rounds, self.chance)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta in the limit of an infinite gain: that of the worst schedule, in
        which the device transmits in every round."""
        return self.always.delta_without_noise(epsilon, criterion, num_devices)

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the largest gain within the budget (``epsilon``, ``delta``):
        it begins at the gain that is allowed if the device transmits in every round, divided by the
        root of ``chance``."""
        least = self.always.allowed_gain(epsilon, delta, criterion)
        if math.isinf(least):
            return GainSearch(1.0 / self.mu)
        return GainSearch(least / math.sqrt(self.chance), 0.1, 1e-5)

    def scaled(self, gain: float) -> Self:
        """Event with every gain multiplied by ``gain``."""
        return dataclasses.replace(self, once=self.once.scaled(gain))

    def repeated(self, times: int) -> Self:
        """Event of the same random schedule, with everything that is sent in a round sent ``times``
        times."""
        return dataclasses.replace(self, once=self.once.repeated(times))
