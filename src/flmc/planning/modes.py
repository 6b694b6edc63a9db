r"""A search for modes of the posterior beside the one that the pilot found.

A chain stays in the mode in whose basin it begins, and chains that begin close together agree with
each other, however small the mode's share of the posterior. So the cost (the negative log posterior
density) is descended from 32 starts all over the prior, even if chains begin elsewhere. Only
gradients are needed: differences of cost are integrals of the gradient along a line, and the mass
of a mode is that of a normal law with its curvature H, in proportion to :math:`e^{-U}/\sqrt{\det
H}` for the cost U there."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from flmc.base.arrays import Array, BoolArray
from flmc.base.findings import Finding
from flmc.base.randomness import Purpose, generator
from flmc.models.model import Model
from flmc.planning.pilot import MOST_DIRECTIONS, Pilot

_NUM_STARTS = 32
"""Number of draws from the prior from which modes are searched. A mode that a share p of the prior
leads to is missed with the probability (1 - p)^32: 0.03 for a tenth."""
_NUM_POINTS = 128
"""Number of values of theta at which gradients are evaluated at a time. It is a number that the
forecast uses too, because some models are compiled anew for each such number."""
_NUM_MOVES, _FASTER, _SLOWER = 60, 1.5, 0.5
"""Number of moves of a descent, and factors by which an entry's step grows where the sign of its
gradient stays, and shrinks where it changes."""
_MOST_SEARCHES = 6
"""Largest number of pilots (searches by Newton's method) that look for a further mode, each from
the end of another descent of the cost; modes beyond these are not looked for."""
_MOST_RESTARTS = 3
"""Largest number of ends of descents from which another pilot (a search for the mode by Newton's
method) sets out where the first one did not arrive at a mode; after these, no mode counts as
found."""
_SEPARATE = 3.0
"""Rise of the cost (negative log density) on the way between two modes, above the mode of higher
cost, from which on they count as separate: the density there is e^3 = 20 times lower than at
either mode, so that a chain hardly crosses."""
_LEAST_SHARE = 0.01
"""Least share of the posterior's mass in other modes that counts."""
_NUM_PRIOR_STEPS = 8
"""Number of steps of the search for the prior's mode."""


class Mode(NamedTuple):
    """A local maximum of the posterior density: its place ``theta`` (dim), the ``curvature`` of the
    cost (negative log density) there (dim, dim), its ``cost`` less that of the pilot's mode, and
    the ``barrier``, the rise of the cost between these two modes above the higher of their costs.
    """

    theta: Array
    curvature: Array
    cost: float
    barrier: float

    @property
    def log_mass(self) -> float:
        """Logarithm of the mass of the normal law at this mode, up to a constant."""
        return -self.cost - 0.5 * float(np.linalg.slogdet(self.curvature)[1])


def judge_modes(model: Model, pilot: Pilot) -> list[Finding]:
    """List with a warning where the posterior of the first data set has modes apart from the one at
    which the ``pilot`` arrived, and these other modes have more than a hundredth of the posterior's
    mass; else empty, also where the pilot did not arrive or theta has more than 128 entries."""
    if not pilot.arrived or model.dim > MOST_DIRECTIONS:
        return []
    modes = find_modes(model, pilot)
    masses = np.exp(np.array([each.log_mass for each in modes]) - modes[0].log_mass)
    share = float(1.0 / masses.sum())
    if share >= 1.0 - _LEAST_SHARE:
        return []
    count, height = len(modes), min(each.barrier for each in modes[1:])
    short = f"the posterior has {count} modes, and a chain stays in one"
    text = (
        f"{short}: the one that was forecast has about {100 * share:.2g} % of the mass, and on the"
        f" way to another the negative log density rises by {height:.3g}. Chains that begin close"
        " together agree although they are all in one mode. Where parameters are interchangeable,"
        " declare them with flmc.supports.ordered; else use a prior that decides"
    )
    numbers = {"modes": float(count), "share": share, "barrier": height}
    return [Finding("several-modes", "warning", text, short, numbers)]


def arriving(model: Model, pilot: Pilot) -> Pilot:
    """The ``pilot`` itself if it arrived at a mode; else the first of three further pilots that
    arrives, each begun at the end of a descent of the cost; if none does, the ``pilot`` again."""
    if pilot.arrived or model.dim > MOST_DIRECTIONS:
        return pilot
    rng = generator(0, Purpose.CHECK, 6)
    for end in _descend(pilot, *_starts(model))[:_MOST_RESTARTS]:
        other = Pilot(model, rng, end)
        other.travel()
        pilot.num_batches += other.num_batches
        if other.arrived:
            other.num_batches = pilot.num_batches
            return other
    return pilot


def find_modes(model: Model, pilot: Pilot) -> list[Mode]:
    """The pilot's mode, and other modes of the posterior of the first data set that are separate
    from it and from each other."""
    modes = [Mode(pilot.theta, _curvature(pilot), 0.0, 0.0)]
    starts = _starts(model)
    if _convex(pilot, starts):
        return modes
    ends = _descend(pilot, *starts)
    ends = ends[_far(modes[0], ends)]
    ends = ends[_barriers(pilot, ends) > _SEPARATE]
    rng = generator(0, Purpose.CHECK, 5)
    for _ in range(_MOST_SEARCHES):
        if not len(ends):
            break
        other = Pilot(model, rng, ends[0])
        other.travel()
        pilot.num_batches += other.num_batches
        ends = ends[1:]
        if not other.arrived:
            continue
        heights = [_heights(pilot, known.theta, other.theta) for known in modes]
        if min(height.barrier for height in heights) > _SEPARATE:
            modes.append(Mode(other.theta, _curvature(other), *heights[0]))
            ends = ends[_far(modes[-1], ends)]
    return modes


class _Starts(NamedTuple):
    """Places all over the prior, (start, dim), and the prior's standard deviations, (dim)."""

    theta: Array
    sd: Array


def _starts(model: Model) -> _Starts:
    """Starts drawn from a normal law about the prior's mode with the prior's spread there, both
    found from the prior's gradient. Chains may start from a narrower law, if a user has set one."""
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,)) + 0.0
    sd = np.broadcast_to(np.asarray(model.prior.sd, dtype=np.float64), (model.dim,)) + 0.0

    def slopes(theta: Array) -> Array:
        return np.asarray(np.nan_to_num(model.num_devices * model.prior_share(theta[None])[0]))

    for _ in range(_NUM_PRIOR_STEPS):
        reach = 1e-2 * np.diag(sd)
        found = slopes(np.concatenate([mean[None], mean + reach, mean - reach]))
        change = np.diagonal(found[1 : model.dim + 1] - found[model.dim + 1 :]) / (2e-2 * sd)
        curved = change > 1e-12
        # In an entry in which the prior's cost has no positive curvature there is no Newton step:
        # ``sd`` stays as it is, and the step is one ``sd`` downhill.
        sd = np.where(curved, np.maximum(sd, 1.0 / np.sqrt(np.where(curved, change, 1.0))), sd)
        step = np.where(curved, found[0] / np.where(curved, change, 1.0), sd * np.sign(found[0]))
        step = np.clip(step, -3.0 * sd, 3.0 * sd)
        mean = mean - step
        if (np.abs(step) <= 1e-2 * sd).all():
            break
    rng = generator(0, Purpose.CHECK, 4)
    return _Starts(mean + sd * rng.standard_normal((_NUM_STARTS, model.dim)), sd)


def _slopes(pilot: Pilot, theta: Array, along: Array) -> Array:
    """Derivative of the summed cost in the direction ``along`` (place, dim), not normalised, at
    each theta (place, dim); (place)."""
    parts = [
        pilot.summed(theta[first : first + _NUM_POINTS])
        for first in range(0, len(theta), _NUM_POINTS)
    ]
    return np.asarray(np.einsum("pi,pi->p", np.concatenate(parts), along))


def _on_lines(pilot: Pilot, begin: Array, shares: Array) -> Array:
    """Slopes of the cost on the lines from ``begin`` (line, dim) to the pilot's mode, after these
    ``shares`` (point) of the way, (line, point)."""
    away = pilot.theta - begin
    places = begin[:, None] + shares[:, None] * away[:, None]
    every = np.broadcast_to(away[:, None], places.shape)
    dim = len(pilot.theta)
    slopes = _slopes(pilot, places.reshape(-1, dim), every.reshape(-1, dim))
    return np.asarray(slopes.reshape(len(begin), len(shares)))


def _convex(pilot: Pilot, starts: _Starts) -> bool:
    """Whether the cost is convex on the lines from all starts to the pilot's mode, as far as four
    points of each show."""
    slopes = _on_lines(pilot, starts.theta, np.arange(4) / 4)
    lines = np.append(slopes, np.zeros((len(slopes), 1)), axis=1)
    least = -1e-6 * np.abs(lines).max(axis=1, keepdims=True)
    return bool((np.diff(lines, axis=1) >= least).all())  # False where a slope is nan


def _descend(pilot: Pilot, theta: Array, sd: Array) -> Array:
    """Ends of descents from every ``theta`` (start, dim), whose first steps are a tenth of ``sd``.

    Every entry has a step of its own, which depends on signs of the gradient alone (Riedmiller and
    Braun's resilient propagation): it needs no curvature, and no cost."""
    step, before = np.broadcast_to(0.1 * sd, theta.shape), np.zeros(theta.shape)
    valid = theta
    for _ in range(_NUM_MOVES):
        slopes = pilot.summed(theta)
        finite = np.isfinite(slopes).all(axis=1, keepdims=True)
        agree = np.sign(slopes) * before
        step = step * np.where(agree > 0, _FASTER, np.where(agree < 0, _SLOWER, 1.0))
        # Where gradients overflow, the last good place is left again with a smaller step.
        step = np.where(finite, np.minimum(step, sd), _SLOWER * step)
        before = np.where(finite, np.where(agree < 0, 0.0, np.sign(slopes)), before)
        valid = np.where(finite, theta, valid)
        theta = valid - step * before
    return np.asarray(valid)


def _far(mode: Mode, ends: Array) -> BoolArray:
    """Whether each of ``ends`` (place, dim) is more than 3 + sqrt(dim) standard deviations of the
    mode's normal law away from the ``mode``, (place)."""
    away = ends - mode.theta
    square = np.einsum("pi,ij,pj->p", away, mode.curvature, away)
    return np.asarray(square > (3.0 + math.sqrt(len(mode.theta))) ** 2)


def _barriers(pilot: Pilot, ends: Array) -> Array:
    """Largest rise of the cost above its value at each of ``ends`` (place, dim), on the line from
    there to the pilot's mode, (place), from slopes at 16 points of the line."""
    if not len(ends):
        return np.zeros(0)
    slopes = np.nan_to_num(_on_lines(pilot, ends, (np.arange(16) + 0.5) / 16), nan=math.inf)
    return np.asarray((slopes / 16).cumsum(axis=1).max(axis=1))


class _Heights(NamedTuple):
    """Rise of the cost along a line: at its end above its beginning (``cost``), and of the highest
    point between above the higher of the two (``barrier``)."""

    cost: float
    barrier: float


def _heights(pilot: Pilot, begin: Array, end: Array) -> _Heights:
    """Rise of the cost on the line from ``begin`` to ``end``, both (dim): at the end, and of the
    highest point between."""
    # The midpoint rule has an error in proportion to the difference of the integrand's slopes at
    # both ends, which are curvatures at modes: next to nothing beside a barrier.
    shares = (np.arange(_NUM_POINTS) + 0.5) / _NUM_POINTS
    away = end - begin
    places = begin + shares[:, None] * away
    slopes = np.nan_to_num(_slopes(pilot, places, np.broadcast_to(away, places.shape)))
    climbed = np.append(0.0, slopes.cumsum() / _NUM_POINTS)
    return _Heights(float(climbed[-1]), float(climbed.max() - max(0.0, climbed[-1])))


def _curvature(pilot: Pilot) -> Array:
    """Curvature of the summed cost where a pilot arrived, (dim, dim)."""
    basis, matrix = pilot.curves[-1].basis, pilot.curves[-1].matrix
    whole = basis.T @ matrix @ basis
    return np.asarray((whole + whole.T) / 2)
