"""Functions that make device, air and server from their configurations, ready to run."""

from __future__ import annotations

import numpy as np

from flmc.base.arrays import Array
from flmc.base.errors import InvalidSetting
from flmc.deploy.air.air_channel import ALPHA, Channel, RecordedReceiver, SoftwareChannel
from flmc.deploy.air.air_journal import AirJournal
from flmc.deploy.air.air_role import AirRole
from flmc.deploy.configuration import AirConfiguration, DeviceConfiguration, ServerConfiguration
from flmc.deploy.device.device_journal import DeviceJournal
from flmc.deploy.device.device_role import DeviceRole
from flmc.deploy.device.local_model import LocalGradient, local_gradient, read_model
from flmc.deploy.role import Outgoing, Role
from flmc.deploy.sealing import Opener, Seal, read_key
from flmc.deploy.server.server_prior import prior_of
from flmc.deploy.server.server_record import ServerRecord
from flmc.deploy.server.server_role import ServerRole
from flmc.evaluation.named_draws import sampled_names
from flmc.models.model import Model
from flmc.settings.registered import MODELS
from flmc.uplink.report import SUFFIX
from flmc.wire.federation import Federation
from flmc.wire.topics import END, SERVER, Topic


def make_device(given: DeviceConfiguration, run: str) -> DeviceRole:
    """The role of a device in a run, made from its configuration: its data are read, and its
    journal is open and locked."""
    seal = Seal(read_key(given.air_key))
    name = given.rules.model
    model = read_model(name, given.data, **given.reading)

    def gradient(federation: Federation) -> LocalGradient:
        plan = federation.plan
        if model.num_local != plan.num_local:
            raise InvalidSetting(
                f"the plan is for {plan.num_local} local entries of a device, and the model of this"
                f" device has {model.num_local}: plan with the model that devices have"
            )
        _check_names(model, federation)
        # A registered model counts the whole prior; a user's own model counts 1/K of it, the
        # device's share.
        shares = name.removesuffix(SUFFIX) in MODELS.names
        return local_gradient(
            model,
            plan.uplink,
            plan.num_devices,
            shares_prior=shares,
            dim=plan.dim,
            reports=federation.reports,
        )

    return DeviceRole(run, given.rules, DeviceJournal(given.journal), seal, gradient)


def _check_names(model: Model, federation: Federation) -> None:
    """Raise ``InvalidSetting`` if the run names the entries of theta otherwise than the ``model``
    of a device does: the server would show the device's numbers under wrong names. Names of a model
    without any are not compared."""
    if not federation.names or model.layout is None:
        return
    own = sampled_names(model)
    if len(own) != len(federation.names):
        raise InvalidSetting(
            f"the run names {len(federation.names)} entries of theta, and the model of this device"
            f" has {len(own)}"
        )
    for number, (name, theirs) in enumerate(zip(own, federation.names, strict=True)):
        if name != theirs:
            # The device's own name is not told: this is published, and a name of a column of its
            # data need not be public.
            raise InvalidSetting(
                f"the run calls entry {number} of theta (from 0) {theirs!r}, and the model of this"
                " device calls it otherwise: names in federation.toml must be those of"
                " model.layout.free_entries(), in their order, or be left out"
            )


def make_air(given: AirConfiguration) -> AirRole:
    """The role of the air, made from its configuration: its journal is open and locked, and its
    channel is software or a receiver's recorded measurements. Raises ``InvalidSetting`` if the
    plan's privacy statement does not hold over the channel."""
    federation, opener = given.federation, Opener(read_key(given.air_key))
    channel: Channel = SoftwareChannel(federation)
    if given.receiver is not None:
        channel = RecordedReceiver(given.receiver, ALPHA if given.alpha is None else given.alpha)
    channel.check(federation)
    return AirRole(federation, AirJournal(given.journal, federation), opener, channel)


def make_server(given: ServerConfiguration) -> ServerRole:
    """The role of the server, made from its configuration: its record, new or of an interrupted
    run, is open and locked."""
    plan = given.federation.plan

    def start() -> Array:
        if plan.start == "zero":
            return np.zeros(plan.dim)
        # The operating system seeds the generator, because a deployment has no seed of its own.
        return given.prior_mean + given.prior_sd * np.random.default_rng().standard_normal(plan.dim)

    prior = prior_of(given.federation, given.prior)
    record = ServerRecord(given.record, given.federation, start, prior)
    return ServerRole(given.federation, record, given.patience)


class EndedServer(Role):
    """A server whose run is already finished and recorded: it publishes the end of the run again,
    for roles that missed it, and finishes."""

    def __init__(self, run: str) -> None:
        super().__init__(SERVER, run)

    @property
    def subscriptions(self) -> tuple[str, ...]:
        """No topics, because the server of a finished run only publishes."""
        return ()

    def connected(self, now: float) -> list[Outgoing]:
        """The message that ends the run, for roles that missed it; the server's role is finished
        then."""
        self.finished = True
        return [self.say(END, b'{"why":"finished"}')]

    def take(self, topic: Topic, payload: bytes, now: float) -> list[Outgoing]:
        """No messages in reply to any message, because the run is finished."""
        return []
