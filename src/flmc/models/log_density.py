r"""A model from log densities: gradients by automatic differentiation, with JAX.

The log likelihood is that of ONE example, unless it is declared to be that of a device as a whole.
The local cost of device k is :math:`f_k(\theta) = -\sum_{n \in D_k} \ln p(x_n \mid \theta) -
\tfrac1K \ln p(\theta)`. Devices of unequal size are padded with examples that count for nothing, so
that the data of all fit into one array. For a series, a state-space model, or any data whose
examples depend on each other, :math:`\ln p(D_k \mid \theta)` is not a sum over examples:
:mod:`flmc.models.whole_devices` has these costs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.data.examples import OnDevices
from flmc.data.federated import FederatedData
from flmc.models.affine import START_SD, Coordinates
from flmc.models.batches import Batch
from flmc.models.curvature import FLAT, MOST_DENSE, CurvatureMeter, diagonal_curvature
from flmc.models.differentiation import (
    DifferentiatedCosts,
    check_densities,
    padded_rows,
    require_jax,
)
from flmc.models.distributions import Normal
from flmc.models.local_costs import ExampleBound, TracedCosts, TracedMoves
from flmc.models.local_parameters import (
    NO_EXAMPLES_LOCALLY,
    LocalParameterCosts,
    LocalParameters,
    in_groups,
)
from flmc.models.model import Model
from flmc.models.parameters import ParameterTree
from flmc.models.pointwise import Pointwise, pointwise_of
from flmc.models.whole_devices import NO_EXAMPLES, WholeDeviceCosts, rows_of_devices

_MOST_LOOKED_AT = 200
"""Largest number of examples, evenly chosen, whose gradients are computed to find out whether
examples affect the likelihood."""
LogPrior = Callable[[Any], Any]
"""Log density of the prior, up to a constant, as a function of the user's parameters."""
LogLikelihood = Callable[..., Any]
"""Log likelihood of one example, or of all data of a device, as a function of the user's
parameters, of the device's own ones where there are any, and of the arrays of the example or the
device."""
_SCATTER_STEP = 8.0
"""Smallest ratio of a measured smoothness to the largest variance that the devices' own randomness
adds to the sum of their gradients. With a step of 0.4 over the smoothness, that randomness then
adds at most 2.5 % to the variance of draws."""
UNITS = ("example", "device")
"""Possible values of ``likelihood_of``: the user's log likelihood is that of one example, or of all
data of one device."""


class LogDensityModel(Model):
    """Model of one data set from log densities; made by :meth:`flmc.Model.from_log_density`, which
    describes the parameters.

    Chains start from a normal distribution about ``start``, with the spread that the log prior has
    there; with ``coordinates``, in which the sampler then works, about their centre. Curvatures
    that are not given are measured from the data, and so are not public;
    :mod:`flmc.models.curvature` says how, and what is guaranteed. The attribute ``layout`` holds
    the parameters in the order of theta, and ``declared`` the start with its declarations;
    ``log_likelihood`` is the user's function, and ``to_parameters`` maps one theta (dim), in the
    model's own coordinates, to the user's tree of parameters. ``prior_devices`` is the number K of
    devices which share the prior, and ``likelihood_of`` says whether the log likelihood is that of
    one ``example`` or of a ``device``. With ``local``, parameters that each device has of its own,
    gradients are those of the marginal costs, and :meth:`moved` does what a device does in a
    round."""

    def __init__(
        self,
        log_prior: LogPrior,
        log_likelihood: LogLikelihood,
        data: OnDevices,
        start: Any,
        smoothness: float | None = None,
        convexity: float | None = None,
        start_sd: float | Array | None = None,
        coordinates: Coordinates | None = None,
        prior_devices: int | None = None,
        likelihood_of: str = "example",
        local: LocalParameters | None = None,
    ) -> None:
        jax = require_jax()
        self._log_prior, self.log_likelihood = log_prior, log_likelihood
        self.data = data
        self.likelihood_of = checks.one_of("likelihood_of", likelihood_of, UNITS)
        self.num_devices = data.num_devices
        self.prior_devices = checks.at_least(
            "prior_devices", prior_devices or data.num_devices, data.num_devices
        )
        tree = ParameterTree(jax, start)
        self.declared = start
        self.to_parameters: Callable[[Any], Any] = tree.parameters
        self.layout = layout = tree.layout
        self._start, self.dim = tree.start, len(tree.start)
        self.coordinates = coordinates
        # In other coordinates than the model's own, chains start about phi = 0, the centre of the
        # coordinates, which is nearer to the posterior than the user's start.
        self.start_point = self._start if coordinates is None else np.zeros(self.dim)
        self.local = local
        whole = likelihood_of == "device"
        self._data = rows_of_devices(data) if whole else padded_rows(data)
        densities = (
            jax,
            log_prior,
            log_likelihood,
            self._parameters_of,
            # The Jacobian of the map from the sampler's coordinates to the model's is constant, and
            # so is left out.
            lambda theta: layout.log_jacobian(self._in_own(theta)),
            self.prior_devices,
        )
        self._costs: DifferentiatedCosts
        self._moves: LocalParameterCosts | None = None
        own: tuple[Any, ...] = ()
        if local is not None:
            _check_sizes(data)
            self._data = self._data if whole else in_groups(self._data)
            self._costs = self._moves = LocalParameterCosts(*densities, local, likelihood_of)
            self.num_local = self._moves.num_local
            own = (self._moves.own.parameters(self._moves.own.start),)
        else:
            self._costs = (WholeDeviceCosts if whole else DifferentiatedCosts)(*densities)
        with jax.enable_x64():  # double precision, as for gradients later
            check_densities(
                log_prior,
                log_likelihood,
                (self._parameters_of(self.start_point), *own),
                self._costs.first_unit(self._data),
                likelihood_of,
                None if local is None else local.log_prior,
            )
        self._curvature = CurvatureMeter(jax, lambda theta: self._costs.total(theta, self._data))
        self._compiled: dict[ExampleBound | None, Callable[[Any, Any], Any]] = {}
        self._compiled_moves: Callable[..., Any] | None = None
        self._of_batches: dict[ExampleBound | None, Callable[..., Any]] = {}
        if coordinates is not None and start_sd is None:
            start_sd = START_SD * coordinates.unit
        self.prior = Normal(self.start_point, self._spread(start_sd))
        self.public = smoothness is not None and not data.data_dependent
        self.made_from_data, self.num_examples = data.data_dependent, data.num_samples
        # Batches need gradients of single examples, which only a likelihood of single examples has.
        self.device_sizes = None if self.no_examples else tuple(data.device_sizes)
        self.data_findings = (*(data.findings or ()), *self._examples_without_effect(jax))
        measured_here = smoothness is None
        if smoothness is None:
            smoothness, measured = self._curvature.measure(self.start_point)
            convexity = measured if convexity is None else convexity
        everyone = self.prior_devices == self.num_devices
        if self._moves is not None and self.dim <= MOST_DENSE and everyone:
            # Measured even if the smoothness is given, because forecasts take the variance of the
            # devices' own randomness into account. Without a mode at which to measure it, it stays
            # unknown.
            with suppress(InvalidSetting):
                scatter = self._measure_scatter(self._moves)
                self.local_variance = np.diag(scatter).copy()
                if measured_here:
                    most = _SCATTER_STEP * float(np.linalg.eigvalsh(scatter)[-1])
                    smoothness = max(smoothness, most)
        self.smoothness = checks.positive("smoothness", smoothness)
        self.convexity = None if convexity is None else checks.positive("convexity", convexity)
        if self.convexity is not None and self.convexity > self.smoothness:
            raise InvalidSetting(
                f"convexity must not exceed smoothness {self.smoothness:g}, got {self.convexity:g}"
            )

    def _measure_scatter(self, moves: LocalParameterCosts) -> Array:
        """Covariance, (dim, dim), that the random moves of local parameters give the sum of the
        devices' gradients in a round, at the mode of the posterior. It takes each device's steps
        for independent draws."""
        jax = require_jax()
        mode = self._curvature.mode(self.start_point)
        with jax.enable_x64():
            return np.array(jax.jit(moves.scatter)(mode, self._data)) / moves.steps

    def _examples_without_effect(self, jax: Any) -> list[Finding]:
        """At most one finding: the data have two targets, one of them 0, and examples with the
        target 0 do not affect the likelihood, which suggests that it was written for -1 and +1."""
        data = self.data
        if not isinstance(data, FederatedData) or self.no_examples is not None:
            return []
        values = np.unique(data.targets)
        if len(values) != 2 or 0.0 not in values:
            return []
        rows = data.rows()
        score = jax.vmap(jax.grad(self.log_likelihood), in_axes=(None, 0))
        # Gradients are computed at two points, because by symmetry all gradients may vanish at the
        # start alone.
        moved = np.zeros(len(data.targets), dtype=bool)
        few = np.unique(np.linspace(0, len(moved) - 1, _MOST_LOOKED_AT, dtype=np.intp))
        with jax.enable_x64():
            for shift in (0.0, 0.5):
                where = self._parameters_of(self.start_point + shift)
                leaves = jax.tree.leaves(score(where, {k: v[few] for k, v in rows.items()}))
                for leaf in leaves:
                    moved[few] |= (np.asarray(leaf).reshape(len(few), -1) != 0).any(axis=1)
        zero, others = data.targets[few] == 0, data.targets[few] != 0
        if not zero.any() or moved[few][zero].any() or not moved[few][others].any():
            return []
        text = (
            f"no example with {data.target_name} = 0 changes the likelihood: is it written for"
            f" -1 and +1? The targets are 0 and {max(values, key=abs):g}; use 2 y - 1, or name the"
            " classes when the data are read"
        )
        short = f"examples with {data.target_name} = 0 have no effect"
        return [Finding("target-without-effect", "warning", text, short)]

    def _parameters_of(self, theta: Any) -> Any:
        """The user's tree of parameters at one theta (dim) in the coordinates in which the sampler
        moves."""
        return self.to_parameters(self._in_own(theta))

    def _in_own(self, theta: Any) -> Any:
        """Map one theta (dim) from the sampler's coordinates to the model's own."""
        return theta if self.coordinates is None else self.coordinates.to_model(theta)

    def whitened(
        self,
        draws: Array | None = None,
        *,
        scale: Array | None = None,
        centre: Array | None = None,
        smoothness: float | None = None,
        convexity: float | None = None,
    ) -> LogDensityModel:
        r"""This model sampled in coordinates :math:`\phi`, :math:`\theta = c + R\phi`, in which its
        posterior is round.

        R and c follow from mean and covariance of a pilot's ``draws`` (..., dim), or are given from
        public knowledge, R as ``scale``, (dim) or (dim, dim), and c as ``centre`` (dim; default:
        the start). Without draws and scale they follow from mode and curvature of the posterior.
        Coordinates from draws or from the posterior are for simulation: what they reveal of the
        data is not accounted. ``smoothness`` and ``convexity`` are as for :meth:`in_coordinates`.
        See also :func:`flmc.whiten`."""
        if draws is not None:
            coordinates = Coordinates.of_draws(draws)
        elif scale is not None:
            coordinates = Coordinates(
                self._start if centre is None else centre, np.asarray(scale, np.float64)
            )
        else:
            coordinates = self.laplace_coordinates()
        return self.in_coordinates(coordinates, smoothness, convexity, public=scale is not None)

    def laplace(self) -> tuple[Array, Array]:
        """Mode of the posterior, (dim), and the inverse of the Hessian of the negative log
        posterior at the mode, (dim, dim), in the sampler's coordinates; mode and inverse are
        computed from the data, so they are not public."""
        return self._curvature.laplace(self.start_point)

    def laplace_coordinates(self, weight: float = 1.0) -> Coordinates:
        """Coordinates whose centre is the mode of the posterior, and whose scale is a root of the
        inverse Hessian at the mode, divided by ``weight``. They suit about the posterior from
        ``weight`` times as many examples, whose covariance is smaller by this factor."""
        mode, covariance = self.laplace()
        return Coordinates.of_law(mode, covariance / weight, FLAT)

    def on(self, data: OnDevices, smoothness: float | None = None) -> LogDensityModel:
        """A model with the same log densities on other ``data``, whose devices together have the
        whole prior. Its smoothness is ``smoothness``, or is measured from the data if that is
        None."""
        return LogDensityModel(
            self._log_prior,
            self.log_likelihood,
            data,
            self.declared,
            smoothness,
            likelihood_of=self.likelihood_of,
            local=self.local,
        )

    def in_coordinates(
        self,
        coordinates: Coordinates,
        smoothness: float | None,
        convexity: float | None,
        *,
        public: bool,
    ) -> LogDensityModel:
        """This model, sampled in other ``coordinates``. ``smoothness`` and ``convexity`` are the
        largest and smallest curvature in those coordinates. If ``smoothness`` is None, it is
        measured from the data, and so is the convexity unless that is given. ``public`` says
        whether coordinates and curvatures are public knowledge."""
        whitened = LogDensityModel(
            self._log_prior,
            self.log_likelihood,
            self.data,
            self.declared,
            smoothness,
            convexity,
            coordinates=coordinates,
            prior_devices=self.prior_devices,
            likelihood_of=self.likelihood_of,
            local=self.local,
        )
        whitened.public = whitened.public and public
        whitened.made_from_data = self.made_from_data or not public
        return whitened

    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), at theta
        (experiment, chain, dim)."""
        return self._evaluate(None, theta)

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), where every
        entry of each example's gradient is clipped to [-example_clip, example_clip] before the sum;
        NaN counts as 0."""
        return self._evaluate(ExampleBound(example_clip, by_norm=False), theta)

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Gradients of the devices' local costs, (experiment, chain, device, dim), where each
        example's gradient is scaled down to a norm of at most ``example_norm`` before the sum; NaN
        counts as 0."""
        return self._evaluate(ExampleBound(example_norm, by_norm=True), theta)

    def batch_gradient(
        self,
        theta: Array,
        batch: Batch,
        example_bound: ExampleBound | None = None,
        experiments: slice = slice(None),
    ) -> Array:
        """Local gradients from the examples in ``batch``, (experiment, chain, device, dim), at
        theta (experiment, chain, dim). For each device: the sum of these examples' gradients, each
        clipped as ``example_bound`` says (None: not clipped), times the device's weight, plus its
        share of the prior's gradient."""
        jax = require_jax()
        counts = np.arange(batch.chosen.shape[-1]) < batch.sizes[:, None]
        # Only the rows of the chosen examples go to JAX: to copy all rows would take longer than to
        # compute the gradient.
        chosen = batch.chosen.reshape(-1, *batch.chosen.shape[2:])
        devices = np.arange(self.num_devices)[:, None]
        rows = {name: values[devices, chosen] for name, values in self._data["rows"].items()}
        with jax.enable_x64():
            if example_bound not in self._of_batches:
                one = self._costs.of_batch(example_bound)
                self._of_batches[example_bound] = jax.jit(
                    lambda thetas, rows, counts, weights: jax.lax.map(
                        lambda each: one(*each, counts, weights), (thetas, rows)
                    )
                )
            local = self._of_batches[example_bound](
                theta.reshape(-1, self.dim), rows, counts.astype(np.float64), batch.weights
            )
            return np.array(local).reshape(*theta.shape[:2], self.num_devices, self.dim)

    def parameters(self, theta: Array) -> Any:
        """The user's tree of parameters for every theta (..., dim) in the model's own coordinates;
        each array of the tree has theta's leading axes before its own."""
        jax = require_jax()
        with jax.enable_x64():
            flat = np.asarray(theta, dtype=np.float64).reshape(-1, self.dim)
            tree = jax.vmap(self.to_parameters)(flat)
            lead = theta.shape[:-1]

            def as_array(leaf: Any) -> Array:
                return np.array(leaf, dtype=np.float64).reshape((*lead, *leaf.shape[1:]))

            return jax.tree.map(as_array, tree)

    def pointwise(self) -> Pointwise | None:
        """Functions that compute the log likelihoods of single examples at draws of theta and, if
        the likelihood can simulate, draws of new observations; None if the likelihood is not a sum
        over examples."""
        return pointwise_of(self, self._log_prior)

    @property
    def no_examples(self) -> str | None:
        """Error message that says why the gradients of single examples cannot be clipped in this
        model, and what to do; None if they can be."""
        if self.local is not None:
            return NO_EXAMPLES_LOCALLY
        return NO_EXAMPLES if self.likelihood_of == "device" else None

    def prior_share(self, theta: Array) -> Array:
        """The part of every device's local gradient that comes from the log prior: 1/K of the
        gradient of the negative log prior, (experiment, chain, dim), at theta (experiment, chain,
        dim). It does not use the attribute ``prior``, which is only the distribution of the
        starts."""
        jax = require_jax()
        with jax.enable_x64():
            each = jax.vmap(jax.grad(self._costs.prior_share))(theta.reshape(-1, self.dim))
            return np.array(each).reshape(theta.shape)

    def traced(self, example_bound: ExampleBound | None = None) -> TracedCosts | None:
        """The devices' local gradients as a function that JAX can compile into a loop of its own.
        Each example's gradient is clipped as ``example_bound`` says; None: not clipped. Returns
        None if a bound is given and the model has no gradients of single examples."""
        if example_bound is not None and self.no_examples is not None:
            return None
        moves, batch = self._moves, None
        if self.device_sizes is not None:
            of_rows = self._costs.of_batch(example_bound)
            devices = np.arange(self.num_devices)[:, None]

            def batch(theta: Any, data: Any, rows: Any, counts: Any, weights: Any) -> Any:
                chosen = {name: values[devices, rows] for name, values in data["rows"].items()}
                return of_rows(theta, chosen, counts, weights)

        return TracedCosts(
            self._costs.bounded(example_bound),
            lambda experiment: self._data,
            None if moves is None else TracedMoves(moves.moved, moves.own.start, moves.steps + 1),
            batch,
        )

    def _evaluate(self, example_bound: ExampleBound | None, theta: Array) -> Array:
        """Local gradients of all devices, (experiment, chain, device, dim), at theta (experiment,
        chain, dim), in double precision, one chain after the other. Each example's gradient is
        clipped as ``example_bound`` says; None: not clipped. Raises ``InvalidSetting`` if a bound
        is given and the model has no gradients of single examples."""
        if example_bound is not None and self.no_examples is not None:
            raise InvalidSetting(self.no_examples)
        jax = require_jax()
        with jax.enable_x64():
            if example_bound not in self._compiled:
                gradients = self._costs.bounded(example_bound)
                self._compiled[example_bound] = jax.jit(
                    lambda thetas, data: jax.lax.map(lambda at: gradients(at, data), thetas)
                )
            local = self._compiled[example_bound](theta.reshape(-1, self.dim), self._data)
            return np.array(local).reshape(*theta.shape[:2], self.num_devices, self.dim)

    def local_start(self) -> Array:
        """Local parameters, as free numbers, with which every device begins, (device, entry)."""
        own = np.empty(0) if self._moves is None else self._moves.own.start
        return np.tile(own, (self.num_devices, 1))

    def moved(self, theta: Array, own: Array, rng: np.random.Generator) -> tuple[Array, Array]:
        """One round of all devices with local parameters, at one ``theta`` (dim) in the sampler's
        coordinates. Returns the local parameters after the devices' steps, as free numbers (device,
        entry), which were ``own`` (device, entry) before; and the gradients in theta that devices
        send, (device, dim), each the mean over the device's steps. All randomness is from
        ``rng``."""
        jax, moves = require_jax(), self._moves
        assert moves is not None
        shape = (self.num_devices, moves.steps + 1)
        normal = rng.standard_normal((*shape, self.num_local))
        log_uniform = np.log1p(-rng.random(shape))
        with jax.enable_x64():
            if self._compiled_moves is None:
                self._compiled_moves = jax.jit(moves.moved)
            after, gradients = self._compiled_moves(theta, own, self._data, normal, log_uniform)
            return np.array(after), np.array(gradients)

    def local_draws(self, draws: Array, seed: int, steps: int = 16) -> dict[str, Array]:
        """Local parameters of every device, drawn given draws of theta: together they are draws of
        the joint posterior. They are computed from the data of all devices, so no privacy statement
        covers them; a device may draw its own from a model of its own data.

        Parameters
        ----------
        draws
            Draws of theta, (..., dim), in the model's own coordinates, as ``result.draws`` has.
        seed
            Seed of all random numbers.
        steps
            Number of steps of Metropolis and Hastings, from the mode of the local parameters, for
            each draw of theta.

        Returns
        -------
        dict
            Values of the local parameters by name, each (..., device, shape of the parameter).
        """
        jax, moves = require_jax(), self._moves
        if moves is None:
            raise InvalidSetting("local_draws needs a model with local parameters")
        flat = np.asarray(draws, dtype=np.float64).reshape(-1, self.dim)
        if self.coordinates is not None:
            flat = self.coordinates.from_model(flat)
        rng = np.random.default_rng(seed)

        def one(given: Any) -> Any:
            theta, key = given
            normal, uniform = jax.random.split(key)
            shape = (self.num_devices, steps)
            return moves.moved(
                theta,
                moves.modes(theta, self._data),
                self._data,
                jax.random.normal(normal, (*shape, self.num_local)),
                jax.numpy.log(jax.random.uniform(uniform, shape)),
            )[0]

        with jax.enable_x64():
            keys = jax.random.split(jax.random.key(int(rng.integers(2**31))), len(flat))
            own = np.array(jax.jit(lambda both: jax.lax.map(one, both))((flat, keys)))
        values = moves.own.layout.values(own)
        lead = np.shape(draws)[:-1]
        return {name: each.reshape(*lead, *each.shape[1:]) for name, each in values.items()}

    def _spread(self, given: float | Array | None) -> Array:
        """Standard deviation of the points from which chains start, (dim): ``given``, a number or
        (dim); if it is None, the prior's standard deviation at the start, from the curvature of its
        log density."""
        if given is not None:
            sd = checks.finite_array("start_sd", given)
            if sd.shape not in ((), (self.dim,)) or (sd <= 0).any():
                raise InvalidSetting(f"start_sd must be positive, a number or {self.dim} numbers")
            return np.broadcast_to(sd, (self.dim,))
        curvature = diagonal_curvature(
            require_jax(),
            lambda theta: self.prior_devices * self._costs.prior_share(theta),
            self.start_point,
        )
        # Where the prior is flat in an entry, its curvature gives no standard deviation: it is set
        # to 1.
        return np.where(curvature > 0, 1.0 / np.sqrt(np.maximum(curvature, 1e-12)), 1.0)


def _check_sizes(data: OnDevices) -> None:
    """Raise ``InvalidSetting`` if a device has no data for its local parameters."""
    if 0 in data.device_sizes:
        raise InvalidSetting(
            "with local parameters every device must have an example at least, and device"
            f" {data.device_sizes.index(0)} (from 0) has none: leave it out"
        )
