"""Regression models that are ready to be sampled, from data with features and a target; they need
the extra ``jax``.

Slopes have a normal prior with independent entries, and the intercept one with a standard deviation
of its own. If ``feature_norm``, a public bound of the norm of an example's features, is given, the
curvature of a logistic or softmax regression has a bound from public facts. Else the curvature is
measured from the data, and plans are marked ``data_dependent``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from flmc.base import checks
from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.models.differentiation import require_jax
from flmc.models.log_density import LogDensityModel
from flmc.models.parameters import Parameter
from flmc.models.pointwise import likelihood_of_target

_FIT_STEPS = 20
"""Number of iterations of the least-squares fit from which a linear regression of unknown noise
starts. Each iteration computes first the coefficients, then the noise."""


def logistic(
    data: FederatedData,
    *,
    prior_sd: float = 1.0,
    intercept_sd: float = 5.0,
    feature_norm: float | None = None,
) -> LogDensityModel:
    r"""Logistic regression for two classes, :math:`\Pr(y = 1) = 1/(1 + e^{-(b + w^\top x)})`.

    Its curvature is at most :math:`\tfrac14\sum_n (1 + \|x_n\|^2)` plus that of the prior, and at
    least that of the prior.

    Parameters
    ----------
    data
        Targets are -1 and +1.
    prior_sd, intercept_sd
        Standard deviations of the prior of slopes and of the intercept.
    feature_norm
        Public bound of the Euclidean norm of an example's features; examples beyond it are refused.
        None: the curvature is measured from the data.

    Raises
    ------
    InvalidSetting
        If the target has other values, or an example is beyond the bound.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x, y = rng.standard_normal((40, 2)), np.where(rng.random(40) < 0.5, -1.0, 1.0)
    >>> data = flmc.data.FederatedData(x, y, (25, 15))
    >>> model = flmc.models.regressions.logistic(data, feature_norm=5.0)
    >>> model.dim, model.smoothness, model.public
    (3, 261.0, True)
    """
    check_targets(data, {-1.0, 1.0}, "-1 and +1, one for each of two classes")
    jax = require_jax()
    jnp = jax.numpy

    def score(w: Any, row: Any) -> Any:
        return row["x"] @ w["slope"] + w["intercept"]

    def log_likelihood(w: Any, row: Any) -> Any:
        return -jnp.logaddexp(0.0, -row["y"] * score(w, row))

    def simulate(w: Any, row: Any, key: Any) -> Any:
        return 2.0 * jax.random.bernoulli(key, jax.nn.sigmoid(score(w, row))) - 1.0

    # 0.25 bounds p (1 - p), the second derivative of the logistic loss at the probability p.
    smoothness = _public_bound(data, feature_norm, 0.25, prior_sd, intercept_sd)
    return LogDensityModel(
        _normal_prior(prior_sd, intercept_sd),
        likelihood_of_target(data, log_likelihood, simulate),
        data,
        {"intercept": 0.0, "slope": _slopes(data, np.zeros(data.features.shape[1]))},
        smoothness,
        # the smallest curvature is the prior's if the largest is a public bound; else both are
        # measured
        None if smoothness is None else _least_curvature(prior_sd, intercept_sd),
    )


def softmax(
    data: FederatedData,
    *,
    prior_sd: float = 1.0,
    intercept_sd: float = 5.0,
    feature_norm: float | None = None,
) -> LogDensityModel:
    r"""Softmax regression for several classes, :math:`\Pr(y = c) \propto e^{b_c + w_c^\top x}`.

    Every class has parameters of its own, which the prior identifies. Its curvature is at most
    :math:`\tfrac12\sum_n (1 + \|x_n\|^2)` plus that of the prior.

    Parameters
    ----------
    data
        Targets are 0, 1, ..., one for each class.
    prior_sd, intercept_sd, feature_norm
        As for :func:`logistic`.

    Raises
    ------
    InvalidSetting
        If a target is no class, or an example is beyond the bound.
    """
    count = len(data.classes) or int(data.targets.max()) + 1
    check_targets(data, set(range(count)), f"0 to {count - 1}, one for each class")
    classes: Sequence[Any] = data.classes or range(count)
    jax = require_jax()
    jnp = jax.numpy

    def scores(w: Any, row: Any) -> Any:
        return row["x"] @ w["slope"] + w["intercept"]

    def log_likelihood(w: Any, row: Any) -> Any:
        return jax.nn.log_softmax(scores(w, row))[jnp.asarray(row["y"], int)]

    def simulate(w: Any, row: Any, key: Any) -> Any:
        return jax.random.categorical(key, scores(w, row)).astype(float)

    # 0.5 bounds the eigenvalues of diag(p) - p p^T, the second derivative of the softmax loss at
    # probabilities p: its absolute row sums are 2 p (1 - p).
    smoothness = _public_bound(data, feature_norm, 0.5, prior_sd, intercept_sd)
    return LogDensityModel(
        _normal_prior(prior_sd, intercept_sd),
        likelihood_of_target(data, log_likelihood, simulate),
        data,
        {
            "intercept": Parameter(np.zeros(count), axes={"class": classes}),
            "slope": _slopes(data, np.zeros((data.features.shape[1], count)), classes),
        },
        smoothness,
        # the smallest curvature is the prior's if the largest is a public bound; else both are
        # measured
        None if smoothness is None else _least_curvature(prior_sd, intercept_sd),
    )


def poisson(
    data: FederatedData, *, prior_sd: float = 1.0, intercept_sd: float = 5.0
) -> LogDensityModel:
    r"""Poisson regression of counts, :math:`y \sim \text{Poisson}(e^{b + w^\top x})`.

    Its curvature has no bound, so it is measured at the start and near the mode.

    Parameters
    ----------
    data
        Targets are counts.
    prior_sd, intercept_sd
        Standard deviations of the prior of slopes and of the intercept.

    Raises
    ------
    InvalidSetting
        If a target is not a count.
    """
    if (data.targets < 0).any() or (data.targets != np.rint(data.targets)).any():
        raise InvalidSetting(
            f"{data.target_name!r} must hold counts, 0, 1, ..., for a Poisson regression"
        )
    jax = require_jax()
    jnp = jax.numpy

    def log_likelihood(w: Any, row: Any) -> Any:
        score = row["x"] @ w["slope"] + w["intercept"]
        return row["y"] * score - jnp.exp(score) - jax.scipy.special.gammaln(row["y"] + 1.0)

    def simulate(w: Any, row: Any, key: Any) -> Any:
        return jax.random.poisson(key, jnp.exp(row["x"] @ w["slope"] + w["intercept"])).astype(
            float
        )

    # The intercept starts at the logarithm of the mean count. Far from there the curvature, which
    # grows exponentially, is unlike that at the mode, and useless for choosing a step.
    centre = float(np.log(max(data.targets.mean(), 0.5)))
    return LogDensityModel(
        _normal_prior(prior_sd, intercept_sd),
        likelihood_of_target(data, log_likelihood, simulate),
        data,
        {"intercept": centre, "slope": _slopes(data, np.zeros(data.features.shape[1]))},
        None,
        None,
        start_sd=0.1,
    )


def linear_unknown_noise(
    data: FederatedData,
    *,
    prior_sd: float = 1.0,
    intercept_sd: float = 5.0,
    noise_scale: float = 1.0,
    noise_log_sd: float = 1.0,
) -> LogDensityModel:
    r"""Linear regression whose noise is sampled too, :math:`y \sim N(b + w^\top x, e^{2s})`.

    The parameter ``log_noise`` is :math:`s`, the logarithm of the noise's standard deviation. Its
    prior is normal: the noise is log-normal, with the median ``noise_scale``, and 95 % of its mass
    lies within a factor of :math:`e^{1.96 \cdot \text{noise\_log\_sd}}` of that, 7.1 by default.

    The curvature has no bound, as it grows like :math:`e^{-2s}`, so it is measured from the data.
    Chains start about the least-squares fit, which is computed from the data as well: plans are
    ``data_dependent``, for simulation.

    Parameters
    ----------
    data
        Targets are numbers; the defaults of the priors are for targets of a spread of about 1.
    prior_sd, intercept_sd
        Standard deviations of the prior of slopes and of the intercept, in units of the target.
    noise_scale
        Median of the prior of the noise's standard deviation, in units of the target.
    noise_log_sd
        Standard deviation of the prior of ``log_noise``.

    Raises
    ------
    InvalidSetting
        If the target has classes, or a scale is not positive.

    Examples
    --------
    >>> rng = np.random.default_rng(1)
    >>> x = rng.standard_normal((40, 2))
    >>> data = flmc.data.FederatedData(x, x.sum(axis=1) + 0.3 * rng.standard_normal(40), (25, 15))
    >>> model = flmc.models.regressions.linear_unknown_noise(data)
    >>> model.layout.entries(), model.public
    (['intercept', 'log_noise', 'slope[x0]', 'slope[x1]'], False)
    """
    if data.classes:
        raise InvalidSetting(
            f"{data.target_name!r} must hold numbers for a linear regression, got the classes"
            f" {', '.join(data.classes)}: use the model logistic or softmax"
        )
    centre = float(np.log(checks.positive("noise_scale", noise_scale)))
    spread = checks.positive("noise_log_sd", noise_log_sd)
    others = _normal_prior(prior_sd, intercept_sd)
    jax = require_jax()
    jnp = jax.numpy

    def log_prior(w: Any) -> Any:
        return others(w) - 0.5 * jnp.square((w["log_noise"] - centre) / spread)

    def log_likelihood(w: Any, row: Any) -> Any:
        away = row["y"] - row["x"] @ w["slope"] - w["intercept"]
        constant = 0.5 * float(np.log(2 * np.pi))
        return -0.5 * jnp.square(away * jnp.exp(-w["log_noise"])) - w["log_noise"] - constant

    def simulate(w: Any, row: Any, key: Any) -> Any:
        mean = row["x"] @ w["slope"] + w["intercept"]
        return mean + jnp.exp(w["log_noise"]) * jax.random.normal(key)

    start, noise = _least_squares(data, prior_sd, intercept_sd, noise_scale)
    names = {
        "intercept": start[0],
        "log_noise": float(np.log(noise)),
        "slope": _slopes(data, start[1:]),
    }
    # Standard deviations of the starts in the order of theta: intercept, log_noise, slopes. They
    # are small, because far from the fit the curvature is another and would need another step.
    start_sd = np.concatenate([[0.1 * noise, 0.1], np.full(len(start) - 1, 0.1 * noise)])
    likelihood = likelihood_of_target(data, log_likelihood, simulate)
    return LogDensityModel(log_prior, likelihood, data, names, start_sd=start_sd)


def _slopes(data: FederatedData, start: Array, classes: Sequence[Any] = ()) -> Parameter:
    """The parameter ``slope`` of a regression with the start ``start``, (feature) or (feature,
    class), and axes labelled by the features' names and the ``classes``."""
    axes: dict[str, Sequence[Any]] = {"feature": data.feature_names}
    if classes:
        axes["class"] = classes
    return Parameter(start, axes=axes)


def check_targets(data: FederatedData, allowed: set[float], words: str) -> None:
    """Raise ``InvalidSetting`` if a target of the data is not in ``allowed``; ``words`` describes
    the allowed values in the error message."""
    others = set(np.unique(data.targets).tolist()) - allowed
    if others:
        raise InvalidSetting(
            f"{data.target_name!r} must hold {words}; got {min(others):g}: {_recoding(data)}"
        )


def _recoding(data: FederatedData) -> str:
    """Advice for the end of an error message about targets with values that a model does not allow:
    how to encode them."""
    values = np.unique(data.targets)
    if set(values.tolist()) == {0.0, 1.0}:
        return (
            "for 0 and 1 write words such as no and yes into the column, or 2 y - 1; in Python"
            " flmc.data.read(..., classes=['0', '1']) does it"
        )
    return "write the classes as words into the column, or name them in flmc.data.read"


def _normal_prior(prior_sd: float, intercept_sd: float) -> Any:
    """A function from parameters to their log prior density, up to a constant: slopes and
    intercepts are independent and normal with mean 0 and the given standard deviations."""
    slope_sd = checks.positive("prior_sd", prior_sd)
    other_sd = checks.positive("intercept_sd", intercept_sd)
    jnp = require_jax().numpy

    def log_prior(w: Any) -> Any:
        return -0.5 * (
            jnp.sum(jnp.square(w["slope"] / slope_sd))
            + jnp.sum(jnp.square(w["intercept"] / other_sd))
        )

    return log_prior


def _least_squares(
    data: FederatedData, prior_sd: float, intercept_sd: float, noise_scale: float
) -> tuple[Array, float]:
    """Intercept and slopes, (1 + feature), of a least-squares fit that is penalised with the
    prior's precisions, and the standard deviation of its residuals. Each is computed from the other
    in turn, beginning with the standard deviation ``noise_scale``."""
    design = np.column_stack([np.ones(data.num_samples), data.features])
    sd = np.array([intercept_sd, *[prior_sd] * data.features.shape[1]])
    fit, variance = np.zeros(len(sd)), noise_scale**2
    for _ in range(_FIT_STEPS):
        gram = design.T @ design / variance + np.diag(sd**-2)
        fit = np.array(np.linalg.solve(gram, design.T @ data.targets / variance))
        squares = float(np.square(data.targets - design @ fit).sum())
        # The prior's median counts as the residual of one more example, so that the variance is
        # positive even where residuals vanish, as with fewer examples than features.
        variance = (squares + noise_scale**2) / (data.num_samples + 1)
    return fit, float(np.sqrt(variance))


def _least_curvature(prior_sd: float, intercept_sd: float) -> float:
    """Smallest curvature of the negative log prior: 1 over the square of the larger standard
    deviation. It is also a lower bound of the curvature of the negative log posterior, because the
    likelihood is log-concave."""
    return float(min(prior_sd**-2, intercept_sd**-2))


def _public_bound(
    data: FederatedData, norm: float | None, factor: float, prior_sd: float, intercept_sd: float
) -> float | None:
    """Upper bound of the largest curvature of the negative log posterior, from public facts: the
    number of examples and the bound ``norm`` of the norm of an example's features. ``factor`` times
    (1 + squared norm) bounds the curvature of one example; the 1 is the intercept. None if ``norm``
    is None. Raises ``InvalidSetting`` if an example's features exceed ``norm``."""
    if norm is None:
        return None
    checks.positive("feature_norm", norm)
    largest = float(np.sqrt(np.square(data.features).sum(axis=1)).max())
    if largest > norm:
        raise InvalidSetting(
            f"feature_norm must bound every example's features, got {norm:g}, and one has"
            f" {largest:.6g}"
        )
    prior = max(prior_sd**-2, intercept_sd**-2)
    # The 1 is the square of the intercept's feature, which is 1 for every example. Examples that
    # were left out for a missing value count, as how many of them there are is not public.
    return factor * data.num_given * (1.0 + norm**2) + prior
