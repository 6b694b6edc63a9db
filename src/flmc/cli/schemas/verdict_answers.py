"""Pydantic models of what `flmc plan --solve`, `flmc audit` and `flmc reproduce` print with
``--json``."""

from __future__ import annotations

from typing import Annotated

from pydantic import WithJsonSchema

from flmc.cli.schemas.run_answers import AnswerDocument
from flmc.planning.plans.plan_schema import Count, Document, PlanDocument, RiskDocument, words
from flmc.settings.questions import AXES


class TriedDocument(Document):
    """One value of a setting that a search tried, and the plan that it gives."""

    value: float = words("value of the setting")
    gain: float | None = words("gain of its plan; null: no plan can be made")
    binding: str | None = words("which limit decides the gain")
    temperature: float | None = words("temperature of the plan")
    width: float | None = words("width of the answer that its plan predicts; null: not known")
    rounds_needed: Count | None = words("burn-in that the sampler needs")
    broken: list[str] = words(
        "requirements that are not met, a sentence each; empty: the value does"
    )


class SolutionDocument(Document):
    """The value of one setting that meets the requirements, as `flmc plan --solve` finds it."""

    name: Annotated[str, WithJsonSchema({"enum": list(AXES)})] = words(
        "the setting that was solved for"
    )
    value: float = words("the smallest or best value that meets the requirements")
    at_end: bool = words(
        "whether the value is at an end of those that were tried: one beyond may do too"
    )
    estimated: bool = words(
        "whether the curve is of estimates of the privacy limit; the plan never is"
    )
    curve: list[TriedDocument] = words("values that were tried, in order")


class SolvedDocument(AnswerDocument):
    """The value that `flmc plan --solve` found, and the plan with it."""

    solved: SolutionDocument = words("the answer")
    plan: PlanDocument = words("the plan that the value gives")


class PowerDocument(Document):
    """Probability that an audit would notice if all gains were larger than claimed by some
    factor."""

    gain_factor: float = words("factor by which all gains are louder than the run's")
    epsilon_factor: float = words("epsilon of the attacked neighbours then, over the claimed one")
    probability: float = words("probability that the audit refutes the claim then")


class ResolutionDocument(Document):
    """The smallest understatement of epsilon that an audit is likely to see, and the probabilities
    of seeing larger gains."""

    epsilon_factor: float | None = words(
        "an epsilon understated by this factor is seen with probability seen_with; null: none"
    )
    gain_factor: float | None = words("the factor of the gain that it takes; null: none")
    seen_with: float = words("probability with which an understatement is to be seen")
    powers: list[PowerDocument] = words("probability to see gains that are louder by some factors")


class AuditDocument(Document):
    """The outcome of an attack that tries to tell apart two neighbouring data sets ("worlds"),
    which differ in the data of one device or in one example."""

    num_rounds: Count = words("rounds that were attacked")
    delta: float = words("delta that both bounds are stated at")
    trials: Count = words("transmissions in each of the two worlds")
    lower: float = words("epsilon is at least this, as the attack shows with its confidence")
    upper: float | None = words("what the accountant states; null: not bounded")
    confidence: float = words("probability that the lower bound holds")
    most: float = words("the largest lower bound that so many trials could have given")
    neighbouring: str = words("what the worlds differ in: data of a `device`, or one `example`")
    loudest: float = words("largest gain that devices use, over the accountant's cap")
    resolution: ResolutionDocument | None = words(
        "what the audit could see, computed before it started; null: not computed"
    )
    risk: RiskDocument | None = words(
        "what any attacker achieves at most after these rounds, as the accountant states; null: not"
        " known"
    )
    broken: bool = words("whether the attack refutes the accountant, or gains are above their caps")


class OneRunDocument(Document):
    """The outcome of an attack on one run in which every device is a canary: it flips a coin that
    decides what it sends, and the attack guesses the coins."""

    num_rounds: Count = words("rounds of the run")
    num_canaries: Count = words("devices, each of which flipped a coin")
    correct: Count = words("coins that were guessed right")
    delta: float = words("delta that both bounds are stated at")
    lower: float = words("epsilon is at least this, as the guesses show with their confidence")
    upper: float | None = words("what the accountant states; null: not bounded")
    most: float = words("the lower bound that right guesses of all coins would have given")
    confidence: float = words("probability that the lower bound holds")
    broken: bool = words("whether the guesses refute the accountant")


class AuditsDocument(AnswerDocument):
    """The outcomes of all attacks of `flmc audit` on the uplink of a plan."""

    audits: list[AuditDocument] = words("an attack on one round, and one on a short run")
    deployed: bool = words("whether the roles of a real federation transmitted")
    one_run: OneRunDocument | None = words(
        "an attack on all devices at once, in one run; null without --one-run"
    )
    gain: float | None = words(
        "largest cap of the amplitude at the receiver; null: power alone limits it"
    )


class ClaimDocument(Document):
    """The verdict on one claim that a paper makes."""

    holds: bool | None = words("whether the claim holds; null: the experiments do not decide")
    value: str = words("the measured value, with its confidence interval")


class ReadingSearchDocument(Document):
    """The outcome of a search over interpretations of a paper's ambiguous text."""

    combinations: Count = words("searched ways to read the text; 0: none")
    most_claims: Count | None = words("claims that hold under the best of them")


class StudyDocument(AnswerDocument):
    """Fields that the reproductions of all published studies have: size, seed and version."""

    experiments: Count = words("data sets of every point, or experiments of 100 runs")
    seed: Count = words("seed of the study")
    version: str = words("the flmc that measured")


class TrialDocument(Document):
    """Designs of both schemes that were run on the same data sets."""

    snr_db: float = words("SNR in decibels")
    num_devices: Count = words("devices")
    dim: Count = words("entries of theta")
    epsilon: float = words("epsilon of the run")
    ratio: tuple[float, float, float] = words(
        "width of digital answers over that of analog ones, and its 99 % interval"
    )


class BestDocument(Document):
    """The digital against the analog scheme, each with its best design at equal privacy of the run,
    by the predicted error of what the server knows."""

    places: Count = words("settings for which both schemes were designed")
    answered: Count = words("those of them for which some design has an answer")
    digital_ahead: Count = words("those of them in which digital has the smaller error")
    smallest_ratio: float | None = words(
        "smallest error of digital over that of analog; null: no design has an answer"
    )
    largest_ratio: float | None = words(
        "largest error of digital over that of analog; null: no design has an answer"
    )
    claims: dict[str, ClaimDocument] = words("verdicts on the paper's claims there, by claim")
    trials: list[TrialDocument] = words("designs that were run")


class QuantisedStudyDocument(StudyDocument):
    """Results of repeating the published study of the digital scheme, which transmits quantised
    (one-bit) symbols: verdicts on its claims, and its numbers as measured."""

    claims: dict[str, dict[str, ClaimDocument]] = words(
        "verdicts by reading, then by claim; empty where no figure was measured"
    )
    conjectures: list[str] = words("readings that are conjectures about the authors' program")
    numbers: dict[str, dict[str, list[float]]] = words(
        "numbers of the paper's text as measured, by reading, then by name"
    )
    search: ReadingSearchDocument = words(
        "search for a reading under which most claims hold; small studies do none"
    )
    power_gained_db: float = words(
        "how much more power the exact worst case allows than the paper's bound, in decibels"
    )
    best: BestDocument | None = words(
        "both schemes at their best; null: not asked for (figures best and all)"
    )


class PointDocument(Document):
    """The error of one curve of a study at one SNR, beside the published value."""

    curve: str = words("name of the curve")
    snr_db: float = words("SNR in decibels")
    mean: float = words(
        "geometric mean over experiments of the largest squared W2 over kept rounds"
    )
    log_sd: float | None = words(
        "standard deviation of its logarithm over experiments; null: there is one experiment"
    )
    pooled: float = words("the same distance for the runs of all experiments together")
    experiments: Count = words("experiments of 100 runs")
    published: float | None = words("the published value; null: there is none")
    z: float | None = words(
        "logarithm of the published value over mean and standard deviation of the experiments;"
        " null: not compared"
    )


class PredecessorStudyDocument(StudyDocument):
    """Results of repeating the published simulation of the analog scheme, on which the paper about
    one-bit symbols builds: the privacy budget, and the error of every curve beside the published
    value."""

    data: str = words("where the data come from")
    budget_published: float = words("privacy budget R of a device as published")
    budget_exact: float = words("what the exact Gaussian mechanism allows")
    budget_db: float = words("how much more that is, in decibels")
    floor: float = words("distance that 100 runs of an exact sampler have on average")
    population: float = words("distance of infinitely many runs of noiseless Langevin Monte Carlo")
    points: list[PointDocument] = words("every curve at every SNR")
