"""What `flmc compare --baselines` prints with ``--json``."""

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
            "flmc (the plan's own sampler), FedSGD, majority vote, DP-FedSGD, noiseless LMC, local"
            " posteriors",
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
            " squared_error, mean_error for linear regression",
        ),
    }
)

COMPARED = described(
    {
        "schema_version": ({"const": ANSWER_VERSION}, "version of this schema"),
        "plan": (part("plan"), "the plan that methods are compared with"),
        "neighbouring": (WORD, "what is replaced in neighbouring data: device or example"),
        "num_test": (COUNT, "held-out examples that are predicted"),
        "num_chains": (COUNT, "chains of every method, each scored by itself"),
        "seed": (COUNT, "seed of all randomness"),
        "methods": (list_of(_METHOD), "what every method delivered, the plan's own sampler first"),
        "missing": (by_name(WORD), "methods that could not be run, each with the reason"),
    }
)
"""A plan's sampler beside other methods, as ``BaselineComparison.to_document`` writes it."""
