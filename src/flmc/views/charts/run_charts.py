"""Charts of a run: traces of chains, and how they agree as rounds go on."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.evaluation.diagnostics import AGREED
from flmc.views.charts.chart import Axis, Chart, Colour, Layer, Line, Mark, numbers

_COLOURS: tuple[Colour, ...] = ("blue", "green", "purple", "orange")
"""Colours of the chains that are shown."""
_MOST_POINTS = 400
"""Points of a trace."""


class Agreement(NamedTuple):
    """How the chains agree after some rounds.

    Attributes
    ----------
    round
        Rounds that were done.
    r_hat
        Largest R-hat over the entries.
    effective_draws
        Fewest effective draws over the entries.
    """

    round: int
    r_hat: float
    effective_draws: float


def trace_chart(draws: Array, first_round: int, thin: int = 1, entry: int = 0) -> Chart:
    """Kept draws of one entry against the rounds, for up to four chains.

    Parameters
    ----------
    draws
        Draws of the first data set, (chain, draw, dim).
    first_round, thin
        Round of the first draw, counted from 1, and rounds from one draw to the next.
    entry
        The entry, counted from 0.
    """
    every = max(1, -(-draws.shape[1] // _MOST_POINTS))
    rounds = first_round + thin * np.arange(draws.shape[1])[::every]
    layers: list[Layer] = [
        Line(numbers(rounds), numbers(chain[::every, entry]), colour, width=1.1)
        for chain, colour in zip(draws, _COLOURS, strict=False)
    ]
    return Chart(
        "trace",
        "Trace",
        Axis("round"),
        Axis(f"theta, entry {entry + 1}"),
        tuple(layers),
        f"{min(len(draws), len(_COLOURS))} of {len(draws)} chains"
        + (f", one round in {every * thin}." if every * thin > 1 else "."),
    )


def agreement_chart(history: Sequence[Agreement]) -> Chart:
    """R-hat against the rounds, with the value below which chains count as agreed.

    Parameters
    ----------
    history
        What was found after some rounds, in order.
    """
    # The first values may be huge, and would hide all others: the axis ends at the latest ones.
    history = [each for each in history if math.isfinite(each.r_hat)]
    rounds, r_hat, _ = zip(*history, strict=True) if history else ((), (), ())
    last = history[-1] if history else None
    return Chart(
        "agreement",
        "Agreement of the chains",
        Axis("round"),
        Axis("largest R-hat", low=0.99, high=max((1.05, *r_hat[-8:]))),
        (
            Line(numbers(rounds), numbers(r_hat), "blue", dots=True),
            Mark("y", AGREED, f"agreed below {AGREED:g}", "green"),
        ),
        ""
        if last is None
        else f"R-hat {last.r_hat:.3f}, at least {last.effective_draws:.0f} effective draws after"
        f" round {last.round}.",
    )
