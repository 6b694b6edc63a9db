"""Generation of the machine code that sums the devices' symbols in a round.

Where a gradient has few entries, the position, the sums and the random generator stay in registers,
and only the upper triangle of a Hessian is read. Where it has many, the entries are computed in
groups, called tiles. Each entry of a tile has a register, so that an entry of the position is read
once for the whole tile. Where several blocks of chains form a team, the data of a tile are used for
all blocks before the data of the next tile are read.

For a given number of entries the result is the same to the bit for every layout of the data in
memory: the products of an entry are added in the same order, and the symbols in the order of the
devices."""

from __future__ import annotations

from collections.abc import Callable

from llvmlite import ir

from flmc.sampling.compiled.devices import Devices, Team
from flmc.sampling.compiled.instructions import FLOAT, WIDTH, WORDS, Value, Variable
from flmc.sampling.compiled.random_numbers import Generator


class FewEntries:
    """Emits the code that sums the devices' symbols, for gradients with few entries: the code has
    no loops over entries, and the sums stay in registers."""

    def __init__(self, devices: Devices) -> None:
        self.devices, self.code = devices, devices.code
        self.arrangement = devices.form.arrangement
        self.entries = self.arrangement.entries
        self.x: list[Value] = []

    def receive(self) -> list[Value]:
        """Emit the code of the loop over devices; returns the sum of symbols of every entry, (dim)
        vectors with one number for each chain."""
        devices, code, form = self.devices, self.code, self.devices.form
        # The symbols are bits where there is a link. Unless every chain has its own factors to
        # multiply them (``talks``), only the bits +1 are counted: if c of n bits are +1, their sum
        # is 2 c - n.
        counted = form.link is not None and not form.talks
        totals = code.variables([code.words(0) if counted else devices.zero] * self.entries)
        self.x = [code.load(devices.at["x"], j * WIDTH) for j in range(self.entries)]
        if form.may_be_near:
            with code.when(devices.near):
                for total, value in zip(totals, self._gradient(devices.at["devices"]), strict=True):
                    total.value = (devices.away < devices.far).choose(value, devices.zero)
        generator = devices.generator
        heard = Variable(code, code.words(0))
        with code.loop(devices.at["devices"]) as k:
            here, talk = devices.here(k)
            with code.either(here) as (yes, no):
                with yes:
                    heard.value = heard.value + code.words(1)
                    self._add_device(k, talk, generator, totals)
                with no:
                    # The random words of a silent device are drawn and dropped, so that the words
                    # of every device are the same whichever devices are active.
                    if generator is not None:
                        for _ in range(self.entries):
                            generator()
        if counted:
            return [(total.value + total.value - heard.value).signed() for total in totals]
        return [total.value for total in totals]

    def _gradient(self, k: Value) -> list[Value]:
        """Emit the entries of the gradient of device ``k`` at the chains' positions, each a vector
        over the chains: the gradient at the fixed theta of the data set
        (:func:`flmc.sampling.chains.centre_of`) plus the Hessian times the deviation from this
        theta.

        An entry is made of two sums, over even and odd columns of the Hessian, so that a product
        need not wait until the one before is added."""
        start = k * self.arrangement.device_size(self.entries)
        index, matrix, gradient = self.entries, {}, []
        for i in range(self.entries):
            for j in range(i, self.entries):
                matrix[i, j] = matrix[j, i] = self._read(start, index)
                index += 1
        for i in range(self.entries):
            sums = [self._read(start, i), self.devices.zero]
            for j in range(self.entries):
                sums[j % 2] = matrix[i, j].times(self.x[j], sums[j % 2])
            gradient.append(sums[0] + sums[1])
        return gradient

    def _read(self, start: Value, index: int) -> Value:
        """Number ``index`` of the data of a device, which begin at ``start``, as an emitted vector:
        each chain's own number, or the same in all places where the chains share a data set."""
        place = start + index * self.arrangement.unit
        if self.arrangement.unit == 1:
            return self.code.load(self.devices.at["local"], place, FLOAT).spread()
        return self.code.load(self.devices.at["local"], place)

    def _add_device(
        self, k: Value, talk: Value | None, generator: Generator | None, totals: list[Variable]
    ) -> None:
        """Emit the code that adds the symbols of device number ``k``, times the factors ``talk``
        (one for each chain; None: 1), to the sums ``totals`` of all entries."""
        values, scale = self._gradient(k), None
        if self.devices.form.norm:
            squares = self.devices.zero
            for value in values:
                squares = value.times(value, squares)
            scale = self.devices.scale_for(squares)
        for value, total in zip(values, totals, strict=True):
            sent = self.devices.sent(value, generator, talk, scale)
            counted = generator is not None and talk is None
            total.value = total.value + (sent.ones() if counted else sent)


class ManyEntries:
    """Emits the code that sums the devices' symbols for gradients with many entries, which are
    computed in groups, called tiles, and for all blocks of chains in a team, which share a data
    set. The sums are in scratch memory."""

    def __init__(self, team: Team) -> None:
        self.team, self.code, self.at = team, team.code, team.at
        self.form, self.arrangement = team.form, team.form.arrangement
        self.tile = self.arrangement.tile
        self.in_rows = self.arrangement.lanes == 1
        """Whether the eight numbers of a vector are entries of one chain's gradient; False: they
        belong to eight chains."""
        self.gradient_bytes = self.at["tiles"] * (4 * WIDTH * self.tile)
        """Number of bytes of a gradient in scratch memory, where each block of chains has the sums
        of symbols, then a gradient, then a vector of the factors that clip norms."""

    def receive(self) -> None:
        """Emit the code of the loop over devices, which stores the sums of symbols of all entries
        in the scratch memory ``received`` of each block of chains."""
        code, at = self.code, self.at
        with self.team.members() as devices:
            with code.loop(at["tiles"] * self.tile) as i:
                code.store(devices.at["received"], i * WIDTH, devices.zero)
            if self.in_rows and devices.generator is not None:
                # All random words of the round are stored first, so that they can be loaded eight
                # at a time as a vector.
                with code.loop(at["devices"] * at["dim"]) as n:
                    code.store(at["words"], n, devices.generator())
        if self.form.may_be_near:
            with (
                code.loop(at["tiles"]) as tile,
                self.team.members() as devices,
                code.when(devices.near),
            ):
                self._begin_with_all(devices, tile)
        with code.loop(at["devices"]) as k:
            if self.form.norm:
                self._find_scales(k)
            with code.loop(at["tiles"]) as tile, self.team.members() as devices:
                here, talk = devices.here(k)
                with code.either(here) as (yes, no):
                    with yes:
                        self._add_tile(devices, k, tile, talk)
                    with no:  # drawn and dropped, so that other devices keep their random words
                        if devices.generator is not None and not self.in_rows:
                            first = tile * self.tile
                            end = (first + self.tile).at_most(at["dim"])
                            with code.loop(end, first):
                                devices.generator()

    def _begin_with_all(self, devices: Devices, tile: Value) -> None:
        """Emit the code that sets the initial values of the sums over devices for one tile (a group
        of entries that is computed together): the gradient of the sum of all costs for chains that
        count as near the fixed theta of their data set, 0 for all others."""
        for q, value in enumerate(self._gradient(devices, self.at["devices"], tile)):
            near = (devices.away < devices.far).choose(value, devices.zero)
            self.code.store(devices.at["received"], (tile * self.tile + q) * WIDTH, near)

    def _gradient(self, devices: Devices, k: Value, tile: Value) -> list[Value]:
        """Emit the entries of one tile (a group of entries that is computed together) of the
        gradient of device ``k``, as vectors: the gradient at the fixed theta of the data set
        (:func:`flmc.sampling.chains.centre_of`) plus the Hessian times the deviation from this
        theta, summed column by column."""
        code, unit = self.code, self.arrangement.unit
        size = (self.at["dim"] + 1) * (self.tile * unit)
        start = (k * self.at["tiles"] + tile) * size

        def read(place: Value) -> Value:
            if unit == 1:
                return code.load(self.at["local"], place, FLOAT).spread()
            return code.load(self.at["local"], place)

        sums = code.variables([read(start + q * unit) for q in range(self.tile)])
        with code.loop(self.at["dim"]) as j:
            x = devices.own(devices.at["x"], j * self.arrangement.lanes)
            column = start + (j + 1) * (self.tile * unit)
            for q, value in enumerate(sums):
                value.value = read(column + q * unit).times(x, value.value)
        return [value.value for value in sums]

    def _find_scales(self, k: Value) -> None:
        """Emit the code that stores, for each block of chains in the team, the gradient of device k
        at the chains' positions and the factor that brings this gradient's norm down to the
        clip."""
        code = self.code
        with code.loop(self.at["tiles"]) as tile, self.team.members() as devices:
            values = devices.at["received"] + self.gradient_bytes
            for q, value in enumerate(self._gradient(devices, k, tile)):
                code.store(values, (tile * self.tile + q) * WIDTH, value)
        with self.team.members() as devices:
            values = devices.at["received"] + self.gradient_bytes
            scale = devices.scale_for(self._squares(values))
            code.store(values + self.gradient_bytes, 0, scale)

    def _squares(self, values: Value) -> Value:
        """Emit the sum of the squares of the entries of the gradient at the address ``values``, and
        return it: a vector with one number for each chain, or with the number of a single chain in
        all eight places."""
        code = self.code
        if self.in_rows:
            alone = Variable(code, code.value(FLOAT(0.0)))
            with code.loop(self.at["dim"]) as i:
                value = code.load(values, i, FLOAT)
                alone.value = value.times(value, alone.value)
            return alone.value.spread()
        squares = Variable(code, code.floats(0.0))
        with code.loop(self.at["dim"]) as i:
            value = code.load(values, i * WIDTH)
            squares.value = value.times(value, squares.value)
        return squares.value

    def _add_tile(self, devices: Devices, k: Value, tile: Value, talk: Value | None) -> None:
        """Emit the code that adds the symbols of device number ``k``, for one tile (a group of
        entries that is computed together), times the factors ``talk`` (one for each chain; None:
        1), to the sums over devices."""
        code, first, scale = self.code, tile * self.tile, None
        if self.form.norm:
            kept = devices.at["received"] + self.gradient_bytes
            scale = code.load(kept + self.gradient_bytes, 0)
            values = [code.load(kept, (first + q) * WIDTH) for q in range(self.tile)]
        else:
            values = self._gradient(devices, k, tile)
        for q, value in enumerate(values):
            if self.in_rows:
                self._add_rows(devices, k, first + q, value, talk, scale)
            elif self.arrangement.whole:
                self._add(devices, first + q, value, devices.generator, talk, scale)
            else:  # the last tile may reach behind the last entry
                with code.when(first + q < self.at["dim"]):
                    self._add(devices, first + q, value, devices.generator, talk, scale)

    def _add_rows(
        self,
        devices: Devices,
        k: Value,
        panel: Value,
        value: Value,
        talk: Value | None,
        scale: Value | None,
    ) -> None:
        """Emit the code that adds the symbols of device number ``k``, for eight entries of one
        chain, to the sums over devices. ``panel`` is the number of these eight among all groups of
        eight entries. In the last group, places beyond the last entry go to sums that are not
        used."""
        code, word, exist = self.code, None, None
        if devices.generator is not None:
            place = k * self.at["dim"] + panel * WIDTH

            def word() -> Value:
                return code.load(self.at["words"], place, WORDS)

        # Where the norm of a gradient is clipped, all eight places of a vector would be counted as
        # clipped entries; ``exist`` excludes the places beyond the gradient's last entry.
        if scale is not None:
            numbers = code.value(ir.Constant(WORDS, list(range(WIDTH))))
            numbers = numbers + (panel * WIDTH).as_word().spread()
            exist = numbers < self.at["dim"].as_word().spread()
        self._add(devices, panel, value, word, talk, scale, exist)

    def _add(
        self,
        devices: Devices,
        row: Value,
        value: Value,
        word: Callable[[], Value] | None,
        talk: Value | None,
        scale: Value | None,
        exist: Value | None = None,
    ) -> None:
        """Emit the code that turns the vector ``value`` of a device's gradient entries into symbols
        and adds them to vector number ``row`` of the sums over devices.

        ``word`` returns the random words of bits (None: no bits), ``talk`` is the factor of the
        symbols (None: 1), ``scale`` the factor that clips the gradient's norm (None: entries are
        clipped), and ``exist`` is False at places beyond the last entry."""
        code, place, sums = self.code, row * WIDTH, devices.at["received"]
        sent = devices.sent(value, word, talk, scale, exist)
        if word is not None and talk is None:
            sent = sent.choose(code.floats(1.0), code.floats(-1.0))
        code.store(sums, place, code.load(sums, place) + sent)
