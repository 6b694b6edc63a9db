"""Pydantic models of what commands about runs print with ``--json``: `flmc run`, `resume` and
`ledger`, runs of two stages, and `flmc compare`."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from flmc.base.documents import ANSWER_VERSION
from flmc.evaluation.metrics import ShiftKnownFrom
from flmc.planning.plans.plan_schema import (
    Count,
    Document,
    FindingDocument,
    PlanDocument,
    RiskDocument,
    words,
)
from flmc.runs.records import SCHEMA_VERSION


class AnswerDocument(Document):
    """JSON object that a command prints with ``--json``, in the format version
    :data:`flmc.base.documents.ANSWER_VERSION`."""

    schema_version: Annotated[int, WithJsonSchema({"const": ANSWER_VERSION})] = words(
        "version of this schema"
    )


class EstimateDocument(Document):
    """Estimate of a metric, with its standard error."""

    mean: float | None = words("the estimate; null: there are too few draws for one")
    se: float | None = words("its standard error; null: nothing to estimate it from")


class AgreementDocument(Document):
    """How well the chains of a run agree: worst values over the quantities that were judged, such
    as entries of theta."""

    r_hat: float | None = words("largest R-hat, about 1 where chains agree; null: cannot be told")
    ess_bulk: float | None = words("smallest number of effective draws for the middle")
    ess_tail: float | None = words("smallest number of effective draws for 5 % and 95 %")
    worst: str | None = words("name of the entry with the largest R-hat; null: it has none")


class SpreadDocument(Document):
    """A metric of single chains: its mean, and how much it varies from chain to chain."""

    mean: float | None = words("mean over chains and data sets; null: it takes two chains")
    sd: float | None = words("standard deviation from chain to chain; null: not known")
    se: float | None = words("standard error of the mean; null: not known")


class MetricsDocument(Document):
    """How well all draws of a run represent the exact posterior."""

    mse: EstimateDocument = words(
        "mean squared distance from the posterior mean; exact samples have posterior_trace"
    )
    variance_ratio: EstimateDocument = words(
        "variance of the draws over that of the posterior; 1 is right"
    )
    variance_ratio_smallest: EstimateDocument = words(
        "the smallest along the posterior's principal axes"
    )
    variance_ratio_largest: EstimateDocument = words(
        "the largest along the posterior's principal axes"
    )
    wasserstein2_squared: EstimateDocument = words(
        "squared W2 distance from the posterior; beside wasserstein2_floor"
    )
    mean_error_squared: EstimateDocument = words(
        "squared distance of the pooled mean from the posterior mean"
    )


class MiddleDocument(Document):
    """Median and quartiles of a metric over data sets."""

    median: float | None = words("median over data sets")
    low: float | None = words("quantile at 25 % over data sets")
    high: float | None = words("quantile at 75 % over data sets")
    heavy: bool = words(
        "whether tails are heavy: the mean lies outside these quantiles, of 10 data sets or more"
    )


class OneChainDocument(Document):
    """How well a single chain represents the exact posterior."""

    mean_error: SpreadDocument = words(
        "squared distance of the chain's mean from the posterior mean, over the trace of the"
        " posterior's covariance"
    )
    common_error: SpreadDocument = words(
        "the part of it that all chains of a data set have in common, a bias"
    )
    variance_ratio: SpreadDocument = words(
        "variance of the chain's draws about their own mean over the posterior's"
    )
    wasserstein2: SpreadDocument | None = words(
        "squared W2 distance of the Gaussian fitted to the chain's draws from the posterior, over"
        " the trace; null where it would take too long"
    )


class CoverageDocument(Document):
    """What the privacy statement of a run covers: the cost of one chain, and of all chains."""

    chains_covered: Count = words("chains that epsilon covers: always 1")
    epsilon: float | None = words("upper bound of what one chain costs; null: not bounded")
    epsilon_all_chains: float | None = words(
        "upper bound of the cost of all chains, if every one is released; null: not bounded"
    )
    delta: float = words("delta that both are stated at")
    data_dependent: bool = words(
        "whether the plan was computed from the devices' data: then there is no statement for a"
        " deployment"
    )
    stated_by: str | None = words(
        "the user's class that states it, which flmc has not proven; null: flmc states it"
    )


class DiagnosticsDocument(AgreementDocument):
    """How well the chains of a run agree in the entries of theta and in the model's predictions."""

    predictions: AgreementDocument | None = words(
        "the same for the model's predictions; null for a model without predictions"
    )
    settled: bool = words("whether all chains together are at rest, though each may be short")


class EvidenceDocument(Document):
    """How well the draws fit a posterior that is not known exactly: Stein's identities, evaluated
    with gradients at the draws."""

    stein_ratio: float | None = words(
        "mean over entries of Stein's ratio, tr(C Sigma^-1)/d for a normal posterior; 1 is right."
        " It is not metrics.variance_ratio, which is tr C/tr Sigma"
    )
    stein_ratio_se: float | None = words("its standard error; null where why_unknown says why")
    smallest: float | None = words("smallest Stein ratio over the entries")
    largest: float | None = words("largest Stein ratio over the entries")
    smallest_direction: float | None = words(
        "smallest Stein ratio over principal directions of the draws; null without errors"
    )
    largest_direction: float | None = words("largest Stein ratio over the same directions")
    mean_shift: float | None = words(
        "largest shift of the mean over the entries, in posterior standard deviations"
    )
    mean_shift_se: float | None = words("its standard error; null where why_unknown says why")
    shifted: str = words("name of the entry with that shift; empty where it is not known")
    mean_shift_direction: float | None = words(
        "largest shift of the mean over the same directions, in posterior standard deviations"
    )
    effective_draws: float | None = words(
        "effective draws of all chains, in the worst entry or direction"
    )
    num_groups: Count = words(
        "groups of draws whose differences give the errors: chains, or long batches of chains; 0"
        " without errors"
    )
    num_judged: Count = words("ratios and shifts that were judged; 0 without errors")
    score: float | None = words(
        "largest Student's t over its critical value, corrected for num_judged; above 1 it is"
        " significant"
    )
    why_unknown: str = words("why the errors are not known; empty where they are")


class PartsDocument(Document):
    """Shares of the total variance of an answer, summed over the entries of theta, by cause."""

    data: float = words("share that the exact posterior has")
    noise: float = words("share because channel, quantisation and privacy leave the mean unknown")
    curvature: float = words("share because they leave the width unknown")


class PosteriorDocument(Document):
    """What a server knows of theta, for the first data set, as ``Answer.to_document`` writes it."""

    entries: list[str] = words("names of the entries of theta")
    mean: list[float] = words("mean of every entry")
    sd: list[float] = words("standard deviation of every entry")
    covariance: list[list[float]] | None = words(
        "covariance of the entries; null for more than 200"
    )
    interval: float = words("probability of the intervals")
    ends: list[tuple[float, float]] = words("lower and upper end of each entry's interval")
    width: list[float] = words("standard deviation of every entry over the exact posterior's")
    parts: PartsDocument = words("shares of the variance by their cause")
    num_rounds: Count = words("rounds that it uses, of all its chains together")
    findings: list[FindingDocument] = words("statements against it, such as that it is wide")


class HeldDocument(Document):
    """Probability that the exact posterior gives to the intervals of answers, averaged over the
    answers of single chains."""

    mean: float = words("mean mass of the exact posterior in the intervals of an answer")
    se: float | None = words("its standard error; null with one answer")
    answers: Count = words("answers, of as many chains, over which it is the mean")


class ShownAnswerDocument(Document):
    """What the server knows after a run, as ``ShownAnswer.to_document`` writes it."""

    why: str = words("why the draws of the chain stand in its place; empty: they do not")
    num_chains: Count = words("chains of the first data set that the answer uses")
    posterior: PosteriorDocument | None = words("the answer; null where the draws stand")
    held: HeldDocument | None = words(
        "how much of the exact posterior intervals hold; null where it is not known"
    )


class ServerAnswerDocument(AnswerDocument, ShownAnswerDocument):
    """What `flmc answer` prints with ``--json``: what the server knows of theta after a recorded
    run."""


class RunDocument(Document):
    """A finished run, as ``Result.to_document`` writes it."""

    schema_version: Annotated[int, WithJsonSchema({"const": SCHEMA_VERSION})] = words(
        "version of this schema"
    )
    plan: PlanDocument = words("the plan that was run")
    metrics: MetricsDocument | None = words(
        "quality against the exact posterior; null for a model whose posterior is not known"
    )
    one_chain: OneChainDocument | None = words(
        "quality of one chain by itself, with its spread over chains; null without metrics"
    )
    over_data_sets: dict[str, MiddleDocument] | None = words(
        "median and quartiles over data sets of mse, variance_ratio, wasserstein2_squared and"
        " mean_error_squared; null for one data set, or without metrics",
        optional=True,
    )
    num_chains: Count = words("chains of every data set")
    coverage: CoverageDocument | None = words(
        "which chains the run's epsilon covers; null where the privacy is unknown"
    )
    clipped_fraction: float | None = words(
        "fraction of the gradient entries of kept rounds that clipping changed; null for a"
        " federation, whose devices do not tell"
    )
    num_undefined: Count = words("gradient entries that were not finite; NaN counts as 0")
    entries: list[str] | None = words("names of the entries of theta; null for more than 2048")
    diagnostics: DiagnosticsDocument | None = words(
        "whether the chains of the first data set agree; null where no draws were kept (flmc run"
        " keeps them with --out or --plots only), or fewer than 4"
    )
    findings: list[FindingDocument] = words("statements about the result, notes included")
    warnings: list[str] = words("messages of the findings that are no notes")
    evidence: EvidenceDocument | None = words(
        "evidence from gradients at the draws; null where the posterior is known"
    )
    posterior_trace: float | None = words("MSE of exact posterior samples; null without metrics")
    independent_draws: float | None = words(
        "independent draws that would estimate the mean as well; null without metrics"
    )
    wasserstein2_floor: float | None = words(
        "squared W2 distance of exact posterior samples with the same memory; null without metrics"
    )
    shift_from: ShiftKnownFrom | None = words(
        "which groups told the shift of the mean from the spread in the variance ratios; null"
        " without metrics"
    )
    notes: list[str] = words("what is not given, or counted in, for lack of chains")
    version: str = words("the flmc that ran it")
    engine: str = words("name of the engine that ran it")
    blocking: str = words("how it put chains together; empty where there was no choice")
    seconds: float = words(
        "CPU seconds of the process that ended the run; of a resumed run those after the last"
        " resume only, not of the whole run"
    )
    seed: Count = words("seed of the run")
    answer: ShownAnswerDocument = words(
        "what the server knows after the run; only where it was asked for, and not in"
        " `result.json`",
        optional=True,
    )


class CitationDocument(AnswerDocument):
    """How to cite a result, as ``Citation.to_document`` writes it."""

    methods: str = words("a paragraph for a methods section, with facts from the record only")
    bibtex: str = words("BibTeX entries of flmc and of the paper whose method it implements")


class LedgerDocument(AnswerDocument):
    """What one chain of a recorded run costs in privacy, as ``SpentCurve.to_document`` writes
    it."""

    at: Count = words("the last round that counts")
    epsilon: float | None = words(
        "upper bound for the whole planned run and the device that spends most: it holds whenever"
        " the run stops; null: not bounded"
    )
    epsilon_so_far: float | None = words(
        "upper bound for the rounds up to and including that one, valid if the round to stop at was"
        " fixed beforehand; null: not bounded"
    )
    run_delta: float = words("delta that every epsilon is stated at")
    risk: RiskDocument | None = words(
        "what an attacker achieves at most after the whole planned run, against the device that"
        " spends most; null: not known"
    )
    curve: list[tuple[Count, float | None]] = words(
        "rounds, each with the epsilon up to it, valid if that round was fixed beforehand as the"
        " one to stop at; one with --at"
    )
    transmitted: list[Count] = words("counted rounds in which each device transmitted")
    devices: list[float | None] = words("epsilon that the whole planned run costs each device")
    budget: float | None = words("epsilon that the run may spend; null without such a budget")
    planned: Count = words("rounds that the epsilon of the whole run covers")
    unfinished: Count | None = words("rounds that were planned; null if the run is finished")
    num_chains: Count = words("chains of the run; each spends what is stated here")
    chains_covered: Count = words("chains that every epsilon but the next covers: always 1")
    epsilon_all_chains: float | None = words(
        "upper bound for the whole run of all chains together, if every one of them is released;"
        " null: not bounded"
    )
    data_dependent: bool | None = words(
        "whether the plan was computed from the devices' data: then there is no statement for a"
        " deployment; null: the record does not say"
    )


class TwoStageCostDocument(AnswerDocument):
    """What a pilot and the second stage cost together in privacy."""

    epsilon: float | None = words(
        "upper bound of epsilon of the pilot and one chain of the second stage; null: unknown"
    )
    delta: float | None = words("delta that it is stated at; null: unknown")


class TwoStagePlanDocument(TwoStageCostDocument):
    """A plan of two stages, as ``TwoStagePlan.to_document`` writes it."""

    pilot: PlanDocument = words("the plan of the pilot")
    main_rounds: Count = words("rounds of the second stage")
    most_gain: float = words("largest gain of any round of both stages")


class TwoStageRunDocument(TwoStageCostDocument):
    """The results of both stages of a run, and what they cost together in privacy."""

    pilot: dict[str, Any] = words("the result of the pilot, one chain, as `flmc schema run` says")
    main: dict[str, Any] = words(
        "the result of the second stage, as `flmc schema run` says; its own epsilon leaves out"
        " the pilot"
    )
    effective_draws_of_pilot: float = words("independent draws that the pilot's are worth")


class MethodDocument(Document):
    """The results of one method (an uplink or a baseline) of a comparison."""

    name: str = words(
        "flmc (the plan's own sampler), another uplink by its settings, FedSGD, majority vote,"
        " DP-FedSGD, noiseless LMC, local posteriors"
    )
    channel: str = words("what lies between devices and server")
    estimate: Literal["draws", "mean of kept rounds"] = words(
        "what is scored: the draws of a chain, or a point estimate"
    )
    epsilon: float | None = words(
        "upper bound of epsilon of the run, for one chain; null: no statement, or not bounded"
    )
    delta: float | None = words("delta that it is stated at; null: no statement")
    no_statement: str = words("why there is no privacy statement; empty where there is one")
    data_dependent: bool = words(
        "whether step or gain were computed from the devices' data: then there is no statement for"
        " a deployment"
    )
    num_rounds: Count = words("rounds of the method")
    step_size: float = words(
        "effective step; for a majority vote how far an entry moves in a round; for local"
        " posteriors the median over devices"
    )
    scores: dict[str, EstimateDocument] = words(
        "means over chains: accuracy, log_loss, brier, ece for classes; log_loss, squared_error for"
        " linear regression; mean_error where the posterior is known, and for uplinks"
        " variance_ratio, wasserstein2_squared, mean_error_squared, mse of all chains together"
    )
    plan: PlanDocument = words(
        "the plan of this method; for local posteriors that of the first device", optional=True
    )


class EqualityDocument(Document):
    """The quantity in which the methods of a comparison were made equal, and its value."""

    name: str = words("step, privacy, energy or airtime")
    definition: str = words("what is equal, and what is varied to reach it")
    value: float = words("the shared value")


class PairedDocument(Document):
    """A score of a method less that of the first, on the same data sets."""

    mean: float | None = words("mean of the differences")
    se: float | None = words("its standard error, over data sets")
    median: float | None = words("median of the differences")
    median_low: float | None = words(
        "lower end of the median's 95 % interval, for any law; null for fewer than 6 data sets"
    )
    median_high: float | None = words("upper end of the same interval")
    heavy: bool = words("whether the differences have heavy tails: then the median counts")
    smaller: Count = words("data sets on which the difference is negative")
    data_sets: Count = words("number of data sets")


class ComparisonDocument(AnswerDocument):
    """Several methods on one problem, as ``Comparison.to_document`` writes it."""

    plan: PlanDocument = words("the plan that the baselines were made from")
    neighbouring: str = words("unit in which neighbouring data differ: device or example")
    relation: str = words("how it differs: replace, add_remove or zero_out")
    num_test: Count = words("held-out examples that are predicted; 0: none")
    num_chains: Count = words("chains of every method, each scored by itself")
    seed: Count = words("seed of all randomness")
    equal: EqualityDocument | None = words("what the uplinks share; null: planned by themselves")
    methods: list[MethodDocument] = words(
        "privacy and scores of every method: the uplinks, the plan's own first, then the baselines"
    )
    paired: dict[str, dict[str, PairedDocument]] = words(
        "differences to the first method by method and score; empty for one data set"
    )
    missing: dict[str, str] = words("methods that could not be run, each with the reason")
