"""Laws of the receiver's noise, of which the Gaussian one alone is accounted for.

Privacy is proven for normal noise only. Plans choose the gain by the variance of the noise, which
is N_0 under any law. The shape of the distribution of theta that a chain samples depends on the law
of the noise, and is predicted for normal noise only."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting

_TRIED, _TOLERANCE = 20_000, 0.25
"""Number of draws with which a law of noise is checked, and the largest accepted deviation of their
mean from 0 and of their variance from 1."""


class NoiseLaw(ABC):
    """Law of the receiver's noise in an entry, divided by its standard deviation: the ``noise_law``
    of an uplink. The NumPy engine draws from it; code that draws normal noise itself, as the
    compiled engines do, refuses other laws."""

    @abstractmethod
    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        """Independent numbers of mean 0 and variance 1, from the given generator alone.

        Parameters
        ----------
        rng
            Stream of one chain; it is asked for successive rounds.
        shape
            (round, dim). Drawing rounds at once or one after the other must give the same numbers.
        """

    def check(self) -> None:
        """Raise ``InvalidSetting`` unless drawn numbers have a mean within 0.25 of 0 and a variance
        within 0.25 of 1."""
        drawn = np.asarray(self.draw(np.random.default_rng(0), (_TRIED, 1)))
        mean, variance = float(drawn.mean()), float(drawn.var())
        # Written with "not <=", so that NaN is refused too: every comparison with it is false.
        if not (abs(mean) <= _TOLERANCE and abs(variance - 1.0) <= _TOLERANCE):
            raise InvalidSetting(
                f"noise_law {type(self).__name__} must draw numbers of mean 0 and variance 1,"
                f" because noise_power scales them; got mean {mean:.3g} and variance"
                f" {variance:.3g} in {_TRIED} numbers"
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
