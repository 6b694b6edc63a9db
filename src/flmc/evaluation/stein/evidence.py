r"""Whether draws can come from a posterior that is not known, from its gradient alone.

For draws from a density proportional to :math:`e^{-U}` integration by parts (Stein's identity)
gives, for every entry,

.. math:: E[\partial_i U] = 0, \qquad E[(\theta_i - \bar\theta_i)\,\partial_i U] = 1,

and at temperature T, with density proportional to :math:`e^{-U/T}`, the second is T: so the second
measures how much wider than the posterior the draws are, whatever the posterior's shape. If the
mean of the draws is off by d, the first is about :math:`\Sigma^{-1} d`. Both need the true
gradients of all devices at the draws, so they belong to a simulation, not to a deployment."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding
from flmc.base.tables import Row
from flmc.evaluation.mixing import APART, Mixing
from flmc.models.model import Model

_MOST_DRAWS = 2000
"""About the largest number of draws at which gradients are computed."""
_FEWEST_DRAWS = 40
"""Draws below which nothing is said."""
_NARROW, _WIDE = 0.8, 1.25
"""Variance ratios below and above which a warning is given, if they are beyond four standard
errors."""
_SHIFTED = 0.5
"""Posterior standard deviations by which the mean may be off without a warning."""
_CURES = (
    "gradients may be too large for clip or link, the link too steep, or smoothness too small for"
    " the step"
)
"""What makes draws too wide, or moves them, once the chains agree."""


class Evidence(NamedTuple):
    """What gradients at the draws tell of the first data set, with standard errors over chains (NaN
    for one chain)."""

    variance_ratio: float
    """Mean over entries of :math:`E[(\\theta_i - \\bar\\theta_i)\\,\\partial_i U]`; 1 is right."""
    variance_ratio_se: float
    """Standard error of ``variance_ratio``."""
    smallest: float
    """Smallest ratio over the entries."""
    largest: float
    """Largest ratio over the entries."""
    mean_shift: float
    """Largest shift of the mean over the entries, in posterior standard deviations."""
    mean_shift_se: float
    """Standard error of ``mean_shift``."""

    def to_document(self) -> dict[str, Any]:
        """The evidence as plain values, for JSON; what is not a number is null."""
        return {
            name: value if math.isfinite(value) else None for name, value in self._asdict().items()
        }

    @property
    def rows(self) -> list[Row]:
        """The evidence in rows, for whoever shows a result."""
        ratio = f"{self.variance_ratio:.3g}{_plus_minus(self.variance_ratio_se)} (1 is right)"
        shift = (
            f"{self.mean_shift:.2g}{_plus_minus(self.mean_shift_se)} posterior sd in the worst"
            " entry"
        )
        return [
            Row(
                "variance ratio, by Stein",
                f"{ratio}; {self.smallest:.3g} to {self.largest:.3g} over entries",
            ),
            Row("mean off by about", shift),
        ]

    def findings(self, mixing: Mixing | None = None) -> list[Finding]:
        """What speaks against the draws.

        Parameters
        ----------
        mixing
            Whether the chains agree, if that is known. What chains that have not mixed can explain
            is not blamed on anything else: it cannot be judged before they have.
        """
        r_hat = 1.0 if mixing is None else mixing.doubt
        apart = r_hat > APART
        found, unclear = [], False
        # Four standard errors: that of few chains is itself uncertain. With one chain it is NaN,
        # and the comparison is false.
        off = abs(self.variance_ratio - 1) > 4 * self.variance_ratio_se
        if off and not _NARROW < self.variance_ratio < _WIDE:
            # All draws together are wider than those of a chain by R-hat squared.
            explained = _NARROW / r_hat**2 < self.variance_ratio < _WIDE * r_hat**2
            unclear = apart or explained
            found += [] if unclear else [self._spread()]
        if self.mean_shift > max(_SHIFTED, 4 * self.mean_shift_se):
            # Halves of chains differ from each other by so many standard deviations, as a root mean
            # square; their mean may be off by twice that.
            between = math.sqrt(r_hat**2 - 1)
            explained = self.mean_shift < _SHIFTED + 2 * between and r_hat > 1
            unclear = unclear or apart or explained
            found += [] if apart or explained else [self._place()]
        return [self._not_judged(r_hat)] if unclear and not found else found

    def _spread(self) -> Finding:
        """Finding that the draws are too wide or too narrow."""
        kind = "wide" if self.variance_ratio > 1 else "narrow"
        short = f"the draws are too {kind}"
        text = f"{short}, {self.variance_ratio:.3g} times the posterior's variance: {_CURES}"
        numbers = {
            "variance_ratio": self.variance_ratio,
            "variance_ratio_se": self.variance_ratio_se,
        }
        return Finding("draws-spread", "warning", text, short, numbers)

    def _place(self) -> Finding:
        """Finding that the mean of the draws is off."""
        short = f"the mean of the draws is about {self.mean_shift:.2g} posterior sd off"
        text = (
            f"the mean of the draws is about {self.mean_shift:.2g} posterior standard"
            f" deviations off: {_CURES}, or devices differ so much that clipping or a curved"
            " link outvotes them"
        )
        numbers = {"mean_shift": self.mean_shift, "mean_shift_se": self.mean_shift_se}
        return Finding("draws-place", "warning", text, short, numbers)

    def _not_judged(self, r_hat: float) -> Finding:
        """Note that the draws cannot be judged before the chains agree."""
        text = (
            "whether the draws are from the posterior cannot be judged before the chains agree:"
            f" by Stein's identity the variance ratio is {self.variance_ratio:.3g} and the mean off"
            f" by {self.mean_shift:.2g} posterior sd now, which chains that have not mixed explain"
        )
        numbers = {
            "variance_ratio": self.variance_ratio,
            "mean_shift": self.mean_shift,
            "r_hat": r_hat,
        }
        return Finding("draws-not-judged", "note", text, numbers=numbers)

    @property
    def warnings(self) -> list[str]:
        """What speaks against the draws, a sentence each, for chains that agree."""
        return [each.message for each in self.findings()]


def _plus_minus(se: float) -> str:
    """A standard error as the end of a number; nothing where it is not known."""
    return "" if math.isnan(se) else f" ± {se:.1g}"


def examine(model: Model, draws: Array) -> Evidence | None:
    """Stein's evidence for or against the draws of the first data set.

    Parameters
    ----------
    model
        Gives the gradients of all devices at the draws.
    draws
        Kept draws of the first data set, (chain, draw, dim); some are left out where there are
        many.

    Returns
    -------
    Evidence or None
        None where draws are too few, do not vary, or have gradients that are not finite.
    """
    num_chains, num_draws, dim = draws.shape
    # Every so-many-th draw of each chain: neighbours tell little new, and gradients are costly.
    theta = draws[:, :: max(1, num_chains * num_draws // _MOST_DRAWS)]
    if theta.shape[0] * theta.shape[1] < _FEWEST_DRAWS:
        return None
    gradient = (
        model.gradient(theta.reshape(1, -1, dim), slice(0, 1)).sum(axis=2).reshape(theta.shape)
    )
    deviation = theta - theta.mean(axis=(0, 1))
    variance = np.square(deviation).mean(axis=(0, 1))
    if not np.isfinite(gradient).all() or not (variance > 0).all():
        return None
    by_chain = (deviation * gradient).mean(axis=1)  # (chain, dim)
    ratio, entries = by_chain.mean(), by_chain.mean(axis=0)
    covariance = np.einsum("cdi,cdj->ij", deviation, deviation) / (theta.size / dim)
    # The shift is about Cov times the mean gradient, less a factor T: at temperature T (about
    # ``ratio``) the covariance of the draws is T times the posterior's. Over the posterior's
    # standard deviation, sqrt(variance/T), a factor 1/sqrt(T) is left.
    shift = gradient.mean(axis=1) @ covariance / (np.sqrt(variance) * math.sqrt(max(ratio, 1e-12)))
    worst = int(np.argmax(np.abs(shift.mean(axis=0))))
    return Evidence(
        float(ratio),
        _standard_error(by_chain.mean(axis=1)),
        float(entries.min()),
        float(entries.max()),
        float(abs(shift[:, worst].mean())),
        _standard_error(shift[:, worst]),
    )


def _standard_error(values: Array) -> float:
    """Standard error of the mean of some values; NaN for one."""
    return float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 else math.nan
