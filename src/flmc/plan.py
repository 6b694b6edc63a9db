"""A plan is everything that is fixed before round 1."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from flmc.checks import Array
from flmc.document import to_document
from flmc.errors import InvalidSetting
from flmc.limits import GainLimits, Limits
from flmc.prediction import Prediction
from flmc.spending import (
    NEIGHBOURING,
    Cost,
    Exposure,
    affordable_rounds,
    cost_of_round,
    cost_of_run,
    exposure_of,
)
from flmc.table import format_number, format_pairs
from flmc.temperature import temperature
from flmc.uplink import Uplink

SCHEMA_VERSION = 1

FORECASTS = ("rounds_needed", "prediction", "warnings", "privacy")
"""Parts of a plan's document that say what follows from it and decide nothing."""


@dataclass(frozen=True, eq=False)
class Plan:
    """Rounds, step and gain, with what decided them. Made by :func:`flmc.planning.plan`."""

    uplink: Uplink
    limits: Limits
    num_devices: int
    dim: int
    num_rounds: int
    num_burn_in: int
    start: str
    step_size: float
    burn_in_step_factor: float
    num_fast: int
    """The first rounds, whose step is larger by ``burn_in_step_factor``."""
    gain: Array
    """The cap of the gain, (1 or round, 1 or dim); a round uses the smaller of it and its power limit."""
    active: Array | None
    """Which devices transmit, (round, device) with 1 or 0; None: all, always."""
    gain_limits: GainLimits
    planned_gain: Array
    """What kept rounds are expected to use, (1 or round, dim): the cap within the power limit, over drawn channels if
    random."""
    binding: str
    """Which limit decides the gain: power, langevin, privacy; `given` for an override."""
    data_dependent: bool
    """Whether step or gain were computed from the devices' data: then there is no privacy statement for a
    deployment."""
    rounds_needed: int | None = None
    """Burn-in that the sampler needs, as far as the curvature is known."""
    prediction: Prediction | None = None
    """What the chain will sample, for linear regression with all devices active."""
    warnings: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION

    @cached_property
    def step_sizes(self) -> Array:
        """Step of every round."""
        return np.where(np.arange(self.num_rounds) < self.num_fast, self.burn_in_step_factor, 1.0) * self.step_size

    @cached_property
    def num_active(self) -> Array:
        """Active devices of every round."""
        if self.active is None:
            return np.full(self.num_rounds, float(self.num_devices))
        return np.asarray(self.active.sum(axis=1))

    @property
    def typical_gain(self) -> float:
        """The constant gain with the same noise as the planned gains: the root of their harmonic mean square."""
        return float(np.mean(self.planned_gain**-2.0) ** -0.5)

    @cached_property
    def slope(self) -> float | None:
        """The uplink's slope; None for a link without one."""
        try:
            return self.uplink.slope
        except InvalidSetting:
            return None

    @property
    def effective_step_size(self) -> float | None:
        """Step times slope: the step that the Langevin equation sees."""
        return None if self.slope is None else self.step_size * self.slope

    @property
    def temperature(self) -> float | None:
        """Over the entries of kept rounds, at the planned gain; None for a link without slope."""
        if self.slope is None:
            return None
        kept = self.num_active[self.num_burn_in :, None]
        active = kept[np.arange(len(self.planned_gain)) % len(kept)]
        return temperature(self.uplink, self.step_size, self.planned_gain, self.num_devices, active)

    @cached_property
    def exposure(self) -> Exposure | None:
        """The privacy events that this plan implies, at its caps; None for the ideal uplink."""
        return exposure_of(self.uplink, self.gain, self.active, self.num_rounds, self.dim, self.limits.neighbouring)

    @cached_property
    def affordable_rounds(self) -> int:
        """Rounds that stay within a budget of the run: fewer than all only if the gain was given."""
        if self.binding != "given" or self.limits.scope != "run":
            return self.num_rounds
        return affordable_rounds(self.uplink, self.limits, self.gain, self.active, self.num_rounds, self.dim)

    @cached_property
    def round_cost(self) -> Cost | None:
        """Privacy of the worst round, by the criterion that was asked for; None for the ideal uplink."""
        return None if self.exposure is None else cost_of_round(self.exposure, self.limits, self.num_devices)

    @cached_property
    def run_cost(self) -> Cost | None:
        """Privacy of the whole run, always `tight`; None for the ideal uplink."""
        return None if self.exposure is None else cost_of_run(self.exposure, self.limits)

    def _privacy_document(self, with_run: bool) -> dict[str, Any] | None:
        if self.exposure is None:
            return None
        document: dict[str, Any] = {
            "criterion": self.limits.privacy,
            "neighbouring": NEIGHBOURING[self.limits.neighbouring],
        }
        document["round"] = _plain(self.round_cost)
        document["run"] = {**_plain(self.run_cost), "rounds": self.exposure.num_rounds} if with_run else None
        return document

    def to_document(self, *, with_run: bool = True) -> dict[str, Any]:
        """Everything in plain values, for JSON; what is unbounded is null. Without ``with_run`` the privacy of the run
        is left out."""
        gain = self.gain if self.gain.size > 1 else float(self.gain[0, 0])
        return {
            "schema_version": self.schema_version,
            "scheme": self.uplink.scheme,
            "gain": to_document(gain),
            "limits": {name: to_document(limit) for name, limit in vars(self.gain_limits).items()},
            "binding": self.binding,
            "step_size": self.step_size,
            "effective_step_size": self.effective_step_size,
            "temperature": self.temperature,
            "rounds_needed": self.rounds_needed,
            "data_dependent": self.data_dependent,
            "privacy": self._privacy_document(with_run),
            "num_devices": self.num_devices,
            "dim": self.dim,
            "num_rounds": self.num_rounds,
            "num_burn_in": self.num_burn_in,
            "burn_in_step_factor": self.burn_in_step_factor,
            "num_fast": self.num_fast,
            "start": self.start,
            "active": to_document(self.active),
            "uplink": to_document(self.uplink),
            "asked": to_document(self.limits),
            "prediction": to_document(self.prediction),
            "warnings": list(self.warnings),
        }

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON (sorted keys, no spaces) of what is decided; forecasts, which may depend on
        data, are left out."""
        document = self.to_document(with_run=False)
        decided = {name: value for name, value in document.items() if name not in FORECASTS}
        text = json.dumps(decided, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return hashlib.sha256(text.encode()).hexdigest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __str__(self) -> str:
        limits, number = self.gain_limits, format_number
        rows = [
            ("gain", f"{number(self.typical_gain)}, decided by: {self.binding}"),
            ("limit of power", number(limits.power)),
            ("limit of Langevin noise", number(limits.langevin)),
            ("limit of privacy", number(limits.privacy)),
            ("step size", f"{number(self.step_size)} (effective {number(self.effective_step_size)})"),
            ("temperature", f"{number(self.temperature)} (1: the posterior's variance; above: too wide)"),
            ("rounds", f"{self.num_rounds}, of which {self.num_burn_in} burn-in"),
            ("burn-in needed", f"about {number(self.rounds_needed)} rounds"),
        ]
        if self.prediction is not None:
            p = self.prediction
            spread = f"{p.variance_ratio_smallest:.4g} to {p.variance_ratio_largest:.4g} over directions"
            rows += [
                ("predicted variance ratio", f"{p.variance_ratio:.4g} ({spread})"),
                ("predicted shift of the mean", f"{100 * p.relative_mean_error:.2g} % of trace(Sigma), squared"),
                ("predicted clipped entries", f"{100 * p.clipped_fraction:.2g} %"),
            ]
        rows += self._privacy_rows()
        rows += [("warning", text) for text in self.warnings]
        title = f"{self.uplink.scheme} uplink, {self.num_devices} devices, dim {self.dim}, {self.uplink.snr_db:g} dB"
        return format_pairs(title, rows)

    def _privacy_rows(self) -> list[tuple[str, str]]:
        if self.exposure is None or self.round_cost is None or self.run_cost is None:
            return [("privacy", "none: the ideal uplink hides nothing")]
        once, whole = self.round_cost, self.run_cost
        rows = [
            ("privacy of a round", f"{once} ({self.limits.criterion})"),
            ("privacy of the run", f"{whole}, over {self.exposure.num_rounds} rounds"),
            ("neighbouring", NEIGHBOURING[self.limits.neighbouring]),
        ]
        if self.data_dependent:
            text = "yes: a simulation, not a privacy statement for a deployment, which must plan from public knowledge"
            rows.append(("data dependent", text))
        return rows


def _plain(cost: Cost | None) -> dict[str, Any]:
    return {} if cost is None else {"epsilon": to_document(cost.epsilon), "delta": cost.delta}
