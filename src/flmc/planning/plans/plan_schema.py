"""The JSON document of a plan as pydantic models, and the JSON Schema that pydantic makes of them.

Each field has a description for people, which ``flmc plan --schema``, ``flmc schema`` and the
tables in ``docs/reference/json.md`` print. Planning and running do not import this module: loading
pydantic takes a tenth of a second, and their documents are plain dictionaries.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, WithJsonSchema
from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue
from pydantic_core import core_schema

from flmc.base.findings import Grade, Light
from flmc.planning.plans.document import SCHEMA_VERSION
from flmc.planning.plans.verdict import State

Count = Annotated[int, Field(ge=0)]


def words(text: str, *, optional: bool = False) -> Any:
    """Pydantic field whose description in the JSON Schema is ``text``; an ``optional`` field may be
    missing from a document."""
    return Field(None, description=text) if optional else Field(description=text)


class Document(BaseModel):
    """A JSON object with the fields of its pydantic model and no others."""

    model_config = ConfigDict(extra="forbid")


class SettingsDocument(BaseModel):
    """Settings of an object: ``type`` is the name of its class, and the other fields, which depend
    on the class, are its attributes."""

    model_config = ConfigDict(extra="allow")

    type: str


class FindingDocument(Document):
    """A statement about a plan or a result, as ``Finding.to_document`` writes it."""

    code: str = words("name of the finding, for programs; the same in every version")
    severity: Grade = words(
        "how much it matters: a note is to be known, unknown could not be judged, a warning speaks"
        " against the result, infeasible says that it cannot be what was asked for"
    )
    message: str = words("a sentence with the cure")
    short: str = words("the same in a few words; empty: the message is short enough")
    numbers: dict[str, float | None] = words("the numbers of the sentence; null: not finite")
    light: Light = words(
        "which light of the verdict it is about: whether the samples are the posterior's, whether"
        " the budget is kept, whether the samples are of use"
    )


class LightDocument(Document):
    """One light of a verdict."""

    state: State = words(
        "good; not asked: nothing was to be kept; unknown: nobody could judge; warning; infeasible"
    )
    words: str = words("the reason in a few words")


class LightsDocument(Document):
    """The three lights of a verdict."""

    sampling: LightDocument = words("whether the samples are those of the posterior")
    privacy: LightDocument = words("whether the budget of the whole run is kept")
    use: LightDocument = words("whether one chain is worth enough independent draws")


class VerdictDocument(Document):
    """The verdict of a plan, as ``Verdict.to_document`` writes it."""

    state: State = words("state of the worst light; good: every light is good, or not asked")
    lights: LightsDocument = words("the three lights")


class CostDocument(Document):
    """A statement of (epsilon, delta)-differential privacy."""

    epsilon: float | None = words("upper bound of epsilon; null: there is none")
    delta: float = words("delta that epsilon is stated at")
    delta_at_zero: float = words(
        "only where epsilon is 0: the delta that goes with it, smaller than the one asked for",
        optional=True,
    )
    rounds: Count = words(
        "only of a run: rounds counted for the device that transmits most", optional=True
    )
    schedule: str = words(
        "only of a run: how the schedule is charged: worst, averaged (delta over the schedules that"
        " may be drawn, once and not by the server) or known (what given path gains lead to)",
        optional=True,
    )


class RiskDocument(Document):
    """What an attacker achieves at most who knows everything else and decides between two
    neighbouring data sets, as ``TradeOff.to_document`` writes it. Every number is an upper
    bound."""

    accuracy: float = words("share of right decisions at even odds; 0.5 is guessing")
    caught_at_1_percent: float = words(
        "true-positive rate at a false-positive rate of 1 %: share of one data set that he catches"
        " if he mistakes 1 % of the other for it"
    )
    caught_at_0_1_percent: float = words("the same at a false-positive rate of 0.1 %")
    prior: float = words("his belief in the true data set beforehand")
    belief: float = words("his belief in it afterwards, exceeded with belief_exceeded at most")
    belief_exceeded: float = words("probability with which his belief may exceed that; a delta")
    curve: list[tuple[float, float]] = words(
        "trade-off curve: false-positive rates, each with the largest true-positive rate; between"
        " two of them the later one is a bound, a straight line is none"
    )


class PrivacyDocument(Document):
    """Privacy statements of a plan."""

    criterion: str = words("how a round is judged: tight, tail, paper or off")
    neighbouring: str = words("what neighbouring data replace, in words")
    stated_by: str | None = words(
        "the user's class that states it, which flmc has not proven; null: flmc states it"
    )
    round: CostDocument = words("what the worst round costs")
    run: CostDocument | None = words("what the whole run costs; null: it was left out")
    risk: RiskDocument | None = words(
        "what an attacker achieves at most after the whole run; null: not known, or left out",
        optional=True,
    )


class ReleaseDocument(Document):
    """The released chain, as ``Release.to_document`` writes it."""

    num_chains: Count = words("released chains, which epsilon covers: always 1")
    kept_rounds: Count = words("released rounds of the chain")
    effective_draws: float | None = words(
        "independent draws whose mean would vary as little, in the worst direction; 0 where the"
        " burn-in is hopelessly short, null where the curvature is not known"
    )
    epsilon: float | None = words(
        "upper bound of the cost of the release, burn-in included; null: unknown, unbounded, or"
        " left out"
    )
    delta: float | None = words("delta that epsilon is stated at; null: epsilon is not stated")
    mu_squared: float | None = words(
        "mu squared of the Gaussian mechanism with the same epsilon and delta, which adds up over"
        " chains; null where there is no epsilon"
    )
    price: float | None = words(
        "mu_squared per effective draw; null where either is unknown, or there is no draw"
    )


class RadioDocument(Document):
    """SNR and path gain of one device that transmits at full power."""

    snr_db: float | None = words("largest SNR at the transmitter; null: there is no noise")
    path_gain: float = words("root mean square of the path gains")
    path_gain_db: float = words("the same in decibels")
    received_snr_db: float | None = words("SNR at the receiver; null: there is no noise")
    varies: bool = words("whether path gains differ over rounds, devices or entries")


class AirtimeDocument(Document):
    """Channel uses and transmit energy of a run."""

    channel_uses: Count = words("symbols of one device in all rounds")
    energy: float = words("energy of a device in the run over the noise power, mean over devices")
    energy_is_bound: bool = words("whether that is what the clip allows at most, not a mean")
    devices: float = words("devices that transmit in a round, on average")
    skipped: float = words("share of rounds in which nobody transmits")


class EstimatesDocument(Document):
    """Effect of inexact channel estimates: symbols arrive with a random factor of the gain."""

    error: float = words("csi_error")
    mean: float = words("mean factor with which symbols arrive, over devices")
    mean_smallest: float = words("the same of the device with the smallest")
    mean_largest: float = words("the same of the device with the largest")
    spread: float = words("standard deviation of the factor, which heats")
    stated_gain: float | None = words("gain of the privacy statement; null without a statement")
    exceeded: float | None = words(
        "probability that the run exceeds it, a part of delta; null without a statement"
    )


class PredictionDocument(Document):
    """The predicted law of a chain, compared with the posterior."""

    type: str = words("always Prediction")
    variance_ratio: float = words("variance of the chain over that of the posterior; 1 is right")
    variance_ratio_smallest: float = words("the smallest over all directions")
    variance_ratio_largest: float = words("the largest over all directions")
    mean_error_squared: float = words("squared distance of the chain's mean from the posterior's")
    relative_mean_error: float = words("the same over the trace of the posterior's covariance")
    clipped_fraction: float = words("expected fraction of the gradient entries beyond the clip")
    mean_shift: float | None = words(
        "largest distance of the chain's mean from the posterior's, in posterior standard"
        " deviations; null in plans from before this field"
    )
    distance_squared: float | None = words(
        "squared W2 distance of the chain's law from the posterior, in coordinates in which the"
        " posterior's covariance is the identity; null in plans from before this field"
    )
    memory: float | None = words(
        "correlation of successive rounds in the slowest direction; null in plans from before this"
        " field"
    )
    rounds_to_arrive: Count | None = words(
        "rounds until chains from several starts, moved without noise, are within a quarter of a"
        " standard deviation of their mean; null where it was not computed"
    )
    left_shift: float | None = words(
        "what the way from the worst start leaves in the mean of the kept rounds, in standard"
        " deviations; null where it was not computed"
    )
    left_variance: float | None = words(
        "what the way from the worst start adds to the variance of the kept rounds, over the"
        " chain's; null where it was not computed"
    )


class PredictedAnswerDocument(Document):
    """The predicted answer of a run, compared with the exact posterior."""

    type: str = words("always PredictedAnswer")
    width: float = words(
        "standard deviation over the exact posterior's, in the direction in which it is largest"
    )
    mean_width: float = words("root of the total variance over the exact posterior's")
    data: float = words("share of the variance that is the posterior's, seen through the link")
    noise: float = words("share that channel, quantisation and privacy leave unknown of the mean")
    curvature: float = words("share that the rounds leave unknown of the posterior's curvature")
    of_prior: float = words("total variance over the prior's; 1: nothing is learnt")
    degrees: float = words("degrees of freedom of the curvature where they are fewest")
    num_rounds: Count = words("rounds that count, those of the burn-in after arrival included")
    response: list[float] | None = words(
        "smallest and largest ratio of the curvature that rounds show to the posterior's; null"
        " where it is not known"
    )
    least_width: float = words(
        "standard deviation over the exact posterior's, in the direction in which it is smallest"
    )


class CurvatureDocument(Document):
    """Bounds of the curvature of the negative log posterior that are public knowledge."""

    smoothness: float | None = words("largest curvature; null where it is not known")
    convexity: float | None = words("smallest curvature; null where it is not known")


class PlanDocument(Document):
    """A plan, as ``Plan.to_document`` writes it."""

    schema_version: Annotated[int, WithJsonSchema({"const": SCHEMA_VERSION})] = words(
        "version of this schema"
    )
    digest: str = words(
        "SHA-256, in hexadecimal, of this object as JSON with sorted keys, no spaces and numbers"
        " as they stand, without digest, rounds_needed, margins_db, radio, airtime, estimates,"
        " privacy, release, unknown_privacy, prediction, aim, answer, warnings,"
        " findings and verdict; and without scheduler where its type is AllDevices or GivenDevices"
    )
    scheme: str = words("how devices transmit")
    gain: float | list[Any] | None = words(
        "cap of the amplitude at the receiver: a number, or (round, entry); null: power alone"
        " limits it"
    )
    limits: dict[str, float | None] = words(
        "largest gain by each constraint; null: it does not bind at all"
    )
    binding: str = words("which limit decides: power, langevin, privacy, none; or given")
    step_size: float = words("step of the sampler")
    effective_step_size: float | None = words(
        "step times slope and the factor of the server's update; null where one is not known"
    )
    temperature: float | None = words(
        "sampled variance over the posterior's, to leading order; 1 is right"
    )
    rounds_needed: Count | None = words("burn-in that the sampler needs; null where it is unknown")
    data_dependent: bool = words("whether the plan was computed from the devices' data")
    margins_db: dict[str, float | None] = words(
        "how far every limit is above the gain, in decibels; null: it does not limit the gain"
    )
    radio: RadioDocument = words(
        "SNR at the transmitter and at the receiver and the path gain, of one device at full power"
    )
    airtime: AirtimeDocument | None = words(
        "channel uses and transmit energy of the run; null for an uplink without a channel"
    )
    estimates: EstimatesDocument | None = words(
        "effect of inexact channel estimates; null where csi_error is 0"
    )
    privacy: PrivacyDocument | None = words(
        "upper bounds of what a round and the run cost; null where nothing is known"
    )
    release: ReleaseDocument = words("the release, one chain: what it is worth and what it costs")
    unknown_privacy: str | None = words("why nothing is known of the privacy; null if it is known")
    num_devices: Count = words("devices")
    dim: Count = words("entries of theta")
    num_rounds: Count = words("rounds")
    num_burn_in: Count = words("rounds that are not kept")
    burn_in_step_factor: float = words("factor of the step in the first num_fast rounds")
    num_fast: Count = words("rounds with a larger step")
    start: Literal["prior", "zero"] = words("where chains start")
    active: list[Any] | None = words("who transmits, (round, device) with 1 and 0, if it was given")
    scheduler: SettingsDocument = words("the policy that says who transmits")
    update: SettingsDocument | None = words(
        "what the server does with its estimate; left out where it is Langevin's update",
        optional=True,
    )
    draw_at: str = words(
        "where draws are taken: midpoints; left out where it is positions", optional=True
    )
    num_local: Count = words(
        "entries of the parameters that each device has of its own, which never travel; left out"
        " where there are none",
        optional=True,
    )
    uplink: SettingsDocument = words(
        "the uplink with its link and fading; type is the class, module:class for a user's own"
    )
    asked: SettingsDocument = words("the limits that were asked for")
    prediction: PredictionDocument | None = words(
        "what the chain will sample, where it can be computed"
    )
    aim: Literal["chain", "answer"] = words(
        "what the run is for, by which the verdict judges it: draws of a chain, or an answer",
        optional=True,
    )
    public_curvature: CurvatureDocument = words(
        "public bounds of the curvature, which the answer keeps to; left out where there are none",
        optional=True,
    )
    answer: PredictedAnswerDocument | None = words(
        "what the server will know after the run; null where that is not known", optional=True
    )
    warnings: list[str] = words("what speaks against the plan, in sentences")
    findings: list[FindingDocument] = words(
        "the same with code, severity and numbers, and with notes"
    )
    verdict: VerdictDocument | None = words(
        "the verdict in three lights; null where the plan was not judged", optional=True
    )


class _Words(GenerateJsonSchema):
    """Generator of JSON Schemas without the titles and defaults that pydantic adds."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        return False

    def default_schema(self, schema: core_schema.WithDefaultSchema) -> JsonSchemaValue:
        # A default only marks a field as optional, and is left out of the schema: it is not the
        # value of a field that is missing.
        return self.generate_inner(schema["schema"])


def json_schema(model: type[BaseModel], title: str) -> dict[str, Any]:
    """JSON Schema of a pydantic model, with the title ``title``, and with the schemas of the
    objects within it in ``$defs``."""
    content = model.model_json_schema(schema_generator=_Words)
    return {"$schema": GenerateJsonSchema.schema_dialect, **content, "title": title}


def schema() -> dict[str, Any]:
    """JSON Schema of a plan's document."""
    return json_schema(PlanDocument, "flmc plan")
