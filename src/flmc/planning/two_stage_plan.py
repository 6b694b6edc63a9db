"""A plan of two stages with one budget: a pilot in the model's own coordinates, and the run itself
in coordinates that follow from the pilot's draws.

Both stages use the same uplink: the same clip and link, no gain above a cap that is fixed before
the first round, and numbers of rounds that are fixed too. What a device reveals in a round is
bounded by clip, link and gain, whatever theta is and in whatever coordinates its gradient is taken,
so every round of the second stage has the same worst case for every outcome of the first. Privacy
composes over such rounds although the second stage is chosen after the first was seen
(docs/privacy.md): two stages cost what one run of as many rounds costs at the cap. The gain of the
second stage may turn out smaller than the cap, but it depends on what the pilot released, so no
lower cost can be stated for it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from flmc.base import checks
from flmc.base.arrays import one_blas_thread
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.base.tables import Listing, Row, format_number, format_up
from flmc.models.model import Model
from flmc.planning.decision import Request, decide
from flmc.planning.limits import Limits
from flmc.planning.planner import plan
from flmc.planning.plans import Plan
from flmc.planning.privacy_cost import Cost, risk_in_words
from flmc.uplink.scheduler import Scheduler
from flmc.uplink.schedulers import GivenDevices
from flmc.uplink.uplink import Uplink


@dataclass(frozen=True)
class TwoStagePlan:
    """Everything that is fixed before round 1 of a run of two stages.

    Attributes
    ----------
    pilot
        Plan of the first stage.
    whole
        Plan of the rounds of both stages in one, at the largest gain that any of them may have: its
        privacy cost is an upper bound of that of both stages, whatever the pilot finds.
    main_rounds, main_burn_in
        Rounds of the second stage, and the number of them that are not kept, or ``"auto"``.
    """

    pilot: Plan
    whole: Plan
    main_rounds: int
    main_burn_in: int | str

    @property
    def most_gain(self) -> float:
        """Largest gain that any round of the pilot or of the second stage may have."""
        return float(self.whole.gain.max())

    @property
    def cost(self) -> Cost | None:
        """Epsilon and delta of the pilot and one chain of the second stage together, if all rounds
        have the largest gain; None where the privacy is unknown."""
        return self.whole.run_cost

    @one_blas_thread()
    def main(self, model: Model, smoothness: float, convexity: float) -> Plan:
        """Plan of the second stage.

        Parameters
        ----------
        model
            The model in coordinates that follow from what the pilot released, and nothing else.
        smoothness, convexity
            Curvature in these coordinates, from what the pilot released too.

        Returns
        -------
        Plan
            Its gain is at most :attr:`most_gain`; a warning says that its own epsilon leaves out
            the pilot.

        Raises
        ------
        InvalidSetting
            If the model has other numbers of devices or entries than the plan.
        """
        if (model.num_devices, model.dim) != (self.pilot.num_devices, self.pilot.dim):
            raise InvalidSetting(
                f"the plan is for {self.pilot.num_devices} devices and dim {self.pilot.dim},"
                f" the model has {model.num_devices} and {model.dim}"
            )
        request = Request(
            num_rounds=self.main_rounds,
            num_burn_in=self.main_burn_in,
            scheduler=self.pilot.scheduler,
            public_smoothness=smoothness,
            public_convexity=convexity,
        )
        limits, uplink = self.pilot.limits, self.pilot.uplink
        most = None if uplink.noise_is_exact else self.most_gain
        decided = decide(model, uplink, limits, request, most)
        if most is not None and float(decided.gain.max()) > most * (1.0 + 1e-9):
            raise AssertionError("a gain of the second stage is above the cap of both")
        return replace(
            decided,
            data_dependent=self.pilot.data_dependent or decided.data_dependent,
            findings=(self._second_stage_warning(),),
            judged=True,
        )

    def _second_stage_warning(self) -> Finding:
        """Warning, for the plan of the second stage, that its privacy cost leaves out what the
        pilot spent."""
        both = "is unknown" if self.cost is None else f"is epsilon {format_up(self.cost.epsilon)}"
        at = "" if self.cost is None else f" at delta {self.cost.delta:g} at most"
        text = (
            f"this is the second of two stages: its epsilon leaves out the pilot; that of both"
            f" {both}{at}"
        )
        return Finding("second-stage", "warning", text)

    def listing(self) -> Listing:
        """Rows about the pilot and the second stage, under a title, for printing."""
        rows = [
            Row("pilot", f"{self.pilot.num_rounds} rounds, {self.pilot.num_burn_in} not kept"),
            Row("second stage", f"{self.main_rounds} rounds, {_burn_in(self.main_burn_in)}"),
            Row("gain of the pilot", format_number(self.pilot.typical_gain)),
            Row("largest gain", f"{format_number(self.most_gain)} in any round of both stages"),
            Row("step of the pilot", format_number(self.pilot.step_size)),
        ]
        if self.cost is not None:
            text = (
                f"epsilon {format_up(self.cost.epsilon)} at delta {self.cost.delta:g} at most, of"
                " the pilot and one chain of the second stage together"
            )
            limits = self.whole.limits
            risk = risk_in_words(self.whole.run_risk, limits.told_apart, limits.run_delta)
            rows += [Row("privacy of both", text), Row("risk of both", risk)]
        if self.pilot.data_dependent:
            text = (
                "yes: step, features or coordinates of the pilot were computed from the devices'"
                " data; a simulation"
            )
            rows.append(Row("data dependent", text, severity="warning"))
        worth, needed = self.pilot.effective_draws, 2 * self.pilot.dim
        if worth is not None and worth < needed / 2:
            text = (
                f"the pilot is expected to be worth about {worth:.2g} independent draws in its"
                f" slowest direction, and coordinates need about {needed} over all: use more"
                " pilot_rounds, a smaller clip, or a larger budget if that is what limits the step"
            )
            rows.append(Row("warning", text, severity="warning"))
        rows += [each.row for each in self.pilot.findings]
        return Listing(
            f"{self.pilot.uplink.scheme} uplink, two stages with one budget", tuple(rows)
        )

    def to_document(self) -> dict[str, Any]:
        """Plans of the pilot and of both stages as one, and the rounds of the second stage, as
        plain values by field name, for JSON."""
        return {
            "pilot": self.pilot.to_document(),
            "whole": self.whole.to_document(),
            "main_rounds": self.main_rounds,
            "main_burn_in": self.main_burn_in,
        }

    def __str__(self) -> str:
        return str(self.listing())


def _burn_in(count: int | str) -> str:
    return "burn-in as it turns out to need" if count == "auto" else f"{count} not kept"


@one_blas_thread()
def plan_two_stages(
    model: Model,
    uplink: Uplink,
    limits: Limits | None = None,
    *,
    num_rounds: int,
    pilot_rounds: int | None = None,
    num_burn_in: int | str = "auto",
    pilot_burn_in: int | str = "auto",
    scheduler: Scheduler | None = None,
    public_smoothness: float | None = None,
    public_convexity: float | None = None,
) -> TwoStagePlan:
    """Plan of a pilot, and of a run in coordinates that follow from the pilot's draws, with one
    privacy budget for both.

    Parameters
    ----------
    model
        What is sampled.
    uplink
        How devices transmit in both stages. The second stage's coordinates are stretched so that
        its gradients fit the clip.
    limits
        Privacy budget of both stages together, and Langevin limit; None: no budget, calibrated
        noise.
    num_rounds, pilot_rounds
        Rounds of both stages together, and of the pilot among them; None: a third.
    num_burn_in, pilot_burn_in
        Rounds of the second stage and of the pilot that are not kept; ``"auto"``: as many as the
        sampler needs.
    scheduler
        Who transmits; None: every device in every round.
    public_smoothness, public_convexity
        Curvature in the model's own coordinates from public knowledge, for the pilot.

    Returns
    -------
    TwoStagePlan
        :func:`flmc.run_two_stages` runs it.

    Raises
    ------
    InvalidSetting
        If a setting is out of its bounds, the budget is spread adaptively over rounds, or model or
        scheduler cannot have a second stage.

    Examples
    --------
    >>> model = flmc.LinearGaussian(flmc.data.draw_linear(seed=1))
    >>> limits = flmc.Limits(epsilon=20, scope="run")
    >>> both = flmc.plan_two_stages(model, flmc.Digital(), limits, num_rounds=900)
    >>> both.pilot.num_rounds, both.main_rounds, both.cost.epsilon <= 20
    (300, 600, True)
    """
    limits = limits or Limits()
    if limits.allocation == "adaptive":
        raise InvalidSetting("two stages share one cap of the gain: use allocation = 'static'")
    total = checks.at_least("num_rounds of two stages", num_rounds, 4)
    first = total // 3 if pilot_rounds is None else checks.at_least("pilot_rounds", pilot_rounds, 2)
    if first > total - 2:
        raise InvalidSetting(
            f"pilot_rounds must be at most num_rounds - 2 = {total - 2}, got {first}"
        )
    _check_two(model, uplink, scheduler, total, first)
    settings: dict[str, Any] = {
        "scheduler": scheduler,
        "public_smoothness": public_smoothness,
        "public_convexity": public_convexity,
    }
    # All rounds of both stages get one cap of the gain: the one that the budget allows if all of
    # them transmit at it.
    rounds: dict[str, Any] = {"num_rounds": total, "num_burn_in": first}
    alone = plan(model, uplink, limits, forecast=False, **rounds, **settings)
    request = Request(num_rounds=first, num_burn_in=pilot_burn_in, **settings)
    if uplink.noise_is_exact:  # the ideal uplink has neither a gain nor privacy
        return TwoStagePlan(
            decide(model, uplink, limits, request), alone, total - first, num_burn_in
        )
    most = min(alone.gain_limits.power, alone.gain_limits.privacy)
    whole = plan(
        model,
        uplink,
        limits,
        step_size=alone.step_size,
        gain=most,
        forecast=False,
        **rounds,
        **settings,
    )
    whole = replace(whole, data_dependent=alone.data_dependent)
    pilot = decide(model, uplink, limits, request, most)
    return TwoStagePlan(pilot, whole, total - first, num_burn_in)


def _check_two(
    model: Model, uplink: Uplink, scheduler: Scheduler | None, total: int, first: int
) -> None:
    """Raise ``InvalidSetting``, before the pilot runs, for a model, uplink or scheduler with which
    the second stage could not be run, or could break the budget. Of ``total`` rounds the pilot has
    the ``first``."""
    if model.coordinates is not None:
        raise InvalidSetting("the model has coordinates of its own already: plan one stage")
    if uplink.clips_examples and not hasattr(model, "in_coordinates"):
        raise InvalidSetting(
            f"{type(model).__name__} cannot clip single examples in coordinates that a pilot finds;"
            " models from log densities can"
        )
    if scheduler is None:
        return
    known = uplink.known_fading.given or uplink.known_fading.constant
    if scheduler.by_channel and known:
        raise InvalidSetting(
            f"{type(scheduler).__name__} over path gains that are given begins anew in the second"
            " stage, and the cost of both would be that of another schedule; use 'all' or 'random'"
        )
    count = model.num_devices
    both = scheduler.most_rounds(first, count) + scheduler.most_rounds(total - first, count)
    if isinstance(scheduler, GivenDevices) or both > scheduler.most_rounds(total, count):
        raise InvalidSetting(
            f"{type(scheduler).__name__} begins anew in the second stage, so that a device may"
            " transmit more often than it declares for all rounds; use a policy without a plan of"
            " its own for each round, such as 'all' or 'random'"
        )
