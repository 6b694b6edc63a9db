"""The contract of an engine: what advances the chains of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, NamedTuple

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains


class Resources(NamedTuple):
    """What changes speed and memory only, never a result.

    ``threads`` (None: all processors), ``experiments_at_once`` (data sets handled together; None:
    by their size), and ``progress``, which is told how far the work is."""

    threads: int | None = None
    experiments_at_once: int | None = None
    progress: Progress | None = None


DEFAULT_RESOURCES = Resources()


class Engine(ABC):
    """Advances chains. What is between two rounds is in the :class:`~flmc.sampling.chains.Chains`
    alone, so a run may be cut into calls of :meth:`advance` anywhere without changing a bit of the
    result."""

    name: ClassVar[str]
    threaded: ClassVar[bool] = False
    """Whether it uses more than one thread if it is allowed to."""

    @abstractmethod
    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Why this engine cannot run a plan of a model; None if it can."""

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether this engine is expected to be the fastest, where it can run the plan."""
        return True

    @abstractmethod
    def start(
        self, plan: Plan, model: Model, seed: int, num_chains: int, *, keep_draws: bool
    ) -> Chains:
        """Every chain before round 1: at a draw from the prior, or at zero, as the plan says."""

    @abstractmethod
    def advance(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        resources: Resources = DEFAULT_RESOURCES,
    ) -> None:
        """Advance all chains in place to the end of round ``until``."""

    @abstractmethod
    def theta(self, chains: Chains, model: Model) -> Array:
        """Where the chains stand in the model's coordinates, (experiment, chain, dim), in double
        precision."""

    @abstractmethod
    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """A first guess of what one round of all chains takes, in seconds."""


def num_symbols(plan: Plan, model: Model, num_chains: int) -> float:
    """Symbols that all devices send in one round of all chains, weighted by what a gradient of this
    dimension costs."""
    each = plan.num_devices * plan.dim * max(1.0, plan.dim / 20)
    return model.num_experiments * num_chains * each
