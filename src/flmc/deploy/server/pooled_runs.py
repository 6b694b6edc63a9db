"""Several runs of one plan, each a chain of a federation of its own, judged and priced together.

One chain cannot show that it has mixed, and stays in the mode in whose basin it begins. Runs of the
same plan under different names, with the same devices, air and server, are chains that begin at
different theta; together they have an R-hat, one answer, and one privacy cost."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.documents import ANSWER_VERSION
from flmc.base.errors import InvalidSetting, UnknownPrivacy
from flmc.base.findings import Finding
from flmc.base.tables import Listing, Row, format_up
from flmc.deploy.accounting import cost_of_run
from flmc.deploy.server.federation_result import (
    Recorded,
    absences,
    answer_finder,
    chains_of,
    read_recorded,
    refuse_answer,
)
from flmc.deploy.server.server_prior import prior_in
from flmc.deploy.server.server_record import ENGINE, REPORT
from flmc.evaluation.server_evidence import judge_without_data
from flmc.evaluation.shown_answer import FindAnswer
from flmc.models.distributions import Prior
from flmc.models.parameters import Layout
from flmc.runs.ledger import rounds_seen
from flmc.runs.records import load
from flmc.runs.results import Result
from flmc.sampling.path import ChainPath
from flmc.wire.federation import Federation

_APART = 0.5
"""Smallest distance at which the starts of two chains count as different: the root mean square,
over the entries of theta, of their difference in prior standard deviations (in those of the kept
thetas, if the prior is not known). Closer starts bring a finding. Two draws from a normal prior are
about sqrt(2) apart."""
_UNLIKE_ROUNDS = (
    "the runs have no answer together, because other devices were active, or with other gains, in"
    " their rounds: use the answer of each (flmc answer), or the draws"
)
"""Message of pooled runs that have no answer together: an answer of several chains needs the same
number of active devices and the same gains in every round of all runs."""
_PRIVACY_OF_ONE = "privacy, one chain"
"""Label of the row with the privacy of one chain in a result's table. Pooled runs leave the row
out, because all their chains are published."""


class PooledRuns(NamedTuple):
    """Several runs of one plan, each one chain, with the result and the privacy cost of all of them
    together, as the server knows them without data."""

    runs: tuple[str, ...]
    """Names of the runs, one chain each."""
    result: Result
    """The result of all chains together."""
    epsilon: float | None
    """Upper bound of epsilon for all rounds of these runs together, for the device that transmits
    most, at the delta that the plan states for one run; infinite if no finite bound is known, None
    if the uplink's privacy is unknown. It holds only if nobody looked at the runs before choosing
    which of them to pool."""

    def to_document(self) -> dict[str, Any]:
        """Plain values for JSON: names of the runs, epsilon and delta, mean and standard deviation
        of the draws, agreement of the chains, findings, and the answer. An unknown value and an
        infinite epsilon are None."""
        result = self.result
        finite = self.epsilon is not None and math.isfinite(self.epsilon)
        answer = result.shown_answer("auto", all_chains=True).to_document()
        mixing = result.diagnostics
        return {
            "schema_version": ANSWER_VERSION,
            "runs": list(self.runs),
            "epsilon": self.epsilon if finite else None,
            "delta": result.plan.limits.run_delta,
            "mean": result.mean[0].tolist(),
            "sd": np.sqrt(result.variance[0]).tolist(),
            "agreement": None if mixing is None else mixing.entries.to_document(),
            "findings": [finding.to_document() for finding in result.findings],
            "why": answer["why"],
            "posterior": answer["posterior"],
        }

    def listing(self) -> Listing:
        """The result of all chains together as rows for printing, with the names of the runs and
        their epsilon together."""
        shown = self.result.listing("chain")
        cost = "not known"
        if self.epsilon is not None:
            delta = self.result.plan.limits.run_delta
            cost = (
                f"epsilon {format_up(self.epsilon)} at delta {delta:g}, of all their rounds; runs"
            )
            cost += " that were looked at and left out cost more"
        rows = [row for row in shown.rows if row.label != _PRIVACY_OF_ONE]
        rows += [Row("runs", ", ".join(self.runs)), Row("privacy, these runs", cost)]
        rows += self.result.shown_answer("auto", all_chains=True).rows()
        return replace(shown, rows=tuple(rows))


@dataclass(frozen=True)
class _Run:
    """A finished run of a federation, from its record. ``held`` has the plan, the chain and the
    ledger; with ``reports`` the last entry of theta is the devices' report; ``prior`` is that of
    the model's parameters (None: not known)."""

    federation: Federation
    held: Recorded
    reports: bool
    prior: Prior | None

    @classmethod
    def read(cls, directory: Path) -> _Run:
        """The run whose record is in ``directory``; raises ``InvalidSetting`` if the record is
        not of a federation's finished run."""
        record = load(directory)
        if record.asked.get("engine") != ENGINE or record.result is None:
            raise InvalidSetting(
                f"{str(directory)!r} must be the record of a federation's finished run"
            )
        federation = Federation.from_document(
            {**record.asked["federation"], "plan": record.asked["plan"]}
        )
        held = read_recorded(directory)
        return cls(federation, held, REPORT in record.arrays, prior_in(record.asked))

    @property
    def kept(self) -> Array:
        """Theta after every kept round, (round, dim), without reports."""
        return self.held.kept[:, :-1] if self.reports else self.held.kept

    @property
    def before(self) -> Array:
        """Theta at the start and after every round of the burn-in, (position, dim), without
        reports."""
        assert self.held.before is not None, "records of this version have the burn-in"
        return self.held.before


def pool(directories: Sequence[Path]) -> PooledRuns:
    """The runs whose records are in ``directories``, judged together as chains of one plan.

    Raises ``InvalidSetting`` unless these are two or more finished runs of the same plan and model
    under different names."""
    runs = [_Run.read(each) for each in directories]
    _check_alike(runs)
    first = runs[0].federation
    plan = first.plan
    kept = np.stack([each.kept for each in runs])
    before = np.stack([each.before for each in runs])
    chains = chains_of(plan, kept, before, kept.mean(axis=(0, 1))[None])
    findings: dict[tuple[str, str], Finding] = {}
    for each in runs:
        ledger = each.held.ledger
        active, gains = rounds_seen(ledger[plan.num_burn_in : plan.num_rounds], plan.num_devices)
        judged = judge_without_data(plan, each.held.kept, active, gains, reports=each.reports)
        for finding in (*absences(plan, ledger), *judged):
            findings.setdefault((finding.code, finding.severity), finding)
    result = Result(
        plan=plan,
        seed=0,
        num_chains=len(runs),
        engine=ENGINE,
        seconds=sum(each.held.seconds for each in runs),
        metrics=None,
        clipped_fraction=float("nan"),
        num_undefined=0,
        moments=chains.moments,
        path=chains.path,
        model_findings=(*_judge_starts(runs, before[:, 0], kept), *findings.values()),
        layout=_layout_of(runs),
        find_answer=_answer_of(runs, chains.path),
    )
    try:
        # The runs may have different noise grids, and rounding to a grid costs privacy: every run
        # is charged like the one that costs most.
        delta, number = plan.limits.run_delta, len(runs)
        epsilon = max(cost_of_run(each.federation, delta, runs=number) for each in runs)
    except UnknownPrivacy:
        return PooledRuns(tuple(each.federation.run for each in runs), result, None)
    return PooledRuns(tuple(each.federation.run for each in runs), result, epsilon)


def _check_alike(runs: Sequence[_Run]) -> None:
    """Raise ``InvalidSetting`` unless there are two or more runs, all of the same plan and model,
    under different names."""
    if len(runs) < 2:
        raise InvalidSetting(f"two runs or more can be judged together, got {len(runs)}")
    names = [each.federation.run for each in runs]
    if len({*names}) < len(names):
        raise InvalidSetting(f"each run must have a name of its own, got {', '.join(names)}")
    first = runs[0].federation
    for each in runs[1:]:
        if each.federation.plan != first.plan or each.federation.model != first.model:
            raise InvalidSetting(
                f"{each.federation.run!r} and {first.run!r} are runs of different plans or models:"
                " chains must be of one plan"
            )
    named = {each.federation.names for each in runs} - {()}
    if len(named) > 1:
        raise InvalidSetting(
            "the runs have different names of theta's entries, so that they are not of one model:"
            f" {' and '.join(', '.join(each[:5]) for each in sorted(named)[:2])}"
        )


def _judge_starts(runs: Sequence[_Run], starts: Array, kept: Array) -> list[Finding]:
    """A list with one warning if two chains began so close together that their agreement does not
    show that they mixed; else empty. ``starts`` is theta before round 1, (chain, dim), and ``kept``
    theta after every kept round, (chain, round, dim)."""
    prior = runs[0].prior
    spread = kept.std(axis=(0, 1)) if prior is None else np.asarray(prior.sd)
    away = (starts[:, None] - starts[None]) / spread
    pairs = np.sqrt(np.square(away).mean(axis=2))[np.triu_indices(len(starts), 1)]
    if pairs.min() >= _APART:
        return []
    short = "chains began at one place"
    text = (
        f"{short}, or close together, so that they may be in one mode of several: plan with start"
        " 'prior', and give prior_sd in the server's configuration"
    )
    return [Finding("same-start", "warning", text, short, {"distance": float(pairs.min())})]


def _answer_of(runs: Sequence[_Run], path: ChainPath | None) -> FindAnswer:
    """A function that computes the answer of all runs together from the positions of their chains
    in ``path``. The function raises ``InvalidSetting`` if the runs differ in the number of active
    devices, or in the gains, of any round."""
    first = runs[0]
    plan = first.federation.plan
    seen = [rounds_seen(each.held.ledger[: plan.num_rounds], plan.num_devices) for each in runs]
    for active, gain in seen[1:]:
        if not (np.array_equal(active, seen[0][0]) and np.allclose(gain, seen[0][1], rtol=1e-6)):
            return partial(refuse_answer, _UNLIKE_ROUNDS)
    return answer_finder(plan, first.prior, path, first.held.ledger, _layout_of(runs))


def _layout_of(runs: Sequence[_Run]) -> Layout | None:
    """Names of the entries of theta, from the first of the runs that has any; None if none has."""
    names = next((each.federation.names for each in runs if each.federation.names), ())
    return Layout.of_names(names, len(names)) if names else None
