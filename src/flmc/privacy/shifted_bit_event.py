"""Privacy events of one-bit symbols if neighbouring data sets differ in one example of a device. It
moves the device's gradient by a bounded amount, from an unknown value.

*Bounded entries*: each gradient entry moves by at most a shift. Which value is the worst to move
from differs with epsilon, so the delta of one entry is the supremum over all values
(:mod:`flmc.privacy.bit_pairs`).

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
"""If one example moves the gradient by a bounded norm, a second bound of delta, in which every
entry moves by the whole norm, is computed under one of two conditions: its mu is at most
``_NEARLY`` times that of the bound in which entries share the move, or an amplitude exceeds
``_LOUD`` standard deviations of the noise, where the bound with shared moves is loose."""
_REACHES = (5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 12.0)
"""Numbers of standard deviations of the noise that are tried as a limit, beyond which received
values count as an infinite privacy loss."""


@dataclass(frozen=True)
class ShiftedBitEvent(ComposedEvent):
    """Privacy event of bits of gradient entries, each of which moves by at most ``shift`` when one
    example of a device is replaced."""

    link: MovableLink
    """Link, which gives the probability of a +1 bit for a clipped gradient entry; its derivative is
    log-concave."""
    clip: float
    """Bound of a gradient entry, which lies anywhere in [-clip, clip]."""
    shift: float
    """Largest move of a gradient entry: twice the largest magnitude that one example adds to it."""
    noise_power: float
    transmissions: Transmissions

    @property
    def hull(self) -> PairHull:
        """Polygon around all pairs of probabilities of a +1 bit before and after one gradient entry
        moves by at most ``shift``, from any value in [-clip, clip]."""
        return hull_of_moves(self.link, self.clip, self.shift)

    @property
    def mu(self) -> float:
        """Distance of the means, in standard deviations of the noise, of a Gaussian mechanism that
        sends the expected bits in place of the bits; it only says where the search for the allowed
        gain begins."""
        moved = float(np.max(self.hull.gap))
        return total_mu(2.0 * moved, self.noise_power, self.transmissions)

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two phrases for the message that refuses the criteria ``tail`` and ``paper`` for this
        event: the name of the setting that needs the criterion ``tight``, and the reason."""
        return "neighbouring 'example'", "the worst case is not one pair"

    def gain_search(self, epsilon: float, delta: float, criterion: str) -> GainSearch:
        """Settings of the search for the largest gain within the budget (``epsilon``, ``delta``):
        it begins at the gain that is allowed if every gradient entry moves from -shift/2 to
        shift/2, which is quick to compute and about as large. The tolerance is coarse, because each
        trial is costly."""
        x = np.array([-min(self.shift / 2, self.clip)])
        low = float(self.link.moved(x, self.shift).low[0])
        middle = BitEvent(1.0 - low, low, self.noise_power, self.transmissions)
        start = middle.allowed_gain(epsilon, delta)
        # For moves from -shift/2 to shift/2 every gain is allowed, so the search starts where the
        # smallest gain is one standard deviation of the noise.
        if math.isinf(start):
            return GainSearch(math.sqrt(self.noise_power) / self.softest, tolerance=1e-5)
        # A budget that some gain breaks for moves from -shift/2 to shift/2 is also broken by it for
        # the worst of all moves.
        return GainSearch(start, 0.01, 1e-5, limited=middle.surely_limited(epsilon, delta))


class RatedLink(MovableLink, Protocol):
    """What the privacy accountant needs of a link (the probability of a +1 bit given a gradient
    entry) if the norms of single examples' gradients are bounded."""

    def gaussian_rate(self, clip: float) -> GaussianRate:
        """Upper bounds of the rate c of a received bit: it reveals a move d of its gradient entry
        within [-clip, clip] no better than a Gaussian mechanism whose means are c d standard
        deviations apart."""


@dataclass(frozen=True)
class SharedShiftEvent(Event):
    r"""Privacy event of rounds of bits, if one example moves the gradient by a norm of at most
    ``shift``.

    Its cost is the smaller one of two: that of the Gaussian mechanism with :math:`\mu^2 = D^2 \sum
    c(A)^2` over rounds, and that of the event in which every entry moves by D. Here D is the shift,
    and at the gain A the link's bits reveal a move d of an entry no better than a Gaussian
    mechanism whose means are c(A) d standard deviations apart. For a straight link c grows with the
    received value, so values more than z standard deviations of the noise from the bit count as an
    infinite loss: their probability, at most :math:`2\Phi(-z)` in each entry, is added to delta."""

    link: RatedLink
    """Link, which gives the probability of a +1 bit for a clipped gradient entry."""
    clip: float
    """Bound of a gradient entry, which lies anywhere in [-clip, clip]."""
    shift: float
    """Largest norm D of the gradient's move: twice the largest norm of what one example adds to the
    gradient."""
    dim: int
    """Number of entries that are sent in a round."""
    noise_power: float
    transmissions: Transmissions
    """Gains, each with the number of *rounds* in which it was the largest gain of an entry."""

    @property
    def by_entry(self) -> ShiftedBitEvent:
        """The event in which every entry moves by the whole ``shift``. Its cost is an upper bound
        of the cost of this event: the smaller bound if there is one entry, and the only finite one
        if bits have no randomness."""
        sent = tuple((gain, self.dim * count) for gain, count in self.transmissions)
        return ShiftedBitEvent(self.link, self.clip, self.shift, self.noise_power, sent)

    @property
    def largest_loss(self) -> float:
        """Upper bound of the privacy loss whatever the gains and the noise are: that of the event
        in which every entry moves by the whole shift."""
        return self.by_entry.largest_loss

    def shared_mu(self, reach: float = math.inf) -> float:
        r"""Distance :math:`\mu` of the means, in standard deviations, of the Gaussian mechanism
        that dominates all rounds, however the entries share the move; may be infinite. Received
        values more than ``reach`` standard deviations of the noise beyond a bit are left out."""
        rate, deviation = self.link.gaussian_rate(self.clip), math.sqrt(self.noise_power)
        rates = [(rate.at(gain / deviation, reach), count) for gain, count in self.transmissions]
        return self.shift * math.sqrt(sum(count * each * each for each, count in rates))

    @property
    def _ways(self) -> list[tuple[float, float]]:
        r"""Alternative upper bounds of the privacy cost, each a pair: the distance :math:`\mu` of
        the means of a Gaussian mechanism, in standard deviations, and a probability that is added
        to its delta. The last pair counts all received values and adds 0. The others leave out
        received values far beyond the bits, where bits of a straight link reveal most, and add the
        probability of these values."""
        rate = self.link.gaussian_rate(self.clip)
        entries = 2.0 * self.dim * sum(count for _, count in self.transmissions)
        reaches = _REACHES if rate.ratio else ()
        lost = [(self.shared_mu(z), entries * math.exp(log_ndtr(-z))) for z in reaches]
        return [*lost, (self.shared_mu(), 0.0)]

    @property
    def mu(self) -> float:
        """Distance of the means, in standard deviations of the noise, of the Gaussian mechanism
        that is the best bound of this event; it only says where the search for the allowed gain
        begins."""
        return min(*(mu for mu, _ in self._ways), self.by_entry.mu)

    @property
    def tight_only(self) -> tuple[str, str]:
        """Two phrases for the message that refuses the criteria ``tail`` and ``paper`` for this
        event: the name of the setting that needs the criterion ``tight``, and the reason."""
        return "example_norm", "the worst case is not one pair"

    def tight_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy:
        from a Gaussian mechanism, or from the event in which every entry moves by the whole
        ``shift`` where that may give a smaller delta."""
        shared = self._shared_delta(epsilon)
        return min(shared, self.by_entry.delta(epsilon)) if self._entries_may_do else shared

    def curve_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` in standard differential privacy, for
        a curve of many epsilons: as :meth:`tight_delta`."""
        if self.silent or epsilon >= self.largest_loss:
            return self.delta(epsilon)
        shared = self._shared_delta(epsilon)
        return min(shared, self.by_entry.curve_delta(epsilon)) if self._entries_may_do else shared

    def _shared_delta(self, epsilon: float) -> float:
        """Upper bound of the delta that goes with ``epsilon``, from a Gaussian mechanism, however
        the entries share the move."""
        return min(gaussian.delta(epsilon, mu) + lost for mu, lost in self._ways)

    def solve_epsilon(self, delta: float) -> tuple[float, bool]:
        """Upper bound of the epsilon that goes with ``delta`` in standard differential privacy:
        from a Gaussian mechanism, or from the event in which every entry moves by the whole
        ``shift`` if that is smaller; and whether it is looser than usual because a grid of privacy
        losses had to be made coarser."""
        # Each alternative bound adds a probability to the delta of its Gaussian mechanism, so only
        # the rest of delta is left for the mechanism's epsilon.
        kept = [(mu, delta - lost) for mu, lost in self._ways if lost < delta]
        shared = min(self.largest_loss, *(gaussian.epsilon(left, mu) for mu, left in kept))
        if not self._entries_may_do:
            return shared, False
        apart, coarse = self.by_entry.tight_epsilon(delta)
        return (apart, coarse) if apart < shared else (shared, False)

    def averaged_delta(self, epsilon: float, rounds: int, chance: float) -> float:
        """Upper bound of the delta that goes with ``epsilon`` if this event happens in each of
        ``rounds`` rounds with probability ``chance``, averaged over the number of rounds in which
        it happens. It is the smaller one of two averages: of a Gaussian mechanism, and of the event
        in which every entry moves by the whole ``shift``."""
        counts, beyond = binomial_counts(rounds, chance)

        def mean(mu: float, lost: float) -> float:
            """Average, over the number of rounds in which the event happens, of delta: that of a
            Gaussian mechanism whose means are ``mu`` apart in one round, plus the probability
            ``lost`` for every such round."""
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
        """Upper bound of the delta that goes with ``epsilon`` at a gain so large that the noise
        changes no bit."""
        rounds = sum(count for _, count in self.transmissions)
        loud = self.shift * self.link.gaussian_rate(self.clip).loud * math.sqrt(rounds)
        apart = self.by_entry.delta_without_noise(epsilon, criterion, num_devices)
        return min(gaussian.delta(epsilon, loud), apart)

    @property
    def _entries_may_do(self) -> bool:
        """Whether the bound of delta in which every entry moves by the whole ``shift`` may be
        smaller than that by a Gaussian mechanism, so that it is worth computing."""
        loudest = max(gain for gain, _ in self.transmissions)
        if loudest > _LOUD * math.sqrt(self.noise_power):
            return True
        return self.by_entry.mu <= _NEARLY * min(mu for mu, _ in self._ways)
