"""The contract of an engine: what advances the chains of a run."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import ClassVar, NamedTuple

from flmc.base.arrays import Array
from flmc.base.progress import Progress
from flmc.models.model import Model
from flmc.planning.plans import Plan
from flmc.sampling.chains import Chains
from flmc.sampling.schedule import DrawSchedule, draw_schedule


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
"""Resources by default: all processors, as many data sets at a time as fit, nobody told of the
progress."""


class Engine(ABC):
    """What advances the chains of a run.

    All that is carried from one round to the next is in :class:`~flmc.sampling.chains.Chains`, so a
    run may be cut into calls of :meth:`advance` anywhere without changing a bit of the result."""

    name: ClassVar[str]
    """How the engine is called in settings and records."""
    threaded: ClassVar[bool] = False
    """Whether the engine uses more than one thread if it is allowed to."""

    @abstractmethod
    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Why this engine cannot run a plan of a model.

        Parameters
        ----------
        plan, model
            What is to be run.

        Returns
        -------
        str or None
            The reason, as the end of a sentence; None if the engine can run the plan.
        """

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether this engine is expected to be the fastest, where it can run the plan.

        Parameters
        ----------
        plan, model
            What is to be run.
        """
        return True

    def blocking(self, plan: Plan, model: Model, num_chains: int) -> str:
        """How the engine puts chains together to advance them at once, as a phrase for a report;
        empty for an engine that has nothing to choose.

        Parameters
        ----------
        plan, model
            What is to be run.
        num_chains
            Chains of every data set.
        """
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
        """Every chain before round 1: at a draw from the prior, or at zero, as the plan says.

        Parameters
        ----------
        plan, model
            What is to be run.
        seed
            Of all randomness.
        num_chains
            Chains of every data set.
        keep_draws, thin, directory
            Whether draws will be kept, kept rounds for each of them, and where they are on disk
            if they are many.

        Returns
        -------
        Chains
            Positions in the engine's own coordinates.
        """

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
        """Advance all chains in place to the end of round ``until``.

        Parameters
        ----------
        chains
            Where the chains stand; changed in place.
        plan, model, seed
            What is run, the same as for :meth:`start`.
        until
            The last round to run, counted from 1.
        resources
            Threads, data sets at once, and who is told of the progress.
        schedule
            Draws the rounds of a block; another one than the plan's own for a study whose gains
            follow from a whole channel.

        Raises
        ------
        RunFailed
            If a chain leaves the range of numbers.
        """

    @abstractmethod
    def theta(self, chains: Chains, model: Model) -> Array:
        """Where the chains stand in the model's coordinates, in double precision.

        Parameters
        ----------
        chains
            Chains that this engine started.
        model
            The model that is sampled.

        Returns
        -------
        Array
            Theta, (experiment, chain, dim).
        """

    @abstractmethod
    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """A first guess of what one round of all chains takes, in seconds, before any was measured.

        Parameters
        ----------
        plan, model
            What is to be run.
        num_chains
            Chains of every data set.
        """


def defined_together(model: Model, *methods: str) -> bool:
    """Whether no subclass has its own version of one of these methods without the others.

    A subclass with a gradient of its own may have inherited a compiled form that is not its own.

    Parameters
    ----------
    model
        The model.
    methods
        Names of methods; the first is the gradient. A method that only
        :class:`~flmc.models.model.Model` has is no version of its own.
    """
    places = {name: _place(model, name) for name in methods}
    gradient = places[methods[0]]
    return all(place in (gradient, Model) for place in places.values())


def _place(model: Model, name: str) -> type:
    """The class that defines a method of a model."""
    return next(kind for kind in type(model).__mro__ if name in vars(kind))


def num_symbols(plan: Plan, model: Model, num_chains: int) -> float:
    r"""Symbols that all devices send in one round of all chains, weighted by the cost of a
    gradient.

    Each of the E data sets times C chains counts for :math:`K m \max(1, m/20)` symbols: a gradient
    entry takes m multiplications, which weigh more than the rest of the work where m exceeds about
    20.

    Parameters
    ----------
    plan, model
        What is to be run.
    num_chains
        Chains of every data set.
    """
    each = plan.num_devices * plan.dim * max(1.0, plan.dim / 20)
    return model.num_experiments * num_chains * each
