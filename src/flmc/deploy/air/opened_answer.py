"""A device's answer as the air reads it from its topic: opened, and said by who it says."""

from __future__ import annotations

import numpy as np

from flmc.deploy.air.channel import RoundOnAir
from flmc.deploy.running.role import Dropped
from flmc.deploy.sealing import OVERHEAD, NotSealed, Opener
from flmc.planning.plans import Plan
from flmc.wire.answers import Answer, largest_answer
from flmc.wire.topics import device_number


def open_answer(who: str, payload: bytes, plan: Plan, opener: Opener) -> Answer:
    """The answer in a sealed payload.

    Parameters
    ----------
    who
        Identity in the topic, which the broker vouches for.
    payload
        Bytes from anybody.
    plan, opener
        Gives the sizes, and opens what devices seal.

    Raises
    ------
    Dropped
        If it is too large, not sealed to the air's key, or of another device.
    Malformed
        If what was sealed is no answer.
    """
    number = device_number(who)
    if number is None or number >= plan.num_devices:
        raise Dropped("wrong-identity")
    if len(payload) > largest_answer(plan.dim) + OVERHEAD:
        raise Dropped("oversized")
    try:
        opened = opener.open(payload)
    except NotSealed as error:
        raise Dropped("not-sealed") from error
    answer = Answer.from_bytes(opened, plan.dim, plan.uplink.random_bits)
    if answer.device != number:
        raise Dropped("wrong-identity")
    return answer


def check_loudness(answer: Answer, on_air: RoundOnAir) -> None:
    """Refuse an answer that would arrive louder than was announced, which is what is accounted.

    Parameters
    ----------
    answer, on_air
        The answer, and the round with its gain, which is at most the plan's cap.

    Raises
    ------
    Dropped
        If an entry is too loud.
    """
    with np.errstate(over="ignore"):  # infinite is over the cap
        arrives = on_air.fading[answer.device] * answer.amplitude
    if (arrives > on_air.gain * (1 + 1e-9)).any():
        raise Dropped("over-cap")
