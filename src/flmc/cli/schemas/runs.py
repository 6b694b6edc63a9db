"""What `flmc run`, `flmc resume` and `flmc ledger` print with ``--json``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import get_args

from flmc.base.documents import ANSWER_VERSION
from flmc.evaluation.metrics import ShiftKnownFrom
from flmc.planning.plans.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    WORD,
    Fields,
    Kind,
    described,
    list_of,
    or_null,
    part,
)
from flmc.runs.records import SCHEMA_VERSION

_AGREEMENT: Fields = {
    "r_hat": (or_null(NUMBER), "largest R-hat, about 1 where chains agree; null: cannot be told"),
    "ess_bulk": (or_null(NUMBER), "smallest number of effective draws for the middle"),
    "ess_tail": (or_null(NUMBER), "smallest number of effective draws for 5 % and 95 %"),
}
PARTS: Mapping[str, Kind] = {
    "estimate": described(
        {
            "mean": (or_null(NUMBER), "the estimate; null: there are too few draws for one"),
            "se": (or_null(NUMBER), "its standard error; null: nothing to estimate it from"),
        }
    ),
    "agreement": described(_AGREEMENT),
    "spread": described(
        {
            "mean": (or_null(NUMBER), "mean over chains and data sets; null: it takes two chains"),
            "sd": (or_null(NUMBER), "standard deviation from chain to chain; null: not known"),
            "se": (
                or_null(NUMBER),
                "standard error of the mean; null: not known",
            ),
        }
    ),
}
"""Parts of a run's answer that stand in several places."""

SHIFT_FROM: Kind = {"enum": [*get_args(ShiftKnownFrom), None]}
"""What told the shift of the mean from the spread; null where there are no metrics."""
METRICS: Mapping[str, str] = {
    "mse": "mean squared distance from the posterior mean; exact samples have posterior_trace",
    "variance_ratio": "variance of the draws over that of the posterior; 1 is right",
    "variance_ratio_smallest": "the smallest along the posterior's principal axes",
    "variance_ratio_largest": "the largest along the posterior's principal axes",
    "wasserstein2_squared": "squared W2 distance from the posterior; beside wasserstein2_floor",
    "mean_error_squared": "squared distance of the pooled mean from the posterior mean",
}
"""Metrics with a standard error, each with what it is."""
BESIDE_METRICS: Fields = {
    "posterior_trace": (or_null(NUMBER), "MSE of exact posterior samples; null without metrics"),
    "independent_draws": (
        or_null(NUMBER),
        "independent draws that would estimate the mean as well; null without metrics",
    ),
    "wasserstein2_floor": (
        or_null(NUMBER),
        "squared W2 distance of exact posterior samples with the same memory; null without metrics",
    ),
    "shift_from": (
        SHIFT_FROM,
        "which groups told the shift of the mean from the spread in the variance ratios; null"
        " without metrics",
    ),
}
"""What metrics are compared with."""

ONE_CHAIN: Mapping[str, str] = {
    "mean_error": "squared distance of the chain's mean from the posterior mean, over the trace of"
    " the posterior's covariance",
    "common_error": "the part of it that all chains of a data set have in common, a bias",
    "variance_ratio": "variance of the chain's draws about their own mean over the posterior's",
    "wasserstein2": "squared W2 distance of the Gaussian fitted to the chain's draws from the"
    " posterior, over the trace; null where it would take too long",
}
"""Numbers of single chains, each with what it is."""
COVERAGE: Fields = {
    "chains_covered": (COUNT, "chains that epsilon covers: always 1"),
    "epsilon": (or_null(NUMBER), "upper bound of what one chain costs; null: not bounded"),
    "epsilon_all_chains": (
        or_null(NUMBER),
        "upper bound of what all chains cost if every one is given out; null: not bounded",
    ),
    "delta": (NUMBER, "delta that both are stated at"),
    "data_dependent": (
        FLAG,
        "whether the plan was computed from the devices' data: then there is no statement for a"
        " deployment",
    ),
}
"""What the privacy statement of a run covers."""
_ONE_CHAIN = described(
    {
        name: (or_null(part("spread")) if name == "wasserstein2" else part("spread"), words)
        for name, words in ONE_CHAIN.items()
    }
)
_METRICS = described({name: (part("estimate"), words) for name, words in METRICS.items()})
_DIAGNOSTICS = described(
    {
        **_AGREEMENT,
        "predictions": (
            or_null(part("agreement")),
            "the same for what the model predicts; null for a model that predicts nothing",
        ),
        "settled": (FLAG, "whether all chains together are at rest, though each may be short"),
    }
)
_EVIDENCE = described(
    {
        "stein_ratio": (
            or_null(NUMBER),
            "mean over entries of Stein's ratio, tr(C Sigma^-1)/d for a normal posterior; 1 is"
            " right. It is not metrics.variance_ratio, which is tr C/tr Sigma",
        ),
        "stein_ratio_se": (or_null(NUMBER), "its standard error; null where why_unknown says why"),
        "variance_ratio": (or_null(NUMBER), "the same as stein_ratio, by its older name"),
        "variance_ratio_se": (or_null(NUMBER), "the same as stein_ratio_se, by its older name"),
        "smallest": (or_null(NUMBER), "smallest Stein ratio over the entries"),
        "largest": (or_null(NUMBER), "largest Stein ratio over the entries"),
        "smallest_direction": (
            or_null(NUMBER),
            "smallest Stein ratio over principal directions of the draws; null without errors",
        ),
        "largest_direction": (or_null(NUMBER), "largest Stein ratio over the same directions"),
        "mean_shift": (
            or_null(NUMBER),
            "largest shift of the mean over the entries, in posterior standard deviations",
        ),
        "mean_shift_se": (or_null(NUMBER), "its standard error; null where why_unknown says why"),
        "mean_shift_direction": (
            or_null(NUMBER),
            "largest shift of the mean over the same directions, in posterior standard deviations",
        ),
        "effective_draws": (
            or_null(NUMBER),
            "effective draws of all chains, in the worst entry or direction",
        ),
        "num_groups": (
            COUNT,
            "chains, or long batches of chains, that errors are told from; 0 without errors",
        ),
        "num_judged": (COUNT, "ratios and shifts that were judged; 0 without errors"),
        "score": (
            or_null(NUMBER),
            "largest Student's t over its critical value, corrected for num_judged; above 1 it is"
            " significant",
        ),
        "why_unknown": (WORD, "why the errors are not known; empty where they are"),
    }
)

RUN = described(
    {
        "schema_version": ({"const": SCHEMA_VERSION}, "version of this schema"),
        "plan": (part("plan"), "the plan that was run"),
        "metrics": (
            or_null(_METRICS),
            "quality against the exact posterior; null for a model whose posterior is not known",
        ),
        "one_chain": (
            or_null(_ONE_CHAIN),
            "what one chain delivers by itself, with its spread over chains; null without metrics",
        ),
        "num_chains": (COUNT, "chains of every data set"),
        "coverage": (
            or_null(described(COVERAGE)),
            "which chains the run's epsilon covers; null where the privacy is unknown",
        ),
        "clipped_fraction": (
            or_null(NUMBER),
            "fraction of the gradient entries of kept rounds that clipping changed; null for a"
            " federation, whose devices do not tell",
        ),
        "num_undefined": (COUNT, "gradient entries that were not finite; NaN counts as 0"),
        "diagnostics": (
            or_null(_DIAGNOSTICS),
            "whether the chains of the first data set agree; null where no draws were kept, or"
            " fewer than 4",
        ),
        "findings": (list_of(part("finding")), "what is to be known of the result, with notes"),
        "warnings": (list_of(WORD), "messages of the findings that are no notes"),
        "evidence": (
            or_null(_EVIDENCE),
            "what gradients at the draws tell; null where the posterior is known",
        ),
        **BESIDE_METRICS,
        "notes": (list_of(WORD), "what is not given, or counted in, for lack of chains"),
        "version": (WORD, "the flmc that ran it"),
        "engine": (WORD, "name of the engine that ran it"),
        "blocking": (WORD, "how it put chains together; empty where nothing was to be chosen"),
        "seconds": (NUMBER, "CPU seconds of this process, without those before an interruption"),
        "seed": (COUNT, "seed of the run"),
    }
)
"""A finished run, as ``Result.to_document`` writes it."""

LEDGER = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "at": (COUNT, "the last round that counts"),
        "epsilon": (
            or_null(NUMBER),
            "upper bound of what the device that spent most has spent up to and including that"
            " round; null: not bounded",
        ),
        "run_delta": (NUMBER, "delta that every epsilon is stated at"),
        "curve": (
            list_of(
                {
                    "type": "array",
                    "prefixItems": [COUNT, or_null(NUMBER)],
                    "items": False,
                    "minItems": 2,
                }
            ),
            "rounds, each with the epsilon that was spent up to it; one with --at",
        ),
        "transmitted": (list_of(COUNT), "rounds in which each device transmitted"),
        "devices": (list_of(or_null(NUMBER)), "epsilon that each device has spent"),
        "budget": (or_null(NUMBER), "epsilon that the run may spend; null without such a budget"),
        "unfinished": (or_null(COUNT), "rounds that were planned; null if the run is finished"),
        "num_chains": (COUNT, "chains of the run; each spends what is stated here"),
        "chains_covered": (COUNT, "chains that every epsilon but the next covers: always 1"),
        "epsilon_all_chains": (
            or_null(NUMBER),
            "upper bound of what all chains together have spent, if every one of them is given"
            " out; null: not bounded",
        ),
        "data_dependent": (
            or_null(FLAG),
            "whether the plan was computed from the devices' data: then there is no statement for a"
            " deployment; null: the record does not say",
        ),
    }
)
"""What a recorded run has spent, as ``SpentCurve.to_document`` writes it."""
