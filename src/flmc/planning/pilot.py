"""A short pilot with exact gradients before a run: it goes from the prior's mean to the posterior's
mode, measures the curvature, and takes a few draws around the mode.

It is Newton's method with curvatures from differences of the summed gradient. It needs only
gradients, some tens of batches, and gives up on a model whose gradients are not finite."""

from __future__ import annotations

import weakref
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear

_AT_ONCE = 8_000_000
"""Largest number of gradient entries (values of theta x devices x dim) that are held in memory at a
time: 64 MB."""


def places_at_once(model: Model) -> int:
    """Number of values of theta for which the local gradients of all devices fit into 64 MB
    together."""
    return max(1, _AT_ONCE // (model.num_devices * model.dim))


def summed_gradients(model: Model, theta: Array) -> Array:
    """Gradient of the sum of all local costs of the first data set, (place, dim), at the values
    ``theta`` (place, dim), computed for a few of them at a time where there are many entries."""
    if isinstance(model, WideLinear):
        return model.summed_gradient(theta)
    size = places_at_once(model)
    parts = [
        model.gradient(theta[None, first : first + size], slice(0, 1))[0].sum(axis=1)
        for first in range(0, len(theta), size)
    ]
    return np.concatenate(parts)


MOST_DIRECTIONS = 128
"""Largest number of entries of theta for which the whole curvature matrix is measured, in one batch
of gradients at twice as many values of theta; beyond, Lanczos' method finds the directions that
matter."""
_MOST_LANCZOS = 12
"""Largest number of steps of Lanczos' method, each with gradients at two values of theta."""
_MOST_STEPS = 20
"""Largest number of steps of Newton's method where the whole curvature matrix is measured; a pilot
that is not near the mode after them has not arrived."""
_MOST_LONG_STEPS = 4
"""Largest number of steps of Newton's method where Lanczos' method measures the curvature in a few
directions."""
_MOST_TRIALS = 12
"""Largest number of values of theta along a step of Newton's method at which the gradient is
evaluated."""
_REACH = 0.1
"""Half the distance between the two values of theta of a difference quotient, in posterior standard
deviations along its direction: large enough that rounding and small kinks do not matter."""
_NEAR = 0.25
"""Squared distance from the mode, relative to the mean squared distance of draws from the
posterior, below which the pilot has arrived."""
_NUM_DRAWS, _NUM_MOVES = 8, 12
"""Number of chains that draw around the mode, and number of Langevin steps of each. The step suits
the largest curvature, so that directions with the largest gradients reach equilibrium first."""


@dataclass(frozen=True)
class MeasuredCurvature:
    """Second derivatives of the sum of all devices' local costs at one theta, measured along some
    directions.

    Attributes
    ----------
    basis
        The directions, orthonormal, (direction, dim).
    matrix
        Curvature in these directions as it was measured, (direction, direction): not symmetric if
        the model's gradient is not the gradient of a function.
    """

    basis: Array
    matrix: Array

    @property
    def eigenvalues(self) -> Array:
        """Eigenvalues of the measured curvature (of its symmetric part), ascending, (direction)."""
        return np.asarray(np.linalg.eigvalsh((self.matrix + self.matrix.T) / 2))

    @property
    def asymmetry(self) -> float:
        """Largest deviation of the measured matrix from symmetry, relative to its diagonal; 0 for
        the curvature of a function."""
        scale = np.sqrt(np.abs(np.diag(self.matrix)))
        scale = np.maximum(scale, 1e-6 * scale.max())
        return float(np.abs((self.matrix - self.matrix.T) / np.outer(scale, scale)).max())


class Pilot:
    """A search for the posterior's mode on the first data set of a model, before a run: it finds
    the mode, measures the curvature, and draws around the mode. ``rng`` is its own source of random
    numbers; ``start`` is where the search begins, (dim), None: near the prior's mean."""

    def __init__(self, model: Model, rng: np.random.Generator, start: Array | None = None) -> None:
        # A weak reference, because surveys are kept by model and must not keep the model alive.
        self._asked, self._rng = weakref.ref(model), rng
        self._sd = np.broadcast_to(np.asarray(model.prior.sd, dtype=np.float64), (model.dim,))
        mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
        # The start is a little beside the prior's mean, which may be a saddle point by symmetry.
        beside = mean + 1e-3 * self._sd * rng.standard_normal(model.dim)
        self.theta: Array = beside if start is None else start
        """Present theta of the pilot's search, which ends at the posterior's mode, (dim)."""
        self._reach = 1e-4 * self._sd
        self.curves: list[MeasuredCurvature] = []
        """Curvatures measured at the values of theta that the search visited: at its start first,
        at its end last."""
        self.num_batches = 0
        """Number of batches of gradients that were evaluated so far, each at one or more values of
        theta."""
        self.arrived = False
        """Whether the search ended at a mode of the posterior: the gradient there is small beside
        its standard deviation over the posterior, and all curvatures are positive."""

    @property
    def _model(self) -> Model:
        """The pilot's model, which must still exist: the pilot has only a weak reference to it."""
        model = self._asked()
        assert model is not None
        return model

    def summed(self, theta: Array) -> Array:
        """Gradient of the sum of all local costs, (place, dim), at each of several theta (place,
        dim), without any clipping."""
        self.num_batches += 1
        return summed_gradients(self._model, theta)

    def travel(self) -> None:
        """Go from the search's start towards the posterior's mode by Newton's method: ``curves``
        gets the curvature at each point on the way, ``theta`` is the last point, and ``arrived``
        whether that is a mode."""
        long = len(self.theta) > MOST_DIRECTIONS
        gradient = self.summed(self.theta[None])[0]
        curve = self._curve(gradient)
        for _ in range(_MOST_LONG_STEPS if long else _MOST_STEPS):
            if curve is None:
                return
            self.curves.append(curve)
            step = _newton_step(curve, gradient)
            rest = float(-gradient @ step)
            near = curve.eigenvalues[0] > 0 and rest < _NEAR * len(gradient)
            if curve.eigenvalues[0] < 0 and 0 < rest < 1:
                # Near a saddle point the gradient almost vanishes, and so does the step: it is
                # lengthened to one standard deviation by the measured curvatures.
                step = step / np.sqrt(rest)
            reached = self._line_search(step, gradient)
            if reached is None:
                return
            self.theta, gradient = reached
            curve = self._curve(gradient)
            if near:
                break
        if curve is None:
            return
        self.curves.append(curve)
        positive = bool(curve.eigenvalues[0] > 0)
        decrement = float(-gradient @ _newton_step(curve, gradient))
        self.arrived = positive and decrement < _NEAR * len(gradient)

    def _line_search(self, step: Array, gradient: Array) -> tuple[Array, Array] | None:
        """Value of theta on the line from the present one to ``step`` beyond it at which the cost
        has a small slope along the line, and the gradient at that value; None if no better theta is
        found.

        The whole step is taken unless the cost rises steeply at its end; else the point where the
        cost begins to rise is enclosed by halving."""
        slope, low, high = abs(float(gradient @ step)), 0.0, 1.0
        share, best = 1.0, None
        for _ in range(_MOST_TRIALS):
            there = self.theta + share * step
            then = self.summed(there[None])[0]
            rise = float(then @ step) if np.isfinite(then).all() else np.inf
            if rise > 0.5 * slope:
                high = share
            else:
                best = there, then
                if share == 1.0 or rise > -0.5 * slope:
                    break
                low = share
            # Far beyond the minimum the gradient may overflow: the next value of theta is then much
            # nearer than by halving.
            share = low + (high - low) * (0.5 if np.isfinite(rise) else 0.1)
        return best

    def _curve(self, gradient: Array) -> MeasuredCurvature | None:
        """Curvature of the summed cost at the present theta; None where it is not finite."""
        if not np.isfinite(gradient).all():
            return None
        if len(self.theta) > MOST_DIRECTIONS:
            return self._lanczos(gradient)
        basis = np.eye(len(self.theta))
        if not self.curves:
            # Curvatures from gradients at values of theta that are very close together are rough;
            # they tell how far apart these values should be for the curvatures that are used.
            self._reach = self._reaches(np.diag(self._differences(basis, self._reach)), self._sd)
        matrix = self._differences(basis, self._reach)
        if not np.isfinite(matrix).all():
            return None
        self._reach = self._reaches(np.diag(matrix), self._sd)
        return MeasuredCurvature(basis, matrix)

    def _reaches(self, curvature: Array, most: Array | float) -> Array:
        """Distances from theta at which gradients are taken for difference quotients, (direction):
        a tenth of the posterior standard deviation that the ``curvature`` (direction) implies, but
        at most ``most``."""
        with np.errstate(divide="ignore"):
            return np.minimum(_REACH / np.sqrt(np.abs(curvature)), most)

    def _differences(self, directions: Array, reach: Array) -> Array:
        """Matrix of curvatures along ``directions`` (direction, dim), from central difference
        quotients of the summed gradient at the distances ``reach`` (direction) from the present
        theta; (direction, direction)."""
        offsets = directions * reach[:, None]
        both = self.summed(np.concatenate([self.theta + offsets, self.theta - offsets]))
        change = (both[: len(offsets)] - both[len(offsets) :]) / (2 * reach[:, None])
        return np.asarray(change @ directions.T)

    def _lanczos(self, gradient: Array) -> MeasuredCurvature | None:
        """Curvature of the summed cost in the at most 12 directions that Lanczos' method finds,
        starting from the gradient; None where it is not finite."""
        length = float(np.linalg.norm(gradient))
        start = gradient / length if length else self._rng.standard_normal(len(gradient))
        vectors = [start / np.linalg.norm(start)]
        images: list[Array] = []
        reach = float(self._reach.min())
        for _ in range(_MOST_LANCZOS):
            offset = reach * vectors[-1]
            up, down = self.summed(np.stack([self.theta + offset, self.theta - offset]))
            image = (up - down) / (2 * reach)
            if not np.isfinite(image).all():
                return None
            images.append(image)
            curvature = float(np.linalg.norm(image))
            reach = float(self._reaches(np.array(curvature), float(self._sd.max())))
            known = np.array(vectors)
            left = image - known.T @ (known @ image)
            left -= known.T @ (known @ left)  # orthogonalised a second time, against rounding
            if np.linalg.norm(left) < 1e-6 * curvature:
                break
            vectors.append(left / np.linalg.norm(left))
        basis = np.array(vectors[: len(images)])
        return MeasuredCurvature(basis, np.array(images) @ basis.T)

    def draw(self, temperature: float) -> Array:
        """At most eight draws around the mode, (place, dim), by Langevin steps with exact gradients
        at a ``temperature``. All start at the mode, so that only directions of large curvature
        reach their full variance, ``temperature`` times the posterior's."""
        # The step 0.4/L is stable, and makes a chain forget its start along the direction of
        # largest curvature within the few steps that it takes.
        largest = float(self.curves[-1].eigenvalues[-1])
        step = 0.4 / largest
        count = min(_NUM_DRAWS, places_at_once(self._model))
        theta = np.broadcast_to(self.theta, (count, len(self.theta)))
        spread, moves = np.sqrt(2 * step * temperature), range(_NUM_MOVES)
        if isinstance(self._model, WideLinear):
            noise = [spread * self._rng.standard_normal(theta.shape) for _ in moves]
            return self._model.after_steps(theta, step, np.stack(noise))
        for _ in moves:
            theta = (
                theta - step * self.summed(theta) + spread * self._rng.standard_normal(theta.shape)
            )
        return np.asarray(theta)


def _newton_step(curve: MeasuredCurvature, gradient: Array) -> Array:
    """Newton's step in the measured directions, (dim), with the magnitudes of curvatures, so that
    it goes downhill even where the curvature is negative."""
    matrix = (curve.matrix + curve.matrix.T) / 2
    # The matrix is scaled to a unit diagonal, so that the small curvatures of entries with large
    # units survive the rounding of the eigenvalues.
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.maximum(scale, 1e-12 * scale.max() + 1e-300)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    size = np.maximum(np.abs(values), 1e-10 * np.abs(values).max() + 1e-300)
    inside = (curve.basis @ gradient) / scale
    return np.asarray(-curve.basis.T @ ((vectors @ ((vectors.T @ inside) / size)) / scale))
