"""Pydantic models of what `flmc status` and `flmc deploy` print with ``--json``."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import WithJsonSchema

from flmc.cli.schemas.run_answers import AgreementDocument, AnswerDocument, PosteriorDocument
from flmc.planning.plans.plan_schema import Count, Document, FindingDocument, words
from flmc.wire.presence import STATES
from flmc.wire.status import PHASES


class StatusDocument(Document):
    """What a server last said of its run: progress, privacy, times of a round, and dropped
    messages."""

    run: str = words("name of the run")
    phase: Annotated[str, WithJsonSchema({"enum": list(PHASES)})] = words("where the run stands")
    round: Count = words("rounds that are done")
    num_rounds: Count = words("rounds of the plan")
    num_devices: Count = words("devices of the plan")
    active: Count = words("devices in the last round")
    present: dict[str, Count] = words("devices by state: here, joined, refused, gone")
    epsilon: float | None = words(
        "of the whole planned run, for the device that spends most; 0 before the first round;"
        " null: not known yet, or not bounded"
    )
    delta: float | None = words("delta that epsilon is stated at; null: not known yet")
    epsilon_round: Count = words("round up to which epsilon_so_far is stated")
    epsilon_so_far: float | None = words(
        "of the rounds up to that one alone, valid if the round to stop at was fixed beforehand;"
        " null: not known yet, or not bounded"
    )
    temperature: float | None = words("temperature of the last round; null: unknown")
    round_seconds: float | None = words("median time of the last rounds; null: none yet")
    answer_seconds: float | None = words("of it, from theta at the air to the last answer")
    receive_seconds: float | None = words("of it, what the air needs to add up and record")
    commit_seconds: float | None = words("of it, what the server needs to step and record")
    dropped: dict[str, Count] = words("messages that the server dropped, by reason")
    dropped_air: dict[str, Count] = words("messages that the air dropped, by reason")
    repeats: Count = words("rounds that were announced again because answers were too few")
    why: str = words("what the run waits for, or why it failed; empty: nothing")
    verdict: str = words(
        "gravest findings on the draws of a finished run, as the server judges without data; empty:"
        " none, or not finished"
    )
    unix_time: float = words("when the server said this, in seconds since 1970, on its clock")


class RoleDocument(Document):
    """What a server, an air or a device last said of its presence in a run: whether it is there,
    joined, refused or gone."""

    state: Annotated[str, WithJsonSchema({"enum": list(STATES)})] = words(
        "whether it is there, takes part, refused or is gone"
    )
    why: str = words("reason of a refusal; empty: none")
    digest: str = words("digest of the federation that it is about; empty: none yet")
    version: str = words("the flmc that speaks")
    wire: int = words("version of the wire format that it speaks")


class ObservedRunDocument(Document):
    """Everything that an observer has heard about one run: its status and its roles."""

    status: StatusDocument | None = words("the server's last status; null: none yet")
    air: dict[str, Any] | None = words("the air's last status, in its own words; null: none yet")
    roles: dict[str, RoleDocument] = words("server, air and devices by identity")


class ObservationDocument(AnswerDocument):
    """Everything that an observer has heard from a broker about the runs there."""

    broker: str = words("address of the broker")
    runs: dict[str, ObservedRunDocument] = words("runs by name")
    left_out: Count = words("messages that belong to no run, or were too many to be kept")


class SetupDocument(AnswerDocument):
    """What a command changed in the directory of a federation, and what its operator has to do
    next."""

    action: Literal["init", "renew", "revoke"] = words("what was asked for")
    directory: str = words("directory of the federation")
    identities: list[str] = words("whose certificates were issued or revoked")
    changed: list[str] = words("files and folders that are new, relative to the directory")
    steps: list[str] = words("what the operator must do now, in words")


class RunCostDocument(AnswerDocument):
    """The most privacy that a whole run may cost a device."""

    run: str = words("name of the run")
    digest: str = words("digest of the federation")
    epsilon: float | None = words(
        "upper bound for all rounds of the device that transmits most; null: not bounded"
    )
    delta: float = words("delta that epsilon is stated at")
    neighbouring: Literal["device", "example"] = words("what epsilon protects")
    relation: Literal["replace", "add_remove", "zero_out"] = words("how it differs")
    runs: Count = words("runs of the plan, each with a chain of its own, that epsilon is of")


class PooledRunsDocument(AnswerDocument):
    """Several runs of one plan together, as ``PooledRuns.to_document`` writes them."""

    runs: list[str] = words("names of the runs, one chain each")
    epsilon: float | None = words(
        "upper bound for all rounds of all runs and the device that transmits most; null: not"
        " bounded, or unknown"
    )
    delta: float = words("delta that epsilon is stated at")
    mean: list[float] = words("mean of the draws of all chains, for every entry of theta")
    sd: list[float] = words("their standard deviation")
    agreement: AgreementDocument | None = words(
        "whether the chains agree; null with fewer than 4 draws of each"
    )
    findings: list[FindingDocument] = words("statements about the chains, notes included")
    why: str = words("why there is no answer of all chains together; empty: there is one")
    posterior: PosteriorDocument | None = words("the answer of all chains together, or null")


class JoinedRunDocument(Document):
    """A run that a device has joined, and what it costs the device's data."""

    run: str = words("name of the run")
    digest: str = words("digest of the federation that was agreed to")
    neighbouring: Literal["device", "example"] | None = words(
        "what the device's budget protected when it joined; null: an older flmc did not write it"
    )
    relation: Literal["replace", "add_remove", "zero_out"] = words(
        "how that differs in neighbouring data; epsilons of different relations do not add up"
    )
    epsilon_device: float | None = words(
        "what the whole run may cost all data of the device, which counts as spent from its first"
        " answer on; null: not known"
    )
    epsilon_example: float | None = words("the same for one example")
    delta: float = words("delta that both are stated at")
    answers: Count = words("rounds that were answered")
    last_round: Count = words("the last of them; 0: none")


class DeviceLedgerDocument(AnswerDocument):
    """What a device's data may cost in privacy, over all runs that it joined and by run."""

    runs: list[JoinedRunDocument] = words("runs in the order in which they were joined")
    epsilon_device: float | None = words(
        "sum over the runs that were answered, for all data of the device; null: not known"
    )
    epsilon_example: float | None = words("the same for one example")
    delta: float = words("sum over the runs that were answered")
