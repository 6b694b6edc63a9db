"""Forecast of a plan: the law that is predicted, and what speaks against the plan."""

from __future__ import annotations

from dataclasses import replace

from flmc.models.linear import LinearGaussian
from flmc.models.model import Model
from flmc.planning import judgement
from flmc.planning.decision import Request
from flmc.planning.judgement import noise_of, predict_plan
from flmc.planning.plans import Plan
from flmc.planning.prediction import predict
from flmc.planning.search.link_choice import cure_of_shift


def with_forecast(decided: Plan, model: Model, request: Request, *, cures: bool = True) -> Plan:
    """The plan with a forecast of the run: predicted law and findings."""
    findings = judgement.over_budget(decided)
    heat = decided.temperature
    if heat is None:  # without a slope nothing is known of the law
        return replace(decided, judged=True, findings=(*findings, judgement.no_slope()))
    curvature = request.curvature(model)
    # Chains that have not arrived make everything else moot: the burn-in comes first.
    findings += judgement.judge_burn_in(decided, curvature)
    prediction = predict_plan(decided, model)
    if prediction is not None:
        shift = prediction.mean_shift or 0.0
        findings += judgement.judge_shift(
            shift,
            lambda: (
                cure_of_shift(decided, model, request, shift)
                if cures
                else "use another link or clip"
            ),
        )
    findings += judgement.judge_temperature(heat, judgement.cure_of_heat(decided))
    linear = isinstance(model, LinearGaussian)
    findings += judgement.forgotten_shrink(decided.uplink, dim=model.dim if linear else None)
    findings += judgement.unstable_early_steps(decided, curvature)
    if not decided.scheduler.everyone:
        findings.append(judgement.missing_devices(decided))
    elif isinstance(model, LinearGaussian) and decided.uplink.clips_examples:
        findings.append(judgement.shift_by_clipped_examples(model, decided.uplink))
        # The prediction knows nothing of clipped examples: it is made without them, and judged
        # roughly.
        unclipped = replace(
            decided.uplink, example_clip=None, example_norm=None, example_shrink=1.0
        )
        rough = predict(model, unclipped, decided.step_size, noise_of(decided))
        findings += judgement.judge_roughly(rough)
    elif linear:
        findings += judgement.judge_prediction(prediction, heat)
    return replace(decided, judged=True, prediction=prediction, findings=tuple(findings))
