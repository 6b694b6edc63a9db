"""A channel of your own for the air of a federation: what a receiver measures, from a stream."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

import numpy as np

from flmc.base.errors import InvalidSetting, RunFailed
from flmc.deploy.air.air_channel import Channel, RoundOnAir, Signal
from flmc.sampling.roles import Transmission
from flmc.wire.federation import Federation


class StreamReceiver(Channel):
    """A receiver that writes the received signal of each round to a pipe or socket, as doubles."""

    def __init__(self, stream: BinaryIO, noise_power: float) -> None:
        self._stream, self._noise_power = stream, noise_power

    def check(self, federation: Federation) -> None:
        """Refuse a federation that counts on more noise than the receiver certainly has."""
        planned = federation.plan.uplink.noise_power
        if planned > self._noise_power:
            raise InvalidSetting(
                f"the plan's noise_power is {planned:g}, and the receiver's is known to be at least"
                f" {self._noise_power:g} only"
            )

    def receive(self, this: RoundOnAir, sent: Mapping[int, Transmission]) -> Signal:
        """What was received in a round; ``sent`` says who transmitted. Called once for a round."""
        data = self._stream.read(8 * len(this.gain))
        if len(data) < 8 * len(this.gain):
            raise RunFailed(f"the receiver ended before round {this.round}")
        return Signal(steps=None, values=np.frombuffer(data, dtype="<f8"))


def run_air(config: Path, url: str, channel: Channel) -> None:
    """Be the air, as ``flmc air`` is, with another channel."""
    from flmc.deploy.air.air_journal import AirJournal
    from flmc.deploy.air.air_role import AirRole
    from flmc.deploy.configuration import read_air
    from flmc.deploy.loop import run_process
    from flmc.deploy.sealing import Opener, read_key

    given = read_air(config, url, None)
    journal = AirJournal(given.journal, given.federation)
    role = AirRole(given.federation, journal, Opener(read_key(given.air_key)), channel)
    run_process(role, given.broker)
