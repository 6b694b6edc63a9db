r"""The local cost of a device: its own data, and its share of the prior.

.. math:: f_k(\theta) = -\ln p(D_k \mid \theta) - \frac1K \ln p(\theta)

A model of one device's data has the whole prior; :math:`(1 - 1/K)` of the prior's gradient is
taken away from its gradient."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.reading import read
from flmc.models.model import Model
from flmc.settings.registered import MODELS
from flmc.uplink.uplink import Uplink

LocalGradient = Callable[[Array], Array]
"""From theta (dim) to the gradient of the local cost (dim), before clipping."""

_log = logging.getLogger("flmc.deploy.device")


def read_model(
    name: str,
    source: Path,
    *,
    target: str | None = None,
    features: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
    categories: Mapping[str, Sequence[str]] | None = None,
    standardise: Mapping[str, tuple[float, float]] | None = None,
) -> Model:
    """A registered model on the data of one device.

    Parameters
    ----------
    name
        One of the registered models, or ``package.module:object``: a model of the user's own with
        one device, whose gradient is that of the local cost, share of the prior included.
    source
        The file with the device's examples.
    target, features, classes, categories, standardise
        As for :func:`flmc.data.reading.read`. What is public must be given: a device does not know
        which classes and categories others have.

    Raises
    ------
    InvalidSetting
        If the file cannot be read, or the model is not known.
    """
    if name not in MODELS.names:
        own: Model = MODELS.build(name)
        if own.num_devices != 1:
            raise InvalidSetting(f"a device's own model has one device, got {own.num_devices}")
        return own
    found = read(
        source,
        target=target,
        features=features,
        classes=classes,
        categories=categories,
        standardise=dict(standardise) if standardise else None,
        allow_constant=True,
    )
    if found.num_devices != 1:
        raise InvalidSetting(f"{str(source)!r} must hold the data of one device")
    made: Model = MODELS[name].maker(found.to_linear() if name == "linear" else found)
    return made


def local_gradient(
    model: Model,
    uplink: Uplink,
    num_devices: int,
    *,
    shares_prior: bool = True,
    dim: int | None = None,
) -> LocalGradient:
    """The gradient of a device's local cost, with examples bounded as the uplink asks for.

    Parameters
    ----------
    model, uplink
        A model of one device, and what bounds single examples.
    num_devices
        Number K of devices of the federation.
    shares_prior
        Whether the model has the whole prior, of which the device takes its share.

    dim
        Entries of theta, which must be the model's; None: not known.

    Returns
    -------
    LocalGradient
        It never fails: where the model does, entries are not numbers, which clipping maps to 0.
        An error that depends on data would tell of them.

    Raises
    ------
    InvalidSetting
        If the model has another number of entries: all its gradients would fail.
    """
    if dim is not None and model.dim != dim:
        raise InvalidSetting(
            f"the plan is for {dim} entries, and the model of this device has {model.dim}: its"
            " columns are not those that the plan was made for"
        )
    rest = 1.0 - 1.0 / num_devices if shares_prior else 0.0

    def gradient(theta: Array) -> Array:
        at = np.asarray(theta, dtype=np.float64)[None, None, :]
        try:
            with np.errstate(all="ignore"):
                found = uplink.local_gradients(model, at)[0, 0, 0]
                if rest:
                    found = found - rest * model.prior_share(at)[0, 0]
        except Exception as error:  # a user's own model, on data that nobody else sees
            _log.error(
                "the gradient failed, zeros take its place",
                extra={"event": "gradient-failed", "detail": type(error).__name__},
            )
            return np.full(at.shape[-1], np.nan)
        return np.asarray(found, dtype=np.float64)

    return gradient
