"""The answer as results and commands show it: that of one chain, or the reason for which the draws
of the chain stand instead.

Privacy of a run is stated for one chain, and so is its answer, unless all chains are asked for.
Where the exact posterior is known, many chains are answered by themselves to count how often
intervals hold."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Listing, Row
from flmc.evaluation.answer import Answer

AnswerMode = Literal["auto", "aware", "chain"]
"""What a result says in the end: the answer, only the draws of the chain, or the answer where it
applies."""
FindAnswer = Callable[..., Answer]
"""A function with the keyword arguments ``by_chain``, ``sets`` and ``chains`` of
:func:`flmc.evaluation.answer.find_answer`."""

_MOST_ANSWERS, _MOST_NUMBERS = 1000, 4_000_000
"""Largest number of chains over which it is counted how often intervals hold, and of numbers in
their positions."""


@dataclass(frozen=True)
class ShownAnswer:
    """The answer for the first data set, from its first chain or from all of its chains, with what
    the intervals of as many chains as can be counted hold; or the reason for which there is none.

    Attributes
    ----------
    answer
        The answer; None: the draws of the chain stand.
    why
        Reason for which they stand; empty where there is an answer.
    num_chains
        Number of chains of the data set that the answer uses.
    find_several
        Function that finds the answers over which :meth:`held` averages.
    """

    answer: Answer | None
    why: str
    num_chains: int
    find_several: Callable[[], Answer] | None = None

    @classmethod
    def of(
        cls,
        find: FindAnswer | None,
        mode: AnswerMode,
        shape: tuple[int, ...],
        *,
        all_chains: bool = False,
    ) -> ShownAnswer:
        """The answer from a function that finds it (None: no draws were kept), for positions of the
        ``shape`` (data set, chain, round, dim). With the mode ``aware`` it is shown in any case:
        ``InvalidSetting`` if there is none."""
        sets, chains, *sizes = shape
        chosen = chains if all_chains else 1
        try:
            if find is None:
                raise InvalidSetting("an answer needs the draws: run it with keep_draws=True")
            answer = find(sets=1, chains=chosen)
        except (InvalidSetting, np.linalg.LinAlgError) as error:
            if mode == "aware":
                raise
            return cls(None, str(error), chosen)
        doubts = [each.short or each.message for each in answer.doubts]
        if mode == "auto" and doubts:
            return cls(None, "; ".join(doubts), chosen)
        # As many data sets as can be, then chains of each: data sets differ more than chains.
        each = int(np.prod(sizes)) * chosen
        most = max(1, min(_MOST_ANSWERS, _MOST_NUMBERS // max(1, each)))
        some = {"sets": min(sets, most), "chains": chosen}
        if not all_chains:
            some["chains"] = max(1, min(chains, most // some["sets"]))
        return cls(answer, "", chosen, partial(find, by_chain=not all_chains, **some))

    def held(self, probability: float) -> Array | None:
        """Mass of the exact posterior in the intervals of several chains, each an answer by itself,
        (answer, dim); None where the posterior is not known."""
        if self.answer is None or self.answer.exact is None or self.find_several is None:
            return None
        return self.find_several().held(probability)

    def rows(self, probability: float = 0.9) -> list[Row]:
        """Rows of the answer for printing, with its findings; or one row with the reason for which
        there is none."""
        if self.answer is None:
            return [Row("answer", f"the draws of the chain stand: {self.why}")]
        chains = "one chain" if self.num_chains == 1 else f"{self.num_chains} chains"
        head = (
            f"what the server knows after {chains}, {self.answer.num_rounds[0]} rounds: mean ± sd,"
            f" {100 * probability:.3g} % interval"
        )
        held = self.held(probability)
        rows = [Row("answer", head), *self.answer.rows(probability)]
        rows += [] if held is None else [held_row(held, probability)]
        return rows + [each.row for each in self.answer.findings]

    def listing(self, probability: float = 0.9) -> Listing:
        """The rows of :meth:`rows`, the first of them as the title of a list."""
        head, *rows = self.rows(probability)
        return Listing(head.value, tuple(rows))

    def to_document(self, probability: float = 0.9) -> dict[str, Any]:
        """The answer as plain values, for JSON; ``posterior`` is None where the draws of the chain
        stand."""
        held, counted = self.held(probability), None
        if held is not None:
            each = held.mean(axis=1)
            error = float(each.std(ddof=1) / np.sqrt(len(each))) if len(each) > 1 else None
            counted = {"mean": float(each.mean()), "se": error, "answers": len(each)}
        return {
            "why": self.why,
            "num_chains": self.num_chains,
            "posterior": None if self.answer is None else self.answer.to_document(probability),
            "held": counted,
        }


def held_row(held: Array, probability: float) -> Row:
    """The row that states the mean mass of exact posteriors in intervals, from that of every
    answer, (answer, dim)."""
    each = 100 * held.mean(axis=1)
    error, over = "", ""
    if len(each) > 1:
        error = f" ± {each.std(ddof=1) / np.sqrt(len(each)):.2g}"
        over = f", mean over {len(each)} chains, each by itself"
    return Row(
        f"{100 * probability:.3g} % intervals hold",
        f"{each.mean():.3g}{error} % of the exact posterior{over}",
    )
