r"""Settings from public knowledge alone: how many examples, devices and entries, the scale of the features, the SNR and
the budget. Each comes with its rule, and with what it costs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.config import Settings
from flmc.errors import InvalidSetting
from flmc.plan import Plan
from flmc.quantise import Sigmoid
from flmc.shrink import shrink_factor
from flmc.table import format_pairs
from flmc.temperature import rounds_needed
from flmc.uplink import Digital

RELATIVE_STEP = 0.05
"""eta_eff L: the discretisation error is about half of it."""
_EXAMPLE_CLIP = 4.0
_HOPELESS = 1.5
"""Temperature above which settings are of no use."""
_KEPT = 60
_FAST_FACTOR = 8.0
_FEWEST_BURN_IN = 100


@dataclass(frozen=True)
class Suggestion:
    """Settings, and a line of reason for each."""

    settings: dict[str, Any]
    reasons: list[tuple[str, str]]

    def __str__(self) -> str:
        return format_pairs("suggested, from public knowledge (standard normal features and residuals)", self.reasons)

    def misfit(self, plan: Plan) -> str | None:
        """What to do if the settings are of no use under the budget that they were planned with."""
        heat = plan.temperature
        if heat is None or heat <= _HOPELESS:
            return None
        more = "" if plan.limits.neighbouring == "example" else ", or --neighbouring example"
        cures = f"use more --samples, a larger --epsilon{more}"
        return f"these settings do not fit the budget (temperature {heat:.3g}): {cures}"

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
    if settings.model != "linear":
        raise InvalidSetting(f"suggestions are for linear regression, got the model {settings.model!r}")
    examples, devices = settings.samples, settings.devices
    share = 0.3 if settings.scope == "run" else 0.6
    spread = math.sqrt(examples / devices)  # of a device's gradient entry near the mode
    slope = math.sqrt(RELATIVE_STEP / (2 * share)) / spread
    by_example = settings.neighbouring == "example"
    clip = (14.0 if by_example else 3.5) * spread
    shrink = shrink_factor(_EXAMPLE_CLIP) if by_example else 1.0
    step = RELATIVE_STEP / (examples * slope * shrink)
    uplink = Digital(link=Sigmoid(2 * slope), clip=clip, example_shrink=shrink)
    # Of the Gram matrix of standard normal features, with a margin (Marchenko and Pastur).
    ratio = math.sqrt(settings.dim / examples)
    smoothness, convexity = max(1.3, 1.1 * (1 + ratio) ** 2), min(0.7, max(0.05, 0.9 * (1 - ratio) ** 2))
    # Fast steps are free for privacy; the start is zero, two standard deviations of the prior away.
    fast = min(_FAST_FACTOR, 0.5 / RELATIVE_STEP)
    burn_in = _FEWEST_BURN_IN
    for _ in range(20):  # half of it is fast, so it decides how much of it is needed
        burn_in = max(burn_in, rounds_needed(uplink, step, fast, burn_in // 2, devices, 2.0, convexity * examples))
    chosen: dict[str, Any] = {
        "slope_parameter": 2 * slope,
        "clip": clip,
        "step_size": step,
        "rounds": burn_in + _KEPT,
        "burn_in": burn_in,
        "burn_in_step_factor": fast,
        "start": "zero",
        "public_smoothness": smoothness * examples,
        "public_convexity": convexity * examples,
    }
    given = sorted(settings.model_fields_set & ({*chosen, "example_clip"} if by_example else chosen.keys()))
    if given:
        raise InvalidSetting(f"--suggest chooses {', '.join(given)}: leave out what it is to choose")
    reasons = [
        (
            "slope parameter",
            f"{2 * slope:.4g}: quantisation makes {100 * share / shrink**2:.0f} % of the Langevin noise, so the gain"
            " stays small",
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
