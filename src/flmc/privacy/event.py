"""The contract of a privacy event: what one device transmitted in the worst case, and what it
costs.

An event is the worst case for one device over some transmissions, each of one entry with one gain:
the *pair* of distributions that an adversary, who knows every other device's symbols, must tell
apart. It consists of plain numbers (probabilities, gains, counts) and knows nothing of uplinks or
plans. It answers three questions: which delta goes with an epsilon, which epsilon with a delta, and
which gain keeps within both. Three criteria are known:

* ``tight``: standard (epsilon, delta)-differential privacy of the worst-case pair. The guarantee.
* ``tail``: the paper's criterion, Pr(abs(loss) <= epsilon) >= 1 - delta, at that pair and gain. It
  implies the guarantee, and is stricter.
* ``paper``: the paper's bound of the loss, as if the other devices' known symbols did not cancel.
  Valid for two or more devices, very loose."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from functools import lru_cache
from typing import Self

from flmc.base import checks
from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.privacy.root_finding import largest_argument, largest_gain
from flmc.privacy.transmissions import Transmissions


def nothing_allowed(epsilon: float, delta: float) -> InvalidSetting:
    """Error for a budget that not even the smallest gain is known to keep."""
    return InvalidSetting(
        f"no gain is known to stay within epsilon {epsilon:g} at delta {delta:g}: such a small"
        " delta is lost in the rounding of the accountant; use a larger delta (1e-12 or more) or a"
        " larger epsilon"
    )


CRITERIA = ("tight", "tail", "paper")
"""Names of the privacy criteria that are known."""
_SMALLEST_TAIL = 1e-13
"""Smallest delta of the criteria about tails: probabilities near 1e-15 are not resolved."""
_ROUNDED = 1 - 1e-14
"""Share of the largest loss from which an epsilon has reached it: both are rounded."""


class Event(ABC):
    """Privacy event of one device; every epsilon and delta is an upper bound, every gain a lower
    one.

    A subclass is a frozen dataclass with the fields ``noise_power`` and ``transmissions``."""

    noise_power: float
    """Variance N_0 of the channel's noise in an entry."""
    transmissions: Transmissions
    """Gains, each with the number of entries that were sent with it."""

    @property
    def num_transmissions(self) -> int:
        """Number of entries that were sent in all."""
        return sum(count for _, count in self.transmissions)

    @property
    def silent(self) -> bool:
        """Whether nothing was sent at all."""
        return not any(count and gain > 0 for gain, count in self.transmissions)

    @property
    def softest(self) -> float:
        """Smallest gain that is not zero."""
        return min(gain for gain, count in self.transmissions if count and gain > 0)

    @property
    @abstractmethod
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss at any signal-to-noise ratio; infinite where there is
        none."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """Distance of the two means in standard deviations of the noise, were this a Gaussian
        mechanism.

        It is exact for a Gaussian mechanism; else it only gives the size of a search's first step.
        """

    @property
    def criteria(self) -> tuple[str, ...]:
        """Criteria that are proven for this event: ``tight``, unless a subclass knows more."""
        return ("tight",)

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Refuse a criterion that is not proven for this event, with the reason.

        ``num_devices`` is the number of devices in all, which only ``paper`` needs."""
        if criterion not in self.criteria:
            raise InvalidSetting(
                f"{self.tight_only[0]} needs privacy 'tight', got {criterion!r}:"
                f" {self.tight_only[1]}"
            )

    @property
    def tight_only(self) -> tuple[str, str]:
        """Words of the message that refuses ``tail`` and ``paper``: what is refused, and why."""
        return f"a {type(self).__name__}", "nothing else is proven for it"

    @abstractmethod
    def delta_within_loss(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta for an epsilon below the largest loss, where something was sent."""

    @abstractmethod
    def tight_epsilon_if_sent(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon by ``tight``, and whether a grid was coarsened, where something
        was sent."""

    @abstractmethod
    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta in the limit of an infinite gain, for an epsilon below the largest
        loss."""

    def delta(
        self, epsilon: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Upper bound of the delta that goes with ``epsilon``.

        Parameters
        ----------
        epsilon
            The loss that may be exceeded with probability delta only.
        criterion, num_devices
            One of ``CRITERIA``; devices in all, which only the criterion ``paper`` needs.

        Returns
        -------
        float
            A number between 0 and 1.

        Raises
        ------
        InvalidSetting
            If the criterion is not known, or not proven for this event.
        """
        self._check(criterion, num_devices)
        if epsilon >= self.largest_loss * _ROUNDED or self.silent:
            return 0.0
        return self.delta_within_loss(epsilon, criterion, num_devices)

    def epsilon(
        self, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Upper bound of the epsilon that goes with ``delta``; infinite where there is none.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        criterion, num_devices
            One of ``CRITERIA``; devices in all, which only the criterion ``paper`` needs.

        Raises
        ------
        InvalidSetting
            If the criterion is not known, or not proven for this event.
        """
        self._check(criterion, num_devices)
        if self.silent:
            return 0.0
        if delta <= 0:  # nothing may be exceeded
            return self.largest_loss
        if criterion == "tight":
            return self.tight_epsilon(delta)[0]
        return _tail_epsilon(self, delta, criterion, num_devices)

    def tight_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of epsilon by ``tight``, and whether it is looser than usual.

        It is looser where the grid of the composition had to be coarsened.

        Parameters
        ----------
        delta
            Probability with which the loss may be larger.
        """
        return (0.0, False) if self.silent else _tight_epsilon(self, delta)

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of epsilon by ``tail`` or ``paper``, from a search on delta."""

        def excess(minus: float) -> float:
            return self.delta(-minus, criterion, num_devices) - delta

        highest = self.largest_loss
        if math.isinf(highest):
            highest = 1.0  # no largest loss: doubled until delta is kept
            while excess(-highest) > 0:
                highest *= 2
        # In minus epsilon the excess increases, so the search ends on the side where delta is kept.
        return -largest_argument(excess, -highest, 0.0, tolerance=1e-8)

    def allowed_gain(
        self, epsilon: float, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Lower bound of the factor by which all gains may be multiplied within (epsilon, delta).

        For an event at gain 1 it is the largest gain. It is infinite if every gain is allowed.

        Parameters
        ----------
        epsilon, delta
            The budget.
        criterion, num_devices
            One of ``CRITERIA``; devices in all, which only the criterion ``paper`` needs.

        Raises
        ------
        InvalidSetting
            If not even the smallest gain is known to keep the budget.
        """
        checks.positive("epsilon", epsilon, extreme=math.inf)
        checks.positive("delta", delta, extreme=math.inf)
        return _allowed_gain(self, epsilon, delta, criterion, num_devices)

    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Factor of all gains that the search behind :meth:`allowed_gain` finds; 0: none."""
        spender = self.spender(epsilon, criterion, num_devices)
        guess = self.guess_gain(epsilon, delta) if criterion == "tight" else None
        if guess is not None:
            limited = self.surely_limited(epsilon, delta)
            return largest_gain(spender, delta, guess[0], bracket=guess[1], limited=limited)
        # Near the gain at which epsilon would be spent on average, were the loss Gaussian.
        return largest_gain(spender, delta, min(1.0, epsilon) / self.mu)

    def guess_gain(self, epsilon: float, delta: float) -> tuple[float, float] | None:
        """A gain close to what the budget allows, and the first step of a search from it, in
        logarithms; None: none is known, as here."""
        return None

    def surely_limited(self, epsilon: float, delta: float) -> bool:
        """Whether some gain is known to break the budget by ``tight``; False: not known."""
        return False

    def spender(self, epsilon: float, criterion: str, num_devices: int | None) -> _Spender:
        """Function that gives delta at one epsilon for a factor of all gains."""
        return _Spender(self, epsilon, criterion, num_devices)

    def scaled(self, gain: float) -> Self:
        """Event with every gain multiplied by ``gain``."""
        sent = tuple((gain * value, count) for value, count in self.transmissions)
        return dataclasses.replace(self, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    def repeated(self, times: int) -> Self:
        """Event of the same transmissions, all made so many times."""
        sent = tuple((gain, times * count) for gain, count in self.transmissions)
        return dataclasses.replace(self, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    def _check(self, criterion: str, num_devices: int | None) -> None:
        if criterion not in CRITERIA:
            raise InvalidSetting(
                f"privacy must be one of {', '.join(CRITERIA)}, off; got {criterion!r}"
            )
        self.check_criterion(criterion, num_devices)


@dataclasses.dataclass(frozen=True)
class _Spender:
    """Delta of an event at one epsilon, as a function of the factor of all gains."""

    unit: Event
    epsilon: float
    criterion: str
    num_devices: int | None

    def __call__(self, gain: float) -> float:
        if math.isinf(gain):
            if self.epsilon >= self.unit.largest_loss * _ROUNDED:
                return 0.0
            return self.unit.delta_without_noise(self.epsilon, self.criterion, self.num_devices)
        return self.unit.scaled(gain).delta(self.epsilon, self.criterion, self.num_devices)


@lru_cache(maxsize=1024)
@one_blas_thread()
def _tight_epsilon(event: Event, delta: float) -> tuple[float, bool]:
    """Epsilon of an event, kept: plans that differ in other things cost the same."""
    return event.tight_epsilon_if_sent(delta)


@lru_cache(maxsize=1024)
def _tail_epsilon(event: Event, delta: float, criterion: str, num_devices: int | None) -> float:
    """The same by ``tail`` or ``paper``."""
    return event.tail_epsilon(delta, criterion, num_devices)


@lru_cache(maxsize=4096)
@one_blas_thread()
def _allowed_gain(
    unit: Event, epsilon: float, delta: float, criterion: str, num_devices: int | None
) -> float:
    if criterion != "tight" and delta < _SMALLEST_TAIL:
        raise InvalidSetting(
            f"delta must be at least {_SMALLEST_TAIL:g} for privacy {criterion!r}, got {delta:g};"
            " use 'tight'"
        )
    if unit.silent:
        return math.inf
    found = unit.solve_gain(epsilon, delta, criterion, num_devices)
    if found == 0:
        raise nothing_allowed(epsilon, delta)
    return found
