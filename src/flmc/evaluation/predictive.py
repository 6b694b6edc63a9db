r"""Scores of predictive probabilities of classes: accuracy, log loss, Brier score, calibration
error.

With the probability :math:`p_{nc}` of class c for example n, whose true class is :math:`y_n` and
has the probability :math:`p_n`,

* accuracy: share of examples whose most probable class is the true one;
* log loss: mean of :math:`-\ln p_n`;
* Brier score: mean of :math:`\sum_c (p_{nc} - 1[c = y_n])^2`, from 0 to 2;
* ECE, the expected calibration error: an example's confidence is its largest probability. Examples
  are sorted into bins of equal width of the confidence; the absolute difference between a bin's
  accuracy and its mean confidence is averaged over bins, each weighted by its number of examples.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from flmc.base.arrays import Array, IntArray
from flmc.base.errors import InvalidSetting
from flmc.base.tables import Listing, Row
from flmc.data.federated import FederatedData
from flmc.models.differentiation import require_jax
from flmc.models.log_density import LogDensityModel

NUM_BINS = 20
"""Number of bins of equal width, from 0 to 1, into which the calibration error sorts
confidences."""


@dataclass(frozen=True)
class Predictive:
    """Scores of predictive probabilities.

    Attributes
    ----------
    accuracy
        Share of examples whose most probable class is the true one.
    log_loss
        Mean over examples of minus the logarithm of the true class's probability.
    brier
        Mean over examples of the squared distance of the probabilities from the true class's unit
        vector, from 0 to 2.
    ece
        Expected calibration error: mean absolute difference between accuracy and confidence over
        bins of the confidence (the largest probability of an example), weighted by examples.
    confidence, correct, examples
        Mean confidence, share of right predictions and number of examples in each of 20 bins of
        the confidence, (bin); the first two are NaN where a bin is empty.
    """

    accuracy: float
    log_loss: float
    brier: float
    ece: float
    confidence: Array
    correct: Array
    examples: IntArray

    def listing(self) -> Listing:
        """The four scores in rows, for printing."""
        count = int(self.examples.sum())
        error = np.sqrt(self.accuracy * (1 - self.accuracy) / max(count, 1))
        return Listing(
            f"predictions of {count} examples",
            (
                Row("accuracy", f"{self.accuracy:.4g} ± {error:.2g}"),
                Row("log loss", f"{self.log_loss:.4g}"),
                Row("Brier score", f"{self.brier:.4g} (0 is best, 2 is worst)"),
                Row("calibration error", f"{self.ece:.4g} (ECE, {NUM_BINS} bins of equal width)"),
            ),
        )

    def __str__(self) -> str:
        return str(self.listing())


def class_numbers(data: FederatedData) -> IntArray:
    """Number of the class of every example, (sample), from 0. With two classes, the targets in the
    data are -1 and +1 (numbers 0 and 1); with more, they are the numbers themselves.
    ``InvalidSetting`` for data whose target is a quantity, not a class."""
    if not data.classes:
        raise InvalidSetting(f"{data.target_name!r} has no classes: it is a number")
    numbers = (data.targets + 1) / 2 if len(data.classes) == 2 else data.targets
    return np.rint(numbers).astype(np.intp)


def class_probabilities(model: LogDensityModel, theta: Array, data: FederatedData) -> Array:
    r"""Predictive probabilities of classes, :math:`\frac1n\sum_i p(y = c \mid x, \theta_i)`,
    (sample, class), for the features of ``data``, averaged over posterior draws ``theta`` (...,
    dim).

    The targets of ``data`` are not used, but its classes must be named. ``InvalidSetting`` if they
    are not, or if the model's likelihoods do not add up to 1 over the classes."""
    draws = np.asarray(theta, dtype=np.float64).reshape(1, -1, model.dim)
    return np.asarray(probabilities_of_groups(model, draws, data)[0])


def probabilities_of_groups(model: LogDensityModel, theta: Array, data: FederatedData) -> Array:
    """Predictive probabilities of classes, (group, sample, class), averaged over the draws of each
    group by itself; ``theta`` is (group, draw, dim). ``InvalidSetting`` if the classes of ``data``
    are not named, or the model has no likelihood of single examples that adds up to 1 over the
    classes."""
    count = len(data.classes)
    if count < 2:
        raise InvalidSetting(f"{data.target_name!r} has no classes to predict: name them")
    if model.no_examples is not None:
        raise InvalidSetting(
            "predictive probabilities are of single examples, and this model's log likelihood is of"
            " a device as a whole, or uses local parameters: compute them from result.parameters()"
        )
    values = np.array([-1.0, 1.0]) if count == 2 else np.arange(float(count))
    jax = require_jax()
    with jax.enable_x64():

        def one(flat: Any) -> Any:
            parameters = model.to_parameters(flat)

            def of_class(x: Any, y: Any) -> Any:
                return jax.numpy.exp(model.log_likelihood(parameters, {"x": x, "y": y}))

            over_classes = jax.vmap(of_class, in_axes=(None, 0))
            return jax.vmap(over_classes, in_axes=(0, None))(data.features, values)

        # lax.map takes one draw at a time, so that memory holds one table (sample, class); vmap
        # would hold the tables of all draws.
        def group(draws: Any) -> Any:
            return jax.lax.map(one, draws).mean(axis=0)

        total = jax.jit(lambda groups: jax.lax.map(group, groups))(theta)
    probabilities = np.array(total)
    totals = probabilities.sum(axis=2)
    if not np.allclose(totals, 1.0, atol=1e-6):
        raise InvalidSetting(
            "the likelihoods of all classes of an example must add up to 1, got"
            f" {totals.min():.3g}: log_likelihood must be that of the class alone"
        )
    return probabilities


def score_probabilities(probabilities: Array, classes: IntArray) -> Predictive:
    """Scores of predictive ``probabilities`` (sample, class), whose rows add up to 1, against the
    numbers of the true ``classes`` (sample). ``InvalidSetting`` if the shapes do not fit, or there
    are no examples.

    >>> from flmc.evaluation.predictive import score_probabilities
    >>> scores = score_probabilities(np.array([[0.9, 0.1], [0.2, 0.8]]), np.array([0, 0]))
    >>> scores.accuracy, round(scores.brier, 3)
    (0.5, 0.65)
    """
    if probabilities.ndim != 2 or classes.shape != probabilities.shape[:1] or not len(classes):
        raise InvalidSetting(
            "probabilities (sample, class) and classes (sample) must fit and not be empty, got"
            f" {probabilities.shape} and {classes.shape}"
        )
    true = np.eye(probabilities.shape[1])[classes]
    right = probabilities.argmax(axis=1) == classes
    confidence = probabilities.max(axis=1)
    # A confidence of exactly 1 belongs to the last bin.
    bins = np.minimum((confidence * NUM_BINS).astype(np.intp), NUM_BINS - 1)
    examples = np.bincount(bins, minlength=NUM_BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(bins, confidence, NUM_BINS) / examples
        correct = np.bincount(bins, right, NUM_BINS) / examples
    weight = examples / len(classes)
    with np.errstate(divide="ignore"):
        surprise = -np.log((probabilities * true).sum(axis=1))
    return Predictive(
        float(right.mean()),
        float(surprise.mean()),
        float(np.square(probabilities - true).sum(axis=1).mean()),
        float(np.nansum(weight * np.abs(mean - correct))),
        mean,
        correct,
        examples,
    )
