"""Generation of the machine code of the devices in a round: the choice of devices whose gradients
must be computed, clipping, and symbols. A block is eight chains that share vector instructions, or
one chain; a team is some blocks of the same data set that run together.

*Unit*: gradients are divided by the clip when a block is loaded, so that clipping is to [-1, 1] and
the link is a function on [-1, 1].

*Comparison*: a bit is +1 with probability (1 + psi)/2, where psi is the mean bit. A word, read as a
signed number, is uniform on [-2^31, 2^31); it is compared with 2^31 psi, which the polynomial or
table gives directly: no exponential, no division. A float has 24 bits, so large words are rounded
to a multiple of 128 and probabilities have a resolution of 3e-8; rounding of psi itself adds up to
about 2e-7. :mod:`flmc.sampling.compiled.link_curve` keeps the sum of all errors below 1e-6.

*Near*: without bits, the server receives the sum of the clipped gradients, and clipping is rare. A
chain is near the fixed theta of its data set (:func:`flmc.sampling.chains.centre_of`) if no
gradient entry of any device, at the chain's position, can exceed a certain number of clips
(:data:`~flmc.sampling.compiled.units.NEAR`). The sum over devices then begins with the unclipped
gradient of the sum of all costs; a device's gradient is computed only if one of its entries may
exceed the clip, and adds the clipped minus the unclipped entries. For a chain that is not near, the
clipped gradients of all devices are added."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from flmc.sampling.compiled.arrangement import Arrangement
from flmc.sampling.compiled.instructions import BYTE, FLOAT, WIDTH, WORDS, Code, Value, Variable
from flmc.sampling.compiled.random_numbers import Generator

FAR = float("inf")
"""Infinite squared distance, set for every chain that does not count as near the fixed theta of its
data set (:func:`flmc.sampling.chains.centre_of`)."""


class Form(NamedTuple):
    """Constants of the machine code of a round; the code is compiled anew for each combination.

    Attributes
    ----------
    arrangement
        Layout of the devices' data in memory.
    link
        How the probability of a +1 bit is computed: the number of coefficients of a polynomial, or
        0 for a table; None where a symbol is the clipped gradient.
    norm
        Whether the norm of a gradient is clipped, not its entries.
    talks
        Whether every chain has its own factors that multiply the devices' symbols; False: all
        chains share the active devices.
    own_noise
        Whether every chain has its own factors that multiply the noise; False: all chains share
        them.
    """

    arrangement: Arrangement
    link: int | None
    norm: bool
    talks: bool
    own_noise: bool

    @property
    def may_be_near(self) -> bool:
        """Whether the sum over devices may begin with the unclipped gradient of the sum of all
        costs, to which only the changes by clipping are added. This holds where symbols are
        gradients (not bits) that are clipped entry by entry or not at all."""
        return self.link is None and not self.norm


class Devices:
    """Emits the machine code of the devices in a round, for one block of chains (those that a
    vector instruction serves): the choice of devices to compute, clipping, and symbols.

    ``at`` holds addresses and sizes by name (:data:`~flmc.sampling.compiled.rounds.FIELDS`);
    ``most`` is the bound of gradients, which are in units of the clip: 1, or infinite where nothing
    is clipped."""

    def __init__(self, code: Code, form: Form, at: dict[str, Value], most: Value) -> None:
        self.code, self.form, self.at = code, form, at
        self.limit, self.far, self.zero = most.spread(), code.floats(FAR), code.floats(0.0)
        self.count = Variable(code, code.load(self.at["count"], 0, WORDS))
        self.terms = [code.load(self.at["link"], i, FLOAT).spread() for i in range(form.link or 0)]
        self.generator: Generator | None = None
        if form.link is not None:
            self.generator = Generator(code, at["state"], form.arrangement.word)

    def begin(self, t: Value) -> None:
        """Emit the code that begins round ``t`` of a call of machine code, counted from 0: it sets
        the addresses of the round's numbers, and computes the distance of each chain from the fixed
        theta of its data set (:func:`flmc.sampling.chains.centre_of`)."""
        self._find_round(t)
        self.away = self._distance() if self.form.may_be_near else self.far

    def go_on(self, t: Value) -> None:
        """Emit the code that continues round ``t`` after :meth:`begin`: the chains' distances from
        the fixed theta of their data set (:func:`flmc.sampling.chains.centre_of`) are loaded from
        memory, not computed again."""
        self._find_round(t)
        self.away = self.code.load(self.at["away"], 0) if self.form.may_be_near else self.far

    def _find_round(self, t: Value) -> None:
        """Set the addresses of the active devices of round ``t`` and of the factors of their
        symbols, and set ``near``, the truth value whether all devices transmit in the round: only
        then may chains count as near the fixed theta of their data set
        (:func:`flmc.sampling.chains.centre_of`)."""
        code, first = self.code, t * self.at["devices"]
        self.active = self.at["active"] + first
        self.talks = self.at["talks"] + first * self.at["apart"] * 4
        self.near = code.load(self.at["all_active"], t, BYTE) > code.value(BYTE(0))

    def save(self) -> None:
        """Emit the code that stores the state of the random generators of the block's chains, and
        their numbers of clipped gradient entries, from registers to memory."""
        self.code.store(self.at["count"], 0, self.count.value)
        if self.generator is not None:
            self.generator.save()

    def _distance(self) -> Value:
        """Emit the code for the squared distance of each chain of the block from the fixed theta of
        its data set (:func:`flmc.sampling.chains.centre_of`); returns the distances as a vector,
        infinite for a chain that does not count as near this theta."""
        code, distance = self.code, Variable(self.code, self.zero)
        with code.loop(self.at["dim"]) as j:
            entry = self.own(self.at["x"], j * self.form.arrangement.lanes)
            distance.value = entry.times(entry, distance.value)
        inside = (distance.value < code.load(self.at["horizon"], 0)).both(self.near.spread())
        return inside.choose(distance.value, self.far)

    def own(self, address: Value, place: Value) -> Value:
        """Emit the load of a vector with one number for each of the block's eight chains, from
        ``place`` floats behind ``address`` on, and return it. Where a block is one chain, all eight
        places have this chain's number."""
        if self.form.arrangement.lanes == 1:
            return self.code.load(address, place, FLOAT).spread()
        return self.code.load(address, place)

    def here(self, k: Value) -> tuple[Value, Value | None]:
        """Emit two values for device number ``k``, and return them: a truth value, whether its
        gradient has to be computed for any chain of the block, and a vector with the factor that
        multiplies its symbols for each chain (None: all factors are 1)."""
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
        """Gradient entries g, in units of the clip, clipped to [-1, 1]; NaN becomes -1, because an
        index computed from NaN could lie outside the table of the link's values."""
        above = (g > -self.limit).choose(g, -self.limit)
        return (above < self.limit).choose(above, self.limit)

    def scale_for(self, squares: Value) -> Value:
        """The factor that reduces the norm of a gradient to the clip; 1 where the norm is smaller.
        ``squares`` is the sum of the squares of the gradient's entries in units of the clip."""
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
        """Emit the symbols of a device for gradient entries ``g`` (in units of the clip): truth
        values (True: +1) for bits that no factor multiplies, else floats. The number of clipped
        entries is updated.

        ``word`` returns random words where bits are sent, else None. ``talk`` is the factor that
        multiplies the symbols (0 for a silent device, None: 1), ``scale`` the factor that clips the
        gradient's norm (None: entries are clipped), and ``exist`` a vector of truth values, False
        where ``g`` reaches beyond the last entry, which must not be counted."""
        code = self.code
        if scale is not None:
            g = g * scale
        inside = self.clipped(g)
        # Where the norm of a gradient is clipped, either all its entries change or none.
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
        """Emit the value that a device adds to the sum over devices, for one gradient entry ``g``
        that becomes ``inside`` by clipping. For chains far from the fixed theta of their data set
        it is the clipped entry. For chains near it, whose sum begins with all unclipped entries, it
        is the clipped minus the unclipped entry: exactly 0 where clipping does nothing."""
        below = (g < -self.limit).choose(-self.limit - g, self.zero)
        excess = (g > self.limit).choose(self.limit - g, below)
        return (self.away < self.far).choose(excess, inside)

    def threshold(self, g: Value) -> Value:
        """The threshold 2^31 psi(g), with the mean bit psi, for gradient entries g in [-1, 1], in
        units of the clip: a random word that is smaller, read as a signed number of 32 bits, makes
        a +1 bit."""
        if self.form.link:  # the link is an odd polynomial, highest coefficient first
            square, value = g * g, self.terms[0]
            for term in self.terms[1:]:
                value = value.times(square, term)
            return value * g
        # The link is a table of values at equidistant nodes, which are interpolated linearly.
        code, nodes = self.code, self.at["nodes"]
        half = (nodes - 1).as_float().spread() * code.floats(0.5)
        place = g.times(half, half)
        # At g = 1, the last node, the last interval is used, because no interval begins there.
        last = (nodes - 2).as_float().spread()
        node = (place < last).choose(place, last).whole()
        low, high = (code.pick(self.at["link"] + step, node) for step in (0, 4))
        return (place - node.signed()).times(high - low, low)


class Team:
    """Emits machine code for blocks of chains that run together, round by round: one block alone,
    or several whose chains share a data set, so that each number read from it serves all of them.

    ``member`` maps the number of a block in the team to its addresses and sizes by name. ``size``
    is the number of blocks; None: one, whose random generators stay in registers. ``most`` is the
    bound of gradients, which are in units of the clip: 1, or infinite where nothing is clipped."""

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
        every block of the team: it sets the addresses of the round's numbers, and computes how far
        each chain is from the fixed theta of its data set."""
        self._t = None
        with self.members() as devices:
            devices.begin(t)
            if self._alone is None and self.form.may_be_near:
                self.code.store(devices.at["away"], 0, devices.away)
        self._t = t

    @contextmanager
    def members(self) -> Iterator[Devices]:
        """Context manager of a loop over the blocks of chains in the team: its body is emitted once
        and runs for every block. It yields the :class:`Devices` of the block."""
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
        """Emit the code that stores the random generators and the numbers of clipped gradient
        entries, which a team of one block keeps in registers; larger teams store them after every
        use."""
        if self._alone is not None:
            self._alone.save()
