"""The devices of a round, as emitted machine code: which of them are computed, and what they send
for a gradient entry. A block is eight chains that share vector instructions, or one chain; a team
is some blocks of the same data set that run together.

*Unit*: gradients are divided by the clip when a block is loaded, so that clipping is to [-1, 1] and
the link is a function on [-1, 1].

*Comparison*: a bit is +1 with probability (1 + psi)/2, where psi is the mean bit. A word, read as a
signed number, is uniform on [-2^31, 2^31); it is compared with 2^31 psi, which the polynomial or
table gives at once: no exponential, no division. A float has 24 bits, so near the ends the word is
rounded to a multiple of 128 and probabilities have a resolution of 3e-8; rounding of psi itself
adds up to about 2e-7. :mod:`flmc.sampling.compiled.link_curve` keeps the sum below 1e-6.

*Near*: without bits, what is received is the sum of the clipped gradients, and clipping is rare. A
chain is near the centre if no gradient entry of any device can exceed a certain number of clips
(:data:`~flmc.sampling.compiled.units.NEAR`). Its sum begins with the gradient of the sum of all
costs, and a device is computed only if one of its entries may exceed the clip: then it adds what
clipping changes. A chain that is far adds up the clipped gradients of all devices."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flmc.sampling.compiled.arrangement import Arrangement
from flmc.sampling.compiled.instructions import BYTE, FLOAT, WIDTH, WORDS, Code, Value, Variable
from flmc.sampling.compiled.random_numbers import Generator

FAR = float("inf")
"""Squared distance of a chain from its data set's fixed point
(:func:`flmc.sampling.chains.centre_of`) that stands for every chain that is far from the point."""


class Form(NamedTuple):
    """All that is a constant of the machine code of a round; each form is compiled by itself.

    Attributes
    ----------
    arrangement
        Where the numbers of the devices lie in memory.
    link
        How the probability of a +1 bit is computed: the number of coefficients of a polynomial, or
        0 for a table; None where a symbol is the clipped gradient.
    norm
        Whether the norm of a gradient is clipped, not its entries.
    talks
        Whether every lane (chain) has factors of its own for the devices' symbols.
    own_noise
        Whether every lane (chain) has factors of its own for the noise.
    """

    arrangement: Arrangement
    link: int | None
    norm: bool
    talks: bool
    own_noise: bool

    @property
    def may_be_near(self) -> bool:
        """Whether the sum over devices may begin with the gradient of the sum of all costs, to
        which only what clipping changes is added: it may where symbols are gradients that are
        clipped entry by entry."""
        return self.link is None and not self.norm


class Devices:
    """Emits the code of what the devices do in a round, for one block of chains: which devices are
    computed, how their gradients are clipped, and what they send.

    ``at`` holds addresses and sizes by name (:data:`~flmc.sampling.compiled.rounds.FIELDS`);
    ``most`` is the clip in its own units: 1, or infinite where nothing is clipped."""

    def __init__(self, code: Code, form: Form, at: dict[str, Value], most: Value) -> None:
        self.code, self.form, self.at = code, form, at
        self.limit, self.far, self.zero = most.spread(), code.floats(FAR), code.floats(0.0)
        self.count = Variable(code, code.load(self.at["count"], 0, WORDS))
        self.terms = [code.load(self.at["link"], i, FLOAT).spread() for i in range(form.link or 0)]
        self.generator: Generator | None = None
        if form.link is not None:
            self.generator = Generator(code, at["state"], form.arrangement.word)

    def begin(self, t: Value) -> None:
        """Emit the code that begins round ``t`` of a call of machine code, counted from 0: it finds
        the addresses of the round's numbers, and how far each chain is from the fixed point of its
        data set (:func:`flmc.sampling.chains.centre_of`)."""
        self._find_round(t)
        self.away = self._distance() if self.form.may_be_near else self.far

    def go_on(self, t: Value) -> None:
        """Emit the code that goes on with a round that :meth:`begin` has begun: the chains'
        distances from the fixed point of their data set are loaded, not computed again."""
        self._find_round(t)
        self.away = self.code.load(self.at["away"], 0) if self.form.may_be_near else self.far

    def _find_round(self, t: Value) -> None:
        """Set the addresses, in the arrays of a call of machine code, of who transmits in round
        ``t`` and of the factors of symbols; and ``near``, whether all devices transmit in the
        round, without which no chain counts as near the fixed point of its data set."""
        code, first = self.code, t * self.at["devices"]
        self.active = self.at["active"] + first
        self.talks = self.at["talks"] + first * self.at["apart"] * 4
        self.near = code.load(self.at["all_active"], t, BYTE) > code.value(BYTE(0))

    def save(self) -> None:
        """Emit the code that stores, for the chains of the block, the state of their random
        generators and the numbers of clipped gradient entries."""
        self.code.store(self.at["count"], 0, self.count.value)
        if self.generator is not None:
            self.generator.save()

    def _distance(self) -> Value:
        """Emitted squared distance of each chain of the block from the fixed point of its data set
        (:func:`flmc.sampling.chains.centre_of`), a vector; infinite for a chain that does not count
        as near that point."""
        code, distance = self.code, Variable(self.code, self.zero)
        with code.loop(self.at["dim"]) as j:
            entry = self.own(self.at["x"], j * self.form.arrangement.lanes)
            distance.value = entry.times(entry, distance.value)
        inside = (distance.value < code.load(self.at["horizon"], 0)).both(self.near.spread())
        return inside.choose(distance.value, self.far)

    def own(self, address: Value, place: Value) -> Value:
        """A vector with one number for each of the eight chains of a block, which lie in a row at
        ``place`` of an address; where a block is one chain, that chain's number in all lanes."""
        if self.form.arrangement.lanes == 1:
            return self.code.load(address, place, FLOAT).spread()
        return self.code.load(address, place)

    def here(self, k: Value) -> tuple[Value, Value | None]:
        """A pair for device k: a truth value, whether the device has to be computed for any
        chain of the block, and a vector with the factor of its symbols for each chain (None: all
        are 1)."""
        code, talk = self.code, None
        if self.form.talks:
            talk = self.own(self.talks, k * self.at["apart"])
            here = talk.differs(self.zero).some()
        else:
            here = code.load(self.active, k, BYTE) > code.value(BYTE(0))
        if self.form.may_be_near:
            here = here.both((self.away > code.load(self.at["reach"], k * WIDTH)).some())
        return here, talk

    def clipped(self, g: Value) -> Value:
        """Gradient entries g clipped to [-1, 1], in units of the clip; NaN becomes -1, because NaN
        as an index would point beside the table of the link's values."""
        above = (g > -self.limit).choose(g, -self.limit)
        return (above < self.limit).choose(above, self.limit)

    def scale_for(self, squares: Value) -> Value:
        """The factor that brings a gradient's norm down to the clip, from the sum of the squares of
        its entries in units of the clip; 1 where the norm is smaller."""
        one = self.code.floats(1.0)
        return one / (squares > one).choose(squares.root(), one)

    def sent(
        self,
        g: Value,
        word: Callable[[], Value] | None,
        talk: Value | None,
        scale: Value | None,
        exist: Value | None = None,
    ) -> Value:
        """Emitted value of what a device sends for gradient entries ``g`` (in units of the clip):
        truth values for bits that need no factor, else floats; clipped entries are counted.

        ``word`` gives random words where bits are sent, ``talk`` is the factor of the symbols (0
        for a silent device, None: 1), ``scale`` the factor of the gradient where its norm is
        clipped, and ``exist`` excludes entries behind the last from the count."""
        code = self.code
        if scale is not None:
            g = g * scale
        inside = self.clipped(g)
        # Clipping a norm changes all entries of a gradient or none.
        changed = inside.differs(g) if scale is None else scale < code.floats(1.0)
        for condition in (exist, None if talk is None else talk.differs(self.zero)):
            changed = changed if condition is None else changed.both(condition)
        self.count.value = self.count.value + changed.ones()
        if word is None:
            symbol = self._added_to_sum(inside, g) if self.form.may_be_near else inside
            return symbol if talk is None else symbol * talk
        bit = word().signed() < self.threshold(inside)
        return bit if talk is None else bit.choose(talk, -talk)

    def _added_to_sum(self, inside: Value, g: Value) -> Value:
        """Emitted value that a device adds to the sum over devices, for one gradient entry ``g``
        that becomes ``inside`` by clipping. For chains far from the fixed point of their data set
        it is the clipped entry. For chains near it, whose sum begins with all unclipped entries, it
        is the clipped minus the unclipped entry: exactly 0 where clipping does nothing."""
        below = (g < -self.limit).choose(-self.limit - g, self.zero)
        excess = (g > self.limit).choose(self.limit - g, below)
        return (self.away < self.far).choose(excess, inside)

    def threshold(self, g: Value) -> Value:
        """The threshold below which a random word, read as a signed number, makes a +1 bit: 2^31
        psi(g), with the mean bit psi, for gradient entries g in [-1, 1], in units of the clip."""
        if self.form.link:  # the link is an odd polynomial, highest coefficient first
            square, value = g * g, self.terms[0]
            for term in self.terms[1:]:
                value = value.times(square, term)
            return value * g
        # The link is a table: linear interpolation between equidistant nodes.
        code, nodes = self.code, self.at["nodes"]
        half = (nodes - 1).as_float().spread() * code.floats(0.5)
        place = g.times(half, half)
        # g = 1 lies on the last node, which begins no interval: it counts for the interval before.
        last = (nodes - 2).as_float().spread()
        node = (place < last).choose(place, last).whole()
        low, high = (code.pick(self.at["link"] + step, node) for step in (0, 4))
        return (place - node.signed()).times(high - low, low)


class Team:
    """Blocks of eight chains that run together, round by round: one block alone, or several whose
    chains share a data set, so that each number read from it serves all of them.

    ``member`` maps the number of a block in the team to its addresses and sizes by name. ``size``
    is the number of blocks; None: one, whose random generators stay in registers. ``most`` is the
    clip in its own units: 1, or infinite where nothing is clipped."""

    def __init__(
        self,
        code: Code,
        form: Form,
        member: Callable[[Value], dict[str, Value]],
        size: Value | None,
        most: Value,
    ) -> None:
        self.code, self.form, self._member, self._size = code, form, member, size
        self._most, self.at = most, member(code.number(0))
        self._alone = Devices(code, form, self.at, most) if size is None else None
        self._t: Value | None = None

    def begin(self, t: Value) -> None:
        """Emit the code that begins round ``t`` of a call of machine code, counted from 0, for
        every block of the team."""
        self._t = None
        with self.members() as devices:
            devices.begin(t)
            if self._alone is None and self.form.may_be_near:
                self.code.store(devices.at["away"], 0, devices.away)
        self._t = t

    @contextmanager
    def members(self) -> Iterator[Devices]:
        """A context whose body is emitted once and runs for every block of chains in the team; it
        gives the block's :class:`Devices`."""
        if self._size is None:
            assert self._alone is not None
            yield self._alone
            return
        with self.code.loop(self._size) as v:
            devices = Devices(self.code, self.form, self._member(v), self._most)
            if self._t is not None:
                devices.go_on(self._t)
            yield devices
            devices.save()

    def save(self) -> None:
        """Emit the code that stores what a block of chains that runs alone keeps in registers:
        random generators, and the number of clipped gradient entries."""
        if self._alone is not None:
            self._alone.save()
