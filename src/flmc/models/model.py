r"""The contract of a model: for a batch of thetas, the gradient of every device's local cost.

The local cost of device k is :math:`f_k(\theta) = -\ln p(D_k \mid \theta) - \tfrac1K \ln
p(\theta)`: a *sum* over its examples, plus its share 1/K of the prior. The sum of all :math:`f_k`
is the negative log posterior, up to a constant."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.tables import Listing
from flmc.data.examples import OnDevices
from flmc.models.affine import Coordinates
from flmc.models.description import listing_of
from flmc.models.distributions import Gaussian, Normal, Prior
from flmc.models.local_costs import ExampleBound, Quadratic, TracedCosts
from flmc.models.parameters import Layout

if TYPE_CHECKING:  # imported for types only: batches imports this module
    from flmc.models.batches import Batch
    from flmc.models.pointwise import Pointwise


class Model(ABC):
    """Statistical model of data that lie on devices: gradients of the devices' local costs, and
    known facts of the posterior.

    A model may hold several data sets ("experiments") of one shape. A model of your own is a class
    with ``dim``, ``num_devices`` and the method ``gradient``, or is made by
    :meth:`from_gradient`."""

    dim: int
    """Number of entries of theta."""
    num_devices: int
    """Number K of devices."""
    num_experiments: int = 1
    """Number of data sets."""
    num_examples: int | None = None
    """Number of examples of a data set; None: not known."""
    num_local: int = 0
    """Number of free entries of the parameters that each device has of its own, which are no part
    of theta and never leave the device."""
    local_variance: Array | None = None
    """Variance, (dim), that the random moves of the devices' own parameters give each entry of the
    sum of their gradients in a round, at the mode; None: the model has no local parameters, or the
    variance is not known."""
    device_sizes: tuple[int, ...] | None = None
    """Number of examples of each device, if the model overrides ``batch_gradient``; None: it cannot
    compute gradients from batches."""
    prior: Prior = Normal()
    """Prior of theta, from which the starts of chains may be drawn. In a model from log densities
    it is the law of the starts alone, and the prior is the user's log prior."""
    smoothness: float | None = None
    """Largest curvature L of the sum of all local costs, the negative log posterior; None: not
    known."""
    convexity: float | None = None
    """Smallest curvature mu of the sum of all local costs, the negative log posterior; None: not
    known."""
    public: bool = False
    """Whether smoothness and convexity are public knowledge, not computed from the devices' data. A
    plan whose step was computed from data makes no privacy statement for a deployment."""
    made_from_data: bool = False
    """Whether a device's gradients depend on data of other devices too, for instance by features
    scaled by the mean of all, or by coordinates computed from the posterior. No plan of such a
    model makes a privacy statement."""

    data_findings: tuple[Finding, ...] = ()
    """Findings that speak against the data, such as units that differ between devices; every plan
    of the model has them among its findings."""

    posterior: Gaussian | None = None
    """The exact posterior of every data set; None: not known."""
    layout: Layout | None = None
    """Names, shapes and supports of the parameters, in the order in which they lie in theta; None:
    entries of theta have no names."""
    coordinates: Coordinates | None = None
    """Coordinates in which the sampler works, while results are in the model's own; None: the
    model's own."""

    @abstractmethod
    def gradient(self, theta: Array, experiments: slice = slice(None)) -> Array:
        """Gradient of every device's local cost, its share of the prior included.

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        experiments
            Data sets to which the first axis of ``theta`` belongs; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).
        """

    def clipped_gradient(
        self, theta: Array, example_clip: float, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients with every entry of an example's gradient clipped before the sum.

        The prior's share is public and is not clipped. An entry that is not a number counts as 0
        for its example alone: else one example could silence a whole device.

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        example_clip
            Largest magnitude of an entry of one example's gradient.
        experiments
            Data sets to which the first axis of ``theta`` belongs; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).

        Raises
        ------
        InvalidSetting
            Unless a subclass that has the gradients of single examples overrides this.
        """
        raise InvalidSetting(
            "example_clip needs the gradients of single examples, which this model does not give:"
            " pass clipped_gradient to flmc.Model.from_gradient, or override it in a class of your"
            " own"
        )

    def norm_clipped_gradient(
        self, theta: Array, example_norm: float, experiments: slice = slice(None)
    ) -> Array:
        """Local gradients with every example's gradient scaled down to a bounded norm before the
        sum.

        The prior's share is public and is not clipped. An entry that is not a number counts as 0
        for its example alone.

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        example_norm
            Largest Euclidean norm of one example's gradient.
        experiments
            Data sets to which the first axis of ``theta`` belongs; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).

        Raises
        ------
        InvalidSetting
            Unless a subclass that has the gradients of single examples overrides this.
        """
        raise InvalidSetting(
            "example_norm needs the gradients of single examples, which this model does not give:"
            " pass norm_clipped_gradient to flmc.Model.from_gradient, or override it in a class of"
            " your own"
        )

    def batch_gradient(
        self,
        theta: Array,
        batch: Batch,
        example_bound: ExampleBound | None = None,
        experiments: slice = slice(None),
    ) -> Array:
        """Local gradients from batches: for each device the sum of the gradients of the examples in
        its batch, times the device's weight, plus its share of the prior's gradient.

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        batch
            Which examples each device uses, and the weight of their gradients.
        example_bound
            Bound of the gradients of single examples before they are weighted; None: they are not
            clipped.
        experiments
            Data sets to which the first axis of ``theta`` belongs; all by default.

        Returns
        -------
        Array
            Local gradients, (experiment, chain, device, dim).

        Raises
        ------
        InvalidSetting
            Unless a subclass that has single examples overrides this, and states ``device_sizes``.
        """
        raise InvalidSetting(
            "batch_share needs gradients of some of a device's examples, which this model does not"
            " give: override batch_gradient in a class of your own, with device_sizes"
        )

    def prior_share(self, theta: Array) -> Array:
        """The part of every device's local gradient that comes from the prior, 1/K of the prior's
        gradient for K devices, (experiment, chain, dim).

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        """
        return self.prior.gradient(theta) / self.num_devices

    def quadratic(self, experiments: slice = slice(None)) -> Quadratic | None:
        """Local costs in quadratic form, which the numba engine needs.

        Parameters
        ----------
        experiments
            Data sets; all by default.

        Returns
        -------
        Quadratic or None
            Hessians of the local costs and constant parts of the local gradients; None for costs
            that are not quadratic.
        """
        return None

    def traced(self, example_bound: ExampleBound | None = None) -> TracedCosts | None:
        """Local gradients as a function that JAX can trace, which the JAX engine needs.

        Parameters
        ----------
        example_bound
            Bound of the gradients of single examples; None: they are not clipped.

        Returns
        -------
        TracedCosts or None
            The function and its data; None, as here, for a model that has no such function.
        """
        return None

    def predict(self, theta: Array, experiments: slice = slice(None)) -> Array | None:
        """Quantities that the model predicts; a result reports whether chains agree in them.

        At most twenty quantities are compared. If theta is not identified, chains may agree in
        these quantities and not in theta.

        Parameters
        ----------
        theta
            Parameters, (experiment, chain, dim).
        experiments
            Data sets to which the first axis of ``theta`` belongs; all by default.

        Returns
        -------
        Array or None
            Predictions, (experiment, chain, prediction); None for a model that gives none, as
            here.
        """
        return None

    def pointwise(self) -> Pointwise | None:
        """Functions that compute log likelihoods and simulated observations of single examples at
        draws of theta; ``result.to_arviz`` adds their values to the draws.

        Returns
        -------
        Pointwise or None
            These functions; None, as here, for a model that does not know its examples.
        """
        return None

    def listing(self) -> Listing:
        """The model as rows for printing: its parameters, with supports, sizes and labels, its
        devices and examples, and what is known of its curvature."""
        return listing_of(self)

    def __str__(self) -> str:
        return str(self.listing())

    @staticmethod
    def from_log_density(
        log_prior: Callable[[Any], Any],
        log_likelihood: Callable[..., Any],
        data: OnDevices,
        start: Any,
        *,
        smoothness: float | None = None,
        convexity: float | None = None,
        start_sd: float | Array | None = None,
        prior_devices: int | None = None,
        likelihood_of: str = "example",
        local: Any = None,
        log_local_prior: Callable[[Any, Any], Any] | None = None,
        local_steps: int = 8,
        observed: str | None = None,
        simulate: Callable[[Any, Any, Any], Any] | None = None,
    ) -> Model:
        """Model from log densities, which JAX differentiates (extra ``jax``).

        Parameters
        ----------
        log_prior, log_likelihood
            ``log_prior(parameters)`` is the log density of the prior, up to a constant;
            ``log_likelihood(parameters, example)`` is that of ONE example, a dictionary with its
            features ``x`` and its target ``y``, or with the arrays of
            ``flmc.data.from_arrays``. Both are written in the parameters as they are declared:
            the Jacobian of a support is added to the log prior by the model.
        data
            Examples of all devices, as ``flmc.data.read`` or ``flmc.data.from_arrays``
            gives them.
        start
            Parameters about which chains start, in any form that JAX knows as a pytree. An array,
            or a :class:`flmc.Parameter` with a support and names of axes, for each.
        smoothness, convexity
            Largest and smallest curvature of the negative log posterior from public knowledge.
            Without ``smoothness`` those not given are measured from the data, at the start
            and at the mode, and are not public.
        start_sd
            Standard deviation of the starts in theta, a number or (dim); None: that of the prior at
            ``start``.
        prior_devices
            Number of devices that share the prior, if ``data`` are those of some of them only: the
            number of a federation's devices, for the model of one of them. None: all are in
            ``data``.
        likelihood_of
            ``"device"``: ``log_likelihood(parameters, device)`` is that of ALL data of one device,
            a dictionary of its whole arrays, (example, ...), which differ in length between
            devices. For a series, a state-space model, or whatever else is no sum over examples.
            Only the privacy of whole devices is then stated: ``example_clip`` and ``example_norm``
            are refused.
        local, log_local_prior
            Parameters that each device has of its own, which never leave it, declared as in
            ``start``, and ``log_local_prior(parameters, local)``, the log density of those of one
            device given the global ones. The log likelihood is then
            ``log_likelihood(parameters, local, example)``. In each round a device moves its local
            parameters and sends the gradient in the global ones; see ``docs/models.md``. Only the
            privacy of whole devices is stated.
        local_steps
            Steps by which a device moves its local parameters in each round, after a first one.
            What it sends is the mean over them: more steps mean less noise, and more work on the
            device.
        observed
            Name of the array that the likelihood is of, for ``result.to_arviz``; None: ``y`` or the
            target, if there is one. ArviZ's ``loo`` takes the log likelihood as it is: a density
            with all constants.
        simulate
            ``simulate(parameters, example, key)``: a draw of that array for one example, with a
            random key of JAX, for the posterior predictive.

        Examples
        --------
        The mean and the spread of normal numbers on two devices:

        >>> import jax.numpy as jnp
        >>> data = flmc.data.from_arrays([{"y": [1.0, 3.0]}, {"y": [2.0]}])
        >>> model = flmc.Model.from_log_density(
        ...     lambda w: -0.5 * w["mean"] ** 2 - w["sd"],
        ...     lambda w, row: -0.5 * ((row["y"] - w["mean"]) / w["sd"]) ** 2 - jnp.log(w["sd"]),
        ...     data,
        ...     {"mean": 0.0, "sd": flmc.Parameter(1.0, flmc.supports.positive)},
        ... )
        >>> model.layout.free_entries(), model.layout.entries()
        (['mean', 'free(sd)'], ['mean', 'sd'])

        The memory of a series, of which every device has one:

        >>> walks = flmc.data.from_arrays([{"y": [0.0, 1.0, 0.4]}, {"y": [0.3, 0.1]}])
        >>> model = flmc.Model.from_log_density(
        ...     lambda w: -0.5 * w["memory"] ** 2,
        ...     lambda w, own: -0.5 * ((own["y"][1:] - w["memory"] * own["y"][:-1]) ** 2).sum(),
        ...     walks,
        ...     {"memory": 0.0},
        ...     likelihood_of="device",
        ... )
        >>> model.gradient(np.zeros((1, 1, 1))).round(2).tolist()
        [[[[-0.4], [-0.03]]]]

        A level of each device's own, which stays at home, about a common one:

        >>> data = flmc.data.from_arrays([{"y": [1.0, 3.0]}, {"y": [2.0]}])
        >>> model = flmc.Model.from_log_density(
        ...     lambda w: -0.5 * (w["mean"] / 10) ** 2,
        ...     lambda w, own, row: -0.5 * (row["y"] - own["level"]) ** 2,
        ...     data,
        ...     {"mean": 0.0},
        ...     local={"level": 0.0},
        ...     log_local_prior=lambda w, own: -0.5 * (own["level"] - w["mean"]) ** 2,
        ... )
        >>> model.dim, model.num_local
        (1, 1)
        """
        # imported here, because that module imports this one
        from flmc.models.local_parameters import declared
        from flmc.models.log_density import LogDensityModel
        from flmc.models.pointwise import named_likelihood

        if observed is not None or simulate is not None:
            if likelihood_of != "example" or local is not None:
                raise InvalidSetting(
                    "observed and simulate are of single examples, and this log likelihood is of a"
                    " device as a whole, or uses local parameters: leave them out"
                )
            log_likelihood = named_likelihood(data, log_likelihood, observed, simulate)
        return LogDensityModel(
            log_prior,
            log_likelihood,
            data,
            start,
            smoothness,
            convexity,
            start_sd,
            prior_devices=prior_devices,
            likelihood_of=likelihood_of,
            local=declared(local, log_local_prior, local_steps),
        )

    @staticmethod
    def from_numpyro(
        model: Callable[..., Any],
        data: OnDevices,
        *,
        fixed: Mapping[str, Any] | None = None,
        start: Mapping[str, Any] | None = None,
        dims: Mapping[str, Sequence[str]] | None = None,
        coords: Mapping[str, Sequence[Any]] | None = None,
        smoothness: float | None = None,
        convexity: float | None = None,
        start_sd: float | Array | None = None,
        prior_devices: int | None = None,
        likelihood_of: str = "example",
        local: str | None = None,
        local_steps: int = 8,
    ) -> Model:
        """Model from a model of NumPyro (extra ``numpyro``), whose log joint density is split into
        a prior and the likelihood of one example, or of a device as a whole.

        Every array has a row for each example, and each example enters by its own row alone, as in
        ``numpyro.plate("examples", len(y))``. Parameters of devices or groups are in a plate over
        these, and a row says to which it belongs. Discrete latent sites are to be summed out. What
        cannot be split is refused with the name of the site.

        Parameters
        ----------
        model
            A function with sites of NumPyro, which is called with the arrays of ``data`` by their
            names.
        data
            Examples of all devices, as ``flmc.data.from_arrays`` or ``flmc.data.read``
            gives them.
        fixed
            Further arguments of the model that are the same for all examples, such as the number of
            groups; they are public.
        start
            Values of latent sites about which chains start; of others the median of the prior.
        dims, coords
            Names of the axes of latent sites, and labels by the name of the axis, as ArviZ takes
            them. A plate names its axis by itself; an axis that is called as an array of
            ``flmc.data.from_frames`` has the labels of its categories or columns.
        smoothness, convexity, start_sd, prior_devices, local_steps
            As for :meth:`from_log_density`.
        likelihood_of
            ``"device"``: the model is that of ONE device, and is called with the device's whole
            arrays, (row, ...), which differ in length between devices: for a series, whose rows
            depend on each other. Latent sites are parameters of all devices, and counted once;
            so are observed sites that no array changes. Only the privacy of whole devices is then
            stated, and ``local`` is refused.
        local
            Name of a plate over devices, in the order of their numbers or any other: the entries
            of its latent sites are local parameters, each of which stays on its device. Rows say
            by an index which entry is theirs, as in ``z[school]``.

        Raises
        ------
        InvalidSetting
            If the model fails, or a site of it cannot be part of a federated model.
        MissingExtra
            If NumPyro is not installed.

        Examples
        --------
        >>> import numpyro, numpyro.distributions as dist
        >>> def schools(y, sigma, school):
        ...     mu, tau = numpyro.sample("mu", dist.Normal(0, 5)), numpyro.sample(
        ...         "tau", dist.HalfCauchy(5)
        ...     )
        ...     with numpyro.plate("schools", 2):
        ...         z = numpyro.sample("z", dist.Normal(0, 1))
        ...     with numpyro.plate("examples", len(y)):
        ...         numpyro.sample("obs", dist.Normal(mu + tau * z[school], sigma), obs=y)
        >>> data = [
        ...     {"y": [28.0], "sigma": [15.0], "school": [0]},
        ...     {"y": [8.0], "sigma": [10.0], "school": [1]},
        ... ]
        >>> model = flmc.Model.from_numpyro(
        ...     schools, flmc.data.from_arrays(data), coords={"schools": ["Choate", "Deerfield"]}
        ... )
        >>> model.layout.entries()
        ['mu', 'tau', 'z[Choate]', 'z[Deerfield]']
        >>> model = flmc.Model.from_numpyro(schools, flmc.data.from_arrays(data), local="schools")
        >>> model.layout.entries()
        ['mu', 'tau']

        A series on each device, by its steps:

        >>> def series(y):
        ...     memory = numpyro.sample("memory", dist.Uniform(-1, 1))
        ...     numpyro.sample("steps", dist.Normal(memory * y[:-1], 1.0), obs=y[1:])
        >>> walks = flmc.data.from_arrays([{"y": [0.0, 1.0, 0.4]}, {"y": [0.3, 0.1]}])
        >>> flmc.Model.from_numpyro(series, walks, likelihood_of="device").layout.entries()
        ['memory']
        """
        # imported here, because that module imports this one
        from flmc.models.numpyro_model import federated

        return federated(
            model,
            data,
            fixed or {},
            start or {},
            dims or {},
            coords or {},
            smoothness=smoothness,
            convexity=convexity,
            start_sd=start_sd,
            prior_devices=prior_devices,
            likelihood_of=likelihood_of,
            local=local,
            local_steps=local_steps,
        )

    @staticmethod
    def from_gradient(
        gradient: Callable[[Array], Array],
        *,
        prior: Prior,
        dim: int,
        num_devices: int,
        smoothness: float | None = None,
        convexity: float | None = None,
        posterior: Gaussian | None = None,
        clipped_gradient: Callable[[Array, float], Array] | None = None,
        predict: Callable[[Array], Array] | None = None,
        norm_clipped_gradient: Callable[[Array, float], Array] | None = None,
        names: Sequence[str] | None = None,
    ) -> Model:
        """Model of one data set from a function for the gradients of the likelihood.

        Parameters
        ----------
        gradient
            ``gradient(theta)`` takes (chain, dim) and returns (chain, device, dim): the gradient of
            each device's negative log *likelihood*, summed over its examples. The prior is added by
            the model. The array ``theta`` is read-only.
        prior
            A :class:`flmc.Normal`, :class:`flmc.CorrelatedNormal` or :class:`flmc.FunctionPrior`.
            Each device adds 1/K of its gradient.
        dim, num_devices
            Number of entries of theta, and number K of devices.
        smoothness, convexity
            Largest and smallest curvature of the whole negative log posterior, if known. They are
            taken as public knowledge: they must not be computed from the devices' data if the plan
            is to carry a privacy statement.
        posterior
            The exact posterior, if known, to compare samples with.
        clipped_gradient
            ``clipped_gradient(theta, clip)`` returns what ``gradient`` does, but with every entry
            of every example's gradient clipped to [-clip, clip] before the examples are summed, and
            0 for what is not a number. The privacy of single examples relies on it.
        predict
            ``predict(theta)`` takes (chain, dim) and returns (chain, prediction): quantities that
            the model predicts; a result reports whether chains agree in them.
        norm_clipped_gradient
            As ``clipped_gradient``, for ``example_norm``: ``norm_clipped_gradient(theta, norm)``
            scales every example's gradient down to a Euclidean norm of at most ``norm`` before the
            examples are summed.
        names
            Names of the entries of theta, in tables, figures and messages; None: ``theta[0]`` and
            so on.

        Examples
        --------
        Two devices with one observation each, of unit variance:

        >>> seen = np.array([[1.0, 2.0], [3.0, 4.0]])  # (device, dim)
        >>> model = flmc.Model.from_gradient(
        ...     lambda theta: theta[:, None] - seen, prior=flmc.Normal(), dim=2, num_devices=2
        ... )
        >>> model.gradient(np.zeros((1, 1, 2))).tolist()  # (experiment, chain, device, dim)
        [[[[-1.0, -2.0], [-3.0, -4.0]]]]
        """
        # imported here, because that module imports this one
        from flmc.models.gradient_model import GradientModel

        return GradientModel(
            gradient,
            prior,
            dim,
            num_devices,
            smoothness,
            convexity,
            posterior,
            clipped_gradient,
            predict,
            norm_clipped_gradient,
            names,
        )
