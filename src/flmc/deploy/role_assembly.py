"""From configurations to roles."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.deploy.air.air_channel import ALPHA, Channel, RecordedReceiver, SoftwareChannel
from flmc.deploy.air.air_journal import AirJournal
from flmc.deploy.air.air_role import AirRole
from flmc.deploy.configuration import AirConfiguration, DeviceConfiguration, ServerConfiguration
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.device.local_model import LocalGradient, local_gradient, read_model
from flmc.deploy.role import Outgoing, Role
from flmc.deploy.sealing import Opener, Seal, read_key
from flmc.deploy.server.server_record import ServerRecord
from flmc.deploy.server.server_role import ServerRole
from flmc.settings.registered import MODELS
from flmc.wire.federation import Federation
from flmc.wire.topics import END, SERVER, Topic


def make_device(given: DeviceConfiguration, run: str) -> DeviceRole:
    """A device with its data, which are read now, and its journal, which is locked.

    Parameters
    ----------
    given, run
        Its configuration, and the name of the run.
    """
    seal = Seal(read_key(given.air_key))
    name = given.rules.model
    model = read_model(name, given.data, **given.reading)

    def gradient(federation: Federation) -> LocalGradient:
        plan = federation.plan
        shares = name in MODELS.names
        return local_gradient(
            model, plan.uplink, plan.num_devices, shares_prior=shares, dim=plan.dim
        )

    return DeviceRole(run, given.rules, DeviceJournal(given.journal), seal, gradient)


def make_air(given: AirConfiguration) -> AirRole:
    """The air with its journal, which is locked.

    Parameters
    ----------
    given
        Its configuration.
    """
    federation, opener = given.federation, Opener(read_key(given.air_key))
    channel: Channel = SoftwareChannel(federation)
    if given.receiver is not None:
        channel = RecordedReceiver(given.receiver, ALPHA if given.alpha is None else given.alpha)
    channel.check(federation)
    return AirRole(federation, AirJournal(given.journal, federation), opener, channel)


def make_server(given: ServerConfiguration) -> ServerRole:
    """The server with its record, new or going on.

    Parameters
    ----------
    given
        Its configuration.
    """
    plan = given.federation.plan

    def start() -> Array:
        if plan.start == "zero":
            return np.zeros(plan.dim)
        # Seeded by the operating system: a deployment has no seed.
        return given.prior_mean + given.prior_sd * np.random.default_rng().standard_normal(plan.dim)

    record = ServerRecord(given.record, given.federation, start)
    return ServerRole(given.federation, record, given.patience)


class EndedServer(Role):
    """A server whose run is finished and recorded: it tells everybody again, and leaves.

    Parameters
    ----------
    run
        Name of the run.
    """

    def __init__(self, run: str) -> None:
        super().__init__(SERVER, run)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """Nothing."""
        return ()

    def connected(self, now: float) -> list[Outgoing]:
        """That the run is over.

        Parameters
        ----------
        now
            Time on the monotonic clock.
        """
        self.finished = True
        return [self.say(END, b'{"why":"finished"}')]

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """Nothing.

        Parameters
        ----------
        topic, payload, now
            Ignored.
        """
        return []
