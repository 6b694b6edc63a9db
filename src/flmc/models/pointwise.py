"""Log likelihoods of single examples at draws of theta, and simulated observations, for comparing
models and for checking predictions.

They are computed from the data of all devices, in simulation: no privacy statement covers them."""

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
    """Observations of single examples, and functions that compute their log likelihoods and
    simulate new ones at draws of theta.

    Attributes
    ----------
    observed
        Observed arrays by name, each (sample, ...); empty where the model does not say which arrays
        its likelihood is of.
    devices
        Name of the device of every example, (sample).
    log_likelihood
        Function from theta, (draw, dim), to the log likelihoods of every example, (draw, sample),
        by name of the observed array.
    log_posterior
        Function from theta, (draw, dim), to the log density of theta and the data, (draw), up to a
        constant; None: not known.
    simulate
        Function from theta, (draw, dim), and a seed to simulated observations, (draw, sample, ...),
        by name of the observed array; None: the model cannot simulate.
    """

    observed: Mapping[str, Array]
    devices: tuple[str, ...]
    log_likelihood: Callable[[Array], dict[str, Array]]
    log_posterior: Callable[[Array], Array] | None = None
    simulate: Callable[[Array, int], dict[str, Array]] | None = None


@dataclass(frozen=True, eq=False)
class Likelihood:
    """A log likelihood of one example in parts, one for each observed array. Called like a
    function, it returns the sum of the parts.

    Attributes
    ----------
    each
        ``each(parameters, example)``: log likelihoods by name of the observed array.
    observed
        Function from the arrays of all examples, by name, to the observed arrays among them, by
        name, each (sample, ...).
    simulate
        ``simulate(parameters, example, key)``: simulated observations of one example, by name, with
        a random key of JAX; None: the likelihood cannot simulate.
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
        """A likelihood of one observed array, which is called ``name`` in results and ``array`` in
        the data; ``array`` None: it is not known which array of the data is observed."""
        return cls(
            lambda *given: {name: log_likelihood(*given)},
            lambda rows: {} if array is None else {name: rows[array]},
            None
            if simulate is None
            else lambda parameters, example, key: {name: simulate(parameters, example, key)},
        )

    def __call__(self, *given: Any) -> Any:
        """Log likelihood of one example: the sum over all observed arrays. The arguments ``given``
        are those of ``each``: parameters and the example."""
        return sum(self.each(*given).values())


def named_likelihood(
    data: OnDevices,
    log_likelihood: Callable[..., Any],
    observed: str | None,
    simulate: Callable[[Any, Any, Any], Any] | None,
) -> Likelihood:
    """The user's ``log_likelihood`` and ``simulate`` as the likelihood of the array of ``data``
    named ``observed``; None: of ``y``. Raises ``InvalidSetting`` if there is no such array."""
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
    """The functions ``log_likelihood`` and ``simulate`` as the likelihood of the target of
    ``data``, under the target's name."""
    return Likelihood.of(log_likelihood, data.target_name, "y", simulate)


def device_of_examples(data: OnDevices) -> tuple[str, ...]:
    """Name of the device of every example, (sample); its number for data without names."""
    names = getattr(data, "device_names", ()) or tuple(map(str, range(data.num_devices)))
    return tuple(np.repeat(names, data.device_sizes).tolist())


def pointwise_of(model: LogDensityModel, log_prior: Callable[[Any], Any]) -> Pointwise | None:
    """Observations, log likelihoods and simulations of single examples for a model from log
    densities, with theta in the model's own coordinates; None if its likelihood is not a sum over
    examples."""
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
        """Values of the function ``of_one`` of one theta (and one entry of each of ``more``), with
        draws as first axis. Draws are computed one at a time, so that memory holds no more than the
        values."""
        with jax.enable_x64():
            function = jax.jit(lambda given: jax.lax.map(lambda each: of_one(*each), given))
            return jax.tree.map(np.array, function((np.asarray(theta, np.float64), *more)))

    def log_likelihood(theta: Array) -> dict[str, Array]:
        def of_one(flat: Any) -> Any:
            parameters = model.to_parameters(flat)
            return jax.vmap(lambda row: dict(likelihood.each(parameters, row)))(rows)

        found = over_draws(of_one, theta)
        # An observed array may have several entries for an example: their log likelihoods are
        # added.
        return {name: each.reshape(*each.shape[:2], -1).sum(axis=2) for name, each in found.items()}

    def log_density(theta: Array) -> Array:
        def of_one(flat: Any) -> Any:
            parameters = model.to_parameters(flat)
            each = jax.vmap(lambda row: likelihood(parameters, row))(rows)
            return each.sum() + log_prior(parameters) + layout.log_jacobian(flat)

        return np.asarray(over_draws(of_one, theta))

    with jax.enable_x64():  # else JAX would round the observed arrays to single precision
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
