"""Which engine runs a plan."""

from __future__ import annotations

import importlib.util
from typing import NamedTuple, Protocol

from flmc import engine
from flmc.chains import Chains, Progress, part_of
from flmc.errors import InvalidSetting
from flmc.model import Model
from flmc.plan import Plan

ENGINES = ("auto", "numba", "numpy")
_ROUNDS_AT_ONCE = 1024
"""Progress is reported at least so often."""


class Start(Protocol):
    """Chains before round 1."""

    def __call__(self, plan: Plan, model: Model, seed: int, num_chains: int, *, keep_draws: bool) -> Chains:
        """See :func:`flmc.engine.start`."""


class Advance(Protocol):
    """Chains go on."""

    def __call__(
        self,
        chains: Chains,
        plan: Plan,
        model: Model,
        seed: int,
        until: int,
        *,
        experiments_at_once: int | None = None,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> None:
        """See :func:`flmc.engine.advance`."""


class Engine(NamedTuple):
    """Two functions. What is between two rounds is in the :class:`~flmc.chains.Chains` alone, so a run may be cut into
    calls of ``advance`` anywhere."""

    name: str
    start: Start
    advance: Advance


def choose(name: str, plan: Plan, model: Model) -> Engine:
    """The engine of this name; `auto` takes numba where it is installed and applies."""
    if name not in ENGINES:
        raise InvalidSetting(f"engine must be one of {', '.join(ENGINES)}; got {name!r}")
    plain = Engine("numpy", engine.start, engine.advance)
    if name == "numpy":
        return plain
    if importlib.util.find_spec("numba") is None:
        if name == "auto":
            return plain
        raise InvalidSetting("the numba engine needs the extra 'fast': pip install 'flmc[fast]'")
    from flmc import fast  # numba takes half a second to import

    obstacle = fast.obstacle(plan, model)
    if obstacle is None:
        return Engine("numba", fast.start, fast.advance)
    if name == "auto":
        return plain
    raise InvalidSetting(f"the numba engine does not apply: {obstacle}; use engine = 'numpy'")


def simulate(
    plan: Plan,
    model: Model,
    seed: int,
    num_chains: int = 1,
    *,
    engine: str = "auto",
    keep_draws: bool = False,
    threads: int | None = None,
    experiments_at_once: int | None = None,
    progress: Progress | None = None,
) -> tuple[str, Chains]:
    """Run to the end: the name of the engine and where the chains stand."""
    chosen = choose(engine, plan, model)
    chains = chosen.start(plan, model, seed, num_chains, keep_draws=keep_draws)
    ends = [*range(_ROUNDS_AT_ONCE, plan.num_rounds, _ROUNDS_AT_ONCE), plan.num_rounds]
    for index, until in enumerate(ends):
        chosen.advance(
            chains,
            plan,
            model,
            seed,
            until,
            threads=threads,
            experiments_at_once=experiments_at_once,
            progress=part_of(progress, index, len(ends)),
        )
    return chosen.name, chains
