"""Generation of the machine code of one call, which runs all rounds for some chains: random
numbers, gradients, symbols, the sampler's step, and the storing of sums and draws.

*Lane*: one of the eight places of a vector, as a rule with a chain of its own. Chains are
independent, so one instruction can serve many of them. A *block* is eight chains (or one chain,
where the places of a vector are entries of its gradient); the numbers of its eight chains lie next
to each other in memory and form a vector. A block runs all its rounds before the next one begins:
the data of 8 chains of the paper's experiment take 14 kB, which fit into the first-level cache.

*Precision*: a chain's position is the deviation of theta from a fixed theta of its data set, in
single precision; sums over kept rounds are in double precision. For a given number of entries of
theta the results are the same to the bit for every layout of the data in memory."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from llvmlite import ir

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.sampling.compiled.arrangement import TEAMS
from flmc.sampling.compiled.devices import Devices, Form, Team
from flmc.sampling.compiled.instructions import (
    DOUBLE,
    DOUBLES,
    FLOAT,
    FLOATS,
    NUMBER,
    ROUNDS_AT_ONCE,
    WIDTH,
    WORDS,
    Code,
    Value,
    Variable,
    emitted,
)
from flmc.sampling.compiled.random_numbers import Generator, fill_normals, seed_generators
from flmc.sampling.compiled.symbol_sums import FewEntries, ManyEntries

# Machine code gets its arguments in an array of 64-bit numbers, the frame; this table names them in
# order. ``L`` stands for the number of chains of a block (those that a vector instruction serves),
# 8 or 1; a member is a block of a team, which is up to four blocks of one data set.
FIELDS = {
    "blocks": "number of blocks",
    "teams": "number of teams",
    "team_firsts": "number of a team's first block, (team)",
    "team_sizes": "blocks of a team, (team)",
    "devices": "number of devices",
    "dim": "entries of theta",
    "tiles": "tiles of a gradient",
    "x": "deviations from the centre, (block, dim, L)",
    "keys": "data set and chain of every lane, words, (block, 2, 8)",
    "firsts": "number of a block's first chain in this call, (block)",
    "lanes": "chains of a block, (block)",
    "which": "number of a block's unit of data, (block)",
    "units": "data: horizon (8), reach (device, 8), all devices' numbers, then their sum",
    "unit_size": "floats of a unit of data",
    "sums": "sums of deviations, (block, dim, 8) where entries are few, else (chain, dim)",
    "products": "sums of products, (block, dim, dim, 8) or (chain, dim, dim)",
    "squares": "1 where squares take the place of products, (chain, dim)",
    "count": "clipped entries of kept rounds, words, (block, 8)",
    "lost": "the block of rounds in which a chain was lost, or the largest number, (block)",
    "path": "deviations from the centre after rounds, (chain, place, dim)",
    "path_apart": "numbers of a chain's path; 0: none is kept",
    "path_from": "first round of this call whose position is in the path, or a later one",
    "path_place": "the place of that position",
    "midpoints": "1 where sums are of points half way between positions, else 0",
    "begin": "first round",
    "until": "round behind the last",
    "burn_in": "first round that is kept",
    "pull": "factor of the sum of symbols, (round)",
    "noise": "factor of the noise, (round, dim, 1 or chain)",
    "num_noises": "length of its last axis",
    "active": "who transmits, bytes, (round, device)",
    "all_active": "whether everybody does, bytes, (round)",
    "talks": "factors of the symbols, (round, device, chain)",
    "apart": "length of its last axis",
    "link": "coefficients or values of the link",
    "nodes": "how many of them",
    "entropy": "words of the seed",
    "num_entropy": "how many of them",
    "received": "scratch memory for sums of symbols, a gradient and a vector, (member)",
    "received_size": "floats of each",
    "away": "scratch memory for squared distances, (member, 8)",
    "words": "scratch memory for random words",
    "normals": "scratch memory for normals, (member)",
    "normals_apart": "floats from the first half of the rounds to the second",
    "recent": "scratch memory for the position before some rounds, and those after them, (member,"
    " 1 + round, dim, L)",
    "positions": "scratch memory for the positions of one chain, in double precision",
    "channel": "scratch memory for the generators of noise, (member, 4, 8)",
    "state": "scratch memory for the generators of bits, (member, 4, 8)",
}
"""Fields of the frame of a call of machine code, in order, each with its meaning: sizes, and
addresses of arrays."""


def run_rounds(team: Team, first: Value, normal: Value, count: Value) -> None:
    """Emit the code of a loop over ``count`` rounds, from round ``first`` of the call of machine
    code on (counted from 0), for the blocks of chains in ``team``, which run together. Standard
    normals are made for ``ROUNDS_AT_ONCE`` rounds at a time; ``normal`` is the index, from 0, of
    round ``first`` among the rounds whose normals were made together."""
    code, form = team.code, team.form
    with code.loop(count) as s:
        team.begin(first + s)
        if form.arrangement.entries:
            with team.members() as devices:
                place = _Place(first + s, _normals(devices, normal + s), s)
                for n, received in enumerate(FewEntries(devices).receive()):
                    _step(devices, place, code.number(n), received)
        else:
            ManyEntries(team).receive()
            with team.members() as devices:
                place = _Place(first + s, _normals(devices, normal + s), s)
                with code.loop(devices.at["dim"]) as i:
                    number = i * form.arrangement.lanes
                    received = code.load(devices.at["received"], number, form.arrangement.float)
                    _step(devices, place, i, received)
    team.save()


def _normals(devices: Devices, number: Value) -> Value:
    """Emit the address of the standard normals of a round, which is number ``number`` (from 0) of
    the ``ROUNDS_AT_ONCE`` rounds whose normals were made together. The normals of the second half
    of these rounds begin at a multiple of eight floats, so there may be a gap before them."""
    code, at, lanes = devices.code, devices.at, devices.form.arrangement.lanes
    half = ROUNDS_AT_ONCE // 2
    slack = at["normals_apart"] - at["dim"] * (half * lanes)
    before = (number < code.number(half)).choose(code.number(0), slack)
    return at["normals"] + (number * at["dim"] * lanes + before) * 4


class _Place:
    """Indices and address of a round's numbers in memory: ``t`` is its index in the arrays of the
    call of machine code, ``s`` its index among the rounds whose positions are not yet added to the
    sums, and ``normals`` the address of its standard normals."""

    def __init__(self, t: Value, normals: Value, s: Value) -> None:
        self.t, self.normals, self.s = t, normals, s


def _step(devices: Devices, place: _Place, i: Value, received: Value) -> None:
    """Emit the code of the sampler's step in entry ``i`` of the position x: it becomes
    x - p y - n z, with the sum of symbols y = ``received``, its factor p, the standard normal z and
    its factor n. The new x is also stored among the positions of the last rounds, from which the
    sums are made."""
    code, at, lanes = devices.code, devices.at, devices.form.arrangement.lanes
    kind, number = devices.form.arrangement.float, place.t * at["dim"] + i

    def every(value: Value) -> Value:
        return value.spread() if kind == FLOATS else value

    if devices.form.own_noise:
        deviation = code.load(at["noise"], number * at["num_noises"], kind)
    else:
        deviation = every(code.load(at["noise"], number, FLOAT))
    z = code.load(place.normals, i * lanes, kind)
    pull = every(code.load(at["pull"], place.t, FLOAT))
    x = code.load(at["x"], i * lanes, kind) - pull.times(received, deviation * z)
    code.store(at["x"], i * lanes, x)
    code.store(at["recent"], ((place.s + 1) * at["dim"] + i) * lanes, x)


def add_moments(code: Code, form: Form, at: dict[str, Value], count: Value) -> None:
    """Emit the code that adds the draws of a block of chains in the last ``count`` rounds to the
    sums of draws and of their products, in the order of the rounds. Draws are positions after these
    rounds, or midpoints, which are written over the positions in scratch memory."""
    row = at["dim"] * form.arrangement.lanes
    with code.when(at["midpoints"].same(1)):
        _average(code, form, at, count)
    # ``recent`` begins with the position before the first round, so positions after rounds are read
    # from its second row on. A midpoint is stored over the position before its round, so midpoints
    # are read from the first row on.
    at = {**at, "recent": at["recent"] + (code.number(1) - at["midpoints"]) * row * 4}
    if form.arrangement.entries:
        _add_in_lanes(code, form.arrangement.entries, at, count)
        return
    with code.loop(at["lanes"]) as lane:
        chain = at["firsts"] + lane
        _add_sums(code, form.arrangement.lanes, at, count, lane, chain)
        with code.when(at["squares"].same(0)):
            _add_products(code, at, at["products"] + chain * at["dim"] * at["dim"] * 8)


def remember_position(code: Code, form: Form, at: dict[str, Value]) -> None:
    """Emit the code that copies the position of a block of chains to scratch memory, as the one
    before the rounds that follow."""
    lanes, kind = form.arrangement.lanes, form.arrangement.float
    with code.loop(at["dim"]) as i:
        code.store(at["recent"], i * lanes, code.load(at["x"], i * lanes, kind))


def _average(code: Code, form: Form, at: dict[str, Value], count: Value) -> None:
    """Emit the code that replaces each of ``count`` positions in scratch memory by the point half
    way to the next one: they become the midpoints of the last ``count`` rounds."""
    lanes, kind = form.arrangement.lanes, form.arrangement.float
    half = code.value(FLOAT(0.5)).spread() if kind == FLOATS else code.value(FLOAT(0.5))
    row = at["dim"] * lanes
    with code.loop(count) as r, code.loop(at["dim"]) as i:
        place = r * row + i * lanes
        both = code.load(at["recent"], place, kind) + code.load(at["recent"], place + row, kind)
        code.store(at["recent"], place, half * both)


def _add_in_lanes(code: Code, entries: int, at: dict[str, Value], count: Value) -> None:
    """Emit the code of :func:`add_moments` for a position with few entries, whose number
    ``entries`` is a constant of the code: it has no loops over entries, the sums of eight chains
    form a vector, and products are summed only in the upper triangle."""
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
    """Emit the code that adds the positions of one chain after the last ``count`` rounds to its
    sums, and to the sums of squares where these take the place of products. It also copies the
    positions in double precision to scratch memory, which has room for ``ROUNDS_AT_ONCE`` rounds,
    and fills the room beyond ``count`` rounds with zeros."""
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
    """Emit the code that adds, for the positions of one chain in ``ROUNDS_AT_ONCE`` rounds, the
    products of their entries to the matrix of sums (dim, dim) at the address ``products``.

    With many entries the matrix does not fit into the fastest cache, so each of its numbers is read
    and written only once for all these rounds. In each row, products are summed from the vector of
    eight that contains the diagonal entry to the end. Sums left of the diagonal are incomplete;
    after the call they are replaced by the mirrored upper triangle."""
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


def keep_path(code: Code, form: Form, at: dict[str, Value], count: Value, place: Value) -> None:
    """Emit the code that writes the positions of a block of chains after the last ``count`` rounds
    into the array ``path`` (chain, place, dim), from index ``place`` of its axis of places on."""
    lanes, dim = form.arrangement.lanes, at["dim"]
    with code.loop(at["lanes"]) as lane:
        start = (at["firsts"] + lane) * at["path_apart"] + place * dim
        with code.loop(count) as r, code.loop(dim) as i:
            x = code.load(at["recent"], ((r + 1) * dim + i) * lanes + lane, FLOAT)
            code.store(at["path"], start + r * dim + i, x)


@cache
def advance_of(form: Form) -> int:
    """The address of the machine code that runs all rounds for all chains of a call. It takes two
    arguments: the address of the frame, which is the array of the numbers that :data:`FIELDS`
    names, and the bound of gradients in units of the clip: 1, or infinite where nothing is
    clipped."""

    def body(code: Code, arguments: list[Value]) -> None:
        frame, most = arguments
        at = {name: code.load(frame, i, NUMBER) for i, name in enumerate(FIELDS)}
        if form.arrangement.entries:
            # A small number of entries is a constant of the code, which has no loops over entries.
            at["dim"] = code.number(form.arrangement.entries)
        if form.arrangement.kind != TEAMS:
            with code.loop(at["blocks"]) as n:
                _Blocks(code, form, at, most, n, None).emit()
            return
        with code.loop(at["teams"]) as n:
            first, size = (code.load(at[name], n, NUMBER) for name in ("team_firsts", "team_sizes"))
            _Blocks(code, form, at, most, first, size).emit()

    return emitted(f"advance {form!r}", body, [NUMBER, FLOAT])


class _Blocks:
    """Emits the code of all rounds for one block of chains, whose number in the call of machine
    code is ``first``; or, if ``size`` is not None, for a team: the ``size`` blocks from that number
    on, which share a data set and run together."""

    def __init__(
        self,
        code: Code,
        form: Form,
        every: dict[str, Value],
        most: Value,
        first: Value,
        size: Value | None,
    ) -> None:
        self.code, self.form, self.every, self.most = code, form, every, most
        self.first, self.size = first, size

    def member(self, v: Value) -> dict[str, Value]:
        """Addresses and sizes, by name (those of :data:`FIELDS` and the parts of its devices'
        data), for block number ``v`` of the blocks of chains that run together."""
        code, form, every, n = self.code, self.form, self.every, self.first + v
        lanes, dim = form.arrangement.lanes, every["dim"]
        at = dict(every)
        for name in ("firsts", "lanes", "which"):
            at[name] = code.load(every[name], n, NUMBER)
        at["horizon"] = every["units"] + at["which"] * every["unit_size"] * 4
        at["reach"] = at["horizon"] + 4 * WIDTH
        at["local"] = at["reach"] + every["devices"] * (4 * WIDTH)
        at["x"] = every["x"] + n * dim * (4 * lanes)
        at["keys"] = every["keys"] + n * (2 * 4 * WIDTH)
        at["count"] = every["count"] + n * (4 * WIDTH)
        at["lost"] = every["lost"] + n * 8
        at["talks"] = every["talks"] + at["firsts"] * 4
        if form.own_noise:
            at["noise"] = every["noise"] + at["firsts"] * 4
        if form.arrangement.entries:
            at["sums"] = every["sums"] + n * dim * (8 * WIDTH)
            at["products"] = every["products"] + n * dim * dim * (8 * WIDTH)
        # A ``size`` means a team of so many blocks of eight chains (or one), which run each round
        # together: so each has scratch memory of its own. Blocks that run alone all use the same.
        if self.size is not None:
            at["received"] = every["received"] + v * every["received_size"] * 4
            at["normals"] = every["normals"] + v * every["normals_apart"] * (2 * 4)
            at["recent"] = every["recent"] + v * dim * (4 * lanes * (ROUNDS_AT_ONCE + 1))
            at["away"] = every["away"] + v * (4 * WIDTH)
            for name in ("channel", "state"):
                at[name] = every[name] + v * (4 * 4 * WIDTH)
        return at

    @contextmanager
    def members(self) -> Iterator[dict[str, Value]]:
        """Context manager of a loop over the blocks of chains that run together: its body is
        emitted once and runs for each block. It yields the block's addresses and sizes by name."""
        if self.size is None:
            yield self.member(self.code.number(0))
            return
        with self.code.loop(self.size) as v:
            yield self.member(v)

    def emit(self) -> None:
        """Emit the code of all rounds for the blocks of chains, in parts of at most
        ``ROUNDS_AT_ONCE`` rounds, whose standard normals are made together. A part also ends where
        the kept rounds begin, and where the stored positions begin, so that its rounds are all
        treated in one way."""
        code, at = self.code, self.every
        begin, until, burn_in = at["begin"], at["until"], at["burn_in"]
        r = Variable(code, begin - begin % ROUNDS_PER_BLOCK)
        with code.during(lambda: r.value < until):
            now = r.value
            with code.when((now % ROUNDS_PER_BLOCK).same(0)):
                self._seed(now / code.number(ROUNDS_PER_BLOCK))
            # ROUNDS_PER_BLOCK is a multiple of ROUNDS_AT_ONCE, so normals are made anew at the
            # beginning of every block of rounds, which has random streams of its own.
            with code.when((now % ROUNDS_AT_ONCE).same(0)):
                self._fill_normals()
            with code.either(now < begin) as (before, then):
                with before:
                    self._skip_words()
                    r.value = now + 1
                with then:
                    ahead = now - now % ROUNDS_AT_ONCE + ROUNDS_AT_ONCE
                    stop = (now < burn_in).choose(burn_in, until).at_most(until).at_most(ahead)
                    stop = stop.at_most((now < at["path_from"]).choose(at["path_from"], until))
                    self._run(now, stop)
                    r.value = stop
                    # A position that is not finite stays so, because rounds only add to it;
                    # therefore one check at the end of each block of rounds is enough.
                    boundary = (stop % ROUNDS_PER_BLOCK).same(0).either(stop.same(until))
                    with (
                        code.when(boundary),
                        self.members() as member,
                        code.when(self._is_lost(member)),
                    ):
                        block = (stop - 1) / code.number(ROUNDS_PER_BLOCK)
                        code.store(member["lost"], 0, block)
                        r.value = until

    def _run(self, now: Value, stop: Value) -> None:
        """Emit the code of the rounds from ``now`` to below ``stop``, counted from 0; also the code
        that stores the positions after them, if the path has room for these, and that adds their
        draws to the sums, if the rounds are kept."""
        code, begin, burn_in = self.code, self.every["begin"], self.every["burn_in"]
        with code.when(now.same(burn_in)), self.members() as member:
            # At the first kept round the count of clipped entries is reset, because those of the
            # burn-in do not count.
            code.store(member["count"], 0, code.words(0))
        is_kept = now.same(burn_in).either(burn_in < now)
        with code.when(is_kept.both(self.every["midpoints"].same(1))), self.members() as member:
            remember_position(code, self.form, member)
        team = Team(code, self.form, self.member, self.size, self.most)
        run_rounds(team, now - begin, now % ROUNDS_AT_ONCE, stop - now)
        path_from = self.every["path_from"]
        stored = path_from.same(now).either(path_from < now)
        with (
            code.when(stored.both(code.number(0) < self.every["path_apart"])),
            self.members() as member,
        ):
            place = now - path_from + self.every["path_place"]
            keep_path(code, self.form, member, stop - now, place)
        # The sums are made last, because midpoints are written over the positions of these rounds,
        # which the code above still reads.
        with code.when(is_kept), self.members() as member:
            add_moments(code, self.form, member, stop - now)

    def _seed(self, block: Value) -> None:
        """Emit the code that seeds every chain's random generators, for noise and for bits, at
        the beginning of a block of rounds: each by its data set, its chain and the number of the
        block."""
        code, purposes = self.code, {"channel": Purpose.CHANNEL, "state": Purpose.QUANTISER}
        with self.members() as at:
            for name, purpose in purposes.items():
                if name == "state" and self.form.link is None:
                    continue
                key = [
                    code.words(int(purpose)),
                    *(code.load(at["keys"], i * WIDTH, WORDS) for i in (0, 1)),
                    block.as_word().spread(),
                ]
                seed_generators(code, at["entropy"], at["num_entropy"], key, at[name])

    def _fill_normals(self) -> None:
        """Emit the code that makes the standard normals for the noise of the next
        ``ROUNDS_AT_ONCE`` rounds."""
        with self.members() as at:
            generator = Generator(self.code, at["channel"], self.form.arrangement.word)
            half, apart = at["dim"] * (ROUNDS_AT_ONCE // 2), at["normals_apart"]
            fill_normals(self.code, generator, at["words"], at["normals"], half, apart)
            generator.save()

    def _skip_words(self) -> None:
        """Emit the code that draws and drops the random words of one round. It is needed in a call
        that begins inside a block of rounds with one random stream: earlier rounds used these
        words, and a stream reaches its later words only in order."""
        if self.form.link is None:
            return
        with self.members() as at:
            generator = Generator(self.code, at["state"], self.form.arrangement.word)
            with self.code.loop(at["devices"] * at["dim"]):
                generator()
            generator.save()

    def _is_lost(self, at: dict[str, Value]) -> Value:
        """Emit the truth value whether the position of any chain of a block is not finite, and
        return it. ``at`` holds the block's addresses and sizes by name; places of a vector that
        only repeat the last chain are ignored."""
        code, lanes = self.code, self.form.arrangement.lanes
        total = Variable(code, code.floats(0.0))
        with code.loop(at["dim"]) as i:
            x = code.load(at["x"], i * lanes, self.form.arrangement.float)
            gap = x - x  # 0 for a finite position, nan for an infinite one or nan
            total.value = total.value + (gap.spread() if lanes == 1 else gap)
        numbers = code.value(ir.Constant(WORDS, list(range(WIDTH))))
        exist = numbers < at["lanes"].as_word().spread()
        return total.value.differs(total.value).both(exist).some()
