"""Fading: the gain :math:`h` of each device's path to the server, per round, device and entry.

A law draws magnitudes, which are positive: a device that knows its channel cancels the phase when
it inverts the path gain. ``EstimatedFading`` describes devices that know their channel
inexactly."""

from __future__ import annotations

import inspect
from abc import ABC, abstractmethod

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding


class Fading(ABC):
    """Law of the path gains. Your own is a class with one method, ``draw``; it may state that its
    path gains are ``constant``, ``independent`` between rounds, ``alike`` in law for all devices,
    or ``given`` numbers.

    Unless the class states ``independent``, all rounds of a run are drawn at once: a path gain may
    depend on the number of the round, as in a measured trace, and on the path gains of earlier
    rounds.

    Examples
    --------
    Shadowing that moves slowly: its decibels are an autoregressive sequence over all rounds.

    >>> class SlowShadowing(flmc.Fading):
    ...     def draw(self, rng, rounds, num_devices, dim):
    ...         decibel = 4 * rng.standard_normal((len(rounds), num_devices, 1))
    ...         for now in range(1, len(rounds)):
    ...             decibel[now] = 0.95 * decibel[now - 1] + np.sqrt(1 - 0.95**2) * decibel[now]
    ...         return 0.04 * 10 ** (decibel / 20)
    >>> flmc.Digital(fading=SlowShadowing()).fading.independent
    False
    """

    constant: bool = False
    """Whether every draw gives the same path gains: then the power limit allows the same gain in
    every round."""
    independent: bool = False
    """Whether the path gains of all rounds are independent draws from one law, which depends
    neither on the number of the round nor on other rounds. Then each block of rounds is drawn by
    itself, from its own stream. Else all rounds of a run are drawn at once, from one stream for
    each experiment."""

    alike: bool = False
    """Whether the path gains of all devices have the same law: then estimates from drawn path gains
    may be averaged over devices."""

    def without_files(self) -> Fading:
        """A copy of this law of path gains that needs no files of this machine (their numbers stand
        in it), for plans that travel to other machines."""
        return self

    given: bool = False
    """Whether the path gains of every round are public numbers that no draw changes, as those of a
    trace are: then it is known before the run who transmits under a policy by channel."""

    def exceedance(self, threshold: float) -> float | None:
        """Probability that a device's path gain in a round is at least ``threshold``, for a law
        under which all entries share a path gain and path gains are independent between rounds and
        devices; None: not known.

        Parameters
        ----------
        threshold
            Path gain, positive.
        """
        return None

    @property
    def mean_square(self) -> float | None:
        """Mean square :math:`E[h^2]` of the path gains, averaged over all random draws and all
        devices; None: not known."""
        return None

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Findings that speak against these path gains, for the plan that uses them; none by
        default."""
        return ()

    def __init_subclass__(cls) -> None:
        """Raise ``InvalidSetting`` for a subclass whose ``draw`` takes ``num_rounds``, as in
        earlier versions, in place of the range ``rounds``."""
        drawn = vars(cls).get("draw")
        if drawn is not None and "num_rounds" in inspect.signature(drawn).parameters:
            raise InvalidSetting(
                f"{cls.__name__}.draw(rng, num_rounds, num_devices, dim) is the signature of"
                " earlier versions; write draw(self, rng, rounds, num_devices, dim), where rounds"
                " is the range of rounds that are drawn, counted from 0: what was num_rounds is"
                " len(rounds)"
            )

    @abstractmethod
    def draw(self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int) -> Array:
        """Path gains of some rounds.

        Parameters
        ----------
        rng
            The only source of randomness: one stream for each experiment; if rounds are
            ``independent``, one for each experiment and block of rounds.
        rounds
            The rounds that are drawn, counted from 0: all rounds of a run, from its first to its
            last, unless they are ``independent``.
        num_devices, dim
            Number of devices and of entries.

        Returns
        -------
        Array
            Positive numbers that broadcast to (round, device, dim).
        """

    def draw_checked(
        self, rng: np.random.Generator, rounds: range, num_devices: int, dim: int
    ) -> Array:
        """Path gains of some rounds in their full shape, refused unless all are positive numbers.

        Parameters
        ----------
        rng
            Source of randomness, passed to :meth:`draw`.
        rounds
            The rounds that are drawn, counted from 0.
        num_devices, dim
            Number of devices and of entries.

        Returns
        -------
        Array
            Path gains, (round, device, dim); a read-only view where the draw has fewer entries.

        Raises
        ------
        InvalidSetting
            If the draw has another shape, or a path gain is not finite and positive.
        """
        try:
            gains = np.asarray(self.draw(rng, rounds, num_devices, dim), dtype=np.float64)
        except InvalidSetting:
            raise
        except Exception as error:  # a user's own law may raise anything
            raise InvalidSetting(
                f"{type(self).__name__}.draw failed for rounds {rounds.start + 1} to"
                f" {rounds.stop}: {type(error).__name__}: {error}"
            ) from error
        shape = (len(rounds), num_devices, dim)
        try:
            full = np.broadcast_to(gains, shape)
        except ValueError:
            raise InvalidSetting(
                f"{type(self).__name__}.draw must broadcast to (round, device, dim) = {shape}, got"
                f" {gains.shape}"
            ) from None
        if not (np.isfinite(gains) & (gains > 0)).all():
            worst = gains[~(np.isfinite(gains) & (gains > 0))].flat[0]
            raise InvalidSetting(
                f"fading must be positive (a device cannot invert a dead channel), got {worst}"
            )
        return full
