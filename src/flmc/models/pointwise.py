"""What a model says of single examples at draws of theta: log likelihoods, and draws of what was
observed, for comparing models and for checking predictions.

It is computed from the data of all devices, in simulation: no privacy statement covers it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.examples import OnDevices
from flmc.data.federated import FederatedData
from flmc.models.differentiation import require_jax

if TYPE_CHECKING:  # that module imports this one
    from flmc.models.log_density import LogDensityModel


@dataclass(frozen=True, eq=False)
class Pointwise:
    """What a model says of single examples.

    Attributes
    ----------
    observed
        What was observed, by name, (sample, ...); empty where the model does not say what it is.
    devices
        Name of the device of every example, (sample).
    log_likelihood
        Function from theta, (draw, dim), to the log likelihood of every example, by name of what
        was observed, (draw, sample) each.
    log_posterior
        Function from theta, (draw, dim), to the log density of theta and the data, (draw), up to a
        constant; None: not known.
    simulate
        Function from theta, (draw, dim), and a seed to draws of what may be observed at each, by
        name, (draw, sample, ...); None: the model has none.
    """

    observed: Mapping[str, Array]
    devices: tuple[str, ...]
    log_likelihood: Callable[[Array], dict[str, Array]]
    log_posterior: Callable[[Array], Array] | None = None
    simulate: Callable[[Array, int], dict[str, Array]] | None = None


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A log likelihood of one example, by name of what is observed, which is called as the sum.

    Attributes
    ----------
    each
        ``each(parameters, example)``: log likelihoods by name.
    observed
        Function from the arrays of all examples, by name, to what was observed, by name, (sample,
        ...).
    simulate
        ``simulate(parameters, example, key)``: a draw of what may be observed of an example, by
        name, with a random key of JAX; None: there is none.
    """

    each: Callable[..., Mapping[str, Any]]
    observed: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    simulate: Callable[[Any, Any, Any], Mapping[str, Any]] | None = None

    @classmethod
    def of(
        cls,
        log_likelihood: Callable[..., Any],
        name: str,
        array: str | None,
        simulate: Callable[[Any, Any, Any], Any] | None = None,
    ) -> Likelihood:
        """The likelihood of one observed thing, called ``name``, that is the ``array`` of the data;
        None: which array it is is not known."""
        return cls(
            lambda *given: {name: log_likelihood(*given)},
            lambda rows: {} if array is None else {name: rows[array]},
            None
            if simulate is None
            else lambda parameters, example, key: {name: simulate(parameters, example, key)},
        )

    def __call__(self, *given: Any) -> Any:
        """Log likelihood of one example, of all that was observed of it."""
        return sum(self.each(*given).values())


def named_likelihood(
    data: OnDevices,
    log_likelihood: Callable[..., Any],
    observed: str | None,
    simulate: Callable[[Any, Any, Any], Any] | None,
) -> Likelihood:
    """The likelihood of the array ``observed`` of the data; None: of ``y``. Raises
    ``InvalidSetting`` if there is no such array."""
    rows = data.rows()
    if (observed or "y") not in rows:
        raise InvalidSetting(
            f"observed must name the array that the likelihood is of, one of {', '.join(rows)}, got"
            f" {observed!r}"
        )
    name = observed or (data.target_name if isinstance(data, FederatedData) else "y")
    return Likelihood.of(log_likelihood, name, observed or "y", simulate)


def likelihood_of_target(
    data: FederatedData,
    log_likelihood: Callable[..., Any],
    simulate: Callable[[Any, Any, Any], Any] | None,
) -> Likelihood:
    """The likelihood of the target of ``data``, under its name."""
    return Likelihood.of(log_likelihood, data.target_name, "y", simulate)


def device_of_examples(data: OnDevices) -> tuple[str, ...]:
    """Name of the device of every example, (sample); its number for data without names."""
    names = getattr(data, "device_names", ()) or tuple(map(str, range(data.num_devices)))
    return tuple(np.repeat(names, data.device_sizes).tolist())


def pointwise_of(model: LogDensityModel, log_prior: Callable[[Any], Any]) -> Pointwise | None:
    """What a model from log densities says of single examples; None for one whose likelihood is not
    a sum over examples. Theta is in the model's own coordinates."""
    if model.no_examples is not None:
        return None
    data, layout = model.data, model.layout
    assert layout is not None
    rows, likelihood = data.rows(), model.log_likelihood
    if not isinstance(likelihood, Likelihood):
        name = data.target_name if isinstance(data, FederatedData) else "y"
        known = "y" in rows
        likelihood = Likelihood.of(
            likelihood, name if known else "examples", "y" if known else None
        )
    jax = require_jax()

    def over_draws(of_one: Callable[..., Any], theta: Array, *more: Any) -> Any:
        """Values of a function of one theta, computed one draw at a time, so that memory holds no
        more than the values."""
        with jax.enable_x64():
            function = jax.jit(lambda given: jax.lax.map(lambda each: of_one(*each), given))
            return jax.tree.map(np.array, function((np.asarray(theta, np.float64), *more)))

    def log_likelihood(theta: Array) -> dict[str, Array]:
        def of_one(flat: Any) -> Any:
            parameters = model.to_parameters(flat)
            return jax.vmap(lambda row: dict(likelihood.each(parameters, row)))(rows)

        found = over_draws(of_one, theta)
        # A site with several entries of an example counts as one.
        return {name: each.reshape(*each.shape[:2], -1).sum(axis=2) for name, each in found.items()}

    def log_density(theta: Array) -> Array:
        def of_one(flat: Any) -> Any:
            parameters = model.to_parameters(flat)
            each = jax.vmap(lambda row: likelihood(parameters, row))(rows)
            return each.sum() + log_prior(parameters) + layout.log_jacobian(flat)

        return np.asarray(over_draws(of_one, theta))

    with jax.enable_x64():  # else JAX would round what was observed
        observed = dict(likelihood.observed(rows))
    simulate_one = likelihood.simulate

    def simulate(theta: Array, seed: int) -> dict[str, Array]:
        assert simulate_one is not None

        def of_one(flat: Any, key: Any) -> Any:
            parameters = model.to_parameters(flat)
            keys = jax.random.split(key, data.num_samples)
            return jax.vmap(lambda row, own: dict(simulate_one(parameters, row, own)))(rows, keys)

        keys = jax.random.split(jax.random.key(seed), len(theta))
        return dict(over_draws(of_one, theta, keys))

    return Pointwise(
        observed,
        device_of_examples(data),
        log_likelihood,
        log_density,
        None if simulate_one is None else simulate,
    )
