r"""Share of a gradient's response that is left when single examples are clipped, from public
knowledge.

For linear regression with standard normal features u and residuals e the gradient of an example is
u e, entry by entry. Clipped at c it still answers a change of theta, but only where it is not
clipped: :math:`\rho(c) = E[u^2\,1(|u e| \le c)]` of the curvature remains."""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from flmc.base import checks
from flmc.base.special import ndtr


def shrink_factor(
    example_clip: float, feature_scale: float = 1.0, residual_scale: float = 1.0
) -> float:
    r"""Share :math:`\rho(c)` of the curvature that clipping examples at c leaves.

    With standard normal features and residuals it is 0.914, 0.965 and 0.986 at c = 3, 4 and 5.

    Parameters
    ----------
    example_clip
        Bound c of the gradient entries of one example.
    feature_scale
        Standard deviation of the features.
    residual_scale
        Standard deviation of the residuals; its square is the noise variance that the gradient is
        divided by.

    Returns
    -------
    float
        A number between 0 and 1.

    Raises
    ------
    InvalidSetting
        If an argument is not positive.

    Examples
    --------
    >>> from flmc.uplink.example_clipping import shrink_factor
    >>> round(shrink_factor(4.0), 3)
    0.965
    """
    checks.positive("feature_scale", feature_scale)
    checks.positive("residual_scale", residual_scale)
    # An example's gradient entry is feature x residual / residual_scale^2: in units of both scales
    # the clip is c residual_scale / feature_scale.
    scaled = checks.positive("example_clip", example_clip) * residual_scale / feature_scale
    u = np.linspace(1e-6, 10.0, 20_001)
    # Given the feature, the probability that a normal residual keeps |u e| <= c. Zero is left out
    # of the nodes, because it divides by u; the integrand vanishes there.
    density = np.square(u) * np.exp(-0.5 * u * u) * (2 * ndtr(scaled / u) - 1)
    return float(2 * np.trapezoid(density, u) / np.sqrt(2 * np.pi))


@lru_cache(maxsize=64)
def mean_shift_variance(example_clip: float) -> float:
    r"""Variance of the shift of the mean by clipping examples, over the posterior's variance.

    For linear regression with standard normal features u and residuals e the estimate without
    clipping moves with :math:`x = u e` of every example, the clipped one with
    :math:`\operatorname{clip}(x)/\rho(c)`. The mean square of their difference, over
    :math:`E[x^2] = 1`, is the variance of the shift in each entry. It does not depend on how many
    examples there are.

    Parameters
    ----------
    example_clip
        Bound c of the gradient entries of one example.

    Returns
    -------
    float
        A number that vanishes for a large clip.

    Examples
    --------
    >>> from flmc.uplink.example_clipping import mean_shift_variance
    >>> round(mean_shift_variance(4.0), 3)
    0.011
    """
    left = shrink_factor(example_clip)
    grid = np.linspace(-10.0, 10.0, 801)
    weight = np.exp(-0.5 * grid**2)
    weight /= weight.sum()
    product = grid[:, None] * grid
    apart = np.clip(product, -example_clip, example_clip) / left - product
    return float(weight @ np.square(apart) @ weight)
