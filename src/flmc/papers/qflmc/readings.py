"""Readings of the paper: its text leaves room, so every figure is drawn under each of them."""

from __future__ import annotations

from dataclasses import dataclass

from flmc.planning.limits import Limits


@dataclass(frozen=True)
class Reading:
    """One way to take the text of the paper: which accountant, which Langevin limit, which step.

    Attributes
    ----------
    name, words
        How the reading is called, and what it is in words.
    privacy, langevin
        Criterion of the privacy limit, and kind of Langevin limit, as in :class:`flmc.Limits`.
    paper_steps
        Whether the printed steps are used; else the automatic one.
    """

    name: str
    words: str
    privacy: str
    langevin: str
    paper_steps: bool

    def limits(self, epsilon: float | None, delta: float) -> Limits:
        """The limits of a plan under this reading.

        Parameters
        ----------
        epsilon
            Privacy budget of a round; None for the benchmark without privacy.
        delta
            Its delta.
        """
        privacy = "off" if epsilon is None else self.privacy
        return Limits(epsilon=epsilon, delta=delta, privacy=privacy, langevin=self.langevin)


READINGS = (
    Reading(
        "literal",
        "all three constraints as printed, the half restored in T(x)",
        "paper",
        "paper",
        True,
    ),
    Reading(
        "unlimited",
        "as literal, but the Langevin noise requirement is not enforced",
        "paper",
        "off",
        True,
    ),
    Reading(
        "calibrated",
        "ours: tail of the exact pair, calibrated noise, automatic step",
        "tail",
        "calibrated",
        False,
    ),
)

DELTA = 0.01
SNR_DB = tuple(2.5 * i for i in range(13))
EPSILON_OF_SNR_FIGURE = 5.0
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.5, 8.0, 9.0, 10.0, 12.5, 15.0, 17.5, 20.0)
SNR_OF_EPSILON_FIGURES = 25.0
SLOPES = (0.01, 0.03, 0.05, 0.07)
EPSILONS_OF_SLOPES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 10.0, 12.0)
