"""Agreement of a run's chains with each other, which needs no known posterior: R-hat, effective
sample sizes, and findings.

Chains that agree with each other have forgotten their starts. That does not show that the *noise*
is right: with a temperature of 2 all chains agree on a posterior that is too wide.
:mod:`flmc.evaluation.stein` tests the noise.

A result is judged by its first data set alone, and by a bounded number of draws, entries and
predictions, so that the judgement costs little compared with the run."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding, Grade
from flmc.base.tables import Row
from flmc.evaluation.chain_statistics import FEWEST_DRAWS, chain_statistics
from flmc.evaluation.named_draws import entry_names

AGREED = 1.01
"""Largest R-hat with which chains count as agreeing with each other (Vehtari et al., 2021)."""


class KeepsDraws(Protocol):
    """Anything with kept draws: a :class:`flmc.Result` or a :class:`flmc.Record`."""

    @property
    def kept_draws(self) -> Array | None:
        """Kept draws, (experiment, chain, draw, dim); None if they were not kept."""


@dataclass(frozen=True)
class Diagnostics:
    """R-hat and effective sample sizes for every data set and entry of theta, (experiment, dim)
    each; NaN where draws do not vary or are not finite."""

    r_hat: Array
    """Rank-normalised split R-hat: about 1 where the chains, and the halves of each, agree."""
    ess_bulk: Array
    """Effective sample size for the middle of the posterior: the number of independent draws that
    would estimate it with the same error."""
    ess_tail: Array
    """Effective sample size for the tails: the number of independent draws that would estimate the
    5 % and 95 % quantiles with the same error."""
    names: tuple[str, ...] = ()
    """Names of the entries of theta, (dim); empty where they are not known."""

    @property
    def agreed(self) -> bool:
        """Whether every R-hat is below 1.01."""
        return bool((self.r_hat < AGREED).all())

    def __str__(self) -> str:
        advice = "" if self.agreed else f" (above {AGREED:g}: use more burn-in, or more rounds)"
        worst = int(np.argmax(self.r_hat)) % self.r_hat.shape[-1]
        named = f" ({self.names[worst]})" if self.names else ""
        r_hat = f"at most {self.r_hat.max():.3f}{named}{advice}"
        if np.isnan(self.r_hat).any():
            r_hat = "unknown, because draws do not vary or are not finite"
        return (
            f"R-hat {r_hat}; effective draws at least {self.ess_bulk.min():.0f} for the"
            f" middle, {self.ess_tail.min():.0f} for 5 % and 95 %"
        )


def diagnose(done: KeepsDraws) -> Diagnostics:
    """R-hat and effective sample sizes of all kept draws.

    :attr:`flmc.Result.diagnostics` has them for the first data set only, from a part of the draws.

    Parameters
    ----------
    done
        A :class:`flmc.Result` or :class:`flmc.Record` with kept draws.

    Returns
    -------
    Diagnostics
        A value for every data set and entry of theta. With a single chain R-hat compares its two
        halves: this shows whether the chain still travels, not whether another chain would arrive
        at the same place.

    Raises
    ------
    InvalidSetting
        If ``done`` has no ``kept_draws``, no draws were kept, or fewer than 4 a chain.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=20, num_burn_in=10)
    >>> flmc.diagnose(flmc.run(plan, model, chains=4, engine="numpy")).r_hat.shape
    (1, 5)
    """
    if not hasattr(done, "kept_draws"):
        raise InvalidSetting(
            f"diagnostics are of a flmc.Result or flmc.Record, got {type(done).__name__}"
        )
    chains = done.kept_draws
    if chains is None:
        raise InvalidSetting("diagnostics need the draws: run with keep_draws=True")
    if chains.shape[2] < FEWEST_DRAWS:
        raise InvalidSetting(
            f"diagnostics need at least {FEWEST_DRAWS} kept rounds, got {chains.shape[2]}"
        )
    names = entry_names(chains.shape[3], getattr(done, "layout", None))
    return replace(diagnose_draws(chains), names=tuple(names))


def diagnose_draws(chains: Array) -> Diagnostics:
    """R-hat and effective sample sizes of draws (experiment, chain, draw, entry), at least 4 of
    every chain."""
    columns = np.moveaxis(chains, 3, 1)  # shape (experiment, entry, chain, draw)
    # One data set at a time, because the intermediate arrays are several times as large as the
    # draws.
    statistics = [chain_statistics(each) for each in columns]
    r_hat, ess_bulk, ess_tail = (np.stack(values) for values in zip(*statistics, strict=True))
    return Diagnostics(r_hat, ess_bulk, ess_tail)


APART = 1.4
"""R-hat above which chains count as being in different places: they differ more from each other
than the draws of each vary (R-hat squared is about 2). Below it, the draws can still be those of
many short chains that have forgotten their starts: R-hat is about 1.1 where each chain holds ten
independent draws."""
_MOST_ENTRIES = 20
"""Largest number of entries of theta, and of predictions, for which R-hat and effective sizes are
computed; if there are more, this many are chosen at even distances."""
MOST_DRAWS = 10_000
"""About the largest number of draws, of all chains together, from which R-hat and effective sizes
are computed; of more draws only every n-th is used. That hardly changes R-hat, and can only make
effective sizes smaller."""
_MANY_CHAINS = 20
"""Smallest number of chains whose first and last draws are compared to see whether the law of the
draws has become stationary."""
_LEAST_LOST = 0.5
"""Smallest loss of memory with which the law of an entry's draws may count as stationary. The loss
is 1 minus the correlation, over chains, of the first and the last kept draw: chains that are stuck
in different places lose no memory."""
_MOST_WIDER, _MOST_WAY = 1.5, 0.25
"""Limits within which the law of the draws of all chains counts as stationary. ``_MOST_WIDER`` is
the largest ratio of the variance over chains to the variance that it tends to; ``_MOST_WAY`` is the
largest distance that the mean over chains still has to go, in standard deviations."""
_PRECISE, _USEFUL = 100.0, 20.0
"""Numbers of effective draws: below ``_PRECISE`` there is a note, below ``_USEFUL`` a warning. With
100 the mean is known to 0.1 posterior standard deviations and the standard deviation to 7 %; with
20 the mean to 0.22, nearly the shift for which a plan gets a warning, and the standard deviation to
16 %."""


class Agreement(NamedTuple):
    """The largest R-hat and the smallest effective sample sizes over several quantities (entries of
    theta, or predictions), from several chains of draws; NaN where they cannot be computed."""

    r_hat: float
    """Largest R-hat over the quantities; about 1 where chains agree."""
    ess_bulk: float
    """Smallest effective sample size for the middle of the distribution."""
    ess_tail: float
    """Smallest effective sample size for the 5 % and 95 % quantiles."""
    worst: str = ""
    """Name of the quantity with the largest R-hat; empty where it has none."""

    def to_document(self) -> dict[str, Any]:
        """R-hat, effective sizes and the name of the worst quantity, for JSON; a number that is not
        finite is null, and so is a name that is not known."""
        numbers = (self.r_hat, self.ess_bulk, self.ess_tail)
        finite = (value if math.isfinite(value) else None for value in numbers)
        named = dict(zip(("r_hat", "ess_bulk", "ess_tail"), finite, strict=True))
        return {**named, "worst": self.worst or None}

    def __str__(self) -> str:
        if math.isnan(self.r_hat):
            return "R-hat unknown, because draws do not vary or are not finite"
        where = f" ({self.worst})" if self.worst else ""
        return (
            f"R-hat at most {self.r_hat:.3f}{where}; effective draws at least {self.ess_bulk:.0f}"
            f" for the middle, {self.ess_tail:.0f} for 5 % and 95 %"
        )


class Mixing(NamedTuple):
    """How well the chains of the first data set agree with each other, in entries of theta and in
    predictions of the model."""

    num_chains: int
    """Number of chains; the first half of a single one is compared with its second half."""
    entries: Agreement
    """Worst R-hat and effective sizes over entries of theta."""
    predictions: Agreement | None
    """Worst R-hat and effective sizes over predictions of the model; None for a model without
    predictions."""
    settled: bool = False
    """Whether the law of the draws of all chains together has become stationary, judged by each
    chain's first and last draw; it can be so even if each chain is too short for a good R-hat."""
    num_used: int = 0
    """Number of draws of all chains from which R-hat and effective sizes were computed."""
    num_kept: int = 0
    """Number of kept draws of all chains; above ``num_used``, only every n-th of them was used."""

    def to_document(self) -> dict[str, Any]:
        """Plain values for JSON: R-hat and effective sizes of the entries of theta, the same under
        ``predictions`` (or null), and ``settled``."""
        predictions = None if self.predictions is None else self.predictions.to_document()
        return {
            **self.entries.to_document(),
            "predictions": predictions,
            "settled": self.settled,
        }

    @property
    def doubt(self) -> float:
        """The largest R-hat over entries of theta, or 1 if it is at most 1.01 or the law of all
        chains together has become stationary. Other tests of the draws allow for errors that a
        disagreement of this size explains."""
        r_hat = self.entries.r_hat
        return r_hat if r_hat > AGREED and not self.settled else 1.0

    @property
    def rows(self) -> list[Row]:
        """R-hat and effective sizes as rows of a printed result."""
        entries = f"{self.entries}" + (
            " (one chain: of its halves)" if self.num_chains == 1 else ""
        )
        if self.num_used < self.num_kept:
            entries += f"; from {self.num_used} of {self.num_kept} draws"
        rows = [Row("chains", entries)]
        if self.predictions is not None:
            rows.append(Row("chains, predictions", str(self.predictions)))
        return rows

    def findings(self, *, known_posterior: bool = False) -> list[Finding]:
        """Findings against the chains: they disagree, or hold few independent draws. Where the
        model's posterior is known (``known_posterior``) the findings are only notes, unless chains
        are in different places, with an R-hat above 1.4."""
        findings = [*self._unmixed(), *([] if self.doubt > APART else self._few())]
        if not known_posterior:
            return findings
        # Where the posterior is known, metrics against it judge the draws better than R-hat does,
        # unless chains are in different places.
        mild = [each for each in findings if not (each.code == "unmixed" and self.doubt > APART)]
        return [replace(each, severity="note") if each in mild else each for each in findings]

    def _unmixed(self) -> list[Finding]:
        """A list with at most one finding: R-hat of the entries is above 1.01, or there is only one
        chain, which cannot show that it has mixed."""
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
        if self.settled:
            text = (
                f"the chains are short beside their memory (R-hat {r_hat:.3g}), but the first and"
                f" last draws of all {self.num_chains} agree: what is taken over all chains can"
                " stand"
            )
            return [Finding("short-chains", "note", text, numbers=numbers)]
        whose = "halves of the chain" if self.num_chains == 1 else "chains"
        meaning = (
            f"the {whose} differ more from each other than each varies in itself"
            if r_hat > APART
            else f"the {whose} are not mixed, or too short to show it"
        )
        settled = ""
        if self.predictions is not None and self.predictions.r_hat <= AGREED:
            # Chains can agree in predictions although they differ in theta: entries may be
            # interchangeable, or determined by each other.
            settled = f"; what the model predicts does agree (R-hat {self.predictions.r_hat:.3f})"
            numbers["r_hat_predictions"] = self.predictions.r_hat
        text = (
            f"the {whose} do not agree: R-hat is {r_hat:.4g}{self._where}, and should be below"
            f" {AGREED:g}; {meaning}{settled}; use more rounds, or more burn-in"
        )
        grade: Grade = "infeasible" if r_hat > APART and not settled else "warning"
        short = f"R-hat {r_hat:.3g}{self._where}, must be 1"
        return [Finding("unmixed", grade, text, short, numbers)]

    @property
    def _where(self) -> str:
        """Words that name the entry with the largest R-hat, such as `` in theta[2]``, for the
        middle of a sentence; empty if the entry has no name."""
        return f" in {self.entries.worst}" if self.entries.worst else ""

    def _few(self) -> list[Finding]:
        """A list with at most one finding: so few effective draws that means and quantiles are
        imprecise."""
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
        return [
            Finding("few-effective-draws", grade, text, f"{least:.0f} effective draws", numbers)
        ]


def thinned(chains: Array) -> Array:
    """Draws of the first data set, (chain, draw, dim), from ``chains`` (experiment, chain, draw,
    dim); where there are more than about 10,000, only every n-th draw of a chain."""
    first = chains[0]
    every = -(-first.shape[0] * first.shape[1] // MOST_DRAWS)
    # Every chain keeps at least 4 draws, because R-hat needs two in each of its halves.
    return np.asarray(first[:, :: max(1, min(every, first.shape[1] // FEWEST_DRAWS))])


def judge_mixing(
    chains: Array | None, predictions: Array | None = None, names: Sequence[str] = ()
) -> Mixing | None:
    """Agreement of the chains of the first data set, from the kept draws ``chains`` (experiment,
    chain, draw, dim) and the model's ``predictions`` (chain, draw, prediction) at the draws that
    ``thinned`` returns; None if no draws were kept, or fewer than 4 a chain. ``names`` are those of
    the entries, empty where they have none."""
    if chains is None or chains.shape[2] < FEWEST_DRAWS:
        return None
    draws = thinned(chains)
    agreement = _agreement(draws, names)
    of_predictions = None if predictions is None else _agreement(predictions)
    used, kept = (each.shape[0] * each.shape[1] for each in (draws, chains[0]))
    return Mixing(chains.shape[1], agreement, of_predictions, _settled(chains[0]), used, kept)


def _settled(draws: Array) -> bool:
    """Whether the law of the draws (chain, draw, dim) of many chains together has become
    stationary, judged by the first and the last draw of each; False with fewer than 20 chains.

    Suppose that a chain forgets the share b of its deviation from the mean between these draws, and
    that the variance over chains of the first draw is f times the stationary one. Then the variance
    changes by the factor (1 - b)^2 + b (2 - b)/f, and the mean covers the share b of its way to
    the stationary mean. From b and both changes follows how far variance and mean are still off;
    chains that have forgotten nothing show nothing."""
    if len(draws) < _MANY_CHAINS:
        return False
    first, last = draws[:, 0], draws[:, -1]
    before, after = first.var(axis=0, ddof=1), last.var(axis=0, ddof=1)
    if not ((before > 0) & (after > 0)).all():
        return False
    kept = ((first - first.mean(axis=0)) * (last - last.mean(axis=0))).sum(axis=0)
    kept /= (len(draws) - 1) * np.sqrt(before * after)
    # Every entry must have lost memory: one entry may be stuck although all others move.
    lost = 1.0 - kept
    if not (lost > _LEAST_LOST).all():
        return False
    error = np.sqrt(4.0 * np.maximum(0.0, 1.0 - kept**2) / len(draws))
    gain = lost * (2.0 - lost)
    # The stationary variance over chains, as a share of the variance of the first draws.
    left = (after / before - kept**2) / gain
    error = error / gain
    # The mean over entries must show that the draws are not much wider than their stationary law.
    # No single entry may show that it is much wider, or that its chains are still spreading.
    together = float(left.mean() - 2.0 * error.mean()) > 1.0 / _MOST_WIDER
    wide, narrow = left + 3.0 * error < 1.0 / _MOST_WIDER, left - 3.0 * error > _MOST_WIDER
    way = np.abs(last.mean(axis=0) - first.mean(axis=0)) / (lost * np.sqrt(after))
    way_error = np.sqrt((last - first).var(axis=0) / len(draws) / after) / lost
    near = way < _MOST_WAY + 2.0 * way_error
    return together and bool((near & ~wide & ~narrow).all())


def _agreement(draws: Array, names: Sequence[str] = ()) -> Agreement:
    """The largest R-hat and the smallest effective sizes of draws (chain, draw, entry), over at
    most 20 entries at even distances, with the name of the worst entry."""
    count = draws.shape[-1]
    chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_ENTRIES)).round().astype(int))
    diagnostics = diagnose_draws(draws[None][..., chosen])
    # An entry whose draws do not vary has the R-hat NaN, and is left out of the maximum.
    each = diagnostics.r_hat[0]
    known = np.flatnonzero(~np.isnan(each))
    worst = int(known[np.argmax(each[known])]) if known.size else None
    return Agreement(
        math.nan if worst is None else float(each[worst]),
        float(diagnostics.ess_bulk.min()),
        float(diagnostics.ess_tail.min()),
        "" if worst is None or not names else names[chosen[worst]],
    )
