"""Curvatures of a negative log posterior, and its mode, in double precision by JAX."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

_NEWTON_STEPS = 100
"""Newton steps to the mode at most."""
_MANY = 5000
"""Entries from which on less is measured: a gradient takes long, and the smallest curvature of so
many is hardly found by a power iteration."""


class _Effort(NamedTuple):
    """Steps of power iteration and of descent, and the factor for what the iteration misses."""

    power_steps: int
    descent_steps: int
    factor: float


_ORDINARY, _LARGE = _Effort(60, 300, 1.02), _Effort(20, 60, 1.1)


class Curvature:
    """Curvatures of a function of theta, and where it is least.

    Parameters
    ----------
    jax
        The module.
    total
        Negative log posterior of one theta, (dim), up to a constant.
    """

    def __init__(self, jax: Any, total: Callable[[Any], Any]) -> None:
        self._jax, self._total = jax, total
        self._slope = jax.jit(jax.grad(total))
        self._product = jax.jit(lambda theta, way: jax.jvp(jax.grad(total), (theta,), (way,))[1])

    def measure(self, theta: Array) -> tuple[float, float | None]:
        """Largest and smallest curvature here and near the mode; None: not convex, or not measured.

        Parameters
        ----------
        theta
            Where to begin, (dim).
        """
        effort = _LARGE if len(theta) > _MANY else _ORDINARY
        with self._jax.enable_x64():
            largest, smallest = self._extremes(theta, effort)
            for _ in range(effort.descent_steps):
                pull = np.array(self._slope(theta))
                moved = theta - pull / largest
                if not np.isfinite(moved).all():
                    break
                theta = moved
            there = self._extremes(theta, effort)
        largest, smallest = max(largest, there[0]), min(smallest, there[1])
        return largest, smallest if smallest > 0 else None

    def _extremes(self, theta: Array, effort: _Effort) -> tuple[float, float]:
        """Largest and smallest eigenvalue of the Hessian, by power iteration; 0 for a smallest that
        is not measured."""
        dominant = self._dominant(theta, 0.0, effort)
        # The iteration approaches from below; the last steps change little. Where the dominant
        # curvature is downwards, the step must respect it as well.
        largest = effort.factor * max(abs(dominant), 1e-12)
        if effort is _LARGE:
            return largest, 0.0
        # The smallest is the one farthest from the largest.
        return largest, largest - max(self._dominant(theta, largest, effort), 0.0)

    def _dominant(self, theta: Array, shift: float, effort: _Effort) -> float:
        """Eigenvalue of largest magnitude of the Hessian, or of a multiple of the identity less
        the Hessian."""
        vector = np.random.default_rng(0).standard_normal(len(theta))
        value = 0.0
        for _ in range(effort.power_steps):
            vector = vector / np.linalg.norm(vector)
            product = np.array(self._product(theta, vector))
            moved = shift * vector - product if shift else product
            value, vector = float(vector @ moved), moved
            if not np.isfinite(vector).all() or not vector.any():
                break
        if not np.isfinite(value):
            raise InvalidSetting(
                "the curvature cannot be measured: the log densities have no finite second"
                " derivative there; scale the features to about 1, or give smoothness"
            )
        return value

    def laplace(self, theta: Array) -> tuple[Array, Array]:
        """Mode of the posterior and the inverse of the curvature there, by damped Newton steps.

        Parameters
        ----------
        theta
            Where to begin, (dim).
        """
        jax = self._jax
        with jax.enable_x64():
            cost, curvature = jax.jit(self._total), jax.jit(jax.hessian(self._total))
            for _ in range(_NEWTON_STEPS):
                pull = np.array(self._slope(theta))
                inverse = np.linalg.pinv(np.array(curvature(theta)), hermitian=True)
                step, now, length = inverse @ pull, float(cost(theta)), 1.0
                while not float(cost(theta - length * step)) <= now and length > 1e-6:
                    length /= 2.0
                theta = theta - length * step
                if float(step @ pull) < 1e-12:
                    break
            try:
                return theta, np.linalg.inv(np.array(curvature(theta)))
            except np.linalg.LinAlgError:
                raise InvalidSetting(
                    "the posterior is flat in some direction: give scale"
                ) from None


def diagonal_curvature(jax: Any, cost: Callable[[Any], Any], theta: Array) -> Array:
    """Diagonal of the Hessian of a function, (dim); exact where the Hessian is diagonal.

    Parameters
    ----------
    jax
        The module.
    cost
        A function of one theta.
    theta
        Where, (dim).
    """
    with jax.enable_x64():
        product = jax.jit(lambda at, way: jax.jvp(jax.grad(cost), (at,), (way,))[1])
        signs = np.where(np.random.default_rng(0).random((8, len(theta))) < 0.5, -1.0, 1.0)
        products = [np.array(product(theta, each)) * each for each in signs]
        return np.asarray(np.mean(products, axis=0))
