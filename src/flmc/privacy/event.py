"""The contract of a privacy event: what one device transmitted in the worst case, and what it
costs.

An event is the worst case for one device over some transmissions, each of one entry with one gain:
the *pair* of distributions that an adversary, who knows every other device's symbols, must tell
apart. It consists of plain numbers (probabilities, gains, counts) and knows nothing of uplinks or
plans. It computes delta for an epsilon, epsilon for a delta, and the largest gain within both.
There are three criteria:

* ``tight``: standard (epsilon, delta)-differential privacy of the worst-case pair. The guarantee.
* ``tail``: the paper's criterion, Pr(abs(loss) <= epsilon) >= 1 - delta, at that pair and gain. It
  implies the guarantee, and is stricter.
* ``paper``: the paper's bound of the loss, as if the other devices' known symbols did not cancel.
  Valid for two or more devices, very loose."""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from functools import lru_cache, partial
from typing import NamedTuple, Self

from flmc.base import checks
from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.privacy.root_finding import FIRST_STEP, largest_argument, largest_gain
from flmc.privacy.transmissions import Transmissions, as_transmissions, binomial_counts

CRITERIA = ("tight", "tail", "paper")
"""Names of the privacy criteria by which delta and epsilon can be stated. ``tight`` is standard
(epsilon, delta)-differential privacy; ``tail`` is the paper's criterion, Pr(abs(privacy loss) <=
epsilon) >= 1 - delta; ``paper`` is that with the paper's upper bound in place of the loss."""
_SMALLEST_TAIL = 1e-13
"""Smallest delta that the criteria ``tail`` and ``paper`` accept: probabilities near 1e-15 are lost
in rounding. A smaller one raises ``InvalidSetting``."""
_ROUNDED = 1 - 1e-14
"""Share of the largest possible privacy loss from which on a computed epsilon is taken for equal to
it, because both are rounded."""


class GainSearch(NamedTuple):
    """Settings of a search for the largest gain that a privacy budget allows: where it begins, and
    how exact it is."""

    start: float
    """Gain at which the search begins, of the order of the expected result."""
    first_step: float = FIRST_STEP
    """First step of the search away from its start, in the natural logarithm of the gain; small,
    because delta is costly to compute far above the allowed gain."""
    tolerance: float = 1e-9
    """Width of the search's interval in the logarithm of the gain, relative to its larger end, at
    which the search ends."""
    limited: bool = False
    """Whether some gain is known to break the budget, so that an infinite gain need not be tried
    first."""


def nothing_allowed(epsilon: float, delta: float) -> InvalidSetting:
    """Error, to be raised by the caller, that says that not even the smallest gain is known to keep
    the privacy budget (``epsilon``, ``delta``)."""
    return InvalidSetting(
        f"no gain is known to stay within epsilon {epsilon:g} at delta {delta:g}: such a small"
        " delta is lost in the rounding of the accountant; use a larger delta (1e-12 or more) or a"
        " larger epsilon"
    )


class Event(ABC):
    """Privacy event: what one device transmitted in the worst case, and what it costs in epsilon
    and delta. Every epsilon and delta is an upper bound, every gain a lower one.

    A subclass is a frozen dataclass with the fields ``noise_power`` and ``transmissions``. It
    implements :attr:`largest_loss`, :attr:`mu` and :meth:`tight_delta`; the other methods hold for
    every event, and a subclass overrides those for which it has a closed form or a better bound."""

    noise_power: float
    """Variance of the channel's noise in an entry."""
    transmissions: Transmissions
    """Gains, each with the number of entries that were sent with it; a list or an iterator of such
    pairs becomes a tuple."""

    def __post_init__(self) -> None:
        # An event is the key of caches and is read many times: a list has no hash, and an iterator
        # would be empty the second time.
        given = vars(self).get("transmissions", ())
        if type(given) is not tuple or (given and type(given[0]) is not tuple):
            object.__setattr__(self, "transmissions", as_transmissions(given))

    @property
    def num_transmissions(self) -> int:
        """Sum of the counts in ``transmissions``, those with a gain of 0 included: the number of
        entries sent, or of rounds in an event whose counts are rounds."""
        return sum(count for _, count in self.transmissions)

    @property
    def silent(self) -> bool:
        """Whether the device transmitted nothing: all counts are 0, or all gains."""
        return not any(count and gain > 0 for gain, count in self.transmissions)

    @property
    def softest(self) -> float:
        """Smallest positive gain with which anything was sent; ``ValueError`` if nothing was."""
        return min(gain for gain, count in self.transmissions if count and gain > 0)

    @property
    @abstractmethod
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss that holds for all gains and any noise; infinite where
        there is no finite bound."""

    @property
    @abstractmethod
    def mu(self) -> float:
        """Distance of the means under two neighbouring data sets, in standard deviations of the
        noise, if the event is treated as a Gaussian mechanism.

        It is exact for a Gaussian mechanism; for other events it only says where the search for the
        allowed gain begins."""

    @property
    def criteria(self) -> tuple[str, ...]:
        """Names, among ``CRITERIA``, of the privacy criteria that are proven for this event:
        ``tight`` (standard differential privacy) alone, unless a subclass overrides this."""
        return ("tight",)

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two phrases for the message that refuses the criteria ``tail`` and ``paper`` for this
        event: the name of the setting or event that needs the criterion ``tight``, such as
        ``example_norm``, and the reason."""
        return f"a {type(self).__name__}", "nothing else is proven for it"

    def check_criterion(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting``, with the reason, for a criterion that is not proven for this
        event.

        ``num_devices`` is the number of devices in the federation, which only ``paper`` needs."""
        if criterion not in self.criteria:
            what, why = self.tight_only
            raise InvalidSetting(f"{what} needs privacy 'tight', got {criterion!r}: {why}")

    @abstractmethod
    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy
        (criterion ``tight``). It is called only for an ``epsilon`` below ``largest_loss``, and only
        if a positive gain was sent."""

    def tail_delta(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the probability that the magnitude of the privacy loss exceeds
        ``epsilon``: of the loss itself by the criterion ``tail``, of the paper's bound of the loss
        by ``paper``. It is called only for an ``epsilon`` below ``largest_loss``, if a positive
        gain was sent, and for a criterion in ``criteria``. A subclass with ``tail`` or ``paper`` in
        ``criteria`` must override it."""
        raise NotImplementedError(f"{type(self).__name__} states criteria that it does not answer")

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy, and
        whether it is looser than usual because a grid of privacy losses had to be made coarser. It
        is called only if a positive gain was sent. This default searches with :meth:`delta`, uses
        no grid, and so returns False."""
        return self.tail_epsilon(delta, "tight", None), False

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy if
        this event happens in each of ``rounds`` rounds with probability ``chance``, independently
        of other rounds and of the data, and everybody sees in which. It is the mean of delta over
        the number of rounds in which the event happens."""
        counts, beyond = binomial_counts(rounds, chance)
        each = (share * self.repeated(count).delta(epsilon) for count, share in counts if count)
        return min(1.0, math.fsum(each) + beyond)

    def averaged_epsilon(self, delta: float, rounds: int, chance: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy if
        this event happens in each of ``rounds`` rounds with probability ``chance``, and everybody
        sees in which; and whether it is looser than usual because a grid of privacy losses had to
        be made coarser. It is found by a search with :meth:`averaged_delta`, below the epsilon of
        an event that happens in every round."""
        worst, coarse = self.repeated(rounds).tight_epsilon(delta)
        if math.isinf(worst):
            return worst, coarse

        def excess(minus: float) -> float:
            return self.averaged_delta(-minus, rounds, chance) - delta

        # If the chance is 1, the average is the worst case, and rounding may leave the averaged
        # delta above the given one even at the epsilon of the worst case: that epsilon is returned.
        if worst == 0 or excess(-worst) > 0:
            return worst, coarse
        return -largest_argument(excess, -worst, 0.0, tolerance=1e-8), coarse

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta in the limit of an infinite gain, for an ``epsilon`` below
        ``largest_loss``: 1, unless a subclass knows that the data are also hidden by something
        other than the noise."""
        return 1.0

    def delta(
        self, epsilon: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Upper bound, between 0 and 1, of the delta that goes with ``epsilon`` by a ``criterion``
        in ``CRITERIA``: the probability with which the privacy loss may exceed epsilon.

        ``num_devices``, the number of devices in the federation, is needed for the criterion
        ``paper`` only. Raises ``InvalidSetting`` for a criterion that is unknown, or not proven for
        this event."""
        self._check(criterion, num_devices)
        if epsilon >= self.largest_loss * _ROUNDED or self.silent:
            return 0.0
        if criterion == "tight":
            return self.tight_delta(epsilon)
        return self.tail_delta(epsilon, criterion, num_devices)

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy, for
        a curve of many epsilons. A subclass may share work between them, where that makes delta
        looser by a millionth of itself at most."""
        return self.delta(epsilon)

    def averaged_curve_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """What :meth:`averaged_delta` returns, for a curve of many epsilons, as
        :meth:`curve_delta`."""
        return self.averaged_delta(epsilon, rounds, chance)

    def epsilon(
        self, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Upper bound of the epsilon that goes with ``delta`` by a ``criterion`` in ``CRITERIA``:
        the bound of the privacy loss that may fail with probability delta. It is infinite if no
        finite epsilon is large enough.

        ``num_devices``, the number of devices in the federation, is needed for the criterion
        ``paper`` only. Raises ``InvalidSetting`` for a criterion that is unknown, or not proven for
        this event."""
        self._check(criterion, num_devices)
        if self.silent:
            return 0.0
        if delta <= 0:  # with a delta of 0 no probability is left for a larger loss
            return self.largest_loss
        if criterion == "tight":
            return _tight_epsilon(self, delta)[0]
        return _tail_epsilon(self, delta, criterion, num_devices)

    def tight_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy, and
        whether it is looser than usual because the grid on which privacy losses are added had to be
        made coarser."""
        return (0.0, False) if self.silent else _tight_epsilon(self, delta)

    def tail_epsilon(self, delta: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of the epsilon that goes with ``delta`` by any ``criterion`` in ``CRITERIA``,
        found by a search with :meth:`delta`."""

        def excess(minus: float) -> float:
            return self.delta(-minus, criterion, num_devices) - delta

        highest = self.largest_loss
        if math.isinf(highest):
            highest = 1.0  # Without a largest loss the upper end is doubled until delta is kept.
            while excess(-highest) > 0:
                highest *= 2
        # The search is over minus epsilon, because delta increases with it: so the search ends at
        # an epsilon whose delta is at most the given one.
        return -largest_argument(excess, -highest, 0.0, tolerance=1e-8)

    def allowed_gain(
        self, epsilon: float, delta: float, criterion: str = "tight", num_devices: int | None = None
    ) -> float:
        """Lower bound of the largest factor by which all gains may be multiplied within the budget
        (``epsilon``, ``delta``) by a ``criterion`` in ``CRITERIA``; for an event whose gains are 1,
        it is the largest gain. Infinite if every gain is allowed.

        ``num_devices``, the number of devices in the federation, is needed for the criterion
        ``paper`` only. Raises ``InvalidSetting`` if not even the smallest gain is known to keep the
        budget, if epsilon or delta is not positive, or if delta is below 1e-13 by ``tail`` or
        ``paper``."""
        checks.positive("epsilon", epsilon, extreme=math.inf)
        checks.positive("delta", delta, extreme=math.inf)
        if criterion != "tight" and delta < _SMALLEST_TAIL:
            raise InvalidSetting(
                f"delta must be at least {_SMALLEST_TAIL:g} for privacy {criterion!r}, got"
                f" {delta:g}; use 'tight'"
            )
        if self.silent:
            return math.inf
        gain = self.solve_gain(epsilon, delta, criterion, num_devices)
        if gain == 0:
            raise nothing_allowed(epsilon, delta)
        return gain

    # Cached on the method itself, because planning asks for the same budget again and again; events
    # are small frozen values, compared by value, so that the cache keeps nothing large alive.
    @lru_cache(maxsize=4096)  # noqa: B019  # nothing large is kept alive
    @one_blas_thread()
    def solve_gain(
        self, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Largest factor of all gains that a search finds to keep the budget (``epsilon``,
        ``delta``); 0 if it finds none. :meth:`allowed_gain` checks its arguments and then calls
        this method."""
        spent = partial(
            self.delta_at_gain, epsilon=epsilon, criterion=criterion, num_devices=num_devices
        )
        start, step, tolerance, limited = self.gain_search(epsilon, delta, criterion)
        gain = largest_gain(spent, delta, start, step, tolerance, limited=limited)
        return self.below_violations(gain, epsilon, delta, criterion, num_devices)

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the largest gain within the budget (``epsilon``, ``delta``):
        it begins at the factor of the gains at which ``mu`` is min(1, epsilon), which is of the
        right order if the privacy loss is nearly Gaussian."""
        return GainSearch(min(1.0, epsilon) / self.mu)

    def below_violations(
        self, gain: float, epsilon: float, delta: float, criterion: str, num_devices: int | None
    ) -> float:
        """Largest factor of all gains, at most ``gain``, such that every smaller factor keeps the
        budget (``epsilon``, ``delta``). It is ``gain`` itself where delta grows with the gain, as
        in standard differential privacy; a subclass overrides this where delta may fall."""
        return gain

    def delta_at_gain(
        self, gain: float, *, epsilon: float, criterion: str, num_devices: int | None
    ) -> float:
        """Upper bound of the delta that goes with ``epsilon`` if all gains are multiplied by
        ``gain``, which may be infinite."""
        if math.isfinite(gain):
            return self.scaled(gain).delta(epsilon, criterion, num_devices)
        if epsilon >= self.largest_loss * _ROUNDED:
            return 0.0
        return self.delta_without_noise(epsilon, criterion, num_devices)

    def scaled(self, gain: float) -> Self:
        """Event with every gain multiplied by ``gain``."""
        sent = tuple((gain * value, count) for value, count in self.transmissions)
        return dataclasses.replace(self, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    def repeated(self, times: int) -> Self:
        """Event in which each of the transmissions is made ``times`` times, with the same gain."""
        sent = tuple((gain, times * count) for gain, count in self.transmissions)
        return dataclasses.replace(self, transmissions=sent)  # type: ignore[type-var]  # all are dataclasses

    def _check(self, criterion: str, num_devices: int | None) -> None:
        """Raise ``InvalidSetting`` for a criterion that is unknown, or not proven for this
        event."""
        if criterion not in CRITERIA:
            raise InvalidSetting(
                f"privacy must be one of {', '.join(CRITERIA)}, off; got {criterion!r}"
            )
        self.check_criterion(criterion, num_devices)


@lru_cache(maxsize=1024)
@one_blas_thread()
def _tight_epsilon(event: Event, delta: float) -> tuple[float, bool]:
    """Upper bound of an event's epsilon in standard differential privacy, and whether it is looser
    than usual because a grid of privacy losses had to be made coarser. Cached, because plans that
    differ in other settings often have the same event."""
    return event.solve_epsilon(delta)


@lru_cache(maxsize=1024)
def _tail_epsilon(event: Event, delta: float, criterion: str, num_devices: int | None) -> float:
    """Upper bound of an event's epsilon by the criterion ``tail`` or ``paper``. Cached, because
    plans that differ in other settings often have the same event."""
    return event.tail_epsilon(delta, criterion, num_devices)
