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
    privacy
        Criterion of the privacy limit, as in :class:`flmc.Limits`; ``by entry`` for the conjecture
        of :mod:`flmc.papers.qflmc.by_entry`.
    digital_langevin, analog_langevin
        Kind of Langevin limit of each scheme, as in :class:`flmc.Limits`.
    paper_steps
        Whether the printed steps are used; else the automatic one.
    """

    name: str
    words: str
    privacy: str
    digital_langevin: str
    analog_langevin: str
    paper_steps: bool

    @property
    def conjecture(self) -> bool:
        """Whether this is a guess at the authors' program, and no sound privacy rule."""
        return self.privacy == "by entry"

    @property
    def label(self) -> str:
        """The name for titles, where a conjecture is marked as one."""
        return f"{self.name} (conjecture)" if self.conjecture else self.name

    @property
    def file_name(self) -> str:
        """The name as part of a file's name."""
        return self.name.replace(" ", "_")

    def limits(self, scheme: str, epsilon: float | None, delta: float) -> Limits:
        """The limits of a plan under this reading; without a budget under a conjecture.

        Parameters
        ----------
        scheme
            `digital` or `analog`.
        epsilon
            Privacy budget of a round; None for the benchmark without privacy.
        delta
            Its delta.
        """
        langevin = self.digital_langevin if scheme == "digital" else self.analog_langevin
        if epsilon is None or self.conjecture:
            return Limits(delta=delta, privacy="off", langevin=langevin)
        return Limits(epsilon=epsilon, delta=delta, privacy=self.privacy, langevin=langevin)


READINGS = (
    Reading(
        "literal",
        "all three constraints as printed, the half restored in T(x)",
        "paper",
        "paper",
        "paper",
        True,
    ),
    Reading(
        "unlimited",
        "as literal, but the Langevin noise requirement is not enforced",
        "paper",
        "off",
        "off",
        True,
    ),
    Reading(
        "calibrated",
        "ours: tail of the exact pair, calibrated noise, automatic step",
        "tail",
        "calibrated",
        "calibrated",
        False,
    ),
    Reading(
        "by entry",
        "a conjecture about the authors' program, not a sound privacy rule: every entry gets"
        " epsilon/m, and the Langevin noise requirement limits analog only",
        "by entry",
        "off",
        "paper",
        True,
    ),
)

DELTA = 0.01
SNR_DB = tuple(2.5 * i for i in range(13))
EPSILON_OF_SNR_FIGURE = 5.0
EPSILONS = (0.5, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 7.5, 8.0, 9.0, 10.0, 12.5, 15.0, 17.5, 20.0)
SNR_OF_EPSILON_FIGURES = 25.0
SLOPES = (0.01, 0.03, 0.05, 0.07)
EPSILONS_OF_SLOPES = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 5.0, 6.0, 7.5, 8.0, 10.0, 12.0)
