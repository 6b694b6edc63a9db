r"""Curvature of a negative log posterior, measured with JAX: the mode, and the largest and the
smallest eigenvalue of the Hessian there.

Up to 300 entries of theta the whole matrix of second derivatives is formed, and the mode is found
by Newton's method with a trust region: the results are exact up to rounding, whatever the units and
the order of entries. For larger models, Lanczos' method gives bounds on the safe side. After k
steps from a random direction, the extreme eigenvalues that it computes lie within
:math:`\varepsilon(\lambda_{\max} - \lambda_{\min})` of those of the Hessian, :math:`\lambda_{\max}`
and :math:`\lambda_{\min}`, except with probability
:math:`1.648\sqrt{m}\,e^{-\sqrt\varepsilon(2k-1)}` for m entries (Kuczyński and Woźniakowski 1992,
theorem 4.2; adding a multiple of the identity changes nothing in the method, so the theorem also
holds for matrices that are not positive definite)."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

FLAT = "the posterior is flat in some direction: give scale"
"""Error message where coordinates are to be made from a posterior without a finite covariance."""
MOST_DENSE = 300
"""Largest number of entries of theta with which the whole matrix of second derivatives is formed.
With more, curvatures are measured by products of this matrix with vectors."""
_FEW = 64
"""Largest number of entries of theta with which every step of the descent to the mode uses the
whole matrix of second derivatives. Above it, the first steps use second derivatives in few
directions."""
_MANY = 5000
"""Number of entries of theta above which curvatures are measured with fewer steps of Lanczos'
method, because each step costs about a gradient, which takes long."""
_MOST_STEPS = 200
"""Largest number of steps of the descent to the mode where the whole matrix is formed; some ten are
usual. A descent that has not arrived then raises ``InvalidSetting``."""
_ARRIVED = 1e-12
"""Squared distance from the mode, in standard deviations of the posterior, below which the descent
ends."""
_KINK = 1e12
"""A descent that finds no lower value nearby counts as having reached the mode, at a kink of the
log density, if the squared distance to the mode, which slope and curvature predict in standard
deviations of the posterior, is below this. Above it, the descent is stuck because its differences
are below rounding."""
_RISE = 0.05
"""Smallest rise of the negative log posterior from a point to one standard deviation beside it with
which the point counts as a mode; a normal law has 0.5."""
_TOGETHER = 8
"""Number of directions whose second derivatives are computed together, so that memory stays
bounded."""
_FAILURE = 1e-4
"""Probability, over the random direction in which Lanczos' method starts, that the bound of the
largest or of the smallest eigenvalue does not hold."""


class _Effort(NamedTuple):
    """Amount of work for a model with many entries: ``measured`` is the number of steps of Lanczos'
    method that measure curvatures at a point; ``descent`` is the number of Newton's steps to the
    mode, each from ``each`` steps of Lanczos' method."""

    measured: int
    descent: int
    each: int


_ORDINARY, _LARGE = _Effort(60, 60, 60), _Effort(30, 3, 15)


@dataclass(frozen=True)
class _Place:
    """Quadratic approximation of the negative log posterior about ``theta`` (dim): its value
    ``cost``, its ``gradient`` (dim), and its second derivatives ``matrix`` (direction, direction)
    along the rows of ``basis`` (direction, dim). The rows are so long that these derivatives are
    about 1 or less."""

    theta: Array
    cost: float
    gradient: Array
    basis: Array
    matrix: Array

    @cached_property
    def axes(self) -> tuple[Array, Array]:
        """Principal curvatures of the negative log posterior in the space of the rows of ``basis``,
        ascending, (direction), and their directions as columns, (direction, direction)."""
        values, vectors = np.linalg.eigh(self.matrix)
        return values, vectors

    @property
    def hessian(self) -> Array:
        """Hessian of the negative log posterior at ``theta``, (dim, dim). Only valid if ``basis``
        is a diagonal matrix (dim, dim)."""
        unit = 1.0 / np.diag(self.basis)
        return np.asarray(self.matrix * np.outer(unit, unit))

    @property
    def inside(self) -> Array:
        """Slopes of the negative log posterior at ``theta`` along the principal directions of its
        curvature, (direction)."""
        return np.asarray(self.axes[1].T @ (self.basis @ self.gradient))

    @property
    def flat(self) -> float:
        """Size up to which a principal curvature of the negative log posterior cannot be told from
        0, because of rounding."""
        return float(1e-12 * np.abs(self.axes[0]).max() + 1e-300)

    @property
    def left(self) -> float:
        """Squared distance from ``theta`` to the mode in standard deviations, by the quadratic
        approximation; infinite at a saddle, where a principal curvature is negative."""
        values = self.axes[0]
        if values[0] < -1e3 * self.flat:
            return math.inf
        return float(np.sum(np.square(self.inside) / np.maximum(values, self.flat)))

    def step(self, radius: float) -> tuple[Array, float, float]:
        """Step of a trust region from ``theta``. Returns the move (dim) that lowers the quadratic
        approximation most, among moves whose length, in units of the rows of ``basis``, is at most
        ``radius``; this length; and by how much the move lowers the approximation."""
        values, vectors = self.axes
        inside = self.inside
        lowest = self.flat + max(0.0, -float(values[0]))
        # With the Hessian H and slopes g, -(H + shift I)^-1 g lowers the quadratic most among all
        # moves of its length, if H + shift I is positive definite. So the trust region's step has
        # this form, for some shift; here H is diagonal, with the entries ``values``.
        shift = 0.0 if values[0] > self.flat else lowest
        move = -inside / (values + shift)
        if np.linalg.norm(move) > radius:
            # The length of the move falls while the shift grows, and is at most the radius at
            # ``high``.
            low, high = shift, lowest + float(np.linalg.norm(inside)) / radius
            for _ in range(60):
                shift = (low + high) / 2
                longer = np.linalg.norm(inside / (values + shift)) > radius
                low, high = (shift, high) if longer else (low, shift)
            move = -inside / (values + high)
        elif values[0] < -1e3 * self.flat:
            # A saddle: the slope along the direction that curves down most is nearly 0, so the move
            # above hardly uses it. The rest of the radius is moved along it, to leave the saddle.
            rest = math.sqrt(max(0.0, radius**2 - float(move[1:] @ move[1:])))
            move[0] = math.copysign(rest, -inside[0])
        gain = -float(inside @ move + 0.5 * np.sum(values * np.square(move)))
        length = float(np.linalg.norm(move))
        return np.asarray(self.basis.T @ (vectors @ move)), length, gain


class CurvatureMeter:
    """Measures the largest and smallest curvature (eigenvalues of the Hessian) of a negative log
    posterior, and finds its mode. The function ``total`` gives the negative log posterior of one
    theta (dim), up to a constant."""

    def __init__(self, jax: Any, total: Callable[[Any], Any]) -> None:
        self._jax = jax
        self._value = jax.jit(jax.value_and_grad(total))
        self._product = jax.jit(lambda theta, way: jax.jvp(jax.grad(total), (theta,), (way,))[1])
        self._products = jax.jit(jax.vmap(self._product, in_axes=(None, 0)))
        self._mode: _Place | None = None

    def measure(self, theta: Array) -> tuple[float, float | None]:
        """Smoothness and convexity: bounds of the largest and the smallest curvature of the
        negative log posterior.

        The smoothness is at least the largest curvature (of either sign) at ``theta`` (dim) and at
        the mode that a descent from there reaches. The convexity is at most the smallest curvature
        at that mode, and at ``theta`` where it curves up there in all directions; None where it is
        not known to be positive. Up to 300 entries both are exact, and a posterior without a mode
        is refused. Beyond, both are bounds that hold except with probability 1e-4; above 5000
        entries, and where the descent does not arrive, the place that it reaches stands in for the
        mode, and the convexity is None."""
        with self._jax.enable_x64():
            if len(theta) <= MOST_DENSE:
                end = self._found(theta)
                start = end if np.array_equal(end.theta, theta) else self._dense(theta)
                ends = [_exact_ends(start), _exact_ends(end)]
                arrived = True
            else:
                effort = _LARGE if len(theta) > _MANY else _ORDINARY
                end, arrived = self._descend(theta, effort.descent, effort.each)
                ends = [self._bounds(place, effort) for place in (theta, end.theta)]
        largest = max(each[0] for each in ends)
        smallest = min(ends[1][1], ends[0][1] if ends[0][1] > 0 else math.inf)
        return max(largest, 1e-12), smallest if smallest > 0 and arrived else None

    def mode(self, theta: Array) -> Array:
        """Mode of the posterior, (dim), that a descent from ``theta`` (dim) reaches. Theta has at
        most 300 entries."""
        with self._jax.enable_x64():
            return self._found(theta).theta

    def laplace(self, theta: Array) -> tuple[Array, Array]:
        """Mode of the posterior that a descent from ``theta`` (dim) reaches, (dim), and the inverse
        of the Hessian of the negative log posterior at the mode, (dim, dim)."""
        with self._jax.enable_x64():
            mode = self._found(theta)
        inverse = _inverse(mode)
        if inverse is None:
            raise InvalidSetting(FLAT)
        return mode.theta, inverse

    def _found(self, theta: Array) -> _Place:
        """Mode of the posterior and the curvature of the negative log posterior at it, found by a
        descent from ``theta`` (dim) with whole matrices of second derivatives; ``InvalidSetting``
        if none is found."""
        if self._mode is None:
            near = theta
            # Most of the way to the mode is descended with second derivatives in few directions,
            # which takes less time.
            if len(theta) > _FEW:
                near = self._descend(theta, 10, _ORDINARY.each)[0].theta
            place, arrived = self._descend(near, _MOST_STEPS, None)
            if not arrived or not self._rises(place, place.theta - theta):
                raise InvalidSetting(
                    "the curvature cannot be measured: a descent from the start finds no mode of"
                    f" the log posterior in {_MOST_STEPS} steps; give a proper prior, another"
                    " start, or smoothness"
                )
            self._mode = place
        return self._mode

    def _rises(self, place: _Place, way: Array) -> bool:
        """Whether the negative log posterior rises on both sides of a mode, ``place``, along
        ``way`` (dim), the last direction of the descent: it does not where the descent follows a
        slope that gets flatter for ever."""
        curvature = float(way @ place.hessian @ way)
        if not curvature > 0:
            return not way.any()
        # Both points are one standard deviation from the mode, where a parabola with this curvature
        # is higher than at the mode by 0.5.
        sides = (place.theta + sign * way / math.sqrt(curvature) for sign in (1.0, -1.0))
        return all(not float(self._value(each)[0]) < place.cost + _RISE for each in sides)

    def _descend(self, theta: Array, most: int, each: int | None) -> tuple[_Place, bool]:
        """Newton's method with a trust region from ``theta`` (dim). Returns the place that it
        reaches in at most ``most`` steps, and whether this is the mode. ``each`` is the number of
        Lanczos' steps for each of Newton's steps; None: the whole matrix of second derivatives is
        used."""

        def look(theta: Array) -> _Place | None:
            return self._dense_or_none(theta) if each is None else self._krylov(theta, each)

        place = look(theta)
        if place is None:
            raise _not_finite()
        radius = 10.0 * math.sqrt(len(theta))
        for _ in range(most):
            if place.left < _ARRIVED:
                return place, True
            move, length, expected = place.step(radius)
            # The negative log posterior is a sum of many numbers, and differences of it below
            # ``noise`` are rounding errors.
            noise = 1e-13 * (1.0 + abs(place.cost))
            cost = float(self._value(place.theta + move)[0])
            gain = place.cost - cost + noise
            # ``gain >= ...`` is false if the cost is NaN, so that a step to such a point is refused
            # too.
            candidate = look(place.theta + move) if gain >= 0.1 * expected else None
            if candidate is None or (expected < noise and not candidate.left < place.left):
                # If the expected decrease is within rounding, the mode is reached.
                if expected < noise:
                    return place, True
                radius = 0.25 * length
                # If nothing is lower within a millionth of a standard deviation, the descent ends,
                # at a kink of the log density.
                if radius < 1e-6:
                    return place, place.left < _KINK
                continue
            if gain >= 0.75 * expected:
                radius *= 4.0
            place = candidate
        return place, False

    def _dense(self, theta: Array) -> _Place:
        """Quadratic approximation of the negative log posterior about theta (dim), with all second
        derivatives; ``InvalidSetting`` where they are not finite."""
        place = self._dense_or_none(theta)
        if place is None:
            raise _not_finite()
        return place

    def _dense_or_none(self, theta: Array) -> _Place | None:
        """Quadratic approximation of the negative log posterior about theta (dim), with all second
        derivatives; None where a derivative is not finite."""
        cost, gradient = self._value(theta)
        identity = np.eye(len(theta))
        rows = []
        for first in range(0, len(theta), _TOGETHER):
            # All blocks of directions have one shape, so that the Hessian's products are compiled
            # once.
            block = np.zeros((_TOGETHER, len(theta)))
            some = identity[first : first + _TOGETHER]
            block[: len(some)] = some
            rows.append(np.array(self._products(theta, block))[: len(some)])
        hessian = np.concatenate(rows)
        return _place(theta, cost, gradient, (hessian + hessian.T) / 2)

    def _krylov(self, theta: Array, steps: int) -> _Place | None:
        """Quadratic approximation of the negative log posterior about theta (dim), with second
        derivatives only along the directions that ``steps`` steps of Lanczos' method find,
        beginning with the gradient; None where a derivative is not finite."""
        cost, gradient = self._value(theta)
        gradient = np.array(gradient)
        start = gradient if gradient.any() else np.ones(len(theta))
        found = self._lanczos(theta, start, steps)
        if found is None or not np.isfinite(float(cost)):
            return None
        basis, matrix = found
        unit = math.sqrt(float(np.abs(np.linalg.eigvalsh(matrix)).max())) or 1.0
        return _Place(theta, float(cost), gradient, basis / unit, matrix / unit**2)

    def _lanczos(self, theta: Array, start: Array, steps: int) -> tuple[Array, Array] | None:
        """At most ``steps`` orthonormal directions (direction, dim), the first along ``start``, and
        the Hessian of the negative log posterior at theta (dim) along them, (direction, direction),
        by Lanczos' method; None where the Hessian is not finite."""
        if not np.isfinite(start).all():
            return None
        vectors, images = [start / np.linalg.norm(start)], []
        for _ in range(min(steps, len(theta))):
            image = np.array(self._product(theta, vectors[-1]))
            if not np.isfinite(image).all():
                return None
            images.append(image)
            known = np.array(vectors)
            rest = image - known.T @ (known @ image)
            rest -= known.T @ (known @ rest)  # orthogonalised a second time, against rounding
            length = float(np.linalg.norm(rest))
            if length <= 1e-10 * max(float(np.linalg.norm(each)) for each in images):
                break
            vectors.append(rest / length)
        basis = np.array(vectors[: len(images)])
        matrix = np.array(images) @ basis.T
        return basis, (matrix + matrix.T) / 2

    def _bounds(self, theta: Array, effort: _Effort) -> tuple[float, float]:
        """Upper bound of the magnitude of the Hessian's eigenvalues at theta (dim), and lower bound
        of the eigenvalues, by ``effort.measured`` steps of Lanczos' method."""
        # a fixed seed, so that the same model gives the same plan every time
        start = np.random.default_rng(0).standard_normal(len(theta))
        found = self._lanczos(theta, start, effort.measured)
        if found is None:
            raise _not_finite()
        values = np.linalg.eigvalsh(found[1])
        # By the theorem of Kuczyński and Woźniakowski each of the two bounds fails with half the
        # probability ``_FAILURE``, so that both hold except with that probability.
        doubt = math.log(1.648 * math.sqrt(len(theta)) * 2.0 / _FAILURE)
        share = (doubt / (2 * effort.measured - 1)) ** 2
        # The extreme values of Lanczos' method differ from the extreme eigenvalues by at most
        # ``share`` times the width of the range of eigenvalues. So this width is at most that of
        # the computed values over 1 - 2 share.
        margin = share / (1.0 - 2.0 * share) * float(values[-1] - values[0])
        low, high = float(values[0]) - margin, float(values[-1]) + margin
        return max(high, -low), low


def _not_finite() -> InvalidSetting:
    return InvalidSetting(
        "the curvature cannot be measured: the log densities have no finite second derivative at"
        " the start; scale the features to about 1, choose another start, or give smoothness"
    )


def _place(theta: Array, cost: Any, gradient: Any, hessian: Array) -> _Place | None:
    """Quadratic approximation of the negative log posterior about ``theta`` (dim), from its value
    ``cost``, its ``gradient`` (dim) and its ``hessian`` (dim, dim). Its basis has a unit for each
    entry of theta, such that no second derivative is larger than 1. None if a number is not
    finite."""
    if not (
        np.isfinite(float(cost)) and np.isfinite(gradient).all() and np.isfinite(hessian).all()
    ):
        return None
    unit = np.sqrt(np.abs(np.diag(hessian)))
    unit[unit == 0] = 1.0
    for _ in range(4):  # one pass is enough, unless the Hessian is indefinite
        row = np.sqrt(np.abs(hessian / np.outer(unit, unit)).max(axis=1))
        unit = unit * np.where(row > 0, row, 1.0)
    scaled = hessian / np.outer(unit, unit)
    return _Place(theta, float(cost), np.array(gradient), np.diag(1.0 / unit), scaled)


def _inverse(place: _Place) -> Array | None:
    """Inverse of the Hessian of the negative log posterior, (dim, dim), from the quadratic
    approximation ``place``; None unless the Hessian is positive definite."""
    values, vectors = place.axes
    if not values[0] > 1e3 * place.flat:
        return None
    inside = (vectors / values) @ vectors.T
    return np.asarray(place.basis.T @ inside @ place.basis)


def _exact_ends(place: _Place) -> tuple[float, float]:
    """Upper bound of the largest magnitude of an eigenvalue of the Hessian at ``place``, and lower
    bound of its smallest eigenvalue, with room for rounding errors."""
    values = np.linalg.eigvalsh(place.hessian)
    rounding = len(values) * np.finfo(np.float64).eps
    largest = float(np.abs(values).max()) * (1.0 + rounding)
    inverse = _inverse(place)
    if inverse is None:
        return largest, min(0.0, float(values[0]))
    # The smallest eigenvalue is computed from the inverse, which gives it accurately even if the
    # entries of theta have very unlike units.
    lowest = float(place.axes[0][0])
    smallest = (1.0 - 10.0 * rounding / lowest) / float(np.linalg.eigvalsh(inverse)[-1])
    return largest, max(smallest, 0.0)


def diagonal_curvature(jax: Any, cost: Callable[[Any], Any], theta: Array) -> Array:
    """Diagonal of the Hessian of the function ``cost`` at theta (dim), (dim): exact up to 300
    entries, or if the Hessian is diagonal, else an estimate from random directions."""
    with jax.enable_x64():
        product = jax.jit(lambda at, way: jax.jvp(jax.grad(cost), (at,), (way,))[1])
        if len(theta) <= MOST_DENSE:
            return np.array([product(theta, way) @ way for way in np.eye(len(theta))])
        # Hutchinson's estimate: the mean of s * Hs over random signs s is the diagonal of H.
        signs = np.where(np.random.default_rng(0).random((8, len(theta))) < 0.5, -1.0, 1.0)
        products = [np.array(product(theta, each)) * each for each in signs]
        return np.asarray(np.mean(products, axis=0))
