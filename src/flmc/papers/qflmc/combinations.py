"""Combinations of what the paper's text leaves open or may have misprinted, and the gains that each
of them allows."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from flmc.papers.qflmc import readings
from flmc.papers.qflmc.by_entry import entry_gain
from flmc.planning.constraints import PAPER_STEP_SIZES
from flmc.privacy import gaussian
from flmc.privacy.gaussian import GaussianEvent
from flmc.privacy.root_finding import largest_gain
from flmc.uplink.links import Sigmoid
from flmc.uplink.schemes import Digital

DEVICES, DIM, CLIP, FADING = 20, 5, 30.0, 0.04


@dataclass(frozen=True)
class Combination:
    """One way to take the text; the first value of each list in ``CHOICES`` is what is printed, but
    for the half of T(x), which print leaves out."""

    power: str
    langevin: str
    accountant: str
    half: str
    digital_step: float
    analog_step: float
    clipping: str

    def limits_noise(self, scheme: str) -> bool:
        """Whether the Langevin noise requirement limits a scheme.

        Parameters
        ----------
        scheme
            `digital` or `analog`.
        """
        return self.langevin in ("both", f"{scheme} only")


CHOICES: dict[str, tuple[str | float, ...]] = {
    "power": ("per symbol", "per block", "off"),
    "langevin": ("both", "analog only", "digital only", "neither"),
    "accountant": ("paper, K - 1", "paper, 1", "tail", "tight", "by entry"),
    "half": ("with 1/2", "without"),
    "digital_step": (1.0, 0.1, 10.0),
    "analog_step": (1.0, 0.1, 10.0),
    "clipping": ("entry", "norm"),
}


def combinations() -> Iterator[Combination]:
    """All combinations of the choices."""
    for values in itertools.product(*CHOICES.values()):
        yield Combination(*values)  # type: ignore[arg-type]


def gain_of(
    combination: Combination, scheme: str, slope: float, snr_db: float, epsilon: float | None
) -> float:
    """The largest gain that the limits of a combination allow.

    Parameters
    ----------
    combination
        How the text is taken.
    scheme, slope
        `digital` or `analog`, and the parameter a of the digital sigmoid.
    snr_db, epsilon
        SNR in dB, and privacy budget of a round; None: without privacy.
    """
    power = 10.0 ** (snr_db / 10) / (DIM if combination.power == "per block" else 1)
    norm = combination.clipping == "norm"
    # A gradient of norm ell has mean square ell^2/m over its entries; entrywise clipping allows
    # ell^2.
    peak = 1.0 if scheme == "digital" else CLIP / (math.sqrt(DIM) if norm else 1.0)
    limits = [FADING * math.sqrt(power) / peak if combination.power != "off" else math.inf]
    step = PAPER_STEP_SIZES[scheme] * (
        combination.digital_step if scheme == "digital" else combination.analog_step
    )
    if combination.limits_noise(scheme):
        limits.append(math.sqrt(step / 2))
    if epsilon is not None:
        if scheme == "digital":
            # Norm clipping does not change the worst case of one entry, and the paper takes the
            # worst case of every entry.
            limits.append(_digital_gain(slope, epsilon, combination.accountant))
        else:
            limits.append(_analog_gain(epsilon, combination.accountant, combination.half, norm))
    return min(*limits, LOUDEST[scheme])


LOUDEST = {"digital": 30.0, "analog": 1.0}
"""Gain where nothing limits it; the noise is negligible there."""


@lru_cache(maxsize=4096)
def _digital_gain(slope: float, epsilon: float, accountant: str) -> float:
    uplink = Digital(link=Sigmoid(slope))
    if accountant == "by entry":
        return entry_gain(uplink, epsilon, readings.DELTA, DIM)
    kind, _, shift = accountant.partition(", ")
    bits = uplink.privacy_event([(1.0, DIM)])
    return bits.allowed_gain(epsilon, readings.DELTA, kind, DEVICES if shift != "1" else 2)


@lru_cache(maxsize=4096)
def _analog_gain(epsilon: float, accountant: str, half: str, norm: bool) -> float:
    event = GaussianEvent(2 * CLIP, 1.0, ((1.0, 1 if norm else DIM),))
    if accountant == "tight":
        return event.allowed_gain(epsilon, readings.DELTA, "tight", DEVICES)
    # T(x) >= 1 - delta without the half asks for a probability of (1 - delta)/2 only.
    target = readings.DELTA if half == "with 1/2" else 1 - (1 - readings.DELTA) / 2
    # By entry, epsilon/m is in T alone: the m of the root is in the event.
    share = epsilon / DIM if accountant == "by entry" else epsilon
    return largest_gain(
        lambda g: 1.0 if math.isinf(g) else gaussian.tail_delta(share, g * event.mu),
        target,
        1 / event.mu,
    )
