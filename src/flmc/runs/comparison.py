"""Several uplinks on one problem, with the same data, fading and channel noise."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.base.tables import Grid, Row, format_number, format_short, format_up
from flmc.models.model import Model
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.runs.execution import run
from flmc.runs.results import Result, notes_on_chains, share_in_words
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class Comparison:
    """Results of several uplinks on one model, with the same data, fading and channel noise."""

    results: dict[str, Result]
    """Results by the name of their uplink; ``comparison[name]`` gives one."""

    def __getitem__(self, name: str) -> Result:
        return self.results[name]

    def __str__(self) -> str:
        return str(self.grid())

    def grid(self) -> Grid:
        """A table with a row for each uplink: gain, what binds, temperature, step, effective draws
        and epsilon of one chain, and what was measured, of all chains and of one."""
        known = all(result.metrics is not None for result in self.results.values())
        measured = (
            ["variance ratio", "W2 squared", "mean error squared", "MSE", "one chain: mean error"]
            if known
            else ["mean", "sd"]
        )
        header = [
            "uplink",
            "gain",
            "binds",
            "T",
            "effective step",
            "effective draws",
            "eps round",
            "eps run",
            *measured,
        ]
        rows = tuple(_row(name, result, known) for name, result in self.results.items())
        notes = []
        # Samplers whose effective steps agree within 20 % are taken for equally fast.
        steps = [result.plan.effective_step_size or 0.0 for result in self.results.values()]
        if max(steps) > 1.2 * min(steps):
            text = (
                "the effective steps differ: a slower sampler looks more private and less"
                " accurate than it is"
            )
            notes.append(Row("", text, severity="warning"))
        for name, result in self.results.items():
            if result.coverage is not None and result.num_chains > 1:
                notes.append(Row(name, f"privacy: {result.coverage.in_words}"))
            few = [] if result.metrics is None else notes_on_chains(result.metrics)
            notes += [Row(name, text, severity="warning") for text in [*result.warnings, *few]]
        return Grid(tuple(header), rows, notes=tuple(notes))


def _row(name: str, result: Result, known: bool) -> tuple[str, ...]:
    """The cells of one uplink; without a known posterior, mean and standard deviation of its
    draws."""
    p, m = result.plan, result.metrics
    costs = [
        "unknown" if cost is None else format_up(cost.epsilon)
        for cost in (p.round_cost, p.run_cost)
    ]
    if known and m is not None:
        measured = [
            str(e) for e in (m.variance_ratio, m.wasserstein2_squared, m.mean_error_squared, m.mse)
        ]
        one = result.one_chain
        measured.append("-" if one is None else share_in_words(one.mean_error))
    else:
        values = (result.mean[0][:6], np.sqrt(result.variance[0])[:6])
        measured = [np.array2string(value, precision=3, suppress_small=True) for value in values]
    plan = [format_number(p.typical_gain), p.binding, format_number(p.temperature)]
    draws = format_short(p.effective_draws)
    return (name, *plan, format_number(p.effective_step_size), draws, *costs, *measured)


def compare(
    uplinks: Mapping[str, Uplink],
    model: Model,
    limits: Limits | None = None,
    *,
    seed: int = 0,
    chains: int = 50,
    keep_draws: bool = False,
    **settings: Any,
) -> Comparison:
    """Plan and run several uplinks on one model with one seed.

    Parameters
    ----------
    uplinks
        Uplinks by name.
    model
        The model that all of them sample.
    limits
        What limits the gain besides power; None: the defaults of :class:`flmc.Limits`.
    seed
        Of all randomness: every uplink sees the same fading and channel noise.
    chains
        Chains of every data set.
    keep_draws
        Whether to keep theta of every kept round.
    **settings
        Further arguments of :func:`flmc.plan`, the same for all uplinks.

    Returns
    -------
    Comparison
        Results by name; ``print`` shows them as a table.

    Raises
    ------
    InvalidSetting
        If ``uplinks`` is empty, or a plan is impossible.

    Examples
    --------
    >>> model = flmc.Model.from_gradient(
    ...     lambda theta: np.stack([theta, 3 * theta], axis=1),
    ...     prior=flmc.Normal(),
    ...     dim=3,
    ...     num_devices=2,
    ...     smoothness=5.0,
    ... )
    >>> uplinks = {"digital": flmc.Digital(), "analog": flmc.Analog()}
    >>> compared = flmc.compare(uplinks, model, chains=2, num_rounds=6, num_burn_in=2)
    >>> sorted(compared.results), compared["digital"].mean.shape
    (['analog', 'digital'], (1, 3))
    """
    if not isinstance(uplinks, Mapping) or not uplinks:  # type: ignore[redundant-expr]
        raise InvalidSetting(
            f"uplinks must be a dict with at least one uplink by its name, got {uplinks!r}"
        )
    plans = {name: plan(model, uplink, limits, **settings) for name, uplink in uplinks.items()}
    return Comparison(
        {
            name: run(each, model, seed, chains, keep_draws=keep_draws)
            for name, each in plans.items()
        }
    )
