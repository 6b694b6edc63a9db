"""Synthetic examples that are drawn when they are first needed: a plan of many does without."""

from __future__ import annotations

import math
from dataclasses import dataclass

from flmc.data.linear import LinearData
from flmc.data.synthetic import draw_linear

_MOST_WORK = 2e11
"""Products of two features up to which the largest curvature is computed from the examples
themselves: as many take ten seconds."""
_UNLIKELY = 1e-9
"""Probability with which the largest curvature of a data set may exceed its bound."""


@dataclass(frozen=True)
class DrawnExamples:
    """Examples of :func:`flmc.data.synthetic.draw_linear`, drawn when they are first asked for.

    Attributes
    ----------
    seed, num_experiments
        Seed of the data, and number of data sets.
    device_sizes
        Number of examples of each device.
    dim
        Features of an example.

    Examples
    --------
    >>> from flmc.data.drawn_examples import DrawnExamples
    >>> many = DrawnExamples(0, 1, (10,) * 10_000, 10_000)  # 8 GB, if they were drawn
    >>> many.too_many, round(many.largest_curvature)
    (True, 178646)
    """

    seed: int
    num_experiments: int
    device_sizes: tuple[int, ...]
    dim: int

    @property
    def num_samples(self) -> int:
        """Examples of a data set, over all devices."""
        return sum(self.device_sizes)

    @property
    def too_many(self) -> bool:
        """Whether finding the largest curvature from the examples would take long."""
        count, dim = self.num_samples, self.dim
        return float(count) * dim * min(count, dim) > _MOST_WORK

    @property
    def largest_curvature(self) -> float:
        r"""Number that no eigenvalue of a data set's sum of :math:`u u^\top` exceeds, but with
        probability 1e-9.

        For n examples with m independent standard normal features the largest eigenvalue is above
        :math:`(\sqrt n + \sqrt m + t)^2` with a probability of at most :math:`e^{-t^2/2}` (Davidson
        and Szarek, *Local operator theory, random matrices and Banach spaces*, theorem II.13). It
        is known before anything is drawn, and within some per cent of what the examples have."""
        beyond = math.sqrt(2.0 * math.log(self.num_experiments / _UNLIKELY))
        return (math.sqrt(self.num_samples) + math.sqrt(self.dim) + beyond) ** 2

    def draw(self) -> LinearData:
        """The examples, drawn now."""
        return draw_linear(
            self.seed,
            num_experiments=self.num_experiments,
            num_samples=self.num_samples,
            dim=self.dim,
            device_sizes=self.device_sizes,
        )
