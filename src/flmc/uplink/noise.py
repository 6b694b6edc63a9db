"""Laws of the receiver's noise, of which the Gaussian one alone is accounted for.

Privacy is proven for normal noise only. Plans choose the gain by the variance of the noise, which
is N_0 under any law. The shape of the distribution of theta that a chain samples depends on the law
of the noise, and is predicted for normal noise only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

_ROUNDS, _ENTRIES, _BATCHES = 5000, 20, 40
"""Numbers of rounds and of entries of the draw with which a law of noise is checked, and of the
batches of rounds from whose means standard errors are computed."""
_SURE, _ROUGH = 5.0, 0.25
"""A law of noise is refused if the mean of a draw differs from 0, or its variance from 1, by more
than ``_SURE`` standard errors; and if the variance differs from 1 by more than ``_ROUGH``, however
large its standard error is, because heavy tails make that standard error unreliable."""
_ONE_BY_ONE = 1000
"""Number of rounds whose noise is drawn twice, at once and one after the other, to check that both
give the same numbers."""

_SHORT, _REPEATS = 3, 100
"""Number of rounds of a short draw of noise, and how often it is repeated from the same seed after
other draws. A repetition with other numbers shows that the law keeps a state in its object."""


class NoiseLaw(ABC):
    """Law of the receiver's noise in an entry, divided by its standard deviation: the ``noise_law``
    of an uplink. The NumPy engine draws from it; code that draws normal noise itself, as the
    compiled engines do, refuses other laws."""

    unit_variance: ClassVar[bool] = False
    """Whether the class states that its variance is exactly 1. A sample from a law with heavy tails
    often shows a smaller variance, and is then not refused. A plan reports that it relies on this
    statement."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Noise of mean 0 and variance 1 in the shape ``shape``, independent between rounds, made
        from the generator ``rng`` alone.

        Parameters
        ----------
        rng
            Stream of one chain; it is asked for successive rounds.
        shape
            (round, dim). Drawing rounds at once or one after the other must give the same numbers.
        """

    def check(self) -> None:
        """Raise ``InvalidSetting`` for a law whose draws show that the noise of a round depends on
        earlier rounds, or on how many rounds are drawn at once. Also raise it if the mean of
        100,000 numbers differs from 0, or their variance from 1, by more than five standard errors,
        or the variance by more than 0.25. A variance below 1 is accepted from a law that states
        ``unit_variance``."""
        name = type(self).__name__
        self._check_memory()
        whole = self.draw(np.random.default_rng(1), (_ONE_BY_ONE, 1))
        rng = np.random.default_rng(1)
        parts = [self.draw(rng, (1, 1)) for _ in range(_ONE_BY_ONE)]
        if not np.array_equal(whole, np.concatenate(parts), equal_nan=True):
            raise InvalidSetting(
                f"noise_law {name} must draw the same numbers for rounds at once and one after the"
                f" other, got others in {_ONE_BY_ONE} rounds: a run may draw any number of rounds"
                " at once, so the noise of a round must not depend on earlier rounds"
            )
        drawn = np.asarray(self.draw(np.random.default_rng(0), (_ROUNDS, _ENTRIES)))
        # A batch holds whole rounds. So the means of batches are independent, and give valid
        # standard errors, even if the entries of a round depend on each other.
        means, squares = (each.reshape(_BATCHES, -1).mean(axis=1) for each in (drawn, drawn**2))
        mean, variance = float(means.mean()), float(squares.mean())
        of_mean, of_variance = (
            float(each.std(ddof=1)) / _BATCHES**0.5 for each in (means, squares)
        )
        # 1e-9 is added for laws whose squares are all equal up to rounding, such as random signs:
        # the standard error of their variance is nearly 0.
        sure = _SURE * of_variance + 1e-9
        # The variance of a law with heavy tails comes from a few very large numbers. A sample
        # without them has too small a variance and standard error, so a variance below 1 is no
        # evidence against ``unit_variance``; a sample with them has a large standard error.
        known = self.unit_variance and variance - 1.0 < sure
        # Written with "not <=", so that NaN is refused too: every comparison with it is false.
        if not (
            abs(mean) <= _SURE * of_mean and (known or abs(variance - 1.0) <= min(_ROUGH, sure))
        ):
            raise InvalidSetting(
                f"noise_law {name} must draw numbers of mean 0 and variance 1, because noise_power"
                f" scales them; got mean {mean:.3g} ± {of_mean:.2g} and variance {variance:.4g} ±"
                f" {of_variance:.2g} in {drawn.size} numbers: scale them or, if the variance is"
                " known to be 1 and heavy tails hide it, state unit_variance = True"
            )

    def _check_memory(self) -> None:
        """Raise ``InvalidSetting`` for a law that keeps a state in its object from draw to draw, or
        whose successive rounds have a rank correlation beyond five standard errors, either of the
        mean magnitude or of the mean of a round's numbers."""
        name, first = type(self).__name__, self.draw(np.random.default_rng(2), (_SHORT, 1))
        for seed in range(_REPEATS):
            self.draw(np.random.default_rng(seed), (_SHORT, 1))
            again = self.draw(np.random.default_rng(2), (_SHORT, 1))
            if not np.array_equal(first, again, equal_nan=True):
                raise InvalidSetting(
                    f"noise_law {name} must draw from the generator alone, and the same generator"
                    " gave other numbers after other draws: keep nothing in the object, because a"
                    " run may draw any number of rounds at once, of any chain"
                )
        drawn = np.asarray(self.draw(np.random.default_rng(3), (_ROUNDS, _ENTRIES)))
        ties = np.random.default_rng(4)
        for what, series in (("sizes", np.abs(drawn).mean(axis=1)), ("values", drawn.mean(axis=1))):
            # Ranks have the same law whatever the tails, and equal numbers are ordered by chance.
            ranks = np.empty(_ROUNDS)
            ranks[np.lexsort((ties.random(_ROUNDS), series))] = np.arange(_ROUNDS)
            ranks -= ranks.mean()
            correlation = float(ranks[1:] @ ranks[:-1] / (ranks @ ranks))
            if abs(correlation) > _SURE / _ROUNDS**0.5:
                raise InvalidSetting(
                    f"noise_law {name} must draw independent rounds, and the {what} of successive"
                    f" rounds have the rank correlation {correlation:.3g} in {_ROUNDS} rounds: the"
                    " noise of a round must not depend on earlier rounds, as in bursts that last"
                )


@dataclass(frozen=True)
class GaussianNoise(NoiseLaw):
    """Standard normal noise, the law unless another is given."""

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Standard normal numbers, (round, dim)."""
        return rng.standard_normal(shape)


GAUSSIAN = GaussianNoise()
"""The law of normal noise."""


def is_normal(law: NoiseLaw) -> bool:
    """Whether ``law`` is a ``GaussianNoise`` itself; not a subclass of it, which may draw other
    numbers."""
    return type(law) is GaussianNoise


def why_not_drawn(law: NoiseLaw) -> str | None:
    """Why code that always draws normal noise cannot serve an uplink with the noise law ``law``, as
    the end of an error message; None for the normal law."""
    if is_normal(law):
        return None
    return f"it draws normal noise, and noise_law is {type(law).__name__}"
