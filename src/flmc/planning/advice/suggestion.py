"""Settings from public knowledge alone: how many examples, devices and entries there are, and the
scale of the features."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from flmc.base.tables import Listing, Row
from flmc.planning.burn_in import rounds_needed
from flmc.planning.plans import Plan
from flmc.uplink.example_clipping import shrink_factor
from flmc.uplink.links import Sigmoid
from flmc.uplink.schemes import Digital

RELATIVE_STEP = 0.05
"""Effective step times L that is suggested: the relative error of the variance is about half
of it."""
_EXAMPLE_CLIP = 4.0
"""Example clip that is suggested, in units of a standard normal feature times residual."""
_HOPELESS = 1.5
"""Temperature above which suggested settings are of no use."""
_KEPT = 60
"""Number of kept rounds that is suggested."""
_FAST_FACTOR = 8.0
"""Largest factor of the first steps that is suggested."""
_FEWEST_BURN_IN = 100
"""Smallest number of rounds of burn-in that is suggested."""


@dataclass(frozen=True)
class Suggestion:
    """Suggested settings, and a line of reason for each.

    Attributes
    ----------
    settings
        Values by the names that settings have in files and on the command line.
    reasons
        Pairs of a setting, in words, and the reason for its value.
    """

    settings: dict[str, Any]
    reasons: list[tuple[str, str]]

    def listing(self) -> Listing:
        """Rows of the suggested settings, each with its reason, and the options of the command
        line."""
        rows = tuple(Row(name, reason) for name, reason in self.reasons)
        options = Row("options", self.options)
        return Listing(
            "suggested, from public knowledge (standard normal features and residuals)",
            (*rows, options),
        )

    def __str__(self) -> str:
        return str(self.listing())

    def misfit(self, plan: Plan) -> str | None:
        """Sentence that says what to do if the settings are of no use under a budget; None if they
        fit.

        Parameters
        ----------
        plan
            A plan that was made with the settings and the budget.

        Returns
        -------
        str or None
            The sentence, where the plan's temperature is above 1.5.
        """
        heat = plan.temperature
        if heat is None or heat <= _HOPELESS:
            return None
        more = "" if plan.limits.neighbouring == "example" else ", or --neighbouring example"
        cures = f"use more --samples, a larger --epsilon{more}"
        return f"these settings do not fit the budget (temperature {heat:.3g}): {cures}"

    @property
    def options(self) -> str:
        """The settings as options of the command line."""
        return " ".join(
            f"--{name.replace('_', '-')} {value:.6g}"
            if isinstance(value, float)
            else f"--{name.replace('_', '-')} {value}"
            for name, value in self.settings.items()
        )


def suggest(
    num_samples: int, num_devices: int, dim: int, *, scope: str, neighbouring: str
) -> Suggestion:
    """Settings of the digital uplink with a sigmoid, for linear regression, from public knowledge.

    Parameters
    ----------
    num_samples, num_devices, dim
        Number of examples in all, of devices and of entries; features and residuals are taken to be
        standard normal.
    scope, neighbouring
        What the privacy budget is for, as in :class:`flmc.Limits`.

    Returns
    -------
    Suggestion
        Settings by their names on the command line, each with a line of reason.

    Examples
    --------
    >>> from flmc.planning.advice.suggestion import suggest
    >>> suggest(1200, 20, 5, scope="round", neighbouring="device").settings["start"]
    'zero'
    """
    # Share of the Langevin noise that quantisation makes. What the channel has to add limits the
    # gain, and a smaller gain is more private.
    share = 0.3 if scope == "run" else 0.6
    spread = math.sqrt(num_samples / num_devices)  # of a device's gradient entry near the mode
    # Quantisation makes eta K/(2 kappa) of the noise, and eta kappa N = RELATIVE_STEP with
    # curvature N = num_samples: solved for kappa.
    slope = math.sqrt(RELATIVE_STEP / (2 * share)) / spread
    by_example = neighbouring == "example"
    clip = (14.0 if by_example else 3.5) * spread
    shrink = shrink_factor(_EXAMPLE_CLIP) if by_example else 1.0
    step = RELATIVE_STEP / (num_samples * slope * shrink)
    uplink = Digital(link=Sigmoid(2 * slope), clip=clip, example_shrink=shrink)
    # Of the Gram matrix of standard normal features, with a margin (Marchenko and Pastur).
    ratio = math.sqrt(dim / num_samples)
    smoothness = max(1.3, 1.1 * (1 + ratio) ** 2)
    convexity = min(0.7, max(0.05, 0.9 * (1 - ratio) ** 2))
    # Fast steps are free for privacy; the start is zero, two standard deviations of the prior away.
    fast = min(_FAST_FACTOR, 0.5 / RELATIVE_STEP)
    curvature = convexity * num_samples
    burn_in = _FEWEST_BURN_IN
    for _ in range(20):  # half of it is fast, so it decides how much of it is needed
        needed = rounds_needed(uplink, step, fast, burn_in // 2, num_devices, 2.0, curvature)
        burn_in = max(burn_in, needed)
    chosen: dict[str, Any] = {
        "slope_parameter": 2 * slope,
        "clip": clip,
        "step_size": step,
        "rounds": burn_in + _KEPT,
        "burn_in": burn_in,
        "burn_in_step_factor": fast,
        "start": "zero",
        "public_smoothness": smoothness * num_samples,
        "public_convexity": convexity * num_samples,
    }
    if by_example:
        chosen["example_clip"] = _EXAMPLE_CLIP
    return Suggestion(chosen, _reasons(chosen, spread, share, shrink))


def _reasons(
    chosen: dict[str, Any], spread: float, share: float, shrink: float
) -> list[tuple[str, str]]:
    """A line of reason for each setting: ``spread`` is the standard deviation of a local gradient,
    ``share`` what quantisation makes of the noise, ``shrink`` what clipping examples leaves."""
    clip, burn_in = chosen["clip"], chosen["burn_in"]
    reasons = [
        (
            "slope parameter",
            f"{chosen['slope_parameter']:.4g}: quantisation makes {100 * share / shrink**2:.0f} %"
            " of the Langevin noise, so the gain stays small",
        ),
        (
            "clip",
            f"{clip:.4g}, {clip / spread:.3g} standard deviations of a local gradient: rarely"
            " reached near the mode",
        ),
        (
            "step size",
            f"{chosen['step_size']:.4g}: relative step {RELATIVE_STEP}, about"
            f" {100 * RELATIVE_STEP / 2:.1f} % too much variance",
        ),
        (
            "burn-in",
            f"{burn_in} rounds, the first half with {chosen['burn_in_step_factor']:g} times the"
            " step: larger steps cost no privacy, more rounds do",
        ),
        ("kept rounds", f"{_KEPT}: each costs as much privacy as a round of burn-in"),
    ]
    if "example_clip" in chosen:
        text = (
            f"{_EXAMPLE_CLIP:g}: leaves {shrink:.3f} of the gradient; smaller is more private and"
            " shifts the mean"
        )
        reasons.append(("example clip", text))
    return reasons
