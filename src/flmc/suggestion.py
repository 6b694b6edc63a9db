r"""Settings from public knowledge alone: how many examples, devices and entries, the scale of the features, the SNR and
the budget. Each comes with its rule, and with what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.config import Settings
from flmc.errors import InvalidSetting
from flmc.quantise import Sigmoid
from flmc.shrink import shrink_factor
from flmc.table import format_pairs
from flmc.temperature import rounds_needed
from flmc.uplink import Digital

RELATIVE_STEP = 0.05
"""eta_eff L: the discretisation error is about half of it."""
_EXAMPLE_CLIP = 4.0
_KEPT = 60
_FAST_FACTOR = 8.0
_FAST_ROUNDS = 40


@dataclass(frozen=True)
class Suggestion:
    """Settings, and a line of reason for each."""

    settings: dict[str, Any]
    reasons: list[tuple[str, str]]

    def __str__(self) -> str:
        return format_pairs("suggested, from public knowledge (standard normal features and residuals)", self.reasons)

    @property
    def options(self) -> str:
        """As options of the command line."""
        return " ".join(
            f"--{name.replace('_', '-')} {value:.6g}"
            if isinstance(value, float)
            else f"--{name.replace('_', '-')} {value}"
            for name, value in self.settings.items()
        )


def suggest(settings: Settings) -> Suggestion:
    """For the digital uplink with a sigmoid, by the rules for relative step and quantisation noise."""
    if settings.scheme != "digital" or settings.link != "sigmoid":
        raise InvalidSetting(
            f"suggestions are for the digital scheme with a sigmoid, got {settings.scheme}, {settings.link}"
        )
    examples, devices = settings.samples, settings.devices
    share = 0.3 if settings.scope == "run" else 0.6
    spread = math.sqrt(examples / devices)  # of a device's gradient entry near the mode
    slope = math.sqrt(RELATIVE_STEP / (2 * share)) / spread
    by_example = settings.neighbouring == "example"
    clip = (14.0 if by_example else 3.5) * spread
    shrink = shrink_factor(_EXAMPLE_CLIP) if by_example else 1.0
    step = RELATIVE_STEP / (examples * slope * shrink)
    uplink = Digital(link=Sigmoid(2 * slope), clip=clip, example_shrink=shrink)
    # A start at zero is a prior's standard deviation away, and fast steps are free for privacy.
    fast = min(_FAST_FACTOR, 0.5 / RELATIVE_STEP)
    needed = rounds_needed(uplink, step, fast, _FAST_ROUNDS, devices, 1.5, float(examples))
    burn_in = max(_FAST_ROUNDS + int(4.5 / RELATIVE_STEP), min(needed, 400))
    chosen: dict[str, Any] = {
        "slope_parameter": 2 * slope,
        "clip": clip,
        "step_size": step,
        "rounds": burn_in + _KEPT,
        "burn_in": burn_in,
        "burn_in_step_factor": fast,
        "start": "zero",
        "public_smoothness": 1.3 * examples,
        "public_convexity": 0.7 * examples,
    }
    reasons = [
        (
            "slope parameter",
            f"{2 * slope:.4g}: quantisation makes {100 * share:.0f} % of the Langevin noise, so the gain stays small",
        ),
        (
            "clip",
            f"{clip:.4g}, {clip / spread:.3g} standard deviations of a local gradient: rarely reached near the mode",
        ),
        (
            "step size",
            f"{step:.4g}: relative step {RELATIVE_STEP}, about {100 * RELATIVE_STEP / 2:.1f} % too much variance",
        ),
        (
            "burn-in",
            f"{burn_in} rounds, the first half with {fast:g} times the step: free for privacy but for its rounds",
        ),
        ("kept rounds", f"{_KEPT}: each costs as much privacy as a round of burn-in"),
    ]
    if by_example:
        chosen["example_clip"] = _EXAMPLE_CLIP
        reasons.append(
            (
                "example clip",
                f"{_EXAMPLE_CLIP:g}: leaves {shrink:.3f} of the gradient; smaller is more private and shifts the mean",
            )
        )
    return Suggestion(chosen, reasons)
