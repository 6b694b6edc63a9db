"""Privacy events of bits when one example is replaced, which moves the gradient from an unknown
place.

*Bounded entries*: each entry moves by at most a shift. The worst place differs with epsilon, so the
profile of one entry is the supremum over places (:mod:`flmc.privacy.bit_pairs`).

*Bounded norm*: how the move is shared among the entries of a round is unknown, and may differ from
round to round. Every entry is dominated by a Gaussian mechanism whose mean moves in proportion to
the entry's move (:mod:`flmc.privacy.gaussian_rate`), and squares of means add up: so a round is
dominated by one Gaussian mechanism, however the move is shared."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flmc.base.special import log_ndtr
from flmc.privacy import gaussian
from flmc.privacy.bit_event import BitEvent
from flmc.privacy.bit_pairs import MovableLink, PairHull, hull_of_moves
from flmc.privacy.composed_event import ComposedEvent
from flmc.privacy.event import Event, GainSearch
from flmc.privacy.gaussian_rate import GaussianRate
from flmc.privacy.transmissions import Transmissions, binomial_counts, total_mu

_NEARLY, _LOUD = 1.1, 0.3
"""Two conditions for computing, beside the bound in which entries share the shift, the one in which
every entry moves by the whole shift: its mu is at most 1.1 times the other's, or amplitudes exceed
0.3 standard deviations of the noise, where the shared bound is loose."""
_REACHES = (5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
"""Reaches of the noise, in standard deviations, that are tried: received values beyond the reach
count as lost, that is as an infinite loss."""


@dataclass(frozen=True)
class ShiftedBitEvent(ComposedEvent):
    """Privacy event of bits of gradient entries, each of which moves by at most ``shift`` when one
    example is replaced."""

    link: MovableLink
    """Probability of +1 given the clipped gradient entry, with a log-concave density."""
    clip: float
    """Bound of a gradient entry, which lies anywhere in [-clip, clip]."""
    shift: float
    """Largest move of a gradient entry, twice the bound of an entry of one example's gradient."""
    noise_power: float
    transmissions: Transmissions

    @property
    def hull(self) -> PairHull:
        """Polygon around all pairs of bit probabilities that neighbouring data can make, wherever
        the gradient entry is."""
        return hull_of_moves(self.link, self.clip, self.shift)

    @property
    def mu(self) -> float:
        """Distance of the means, in standard deviations of the noise, if the bits' expectations
        were sent in place of bits: it only sets where a search begins."""
        moved = float(np.max(self.hull.gap))
        return total_mu(2.0 * moved, self.noise_power, self.transmissions)

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two parts of the message that refuses the criteria ``tail`` and ``paper``: what needs the
        criterion ``tight``, and why."""
        return "neighbouring 'example'", "the worst case is not one pair"

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the allowed gain: it begins near the gain that is allowed if
        the gradient moves symmetrically across 0, which is quick to compute and about as large. The
        tolerance is coarse, because each trial is costly."""
        x = np.array([-min(self.shift / 2, self.clip)])
        low = float(self.link.moved(x, self.shift).low[0])
        middle = BitEvent(1.0 - low, low, self.noise_power, self.transmissions)
        start = middle.allowed_gain(epsilon, delta)
        # every gain is allowed for a gradient that moves symmetrically across 0
        if math.isinf(start):
            return GainSearch(math.sqrt(self.noise_power) / self.softest, tolerance=1e-5)
        # A budget that is broken by the pair of bit probabilities for a move across 0 is also
        # broken by the worst of all pairs.
        return GainSearch(start, 0.01, 1e-5, limited=middle.surely_limited(epsilon, delta))


class RatedLink(MovableLink, Protocol):
    """Link, as far as the privacy accountant needs it, when the gradients of single examples are
    bounded by their norm."""

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Bounds of the rate at which a received bit tells two gradient entries in [-clip, clip]
        apart, in units of a Gaussian mechanism."""


@dataclass(frozen=True)
class SharedShiftEvent(Event):
    r"""Privacy event of rounds of bits, if one example moves the gradient by a norm of at most
    ``shift``.

    It is the Gaussian mechanism with :math:`\mu^2 = D^2 \sum c(A)^2` over rounds, D being the shift
    and c(A) the link's rate at the gain A, or the event in which every entry moves by D, whichever
    costs less. For a straight link, whose rate c grows with the received value, values beyond a
    reach z of the noise count as lost: their probability, at most :math:`2\Phi(-z)` in each entry,
    is added to delta."""

    link: RatedLink
    """Probability of +1 given the clipped gradient entry."""
    clip: float
    """Bound of a gradient entry, which lies anywhere in [-clip, clip]."""
    shift: float
    """Largest norm D of the gradient's move, twice the bound of the norm of one example's
    gradient."""
    dim: int
    """Number of entries of a round."""
    noise_power: float
    transmissions: Transmissions
    """Gains, each with the number of *rounds* in which the loudest entry was sent with it."""

    @property
    def by_entry(self) -> ShiftedBitEvent:
        """The event in which every entry moves by the whole shift. Its cost is an upper bound as
        well: the smaller one for a single entry, and the only finite one for bits that are
        certain."""
        sent = tuple((gain, self.dim * count) for gain, count in self.transmissions)
        return ShiftedBitEvent(self.link, self.clip, self.shift, self.noise_power, sent)

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss whatever the gains and the noise are: that of the event
        in which every entry moves by the whole shift."""
        return self.by_entry.largest_loss

    def shared_mu(self, reach: float = math.inf) -> float:
        r"""Distance :math:`\mu` of the means of the Gaussian mechanism that dominates all rounds,
        if received values beyond ``reach`` standard deviations of the noise are left out; may be
        infinite."""
        rate, deviation = self.link.gaussian_rate(self.clip), math.sqrt(self.noise_power)
        rates = [(rate.at(gain / deviation, reach), count) for gain, count in self.transmissions]
        return self.shift * math.sqrt(sum(count * each * each for each, count in rates))

    @property
    def _ways(self) -> list[tuple[float, float]]:
        r"""Alternative bounds of the event's privacy cost: pairs of the distance :math:`\mu` of the
        means of a Gaussian mechanism, and a probability that is added to delta. In each but the
        last, received values beyond some reach of the noise count as lost, because beyond it some
        links are easier to tell apart."""
        rate = self.link.gaussian_rate(self.clip)
        entries = 2.0 * self.dim * sum(count for _, count in self.transmissions)
        reaches = _REACHES if rate.ratio else ()
        lost = [(self.shared_mu(z), entries * math.exp(log_ndtr(-z))) for z in reaches]
        return [*lost, (self.shared_mu(), 0.0)]

    @property
    def mu(self) -> float:
        """Distance of the means, in standard deviations of the noise, of the Gaussian mechanism
        that is the best bound of the event: it only sets where a search begins."""
        return min(*(mu for mu, _ in self._ways), self.by_entry.mu)

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two parts of the message that refuses the criteria ``tail`` and ``paper``: what needs the
        criterion ``tight``, and why."""
        return "example_norm", "the worst case is not one pair"

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``: the smaller one of the bound by a
        Gaussian mechanism and, if worth computing, the bound in which every entry moves by the
        whole shift."""
        shared = min(gaussian.delta(epsilon, mu) + lost for mu, lost in self._ways)
        return min(shared, self.by_entry.delta(epsilon)) if self._entries_may_do else shared

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta``, the smaller one of the bound by a
        Gaussian mechanism and the bound in which every entry moves by the whole shift; and whether
        it is loose because a grid was coarsened."""
        # Each way to bound the cost adds the probability of values that count as lost to delta, so
        # only the rest of delta is left for its epsilon.
        kept = [(mu, delta - lost) for mu, lost in self._ways if lost < delta]
        shared = min(self.largest_loss, *(gaussian.epsilon(left, mu) for mu, left in kept))
        if not self._entries_may_do:
            return shared, False
        apart, coarse = self.by_entry.tight_epsilon(delta)
        return (apart, coarse) if apart < shared else (shared, False)

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of the delta of rounds that happen with probability ``chance``, averaged over
        how many happen: the smaller average of the bound by a Gaussian mechanism and the bound in
        which every entry moves by the whole shift."""
        counts, beyond = binomial_counts(rounds, chance)

        def mean(mu: float, lost: float) -> float:
            """Average, over how many rounds happen, of the delta of the Gaussian mechanism ``mu``
            plus the probability ``lost``, both of a single round."""
            each = (
                share * (gaussian.delta(epsilon, math.sqrt(count) * mu) + count * lost)
                for count, share in counts
            )
            return math.fsum(each) + beyond

        shared = min(1.0, *(mean(mu, lost) for mu, lost in self._ways))
        if not self._entries_may_do:
            return shared
        return min(shared, self.by_entry.averaged_delta(epsilon, rounds, chance))

    def delta_without_noise(self, epsilon: float, criterion: str, num_devices: int | None) -> float:
        """Upper bound of delta at a gain so large that the noise changes no bit."""
        rounds = sum(count for _, count in self.transmissions)
        loud = self.shift * self.link.gaussian_rate(self.clip).loud * math.sqrt(rounds)
        apart = self.by_entry.delta_without_noise(epsilon, criterion, num_devices)
        return min(gaussian.delta(epsilon, loud), apart)

    @property
    def _entries_may_do(self) -> bool:
        """Whether the bound in which every entry moves by the whole shift may be smaller than that
        by a Gaussian mechanism, so that it is worth computing."""
        loudest = max(gain for gain, _ in self.transmissions)
        if loudest > _LOUD * math.sqrt(self.noise_power):
            return True
        return self.by_entry.mu <= _NEARLY * min(mu for mu, _ in self._ways)
