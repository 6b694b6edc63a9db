"""The contract of an engine, which advances the chains of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.planning.server_update import why_not_updated
from flmc.sampling.chains import Chains
from flmc.sampling.schedule import DrawSchedule, draw_schedule
from flmc.uplink.noise import why_not_drawn


class Resources(NamedTuple):
    """Threads, data sets at a time and the listener to progress that an engine may use; they change
    speed and memory only, never a result.

    Attributes
    ----------
    threads
        Threads that an engine may use; None: one for each processor.
    experiments_at_once
        Data sets that are handled together; None: as many as fit into cache or memory.
    progress
        Called with the finished fraction now and then; None: nobody asks.
    """

    threads: int | None = None
    experiments_at_once: int | None = None
    progress: Progress | None = None


DEFAULT_RESOURCES = Resources()
"""Resources by default: all processors, as many data sets at a time as fit, and no reports of the
progress."""


class Engine(ABC):
    """Base of the engines, which advance the chains of a run.

    All that is carried from one round to the next is in :class:`~flmc.sampling.chains.Chains`, so a
    run may be cut into calls of :meth:`advance` anywhere without changing a bit of the result."""

    name: ClassVar[str]
    """Name of the engine in settings and records."""
    threaded: ClassVar[bool] = False
    """Whether the engine uses more than one thread if it is allowed to."""

    any_noise: ClassVar[bool] = False
    """Whether the engine draws the noise law of the uplink, and not normal noise always."""
    any_update: ClassVar[bool] = False
    """Whether the engine asks the server's update of the plan, and does not take Langevin's step
    always."""

    def why_not(self, plan: Plan, model: Model) -> str | None:
        """Why this engine cannot run a plan of a model, as the end of a sentence; None if it can: a
        noise law or a server's update that this kind of engine does not know comes before its own
        ``obstacle``."""
        noise = None if self.any_noise else why_not_drawn(plan.uplink.noise_law)
        update = None if self.any_update else why_not_updated(plan.update)
        return noise or update or self.obstacle(plan, model)

    @abstractmethod
    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Why this engine cannot run a plan of a model, as the end of a sentence; None if it
        can."""

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether this engine is expected to be the fastest for a plan of a model that it can
        run."""
        return True

    def blocking(self, plan: Plan, model: Model, num_chains: int) -> str:
        """How the engine groups ``num_chains`` chains of every data set to advance them at once, as
        a phrase for a report; empty for an engine without a choice."""
        return ""

    @abstractmethod
    def start(
        self,
        plan: Plan,
        model: Model,
        seed: int,
        num_chains: int,
        *,
        keep_draws: bool,
        thin: int = 1,
        directory: Path | None = None,
    ) -> Chains:
        """The chains before round 1, ``num_chains`` of every data set, each at a draw from the
        prior or at zero, as the plan says.

        ``keep_draws`` says whether draws will be kept, ``thin`` how many kept rounds make one draw,
        and ``directory`` where many draws are stored. The seed is that of all randomness of the
        run."""

    @abstractmethod
    def advance(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        resources: Resources = DEFAULT_RESOURCES,
        schedule: DrawSchedule = draw_schedule,
    ) -> None:
        """Advance all chains in place to the end of round ``until``, counted from 1.

        Plan, model and seed are those of :meth:`start`. ``schedule`` draws gains, path gains and
        active devices of a block of rounds; a study whose gains follow from a whole channel passes
        another one than the plan's own. ``RunFailed`` if a chain leaves the range of numbers."""

    @abstractmethod
    def theta(self, chains: Chains, model: Model) -> Array:
        """Theta of all chains, (experiment, chain, dim), in the model's coordinates and in double
        precision; the chains must be this engine's own."""

    @abstractmethod
    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """First guess, before any measurement, of the seconds that one round of all chains takes,
        with ``num_chains`` chains of every data set."""


def defined_together(model: Model, *methods: str) -> bool:
    """Whether every one of these methods, of which the first is the gradient, is defined by the
    same class as the gradient, or by nobody but :class:`~flmc.models.model.Model`.

    If not, a subclass with a gradient of its own may have inherited the compiled form of another
    gradient."""
    places = {name: _place(model, name) for name in methods}
    gradient = places[methods[0]]
    return all(place in (gradient, Model) for place in places.values())


def _place(model: Model, name: str) -> type:
    """The class in the method resolution order of a model's class that defines the method
    ``name``."""
    return next(kind for kind in type(model).__mro__ if name in vars(kind))


def num_symbols(plan: Plan, model: Model, num_chains: int) -> float:
    r"""Symbols that all devices send in one round of all chains, weighted by the cost of a
    gradient.

    Each of the ``num_chains`` chains of each data set counts for :math:`K m \max(1, m/20)` symbols:
    a gradient entry takes m multiplications, which weigh more than the rest of the work where m
    exceeds about 20."""
    each = plan.num_devices * plan.dim * max(1.0, plan.dim / 20)
    return model.num_experiments * num_chains * each
