"""Blocks that run together, round by round: one alone, or several whose lanes share a data set, so
that what is read of it serves all of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from flmc.sampling.compiled.emitted.devices import Devices, Form
from flmc.sampling.compiled.machine.emission import Code
from flmc.sampling.compiled.machine.value import Value

MOST_MEMBERS = 4
"""Blocks of a team at most."""


class Team:
    """The members of a team in some rounds.

    Parameters
    ----------
    code
        Where code is emitted.
    form
        What is known beforehand.
    member
        Addresses and sizes by name of a member, by its number.
    size
        How many members there are; None: one, whose generators stay in registers.
    most
        The clip in its own units.
    """

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
        """Begin a round.

        Parameters
        ----------
        t
            Its number in the arrays of this call.
        """
        self._t = None
        with self.members() as devices:
            devices.begin(t)
            if self._alone is None and self.form.may_be_near:
                self.code.store(devices.at["away"], 0, devices.away)
        self._t = t

    @contextmanager
    def members(self) -> Iterator[Devices]:
        """What follows is done for every member."""
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
        """Put what is in registers back."""
        if self._alone is not None:
            self._alone.save()
