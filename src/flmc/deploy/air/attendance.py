"""Who is there: the air waits for nobody who left, refused, or has long been silent."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Set

_PATIENCE = 3
"""Rounds in a row whose deadline a device may miss before it is not waited for."""


class Attendance:
    """Devices that are not waited for.

    A device whose certificate was revoked can say neither an answer nor that it is gone, and one
    that hangs says nothing either: each would make every round last until its deadline.
    """

    def __init__(self) -> None:
        self._absent = set[int]()
        self._missed = Counter[int]()

    def said(self, device: int, state: str) -> None:
        """Hear of a device's state.

        Parameters
        ----------
        device, state
            Its number, and one of :data:`flmc.wire.presence.STATES`.
        """
        if state in ("gone", "refused"):
            self._absent.add(device)
        else:
            self.heard(device)

    def heard(self, device: int) -> None:
        """Note that a device is there: it has spoken.

        Parameters
        ----------
        device
            Its number.
        """
        self._absent.discard(device)
        self._missed.pop(device, None)

    def missed(self, devices: Iterable[int]) -> list[int]:
        """Note who was silent until the deadline of a round that was closed.

        Parameters
        ----------
        devices
            Their numbers.

        Returns
        -------
        list of int
            Those who are not waited for from now on, until they are heard again.
        """
        silent = [device for device in devices if device not in self._absent]
        self._missed.update(silent)
        given_up = [device for device in silent if self._missed[device] >= _PATIENCE]
        self._absent.update(given_up)
        return given_up

    def waits_for(self, devices: Set[int]) -> bool:
        """Whether any of some devices is waited for.

        Parameters
        ----------
        devices
            Their numbers.
        """
        return not devices <= self._absent
