r"""Costs of devices that have parameters of their own, which never leave them.

With global parameters :math:`\theta` and local ones :math:`z_k` the joint cost of device k is

.. math:: U_k(\theta, z_k) = -\ln p(D_k \mid \theta, z_k) - \ln p(z_k \mid \theta)
          - \tfrac1K \ln p(\theta) .

What a server samples is the marginal law of :math:`\theta`, whose local gradient is the conditional
mean of the joint one, :math:`\nabla f_k(\theta) = E[\nabla_\theta U_k(\theta, z_k) \mid \theta,
D_k]` (Fisher's identity). A device does not compute that mean. In every round it moves its own
:math:`z_k` by some steps of Metropolis and Hastings, which leave :math:`p(z_k \mid \theta, D_k)` as
it is, and sends the mean of :math:`\nabla_\theta U_k` over them. ``docs/models.md`` has the law
that follows.

Steps are made in :math:`x = S^{-1}(z - c)`, where c is the mode of :math:`p(z \mid \theta, D_k)`
and :math:`S S^\top` the inverse of the curvature there. A long step proposes a standard normal x,
independent of the present x: where the conditional law is normal, the proposal is always accepted,
and is an independent draw. In a tail that is heavier than the normal law's, nearly every such
proposal would be refused; so every round begins with one step of a random walk, which leads out of
the tail.

For plans and diagnoses, which need a gradient without noise, the marginal cost is integrated over z
at the nodes of Gauss and Hermite in x."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.models.differentiation import DifferentiatedCosts
from flmc.models.local_costs import ExampleBound
from flmc.models.parameters import ParameterTree

NO_EXAMPLES_LOCALLY = (
    "example_clip and example_norm bound the gradient of one example, and with local parameters"
    " every example moves these, and with them the gradients of all others: only the privacy of a"
    " whole device is proven; leave them out and ask for that (neighbouring='device')"
)
"""Error message for the settings ``example_clip`` and ``example_norm`` with a model that has local
parameters: why they cannot apply, and what to do."""
_STRIDE = 2.4
"""Numerator of the random walk's step: its standard deviation is this over the root of the number
of local entries, times that of the local parameters' conditional law; the best for a normal law."""
_NODES = (15, 9, 5, 3, 3)
"""Number of nodes of Gauss and Hermite along each axis, for 1 to 5 local entries. With more
entries, nodes lie on the axes alone, and integrate polynomials of the third degree exactly."""
_MOST_NEWTON = 30
"""Largest number of Newton's steps to the mode of a device's local parameters; after these, the
point that was reached takes the place of the mode."""
_NEAR = 0.03
"""Distance from the mode of a device's local parameters, in standard deviations, at which Newton's
method ends. It need not be small: proposals are valid about any centre that depends on theta and
data alone."""
_FLATTEST = 1e-6
"""Smallest ratio of a curvature to the largest one in the normal law of proposals. Curvatures below
it are raised to it, so that proposals stay finite where the density is flat."""


class LocalParameters(NamedTuple):
    """Declaration of the parameters that each device has of its own.

    Attributes
    ----------
    start
        Values at which devices start, a tree of arrays or :class:`flmc.Parameter`.
    log_prior
        ``log_prior(parameters, local)``: log density of the local parameters of one device, given
        the global ones.
    steps
        Number of independent proposals (long steps) by which a device moves its local parameters in
        each round, after one step of a random walk.
    """

    start: Any
    log_prior: Callable[[Any, Any], Any]
    steps: int = 8


def declared(start: Any, log_prior: Any, steps: int) -> LocalParameters | None:
    """The declaration of local parameters from the arguments ``local``, ``log_local_prior`` and
    ``local_steps`` of :meth:`flmc.Model.from_log_density`; None if the first two are None. Raises
    ``InvalidSetting`` if only one of the two is given."""
    if start is None and log_prior is None:
        return None
    if start is None or log_prior is None:
        given, missing = ("local", "log_local_prior")[:: 1 if log_prior is None else -1]
        raise InvalidSetting(
            f"{given} needs {missing}: local parameters are declared with their log density given"
            " the global ones"
        )
    return LocalParameters(start, log_prior, checks.at_least("local_steps", steps, 1))


class _Normal(NamedTuple):
    r"""Normal law from which one device proposes values of its local parameters: its centre
    (entry), a root S of its covariance :math:`S S^\top` and the inverse of S, (entry, entry) each,
    and the logarithm of S's determinant, ``log_volume``."""

    centre: Any
    root: Any
    inverse: Any
    log_volume: Any


class LocalParameterCosts(DifferentiatedCosts):
    """Marginal costs of devices with local parameters, their gradients, and the moves of the local
    parameters, as functions that JAX can trace.

    ``likelihood_of`` says whether ``log_likelihood(parameters, local, data)`` is that of one
    example or of a device as a whole. The argument ``data`` of the methods is the dictionary that
    :func:`in_groups` returns. The attribute ``own`` is the tree of local parameters, ``num_local``
    the number of their free entries."""

    def __init__(
        self,
        jax: Any,
        log_prior: Callable[[Any], Any],
        log_likelihood: Callable[..., Any],
        parameters: Callable[[Any], Any],
        log_jacobian: Callable[[Any], Any],
        num_devices: int,
        local: LocalParameters,
        likelihood_of: str,
    ) -> None:
        super().__init__(jax, log_prior, log_likelihood, parameters, log_jacobian, num_devices)
        self._local_prior, self._of_device = local.log_prior, likelihood_of == "device"
        self.own = ParameterTree(jax, local.start)
        self.num_local = len(self.own.start)
        self.steps = checks.at_least("local_steps", local.steps, 1)
        self._nodes, self._weights = _nodes(self.num_local)

    # The methods from here to the next such comment are for one device: theta is (dim), its local
    # parameters are ``own`` (entry), ``rows`` its arrays, ``counts`` 1 for an example and 0 for
    # padding.

    def _joint(self, theta: Any, own: Any, rows: Any, counts: Any) -> Any:
        """Negative logarithm of the joint density of one device's data and local parameters ``own``
        (entry), given theta (dim), a number. The share of theta's prior is left out."""
        jax, parameters, values = self._jax, self._parameters(theta), self.own.parameters(own)
        log_density = self._local_prior(parameters, values) + self.own.layout.log_jacobian(own)
        if self._of_device:
            return -log_density - self._log_likelihood(parameters, values, rows)
        each = jax.vmap(lambda row: self._log_likelihood(parameters, values, row))(rows)
        return -log_density - jax.numpy.where(counts > 0, each, 0.0).sum()

    def _roots(self, hessian: Any) -> tuple[Any, Any, Any]:
        """A root S of the inverse of ``hessian``, (entry, entry), the inverse of S, and the
        logarithm of S's determinant. The Hessian is first made positive definite: its eigenvalues
        become their absolute values, and at least 1e-6 of the largest."""
        numpy = self._jax.numpy
        if self.num_local == 1:
            values, vectors = hessian[0], numpy.ones((1, 1), hessian.dtype)
        else:
            values, vectors = numpy.linalg.eigh(numpy.nan_to_num((hessian + hessian.T) / 2))
        largest = numpy.abs(values).max()
        usual = numpy.isfinite(largest) & (largest > 0)
        values = numpy.where(usual, numpy.maximum(numpy.abs(values), _FLATTEST * largest), 1.0)
        lengths = 1.0 / numpy.sqrt(values)
        return vectors * lengths, (vectors / lengths).T, numpy.log(lengths).sum()

    def _normal(self, theta: Any, rows: Any, counts: Any) -> _Normal:
        """The normal law at the mode of one device's local parameters given theta (dim), with the
        inverse curvature there as covariance. Newton's method begins at the declared start, not at
        the present local parameters: proposals about a centre that depended on these would not
        leave their conditional law unchanged."""
        jax, numpy = self._jax, self._jax.numpy
        theta = jax.lax.stop_gradient(theta)

        def cost(own: Any) -> Any:
            return self._joint(theta, own, rows, counts)

        slope, hessian = jax.value_and_grad(cost), jax.hessian(cost)

        def goes_on(state: Any) -> Any:
            _, _, _, radius, left, count = state
            return (left > _NEAR) & (radius > _NEAR / 4) & (count < _MOST_NEWTON)

        def newton(state: Any) -> Any:
            at, value, gradient, radius, left, count = state
            root, _, _ = self._roots(hessian(at))
            inside = root.T @ gradient
            length = numpy.sqrt(numpy.square(inside).sum())
            # A step is at most as long as the radius, which doubles after each step that lowers the
            # cost, and shrinks after any other.
            new = at - root @ inside * numpy.minimum(1.0, radius / numpy.maximum(length, 1e-30))
            there, downhill = slope(new)
            lower = there <= value
            at, gradient = numpy.where(lower, new, at), numpy.where(lower, downhill, gradient)
            radius = numpy.where(lower, 2.0 * radius, numpy.minimum(radius, length) / 4.0)
            # The length of the whole Newton step, where it lowered the cost, is the distance to the
            # mode that was left before it: the search ends when this is small.
            left = numpy.where(lower, length, left)
            return at, numpy.where(lower, there, value), gradient, radius, left, count + 1

        at = numpy.asarray(self.own.start, theta.dtype)
        value, gradient = slope(at)
        one = numpy.ones((), theta.dtype)
        state = (at, value, gradient, 5.0 * one, 1e30 * one, 0)
        centre = jax.lax.while_loop(goes_on, newton, state)[0]
        return _Normal(centre, *self._roots(hessian(centre)))

    def _moved(
        self, theta: Any, own: Any, rows: Any, counts: Any, normal: Any, log_uniform: Any
    ) -> tuple[Any, Any]:
        """Local parameters of one device after a round, (entry), and the gradient that it sends,
        (dim). It makes one step of a random walk and then long steps; the gradient is the mean of
        the joint cost's gradient in theta after each long step. ``normal`` (step, entry) and
        ``log_uniform`` (step) are the random numbers: standard normals, and logarithms of uniform
        ones."""
        jax, numpy = self._jax, self._jax.numpy
        law = self._normal(theta, rows, counts)

        def cost(x: Any) -> Any:
            value = self._joint(theta, law.centre + law.root @ x, rows, counts)
            return numpy.where(numpy.isfinite(value), value, numpy.inf)

        def step(before: Any, drawn: Any) -> Any:
            (x, value), (xi, log_u, walks) = before, drawn
            new = numpy.where(walks, x + stride * xi, xi)
            there = cost(new)
            # A long step is drawn from the normal law wherever x is. So the acceptance needs the
            # ratio of that law's densities at both points; in a random walk it cancels.
            proposed = 0.5 * (numpy.square(new).sum() - numpy.square(x).sum())
            # inf - inf is NaN, with which the comparison is false, so that the proposal is refused.
            accepted = log_u < value - there + numpy.where(walks, 0.0, proposed)
            after = numpy.where(accepted, new, x), numpy.where(accepted, there, value)
            return after, after[0]

        stride = numpy.asarray(_STRIDE / math.sqrt(self.num_local), theta.dtype)
        walks = numpy.arange(len(log_uniform)) == 0
        first = law.inverse @ (own - law.centre)
        (last, _), places = jax.lax.scan(step, (first, cost(first)), (normal, log_uniform, walks))
        slope = jax.grad(self._joint)
        each = jax.vmap(lambda x: slope(theta, law.centre + law.root @ x, rows, counts))(places[1:])
        return law.centre + law.root @ last, each.mean(axis=0)

    def _at_nodes(self, theta: Any, rows: Any, counts: Any) -> tuple[Any, Any, Any]:
        """Nodes at which one device's joint density is integrated over its local parameters, (node,
        entry); the logarithms of the sum's terms, (node); and the logarithm of the volume by which
        the sum is multiplied to give the marginal density of the device's data."""
        numpy = self._jax.numpy
        law = self._normal(theta, rows, counts)
        law = self._jax.lax.stop_gradient(law)
        nodes = numpy.asarray(self._nodes, theta.dtype)
        places = law.centre + nodes @ law.root.T
        costs = self._jax.vmap(lambda own: self._joint(theta, own, rows, counts))(places)
        weights = numpy.asarray(self._weights, theta.dtype) + 0.5 * numpy.square(nodes).sum(axis=1)
        return places, weights - costs, law.log_volume

    def _marginal(self, theta: Any, rows: Any, counts: Any) -> Any:
        """Marginal cost of one device at theta (dim) without its share of theta's prior, a number.
        In its derivative the nodes of the integral count as fixed, which gives the conditional mean
        of the joint cost's gradient."""
        _, terms, log_volume = self._at_nodes(theta, rows, counts)
        return -self._jax.scipy.special.logsumexp(terms) - log_volume

    def _scatter(self, theta: Any, rows: Any, counts: Any) -> Any:
        """Covariance of the gradient in theta of one device's joint cost, (dim, dim), over the
        conditional law of its local parameters given theta and its data."""
        jax, numpy = self._jax, self._jax.numpy
        places, terms, _ = self._at_nodes(theta, rows, counts)
        share = jax.nn.softmax(terms)
        slope = jax.grad(self._joint)
        each = jax.vmap(lambda own: slope(theta, own, rows, counts))(places)
        away = each - share @ each
        return numpy.einsum("n,ni,nj->ij", share, away, away)

    # The methods from here on are for all devices.

    def _over_devices(self, function: Callable[..., Any], data: Any, *arguments: Any) -> Any:
        """Results of ``function(rows, counts, *arguments)`` for every device, with the devices as
        first axis. Each of the ``arguments`` has the devices as first axis too, and the function
        gets its own device's entry."""
        jax = self._jax
        parts = [
            jax.vmap(function)(
                each["rows"], each["counts"], *(one[each["devices"]] for one in arguments)
            )
            for each in data["groups"]
        ]
        whole = jax.tree.map(lambda *some: jax.numpy.concatenate(some), *parts)
        return jax.tree.map(lambda values: values[data["order"]], whole)

    def first_unit(self, data: Any) -> Any:
        """Arrays, by name, with which the user's log likelihood is tried: those of one device if
        the likelihood is that of a device, else those of one example."""
        first = data["groups"][0]["rows"]
        return self._jax.tree.map(lambda each: each[0] if self._of_device else each[0, 0], first)

    def total(self, theta: Any, data: Any) -> Any:
        """Negative log posterior at one theta (dim), up to a constant, with all local parameters
        integrated out."""
        each = self._over_devices(lambda *of: self._marginal(theta, *of), data)
        return each.sum() + len(each) * self.prior_share(theta)

    def gradients(self, theta: Any, data: Any) -> Any:
        """Gradients of all devices' marginal costs at one theta (dim), (device, dim)."""
        slope = self._jax.grad(self._marginal)
        each = self._over_devices(lambda *of: slope(theta, *of), data)
        return each + self._jax.grad(self.prior_share)(theta)

    def bounded(self, example_bound: ExampleBound | None) -> Callable[[Any, Any], Any]:
        """The function :meth:`gradients`. Raises ``InvalidSetting`` if ``example_bound`` is not
        None, because single examples cannot be clipped with local parameters."""
        if example_bound is not None:
            raise InvalidSetting(NO_EXAMPLES_LOCALLY)
        return self.gradients

    def scatter(self, theta: Any, data: Any) -> Any:
        """Conditional covariance, given theta (dim), of the sum of all devices' joint gradients at
        independent draws of their local parameters, (dim, dim)."""
        return self._over_devices(lambda *of: self._scatter(theta, *of), data).sum(axis=0)

    def modes(self, theta: Any, data: Any) -> Any:
        """Modes of all devices' local parameters at one theta (dim), (device, entry)."""
        return self._over_devices(lambda *of: self._normal(theta, *of).centre, data)

    def moved(self, theta: Any, own: Any, data: Any, normal: Any, log_uniform: Any) -> Any:
        """Local parameters of all devices after a round at one theta (dim), (device, entry), and
        the gradients that the devices send, (device, dim), each the mean over the device's steps.
        ``own`` (device, entry) are the local parameters before; ``normal`` (device, step, entry)
        and ``log_uniform`` (device, step) are standard normal numbers and logarithms of uniform
        ones."""

        def one(rows: Any, counts: Any, own: Any, normal: Any, log_uniform: Any) -> Any:
            return self._moved(theta, own, rows, counts, normal, log_uniform)

        after, gradients = self._over_devices(one, data, own, normal, log_uniform)
        return after, gradients + self._jax.grad(self.prior_share)(theta)


def _nodes(dim: int) -> tuple[Array, Array]:
    r"""Nodes of an integral in ``dim`` dimensions, (node, dim), and the logarithms of their
    weights, (node), for the weight function :math:`\exp(-|x|^2/2)`, without the constant of the
    normal density."""
    constant = 0.5 * dim * math.log(2.0 * math.pi)
    if dim > len(_NODES):
        # Two nodes on each axis, at the root of dim on both sides, with equal weights: exact for
        # polynomials of the third degree.
        axes = math.sqrt(dim) * np.concatenate([np.eye(dim), -np.eye(dim)])
        return axes, np.full(2 * dim, constant - math.log(2 * dim))
    places, weights = np.polynomial.hermite_e.hermegauss(_NODES[dim - 1])
    every = list(itertools.product(range(len(places)), repeat=dim))
    logs = np.log(weights)[np.array(every)].sum(axis=1)
    return places[np.array(every)], logs


def in_groups(data: dict[str, Any]) -> dict[str, Any]:
    """Data of :func:`~flmc.models.differentiation.padded_rows` in groups of devices, in the form of
    :func:`~flmc.models.whole_devices.rows_of_devices`. There is one group, or two, of small and of
    large devices, where two more than halve the padded arrays. There are never more, because every
    group is compiled by itself, which takes longer than to compute for some padding."""
    sizes = data["counts"].sum(axis=1).astype(np.intp)
    largest, ordered = int(sizes.max()), np.sort(sizes)
    small = np.arange(1, len(sizes) + 1)
    padded = small * ordered + (len(sizes) - small) * largest
    best = int(padded.argmin())
    split = ordered[best] if 2 * padded[best] < len(sizes) * largest else largest
    chosen = [np.flatnonzero(sizes <= split), np.flatnonzero(sizes > split)]
    groups = [
        {
            "rows": {name: each[devices, : sizes[devices].max()] for name, each in rows.items()},
            "counts": data["counts"][devices, : sizes[devices].max()],
            "devices": devices,
        }
        for rows, devices in ((data["rows"], each) for each in chosen if len(each))
    ]
    order = np.argsort(np.concatenate([each["devices"] for each in groups]))
    return {"groups": groups, "order": order}
