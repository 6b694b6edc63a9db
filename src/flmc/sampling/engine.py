"""The interface that every engine implements; an engine advances the chains of a run."""

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
    """Number of threads, number of data sets at a time and progress callback of an engine; they
    change speed and memory only, never a result.

    Attributes
    ----------
    threads
        Threads that an engine may use; None: one for each processor.
    experiments_at_once
        Data sets that are handled together; None: as many as fit into cache or memory.
    progress
        Function that the engine calls now and then with the finished fraction of its work, from 0
        to 1; None: progress is not reported.
    """

    threads: int | None = None
    experiments_at_once: int | None = None
    progress: Progress | None = None


DEFAULT_RESOURCES = Resources()
"""Resources by default: a thread for each processor, as many data sets at a time as fit into cache
or memory, and no progress callback."""


class Engine(ABC):
    """Base class of the engines, which advance the chains of a run.

    The whole state between two rounds is in :class:`~flmc.sampling.chains.Chains`, so a run may be
    cut into calls of :meth:`advance` after any round without changing a bit of the result."""

    name: ClassVar[str]
    """Name of the engine in settings and records."""
    threaded: ClassVar[bool] = False
    """Whether the engine can use more than one thread."""

    any_noise: ClassVar[bool] = False
    """Whether the engine can draw the receiver's noise from any noise law; False: from the normal
    law only."""
    any_batch: ClassVar[bool] = False
    """Whether the engine can draw batches of the devices' examples."""
    any_update: ClassVar[bool] = False
    """Whether the engine can run any server's update; False: Langevin's step only."""
    libraries: ClassVar[tuple[str, ...]] = ()
    """Modules of the libraries that compute for the engine. A record names their versions even if
    they were not imported, such as a compiler whose machine code was read from a file."""

    def why_not(self, plan: Plan, model: Model) -> str | None:
        """Reason why this engine cannot run a plan with a model, as the end of a sentence; None if
        it can. The plan's noise law, batches and server's update are checked first, then whatever
        :meth:`obstacle` checks."""
        noise = None if self.any_noise else why_not_drawn(plan.uplink.noise_law)
        update = None if self.any_update else why_not_updated(plan.update)
        batch = None
        if plan.uplink.batched and not self.any_batch:
            batch = "batches of examples are drawn by the numpy and the jax engine alone"
        return noise or update or batch or self.obstacle(plan, model)

    @abstractmethod
    def obstacle(self, plan: Plan, model: Model) -> str | None:
        """Reason why this engine cannot run a plan with a model, as the end of a sentence; None if
        it can. The plan's noise law, batches and server's update are not checked here, but by
        :meth:`why_not`."""

    def worthwhile(self, plan: Plan, model: Model) -> bool:
        """Whether this engine is expected to be faster than the numpy engine, for a plan and a
        model that it can run."""
        return True

    def blocking(self, plan: Plan, model: Model, num_chains: int) -> str:
        """Phrase for reports that says how many chains the engine advances at once, such as "8
        chains of a data set at a time"; empty for an engine that makes no such choice.
        ``num_chains`` is the number of chains of every data set."""
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
        """State before round 1 of ``num_chains`` chains of every data set, each at a draw from the
        prior or at zero, as the plan says.

        ``keep_draws`` says whether draws will be kept, ``thin`` is the number of kept rounds for
        each draw, and ``directory`` is the folder for draws that take too much memory (None: all
        stay in memory). All random numbers of the run follow from ``seed``."""

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

        Plan, model and seed are those of :meth:`start`. ``schedule`` is the function that draws
        gains, path gains and active devices of the rounds; a study that sets gains in another way
        than the plan passes its own. ``RunFailed`` if a chain's theta becomes infinite or NaN."""

    @abstractmethod
    def theta(self, chains: Chains, model: Model) -> Array:
        """Present theta of all chains, (experiment, chain, dim), in double precision. ``chains``
        must come from :meth:`start` of the same engine, because engines store positions
        differently."""

    @abstractmethod
    def seconds_per_round(self, plan: Plan, model: Model, num_chains: int) -> float:
        """Rough estimate, without a measurement in this run, of the seconds that one round of all
        chains takes, with ``num_chains`` chains of every data set."""


def defined_together(model: Model, *methods: str) -> bool:
    """Whether all ``methods`` of a model come from the class that defines the first of them, the
    gradient; a method may also come from the base class :class:`~flmc.models.model.Model`.

    If False, a subclass may have defined a new gradient but inherited another form of the old
    gradient, such as Hessians, that no longer matches."""
    places = {name: _place(model, name) for name in methods}
    gradient = places[methods[0]]
    return all(place in (gradient, Model) for place in places.values())


def _place(model: Model, name: str) -> type:
    """The class from which a model has its method ``name``: the first in its method resolution
    order that defines it."""
    return next(kind for kind in type(model).__mro__ if name in vars(kind))


def num_symbols(plan: Plan, model: Model, num_chains: int) -> float:
    r"""Number of symbols that all devices send in one round of all chains, as a measure of work.

    Each of the ``num_chains`` chains of each data set counts for :math:`K m \max(1, m/20)` symbols,
    with K devices and m entries of theta: a gradient entry takes m multiplications, which outweigh
    the rest of the work where m exceeds about 20."""
    each = plan.num_devices * plan.dim * max(1.0, plan.dim / 20)
    return model.num_experiments * num_chains * each
