"""The chain beside the exact posterior, which is known where the data are synthetic."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

import flmc
from flmc_flower.task import Array, Settings, draw_data, make_plan


class Comparison(NamedTuple):
    """The chain beside the exact posterior.

    Attributes
    ----------
    mean, sd
        Mean and standard deviation of the kept rounds, (dim).
    exact_mean, exact_sd
        Those of the exact posterior, (dim).
    error
        Standard error of the chain's mean, by theory, in posterior standard deviations.
    """

    mean: Array
    sd: Array
    exact_mean: Array
    exact_sd: Array
    error: float

    @property
    def difference(self) -> Array:
        """The chain's mean minus the exact one, in posterior standard deviations, (dim)."""
        return (self.mean - self.exact_mean) / self.exact_sd

    def __str__(self) -> str:
        columns = (self.mean, self.exact_mean, self.sd, self.exact_sd, self.difference)
        rows = ["entry     mean  exact mean      sd  exact sd  difference of means in sd"]
        for i, (mean, exact, sd, exact_sd, off) in enumerate(zip(*columns, strict=True)):
            rows.append(
                f"{i:5d}  {mean:7.4f}  {exact:10.4f}  {sd:6.4f}  {exact_sd:8.4f}  {off:25.2f}"
            )
        rows.append(f"standard error of each difference, by theory: {self.error:.2f} sd")
        return "\n".join(rows)


def compare(draws: Array, settings: Settings) -> Comparison:
    r"""Mean and spread of the kept rounds beside the exact posterior's.

    Near the posterior a round is :math:`\theta \leftarrow \theta - r(\theta - \mu) + \text{noise}`
    with the relative step r, so rounds k apart are correlated by :math:`(1-r)^k`. The mean of n of
    them has the variance :math:`T\sigma^2(2-r)/(rn)` with the temperature T. The exact posterior
    needs the data of all devices: this is possible because they are synthetic.

    Parameters
    ----------
    draws
        Theta after every kept round, (round, dim).
    settings
        What was run.
    """
    posterior = flmc.LinearGaussian(draw_data(settings)).posterior
    step, temperature = settings.relative_step, make_plan(settings).temperature or 1.0
    variance = temperature * (2.0 - step) / (step * len(draws))
    deviation = np.sqrt(np.diag(posterior.covariance[0]))
    mean, sd = draws.mean(axis=0), draws.std(axis=0)
    return Comparison(mean, sd, posterior.mean[0], deviation, variance**0.5)
