r"""The law of theta given a transcript, from a regression of estimates of the gradient.

The curvature of the negative log posterior is known with an error, and the posterior's mean through
noise; ``docs/answer.md`` derives the law of theta that is left."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.evaluation.gradient_regression import GradientRegression, eigen
from flmc.planning import answer_law
from flmc.planning.answer_law import LEAST, Bounds, Evidence, informed_share, joint_degrees
from flmc.planning.step_size import Curvature

_SMALLEST = 1e-12
"""Smallest curvature of the likelihood in a draw, as a share of the largest one: rounding errors
of a matrix without any curvature in a direction are below it."""
PriorGradient = Callable[[Array], Array]
"""A function that returns the gradient of the negative log prior at many values of theta: it takes
theta, (data set, point, dim), and returns an array of the same shape."""


@dataclass(frozen=True)
class ThetaLaw:
    r"""Law of theta given a transcript, for every data set, in units in which every entry of an
    estimate of the gradient has noise of variance 1 in a round of weight 1.

    The curvature of the negative log posterior is known with an error: it is :math:`H = \hat
    H^{1/2} W \hat H^{1/2}` with its estimate :math:`\hat H` and a Wishart matrix W, whose degrees
    of freedom differ between the eigenvectors of :math:`\hat H`, because a chain tells more about
    a steep direction than about a flat one. Given H, theta is normal.

    Attributes
    ----------
    fit
        Regression of the estimates of the gradient on theta, which gives :math:`\hat H`.
    values, directions
        Eigenvalues of :math:`\hat H`, (data set, dim), and its eigenvectors as columns, (data set,
        dim, dim).
    degrees
        Degrees of freedom of the curvature along each eigenvector, (data set, dim).
    precision
        Curvature of the negative log prior, (data set, dim, dim).
    pull
        Gradient of the negative log prior at the mean of theta over rounds, (data set, dim).
    public
        What is publicly known of the posterior's curvature, in the sampler's units; None: nothing.
    """

    fit: GradientRegression
    values: Array
    directions: Array
    degrees: Array
    precision: Array
    pull: Array
    public: Curvature | None = None

    @classmethod
    def of(
        cls, fit: GradientRegression, prior: PriorGradient, public: Curvature | None = None
    ) -> ThetaLaw:
        """Law of theta from ``fit``, a regression of the estimates of the gradient on theta, and
        ``prior``, the gradient of the negative log prior; ``public`` holds what is publicly known
        of the posterior's curvature, in the sampler's units."""
        values, directions = eigen(fit.curvature)
        precision, pull = _quadratic_prior(fit, values, directions, prior)
        # The likelihood is assumed to be log-concave: in no direction is the curvature of the
        # posterior smaller than that of the prior.
        floor, spread = (_forms(each, directions) for each in (precision, fit.scatter))
        values = np.maximum(values, floor + LEAST * values[:, -1:])
        degrees = 2 * np.square(values) * spread
        return cls(fit, values, directions, degrees, precision, pull, public)

    @cached_property
    def floor(self) -> Array:
        """Curvature of the negative log prior along the eigenvectors of the fitted curvature, (data
        set, dim)."""
        return _forms(self.precision, self.directions)

    @property
    def mean(self) -> Array:
        """Mean of theta, (data set, dim), in the units of the regression ``fit``."""
        way = self._way_and_variance[0].mean(axis=2)
        sets, push, _ = self._coupled
        way[sets] = push.mean(axis=1)
        return np.asarray(self.fit.theta - _along(self.directions, way))

    def variances(self, to_entries: Array) -> Array:
        """Variances of the linear functions of theta whose coefficients along the eigenvectors of
        the fitted curvature are the rows of ``to_entries`` (data set, entry, dim): (data set,
        entry, node). The curvature is known with an error; each node is the mean square of the
        distance from the mean at one of ``NODES`` equally probable values of it."""
        way, variance = self._way_and_variance
        spread = variance + np.square(way - way.mean(axis=2, keepdims=True))
        found = np.square(to_entries) @ spread
        sets, push, covariance = self._coupled
        rows = to_entries[sets]
        spreads = ((rows[:, None] @ covariance) * rows[:, None]).sum(axis=3)
        off = rows @ _transposed(push - push.mean(axis=1, keepdims=True))
        found[sets] = _transposed(spreads) + np.square(off)
        return np.asarray(found)

    @cached_property
    def spread(self) -> Array:
        """Variance of theta along the eigenvectors of the fitted curvature, (data set, dim), but
        for what a prior that couples them changes."""
        way, variance = self._way_and_variance
        off = np.square(way - way.mean(axis=2, keepdims=True))
        return np.asarray((variance + off).mean(axis=2))

    def covariance(self, to_entries: Array) -> Array:
        """Covariance of the linear functions of theta in ``to_entries`` (data set, entry, dim), as
        for :meth:`variances`: (data set, entry, entry)."""
        found = (to_entries * self.spread[:, None]) @ _transposed(to_entries)
        sets, push, covariance = self._coupled
        off = push - push.mean(axis=1, keepdims=True)
        whole = covariance.mean(axis=1) + _transposed(off) @ off / off.shape[1]
        found[sets] = to_entries[sets] @ whole @ _transposed(to_entries[sets])
        return np.asarray(found)

    def certain_covariance(self, to_entries: Array) -> Array:
        """The :meth:`covariance` if the curvature were known to be the fitted one."""
        data = self.values - self.floor
        gain = informed_share(data, self.fit.weight[:, None])
        variance = 1.0 / (self.floor + gain * data)
        found = (to_entries * variance[:, None]) @ _transposed(to_entries)
        sets, rows = self._coupled[0], to_entries[self._coupled[0]]
        of_one = answer_law.coupled(
            self._prior_along[sets], self.values[sets], self.fit.weight[sets]
        )[1]
        found[sets] = rows @ of_one @ _transposed(rows)
        return np.asarray(found)

    @cached_property
    def _prior_along(self) -> Array:
        """Curvature of the negative log prior in the coordinates of the eigenvectors of the fitted
        curvature, (data set, dim, dim)."""
        return np.asarray(_transposed(self.directions) @ self.precision @ self.directions)

    @cached_property
    def _coupled(self) -> tuple[IntArray, Array, Array]:
        """The data sets whose prior couples the eigenvectors, so that these cannot be treated one
        by one, (set); for each the distance from theta's mean to the mean of theta over rounds,
        (set, node, dim), and theta's covariance, (set, node, dim, dim), along the eigenvectors, at
        equally probable values of the curvature."""
        prior, data, weight = self._prior_along, self._curvatures, self.fit.weight
        sets = np.flatnonzero(answer_law.couples(prior, data.min(axis=2), weight))
        pull, gradient = (each[sets][:, None, :, None] for each in self._prior_and_gradient)
        likely = _transposed(data[sets] + self.floor[sets][..., None])
        share, covariance = answer_law.coupled(prior[sets][:, None], likely, weight[sets][:, None])
        push = covariance @ (pull + share @ (gradient - pull))
        return sets, push[..., 0], covariance

    @cached_property
    def _curvatures(self) -> Array:
        """Curvature of the likelihood along the eigenvectors, (data set, dim, node)."""
        evidence, bounds = Evidence(*self._prior_and_gradient), None
        if self.public is not None:
            # One unit of curvature in the sampler's units, along each eigenvector.
            one = np.square(self.directions / self.fit.unit[:, :, None]).sum(axis=1)
            bounds = Bounds.of(self.public, one)
        return answer_law.curvatures(
            self.values, self.floor, self.degrees, self.fit.weight, evidence, bounds
        )

    @cached_property
    def _prior_and_gradient(self) -> tuple[Array, Array]:
        """Gradient of the negative log prior at the mean of theta over rounds, and mean of the
        estimates, along the eigenvectors, (data set, dim) each."""
        return _across(self.directions, self.pull), _across(self.directions, self.fit.gradient)

    @cached_property
    def _way_and_variance(self) -> tuple[Array, Array]:
        """Distance from theta's mean to the mean of theta over rounds, and theta's variance, along
        the eigenvectors, at equally probable values of the curvature, (data set, dim, node) each.
        """
        data, weight = self._curvatures, self.fit.weight[:, None, None]
        pull, gradient = (each[..., None] for each in self._prior_and_gradient)
        gain = informed_share(data, weight)
        variance = answer_law.variances(data, self.floor, self.fit.weight)
        return (pull + gain * (gradient - pull)) * variance, variance

    def draw(self, e: int, num_draws: int, rng: np.random.Generator) -> Array:
        """Independent draws of theta of the data set with index ``e``, (draw, dim), in the units of
        the regression ``fit``; each has its own random curvature, because the curvature is known
        with an error only. In every entry they are a little wider than the intervals (4 % for 20
        entries and 600 rounds), because regions of many entries need it."""
        fit, dim = self.fit, self.values.shape[1]
        # Bartlett's decomposition of a Wishart matrix: directions in order of falling degrees of
        # freedom. Directions of which little is known come last, with laws of their own; and where
        # there is little curvature, no entry of a positive definite matrix beside it is large.
        known = answer_law.walk_power(self.degrees[e]) == 0
        order = np.lexsort((-self.degrees[e], np.logical_not(known)))
        degrees = self.degrees[e][order]
        joint = joint_degrees(degrees)
        factor = np.zeros((num_draws, dim, dim))
        for i, direction in enumerate(order):
            factor[:, i, :i] = rng.standard_normal((num_draws, i)) / np.sqrt(joint[i, :i])
            if known[direction]:
                mean = max(1.0 - (1.0 / joint[i, :i]).sum(), 0.1)
                shape = mean**2 * degrees[i] / 2
                factor[:, i, i] = np.sqrt(rng.gamma(shape, mean / shape, num_draws))
            else:
                nodes = self._curvatures[e, direction] + self.floor[e, direction]
                own = np.sqrt(rng.choice(nodes, num_draws) / self.values[e, direction])
                factor[:, i, :i] = np.clip(factor[:, i, :i], -own[:, None], own[:, None])
                factor[:, i, i] = own
        root = (self.directions[e][:, order] * np.sqrt(self.values[e][order])) @ factor
        curvature = self._bounded(root @ _transposed(root), e)
        values, directions = np.linalg.eigh(curvature - self.precision[e])
        values = np.maximum(values, _SMALLEST * values[:, -1:])
        gain = informed_share(values, fit.weight[e])
        known_part = (directions * gain[:, None]) @ _transposed(directions)
        data = (directions * (gain * values)[:, None]) @ _transposed(directions)
        precision = self.precision[e] + data
        way = self.pull[e] + known_part @ (fit.gradient[e] - self.pull[e])
        noise = rng.standard_normal((num_draws, dim, 1))
        spread = np.linalg.solve(_transposed(np.linalg.cholesky(precision)), noise)
        return np.asarray(
            fit.theta[e] - (np.linalg.solve(precision, way[..., None]) - spread)[..., 0]
        )

    def _bounded(self, curvature: Array, e: int) -> Array:
        """Matrices of the posterior's ``curvature``, (draw, dim, dim), of the data set ``e``, with
        their eigenvalues in the sampler's units moved to the nearest ones that the public bounds
        allow: those hold along every direction, not only along the eigenvectors of the estimate."""
        if self.public is None:
            return curvature
        unit = self.fit.unit[e]
        values, directions = np.linalg.eigh(curvature * unit[:, None] * unit)
        values = answer_law.within(self.public, values)
        whole = (directions * values[:, None]) @ _transposed(directions)
        return np.asarray(whole / unit[:, None] / unit)


def _quadratic_prior(
    fit: GradientRegression, values: Array, directions: Array, prior: PriorGradient
) -> tuple[Array, Array]:
    """Curvature of the negative log prior, (data set, dim, dim), and its gradient, (data set, dim),
    both at the mean of theta over rounds. The curvature is a central difference of ``prior`` over a
    posterior standard deviation of each entry; units are those of the regression ``fit``."""
    dim = values.shape[1]
    theta = fit.theta / fit.unit
    reach = np.sqrt((np.square(directions) @ (1.0 / values)[..., None])[..., 0]) / fit.unit
    steps = reach[:, :, None] * np.eye(dim)
    places = np.concatenate([theta[:, None] + steps, theta[:, None] - steps, theta[:, None]], 1)
    gradient = prior(places)
    hessian = (gradient[:, :dim] - gradient[:, dim:-1]) / (2 * reach[:, :, None])
    hessian = (hessian + _transposed(hessian)) / (2 * fit.unit[:, :, None] * fit.unit[:, None])
    # A prior may have negative curvature in places, which is raised to 0. For independent entries
    # the curvature is diagonal, and no eigenvectors are needed.
    if np.count_nonzero(hessian) > np.count_nonzero(np.einsum("eii->ei", hessian)):
        bent, own = np.linalg.eigh(hessian)
        hessian = (own * np.maximum(bent, 0.0)[:, None]) @ _transposed(own)
    else:
        hessian = np.maximum(hessian, 0.0)
    return hessian, gradient[:, -1] / fit.unit


def _forms(matrix: Array, directions: Array) -> Array:
    """Quadratic forms of each ``matrix`` (data set, dim, dim) at the unit vectors in the columns of
    ``directions`` (data set, dim, dim): an array (data set, dim)."""
    return np.asarray((directions * (matrix @ directions)).sum(axis=1))


def _across(directions: Array, vector: Array) -> Array:
    """Components of each ``vector`` (data set, dim) along the unit vectors in the columns of
    ``directions``, (data set, dim, dim): an array (data set, dim)."""
    return np.asarray(np.einsum("eij,ei->ej", directions, vector))


def _along(directions: Array, components: Array) -> Array:
    """The vectors, (data set, dim), whose ``components`` (data set, dim) belong to the unit vectors
    in the columns of ``directions`` (data set, dim, dim)."""
    return np.asarray(np.einsum("eij,ej->ei", directions, components))


def _transposed(matrix: Array) -> Array:
    """Matrices with their last two axes exchanged."""
    return np.asarray(np.swapaxes(matrix, -1, -2))
