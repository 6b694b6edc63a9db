r"""Models of single devices: the posterior of a device's own data, with the whole prior.

A device could sample this posterior without a federation. In a federation of K devices the local
cost of device k has 1/K of the prior; here it has the whole prior, :math:`-\ln p(D_k \mid \theta) -
\ln p(\theta)`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from flmc.base.errors import InvalidSetting
from flmc.data.linear_data import LinearStatistics
from flmc.models.linear import LinearGaussian
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model


def local_models(model: Model) -> Iterator[Model]:
    """Iterate over the devices: a model of each device's own data, with the whole prior.

    Curvatures are computed from the device's own data, which it may use. Raises ``InvalidSetting``
    unless the model is a linear regression of one data set or comes from log densities.

    Examples
    --------
    >>> from flmc.models.single_device import local_models
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> each = list(local_models(model))
    >>> len(each), each[0].num_devices
    (20, 1)
    """
    if isinstance(model, LinearGaussian) and model.num_experiments == 1:
        yield from _linear(model)
    elif isinstance(model, LogDensityModel):
        for device in range(model.num_devices):
            yield model.on(model.data.of_device(device))
    else:
        raise InvalidSetting(
            "local posteriors need a linear regression of one data set or a model from log"
            f" densities, got {type(model).__name__} of {model.num_experiments}"
        )


def _linear(model: LinearGaussian) -> Iterator[Model]:
    """Iterate over the devices of a linear regression. For each it yields a regression on the
    device's own data with the whole prior; the data's part is the device's quadratic local cost
    minus its share of the prior."""
    hessian, offset = model.quadratic()
    mean = np.broadcast_to(np.asarray(model.prior.mean, dtype=np.float64), (model.dim,))
    gram = hessian[0] - model.prior_precision / model.num_devices
    moment = offset[0] - model.prior_precision @ mean / model.num_devices
    # ``gram`` and ``moment`` are divided by the noise variance already, so that the models made
    # from them have the noise variance 1.
    for own_gram, own_moment in zip(gram, moment, strict=True):
        yield LinearGaussian(
            LinearStatistics(own_gram[None, None], own_moment[None, None]),
            prior_precision=model.prior_precision,
            prior_mean=mean,
        )
