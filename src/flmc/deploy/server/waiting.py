"""What a run waits for, in words, for its status."""

from __future__ import annotations

from flmc.wire.federation import Federation


def before_round_1(federation: Federation, joined: int, refused: int) -> str:
    """What is waited for before round 1.

    Parameters
    ----------
    federation
        The run.
    joined, refused
        Devices that have joined, and that do not want to.
    """
    devices, quorum = federation.plan.num_devices, federation.quorum
    said = f"{joined} of {devices} devices have joined, a quorum is {quorum}"
    return said + (f"; {refused} refused" if refused else "")


def for_answers(federation: Federation, round_number: int, seconds: float) -> str:
    """What is waited for in a round; empty as long as it takes no longer than two deadlines.

    Parameters
    ----------
    federation, round_number
        The run, and the round, counted from 1.
    seconds
        How long the round has taken so far.
    """
    if seconds <= 2 * federation.deadline_ms / 1000:
        return ""
    return (
        f"round {round_number} has had too few answers for {seconds:.0f} s; a quorum is"
        f" {federation.quorum} of {federation.plan.num_devices}"
    )
