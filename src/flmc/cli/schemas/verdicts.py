"""What `flmc plan --solve`, `flmc audit` and `flmc reproduce` print with ``--json``."""

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
from flmc.settings.inverse import AXES

_VERSION = ({"const": ANSWER_VERSION}, "version of this schema")

_TRIED = described(
    {
        "value": (NUMBER, "value of the setting"),
        "gain": (or_null(NUMBER), "gain of its plan; null: no plan can be made"),
        "binding": (or_null(WORD), "which limit decides the gain"),
        "temperature": (or_null(NUMBER), "temperature of the plan"),
        "rounds_needed": (or_null(COUNT), "burn-in that the sampler needs"),
        "broken": (list_of(WORD), "what is not met, a sentence each; empty: the value does"),
    }
)
SOLVED = described(
    {
        "schema_version": _VERSION,
        "solved": (
            described(
                {
                    "name": ({"enum": list(AXES)}, "the setting that was solved for"),
                    "value": (NUMBER, "the smallest or best value that meets the requirements"),
                    "estimated": (
                        FLAG,
                        "whether the curve is of estimates of the privacy limit; the plan never is",
                    ),
                    "curve": (list_of(_TRIED), "values that were tried, in order"),
                }
            ),
            "the answer",
        ),
        "plan": (part("plan"), "the plan that the value gives"),
    }
)
"""The answer to an inverse question, and its plan."""

_POWER = described(
    {
        "gain_factor": (NUMBER, "factor by which all gains are louder than the run's"),
        "epsilon_factor": (NUMBER, "epsilon of the attacked neighbours then, over what is claimed"),
        "probability": (NUMBER, "probability that the audit refutes the claim then"),
    }
)
_RESOLUTION = described(
    {
        "epsilon_factor": (
            or_null(NUMBER),
            "an epsilon understated by this factor is seen with probability seen_with; null: none",
        ),
        "gain_factor": (or_null(NUMBER), "the factor of the gain that it takes; null: none"),
        "seen_with": (NUMBER, "probability with which an understatement is to be seen"),
        "powers": (list_of(_POWER), "probability to see gains that are louder by some factors"),
    }
)
_AUDIT = described(
    {
        "num_rounds": (COUNT, "rounds that were attacked"),
        "delta": (NUMBER, "delta that both bounds are stated at"),
        "trials": (COUNT, "transmissions in each of the two worlds"),
        "lower": (NUMBER, "epsilon is at least this, as the attack shows with its confidence"),
        "upper": (or_null(NUMBER), "what the accountant states; null: not bounded"),
        "confidence": (NUMBER, "probability that the lower bound holds"),
        "most": (NUMBER, "the largest lower bound that so many trials could have given"),
        "neighbouring": (WORD, "what the worlds differ in: data of a `device`, or one `example`"),
        "loudest": (NUMBER, "largest gain that devices use, over the accountant's cap"),
        "resolution": (
            or_null(_RESOLUTION),
            "what the audit could see, computed before it started; null: not computed",
        ),
        "broken": (
            FLAG,
            "whether the attack refutes the accountant, or gains are above their caps",
        ),
    }
)
_ONE_RUN = described(
    {
        "num_rounds": (COUNT, "rounds of the run"),
        "num_canaries": (COUNT, "devices, each of which flipped a coin"),
        "correct": (COUNT, "coins that were guessed right"),
        "delta": (NUMBER, "delta that both bounds are stated at"),
        "lower": (NUMBER, "epsilon is at least this, as the guesses show with their confidence"),
        "upper": (or_null(NUMBER), "what the accountant states; null: not bounded"),
        "most": (NUMBER, "the lower bound that right guesses of all coins would have given"),
        "confidence": (NUMBER, "probability that the lower bound holds"),
        "broken": (FLAG, "whether the guesses refute the accountant"),
    }
)
AUDITED = described(
    {
        "schema_version": _VERSION,
        "audits": (list_of(_AUDIT), "an attack on one round, and one on a short run"),
        "deployed": (FLAG, "whether the roles of a real federation transmitted"),
        "one_run": (
            or_null(_ONE_RUN),
            "an attack on all devices at once, in one run; null without --one-run",
        ),
        "gain": (
            or_null(NUMBER),
            "largest cap of the amplitude at the receiver; null: power alone limits it",
        ),
    }
)
"""Attacks on the uplink of a plan."""

_VERDICT = described(
    {
        "holds": (or_null(FLAG), "whether the claim holds; null: the experiments do not decide"),
        "value": (WORD, "what was measured, with its confidence interval"),
    }
)
REPRODUCED = described(
    {
        "schema_version": _VERSION,
        "experiments": (COUNT, "data sets of every point"),
        "seed": (COUNT, "seed of the study"),
        "version": (WORD, "the flmc that measured"),
        "claims": (
            by_name(by_name(_VERDICT)),
            "verdicts by reading, then by claim; empty where no figure was measured",
        ),
        "conjectures": (list_of(WORD), "readings that are conjectures about the authors' program"),
        "numbers": (
            by_name(by_name(list_of(NUMBER))),
            "numbers of the paper's text as found, by reading, then by name",
        ),
        "search": (
            described(
                {
                    "combinations": (COUNT, "ways to read the text that were searched; 0: none"),
                    "most_claims": (or_null(COUNT), "claims that hold under the best of them"),
                }
            ),
            "search for a reading under which most claims hold; small studies do none",
        ),
        "power_gained_db": (
            NUMBER,
            "how much more power the exact worst case allows than the paper's bound, in decibels",
        ),
    }
)
"""The study of the quantised scheme, measured again."""

_POINT = described(
    {
        "curve": (WORD, "name of the curve"),
        "snr_db": (NUMBER, "SNR in decibels"),
        "mean": (
            NUMBER,
            "geometric mean over experiments of the largest squared W2 over kept rounds",
        ),
        "log_sd": (
            or_null(NUMBER),
            "standard deviation of its logarithm over experiments; null: there is one experiment",
        ),
        "pooled": (NUMBER, "the same distance for the runs of all experiments together"),
        "experiments": (COUNT, "experiments of 100 runs"),
        "published": (or_null(NUMBER), "the published value; null: there is none"),
        "z": (
            or_null(NUMBER),
            "logarithm of the published value over mean and standard deviation of the experiments;"
            " null: not compared",
        ),
    }
)
PREDECESSOR = described(
    {
        "schema_version": _VERSION,
        "experiments": (COUNT, "experiments of 100 runs"),
        "seed": (COUNT, "seed of the study"),
        "version": (WORD, "the flmc that measured"),
        "data": (WORD, "where the data come from"),
        "budget_published": (NUMBER, "privacy budget R of a device as published"),
        "budget_exact": (NUMBER, "what the exact Gaussian mechanism allows"),
        "budget_db": (NUMBER, "how much more that is, in decibels"),
        "floor": (NUMBER, "distance that 100 runs of an exact sampler have on average"),
        "population": (
            NUMBER,
            "distance of infinitely many runs of noiseless Langevin Monte Carlo",
        ),
        "points": (list_of(_POINT), "every curve at every SNR"),
    }
)
"""The study of the analog predecessor, measured again."""
