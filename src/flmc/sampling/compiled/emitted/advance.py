"""All rounds of all blocks of a call, as emitted code: random numbers, rounds, and what is kept.

*Lane*: one chain of one data set. Chains do not talk to each other, so the same instruction can
serve many of them: a *block* is eight chains, and every number that belongs to a chain is stored
eight times in a row, chain after chain: eight such numbers are one vector. A block runs all its
rounds before the next one begins: 8 lanes of the paper's experiment are 14 kB, which the
first-level cache holds.

*Precision*: a chain's position is its deviation from a centre, in single precision; sums over kept
rounds are doubles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

from llvmlite import ir

from flmc.base.randomness import ROUNDS_PER_BLOCK, Purpose
from flmc.sampling.compiled.emitted.arrangement import TEAMS
from flmc.sampling.compiled.emitted.devices import Form
from flmc.sampling.compiled.emitted.frame_fields import FIELDS
from flmc.sampling.compiled.emitted.moments import add_moments, keep_draws
from flmc.sampling.compiled.emitted.rounds import run_rounds
from flmc.sampling.compiled.emitted.team import Team
from flmc.sampling.compiled.machine import normals
from flmc.sampling.compiled.machine.emission import ROUNDS_AT_ONCE, Code, Variable, emitted
from flmc.sampling.compiled.machine.generator import Generator, seed
from flmc.sampling.compiled.machine.value import FLOAT, NUMBER, WIDTH, WORDS, Value


@cache
def advance_of(form: Form) -> int:
    """The address of the function that runs all rounds of a call. Its arguments are the address of
    the frame, and the clip in its own units.

    Parameters
    ----------
    form
        What is a constant for the compiler.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        frame, most = arguments
        at = {name: code.load(frame, i, NUMBER) for i, name in enumerate(FIELDS)}
        if form.arrangement.entries:
            at["dim"] = code.number(form.arrangement.entries)  # a constant: loops are written out
        if form.arrangement.kind != TEAMS:
            with code.loop(at["blocks"]) as n:
                _Blocks(code, form, at, most, n, None).emit()
            return
        with code.loop(at["teams"]) as n:
            first, size = (code.load(at[name], n, NUMBER) for name in ("team_firsts", "team_sizes"))
            _Blocks(code, form, at, most, first, size).emit()

    return emitted(f"advance {form!r}", body, [NUMBER, FLOAT])


class _Blocks:
    """One block of a call, or several that run together."""

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
        """Addresses and sizes by name of one of the blocks, by its number among them."""
        code, form, every, n = self.code, self.form, self.every, self.first + v
        lanes, dim = form.arrangement.lanes, every["dim"]
        at = dict(every)
        for name in ("firsts", "lanes", "which"):
            at[name] = code.load(every[name], n, NUMBER)
        at["horizon"] = every["units"] + at["which"] * every["unit_size"] * 4
        at["reach"] = at["horizon"] + 4 * WIDTH
        at["local"] = at["reach"] + every["devices"] * (4 * WIDTH)
        at["x"] = every["x"] + n * dim * (4 * lanes)
        at["centre"] = every["centre"] + n * dim * (8 * lanes)
        at["keys"] = every["keys"] + n * (2 * 4 * WIDTH)
        at["count"] = every["count"] + n * (4 * WIDTH)
        at["lost"] = every["lost"] + n * 8
        at["talks"] = every["talks"] + at["firsts"] * 4
        if form.own_noise:
            at["noise"] = every["noise"] + at["firsts"] * 4
        if form.arrangement.entries:
            at["sums"] = every["sums"] + n * dim * (8 * WIDTH)
            at["products"] = every["products"] + n * dim * dim * (8 * WIDTH)
        if self.size is not None:  # room of its own for what the others need, too
            at["received"] = every["received"] + v * every["received_size"] * 4
            at["normals"] = every["normals"] + v * every["normals_apart"] * (2 * 4)
            at["recent"] = every["recent"] + v * dim * (4 * lanes * ROUNDS_AT_ONCE)
            at["away"] = every["away"] + v * (4 * WIDTH)
            for name in ("channel", "state"):
                at[name] = every[name] + v * (4 * 4 * WIDTH)
        return at

    @contextmanager
    def members(self) -> Iterator[dict[str, Value]]:
        """What follows is done for every block."""
        if self.size is None:
            yield self.member(self.code.number(0))
            return
        with self.code.loop(self.size) as v:
            yield self.member(v)

    def emit(self) -> None:
        """All rounds of the blocks, as many at a time as there are normals for, all of them kept or
        none."""
        code, at = self.code, self.every
        begin, until, burn_in = at["begin"], at["until"], at["burn_in"]
        r = Variable(code, begin - begin % ROUNDS_PER_BLOCK)
        with code.during(lambda: r.value < until):
            now = r.value
            with code.when((now % ROUNDS_PER_BLOCK).same(0)):
                self._seed(now / code.number(ROUNDS_PER_BLOCK))
            # A block of the streams begins with fresh normals: its rounds are a multiple of those
            # that normals are made for.
            with code.when((now % ROUNDS_AT_ONCE).same(0)):
                self._fill_normals()
            with code.either(now < begin) as (before, then):
                with before:
                    self._skip_words()
                    r.value = now + 1
                with then:
                    ahead = now - now % ROUNDS_AT_ONCE + ROUNDS_AT_ONCE
                    stop = (now < burn_in).choose(burn_in, until).at_most(until).at_most(ahead)
                    self._run(now, stop)
                    r.value = stop
                    # A position that is not finite stays so, because every round only adds to it:
                    # looking once in a block of rounds is enough.
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
        """Some rounds, and what is kept of them."""
        code, begin, burn_in = self.code, self.every["begin"], self.every["burn_in"]
        with code.when(now.same(burn_in)), self.members() as member:
            code.store(member["count"], 0, code.words(0))  # those of the burn-in do not count
        team = Team(code, self.form, self.member, self.size, self.most)
        run_rounds(team, now - begin, now % ROUNDS_AT_ONCE, stop - now)
        with code.when(now.same(burn_in).either(burn_in < now)), self.members() as member:
            add_moments(code, self.form, member, stop - now)
            with code.when(code.number(0) < member["draws_apart"]):
                keep_draws(code, self.form, member, stop - now, now - burn_in)

    def _seed(self, block: Value) -> None:
        """Start the generators of all lanes for a block of rounds, each by its data set and
        chain."""
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
                seed(code, at["entropy"], at["num_entropy"], key, at[name])

    def _fill_normals(self) -> None:
        """Normals of the next rounds."""
        with self.members() as at:
            generator = Generator(self.code, at["channel"], self.form.arrangement.word)
            half, apart = at["dim"] * (ROUNDS_AT_ONCE // 2), at["normals_apart"]
            normals.fill(self.code, generator, at["words"], at["normals"], half, apart)
            generator.save()

    def _skip_words(self) -> None:
        """Go on inside a block of the streams: the words of a round were used before, and are drawn
        only to get to the later ones."""
        if self.form.link is None:
            return
        with self.members() as at:
            generator = Generator(self.code, at["state"], self.form.arrangement.word)
            with self.code.loop(at["devices"] * at["dim"]):
                generator()
            generator.save()

    def _is_lost(self, at: dict[str, Value]) -> Value:
        """Whether the position of any chain is not finite; lanes that repeat the last chain do not
        count."""
        code, lanes = self.code, self.form.arrangement.lanes
        total = Variable(code, code.floats(0.0))
        with code.loop(at["dim"]) as i:
            x = code.load(at["x"], i * lanes, self.form.arrangement.float)
            gap = x - x  # 0, or not a number
            total.value = total.value + (gap.spread() if lanes == 1 else gap)
        numbers = code.value(ir.Constant(WORDS, list(range(WIDTH))))
        exist = numbers < at["lanes"].as_word().spread()
        return total.value.differs(total.value).both(exist).some()


@cache
def starts_of() -> int:
    """The address of a function that makes standard normals for the starts of chains.

    Its arguments are the addresses of the data set and chain of every lane (block, 2, 8), of the
    seed's words, and of the normals (block, 2 half, 8); and the number of the seed's words, of
    blocks, and half of the normals of a lane; and room for as many words, and for generators.
    """

    def body(code: Code, arguments: list[Value]) -> None:
        keys, entropy, target, num_entropy, blocks, half, words, state = arguments
        with code.loop(blocks) as n:
            place = keys + n * (2 * 4 * WIDTH)
            key = [
                code.words(int(Purpose.INIT)),
                *(code.load(place, i * WIDTH, WORDS) for i in (0, 1)),
                code.words(0),
            ]
            seed(code, entropy, num_entropy, key, state)
            found = target + n * half * (2 * 4 * WIDTH)
            normals.fill(code, Generator(code, state, WORDS), words, found, half, half * WIDTH)

    return emitted("starts", body, [NUMBER] * 8)
