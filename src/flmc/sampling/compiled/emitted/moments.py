"""Kept rounds, as emitted code: sums, products and draws."""

from __future__ import annotations

from flmc.sampling.compiled.emitted.devices import Form
from flmc.sampling.compiled.machine.emission import ROUNDS_AT_ONCE, Code
from flmc.sampling.compiled.machine.value import DOUBLE, DOUBLES, FLOAT, WIDTH, Value


def add_moments(code: Code, form: Form, at: dict[str, Value], count: Value) -> None:
    """Add the positions of some rounds to sums and products, round after round.

    Parameters
    ----------
    code
        Where code is emitted.
    form
        What is known beforehand.
    at
        Addresses and sizes by name, those of one block.
    count
        How many rounds.
    """
    if form.arrangement.entries:
        _add_in_lanes(code, form.arrangement.entries, at, count)
        return
    with code.loop(at["lanes"]) as lane:
        chain = at["firsts"] + lane
        _add_sums(code, form.arrangement.lanes, at, count, lane, chain)
        with code.when(at["squares"].same(0)):
            _add_products(code, at, at["products"] + chain * at["dim"] * at["dim"] * 8)


def _add_in_lanes(code: Code, entries: int, at: dict[str, Value], count: Value) -> None:
    """Few entries: the loops over them are written out, and every lane has its sums beside those of
    the others; of the products only the upper triangle is summed."""
    for i in range(entries):
        places = [("sums", i), *(("products", i * entries + j) for j in range(i, entries))]
        totals = code.variables([code.load(at[name], n * WIDTH, DOUBLES) for name, n in places])
        with code.loop(count) as r:
            x = [
                code.load(at["recent"], (r * entries + j) * WIDTH).doubles()
                for j in range(i, entries)
            ]
            totals[0].value = totals[0].value + x[0]
            for total, other in zip(totals[1:], x, strict=True):
                total.value = x[0].times(other, total.value)
        for (name, n), total in zip(places, totals, strict=True):
            code.store(at[name], n * WIDTH, total.value)


def _add_sums(
    code: Code, lanes: int, at: dict[str, Value], count: Value, lane: Value, chain: Value
) -> None:
    """Add the positions of one chain to its sums, and put them together in double precision; zero
    for rounds that there are not."""
    sums = at["sums"] + chain * at["dim"] * 8
    squares = at["products"] + chain * at["dim"] * 8
    with code.loop(at["dim"] * ROUNDS_AT_ONCE, at["dim"] * count) as n:
        code.store(at["positions"], n, code.value(DOUBLE(0.0)))
    with code.loop(count) as r, code.loop(at["dim"]) as i:
        place = r * at["dim"] + i
        x = code.load(at["recent"], place * lanes + lane, FLOAT).double()
        code.store(at["positions"], place, x)
        code.store(sums, i, code.load(sums, i, DOUBLE) + x)
        with code.when(at["squares"].same(1)):
            code.store(squares, i, x.times(x, code.load(squares, i, DOUBLE)))


def _add_products(code: Code, at: dict[str, Value], products: Value) -> None:
    """Add the products of one chain's positions to its matrix.

    With many entries the matrix would not stay near the processor: each of its numbers is read and
    written once for all these rounds. What is left of the diagonal's vector is added, too: it is
    what is right of it, mirrored."""
    positions, dim, rounds = at["positions"], at["dim"], range(ROUNDS_AT_ONCE)
    whole = dim - dim % WIDTH
    with code.loop(dim) as i:
        factors = [code.load(positions, dim * r + i, DOUBLE) for r in rounds]
        spread = [factor.spread() for factor in factors]
        row = i * dim
        with code.loop(whole, i - i % WIDTH, WIDTH) as j:
            total = code.load(products, row + j, DOUBLES)
            for r in rounds:
                total = spread[r].times(code.load(positions, dim * r + j, DOUBLES), total)
            code.store(products, row + j, total)
        with code.loop(dim, whole) as j:
            total = code.load(products, row + j, DOUBLE)
            for r in rounds:
                total = factors[r].times(code.load(positions, dim * r + j, DOUBLE), total)
            code.store(products, row + j, total)


def keep_draws(code: Code, form: Form, at: dict[str, Value], count: Value, number: Value) -> None:
    """Write theta of some rounds to the draws.

    Parameters
    ----------
    code
        Where code is emitted.
    form
        What is known beforehand.
    at
        Addresses and sizes by name, those of one block.
    count
        How many rounds.
    number
        The first of them among the kept rounds.
    """
    lanes, dim = form.arrangement.lanes, at["dim"]
    with code.loop(at["lanes"]) as lane:
        start = (at["firsts"] + lane) * at["draws_apart"] + number * dim
        with code.loop(count) as r, code.loop(dim) as i:
            x = code.load(at["recent"], (r * dim + i) * lanes + lane, FLOAT).double()
            centre = code.load(at["centre"], i * lanes + lane, DOUBLE)
            code.store(at["draws"], start + r * dim + i, centre + x)
