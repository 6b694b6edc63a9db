"""What methods delivered, as values: the scores of each, and the table of all."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.base.documents import ANSWER_VERSION
from flmc.base.tables import Grid, Row, format_short, format_up
from flmc.evaluation.metrics import Estimate
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost
from flmc.runs.baselines.scoring import LABELS

NO_STATEMENT = "no statement"
"""What stands in place of an epsilon where nothing is proven."""


@dataclass(frozen=True)
class MethodScores:
    """What one method delivered.

    Attributes
    ----------
    name, channel
        Name of the method, and what lies between devices and server.
    samples
        Whether draws were scored; else the mean of the kept rounds, a point estimate.
    cost
        Privacy of the run; None: there is no statement, and ``no_statement`` says why.
    no_statement
        Why there is no privacy statement; empty where there is one.
    data_dependent
        Whether steps or gain were computed from the devices' data, so that the statement is for
        simulation.
    num_rounds, step_size
        Rounds, and the step: of the Langevin equation or of descent; for a majority vote how far an
        entry moves in a round; for local posteriors the median over devices.
    scores
        Means over chains, by name, each chain a release of its own; for local posteriors also over
        devices.
    """

    name: str
    channel: str
    samples: bool
    cost: Cost | None
    no_statement: str
    data_dependent: bool
    num_rounds: int
    step_size: float
    scores: dict[str, Estimate]

    @property
    def privacy(self) -> str:
        """Epsilon of the run, or that there is no statement."""
        return NO_STATEMENT if self.cost is None else f"epsilon {format_up(self.cost.epsilon, 4)}"

    def to_document(self) -> dict[str, Any]:
        """The method in plain values, for JSON; what is not a number is null."""
        epsilon = None if self.cost is None else self.cost.epsilon
        return {
            "name": self.name,
            "channel": self.channel,
            "estimate": "draws" if self.samples else "mean of kept rounds",
            "epsilon": None if epsilon is None or math.isinf(epsilon) else epsilon,
            "delta": None if self.cost is None else self.cost.delta,
            "no_statement": self.no_statement,
            "data_dependent": self.data_dependent,
            "num_rounds": self.num_rounds,
            "step_size": self.step_size,
            "scores": {
                name: {"mean": _plain(value.mean), "se": _plain(value.se)}
                for name, value in self.scores.items()
            },
        }


@dataclass(frozen=True)
class BaselineComparison:
    """Scores of a plan's sampler and of its baselines, made by
    :func:`~flmc.runs.baselines.comparing.compare_baselines`.

    Attributes
    ----------
    plan
        What the baselines are compared with.
    methods
        What every method delivered, the plan's own sampler first; ``comparison[name]`` gives one.
    missing
        Methods that could not be run, each with the reason.
    num_test, num_chains, seed
        Held-out examples, chains of every method, and the seed.
    """

    plan: Plan
    methods: tuple[MethodScores, ...]
    missing: dict[str, str]
    num_test: int
    num_chains: int
    seed: int

    def __getitem__(self, name: str) -> MethodScores:
        return next(each for each in self.methods if each.name == name)

    def __str__(self) -> str:
        return str(self.grid())

    def grid(self) -> Grid:
        """A table with a row for each method: channel, privacy of the run, rounds, scores."""
        names = list(self.methods[0].scores)
        header = ("method", "channel", "privacy", "rounds", *(LABELS[name] for name in names))
        rows = tuple(
            (
                each.name,
                each.channel,
                each.privacy,
                str(each.num_rounds),
                *(str(each.scores[name]) for name in names),
            )
            for each in self.methods
        )
        title = f"{self.num_test} held-out examples, {self.num_chains} chains of every method"
        return Grid(header, rows, title, self._notes())

    def _notes(self) -> tuple[Row, ...]:
        """What the numbers are about, and what is missing."""
        limits, kept = self.plan.limits, self.plan.num_rounds - self.plan.num_burn_in
        points = [each.name for each in self.methods if not each.samples]
        replaced = (
            "all data of one device are" if limits.neighbouring == "device" else "one example is"
        )
        notes = [
            Row("privacy", f"of one chain at delta {limits.run_delta:g}, if {replaced} replaced")
        ]
        if points:
            notes.append(
                Row("point estimates", f"{', '.join(points)}: mean of the last {kept} rounds")
            )
        steps = ", ".join(f"{each.name} {format_short(each.step_size)}" for each in self.methods)
        notes.append(Row("steps", steps))
        notes += [
            Row(each.name, f"no privacy statement: {each.no_statement}")
            for each in self.methods
            if each.no_statement
        ]
        if any(each.data_dependent and each.cost is not None for each in self.methods):
            text = "steps were computed from the devices' data, so every epsilon is for simulation"
            notes.append(Row("", text, severity="warning"))
        notes += [
            Row(name, f"left out: {why}", severity="warning") for name, why in self.missing.items()
        ]
        return tuple(notes)

    def to_document(self) -> dict[str, Any]:
        """Everything in plain values, for JSON."""
        return {
            "schema_version": ANSWER_VERSION,
            "plan": self.plan.to_document(),
            "neighbouring": self.plan.limits.neighbouring,
            "num_test": self.num_test,
            "num_chains": self.num_chains,
            "seed": self.seed,
            "methods": [each.to_document() for each in self.methods],
            "missing": dict(self.missing),
        }


def _plain(value: float) -> float | None:
    """A number for JSON: null where it is not finite."""
    return value if math.isfinite(value) else None
