"""What R-hat and effective sample sizes say against a run: chains that have not met, few draws.

A result is judged by its first data set, as Stein's evidence is, and by a bounded number of draws,
entries and predictions, so that it costs little beside the run."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding, Grade
from flmc.base.tables import Row
from flmc.evaluation.chain_statistics import FEWEST_DRAWS
from flmc.evaluation.diagnostics import AGREED, diagnose_draws

APART = 1.4
"""R-hat above which chains count as apart: they differ more from each other than each varies in
itself (R-hat squared is about 2). Below, draws can still be those of many short chains that have
forgotten their starts: R-hat is about 1.1 where each chain holds ten independent draws."""
_MOST_ENTRIES = 20
"""Entries of theta, and predictions, that are looked at: evenly chosen where there are more."""
_MOST_DRAWS = 20_000
"""About the largest number of draws of all chains that are looked at; every so-many-th where there
are more. That hardly changes R-hat, and can only make effective sizes smaller."""
_PRECISE, _USEFUL = 100.0, 20.0
"""Effective draws below which there is a note, and a warning. With 100 the mean is known to 0.1
posterior standard deviations and the spread to 7 %; with 20 the mean to 0.22, nearly what a plan
counts as a wrong place, and the spread to 16 %."""


class Agreement(NamedTuple):
    """The worst R-hat and effective sizes over some quantities; NaN where they cannot be told."""

    r_hat: float
    """Largest R-hat."""
    ess_bulk: float
    """Smallest effective size for the middle."""
    ess_tail: float
    """Smallest effective size for the 5 % and 95 % quantiles."""

    def to_document(self) -> dict[str, float | None]:
        """Plain values, for JSON; what is not a number is null."""
        return {
            name: value if math.isfinite(value) else None for name, value in self._asdict().items()
        }

    def __str__(self) -> str:
        if math.isnan(self.r_hat):
            return "R-hat unknown, because draws do not vary or are not finite"
        return (
            f"R-hat at most {self.r_hat:.3f}; effective draws at least {self.ess_bulk:.0f} for the"
            f" middle, {self.ess_tail:.0f} for 5 % and 95 %"
        )


class Mixing(NamedTuple):
    """Whether the chains of the first data set agree, in the entries of theta and in predictions."""

    num_chains: int
    """Number of chains; a single one is compared with itself, half by half."""
    entries: Agreement
    """Of the entries of theta."""
    predictions: Agreement | None
    """Of what the model predicts; None for a model that predicts nothing."""

    def to_document(self) -> dict[str, Any]:
        """Plain values, for JSON: those of the entries, and ``predictions`` or null."""
        predictions = None if self.predictions is None else self.predictions.to_document()
        return {**self.entries.to_document(), "predictions": predictions}

    @property
    def apart(self) -> bool:
        """Whether the chains are so far from each other that nothing else can be judged."""
        return self.entries.r_hat > APART

    @property
    def rows(self) -> list[Row]:
        """Rows for whoever shows a result."""
        entries = f"{self.entries}" + (" (one chain: of its halves)" if self.num_chains == 1 else "")
        rows = [Row("chains", entries)]
        if self.predictions is not None:
            rows.append(Row("chains, predictions", str(self.predictions)))
        return rows

    @property
    def findings(self) -> list[Finding]:
        """What speaks against the chains: they have not met, or hold few independent draws."""
        return [*self._unmixed(), *([] if self.apart else self._few())]

    def _unmixed(self) -> list[Finding]:
        """Finding where R-hat is above its limit, or where one chain alone cannot show it."""
        r_hat = self.entries.r_hat
        numbers = {"r_hat": r_hat, "num_chains": float(self.num_chains)}
        if self.num_chains == 1 and not r_hat > APART:
            text = (
                "one chain cannot show that it has mixed: the R-hat of its halves"
                f" ({r_hat:.3g}) only shows whether it still travels; run four chains or more"
            )
            return [Finding("one-chain", "note", text, numbers=numbers)]
        if not r_hat > AGREED:
            return []
        whose = "halves of the chain" if self.num_chains == 1 else "chains"
        meaning = (
            "mean and spread of the draws mean nothing yet"
            if r_hat > APART
            else f"the {whose} are not mixed, or too short to show it"
        )
        settled = ""
        if self.predictions is not None and self.predictions.r_hat <= AGREED:
            # Entries may be interchangeable, or follow from each other, while predictions are not.
            settled = f"; what the model predicts does agree (R-hat {self.predictions.r_hat:.3f})"
            numbers["r_hat_predictions"] = self.predictions.r_hat
        text = (
            f"the {whose} do not agree: R-hat is {r_hat:.3g}, and should be below {AGREED:g};"
            f" {meaning}{settled}; use more rounds, or more burn-in"
        )
        grade: Grade = "infeasible" if r_hat > APART and not settled else "warning"
        return [Finding("unmixed", grade, text, f"R-hat {r_hat:.3g}, must be 1", numbers)]

    def _few(self) -> list[Finding]:
        """Finding where summaries are imprecise because there are few independent draws."""
        bulk, tail = self.entries.ess_bulk, self.entries.ess_tail
        least = min(bulk, tail)
        if not least < _PRECISE:
            return []
        parts = []
        if bulk < _PRECISE:
            parts.append(
                f"{bulk:.0f} for the middle, so means are uncertain by {bulk**-0.5:.2g} standard"
                f" deviations and standard deviations by {100 * (2 * bulk) ** -0.5:.0f} %"
            )
        if tail < _PRECISE:
            parts.append(f"{tail:.0f} for the 5 % and 95 % quantiles, which are not to be trusted")
        text = f"few effective draws: {'; '.join(parts)}; use more rounds or chains"
        grade: Grade = "warning" if bulk < _USEFUL else "note"
        numbers = {"ess_bulk": bulk, "ess_tail": tail}
        return [Finding("few-effective-draws", grade, text, f"{least:.0f} effective draws", numbers)]


def thinned(chains: Array) -> Array:
    """Draws of the first data set, every so-many-th of each chain where there are many.

    Parameters
    ----------
    chains
        Draws (experiment, chain, draw, dim).

    Returns
    -------
    Array
        Draws (chain, draw, dim).
    """
    first = chains[0]
    every = -(-first.shape[0] * first.shape[1] // _MOST_DRAWS)
    # A chain keeps the draws that halves need, however many chains there are.
    return np.asarray(first[:, :: max(1, min(every, first.shape[1] // FEWEST_DRAWS))])


def judge_mixing(chains: Array | None, predictions: Array | None = None) -> Mixing | None:
    """Whether the chains of the first data set agree.

    Parameters
    ----------
    chains
        Kept draws (experiment, chain, draw, dim); None if they were not kept.
    predictions
        What the model predicts at :func:`thinned` draws, (chain, draw, prediction), if it does.

    Returns
    -------
    Mixing or None
        None without draws, or with fewer than 4 of a chain.
    """
    if chains is None or chains.shape[2] < FEWEST_DRAWS:
        return None
    agreement = _agreement(thinned(chains))
    of_predictions = None if predictions is None else _agreement(predictions)
    return Mixing(chains.shape[1], agreement, of_predictions)


def _agreement(draws: Array) -> Agreement:
    """The worst over entries, of which some are left out where there are many."""
    count = draws.shape[-1]
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTRIES)).round().astype(int))
    found = diagnose_draws(draws[None][..., chosen])
    return Agreement(
        float(found.r_hat.max()), float(found.ess_bulk.min()), float(found.ess_tail.min())
    )
