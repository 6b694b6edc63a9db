r"""Privacy event of rounds in which a device transmits by chance, and everybody sees in which.

Let S be the schedule, public and drawn without looking at data. The two worlds give (S, y) the laws
:math:`p(s) P_s(y)` and :math:`p(s) Q_s(y)`, whose hockey-stick divergence is exactly
:math:`\sum_s p(s) H_x(P_s\|Q_s)`: delta at a fixed epsilon is averaged over schedules, never
epsilon itself. It is a statement about a schedule that is still to be drawn, once, and not by those
from whom the data are hidden: of several schedules the loudest could be chosen."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Self

from flmc.privacy.event import Event, GainSearch
from flmc.privacy.transmissions import Transmissions


@dataclass(frozen=True)
class ScheduledEvent(Event):
    """Privacy event of ``rounds`` in each of which a device transmits with probability ``chance``,
    independently.

    Attributes
    ----------
    once
        The event of a round in which the device transmits.
    rounds
        Number of rounds, those in which it is silent included.
    chance
        Probability that it transmits in a round, above 0.
    """

    once: Event
    rounds: int
    chance: float

    @property
    def always(self) -> Event:
        """The event of a device that happens to transmit in every round: the worst schedule."""
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
        """Distance of the means of a Gaussian mechanism that transmits as often as is expected; a
        search for the gain may begin at 1 over it."""
        return math.sqrt(self.chance) * self.always.mu

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two parts of the message that refuses the criteria ``tail`` and ``paper``: what needs the
        criterion ``tight``, and why."""
        return "a schedule that is drawn", "only delta may be averaged over schedules"

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``, averaged over schedules."""
        return self.once.averaged_delta(epsilon, self.rounds, self.chance)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon at which delta, averaged over schedules, is ``delta``, and
        whether it is looser than usual."""
        return self.once.averaged_epsilon(delta, self.rounds, self.chance)

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta in the limit of an infinite gain: that of the worst schedule, in
        which the device transmits in every round."""
        return self.always.delta_without_noise(epsilon, criterion, num_devices)

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the allowed gain: it begins at the gain that is allowed if the
        device transmits in every round, times the root of the number of rounds over that in which
        it is expected to transmit."""
        least = self.always.allowed_gain(epsilon, delta, criterion)
        if math.isinf(least):
            return GainSearch(1.0 / self.mu)
        return GainSearch(least / math.sqrt(self.chance), 0.1, 1e-5)

    def scaled(self, gain: float) -> Self:
        """Event with every gain multiplied by ``gain``."""
        return dataclasses.replace(self, once=self.once.scaled(gain))

    def repeated(self, times: int) -> Self:
        """Event of the same schedule with every transmission made ``times`` times."""
        return dataclasses.replace(self, once=self.once.repeated(times))
