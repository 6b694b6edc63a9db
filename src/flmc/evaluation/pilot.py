"""A short pilot with exact gradients: from the prior's mean to the mode, and a few draws around it.

It is Newton's method with curvatures from differences of the summed gradient. It needs gradients
alone, some tens of batches, and stops where a model makes no sense of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.models.model import Model
from flmc.models.wide_linear import WideLinear
from flmc.uplink.uplink import Uplink

# Gradients of the sum of all local costs, a few places at a time where there are many entries.


_AT_ONCE = 8_000_000
"""Entries of local gradients that are held at a time, 64 MB."""


def places_at_once(model: Model) -> int:
    """Number of places at which local gradients of all devices are held at a time.

    Parameters
    ----------
    model
        The model; its devices and entries count.
    """
    return max(1, _AT_ONCE // (model.num_devices * model.dim))


def summed_gradients(model: Model, theta: Array) -> Array:
    """Gradient of the sum of all local costs of the first data set, (place, dim).

    Parameters
    ----------
    model
        Gives the local gradients.
    theta
        Where, (place, dim).
    """
    if isinstance(model, WideLinear):
        return model.summed_gradient(theta)
    size = places_at_once(model)
    parts = [
        model.gradient(theta[None, first : first + size], slice(0, 1))[0].sum(axis=1)
        for first in range(0, len(theta), size)
    ]
    return np.concatenate(parts)


_MOST_DIRECTIONS = 48
"""Entries of theta that are measured all at once, in a batch of twice as many places; where there
are more, Lanczos' method finds the directions that matter."""
_MOST_LANCZOS = 12
"""Steps of Lanczos' method, each a batch of two places."""
_MOST_STEPS = 12
"""Steps of Newton's method, where all entries are measured at once."""
_MOST_LONG_STEPS = 4
"""The same where Lanczos' method measures the curvature."""
_REACH = 0.1
"""Half the distance over which gradients are compared, in posterior standard deviations along that
direction: far enough that rounding and small kinks do not matter."""
_NEAR = 0.25
"""Squared distance from the mode that counts as arrived, over that of draws from the posterior, in
posterior standard deviations."""
_NUM_DRAWS, _NUM_MOVES = 8, 12
"""Chains that draw around the mode, and how often each moves. Moves are made for the largest
curvature, so directions with the largest gradients are the first to be in equilibrium."""


@dataclass(frozen=True)
class Curve:
    """Curvature of the sum of local costs at one place, in some directions.

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
        """Curvatures along principal directions, ascending."""
        return np.asarray(np.linalg.eigvalsh((self.matrix + self.matrix.T) / 2))

    @property
    def asymmetry(self) -> float:
        """How far the matrix is from being symmetric, relative to its diagonal; 0 is right."""
        scale = np.sqrt(np.abs(np.diag(self.matrix)))
        scale = np.maximum(scale, 1e-6 * scale.max())
        return float(np.abs((self.matrix - self.matrix.T) / np.outer(scale, scale)).max())


class Pilot:
    """Where the posterior is, how it curves there, and the local gradients of draws from it.

    Parameters
    ----------
    model, uplink
        The model, whose first data set is looked at, and how its gradients are clipped.
    rng
        Source of random numbers of its own.

    Attributes
    ----------
    curves
        Curvature at the places that were visited: near the prior's mean first, the end last.
    arrived
        Whether the end is a mode: the gradient small beside its fluctuations, all curvatures
        positive.
    theta
        The end of the way, (dim).
    """

    def __init__(self, model: Model, uplink: Uplink, rng: np.random.Generator) -> None:
        self._model, self._uplink, self._rng = model, uplink, rng
        self._sd = np.broadcast_to(np.asarray(model.prior.sd, dtype=np.float64), (model.dim,))
        mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
        # A little beside the mean, which may be a saddle point by symmetry.
        self.theta = mean + 1e-3 * self._sd * rng.standard_normal(model.dim)
        self._reach = 1e-4 * self._sd
        self.curves: list[Curve] = []
        self.arrived = False

    def local_gradients(self, theta: Array) -> Array:
        """Local gradients as devices clip them, (place, device, dim).

        Parameters
        ----------
        theta
            Where, (place, dim).
        """
        return np.asarray(self._uplink.local_gradients(self._model, theta[None], slice(0, 1))[0])

    def summed(self, theta: Array) -> Array:
        """Gradient of the sum of all local costs, (place, dim), examples not clipped.

        Parameters
        ----------
        theta
            Where, (place, dim).
        """
        return summed_gradients(self._model, theta)

    def travel(self) -> None:
        """Go to the mode; what was found on the way is in ``curves``, ``arrived`` and ``theta``."""
        long = len(self.theta) > _MOST_DIRECTIONS
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
                step = step / np.sqrt(rest)  # away from a saddle at once
            found = self._line_search(step, gradient)
            if found is None:
                return
            self.theta, gradient = found
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
        """Place and gradient along a step where the cost does not rise again; None if there is
        none that is finite."""
        share, slope = 1.0, float(gradient @ step)
        for _ in range(8):
            there = self.theta + share * step
            then = self.summed(there[None])[0]
            if not np.isfinite(then).all():
                share /= 10
                continue
            rise = float(then @ step)
            if rise <= 0.5 * abs(slope):
                return there, then
            # The slope goes from negative to positive: where it is 0 on a straight line, at most
            # half way back.
            share *= min(0.5, abs(slope) / (abs(slope) + rise))
        return None

    def _curve(self, gradient: Array) -> Curve | None:
        """Curvature at the present place; None where it is not finite."""
        if not np.isfinite(gradient).all():
            return None
        if len(self.theta) > _MOST_DIRECTIONS:
            return self._lanczos(gradient)
        basis = np.eye(len(self.theta))
        if not self.curves:
            # A first look over a short way, to find over how far to look.
            self._reach = self._reaches(np.diag(self._differences(basis, self._reach)), self._sd)
        matrix = self._differences(basis, self._reach)
        if not np.isfinite(matrix).all():
            return None
        self._reach = self._reaches(np.diag(matrix), self._sd)
        return Curve(basis, matrix)

    def _reaches(self, curvature: Array, most: Array | float) -> Array:
        """Distances over which to compare gradients, from curvatures along these directions."""
        with np.errstate(divide="ignore"):
            return np.minimum(_REACH / np.sqrt(np.abs(curvature)), most)

    def _differences(self, directions: Array, reach: Array) -> Array:
        """Change of the gradient along directions, per distance, (direction, direction)."""
        offsets = directions * reach[:, None]
        both = self.summed(np.concatenate([self.theta + offsets, self.theta - offsets]))
        change = (both[: len(offsets)] - both[len(offsets) :]) / (2 * reach[:, None])
        return np.asarray(change @ directions.T)

    def _lanczos(self, gradient: Array) -> Curve | None:
        """Curvature in the directions that Lanczos' method finds from the gradient."""
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
            left -= known.T @ (known @ left)  # once more, against rounding
            if np.linalg.norm(left) < 1e-6 * curvature:
                break
            vectors.append(left / np.linalg.norm(left))
        basis = np.array(vectors[: len(images)])
        return Curve(basis, np.array(images) @ basis.T)

    def draw(self, temperature: float) -> Array:
        """Some thetas around the mode as a sampler finds them, (place, dim).

        Parameters
        ----------
        temperature
            Variance of the draws over that of the posterior.
        """
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


def _newton_step(curve: Curve, gradient: Array) -> Array:
    """Newton's step in the measured directions, downhill also where the cost curves down."""
    matrix = (curve.matrix + curve.matrix.T) / 2
    # Scaled, so that entries of very different size do not hide behind each other.
    scale = np.sqrt(np.abs(np.diag(matrix)))
    scale = np.maximum(scale, 1e-12 * scale.max() + 1e-300)
    values, vectors = np.linalg.eigh(matrix / np.outer(scale, scale))
    size = np.maximum(np.abs(values), 1e-10 * np.abs(values).max() + 1e-300)
    inside = (curve.basis @ gradient) / scale
    return np.asarray(-curve.basis.T @ ((vectors @ ((vectors.T @ inside) / size)) / scale))
