"""How long something takes, by its last occurrences."""

from __future__ import annotations

from collections import deque

import numpy as np

_MOST = 50


class Timing:
    """Times of the last fifty occurrences."""

    def __init__(self) -> None:
        self._times: deque[float] = deque(maxlen=_MOST)

    def add(self, seconds: float) -> None:
        """Remember how long it took.

        Parameters
        ----------
        seconds
            The time.
        """
        self._times.append(seconds)

    @property
    def median(self) -> float | None:
        """Median of the times in seconds; None: there are none yet."""
        return float(np.median(self._times)) if self._times else None
