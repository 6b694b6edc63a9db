"""What channel estimates that are not exact do to a plan, in numbers to be shown."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from flmc.privacy.uncertain_gain_event import UncertainGainEvent
from flmc.uplink.csi import arrival_of

if TYPE_CHECKING:
    from flmc.planning.plans.value import Plan


@dataclass(frozen=True)
class EstimateEffect:
    """How symbols arrive of devices that invert estimates of their channels.

    Attributes
    ----------
    error
        e of the estimates.
    mean
        Mean factor with which symbols arrive, over devices: what the drift is scaled by.
    mean_smallest, mean_largest
        The same of the device with the smallest and the largest: the posterior mean is missed if
        they differ.
    spread
        Standard deviation of the factor, over devices, rounds and errors: it heats.
    stated_gain
        Gain that the privacy statement is made at, for the plan's largest cap; None without a
        statement.
    exceeded
        Probability that it is exceeded in the run, which is part of delta; None without a
        statement.
    """

    error: float
    mean: float
    mean_smallest: float
    mean_largest: float
    spread: float
    stated_gain: float | None
    exceeded: float | None

    def to_document(self) -> dict[str, float | None]:
        """The numbers, for JSON."""
        return asdict(self)

    def __str__(self) -> str:
        unlike = self.mean_largest - self.mean_smallest > 0.01
        devices = f" ({self.mean_smallest:.3g} to {self.mean_largest:.3g} by device)"
        text = (
            f"error {self.error:g}: symbols arrive with {self.mean:.3g} of the gain on average"
            f"{devices if unlike else ''}, and scatter by {self.spread:.2g} of it"
        )
        if self.stated_gain is None or self.exceeded is None:
            return text
        return (
            f"{text}. Privacy is stated at a gain of {self.stated_gain:.3g}, which is exceeded in"
            f" the run with probability {self.exceeded:.1e} (within delta): a device in a deep fade"
            " inverts a wrong estimate at full power, so that a lower SNR lowers it more than a"
            " smaller gain"
        )


def estimate_effect(plan: Plan) -> EstimateEffect | None:
    """What the estimates of a plan's channel do; None with exact ones.

    Parameters
    ----------
    plan
        The plan.
    """
    arrival = arrival_of(plan.uplink, plan.num_devices, plan.scheduler)
    if arrival is None:
        return None
    mean = float(arrival.mean.mean())
    stated = exceeded = None
    run = None if plan.exposure is None else plan.exposure.run
    if isinstance(run, UncertainGainEvent):
        stated = max(gain for gain, _ in run.loud.transmissions)
        exceeded = min(1.0, run.probability)
    return EstimateEffect(
        plan.uplink.csi_error,
        mean,
        float(arrival.mean.min()),
        float(arrival.mean.max()),
        math.sqrt(max(float(arrival.mean_square.mean()) - mean**2, 0.0)),
        stated,
        exceeded,
    )
