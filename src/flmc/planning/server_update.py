r"""What the server does with its estimate in a round: Langevin's update, or another.

The estimate :math:`\hat g` of the summed gradient carries the channel's noise. Langevin's update
is :math:`\theta \leftarrow \theta - \eta\hat g`. Any other is an object of
:class:`ServerUpdate`, which says what is known of the law that it samples.

What an update does is a function of what the server received, so it costs no privacy: statements
about what the server receives hold for every update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array

DRAW_AT = ("midpoints", "positions")
"""Where draws of a chain may be taken: half way between the positions before and after a round, or
at the positions after rounds."""


class ServerState(NamedTuple):
    """State that the server carries from round to round.

    Attributes
    ----------
    theta
        Theta of every chain after the latest round, (..., dim).
    memory
        Vectors that the update remembers beside theta, (..., slot, dim), with ``num_slots``
        slots; zeros before round 1.
    """

    theta: Array
    memory: Array


class ServerUpdate(ABC):
    r"""Base of the server's updates: functions, without side effects, from state, estimate, step
    and random numbers of the update's own to the next state.

    Two numbers say what is known of the law that an update samples, to leading order in the step.
    Its chain moves in the long run like one of Langevin's update with the step :math:`c\,\eta`,
    where c is ``step_factor``: drift and channel noise alike. Its own noise adds
    ``own_temperature`` to the temperature :math:`c\,\eta V/(2\kappa)` that the noise V of the
    estimate causes. A linear filter of the estimates, such as momentum, has for c the sum of its
    impulse response. Where ``step_factor`` is None, the default, the law is not known: nothing is
    claimed of it, and the user must give step and gain."""

    num_slots: ClassVar[int] = 0
    """Number of vectors, of ``dim`` numbers each, that the update remembers beside theta."""
    random: ClassVar[bool] = False
    """Whether the update needs standard normal numbers of its own in every round, one for each
    entry of theta."""
    draw_at: ClassVar[str] = "positions"
    """Where draws are taken unless the user says: at the ``positions`` of the chain, or at its
    ``midpoints`` if their variance, for a normal posterior at temperature 1, is known to be the
    posterior's at every step."""

    @property
    def step_factor(self) -> float | None:
        """Factor c such that Langevin's update with c times the step moves a chain as fast as this
        update; None: not known."""
        return None

    @property
    def own_temperature(self) -> float:
        """Temperature that the update's own noise adds, in [0, 1); 0 for an update without
        noise."""
        return 0.0

    @property
    def heat(self) -> float | None:
        """Factor by which the step is multiplied where the gain is chosen, c/(1 -
        ``own_temperature``) with c = ``step_factor``: the gain at which Langevin's update has
        temperature 1 with the multiplied step is the gain at which this update has it with its own
        step. None: not known."""
        factor = self.step_factor
        return None if factor is None else factor / (1.0 - self.own_temperature)

    @abstractmethod
    def next(
        self, state: ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> ServerState:
        """The state after a round.

        Parameters
        ----------
        state
            The state before it; its arrays must not be changed.
        estimate
            Estimate of the sum of all devices' symbols, (..., dim).
        step_size
            The step of the round.
        normal
            Standard normal numbers, (..., dim), if the update is ``random``; else None.

        Returns
        -------
        ServerState
            The state after the round, with arrays of the same shapes. The method is not called for
            a round in which no device transmits.
        """

    def check(self) -> None:
        """Raise ``InvalidSetting`` if a number that the update declares (``num_slots``,
        ``step_factor``, ``own_temperature``) is out of its bounds."""
        checks.at_least("num_slots", self.num_slots, 0)
        if self.step_factor is not None:
            checks.positive("step_factor", self.step_factor)
        if not 0.0 <= self.own_temperature < 1.0:
            checks.between("own_temperature", self.own_temperature, 0.0, 1.0)


@dataclass(frozen=True)
class Langevin(ServerUpdate):
    r"""The sampler's own update, :math:`\theta \leftarrow \theta - \eta\hat g` with the step size
    :math:`\eta` and the estimate :math:`\hat g` of the summed gradient."""

    draw_at: ClassVar[str] = "midpoints"

    @property
    def step_factor(self) -> float:
        """1, by definition: this is Langevin's update."""
        return 1.0

    def next(
        self, state: ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> ServerState:
        """Theta after a step against the estimate; the memory is unchanged."""
        return ServerState(np.asarray(state.theta - step_size * estimate), state.memory)


LANGEVIN = Langevin()
"""Langevin's update, the default of every plan."""


@dataclass(frozen=True)
class Momentum(ServerUpdate):
    r"""Heavy-ball momentum: with the velocity u, the step size :math:`\eta` and the estimate
    :math:`\hat g` of the summed gradient, :math:`u \leftarrow \beta u - \eta\hat g` and
    :math:`\theta \leftarrow \theta + u`.

    As a linear filter of the estimates, momentum has an impulse response that sums to
    :math:`1/(1-\beta)`: a chain moves as under Langevin's update with a step that is larger by this
    factor, and its temperature is larger by it, too. In a direction of curvature :math:`\lambda`
    the variance is that of the normal posterior times the temperature over :math:`1 -
    a/(2(1+\beta))`, with :math:`a = \eta\kappa\lambda` and the slope :math:`\kappa` of the link: at
    an equal effective step the discretisation error is smaller than Langevin's by
    :math:`(1-\beta)/(1+\beta)`. Successive positions have the correlation :math:`1 - a/(1+\beta)`,
    so that midpoints have no discretisation error, as under Langevin's update.

    Parameters
    ----------
    beta
        Share of the velocity that a round keeps, in [0, 1).
    """

    beta: float
    num_slots: ClassVar[int] = 1
    draw_at: ClassVar[str] = "midpoints"

    def __post_init__(self) -> None:
        if self.beta != 0.0:
            checks.between("beta", self.beta, 0.0, 1.0)

    @property
    def step_factor(self) -> float:
        """Step factor of momentum, 1/(1 - beta): the sum of 1, beta, beta squared and so on, the
        factors with which an estimate moves theta in its own round, in the next one, in the one
        after, and so on."""
        return 1.0 / (1.0 - self.beta)

    def next(
        self, state: ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> ServerState:
        """State after a round: the velocity is beta times the one before, less the step times the
        estimate, and theta has moved by the new velocity."""
        velocity = self.beta * state.memory[..., 0, :] - step_size * estimate
        return ServerState(state.theta + velocity, velocity[..., None, :])


@dataclass(frozen=True)
class MajorityVote(ServerUpdate):
    r"""A step against the signs of the estimate :math:`\hat g` of the summed gradient,
    :math:`\theta \leftarrow \theta - \eta\,\text{sign}(\hat g)` with the step size :math:`\eta`.

    It suits devices that send the signs of their gradients: the sign of their sum is the
    majority's, unless noise inverts it. It samples no known law."""

    def next(
        self, state: ServerState, estimate: Array, step_size: float, normal: Array | None
    ) -> ServerState:
        """Theta after a step against the signs of the estimate's entries (0 where an entry is
        exactly 0); the memory is unchanged."""
        return ServerState(np.asarray(state.theta - step_size * np.sign(estimate)), state.memory)


def why_not_updated(update: ServerUpdate) -> str | None:
    """Reason, as the end of a sentence, why code that itself takes Langevin's steps cannot run a
    plan with this update; None for Langevin's update."""
    if is_langevin(update):
        return None
    return f"it takes Langevin's steps, and the server's update is {type(update).__name__}"


def is_langevin(update: ServerUpdate) -> bool:
    """Whether an update is of the class ``Langevin`` itself; a subclass does not count, because it
    may do anything."""
    return type(update) is Langevin
