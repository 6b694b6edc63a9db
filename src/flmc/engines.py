"""Which engine runs a plan."""

from __future__ import annotations

import importlib.util
import logging
import time
from collections.abc import Callable
from typing import NamedTuple, Protocol

from flmc import checks, engine
from flmc.chains import AS_USUAL, Chains, How, stretch_of
from flmc.errors import InvalidSetting
from flmc.model import Model
from flmc.plan import Plan
from flmc.randomness import ROUNDS_PER_BLOCK

_log = logging.getLogger(__name__)

ENGINES = ("auto", "numba", "numpy")


class Start(Protocol):
    """Chains before round 1."""

    def __call__(self, plan: Plan, model: Model, seed: int, num_chains: int, *, keep_draws: bool) -> Chains:
        """See :func:`flmc.engine.start`."""


class Advance(Protocol):
    """Chains go on."""

    def __call__(self, chains: Chains, plan: Plan, model: Model, seed: int, until: int, how: How = AS_USUAL) -> None:
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
    try:
        from flmc import fast  # numba takes half a second to import
    except RuntimeError as error:  # numba finds no place for its cache
        if name == "auto":
            _log.warning("the numpy engine is used: %s", error)
            return plain
        raise InvalidSetting(
            f"numba cannot start: {error}; set NUMBA_CACHE_DIR to a place that can be written"
        ) from error
    obstacle = fast.obstacle(plan, model)
    if obstacle is None and name == "auto" and not fast.worthwhile(plan):
        return plain
    if obstacle is None:
        return Engine("numba", fast.start, fast.advance)
    if name == "auto":
        return plain
    raise InvalidSetting(f"the numba engine does not apply: {obstacle}; use engine = 'numpy'")


class Keeper(Protocol):
    """Is told of every stretch of rounds, before and after."""

    def begins(self, until: int) -> None:
        """Rounds up to ``until`` are going to be run."""

    def ended(self, chains: Chains, *, now: bool = False) -> None:
        """They were; with ``now`` the run stops here."""

    def restore(self, chains: Chains) -> None:
        """Put the chains where they were saved."""


def simulate(
    plan: Plan,
    model: Model,
    seed: int,
    num_chains: int = 1,
    *,
    engine: str = "auto",
    keep_draws: bool = False,
    how: How = AS_USUAL,
    most_rounds: int | None = None,
    last_round: int | None = None,
    keeper: Keeper | None = None,
    stop: Callable[[], bool] = lambda: False,
) -> tuple[str, Chains]:
    """Run to the end or ``last_round``, or until ``stop`` says so, in stretches of some seconds or ``most_rounds``:
    the name of the engine and where the chains stand."""
    kept = plan.num_rounds - plan.num_burn_in if keep_draws else 0
    each = 8.0 * plan.dim * (2 + kept) + 8.0 * plan.dim**2
    checks.fits("the chains" + " and their draws" * keep_draws, each * model.num_experiments * num_chains)
    chosen = choose(engine, plan, model)
    chains = chosen.start(plan, model, seed, num_chains, keep_draws=keep_draws)
    if keeper is not None:
        keeper.restore(chains)
    pace = _Pace(chosen.name, plan, model, num_chains, _PATIENCE if keeper is None else _STRETCH)
    end = plan.num_rounds if last_round is None else last_round
    while chains.round < end and not stop():
        done, until = chains.round, pace.next_stop(chains.round, end, most_rounds)
        if keeper is not None:
            keeper.begins(until)
        began = time.monotonic()
        part = stretch_of(how.progress, done / plan.num_rounds, until / plan.num_rounds)
        chosen.advance(chains, plan, model, seed, until, how._replace(progress=part))
        pace.took(until - done, time.monotonic() - began)
        if keeper is not None:
            keeper.ended(chains, now=stop())
    if keeper is not None and chains.round < plan.num_rounds:
        keeper.ended(chains, now=True)  # the wish to stop may have come after the last one
    return chosen.name, chains


class _Pace:
    """How many rounds to run at a stretch; it changes nothing but how soon a run can stop and be saved.

    A stretch ends where a block of the random streams does, unless that is too far: going on inside a block draws its
    numbers again.
    """

    def __init__(self, engine: str, plan: Plan, model: Model, num_chains: int, stretch: float) -> None:
        self._stretch = stretch
        symbols = model.num_experiments * num_chains * plan.num_devices * plan.dim * max(1.0, plan.dim / 20)
        self._cheap = model.quadratic(slice(0, 1)) is not None and plan.uplink.example_clip is None
        """Whether drawing numbers and data again costs as much as a round: then only whole blocks are run."""
        self._seconds = symbols / _SYMBOLS_PER_SECOND[engine] if self._cheap else _PATIENCE
        """Of one round, as far as is known."""

    def next_stop(self, done: int, num_rounds: int, most_rounds: int | None) -> int:
        """The round to run to."""
        if most_rounds is not None:
            return min(num_rounds, done + most_rounds)
        wanted = done + max(1, int(self._stretch / self._seconds))
        boundary = (done // ROUNDS_PER_BLOCK + 1) * ROUNDS_PER_BLOCK
        if not self._cheap and wanted < boundary and (boundary - done) * self._seconds > _PATIENCE:
            return min(num_rounds, wanted)
        return min(num_rounds, max(boundary, wanted // ROUNDS_PER_BLOCK * ROUNDS_PER_BLOCK))

    def took(self, rounds: int, seconds: float) -> None:
        """Learn, but trust one measurement no further than a factor of four."""
        self._seconds = max(seconds / rounds, self._seconds / 4, 1e-9)


_STRETCH, _PATIENCE = 0.5, 5.0
"""Seconds of a stretch: as a rule if it is recorded; and else, because many data sets are drawn again for each."""
_SYMBOLS_PER_SECOND = {"numba": 1e9, "numpy": 3e7}
"""A first guess."""
