"""Hierarchical posteriors whose groups are the devices: a county of radon, or a school, each.

A group's own level either stays on its device as a local parameter or travels as an entry of theta.
Both are NumPyro models, so that they are written apart from those of :mod:`posteriors`, with whose
references they are compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.models.log_density import LogDensityModel
from posteriors import read_data

LOCAL_DRAWS = 20_000
"""Local parameters of a chain that are drawn, about: those of all devices for some of the draws of
theta."""


@dataclass(frozen=True)
class Hierarchy:
    """A hierarchical model with a group of examples on each device."""

    name: str
    """Name of the posterior in :mod:`posteriors`, whose reference is this one's."""
    numpyro_model: Callable[..., None]
    plate: str
    """Plate of the groups."""
    devices: tuple[dict[str, Array], ...]
    """Arguments of the model for each device's examples."""
    columns: Callable[[Mapping[str, Array], Array], Array]
    """Parameters (chain, draw, own shape) by name and standardised effects (chain, draw, device) to
    columns (chain, draw, entry), in the order of the reference."""
    common: Callable[[Mapping[str, Array]], list[Array]]
    """Those columns that need no effects."""

    def model(self, *, local: bool) -> LogDensityModel:
        """The model, whitened by its Laplace approximation; ``local`` says whether effects stay on
        their devices."""
        data = flmc.data.from_arrays(self.devices)
        made: Any = flmc.Model.from_numpyro(
            self.numpyro_model, data, local=self.plate if local else None
        )
        white: LogDensityModel = made.whitened()
        return white

    def named(self, model: LogDensityModel, draws: Array) -> Array:
        """Columns (chain, draw, entry) of all parameters, from draws (chain, draw, dim); local ones
        are drawn given theta."""
        values = model.parameters(draws)
        effects = model.local_draws(draws, seed=2)["z"] if model.num_local else values["z"]
        return self.columns(values, np.asarray(effects).reshape(*draws.shape[:2], -1))

    def travelling(self, model: LogDensityModel, draws: Array) -> Array:
        """Columns (chain, draw, entry) of the parameters that travel, from draws (chain, draw,
        dim)."""
        if not model.num_local:
            return self.named(model, draws)
        return np.stack(self.common(model.parameters(draws)), axis=-1)


def _schools() -> Hierarchy:
    """The eight schools as NumPyro's documentation writes them, reparametrised by hand."""
    import numpyro
    import numpyro.distributions as law

    d = read_data("eight_schools")

    def model(y: Any, sigma: Any, school: Any) -> None:
        mu = numpyro.sample("mu", law.Normal(0, 5))
        tau = numpyro.sample("tau", law.HalfCauchy(5))
        with numpyro.plate("groups", 8):
            z = numpyro.sample("z", law.Normal(0, 1))
        with numpyro.plate("examples", len(y)):
            numpyro.sample("obs", law.Normal(mu + tau * z[school], sigma), obs=y)

    def common(values: Mapping[str, Array]) -> list[Array]:
        return [values["mu"], values["tau"]]

    def columns(values: Mapping[str, Array], effects: Array) -> Array:
        own = values["mu"][..., None] + values["tau"][..., None] * effects
        return np.concatenate([own, np.stack(common(values), axis=-1)], axis=-1)

    devices = tuple(
        {"y": d["y"][j : j + 1], "sigma": d["sigma"][j : j + 1], "school": np.array([j])}
        for j in range(8)
    )
    name = "eight_schools-eight_schools_noncentered"
    return Hierarchy(name, model, "groups", devices, columns, common)


def _radon() -> Hierarchy:
    """Levels of 85 counties about a common one, with slopes for floor and uranium."""
    import numpyro
    import numpyro.distributions as law

    d = read_data("radon_mn")
    county, count = d["county_idx"].astype(int) - 1, int(d["J"])
    houses = {"y": d["log_radon"], "floor": d["floor_measure"], "uranium": d["log_uppm"]}

    def model(y: Any, floor: Any, uranium: Any, county: Any) -> None:
        mu = numpyro.sample("mu", law.Normal(0.0, 10.0))
        slopes = numpyro.sample("slopes", law.Normal(0.0, 10.0).expand([2]).to_event(1))
        tau = numpyro.sample("tau", law.HalfNormal(1.0))
        sigma = numpyro.sample("sigma", law.HalfNormal(1.0))
        with numpyro.plate("groups", count):
            z = numpyro.sample("z", law.Normal(0.0, 1.0))
        with numpyro.plate("examples", len(y)):
            mean = mu + tau * z[county] + floor * slopes[0] + uranium * slopes[1]
            numpyro.sample("obs", law.Normal(mean, sigma), obs=y)

    def common(values: Mapping[str, Array]) -> list[Array]:
        slopes = values["slopes"]
        return [values["mu"], slopes[..., 0], slopes[..., 1], values["tau"], values["sigma"]]

    def columns(values: Mapping[str, Array], effects: Array) -> Array:
        own = values["mu"][..., None] + values["tau"][..., None] * effects
        return np.concatenate([own, np.stack(common(values), axis=-1)], axis=-1)

    devices = tuple(
        {
            **{name: each[county == j] for name, each in houses.items()},
            "county": county[county == j],
        }
        for j in range(count)
    )
    return Hierarchy("radon_mn-hierarchical", model, "groups", devices, columns, common)


HIERARCHIES: dict[str, Callable[[], Hierarchy]] = {
    "eight_schools-eight_schools_noncentered": _schools,
    "radon_mn-hierarchical": _radon,
}
"""Hierarchies by the names of their posteriors, each made when it is called."""


@cache
def hierarchy(name: str) -> Hierarchy:
    """The hierarchy with this name, made once."""
    return HIERARCHIES[name]()
