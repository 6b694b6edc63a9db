"""The answer as results and commands show it: that of one chain, or the reason why the draws of the
chain are shown in its place.

The privacy of a run is stated for one chain, and so the answer is that of one chain, unless the
user asks for all chains together. Where the exact posterior is known, answers of many single chains
are computed to see how much of the posterior their intervals contain."""

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
"""What a result shows in the end: ``aware`` is the answer, ``chain`` only the draws of the chain,
and ``auto`` the answer unless it is impossible or doubtful, else the draws."""
FindAnswer = Callable[..., Answer]
"""A function that returns the answer of a run; its keyword arguments ``by_chain``, ``sets`` and
``chains`` are those of :func:`flmc.evaluation.answer.find_answer`."""

_MOST_ANSWERS, _MOST_NUMBERS = 1000, 4_000_000
"""Limits of the work for one average: how much of the exact posterior the intervals contain, over
answers of single chains. At most ``_MOST_ANSWERS`` chains are used, with at most ``_MOST_NUMBERS``
entries of theta over all their rounds."""


@dataclass(frozen=True)
class ShownAnswer:
    """The answer for the first data set, from its first chain or from all of its chains; or the
    reason why a result shows the draws of the chain instead.

    Attributes
    ----------
    answer
        The answer; None if the draws of the chain are shown instead.
    why
        Reason why the draws are shown; empty if there is an answer.
    num_chains
        Number of chains of the first data set that the answer uses.
    find_several
        Function that computes answers of many data sets or chains, from which :meth:`held` tells
        how much of the exact posterior the intervals contain; None without an answer.
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
        """The answer for the first data set, computed by ``find`` (None: no draws were kept) from
        positions of the ``shape`` (data set, chain, round, dim): from its first chain or, with
        ``all_chains``, from all of its chains together. With the mode ``aware`` it raises
        ``InvalidSetting`` if there is no answer; other modes give the reason in ``why``. With
        ``auto``, doubts about the answer are a reason, too."""
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
        # As many data sets as the limits allow, then chains of each: answers of different data sets
        # differ more than those of chains of one data set.
        each = int(np.prod(sizes)) * chosen
        most = max(1, min(_MOST_ANSWERS, _MOST_NUMBERS // max(1, each)))
        some = {"sets": min(sets, most), "chains": chosen}
        if not all_chains:
            some["chains"] = max(1, min(chains, most // some["sets"]))
        return cls(answer, "", chosen, partial(find, by_chain=not all_chains, **some))

    def held(self, probability: float) -> Array | None:
        """Probability that the exact posterior gives to the intervals of answers of several data
        sets or chains, (answer, dim); ``probability`` is the one that the intervals state. None
        where there is no answer, or no known posterior."""
        if self.answer is None or self.answer.exact is None or self.find_several is None:
            return None
        return self.find_several().held(probability)

    def rows(self, probability: float = 0.9) -> list[Row]:
        """Rows of the answer for printing, with its findings and intervals of this ``probability``;
        or one row with the reason why the draws of the chain are shown instead."""
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
        """The answer as a listing for printing, or the reason why there is none: the first of
        :meth:`rows` is its title."""
        head, *rows = self.rows(probability)
        return Listing(head.value, tuple(rows))

    def to_document(self, probability: float = 0.9) -> dict[str, Any]:
        """The answer as plain values by name, for JSON: ``posterior`` is the answer itself, or None
        where the draws of the chain are shown instead, ``why`` the reason for that, and ``held``
        how much of the exact posterior intervals contain, None where that is not known."""
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
    """The row that states how much probability the exact posteriors give to the intervals of
    answers, averaged over ``held`` (answer, dim); ``probability`` is the one that the intervals
    state."""
    each = 100 * held.mean(axis=1)
    error, over = "", ""
    if len(each) > 1:
        error = f" ± {each.std(ddof=1) / np.sqrt(len(each)):.2g}"
        over = f", mean over {len(each)} chains, each by itself"
    return Row(
        f"{100 * probability:.3g} % intervals hold",
        f"{each.mean():.3g}{error} % of the exact posterior{over}",
    )
