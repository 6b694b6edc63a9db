"""Draws of theta as a DataTree of ArviZ: values of the parameters with names and labels of their
axes, and for single examples their log likelihoods, observed values and simulated values, with
which ArviZ compares and checks models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra
from flmc.base.version import VERSION
from flmc.evaluation.named_draws import by_parameter
from flmc.models.parameters import Layout
from flmc.models.pointwise import Pointwise

_MOST_NUMBERS = 10_000_000
"""Largest count of log likelihoods, of all examples at all draws, that are computed unless the user
says how draws are thinned; they take 80 MB. If there would be more, only every second, third, ...
draw is used."""
_OF_EXAMPLES = ("log_likelihood", "posterior_predictive", "observed_data")
"""Groups whose variables have an axis of examples."""


def thin_for_examples(draws: Array, pointwise: Pointwise | None) -> int:
    """Smallest n such that every n-th of the ``draws`` (chain, draw, dim) has at most ten million
    log likelihoods of single examples in all; 1 for a model without such log likelihoods
    (``pointwise`` is None)."""
    if pointwise is None:
        return 1
    numbers = math.prod(draws.shape[:2]) * len(pointwise.devices)
    return max(1, math.ceil(numbers / _MOST_NUMBERS))


def to_arviz(
    draws: Array,
    layout: Layout | None,
    *,
    predictions: Array | None = None,
    rounds: Array | None = None,
    pointwise: Pointwise | None = None,
    seed: int = 0,
    doubts: Sequence[str] = (),
) -> Any:
    """Draws of theta, (chain, draw, dim), as a DataTree of ArviZ; ``MissingExtra`` if arviz-base is
    not installed.

    The group ``posterior`` has the parameters' values. ``pointwise``, functions of single examples,
    adds the groups ``log_likelihood`` and ``observed_data``, the group ``posterior_predictive`` if
    the model can simulate (with random numbers from ``seed``), and the log posterior as ``lp`` in
    the group ``sample_stats``. The numbers of the draws' ``rounds`` (draw) stand in
    ``sample_stats``, too, and ``predictions`` (chain, draw, prediction) in
    ``posterior_predictive``. ``doubts``, sentences that speak against the draws, are an attribute
    of ``posterior``."""
    try:
        from arviz_base import from_dict
    except ImportError as error:
        raise MissingExtra("ArviZ needs arviz-base: pip install 'flmc[arviz]'") from error
    groups: dict[str, dict[str, Array]] = {"posterior": by_parameter(draws, layout)}
    lead = draws.shape[:2]
    if rounds is not None:
        groups["sample_stats"] = {"round": np.broadcast_to(rounds, lead)}
    if predictions is not None:
        groups["posterior_predictive"] = {"prediction": predictions}
    if pointwise is not None:
        for name, more in _of_examples(draws, pointwise, seed).items():
            groups[name] = {**groups.get(name, {}), **more}
    axes = {p.name: p.axes for p in layout.parameters if p.axes} if layout is not None else {}
    dims = {name: [axis for axis, _ in each] for name, each in axes.items()}
    coords = {axis: list(labels) for each in axes.values() for axis, labels in each}
    attributes = {"inference_library": "flmc", "inference_library_version": VERSION}
    if doubts:
        attributes["doubts"] = "; ".join(doubts)
    tree = from_dict(
        {name: groups[name] for name in groups if name not in _OF_EXAMPLES},
        dims=dims,
        coords=coords,
        attrs={"posterior": attributes},
    )
    of_examples = {name: groups[name] for name in _OF_EXAMPLES if name in groups}
    if of_examples:
        devices = () if pointwise is None else pointwise.devices
        tree.update(_examples_tree(from_dict, of_examples, devices).children)
    return tree


def _of_examples(draws: Array, pointwise: Pointwise, seed: int) -> dict[str, dict[str, Array]]:
    """Arrays for single examples at ``draws`` (chain, draw, dim), by name of the ArviZ group and of
    the variable: log likelihoods, observed values, and values simulated with ``seed``; and the log
    posterior at each draw. A group that the model does not have is left out."""
    lead, flat = draws.shape[:2], draws.reshape(-1, draws.shape[2])

    def as_chains(values: dict[str, Array]) -> dict[str, Array]:
        return {name: each.reshape(*lead, *each.shape[1:]) for name, each in values.items()}

    found = {"log_likelihood": as_chains(pointwise.log_likelihood(flat))}
    if pointwise.log_posterior is not None:
        found["sample_stats"] = as_chains({"lp": pointwise.log_posterior(flat)})
    if pointwise.observed:
        found["observed_data"] = dict(pointwise.observed)
    if pointwise.simulate is not None:
        found["posterior_predictive"] = as_chains(pointwise.simulate(flat, seed))
    return found


def _examples_tree(from_dict: Any, groups: dict[str, dict[str, Array]], devices: Any) -> Any:
    """DataTree of the ``groups`` (arrays by name of group and variable), whose variables have an
    axis ``example``. Its coordinate ``device`` has the names ``devices`` (example) of the devices
    that hold the examples. ``from_dict`` is the function of ArviZ that makes a tree."""
    # A variable has the same name and the same list of axes in all groups. Its log likelihood has
    # no axis behind that of examples, and ArviZ ignores the surplus names there.
    like = {**groups.get("log_likelihood", {}), **groups.get("observed_data", {})}
    lead = {name: 1 if name in groups.get("observed_data", {}) else 3 for name in like}
    dims = {
        name: ["example", *(f"{name}_dim_{place}" for place in range(values.ndim - lead[name]))]
        for name, values in like.items()
    }
    tree = from_dict(groups, dims=dims, coords={"example": np.arange(len(devices))})
    for node in tree.children.values():
        if "example" in node.dims:
            node.dataset = node.to_dataset().assign_coords(device=("example", list(devices)))
    return tree


def thinned_draws(draws: Array, thin: int) -> Array:
    """Every n-th of the draws (chain, draw, dim), for n = ``thin``. Raises ``InvalidSetting``
    unless one is left."""
    if not 1 <= thin <= draws.shape[1]:
        raise InvalidSetting(f"thin must be 1 to the {draws.shape[1]} draws of a chain, got {thin}")
    return draws[:, ::thin]
