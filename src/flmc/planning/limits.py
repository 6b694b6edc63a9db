"""Limits of the gain, the amplitude of a symbol at the receiver: the limits that a user sets
(``Limits``), and the largest gain that each constraint allows (``GainLimits``)."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from flmc.base import checks
from flmc.base.documents import LATER
from flmc.base.errors import InvalidSetting
from flmc.privacy.neighbours import RELATIONS, UNITS, neighbours_in_words, told_apart


@dataclass(frozen=True)
class Limits:
    """What limits the gain besides power: a privacy budget, and the noise that the sampler needs.

    Attributes
    ----------
    epsilon
        Privacy budget; None for no privacy limit (the cost is stated all the same).
    delta
        Delta of statements about one round.
    privacy
        Criterion of a round: ``tight``, ``tail`` or ``paper``, described in
        :mod:`flmc.privacy.event`; ``off``: the budget does not limit the gain, and the cost is
        stated by ``tight``.
    scope
        Whether the budget is for a ``round`` (at ``delta``) or for the ``run`` (at ``run_delta``).
    run_delta
        Delta of statements about the whole run.
    langevin
        How much noise the sampler needs: ``calibrated`` (temperature 1), ``paper`` (the limit as
        printed) or ``off`` (no limit).
    neighbouring
        Unit in which neighbouring data differ: all data of a ``device``, or one ``example`` (which
        needs the uplink's ``example_clip``).
    relation
        How the unit differs in neighbouring data: ``replace`` (by any other one), ``add_remove``
        (it is absent from one of the data sets) or ``zero_out`` (its gradient is zero in one of
        them). :mod:`flmc.privacy.neighbours` says what each means.
    allocation
        ``static``: one gain for all rounds. ``adaptive``: a budget of the run is spent unevenly,
        with larger gains in rounds whose noise lasts longer in the kept rounds.

    Raises
    ------
    InvalidSetting
        If a value is out of its bounds, or two settings contradict each other.

    Examples
    --------
    >>> flmc.Limits(epsilon=2.0, scope="run", run_delta=1e-6).criterion
    'tight'
    """

    epsilon: float | None = None
    delta: float = 0.01
    privacy: str = "tight"
    scope: str = "round"
    run_delta: float = 1e-5
    langevin: str = "calibrated"
    neighbouring: str = "device"
    allocation: str = "static"
    relation: str = field(default="replace", kw_only=True, metadata=LATER)

    def __post_init__(self) -> None:
        if self.epsilon is not None:
            checks.positive("epsilon", self.epsilon, extreme=1e15)
        checks.between("delta", self.delta, 0.0, 1.0)
        checks.between("run_delta", self.run_delta, 0.0, 1.0)
        checks.one_of("privacy", self.privacy, ("tight", "tail", "paper", "off"))
        checks.one_of("scope", self.scope, ("round", "run"))
        checks.one_of("neighbouring", self.neighbouring, UNITS)
        checks.one_of("relation", self.relation, RELATIONS)
        checks.one_of("allocation", self.allocation, ("static", "adaptive"))
        if self.allocation == "adaptive" and (
            self.scope != "run" or self.epsilon is None or self.privacy == "off"
        ):
            raise InvalidSetting(
                "allocation 'adaptive' needs a budget of the run: give epsilon and scope 'run'"
            )
        checks.one_of("langevin", self.langevin, ("calibrated", "paper", "off"))
        # Only the criterion `tight` can be added up over rounds, so only it can be the budget of a
        # run.
        if self.scope == "run" and self.privacy in ("tail", "paper"):
            raise InvalidSetting(
                f"scope 'run' needs privacy 'tight', got {self.privacy!r}: a bound on the"
                " probability of a large loss in one round says nothing about the sum of losses"
                " over rounds, so it does not compose"
            )

    @property
    def neighbours(self) -> str:
        """The unit in which neighbouring data differ, and how, in words."""
        return neighbours_in_words(self.neighbouring, self.relation)

    @property
    def told_apart(self) -> str:
        """What an attacker decides who tells neighbouring data sets apart, in words."""
        return told_apart(self.neighbouring, self.relation)

    @property
    def criterion(self) -> str:
        """Criterion by which the cost of a round is stated: ``tight`` where ``privacy`` is ``off``,
        else ``privacy``."""
        return "tight" if self.privacy == "off" else self.privacy


@dataclass(frozen=True)
class GainLimits:
    """Largest gain that each constraint allows in a kept round; infinite for no limit."""

    power: float
    """Largest gain that the transmit power allows."""
    langevin: float
    """Largest gain at which the channel leaves as much noise as Langevin's sampler needs."""
    privacy: float
    """Largest gain that the privacy budget allows."""

    @property
    def smallest(self) -> float:
        """Smallest of the limits, which is the largest gain that all constraints allow."""
        return min(self.power, self.langevin, self.privacy)

    @property
    def binding(self) -> str:
        """Name of the constraint that decides the gain: ``power``, ``privacy`` or ``langevin``;
        ``none`` where no constraint limits it.

        Where several constraints allow the same gain, the first of these names is returned: it is
        ``power`` where the step was chosen so that power and Langevin noise allow the same gain."""
        limits = {"power": self.power, "privacy": self.privacy, "langevin": self.langevin}
        # Limits that are meant to be equal may differ by rounding: the first name of ``limits`` is
        # taken.
        near = self.smallest * (1 + 1e-9)
        return next(
            (name for name, gain in limits.items() if gain <= near and math.isfinite(gain)), "none"
        )
