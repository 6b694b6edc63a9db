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
"""Largest number of gradient entries, over places, devices and dim, that are held in memory at a
time: 64 MB."""


def places_at_once(model: Model) -> int:
    """Number of values of theta for which the local gradients of all devices fit into 64 MB
    together."""
    return max(1, _AT_ONCE // (model.num_devices * model.dim))


def summed_gradients(model: Model, theta: Array) -> Array:
    """Gradient of the sum of all local costs of the first data set, (place, dim), at theta (place,
    dim), a few places at a time where there are many entries."""
    if isinstance(model, WideLinear):
        return model.summed_gradient(theta)
    size = places_at_once(model)
    parts = [
        model.gradient(theta[None, first : first + size], slice(0, 1))[0].sum(axis=1)
        for first in range(0, len(theta), size)
    ]
    return np.concatenate(parts)


MOST_DIRECTIONS = 128
"""Entries of theta up to which the whole curvature is measured, in one batch of twice as many
places; where there are more, Lanczos' method finds the directions that matter."""
_MOST_LANCZOS = 12
"""Steps of Lanczos' method at most, each with gradients at two values of theta."""
_MOST_STEPS = 20
"""Steps of Newton's method at most, where the whole curvature matrix is measured."""
_MOST_LONG_STEPS = 4
"""Steps of Newton's method at most, where Lanczos' method measures the curvature in a few
directions."""
_MOST_TRIALS = 12
"""Places along a step of Newton's method at which the gradient is looked at, at most."""
_REACH = 0.1
"""Half the distance between the two places of a difference quotient, in posterior standard
deviations along its direction: large enough that rounding and small kinks do not matter."""
_NEAR = 0.25
"""Squared distance from the mode below which the pilot has arrived, relative to the mean squared
distance of draws from the posterior."""
_NUM_DRAWS, _NUM_MOVES = 8, 12
"""Chains that draw around the mode, and Langevin steps of each. The step fits the largest
curvature, so the directions with the largest gradients reach equilibrium first."""


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
        the gradient is not the gradient of anything.
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
    """A search for the mode on the first data set of a model, before a run: it gives the mode, the
    curvature, and draws around the mode. ``rng`` is its own source of random numbers."""

    def __init__(self, model: Model, rng: np.random.Generator) -> None:
        # Weak: surveys are kept by model, and must not keep the model.
        self._asked, self._rng = weakref.ref(model), rng
        self._sd = np.broadcast_to(np.asarray(model.prior.sd, dtype=np.float64), (model.dim,))
        mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
        # The start is a little beside the prior's mean, which may be a saddle point by symmetry.
        self.theta = mean + 1e-3 * self._sd * rng.standard_normal(model.dim)
        """Present theta of the pilot's search, which ends at the posterior's mode, (dim)."""
        self._reach = 1e-4 * self._sd
        self.curves: list[MeasuredCurvature] = []
        """Curvatures measured at the values of theta that the search visited: near the prior's mean
        first, at its end last."""
        self.num_batches = 0
        """Batches of gradients that were evaluated so far, each at several theta."""
        self.arrived = False
        """Whether the search ended at a mode of the posterior: the gradient is small beside its
        fluctuations, and all curvatures are positive."""

    @property
    def _model(self) -> Model:
        """The model. The pilot refers to it weakly, so it exists only as long as a caller holds
        it."""
        model = self._asked()
        assert model is not None
        return model

    def summed(self, theta: Array) -> Array:
        """Gradient of the sum of all local costs, (place, dim), at each of several theta (place,
        dim), without any clipping."""
        self.num_batches += 1
        return summed_gradients(self._model, theta)

    def travel(self) -> None:
        """Go from the prior's mean to the mode by Newton's method; ``curves``, ``arrived`` and
        ``theta`` hold the outcome."""
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
                # Near a saddle the gradient almost vanishes, and the step with it: lengthened to
                # one standard deviation.
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
        """Value of theta along ``step`` from the present one at which the cost is about as flat as
        it gets, and the gradient at that value; None if no better theta is found.

        The whole step is taken where the cost does not rise steeply at its end; else the place at
        which the cost begins to rise along the step is enclosed by halving."""
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
            # Numbers overflow far beyond the minimum: come much closer than by halving.
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
            # A first estimate, over a very short distance, tells how far apart the gradients of the
            # second should be.
            self._reach = self._reaches(np.diag(self._differences(basis, self._reach)), self._sd)
        matrix = self._differences(basis, self._reach)
        if not np.isfinite(matrix).all():
            return None
        self._reach = self._reaches(np.diag(matrix), self._sd)
        return MeasuredCurvature(basis, matrix)

    def _reaches(self, curvature: Array, most: Array | float) -> Array:
        """Distances from theta at which gradients are taken for difference quotients, (direction):
        a tenth of the posterior standard deviation that the ``curvature`` of each direction
        implies, and ``most`` at most."""
        with np.errstate(divide="ignore"):
            return np.minimum(_REACH / np.sqrt(np.abs(curvature)), most)

    def _differences(self, directions: Array, reach: Array) -> Array:
        """Curvature along ``directions`` (direction, dim), as central difference quotients of the
        summed gradient over the distances ``reach``; (direction, direction)."""
        offsets = directions * reach[:, None]
        both = self.summed(np.concatenate([self.theta + offsets, self.theta - offsets]))
        change = (both[: len(offsets)] - both[len(offsets) :]) / (2 * reach[:, None])
        return np.asarray(change @ directions.T)

    def _lanczos(self, gradient: Array) -> MeasuredCurvature | None:
        """Curvature in the few directions that Lanczos' method finds, starting from the gradient;
        None where it is not finite."""
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
        """A few draws around the mode, (place, dim), by Langevin steps with exact gradients at
        a ``temperature``. All start at the mode, so that only directions of large curvature reach
        their full width, ``temperature`` times the posterior's variance."""
        # A step of 0.4/L: stable, and a direction with the largest curvature forgets its start
        # within the few moves.
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
    """Newton's step in the measured directions, with absolute curvatures, so that it goes downhill
    even where the cost curves down."""
    matrix = (curve.matrix + curve.matrix.T) / 2
    # Scaled to a unit diagonal, so that the small curvatures of entries with large units survive
    # the rounding of the eigenvalues.
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.maximum(scale, 1e-12 * scale.max() + 1e-300)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    size = np.maximum(np.abs(values), 1e-10 * np.abs(values).max() + 1e-300)
    inside = (curve.basis @ gradient) / scale
    return np.asarray(-curve.basis.T @ ((vectors @ ((vectors.T @ inside) / size)) / scale))
