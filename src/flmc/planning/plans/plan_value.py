"""A plan: everything that is fixed before round 1, with the privacy event that it implies."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from flmc.base.arrays import Array
from flmc.base.findings import Finding
from flmc.base.tables import Listing
from flmc.planning.answer_law import PredictedAnswer
from flmc.planning.limits import GainLimits, Limits
from flmc.planning.plans import document as document_of
from flmc.planning.plans import rows
from flmc.planning.plans.expectation import (
    Expectation,
    Turns,
    expect,
    known_schedule,
    planned_active,
    slope_of,
    turns_of,
)
from flmc.planning.plans.over_runs import OverRuns, over_runs
from flmc.planning.plans.radio import (
    Airtime,
    EstimateEffect,
    Radio,
    airtime_of,
    estimate_effect,
    margins_db,
    radio_of,
)
from flmc.planning.plans.release import Release, effective_draws, release_of
from flmc.planning.plans.verdict import Verdict, verdict_of
from flmc.planning.prediction import Prediction
from flmc.planning.privacy_cost import (
    Cost,
    Exposure,
    affordable_rounds,
    cost_of_round,
    cost_of_run,
    exposure_of,
    why_unknown,
)
from flmc.planning.server_update import LANGEVIN, ServerUpdate
from flmc.planning.step_size import Curvature
from flmc.planning.temperature import temperature
from flmc.privacy.trade_off import TradeOff
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import GivenDevices
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True, eq=False)
class Plan:
    """Rounds, step and gain of a run, with what decided them. Made by :func:`flmc.plan`.

    Attributes
    ----------
    uplink, limits
        Uplink and limits that the plan was made for.
    num_devices, dim, num_rounds, num_burn_in
        Number of devices, of entries of theta, of rounds, and of the rounds among them that are not
        kept.
    start
        Where chains start: ``prior`` or ``zero``.
    step_size
        Step of the sampler.
    burn_in_step_factor, num_fast
        The first ``num_fast`` rounds have a step that is larger by this factor.
    gain
        Cap of the gain, (1 or round, 1 or dim); a round uses the smaller of it and its power limit.
    scheduler
        Policy that says who transmits in a round.
    gain_limits, binding
        The largest gain by each constraint, and which one decides: ``power``, ``langevin``,
        ``privacy`` or ``none``; ``given`` for a gain that was given.
    data_dependent
        Whether anything in the plan was computed from the devices' data: then there is no privacy
        statement for a deployment.
    rounds_needed, effective_draws
        Burn-in that the sampler needs, and independent draws that the kept rounds of one chain are
        worth, 0 where its burn-in is hopelessly short; None where curvature or slope are not known.
    prediction
        Predicted law of the chain, compared with the posterior; None where it cannot be computed.
    answer
        Prediction of what the server will know after the run; None where that is not known.
    aim
        What the run is for, by which the verdict judges it: draws of a ``chain``, or an ``answer``,
        which is computed from all rounds.
    findings, judged
        Notes, warnings and what makes the plan infeasible, with codes and numbers; and whether
        the plan was searched for them.
    update
        Server's update: what the server does with its estimate in a round.
    public_curvature
        Bounds of the posterior's curvature that are public knowledge, which the answer keeps to;
        None where there are none.
    draw_at
        Where draws are taken: at the ``positions`` of the chain after its kept rounds, or at their
        ``midpoints``, half way between the positions before and after a round, whose variance is
        free of the error of Langevin's discrete step.
    num_local
        Number of entries of the parameters that each device has of its own; they are no part of
        theta and never travel.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> plan = flmc.plan(model, flmc.Analog())
    >>> bool(abs(plan.temperature - 1) < 1e-9)
    True
    >>> flmc.Plan.from_document(plan.to_document()) == plan
    True
    """

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
    gain: Array
    scheduler: Scheduler
    gain_limits: GainLimits
    binding: str
    data_dependent: bool
    rounds_needed: int | None = None
    effective_draws: float | None = None
    prediction: Prediction | None = None
    findings: tuple[Finding, ...] = ()
    judged: bool = False
    answer: PredictedAnswer | None = None
    aim: str = "chain"
    update: ServerUpdate = LANGEVIN
    public_curvature: Curvature | None = None
    draw_at: str = "positions"
    num_local: int = 0

    @property
    def midpoints(self) -> bool:
        """Whether draws are taken half way between the positions before and after a round."""
        return self.draw_at == "midpoints"

    @property
    def warnings(self) -> tuple[str, ...]:
        """Messages of the plan's findings, one sentence each, without those of notes."""
        return tuple(each.message for each in self.findings if each.severity != "note")

    @property
    def never_arrives(self) -> bool:
        """Whether the burn-in is so short that this alone makes the plan infeasible. Its draws then
        do not have the predicted law, which is that of a chain at rest. False for a plan that was
        not judged."""
        return any(
            each.code == "burn-in" and each.severity == "infeasible" for each in self.findings
        )

    @property
    def verdict(self) -> Verdict | None:
        """The three lights of the plan: sampling, privacy and use; None for a plan that was made
        without a forecast, so that it was not searched for findings."""
        return verdict_of(self) if self.judged else None

    @cached_property
    def step_sizes(self) -> Array:
        """Step of every round, (round)."""
        factor = np.where(np.arange(self.num_rounds) < self.num_fast, self.burn_in_step_factor, 1.0)
        return self.step_size * factor

    @property
    def active(self) -> Array | None:
        """Which devices transmit, (round, device) with 1 or 0, if the user gave it as an array;
        else None."""
        return self.scheduler.active if isinstance(self.scheduler, GivenDevices) else None

    @cached_property
    def planned_active(self) -> Array | None:
        """Which devices are expected to transmit, (round, device) with 1 or 0; None: every device
        in every round. Where path gains decide who transmits, the rows are rounds drawn at random.
        """
        return planned_active(self)

    @cached_property
    def num_active(self) -> Array:
        """Expected number of devices that transmit in each round, (round)."""
        if self.planned_active is None:
            return np.full(self.num_rounds, float(self.num_devices))
        return np.asarray(self.planned_active.sum(axis=1))

    @cached_property
    def turns(self) -> Turns | None:
        """How often devices transmit, and how long they are silent, in the schedule that the plan
        expects; None where every device transmits in every round."""
        return turns_of(self)

    @cached_property
    def expected(self) -> Expectation:
        """Gains and numbers of transmitting devices that the plan expects in its kept rounds."""
        return expect(self)

    @property
    def planned_gain(self) -> Array:
        """Gains that the plan expects to use in its kept rounds, (1 or round, dim)."""
        return self.expected.gain

    @property
    def typical_gain(self) -> float:
        r"""Constant gain at which the channel's noise in the estimate has the variance that it has
        on average over kept rounds at the planned gains A, :math:`(\overline{A^{-2}})^{-1/2}`."""
        return float(np.mean(self.planned_gain**-2.0) ** -0.5)

    @cached_property
    def radio(self) -> Radio:
        """SNR of one device at full power, at the transmitter and at the receiver, and the root
        mean square path gain between the two."""
        return radio_of(self.uplink, *self._sizes)

    @cached_property
    def airtime(self) -> Airtime | None:
        """Channel uses and energy of the run; None for the ideal uplink, which has no channel."""
        return airtime_of(self)

    @cached_property
    def estimates(self) -> EstimateEffect | None:
        """Effect of inexact channel estimates; None where estimates are exact."""
        return estimate_effect(self)

    @property
    def margins_db(self) -> dict[str, float]:
        """Ratio of the gain that each constraint allows to the plan's typical gain, in decibels of
        power, by the constraint's name: negative where the gain exceeds the limit, infinite where
        there is no limit."""
        return margins_db(self.gain_limits, self.typical_gain)

    @cached_property
    def slope(self) -> float | None:
        """Factor by which the mean received symbol, divided by the gain, scales a small gradient;
        None for a link without slope."""
        return slope_of(self.uplink, self.num_devices, self.scheduler)

    @property
    def effective_step_size(self) -> float | None:
        """Step times slope, which the Langevin equation sees, times the ``step_factor`` of the
        server's update; None for a link without slope, or an update that declares no such factor.
        """
        factor = self.update.step_factor
        if self.slope is None or factor is None:
            return None
        return self.step_size * self.slope * factor

    @property
    def unknown_step(self) -> str | None:
        """Reason why the effective step is not known, and with it the temperature, the burn-in
        needed and the effective draws; None where it is known."""
        if self.slope is None:
            return "the link has no slope"
        if self.update.step_factor is None:
            return f"the server's update {type(self.update).__name__} declares no step_factor"
        return None

    @property
    def temperature(self) -> float | None:
        """Factor by which the sampled variance exceeds the posterior's, in kept rounds at the
        planned gain, to leading order; None for a link without slope, or a server's update that
        declares no ``step_factor``."""
        if self.effective_step_size is None:
            return None
        return self.temperature_at(self.expected.gain, self.expected.num_active)

    @cached_property
    def over_runs(self) -> OverRuns | None:
        """Quantiles of the temperatures of single runs on a random channel, where a few deep fades
        may decide the temperature of a run; None where all runs have one temperature, or none is
        known. Runs are drawn for this, which may take a tenth of a second."""
        return over_runs(self)

    def temperature_at(self, gain: Array, num_active: Array | float) -> float:
        """Temperature of the plan's chain, averaged over rounds and entries, if rounds had the
        gains ``gain`` and ``num_active`` transmitting devices; for a plan whose temperature is
        known.

        Parameters
        ----------
        gain, num_active
            Gains (..., dim), and numbers of transmitting devices: a number, or an array that
            broadcasts to the shape of the gains.
        """
        sizes = (self.num_devices, num_active, self.scheduler)
        channel = temperature(self.uplink, self.step_size, gain, *sizes)
        return (self.update.step_factor or 1.0) * channel + self.update.own_temperature

    @cached_property
    def exposure(self) -> Exposure | None:
        """Privacy events that the plan implies if every gain is at its cap; None where the privacy
        is unknown."""
        if self.unknown_privacy is not None:
            return None
        return self.exposure_of(self.num_rounds)

    def exposure_of(self, rounds: int) -> Exposure:
        """Privacy events of the first ``rounds`` rounds of this plan: of the worst one, and of all.

        Parameters
        ----------
        rounds
            Number of rounds, at most ``num_rounds``.
        """
        caps, scheduler, known = self.gain, self.scheduler, self.known_schedule
        if known is not None:
            caps, scheduler = known[0], GivenDevices(known[1])
        exposure = exposure_of(
            self.uplink,
            caps if len(caps) == 1 else caps[:rounds],
            scheduler,
            rounds,
            self.num_devices,
            self.dim,
            self.limits.neighbouring,
            self.limits.relation,
            average=True,
        )
        return exposure if known is None else replace(exposure, schedule="known")

    @cached_property
    def known_schedule(self) -> tuple[Array, Array] | None:
        """Gains (round, dim) and active devices (round, device), 1 or 0, of all rounds where the
        path gains are public numbers and decide who transmits; else None."""
        return known_schedule(self)

    @cached_property
    def unknown_privacy(self) -> str | None:
        """Reason why no privacy statement can be made; None if one can."""
        return why_unknown(self.uplink, self.limits.neighbouring, self.limits.relation)

    @property
    def _sizes(self) -> tuple[int, int, int]:
        return self.num_rounds, self.num_devices, self.dim

    @cached_property
    def affordable_rounds(self) -> int:
        """Number of rounds, counted from the first, whose privacy cost is within a budget of the
        run. All rounds are, unless the user gave a gain that is too large."""
        if self.binding != "given" or self.limits.scope != "run":
            return self.num_rounds
        return affordable_rounds(self.uplink, self.limits, self.gain, self.scheduler, *self._sizes)

    @cached_property
    def round_cost(self) -> Cost | None:
        """Epsilon and delta of the round that costs most, by the criterion of the limits; None
        where the privacy is unknown."""
        if self.exposure is None:
            return None
        return cost_of_round(self.exposure, self.limits, self.num_devices)

    @cached_property
    def run_cost(self) -> Cost | None:
        """Epsilon and delta of the whole run, always by the criterion ``tight``; None where the
        privacy is unknown."""
        return None if self.exposure is None else cost_of_run(self.exposure, self.limits)

    @cached_property
    def run_risk(self) -> TradeOff | None:
        """What an attacker achieves at most who decides between two neighbouring data sets after
        the whole run: the trade-off curve of the run. None where the privacy is unknown, or no
        finite epsilon is."""
        if self.exposure is None:
            return None
        return TradeOff.of(self.exposure.run, self.limits.run_delta)

    def without_forecast(self) -> Plan:
        """A copy of the plan that has its decisions but not its predictions: no prediction, answer,
        findings, verdict or needed burn-in, and effective draws only where public bounds of the
        curvature give them. A plan that others read must be such a copy, because predictions are
        computed from the devices' data even where decisions are not."""
        public, draws = self.public_curvature, None
        if public is not None:
            kept = self.num_rounds - self.num_burn_in
            step = self.effective_step_size
            draws = effective_draws(step, public.convexity, kept, midpoints=self.midpoints)
        return replace(
            self,
            rounds_needed=None,
            effective_draws=draws,
            prediction=None,
            answer=None,
            findings=(),
            judged=False,
        )

    def release(self, chains: int = 1) -> Release:
        """Worth in independent draws, and privacy cost, of chains that are given out together.

        Parameters
        ----------
        chains
            Number of chains that are given out, with all their kept rounds.
        """
        return release_of(self, chains)

    def to_document(self, *, with_run: bool = True) -> dict[str, Any]:
        """Plan in plain values, for JSON, described in :mod:`flmc.planning.plans.plan_schema`.

        Parameters
        ----------
        with_run
            Whether to state the privacy of the whole run, which may take a second to compute.
        """
        return {
            **document_of.decided(self),
            **document_of.forecast(self, with_run),
            "digest": self.digest,
        }

    @classmethod
    def from_document(
        cls,
        document: Mapping[str, Any],
        *,
        uplink: Uplink | None = None,
        scheduler: Scheduler | None = None,
        update: ServerUpdate | None = None,
    ) -> Plan:
        """Plan that :meth:`to_document` wrote, with the same digest.

        Parameters
        ----------
        document
            What ``to_document`` or ``flmc plan --json`` gave.
        uplink, scheduler, update
            Objects that are, or contain, objects of a user's own classes. They must be given,
            because code that a document names is never imported.

        Raises
        ------
        InvalidSetting
            If the document is of another version, damaged, or does not match its digest.
        """
        with document_of.refusing_damage():
            plan = cls(**document_of.read(document, uplink, scheduler, update))
            document_of.check_digest(document, plan.digest)
        return plan

    @cached_property
    def digest(self) -> str:
        """SHA-256, in hexadecimal, of what the plan decides; prediction and findings, which may
        depend on data, are left out."""
        return document_of.digest(self)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Plan) and self.digest == other.digest

    def __hash__(self) -> int:
        return int(self.digest[:15], 16)

    def __str__(self) -> str:
        return str(self.listing())

    def listing(self, *, with_run: bool = True) -> Listing:
        """Rows of the plan under a title, as terminal, pages and notebooks show them.

        Parameters
        ----------
        with_run
            Whether to state the privacy of the whole run, which may take a second to compute.
        """
        return rows.listing(self, with_run)
