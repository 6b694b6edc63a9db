"""Sums over kept rounds, as emitted code."""

from __future__ import annotations

from functools import cache

from flmc.sampling.compiled.emitted.emission import ROUNDS_AT_ONCE, Code, emitted
from flmc.sampling.compiled.emitted.value import DOUBLE, DOUBLES, NUMBER, WIDTH, Value


@cache
def moments_of(entries: int) -> int:
    """The address of an emitted function that adds the positions of some rounds to sums and upper
    triangles of products, in every lane, round after round.

    Its arguments are the addresses of the positions (round, dim, lane), of the sums (dim, lane) and
    of the products (dim, dim, lane), and the number of rounds.

    Parameters
    ----------
    entries
        Entries of theta; the loops over them are written out.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        recent, sums, products, count = arguments
        for i in range(entries):
            places = [(sums, i), *((products, i * entries + j) for j in range(i, entries))]
            totals = code.variables([code.load(array, n * WIDTH, DOUBLES) for array, n in places])
            with code.loop(count) as r:
                x = [
                    code.load(recent, (r * entries + j) * WIDTH).doubles()
                    for j in range(i, entries)
                ]
                totals[0].value = totals[0].value + x[0]
                for total, other in zip(totals[1:], x, strict=True):
                    total.value = x[0].times(other, total.value)
            for (array, n), total in zip(places, totals, strict=True):
                code.store(array, n * WIDTH, total.value)

    return emitted(body, [NUMBER] * 4)


@cache
def products_of_rounds() -> int:
    """The address of an emitted function that adds the products of some rounds' positions of one
    chain to its matrix, round after round.

    Where theta has many entries, the matrix would not stay near the processor: each of its numbers
    is read and written once for all these rounds. What is left of the diagonal's vector is added,
    too: it is what is right of it, mirrored.

    Its arguments are the addresses of the positions (``ROUNDS_AT_ONCE``, dim) and of the
    products (dim, dim), both in double precision, and the number of entries.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        positions, products, dim = arguments
        rounds = range(ROUNDS_AT_ONCE)
        with code.loop(dim) as i:
            factors = [code.load(positions, dim * r + i, DOUBLE) for r in rounds]
            spread = [factor.spread() for factor in factors]
            row = i * dim
            with code.loop(dim - dim % WIDTH, i - i % WIDTH, WIDTH) as j:
                total = code.load(products, row + j, DOUBLES)
                for r in rounds:
                    total = spread[r].times(code.load(positions, dim * r + j, DOUBLES), total)
                code.store(products, row + j, total)
            with code.loop(dim, dim - dim % WIDTH) as j:
                total = code.load(products, row + j, DOUBLE)
                for r in rounds:
                    total = factors[r].times(code.load(positions, dim * r + j, DOUBLE), total)
                code.store(products, row + j, total)

    return emitted(body, [NUMBER] * 3)
