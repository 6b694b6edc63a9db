r"""Scores of the methods in a comparison: how well they predict held-out examples, and how far they
are from the exact posterior.

Every score is of one group of draws, that is of one chain, or of one point estimate:

* classes: accuracy, log loss, Brier score and calibration error, as in
  :mod:`flmc.evaluation.predictive`;
* linear regression: log loss, the mean of :math:`-\ln \frac1n\sum_i p(v \mid u, \theta_i)`, and
  squared error of the mean prediction;
* a known posterior: mean error, the squared distance of the group's mean from that of the exact
  posterior of all data, over the trace of its covariance."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.data.federated import FederatedData
from flmc.evaluation.predictive import class_numbers, probabilities_of_groups, score_probabilities
from flmc.models.distributions import Gaussian
from flmc.models.linear import LinearGaussian
from flmc.models.log_density import LogDensityModel
from flmc.models.model import Model

_MOST_DRAWS = 100
"""Largest number of draws of a chain, evenly chosen among the kept ones, over which class
probabilities are averaged."""

LABELS = {
    "accuracy": "accuracy",
    "log_loss": "log loss",
    "brier": "Brier",
    "ece": "ECE",
    "squared_error": "squared error",
    "mean_error": "one chain: mean error",
    "variance_ratio": "variance ratio",
    "wasserstein2_squared": "W2 squared",
    "mean_error_squared": "mean error squared",
    "mse": "MSE",
}
"""Column headings by the names of scores; the last four are metrics of all chains together."""


class Scorer(ABC):
    """Scores groups of draws against held-out examples or the exact posterior, as a subclass says.
    A group holds the draws of one chain, or one point estimate."""

    num_test: int = 0
    """Number of held-out examples that are predicted; 0: the scorer needs none."""

    @abstractmethod
    def score(self, groups: Array) -> dict[str, Array]:
        """Scores by name, each an array (group), of ``groups`` (group, draw, dim): draws in the
        model's own coordinates. A group is one chain, or one point estimate, which has a single
        draw."""


def make_scorers(model: Model, test: FederatedData | None) -> tuple[Scorer, ...]:
    """The scorers that apply to a model: one for held-out examples where there are some, and one
    for the exact posterior where it is known."""
    scorers: list[Scorer] = [] if test is None else [_held_out_scorer(model, test)]
    if isinstance(model.posterior, Gaussian):
        scorers.append(_PosteriorScorer(model.posterior))
    return tuple(scorers)


def note_on_test_set(count: int, accuracies: Iterable[float]) -> str:
    """A note for tables, in one sentence: standard errors of scores are over chains, and leave out
    that other held-out examples (``count`` of them) would give other scores. ``accuracies`` are
    shares of right predictions p; the note adds the largest sqrt(p (1 - p)/count), their error for
    this reason."""
    spread = max((p * (1 - p) for p in accuracies), default=0.0)
    more = f", a standard error of {math.sqrt(spread / count):.2g} of accuracy" if spread else ""
    return (
        "errors of the scores of held-out examples are over chains: they leave out what other"
        f" {count} examples would give{more}"
    )


def _held_out_scorer(model: Model, test: FederatedData) -> Scorer:
    """The scorer that compares predictions from draws of the model with the held-out examples
    ``test``; ``InvalidSetting`` for a model that cannot predict them."""
    if test.num_samples < 1:
        raise InvalidSetting("there must be at least 1 held-out example, got 0: hold out more")
    if isinstance(model, LinearGaussian) and model.num_experiments == 1:
        return _LinearScorer(model, test)
    if isinstance(model, LogDensityModel) and len(test.classes) > 1:
        return _ClassScorer(model, test)
    raise InvalidSetting(
        "held-out examples are scored for linear regression of one data set and for models from log"
        f" densities with classes, got {type(model).__name__} of {model.num_experiments} with"
        f" {len(test.classes)} classes"
    )


class _ClassScorer(Scorer):
    """Scores the class probabilities of held-out examples, averaged over draws: accuracy, log loss,
    Brier score and calibration error."""

    def __init__(self, model: LogDensityModel, test: FederatedData) -> None:
        self._model, self._test, self._classes = model, test, class_numbers(test)
        self.num_test = test.num_samples

    def score(self, groups: Array) -> dict[str, Array]:
        count = groups.shape[1]
        chosen = np.unique(np.linspace(0, count - 1, min(count, _MOST_DRAWS)).astype(np.intp))
        each_chain = probabilities_of_groups(self._model, groups[:, chosen], self._test)
        each = [score_probabilities(probabilities, self._classes) for probabilities in each_chain]
        names = ("accuracy", "log_loss", "brier", "ece")
        return {name: np.array([getattr(one, name) for one in each]) for name in names}


class _LinearScorer(Scorer):
    """Scores predictions of held-out examples by a linear regression with known noise: log loss,
    and squared error of the mean prediction."""

    def __init__(self, model: LinearGaussian, test: FederatedData) -> None:
        if test.features.shape[1] != model.dim:
            raise InvalidSetting(
                f"held-out examples must have {model.dim} features, got {test.features.shape[1]}"
            )
        self._model, self._test = model, test
        self.num_test = test.num_samples

    def score(self, groups: Array) -> dict[str, Array]:
        # Imported here, because `import flmc` imports this module, and SciPy takes long to import.
        from scipy.special import logsumexp

        variance = self._model.noise_variance
        loss, squared = np.empty(len(groups)), np.empty(len(groups))
        # One group at a time, because an array of predictions (example, draw) may be large.
        for index, draws in enumerate(groups):
            predicted = self._test.features @ draws.T
            errors = np.square(self._test.targets[:, None] - predicted)
            log_density = -0.5 * (errors / variance + np.log(2 * np.pi * variance))
            loss[index] = -np.mean(logsumexp(log_density, axis=1) - np.log(len(draws)))
            squared[index] = np.mean(np.square(self._test.targets - predicted.mean(axis=1)))
        return {"log_loss": loss, "squared_error": squared}


class _PosteriorScorer(Scorer):
    """Scores draws by their mean: its squared distance from the exact posterior mean of the data
    set, over the trace of the posterior covariance."""

    def __init__(self, posterior: Gaussian) -> None:
        self._posterior = posterior

    def score(self, groups: Array) -> dict[str, Array]:
        # The chains of a data set are neighbours in ``groups``, so its posterior mean and trace are
        # repeated once for each chain.
        repeats = len(groups) // len(self._posterior.mean)
        apart = groups.mean(axis=1) - np.repeat(self._posterior.mean, repeats, axis=0)
        trace = np.trace(self._posterior.covariance, axis1=1, axis2=2)
        return {"mean_error": np.square(apart).sum(axis=1) / np.repeat(trace, repeats)}
