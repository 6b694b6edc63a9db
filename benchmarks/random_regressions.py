"""Random federated regressions with plans of many kinds, good and bad, to hold verdicts against.

Linear regressions have an exact posterior. That of a logistic regression is integrated here by
importance sampling about its mode, with nothing of flmc in it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import flmc
from flmc.base.arrays import Array
from flmc.models.regressions import logistic
from flmc.planning.plans import Plan
from flmc.uplink.example_clipping import typical_shrink
from judging import Distance

MOST_ROUNDS = {"linear": 12_000, "logistic": 4000, "clipped examples": 2000}
"""Rounds that a plan may have, by what a round costs."""
_PROPOSALS = 40_000
"""Draws of the importance sampling, half of them mirrored about the mode."""
_FREEDOM = 6.0
"""Degrees of freedom of its proposals: tails heavier than any of the posteriors."""


@dataclass(frozen=True)
class Regression:
    """A random case: the model, how it is planned, and how its draws are compared."""

    deal: str
    scheme: str
    kind: str
    model: flmc.Model
    plan: Callable[[], Plan]
    compare: Callable[[Array], Distance]


def draw(seed: int) -> Regression:
    """The random regression with this number: always the same one."""
    rng = np.random.default_rng([32, seed])
    linear = seed % 2 == 0
    kind = "linear" if linear else "logistic"
    # Few sizes of arrays, so that compiled code is found again.
    num_devices = int(rng.choice([5, 12]))
    num_samples = int(rng.choice([100, 300, 1000] if linear else [100, 400]))
    dim = int(rng.choice([2, 5, 8] if linear else [2, 5]))
    unlike = float(rng.choice([0.0, 0.0, 0.0, 0.3, 1.0]))
    data, words = _data(rng, linear, num_devices, num_samples, dim, unlike)
    if linear:
        noise = float(rng.choice([1.0, 0.5]))
        centre = float(rng.choice([0.0, 0.0, 3.0]))
        model: flmc.Model = flmc.LinearGaussian(
            data.to_linear(), noise_variance=noise, prior_mean=centre
        )
        assert model.posterior is not None
        mean = model.posterior.mean[0]
        covariance = model.posterior.covariance[0]
        sd = np.sqrt(np.diagonal(covariance))
        # A generator of its own: the stream of the case goes on as before.
        drawn = np.random.default_rng([33, seed]).multivariate_normal(mean, covariance, 4000)
        scale = math.sqrt(1.0 / noise)
    else:
        model = logistic(data)
        mean, sd, drawn = logistic_moments(data.features, data.targets)
        scale = 0.5
    error = 0.0 if linear else _PROPOSALS**-0.5 * 2

    def compare(draws: Array) -> Distance:
        return Distance.measured(draws, mean, sd, error, error, drawn)

    uplink, settings, how = _uplink(rng, model, scale, linear)
    rounds: dict[str, Any] = {"num_rounds": "auto"}
    if rng.random() < 0.3:
        count = int(rng.choice([600, 1500]))
        rounds = {"num_rounds": count, "num_burn_in": count // int(rng.choice([2, 4]))}
    limits = flmc.Limits(privacy="off")

    def plan() -> Plan:
        made = flmc.plan(model, uplink, limits, **rounds, **settings)
        most = MOST_ROUNDS["clipped examples" if uplink.clips_examples else kind]
        if made.num_rounds <= most:
            return made
        given: dict[str, Any] = {"num_rounds": most, "num_burn_in": "auto"}
        return flmc.plan(model, uplink, limits, **given, **settings)

    return Regression(words, how, kind, model, plan, compare)


def _data(
    rng: np.random.Generator,
    linear: bool,
    num_devices: int,
    num_samples: int,
    dim: int,
    unlike: float,
) -> tuple[flmc.data.FederatedData, str]:
    """Examples with features of several scales, correlated or not, on devices that differ in size,
    features and truth, or are dealt by target; and words for it."""
    spread = float(rng.choice([1.0, 1.0, 1.0, 4.0]))  # largest over smallest scale of a feature
    scales = np.geomspace(1.0, 1.0 / spread, dim)
    correlation = float(rng.choice([0.0, 0.0, 0.0, 0.8]))
    shared = rng.standard_normal((num_samples, 1))
    features = rng.standard_normal((num_samples, dim))
    features = scales * (math.sqrt(1 - correlation) * features + math.sqrt(correlation) * shared)
    uneven = rng.random() < 0.4
    weights = rng.dirichlet(np.full(num_devices, 1.0)) if uneven else np.full(num_devices, 1.0)
    counts = 1 + np.floor((num_samples - num_devices) * weights / weights.sum()).astype(int)
    counts[-1] += num_samples - counts.sum()
    device = np.repeat(np.arange(num_devices), counts)
    features = features + unlike * scales * rng.standard_normal((num_devices, dim))[device]
    truth = rng.standard_normal(dim) + unlike * rng.standard_normal((num_devices, dim))
    score = np.einsum("nd,nd->n", features, truth[device])
    if linear:
        targets = score + rng.standard_normal(num_samples)
    else:
        targets = np.where(rng.random(num_samples) < 1 / (1 + np.exp(-score)), 1.0, -1.0)
    data = flmc.data.FederatedData(features, targets, tuple(int(n) for n in counts))
    how = str(rng.choice(["as drawn", "as drawn", "as drawn", "sorted"]))
    if how == "sorted":
        data = data.split(num_devices, "label")
    words = f"{num_devices} x {num_samples}, dim {dim}, unlike {unlike:g}"
    return data, words + (", uneven" if uneven else "") + (", sorted" if how == "sorted" else "")


def _uplink(
    rng: np.random.Generator, model: flmc.Model, scale: float, linear: bool
) -> tuple[flmc.Uplink, dict[str, Any], str]:
    """An uplink, the planner's settings beside it, and words for both. ``scale`` is the size of an
    entry of one example's gradient."""
    settings: dict[str, Any] = {"clip": "auto"}
    rule = 4.25 * math.sqrt((model.smoothness or 1.0) / model.num_devices)
    if rng.random() < 0.4:
        settings["clip"] = float(rng.choice([0.3, 1.0, 3.0])) * rule
    bounds: dict[str, Any] = {}
    if rng.random() < 0.3:
        by_norm = bool(rng.random() < 0.5)
        bound = (
            scale * float(rng.choice([1.5, 5.0, 20.0])) * (math.sqrt(model.dim) if by_norm else 1)
        )
        bounds = {"example_norm" if by_norm else "example_clip": bound}
        if linear:
            unit = {name: value / scale for name, value in bounds.items()}
            shrink = typical_shrink(unit.get("example_clip"), unit.get("example_norm"), model.dim)
            bounds["example_shrink"] = min(1.0, shrink)
    snr_db = float(rng.choice([25.0, 40.0]))
    words = ", ".join(f"{name} {value:.3g}" for name, value in bounds.items())
    if rng.random() < 0.5:
        return flmc.Analog(snr_db=snr_db, **bounds), settings, _joined("analog", settings, words)
    link = str(rng.choice(["auto", "linear", "slope", "sigmoid", "probit"]))
    links: dict[str, flmc.Link] = {
        "sigmoid": flmc.Sigmoid(2.0 / rule),
        "probit": flmc.Probit(1.0 / rule),
        "linear": flmc.Linear(),
    }
    if link == "auto":
        settings["link"] = "auto"
    if link == "slope":
        settings["slope"] = "auto"
    uplink = flmc.Digital(snr_db=snr_db, link=links.get(link, flmc.Sigmoid(1.0 / rule)), **bounds)
    return uplink, settings, _joined(f"digital {link}", settings, words)


def _joined(scheme: str, settings: dict[str, Any], words: str) -> str:
    """Words for an uplink."""
    clip = settings["clip"]
    size = clip if isinstance(clip, str) else f"{clip:.3g}"
    return f"{scheme}, clip {size}" + (f", {words}" if words else "")


def logistic_moments(features: Array, targets: Array) -> tuple[Array, Array, Array]:
    """Posterior mean and sd of intercept and slopes, (dim), and 4000 draws, (draw, dim), for
    targets -1 and +1, with the prior N(0, 25) for the intercept and N(0, 1) for slopes: importance
    sampling about the mode."""
    design = np.column_stack([np.ones(len(features)), features])
    precision = np.diag([1 / 25, *np.ones(features.shape[1])])

    def log_density(theta: Array) -> Array:
        score = targets * (theta @ design.T)
        prior = np.einsum("pd,de,pe->p", theta, precision, theta)
        return np.asarray(-np.logaddexp(0.0, -score).sum(axis=1) - 0.5 * prior)

    mode, curvature = np.zeros(design.shape[1]), precision
    for _ in range(50):
        share = 1 / (1 + np.exp(targets * (design @ mode)))  # of the other class
        curvature = (design.T * (share * (1 - share))) @ design + precision
        mode = mode + np.linalg.solve(curvature, design.T @ (share * targets) - precision @ mode)
    root = np.linalg.cholesky(np.linalg.inv(curvature))
    rng = np.random.default_rng(0)
    half = rng.standard_normal((_PROPOSALS // 2, len(mode)))
    half /= np.sqrt(rng.chisquare(_FREEDOM, len(half)) / _FREEDOM)[:, None]
    white = np.concatenate([half, -half])
    proposal = -0.5 * (_FREEDOM + len(mode)) * np.log1p(np.square(white).sum(axis=1) / _FREEDOM)
    theta = mode + white @ root.T
    some = [log_density(part) for part in np.array_split(theta, 20)]
    log_weights = np.concatenate(some) - proposal
    weights = np.exp(log_weights - log_weights.max())
    weights /= weights.sum()
    # Fewer effective proposals would not be worth the error that is stated for them.
    assert 1 / np.square(weights).sum() > _PROPOSALS / 4
    mean = weights @ theta
    drawn = theta[rng.choice(len(theta), 4000, p=weights)]
    return mean, np.sqrt(weights @ np.square(theta - mean)), drawn
