"""The prior of a federation's model, as far as the server knows it, who has no data and needs the
prior to compute an answer.

For flmc's linear regression the prior follows from the model's name. For any other model the table
``[prior]`` of the server's configuration may state it; otherwise the prior is not known."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearData
from flmc.models.distributions import Normal, Prior
from flmc.models.linear import LinearGaussian
from flmc.settings.registered import MODELS
from flmc.uplink.report import SUFFIX
from flmc.wire.federation import Federation

PRIOR_UNKNOWN = (
    "an answer needs the prior, which the name of the model does not tell: state it in the server's"
    " configuration, [prior] with mean and sd, or use flmc.load(DIR).posterior(prior)"
)
"""Message of a server that computes no answer, because it does not know the prior of the model."""


def prior_of(federation: Federation, stated: Normal | None = None) -> Prior | None:
    """The prior of a federation's parameters: the model's own if its name implies one, else the
    prior ``stated`` in the server's configuration; None: not known. Raises ``InvalidSetting`` if a
    prior is stated for a model that has its own, or with a number of entries that the model does
    not have."""
    dim = federation.plan.dim - federation.reports
    name = federation.model.removesuffix(SUFFIX)
    if name in MODELS.names and MODELS[name].maker is LinearGaussian:
        if stated is not None:
            raise InvalidSetting(f"[prior] must be left out: the model {name!r} has its own")
        return LinearGaussian(LinearData(np.zeros((1, dim)), np.zeros(1), (1,))).prior
    for each in () if stated is None else (stated.mean, stated.sd):
        if np.shape(each) not in ((), (dim,)):
            raise InvalidSetting(
                f"[prior] must have a number, or one for each of {dim} entries, got {np.size(each)}"
            )
    return stated


def to_document(prior: Prior | None) -> dict[str, Any] | None:
    """A prior as plain values, for a record; None where it is not known."""
    if prior is None:
        return None
    return {"mean": np.asarray(prior.mean).tolist(), "sd": np.asarray(prior.sd).tolist()}


def prior_in(asked: Mapping[str, Any]) -> Prior | None:
    """The prior of the model's parameters in ``asked``, the contents of ``run.json`` in a
    federation's record, where :func:`to_document` wrote it; None where it is not known."""
    stated = asked.get("prior")
    return None if stated is None else Normal(_numbers(stated["mean"]), _numbers(stated["sd"]))


def _numbers(value: Any) -> float | Array:
    """The mean or the standard deviation of a prior, from JSON: a number becomes a float, and a
    list of numbers an array."""
    return np.asarray(value, dtype=np.float64) if isinstance(value, list) else float(value)
