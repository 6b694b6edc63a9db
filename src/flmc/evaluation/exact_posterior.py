"""Comparison of draws with a posterior that is known exactly, a Gaussian for each data set, along
the eigenvectors of its covariance.

Every statistic is a function of the draws' mean and covariance, and its expectation for exact draws
of the posterior is known."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from flmc.base.arrays import Array
from flmc.base.special import variance_of_mean
from flmc.models.distributions import Gaussian
from flmc.sampling.moments import Moments


def second_trace(second: Array) -> Array:
    """Trace of each matrix of ``second`` (experiment, dim, dim), as an array (experiment)."""
    return np.asarray(np.trace(second, axis1=1, axis2=2))


Statistic = Callable[[Array, Array], Array]
"""A function that compares draws with the exact posterior. Its arguments are the mean deviation of
the draws from the posterior mean, (experiment, dim), and the mean outer product of these
deviations, (experiment, dim, dim); it returns one value per data set, (experiment)."""


_NUMBERS_AT_ONCE = 250_000
"""Largest number of covariance entries that are computed in one batch of data sets (2 MB): the
covariances of all data sets at once would take most of the memory of an evaluation."""


class ExactPosterior:
    """The exact Gaussian posterior of every data set, with the eigenvalues and eigenvectors of its
    covariance, and statistics that compare draws with it."""

    def __init__(self, posterior: Gaussian) -> None:
        self.values, self.directions = posterior.eigen
        self.trace = self.values.sum(axis=1)
        self._last: tuple[Array, Array, Array] | None = None
        """Arguments and result of the last call of ``wasserstein2_squared``, which is often called
        twice for the same moments: by the metrics of all chains, and by those of single chains."""

    def statistics(self) -> dict[str, Statistic]:
        """Functions that compare draws with the posterior by their first two moments, by name of
        the metric."""
        return {
            "mse": lambda shift, second: second_trace(second),
            "wasserstein2_squared": self.wasserstein2_squared,
            "mean_error_squared": lambda shift, second: np.square(shift).sum(axis=1),
        }

    def _parts(self) -> Iterator[slice]:
        """Slices of consecutive data sets, which together are all data sets, each small enough for
        its covariances to fit a bounded memory."""
        count, dim = self.values.shape
        at_once = max(1, _NUMBERS_AT_ONCE // dim**2)
        return (slice(first, first + at_once) for first in range(0, count, at_once))

    def _rotated(self, shift: Array, second: Array, part: slice) -> Array:
        """Covariance of the draws of the data sets in ``part``, in the basis of the posterior
        covariance's eigenvectors, (experiment, dim, dim), from their mean deviation ``shift``
        (experiment, dim) and mean outer product of deviations ``second`` (experiment, dim, dim)."""
        covariance = second[part] - shift[part, :, None] * shift[part, None, :]
        directions = self.directions[part]
        return np.asarray(np.swapaxes(directions, 1, 2) @ covariance @ directions)

    def wasserstein2_squared(self, shift: Array, second: Array) -> Array:
        r"""Squared 2-Wasserstein distance of every data set, (experiment), between two normal laws:
        the one with the mean :math:`\mu + s` and the covariance C of the draws, and the exact
        posterior :math:`N(\mu, \Sigma)`. It is :math:`\|s\|^2 + \operatorname{tr}(C + \Sigma -
        2(\Sigma^{1/2} C \Sigma^{1/2})^{1/2})`. The arguments are the draws' mean deviation s =
        ``shift`` from the posterior mean, (experiment, dim), and their mean outer product of
        deviations, ``second`` = :math:`C + s s^\top`, (experiment, dim, dim)."""
        if self._last is not None and all(map(np.array_equal, self._last, (shift, second))):
            return self._last[2]
        distance = np.concatenate([self._distance(shift, second, part) for part in self._parts()])
        self._last = shift, second, np.maximum(distance, 0.0)
        return self._last[2]

    def _distance(self, shift: Array, second: Array, part: slice) -> Array:
        """Squared 2-Wasserstein distance, (experiment), between the normal law with the draws' mean
        and covariance and the posterior, for the data sets in ``part``; rounding can make it
        slightly negative. ``shift`` (experiment, dim) is the draws' mean deviation from the
        posterior mean, ``second`` (experiment, dim, dim) their mean outer product of deviations."""
        covariance = self._rotated(shift, second, part)
        root = np.sqrt(self.values[part])
        inner = np.linalg.eigvalsh(root[:, :, None] * covariance * root[:, None, :])
        # Rounding can make an eigenvalue of a singular covariance slightly negative.
        cross = np.sqrt(np.maximum(inner, 0.0)).sum(axis=1)
        return np.asarray(
            np.square(shift[part]).sum(axis=1)
            + np.trace(covariance, axis1=1, axis2=2)
            + self.trace[part]
            - 2 * cross
        )

    def memory(self, effective_step_size: float | None, *, least: float = 0.0) -> Array:
        r"""Correlation of successive rounds of a chain along each eigenvector of the posterior's
        covariance, (experiment, dim): :math:`\rho_i = 1 - \eta_{\text{eff}}/v_i` with the
        eigenvalue :math:`v_i` and the effective step :math:`\eta_{\text{eff}}`, kept between
        ``least`` and 1; 1 where the step is None."""
        if effective_step_size is None:
            return np.ones_like(self.values)
        # A negative correlation of draws at positions counts as 0: otherwise the draws of a chain
        # would count for more than independent ones.
        return np.clip(1.0 - effective_step_size / self.values, least, 1.0)

    def independent_draws(
        self, num_chains: int, num_kept: int, memory: Array, *, midpoints: bool = False
    ) -> float:
        """Number of independent draws whose mean would be as precise as that of ``num_chains``
        chains of ``num_kept`` draws each, where ``memory`` (experiment, dim) is the correlation of
        successive positions along the posterior's eigenvectors, and draws are these positions or
        their ``midpoints``. Directions are weighted by the posterior's variances, and the variance
        of the mean is averaged over data sets."""
        first = (1.0 + memory) / 2.0 if midpoints else None
        weight = (variance_of_mean(memory, num_kept, first) * self.values).sum(axis=1) / self.trace
        return float(num_chains / weight.mean())

    def floor(
        self, num_chains: int, num_kept: int, memory: Array, *, midpoints: bool = False
    ) -> float:
        r"""Expected squared 2-Wasserstein distance to the posterior of as many exact draws as
        ``num_chains`` chains of ``num_kept`` rounds have, to first order and averaged over data
        sets. Successive positions have the correlation ``memory``, :math:`\rho_i`, along the
        posterior's eigenvectors, (experiment, dim); draws are these positions or their
        ``midpoints``, whose correlation after k rounds is :math:`\rho_i^{k-1}(1 + \rho_i)/2`.

        With the eigenvalues :math:`v` of the posterior's covariance it is :math:`\sum_i v_i
        w(\rho_i) + \frac12\sum_{ij}(1 + \delta_{ij})\frac{v_i v_j}{v_i+v_j} w(\rho_i\rho_j)`, over
        the number of chains; :math:`w(\rho)` is the variance of the mean of a chain's draws of unit
        variance. The first sum is the error of the mean, the second that of the covariance."""
        v = self.values
        first = (1.0 + memory) / 2.0 if midpoints else None
        mean_part = (v * variance_of_mean(memory, num_kept, first)).sum(axis=1)
        covariance_part = np.concatenate(
            [
                _covariance_part(
                    v[part], memory[part], num_kept, None if first is None else first[part]
                )
                for part in self._parts()
            ]
        )
        return float(np.mean(mean_part + covariance_part) / num_chains)


def _covariance_part(v: Array, memory: Array, num_kept: int, neighbours: Array | None) -> Array:
    """Expected squared 2-Wasserstein distance to the posterior that the error of the covariance of
    one chain's exact draws causes, (experiment). ``v`` are the posterior's eigenvalues and
    ``memory`` the correlations of successive draws along its eigenvectors, (experiment, dim) each;
    where ``neighbours`` (experiment, dim) is given, it holds these correlations instead, and
    ``memory`` the factor by which they fall with each further round."""
    # Only one triangle of the symmetric matrix of pairs is computed, with the data sets in the last
    # axis, where memory is contiguous. The whole matrix is then formed, so that its entries are
    # added in the order of its rows and columns: the order decides how the sum is rounded.
    dim = v.shape[1]
    i, j = np.triu_indices(dim)
    place = np.zeros((dim, dim), np.intp)
    place[i, j] = place[j, i] = np.arange(len(i))
    one, other = v.T[i], v.T[j]
    first = None if neighbours is None else neighbours.T[i] * neighbours.T[j]
    both = variance_of_mean(memory.T[i] * memory.T[j], num_kept, first)
    triangle = one * other / (one + other) * both
    pairs = np.ascontiguousarray(triangle.T).take(place, axis=1)
    return np.asarray(0.5 * (pairs.sum(axis=(1, 2)) + np.trace(pairs, axis1=1, axis2=2)))


def distance_from(posterior: Gaussian) -> Callable[[Moments], Array]:
    """A function from moments of draws about the posterior means to the squared 2-Wasserstein
    distance, (experiment), between the Gaussian fitted to the draws and ``posterior``. The
    eigenvectors of the posterior are computed only once, here."""
    exact = ExactPosterior(posterior)

    def distance(moments: Moments) -> Array:
        total = moments.counts.sum()
        return exact.wasserstein2_squared(
            moments.sums.sum(axis=1) / total, moments.products.sum(axis=1) / total
        )

    return distance


def distance_of_exact_draws(posterior: Gaussian, num_draws: int) -> float:
    """Expected squared 2-Wasserstein distance between the Gaussian fitted to ``num_draws``
    independent exact draws and the posterior, averaged over data sets: not 0, because the draws are
    finitely many."""
    exact = ExactPosterior(posterior)
    return exact.floor(1, num_draws, np.zeros_like(exact.values))
