"""Problems made from settings: a model, an uplink and limits on its gain, from which a plan can be
made. A problem can also hold a finished plan that was read from a file; settings then describe only
the model and how to run it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from flmc.base import checks
from flmc.base.errors import InvalidSetting
from flmc.base.findings import Finding
from flmc.data.federated import FederatedData
from flmc.models.model import Model
from flmc.models.whitening import whiten
from flmc.planning.answer_forecast import (
    ANSWER_CODES,
    forecast_answer,
    judge_linearity,
    judge_width,
)
from flmc.planning.choice import choose, with_closest_link
from flmc.planning.decision import Request, decide
from flmc.planning.fairness import Equality
from flmc.planning.judgement import (
    ChainLaw,
    chain_law,
    judge_budget,
    judge_law,
    judge_shift,
    judge_use,
    with_forecast,
)
from flmc.planning.limits import Limits
from flmc.planning.planner import WhatIf, plan, what_if
from flmc.planning.plans import Plan
from flmc.planning.privacy_estimate import estimate_limit
from flmc.planning.public_model import PublicLaw
from flmc.planning.search import Candidate
from flmc.planning.step_size import Curvature
from flmc.planning.two_stage_plan import TwoStagePlan, plan_two_stages
from flmc.settings.construction import (
    data_of_file,
    draw_examples,
    make_model,
    make_uplink,
    model_of,
    refuse,
    spell_link,
)
from flmc.settings.registered import SCHEDULERS, UPDATES
from flmc.settings.schema import Settings, merge
from flmc.uplink.uplink import Uplink

OF_THE_RUN = {
    "model",
    "devices",
    "dim",
    "samples",
    "experiments",
    "data",
    "chains",
    "seed",
    "engine",
    "checkpoint_rounds",
    "threads",
    "answer",
    "require",
}
"""Settings that a user may give together with a plan from a file: they describe the model and how
to run it, and all others are decided by the plan."""


_NAMES_OF_SETTINGS = {"num_rounds": "rounds"}
"""Arguments of the planner whose setting has another name, each with the name of the setting."""


@dataclass(frozen=True)
class Problem:
    """A model, an uplink and limits on its gain, from which a plan can be made, with the settings
    that describe all three."""

    model: Model
    uplink: Uplink
    limits: Limits
    settings: Settings
    """Settings from which the problem was assembled; where the user left a value for flmc to
    choose, they hold the chosen one."""
    given_plan: Plan | None = None
    """A finished plan that the user gave; None: the plan is made from the settings."""
    notes: tuple[Finding, ...] = ()
    """Findings about settings whose values flmc chose (setting ``choose``, or to make methods of a
    comparison equal), each with the reason."""
    from_data: bool = False
    """Whether flmc chose some setting's value from numbers that it computed from the devices'
    private data."""
    asked: Settings | None = None
    """Settings as the user gave them, which a record keeps, if flmc chose some values; None if it
    chose none."""

    def plan(self, *, forecast: bool = True) -> Plan:
        """The plan that the user gave, or else a new plan made from the settings. With
        ``forecast``, a new plan has a prediction of the chain's law and findings about it. Raises
        ``InvalidSetting`` if the settings ask for two stages (precondition ``pilot``)."""
        if self.given_plan is not None:
            return self.given_plan
        if self.settings.precondition == "pilot":
            raise InvalidSetting(
                "precondition 'pilot' plans two stages, which is for the commands plan and run;"
                " use 'prior' or 'none' here"
            )
        arguments = planner_arguments(self.settings)
        made = plan(self.model, self.uplink, self.limits, forecast=forecast, **arguments)
        return self._with_notes(made)

    def _with_notes(self, made: Plan) -> Plan:
        """A copy of the plan ``made`` with the problem's ``notes`` among its findings; it is marked
        as data-dependent if the devices' data decided a setting."""
        return replace(
            made,
            data_dependent=made.data_dependent or self.from_data,
            findings=(*made.findings, *self.notes),
        )

    def two_stages(self) -> TwoStagePlan:
        """The plan in two stages that the settings ask for: a pilot run, then a run in coordinates
        made from the pilot's draws, both within one privacy budget."""
        settings = self.settings
        refuse(
            settings,
            ("step_size", "effective_step_size", "gain", "start", "burn_in_step_factor"),
            "are chosen for each of two stages",
        )
        refuse(settings, ("update",), "is Langevin's in two stages")
        refuse(settings, ("aim",), "is a chain in two stages")
        both = plan_two_stages(
            self.model,
            self.uplink,
            self.limits,
            num_rounds=settings.rounds,
            pilot_rounds=settings.pilot_rounds,
            num_burn_in=settings.burn_in if "burn_in" in settings.model_fields_set else "auto",
            scheduler=SCHEDULERS.build(settings.scheduling),
            public_smoothness=settings.public_smoothness,
            public_convexity=settings.public_convexity,
        )
        return replace(both, pilot=self._with_notes(both.pilot), whole=self._with_notes(both.whole))

    @property
    def candidate(self) -> Candidate:
        """Model, uplink, limits and arguments of the planner as a ``Candidate``, the form in which
        a search for a better plan changes them. Raises ``InvalidSetting`` if the user gave a
        finished plan, because that cannot be changed."""
        if self.given_plan is not None:
            raise InvalidSetting("a plan that was given is fixed: give the settings instead")
        request = Request(**planner_arguments(self.settings))
        return Candidate(self.model, self.uplink, self.limits, request)

    def made_equal(self, shared: Equality, own: Plan) -> Problem:
        """A copy of the problem with settings changed so that its plan agrees with the other
        methods of a comparison in the quantity ``shared``, such as one effective step or one
        privacy budget. ``own`` is the plan without the changes. Raises ``InvalidSetting`` where no
        change achieves this."""
        changes = shared.changes(self.candidate, own)
        given = self.settings.model_dump(exclude_unset=True)
        renamed = {_NAMES_OF_SETTINGS.get(name, name): value for name, value in changes.items()}
        problem = assemble(merge(given, renamed), self.model) if changes else self
        equal = replace(
            problem,
            notes=(*self.notes, *shared.findings(renamed, own)),
            from_data=self.from_data or shared.from_data,
            asked=self.asked or self.settings,
        )
        shared.check(equal.plan(forecast=False))
        return equal

    def try_plan(self) -> Plan:
        """Plan for a search that makes many: it is quick, because the gain that a privacy budget of
        the run allows is only estimated, and its findings do not say what would mend them. It may
        exceed the budget, so it must not be run."""
        request = Request(**planner_arguments(self.settings))
        limit = estimate_limit(self.model, self.uplink, self.limits, request)
        decided = decide(self.model, self.uplink, self.limits, request, limit)
        return with_forecast(decided, self.model, request)

    def what_if(self, planned: Plan) -> WhatIf:
        """The plan ``planned`` and, for comparison, plans with one change each: 3 dB more power,
        twice the privacy budget, half the step, twice the step."""
        return what_if(planned, self.model, planner_arguments(self.settings))


def assemble(settings: Settings, model: Model | None = None) -> Problem:
    """Make the problem that ``settings`` describe: model, uplink and limits on the gain, from which
    a plan can be made. ``model``, if given, replaces the model that the settings name."""
    model = make_model(settings) if model is None else model
    limits = make_limits(settings)
    if settings.precondition != "pilot":
        refuse(settings, ("pilot_rounds",), "is for precondition 'pilot'")
    if settings.precondition == "prior" and model.coordinates is None:
        model = whiten(model, "prior")
    if settings.choose is not None:
        return _with_choices(settings, model, limits)
    if settings.link != "auto":
        return Problem(model, make_uplink(settings), limits, settings)
    chosen = _with_link(settings, model, limits)
    uplink = make_uplink(chosen)
    return Problem(model, uplink, limits, chosen, from_data=True, asked=settings)


def assemble_for(plan: Plan, settings: Settings) -> Problem:
    """The problem for a finished ``plan``: its uplink and limits, with the model that settings
    describe. ``InvalidSetting`` if the settings include one that the plan decides."""
    given = settings.model_dump(exclude_unset=True)
    decided = sorted(given.keys() - OF_THE_RUN)
    if decided:
        raise InvalidSetting(
            f"{decided[0]} is decided by the plan that was given: leave it out, or make a new plan"
        )
    sizes: dict[str, Any] = {}
    if settings.model == "linear":
        sizes = {"devices": plan.num_devices, "dim": plan.dim}
    chosen = merge({}, {**sizes, **given})
    for_model = chosen
    if plan.uplink.clips_examples and chosen.model == "linear":
        # The plan clips single examples: the settings of a linear regression need the same bounds,
        # because without them it keeps no examples that could be clipped.
        bounds = {name: getattr(plan.uplink, name) for name in ("example_clip", "example_norm")}
        for_model = chosen.model_copy(update=bounds)
    model = make_model(for_model)
    return Problem(model, plan.uplink, plan.limits, chosen, _forecast_anew(plan, model))


def assemble_with_held_out(
    settings: Settings, share: float, seed: int
) -> tuple[Problem, FederatedData]:
    """The problem that settings describe, with a model that lacks a ``share`` (between 0 and 1) of
    every device's examples, and these held-out examples, which are drawn with ``seed``."""
    checks.between("the share to hold out", share, 0.0, 1.0)
    if settings.data_file is not None:
        data = data_of_file(settings, settings.data_file)
    else:
        make_model(settings)  # called only because it refuses settings that do not fit each other
        if settings.model != "linear" or settings.experiments != 1 or settings.data != "examples":
            raise InvalidSetting(
                "examples to hold out come from data_file, or from synthetic ones of one data set"
                f" (model 'linear', data 'examples'); got model {settings.model!r},"
                f" {settings.experiments} data sets, data {settings.data!r}"
            )
        drawn = draw_examples(settings, None)
        data = FederatedData(drawn.features, drawn.targets, drawn.device_sizes)
    learn, test = data.hold_out(share, seed)
    return assemble(settings, model_of(settings, learn)), test


def read_plan(path: Path) -> Plan:
    """The plan in a file that ``flmc plan --out`` or ``--json`` wrote; ``InvalidSetting`` if it
    cannot be read."""
    try:
        document = json.loads(path.read_text())
    except OSError as error:
        raise InvalidSetting(f"cannot read the plan {str(path)!r}: {error.strerror}") from error
    except RecursionError as error:
        raise InvalidSetting(f"the plan {str(path)!r} is nested too deeply") from error
    except ValueError as error:
        raise InvalidSetting(f"the plan {str(path)!r} is not valid JSON: {error}") from error
    if not isinstance(document, Mapping):
        raise InvalidSetting(f"the plan {str(path)!r} must be a JSON object")
    return Plan.from_document(document)


def make_limits(settings: Settings) -> Limits:
    """The limits on the gain that the settings ask for, besides the power limit: one from the
    privacy budget, and one from the noise that the Langevin sampler needs."""
    return Limits(
        epsilon=settings.epsilon,
        delta=settings.delta,
        privacy=settings.privacy,
        scope=settings.scope,
        run_delta=settings.run_delta,
        neighbouring=settings.neighbouring,
        relation=settings.relation,
        allocation=settings.allocation,
        langevin=settings.langevin,
    )


def planner_arguments(settings: Settings) -> dict[str, Any]:
    """Keyword arguments of :func:`flmc.plan` by name, with the values from the settings."""
    given = "burn_in" in settings.model_fields_set
    burn_in = settings.burn_in if given or settings.aim == "chain" else "auto"
    return {
        "num_rounds": settings.rounds,
        "num_burn_in": burn_in,
        "aim": settings.aim,
        "draw_at": settings.draw_at,
        "step_size": settings.step_size,
        "effective_step_size": settings.effective_step_size,
        "gain": settings.gain,
        "start": settings.start,
        "burn_in_step_factor": settings.burn_in_step_factor,
        "scheduler": SCHEDULERS.build(settings.scheduling),
        "update": UPDATES.build(settings.update),
        "public_smoothness": settings.public_smoothness,
        "public_convexity": settings.public_convexity,
    }


def _with_choices(settings: Settings, model: Model, limits: Limits) -> Problem:
    """The problem that ``settings`` describe, after flmc has chosen some values by rule: those that
    the setting ``choose`` names (of clip, link, slope and rounds), and the link if it is
    ``auto``."""
    names = [name.strip() for name in (settings.choose or "").split(",")]
    for name in names:
        checks.one_of("choose", name, ("clip", "link", "slope", "rounds"))
    given = settings
    if settings.link == "auto":  # the link is chosen too; the search starts from the default
        refuse(settings, ("slope_parameter",), "is chosen where the link is 'auto'")
        names = [*names, "link"]
        rest = settings.model_dump(exclude_unset=True)
        settings = merge({}, {name: value for name, value in rest.items() if name != "link"})
    setting_of = {"slope": "slope_parameter"}
    refuse(
        settings, tuple(setting_of.get(name, name) for name in names), "are chosen, so not given"
    )
    request = Request(**planner_arguments(settings))
    chosen = choose(Candidate(model, make_uplink(settings), limits, request), names)
    changed: dict[str, Any] = {"clip": chosen.uplink.clip, "choose": None}
    link = chosen.uplink.link
    if link is not None and ("link" in names or "slope" in names):
        changed |= {"link": spell_link(link), "slope_parameter": None}
    if "rounds" in names:
        changed |= {"rounds": chosen.request.num_rounds, "burn_in": chosen.request.num_burn_in}
    settled = settings.model_copy(update=changed)
    return Problem(
        model,
        make_uplink(settled),
        limits,
        settled,
        notes=chosen.notes,
        from_data=chosen.from_data,
        asked=given,
    )


def _with_link(settings: Settings, model: Model, limits: Limits) -> Settings:
    """A copy of the settings with a link in place of ``auto``: the one whose samples are predicted
    to be closest to the posterior."""
    refuse(settings, ("slope_parameter",), "is chosen where the link is 'auto'")
    # The search starts from an uplink with some link, and replaces that link by the closest one.
    first = make_uplink(settings.model_copy(update={"link": "linear"}))
    request = Request(**planner_arguments(settings))
    link = with_closest_link(Candidate(model, first, limits, request)).link
    assert link is not None
    return settings.model_copy(update={"link": spell_link(link)})


def _forecast_anew(plan: Plan, model: Model) -> Plan:
    """A copy of ``plan`` with prediction and findings computed for ``model``, because the plan may
    have been made for other data."""
    heat = plan.temperature
    law, response, _ = ChainLaw(None) if heat is None else chain_law(plan, model)
    if heat is None or isinstance(law, PublicLaw) or (law is None and plan.prediction is None):
        return plan
    curvature = Curvature.of(model, None, None)
    answer = forecast_answer(plan, model, curvature, law, response)
    codes = {"mean-shift", "variance-ratio", "clipped", "no-prediction", *ANSWER_CODES}
    of_answer = (*judge_linearity(answer, law), *judge_width(answer))
    wide = answer if plan.aim == "answer" else None
    cure = "the plan was made for other data, or for other reasons: make a new one"
    findings = (
        *(each for each in plan.findings if each.code not in codes),
        *judge_shift((law.mean_shift if law else None) or 0.0, lambda: cure, answer=wide),
        *(of_answer if plan.aim == "answer" else judge_law(law, heat)),
    )
    if not plan.judged:  # from an early version of flmc, without the lights
        findings += (*judge_budget(plan), *judge_use(plan.effective_draws, plan.unknown_step))
    return replace(plan, prediction=law, answer=answer, findings=findings, judged=True)
