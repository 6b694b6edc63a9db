"""Whether the chains have met, also for a model whose posterior is not known.

Chains that agree with each other have forgotten their starts. They do not show that the *noise* is
right: with a temperature of 2 all chains agree on a posterior that is too wide.
:mod:`flmc.evaluation.stein` tests the noise."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.evaluation.chain_statistics import FEWEST_DRAWS, chain_statistics

AGREED = 1.01
"""R-hat below which chains count as agreed (Vehtari et al., 2021)."""


class KeepsDraws(Protocol):
    """What has kept draws: a :class:`flmc.Result` or a :class:`flmc.Record`."""

    @property
    def kept_draws(self) -> Array | None:
        """Kept draws, (experiment, chain, draw, dim); None if they were not kept."""


@dataclass(frozen=True)
class Diagnostics:
    """R-hat and effective sample sizes for every data set and entry, each (experiment, dim)."""

    r_hat: Array
    """Rank-normalised split R-hat: about 1 where the chains, and the halves of each, agree."""
    ess_bulk: Array
    """Number of independent draws that would estimate the middle of the posterior as well."""
    ess_tail: Array
    """Number of independent draws that would estimate the 5 % and 95 % quantiles as well."""

    @property
    def agreed(self) -> bool:
        """Whether every R-hat is below 1.01."""
        return bool((self.r_hat < AGREED).all())

    def __str__(self) -> str:
        advice = "" if self.agreed else f" (above {AGREED:g}: use more burn-in, or more rounds)"
        r_hat = f"at most {self.r_hat.max():.3f}{advice}"
        if np.isnan(self.r_hat).any():
            r_hat = "unknown, because draws do not vary or are not finite"
        return (
            f"R-hat {r_hat}; effective draws at least {self.ess_bulk.min():.0f} for the"
            f" middle, {self.ess_tail.min():.0f} for 5 % and 95 %"
        )


def diagnose(done: KeepsDraws) -> Diagnostics:
    """R-hat and effective sample sizes of all kept draws.

    A result tells them by itself for its first data set (:attr:`flmc.Result.diagnostics`); here
    they are complete.

    Parameters
    ----------
    done
        A :class:`flmc.Result` or :class:`flmc.Record` with kept draws.

    Returns
    -------
    Diagnostics
        A value for every data set and entry. With a single chain R-hat compares its two halves,
        which shows that it still travels, but not that another chain would arrive at the same
        place.

    Raises
    ------
    InvalidSetting
        If no draws were kept, or fewer than 4 rounds.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1, num_samples=40, num_devices=4))
    >>> plan = flmc.plan(model, flmc.Digital(), num_rounds=20, num_burn_in=10)
    >>> flmc.diagnose(flmc.run(plan, model, chains=4, engine="numpy")).r_hat.shape
    (1, 5)
    """
    if not hasattr(done, "kept_draws"):
        raise InvalidSetting(
            f"diagnostics are of a flmc.Result or flmc.Record, got {type(done).__name__}"
        )
    chains = done.kept_draws
    if chains is None:
        raise InvalidSetting("diagnostics need the draws: run with keep_draws=True")
    if chains.shape[2] < FEWEST_DRAWS:
        raise InvalidSetting(
            f"diagnostics need at least {FEWEST_DRAWS} kept rounds, got {chains.shape[2]}"
        )
    return diagnose_draws(chains)


def diagnose_draws(chains: Array) -> Diagnostics:
    """R-hat and effective sample sizes of draws.

    Parameters
    ----------
    chains
        Draws (experiment, chain, draw, entry), at least 4 of every chain.

    Returns
    -------
    Diagnostics
        A value for every data set and entry.
    """
    columns = np.moveaxis(chains, 3, 1)  # (experiment, entry, chain, draw)
    # A data set at a time: what is computed is as large as the draws, several times.
    found = [chain_statistics(each) for each in columns]
    return Diagnostics(*(np.stack(values) for values in zip(*found, strict=True)))
