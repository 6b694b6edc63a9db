"""Whether the chains have met, also for a model whose posterior is not known.

Chains that agree with each other have forgotten their starts. They do not show that the *noise* is
right: with a temperature of 2 all chains agree on a posterior that is too wide.
:mod:`flmc.evaluation.stein` tests the noise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting, MissingExtra

_FEWEST_DRAWS = 4
"""Kept rounds at least: split R-hat cuts a chain into halves, and the variance of each needs two
draws."""
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
            r_hat = "unknown, which needs two chains or more, and draws that differ"
        return (
            f"R-hat {r_hat}; effective draws at least {self.ess_bulk.min():.0f} for the"
            f" middle, {self.ess_tail.min():.0f} for 5 % and 95 %"
        )


def diagnose(done: KeepsDraws) -> Diagnostics:
    """R-hat and effective sample sizes of the kept draws, by arviz-stats (extra `diagnostics`).

    Parameters
    ----------
    done
        A :class:`flmc.Result` or :class:`flmc.Record` with kept draws.

    Returns
    -------
    Diagnostics
        A value for every data set and entry; NaN for R-hat where there is a single chain.

    Raises
    ------
    InvalidSetting
        If no draws were kept, or fewer than 4 rounds.
    MissingExtra
        If arviz-stats is not installed.

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
    num_draws = chains.shape[2]
    if num_draws < _FEWEST_DRAWS:
        raise InvalidSetting(
            f"diagnostics need at least {_FEWEST_DRAWS} kept rounds, got {num_draws}"
        )
    try:
        from arviz_stats.base import array_stats  # type: ignore[attr-defined]
    except ImportError as error:
        raise MissingExtra(
            "diagnostics need arviz-stats: pip install 'flmc[diagnostics]'"
        ) from error
    draws = np.moveaxis(chains, 3, 1)  # (experiment, dim, chain, draw)

    def of(function: Callable[..., Any], **settings: Any) -> Array:
        return np.asarray(
            function(draws, chain_axis=-2, draw_axis=-1, **settings), dtype=np.float64
        )

    return Diagnostics(
        r_hat=of(array_stats.rhat),
        ess_bulk=of(array_stats.ess, method="bulk"),
        ess_tail=of(array_stats.ess, method="tail", prob=(0.05, 0.95)),
    )
