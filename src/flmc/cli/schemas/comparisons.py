"""What `flmc compare` prints with ``--json``."""

from __future__ import annotations

from flmc.base.documents import ANSWER_VERSION
from flmc.planning.plans.schema_parts import (
    COUNT,
    FLAG,
    NUMBER,
    WORD,
    by_name,
    described,
    list_of,
    or_null,
    part,
)

_METHOD = described(
    {
        "name": (
            WORD,
            "flmc (the plan's own sampler), another uplink by its settings, FedSGD, majority vote,"
            " DP-FedSGD, noiseless LMC, local posteriors",
        ),
        "channel": (WORD, "what lies between devices and server"),
        "estimate": (
            {"enum": ["draws", "mean of kept rounds"]},
            "what is scored: the draws of a chain, or a point estimate",
        ),
        "epsilon": (
            or_null(NUMBER),
            "upper bound of epsilon of the run, for one chain; null: no statement, or not bounded",
        ),
        "delta": (or_null(NUMBER), "delta that it is stated at; null: no statement"),
        "no_statement": (WORD, "why there is no privacy statement; empty where there is one"),
        "data_dependent": (
            FLAG,
            "whether step or gain were computed from the devices' data: then there is no statement"
            " for a deployment",
        ),
        "num_rounds": (COUNT, "rounds of the method"),
        "step_size": (
            NUMBER,
            "effective step; for a majority vote how far an entry moves in a round; for local"
            " posteriors the median over devices",
        ),
        "scores": (
            by_name(part("estimate")),
            "means over chains: accuracy, log_loss, brier, ece for classes; log_loss,"
            " squared_error for linear regression; mean_error where the posterior is known, and for"
            " uplinks variance_ratio, wasserstein2_squared, mean_error_squared, mse of all chains"
            " together",
        ),
        "plan": (
            part("plan"),
            "the plan of this method; for local posteriors that of the first device",
        ),
    },
    optional=("plan",),
)

COMPARED = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "plan": (part("plan"), "the plan that the baselines were made from"),
        "neighbouring": (WORD, "what is replaced in neighbouring data: device or example"),
        "num_test": (COUNT, "held-out examples that are predicted; 0: none"),
        "num_chains": (COUNT, "chains of every method, each scored by itself"),
        "seed": (COUNT, "seed of all randomness"),
        "methods": (
            list_of(_METHOD),
            "what every method delivered: the uplinks, the plan's own first, then the baselines",
        ),
        "missing": (by_name(WORD), "methods that could not be run, each with the reason"),
    }
)
"""Several methods on one problem, as ``Comparison.to_document`` writes it."""
